#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of four object servers is killed under writers, with two replicas of every file: no program
gets an error, the chains continue without the server, and it is resynced automatically when it is
back. (tests/fault/chain_storm.py measures how long writers wait.)"""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import run_tests, wait_until  # noqa: E402

CLUSTER = {"mounts": 1}
BLOCKS = 16  # of each file


class Writers:
    def __init__(self, mnt, n=4):
        self.stop, self.errors, self.waits, self.n = False, [], [], [0] * n
        self.threads = [threading.Thread(target=self.run, args=(mnt, i)) for i in range(n)]

    def run(self, mnt, i):
        block = os.urandom(65536)
        try:
            fd = os.open("%s/w%d" % (mnt, i), os.O_CREAT | os.O_RDWR)
            n = 0
            while not self.stop:
                began = time.monotonic()
                os.pwrite(fd, block, n % BLOCKS * len(block))
                os.fsync(fd)
                self.waits.append(time.monotonic() - began)
                n += 1
                self.n[i] = n
            for k in range(min(n, BLOCKS)):
                if os.pread(fd, len(block), k * len(block)) != block:
                    self.errors.append("w%d: block %d is not what was written" % (i, k))
            os.close(fd)
        except OSError as e:
            self.errors.append("w%d: %s" % (i, e))

    def go_on(self, n, what):
        """Waits until every writer has made n more writes, or one has ended with an error."""
        before = list(self.n)
        wait_until(lambda: self.errors or all(now >= then + n for now, then in
                                              zip(self.n, before)), 30, what)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.stop = True
        for t in self.threads:
            t.join()


def chains(c):
    return c.status()["mds"]["chains"]


def whole(c):
    h = chains(c)
    return h["degraded"] == 0 and h["down"] == 0 and h["syncing"] == 0


def test_killed_and_back(c):
    c.leat("layout", "set", "--replicas", "2", c.mnt())
    assert "2 copies" in c.leat("layout", "get", c.mnt()).stdout
    with Writers(c.mnt()) as w:
        w.go_on(5, "writers")
        c.kill("ossd2")
        w.go_on(BLOCKS + 4, "writers without it")
        assert chains(c)["degraded"] > 0, chains(c)
        c.start("ossd2")
        wait_until(lambda: whole(c), 20, "all chains are whole")
        w.go_on(5, "writers with it")
    assert not w.errors, w.errors
    print("  %d writes, the longest took %.0f ms" % (len(w.waits), max(w.waits) * 1e3))


if __name__ == "__main__":
    run_tests(globals())
