#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""The disk of an object server's index becomes full: writes fail (ENOSPC), reads and removals
continue, the server starts on the full disk; with free space it recovers."""
import errno
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, get, run_tests, wait_until
from small_disk import fill, refused, small_disk

CLUSTER = {"ossd": 1, "mounts": 1, "size": "64M", "replicas": 1}


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())


def test_full(c):
    m, data = c.mnt(), [os.urandom(100000) for _ in range(20)]
    with small_disk(c, "ossd1", 128) as home:
        for i, d in enumerate(data):
            put("%s/f%d" % (m, i), d)
        fill(home, 0)
        wait_until(lambda: refused(put, m + "/new", data[0]), 30, "a write fails")
        for i in range(50):
            expect_errno(errno.ENOSPC, put, "%s/g%d" % (m, i), data[0])
        for i, d in enumerate(data):
            assert get("%s/f%d" % (m, i)) == d, i
        for i in range(10):
            os.unlink("%s/f%d" % (m, i))
        c.kill("ossd1")
        fill(home, 0)
        c.start("ossd1")
        assert "its disk is full" in c.log("ossd1")
        for i, d in enumerate(data[10:], 10):
            assert get("%s/f%d" % (m, i)) == d, i
        os.unlink(m + "/f10")
        os.unlink(home + "/other")
        wait_until(lambda: not refused(put, m + "/new", data[0]), 60, "there is room again")
        assert get(m + "/new") == data[0] and get(m + "/f19") == data[19]
        c.assert_sound()


if __name__ == "__main__":
    run_tests(globals())
