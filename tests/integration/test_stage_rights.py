#!/usr/bin/env python3
# timeout: 120
"""Who may read a staged copy is who may read its source, and nobody else: 4 modes of files in 4
modes of folders, with and without access lists, as they lie and unpacked from archives, while it
comes and when it is READY, as owner, member of the group, a user whom lists name, and anybody. Also
what lies above the data set, and what tells of all of it."""
import io
import json
import os
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "lib"))
from cluster import BUILD, Cluster  # noqa: E402

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
    """Every combination, as files or as archives of one member; the paths of what can be read."""
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
    """What is narrowed or widened at the source afterwards."""
    for p in paths[::3]:
        os.chmod(os.path.join(src, p), 0o600)
    for p in paths[1::3]:
        os.chmod(os.path.join(src, p), 0o644)
    os.chmod(os.path.join(src, "755"), 0o700)
    leat("stage", "in", src, "--to", local)
    compare("changed", src, copy, paths)


def test_unpacked(mnt, local):
    src = os.path.join(mnt, "packed")
    os.mkdir(src)
    paths = build(src, True)
    copy = json.loads(leat("stage", "in", src, "--to", local, "--unpack", "--json"))["path"]
    compare("unpacked", src, copy, paths, lambda p: p[:-len(".tar")] + "/in/member")


def test_coming(mnt, local):
    """Nothing of a file can be read before its rights are there, nor by whom it is not for."""
    src = os.path.join(mnt, "coming")
    os.mkdir(src)
    paths = []
    for n, mode in enumerate(FILES * 2):
        with open(os.path.join(src, str(n)), "wb") as f:
            f.write(os.urandom(1 << 20))
        give(os.path.join(src, str(n)), mode, "")
        paths.append(str(n))
    job = subprocess.Popen([BUILD + "/leat", "stage", "in", src, "--to", local, "--max-rate", "2M"],
                           stdout=subprocess.DEVNULL)
    want = {u: may_read(src, paths, u) for u in USERS}
    seen = 0
    while job.poll() is None:
        for home in os.listdir(os.path.join(local, ".leat")):
            home = os.path.join(local, ".leat", home)
            if not os.path.exists(os.path.join(home, "data", paths[0])) and \
                    not os.path.exists(os.path.join(home, "part", "0")):
                continue
            for user in USERS:
                parts = may_read(home + "/part", paths, user)
                assert "1" not in parts.values(), "part files are open to %s" % user
                got = may_read(home + "/data", paths, user)
                for p in paths:
                    assert got[p] <= want[user][p], (user, p)
            seen += 1
        time.sleep(0.05)
    assert job.returncode == 0 and seen, (job.returncode, seen)
    print("looked %d times while it came" % seen)


def test_above(mnt, local):
    """The data set is open, what lies above it is not; nor is what tells of its files."""
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
    got = may_read(home, ["manifest", "sums", "samples"], "anybody")
    assert "1" not in got.values(), got
    got = may_read(home, ["manifest", "sums"], "owner")
    assert "0" not in got.values(), got


def test_by_a_user(mnt, base):
    """Who is not root cannot give files away: fewer may read them, and that is told."""
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
        test_older(*test_ready(c.mnt(), local), local)
        test_unpacked(c.mnt(), local)
        test_coming(c.mnt(), local)
        test_by_a_user(c.mnt(), c.dir)


main()
