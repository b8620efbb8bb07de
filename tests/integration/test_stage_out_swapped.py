#!/usr/bin/env python3
"""root stages out a user's directory while the user exchanges its files and directories for links,
pipes and directories of others: no byte of another file is published, and what is published has the
owners and modes of the source, never more. LEAT_LONG: 1,000 rounds."""
# timeout: 300
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from cluster import BUILD, Cluster, run_tests, wait_until

CLUSTER = {"mounts": 1, "ossd": 2, "size": "256M"}
ALICE = 12001
ROUNDS = 1000 if os.environ.get("LEAT_LONG") == "1" else 25
SECRET, OWN = b"SECRET-OF-ROOT--" * 512, b"mine-of-alice---" * 512

# As alice: what lies under these names is now this, now that, as fast as it goes.
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
    """The same names, sizes and times in both."""
    run, secret = c.dir + "/job/run", c.dir + "/root/secret"
    names = ["f%d" % i for i in range(8)] + ["d/f0", "d/f1", "d/e/f0", "p"]
    for top, data in ((run, OWN), (secret, SECRET)):
        for n in names:
            write("%s/%s" % (top, n), data)
            os.utime("%s/%s" % (top, n), ns=(10**18, 10**18))
            os.chmod("%s/%s" % (top, n), 0o644)
        os.makedirs(top + "/e", exist_ok=True)
    write(secret + "/e/f0", SECRET)
    # Who may not enter may not read, whatever the files say; alice cannot change it.
    os.chmod(c.dir + "/root", 0o700)
    os.makedirs(run + "-aside")
    for path in [c.dir + "/job", run + "-aside"] + \
            [os.path.join(at, n) for at, d, f in os.walk(c.dir + "/job") for n in d + f]:
        os.chown(path, ALICE, ALICE)
    os.chmod(c.dir, 0o755)
    return run, secret


def check(published, finished=True):
    """Each file is alice's, by content and by owner; what is not finished is root's alone."""
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


def out_name(source, dest):
    """Under which name root writes, seen while it is slow; what it has written is left there."""
    parent = os.path.dirname(dest)
    slow = subprocess.Popen([BUILD + "/leat", "stage", "out", source, dest, "--max-rate", "1K"],
                            stdout=subprocess.DEVNULL)
    names = []
    wait_until(lambda: names.extend(n for n in os.listdir(parent)
                                    if n.startswith(".leat-out-")) or names, 30, "a name")
    slow.kill()
    slow.wait()
    path = parent + "/" + names[0]
    assert os.stat(path).st_mode & 0o777 == 0o700
    return path


def test_what_others_have_put_in_the_way_is_not_written_through(c):
    """alice has guessed the name under which root will write, and put a link there."""
    top = c.dir + "/guess"
    write(top + "/src/sub/file", OWN)
    os.makedirs(top + "/shared")
    # It is sticky: the name follows from those of source and destination.
    os.chmod(top + "/shared", 0o1777)
    write(c.dir + "/target/file", SECRET)
    out2 = [BUILD + "/leat", "stage", "out", top + "/src", top + "/shared/out2"]
    path = out_name(top + "/src", top + "/shared/out2")
    subprocess.run(["rm", "-rf", path], check=True)
    for plant in ("dir", "link"):
        if plant == "link":
            os.symlink(c.dir + "/target", path)
        else:
            os.makedirs(path)
            os.symlink(c.dir + "/target", path + "/sub")
            os.chown(path, ALICE, ALICE)
        r = subprocess.run(out2, capture_output=True, text=True)
        assert r.returncode == 0, (plant, r.stdout, r.stderr)
        assert not os.path.lexists(path), plant
        with open(c.dir + "/target/file", "rb") as f:
            assert f.read() == SECRET, plant
        assert os.listdir(c.dir + "/target") == ["file"]
        with open(top + "/shared/out2/sub/file", "rb") as f:
            assert f.read() == OWN
        subprocess.run(["rm", "-rf", top + "/shared/out2"], check=True)


def test_what_others_have_moved_there_is_not_emptied(c):
    """alice moves what is root's alone, and lies in her directory, to the name of a former call."""
    top = c.dir + "/moved"
    hers = top + "/hers"
    for i in range(8):
        write("%s/src/f%d" % (top, i), OWN)
    write(hers + "/precious/file", SECRET)
    os.chmod(hers + "/precious", 0o700)
    os.chown(hers, ALICE, ALICE)
    path = out_name(top + "/src", hers + "/out")
    subprocess.run(["rm", "-rf", path], check=True)
    os.rename(hers + "/precious", path)
    out = [BUILD + "/leat", "stage", "out", top + "/src", hers + "/out"]
    r = subprocess.run(out, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r
    with open(path + "/file", "rb") as f:
        assert f.read() == SECRET
    # Nobody would find it again: who fails or is interrupted leaves nothing there, ...
    slow = subprocess.Popen(out + ["--replace", "--max-rate", "1K"], stdout=subprocess.DEVNULL)
    wait_until(lambda: len(os.listdir(hers)) == 3, 30, "another name")
    slow.terminate()
    assert slow.wait(60) != 0
    assert sorted(os.listdir(hers)) == sorted([os.path.basename(path), "out"]), os.listdir(hers)
    # ... nor who puts it in the place of another.
    r = subprocess.run(out + ["--replace"], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r
    assert sorted(os.listdir(hers)) == sorted([os.path.basename(path), "out"]), os.listdir(hers)
    assert len(os.listdir(hers + "/out")) == 8


# As alice: what root writes into her directory, as soon as it is there, is a link instead.
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
    """alice may take away what is hers to name, and leads root nowhere else."""
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

    def out(to, *more):
        return subprocess.run([BUILD + "/leat", "--conf", c.dev + "/conf", "stage", "out",
                               top + "/src", to, *more], capture_output=True, text=True,
                              timeout=120)

    r = out(hers + "/plain")
    assert r.returncode == 0, r
    assert len(os.listdir(hers + "/plain")) == 12
    r = out(hers + "/link/out")
    assert r.returncode == 10 and "a link of another user" in r.stderr, r
    leader = subprocess.Popen([sys.executable, "-c", LEADER, hers, target],
                              stdout=subprocess.PIPE, text=True)
    assert leader.stdout.readline() == "ready\n"
    r = out(hers + "/out", "--max-rate", "24K")
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
