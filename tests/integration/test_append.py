#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""O_APPEND. A mount that alone has the file open finds its end without requests. What several
mounts append concurrently, across truncations, recalls and restarts of the metadata server, is
complete and in the order of each writer. A restarted metadata server makes mounts flush unsent
bytes."""
import errno
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, get, run_tests, wait_until

CLUSTER = {"mounts": 2}
APPEND = os.O_CREAT | os.O_WRONLY | os.O_APPEND
FS_IOC_SETFLAGS, FS_IMMUTABLE_FL = 0x40086602, 0x10


def asked(c, i):
    """Requests of that mount to the metadata server."""
    return json.loads(os.getxattr(c.mnt(i), "leat.status"))["meta_ops"]


class Writer:
    """A process that has one file open, and no other file of the mount: closing inherited
    descriptors would flush data. It writes each line that it gets, at an offset or appended."""

    PROGRAM = """
import os, sys
fd = os.open(sys.argv[1], int(sys.argv[2]))
for line in sys.stdin:
    off, _, data = line.rstrip("\\n").partition(" ")
    if off == "-":
        os.write(fd, data.encode())
    else:
        os.pwrite(fd, data.encode(), int(off))
    print("ok", flush=True)
"""

    def __init__(self, path, flags):
        self.process = subprocess.Popen([sys.executable, "-c", self.PROGRAM, path, str(flags)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def write(self, data, off="-"):
        self.process.stdin.write("%s %s\n" % (off, data))
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(300) == 0


def test_appends_spare_what_another_mount_writes_at_the_end(c):
    """An append gets a reservation where another mount has just written: the bytes of that mount
    stay, even if they are zeros, and no record is lost or torn."""
    size, n_done, stop = 64, 0, threading.Event()
    path = [c.mnt(i) + "/log_end" for i in (1, 2)]
    appends = os.open(path[0], APPEND)
    writes = os.open(path[1], os.O_RDWR)
    written = {}

    def append():
        nonlocal n_done
        while not stop.is_set():
            assert os.write(appends, b"a%063d" % n_done) == size
            n_done += 1

    appender = threading.Thread(target=append)
    appender.start()
    until = time.monotonic() + 2
    while time.monotonic() < until and len(written) < 2000:
        at = os.fstat(writes).st_size
        data = b"w%063d" % len(written) if len(written) % 2 else bytes(size)
        assert os.pwrite(writes, data, at) == size
        written[at] = data
        time.sleep(0.05 * (len(written) % 3))  # writes without a pause would starve the appends
    stop.set()
    appender.join()
    os.close(appends)
    os.close(writes)
    with open(path[1], "rb") as f:
        got = f.read()
    lost = [at for at, data in written.items() if got[at:at + size] != data]
    assert n_done > 0 and not lost, "%d of %d are gone: %s" % (len(lost), len(written), lost)
    for at in range(0, len(got), size):
        is_record = got[at:at + 1] in (b"a", b"w") and got[at + 1:at + size].isdigit()
        assert is_record or at in written, (at, got[at:at + size])
    print("%d appended, %d written at the end" % (n_done, len(written)))


def test_alone_nobody_is_asked(c):
    for k in range(2):  # a new file, then an existing one
        fd = os.open(c.mnt(1) + "/log", APPEND)
        os.write(fd, b"%04d" % (1000 * k))
        time.sleep(1)  # for a while after the other mount's stat, no lease is given
        before = asked(c, 1)
        for i in range(1, 1000):
            os.write(fd, b"%04d" % (1000 * k + i))
        assert asked(c, 1) - before <= 20, asked(c, 1) - before
        assert os.fstat(fd).st_size == os.stat(c.mnt(2) + "/log").st_size == 4000 * (k + 1)
        os.close(fd)
    assert get(c.mnt(2) + "/log") == b"".join(b"%04d" % i for i in range(2000))


def test_a_descriptor_that_appends_no_more(c):
    """fcntl(F_SETFL) clears O_APPEND, and sets it again."""
    path = c.mnt(1) + "/setfl"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(fd, b"first")
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    os.pwrite(fd, b"F", 0)
    os.pwrite(fd, b"far", 10)
    assert get(path) == get(c.mnt(2) + "/setfl") == b"First" + bytes(5) + b"far"
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    os.pwrite(fd, b"end", 0)
    os.close(fd)
    assert get(path) == get(c.mnt(2) + "/setfl") == b"First" + bytes(5) + b"farend"
    os.unlink(path)


def test_what_it_then_writes_elsewhere_is_not_appended_over(c):
    """Two descriptors append. One of them clears O_APPEND and writes at the end of the file:
    appends of the other must go after that write, even after the first has set O_APPEND again."""
    paths = [c.mnt(i) + "/plain" for i in (1, 2)]
    fd = os.open(paths[0], os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.write(fd, b"first")
    other = os.open(paths[1], APPEND)
    os.write(other, b"second")
    expected = b"firstsecond"
    for k in range(3):
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        os.pwrite(fd, b"plain%d" % k, len(expected))
        expected += b"plain%d" % k
        if k == 2:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        os.write(other, b"other%d" % k)
        expected += b"other%d" % k
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        os.write(fd, b"again%d" % k)
        expected += b"again%d" % k
    os.close(fd)
    os.write(other, b"last")
    os.close(other)
    assert get(paths[0]) == get(paths[1]) == expected + b"last", get(paths[0])


def test_in_turns_with_others(c):
    """Appends, writes and truncations of either mount move the end."""
    paths = [c.mnt(i) + "/turns" for i in (1, 2)]
    fds = [os.open(p, APPEND) for p in paths]
    expected = b""
    for i in range(60):
        os.write(fds[i % 2], b"a%03d" % i)
        os.write(fds[i % 2], b"b%03d" % i)
        expected += b"a%03db%03d" % (i, i)
        if i % 7 == 3:
            os.truncate(paths[i // 7 % 2], len(expected) // 2)
            expected = expected[:len(expected) // 2]
        if i % 11 == 5:
            with open(paths[(i + 1) % 2], "r+b", buffering=0) as f:
                f.seek(len(expected))
                f.write(b"plain")
            expected += b"plain"
        if i % 13 == 6:  # mount 1 is the only one for a while
            os.close(fds[1])
            os.write(fds[0], b"alone")
            time.sleep(1.1)
            os.write(fds[0], b"again")
            expected += b"aloneagain"
            fds[1] = os.open(paths[1], APPEND)
        assert os.fstat(fds[1 - i % 2]).st_size == len(expected), i
    for fd in fds:
        os.close(fd)
    assert get(paths[0]) == get(paths[1]) == expected


def test_truncated_by_another_while_alone(c):
    fd = os.open(c.mnt(1) + "/cut", APPEND)
    for size in (10, 0, 200, 3):
        os.write(fd, b"x" * 100)
        os.truncate(c.mnt(2) + "/cut", size)
        assert os.fstat(fd).st_size == size
        os.write(fd, b"end")
        assert os.stat(c.mnt(2) + "/cut").st_size == size + 3
        assert get(c.mnt(2) + "/cut").endswith(b"end")
        os.truncate(c.mnt(2) + "/cut", 0)
    os.close(fd)


def test_truncated_by_another_while_it_was_away(c):
    """The session of the mount is evicted, and its cached end of file becomes invalid."""
    path, n = "/away", c.log("mds").count("evicting it")
    fd = os.open(c.mnt(1) + path, APPEND | os.O_SYNC)
    os.write(fd, b"x" * (1 << 20))
    c.kill("mnt1", signal.SIGSTOP)
    try:
        os.truncate(c.mnt(2) + path, 0)
    finally:
        c.kill("mnt1", signal.SIGCONT)
    assert c.log("mds").count("evicting it") > n
    os.write(fd, b"end")
    os.close(fd)
    assert get(c.mnt(2) + path) == b"end", os.stat(c.mnt(2) + path).st_size


def set_flags(path, flags):
    fd = os.open(path, os.O_RDONLY)
    fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("l", flags))
    os.close(fd)


def test_refused_when_it_came_back(c):
    """In its new session the mount cannot open the file again, because the file is immutable. After
    the flag is cleared, the next append opens it again, permanently."""
    path, before = "/fixed", c.status_of_mount(1)["session"]
    fd = os.open(c.mnt(1) + path, APPEND | os.O_SYNC)
    os.write(fd, b"first")
    c.kill("mnt1", signal.SIGSTOP)
    try:
        os.truncate(c.mnt(2) + path, 3)
        set_flags(c.mnt(2) + path, FS_IMMUTABLE_FL)
    finally:
        c.kill("mnt1", signal.SIGCONT)
    wait_until(lambda: c.status_of_mount(1)["session"] != before and
               "could not be opened again" in c.log("mnt1"), 20, "it may not open it")
    expect_errno(errno.EPERM, os.write, fd, b"refused")
    set_flags(c.mnt(2) + path, 0)
    for i in range(3):
        os.write(fd, b"end%d" % i)
        assert get(c.mnt(2) + path) == b"firend0end1end2"[:7 + 4 * i]
    os.close(fd)
    assert get(c.mnt(2) + path) == b"firend0end1end2"
    wait_until(lambda: c.status()["mds"]["opens"] == 0, 30, "nothing is open any more")


def records(data, width):
    """{writer: its records, in the order of the file}"""
    rows = [data[i:i + width] for i in range(0, len(data), width)]
    return {w: [r for r in rows if r[:1] == w] for w in {r[:1] for r in rows}}


def append_all(path, tag, n, pause):
    fd = os.open(path, APPEND)
    for i in range(n):
        os.write(fd, b"%s%07d\n" % (tag, i))
        if pause and i % pause == 0:
            os.close(fd)
            time.sleep(0.02)
            fd = os.open(path, APPEND)
    os.close(fd)


def test_many_append_and_come_and_go(c):
    """A mount left alone appends without requests, and is recalled when another mount opens the
    file."""
    jobs = [(1, b"a", 3000, 0), (1, b"b", 1500, 200), (2, b"c", 1500, 100), (2, b"d", 600, 50)]
    ts = [threading.Thread(target=append_all, args=(c.mnt(m) + "/many", tag, n, pause))
          for m, tag, n, pause in jobs]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    seen = records(get(c.mnt(1) + "/many"), 9)
    for _, tag, n, _ in jobs:
        assert seen[tag] == [b"%s%07d\n" % (tag, i) for i in range(n)], (tag, len(seen[tag]))
    assert get(c.mnt(1) + "/many") == get(c.mnt(2) + "/many")


def test_nothing_is_lost_when_the_metadata_server_restarts(c):
    """One mount appends alone, the server restarts, another mount appends after all of it."""
    for k in range(4):
        name = "/again%d" % k
        with Writer(c.mnt(1) + name, APPEND) as w:
            for i in range(50):
                w.write("%04d" % i)
            c.kill("mds")
            c.start("mds")
            fd = os.open(c.mnt(2) + name, APPEND)
            os.write(fd, b"next")
            os.close(fd)
            assert get(c.mnt(2) + name) == b"".join(b"%04d" % i for i in range(50)) + b"next"
            w.write("last")
        assert get(c.mnt(2) + name)[200:] == b"nextlast"


def test_what_is_not_sent_is_seen_when_the_metadata_server_restarts(c):
    for k in range(4):
        path = "/kept%d" % k
        with Writer(c.mnt(1) + path, os.O_CREAT | os.O_RDWR) as w:
            for i in range(50):
                w.write("%04d" % i, 4 * i)
            c.kill("mds")
            c.start("mds")
            assert os.stat(c.mnt(2) + path).st_size == 200
            assert get(c.mnt(2) + path) == b"".join(b"%04d" % i for i in range(50))


def test_killed_while_it_appends(c):
    """The killed mount's synced bytes stay, no record is torn, and others append after them."""
    fd = os.open(c.mnt(2) + "/killed", APPEND)
    for i in range(200):
        os.write(fd, b"k%07d\n" % i)
        if i == 150:
            os.fsync(fd)
    c.kill("mnt2")
    n = os.open(c.mnt(1) + "/killed", APPEND)
    os.write(n, b"n%07d\n" % 0)
    os.close(n)
    seen = records(get(c.mnt(1) + "/killed"), 9)
    assert len(seen[b"k"]) >= 151
    assert seen[b"k"] == [b"k%07d\n" % i for i in range(len(seen[b"k"]))]
    assert seen[b"n"] == [b"n%07d\n" % 0]
    try:
        os.close(fd)
    except OSError:
        pass
    c.start("mnt2")


def test_a_log_that_is_emptied_under_its_writers(c):
    """Like logrotate's copytruncate: appends go to the new end of the file, and leave no hole up to
    the previous end."""
    for n in range(8):
        path, stop = "/emptied%d" % n, threading.Event()

        def write_on(mount, name):
            fd, k = os.open(c.mnt(mount) + path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 0
            while not stop.is_set():
                os.write(fd, (b"%s %d " % (name, k)).ljust(99, b".") + b"\n")
                k += 1
            os.close(fd)

        writers = [threading.Thread(target=write_on, args=(1 + k % 2, b"w%d" % k))
                   for k in range(4)]
        for t in writers:
            t.start()
        time.sleep(0.15)
        os.truncate(c.mnt(1) + path, 0)
        time.sleep(0.05)
        stop.set()
        for t in writers:
            t.join(300)
        data = get(c.mnt(2) + path)
        lines = data.split(b"\n")[:-1]
        assert b"\0" not in data, (n, len(data), data.count(b"\0"))
        assert len(data) == 100 * len(lines) == 100 * len(set(lines)), n


if __name__ == "__main__":
    run_tests(globals())
