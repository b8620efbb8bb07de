#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`leat stage in --together N`: processes without agents make a copy each and read the source about
once. If one is killed, its copy is resumed; one that starts alone does not wait forever.
timeout: 180"""
import filecmp
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from cluster import BUILD, HERE, run_tests, wait_until

MIB = 1 << 20
CLUSTER = {"mounts": 1, "ossd": 2, "size": "512M"}
COUNT = 4


def make(c, name, mib):
    os.mkdir(c.mnt() + "/" + name)
    for i in range(3):
        with open("%s/%s/%d" % (c.mnt(), name, i), "wb") as f:
            f.write(os.urandom(mib * MIB // 3))
    c.leat("dataset", "create", name + "@v1", c.mnt() + "/" + name)


def begin(c, name, i, *args):
    return subprocess.Popen(
        [BUILD + "/leat", "--conf", c.dev + "/conf", "stage", "in", name + "@v1", "--to",
         "%s/%s%d" % (c.dir, name, i), "--together", str(COUNT), "--listen", HERE + ":0",
         "--json", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(p):
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, (p.returncode, out, err)
    return json.loads(out)


def check(c, name, i):
    path = c.leat("stage", "path", name + "@v1", "--to",
                  "%s/%s%d" % (c.dir, name, i)).stdout.strip()
    names = os.listdir(c.mnt() + "/" + name)
    same, _, _ = filecmp.cmpfiles(c.mnt() + "/" + name, path, names, False)
    assert sorted(same) == sorted(names), (i, same)


def test_four_read_the_source_once(c):
    make(c, "four", 48)
    said = [end(p) for p in [begin(c, "four", i) for i in range(COUNT)]]
    source = sum(s["source"] for s in said)
    assert source <= 1.05 * said[0]["bytes"], said
    assert sum(s["peers"] for s in said) + source == COUNT * said[0]["bytes"], said
    for i in range(COUNT):
        check(c, "four", i)
    # Staging again moves nothing, and no process waits for another.
    start = time.monotonic()
    said = end(begin(c, "four", 0))
    assert said["source"] + said["peers"] == 0, said
    assert time.monotonic() - start < 25, "it waited"


def test_one_is_killed(c):
    make(c, "killed", 48)
    all_of = [begin(c, "killed", i, "--max-rate", "6M") for i in range(COUNT)]
    base = c.dir + "/killed0/.leat"
    wait_until(lambda: os.path.isdir(base) and any(os.path.isdir("%s/%s/part" % (base, d)) and
                                                   os.listdir("%s/%s/part" % (base, d))
                                                   for d in os.listdir(base)), 30, "a part file")
    all_of[0].kill()
    all_of[0].communicate()
    for p in all_of[1:]:
        end(p)
    for i in range(1, COUNT):
        check(c, "killed", i)
    end(begin(c, "killed", 0))
    check(c, "killed", 0)


def test_alone_it_does_not_wait_for_ever(c):
    make(c, "alone", 6)
    said = end(begin(c, "alone", 0))
    assert said["source"] == said["bytes"], said
    check(c, "alone", 0)


def test_what_it_is_not_for(c):
    for args in (["--together", "0"], ["--together", "x"], ["--together", "@"],
                 ["--together", "2", "--wait", "none"], ["--together", "2", "--nodes", "a,b"]):
        r = c.leat("stage", "in", "none@v1", "--to", c.dir + "/x", *args, check=False)
        assert r.returncode == 2, (args, r)


run_tests(globals())
