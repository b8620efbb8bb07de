#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""The disk of the metadata store becomes full: creations fail (ENOSPC), reads, changes and removals
continue, `leat status` reports it, a server starts on the full disk; with space all recovers."""
import errno
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, get, put, run_tests, wait_until
from small_disk import fill, refused, small_disk

CLUSTER = {"ossd": 1, "mounts": 1, "conf": {"mds": {"kv_write_buffer_mib": "4"}}}
MIB = 1 << 20


def test_full(c):
    m = c.mnt()
    # Then 8 MiB of the disk are the server's reserve.
    with small_disk(c, "mds", 64) as home:
        wait_until(lambda: not refused(put, m + "/before", b"bytes"), 30, "a file is made")
        for i in range(20):
            put("%s/f%d" % (m, i))
        assert c.leat("status", "--check", check=False).returncode == 0
        fill(home, 5 * MIB)
        wait_until(lambda: refused(os.mkdir, m + "/probe") or os.rmdir(m + "/probe"), 30,
                   "the server sees that its disk is full")
        told = c.leat("status", "--check", check=False)
        assert told.returncode == 3 and "mds disk" in told.stdout, told
        assert "can be created (ENOSPC)" in c.log("mds")
        for fn, args in ((put, (m + "/new",)), (os.mkdir, (m + "/new",)),
                         (os.link, (m + "/before", m + "/new")),
                         (os.symlink, ("before", m + "/new"))):
            expect_errno(errno.ENOSPC, fn, *args)
        assert get(m + "/before") == b"bytes"
        put(m + "/before", b"other bytes")
        os.chmod(m + "/before", 0o600)
        os.rename(m + "/before", m + "/after")
        for i in range(20):
            os.unlink("%s/f%d" % (m, i))
        assert os.listdir(m) == ["after"], os.listdir(m)

        c.kill("mds")
        fill(home, 0)
        c.start("mds")
        assert "its disk is full" in c.log("mds")
        fill(home, 0)  # removes the log so far
        assert get(m + "/after") == b"other bytes"
        os.unlink(m + "/after")
        wait_until(lambda: refused(put, m + "/new") or os.unlink(m + "/new"), 30, "full again")

        os.unlink(home + "/other")
        wait_until(lambda: not refused(put, m + "/new"), 30, "there is room again")
        assert os.listdir(m) == ["new"]
        assert c.leat("status", "--check", check=False).returncode == 0
        c.assert_sound()


if __name__ == "__main__":
    run_tests(globals())
