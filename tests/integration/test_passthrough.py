#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Staged files on a real mount. The kernel reads a copy (passthrough) if the file is not open in
another way; else the daemon reads the copy or the servers. A copy of another version than the
file's, or one that cannot be trusted, is never read."""
# timeout: 300
import errno
import json
import mmap
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cluster import BUILD, HERE, Cluster, expect_errno, wait_until

SIZE = 3_000_001


class Node:
    """A cluster, whose first mount reads staged copies below `stage`."""

    def __init__(self, c):
        self.c = c
        self.stage = c.dir + "/stage"

    def path(self, name, mount=1):
        return "%s/%s" % (self.c.mnt(mount), name)

    def status(self):
        return self.c.status_of_mount(1)

    def opens(self):
        s = self.status()
        return s["staged_opens_passed"], s["staged_opens_daemon"]

    def stage_in(self, what):
        return json.loads(self.c.leat("stage", "in", what, "--to", self.stage, "--json").stdout)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def make_set(n, name, files=3):
    folder = n.path(name)
    os.makedirs(folder)
    data = {}
    for i in range(files):
        data["f%d" % i] = os.urandom(SIZE + i)
        write("%s/f%d" % (folder, i), data["f%d" % i])
    # A close reports the size asynchronously; until then the file has no version to stage.
    wait_until(lambda: n.c.status()["mds"]["opens"] == 0, 20, "all closes have arrived")
    return data


def mark(copy, offset=1000):
    """Changes one byte of a staged file, to show where data comes from."""
    os.chmod(copy, 0o644)
    with open(copy, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0] ^ 0xff
        f.seek(offset)
        f.write(bytes([byte]))
    os.chmod(copy, 0o444)


def passed(n, fn):
    """(result of fn, (opens of the kernel, opens of the daemon's copy) meanwhile)"""
    before = n.opens()
    result = fn()
    after = n.opens()
    return result, (after[0] - before[0], after[1] - before[1])


def test_whole_way(n, kernel):
    data = make_set(n, "a")
    for name in ("f1", "f2"):
        got, how = passed(n, lambda: read(n.path("a/" + name)))
        assert got == data[name] and how == (0, 0), how
    copy = n.stage_in(n.path("a"))
    want = (1, 0) if kernel else (0, 1)
    # The copy is read (by the daemon: unless the page cache has the data)
    mark(copy["path"] + "/f0")
    fd = os.open(n.path("a/f0"), os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    wrong = os.pread(fd, 1, 1000)
    mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.close(fd)
    assert wrong != data["f0"][1000:1001], "not from the copy"
    assert mapped[:1000] == data["f0"][:1000] and mapped[1001:] == data["f0"][1001:]
    mapped.close()
    mark(copy["path"] + "/f0")
    assert read(n.path("a/f0", 2)) == data["f0"]
    for name in ("f1", "f2"):
        got, how = passed(n, lambda: read(n.path("a/" + name)))
        assert got == data[name] and how == want, (name, how)
    # Staging again moves nothing, and the copy stays in use
    assert n.stage_in(n.path("a"))["bytes_moved"] == 0
    assert passed(n, lambda: read(n.path("a/f1")))[1] == want


def test_open_otherwise(n, kernel):
    """A file is staged while open: that open continues; new ones use what the kernel allows."""
    data = make_set(n, "b")
    early = open(n.path("b/f0"), "rb")
    assert early.read(100) == data["f0"][:100]
    copy = n.stage_in(n.path("b"))
    got, how = passed(n, lambda: read(n.path("b/f0")))
    assert got == data["f0"] and how == (0, 1), how     # beside a cached open the daemon reads
    assert early.read() == data["f0"][100:]
    early.close()
    if kernel:
        wait_until(lambda: passed(n, lambda: read(n.path("b/f0")))[1] == (1, 0), 10,
                   "the next open passes through")
    # Two opens at once share the copy. Eviction is refused; if forced, the opens continue.
    with open(n.path("b/f0"), "rb") as one, open(n.path("b/f0"), "rb") as two:
        assert one.read(10) == two.read(10) == data["f0"][:10]
        assert n.c.leat("stage", "evict", copy["id"], "--to", n.stage, check=False).returncode != 0
        shutil.rmtree(n.stage + "/.leat/" + copy["id"])  # forced
        assert one.read() == two.read() == data["f0"][10:]
        with open(n.path("b/f0"), "rb") as three:
            assert three.read() == data["f0"]
    assert read(n.path("b/f0")) == data["f0"]
    assert read(n.path("b/f1")) == data["f1"]


def test_evicted(n, kernel):
    data = make_set(n, "c")
    n.stage_in(n.path("c"))
    assert read(n.path("c/f0")) == data["f0"]
    wait_until(lambda: n.c.leat("stage", "evict", n.path("c"), "--to", n.stage,
                                check=False).returncode == 0, 10, "it can be evicted")
    got, how = passed(n, lambda: read(n.path("c/f0")))
    assert got == data["f0"] and how == (0, 0), how


def test_versions(n, kernel):
    """The source changes after staging: on this mount, on another one, during a read."""
    data = make_set(n, "d", files=5)
    n.stage_in(n.path("d"))
    new = os.urandom(SIZE)
    write(n.path("d/f0", 2), new)
    got, how = passed(n, lambda: read(n.path("d/f0")))
    assert got == new and how == (0, 0), how
    # one byte, with an unchanged size
    with open(n.path("d/f1", 2), "r+b") as f:
        f.write(b"!")
    got, how = passed(n, lambda: read(n.path("d/f1")))
    assert got == b"!" + data["f1"][1:] and how == (0, 0), how
    # on this mount, without a reader
    with open(n.path("d/f2"), "r+b") as f:
        f.write(b"?")
        f.flush()
        got, how = passed(n, lambda: read(n.path("d/f2")))
        assert got == b"?" + data["f2"][1:] and how == (0, 0), how
    # written and truncated while it is open, by a writer that has closed it
    if not kernel:
        with open(n.path("d/f4"), "rb", buffering=0) as f:
            assert f.read(10) == data["f4"][:10]
            for change in (lambda: os.truncate(n.path("d/f4"), 1000), lambda: write(
                    n.path("d/f4"), new)):
                change()
                now = read(n.path("d/f4", 2))
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                f.seek(0)
                assert f.read() == now and now != data["f4"]
        data["f4"] = new
    # replaced by another file of that name
    write(n.path("d/new"), new)
    os.rename(n.path("d/new"), n.path("d/f3"))
    assert read(n.path("d/f3")) == new
    # while the kernel reads it, writes are refused on this mount, but not on others
    with open(n.path("d/f4"), "rb") as f:
        assert f.read(5) == data["f4"][:5]
        if kernel:
            expect_errno(errno.EBUSY, open, n.path("d/f4"), "r+b")
            expect_errno(errno.EBUSY, open, n.path("d/f4"), "wb")
            expect_errno(errno.EBUSY, os.truncate, n.path("d/f4"), 5)
            with open(n.path("d/f4", 2), "r+b") as w:
                w.write(b"#")
            # a new open gets the new content, even while the kernel has the old one open
            assert read(n.path("d/f4")) == b"#" + data["f4"][1:]
        assert f.read() == data["f4"][5:]
    wait_until(lambda: open(n.path("d/f4"), "r+b").close() or True, 10, "writable again")


def without_leases(n, kernel):
    """The metadata server gives no leases for these files, so it would not report changes."""
    for i in range(40):
        os.mknod(n.path("other%d" % i, 2))
        os.stat(n.path("other%d" % i, 2))
    data = make_set(n, "l", files=1)
    n.stage_in(n.path("l"))
    with open(n.path("l/f0"), "rb", buffering=0) as f:
        assert f.read(SIZE) == data["f0"]
        with open(n.path("l/f0", 2), "r+b") as w:
            w.write(b"!")
        f.seek(0)
        assert f.read(SIZE) == b"!" + data["f0"][1:]
    assert n.opens() == (0, 0)


def test_whom_to_believe(n, kernel):
    data = make_set(n, "e")
    copy = n.stage_in(n.path("e"))
    assert sum(passed(n, lambda: read(n.path("e/f0")))[1]) == 1
    for path in (copy["path"] + "/f0", os.path.dirname(copy["path"]), n.stage + "/.leat"):
        st = os.stat(path)
        os.chown(path, 1234, st.st_gid)
        os.utime(n.stage + "/.leat/inodes")
        got, how = passed(n, lambda: read(n.path("e/f0")))
        assert got == data["f0"], path
        if path != n.stage + "/.leat":
            assert how == (0, 0) or path == os.path.dirname(copy["path"]), (path, how)
        os.chown(path, 0, st.st_gid)
    # not read through a link either
    f1 = copy["path"] + "/f1"
    os.rename(f1, f1 + ".real")
    os.symlink(f1 + ".real", f1)
    got, how = passed(n, lambda: read(n.path("e/f1")))
    assert got == data["f1"] and how == (0, 0), how
    # an index that is damaged, or of another cluster
    index = "%s/.leat/inodes/%s" % (n.stage, copy["id"])
    good = read(index)
    for bad in (good[:-1], good[:8] + bytes(16) + good[24:], good[:100] + b"x" + good[101:], b""):
        write(index + ".new", bad)
        os.rename(index + ".new", index)
        got, how = passed(n, lambda: read(n.path("e/f2")))
        assert got == data["f2"] and how == (0, 0), how
    assert n.status()["staged_refused"] >= 1
    write(index + ".new", good)
    os.rename(index + ".new", index)
    got, how = passed(n, lambda: read(n.path("e/f2")))
    assert got == data["f2"] and sum(how) == 1, how


def test_lost_while_read(n, kernel):
    """The copy's disk fails under the daemon: it reads from the servers."""
    data = make_set(n, "g", files=1)
    early = open(n.path("g/f0"), "rb")          # prevents passthrough
    early.read(1)
    copy = n.stage_in(n.path("g"))
    with open(n.path("g/f0"), "rb", buffering=0) as f:
        os.truncate(copy["path"] + "/f0", 1000)
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert f.read(SIZE) == data["f0"]
    early.close()


def sealed_set(n, kernel):
    """The default: only sealed files pass through, which no program can change."""
    data = make_set(n, "s")
    n.c.leat("dataset", "create", "s@v1", n.path("s"))
    n.stage_in("s@v1")
    assert passed(n, lambda: read(n.path("s/f0")))[1] == (0, 1), "not sealed: by the daemon"
    n.c.leat("dataset", "seal", "s@v1")
    wait_until(lambda: passed(n, lambda: read(n.path("s/f1")))[1] == (1, 0), 10, "passes through")
    assert read(n.path("s/f1")) == data["f1"]
    expect_errno(errno.EPERM, open, n.path("s/f1"), "r+b")
    with open(n.path("s/f1"), "rb") as f:
        expect_errno(errno.EPERM, open, n.path("s/f1"), "r+b")
        assert f.read() == data["f1"]
    # Sealed first, staged while open: the open reader switches to the copy.
    more = make_set(n, "t")
    n.c.leat("dataset", "create", "t@v1", n.path("t"))
    n.c.leat("dataset", "seal", "t@v1")
    with open(n.path("t/f0"), "rb", buffering=0) as f:
        assert f.read(100) == more["f0"][:100]
        before = n.status()["staged_bytes_daemon"]
        n.stage_in("t@v1")

        def read_again():
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            f.seek(0)
            assert f.read() == more["f0"]
            return n.status()["staged_bytes_daemon"] > before
        wait_until(read_again, 20, "the copy is read")
    # Staged, changed in place and sealed: the copy has the previous content.
    old = make_set(n, "u", files=1)["f0"]
    new = bytes([old[0] ^ 0xff]) + old[1:]
    n.stage_in(n.path("u"))
    with open(n.path("u/f0"), "r+b") as f:
        f.write(new[:1])
    wait_until(lambda: n.c.status()["mds"]["opens"] == 0, 20, "all closes have arrived")
    n.c.leat("dataset", "create", "u@v2", n.path("u"))
    n.c.leat("dataset", "seal", "u@v2")
    got, how = passed(n, lambda: read(n.path("u/f0")))
    assert got == new and how == (0, 0), how
    n.stage_in("u@v2")
    got, how = passed(n, lambda: read(n.path("u/f0")))
    assert got == new and how == (1, 0), how
    # Several directories together hold one copy.
    wide = make_set(n, "w", files=6)
    n.c.leat("stage", "in", n.path("w"), "--to", n.stage, "--to", n.stage + "2")
    for name, content in wide.items():
        got, how = passed(n, lambda: read(n.path("w/" + name)))
        assert got == content and how == (0, 1), (name, how)


def by_agent(n, kernel):
    """The mount finds a copy that an agent made like any other."""
    data = make_set(n, "y")
    n.c.leat("dataset", "create", "y@v1", n.path("y"))
    n.c.leat("dataset", "seal", "y@v1")
    ready = n.c.dir + "/agent-ready"
    agent = subprocess.Popen(
        [BUILD + "/leat", "--conf", n.c.dev + "/conf", "agent", "--set", "dirs=" + n.stage, "--set",
         "listen=%s:0" % HERE, "--ready-file", ready], stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.exists(ready) and read(ready), 20, "the agent serves")
        n.c.leat("stage", "in", "y@v1", "--agent", read(ready).decode().split()[0])
        for name in data:
            got, how = passed(n, lambda: read(n.path("y/" + name)))
            assert got == data[name] and how == (1, 0), (name, how)
    finally:
        agent.terminate()
        agent.wait(300)


def run(conf, kernel, only=None):
    with Cluster(conf=conf, ossd=2) as c:
        n = Node(c)
        os.mkdir(n.stage)
        os.mkdir(n.stage + "2")
        c.run("stop", "mnt1")
        with open(c.dev + "/conf", "a") as f:
            f.write("[mount]\nstage_dir = %s %s2\n" % (n.stage, n.stage))
        c.run("start", "mnt1")
        state = n.status()["passthrough"]
        print("passthrough:", state)
        if kernel and state.startswith("off: the kernel") or "libfuse" in state:
            print("not here: %s" % state)
            kernel = False
        assert kernel != state.startswith("off"), state
        if conf is None and not kernel:
            return
        text = c.leat("status", c.mnt(1)).stdout
        assert "passthrough " + state in text, text
        for name, test in list(globals().items()):
            if (name in only if only else name.startswith("test_")) and \
                    (len(sys.argv) < 2 or name in sys.argv[1:]):
                print(name, "by the kernel" if kernel else "by the daemon", flush=True)
                start = time.monotonic()
                test(n, kernel)
                print("%.1f s" % (time.monotonic() - start))


if __name__ == "__main__":
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("root and /dev/fuse are needed")
        sys.exit(77)
    run({"mount": {"passthrough": "staged"}}, True)
    run({"mount": {"passthrough": "off"}}, False)
    run(None, True, ("sealed_set", "by_agent"))
    run({"mount": {"passthrough": "off"}, "mds": {"leases_max": 16}}, False, ("without_leases",))
