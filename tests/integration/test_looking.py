#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Large directories: if a program first reads all names and then looks at each file (find, du, rm
-r), the client fetches attributes in batches, which stay right while other clients change them."""
import os
import re
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import run_tests

CLUSTER = {"mounts": 2}
# More files than a listing returns attributes of to a reader that has looked at none
# (fuse/ops/readdirplus_policy.h).
FILES = 14000


def asked_of_mds(c):
    return int(float(re.search(r"^leat_mds_requests_total (\S+)$", c.metrics_of("mds"),
                               re.M).group(1)))


def make(c, name, files=FILES):
    """Uses the command line, which keeps many creations in flight; a mount waits for each."""
    source = "%s/%d" % (c.dir, files)
    if not os.path.isdir(source):
        os.mkdir(source)
        for i in range(files):
            os.mknod("%s/f%d" % (source, i))
    c.leat("cp", "-r", source, "leat:/" + name)
    return c.mnt(1) + "/" + name, c.mnt(2) + "/" + name


def names_by_inode(folder):
    """Like fts: all names, in the order of their inodes."""
    with os.scandir(folder) as entries:
        return [e.name for e in sorted(entries, key=lambda e: e.inode())]


def mode_of(path):
    try:
        return os.lstat(path).st_mode & 0o7777
    except FileNotFoundError:
        return None


def test_looking_asks_the_server_in_batches(c):
    _, seen = make(c, "batches")
    before = asked_of_mds(c)
    names = names_by_inode(seen)
    assert len(names) == FILES
    for n in names:
        os.lstat(seen + "/" + n)
    asked = asked_of_mds(c) - before
    assert asked < FILES // 20, asked


class Looker(threading.Thread):
    """Lists the directory and looks at each entry, until the test sets stop."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.stop, self.error = folder, False, None

    def run(self):
        try:
            while not self.stop:
                for n in names_by_inode(self.folder):
                    mode_of(self.folder + "/" + n)
                    if self.stop:
                        break
        except Exception as e:  # the test reports it
            self.error = e


def changes_are_seen(changed, seen):
    looker = Looker(seen)
    looker.start()
    try:
        for i in range(200):
            old, new = "/f%d" % (i * 53), "/g%d" % i
            os.chmod(changed + old, 0o600 + i % 64)
            assert mode_of(seen + old) == 0o600 + i % 64, i
            os.rename(changed + old, changed + new)
            assert mode_of(seen + old) is None, i
            assert mode_of(seen + new) == 0o600 + i % 64, i
            os.unlink(changed + new)
            assert mode_of(seen + new) is None, i
            os.mknod(changed + old, 0o640)
            assert mode_of(seen + old) == 0o640, i
    finally:
        looker.stop = True
        looker.join()
    assert looker.error is None, looker.error
    names = set(names_by_inode(seen))
    assert names == set(os.listdir(changed)) and len(names) == FILES


def test_changes_by_another_mount_are_seen_meanwhile(c):
    folder, seen = make(c, "others")
    changes_are_seen(folder, seen)


def test_own_changes_are_seen_meanwhile(c):
    _, seen = make(c, "own")
    changes_are_seen(seen, seen)


def test_a_listing_brings_nothing_back(c):
    """Entries are prefetched before the kernel requests them: it must not get attributes from
    before a change by this mount."""
    folder, _ = make(c, "back", 3000)
    seen = c.mnt(2) + "/back"
    order = os.listdir(seen)
    for i in range(40):
        with os.scandir(seen) as entries:
            next(entries)
            changed = [order[k] for k in range(200 + i, 3000, 400)]
            for n in changed:
                os.chmod("%s/%s" % (seen, n), 0o611)
                os.rename("%s/%s" % (seen, n), "%s/%s.new" % (seen, n))
                os.mknod("%s/%s" % (seen, n), 0o640)
            gone = [order[k] for k in range(300 + i, 3000, 400)]
            for n in gone:
                os.unlink("%s/%s" % (seen, n))
            for _ in entries:
                pass
        for n in changed:
            assert mode_of("%s/%s" % (seen, n)) == 0o640, (i, n)
            assert mode_of("%s/%s.new" % (seen, n)) == 0o611, (i, n)
        for n in gone:
            assert mode_of("%s/%s" % (seen, n)) is None, (i, n)
    assert sorted(os.listdir(seen)) == sorted(os.listdir(folder))


if __name__ == "__main__":
    run_tests(globals())
