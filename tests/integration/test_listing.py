#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Listings: a program that looks at the entries of a listing gets attributes with the names. What
the kernel gets in this way stays right, even of files that the client has evicted since."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import put, run_tests, wait_until

# Far fewer inodes than files: the client evicts most while the kernel still has their attributes.
CLUSTER = {"mounts": 2, "conf": {"client": {"inodes_max": "1024"}}}
FILES, FEW = 4000, 200


def figure(c, daemon, name):
    return int(float(re.search(r"^%s (\S+)$" % name, c.metrics_of(daemon), re.M).group(1)))


def asked(c, n):
    """Requests of the kernel."""
    return figure(c, "mnt%d" % n, "leat_mount_requests_total")


def make(c, name, files=FILES):
    """Closed files, in a directory that mount 2 has not read."""
    folder = c.mnt(1) + "/" + name
    os.mkdir(folder)
    for i in range(files):
        os.mknod("%s/f%d" % (folder, i))
    return folder, c.mnt(2) + "/" + name


def look(folder):
    """Like fts: all names, then each entry."""
    return {n: os.lstat(folder + "/" + n).st_mode & 0o7777 for n in os.listdir(folder)}


def fewest(c, folders):
    """The fewest requests that looking at all of one directory took. The kernel caches names for
    0.1 s only, which a busy machine may exceed."""
    least = FEW
    for folder in folders:
        before = asked(c, 2)
        assert len(look(folder)) == FEW
        least = min(least, asked(c, 2) - before)
    return least


def test_looking_at_each_entry_costs_few_requests(c):
    folders = [make(c, "each%d" % d, FEW)[1] for d in range(20)]
    # More entries than the client caches, so each time is like the first.
    for _ in range(3):
        # The kernel sends a lookup for each 64th entry; a listing takes a handful.
        assert fewest(c, folders) < FEW // 5


def test_what_was_listed_is_true_when_it_changes(c):
    folder, seen = make(c, "changes")
    for turn in range(3):
        modes = look(seen)
        assert len(modes) == FILES
        mode = 0o600 + turn
        for i in range(0, FILES, FILES // 20):
            os.chmod("%s/f%d" % (folder, i), mode)
            assert os.lstat("%s/f%d" % (seen, i)).st_mode & 0o7777 == mode, (turn, i)
        os.unlink("%s/f%d" % (folder, turn + 1))
        assert not os.path.exists("%s/f%d" % (seen, turn + 1))
        put("%s/f%d" % (folder, turn + 1), b"xyz")
        assert os.lstat("%s/f%d" % (seen, turn + 1)).st_size == 3


def test_own_changes_are_listed(c):
    """Entries that were prefetched for a listing that was not read to its end must not appear
    later."""
    _, seen = make(c, "own")
    names = {"f%d" % i for i in range(FILES)}
    for turn in range(4):
        with os.scandir(seen) as entries:
            next(entries)
        for i in range(turn, FILES, FILES // FEW):
            os.unlink("%s/f%d" % (seen, i))
            os.mknod("%s/g%d" % (seen, i))
            names.remove("f%d" % i)
            names.add("g%d" % i)
        assert set(os.listdir(seen)) == names, turn


def test_what_was_listed_is_true_after_a_restart(c):
    folder, seen = make(c, "restart")
    look(seen)
    c.kill("mds")
    c.start("mds")
    for i in range(0, FILES, FILES // 20):
        os.chmod("%s/f%d" % (folder, i), 0o611)
        assert os.lstat("%s/f%d" % (seen, i)).st_mode & 0o7777 == 0o611, i


def test_forgotten_files_are_given_back(c):
    _, seen = make(c, "back")
    look(seen)

    # The other mount has leases, too.
    wait_until(lambda: figure(c, "mds", "leat_mds_leases") < 2 * 1024 + 500, 60, "leases go")


if __name__ == "__main__":
    run_tests(globals())
