#!/usr/bin/env python3
"""Full targets: the writer hears ENOSPC, nothing acknowledged is lost, reads and deletes go on."""
import errno
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import run_tests, wait_until

CLUSTER = {"ossd": 2, "size": "96M", "conf": {"ossd": {"reserve": "8M", "zero_ahead": "0"}}}


def fill(path, chunk):
    """Writes until ENOSPC, with an fsync for each MiB; how many bytes were synced."""
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


if __name__ == "__main__":
    run_tests(globals())
