#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""root stages out a user's directory while the user replaces its files and directories with links,
pipes and directories of others: no byte of another file is published, and published files have
exactly the owners and modes of the source. LEAT_LONG: 1,000 rounds."""
# timeout: 300
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from cluster import BUILD, Cluster, run_tests, wait_until

CLUSTER = {"mounts": 1, "ossd": 2, "size": "256M"}
ALICE = 12001
ROUNDS = 1000 if os.environ.get("LEAT_LONG") == "1" else 25
SECRET, OWN = b"SECRET-OF-ROOT--" * 512, b"mine-of-alice---" * 512

# Runs as alice: replaces what lies under these names, as fast as possible.
SWAPPER = r"""
import ctypes, os, random, sys, time
run, secret = sys.argv[1:3]
os.setgid(12001); os.setuid(12001)
libc = ctypes.CDLL(None, use_errno=True)
def exchange(a, b):
    return libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
rng = random.Random(20261127)
aside = run + "-aside"
pairs = []
for i in range(8):
    os.symlink(secret + "/f%d" % i, aside + "/link%d" % i)
    pairs.append((run + "/f%d" % i, aside + "/link%d" % i))
os.symlink(secret, aside + "/dirlink")
pairs.append((run + "/d", aside + "/dirlink"))
pairs.append((run + "/d/e", aside + "/e"))
os.symlink(secret, aside + "/e")
os.mkfifo(aside + "/pipe")
pairs.append((run + "/p", aside + "/pipe"))
pairs.append((run, aside + "/run"))
os.symlink(secret, aside + "/run")
print("ready", flush=True)
while os.getppid() == int(sys.argv[3]):
    a, b = rng.choice(pairs[:-1] if rng.random() < 0.9 else pairs)
    exchange(a, b)
    if rng.random() < 0.5:
        exchange(a, b)
    # Now and then as it was, for long enough to be published.
    if rng.random() < 0.001:
        for a, b in pairs:
            if os.path.islink(a) or not os.path.exists(a):
                exchange(a, b)
        time.sleep(0.3)
"""


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def fill(c):
    """Both trees get equal names, sizes and times."""
    run, secret = c.dir + "/job/run", c.dir + "/root/secret"
    names = ["f%d" % i for i in range(8)] + ["d/f0", "d/f1", "d/e/f0", "p"]
    for top, data in ((run, OWN), (secret, SECRET)):
        for n in names:
            write("%s/%s" % (top, n), data)
            os.utime("%s/%s" % (top, n), ns=(10**18, 10**18))
            os.chmod("%s/%s" % (top, n), 0o644)
        os.makedirs(top + "/e", exist_ok=True)
    write(secret + "/e/f0", SECRET)
    # A user who may not enter the directory may not read its files. alice cannot change its mode.
    os.chmod(c.dir + "/root", 0o700)
    os.makedirs(run + "-aside")
    for path in [c.dir + "/job", run + "-aside"] + \
            [os.path.join(at, n) for at, d, f in os.walk(c.dir + "/job") for n in d + f]:
        os.chown(path, ALICE, ALICE)
    os.chmod(c.dir, 0o755)
    return run, secret


def check(published, finished=True):
    """Each file is alice's, by content and by owner; an unfinished one belongs to root alone."""
    if not finished:
        st = os.lstat(published)
        assert (st.st_uid, st.st_mode & 0o777) in ((0, 0o700), (ALICE, 0o755)), st
    for at, dirs, files in os.walk(published):
        for name in files:
            path = os.path.join(at, name)
            if os.path.islink(path):
                continue
            st = os.lstat(path)
            with open(path, "rb") as f:
                data = f.read()
            assert b"SECRET" not in data, path
            if finished:
                assert (st.st_uid, st.st_mode & 0o777) == (ALICE, 0o644), (path, st)
        for name in dirs:
            path = os.path.join(at, name)
            if finished and not os.path.islink(path):
                assert os.lstat(path).st_uid == ALICE, path


def test_a_tree_whose_names_are_exchanged(c):
    run, secret = fill(c)
    published = c.mnt() + "/published"
    seen, done = {}, 0
    swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, run, secret, str(os.getpid())],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert swapper.stdout.readline() == "ready\n"
        for _ in range(ROUNDS):
            r = subprocess.run([BUILD + "/leat", "--conf", c.dev + "/conf", "stage", "out", run,
                                published, "--replace", "--json"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=120)
            seen[r.returncode] = seen.get(r.returncode, 0) + 1
            assert r.returncode in (0, 1, 5, 9, 10), (r.returncode, r.stdout, r.stderr)
            if r.returncode in (0, 5):
                done += 1
                check(published)
            for name in os.listdir(c.mnt()):
                if name.startswith(".leat-out-"):
                    check(c.mnt() + "/" + name, finished=False)
    finally:
        swapper.kill()
        swapper.wait()
    print("%d rounds, %d of them published, ended with %s, 0 foreign bytes" %
          (ROUNDS, done, json.dumps(seen)))
    assert len(seen) > 1, seen


def command(c, source, dest, *more, user=None):
    """Only its owner may read a key, so the user has one, too."""
    conf = c.dev + "/conf"
    if user and not os.path.exists(conf + "-user"):
        with open(conf, encoding="utf-8") as f:
            text = f.read()
        assert c.dev + "/key" in text, text
        shutil.copy(c.dev + "/key", c.dev + "/key-user")
        os.chown(c.dev + "/key-user", user, user)
        os.chmod(c.dev + "/key-user", 0o600)
        write(conf + "-user", text.replace(c.dev + "/key", c.dev + "/key-user").encode())
    return [BUILD + "/leat", "--conf", conf + ("-user" if user else ""), "stage", "out", source,
            dest, *more]


def out(c, source, dest, *more, user=None):
    return subprocess.run(command(c, source, dest, *more, user=user), capture_output=True,
                          text=True, timeout=120, user=user, group=user)


class slowly:
    """A slow `stage out` that runs, and has created its temporary directory (path)."""

    def __init__(self, c, source, dest, *more, rate="1K", user=None, again=None):
        self.parent = os.path.dirname(dest)
        before = set(os.listdir(self.parent)) - {again}
        self.p = subprocess.Popen(command(c, source, dest, "--max-rate", rate, *more, user=user),
                                  user=user, group=user, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        names = []
        wait_until(lambda: names.extend(n for n in set(os.listdir(self.parent)) - before
                                        if n.startswith(".leat-out-")) or names, 30, "a name")
        self.path = self.parent + "/" + names[0]
        wait_until(lambda: len(os.listdir(self.path)) > 1, 30, "something in it")

    def ended(self, kill=None):
        if kill:
            kill(self.p)
        err = self.p.communicate(timeout=60)[1]
        assert self.p.returncode != 0
        return err


def left_by_a_killed_call(c, source, dest, user=None):
    """Returns the temporary directory that a killed call left, with what it has written."""
    slow = slowly(c, source, dest, user=user)
    slow.ended(subprocess.Popen.kill)
    assert os.stat(slow.path).st_mode & 0o777 == 0o700
    mark = os.lstat(slow.path + "/" + os.path.basename(slow.path))
    assert (mark.st_size, mark.st_mode & 0o777) == (0, 0o600), mark
    return slow.path


def is_told(path, r):
    return os.path.basename(path) + ": what has this name was not made by" in r.stderr


def folders(c, name):
    """A local directory and one of the namespace, both of alice."""
    for top in (c.dir + "/" + name, c.mnt() + "/" + name):
        os.makedirs(top)
        os.chown(top, ALICE, ALICE)
        yield top


def source(c, name, n=8, size=2048):
    for i in range(n):
        write("%s/%s/f%d" % (c.dir, name, i), OWN[:size])
        os.chmod("%s/%s/f%d" % (c.dir, name, i), 0o644)
    return c.dir + "/" + name


def get(path):
    with open(path, "rb") as f:
        return f.read()


def test_what_others_have_put_in_the_way_is_not_written_through(c):
    """alice has guessed the name of root's temporary directory, and plants a link there."""
    top = c.dir + "/guess"
    write(top + "/src/sub/file", OWN)
    write(c.dir + "/target/file", SECRET)
    for shared in folders(c, "sticky"):
        os.chmod(shared, 0o1777)
        path = left_by_a_killed_call(c, top + "/src", shared + "/out2")
        subprocess.run(["rm", "-rf", path], check=True)
        for plant in ("dir", "link"):
            if plant == "link":
                os.symlink(c.dir + "/target", path)
            else:
                os.makedirs(path, 0o700)
                write(path + "/" + os.path.basename(path), b"")
                os.symlink(c.dir + "/target", path + "/sub")
                os.chown(path, ALICE, ALICE)
            r = out(c, top + "/src", shared + "/out2")
            assert r.returncode == 0 and is_told(path, r), (plant, r)
            assert os.path.lexists(path), plant
            assert get(c.dir + "/target/file") == SECRET, plant
            assert os.listdir(c.dir + "/target") == ["file"]
            assert get(shared + "/out2/sub/file") == OWN
            assert len(os.listdir(shared)) == 2, os.listdir(shared)
            subprocess.run(["rm", "-rf", shared + "/out2", path], check=True)


def test_what_others_have_moved_there_is_not_emptied(c):
    """alice renames a directory of root inside her own to the temporary name of a previous call."""
    src = source(c, "moved-src")
    for hers in folders(c, "hers"):
        for name in ("precious", "other"):
            write(hers + "/" + name + "/file", SECRET)
            os.chmod(hers + "/" + name, 0o700)
        path = left_by_a_killed_call(c, src, hers + "/out")
        subprocess.run(["rm", "-rf", path], check=True)
        os.rename(hers + "/precious", path)
        r = out(c, src, hers + "/out")
        assert r.returncode == 0 and is_told(path, r), r
        assert get(path + "/file") == SECRET
        # No later call would find a directory here: a failed or interrupted call leaves none, ...
        slow = slowly(c, src, hers + "/out", "--replace")
        slow.ended(subprocess.Popen.terminate)
        names = sorted([os.path.basename(path), "other", "out"])
        assert sorted(os.listdir(hers)) == names, os.listdir(hers)
        # ... nor does a call that replaces its destination, ...
        r = out(c, src, hers + "/out", "--replace")
        assert r.returncode == 0, r
        assert sorted(os.listdir(hers)) == names, os.listdir(hers)
        assert len(os.listdir(hers + "/out")) == 8
        # ... and a call removes only what it has made.
        slow = slowly(c, src, hers + "/out", "--replace")
        os.rename(slow.path, hers + "/aside")
        os.rename(hers + "/other", slow.path)
        err = slow.ended(subprocess.Popen.terminate)
        assert "was not removed" in err, err
        assert get(slow.path + "/file") == SECRET, err


def test_where_a_group_may_write_it_goes_on(c):
    """A directory made with umask 002 is group-writable."""
    src = source(c, "group-src")
    for top in folders(c, "group"):
        os.chmod(top, 0o775)
        path = left_by_a_killed_call(c, src, top + "/out")
        write(path + "/f7", OWN[:2048])
        inodes = [os.stat(path + n).st_ino for n in ("", "/f7")]
        r = out(c, src, top + "/out")
        assert r.returncode == 0 and not r.stderr, r
        assert [os.stat(top + "/out" + n).st_ino for n in ("", "/f7")] == inodes
        assert os.listdir(top) == ["out"] and len(os.listdir(top + "/out")) == 8


def test_the_rest_of_what_was_replaced_is_removed_by_the_next_call(c):
    """The first call fails on a file that alice may not remove."""
    src = source(c, "rest-src")
    for top in folders(c, "rest"):
        dest = top + "/out"
        r = out(c, src, dest, user=ALICE)
        assert r.returncode == 0, r
        write(dest + "/sub/file", SECRET)
        r = out(c, src, dest, "--replace", user=ALICE)
        name = [n for n in os.listdir(top) if n != "out"][0]
        assert r.returncode != 0 and name in r.stderr, r
        assert sorted(os.listdir(top + "/" + name)) == [name, "sub"]
        assert os.stat(top + "/" + name).st_mode & 0o777 == 0o700
        assert os.stat("%s/%s/%s" % (top, name, name)).st_mode & 0o777 == 0o400
        assert len(os.listdir(dest)) == 8
        os.chown(top + "/" + name + "/sub", ALICE, ALICE)
        r = out(c, src, dest, "--replace", user=ALICE)
        assert r.returncode == 0, r
        assert os.listdir(top) == ["out"] and len(os.listdir(dest)) == 8


def test_what_could_not_be_published_leaves_nothing_or_goes_on(c):
    """Directories without write permission, and a destination that another program has made."""
    src = source(c, "bare-src/sub/er", 3)
    for path in (src, os.path.dirname(src)):
        os.chmod(path, 0o555)
    src = c.dir + "/bare-src"
    for at, dirs, files in os.walk(src):
        for path in [at] + [os.path.join(at, n) for n in files]:
            os.chown(path, ALICE, ALICE)
    for top in folders(c, "bare"):
        for random in (False, True):
            path = left_by_a_killed_call(c, src, top + "/out", user=ALICE)
            if random:
                os.remove(path + "/" + os.path.basename(path))
            subprocess.run(["rm", "-rf", path + "/sub"], check=True)
            slow = slowly(c, src, top + "/out", rate="8K", user=ALICE,
                          again=None if random else os.path.basename(path))
            assert (slow.path != path) == random
            os.mkdir(top + "/out")
            err = slow.ended()
            assert "exists already" in err, err
            assert sorted(os.listdir(top)) == [os.path.basename(path), "out"], (random, err)
            os.rmdir(top + "/out")
            if not random:
                inode = os.stat(path).st_ino
                assert out(c, src, top + "/out", user=ALICE).returncode == 0
                assert os.stat(top + "/out").st_ino == inode
                mode = os.stat(top + "/out/sub").st_mode & 0o777
                assert mode == 0o555, (top, oct(mode))
                # Neither do they keep the replaced tree, ...
                r = out(c, src, top + "/out", "--replace", user=ALICE)
                assert r.returncode == 0 and os.listdir(top) == ["out"], (r, os.listdir(top))
                subprocess.run(["rm", "-rf", top + "/out"], check=True)
                # ... nor what a killed call has left and is not needed.
                path = left_by_a_killed_call(c, src, top + "/out", user=ALICE)
                os.makedirs(path + "/sub", exist_ok=True)
                write(path + "/sub/gone", OWN)
                os.chown(path + "/sub", ALICE, ALICE)
                os.chmod(path + "/sub", 0o555)
                r = out(c, src, top + "/out", user=ALICE)
                assert r.returncode == 0, r
                assert os.listdir(top + "/out/sub") == ["er"], os.listdir(top + "/out/sub")
                subprocess.run(["rm", "-rf", top + "/out"], check=True)


# Runs as alice: replaces what root writes into her directory with a link, as soon as it appears.
LEADER = r"""
import os, sys, time
hers, target = sys.argv[1:3]
os.setgid(12001); os.setuid(12001)
print("ready", flush=True)
for _ in range(6000):
    names = [n for n in os.listdir(hers) if n.startswith(".leat-out-")]
    if names:
        os.rename(hers + "/" + names[0], hers + "/aside")
        os.symlink(target, hers + "/" + names[0])
        break
    time.sleep(0.01)
"""


def test_root_writes_into_the_directory_of_a_user(c):
    """alice may move entries of her directory, but cannot lead root anywhere else."""
    top = c.dir + "/into"
    hers, target = top + "/hers", top + "/target"
    for i in range(12):
        write("%s/src/f%d" % (top, i), OWN)
    write(target + "/f0", SECRET)
    os.mkdir(hers)
    os.symlink(target, hers + "/link")
    for path in (hers, hers + "/link"):
        os.lchown(path, ALICE, ALICE)
    before = os.lstat(target + "/f0")

    r = out(c, top + "/src", hers + "/plain")
    assert r.returncode == 0, r
    assert len(os.listdir(hers + "/plain")) == 12
    r = out(c, top + "/src", hers + "/link/out")
    assert r.returncode == 10 and "a link of another user" in r.stderr, r
    leader = subprocess.Popen([sys.executable, "-c", LEADER, hers, target],
                              stdout=subprocess.PIPE, text=True)
    assert leader.stdout.readline() == "ready\n"
    r = out(c, top + "/src", hers + "/out", "--max-rate", "24K")
    assert leader.wait() == 0
    assert r.returncode != 0 and "put another in its place" in r.stderr, r
    assert os.listdir(target) == ["f0"]
    after = os.lstat(target + "/f0")
    assert (after.st_mode, after.st_uid, after.st_mtime_ns, after.st_nlink) == \
        (before.st_mode, before.st_uid, before.st_mtime_ns, before.st_nlink)
    with open(target + "/f0", "rb") as f:
        assert f.read() == SECRET
    assert len(os.listdir(hers + "/aside")) in (0, 12)


run_tests(globals())
