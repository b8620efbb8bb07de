#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wall clocks of servers and clients are wrong, and jump while files are open. The difference is
reported immediately, and reads, writes and file times stay right. tests/clock provides the
clocks."""
# timeout: 300
import datetime
import json
import mmap
import os
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, Cluster, get, put, wait_until  # noqa: E402
from test_retire import target_of  # noqa: E402

SHIM = BUILD + "/tests/clock_shim.so"
DAY = 86400
NEVER_TOLD = 0.4  # seconds: a difference of up to a second is not reported
# Seconds: object servers accept a write time from a client that is this old, and a bit more.
WRITTEN_BEFORE = 20
WRAPPER = """#!/bin/sh
name=mds
for word; do
    case $word in
    host=host*) name=ossd${word#host=host} ;;
    */dev/mnt[0-9]*) name=mnt${word##*/mnt} ;;
    esac
done
exec env LD_PRELOAD=%s LEAT_TEST_CLOCK=%s/$name "$@"
"""


def to_2015():
    then = datetime.datetime(2015, 1, 1, tzinfo=datetime.timezone.utc).timestamp()
    return then - time.time()


class Clocks:
    """A file for each server and mount that says how far its clock is ahead, in seconds."""

    def __init__(self, c):
        self.dir = c.dir + "/clocks"
        os.mkdir(self.dir)
        for name in ["mds", "mnt1", "mnt2"] + c.ossd:
            self.set(name, 0)
        with open(c.dir + "/with-clock", "w") as f:
            f.write(WRAPPER % (SHIM, self.dir))
        os.chmod(c.dir + "/with-clock", 0o755)
        c.env["LEAT_DEV_SERVER"] = c.env["LEAT_DEV_MOUNT"] = c.dir + "/with-clock"

    def set(self, name, seconds):
        """One write, so that no server reads half of it."""
        fd = os.open("%s/%s" % (self.dir, name), os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, struct.pack("=q", int(seconds * 10**9)), 0)
        os.close(fd)


def await_ahead(c, seconds):
    """Waits until the metadata server reports the targets of ossd1, ossd2, ... this far ahead."""
    def told():
        rows = {t["id"]: t for t in c.status()["targets"]}
        rows = [rows[target_of(c, name)] for name in c.ossd]
        return all(abs(t.get("clock_ahead_ms", 10**15) / 1000 - s) <
                   0.3 + t.get("clock_bound_ms", 0) / 1000 for t, s in zip(rows, seconds))
    wait_until(told, 20, "the targets' clocks are told: %s" % seconds)


def await_clients_ahead(c, seconds):
    """Waits until the metadata server reports the clocks of mnt1 and mnt2 this far ahead. A clock
    that it does not report counts as 0."""
    def told():
        clocks = c.status()["mds"]["client_clocks"]
        ahead = sorted(k["clock_ahead_ms"] / 1000 for k in clocks["apart"])
        want = sorted(s for s in seconds if abs(s) > 1)
        return clocks["compared"] == 2 and len(ahead) == len(want) and \
            clocks["ahead"] + clocks["behind"] == len(want) and \
            all(abs(a - w) < 0.8 for a, w in zip(ahead, want))
    wait_until(told, 30, "the clients' clocks are told: %s" % seconds)


def read_past_cache(path):
    """O_DIRECT, because the kernel does not report reads from its page cache to the mount."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, 4096) as buf:
        assert os.preadv(fd, [buf], 0) > 0
    os.close(fd)


class Work:
    """Files that stay open, so that rights from before a jump of the clocks are used after it."""

    def __init__(self, c):
        self.c = c
        self.n = 0
        self.paths = [c.mnt(1) + "/kept%d" % i for i in range(4)]
        self.files = [os.open(p, os.O_RDWR | os.O_CREAT) for p in self.paths]
        self.others = [os.open(p.replace(c.mnt(1), c.mnt(2)), os.O_RDONLY) for p in self.paths]

    def do(self, what):
        self.n += 1
        data = b"%08d" % self.n * 1024
        for fd, other in zip(self.files, self.others):
            os.pwrite(fd, data, 0)
            os.fsync(fd)
            assert os.pread(other, len(data), 0) == data, what
        new = "/new%d" % self.n
        put(self.c.mnt(1) + new, data)
        assert get(self.c.mnt(2) + new) == data, what

    def close(self):
        for fd in self.files + self.others:
            os.close(fd)


def check(c, code, *words):
    out = c.leat("status", "--check", check=False)
    assert out.returncode == code, (out.returncode, out.stdout, out.stderr)
    for word in words:
        assert word in out.stdout, (word, out.stdout)
    assert ("clocks" in out.stdout) == (code != 0), out.stdout


def warned(c, name, words):
    wait_until(lambda: words in c.log(name), 20, "the log of %s: %s" % (name, words))


def test_an_object_servers_clock(c, clocks):
    work = Work(c)
    work.do("no clock is wrong")
    await_ahead(c, [0, 0])
    check(c, 0)
    for seconds, words in [(NEVER_TOLD, ""), (1.6, "s ahead of"), (-1.6, "s behind"),
                           (3600, "1 h 0 min ahead of"), (-3600, "1 h 0 min behind"),
                           (10 * DAY, "10 days 0 h ahead of"),
                           (-10 * DAY, "10 days 0 h behind"),
                           (to_2015(), "h behind")]:
        clocks.set("ossd1", seconds)
        await_ahead(c, [seconds, 0])
        work.do("ossd1's clock is %s s ahead" % seconds)
        if seconds == NEVER_TOLD:
            check(c, 0)
            continue
        check(c, 3, "target %d: " % target_of(c, "ossd1"), words + " the metadata server's clock",
              "keep the clocks of all machines right")
        for name in ["mds", "ossd1"]:
            warned(c, name, words)
    warned(c, "mds", "there it is 2015-01-01")
    warned(c, "ossd1", "here it is 2015-01-01")
    clocks.set("ossd1", 0)
    await_ahead(c, [0, 0])
    check(c, 0)
    warned(c, "mds", "agrees with this server's again")
    warned(c, "ossd1", "agrees with the metadata server's again")
    work.close()


def test_a_time_is_not_held_in_the_future(c, clocks):
    """The times of a file that is written and truncated while object servers are ten days ahead."""
    path = c.mnt(1) + "/dated"
    paths = [path, c.mnt(2) + "/dated"]
    for name in c.ossd:
        clocks.set(name, 10 * DAY)
    await_ahead(c, [10 * DAY, 10 * DAY])
    put(path, b"x" * 300000)
    # Two mounts write it, so its time comes from the object servers.
    first, second = (os.open(p, os.O_RDWR) for p in paths)
    for fd in first, second:
        os.pwrite(fd, b"y" * 1000, 5000)
        os.fsync(fd)
    for p in paths:
        assert abs(os.stat(p).st_mtime - time.time()) < 3600, os.stat(p)
    os.ftruncate(first, 100000)
    for name in c.ossd:
        clocks.set(name, 0)
    await_ahead(c, [0, 0])
    then = os.stat(path).st_mtime
    os.pwrite(second, b"z", 0)
    os.fsync(second)
    os.close(first)
    os.close(second)
    assert then < os.stat(path).st_mtime < time.time() + 3600, (then, os.stat(path))


def test_the_metadata_servers_clock(c, clocks):
    """The clock jumps while capabilities are in use: some expire immediately, or new ones look
    old."""
    work = Work(c)
    for seconds in [3600, -3600, 10 * DAY, 0, -10 * DAY, to_2015(), 3650 * DAY, 0]:
        clocks.set("mds", seconds)
        work.do("mds's clock is %s s ahead" % seconds)
        await_ahead(c, [-seconds, -seconds])
        await_clients_ahead(c, [-seconds, -seconds])
        work.do("mds's clock is %s s ahead, and this is known" % seconds)
        if seconds:
            check(c, 3, "The metadata server's own clock is probably the wrong one")
    check(c, 0)
    work.close()


def mount_status(c, n):
    return json.loads(os.getxattr(c.mnt(n), "leat.status"))


def client_lines(c):
    """The lines of leat status on client clocks. The servers' state must be good."""
    out = c.leat("status", "--check", check=False)
    assert out.returncode == 0, (out.returncode, out.stdout, out.stderr)
    return [line for line in out.stdout.splitlines() if "the metadata server's clock" in line]


def test_a_clients_clock(c, clocks):
    work = Work(c)
    await_clients_ahead(c, [0, 0])
    assert client_lines(c) == []
    other = c.log("mnt2").count("this machine's clock")
    for seconds, words in [(NEVER_TOLD, ""), (-3600, "1 h 0 min behind"),
                           (10 * DAY, "10 days 0 h ahead of"), (to_2015(), "h behind")]:
        clocks.set("mnt1", seconds)
        work.do("mnt1's clock is %s s ahead" % seconds)
        await_clients_ahead(c, [seconds, 0])
        work.do("and this is known")
        lines = client_lines(c)
        assert len(lines) == (seconds != NEVER_TOLD), lines
        if lines:
            name = ".%d: " % mount_status(c, 1)["pid"]
            assert "client " in lines[0] and name in lines[0] and words in lines[0], lines
            warned(c, "mnt1", words + " the metadata server's (give or take")
    warned(c, "mnt1", "here it is 2015-01-01")
    clocks.set("mnt1", 0)
    await_clients_ahead(c, [0, 0])
    assert client_lines(c) == []
    warned(c, "mnt1", "agrees with the metadata server's again")
    assert c.log("mnt2").count("this machine's clock") == other
    work.close()


def opens_by_delegation(c, n, path):
    """Waits until that mount opens the file without a request to the metadata server."""
    def one_is():
        before = mount_status(c, n)["delegated_opens"]
        get(path)
        return mount_status(c, n)["delegated_opens"] > before
    wait_until(one_is, 20, "an open is delegated")


def test_a_clients_clock_decides_nothing(c, clocks):
    """It affects neither delegation of opens, nor times of writes, nor updates of access times."""
    for seconds in [20 * DAY, -20 * DAY, -WRITTEN_BEFORE]:
        clocks.set("mnt2", seconds)
        await_clients_ahead(c, [0, seconds])
        path = "/decided%d" % seconds
        put(c.mnt(1) + path, b"x" * 100000)
        os.utime(c.mnt(1) + path, (time.time() + 1, time.time() - 10))
        opens_by_delegation(c, 2, c.mnt(2) + path)
        with open(c.mnt(2) + path + "-new", "wb", buffering=0) as f:
            for _ in range(2):
                time.sleep(1)  # else the write would be as old as the file
                before = time.time()
                f.write(b"y" * 5000)
                now = os.stat(c.mnt(1) + path + "-new").st_mtime
                assert before - 0.5 < now < time.time() + 0.5, (seconds, now - before)
    # All clocks are two days behind. Then two days pass, but not on this client's clock.
    servers = ["mds"] + c.ossd
    for name in servers + ["mnt2"]:
        clocks.set(name, -2 * DAY)
    await_clients_ahead(c, [2 * DAY, 0])
    path = c.mnt(2) + "/accessed"
    put(path, b"x" * 100000)
    time.sleep(0.01)
    read_past_cache(path)
    wait_until(lambda: os.stat(path).st_atime > os.stat(path).st_ctime, 20, "it was accessed")
    for name in servers:
        clocks.set(name, 0)
    await_clients_ahead(c, [0, -2 * DAY])

    def is_accessed():
        read_past_cache(path)
        return os.stat(path).st_atime > time.time() - 3600
    wait_until(is_accessed, 20, "it was accessed today")
    clocks.set("mnt2", 0)
    await_ahead(c, [0, 0])
    await_clients_ahead(c, [0, 0])


def test_servers_that_start_with_a_wrong_clock(c, clocks):
    work = Work(c)
    work.do("before")
    past = to_2015()
    clocks.set("mds", past)
    clocks.set("ossd2", 10 * DAY)
    for name in ["mds", "ossd2"]:
        c.kill(name)
        c.start(name)
    work.do("after the restart")
    await_ahead(c, [-past, 10 * DAY - past])
    work.do("and when it is known")
    clocks.set("mds", 0)
    clocks.set("ossd2", 0)
    work.do("set right")
    await_ahead(c, [0, 0])
    await_clients_ahead(c, [0, 0])
    check(c, 0)
    work.close()
    c.assert_sound()


def main():
    c = Cluster(ossd=2, mounts=2)
    clocks = Clocks(c)
    tests = [test_an_object_servers_clock, test_a_time_is_not_held_in_the_future,
             test_a_clients_clock, test_a_clients_clock_decides_nothing,
             test_the_metadata_servers_clock, test_servers_that_start_with_a_wrong_clock]
    with c:
        for test in tests:
            if len(sys.argv) > 1 and test.__name__ not in sys.argv[1:]:
                continue
            began = time.monotonic()
            test(c, clocks)
            print("%-50s %.2f s" % (test.__name__, time.monotonic() - began))


if __name__ == "__main__":
    main()
