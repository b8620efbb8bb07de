#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""A file system that was formatted for two replicas (default_replicas): every file has two without
an option, no file has fewer, and directories can request another number."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import get, run_tests, wait_until

CLUSTER = {"ossd": 2, "mounts": 1, "size": "128M", "conf": {"mds": {"default_replicas": 2}}}


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())


def copies(c, path):
    return json.loads(c.leat("layout", "get", "--json", path).stdout)["layouts"][0]["replicas"]


def test_files_have_two_copies(c):
    m, data = c.mnt(), os.urandom(3 << 20)
    put(m + "/f", data)
    os.mkdir(m + "/d")
    put(m + "/d/f", data)
    assert copies(c, m + "/f") == copies(c, m + "/d/f") == 2
    assert "new files   2 copies" in c.leat("status").stdout
    c.leat("layout", "set", "--replicas", "1", m + "/d")
    put(m + "/d/g", data)
    assert copies(c, m + "/d/g") == 1
    c.kill("ossd2")
    wait_until(lambda: get(m + "/d/f") == get(m + "/f") == data, 60, "one server is enough")
    c.start("ossd2")


def test_a_restart_remembers(c):
    c.kill("mds")
    c.start("mds")
    put(c.mnt() + "/later", b"x")
    assert copies(c, c.mnt() + "/later") == 2


if __name__ == "__main__":
    run_tests(globals())
