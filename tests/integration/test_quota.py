#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""Quotas of directory trees: counted exactly, enforced for names and writes, reported by statfs."""
import base64
import errno
import json
import os
import re
import shutil
import signal
import struct
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, expect_errno, run_tests, wait_until

CLUSTER = {"conf": {"mds": {"quota_grace_s": 2}}}
MIB = 1 << 20


def put(path, size=0):
    with open(path, "wb") as f:
        f.write(b"x" * size)


def quota(c, path):
    return json.loads(c.leat("quota", "show", "--json", path).stdout)["quotas"][0]


def set_quota(c, path, *args):
    c.leat("quota", "set", *args, path)


def counts(c, path, inodes, size):
    """Waits until the quota has these counts: a close is asynchronous, and settles the file."""
    def right():
        q = quota(c, path)
        return (q["inodes"], q["bytes"], q["reserved"]) == (inodes, size, 0)
    try:
        wait_until(right, 5, "the counts are right")
    except AssertionError:
        raise AssertionError("%s, wanted %d inodes, %d bytes" % (quota(c, path), inodes, size))


def du(path):
    """The counts that are right: (inodes, bytes)."""
    seen, total = set(), 0
    for top, dirs, files in os.walk(path):
        for name in ["."] + files:
            st = os.lstat(top + "/" + name)
            if st.st_ino not in seen:
                seen.add(st.st_ino)
                total += st.st_blocks * 512
                if stat.S_ISLNK(st.st_mode):  # the target of a link counts, in sectors
                    total += (st.st_size + 511) // 512 * 512
    return len(seen), total


def test_what_is_there_is_counted_in_and_what_comes_too(c):
    d = c.mnt() + "/counted"
    os.makedirs(d + "/sub/deep")
    put(d + "/sub/old", 100000)
    os.symlink("old", d + "/sub/link")
    os.link(d + "/sub/old", d + "/sub/deep/again")
    time.sleep(1.2)
    set_quota(c, d, "--bytes", "100M", "--inodes", "50")
    counts(c, d, *du(d))
    put(d + "/sub/deep/new", 3 * MIB)
    os.mkdir(d + "/more")
    time.sleep(1.2)
    counts(c, d, *du(d))
    inodes, size = du(d)
    assert inodes == 7 and size >= 3 * MIB + 100000
    os.truncate(d + "/sub/deep/new", 0)
    os.unlink(d + "/sub/old")  # the file has another name
    os.unlink(d + "/sub/link")
    time.sleep(1.2)
    counts(c, d, *du(d))
    assert quota(c, d + "/sub/deep/new")["own"] is False and quota(c, d)["own"] is True
    c.kill("mds")
    c.start("mds")
    time.sleep(1.2)
    counts(c, d, *du(d))


def test_inodes_are_limited_exactly(c):
    d = c.mnt() + "/inodes"
    os.mkdir(d)
    set_quota(c, d, "--inodes", "5")
    for i in range(4):
        put(d + "/%d" % i)
    expect_errno(errno.EDQUOT, os.open, d + "/4", os.O_CREAT | os.O_WRONLY)
    expect_errno(errno.EDQUOT, os.mkdir, d + "/4")
    expect_errno(errno.EDQUOT, os.symlink, "x", d + "/4")
    expect_errno(errno.EDQUOT, os.mkfifo, d + "/4")
    expect_errno(errno.EDQUOT, os.open, d, os.O_TMPFILE | os.O_WRONLY)
    os.link(d + "/0", d + "/4")  # a second name is no inode
    os.unlink(d + "/1")
    put(d + "/5")
    st = os.statvfs(d)
    assert (st.f_files, st.f_ffree) == (5, 0)
    assert os.statvfs(c.mnt()).f_files > 1000


def test_parallel_creations_do_not_exceed_the_limit(c):
    d = c.mnt() + "/crowd"
    os.mkdir(d)
    set_quota(c, d, "--inodes", "101")
    code = """
import os, sys
n = 0
for i in range(100):
    try:
        os.close(os.open("{}/" + sys.argv[1] + "." + str(i), os.O_CREAT | os.O_WRONLY))
        n += 1
    except OSError as e:
        assert e.errno == 122, e
print(n)
"""
    ps = [subprocess.Popen([sys.executable, "-c", code.replace("{}", m), str(n)],
                           stdout=subprocess.PIPE, text=True)
          for n, m in enumerate([c.mnt(1) + "/crowd", c.mnt(2) + "/crowd"] * 2)]
    made = sum(int(p.communicate()[0]) for p in ps)
    assert made == 100, made
    counts(c, d, 101, 4096)


def test_writes_stop_at_the_limit(c):
    d = c.mnt() + "/bytes"
    os.mkdir(d)
    set_quota(c, d, "--bytes", "8M")
    fd = os.open(d + "/a", os.O_CREAT | os.O_WRONLY)
    written = 0
    try:
        while written < 20 * MIB:
            written += os.write(fd, bytes(100000))
    except OSError as e:
        assert e.errno == errno.EDQUOT, e
    assert 7 * MIB < written <= 8 * MIB, written
    os.pwrite(fd, b"y" * 100000, 0)  # an overwrite needs no space
    os.close(fd)
    time.sleep(1.2)
    counts(c, d, *du(d))
    assert du(d)[1] <= 8 * MIB + 16384
    fd = os.open(d + "/b", os.O_CREAT | os.O_WRONLY)
    expect_errno(errno.EDQUOT, os.write, fd, bytes(MIB))
    os.close(fd)
    fd = os.open(d + "/b", os.O_WRONLY | os.O_APPEND)
    expect_errno(errno.EDQUOT, os.write, fd, bytes(MIB))
    os.close(fd)
    st = os.statvfs(d)
    assert st.f_blocks * st.f_frsize == 8 * MIB and st.f_bavail * st.f_frsize < 200000
    os.truncate(d + "/b", 100 * MIB)  # a hole takes no space until it is filled
    fd = os.open(d + "/b", os.O_WRONLY)
    expect_errno(errno.EDQUOT, os.pwrite, fd, bytes(MIB), 50 * MIB)
    os.close(fd)
    os.unlink(d + "/a")
    put(d + "/c", 4 * MIB)
    set_quota(c, d, "--bytes", "100M")
    put(d + "/e", 20 * MIB)


def refused(fn, *args):
    try:
        fn(*args)
    except OSError as e:
        assert e.errno == errno.EDQUOT, e
        return True
    return False


def append(path, size):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, bytes(size))
        os.fsync(fd)
    finally:
        os.close(fd)


def test_full_for_every_mount_and_over_a_restart(c):
    """A full tree can be read, and removing files frees enough space."""
    d, e = c.mnt(1) + "/full", c.mnt(2) + "/full"
    os.mkdir(d)
    set_quota(c, d, "--bytes", "4M", "--inodes", "12")
    for i in range(8):
        put("%s/%d" % (d, i))
    for size in MIB, 65536, 16384:
        while not refused(append, d + "/0", size):
            pass
    for i in range(3):
        put("%s/more%d" % (e, i))

    def is_full():
        for m in d, e:
            for i in range(8):
                expect_errno(errno.EDQUOT, append, "%s/%d" % (m, i), MIB)
            expect_errno(errno.EDQUOT, put, m + "/new")
            expect_errno(errno.EDQUOT, os.mkdir, m + "/new")
            with open(m + "/0", "rb") as f:
                data = f.read()
            assert 3 * MIB < len(data) <= 4 * MIB and not any(data), len(data)
            st = os.statvfs(m)
            assert st.f_ffree == 0 and st.f_bavail * st.f_frsize < 65536, st

    is_full()
    c.kill("mds")
    c.start("mds")
    is_full()
    os.unlink(e + "/0")
    os.unlink(d + "/more0")
    wait_until(lambda: not refused(append, e + "/1", 2 * MIB), 20, "there is room")
    put(d + "/new")
    wait_until(lambda: quota(c, d)["reserved"] == 0, 20, "all is settled")
    assert quota(c, d)["bytes"] == du(d)[1], (quota(c, d), du(d))


def fill_with_attributes(d, n, size):
    """Sets 60 attributes on each of n files until the limit. Returns the number of bytes."""
    taken = 0
    for i in range(n):
        put("%s/%d" % (d, i))
        for j in range(60):
            try:
                os.setxattr("%s/%d" % (d, i), "user.%d" % j, bytes(size))
            except OSError as e:
                assert e.errno == errno.EDQUOT, e
                return taken
            taken += size
    return taken


def test_attributes_count(c):
    d = c.mnt() + "/attributes"
    os.mkdir(d)
    set_quota(c, d, "--bytes", "1M", "--inodes", "100")
    taken = fill_with_attributes(d, 9, 60000)
    assert MIB - 70000 < taken < MIB, taken
    assert taken < quota(c, d)["bytes"] <= MIB
    before = quota(c, d)["bytes"]
    os.setxattr(d + "/0", "user.0", bytes(60000))
    os.setxattr(d + "/0", "user.0", bytes(100))
    assert before - 60000 <= quota(c, d)["bytes"] <= before - 59000
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *e) for e in
        [(1, 7, 2**32 - 1)] + [(2, 5, 6000 + i) for i in range(500)] +
        [(4, 5, 2**32 - 1), (16, 5, 2**32 - 1), (32, 0, 2**32 - 1)])
    os.setxattr(d + "/0", "system.posix_acl_access", acl)
    assert quota(c, d)["bytes"] >= before - 60000 + 2503
    fill_with_attributes(d, 1, 60000)
    c.kill("mds")
    c.start("mds")
    full = quota(c, d)["bytes"]
    assert MIB - 70000 < full <= MIB
    expect_errno(errno.EDQUOT, os.setxattr, d, "user.x", bytes(65536))
    fd = os.open(d + "/data", os.O_CREAT | os.O_WRONLY)
    expect_errno(errno.EDQUOT, os.write, fd, bytes(100000))
    os.close(fd)
    os.unlink(d + "/0")
    put(d + "/data", 100000)
    for f in os.listdir(d):
        os.unlink(d + "/" + f)
    counts(c, d, 1, 4096)


def test_soft_limits_have_a_grace(c):
    d = c.mnt() + "/soft"
    os.mkdir(d)
    set_quota(c, d, "--inodes-soft", "3")
    for i in range(5):
        put(d + "/%d" % i)
    time.sleep(3.5)
    assert quota(c, d)["inodes_over_s"] >= 3
    expect_errno(errno.EDQUOT, os.mkdir, d + "/late")
    for i in range(3):
        os.unlink(d + "/%d" % i)
    put(d + "/again")


def test_moving_across_the_border_is_copying(c):
    d, out = c.mnt() + "/border", c.mnt() + "/outside"
    os.mkdir(d)
    os.mkdir(out)
    put(out + "/f", 1000)
    put(d + "/in", 10)
    set_quota(c, d, "--inodes", "10")
    expect_errno(errno.EXDEV, os.rename, out + "/f", d + "/f")
    expect_errno(errno.EXDEV, os.rename, d + "/in", out + "/in")
    expect_errno(errno.EXDEV, os.link, out + "/f", d + "/f")
    subprocess.run(["mv", out + "/f", d + "/f"], check=True)
    os.rename(d, c.mnt() + "/border2")  # the root of the quota keeps its counts
    d = c.mnt() + "/border2"
    time.sleep(1.2)
    counts(c, d, *du(d))


def test_one_below_another_and_taking_it_away(c):
    d = c.mnt() + "/outer"
    os.makedirs(d + "/inner")
    put(d + "/a", 1000)
    put(d + "/inner/b", 5000)
    time.sleep(1.2)
    set_quota(c, d, "--inodes", "10")
    set_quota(c, d + "/inner", "--inodes", "3")
    assert quota(c, d)["inodes"] == 2 and quota(c, d + "/inner")["inodes"] == 2
    set_quota(c, d, "--adopt")
    assert quota(c, d)["inodes"] == 2
    c.leat("quota", "rm", d + "/inner")
    time.sleep(1.2)
    assert quota(c, d + "/inner")["own"] is False
    counts(c, d, *du(d))
    c.leat("quota", "rm", d)
    assert json.loads(c.leat("quota", "show", "--json", d).stdout)["quotas"] == []
    for i in range(20):
        put(d + "/%d" % i)


def project(path):
    return int(os.getxattr(path, "leat.project", follow_symlinks=False))


def paths_below(d):
    return [d] + [top + "/" + name for top, dirs, files in os.walk(d) for name in dirs + files]


def make_two(c, name):
    """A directory with two large ones, so that a walk is in one while the other is unchanged."""
    d = c.mnt() + "/" + name
    for sub in ("x", "y"):
        os.makedirs(d + "/" + sub)
        for i in range(150):
            put("%s/%s/%d" % (d, sub, i))
    return d


def stopped_within(c, d, *args):
    """Stops the command while it is in one directory of make_two. Returns it and the other one."""
    before = project(d + "/x")
    p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", *args], env=c.env,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while project(d + "/x") == project(d + "/y"):
        assert p.poll() is None, p.communicate()
    p.send_signal(signal.SIGSTOP)

    def stopped():
        with open("/proc/%d/stat" % p.pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "T"
    wait_until(stopped, 10, "it is stopped")
    first, other = ("x", "y") if project(d + "/x") != before else ("y", "x")
    left = [f for f in paths_below(d + "/" + first) if project(f) == before]
    assert left and project(d + "/" + other) == before, "it was too fast for this test"
    return p, d + "/" + other


def go_on(p):
    p.send_signal(signal.SIGCONT)
    out = p.communicate(timeout=300)
    assert p.returncode == 0, out


def test_sealed_files_are_counted_in(c):
    d = c.mnt() + "/sealed"
    os.makedirs(d + "/set")
    for i in range(5):
        put(d + "/set/%d" % i, 5000)
    c.leat("dataset", "create", "sealed@v1", d + "/set")
    c.leat("dataset", "seal", "sealed@v1")
    put(d + "/zz", 3000)
    before = [os.stat(d + "/set/%d" % i).st_ctime_ns for i in range(5)]
    set_quota(c, d, "--inodes", "100")
    counts(c, d, *du(d))
    assert [os.stat(d + "/set/%d" % i).st_ctime_ns for i in range(5)] == before
    nvme = c.dir + "/nvme-quota"
    os.mkdir(nvme)
    c.leat("stage", "in", "sealed@v1", "--to", nvme)
    # By another client, which may cache the previous project of sealed files forever.
    second = c.mnt(2) + "/sealed"
    assert len({project(f) for f in paths_below(second)}) == 1
    c.leat("quota", "rm", d)
    set_quota(c, second, "--inodes", "100")
    c.leat("quota", "rm", d)
    set_quota(c, second, "--inodes", "200")
    counts(c, d, *du(d))
    c.leat("stage", "verify", "sealed@v1", "--to", nvme)


def test_taking_away_is_repeated_after_an_interruption(c):
    d = make_two(c, "ended")
    set_quota(c, d, "--inodes", "2000")
    p, _ = stopped_within(c, d, "quota", "rm", d)
    p.kill()
    p.communicate()
    assert len({project(f) for f in paths_below(d)}) == 2
    c.leat("quota", "rm", d)
    assert {project(f) for f in paths_below(d)} == {0}
    p = c.leat("quota", "rm", d, check=False)
    assert p.returncode != 0 and "no quota of its own" in p.stderr, p


def test_what_is_renamed_meanwhile_is_counted_in(c):
    d = make_two(c, "renamed")
    p, other = stopped_within(c, d, "quota", "set", "--inodes", "2000", d)
    os.rename(other, d + "/z")
    go_on(p)
    counts(c, d, *du(d))
    assert {project(f) for f in paths_below(d)} == {quota(c, d)["project"]}


def test_no_link_leads_the_walk_out(c):
    d, victim = make_two(c, "led"), c.mnt() + "/victim"
    os.mkdir(victim)
    put(victim + "/f")
    p, other = stopped_within(c, d, "quota", "set", "--inodes", "2000", d)
    os.rename(other, d + "/z")
    os.symlink("../victim", other)
    go_on(p)
    assert (project(victim), project(victim + "/f")) == (0, 0)
    assert {project(f) for f in paths_below(d)} == {quota(c, d)["project"]}


def test_deep_trees_are_counted_in(c):
    d, name = c.mnt() + "/deep", "n" * 200
    os.mkdir(d)
    fd = os.open(d, os.O_RDONLY)
    for _ in range(400):  # deeper than the longest path, and than fts walks
        os.mkdir(name, dir_fd=fd)
        fd, above = os.open(name, os.O_RDONLY, dir_fd=fd), fd
        os.close(above)
    put("/proc/self/fd/%d/f" % fd)
    os.mkdir(d + "/zz")
    set_quota(c, d, "--inodes", "1000")
    assert project("/proc/self/fd/%d/f" % fd) == project(d + "/zz") == project(d) != 0
    os.close(fd)
    counts(c, d, 403, 402 * 4096)


def test_by_another_name(c):
    """A link to the directory; a mount that does not include its parent; the root."""
    d, link, bind = c.mnt() + "/named", c.mnt() + "/link", c.dir + "/bind"
    os.mkdir(d)
    put(d + "/f")
    os.symlink("named", link)
    set_quota(c, link, "--inodes", "10")
    assert project(d + "/f") == project(d) != 0 and project(link) == 0
    other = c.mnt() + "/other"
    os.mkdir(other)
    set_quota(c, other, "--inodes", "10")
    for at in (bind, other + "/bind"):  # outside, then below another quota
        os.mkdir(at)
        subprocess.run(["mount", "--bind", d, at], check=True)
        p = c.leat("quota", "rm", at, check=False)
        subprocess.run(["umount", at], check=True)
        assert p.returncode == 1 and "parent directory" in p.stderr, p
        assert quota(c, d)["own"] is True and project(d + "/f") == project(d)
    os.rmdir(other + "/bind")
    c.leat("quota", "rm", other)
    set_quota(c, c.mnt(), "--inodes", "100000")
    assert quota(c, d)["own"] is True and project(link) == project(c.mnt())
    c.leat("quota", "rm", d)
    assert project(d) == project(d + "/f") == project(c.mnt())
    c.leat("quota", "rm", c.mnt())
    assert project(d) == project(d + "/f") == project(c.mnt()) == project(link) == 0


def test_users_cannot_change_them(c):
    d = c.mnt() + "/user"
    os.mkdir(d)
    os.chown(d, 5001, 5001)
    set_quota(c, d, "--inodes", "10")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(5001)
            os.setuid(5001)
            expect_errno(errno.EPERM, os.setxattr, d, "leat.quota", b"inodes_hard=0")
            expect_errno(errno.EPERM, os.setxattr, d, "leat.quota", b"remove=1")
            expect_errno(errno.EPERM, os.setxattr, d, "leat.project", b"0")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    expect_errno(errno.EINVAL, os.setxattr, d, "leat.project", b"4000000000")
    expect_errno(errno.EINVAL, os.setxattr, d, "leat.quota", b"inodes_hard=x")
    expect_errno(errno.ENOTDIR, os.setxattr, c.mnt() + "/counted/sub/deep/new", "leat.quota",
                 b"inodes_hard=1")


def listed(c, *args):
    """{path: row of `leat quota ls`}"""
    quotas = json.loads(c.leat("quota", "ls", "--json").stdout)["quotas"]
    return {base64.b64decode(q["path_b64"]) if "path_b64" in q else q["path"].encode(): q
            for q in quotas}


def test_all_are_listed(c):
    top = os.fsencode(c.mnt()) + b"/all"
    odd = b"odd\n\xff\x1b[31m\xc3\xa4"
    for name in (b"a", b"a/inner", odd):
        os.makedirs(top + b"/" + name)
        set_quota(c, os.fsdecode(top + b"/" + name), "--json", "--bytes", "10M",
                  "--inodes", "100")
    set_quota(c, os.fsdecode(top + b"/a"), "--inodes-soft", "2")
    for i in range(5):
        put(top + b"/a/%d" % i, 5000)
    put(top + b"/" + odd + b"/f", 100000)
    inodes, size = du(os.fsdecode(top + b"/a"))
    counts(c, os.fsdecode(top + b"/a"), inodes - 1, size - 4096)  # without `inner`
    counts(c, os.fsdecode(top + b"/" + odd), *du(os.fsdecode(top + b"/" + odd)))
    at = {b"/all/a": "a", b"/all/a/inner": "a/inner", b"/all/" + odd: odd}
    rows = listed(c)
    assert set(at) <= set(rows), rows
    for path, name in at.items():
        shown = quota(c, os.fsdecode(top + b"/" + os.fsencode(name)))
        for word in ("project", "bytes", "bytes_hard", "bytes_soft", "inodes", "inodes_hard",
                     "inodes_soft", "reserved", "grace_s"):
            assert rows[path][word] == shown[word], (path, word, rows[path], shown)
        assert rows[path]["inode"] == os.stat(top + b"/" + os.fsencode(name)).st_ino
    wait_until(lambda: listed(c)[b"/all/a"]["inodes_over_s"] > 2, 20, "the grace has ended")
    lines = {line.split("  ", 1)[-1].rsplit("  ", 1)[-1]: line.split()
             for line in c.leat("quota", "ls").stdout.splitlines()}
    a = lines["/all/a"]
    assert a[:10] == a[:2] + ["10.0", "MiB", "-", "6", "100", "2", "ended", "/all/a"], a
    assert "-" == lines["/all/a/inner"][-2], lines
    assert "/all/odd\\x0a\\xff\\x1b[31m\u00e4" in lines, lines
    # A renamed directory has its new path, and a removed quota does not appear.
    os.rename(top + b"/" + odd, top + b"/plain")
    c.leat("quota", "rm", os.fsdecode(top + b"/a/inner"))
    rows = listed(c)
    assert b"/all/plain" in rows and b"/all/" + odd not in rows and b"/all/a/inner" not in rows
    assert c.leat("quota", "ls", os.fsdecode(top), check=False).returncode == 2


def test_users_are_told_of_what_they_could_find(c):
    """Depends on the credential that the command sends; test_attack_exports covers exports."""
    top = c.mnt() + "/told"
    for name in ("open/mine", "closed/theirs"):
        os.makedirs(top + "/" + name)
        set_quota(c, top + "/" + name, "--inodes", "10")
    os.chmod(top + "/closed", 0o711)  # may be searched, not listed
    os.chmod(top + "/open/mine", 0o700)
    mine, theirs = b"/told/open/mine", b"/told/closed/theirs"
    assert {mine, theirs} <= set(listed(c))

    # The user needs a configuration of its own, because only the owner may read a key.
    with open(c.dev + "/conf") as f:
        conf = f.read()
    key = re.search(r"^key_file = (.*)$", conf, re.M).group(1)
    shutil.copy(key, c.dir + "/key-5001")
    os.chmod(c.dir + "/key-5001", 0o400)
    os.chown(c.dir + "/key-5001", 5001, 5001)
    with open(c.dir + "/conf-5001", "w") as f:
        f.write(conf.replace(key, "key-5001"))
    os.chmod(c.dir + "/conf-5001", 0o644)

    def of_user(*groups):
        p = subprocess.run([BUILD + "/leat", "--conf", "conf-5001", "quota", "ls", "--json"],
                           env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           cwd=c.dir, user=5001, group=5001, extra_groups=groups)
        assert p.returncode == 0, p
        return {q["path"].encode() for q in json.loads(p.stdout)["quotas"]}

    told = of_user()
    assert mine in told and theirs not in told, told
    os.chown(top + "/closed", 0, 5002)
    os.chmod(top + "/closed", 0o750)
    assert theirs not in of_user() and theirs in of_user(5002)


def test_the_store_has_what_the_server_counted(c):
    assert c.check_stores().returncode == 0


if __name__ == "__main__":
    run_tests(globals())
