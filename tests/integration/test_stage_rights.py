#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Exactly the users who may read a source may read its staged copy: 4 modes of files in 4 modes of
folders, with and without access lists, plain and unpacked from archives, during staging and when
READY, for owner, group member, a user in the lists, and any other user. The test includes
directories above the data set and the files that list its names. If rights at the source are
reduced, the node's agent reduces them in all copies, even in those that are being made."""
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "lib"))
from cluster import BUILD, Cluster, free_ports, wait_until  # noqa: E402

OWNER, MEMBER, NAMED, ANY = 2001, 2002, 2003, 2004
GROUP = 3001
USERS = {"owner": (OWNER, OWNER), "member": (MEMBER, GROUP), "named": (NAMED, NAMED),
         "anybody": (ANY, ANY)}
FILES, FOLDERS = (0o600, 0o640, 0o644, 0o604), (0o700, 0o750, 0o755, 0o705)
LOOK = """
import os, sys
root = sys.stdin.readline().rstrip("\\n")
for line in sys.stdin:
    try:
        with open(os.path.join(root, line.rstrip("\\n")), "rb") as f:
            f.read(1)
        print(1)
    except OSError:
        print(0)
"""


def leat(*args, **kw):
    return subprocess.run([BUILD + "/leat", *args], check=True, text=True,
                          stdout=subprocess.PIPE, **kw).stdout


def may_read(root, paths, user):
    uid, gid = USERS[user]
    done = subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups",
                           "/usr/bin/python3", "-c", LOOK], input="\n".join([root, *paths]) + "\n",
                          text=True, stdout=subprocess.PIPE, check=True)
    return dict(zip(paths, done.stdout.split()))


def give(path, mode, acl):
    os.chown(path, OWNER, GROUP)
    os.chmod(path, mode)
    if acl:
        subprocess.run(["setfacl", "-m", "u:%d:%s" % (NAMED, acl), path], check=True)


def build(root, archives):
    """Makes every combination, as files or archives of one member. Returns readable paths."""
    paths = []
    for folder in FOLDERS:
        for acl in (False, True):
            d = "%o%s" % (folder, "l" if acl else "")
            os.makedirs(os.path.join(root, d))
            for mode in FILES:
                for list_of in (False, True):
                    name = "%o%s" % (mode, "l" if list_of else "")
                    path = os.path.join(root, d, name + (".tar" if archives else ""))
                    if archives:
                        with tarfile.open(path, "w") as t:
                            info = tarfile.TarInfo("in/member")
                            info.size, info.mode, info.uid = 3, 0o666, ANY
                            t.addfile(info, io.BytesIO(path[-3:].encode()))
                    else:
                        with open(path, "w") as f:
                            f.write(path[-20:])
                    give(path, mode, "r" if list_of else "")
                    paths.append(os.path.relpath(path, root))
            give(os.path.join(root, d), folder, "rx" if acl else "")
    os.chmod(root, 0o755)
    return paths


def compare(what, source, copy, paths, copied=lambda p: p):
    wrong = 0
    for user in USERS:
        want = may_read(source, paths, user)
        got = may_read(copy, [copied(p) for p in paths], user)
        for p in paths:
            if want[p] != got[copied(p)]:
                wrong += 1
                print("%s: %s of %s: source %s, copy %s" % (what, user, p, want[p], got[copied(p)]))
        if user == "owner":
            assert any(v == "1" for v in got.values()), what
    print("%s: %d of %d differ" % (what, wrong, len(paths) * len(USERS)))
    assert wrong == 0, what


def test_ready(mnt, local):
    src = os.path.join(mnt, "plain")
    os.mkdir(src)
    paths = build(src, False)
    leat("stage", "in", src, "--to", local)
    copy = leat("stage", "path", src, "--to", local).strip()
    compare("plain", src, copy, paths)
    for p in paths[::5]:
        a, b = os.stat(os.path.join(src, p)), os.stat(os.path.join(copy, p))
        assert (a.st_uid, a.st_gid) == (b.st_uid, b.st_gid), p
    return src, copy, paths


def test_older(src, copy, paths, local):
    """After rights at the source were reduced or extended, the next stage in updates the copy."""
    for p in paths[::3]:
        os.chmod(os.path.join(src, p), 0o600)
    for p in paths[1::3]:
        os.chmod(os.path.join(src, p), 0o644)
    os.chmod(os.path.join(src, "755"), 0o700)
    leat("stage", "in", src, "--to", local)
    compare("changed", src, copy, paths)
    return ("plain", src, copy, paths, lambda p: p)


def member(path):
    return path[:-len(".tar")] + "/in/member"


def test_unpacked(mnt, local):
    src = os.path.join(mnt, "packed")
    os.mkdir(src)
    paths = build(src, True)
    copy = json.loads(leat("stage", "in", src, "--to", local, "--unpack", "--json"))["path"]
    compare("unpacked", src, copy, paths, member)
    os.chmod(os.path.join(src, paths[2]), 0o600)
    os.chmod(os.path.join(src, "755l"), 0o700)
    leat("stage", "in", src, "--to", local, "--unpack")
    compare("unpacked again", src, copy, paths, member)
    return ("unpacked", src, copy, paths, member)


def homes(local):
    """Folders of copies that are not READY."""
    for name in os.listdir(os.path.join(local, ".leat")):
        home = os.path.join(local, ".leat", name)
        if os.path.isdir(home + "/data") and not os.path.exists(home + "/READY"):
            yield home


def catch(job, local, names):
    """Stops the job while a copy has all of these but is not READY. Returns the copy's folder."""
    while job.poll() is None:
        for home in homes(local):
            if all(os.path.exists(os.path.join(home, "data", n)) for n in names):
                job.send_signal(signal.SIGSTOP)
                if not os.path.exists(home + "/READY"):
                    return home
                job.send_signal(signal.SIGCONT)
        time.sleep(0.001)
    raise AssertionError("it was not seen in flight")


def test_coming(mnt, local, archives):
    """A file cannot be read before its rights are set, and never by a user without the right; then
    every user with the right can read it, even while other files are still missing."""
    what = "coming packed" if archives else "coming"
    src = os.path.join(mnt, what.replace(" ", "_"))
    os.mkdir(src)
    paths = build(src, archives)
    last = os.path.join(src, "zz" + (".tar" if archives else ""))
    with tarfile.open(last, "w") if archives else open(last, "wb") as f:
        if archives:
            info = tarfile.TarInfo("last")
            info.size = 24 << 20
            f.addfile(info, io.BytesIO(os.urandom(info.size)))
        else:
            f.write(os.urandom(4 << 20))
    os.chmod(last, 0o600)
    job = subprocess.Popen([BUILD + "/leat", "stage", "in", src, "--to", local] +
                           (["--unpack"] if archives else ["--max-rate", "2M"]),
                           stdout=subprocess.DEVNULL)
    of = member if archives else lambda p: p
    home = catch(job, local, [of(p) for p in paths])
    compare(what, src, home + "/data", paths, of)
    for user in USERS:
        parts = os.listdir(home + "/part")
        assert "1" not in may_read(home + "/part", parts, user).values(), user
    job.send_signal(signal.SIGCONT)
    assert job.wait() == 0


# ---- what is narrowed afterwards ----

class Agent:
    def __init__(self, c, local):
        self.addr, ready = "127.0.0.1:%d" % free_ports(1)[0], c.dir + "/agent"
        self.process = subprocess.Popen(
            [BUILD + "/leat", "agent", "--set", "dirs=" + local, "--set", "listen=" + self.addr,
             "--set", "rights_ms=300", "--ready-file", ready])
        wait_until(lambda: os.path.exists(ready), 30, "the agent")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def differ(source, copy, paths, of):
    wrong = []
    for user in USERS:
        want = may_read(source, paths, user)
        got = may_read(copy, [of(p) for p in paths], user)
        wrong += [(user, p) for p in paths if want[p] != got[of(p)]]
    return wrong


def soon(what, source, copy, paths, of):
    try:
        wait_until(lambda: not differ(source, copy, paths, of), 20, what)
    finally:
        compare(what, source, copy, paths, of)


def narrow(src, end):
    """Reduces a file's mode, a folder's mode, lists of both, an owner, a group."""
    os.chmod(os.path.join(src, "755", "644" + end), 0o600)
    os.chmod(os.path.join(src, "705"), 0o700)
    subprocess.run(["setfacl", "-b", os.path.join(src, "750l", "640l" + end)], check=True)
    subprocess.run(["setfacl", "-m", "u:%d:-" % NAMED, os.path.join(src, "700l")], check=True)
    os.chown(os.path.join(src, "755", "600" + end), ANY, GROUP)
    os.chown(os.path.join(src, "750"), OWNER, ANY)
    os.chown(os.path.join(src, "755l"), MEMBER, GROUP)


def test_agent(c, local, copies):
    """Others' copies, plain and unpacked: (source, copy, paths, path in the copy)."""
    with Agent(c, local):
        for what, src, copy, paths, of in copies:
            end = ".tar" if what == "unpacked" else ""
            narrow(src, end)
            soon(what + ", narrowed", src, copy, paths, of)
            os.chmod(src, 0o750)
            os.chown(src, OWNER, GROUP)
            soon(what + ", from above", src, copy, paths, of)
            os.chmod(src, 0o755)
            soon(what + ", back", src, copy, paths, of)
            manifest = os.path.dirname(copy) + "/manifest"
            assert "1" not in may_read("/", [manifest], "anybody").values(), what
            # The copy of a removed file is its owner's only, as is one whose source was replaced.
            gone, other = (os.path.join("755", n + end) for n in ("644l", "604"))
            os.unlink(os.path.join(src, gone))
            os.chmod(os.path.join(src, other), 0o600)
            soon(what + ", hidden", src, copy, [other], of)
            os.rename(os.path.join(src, other), os.path.join(src, "hidden"))
            with open(os.path.join(src, other), "w") as f:
                f.write("anything")
            os.chmod(os.path.join(src, other), 0o666)
            os.chown(os.path.join(src, other), ANY, ANY)
            wait_until(lambda: [may_read(copy, [of(gone)], u)[of(gone)] for u in USERS] ==
                       ["1", "0", "0", "0"], 20, "the copy of what is gone")
            time.sleep(1)
            assert all(may_read(copy, [of(other)], u)[of(other)] == "0" for u in USERS
                       if u != "owner"), what


def test_agent_coming(c, mnt, local):
    """The agent itself makes the copy: files that exist already, and files that follow."""
    src = os.path.join(mnt, "slow")
    os.makedirs(src + "/d")
    for i in range(12):
        with open("%s/d/%02d" % (src, i), "wb") as f:
            f.write(os.urandom(1 << 20))
        os.chown("%s/d/%02d" % (src, i), OWNER, GROUP)
    with Agent(c, local) as agent:
        job = subprocess.Popen([BUILD + "/leat", "stage", "in", src, "--agent", agent.addr,
                                "--max-rate", "1M"], stdout=subprocess.DEVNULL)

        def there():
            assert job.poll() is None, "it was not seen in flight"
            for home in homes(local):
                names = [n for n in os.listdir(home + "/data/d") if n] \
                    if os.path.isdir(home + "/data/d") else []
                if names:
                    return home + "/data/d", names
            return None

        wait_until(there, 60, "the first file")
        data, names = there()
        assert "0" not in may_read(data, names, "anybody").values()
        for n in os.listdir(src + "/d"):
            os.chmod(os.path.join(src, "d", n), 0o600)
        wait_until(lambda: "1" not in may_read(data, names, "anybody").values(), 20, "narrowing")
        assert there(), "it was READY before it was narrow"
        assert job.wait() == 0
        compare("narrowed while it came", src + "/d", data, sorted(os.listdir(src + "/d")))


def path_as(user, what, local):
    uid, gid = USERS[user]
    done = subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups",
                           BUILD + "/leat", "stage", "path", what, "--to", local], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.strip()


def test_named(mnt, local):
    """Who may read all files may read the lists of their names; who may read some, finds those."""
    src = os.path.join(mnt, "named")
    os.mkdir(src)
    for name, mode in (("a", 0o644), ("b", 0o640)):
        with open(os.path.join(src, name), "w") as f:
            f.write(name)
        os.chown(os.path.join(src, name), OWNER, GROUP)
        os.chmod(os.path.join(src, name), mode)
    os.chown(src, OWNER, GROUP)
    leat("dataset", "create", "some@v1", src)
    leat("stage", "in", "some@v1", "--to", local)
    copy = leat("stage", "path", "some@v1", "--to", local).strip()
    note = os.path.dirname(copy) + "/named/some@v1"
    done = act("anybody", "print(os.listdir(sys.argv[1]))", local + "/.leat/sources")
    assert done.returncode, done.stdout
    for user in USERS:
        assert path_as(user, "some@v1", local) == (0, copy), (user, path_as(user, "some@v1", local))
        all_of_it = user in ("owner", "member")
        assert may_read("/", [note], user)[note] == "01"[all_of_it], user
        assert may_read(copy, ["b"], user)["b"] == "01"[all_of_it], user
        assert may_read(copy, ["a"], user)["a"] == "1", user


def test_above(mnt, local):
    """The data set is open, but its parent is not, nor are the files that list its names."""
    top = os.path.join(mnt, "home")
    src = os.path.join(top, "set")
    os.makedirs(src)
    with open(os.path.join(src, "a"), "w") as f:
        f.write("secret")
    os.chmod(os.path.join(src, "a"), 0o644)
    os.chown(top, OWNER, GROUP)
    os.chown(src, OWNER, GROUP)
    os.chmod(top, 0o750)
    leat("stage", "in", src, "--to", local)
    copy = leat("stage", "path", src, "--to", local).strip()
    compare("above", src, copy, ["a"])
    home = os.path.dirname(copy)
    assert path_as("member", src, local) == (0, copy)
    code, said = path_as("anybody", os.path.basename(os.path.dirname(copy)), local)
    assert code == 10 and "private" in said and "stage in" in said, (code, said)
    got = may_read(home, ["manifest", "sums", "samples"], "anybody")
    assert "1" not in got.values(), got
    got = may_read(home, ["manifest", "sums"], "owner")
    assert "0" not in got.values(), got


def act(user, code, *args):
    uid, gid = USERS[user]
    return subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups",
                           "/usr/bin/python3", "-c", "import os, sys\n" + code, *args], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_swapped(c, mnt, local):
    """A user may write to a folder and its parent, list neither, and has one name in the folder. He
    moves that file into a new folder in the old one's place. No copy lists the other names to him,
    after an agent or a stage in by name."""
    copies = []
    for src, packed in ((mnt + "/swapped", False), (mnt + "/swapped_packed", True),
                        (c.dir + "/swapped_here", False)):
        os.makedirs(src + "/d")
        end = ".tar" if packed else ""
        for name in ("d/known", "d/hidden", "watched"):
            with tarfile.open(src + "/" + name + end, "w") if packed else \
                    open(src + "/" + name, "w") as f:
                if packed:
                    f.addfile(tarfile.TarInfo("member"))
                else:
                    f.write(name)
            give(src + "/" + name + end, 0o644, "")
        give(src + "/d", 0o733, "")
        give(src, 0o777, "")
        name = os.path.basename(src) + "@v1"
        if src.startswith(mnt):
            leat("dataset", "create", name, src)
        args = ["stage", "in", name if src.startswith(mnt) else src, "--to", local, "--json"]
        args += ["--unpack"] if packed else []
        copy = json.loads(leat(*args))["path"]
        assert act("anybody", "os.listdir(sys.argv[1])", copy + "/d").returncode, src
        swap = """os.chdir(sys.argv[1])
os.rename("d", "old")
os.mkdir("d")
os.rename("old/known%s", "d/known%s")
print(os.listdir("d"))""" % (end, end)
        done = act("anybody", swap, src)
        assert done.returncode == 0, done.stdout
        os.chmod(src + "/watched" + end, 0o600)
        copies.append((src, copy, "watched" + end, args))
    with Agent(c, local):
        for src, copy, watched, _ in copies:
            soon(src + ", swapped", src, copy, [watched], lambda p: p.replace(".tar", "/member"))
    for src, copy, _, args in copies:
        for after in ("agent", "stage in"):
            # By path the new folder is another data set.
            if after == "stage in" and "@" in args[2]:
                leat(*args)
            listed = act("anybody", "print(os.listdir(sys.argv[1]))", copy + "/d")
            assert listed.returncode, (after, src, listed.stdout)


def test_by_a_user(mnt, base):
    """Only root can change owners: fewer users may read a user's copy, and leat says so."""
    src, local = os.path.join(base, "mine"), os.path.join(base, "users")
    os.makedirs(os.path.join(src, "d"))
    for name, mode in (("open", 0o644), ("group", 0o640), ("own", 0o600)):
        path = os.path.join(src, "d", name)
        with open(path, "w") as f:
            f.write(name)
        os.chown(path, OWNER, GROUP)
        os.chmod(path, mode)
    os.makedirs(local)
    os.chown(local, MEMBER, GROUP)
    os.unlink(os.path.join(src, "d", "own"))
    run = ["setpriv", "--reuid", str(MEMBER), "--regid", str(GROUP), "--clear-groups",
           BUILD + "/leat", "stage"]
    out = subprocess.run([*run, "in", src, "--to", local], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    assert "fewer users" in out, out
    copy = subprocess.run([*run, "path", src, "--to", local], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()
    for user in USERS:
        want, got = (may_read(d, ["d/open", "d/group"], user) for d in (src, copy))
        assert all(got[p] <= want[p] for p in want), (user, want, got)
    assert "0" not in may_read(copy, ["d/open", "d/group"], "member").values()


def main():
    with Cluster(ossd=2, mounts=1, size="256M") as c:
        os.environ["LEAT_CONF"] = c.dev + "/conf"
        at = c.dir
        while at != "/" and not os.stat(at).st_mode & 0o1:
            os.chmod(at, os.stat(at).st_mode | 0o11)
            at = os.path.dirname(at)
        os.chmod(c.dev, 0o755)
        local = c.dir + "/local"
        os.mkdir(local)
        os.chmod(c.mnt(), 0o755)
        test_above(c.mnt(), local)
        test_named(c.mnt(), local)
        copies = [test_older(*test_ready(c.mnt(), local), local), test_unpacked(c.mnt(), local)]
        test_coming(c.mnt(), local, False)
        test_coming(c.mnt(), local, True)
        test_agent(c, local, copies)
        test_agent_coming(c, c.mnt(), local)
        test_swapped(c, c.mnt(), local)
        test_by_a_user(c.mnt(), c.dir)


main()
