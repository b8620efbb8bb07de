#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bits flip while a data set is staged: in an object server's store, with one replica and with two,
and in flight between two agents. The flip is found, reported, and repaired if there is another
replica. (In a peer's copy: test_agents.sh; locally: test_cli_stage_verbs.sh.)"""
import json
import os
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from cluster import BUILD, free_ports, get, run_tests, wait_until

MIB = 1 << 20
CLUSTER = {"mounts": 1, "ossd": 2, "size": "256M", "replicas": 2}


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())


def find(path, needle):
    """The offset of needle, or -1. Reads in parts, because a guest (tests/rdma) lacks memory."""
    with open(path, "rb") as f:
        at, before = 0, b""
        while part := f.read(8 * MIB):
            where = (before + part).find(needle)
            if where >= 0:
                return at - len(before) + where
            at += len(part)
            before = part[-len(needle) + 1:]
    return -1


def flip(c, needle):
    """Flips one bit in one of the places where a target has these bytes."""
    for name in c.ossd:
        path = "%s/%s/store/data" % (c.dev, name)
        at = find(path, needle)
        if at < 0:
            continue
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, bytes([needle[0] ^ 0x10]), at)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        return
    raise AssertionError("the bytes are on no target")


def stage(c, what, to):
    r = c.leat("stage", "in", what, "--to", to, "--json", check=False)
    return r.returncode, r.stdout + r.stderr


def test_in_the_only_copy_at_the_servers(c):
    data = os.urandom(3 * MIB)
    os.mkdir(c.mnt() + "/one")
    c.leat("layout", "set", "--replicas", "1", c.mnt() + "/one")
    put(c.mnt() + "/one/sub/hurt", data)
    put(c.mnt() + "/one/whole", os.urandom(MIB))
    c.leat("dataset", "create", "one@v1", c.mnt() + "/one")
    at = MIB + 5 * 16384
    flip(c, data[at:at + 4096])
    code, said = stage(c, "one@v1", c.dir + "/to")
    assert code == 6, (code, said)
    assert "sub/hurt" in said and str(at // MIB * MIB) in said, said
    state = c.leat("stage", "status", "one@v1", "--to", c.dir + "/to", "--json", check=False)
    assert json.loads(state.stdout)["state"] == "FAILED", state.stdout


def test_in_one_of_two_copies(c):
    data = os.urandom(3 * MIB)
    os.mkdir(c.mnt() + "/two")
    c.leat("layout", "set", "--replicas", "2", c.mnt() + "/two")
    put(c.mnt() + "/two/hurt", data)
    c.leat("dataset", "create", "two@v1", c.mnt() + "/two")
    at = 2 * MIB + 7 * 16384
    flip(c, data[at:at + 4096])
    code, said = stage(c, "two@v1", c.dir + "/to")
    assert code == 0, (code, said)
    path = c.leat("stage", "path", "two@v1", "--to", c.dir + "/to").stdout.strip()
    assert get(path + "/hurt") == data


class Relay:
    """Between an agent and its callers: flips one bit in each 200000 bytes of replies."""

    def __init__(self, to):
        self.to, self.flipped, self.on = to, 0, True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addr = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
                far = socket.create_connection(self.to)
            except OSError:
                return
            threading.Thread(target=self.carry, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self.carry, args=(far, near, True), daemon=True).start()

    def carry(self, a, b, hurt):
        count = 0
        try:
            while True:
                data = bytearray(a.recv(65536))
                if not data:
                    break
                count += len(data)
                if hurt and count > 200000:
                    data[len(data) // 2] ^= 4
                    count = 0
                    self.flipped += 1
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def test_on_the_way_between_agents(c):
    """Only over TCP can a program change data on the way."""
    if os.environ.get("LEAT_DEV_TRANSPORT") == "verbs":
        return
    data = os.urandom(12 * MIB)
    put(c.mnt() + "/way/file", data)
    c.leat("dataset", "create", "way@v1", c.mnt() + "/way")
    ports, agents = free_ports(2), []
    try:
        for i, port in enumerate(ports):
            ready = "%s/ready%d" % (c.dir, i)
            agents.append(subprocess.Popen(
                [BUILD + "/leat", "--conf", c.dev + "/conf", "agent", "--set",
                 "dirs=%s/node%d" % (c.dir, i), "--set", "listen=127.0.0.1:%d" % port, "--set",
                 "node=n%d" % i, "--ready-file", ready]))
            wait_until(lambda r=ready: os.path.exists(r) and os.path.getsize(r), 20, "an agent")
        relay = Relay(("127.0.0.1", ports[0]))
        r = c.leat("stage", "in", "way@v1", "--nodes",
                   "%s,127.0.0.1:%d" % (relay.addr, ports[1]), "--json")
        said = json.loads(r.stdout)
        assert relay.flipped > 0 and said["ready"] == 2, said
        # The caller noticed the bad agent, and fetched the chunks that it owned from the servers.
        assert said["nodes"][1]["dropped"] > 0, said
        for i in range(2):
            path = c.leat("stage", "path", "way@v1", "--to",
                          "%s/node%d" % (c.dir, i)).stdout.strip()
            assert get(path + "/file") == data
    finally:
        for p in agents:
            p.terminate()
            p.wait()


run_tests(globals())
