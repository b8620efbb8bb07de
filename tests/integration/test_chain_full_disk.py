#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One member of the chains has a much smaller disk. When the disk is full, writers get ENOSPC: the
member stays, no replica is left out, no acknowledged byte is lost, reads and deletions continue."""
import errno
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import run_tests, wait_until

CLUSTER = {"ossd": 3, "size": "32M 128M", "mounts": 2, "replicas": 3,
           "conf": {"ossd": {"reserve": "4M", "zero_ahead": "0", "scrub_rate_mib_s": "0"},
                    "mds": {"lease_ms": "10000"}}}  # no member leaves because it is slow
CHUNK = 1 << 20
FULL = {}  # name -> [MiB that were acknowledged]


def members_in_sync(c):
    h = c.status()["mds"]["chains"]
    return h["degraded"] == h["down"] == h["syncing"] == 0


def fill(c, name, sync):
    """Writes until ENOSPC. Records in FULL the content that fsync has acknowledged."""
    done, written, last = [], [], 0
    f = open(c.mnt(1) + "/" + name, "wb", buffering=0)
    FULL[name] = done
    try:
        while len(written) < 64:
            data = os.urandom(CHUNK)
            f.write(data)
            written.append(data)
            if len(written) % sync == 0:
                os.fsync(f.fileno())
                done[:] = written
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        last = e.errno
    try:
        f.close()
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        last = e.errno
    assert last == errno.ENOSPC, "%d MiB went into a chain with a full member" % len(written)


def all_there(c):
    for name, done in FULL.items():
        for n in (1, 2):
            with open("%s/%s" % (c.mnt(n), name), "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                for i, data in enumerate(done):
                    assert f.read(CHUNK) == data, (name, n, i)


def test_the_writer_hears_of_it(c):
    fill(c, "each", 1)
    assert 12 <= len(FULL["each"]) <= 32, len(FULL["each"])
    fill(c, "behind", 64)  # write-back without fsync: an error too
    assert members_in_sync(c), c.status()["mds"]["chains"]
    all_there(c)


def test_nothing_is_lost_when_a_whole_member_dies(c):
    c.kill("ossd2")
    all_there(c)
    c.kill("ossd3")
    all_there(c)  # the small disk alone has all the data
    c.start("ossd2")
    c.start("ossd3")
    wait_until(lambda: members_in_sync(c), 30, "all members are back")
    all_there(c)


def test_copies_are_equal(c):
    rows = c.scrub()
    assert all(not r["damaged"] and not r["differing"] for r in rows), rows
    assert sum(r["chunks"] for r in rows) >= 3 * len(FULL["each"])


def test_deleting_makes_room(c):
    for name in list(FULL):
        os.unlink(c.mnt(1) + "/" + name)
        del FULL[name]
    free = lambda: min(t["free"] for t in c.status()["targets"])
    wait_until(lambda: free() > 20 << 20, 20, "the space is back")
    with open(c.mnt(1) + "/again", "wb") as f:
        f.write(os.urandom(10 << 20))
        os.fsync(f.fileno())
    assert members_in_sync(c)


if __name__ == "__main__":
    run_tests(globals())
