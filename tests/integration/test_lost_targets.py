#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Targets whose disks died are given up: immediately if others have replicas of their chunks, else
with the names of the files that lose data. Every byte is compared; reads of lost data fail and
never return zeros. The metadata server is killed in between.

timeout: 150
waits: yes
"""
import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BUILD, Cluster, expect_errno, wait_until  # noqa: E402
from test_retire import assert_gone, assert_gone_for_good, metric, target_of  # noqa: E402

# The lease is long, so that no target is down because the machine is slow. Targets that are down
# are not replaced automatically, and a request that waited for lost data would outlast this test.
CONF = {"mds": {"lease_ms": 10000, "replace_after_ms": 86400000,
                "default_width": 64},
        "client": {"request_timeout_ms": 600000}}


def write(path, size, sums):
    data = os.urandom(size)
    with open(path, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())
    sums[path] = hashlib.sha256(data).hexdigest()


def read(path):
    """Reads from the servers."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    with open(fd, "rb") as f:
        return f.read()


def compare(sums):
    for path, want in sums.items():
        assert hashlib.sha256(read(path)).hexdigest() == want, path


def state(c, target):
    rows = json.loads(c.leat("target", "list", "--all", "--json").stdout)["targets"]
    return [t["state"] for t in rows if t["id"] == target][0]


def die(c, name):
    """Kills the server, and waits until its target is down."""
    c.kill(name)
    wait_until(lambda: state(c, target_of(c, name)) == "down", 20, name + " is down")


def come_back(c, name):
    c.start(name)
    wait_until(lambda: state(c, target_of(c, name)) == "up", 20, name + " is up")


def whole(c):
    def is_whole():
        h = c.status()["mds"]["chains"]
        return h["whole"] == h["n"] and h["syncing"] == 0

    wait_until(is_whole, 60, "all copies are there")


def remove(c, *args, check=True):
    return c.leat("target", "remove", "--lost", *[str(a) for a in args], check=check)


def settle(c, n):
    """Waits until periodic reports and figures show n targets."""
    wait_until(lambda: c.status_of_mount()["targets"] == n, 30, "the mount has heard of it")
    wait_until(lambda: metric(c, "leat_mds_targets") == metric(c, "leat_mds_targets_up") == n and
               metric(c, "leat_mds_cluster_capacity_bytes") ==
               sum(t["capacity"] for t in c.status()["targets"]), 30, "the figures are new")


def test_others_have_copies(c):
    """The metadata server is killed after it has begun; the next one continues."""
    sums, two = {}, c.mnt() + "/two"
    os.mkdir(two)
    c.leat("layout", "set", "--replicas", "2", two)
    for i in range(12):
        write("%s/f%d" % (two, i), 700000 + i, sums)
    victim = target_of(c, "ossd6")
    p = remove(c, victim, check=False)
    assert p.returncode == 1 and "is up" in p.stderr and "drain" in p.stderr, p
    p = remove(c, 77, check=False)
    assert p.returncode == 9 and "77" in p.stderr, p

    die(c, "ossd6")
    p = c.leat("target", "remove", str(victim), check=False)
    assert p.returncode == 1 and "--lost" in p.stderr, p
    shutil.rmtree(c.dev + "/ossd6")
    p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "target", "remove", "--lost",
                          str(victim)], env=c.env, stdin=subprocess.DEVNULL)
    wait_until(lambda: "target %d is being given up" % victim in c.log("mds"), 30, "it has begun")
    c.kill("mds")
    c.start("mds")
    assert p.wait(timeout=600) == 0
    whole(c)
    settle(c, 5)
    assert_gone_for_good(c, {victim}, 5)
    compare(sums)
    write(two + "/new", 3 << 20, sums)
    write(c.mnt() + "/new", 6 << 20, sums)
    compare(sums)
    for path in sums:
        os.unlink(path)


def test_of_two_that_go_together(c):
    """Giving up the one that died first costs no data: the other was complete when it died."""
    sums, two = {}, c.mnt() + "/two"
    for i in range(24):
        write("%s/g%d" % (two, i), 4 << 20, sums)
    a, b = target_of(c, "ossd4"), target_of(c, "ossd5")
    die(c, "ossd4")
    die(c, "ossd5")
    p = remove(c, a, b, check=False)
    assert p.returncode == 1 and "files would lose data" in p.stderr and "/two/g" in p.stderr, p
    come_back(c, "ossd5")
    remove(c, a)
    whole(c)
    settle(c, 4)
    gone = {a, target_of(c, "ossd6")}
    assert_gone(c, gone, 4)
    compare(sums)
    for path in sums:
        os.unlink(path)
    p = c.run("start", "ossd4", check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert p.returncode != 0, "a target that was given up may not come back"
    assert "target %d was removed: refused (given up as lost" % a in c.log("mds")
    p = c.leat("target", "add", str(a), check=False)
    assert p.returncode == 1 and "given up" in p.stderr, p
    assert_gone(c, gone, 4)


def lost_of(p):
    """Parses the command's JSON: the paths, and the number of files without a name."""
    said = json.loads(p.stdout)
    assert said["files"] == len(said["lost"]), said
    return {f["path"] for f in said["lost"] if "path" in f}, \
        len([f for f in said["lost"] if "path" not in f])


def assert_lost(path):
    """Every access to the file's bytes fails: none returns zeros, or waits."""
    expect_errno(errno.EIO, read, path)
    size, fd = os.stat(path).st_size, os.open(path, os.O_RDWR)
    expect_errno(errno.EIO, lambda: ([os.pwrite(fd, b"x" * 512, at)
                                      for at in range(0, size, 512 << 10)], os.fsync(fd)))
    with contextlib.suppress(OSError):
        os.close(fd)
    expect_errno(errno.EIO, os.truncate, path, 4)
    expect_errno(errno.EIO, os.truncate, path, 1 << 30)


def test_it_had_the_only_copy(c):
    sums, root = {}, c.mnt()
    os.makedirs(root + "/one/deep er")
    for i in range(24):
        write("%s/one/deep er/s%d" % (root, i), 100, sums)
    for i in range(3):
        write("%s/one/large%d" % (root, i), 8 << 20, sums)
    unlinked = os.open(root + "/one/unlinked", os.O_CREAT | os.O_RDWR)
    os.write(unlinked, os.urandom(8 << 20))
    os.fsync(unlinked)
    os.unlink(root + "/one/unlinked")
    # Its end is unsettled while it is open for writing.
    writes = os.open(root + "/one/written", os.O_CREAT | os.O_RDWR)
    os.write(writes, os.urandom(3 << 20))
    os.fsync(writes)
    victim = target_of(c, "ossd3")
    die(c, "ossd3")
    p = remove(c, victim, check=False)
    assert p.returncode == 1 and "--accept-loss" in p.stderr and "/one/large0" in p.stderr, p
    p = remove(c, "--json", victim, check=False)
    names, n_unnamed = lost_of(p)
    assert p.returncode == 1 and json.loads(p.stdout)["state"] == "refused", p
    assert {"/one/large%d" % i for i in range(3)} <= names and n_unnamed == 1, (names, n_unnamed)
    # The refused command has changed nothing.
    come_back(c, "ossd3")
    whole(c)
    compare(sums)

    die(c, "ossd3")
    remove(c, "--accept-loss", "--list", c.dir + "/list", victim)
    with open(c.dir + "/list") as f:
        listed = {line.rstrip("\n") for line in f if line.startswith("/")}
    assert listed == names, (listed, names)
    settle(c, 3)
    h = c.status()["mds"]["chains"]
    assert h["lost"] >= 1 and h["down"] == 0, h
    assert c.leat("status", "--check", "--timeout", "60", check=False).returncode == 0
    p = c.leat("fsck", check=False)
    assert p.returncode == 4 and all(name in p.stdout for name in names), p
    os.posix_fadvise(unlinked, 0, 0, os.POSIX_FADV_DONTNEED)
    expect_errno(errno.EIO, lambda: [os.pread(unlinked, 512, at)
                                     for at in range(0, 8 << 20, 512 << 10)])
    os.close(unlinked)
    with contextlib.suppress(OSError):
        os.close(writes)
    expect_errno(errno.EIO, read, root + "/one/written")
    os.unlink(root + "/one/written")
    names.remove("/one/written")

    lost = {root + name for name in names}
    assert lost < set(sums), lost
    compare({path: want for path, want in sums.items() if path not in lost})
    for path in lost:
        assert_lost(path)
    # New data goes to other chains.
    for path in sorted(lost)[:2]:
        write(path, 5 << 20, sums)
        lost.remove(path)
    for i in range(12):
        write("%s/one/new%d" % (root, i), 5 << 20, sums)
    for path in lost:
        os.unlink(path)
        del sums[path]
    compare(sums)
    wait_until(lambda: c.status()["mds"]["removals_waiting"] == 0, 30, "space comes back")
    assert_gone_for_good(c, {victim, target_of(c, "ossd4"), target_of(c, "ossd6")}, 3)
    compare(sums)


def test_its_disk_comes_back(c):
    """Data that only this disk had is back, but no other data of it."""
    sums, root = {}, c.mnt()
    os.mkdir(root + "/back")
    os.mkdir(root + "/back2")
    c.leat("layout", "set", "--replicas", "2", root + "/back2")
    for i in range(6):
        write("%s/back/large%d" % (root, i), 8 << 20, sums)
    for i in range(8):
        write("%s/back2/f%d" % (root, i), 3 << 20, sums)
    victim, other = target_of(c, "ossd2"), target_of(c, "ossd1")
    lost = c.status()["mds"]["chains"]["lost"]
    die(c, "ossd2")
    p = remove(c, "--json", "--accept-loss", victim)
    names, _ = lost_of(p)
    assert {"/back/large%d" % i for i in range(6)} <= names, names
    settle(c, 2)
    # Meanwhile one file is removed, one is replaced, and replicas are written without the disk.
    os.unlink(root + "/back/large0")
    del sums[root + "/back/large0"]
    write(root + "/back/large1", 5 << 20, sums)
    for i in range(8):
        write("%s/back2/f%d" % (root, i), 3 << 20, sums)
    expect_errno(errno.EIO, read, root + "/back/large2")
    wait_until(lambda: metric(c, "leat_mds_chains_lost") > lost, 30, "the figures are new")
    p = c.run("start", "ossd2", check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert p.returncode != 0 and "`leat target recover`" in c.log("mds"), p
    p = c.leat("target", "recover", str(other), check=False)
    assert p.returncode == 1 and "was not given up" in p.stderr, p
    c.leat("target", "recover", str(victim))
    c.kill("mds")
    c.start("mds")
    c.start("ossd2")
    whole(c)
    assert c.status()["mds"]["chains"]["lost"] == lost, c.status()["mds"]["chains"]
    assert state(c, victim) == "up"
    compare(sums)
    assert not os.path.exists(root + "/back/large0")
    for i in range(2, 6):
        write("%s/back/large%d" % (root, i), 6 << 20, sums)
    compare(sums)
    # Chunks of files that were removed meanwhile belong to no file.
    p = c.leat("fsck", "--repair=all", check=False)
    assert p.returncode in (0, 1), p.stdout + p.stderr
    p = c.leat("fsck", check=False)
    assert p.returncode == 0, p.stdout + p.stderr
    compare(sums)


def test_what_was_cut_off_does_not_come_back(c):
    """A truncation waited for the disk when its target was given up: recover must not undo it."""
    sums, path = {}, c.mnt() + "/back/cut"
    write(path, 8 << 20, sums)
    victim = target_of(c, "ossd2")
    die(c, "ossd2")
    p = subprocess.Popen(["truncate", "--size", "100", path], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: "oss_trim failed" in c.log("mds"), 60, "the truncation waits")
    remove(c, "--accept-loss", victim)
    p.wait(timeout=600)
    p = c.leat("target", "recover", str(victim), check=False)
    assert p.returncode == 1 and "was truncated meanwhile" in p.stderr, p


def main():
    with Cluster(conf=CONF, ossd=6, size="256M", mounts=1) as c:
        for name in [n for n in globals() if n.startswith("test_")]:
            if len(sys.argv) == 1 or name in sys.argv[1:]:
                globals()[name](c)
                print(name)
                sys.stdout.flush()


if __name__ == "__main__":
    main()
