#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""`leat umount` without a metadata server: it sends no request that is not needed."""
import json
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")
from cluster import BUILD, put, run_tests, wait_until  # noqa: E402

# A request to the metadata server would wait longer than this test may take.
CLUSTER = {"mounts": 2, "ossd": 1, "conf": {"client": {"request_timeout_ms": 3600000}}}


def test_umount_without_a_metadata_server(c):
    put(c.mnt() + "/file", b"x" * 1000)
    os.stat(c.mnt() + "/file")
    wait_until(lambda: c.status()["mds"]["opens"] == 0, 30, "the file's close is told")
    pid = c.pid("mnt1")
    assert json.loads(os.getxattr(c.mnt(), "system.leat.status"))["pid"] == pid
    os.mkdir(c.mnt(2) + "/dir")  # invalidates this mount's cached root
    c.kill("mds")
    p = c.leat("umount", c.mnt(), timeout=60)
    assert not os.path.exists("/proc/%d" % pid), p
    c.start("mds")
    c.start("mnt1")
    assert os.path.getsize(c.mnt() + "/file") == 1000


def test_umount_says_what_it_waits_for(c):
    """The metadata server has not received a close, and cannot receive it."""
    file = open(c.mnt() + "/late", "wb")
    file.write(b"x")
    file.flush()
    os.fsync(file.fileno())
    c.kill("mds")
    file.close()
    argv = [BUILD + "/leat", "--conf", c.dev + "/conf", "umount", c.mnt()]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as p:
        said = p.stderr.readline()
        ask = re.search(r"lose that data: kill -9 (\d+)$", said)
        assert ask and int(ask.group(1)) == c.pid("mnt1"), said
        os.kill(c.pid("mnt1"), signal.SIGKILL)
        assert p.wait(60) == 0, p.stderr.read()
    c.start("mds")
    c.start("mnt1")
    assert os.path.getsize(c.mnt() + "/late") == 1


if __name__ == "__main__":
    run_tests(globals())
