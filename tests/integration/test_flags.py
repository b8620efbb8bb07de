#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Immutable, append-only and noatime files and directories (chattr), and access times."""
import contextlib
import errno
import fcntl
import mmap
import os
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, expect_errno, get, put, run_tests, unmount
from cluster import as_user as user_calls

USER, GROUP = 5001, 6001
FS_IOC_SETFLAGS, FS_IOC_GETFLAGS = 0x40086602, 0x80086601
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2


def chattr(how, *paths):
    subprocess.run(["chattr", how] + list(paths), check=True)


def lsattr(path):
    out = subprocess.run(["lsattr", "-d", path], check=True, stdout=subprocess.PIPE, text=True)
    return set(out.stdout.split()[0]) - {"-"}


def as_user(fn):
    return user_calls(fn, USER, GROUP)


def refused(fn, *args, **kw):
    expect_errno(errno.EPERM, fn, *args, **kw)


def test_an_immutable_file_cannot_be_changed_by_anybody(c):
    p = c.mnt() + "/fixed"
    put(p, b"data")
    os.setxattr(p, "user.a", b"1")
    chattr("+i", p)
    assert lsattr(p) == {"i"}
    before = os.stat(p)
    for path in (p, p.replace(c.mnt(1), c.mnt(2))):
        refused(os.open, path, os.O_WRONLY)
        refused(os.open, path, os.O_WRONLY | os.O_APPEND)
        refused(os.open, path, os.O_RDONLY | os.O_TRUNC)
        refused(os.truncate, path, 1)
        refused(os.chmod, path, 0o600)
        refused(os.chown, path, USER, GROUP)
        refused(os.utime, path, (1, 1))
        refused(os.utime, path)
        refused(os.unlink, path)
        refused(os.link, path, path + ".link")
        refused(os.rename, path, path + ".new")
        refused(os.setxattr, path, "user.a", b"2")
        refused(os.removexattr, path, "user.a")
        assert subprocess.run(["chattr", "+d", path], stderr=-3, check=False).returncode
        put(path + ".other")
        refused(os.rename, path + ".other", path)
        os.unlink(path + ".other")
        assert get(path) == b"data" and os.getxattr(path, "user.a") == b"1"
    after = os.stat(p)
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_mode) == (
        before.st_mtime_ns, before.st_ctime_ns, before.st_mode)
    chattr("-i", p)
    os.unlink(p)


def test_who_has_it_open_cannot_go_on_once_it_is_immutable(c):
    p = c.mnt() + "/open"
    put(p, b"data")
    other = p.replace(c.mnt(1), c.mnt(2))
    for paths in ((p,), (other,), (p, other)):
        fds = [os.open(path, os.O_RDWR) for path in paths]
        for fd in fds:
            os.pwrite(fd, b"DATA", 0)
        chattr("+i", p)
        for fd in fds:
            refused(os.pwrite, fd, b"late", 0)
            refused(os.pwrite, fd, b"late", 4)
            refused(os.ftruncate, fd, 1)
            refused(os.posix_fallocate, fd, 0, 10)
            assert os.pread(fd, 10, 0) == b"DATA"
        chattr("-i", p)
        for fd in fds:
            os.pwrite(fd, b"data", 0)
            os.close(fd)
    assert get(p) == get(other) == b"data"
    os.unlink(p)


def test_an_immutable_directory_keeps_its_names(c):
    d = c.mnt() + "/fixed.d"
    os.mkdir(d)
    put(d + "/in", b"data")
    chattr("+i", d)
    refused(os.open, d + "/new", os.O_CREAT | os.O_WRONLY)
    refused(os.mkdir, d + "/new")
    refused(os.symlink, "x", d + "/new")
    refused(os.mkfifo, d + "/new")
    refused(os.link, d + "/in", d + "/new")
    refused(os.unlink, d + "/in")
    refused(os.rename, d + "/in", c.mnt() + "/out")
    refused(os.rmdir, d)
    refused(os.rename, d, d + "2")
    put(d + "/in", b"what is in it may change")
    assert get(d + "/in") == b"what is in it may change"
    chattr("-i", d)
    os.unlink(d + "/in")
    os.rmdir(d)


def test_an_append_only_file_only_grows(c):
    p = c.mnt() + "/log"
    put(p, b"one ")
    chattr("+a", p)
    refused(os.open, p, os.O_WRONLY)
    refused(os.open, p, os.O_WRONLY | os.O_TRUNC | os.O_APPEND)
    refused(os.truncate, p, 0)
    refused(os.chmod, p, 0o600)
    refused(os.unlink, p)
    refused(os.rename, p, p + "2")
    refused(os.setxattr, p, "user.a", b"1")
    for path, text in ((p, b"two "), (p.replace(c.mnt(1), c.mnt(2)), b"three")):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(fd, text)
        refused(os.ftruncate, fd, 0)
        os.close(fd)
    time.sleep(1.2)
    assert get(p) == b"one two three"
    os.utime(p)  # to now, which needs the right to write only
    fd = os.open(p, os.O_WRONLY | os.O_APPEND)
    c.kill("mds")
    c.start("mds")
    os.write(fd, b" four")  # with a capability that the client must request again
    os.fsync(fd)
    os.close(fd)
    assert get(p) == b"one two three four"
    chattr("-a", p)
    os.unlink(p)


def test_an_append_only_file_keeps_what_it_has(c):
    """Whatever a program does with a descriptor that may append."""
    p = c.mnt() + "/log"
    put(p, b"data" * 1000)
    chattr("+a", p)
    fd = os.open(p, os.O_RDWR | os.O_APPEND)
    with contextlib.suppress(PermissionError), mmap.mmap(fd, 4000) as m:
        m[0:4] = b"gone"
        m.flush()
    with contextlib.suppress(PermissionError):
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        os.pwrite(fd, b"gone", 0)
    with contextlib.suppress(OSError):
        os.close(fd)
    assert get(p.replace(c.mnt(1), c.mnt(2))) == b"data" * 1000
    chattr("-a", p)
    os.unlink(p)


def test_an_append_only_directory_only_gets_names(c):
    d = c.mnt() + "/logs"
    os.mkdir(d)
    chattr("+a", d)
    put(d + "/a")
    os.mkdir(d + "/b")
    refused(os.unlink, d + "/a")
    refused(os.rmdir, d + "/b")
    refused(os.rename, d + "/a", d + "/c")
    chattr("-a", d)
    os.unlink(d + "/a")
    os.rmdir(d + "/b")
    os.rmdir(d)


def test_only_root_fixes_files(c):
    p = c.mnt() + "/owned"
    put(p)
    os.chown(p, USER, GROUP)

    def set_flags(flags):
        fd = os.open(p, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("l", flags))
        finally:
            os.close(fd)

    assert as_user(lambda: set_flags(0x10)) == errno.EPERM
    assert as_user(lambda: set_flags(0x20)) == errno.EPERM
    assert as_user(lambda: set_flags(0x40)) == 0 and lsattr(p) == {"d"}
    os.chown(p, 0, 0)
    assert as_user(lambda: set_flags(0)) in (errno.EPERM, errno.EACCES) and lsattr(p) == {"d"}
    expect_errno(errno.EOPNOTSUPP, set_flags, 0x4)  # the flag "compressed": not supported
    fd = os.open(p, os.O_RDONLY)
    expect_errno(errno.ENOTTY, fcntl.ioctl, fd, 0x12345678 & 0x7fffffff)
    os.close(fd)
    os.unlink(p)


def test_new_files_have_those_of_their_directory_that_forbid_nothing(c):
    d = c.mnt() + "/inherit"
    os.mkdir(d)
    chattr("+dA", d)
    put(d + "/file")
    os.mkdir(d + "/sub")
    for name in ("/file", "/sub"):
        assert lsattr(d + name) == lsattr(d.replace(c.mnt(1), c.mnt(2)) + name) == {"d", "A"}
    chattr("=a", d)
    put(d + "/other")
    assert lsattr(d + "/other") == set()
    chattr("-a", d)


def test_flags_stay_over_a_restart(c):
    p = c.mnt() + "/stays"
    put(p)
    chattr("+iA", p)
    c.kill("mds")
    c.start("mds")
    time.sleep(1.2)
    assert lsattr(p) == {"i", "A"}
    refused(os.unlink, p)
    chattr("-i", p)
    os.unlink(p)


def atime(path):
    time.sleep(1.5)  # close is asynchronous, and attributes are cached for 1 s
    return os.stat(path).st_atime_ns


def read(path, flags=0):
    """Bypasses the page cache, because the kernel does not report reads from it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | flags)
    with mmap.mmap(-1, 4096) as buf:
        assert os.preadv(fd, [buf], 0) > 0
    os.close(fd)


def another_mount(c, options):
    m = c.dir + "/mnt-atime"
    os.makedirs(m, exist_ok=True)
    subprocess.run([BUILD + "/mount.leat", "leat", m, "-o", "conf=%s/conf%s" % (c.dev, options)],
                   check=True)
    return m


def test_reading_changes_the_access_time_once(c):
    p = c.mnt() + "/read"
    put(p, b"data")
    old = time.time_ns() - 10**9
    os.utime(p, ns=(old, old))
    first = atime(p)
    assert first == old
    read(p)
    second = atime(p)
    assert second > first, "not newer than the last change, so it was due"
    read(p)
    assert atime(p) == second, "relatime: one is enough"
    put(p, b"changed")
    read(p)
    assert atime(p) > second
    day_ago = time.time_ns() - 25 * 3600 * 10**9
    os.utime(p, ns=(day_ago, day_ago - 10**9))
    lsattr(p)
    get(p.replace(c.mnt(1), c.mnt(2)))  # the kernel reports a first read
    assert atime(p) > day_ago
    os.unlink(p)


def test_noatime_and_strictatime(c):
    p = c.mnt() + "/rules"
    put(p, b"data")
    old = time.time_ns() - 10**9
    for options, changes in ((",noatime", (False, False)), (",strictatime", (True, True)),
                             ("", (True, False))):
        os.utime(p, ns=(old, old))
        m = another_mount(c, options)
        try:
            before = old
            for change in changes:
                read(m + "/rules")
                now = atime(m + "/rules")
                assert (now > before) == change, (options, changes)
                before = now
        finally:
            unmount(m)
    m = another_mount(c, ",strictatime")
    try:
        for _ in range(2):  # the second time from the kernel's pages
            before = atime(m + "/rules")
            get(m + "/rules")
            assert atime(m + "/rules") > before
    finally:
        unmount(m)
    os.utime(p, ns=(old, old))
    chattr("+A", p)
    read(p)
    assert atime(p) == old
    chattr("-A", p)
    read(p, os.O_NOATIME)
    assert atime(p) == old
    os.unlink(p)


def test_times_are_kept_to_the_nanosecond(c):
    p = c.mnt() + "/ns"
    put(p)
    for ns in (1, 123456789, 10**9 * 2**33 + 987654321, -1):
        os.utime(p, ns=(ns, ns + 1))
        st = os.stat(p)
        assert (st.st_atime_ns, st.st_mtime_ns) == (ns, ns + 1)
    os.unlink(p)


if __name__ == "__main__":
    run_tests(globals())
