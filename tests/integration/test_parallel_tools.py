#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""leat cp, rm and du do what cp -a, rm and du do, both by the servers and through the mount."""
import errno
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, as_user, expect_errno, run_tests, wait_until

CLUSTER = {"conf": {"client": {"request_timeout_ms": 20000}}}
MIB = 1 << 20
USER = 4321


def put(path, data=b"", mode=None):
    with open(path, "wb") as f:
        f.write(data)
    if mode is not None:
        os.chmod(path, mode)


def make_tree(top):
    """One of each kind of file. Called for the local file system and for Leat."""
    os.makedirs(top + "/a/b/c")
    os.makedirs(top + "/empty")
    for i in range(600):  # more than one listing returns
        put("%s/a/f%03d" % (top, i), b"%d\n" % i * (i % 50))
    put(top + "/a/b/large", os.urandom(3 * MIB + 17))
    put(top + "/a/b/piece", os.urandom(MIB))
    put(top + "/a/b/with \n line and \xc3\xa4", b"x")
    put(top + "/a/b/readonly", b"cannot be written", 0o444)
    put(top + "/a/b/suid", b"s")
    os.chown(top + "/a/b/suid", USER, USER + 1)
    os.chmod(top + "/a/b/suid", 0o6755)
    with open(top + "/a/b/sparse", "wb") as f:
        f.seek(4 * MIB)
        f.write(b"middle")
        f.truncate(9 * MIB + 5)
    os.symlink("../b/large", top + "/a/b/link")
    os.symlink("/nowhere", top + "/a/b/dangling")
    os.lchown(top + "/a/b/dangling", USER, USER)
    os.link(top + "/a/f001", top + "/a/b/c/same")
    os.link(top + "/a/f001", top + "/same too")
    os.link(top + "/a/b/link", top + "/same link")
    os.mkfifo(top + "/a/b/fifo", 0o640)
    os.mknod(top + "/a/b/null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.setxattr(top + "/a/b/readonly", "user.colour", b"green")
    os.setxattr(top + "/a/b", "user.dir", b"\0\1\2")
    subprocess.run(["setfacl", "-m", "u:%d:rw" % USER, top + "/a/b/piece"], check=True)
    subprocess.run(["setfacl", "-d", "-m", "u:%d:rwx" % USER, top + "/a/b/c"], check=True)
    os.chmod(top + "/a/b/c", 0o555)
    for path in ("/a/b/large", "/a/b/link", "/a/b", "/a/f002", "/empty"):
        os.utime(top + path, ns=(10 ** 18 + 123456789, 10 ** 18 + 987654321),
                 follow_symlinks=False)


def describe(top):
    """{name: all that a copy must have}. Names of one inode are described by the first of them."""
    found, first = {}, {}
    for folder, dirs, files in os.walk(top):
        dirs.sort()
        for name in ["."] + sorted(files) + [d for d in dirs if os.path.islink(folder + "/" + d)]:
            path = os.path.normpath(folder + "/" + name)
            st = os.lstat(path)
            rel = os.path.relpath(path, top)
            row = {"mode": st.st_mode, "owner": (st.st_uid, st.st_gid), "mtime": st.st_mtime_ns}
            if not stat.S_ISDIR(st.st_mode):
                row["same"] = first.setdefault(st.st_ino, rel)
                row["nlink"] = st.st_nlink
            if stat.S_ISREG(st.st_mode):
                row["size"] = st.st_size
                with open(path, "rb") as f:
                    row["data"] = hashlib.sha256(f.read()).hexdigest()
            if stat.S_ISLNK(st.st_mode):
                row["target"] = os.readlink(path)
            if stat.S_ISCHR(st.st_mode):
                row["rdev"] = st.st_rdev
            row["xattrs"] = {n: os.getxattr(path, n, follow_symlinks=False)
                             for n in os.listxattr(path, follow_symlinks=False)}
            found[rel] = row
    return found


def compare(a, b):
    a, b = describe(a), describe(b)
    assert a.keys() == b.keys(), (sorted(a.keys() ^ b.keys()))
    for name in a:
        assert a[name] == b[name], (name, a[name], b[name])


def contents(top):
    return {os.path.relpath(folder + "/" + n, top): open(folder + "/" + n, "rb").read()
            for folder, _, files in os.walk(top) for n in files}


def local(c, name):
    path = c.dir + "/" + name
    shutil.rmtree(path, ignore_errors=True)
    return path


def via(result):
    return json.loads(result.stdout)["via"]


def as_other(c, key):
    """argv for a user who may read the key, or who may not."""
    conf = open(c.dev + "/conf").read()
    old = [line.split("=", 1)[1].strip() for line in conf.splitlines()
           if line.split("=")[0].strip() == "key_file"][0]
    name = c.dir + ("/conf-with" if key else "/conf-without")
    new = old
    if key:
        new = c.dir + "/key-of-user"
        shutil.copyfile(old, new)
        os.chmod(new, 0o600)
        os.chown(new, USER, USER)
    with open(name, "w") as f:
        f.write(conf.replace(old, new))
    os.chmod(name, 0o644)
    return ["setpriv", "--reuid=%d" % USER, "--regid=%d" % USER, "--clear-groups",
            BUILD + "/leat", "--conf", name]


def run(argv, **kw):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120, **kw)


def test_copies_are_as_those_of_cp_a_in_all_directions(c):
    source, back = local(c, "source"), local(c, "back")
    make_tree(source)
    r = c.leat("cp", "-a", "--json", source, c.mnt() + "/copy")
    assert via(r) == "servers", r.stdout
    compare(source, c.mnt() + "/copy")
    subprocess.run(["cp", "-a", source, c.mnt() + "/by-cp"], check=True)
    compare(c.mnt() + "/by-cp", c.mnt() + "/copy")
    c.leat("cp", "-a", c.mnt() + "/copy", "leat:/within")
    compare(source, c.mnt(2) + "/within")
    c.leat("cp", "-a", "leat:/within", back)
    compare(source, back)
    for top in (c.mnt() + "/copy", c.mnt() + "/within", back):
        st = os.lstat(top + "/a/b/sparse")
        assert st.st_blocks * 512 < 3 * MIB, (top, st.st_blocks)


def test_a_copy_has_no_rights_of_the_directory_that_it_lies_in(c):
    source = local(c, "private")
    os.makedirs(source + "/d", 0o700)
    os.chmod(source, 0o750)
    put(source + "/secret", b"not for others", 0o640)
    put(source + "/d/empty", b"", 0o600)
    os.mkfifo(source + "/d/fifo", 0o640)
    subprocess.run(["setfacl", "-m", "u:%d:r" % (USER + 1), source + "/d/empty"], check=True)
    shared = [c.mnt() + "/shared", local(c, "shared")]
    for top in shared:
        os.mkdir(top)
        subprocess.run(["setfacl", "-d", "-m", "u:%d:rwx" % USER, top], check=True)
    c.leat("cp", "-a", source, shared[0] + "/first")
    compare(source, shared[0] + "/first")
    c.leat("cp", "-a", shared[0] + "/first", shared[0] + "/second")
    compare(source, shared[0] + "/second")
    c.leat("cp", "-a", shared[0] + "/first", shared[1] + "/third")
    compare(source, shared[1] + "/third")
    # Without -a the copy gets the rights of any file that is created there.
    c.leat("cp", "-r", source, shared[0] + "/theirs")
    assert "system.posix_acl_access" in os.listxattr(shared[0] + "/theirs/secret")


def test_existing_trees_are_added_to_and_files_replaced_whole(c):
    source, target = local(c, "more"), c.mnt() + "/target"
    os.makedirs(source + "/d")
    put(source + "/d/new", b"new")
    put(source + "/d/old", b"from the source")
    os.makedirs(target + "/more/d")
    put(target + "/more/d/old", b"was there")
    put(target + "/more/d/own", b"stays")
    os.link(target + "/more/d/old", target + "/other name")
    reader = open(target + "/more/d/old", "rb")
    c.leat("cp", "-r", source, target)
    assert contents(target) == {"more/d/new": b"new", "more/d/old": b"from the source",
                                "more/d/own": b"stays", "other name": b"was there"}
    assert reader.read() == b"was there"
    put(source + "/d/old", b"again")
    c.leat("cp", "-rn", source, target)
    assert contents(target)["more/d/old"] == b"from the source"
    # Nothing exists at these targets; they are copied in pieces, by holes, and by the servers.
    put(source + "/large", os.urandom(2 * MIB + 1))
    with open(source + "/sparse", "wb") as f:
        f.seek(4 * MIB)
        f.write(b"end")
    for folder, goal in ((source, target), (target, c.mnt() + "/by servers"),
                         (target, local(c, "back"))):
        c.leat("cp", "-rnT", folder, goal)
        assert contents(goal).items() >= contents(folder).items(), sorted(contents(goal))
    # A directory in place of a file, and the reverse, is an error.
    os.mkdir(source + "/x")
    put(target + "/more/x")
    r = c.leat("cp", "-r", source, target, check=False)
    assert r.returncode == 1 and "more/x" in r.stderr, r.stderr
    r = c.leat("cp", "-r", target, target + "/into itself", check=False)
    assert r.returncode == 1 and os.path.exists(target + "/into itself/more/d/own")
    assert not os.path.exists(target + "/into itself/into itself/into itself")
    r = c.leat("cp", target + "/other name", target + "/other name", check=False)
    assert r.returncode == 1 and contents(target)["other name"] == b"was there"


def test_with_n_what_comes_while_a_file_is_copied_stays(c):
    source = local(c, "file")
    put(source, os.urandom(64 * MIB))
    for target in (c.mnt() + "/comes", local(c, "comes")):
        os.mkdir(target)
        came = False
        while not came:
            p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "cp", "-n", source,
                                  target], stdin=subprocess.DEVNULL)
            while p.poll() is None and not os.listdir(target):
                pass
            # The test sees the file's temporary name in time if its final name is still free.
            assert os.listdir(target), "nothing was copied"
            try:
                with open(target + "/file", "xb") as f:
                    f.write(b"somebody else's")
                came = True
            except FileExistsError:
                os.unlink(target + "/file")
            assert p.wait(300) == 0
        assert contents(target) == {"file": b"somebody else's"}, os.listdir(target)
    os.unlink(source)


def test_without_a_the_mode_is_as_cp_makes_it(c):
    source = local(c, "plain")
    os.makedirs(source + "/closed")
    put(source + "/suid", b"", 0o4755)
    put(source + "/open", b"", 0o666)
    os.chmod(source + "/closed", 0o555)
    subprocess.run(["cp", "-r", source, c.mnt() + "/plain-cp"], check=True)
    c.leat("cp", "-r", source, c.mnt() + "/plain-leat")
    for name in ("", "/open", "/closed"):
        modes = [os.lstat(c.mnt() + top + name).st_mode for top in ("/plain-cp", "/plain-leat")]
        assert modes[0] == modes[1], (name, [oct(m) for m in modes])
    assert os.lstat(c.mnt() + "/plain-leat/suid").st_mode & 0o7777 == 0o755


def test_du_counts_as_du_does(c):
    top = c.mnt() + "/counted"
    make_tree(top)
    time.sleep(1.2)  # close is asynchronous
    plain = c.mnt() + "/counted/empty"  # the name of an inode that is met first may differ
    many(plain, 200, 3000)
    time.sleep(1.2)
    for path, options in ((top, ["-s", "-sb", "-sh", "-sk", "-sm", "-s --inodes", "-d0"]),
                          (plain, ["", "-d1", "-b", "-h", "--inodes", "-m", "--apparent-size"])):
        for option in options:
            want = sorted(run(["du"] + option.split() + [path]).stdout.splitlines())
            got = sorted(c.leat("du", *option.split(), path).stdout.splitlines())
            assert got == want and got, (option, got, want)
    rows = c.leat("du", "-c", "-s", plain, plain).stdout.splitlines()
    assert len(rows) == 3 and int(rows[2].split()[0]) == 2 * int(rows[0].split()[0]), rows
    r = json.loads(c.leat("du", "-s", "--json", top).stdout)
    n = int(run(["du", "-s", "--inodes", top]).stdout.split()[0])
    assert r["via"] == "servers" and r["usage"][0]["inodes"] == n, r
    r = run(as_other(c, False) + ["du", "-s", "--json", top])
    assert via(r) == "files" and json.loads(r.stdout)["usage"][0]["inodes"] == n, r
    # A name need not be UTF-8, but JSON must be: bytes are replaced, no row is omitted.
    odd = os.fsencode(plain) + b"/\xff \xc3\xa4\xe2\x82"
    os.mkdir(odd)
    put(odd + b"/f")
    want = plain + "/\ufffd \xe4\ufffd\ufffd"
    rows = json.loads(c.leat("du", "--json", plain).stdout)["usage"]
    assert len(rows) == len(os.listdir(plain)) + 1 and want in [r["path"] for r in rows], rows
    r = json.loads(subprocess.run([BUILD + "/leat", "--conf", c.dev + "/conf", "rm", "--json", odd],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    assert r["n_failed"] == 1 and [f["path"] for f in r["failed"]] == [want], r
    shutil.rmtree(odd)
    # Unreadable directories are reported, and readable ones are counted.
    os.chmod(top + "/a/b", 0o700)
    for key in (False, True):
        r = run(as_other(c, key) + ["du", "-s", "--json", top])
        assert r.returncode == 1 and via(r) == ("servers" if key else "files"), r
        assert [f["path"] for f in json.loads(r.stdout)["failed"]] == [top + "/a/b"], r.stdout


def test_rm_takes_all_and_follows_nothing(c):
    top, outside = c.mnt() + "/removed", c.mnt() + "/outside"
    make_tree(top)
    os.mkdir(outside)
    put(outside + "/kept")
    os.symlink(outside, top + "/a/way out")
    os.symlink(top, c.mnt() + "/to removed")
    deep = top
    for i in range(60):
        deep += "/d%d" % i
        os.mkdir(deep)
    assert c.leat("rm", top, check=False).returncode == 1 and os.path.exists(top + "/a/f001")
    assert c.leat("rm", "-r", c.mnt() + "/to removed/", check=False).returncode != 0
    for name in (".", "..", "./", "..//"):
        assert c.leat("rm", "-r", top + "/" + name, check=False).returncode == 1
    assert c.leat("rm", "-r", c.mnt(), check=False).returncode == 1
    assert c.leat("rm", "-r", "leat:/", check=False).returncode == 1
    c.leat("rm", "-r", c.mnt() + "/to removed")
    assert os.path.exists(deep)
    r = json.loads(c.leat("rm", "-r", "--json", top).stdout)
    assert not os.path.lexists(top) and os.path.exists(outside + "/kept")
    assert r["via"] == "servers" and r["directories"] == 65, r
    assert c.leat("rm", top, check=False).returncode == 1
    c.leat("rm", "-f", top)


def test_rm_f_passes_over_what_is_not_there(c):
    top, f = c.mnt() + "/there", local(c, "file")
    put(f)
    for missing in ("/no/such/dir/x", f + "/x", f + "/", "", top + "/none", "leat:/none/x"):
        for i in range(3):  # before, between and after existing ones
            there = [top + "/a", top + "/b"]
            for d in there:
                os.makedirs(d)
            r = c.leat("rm", "-rf", *there[:i], missing, *there[i:], check=False)
            assert r.returncode == 0 and r.stdout + r.stderr == "", r
            assert os.listdir(top) == [], (missing, i)
        assert c.leat("rm", "-rf", missing).stderr == ""
        r = c.leat("rm", "-r", missing, check=False)
        assert r.returncode != 0 and r.stderr.count("\n") == 1, r
    # A name that cannot be checked does not count as missing.
    r = c.leat("rm", "-rf", c.mnt() + "/x" * 2100, check=False)
    assert r.returncode == 1 and "too long" in r.stderr, r
    assert os.path.exists(f)


def test_rm_leaves_what_is_moved_out_meanwhile(c):
    """While rm removes the files of one directory, the test renames the other one."""
    top, kept, n = c.mnt() + "/shrinks", c.mnt() + "/kept", 500

    def whole():
        return [d for d in "ab" if len(os.listdir("%s/%s" % (top, d))) == n]

    while not os.path.exists(kept):
        for d in "ab":
            os.makedirs("%s/%s" % (top, d))
            for i in range(n):
                put("%s/%s/%d" % (top, d, i))
        p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "rm", "-r", "--jobs", "1",
                              top])
        try:
            while len(whole()) == 2:
                pass
            os.rename("%s/%s" % (top, whole()[0]), kept)
        except (FileNotFoundError, IndexError):
            n *= 2          # rm was faster
        assert p.wait() == 0 and not os.path.exists(top)
    assert len(os.listdir(kept)) == n


def test_rights_are_those_of_the_caller(c):
    for key in (True, False):
        top = c.mnt() + "/rights"
        os.makedirs(top + "/mine/sub")
        os.makedirs(top + "/foreign")
        os.makedirs(top + "/secret")
        for folder in ("/mine", "/mine/sub", "/foreign", "/secret"):
            for i in range(40):
                put("%s%s/f%d" % (top, folder, i))
        for folder in ("", "/mine", "/mine/sub"):
            os.chown(top + folder, USER, USER)
        os.chmod(top + "/secret", 0o700)
        r = run(as_other(c, key) + ["rm", "-rf", "--json", top])
        out = json.loads(r.stdout)
        assert r.returncode == 1 and out["via"] == ("servers" if key else "files"), r
        assert sorted(os.listdir(top)) == ["foreign", "secret"], os.listdir(top)
        assert len(os.listdir(top + "/foreign")) == len(os.listdir(top + "/secret")) == 40
        denied = {f["path"] for f in out["failed"]}
        foreign = {"%s/foreign/f%d" % (top, i) for i in range(40)}
        assert denied == foreign | {top + "/secret"}, denied
        assert out["files"] == 80 and out["directories"] == 2, out
        # Copying reports unreadable files, and copies the rest.
        target = local(c, "of user")
        os.mkdir(target)
        os.chown(target, USER, USER)
        r = run(as_other(c, key) + ["cp", "-a", top, target])
        assert r.returncode == 1 and "secret" in r.stderr and r.stderr.count("\n") == 1, r.stderr
        assert len(os.listdir(target + "/rights/foreign")) == 40
        # Another user's directory is not written to.
        r = run(as_other(c, key) + ["cp", target + "/rights/foreign/f1", top + "/secret/new"])
        assert r.returncode != 0
        r = run(as_other(c, key) + ["cp", target + "/rights/foreign/f1", top + "/foreign/new"])
        assert r.returncode == 1 and not os.path.exists(top + "/foreign/new"), r
        c.leat("rm", "-r", top)


def test_names_mean_what_they_mean_to_cp_and_rm(c):
    source, top = local(c, "named"), c.mnt() + "/named"
    os.makedirs(source + "/sub")
    put(source + "/sub/f", b"f")
    os.makedirs(top + "/into")
    c.leat("cp", "-r", source + "/.", top)
    assert contents(top) == {"sub/f": b"f"}
    c.leat("cp", "-r", "leat:/named/sub/", "leat:/named/into")
    assert contents(top + "/into") == {"sub/f": b"f"}
    c.leat("cp", "-r", "leat:/named/sub/.", "leat:/named/into/")
    assert contents(top + "/into") == {"sub/f": b"f", "f": b"f"}
    for folder in (source, top):
        r = run([BUILD + "/leat", "--conf", c.dev + "/conf", "rm", "-r", "./"], cwd=folder)
        assert r.returncode == 1 and "not removed" in r.stderr, r
        assert os.path.exists(folder + "/sub/f")
        r = run([BUILD + "/leat", "--conf", c.dev + "/conf", "rm", "-r", "sub/../"], cwd=folder)
        assert r.returncode == 1 and os.path.exists(folder + "/sub/f"), r


def lstat_errno(path):
    try:
        os.lstat(path)
    except OSError as e:
        return e.errno
    return 0


def test_what_cannot_be_looked_at_is_told_and_the_rest_is_done(c):
    source = local(c, "with a dead mount")
    os.makedirs(source + "/dead")
    for i in range(300):
        put("%s/f%d" % (source, i), b"%d" % i)
    p = subprocess.Popen([BUILD + "/mount.leat", "leat", source + "/dead", "-f", "-o",
                          "conf=%s/conf,supervise=no" % c.dev], stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.ismount(source + "/dead"), 20, "it is mounted")
        p.kill()
        p.wait()
        wait_until(lambda: lstat_errno(source + "/dead") == errno.ENOTCONN, 30, "it is dead")
        for i, target in enumerate((c.mnt() + "/but dead", local(c, "but dead"))):
            r = c.leat("cp", "-r", source, target, check=False)
            assert r.returncode == 1 and r.stderr.count("\n") == 1 and "/dead'" in r.stderr, r
            assert len(contents(target)) == 300
            r = c.leat("du", "-s", source, check=False)
            assert r.returncode == 1 and r.stderr.count("\n") == 1, r
    finally:
        p.kill()
        subprocess.run(["umount", "-l", source + "/dead"], check=True)


def test_a_copy_goes_by_what_is_opened_not_by_what_was_listed(c):
    """Files are replaced between the listing and the copy: rights and content must match."""
    source, target = local(c, "replaced"), c.mnt() + "/replaced"
    os.mkdir(source)
    for i in range(1000):
        put("%s/f%d" % (source, i), b"o" * 50000, 0o644)
    p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "cp", "-a", source, target],
                         stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until(lambda: os.path.exists(target) and len(os.listdir(target)) > 20, 20, "it copies")
    p.send_signal(signal.SIGSTOP)
    for i in range(1000):
        put(source + "/new", b"secret" * 10000, 0o600)
        os.rename(source + "/new", "%s/f%d" % (source, i))
    p.send_signal(signal.SIGCONT)
    p.communicate(timeout=120)
    secret = 0
    for name in os.listdir(target):
        with open(target + "/" + name, "rb") as f:
            data, mode = f.read(), os.fstat(f.fileno()).st_mode & 0o777
        assert b"s" not in data or mode == 0o600, (name, mode)
        secret += b"s" in data
    assert secret > 100, secret


def test_others_may_create_meanwhile(c):
    top, stop = c.mnt(2) + "/busy", threading.Event()
    os.makedirs(top + "/d")
    made = []

    def create():
        n = 0
        while not stop.is_set():
            try:
                put("%s/d/%d" % (top, n))
                made.append(n)
                n += 1
            except FileNotFoundError:
                return

    t = threading.Thread(target=create)
    t.start()
    wait_until(lambda: len(made) > 50, 10, "somebody creates")
    r = c.leat("rm", "-r", c.mnt() + "/busy", check=False)
    stop.set()
    t.join()
    if r.returncode == 0:
        assert not os.path.exists(top)
    else:
        assert r.returncode == 1 and "/busy/d'" in r.stderr and "not empty" in r.stderr, r.stderr
        c.leat("rm", "-r", top)
        assert not os.path.exists(top)


def many(top, n, size):
    for d in range(n // 50):
        os.makedirs("%s/d%d" % (top, d))
        for i in range(50):
            put("%s/d%d/f%d" % (top, d, i), os.urandom(size))


def test_a_server_that_dies_and_returns_is_waited_for(c):
    source = local(c, "many")
    many(source, 1000, 20000)
    for victim in ("ossd2", "mds"):
        target = c.mnt() + "/with " + victim
        p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "cp", "-r", source,
                              target], stdin=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(target) and len(os.listdir(target)) > 2, 20, "it copies")
        c.kill(victim)
        c.start(victim)
        assert p.wait(120) == 0
        assert contents(source) == contents(target)
        p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "rm", "-r", target],
                             stdin=subprocess.DEVNULL)
        time.sleep(0.05)
        c.kill(victim)
        c.start(victim)
        assert p.wait(120) == 0 and not os.path.exists(target)


def test_a_server_that_stays_away_is_an_error_for_what_needs_it(c):
    source, target = local(c, "few"), c.mnt() + "/without a server"
    many(source, 100, 20000)
    c.kill("ossd3")
    conf = open(c.dev + "/conf").read().replace("request_timeout_ms = 20000",
                                                "request_timeout_ms = 3000")
    with open(c.dir + "/quick", "w") as f:
        f.write(conf)
    r = run([BUILD + "/leat", "--conf", c.dir + "/quick", "cp", "-r", source, target])
    c.start("ossd3")
    assert r.returncode == 1 and "cannot copy" in r.stderr, r
    wait_until(lambda: c.status()["targets"][2]["state"] == "up", 30, "the server is back")
    whole, there = contents(source), contents(target)
    assert 0 < len(there) < len(whole) and all(whole[n] == d for n, d in there.items())
    assert r.stderr.count("cannot copy") == len(whole) - len(there)


def test_after_ctrl_c_there_is_no_half_file(c):
    source, target = local(c, "big"), c.mnt() + "/interrupted"
    os.mkdir(source)
    data = os.urandom(24 * MIB)
    for i in range(12):
        put("%s/f%d" % (source, i), data)
    many(source + "/small", 500, 5000)
    for back in (False, True):
        if back:
            c.leat("cp", "-r", source, c.mnt() + "/whole")
            source, target = c.mnt() + "/whole", local(c, "interrupted")
        p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "cp", "-r", source,
                              target], stdin=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(target) and len(os.listdir(target)) > 1, 20, "it copies")
        time.sleep(0.1)
        p.send_signal(signal.SIGINT)
        assert p.wait(300) == 75
        whole, there = contents(source), contents(target)
        assert len(there) < len(whole), "it was interrupted too late"
        assert all(whole.get(n) == d for n, d in there.items()), \
            [n for n in there if whole.get(n) != there[n]]


def test_what_is_mounted_below_is_not_gone_around(c):
    top = c.mnt() + "/with mount"
    os.makedirs(top + "/inner")
    put(top + "/inner/hidden")
    subprocess.run(["mount", "-t", "tmpfs", "none", top + "/inner"], check=True)
    try:
        r = c.leat("rm", "-r", "--json", top, check=False)
        assert r.returncode == 1 and via(r) == "files", r
        # A path through the namespace, past the mount, is still the same directory.
        r = c.leat("cp", "-r", top, "leat:/with mount/copy", check=False)
        assert r.returncode == 1 and "into itself" in r.stderr, r
        assert not os.path.exists(top + "/copy")
        put(top + "/f")
        os.setxattr(top + "/f", "user.mine", b"1")
        inode = os.stat(top + "/f").st_ino
        for args in (("-rT", c.mnt(), "leat:/backup"), ("-rT", "/", c.mnt() + "/backup"),
                     ("-r", top, "leat:/"), ("-r", "leat:/with mount", c.mnt())):
            r = c.leat("cp", *args, check=False, timeout=60)
            assert r.returncode == 1 and "into itself" in r.stderr, (args, r)
        assert not os.path.exists(c.mnt() + "/backup")
        assert os.stat(top + "/f").st_ino == inode and os.getxattr(top + "/f", "user.mine")
        # A path that only begins like it is another directory.
        c.leat("cp", "-rT", top, "leat:/with mount 2")
        assert os.path.exists(c.mnt() + "/with mount 2/f")
    finally:
        subprocess.run(["umount", top + "/inner"], check=True)
    assert os.path.exists(top + "/inner/hidden")


run_tests(globals())
