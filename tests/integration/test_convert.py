#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Existing files get two replicas, and one again, under readers and writers and while servers are
killed. Every byte is compared, and the disks hold no chunk that they should not."""
import errno
import hashlib
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, Cluster, as_user, wait_until  # noqa: E402

CONF = {"mds": {"convert_after_ms": 300}}


def fill(folder, n=20):
    """Files of all kinds, in folders: empty, small, of several chunks, with holes."""
    sums = {}
    rng = random.Random(folder)
    os.makedirs(folder + "/a/b/c")
    for i in range(n):
        name = "%s/%s" % (["", "a", "a/b", "a/b/c"][i % 4], "f%d" % i)
        with open(folder + "/" + name, "wb") as f:
            for _ in range([0, 1, 1, 3, 6][i % 5]):
                f.write(rng.randbytes(rng.choice([100, 20000, 700000, 1048576])))
                if i % 3 == 0:
                    f.seek(rng.choice([5000, 3000000]), os.SEEK_CUR)
            if i % 7 == 0:
                f.truncate()
        sums[name] = digest(folder + "/" + name)
    return sums


def digest(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    with open(fd, "rb") as f:
        return (hashlib.sha256(f.read()).hexdigest(), os.fstat(fd).st_mtime_ns)


def compare(folder, sums):
    for name, want in sums.items():
        got = digest(folder + "/" + name)
        assert got == want, (name, got, want)


def copies(c, path):
    out = json.loads(c.leat("layout", "get", "--json", path).stdout)
    return out["layouts"][0]["replicas"]


def has_copies(c, path, n):
    """A mount may have cached attributes for a second."""
    wait_until(lambda: copies(c, path) == n, 3, "%s has %d copies" % (path, n))


def conversions(c):
    return c.status()["mds"]["conversions"]


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")


def test_tree(c):
    top = c.mnt() + "/tree"
    os.mkdir(top)
    sums = fill(top)
    # Compressed files stay compressed.
    os.mkdir(top + "/z")
    c.leat("layout", "set", "--compression", "lz4", top + "/z")
    for i in range(3):
        with open("%s/z/f%d" % (top, i), "wb") as f:
            f.write(b"%d words that compress well, " % i * 20000 * (i + 1))
            f.write(os.urandom(100000 * i))
            f.write(bytes(300000))
        sums["z/f%d" % i] = digest("%s/z/f%d" % (top, i))
    c.leat("layout", "set", "--replicas", "2", "--existing", top)
    for name in sums:
        has_copies(c, top + "/" + name, 2)
    has_copies(c, top + "/a/b/c", 2)
    with open(top + "/a/b/new", "wb") as f:
        f.write(b"new")
    has_copies(c, top + "/a/b/new", 2)
    drop_caches()
    compare(top, sums)
    # The replicas are complete: all data can be read without any one server, on both mounts.
    for victim in ("ossd1", "ossd3"):
        c.kill(victim)
        drop_caches()
        compare(c.mnt(2) + "/tree", sums)
        c.start(victim)
        wait_until(lambda: c.status()["mds"]["chains"]["degraded"] == 0 and
                   c.status()["mds"]["chains"]["down"] == 0, 30, "chains are whole")
    # Back to one replica; then a single file.
    c.leat("layout", "set", "--replicas", "1", "--existing", top)
    for name in sums:
        has_copies(c, top + "/" + name, 1)
    drop_caches()
    compare(top, sums)
    one = top + "//f4"
    c.leat("layout", "set", "--replicas", "3", "--existing", one)
    has_copies(c, one, 3)
    compare(top, sums)


def test_who_may(c):
    top = c.mnt() + "/mine"
    os.makedirs(top + "/in")
    os.chmod(top, 0o777)
    fd = os.open(top + "/in/open", os.O_RDWR | os.O_CREAT)
    os.setxattr(top + "/in", "leat.layout", b"convert=1 replicas=3")
    p = subprocess.run([BUILD + "/leat", "--conf", c.dev + "/conf", "layout", "set", "--replicas",
                        "2", "--existing", top], env=c.env, stderr=subprocess.PIPE, text=True,
                       user=65534, group=65534, extra_groups=[])
    assert p.returncode != 0, p
    top_fd = os.open(top, os.O_RDONLY)
    assert as_user(lambda: os.setxattr(top_fd, "leat.layout", b"convert=1 replicas=2"),
                   65534, 65534) == errno.EPERM
    os.close(top_fd)
    assert [v["replicas"] for v in conversions(c)] == [3], conversions(c)
    os.close(fd)
    wait_until(lambda: conversions(c) == [], 40, "it is converted")
    has_copies(c, top + "/in/open", 3)


def test_open_files_wait(c):
    path = c.mnt() + "/open"
    data = os.urandom(3000000)
    with open(path, "wb") as f:
        f.write(data)
    fd = os.open(c.mnt(2) + "/open", os.O_RDONLY)
    p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "layout", "set",
                          "--replicas", "2", "--existing", path], env=c.env,
                         stderr=subprocess.PIPE, text=True)
    wait_until(lambda: conversions(c) and conversions(c)[0]["waiting"] == 1, 10, "it waits")
    has_copies(c, path, 1)
    assert os.pread(fd, len(data), 0) == data
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=120)
    assert p.returncode == 75 and "continues" in err, (p.returncode, err)
    os.close(fd)
    wait_until(lambda: conversions(c) == [], 40, "it is converted")
    has_copies(c, path, 2)
    with open(path, "rb") as f:
        assert f.read() == data


def test_stop(c):
    path = c.mnt() + "/stopped"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 100000)
    os.fsync(fd)
    os.setxattr(path, "leat.layout", b"convert=1 replicas=2")
    assert len(conversions(c)) == 1
    c.leat("layout", "stop", path)
    assert conversions(c) == []
    os.close(fd)
    time.sleep(2)
    has_copies(c, path, 1)


def following(c, conf, path):
    return subprocess.Popen([BUILD + "/leat", "--conf", conf, "layout", "set", "--replicas", "2",
                             "--existing", path], env=c.env, stderr=subprocess.PIPE, text=True)


def test_only_what_is_complete_ends_with_0(c):
    """The command fails if another request ended its conversion: its user may rely on the
    replicas."""
    top = c.mnt() + "/awaited"
    path = top + "/part"
    os.makedirs(path)
    fd = os.open(path + "/file", os.O_RDWR | os.O_CREAT)

    def waits():
        return conversions(c) and conversions(c)[0]["waiting"] == 1

    def stop():
        c.leat("layout", "stop", path)

    def ask_for_other():
        os.setxattr(path, "leat.layout", b"convert=1 replicas=3")

    def ask_for_whole():
        os.setxattr(top, "leat.layout", b"convert=1 replicas=3")

    for end, why in ((stop, "stopped"), (ask_for_other, "3 copies"), (ask_for_whole, "stopped")):
        p = following(c, c.dev + "/conf", path)
        wait_until(waits, 10, "it waits")
        end()
        _, err = p.communicate(timeout=300)
        assert p.returncode == 12 and why in err, (p.returncode, err)
    c.leat("layout", "stop", top)
    has_copies(c, path + "/file", 1)
    os.close(fd)


def test_of_a_mount_by_address_its_own_cluster_is_asked(c):
    """The servers of another cluster do not have the conversion, which does not mean it is done."""
    where, path = c.dir + "/by-address", c.dir + "/by-address/file by address"
    conf = open(c.dev + "/conf").read()
    mds = re.compile(r"^mds *= *(\S+)", re.M)
    with open(c.dir + "/elsewhere", "w") as f:
        f.write(mds.sub("mds = 127.0.0.1:1", conf))
    os.mkdir(where)
    c.leat("mount", mds.search(conf).group(1), where)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.write(fd, b"x" * 100000)
        with Cluster(ossd=1, size="128M", mounts=0) as other:
            p = following(c, other.dev + "/conf", path)
            _, err = p.communicate(timeout=300)
            assert p.returncode == 10 and "key" in err, (p.returncode, err)
        p = following(c, c.dir + "/elsewhere", path)
        wait_until(lambda: conversions(c)[0]["waiting"] == 1, 10, "it waits")
        os.close(fd)
        _, err = p.communicate(timeout=300)
        assert p.returncode == 0, (p.returncode, err)
        has_copies(c, path, 2)
    finally:
        subprocess.run(["umount", "-l", where], check=True)


class Churn:
    """Processes that write, read and truncate files, and check the content. Not threads: a child of
    the test would close, and so flush, their files, and wait for a dead server."""

    def __init__(self, mnts, n=4):
        fork = multiprocessing.get_context("fork")
        self.mnts, self.errors, self.ops = mnts, [], 0
        self.stop, self.results = fork.Event(), fork.Queue()
        self.children = [fork.Process(target=self.run, args=(i,)) for i in range(n)]

    def run(self, i):
        rng = random.Random(i)
        want = {}
        try:
            while not self.stop.is_set():
                k = rng.randrange(6)
                path = "%s/churn/%s/c%d-%d" % (rng.choice(self.mnts), "ab"[k % 2], i, k)
                self.step(rng, path, want, k)
                self.ops += 1
                time.sleep(rng.random() * 0.3)
        except Exception as e:  # noqa: B902
            self.errors.append("%d: %r" % (i, e))
        self.results.put((self.ops, self.errors))

    def step(self, rng, path, want, k):
        what = rng.randrange(5)
        if k not in want or what == 0:
            want[k] = bytearray(rng.randbytes(rng.randrange(1, 2500000)))
            with open(path, "wb") as f:
                f.write(want[k])
        elif what == 1:
            at, data = rng.randrange(len(want[k])), rng.randbytes(rng.randrange(1, 300000))
            with open(path, "r+b") as f:
                f.seek(at)
                f.write(data)
            want[k][at:at + len(data)] = data
        elif what == 2:
            size = rng.randrange(1, len(want[k]) + 200000)
            os.truncate(path, size)
            want[k] = (want[k] + bytes(max(0, size - len(want[k]))))[:size]
        elif what == 3:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND)
            data = rng.randbytes(5000)
            os.write(fd, data)
            os.fsync(fd)
            os.close(fd)
            want[k] += data
        with open(path, "rb") as f:
            got = f.read()
        if got != want[k]:
            first = next((n for n in range(min(len(got), len(want[k]))) if got[n] != want[k][n]),
                         -1)
            self.errors.append("%s after %d: %d bytes, %d wanted, first difference at %d" %
                               (path, what, len(got), len(want[k]), first))
            self.stop.set()

    def __enter__(self):
        for p in self.children:
            p.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        for p in self.children:
            ops, errors = self.results.get(timeout=300)
            self.ops += ops
            self.errors += errors
        for p in self.children:
            p.join()


def under_churn(c, rounds, between):
    top = c.mnt() + "/churn"
    os.makedirs(top + "/a", exist_ok=True)
    os.makedirs(top + "/b", exist_ok=True)
    converted = 0
    with Churn([c.mnt(), c.mnt(2)]) as churn:
        for n in range(rounds):
            os.setxattr(top, "leat.layout", b"convert=1 replicas=%d" % (2 - n % 2))
            end = time.monotonic() + 5
            while time.monotonic() < end and not churn.stop.is_set():
                between(n)
                now = conversions(c)
                converted += now[0]["converted"] if now else 0
                time.sleep(0.7)
    assert not churn.errors, churn.errors
    print("  %d operations, some %d files converted beside them" % (churn.ops, converted))
    wait_until(lambda: conversions(c) == [], 60, "conversions end when it is quiet")


def test_writers_and_readers(c):
    under_churn(c, 3, lambda n: None)


def test_killed_servers(c):
    """The metadata server and an object server are killed repeatedly during conversions."""
    rng = random.Random(7)

    def kill(n):
        name = rng.choice(["mds", "mds", "ossd1", "ossd2", "ossd3", "ossd4"])
        c.kill(name)
        time.sleep(rng.random() * 0.5)
        c.start(name)

    under_churn(c, 3, kill)


def used(c):
    return sum(t["used"] for t in c.status()["targets"])


def test_space_comes_back(c):
    """The space of discarded replicas and of replaced generations becomes free."""
    assert used(c) > (1 << 20), used(c)
    for name in os.listdir(c.mnt()):
        subprocess.run(["rm", "-rf", c.mnt() + "/" + name], check=True)
    wait_until(lambda: used(c) == 0, 40, "nothing is left")


def main():
    with Cluster(conf=CONF, mounts=2) as c:
        for name in [n for n in globals() if n.startswith("test_")]:
            if len(sys.argv) > 1 and name not in sys.argv[1:]:
                continue
            started = time.monotonic()
            globals()[name](c)
            print("%-50s %.2f s" % (name, time.monotonic() - started))
            sys.stdout.flush()
        if c.check_stores(check=False).returncode != 0:
            sys.exit("the stores are not sound")


if __name__ == "__main__":
    main()
