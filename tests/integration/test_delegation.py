#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Delegated opens: under a lease clients open files for reading without a request to the metadata
server, and the files stay readable whatever happens to their names."""
import errno
import fcntl
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import as_user, get, run_tests, wait_until

CLUSTER = {"mounts": 2}
SIZE = 3 << 20


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())
    # Makes its access time too recent for another update.
    os.utime(path, (time.time() + 1, time.time() - 10))


def figure(c, i, name):
    return json.loads(os.getxattr(c.mnt(i), "leat.status"))[name]


def delegated(c, i=2):
    return figure(c, i, "delegated_opens")


def asked(c, i=2):
    return figure(c, i, "meta_ops")


def ready(c, path, i=2):
    """Waits until the mount has a lease and the right to read the file."""
    def good():
        before = delegated(c, i)
        with open(path, "rb"):
            return delegated(c, i) > before
    wait_until(good, 20, "an open is delegated")


def test_opening_again_asks_nobody(c):
    data = os.urandom(100000)
    put(c.mnt(1) + "/again", data)
    path = c.mnt(2) + "/again"
    ready(c, path)
    opens, requests = delegated(c), asked(c)
    for _ in range(100):
        with open(path, "rb") as f:
            assert f.read() == data
    assert delegated(c) - opens == 100
    # The kernel sends lookups; the daemon answers them.
    assert asked(c) - requests <= 2, asked(c) - requests


def test_many_at_once(c):
    """More opens than the mount keeps memory for, of one file and of many."""
    names = ["/at-once-%d" % i for i in range(600)]
    for name in names:
        with open(c.mnt(1) + name, "wb") as f:
            f.write(name.encode())
    put(c.mnt(1) + names[0], names[0].encode())
    ready(c, c.mnt(2) + names[0])
    for paths in [names[:1] * 600, names]:
        for _ in range(3):
            files = [open(c.mnt(2) + path, "rb") for path in paths]
            for f, path in zip(files, paths):
                assert f.read() == path.encode()
            for f in files:
                f.close()
    assert delegated(c) > 0


def test_the_first_open_is_one_request(c):
    os.mkdir(c.mnt(1) + "/cold", 0o755)
    for i in range(50):
        put(c.mnt(1) + "/cold/%d" % i, b"%d" % i * 1000)
    time.sleep(4)  # contended leases are not given for a while
    os.stat(c.mnt(2) + "/cold")
    opens, requests = delegated(c), asked(c)
    for i in range(50):
        with open(c.mnt(2) + "/cold/%d" % i, "rb") as f:
            assert f.read() == b"%d" % i * 1000
    assert delegated(c) - opens == 50
    assert asked(c) - requests <= 55, asked(c) - requests


def stored_reads(c):
    return sum(int(line.split()[-1]) for i in (1, 2, 3, 4)
               for line in c.metrics_of("ossd%d" % i).splitlines()
               if line.startswith("leat_ossd_read_seconds_count"))


def test_small_files_are_fetched_when_they_are_opened(c):
    """As long as programs read what they open. A reader never gets outdated data."""
    names = ["/small-%d" % i for i in range(60)]
    for name in names:
        put(c.mnt(1) + name, name.encode() * 1000)
    time.sleep(4)  # contended leases are not given for a while
    for name in names[:20]:
        assert get(c.mnt(2) + name) == name.encode() * 1000
    before = stored_reads(c)
    with open(c.mnt(2) + names[20], "rb") as f, open(c.mnt(2) + names[21], "rb") as g:
        wait_until(lambda: stored_reads(c) >= before + 2, 10, "both are fetched")
        assert f.read() == names[20].encode() * 1000
        assert stored_reads(c) == before + 2
        put(c.mnt(1) + names[21], b"new" * 5000)
        assert g.read() == b"new" * 5000
    before = stored_reads(c)
    for name in names[22:]:
        os.close(os.open(c.mnt(2) + name, os.O_RDONLY))
    time.sleep(1)
    assert stored_reads(c) - before <= 4, stored_reads(c) - before
    for name in names:
        os.unlink(c.mnt(1) + name)


def test_users_are_checked(c):
    put(c.mnt(1) + "/secret", b"for its owner and group")
    os.chmod(c.mnt(1) + "/secret", 0o640)
    os.chown(c.mnt(1) + "/secret", 4321, 8765)
    path = c.mnt(2) + "/secret"
    ready(c, path)
    for uid, gid, groups, may in ((4321, 1, [], True), (1, 8765, [], True), (1, 1, [8765], True),
                                  (1, 1, [], False)):
        def read():
            assert get(path) == b"for its owner and group"
        assert as_user(read, uid, gid, groups) == (0 if may else errno.EACCES), (uid, gid, groups)


def removals(c):
    """Either mount removes the file's name or data, in each possible way."""
    def over(m):
        put(m + "/other", b"other")
        os.rename(m + "/other", m + "/held")
    for m in (1, 2):
        yield lambda m=m: os.unlink(c.mnt(m) + "/held")
        yield lambda m=m: over(c.mnt(m))


def test_what_is_open_stays(c):
    for remove in removals(c):
        data = os.urandom(SIZE)
        put(c.mnt(1) + "/held", data)
        ready(c, c.mnt(2) + "/held")
        opens = delegated(c)
        with open(c.mnt(2) + "/held", "rb", buffering=0) as f, \
                open(c.mnt(2) + "/held", "rb", buffering=0) as g:
            assert delegated(c) == opens + 2
            remove()
            time.sleep(0.3)
            assert os.pread(f.fileno(), SIZE, 0) == data
            assert os.fstat(f.fileno()).st_nlink == 0
            f.close()
            assert os.pread(g.fileno(), SIZE, 0) == data
        if os.path.exists(c.mnt(1) + "/held"):
            os.unlink(c.mnt(1) + "/held")


def test_by_a_second_name(c):
    """The removed name is not the one by which the file was opened."""
    data = os.urandom(SIZE)
    put(c.mnt(1) + "/first", data)
    os.link(c.mnt(1) + "/first", c.mnt(1) + "/second")
    ready(c, c.mnt(2) + "/first")
    with open(c.mnt(2) + "/first", "rb", buffering=0) as f:
        os.unlink(c.mnt(2) + "/first")
        os.unlink(c.mnt(2) + "/second")
        time.sleep(0.3)
        assert os.pread(f.fileno(), SIZE, 0) == data


def test_truncated_by_the_other(c):
    put(c.mnt(1) + "/cut", b"x" * SIZE)
    ready(c, c.mnt(2) + "/cut")
    with open(c.mnt(2) + "/cut", "rb", buffering=0) as f:
        assert f.read(10) == b"x" * 10
        with open(c.mnt(1) + "/cut", "wb") as w:
            w.write(b"new")
        assert os.fstat(f.fileno()).st_size == 3
        assert os.pread(f.fileno(), 100, 0) == b"new"


def test_of_a_silent_client_it_is_presumed(c):
    data = os.urandom(SIZE)
    put(c.mnt(1) + "/silent", data)
    put(c.mnt(1) + "/silent-not-open", data)
    ready(c, c.mnt(2) + "/silent-not-open")
    ready(c, c.mnt(2) + "/silent")
    with open(c.mnt(2) + "/silent", "rb", buffering=0) as f:
        pid = c.pid("mnt2")
        os.kill(pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            os.unlink(c.mnt(1) + "/silent")
            os.unlink(c.mnt(1) + "/silent-not-open")
            took = time.monotonic() - begin
            assert took < 25, "%.1f s" % took  # requests time out after 30 s
        finally:
            os.kill(pid, signal.SIGCONT)
        time.sleep(1)
        assert os.pread(f.fileno(), SIZE, 0) == data


def test_the_metadata_server_restarts(c):
    data = os.urandom(SIZE)
    put(c.mnt(1) + "/restart", data)
    ready(c, c.mnt(2) + "/restart")
    with open(c.mnt(2) + "/restart", "rb", buffering=0) as f:
        c.kill("mds")
        c.start("mds")
        os.unlink(c.mnt(1) + "/restart")
        time.sleep(0.3)
        assert os.pread(f.fileno(), SIZE, 0) == data


def test_a_signal_while_it_is_told_leaves_nothing_open(c):
    """A signal interrupts a wait for a lock, even while the client first reports that the file is
    open. The server counts one open, however often the call restarts."""
    put(c.mnt(1) + "/signal", b"s")
    ready(c, c.mnt(2) + "/signal")
    wait_until(lambda: c.status()["mds"]["opens"] == 0, 20, "all closes have arrived")
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    go_on = threading.Timer(1, c.kill, ("mds", signal.SIGCONT))
    with open(c.mnt(2) + "/signal", "rb") as f:
        c.kill("mds", signal.SIGSTOP)
        go_on.start()
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        fcntl.flock(f, fcntl.LOCK_SH)
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    go_on.join()
    wait_until(lambda: c.status()["mds"]["opens"] == 0, 20, "nothing is open")


def test_locks_and_copies(c):
    data = os.urandom(SIZE)
    put(c.mnt(1) + "/lock", data)
    ready(c, c.mnt(2) + "/lock")
    with open(c.mnt(2) + "/lock", "rb") as f, open(c.mnt(1) + "/lock", "rb+") as g:
        fcntl.flock(f, fcntl.LOCK_SH)
        try:
            fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise AssertionError("two have it")
        except BlockingIOError:
            pass
        fcntl.flock(f, fcntl.LOCK_UN)
        fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ready(c, c.mnt(2) + "/lock")
    with open(c.mnt(2) + "/lock", "rb") as f, open(c.mnt(2) + "/copy", "wb") as g:
        assert os.copy_file_range(f.fileno(), g.fileno(), SIZE) == SIZE
    with open(c.mnt(1) + "/copy", "rb") as f:
        assert f.read() == data


def test_nothing_is_left(c):
    for name in os.listdir(c.mnt(1)):
        if name != "cold":
            os.unlink(c.mnt(1) + "/" + name)
    # The root, `cold` and its files: no orphan.
    wait_until(lambda: c.leat("fsck").stdout.startswith("52 inodes,"), 60,
               "what was unlinked is gone")


if __name__ == "__main__":
    run_tests(globals())
