#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""System calls on file data beyond read and write: copy_file_range, fallocate, SEEK_HOLE, setting
times during writes, and signals during calls."""
import ctypes
import errno
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import (COLLAPSE, KEEP_SIZE, PUNCH, ZERO_RANGE, as_user, expect_errno, fallocate, get,
                     libc, put, run_tests, slow_to_forget, wait_until)

MIB = 1 << 20
CLUSTER = {"replicas": 1}


def copy(source, target, length=1 << 40, source_off=0, target_off=0):
    """Copies until it is done. Returns the number of bytes."""
    total = 0
    with open(source, "rb") as s, open(target, "r+b" if os.path.exists(target) else "wb") as t:
        while total < length:
            n = os.copy_file_range(s.fileno(), t.fileno(), min(length - total, 1 << 30),
                                   source_off + total, target_off + total)
            if n == 0:
                break
            total += n
    return total


def moved(c):
    s = c.status_of_mount()
    return s["read_bytes"] + s["written_bytes"]


# ---- copies ----

def settled(path):
    """Waits until the size of a file that was just closed is settled."""
    time.sleep(0.1)
    os.stat(path)


def test_whole_chunks_are_copied_by_the_servers(c):
    data = os.urandom(70 * MIB + 12345)
    put(c.mnt() + "/from", data)
    settled(c.mnt() + "/from")
    before = moved(c)
    assert copy(c.mnt() + "/from", c.mnt() + "/to") == len(data)
    assert moved(c) == before, "data came through the client"
    assert os.stat(c.mnt() + "/to").st_size == len(data)
    assert get(c.mnt() + "/to") == data
    assert get(c.mnt(2) + "/to") == data
    # The copy is a separate file.
    with open(c.mnt() + "/to", "r+b") as f:
        f.write(b"changed")
    assert get(c.mnt() + "/from") == data
    os.unlink(c.mnt() + "/from")
    assert get(c.mnt(2) + "/to") == b"changed" + data[7:]
    os.unlink(c.mnt() + "/to")


def test_small_files_and_what_is_appended(c):
    put(c.mnt() + "/small", b"small")
    settled(c.mnt() + "/small")
    before = moved(c)
    assert copy(c.mnt() + "/small", c.mnt() + "/copy") == 5
    assert moved(c) == before
    assert get(c.mnt() + "/copy") == b"small"
    # A target past the end, at a chunk: the servers copy here too, and the gap is a hole.
    assert copy(c.mnt() + "/small", c.mnt() + "/copy", target_off=3 * MIB) == 5
    assert get(c.mnt(2) + "/copy") == b"small".ljust(3 * MIB, b"\0") + b"small"
    for name in ("small", "copy"):
        os.unlink(c.mnt() + "/" + name)


def test_what_the_servers_cannot_do_is_right_all_the_same(c):
    data = os.urandom(5 * MIB + 77)
    put(c.mnt() + "/from", data)
    settled(c.mnt() + "/from")
    put(c.mnt() + "/to", b"x" * (4 * MIB))
    # Over existing data; not at chunks; from a file that is open for writing.
    assert copy(c.mnt() + "/from", c.mnt() + "/to", 2 * MIB, MIB, MIB) == 2 * MIB
    want = b"x" * MIB + data[MIB:3 * MIB] + b"x" * MIB
    assert get(c.mnt(2) + "/to") == want
    assert copy(c.mnt() + "/from", c.mnt() + "/to", 1000, 5, 4 * MIB + 3) == 1000
    assert get(c.mnt(2) + "/to") == want + b"\0\0\0" + data[5:1005]
    with open(c.mnt() + "/from", "ab") as f:
        f.write(b"tail")
        f.flush()
        assert copy(c.mnt() + "/from", c.mnt() + "/new") == len(data) + 4
    assert get(c.mnt(2) + "/new") == data + b"tail"
    for name in ("from", "to", "new"):
        os.unlink(c.mnt() + "/" + name)


def test_holes_stay_holes(c):
    with open(c.mnt() + "/sparse", "wb") as f:
        f.truncate(40 * MIB)
        f.seek(20 * MIB)
        f.write(b"y" * MIB)
    settled(c.mnt() + "/sparse")
    wait_until(lambda: os.stat(c.mnt() + "/sparse").st_blocks > 0, 10, "its space is known")
    assert copy(c.mnt() + "/sparse", c.mnt() + "/copy") == 40 * MIB
    assert get(c.mnt() + "/copy") == get(c.mnt() + "/sparse")
    wait_until(lambda: os.stat(c.mnt(2) + "/copy").st_blocks == 2048, 10, "as much space")
    for name in ("sparse", "copy"):
        os.unlink(c.mnt() + "/" + name)


def test_the_metadata_server_dies_under_a_copy(c):
    data = os.urandom(60 * MIB + 5)
    put(c.mnt() + "/from", data)
    settled(c.mnt() + "/from")
    done = []
    t = threading.Thread(target=lambda: done.append(copy(c.mnt() + "/from", c.mnt() + "/to")))
    t.start()
    time.sleep(0.05)
    c.kill("mds")
    c.start("mds")
    t.join(120)
    assert done == [len(data)], done
    assert get(c.mnt(2) + "/to") == data
    c.kill("ossd2")
    t = threading.Thread(target=lambda: done.append(copy(c.mnt() + "/from", c.mnt() + "/two")))
    t.start()
    time.sleep(0.5)
    c.start("ossd2")
    t.join(120)
    assert done[1:] == [len(data)], done
    assert get(c.mnt(2) + "/two") == data
    for name in ("from", "to", "two"):
        os.unlink(c.mnt() + "/" + name)


# ---- fallocate, holes ----

def test_fallocate(c):
    fd = os.open(c.mnt() + "/f", os.O_CREAT | os.O_RDWR, 0o644)
    fallocate(fd, 0, 0, 3 * MIB)
    assert os.fstat(fd).st_size == 3 * MIB
    fallocate(fd, KEEP_SIZE, 3 * MIB, MIB)
    assert os.fstat(fd).st_size == 3 * MIB
    os.pwrite(fd, b"z" * (3 * MIB), 0)
    fallocate(fd, PUNCH | KEEP_SIZE, 1000, MIB)
    assert os.pread(fd, 3 * MIB, 0) == b"z" * 1000 + bytes(MIB) + b"z" * (2 * MIB - 1000)
    fallocate(fd, ZERO_RANGE, 3 * MIB - 10, 100)
    assert os.fstat(fd).st_size == 3 * MIB + 90
    assert os.pread(fd, 1000, 3 * MIB - 20) == b"z" * 10 + bytes(100)
    fallocate(fd, ZERO_RANGE | KEEP_SIZE, 4 * MIB, MIB)
    assert os.fstat(fd).st_size == 3 * MIB + 90
    expect_errno(errno.EOPNOTSUPP, fallocate, fd, COLLAPSE, 0, MIB)
    expect_errno(errno.ENOSPC, fallocate, fd, 0, 0, 1 << 42)
    os.close(fd)
    os.unlink(c.mnt() + "/f")


def occupied(c, name):
    """The blocks of a closed file in bytes; both mounts agree on them."""
    assert os.stat(c.mnt(1) + name).st_blocks == os.stat(c.mnt(2) + name).st_blocks
    return os.stat(c.mnt(2) + name).st_blocks * 512


def test_what_is_prepared_counts_before_it_is_written(c):
    for layout in ("width=4", "replicas=2"):
        os.mkdir(c.mnt() + "/prepared")
        os.setxattr(c.mnt() + "/prepared", "leat.layout", layout.encode())
        prepare_and_write(c, "/prepared/p")
        os.rmdir(c.mnt() + "/prepared")


def prepare_and_write(c, name):
    path, other = c.mnt() + name, c.mnt(2) + name
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    os.pwrite(fd, b"a" * 4096, 0)
    fallocate(fd, 0, 4095, 2)
    assert os.fstat(fd).st_blocks == 16 == os.stat(other).st_blocks
    os.pwrite(fd, b"xy", 4095)
    assert os.fstat(fd).st_blocks == 16 == os.stat(other).st_blocks
    fallocate(fd, KEEP_SIZE, MIB, 10 * MIB)  # chunks without data
    assert os.fstat(fd).st_blocks == 16 + 20 * 1024 == os.stat(other).st_blocks
    os.pwrite(fd, b"z" * 3 * MIB, 2 * MIB)
    os.fsync(fd)
    assert os.stat(other).st_blocks == 16 + 20 * 1024
    os.pwrite(fd, b"z" * MIB, 11 * MIB)
    os.fsync(fd)
    assert os.stat(other).st_blocks == 16 + 22 * 1024
    os.close(fd)
    assert occupied(c, name) == 8192 + 11 * MIB
    for server in ("mds", "ossd1", "ossd2"):
        c.kill(server)
        c.start(server)
    assert occupied(c, name) == 8192 + 11 * MIB
    with open(path, "r+b") as f:
        fallocate(f.fileno(), PUNCH | KEEP_SIZE, MIB, 2 * MIB)
        assert os.fstat(f.fileno()).st_blocks == 16 + 18 * 1024 == os.stat(other).st_blocks
        fallocate(f.fileno(), PUNCH | KEEP_SIZE, 9 * MIB, MIB)
    assert occupied(c, name) == 8192 + 8 * MIB
    c.run("cold")
    assert occupied(c, name) == 8192 + 8 * MIB
    with open(path, "r+b") as f:
        fallocate(f.fileno(), ZERO_RANGE | KEEP_SIZE, 3 * MIB, 2 * MIB)
        assert os.pread(f.fileno(), 2 * MIB, 3 * MIB) == bytes(2 * MIB)
    assert occupied(c, name) == 8192 + 8 * MIB
    os.truncate(path, 10 * MIB)
    assert occupied(c, name) == 8192 + 6 * MIB
    os.truncate(path, 1)
    assert occupied(c, name) == 4096
    with open(path, "r+b") as f:
        fallocate(f.fileno(), KEEP_SIZE, 0, MIB)
    assert occupied(c, name) == MIB
    os.truncate(path, 1)
    assert occupied(c, name) == 4096
    open(path, "r+b").truncate(0)
    assert occupied(c, name) == 0
    os.unlink(path)


def free_space(c):
    s = os.statvfs(c.mnt())
    return s.f_bavail * s.f_frsize


def test_what_is_prepared_is_not_free(c):
    d = c.mnt() + "/limited"
    os.mkdir(d)
    before = free_space(c)
    c.leat("quota", "set", "--bytes", "100M", d)
    with open(d + "/f", "wb") as f:
        fallocate(f.fileno(), 0, 0, 60 * MIB)
        assert 55 * MIB < before - free_space(c) < 65 * MIB
        expect_errno(errno.EDQUOT, fallocate, f.fileno(), KEEP_SIZE, 80 * MIB, 50 * MIB)
        fallocate(f.fileno(), KEEP_SIZE, 80 * MIB, 30 * MIB)
        assert os.fstat(f.fileno()).st_blocks == 90 * 2048
    os.unlink(d + "/f")
    wait_until(lambda: before - free_space(c) < 5 * MIB, 10, "space to be free")
    with open(d + "/f", "wb") as f:
        fallocate(f.fileno(), 0, 0, 60 * MIB)
    os.unlink(d + "/f")
    os.rmdir(d)


def test_holes_and_data(c):
    fd = os.open(c.mnt() + "/h", os.O_CREAT | os.O_RDWR, 0o644)
    os.ftruncate(fd, 10 * MIB)
    os.pwrite(fd, b"one", 2 * MIB)
    os.pwrite(fd, b"two", 10 * MIB - 128)
    assert os.lseek(fd, 0, os.SEEK_DATA) == 2 * MIB
    assert os.lseek(fd, 0, os.SEEK_HOLE) == 0
    hole = os.lseek(fd, 2 * MIB, os.SEEK_HOLE)
    assert 2 * MIB < hole <= 2 * MIB + 65536 and hole % 4096 == 0
    data = os.lseek(fd, hole, os.SEEK_DATA)
    assert 10 * MIB - 65536 <= data <= 10 * MIB - 128
    # The rest of the last page is no hole.
    assert os.lseek(fd, 10 * MIB - 128, os.SEEK_HOLE) == 10 * MIB
    assert os.lseek(fd, 10 * MIB - 1, os.SEEK_DATA) == 10 * MIB - 1
    expect_errno(errno.ENXIO, os.lseek, fd, 10 * MIB, os.SEEK_DATA)
    os.close(fd)
    os.unlink(c.mnt() + "/h")


# ---- times ----

def test_a_time_that_was_set_stays(c):
    """Whatever changed the size before, and whichever mount reads it."""
    stamp = 1234567890123456789

    def grow(fd): os.ftruncate(fd, 5 * MIB)
    def shrink(fd): os.ftruncate(fd, 100)
    def write(fd): os.pwrite(fd, b"end", 2 * MIB)
    def by_fd(fd): os.utime(fd, ns=(stamp, stamp))
    def by_name(fd): os.utime(c.mnt() + "/t", ns=(stamp, stamp))
    for ops in ([write, by_fd, os.close], [grow, write, by_fd, os.close],
                [write, shrink, by_fd, os.close], [shrink, write, by_fd, os.close],
                [grow, by_fd, write, by_fd, os.close], [grow, write, os.close, by_name],
                [write, os.close, by_name], [write, grow, os.close, by_name]):
        fd = os.open(c.mnt() + "/t", os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644)
        for op in ops:
            op(fd)
        names = [op.__name__ for op in ops]
        assert os.stat(c.mnt() + "/t").st_mtime_ns == stamp, names
        time.sleep(1.3)
        for n in (1, 2):
            assert os.stat(c.mnt(n) + "/t").st_mtime_ns == stamp, (names, n)
        os.unlink(c.mnt() + "/t")
    # A later write changes the time.
    fd = os.open(c.mnt() + "/t", os.O_CREAT | os.O_RDWR, 0o644)
    for op in (grow, by_fd, write, os.close):
        op(fd)
    time.sleep(1.3)
    assert os.stat(c.mnt(2) + "/t").st_mtime_ns > stamp + 10**18 // 10
    os.unlink(c.mnt() + "/t")


def test_a_time_that_was_set_stays_while_the_file_is_open(c):
    """Even a time before 1970. A time in the future does not become a change time."""
    for stamp in (-5 * 10**8, 4 * 10**18):
        fd = os.open(c.mnt() + "/t", os.O_CREAT | os.O_RDWR, 0o644)
        os.pwrite(fd, b"data", 0)
        os.utime(fd, ns=(stamp, stamp))
        for n in (1, 2):
            assert os.stat(c.mnt(n) + "/t").st_mtime_ns == stamp, (n, os.stat(c.mnt(n) + "/t"))
        os.close(fd)
        os.close(os.open(c.mnt() + "/t", os.O_RDWR))
        other = os.open(c.mnt(2) + "/t", os.O_RDWR)
        for n in (1, 2):
            st = os.stat(c.mnt(n) + "/t")
            assert st.st_mtime_ns == stamp and abs(st.st_ctime - time.time()) < 1000, (n, st)
        os.close(other)
        os.unlink(c.mnt() + "/t")


def test_closing_is_no_change(c):
    """The file was only extended, by a program that appends."""
    path = c.mnt() + "/t"
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
    other = os.open(c.mnt(2) + "/t", os.O_RDWR)
    os.ftruncate(fd, 65535)
    shown = os.stat(path).st_ctime_ns
    os.close(fd)
    os.close(other)
    time.sleep(0.5)
    for n in (1, 2):
        assert os.stat(c.mnt(n) + "/t").st_ctime_ns == shown, n
    os.unlink(path)


def test_time_does_not_go_back(c):
    """A writer closes its file after another change of the file."""
    path, far = c.mnt() + "/t", c.mnt(2) + "/t"
    other = os.open(far, os.O_CREAT | os.O_RDWR, 0o644)
    for change in (lambda fd: fallocate(fd, 0, 0, 100000),
                   lambda fd: fallocate(other, 0, 0, 200000),
                   lambda fd: os.truncate(far, 10), lambda fd: os.truncate(far, 300000)):
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, b"data" * 1024, 0)
        os.fsync(fd)
        time.sleep(0.02)
        change(fd)
        shown = os.stat(far).st_mtime_ns
        assert os.stat(path).st_mtime_ns == shown
        os.close(fd)
        time.sleep(0.05)
        for n in (1, 2):
            assert os.stat(c.mnt(n) + "/t").st_mtime_ns == shown, n
    os.close(other)
    os.unlink(path)


def test_truncating_an_empty_file_is_a_change(c):
    """`: > stamp` is how shell scripts touch a file."""
    path = c.mnt() + "/stamp"
    put(path, b"")
    for flags in (os.O_WRONLY, os.O_RDONLY):
        before = os.stat(path)
        os.close(os.open(c.mnt(2) + "/stamp", flags | os.O_TRUNC))
        after = os.stat(path)
        assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
    os.unlink(path)


def test_what_has_data_has_blocks(c):
    """Copying programs take a file without blocks for a hole, so it has some even during writes."""
    path = c.mnt() + "/sparse"
    for flags in (0, os.O_DIRECT):
        fd = os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o644)
        with mmap.mmap(-1, 4096) as page:
            page[:] = b"d" * 4096
            os.pwrite(fd, page, 3 * MIB)
        for n in (1, 2):
            assert os.stat(c.mnt(n) + "/sparse").st_blocks > 0, (flags, n)
        os.close(fd)
        os.unlink(path)


def test_direct_writes_take_set_user_id_away(c):
    path = c.mnt() + "/suid"
    for flags in (0, os.O_DIRECT):
        put(path, bytes(4096))
        os.chown(path, 12345, 12345)
        os.chmod(path, 0o6777)
        assert os.stat(path).st_mode & 0o7777 == 0o6777
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setgid(12345)
            os.setuid(12345)
            fd = os.open(path, os.O_WRONLY | flags)
            with mmap.mmap(-1, 4096) as page:
                os._exit(0 if os.write(fd, page) == 4096 else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert os.stat(path).st_mode & 0o7777 == 0o777, (flags, oct(os.stat(path).st_mode))
        os.unlink(path)


def mode_alone(path):
    """A statx(2) that requests the mode only, which the kernel may answer from its cache."""
    out = subprocess.run(["stat", "-c", "%a", path], check=True, stdout=subprocess.PIPE).stdout
    return int(out, 8)


def test_fallocate_and_copies_take_set_user_id_away(c):
    """Unless root does it, whichever user opened the file; and every mount shows it immediately."""
    path, source = c.mnt() + "/suid", c.mnt() + "/source"
    put(source, bytes(MIB))
    os.chmod(source, 0o644)

    def change(how):
        fd = os.open(path, os.O_RDWR)
        if how == "copy":
            src = os.open(source, os.O_RDONLY)
            assert os.copy_file_range(src, fd, MIB, 0, 2 * MIB) == MIB
            os.close(src)
        else:
            fallocate(fd, how, 0, 3 * MIB)
        os.close(fd)

    for how in (0, KEEP_SIZE, PUNCH | KEEP_SIZE, ZERO_RANGE, "copy"):
        put(path, bytes(MIB))
        os.chown(path, 12345, 12345)
        # If the group may not execute, its members' calls keep set-group-id.
        for user, group, before, after in ((0, 0, 0o6777, 0o6777), (54321, 54321, 0o6777, 0o777),
                                           (54321, 54321, 0o6666, 0o666),
                                           (54321, 12345, 0o6666, 0o2666)):
            os.truncate(path, MIB)
            os.chmod(path, before)
            assert mode_alone(path) == before
            assert as_user(lambda: change(how), user, group) == 0
            assert mode_alone(path) == after, (how, user, oct(mode_alone(path)))
            assert mode_alone(c.mnt(2) + "/suid") == after, (how, user)
        # A user is the last to open the file; root changes it.
        os.truncate(path, MIB)
        os.chmod(path, 0o6777)
        roots = os.open(path, os.O_RDWR)
        as_user(lambda: os.close(os.open(path, os.O_RDWR)), 54321, 54321)
        if how != "copy":
            fallocate(roots, how, 0, 3 * MIB)
            assert mode_alone(path) == 0o6777, how
        os.close(roots)
        os.unlink(path)
    os.unlink(source)


def test_times_shown_after_close_stay(c):
    """Programs such as git and tar take other times of a closed file for a change."""
    times = lambda path: (lambda st: (st.st_mtime_ns, st.st_ctime_ns))(os.stat(path))
    for i, size in enumerate([3, 5000, 3 * MIB] * 5):
        path, other = c.mnt(1) + "/t%d" % i, c.mnt(2) + "/t%d" % i
        put(path, bytes(size))
        if i % 2:
            put(path, bytes(size + 1))
        shown = times(path)
        time.sleep(0.02 * (i % 3))
        assert times(other) == shown, (i, shown, times(other), times(path))
        time.sleep(0.1)
        assert times(path) == times(other) == shown, "%d: later" % i
        with open(path, "ab") as f:
            f.write(b"more")
        assert times(path) != shown and times(path) == times(other), "%d: appended" % i
        os.unlink(path)


# ---- signals ----

SIGNALLED = """
import os, signal, sys, time
n = [0]
def handler(*args): n[0] += 1
signal.signal(signal.SIGALRM, handler)
signal.siginterrupt(signal.SIGALRM, True)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o644)
end = time.monotonic() + 3
block = b"x" * 100000
while time.monotonic() < end:
    # The calls themselves: Python would repeat what was interrupted.
    for call in (lambda: libc.pwrite(fd, block, len(block), ctypes.c_long(0)),
                 lambda: libc.fdatasync(fd),
                 lambda: libc.pread(fd, ctypes.create_string_buffer(1000), 1000,
                                    ctypes.c_long(0))):
        if call() < 0:
            sys.exit("errno %d" % ctypes.get_errno())
signal.setitimer(signal.ITIMER_REAL, 0)
assert n[0] > 50, n
"""


def test_signals_do_not_interrupt_data(c):
    p = subprocess.run([sys.executable, "-c", SIGNALLED, c.mnt() + "/s"], timeout=300,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert p.returncode == 0, p.stdout
    os.unlink(c.mnt() + "/s")


def test_but_who_is_killed_need_not_wait(c):
    """No server answers: a handled signal does not end the wait, SIGKILL does."""
    put(c.mnt() + "/k", os.urandom(8 * MIB))
    c.stop("mnt1")
    c.start("mnt1")
    program = ("import os, signal, sys; signal.signal(signal.SIGUSR1, lambda *a: None);"
               "fd = os.open(sys.argv[1], os.O_RDONLY); print('open', flush=True);"
               "[os.pread(fd, 1 << 20, i << 20) for i in range(8)]")
    for name in c.ossd:
        c.kill(name, signal.SIGSTOP)
    try:
        p = subprocess.Popen([sys.executable, "-c", program, c.mnt() + "/k"],
                             stdout=subprocess.PIPE)
        assert p.stdout.readline() == b"open\n"
        time.sleep(0.5)
        p.send_signal(signal.SIGUSR1)
        time.sleep(1)
        assert p.poll() is None, "it was interrupted"
        p.kill()
        started = time.monotonic()
        assert p.wait(20) == -signal.SIGKILL
        print("ended after %.2f s" % (time.monotonic() - started))
    finally:
        for name in c.ossd:
            c.kill(name, signal.SIGCONT)
    os.unlink(c.mnt() + "/k")


def test_nothing_is_damaged(c):
    c.assert_sound()


# ---- asynchronous direct writes ----

class Aio:
    """One direct write at a time by the kernel's io_submit."""
    CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}

    def __init__(self):
        self.setup, self.destroy, self.getevents, self.submit = self.CALLS[os.uname().machine]
        self.context = ctypes.c_ulong()
        self.call(self.setup, 1, ctypes.byref(self.context))

    def call(self, number, *args):
        rc = libc.syscall(ctypes.c_long(number), *args)
        if rc < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return rc

    def pwrite(self, fd, buffer, off):
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        iocb = ctypes.create_string_buffer(struct.pack(
            "<QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, address, len(buffer), off, 0, 0, 0))
        each = (ctypes.c_void_p * 1)(ctypes.addressof(iocb))
        event = ctypes.create_string_buffer(32)
        assert self.call(self.submit, self.context, ctypes.c_long(1), each) == 1
        assert self.call(self.getevents, self.context, ctypes.c_long(1), ctypes.c_long(1), event,
                         None) == 1
        assert struct.unpack("<QQqq", event.raw)[2] == len(buffer)

    def close(self):
        self.call(self.destroy, self.context)


def test_asynchronous_direct_writes_are_seen_by_buffered_readers(c):
    """A read during a direct write fills the page cache with the previous data."""
    path, size, stop = c.mnt() + "/aio", 4 * 64 << 10, threading.Event()
    put(path, bytes(size))
    settled(path)

    def read_on():
        while not stop.is_set():  # the file may be closed when a write ends
            with open(path, "rb", buffering=0) as f:
                os.pread(f.fileno(), size, 0)

    readers = [threading.Thread(target=read_on) for _ in range(2)]
    aio, buffer = Aio(), mmap.mmap(-1, size)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    for r in readers:
        r.start()
    try:
        with open(path, "rb", buffering=0) as f, slow_to_forget(c, 1):
            for i in range(1, 201):
                buffer[:] = bytes([i]) * size
                aio.pwrite(fd, buffer, 0)
                got = os.pread(f.fileno(), size, 0)
                assert got == bytes([i]) * size, "write %d, read %s" % (i, sorted(set(got)))
    finally:
        stop.set()
        for r in readers:
            r.join()
    os.close(fd)
    aio.close()


def test_a_mapping_of_a_file_that_is_open_for_direct_writes(c):
    """Write-back of the mapping uses the direct descriptor, and direct writes wait until pages are
    dropped."""
    path, pages, stop = c.mnt() + "/mapped", 64, threading.Event()
    put(path, bytes(pages * 4096))
    settled(path)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)

    def read_on():
        with open(path, "rb", buffering=0) as f:
            while not stop.is_set():
                os.pread(f.fileno(), pages * 4096, 0)

    def write_on():
        with mmap.mmap(-1, 4096) as page:
            n = 0
            while not stop.is_set():
                n += 1
                os.pwritev(fd, [page], n % (pages // 2) * 4096)

    others = [threading.Thread(target=t, daemon=True) for t in (read_on, write_on)]
    with mmap.mmap(fd, pages * 4096) as mapped:
        for t in others:
            t.start()
        try:
            for n in range(300):
                at = (pages // 2 + n % (pages // 2)) * 4096
                mapped[at:at + 4096] = b"%4d" % n * 1024
                mapped.flush(at, 4096)
        finally:
            stop.set()
            for t in others:
                t.join(300)
    os.close(fd)
    at = pages // 2 * 4096
    assert get(path)[at:] == get(c.mnt(2) + "/mapped")[at:]
    assert get(path)[at + 4096 * 11:at + 4096 * 12] == b" 299" * 1024


def test_a_mapping_of_a_file_that_is_appended_to(c):
    """Changes in a mapping stay at their offset, even with a descriptor with O_APPEND."""
    for pages in (2, 64):
        path, size = c.mnt() + "/appended%d" % pages, pages * 4096
        put(path, b"a" * size)
        fd = os.open(path, os.O_RDWR | os.O_APPEND)
        with mmap.mmap(fd, size) as m:
            for at in range(0, size, 4096):
                m[at:at + 6] = b"%06d" % at
            m.flush()
            os.write(fd, b"end")
            m[7:10] = b"xyz"
        os.close(fd)
        for i in (1, 2):
            data = get(c.mnt(i) + "/appended%d" % pages)
            assert len(data) == size + 3 and data.endswith(b"aend"), len(data)
            assert data[:11] == b"000000axyza", data[:11]
            assert all(data[at:at + 6] == b"%06d" % at for at in range(0, size, 4096))


# Asynchronous direct writes take all of the kernel's slots for background requests. Each drops
# pages when it completes; that waits for write-back of the mapping, which waits for a slot.
ALL_WAYS = """
[global]
filename=file1:file2
directory=%s
size=1m
bs=8k
numjobs=5
iodepth=16
iodepth_batch=8
[direct reads]
ioengine=sync
rw=randread
direct=1
bs=4k
[asynchronous direct writes]
ioengine=libaio
rw=randwrite
direct=1
[direct writes by threads]
ioengine=posixaio
rw=randwrite
direct=1
bs=4k
[spliced past the cache]
ioengine=splice
rw=randwrite
direct=1
[reads]
ioengine=sync
rw=randread
bs=1k
[writes by threads]
ioengine=posixaio
rw=randwrite
[spliced]
ioengine=splice
rw=randwrite
[mapped]
ioengine=mmap
rw=randwrite
bs=1k
[mapped pages]
ioengine=mmap
rw=randwrite
bs=4k
"""


def test_all_ways_of_writing_one_file_at_once(c):
    if not shutil.which("fio"):
        print("not run: there is no fio")
        return
    with open(c.dir + "/jobs", "w") as f:
        f.write(ALL_WAYS % c.mnt())
    # The kernel returns EIO if a page is mapped and written past concurrently.
    subprocess.run(["fio", "--ignore_error=,EIO", "--output=/dev/null", c.dir + "/jobs"],
                   cwd=c.dir, stdin=subprocess.DEVNULL, check=True, timeout=200)
    for name in ("/file1", "/file2"):
        assert get(c.mnt(1) + name) == get(c.mnt(2) + name), name


if __name__ == "__main__":
    run_tests(globals())
