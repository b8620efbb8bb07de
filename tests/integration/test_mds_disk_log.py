#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""A metadata server starts on a disk with space for some files, but not for the content of its log:
it uses the space that it reserves for this."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import put, run_tests
from small_disk import small_disk

MIB = 1 << 20
CLUSTER = {"ossd": 1, "mounts": 1, "conf": {"mds": {"kv_write_buffer_mib": "8"}}}


def test_log(c):
    m = c.mnt()
    # A sixteenth of this disk is as much as the server would reserve on a large one.
    with small_disk(c, "mds", 400) as home:
        ballast = home + "/store/store/ballast"
        values = {}
        for i in range(115):
            path = "%s/f%d" % (m, i)
            put(path)
            values[path] = os.urandom(60000)
            os.setxattr(path, "user.x", values[path])
        assert os.stat(ballast).st_blocks * 512 >= 23 * MIB
        c.kill("mds")
        v = os.statvfs(home)
        with open(home + "/other", "wb") as f:
            os.posix_fallocate(f.fileno(), 0, v.f_bavail * v.f_frsize - 9 * MIB // 2)
        c.start("mds")
        assert not os.path.exists(ballast) and "its disk is full" in c.log("mds")
        for path, value in values.items():
            assert os.getxattr(path, "user.x") == value, path


if __name__ == "__main__":
    run_tests(globals())
