#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""leat export: what clients of a network may do. The machine is a network namespace with several
addresses; a client's address is the one from which it connects."""
import errno
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")

if "IN_NAMESPACE" not in os.environ:
    os.environ["IN_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "-n", sys.executable] + sys.argv)
for words in ("link set lo up", "addr add 10.1.0.1/32 dev lo", "addr add 10.2.0.1/32 dev lo"):
    subprocess.run(["ip"] + words.split(), check=True)

from cluster import as_user, BUILD, expect_errno, get, put, run_tests, wait_until

CLUSTER = {"mounts": 1}
USER, GROUP = 4321, 5432
A, B = "10.1.0.1", "10.2.0.1"


class Client:
    """A mount and the command line of a machine with this address."""

    def __init__(self, c, addr):
        self.c, self.addr = c, addr
        self.dir = "%s/at-%s" % (c.dir, addr)
        self.conf = self.dir + ".conf"

    def __enter__(self):
        os.mkdir(self.dir)
        text = open(self.c.dev + "/conf").read().replace("mds = 127.0.0.1", "mds = " + self.addr)
        assert self.addr in text
        with open(self.conf, "w") as f:
            f.write(text)
        self.mount()
        return self

    def mount(self):
        self.log = open(self.dir + ".log", "a")
        self.p = subprocess.Popen([BUILD + "/mount.leat", "leat", self.dir, "-f", "-o",
                                   "conf=" + self.conf], stdin=subprocess.DEVNULL,
                                  stdout=self.log, stderr=self.log)
        wait_until(lambda: os.path.ismount(self.dir), 20, self.addr + " has mounted")

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.dir], check=False)
        if self.p.wait(300) != 0:
            print(open(self.dir + ".log").read())
        self.log.close()
        for path in (self.conf, self.dir + ".log"):
            os.unlink(path)
        os.rmdir(self.dir)

    def leat(self, *args):
        return subprocess.run([BUILD + "/leat", "--conf", self.conf] + list(args), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120)


def no_exports(c):
    for row in rows(c):
        c.leat("export", "rm", row["network"])


def rows(c):
    return json.loads(c.leat("export", "ls", "--json").stdout)["exports"]


def changes(top):
    """Every way to change something below top, as (what, function)."""
    def opened(flags):
        return lambda: os.close(os.open(top + "/file", flags))
    return [
        ("create", lambda: os.close(os.open(top + "/new", os.O_CREAT | os.O_WRONLY))),
        ("open to write", opened(os.O_WRONLY)),
        ("open to append", opened(os.O_RDWR | os.O_APPEND)),
        ("open to empty", opened(os.O_WRONLY | os.O_TRUNC)),
        ("unnamed", lambda: os.close(os.open(top, os.O_TMPFILE | os.O_RDWR))),
        ("truncate", lambda: os.truncate(top + "/file", 1)),
        ("mkdir", lambda: os.mkdir(top + "/dir")),
        ("rmdir", lambda: os.rmdir(top + "/empty")),
        ("mknod", lambda: os.mkfifo(top + "/fifo")),
        ("symlink", lambda: os.symlink("x", top + "/link")),
        ("link", lambda: os.link(top + "/file", top + "/file2")),
        ("unlink", lambda: os.unlink(top + "/file")),
        ("rename", lambda: os.rename(top + "/file", top + "/file2")),
        ("chmod", lambda: os.chmod(top + "/file", 0o600)),
        ("chown", lambda: os.chown(top + "/file", 1, 1)),
        ("utime", lambda: os.utime(top + "/file")),
        ("setxattr", lambda: os.setxattr(top + "/file", "user.a", b"b")),
        ("removexattr", lambda: os.removexattr(top + "/file", "user.old")),
        ("layout", lambda: os.setxattr(top, "leat.layout", b"replicas=1")),
        ("quota", lambda: os.setxattr(top, "leat.quota", b"bytes_hard=1000000 ")),
    ]


def snapshot(top):
    return {n: (os.lstat(top + "/" + n).st_mode, os.lstat(top + "/" + n).st_mtime_ns,
                os.lstat(top + "/" + n).st_ctime_ns, os.lstat(top + "/" + n).st_atime_ns)
            for n in os.listdir(top)}


def prepare(c, name):
    top = c.mnt() + "/" + name
    os.mkdir(top)
    put(top + "/file", b"content")
    os.setxattr(top + "/file", "user.old", b"1")
    os.mkdir(top + "/empty")
    os.utime(top + "/file", ns=(1, 10 ** 18))  # so old that a read would update the access time
    return top


def test_the_metadata_server_listens_everywhere(c):
    text = open(c.dev + "/conf").read()
    port = text.split("mds = 127.0.0.1:")[1].split()[0]
    with open(c.dev + "/conf", "w") as f:
        f.write(text.replace("[mds]\n", "[mds]\nlisten = 0.0.0.0:%s\n" % port))
    c.kill("mds")
    c.start("mds")
    put(c.mnt() + "/here")
    with Client(c, A) as a:
        assert get(a.dir + "/here") == b"x"


def test_read_only_networks_change_nothing(c):
    top = prepare(c, "ro")
    with Client(c, A) as a, Client(c, B) as b:
        for what, fn in changes(prepare(c, "rw").replace(c.mnt(), a.dir))[:3]:
            fn()  # without a rule everything is allowed
        c.leat("export", "add", "--ro", "10.1.0.0/16")
        before = snapshot(top)
        for what, fn in changes(a.dir + "/ro"):
            try:
                fn()
            except OSError as e:
                assert e.errno == errno.EROFS, (what, e)
            else:
                raise AssertionError("allowed: " + what)
        assert get(a.dir + "/ro/file") == b"content" and os.listdir(a.dir + "/ro/empty") == []
        time.sleep(0.3)
        assert snapshot(top) == before
        # The library and the administrator's commands are refused as well.
        source = c.dir + "/to copy"
        put(source)
        r = a.leat("cp", source, "leat:/ro/copied")
        assert r.returncode == 1 and "read-only" in r.stderr, r
        assert a.leat("rm", "-r", "leat:/ro").returncode == 1 and os.path.exists(top + "/file")
        assert a.leat("export", "rm", "10.1.0.0/16").returncode == 10
        assert a.leat("target", "drain", "1").returncode == 10
        assert a.leat("status").returncode == 0
        # Other clients continue, a more specific rule wins, and without rules everything is
        # allowed.
        put(b.dir + "/ro/by b")
        c.leat("export", "add", A)
        put(a.dir + "/ro/by a")
        c.leat("export", "rm", A)
        expect_errno(errno.EROFS, put, a.dir + "/ro/by a")
        c.leat("export", "rm", "10.1.0.0/16")
        put(a.dir + "/ro/by a", b"again")
        assert get(b.dir + "/ro/by a") == b"again"


def test_who_writes_when_it_becomes_read_only_is_cut_off(c):
    with Client(c, A) as a, Client(c, B) as b:
        mine, other = [open(m.dir + "/" + name, "wb", buffering=0)
                       for m, name in ((a, "cut"), (b, "not cut"))]
        mine.write(b"before")
        other.write(b"before")
        os.fsync(mine.fileno())
        c.leat("export", "add", "--ro", A)

        def refused():
            try:
                mine.write(b"after")
                os.fsync(mine.fileno())
            except OSError as e:
                return e.errno in (errno.EIO, errno.EROFS, errno.ESTALE)
            return False

        assert refused() and refused()
        other.write(b" after")
        os.fsync(other.fileno())
        other.close()
        try:
            mine.close()
        except OSError:
            pass
        assert get(b.dir + "/not cut") == b"before after"
        assert get(b.dir + "/cut") == b"before"
        assert get(a.dir + "/cut") == b"before"  # in a new session, with the right to read
        no_exports(c)
        put(a.dir + "/cut", b"new")
        assert get(b.dir + "/cut") == b"new"


def test_root_is_squashed(c):
    secret, public = c.mnt() + "/secret", c.mnt() + "/public"
    os.mkdir(secret, 0o700)
    put(secret + "/file")
    put(c.mnt() + "/of root")
    os.chmod(c.mnt() + "/of root", 0o600)
    os.mkdir(public)
    os.chmod(public, 0o777)
    put(public + "/of user")
    os.chown(public + "/of user", USER, USER)
    os.chmod(public + "/of user", 0o600)
    with Client(c, A) as a, Client(c, B) as b:
        assert get(a.dir + "/of root") == b"x"  # caches it
        assert os.listdir(a.dir + "/secret") == ["file"] and get(a.dir + "/secret/file") == b"x"
        c.leat("export", "add", "--root-squash", "--anon-uid", "7777", "--anon-gid", "7778", A)
        expect_errno(errno.EACCES, os.listdir, a.dir + "/secret")
        expect_errno(errno.EACCES, get, a.dir + "/secret/file")
        # A lookup by another user does not open a way for root.
        os.chown(c.mnt() + "/secret", USER, USER)
        for _ in range(3):
            assert as_user(lambda: get(a.dir + "/secret/file"), USER, USER) == 0
            expect_errno(errno.EACCES, get, a.dir + "/secret/file")
        expect_errno(errno.EACCES, get, a.dir + "/of root")
        expect_errno(errno.EACCES, get, a.dir + "/public/of user")
        expect_errno(errno.EACCES, put, a.dir + "/new")
        expect_errno(errno.EPERM, os.chmod, a.dir + "/of root", 0o644)
        expect_errno(errno.EPERM, os.chown, a.dir + "/public/of user", 0, 0)
        expect_errno(errno.EPERM, os.setxattr, a.dir + "/public", "leat.quota",
                     b"bytes_hard=1000000 ")
        put(a.dir + "/public/made")
        st = os.lstat(b.dir + "/public/made")
        assert (st.st_uid, st.st_gid) == (7777, 7778), st
        r = a.leat("cp", "leat:/of root", c.dir + "/stolen")
        assert r.returncode == 1 and "permission denied" in r.stderr, r
        # Root's capabilities on its own machine do not help either.
        caps = "--inh-caps=+dac_override,+chown,+fowner"
        mighty = ["setpriv", "--reuid=%d" % USER, "--regid=%d" % USER, "--clear-groups", caps,
                  caps.replace("inh", "ambient")]
        for command in (["cat", "/of root"], ["chown", "%d" % USER, "/of root"],
                        ["chmod", "777", "/of root"], ["rm", "-f", "/of root"],
                        ["touch", "/not in the root"]):
            command[-1] = a.dir + command[-1]
            r = subprocess.run(mighty + command, stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert r.returncode != 0 and "ermi" in r.stderr, (command, r)
        # A user has exactly the rights of the user's groups.
        put(b.dir + "/public/of group", b"for us")
        os.chown(b.dir + "/public/of group", 0, GROUP)
        os.chmod(b.dir + "/public/of group", 0o640)
        read_it = lambda: get(a.dir + "/public/of group")
        assert as_user(read_it, USER, USER) == errno.EACCES
        assert as_user(read_it, USER, USER, [GROUP + 1, GROUP]) == 0
        # Users keep their ids, and root of another machine is root.
        assert as_user(lambda: put(a.dir + "/public/of user", b"mine"), USER, USER) == 0
        assert get(b.dir + "/public/of user") == b"mine" and get(b.dir + "/secret/file") == b"x"
        # The rule outlives a restart.
        c.kill("mds")
        c.start("mds")
        assert [r["network"] for r in rows(c)] == [A + "/32"]
        expect_errno(errno.EACCES, get, a.dir + "/of root")
        no_exports(c)
        assert get(a.dir + "/of root") == b"x"


def test_all_are_squashed(c):
    top = c.mnt() + "/drop"
    os.mkdir(top)
    os.chmod(top, 0o777)
    put(top + "/of user")
    os.chown(top + "/of user", USER, USER)
    os.chmod(top + "/of user", 0o600)
    with Client(c, A) as a:
        c.leat("export", "add", "--all-squash", "--anon-uid", "7777", "--anon-gid", "7777",
               "10.0.0.0/8")
        assert as_user(lambda: put(a.dir + "/drop/made"), USER, USER) == 0
        assert os.lstat(top + "/made").st_uid == 7777
        # The file is writable through this descriptor only.
        fd = os.open(a.dir + "/drop/ro", os.O_CREAT | os.O_RDWR, 0o444)
        os.ftruncate(fd, 10)
        os.posix_fallocate(fd, 0, 100)
        os.close(fd)
        assert os.stat(top + "/ro").st_size == 100
        expect_errno(errno.EACCES, os.truncate, a.dir + "/drop/ro", 1)
        assert as_user(lambda: get(a.dir + "/drop/of user"), USER, USER) == errno.EACCES
        no_exports(c)
        assert as_user(lambda: get(a.dir + "/drop/of user"), USER, USER) == 0


def test_the_table_is_kept_in_order(c):
    c.leat("export", "add", "--ro", "10.0.0.0/8")
    c.leat("export", "add", "--root-squash", "10.3.0.0/16")
    c.leat("export", "add", "--ro", "fd00:1::/32")
    c.leat("export", "add", "--all-squash", "10.3.0.0/16")
    assert [(r["network"], r["read_only"], r["squash"]) for r in rows(c)] == [
        ("10.3.0.0/16", False, "all"), ("10.0.0.0/8", True, "none"),
        ("fd00:1::/32", True, "none")], rows(c)
    for bad in ("10.1.0.0/8", "10.0.0.0/33", "10.1", "nonsense", "::1/129", ""):
        r = c.leat("export", "add", bad, check=False)
        assert r.returncode == 2, (bad, r)
    assert c.leat("export", "add", "--root-squash", "--anon-uid", "0", A,
                  check=False).returncode == 2
    assert c.leat("export", "rm", "10.9.0.0/16", check=False).returncode == 9
    # A rule must not lock out the machine that adds it.
    for everybody in ("127.0.0.0/8", "0.0.0.0/0", "::/0"):
        r = c.leat("export", "add", "--ro", everybody, check=False)
        assert r.returncode == 1 and "this machine" in r.stderr, r
    no_exports(c)
    assert rows(c) == []


def test_servers_that_have_not_confirmed_are_named(c):
    """A server that does not receive the first rule may serve reads of sessions that have ended."""
    no_exports(c)
    time.sleep(1)  # several heartbeats: every server has received the empty list

    def add(code, *words):
        r = c.leat("export", "add", "--ro", A, *words, check=False)
        assert r.returncode == code, r
        return r

    c.kill("ossd2", signal.SIGSTOP)
    try:
        r = add(5)
        assert "have not confirmed" in r.stderr and "cap_ttl_s" in r.stderr, r
        silent, = json.loads(add(5, "--json").stdout)["unconfirmed"]
        assert [t["id"] for t in c.status()["targets"] if t["state"] != "up"] == [silent]
        assert [row["network"] for row in rows(c)] == [A + "/32"]  # the rule applies nevertheless
    finally:
        c.kill("ossd2", signal.SIGCONT)
    heard = lambda: c.leat("export", "add", "--ro", A, check=False).returncode == 0
    wait_until(heard, 10, "it has heard of the row")
    assert json.loads(add(0, "--json").stdout) == {"exports": 1, "unconfirmed": []}
    # From now on a server without contact refuses reads, and a dead one serves none.
    c.kill("ossd2", signal.SIGSTOP)
    try:
        add(0)
    finally:
        c.kill("ossd2", signal.SIGCONT)
    no_exports(c)
    c.kill("ossd2")
    try:
        add(0)
    finally:
        c.start("ossd2")
    no_exports(c)


run_tests(globals())
