#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""A stage directory on a full disk: copies are read, evicted and made again, staging without space
is refused (8), and an incomplete copy never counts as one."""
import contextlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, get, run_tests, unmount, wait_until
from small_disk import fill

CLUSTER = {"mounts": 1, "ossd": 2, "size": "256M"}
MIB = 1 << 20


def make(c, name, files):
    """A data set of this many files of 1 MiB."""
    os.mkdir(c.mnt() + "/" + name)
    for i in range(files):
        with open("%s/%s/%02d" % (c.mnt(), name, i), "wb") as f:
            f.write(os.urandom(MIB))
    c.leat("dataset", "create", name + "@v1", c.mnt() + "/" + name)


@contextlib.contextmanager
def small_stage(c, mib):
    home = c.dir + "/nvme"
    os.mkdir(home)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dM" % mib, "tmpfs", home], check=True)
    try:
        os.mkdir(home + "/stage")
        yield home, home + "/stage"
    finally:
        unmount(home)
        os.rmdir(home)


def free(home):
    v = os.statvfs(home)
    return v.f_bavail * v.f_frsize


def stage(c, *args):
    """(exit status, stderr)"""
    p = c.leat("stage", *args, check=False)
    return p.returncode, p.stderr


def state(c, name, to):
    p = c.leat("stage", "status", name, "--to", to, "--json", check=False)
    return json.loads(p.stdout).get("state") if p.stdout else None


def compare(c, name, to):
    p = c.leat("stage", "path", name, "--to", to).stdout.strip()
    src = c.mnt() + "/" + name.split("@")[0]
    assert sorted(os.listdir(p)) == sorted(os.listdir(src))
    for n in os.listdir(src):
        assert get(p + "/" + n) == get(src + "/" + n), n


def test_what_does_not_fit_is_refused_before_a_byte_is_copied(c):
    make(c, "small", 8)
    make(c, "large", 80)
    with small_stage(c, 64) as (home, to):
        c.leat("stage", "in", "small@v1", "--to", to)
        before = free(home)
        code, said = stage(c, "in", "large@v1", "--to", to)
        assert code == 8 and to in said and "needed" in said, (code, said)
        # The reason stays available to `leat stage status`.
        assert state(c, "large@v1", to) == "FAILED" and free(home) > before - MIB // 2, free(home)
        assert stage(c, "path", "large@v1", "--to", to)[0] == 3
        compare(c, "small@v1", to)


def test_a_disk_that_is_full(c):
    with small_stage(c, 64) as (home, to):
        c.leat("stage", "in", "small@v1", "--to", to)
        fill(home, 0)
        code, said = stage(c, "in", "large@v1", "--to", to)
        assert code != 0, said
        compare(c, "small@v1", to)
        c.leat("stage", "verify", "small@v1", "--to", to)
        assert state(c, "small@v1", to) == "READY"
        # Eviction needs no space.
        c.leat("stage", "evict", "small@v1", "--to", to)
        assert state(c, "small@v1", to) != "READY"
        code, said = stage(c, "in", "small@v1", "--to", to)
        # 16 MiB are left to the file system; so exactly 16 MiB are missing.
        missing = int(said.split(" bytes more are needed")[0].rsplit(" ", 1)[1])
        assert code == 8 and abs(missing - 16 * MIB) < MIB, (code, said)
        os.truncate(home + "/other", os.stat(home + "/other").st_size - missing)
        c.leat("stage", "in", "small@v1", "--to", to)
        compare(c, "small@v1", to)


def test_another_program_fills_it_meanwhile(c):
    """Space that was reserved for a job stays reserved."""
    make(c, "half", 16)
    with small_stage(c, 64) as (home, to):
        before = free(home)
        p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "stage", "in", "half@v1",
                              "--to", to, "--max-rate", "3M"])
        # The state becomes STAGING shortly before the space is reserved.
        wait_until(lambda: free(home) < before - 15 * MIB, 20, "its room is set aside")
        assert state(c, "half@v1", to) == "STAGING"
        fill(home, 65536)
        assert p.wait(120) == 0
        compare(c, "half@v1", to)


if __name__ == "__main__":
    run_tests(globals())
