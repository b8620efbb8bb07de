#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Locks of fcntl(2) and flock(2) among programs on two mounts, and what happens to them when
programs, mounts and the metadata server end."""
import concurrent.futures
import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, run_tests, wait_until

REQUEST_S = 20
CLUSTER = {"conf": {"client": {"request_timeout_ms": REQUEST_S * 1000}}}
OFD_GETLK, OFD_SETLK = 36, 37
N_WORKERS, N_ROUNDS = 4, 60


class Other:
    """A process that does one thing at a time on request. It is forked before any file is open, so
    that closing inherited descriptors releases no locks."""

    def __init__(self):
        ours, self.answers = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ours[1])
            self.serve(ours[0])
        os.close(ours[0])
        os.close(self.answers[1])
        self.orders = ours[1]

    def serve(self, orders):
        signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(InterruptedError()))
        env = {"fcntl": fcntl, "os": os, "fd": {}}
        while True:
            text = os.read(orders, 4096).decode()
            if not text:
                os._exit(0)
            try:
                out = repr(eval(text, globals(), env))
            except OSError as e:
                out = "errno %s" % (errno.errorcode.get(e.errno) or "EINTR")
            except BaseException:
                out = traceback.format_exc()
            os.write(self.answers[1], out.encode() or b"None")

    def tell(self, text):
        os.write(self.orders, text.encode())

    def answer(self, seconds=40):
        assert select.select([self.answers[0]], [], [], seconds)[0], "no answer"
        return os.read(self.answers[0], 65536).decode()

    def silent(self, seconds=0.5):
        return not select.select([self.answers[0]], [], [], seconds)[0]

    def __call__(self, text):
        self.tell(text)
        return self.answer()

    def end(self):
        self.tell("os._exit(0)")
        os.waitpid(self.pid, 0)
        os.close(self.orders)


def opened(o, path):
    assert o("fd.__setitem__(0, os.open(%r, os.O_RDWR))" % path) == "None"


def two(c, name):
    """Two processes, each with the file open on its own mount."""
    a, b = Other(), Other()
    with open(c.mnt(1) + "/" + name, "wb") as f:
        f.write(bytes(100))
    opened(a, c.mnt(1) + "/" + name)
    opened(b, c.mnt(2) + "/" + name)
    return a, b


LOCKF = "fcntl.lockf(fd[0], fcntl.%s, %d, %d)"
EX, EX_NB, SH_NB, UN = "LOCK_EX", "LOCK_EX | fcntl.LOCK_NB", "LOCK_SH | fcntl.LOCK_NB", "LOCK_UN"


def test_ranges(c):
    a, b = two(c, "ranges")
    assert a(LOCKF % (EX_NB, 10, 0)) == "None"
    assert b(LOCKF % (SH_NB, 1, 9)) == "errno EAGAIN"
    assert b(LOCKF % (EX_NB, 10, 10)) == "None"
    assert a(LOCKF % (SH_NB, 100, 0)) == "errno EAGAIN"
    assert a(LOCKF % (SH_NB, 10, 0)) == "None", "weaker"
    assert b(LOCKF % (SH_NB, 5, 0)) == "None"
    assert a(LOCKF % (EX_NB, 10, 0)) == "errno EAGAIN", "stronger again, shared by now"
    assert a(LOCKF % (UN, 0, 0)) == "None"
    assert b(LOCKF % (EX_NB, 10, 0)) == "None"
    # F_GETLK returns the holder
    want = "fcntl.fcntl(fd[0], fcntl.F_GETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 15, 0, 0))"
    kind, _, start, length, pid = struct.unpack("hhqqi4x", eval(a(want)))
    assert (kind, start, length, pid) == (fcntl.F_WRLCK, 0, 20, b.pid), (kind, start, length, pid)
    a.end()
    b.end()


def test_waiting(c):
    a, b = two(c, "waiting")
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    b.tell(LOCKF % (EX, 0, 0))
    assert b.silent()
    assert a(LOCKF % (UN, 0, 0)) == "None"
    begin = time.monotonic()
    assert b.answer() == "None"
    print("handed over after %.1f ms" % ((time.monotonic() - begin) * 1000))
    # a signal ends the wait, and the lock is not taken later
    a.tell(LOCKF % (EX, 0, 0))
    assert a.silent()
    os.kill(a.pid, signal.SIGUSR1)
    assert a.answer() == "errno EINTR"
    assert b(LOCKF % (UN, 0, 0)) == "None"
    time.sleep(0.3)
    assert b(LOCKF % (EX_NB, 0, 0)) == "None"
    a.end()
    b.end()


def test_an_interrupted_wait_gives_nothing_back(c):
    """A process that waits for a stronger lock, and is interrupted, keeps the lock that it has."""
    a, b = two(c, "upgrade")
    other = Other()
    opened(other, c.mnt(2) + "/upgrade")
    assert a(LOCKF % (SH_NB, 0, 0)) == "None"
    assert b(LOCKF % (SH_NB, 0, 0)) == "None"
    a.tell(LOCKF % (EX, 0, 0))
    other.tell(LOCKF % (EX, 0, 0))
    assert a.silent() and other.silent()
    os.kill(a.pid, signal.SIGUSR1)
    assert a.answer() == "errno EINTR"
    assert b(LOCKF % (UN, 0, 0)) == "None"
    assert other.silent(1), "the first one still has its shared lock"
    assert a(LOCKF % (UN, 0, 0)) == "None"
    assert other.answer() == "None"
    for o in (a, b, other):
        o.end()


def test_deadlock(c):
    a, b = two(c, "deadlock")
    assert a(LOCKF % (EX_NB, 1, 0)) == "None"
    assert b(LOCKF % (EX_NB, 1, 1)) == "None"
    a.tell(LOCKF % (EX, 1, 1))
    assert a.silent()
    assert b(LOCKF % (EX, 1, 0)) == "errno " + errno.errorcode[errno.EDEADLK]
    assert b(LOCKF % (UN, 0, 0)) == "None"
    assert a.answer() == "None"
    a.end()
    b.end()


def test_closing_any_descriptor_gives_back(c):
    a, b = two(c, "closing")
    path = c.mnt(1) + "/closing"
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    assert a("os.close(os.open(%r, os.O_RDONLY))" % path) == "None"
    assert b(LOCKF % (EX_NB, 0, 0)) == "None"
    b.end()  # the end of a process releases locks, too
    assert a(LOCKF % (EX, 0, 0)) == "None"
    a.end()


def test_flock(c):
    a, b = two(c, "flock")
    assert a("fcntl.flock(fd[0], fcntl.LOCK_SH)") == "None"
    assert b("fcntl.flock(fd[0], fcntl.LOCK_SH)") == "None"
    assert b("fcntl.flock(fd[0], fcntl.LOCK_EX | fcntl.LOCK_NB)") == "errno EAGAIN"
    # Neither locks of fcntl nor closing another descriptor affect it.
    assert b(LOCKF % (EX_NB, 0, 0)) == "None"
    assert a("os.close(os.open(%r, os.O_RDWR))" % (c.mnt(1) + "/flock")) == "None"
    assert b("fcntl.flock(fd[0], fcntl.LOCK_EX | fcntl.LOCK_NB)") == "errno EAGAIN"
    b.tell("fcntl.flock(fd[0], fcntl.LOCK_EX)")
    assert b.silent()
    assert a("os.close(fd[0])") == "None"
    assert b.answer() == "None"
    a.end()
    b.end()


def test_flocks_that_are_both_upgraded(c):
    """As on local file systems, a request for another flock first releases the existing one: so one
    of the two processes gets it."""
    a, b = two(c, "upgrades")
    for o in (a, b):
        assert o("fcntl.flock(fd[0], fcntl.LOCK_SH)") == "None"
    a.tell("fcntl.flock(fd[0], fcntl.LOCK_EX)")
    assert a.silent()
    assert b("fcntl.flock(fd[0], fcntl.LOCK_EX)") == "None"
    assert a.silent()
    assert b("fcntl.flock(fd[0], fcntl.LOCK_UN)") == "None"
    assert a.answer() == "None"
    # Likewise without waiting.
    for o in (a, b):
        assert o("fcntl.flock(fd[0], fcntl.LOCK_SH)") == "None"
    assert a("fcntl.flock(fd[0], fcntl.LOCK_EX | fcntl.LOCK_NB)") == "errno EAGAIN"
    assert b("fcntl.flock(fd[0], fcntl.LOCK_EX | fcntl.LOCK_NB)") == "None"
    a.end()
    b.end()


def test_locks_of_open_files(c):
    """OFD locks belong to a descriptor, whichever process uses it."""
    a, b = two(c, "ofd")
    lock = "fcntl.fcntl(fd[%d], %d, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)) and None"
    assert a(lock % (0, OFD_SETLK)) == "None"
    assert a("fd.__setitem__(1, os.open(%r, os.O_RDWR))" % (c.mnt(1) + "/ofd")) == "None"
    assert a(lock % (1, OFD_SETLK)) == "errno EAGAIN", "another descriptor is somebody else"
    assert a("os.close(fd[1])") == "None"
    assert b(lock % (0, OFD_SETLK)) == "errno EAGAIN", "closing that one changes nothing"
    assert a("os.close(fd[0])") == "None"
    wait_until(lambda: b(lock % (0, OFD_SETLK)) == "None", 10, "given back with its open file")
    a.end()
    b.end()


def add_up(path, n):
    fd = os.open(path, os.O_RDWR)
    for _ in range(n):
        fcntl.lockf(fd, fcntl.LOCK_EX)
        value = int(os.pread(fd, 20, 0) or b"0")
        os.pwrite(fd, b"%d" % (value + 1), 0)
        fcntl.lockf(fd, fcntl.LOCK_UN)
    os.close(fd)


def test_an_open_file_is_asked_for_its_own_locks(c):
    """F_OFD_GETLK with F_UNLCK (Linux 6.6)."""
    fds = [os.open(c.mnt(n) + "/own", os.O_RDWR | os.O_CREAT) for n in (1, 2)]
    lock = lambda kind: struct.pack("hhqqi4x", kind, os.SEEK_SET, 10, 5, 0)
    fcntl.fcntl(fds[0], OFD_SETLK, lock(fcntl.F_WRLCK))
    try:
        kinds = [struct.unpack("hhqqi4x", fcntl.fcntl(fd, OFD_GETLK, lock(fcntl.F_UNLCK)))[0]
                 for fd in fds]
    except OSError as e:  # an older kernel
        assert e.errno == errno.EINVAL
        kinds = [fcntl.F_WRLCK, fcntl.F_UNLCK]
    for fd in fds:
        os.close(fd)
    assert kinds == [fcntl.F_WRLCK, fcntl.F_UNLCK], kinds
    os.unlink(c.mnt() + "/own")


def test_what_is_written_under_a_lock_is_read_under_the_next(c):
    path = c.mnt(1) + "/sum"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    pids = []
    for i in range(N_WORKERS):
        pid = os.fork()
        if pid == 0:
            try:
                add_up(c.mnt(1 + i % 2) + "/sum", N_ROUNDS)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        pids.append(pid)
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * N_WORKERS
    with open(path, "rb") as f:
        assert int(f.read()) == N_WORKERS * N_ROUNDS


def test_a_killed_process(c):
    a, b = two(c, "killed")
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    b.tell(LOCKF % (EX, 0, 0))
    assert b.silent()
    os.kill(a.pid, signal.SIGKILL)
    assert b.answer() == "None"
    os.waitpid(a.pid, 0)
    b.end()


def test_the_metadata_server_restarts(c):
    a, b = two(c, "restart")
    assert a(LOCKF % (EX_NB, 10, 0)) == "None"
    assert b(LOCKF % (EX_NB, 10, 10)) == "None"
    assert a("fcntl.flock(fd[0], fcntl.LOCK_EX)") == "None"
    b.tell("fcntl.flock(fd[0], fcntl.LOCK_EX)")
    c.kill("mds")
    c.start("mds")
    assert a(LOCKF % (EX_NB, 10, 10)) == "errno EAGAIN"
    assert b.silent(1)
    assert a("fcntl.flock(fd[0], fcntl.LOCK_UN)") == "None"
    assert b.answer() == "None"
    assert b(LOCKF % (EX_NB, 10, 0)) == "errno EAGAIN"
    a.end()
    assert b(LOCKF % (EX, 10, 0)) == "None"
    b.end()


def test_a_killed_mount(c):
    """The mount is silent, so a request for its locks evicts its session before it expires."""
    a, b = two(c, "mount")
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    c.kill("mnt1")
    b.tell(LOCKF % (EX, 0, 0))
    assert b.answer() == "None"
    a.end()
    b.end()
    c.start("mnt1")


def test_a_mount_that_ends_with_the_metadata_server(c):
    """The mount does not return after the restart; a request for its locks need not wait long."""
    a, b = two(c, "missing")
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    c.kill("mnt1")
    c.kill("mds")
    c.start("mds")
    assert b(LOCKF % (EX_NB, 0, 0)) == "None"
    a.end()
    b.end()
    c.start("mnt1")


def test_who_waits_outlasts_the_metadata_server(c):
    """However long the server is down, a wait for a lock ends with the lock or by a signal."""
    a, b = two(c, "outlast")
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    b.tell(LOCKF % (EX, 0, 0))
    assert b.silent()
    c.kill("mds")
    assert b.silent(REQUEST_S + 2)
    c.start("mds")
    assert b.silent(1)
    assert a(LOCKF % (UN, 0, 0)) == "None"
    assert b.answer() == "None"
    a.end()
    b.end()


def test_a_lock_that_others_may_have_had_is_told(c):
    """The mount is stopped until its session is evicted. Another client takes the lock, writes and
    releases it. The mount gets a lock again, but not the one under which its program has read."""
    a, b = two(c, "stood-still")
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    before = c.status_of_mount(1)["session"]
    pid = c.pid("mnt1")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert b(LOCKF % (EX, 0, 0)) == "None"
        assert b("os.pwrite(fd[0], b'b', 0)") == "1"
        assert b(LOCKF % (UN, 0, 0)) == "None"
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: c.status_of_mount(1)["session"] != before and
               c.status()["mds"]["locks"] == 1, 20, "the lock is taken again")
    assert a("os.pwrite(fd[0], b'a', 0)") == "1"
    assert a("os.fsync(fd[0])") == "errno EIO"
    assert a("os.fsync(fd[0])") == "None"
    a.end()
    b.end()


def test_a_new_session_counts_everything_once(c):
    """Programs open, close, lock and unlock files while their mount opens its many files again in a
    new session, and takes their locks."""
    a, b = two(c, "wanted")
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    os.mkdir(c.mnt() + "/many")
    names = ["%s/many/%d" % (c.mnt(), i) for i in range(1200)]
    held = [os.open(n, os.O_RDWR | os.O_CREAT) for n in names]
    for i in range(300):
        fcntl.lockf(held[0], fcntl.LOCK_EX, 1, 2 * i)
    before = c.status_of_mount(1)["session"]
    pid = c.pid("mnt1")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert b(LOCKF % (EX, 0, 0)) == "None"
    finally:
        os.kill(pid, signal.SIGCONT)

    def work(n):
        for turn in range(40):
            fd = os.open(names[1 + n + 8 * turn], os.O_RDWR)
            fcntl.lockf(held[0], fcntl.LOCK_UN, 1, 2 * (n + 8 * (turn % 37)))
            os.close(fd)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert c.status_of_mount(1)["session"] != before
    for fd in held:
        with contextlib.suppress(OSError):  # another client may have had the lock
            os.close(fd)
    a.end()
    b.end()
    wait_until(lambda: (c.status()["mds"]["opens"], c.status()["mds"]["locks"]) == (0, 0), 30,
               "nothing is open or locked any more")


def test_one_file_that_waits_keeps_no_other(c):
    """A mount with a new session cannot yet open one of its files again: another mount has
    unflushed bytes of that file, and the servers do not answer."""
    name = "/unsent"
    held = os.open(c.mnt() + name, os.O_RDWR | os.O_CREAT)
    closed = [os.open(c.mnt() + name, os.O_RDWR) for _ in range(200)]
    before = c.status_of_mount(1)["session"]
    mount, servers = c.pid("mnt1"), [c.pid(s) for s in c.ossd]
    os.kill(mount, signal.SIGSTOP)
    try:
        other = os.open(c.mnt(2) + name, os.O_RDWR)
        os.write(other, b"a" * 5000)
        time.sleep(0.5)  # no longer contended: the other mount has a lease
        os.write(other, b"b" * 5000)
        os.fsync(other)
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        os.write(other, b"c" * 5000)
        os.kill(mount, signal.SIGCONT)
        wait_until(lambda: c.status_of_mount(1)["session"] != before, 10, "another session")
        began = time.monotonic()
        for fd in closed:  # more closes than a mount may have in flight
            os.close(fd)
        for i in range(20):
            os.close(os.open("%s/beside%d" % (c.mnt(), i), os.O_RDWR | os.O_CREAT | os.O_EXCL))
        took = time.monotonic() - began
    finally:
        for pid in [mount] + servers:
            os.kill(pid, signal.SIGCONT)
    assert took < REQUEST_S / 2, took
    os.fsync(other)
    assert os.pread(held, 20000, 0) == b"a" * 5000 + b"b" * 5000 + b"c" * 5000
    os.close(other)
    os.close(held)
    wait_until(lambda: c.status()["mds"]["opens"] == 0, 30, "nothing is open any more")


def test_status_counts(c):
    a, b = two(c, "counts")
    assert a(LOCKF % (EX_NB, 0, 0)) == "None"
    assert c.status()["mds"]["locks"] == 1
    a.end()
    wait_until(lambda: c.status()["mds"]["locks"] == 0, 10, "no lock is left")
    b.end()
    expect_errno(errno.EBADF, fcntl.flock, 1000000, fcntl.LOCK_SH)


if __name__ == "__main__":
    run_tests(globals())
