#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Extended attributes: namespaces and their rules, limits, and the ones that a write removes."""
import ctypes
import errno
import os
import stat
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, libc, run_tests
from cluster import as_user as user_calls

USER, GROUP = 5001, 6001
CAPS = "security.capability"
NET_RAW = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)


def put(path, data=b"x", mode=0o644):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)


def as_user(fn, uid=USER):
    return user_calls(fn, uid, GROUP)


def test_user_attributes_follow_permissions(c):
    p, d = c.mnt() + "/u", c.mnt() + "/u.d"
    put(p, mode=0o644)
    os.setxattr(p, "user.a", b"1")
    assert as_user(lambda: os.getxattr(p, "user.a")) == 0
    assert as_user(lambda: os.setxattr(p, "user.a", b"2")) == errno.EACCES
    os.chmod(p, 0o600)
    assert as_user(lambda: os.getxattr(p, "user.a")) == errno.EACCES
    os.mkdir(d)
    os.chmod(d, 0o1777)
    assert as_user(lambda: os.setxattr(d, "user.a", b"2")) == errno.EPERM, "sticky: the owner's"
    os.symlink("u", c.mnt() + "/u.l")
    os.mkfifo(c.mnt() + "/u.f")
    for special in ("/u.l", "/u.f"):
        expect_errno(errno.EPERM, os.setxattr, c.mnt() + special, "user.a", b"1",
                     follow_symlinks=False)
        os.setxattr(c.mnt() + special, "trusted.a", b"1", follow_symlinks=False)
        assert os.getxattr(c.mnt() + special, "trusted.a", follow_symlinks=False) == b"1"
        os.unlink(c.mnt() + special)
    os.unlink(p)
    os.rmdir(d)


def test_trusted_ones_are_hidden_from_users(c):
    p = c.mnt() + "/t"
    put(p, mode=0o666)
    os.setxattr(p, "trusted.secret", b"1")
    os.setxattr(p, "user.open", b"1")
    assert sorted(os.listxattr(p)) == ["trusted.secret", "user.open"]

    def look():
        assert os.listxattr(p) == ["user.open"], os.listxattr(p)
        expect_errno(errno.ENODATA, os.getxattr, p, "trusted.secret")
        expect_errno(errno.EPERM, os.setxattr, p, "trusted.secret", b"2")
        expect_errno(errno.EPERM, os.removexattr, p, "trusted.secret")

    def look_as_root_of_a_namespace():
        if libc.unshare(0x10000000) == 0:  # CLONE_NEWUSER: all capabilities, without effect here
            look()

    assert as_user(look) == 0
    assert as_user(look_as_root_of_a_namespace) == 0
    os.unlink(p)


def test_other_name_spaces_are_refused(c):
    p = c.mnt() + "/n"
    put(p)
    for name in ("system.other", "other.a", "user"):
        expect_errno(errno.EOPNOTSUPP, os.setxattr, p, name, b"1")
        expect_errno(errno.EOPNOTSUPP, os.getxattr, p, name)
    expect_errno(errno.EINVAL, os.setxattr, p, "user.", b"1")
    assert as_user(lambda: os.setxattr(p, "security.other", b"1")) == errno.EPERM
    os.setxattr(p, "security.other", b"1")
    assert as_user(lambda: os.getxattr(p, "security.other")) == 0
    os.unlink(p)


def test_limits(c):
    p = c.mnt() + "/limits"
    put(p)
    expect_errno(errno.ERANGE, os.setxattr, p, "user." + "n" * 251, b"1")
    expect_errno(errno.E2BIG, os.setxattr, p, "user.big", bytes(65537))
    os.setxattr(p, "user.big", b"v" * 65536)
    assert os.getxattr(p, "user.big") == b"v" * 65536
    expect_errno(errno.ENODATA, os.getxattr, p, "user.none")
    expect_errno(errno.EEXIST, os.setxattr, p, "user.big", b"1", os.XATTR_CREATE)
    expect_errno(errno.ENODATA, os.setxattr, p, "user.none", b"1", os.XATTR_REPLACE)
    n = 0
    try:
        while n < 1000:
            os.setxattr(p, "user.%0250d" % n, b"")
            n += 1
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    assert 200 < n < 257 and len(os.listxattr(p)) == n + 1
    os.removexattr(p, "user.%0250d" % 0)
    os.setxattr(p, "user.%0250d" % 0, b"room again")
    for i in range(n):
        os.removexattr(p, "user.%0250d" % i)
    for i in range(63):
        os.setxattr(p, "user.%d" % i, bytes(65536))
    expect_errno(errno.ENOSPC, os.setxattr, p, "user.more", b"1")
    os.setxattr(p, "user.big", b"")
    os.setxattr(p, "user.more", b"1")
    os.unlink(p)


def test_a_small_buffer_is_told(c):
    p = (c.mnt() + "/small").encode()
    put(p)
    os.setxattr(p, "user.a", b"12345")
    buf = ctypes.create_string_buffer(64)
    assert libc.getxattr(p, b"user.a", buf, 4) == -1 and ctypes.get_errno() == errno.ERANGE
    assert libc.getxattr(p, b"user.a", buf, 0) == 5 and libc.getxattr(p, b"user.a", buf, 5) == 5
    assert libc.listxattr(p, buf, 6) == -1 and ctypes.get_errno() == errno.ERANGE
    assert libc.listxattr(p, buf, 0) == 7 and libc.listxattr(p, buf, 7) == 7
    os.unlink(p)


def append(path):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"more")
    os.close(fd)


def overwrite(path):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"more")
    os.close(fd)


CHANGES = {
    "write": overwrite,
    "append": append,
    "truncate": lambda p: os.truncate(p, 0),
    "extend": lambda p: os.truncate(p, 100),
    "O_TRUNC": lambda p: os.close(os.open(p, os.O_WRONLY | os.O_TRUNC)),
}


def test_capabilities_go_with_what_was_written(c):
    for how, change in CHANGES.items():
        p = c.mnt() + "/caps"
        put(p, mode=0o755)
        os.setxattr(p, CAPS, NET_RAW)
        os.setxattr(p, "user.stays", b"1")
        assert os.getxattr(p, CAPS)[:8] == NET_RAW[:8]
        change(p)
        assert os.listxattr(p) == ["user.stays"], how
        os.unlink(p)
    p = c.mnt() + "/caps"
    put(p, mode=0o755)
    os.setxattr(p, CAPS, NET_RAW)
    os.chmod(p, 0o700)
    assert os.listxattr(p) == [CAPS], "chmod leaves them"
    os.chown(p, USER, GROUP)
    assert os.listxattr(p) == []
    os.unlink(p)
    os.mkdir(p)
    os.setxattr(p, CAPS, NET_RAW)
    os.chown(p, USER, GROUP)
    assert os.listxattr(p) == [CAPS], "a directory's mean nothing, and stay"
    os.rmdir(p)


def test_set_id_bits_go_when_a_user_writes(c):
    for how, change in CHANGES.items():
        for by_user in (True, False):
            p = c.mnt() + "/setid"
            put(p, b"program", 0o666)
            os.chmod(p, 0o6777)
            rc = as_user(lambda: change(p)) if by_user else change(p)
            assert not rc, (how, rc)
            want = 0o777 if by_user else 0o6777
            assert stat.S_IMODE(os.stat(p).st_mode) == want, (how, by_user, oct(os.stat(p).st_mode))
            os.unlink(p)
            # Without execute permission for the group, its members keep set-group-id.
            for group in (GROUP, GROUP + 1):
                put(p, b"program", 0o666)
                os.chown(p, 0, GROUP + 1)
                os.chmod(p, 0o2666)
                assert user_calls(lambda: change(p), USER, group) == 0
                want = 0o2666 if group == GROUP + 1 else 0o666
                assert stat.S_IMODE(os.stat(p).st_mode) == want, (how, group)
                os.unlink(p)
    p = c.mnt() + "/setid"
    put(p)
    os.chmod(p, 0o6755)
    os.chown(p, USER, GROUP)
    assert stat.S_IMODE(os.stat(p).st_mode) == 0o755
    os.chmod(p, 0o2644)  # not a program: formerly the mark of mandatory locking
    os.chown(p, USER, GROUP)
    assert stat.S_IMODE(os.stat(p).st_mode) == 0o2644
    os.unlink(p)


def test_the_other_mount_sees_them(c):
    p = c.mnt(1) + "/both"
    put(p)
    q = p.replace(c.mnt(1), c.mnt(2))
    assert os.listxattr(q) == []
    os.setxattr(p, "user.a", b"1")
    time.sleep(1.2)
    assert os.listxattr(q) == ["user.a"] and os.getxattr(q, "user.a") == b"1"
    os.removexattr(q, "user.a")
    time.sleep(1.2)
    assert os.listxattr(p) == []
    os.unlink(p)


if __name__ == "__main__":
    run_tests(globals())
