#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Full targets: the writer gets ENOSPC, no acknowledged byte is lost, reads and deletions work."""
import errno
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, run_tests, wait_until

CLUSTER = {"ossd": 2, "size": "96M", "conf": {"ossd": {"reserve": "8M", "zero_ahead": "0"}}}


def fill(path, chunk):
    """Writes until ENOSPC, with an fsync for each MiB. Returns the number of synced bytes."""
    synced = 0
    with open(path, "wb", buffering=0) as f:
        try:
            while True:
                f.write(chunk)
                os.fsync(f.fileno())
                synced += len(chunk)
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
    return synced


def test_enospc_reaches_the_writer(c):
    chunk = os.urandom(1 << 20)
    small = c.mnt() + "/before"
    with open(small, "wb") as f:
        f.write(b"s" * 5000)
    try:
        synced = fill(c.mnt() + "/fill", chunk)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e  # close(2) may report it as well
        synced = 0
    assert synced > 80 << 20 or synced == 0, synced
    with open(c.mnt() + "/fill", "rb") as f:
        for i in range(synced >> 20):
            assert f.read(1 << 20) == chunk, "MiB %d" % i
    with open(small, "rb") as f:
        assert f.read() == b"s" * 5000


def test_write_behind_without_fsync_is_told_at_close_or_before(c):
    try:
        with open(c.mnt() + "/more", "wb", buffering=0) as f:
            for _ in range(64):
                f.write(bytes(range(256)) * 4096)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    else:
        raise AssertionError("64 MiB more went into a full file system")


def test_deleting_makes_room(c):
    os.unlink(c.mnt() + "/fill")
    if os.path.exists(c.mnt() + "/more"):
        os.unlink(c.mnt() + "/more")
    free = lambda: os.statvfs(c.mnt()).f_bavail * os.statvfs(c.mnt()).f_frsize
    wait_until(lambda: free() > 120 << 20, 15, "the space is back")
    with open(c.mnt() + "/again", "wb") as f:
        f.write(os.urandom(60 << 20))
        os.fsync(f.fileno())
    os.unlink(c.mnt() + "/again")


def used(c):
    return sum(t["server"]["space"]["used"] for t in c.told_by_servers()["targets"])


def test_what_was_stored_of_a_write_that_failed(c):
    """One of two targets is full, so every second chunk is stored: in the file, or removed."""
    for name, layout in ("one", ("--width", "1")), ("two", ("--width", "2", "--chunk-size", "64K")):
        os.mkdir(c.mnt() + "/" + name)
        c.leat("layout", "set", *layout, c.mnt() + "/" + name)
    fill(c.mnt() + "/one/fill", bytes(1 << 20))
    with open(c.mnt() + "/one/fill", "ab", buffering=0) as f:
        expect_errno(errno.ENOSPC, fill_rest, f)
    before = used(c)
    path = c.mnt() + "/two/half"
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_SYNC)
    expect_errno(errno.ENOSPC, os.pwrite, fd, b"h" * (1 << 20), 0)
    os.close(fd)
    assert used(c) > before, "nothing was stored"
    size = os.stat(path).st_size
    os.truncate(path, 1 << 20)
    with open(path, "rb") as f:
        assert not f.read()[size:].strip(b"\0"), "behind its end, which was at %d" % size
    os.truncate(path, size)
    os.unlink(path)
    wait_until(lambda: used(c) <= before, 15, "the space is back")
    os.unlink(c.mnt() + "/one/fill")


def fill_rest(f):
    while True:
        f.write(bytes(16 << 10))
        os.fsync(f.fileno())


if __name__ == "__main__":
    run_tests(globals())
