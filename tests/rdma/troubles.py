#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: messages and behaviour where RDMA is not set up right.

Each trouble is tested with `transport = auto`, where everything works over TCP and the log says
why, and with `transport = verbs`, which fails with a message. A message names the trouble and the
remedy.

    memory         only a little memory may be locked: of a mount, of a server
    manager        no connection manager (the module rdma_ucm)
    address        the server's address belongs to no device (no GID of it)
    unreachable    a server is named by an address that no device reaches
    mtu            two hosts on rxe: frames of the MTU are dropped
"""
import json
import os
import subprocess
import sys
import time

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, SRC + "/tests/lib")
sys.dont_write_bytecode = True
from cluster import BUILD, SLOWNESS, Cluster, wait_until

ELSEWHERE = "10.9.8.1"
MEMLOCK_KIB = 4096
MEMORY = ("only %d KiB of memory may be locked" % MEMLOCK_KIB, "LimitMEMLOCK=infinity")
MANAGER = ("no RDMA connection manager", "load the module rdma_ucm")
ADDRESS = ("cannot listen on " + ELSEWHERE, "`rdma link` shows the devices and their networks")
UNREACHABLE = ("no RDMA device reaches this address", "`rdma link` shows devices")
MTU = ("a message of", "does not come through", "the MTU has to be the same on both sides",
       "`ibv_devinfo`")


def run(*argv):
    subprocess.run(argv, check=True, timeout=60)


def low_memlock():
    """Words before a command that may lock little memory; root may lock any amount unless it loses
    that right."""
    path = os.environ["TMPDIR"] + "/low"
    with open(path, "w") as f:
        f.write('#!/bin/bash\nulimit -l %d\n'
                'exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$@"\n' % MEMLOCK_KIB)
    os.chmod(path, 0o755)
    return path


def says(text, words, who):
    lines = [l for l in text.splitlines() if words[0] in l]
    assert any(all(w in l for w in words) for l in lines), \
        "%s does not say %s in one line:\n%s" % (who, words, text)


def io(mnt):
    """Writes and reads bytes, over any transport."""
    data = os.urandom(8 << 20)
    with open(mnt + "/data", "wb") as f:
        f.write(data)
        os.fsync(f.fileno())
    fd = os.open(mnt + "/data", os.O_RDONLY | os.O_DIRECT)
    with os.fdopen(fd, "rb", buffering=1 << 20) as f:
        assert f.read() == data, "wrong data"


def data_transports(c, mnt):
    net = json.loads(c.leat("status", "--net", "--json", mnt).stdout)["mount"]["net"]
    return {k["transport"] for k in net["connections"] if k["to"].startswith("target")}


class Bed:
    """A cluster with a transport: servers at an address, with words before their command lines."""

    def __init__(self, transport, addr=None, server="", mounts=1):
        os.environ.update(LEAT_DEV_TRANSPORT=transport, LEAT_DEV_SERVER=server,
                          LEAT_DEV_ADDR=addr or os.environ["RDMA_IP"])
        self.cluster = Cluster(ossd=2, size="300M", mounts=mounts)

    def __enter__(self):
        self.cluster.run("up", stdout=subprocess.DEVNULL)
        return self.cluster

    def __exit__(self, kind, value, trace):
        self.cluster.__exit__(kind, value, trace)

    def refuses(self, words, daemon):
        """The cluster does not start, and the daemon's log says why."""
        c = self.cluster
        try:
            failed = c.run("up", check=False, capture_output=True, text=True)
            assert failed.returncode != 0, "came up all the same"
            says(failed.stdout + failed.stderr + c.log(daemon), words, daemon)
        finally:
            c.__exit__(None, None, None)


def mount_by_hand(c, before, transport, words, works):
    mnt, log = os.environ["TMPDIR"] + "/by-hand", os.environ["TMPDIR"] + "/by-hand.log"
    os.makedirs(mnt, exist_ok=True)
    with open(c.dev + "/conf") as f, open(log + ".conf", "w") as conf:
        conf.write(f.read().replace("transport = auto", "transport = " + transport))
    with open(log, "w") as out:
        p = subprocess.Popen(before + [BUILD + "/mount.leat", "leat", mnt, "-f", "-o",
                                       "conf=%s.conf" % log], stdout=out, stderr=out)
    try:
        if works:
            wait_until(lambda: os.path.ismount(mnt), 30, "it is mounted")
            io(mnt)
            assert data_transports(c, mnt) == {"tcp"}, data_transports(c, mnt)
            run("umount", mnt)
        status = p.wait(60)
        assert (status == 0) == works, status
    finally:
        p.kill()
        p.wait()
    with open(log) as f:
        says(f.read(), words, "the mount")


def memory():
    low = low_memlock()
    with Bed("auto") as c:
        mount_by_hand(c, [low], "auto", MEMORY, works=True)
        mount_by_hand(c, [low], "verbs", MEMORY, works=False)
    with Bed("auto", server=low) as c:
        io(c.mnt())
        assert data_transports(c, c.mnt()) == {"tcp"}
        says(c.log("ossd1"), MEMORY, "ossd1")
    Bed("verbs", server=low).refuses(MEMORY, "ossd1")


def manager():
    device = "/dev/infiniband/rdma_cm"
    os.rename(device, device + ".away")
    try:
        with Bed("auto") as c:
            io(c.mnt())
            says(c.leat("status").stdout, MANAGER, "leat status")
        Bed("verbs").refuses(MANAGER, "mds")
    finally:
        os.rename(device + ".away", device)


def address():
    run("ip", "link", "add", "elsewhere", "type", "dummy")
    run("ip", "addr", "add", ELSEWHERE + "/24", "dev", "elsewhere")
    run("ip", "link", "set", "elsewhere", "up")
    with Bed("auto", addr=ELSEWHERE) as c:
        io(c.mnt())
        says(c.log("ossd1"), ADDRESS, "ossd1")
    Bed("verbs", addr=ELSEWHERE).refuses(ADDRESS, "mds")


def unreachable():
    path = os.environ["TMPDIR"] + "/conf"
    with open(path + ".key", "w") as f:
        f.write("11" * 32)
    os.chmod(path + ".key", 0o600)
    with open(path, "w") as f:
        f.write("[cluster]\nkey_file = %s.key\ntransport = verbs\nmds = 192.0.2.1:7440\n" % path)
    run("ip", "route", "add", "192.0.2.0/24", "dev", "elsewhere")
    got = subprocess.run([BUILD + "/mount.leat", "leat", "/mnt", "-f", "-o", "conf=" + path],
                         capture_output=True, text=True, timeout=60, check=False)
    assert got.returncode != 0, "reached a server that is not there"
    says(got.stderr, UNREACHABLE, "the mount")


def narrow(where, size):
    """Sets the MTU of the second host's link to the switch, on its side or on that of the
    switch."""
    run("ip", "-n", where, "link", "set", {"two": "eth2", "switch": "port2"}[where], "mtu", size)


def mtu():
    """Narrows both ends of the second host's link, and then only the switch's end."""
    servers = os.environ["RDMA_PEER"]
    # TCP must not suffer from this test: its packets are small in any case.
    for where, name in (([], "eth1"), (["-n", "two"], "eth2")):
        run("ip", *where, "route", "change", "10.9.0.0/24", "dev", name, "mtu", "1400")
    for narrowed in (("two", "switch"), ("switch",)):
        for where in narrowed:
            narrow(where, "1500")
        with Bed("auto", os.environ["RDMA_PEER_IP"], servers) as c:
            io(c.mnt())
            assert data_transports(c, c.mnt()) == {"tcp"}
            says(c.log("mnt1"), MTU, "the mount")
            begun, longest = time.monotonic(), 0.0
            while time.monotonic() - begun < 20:  # verbs is tried again repeatedly meanwhile
                one = time.monotonic()
                io(c.mnt())
                longest = max(longest, time.monotonic() - one)
            print("  8 MiB there and back: %.2f s at most" % longest)
            assert longest < 3 * SLOWNESS, "requests wait for the way that does not work"
            mount_by_hand(c, [], "verbs", MTU, works=False)
        for where in narrowed:
            narrow(where, "9000")


def main():
    tests = [memory, manager, address, unreachable]
    if "RDMA_PEER" in os.environ:
        tests = [mtu] if os.environ["RDMA_KIND"] == "rxe" else []
    if not tests:
        print("iWARP is carried by TCP, which knows the MTU of its way")
        return 77
    for test in tests:
        print(test.__name__, flush=True)
        test()
    print("passed")
    return 0


sys.exit(main())
