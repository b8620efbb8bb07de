#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files without a name (O_TMPFILE, unlinked ones) and files by handle."""
import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, run_tests, wait_until

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
FS_IOC_GETFLAGS = 0x80086601
LINKS = "/proc/self/fd/%d"


def check(rc):
    if rc < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return rc


def link_fd(fd, path):
    check(libc.linkat(AT_FDCWD, (LINKS % fd).encode(), AT_FDCWD, path.encode(),
                      AT_SYMLINK_FOLLOW))


def handle_of(path):
    """The result of name_to_handle_at: bytes of a struct file_handle."""
    buf = ctypes.create_string_buffer(struct.pack("<Ii", 120, 0), 128)
    mount_id = ctypes.c_int()
    check(libc.name_to_handle_at(AT_FDCWD, path.encode(), buf, ctypes.byref(mount_id), 0))
    return buf.raw


def open_handle(mount_fd, handle, flags):
    return check(libc.open_by_handle_at(mount_fd, handle, flags))



def test_a_file_without_a_name_is_read_and_written(c):
    fd = os.open(c.mnt(), os.O_TMPFILE | os.O_RDWR, 0o640)
    assert os.fstat(fd).st_nlink == 0 and stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    data = os.urandom(3 << 20)
    assert os.pwrite(fd, data, 0) == len(data)
    os.fsync(fd)
    assert os.pread(fd, len(data), 0) == data
    assert os.fstat(fd).st_size == len(data)
    assert os.listdir(c.mnt()) == []
    os.close(fd)
    expect_errno(errno.EINVAL, os.open, c.mnt(), os.O_TMPFILE | os.O_RDONLY)


def test_it_gets_a_name(c):
    fd = os.open(c.mnt(), os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"whole")
    link_fd(fd, c.mnt() + "/whole")
    # The whole file appears at once, on every mount.
    with open(c.mnt(2) + "/whole", "rb") as f:
        assert f.read() == b"whole"
    assert os.fstat(fd).st_nlink == 1
    link_fd(fd, c.mnt() + "/again")
    assert os.stat(c.mnt() + "/whole").st_nlink == 2
    expect_errno(errno.EEXIST, link_fd, fd, c.mnt() + "/again")
    os.close(fd)
    os.unlink(c.mnt() + "/whole")
    with open(c.mnt() + "/again", "rb") as f:
        assert f.read() == b"whole"
    os.unlink(c.mnt() + "/again")


def test_not_with_o_excl(c):
    fd = os.open(c.mnt(), os.O_TMPFILE | os.O_EXCL | os.O_RDWR, 0o600)
    expect_errno(errno.ENOENT, link_fd, fd, c.mnt() + "/never")
    os.close(fd)


def test_in_a_directory_that_may_not_be_written(c):
    os.mkdir(c.mnt() + "/closed", 0o755)
    pid = os.fork()
    if pid == 0:
        os.setgid(12345)
        os.setuid(12345)
        try:
            os.open(c.mnt() + "/closed", os.O_TMPFILE | os.O_RDWR)
        except PermissionError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    os.rmdir(c.mnt() + "/closed")


def test_its_space_comes_back(c):
    def used():
        s = os.statvfs(c.mnt(2))
        return (s.f_blocks - s.f_bfree) * s.f_frsize

    before = used()
    fd = os.open(c.mnt(), os.O_TMPFILE | os.O_RDWR, 0o600)
    # Much more than earlier tests may still free meanwhile.
    for _ in range(4):
        os.write(fd, os.urandom(8 << 20))
    os.fsync(fd)
    wait_until(lambda: used() > before + (24 << 20), 10, "it takes space")
    os.close(fd)
    wait_until(lambda: used() < before + (2 << 20), 20, "its space is back")


def test_it_survives_a_metadata_server_and_goes_with_its_mount(c):
    fd = os.open(c.mnt(), os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"before")
    c.kill("mds")
    c.start("mds")
    os.write(fd, b", after")
    assert os.pread(fd, 20, 0) == b"before, after"
    link_fd(fd, c.mnt() + "/kept")
    os.close(fd)
    with open(c.mnt(2) + "/kept", "rb") as f:
        assert f.read() == b"before, after"
    os.unlink(c.mnt() + "/kept")


def test_an_unlinked_file_is_opened_by_its_descriptor(c):
    p = c.mnt() + "/gone"
    fd = os.open(p, os.O_CREAT | os.O_RDWR, 0o644)
    os.write(fd, b"still here")
    os.unlink(p)
    again = os.open(LINKS % fd, os.O_RDONLY)
    assert os.read(again, 100) == b"still here"
    writer = os.open(LINKS % fd, os.O_WRONLY | os.O_TRUNC)
    os.write(writer, b"new")
    os.close(writer)
    assert os.pread(again, 100, 0) == b"new"
    for f in (again, fd):
        os.close(f)
    # Another file that another mount gives this name is not taken for it.
    for text in (b"one", b"two"):
        with open(c.mnt(2) + "/new", "wb") as f:
            f.write(text)
        os.rename(c.mnt(2) + "/new", c.mnt(2) + "/name")
        with open(c.mnt() + "/name", "rb") as f:
            assert f.read() == text
    os.unlink(c.mnt() + "/name")


def test_an_unlinked_file_has_flags(c):
    fd = os.open(c.mnt() + "/gone", os.O_RDWR | os.O_CREAT)
    os.unlink(c.mnt() + "/gone")
    assert fcntl.ioctl(fd, FS_IOC_GETFLAGS, bytes(8)) == bytes(8)
    os.close(fd)


def test_files_by_handle(c):
    d = c.mnt() + "/h"
    os.makedirs(d + "/deep")
    with open(d + "/deep/file", "wb") as f:
        f.write(b"by handle")
    handles = {p: handle_of(p) for p in (c.mnt(), d, d + "/deep", d + "/deep/file")}
    inode = os.stat(d + "/deep/file").st_ino
    # Clears the kernel's caches of these files.
    c.stop("mnt1")
    c.start("mnt1")
    mount_fd = os.open(c.mnt(), os.O_RDONLY | os.O_DIRECTORY)
    fd = open_handle(mount_fd, handles[d + "/deep/file"], os.O_RDONLY)
    assert os.fstat(fd).st_ino == inode and os.read(fd, 100) == b"by handle"
    os.close(fd)
    for p in (d + "/deep", d, c.mnt()):
        fd = open_handle(mount_fd, handles[p], os.O_RDONLY | os.O_DIRECTORY)
        # The path to the root is found, too.
        assert os.readlink(LINKS % fd) == p, (os.readlink(LINKS % fd), p)
        os.close(fd)
    # Also if the daemon has all names of a directory that it made, and the kernel none.
    os.makedirs(d + "/made/here")
    handle = handle_of(d + "/made/here")
    expect_errno(errno.ENOENT, os.stat, d + "/made/here/absent")
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("2")
    fd = open_handle(mount_fd, handle, os.O_RDONLY | os.O_DIRECTORY)
    assert os.readlink(LINKS % fd) == d + "/made/here"
    os.close(fd)
    os.rmdir(d + "/made/here")
    os.rmdir(d + "/made")
    os.unlink(d + "/deep/file")
    expect_errno(errno.ESTALE, open_handle, mount_fd, handles[d + "/deep/file"], os.O_RDONLY)
    os.close(mount_fd)
    os.rmdir(d + "/deep")
    os.rmdir(d)


def test_nothing_is_left(c):
    c.assert_sound()


if __name__ == "__main__":
    run_tests(globals())
