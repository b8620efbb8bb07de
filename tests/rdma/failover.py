#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: ports of devices are taken down and up under load.

A cluster by `transport = auto` on two rails; I/O with verification runs all the time. Then, each
time with no error to the application:
  both rails carry the requests to an object server;
  the port of one is taken down: the other one carries all, none uses tcp;
  the port of the other one is down too: requests use tcp;
  both are up again: all requests move back to them.
Ports of siw are taken down with their interfaces; those of rxe lose their cable (see `cable`).
"""
import json
import os
import subprocess
import sys
import threading
import time

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SRC, "tests", "lib"))
SECOND_IP = "10.9.7.1"
BLOCK = 1 << 20


def run(*argv, check=True):
    got = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if check and got.returncode != 0:
        raise SystemExit("FAILED: %s: %s" % (" ".join(argv), got.stdout))
    return got.stdout


class Load(threading.Thread):
    """Writes and reads blocks, and records errors and the longest wait."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.errors, self.n, self.longest_s, self.over = path, [], 0, 0.0, False

    def run(self):
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        import mmap
        buf = mmap.mmap(-1, BLOCK)
        while not self.over:
            word = b"%015d\n" % self.n
            begun = time.monotonic()
            try:
                buf[:] = word * (BLOCK // 16)
                os.pwritev(fd, [buf], self.n % 8 * BLOCK)
                buf[:] = bytes(BLOCK)
                if os.preadv(fd, [buf], self.n % 8 * BLOCK) != BLOCK or \
                        buf[:] != word * (BLOCK // 16):
                    self.errors.append("block %d: wrong data" % self.n)
            except OSError as e:
                self.errors.append("block %d: %s" % (self.n, e))
            self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.n += 1
        os.close(fd)

    def check(self, what):
        before, begun = self.n, time.monotonic()
        while self.n < before + 3 and time.monotonic() - begun < 60:
            time.sleep(0.05)
        if self.errors or self.n < before + 3:
            raise SystemExit("FAILED: %s: %s" % (what, self.errors[:3] or "no progress"))
        print("%s: %d blocks, longest wait %.2f s" % (what, self.n, self.longest_s), flush=True)
        self.longest_s = 0.0


def connections(mnt):
    out = run(os.environ["BUILD"] + "/leat", "status", "--net", "--json", mnt)
    return [c for c in json.loads(out)["mount"]["net"]["connections"] if c["state"] != "leaving"]


def wait(mnt, what, wanted, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cs = connections(mnt)
        if all(c["state"] == "up" for c in cs) and wanted(cs):
            print("%s after %.1f s" % (what, seconds - (end - time.monotonic())), flush=True)
            return cs
        time.sleep(0.2)
    raise SystemExit("FAILED: %s: %s" % (what, json.dumps(cs, indent=1)))


def port(netdev, state):
    if os.environ["RDMA_KIND"] == "siw":
        run("ip", "link", "set", netdev, state)
    else:
        run("ip", "link", "set", netdev, "carrier", {"up": "on", "down": "off"}[state])


def data(cs):
    return [c for c in cs if c["to"].startswith("target")]


def main():
    kind, first = os.environ["RDMA_KIND"], os.environ["RDMA_DEV"]
    netdev = first.split("-", 1)[1]
    second = kind + "-rail2"
    run("ip", "link", "add", "rail2", "type", "dummy")
    run("ip", "addr", "add", SECOND_IP + "/24", "dev", "rail2")
    run("ip", "link", "set", "rail2", "mtu", "9000", "up")
    run("rdma", "link", "add", second, "type", kind, "netdev", "rail2")
    run("hostname", "localhost")
    os.environ.update(LEAT_DEV=os.environ["TMPDIR"] + "/dev", LEAT_DEV_ADDR="0.0.0.0",
                      LEAT_DEV_TRANSPORT="auto", LEAT_DEV_OSSD="2", LEAT_DEV_SIZE="300M",
                      LEAT_DEV_MOUNTS="1")
    cluster = SRC + "/deploy/dev-cluster"
    run(cluster, "up")
    os.environ["LEAT_CONF"] = os.environ["LEAT_DEV"] + "/conf"
    mnt = run(cluster, "mountpoint").strip()
    load = Load(mnt + "/data")
    load.start()
    try:
        check(mnt, load, first, second, netdev)
        load.over = True
        load.join(30)
    except SystemExit:
        log = os.environ["LEAT_DEV"] + "/log"
        for name in sorted(os.listdir(log)):
            print("---", name, "\n" + run("tail", "-n", "15", log + "/" + name), flush=True)
        raise
    run(cluster, "down")
    print("passed")


def check(mnt, load, first, second, netdev):
    cs = wait(mnt, "two rails to each target",
              lambda cs: all(c["transport"] == "verbs" for c in cs) and len(data(cs)) == 4)
    if sorted({c["device"] for c in data(cs)}) != sorted([first, second]):
        raise SystemExit("FAILED: rails %s" % [c["device"] for c in data(cs)])
    load.check("verbs")
    cs = connections(mnt)
    if min(c["calls"] for c in data(cs)) < 1 or any(c["copied_bytes"] for c in data(cs)):
        raise SystemExit("FAILED: a rail without requests, or bytes copied: %s" % cs)

    port(netdev, "down")
    wait(mnt, "the second rail alone",
         lambda cs: all(c["device"] == second for c in cs) and len(data(cs)) >= 2)
    load.check("one rail lost")

    port("rail2", "down")
    wait(mnt, "tcp", lambda cs: all(c["transport"] == "tcp" for c in cs))
    load.check("both rails lost")

    port(netdev, "up")
    port("rail2", "up")
    wait(mnt, "back on two rails",
         lambda cs: all(c["transport"] == "verbs" for c in cs) and len(data(cs)) == 4)
    load.check("rails are back")


main()
