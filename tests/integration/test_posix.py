#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The namespace as programs see it, through one real mount."""
import ctypes
import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import as_user, expect_errno, get, put, run_tests, wait_until

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4  # linux/fs.h


def test_create_read_write(c):
    p = c.mnt() + "/a"
    put(p, b"hello")
    assert get(p) == b"hello"
    assert os.stat(p).st_size == 5 and os.stat(p).st_nlink == 1
    with open(p, "r+b") as f:
        f.seek(3)
        f.write(b"PED!")
        f.seek(0)
        assert f.read() == b"helPED!"
    expect_errno(errno.EEXIST, os.open, p, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    expect_errno(errno.ENOENT, os.open, p + "-not", os.O_RDONLY)
    expect_errno(errno.ENOTDIR, os.open, p + "/x", os.O_RDONLY)
    expect_errno(errno.ENAMETOOLONG, os.open, c.mnt() + "/" + "n" * 256, os.O_CREAT | os.O_WRONLY)
    put(c.mnt() + "/" + "n" * 255)
    os.unlink(c.mnt() + "/" + "n" * 255)
    os.unlink(p)
    expect_errno(errno.ENOENT, os.stat, p)


def test_big_file_over_all_targets(c):
    p = c.mnt() + "/big"
    block = os.urandom(1 << 20)
    with open(p, "wb") as f:
        for i in range(64):
            f.write(block[i:] + block[:i])
        os.fsync(f.fileno())
    with open(p, "rb") as f:
        for i in range(64):
            assert f.read(1 << 20) == block[i:] + block[:i], "MiB %d" % i
        assert f.read(1) == b""
    os.unlink(p)


def test_directories(c):
    d = c.mnt() + "/d"
    before = os.stat(c.mnt()).st_nlink
    os.mkdir(d)
    assert os.stat(d).st_nlink == 2 and os.stat(c.mnt()).st_nlink == before + 1
    os.makedirs(d + "/e/f/g")
    put(d + "/e/file")
    expect_errno(errno.ENOTEMPTY, os.rmdir, d)
    expect_errno(errno.EEXIST, os.mkdir, d)
    expect_errno(errno.ENOTDIR, os.rmdir, d + "/e/file")
    assert sorted(os.listdir(d + "/e")) == ["f", "file"]
    os.unlink(d + "/e/file")
    os.removedirs(d + "/e/f/g")
    assert os.stat(c.mnt()).st_nlink == before


def test_rename(c):
    m = c.mnt()
    put(m + "/r1", b"1")
    put(m + "/r2", b"2")
    os.rename(m + "/r1", m + "/r2")
    assert get(m + "/r2") == b"1"
    expect_errno(errno.ENOENT, os.stat, m + "/r1")
    os.mkdir(m + "/rd")
    os.mkdir(m + "/rd/sub")
    expect_errno(errno.EISDIR, os.rename, m + "/r2", m + "/rd")
    expect_errno(errno.ENOTDIR, os.rename, m + "/rd", m + "/r2")
    expect_errno(errno.EINVAL, os.rename, m + "/rd", m + "/rd/sub/x")
    os.rename(m + "/r2", m + "/rd/sub/moved")
    os.mkdir(m + "/re")
    expect_errno(errno.ENOTEMPTY, os.rename, m + "/re", m + "/rd")
    os.rename(m + "/rd", m + "/re")
    assert get(m + "/re/sub/moved") == b"1"
    os.link(m + "/re/sub/moved", m + "/same")
    os.rename(m + "/same", m + "/re/sub/moved")  # one file with two names: no effect
    assert os.stat(m + "/same").st_nlink == 2
    for p in ("/same", "/re/sub/moved"):
        os.unlink(m + p)
    os.removedirs(m + "/re/sub")


def renameat2(old, new, flags):
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, old.encode(), -100, new.encode(), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def test_two_names_are_exchanged(c):
    one, two = c.mnt(1) + "/swap", c.mnt(2) + "/swap"
    os.makedirs(one + "/d")
    with open(one + "/f", "wb") as f:
        f.write(b"file")
    renameat2(one + "/f", one + "/d", RENAME_EXCHANGE)
    assert os.path.isdir(one + "/f") and open(one + "/d", "rb").read() == b"file"
    time.sleep(1.1)
    assert os.path.isdir(two + "/f") and open(two + "/d", "rb").read() == b"file"
    expect_errno(errno.ENOENT, renameat2, one + "/f", one + "/none", RENAME_EXCHANGE)
    expect_errno(errno.EINVAL, renameat2, one, one + "/f", RENAME_EXCHANGE)


def is_whiteout(path):
    a = os.lstat(path)
    return (a.st_mode, a.st_rdev) == (stat.S_IFCHR, 0)


def test_a_whiteout_is_left(c):
    one, two = c.mnt(1) + "/white", c.mnt(2) + "/white"
    os.makedirs(one + "/d/sub")
    put(one + "/f", b"file")
    os.listdir(two)
    assert get(two + "/f") == b"file" and not os.path.lexists(two + "/g")
    renameat2(one + "/f", one + "/g", RENAME_WHITEOUT | RENAME_NOREPLACE)
    for m in (one, two):
        assert is_whiteout(m + "/f") and get(m + "/g") == b"file"
        assert sorted(os.listdir(m)) == ["d", "f", "g"]
    renameat2(two + "/d", two + "/e", RENAME_WHITEOUT)
    for m in (two, one):
        assert is_whiteout(m + "/d") and os.path.isdir(m + "/e/sub")
        assert os.stat(m).st_nlink == 3
    expect_errno(errno.EEXIST, renameat2, one + "/g", one + "/f",
                 RENAME_WHITEOUT | RENAME_NOREPLACE)
    expect_errno(errno.EINVAL, renameat2, one + "/g", one + "/f",
                 RENAME_WHITEOUT | RENAME_EXCHANGE)
    renameat2(one + "/g", one + "/f", RENAME_WHITEOUT)
    for m in (one, two):
        assert is_whiteout(m + "/g") and get(m + "/f") == b"file"


def test_links(c):
    m = c.mnt()
    put(m + "/l1", b"data")
    os.link(m + "/l1", m + "/l2")
    assert os.stat(m + "/l1").st_ino == os.stat(m + "/l2").st_ino
    assert os.stat(m + "/l1").st_nlink == 2
    os.unlink(m + "/l1")
    assert get(m + "/l2") == b"data" and os.stat(m + "/l2").st_nlink == 1
    os.symlink("l2", m + "/s")
    assert os.readlink(m + "/s") == "l2" and get(m + "/s") == b"data"
    assert stat.S_ISLNK(os.lstat(m + "/s").st_mode) and os.lstat(m + "/s").st_size == 2
    expect_errno(errno.EPERM, os.link, m, m + "/x")
    os.symlink("loop", m + "/loop")
    expect_errno(errno.ELOOP, os.stat, m + "/loop")
    os.symlink("t" * 4095, m + "/long")
    assert os.readlink(m + "/long") == "t" * 4095
    for p in ("/l2", "/s", "/loop", "/long"):
        os.unlink(m + p)


def test_special_files(c):
    m = c.mnt()
    os.mkfifo(m + "/fifo", 0o640)
    os.mknod(m + "/dev", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    st = os.stat(m + "/dev")
    assert stat.S_ISFIFO(os.stat(m + "/fifo").st_mode)
    assert stat.S_ISCHR(st.st_mode) and st.st_rdev == os.makedev(1, 3)
    os.unlink(m + "/fifo")
    os.unlink(m + "/dev")


def test_attributes(c):
    p = c.mnt() + "/attr"
    put(p)
    os.chmod(p, 0o4755)
    assert stat.S_IMODE(os.stat(p).st_mode) == 0o4755
    os.chown(p, 1000, 1001)
    st = os.stat(p)
    assert (st.st_uid, st.st_gid) == (1000, 1001)
    assert stat.S_IMODE(st.st_mode) == 0o755, "chown takes set-user-id away"
    os.utime(p, ns=(1_234_567_890_123_456_789, 987_654_321_987_654_321))
    st = os.stat(p)
    assert (st.st_atime_ns, st.st_mtime_ns) == (1_234_567_890_123_456_789, 987_654_321_987_654_321)
    before = st.st_ctime_ns
    time.sleep(0.01)
    os.chmod(p, 0o600)
    assert os.stat(p).st_ctime_ns > before
    dir_mtime = os.stat(c.mnt()).st_mtime_ns
    time.sleep(0.01)
    put(p + "2")
    assert os.stat(c.mnt()).st_mtime_ns > dir_mtime
    os.unlink(p)
    os.unlink(p + "2")


def test_set_group_id_stays_with_who_is_in_the_directorys_group(c):
    d = c.mnt() + "/shared"
    os.mkdir(d)
    os.chown(d, 0, 6002)
    os.chmod(d, 0o2777)

    def make(name):
        os.close(os.open(d + name, os.O_CREAT | os.O_WRONLY, 0o2755))

    assert as_user(lambda: make("/in"), 5001, 6001, [6002]) == 0
    assert as_user(lambda: make("/out"), 5001, 6001, [6003]) == 0
    for name, mode in (("/in", 0o2755), ("/out", 0o755)):
        assert (os.stat(d + name).st_gid, stat.S_IMODE(os.stat(d + name).st_mode)) == (6002, mode)


def test_truncate_and_holes(c):
    p = c.mnt() + "/t"
    put(p, b"a" * 100000)
    os.truncate(p, 10)
    assert get(p) == b"a" * 10
    os.truncate(p, 5 << 20)
    assert get(p) == b"a" * 10 + bytes((5 << 20) - 10)
    with open(p, "r+b") as f:
        f.seek(3 << 20)
        f.write(b"island")
    data = get(p)
    assert data[3 << 20:(3 << 20) + 6] == b"island" and data.count(0) == (5 << 20) - 16
    fd = os.open(p, os.O_RDWR)
    assert os.lseek(fd, 0, os.SEEK_DATA) == 0
    assert os.lseek(fd, 1 << 20, os.SEEK_DATA) <= 3 << 20
    assert 0 < os.lseek(fd, 0, os.SEEK_HOLE) < 3 << 20
    os.close(fd)
    os.truncate(p, 0)
    assert get(p) == b""
    os.unlink(p)


def test_xattrs(c):
    p = c.mnt() + "/x"
    put(p)
    os.setxattr(p, "user.a", b"1")
    os.setxattr(p, "user.b", b"2" * 1000)
    assert sorted(os.listxattr(p)) == ["user.a", "user.b"]
    assert os.getxattr(p, "user.b") == b"2" * 1000
    expect_errno(errno.EEXIST, os.setxattr, p, "user.a", b"3", os.XATTR_CREATE)
    expect_errno(errno.ENODATA, os.setxattr, p, "user.c", b"3", os.XATTR_REPLACE)
    os.removexattr(p, "user.a")
    expect_errno(errno.ENODATA, os.getxattr, p, "user.a")
    os.unlink(p)


def test_unlinked_open_file_lives(c):
    p = c.mnt() + "/u"
    fd = os.open(p, os.O_CREAT | os.O_RDWR)
    os.write(fd, b"still here")
    os.unlink(p)
    assert os.fstat(fd).st_nlink == 0
    os.fsync(fd)
    assert os.pread(fd, 100, 0) == b"still here"
    os.write(fd, b" and written")
    assert os.pread(fd, 100, 0) == b"still here and written"
    os.close(fd)


def listed(fd):
    """getdents returns ENOENT for a removed directory; the C library makes this the end."""
    try:
        return os.listdir(fd)
    except FileNotFoundError:
        return []


def expect_removed(fd, before, file):
    st = os.fstat(fd)
    assert (st.st_ino, st.st_nlink, st.st_mode) == (before.st_ino, 0, before.st_mode), st
    assert listed(fd) == []
    expect_errno(errno.ENOENT, os.stat, "x", dir_fd=fd)
    expect_errno(errno.ENOENT, os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    expect_errno(errno.ENOENT, os.mkdir, "x", dir_fd=fd)
    expect_errno(errno.ENOENT, os.unlink, "x", dir_fd=fd)
    expect_errno(errno.ENOENT, os.link, file, "x", dst_dir_fd=fd)


def test_removed_open_directory_has_no_links(c):
    me, other = c.mnt(1) + "/gone", c.mnt(2) + "/gone"

    def replace():
        os.mkdir(c.mnt(1) + "/instead", 0o700)
        os.rename(c.mnt(1) + "/instead", me)

    put(c.mnt(1) + "/file")
    for remove in (lambda: os.rmdir(me), lambda: os.rmdir(other), replace):
        os.mkdir(me, 0o751)
        fds = [os.open(p, os.O_RDONLY | os.O_DIRECTORY) for p in (me, other)]
        try:
            before = os.fstat(fds[0])
            remove()
            for i, fd in enumerate(fds):
                expect_removed(fd, before, c.mnt(1 + i) + "/file")
        finally:
            for fd in fds:
                os.close(fd)
    assert os.stat(other).st_ino != before.st_ino, "another one has its name"
    os.rmdir(other)
    os.unlink(c.mnt(1) + "/file")


def test_attributes_of_a_removed_open_directory(c):
    me, other = c.mnt(1) + "/gone", c.mnt(2) + "/gone"
    for remove in (me, other):
        os.mkdir(me, 0o751)
        os.chown(me, 1000, 1000)
        fds = [os.open(p, os.O_RDONLY | os.O_DIRECTORY) for p in (me, other)]
        os.rmdir(remove)
        for fd in fds:
            then = os.fstat(fd)
            os.fchmod(fd, 0o711)
            os.utime(fd, ns=(5, 7))
            a = os.fstat(fd)
            assert (a.st_mode & 0o7777, a.st_atime_ns, a.st_mtime_ns) == (0o711, 5, 7), a
            assert a.st_ctime_ns > then.st_ctime_ns and a.st_nlink == 0 and a.st_uid == 1000, a
            assert as_user(lambda: os.fchmod(fd, 0o777), 2000, 2000) == errno.EPERM
            assert as_user(lambda: os.fchmod(fd, 0o700), 1000, 1000) == 0
            os.fchown(fd, 0, 5)
            os.utime(fd)
            a = os.fstat(fd)
            assert (a.st_mode & 0o7777, a.st_uid, a.st_gid) == (0o700, 0, 5), a
            assert a.st_mtime_ns > then.st_ctime_ns, a
            assert as_user(lambda: os.fchmod(fd, 0o777), 1000, 1000) == errno.EPERM
            os.close(fd)


def test_names_in_a_removed_directory_of_somebody_else(c):
    """The kernel requests its access list first; ESTALE would make a concurrent rm -r fail."""
    me, other = c.mnt(1) + "/theirs", c.mnt(2) + "/theirs"
    for remove in (me, other):
        os.mkdir(me)
        os.chmod(me, 0o750)
        os.chown(me, 1000, 1000)
        fds = [os.open(p, os.O_RDONLY | os.O_DIRECTORY) for p in (me, other)]
        os.rmdir(remove)
        try:
            for fd in fds:
                expect_errno(errno.ENOENT, os.unlink, "x", dir_fd=fd)
                expect_errno(errno.ENODATA, os.getxattr, fd, "system.posix_acl_access")
                expect_errno(errno.ENODATA, os.getxattr, fd, "user.x")
                assert os.listxattr(fd) == []
                expect_errno(errno.ENOENT, os.rmdir, "x", dir_fd=fd)
        finally:
            for fd in fds:
                os.close(fd)


def test_many_entries(c):
    d = c.mnt() + "/many"
    os.mkdir(d)
    for i in range(3000):
        os.mkdir("%s/%05d" % (d, i)) if i % 10 == 0 else put("%s/%05d" % (d, i), b"")
    assert sorted(os.listdir(d)) == ["%05d" % i for i in range(3000)]
    seen = []
    with os.scandir(d) as it:  # entries that are not removed meanwhile appear exactly once
        for e in it:
            seen.append(e.name)
            if len(seen) == 1000:
                for i in range(1, 3000, 2):
                    os.unlink("%s/%05d" % (d, i))
    assert len(seen) == len(set(seen))
    assert set("%05d" % i for i in range(0, 3000, 2)) <= set(seen)
    for i in range(0, 3000, 2):
        (os.rmdir if i % 10 == 0 else os.unlink)("%s/%05d" % (d, i))
    os.rmdir(d)


def test_permissions(c):
    m = c.mnt()
    os.mkdir(m + "/perm", 0o755)
    os.mkdir(m + "/sticky")
    os.chmod(m + "/sticky", 0o1777)
    os.mkdir(m + "/setgid")
    os.chown(m + "/setgid", 0, 2000)
    os.chmod(m + "/setgid", 0o2777)
    put(m + "/sticky/roots")
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([3000])
            os.setgid(1000)
            os.setuid(1000)
            expect_errno(errno.EACCES, put, m + "/perm/x")
            expect_errno(errno.EPERM, os.unlink, m + "/sticky/roots")
            put(m + "/sticky/mine")
            os.unlink(m + "/sticky/mine")
            put(m + "/setgid/f")
            os.mkdir(m + "/setgid/d")
            assert os.stat(m + "/setgid/f").st_gid == 2000
            assert os.stat(m + "/setgid/d").st_gid == 2000
            assert os.stat(m + "/setgid/d").st_mode & stat.S_ISGID
            os._exit(0)
        except BaseException as e:
            print(repr(e), flush=True)
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.stat(m + "/setgid/f").st_uid == 1000


libc = ctypes.CDLL(None, use_errno=True)
FS_IOC_SETFLAGS, FS_NODUMP_FL = 0x40086602, 0x40
ACL_OF_ALL = bytes.fromhex("02000000" "01000600ffffffff" "04000600ffffffff" "20000600ffffffff")


def test_who_is_not_the_owner_any_more(c):
    """The kernel has cached the owner from before another mount changed it."""
    path, other = c.mnt(1) + "/given", c.mnt(2) + "/given"
    user, group = 6001, 6002
    put(path, b"x")

    def refused(fd):
        calls = [lambda: os.fchmod(fd, 0o4777), lambda: os.fchown(fd, -1, group),
                 lambda: os.utime(fd, (1, 1)),
                 lambda: os.setxattr(fd, "system.posix_acl_access", ACL_OF_ALL),
                 lambda: fcntl.ioctl(fd, FS_IOC_SETFLAGS, FS_NODUMP_FL.to_bytes(8, "little"))]
        for n, call in enumerate(calls):
            try:
                call()
                raise OSError(100 + n, "done")
            except OSError as e:
                # EINVAL: in a new user namespace the group does not exist.
                if e.errno not in (errno.EPERM, errno.EINVAL):
                    raise

    def look_on(fd, then):
        def as_who_opened_it():
            os.fstat(fd)  # the kernel caches the user as owner
            os.fchmod(fd, 0o640)
            os.fchown(fd, -1, group)
            os.write(ready[1], b"1")
            assert os.read(given[0], 1)
            then(fd)
        return as_who_opened_it

    def in_a_namespace_of_its_own(fd):
        if libc.unshare(0x10000000) == 0:  # CLONE_NEWUSER: all capabilities, without effect here
            refused(fd)

    for then in (refused, in_a_namespace_of_its_own):
        os.chown(path, user, user)
        ready, given = os.pipe(), os.pipe()
        fd = os.open(other, os.O_RDWR)
        ended = []
        t = threading.Thread(target=lambda: ended.append(
            as_user(look_on(fd, then), user, user, [user, group])))
        t.start()
        assert os.read(ready[0], 1)
        os.chown(path, 0, 0)
        os.write(given[1], b"1")
        t.join()
        assert ended == [0], ended
        st = os.stat(path)
        assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (0, 0, 0o640), st
        os.close(fd)


def test_capabilities_of_who_is_not_root(c):
    """Only the kernel has a process's capabilities."""
    path = c.mnt(1) + "/capable"
    put(path, b"x")
    for cap, command, errors in (("net_raw", ["chmod", "0777"], 1),
                                 ("fowner", ["chmod", "0604"], 0),
                                 ("chown", ["chown", "6001"], 0)):
        done = subprocess.run(["setpriv", "--reuid", "6001", "--regid", "6001", "--clear-groups",
                               "--inh-caps", "+" + cap, "--ambient-caps", "+" + cap] + command +
                              [path], check=False, capture_output=True)
        assert (done.returncode != 0) == errors, done
    st = os.stat(c.mnt(2) + "/capable")
    assert (st.st_uid, stat.S_IMODE(st.st_mode)) == (6001, 0o604)


def test_statfs_counts_in_blocks_of_both_sizes(c):
    s = os.statvfs(c.mnt())
    assert s.f_bsize == s.f_frsize, (s.f_bsize, s.f_frsize)


def test_statfs_and_space_comes_back(c):
    used = lambda: (lambda s: (s.f_blocks - s.f_bfree) * s.f_frsize)(os.statvfs(c.mnt()))

    def at_rest():
        s = c.told_by_servers()
        return s["mds"]["removals_waiting"] == 0 and all(
            t["used"] == t["server"]["space"]["used"] for t in s["targets"])

    wait_until(at_rest, 20, "what was deleted before is gone, and the heartbeats have told so")
    before = used()
    put(c.mnt() + "/space", os.urandom(64 << 20))
    wait_until(lambda: used() >= before + (60 << 20), 5, "64 MiB are used")
    os.unlink(c.mnt() + "/space")
    wait_until(lambda: used() < before + (4 << 20), 10, "64 MiB are free again")


if __name__ == "__main__":
    run_tests(globals())
