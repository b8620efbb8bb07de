#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""POSIX access control lists: programs set, read and inherit them, and they are enforced."""
import contextlib
import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import as_user, expect_errno, run_tests

ALICE, BOB, CAROL = 5001, 5002, 5003
STAFF, GUESTS = 6001, 6002
NO_ID = 0xffffffff
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def acl(*entries):
    out = struct.pack("<I", 2)
    for e in entries:
        tag, perm = e[0], e[1]
        out += struct.pack("<HHI", tag, perm, e[2] if len(e) > 2 else NO_ID)
    return out


def setfacl(*args):
    return subprocess.run(["setfacl"] + list(args), check=True)


def getfacl(path, *args):
    out = subprocess.run(["getfacl", "-pcn"] + list(args) + [path], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return [line.split("\t")[0] for line in out.split("\n") if line]


def put(path, data=b"x", mode=0o644):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)


def may(path, uid, gids, flags=os.O_RDONLY):
    rc = as_user(lambda: os.close(os.open(path, flags)), uid, gids[0], gids[1:])
    assert rc in (0, errno.EACCES), os.strerror(rc)
    return rc == 0


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def other_mount(c, path):
    """The path on the second mount, after its cached attributes have expired."""
    time.sleep(1.2)
    return path.replace(c.mnt(1), c.mnt(2))


def test_named_users_and_groups_are_let_in_and_kept_out(c):
    p = c.mnt() + "/named"
    put(p, mode=0o640)
    setfacl("-m", "u:%d:r,u:%d:---,g:%d:rw" % (ALICE, BOB, STAFF), p)
    assert may(p, ALICE, [GUESTS]) and not may(p, ALICE, [GUESTS], os.O_WRONLY)
    assert not may(p, BOB, [STAFF]), "an own entry goes before those of groups"
    assert may(p, CAROL, [GUESTS, STAFF], os.O_RDWR), "by a supplementary group"
    assert not may(p, CAROL, [GUESTS])
    setfacl("-x", "g:%d" % STAFF, p)
    p2 = other_mount(c, p)
    assert may(p2, ALICE, [GUESTS]) and not may(p2, CAROL, [GUESTS, STAFF])
    os.unlink(p)


def test_mask_and_chmod_are_one(c):
    p = c.mnt() + "/mask"
    put(p, mode=0o600)
    setfacl("-m", "u:%d:rwx" % ALICE, p)
    assert mode(p) == 0o670, oct(mode(p))
    os.chmod(p, 0o640)
    assert getfacl(p) == ["user::rw-", "user:%d:rwx" % ALICE, "group::---", "mask::r--",
                          "other::---"]
    assert may(p, ALICE, [GUESTS]) and not may(p, ALICE, [GUESTS], os.O_RDWR)
    os.chmod(p, 0o614)
    assert not may(p, ALICE, [GUESTS]), "the mask does not let it through"
    assert may(p, BOB, [GUESTS])
    setfacl("-m", "m::rw", p)
    assert mode(p) == 0o664
    assert may(other_mount(c, p), ALICE, [GUESTS], os.O_RDWR)
    setfacl("-b", p)
    assert mode(p) & 0o707 == 0o604 and ACCESS not in os.listxattr(p)
    os.unlink(p)


def test_a_list_that_is_only_a_mode_is_not_kept(c):
    p = c.mnt() + "/plain"
    put(p)
    os.setxattr(p, ACCESS, acl((USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 0)))
    assert mode(p) == 0o640 and os.listxattr(p) == []
    expect_errno(errno.ENODATA, os.getxattr, p, ACCESS)
    os.removexattr(p, ACCESS)  # no error, as on other file systems
    os.unlink(p)


def test_malformed_lists_are_refused(c):
    p, d = c.mnt() + "/bad", c.mnt() + "/bad.d"
    put(p)
    os.mkdir(d)
    base = ((USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 0))
    for value in (acl(*base[1:]),                                     # no owner
                  acl((USER_OBJ, 6), (USER, 4, ALICE), *base[1:]),    # no mask
                  acl(base[1], base[0], base[2]),                     # out of order
                  acl((USER_OBJ, 9), *base[1:]),                      # not a permission
                  acl(*base)[:-1], b"\2\0\0"):
        for name in (ACCESS, DEFAULT):
            expect_errno(errno.EINVAL, os.setxattr, d, name, value)
    expect_errno(errno.EACCES, os.setxattr, p, DEFAULT, acl(*base))
    many = [(USER, 4, 10000 + i) for i in range(600)]
    expect_errno(errno.E2BIG, os.setxattr, p, ACCESS,
                 acl((USER_OBJ, 6), *many, (GROUP_OBJ, 4), (MASK, 4), (OTHER, 0)))
    os.symlink("bad", c.mnt() + "/bad.l")
    expect_errno(errno.EOPNOTSUPP, os.setxattr, c.mnt() + "/bad.l", ACCESS, acl(*base),
                 follow_symlinks=False)
    assert os.listxattr(p) == [] and os.listxattr(d) == [] and mode(p) == 0o644
    for x in ("/bad", "/bad.l"):
        os.unlink(c.mnt() + x)
    os.rmdir(d)


def test_the_longest_list(c):
    p = c.mnt() + "/long"
    put(p)
    value = acl((USER_OBJ, 6), *[(USER, 4, 10000 + i) for i in range(507)], (GROUP_OBJ, 4),
                (MASK, 4), (OTHER, 0))
    os.setxattr(p, ACCESS, value)
    assert os.getxattr(p, ACCESS) == value
    assert may(p, 10506, [GUESTS]) and may(p, 10000, [GUESTS]) and not may(p, 10507, [GUESTS])
    c.kill("mds")
    c.start("mds")
    assert os.getxattr(other_mount(c, p), ACCESS) == value
    os.unlink(p)


def test_only_the_owner_sets_one(c):
    p = c.mnt() + "/owner"
    put(p, mode=0o666)
    os.chown(p, ALICE, STAFF)
    value = acl((USER_OBJ, 6), (USER, 7, BOB), (GROUP_OBJ, 4), (MASK, 7), (OTHER, 0))
    assert as_user(lambda: os.setxattr(p, ACCESS, value), BOB, STAFF) == errno.EPERM
    assert as_user(lambda: os.setxattr(p, ACCESS, value), ALICE, STAFF) == 0
    assert as_user(lambda: os.removexattr(p, ACCESS), BOB, STAFF) == errno.EPERM
    assert as_user(lambda: os.getxattr(p, ACCESS), BOB, GUESTS) == 0
    os.unlink(p)


def test_set_gid_goes_when_a_stranger_to_the_group_sets_a_list(c):
    p = c.mnt() + "/sgid"
    put(p)
    os.chown(p, ALICE, STAFF)
    value = acl((USER_OBJ, 7), (USER, 5, BOB), (GROUP_OBJ, 5), (MASK, 5), (OTHER, 0))
    for gids, stays in (([GUESTS], 0), ([GUESTS, STAFF], stat.S_ISGID)):
        os.chmod(p, 0o2755)
        assert as_user(lambda: os.setxattr(p, ACCESS, value), ALICE, gids[0], gids[1:]) == 0
        assert mode(p) == 0o750 | stays, oct(mode(p))
    os.unlink(p)


def test_set_gid_stays_whatever_else_is_asked_for_meanwhile(c):
    """Whether capabilities count depends on the file's owner: the client must request it first."""
    p = c.mnt() + "/sgid"
    put(p)
    os.chown(p, ALICE, STAFF)
    done = threading.Event()

    def ask():
        while not done.is_set():
            with contextlib.suppress(OSError):
                os.getxattr(c.mnt(), "user.none")

    others = [threading.Thread(target=ask) for _ in range(4)]
    for t in others:
        t.start()
    try:
        for i in range(30):
            os.chmod(c.mnt(2) + "/sgid", 0o2755)  # invalidates what mount 1 has cached
            subprocess.run(["setpriv", "--reuid", str(ALICE), "--regid", str(GUESTS), "--groups",
                            "%d,%d" % (GUESTS, STAFF), "--inh-caps", "+fowner", "--ambient-caps",
                            "+fowner", "setfacl", "-m", "u:%d:x" % BOB, p], check=True)
            assert mode(p) == 0o2755, (i, oct(mode(p)))
    finally:
        done.set()
        for t in others:
            t.join()
    os.unlink(p)


def test_what_is_made_inherits_the_default_list(c):
    d = c.mnt() + "/inherit"
    os.mkdir(d)
    setfacl("-d", "-m", "u::rwx,g::r-x,o::---,u:%d:rwx" % ALICE, d)
    want = getfacl(d, "-d")
    old = os.umask(0o077)  # does not apply where there is a default list
    try:
        os.close(os.open(d + "/file", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(d + "/dir", 0o777)
        os.mkdir(d + "/narrow", 0o700)
        os.mkfifo(d + "/fifo", 0o666)
        os.symlink("file", d + "/link")
    finally:
        os.umask(old)
    named = ["user:%d:rwx" % ALICE]
    assert getfacl(d + "/file") == ["user::rw-"] + named + ["group::r-x", "mask::rw-",
                                                            "other::---"]
    assert getfacl(d + "/fifo") == getfacl(d + "/file")
    assert mode(d + "/file") == 0o660
    assert getfacl(d + "/dir", "-a") == want and getfacl(d + "/dir", "-d") == want
    assert getfacl(d + "/narrow", "-a")[-2:] == ["mask::---", "other::---"]
    assert os.listxattr(d + "/link", follow_symlinks=False) == []
    assert may(other_mount(c, d) + "/file", ALICE, [GUESTS], os.O_RDWR)
    setfacl("-k", d)
    setfacl("-d", "-m", "u::rwx,g::r-x,o::r-x", d)  # equivalent to a mode
    os.close(os.open(d + "/file2", os.O_CREAT | os.O_WRONLY, 0o666))
    assert mode(d + "/file2") == 0o644 and os.listxattr(d + "/file2") == []
    shutil.rmtree(d)


def test_umask_counts_without_a_default_list(c):
    d = c.mnt() + "/umask"
    os.mkdir(d)
    old = os.umask(0o027)
    try:
        os.close(os.open(d + "/file", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(d + "/dir", 0o777)
        os.mkfifo(d + "/fifo", 0o666)
        os.mknod(d + "/node", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    finally:
        os.umask(old)
    assert [mode(d + "/" + n) for n in ("file", "dir", "fifo", "node")] == [
        0o640, 0o750, 0o640, 0o640]
    shutil.rmtree(d)


def test_copies_keep_lists(c):
    src, dst = c.mnt() + "/tree", c.mnt() + "/tree.copy"
    os.makedirs(src + "/sub")
    put(src + "/sub/file", b"data", 0o600)
    os.setxattr(src + "/sub/file", "user.note", b"kept")
    setfacl("-R", "-m", "u:%d:rX" % ALICE, src)
    setfacl("-d", "-m", "g:%d:rx" % STAFF, src + "/sub")

    def described(top):
        return [(getfacl(top + "/" + n), os.listxattr(top + "/" + n), mode(top + "/" + n))
                for n in ("", "sub", "sub/file")]

    subprocess.run(["cp", "-a", src, dst], check=True)
    assert described(dst) == described(src)
    if shutil.which("rsync"):
        shutil.rmtree(dst)
        subprocess.run(["rsync", "-aAX", src + "/", dst], check=True)
        assert described(dst) == described(src)
    shutil.rmtree(dst)
    backup = subprocess.run(["getfacl", "-R", "-p", src], check=True, stdout=subprocess.PIPE)
    before = described(src)
    setfacl("-R", "-b", src)
    assert described(src) != before
    subprocess.run(["setfacl", "--restore=-"], input=backup.stdout, check=True)
    assert described(src) == before
    shutil.rmtree(src)


if __name__ == "__main__":
    run_tests(globals())
