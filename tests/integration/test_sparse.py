#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files with holes: the results of SEEK_DATA and SEEK_HOLE, and the cost of walking them."""
import errno
import mmap
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import KEEP_SIZE, PUNCH, expect_errno, fallocate, get, put, run_tests

MIB = 1 << 20
TIB = 1 << 40
PIB = 1 << 50
PAGE = 4096
BLOCK = 256 << 10  # the largest block of the cluster's chunks
CLUSTER = {"replicas": 1}


def extents(fd):
    """The extents by SEEK_DATA and SEEK_HOLE: [from, to) of data, in order."""
    told, at, size = [], 0, os.fstat(fd).st_size
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as e:
            assert e.errno == errno.ENXIO, e
            break
        hole = os.lseek(fd, data, os.SEEK_HOLE)
        assert at <= data < hole <= size, (at, data, hole, size)
        told.append((data, hole))
        at = hole
    return told


def test_a_large_hole_costs_no_more_than_a_small_one(c):
    """Only if the client queries the servers for the next data does this end in time."""
    path = c.mnt() + "/large"
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    os.ftruncate(fd, PIB)
    expect_errno(errno.ENXIO, os.lseek, fd, 0, os.SEEK_DATA)
    assert os.lseek(fd, 0, os.SEEK_HOLE) == 0
    os.pwrite(fd, b"first", 5 * MIB)
    os.pwrite(fd, b"second", PIB // 2 + 7 * MIB)
    # Visible before any sync, on the other mount too.
    for fds in (fd, os.open(c.mnt(2) + "/large", os.O_RDONLY)):
        told = extents(fds)
        assert len(told) == 2, told
        assert told[0][0] <= 5 * MIB < told[0][1] <= 6 * MIB, told
        assert told[1][0] <= PIB // 2 + 7 * MIB < told[1][1] <= PIB // 2 + 8 * MIB, told
        assert os.lseek(fds, told[1][1], os.SEEK_HOLE) == told[1][1]
        expect_errno(errno.ENXIO, os.lseek, fds, told[1][1], os.SEEK_DATA)
    fallocate(fd, PUNCH | KEEP_SIZE, 0, PIB - 1)
    assert extents(fds) == []
    os.close(fds)
    os.close(fd)
    os.unlink(path)


def test_what_a_mapping_has_written_is_data(c):
    """Without a sync, when only the kernel has the pages."""
    fd = os.open(c.mnt() + "/mapped", os.O_CREAT | os.O_RDWR, 0o644)
    os.ftruncate(fd, 64 * MIB)
    with mmap.mmap(fd, 64 * MIB) as m:
        for at in (40 * MIB + 5, 3 * MIB, 20 * MIB):
            m[at] = 1
            assert os.lseek(fd, max(0, at - MIB), os.SEEK_DATA) <= at
            assert os.lseek(fd, at, os.SEEK_DATA) == at
            assert os.lseek(fd, at, os.SEEK_HOLE) > at
        m[20 * MIB + 1] = 7
        other = os.open(c.mnt() + "/mapped", os.O_RDONLY)
        assert len(extents(other)) == 3
        os.close(other)
        far = os.open(c.mnt(2) + "/mapped", os.O_RDONLY)
        m[30 * MIB] = 1
        m.flush(30 * MIB, PAGE)  # before this, the other mount need not see it
        assert os.lseek(far, 30 * MIB, os.SEEK_DATA) == 30 * MIB
        os.close(far)
    os.close(fd)
    os.unlink(c.mnt() + "/mapped")


class Model:
    """The expected content of a file: the pages that were written, by number."""

    def __init__(self, path, rng):
        self.path, self.size, self.pages, self.rng = path, 0, {}, rng

    def write(self, at, value):
        self.pages[at // PAGE] = value
        self.size = max(self.size, at + PAGE)

    def cut(self, size):
        self.pages = {p: v for p, v in self.pages.items() if p * PAGE < size}
        self.size = size

    def punch(self, first, end):
        self.pages = {p: v for p, v in self.pages.items() if not first <= p < end}

    def check(self, fd):
        """Every written page is reported as data; data beyond that is at most what blocks round
        up."""
        told = extents(fd)
        assert os.fstat(fd).st_size == self.size
        for p, value in self.pages.items():
            assert any(a <= p * PAGE and (p + 1) * PAGE <= b for a, b in told), (p, told)
            assert os.pread(fd, PAGE, p * PAGE) == bytes([value]) * PAGE, p
        assert sum(b - a for a, b in told) <= (len(self.pages) + 1) * BLOCK, told
        # In holes and in data, each result is the first possible one.
        for _ in range(8):
            at = self.rng.randrange(self.size) if self.size else 0
            data = [max(a, at) for a, b in told if b > at]
            try:
                assert os.lseek(fd, at, os.SEEK_DATA) == data[0], (at, told)
            except OSError as e:
                assert e.errno == errno.ENXIO and not data, (at, told)


def act(rng, m, fds, mapping):
    """Makes one change of file and model, at repeating places, of all sizes."""
    page = rng.choice(PLACES) + rng.randrange(40)
    kind, value = rng.randrange(8), rng.randrange(1, 256)
    if kind < 4:
        os.pwrite(rng.choice(fds), bytes([value]) * PAGE, page * PAGE)
        m.write(page * PAGE, value)
    elif kind == 4:
        n = 1 << rng.randrange(40)
        fallocate(rng.choice(fds), PUNCH | KEEP_SIZE, page * PAGE, n * PAGE)
        m.punch(page, page + n)
    elif kind == 5:
        os.ftruncate(fds[0], page * PAGE)
        m.cut(page * PAGE)
    elif m.size >= len(mapping):
        page = rng.randrange(len(mapping) // PAGE)
        mapping[page * PAGE:(page + 1) * PAGE] = bytes([value]) * PAGE
        m.write(page * PAGE, value)
        if rng.randrange(2):
            mapping.flush()
        else:
            m.check(fds[0])
            mapping.flush()


PLACES = [0, 1000, 3 * MIB // PAGE, 20 * MIB // PAGE, TIB // PAGE, 5 * TIB // PAGE + 17,
          PIB // PAGE - 50]


def test_what_is_told_is_what_was_written(c):
    """Random writes, holes, truncations and mappings by two mounts."""
    for seed in range(2):
        rng = random.Random(seed)
        m = Model(c.mnt() + "/random%d" % seed, rng)
        put(m.path, b"")
        fds = [os.open(c.mnt(i) + "/random%d" % seed, os.O_RDWR) for i in (1, 2)]
        os.ftruncate(fds[0], 8 * MIB)
        m.cut(8 * MIB)
        with mmap.mmap(fds[0], 8 * MIB) as mapping:
            for _ in range(20):
                act(rng, m, fds, mapping)
                m.check(rng.choice(fds))
        for fd in fds:
            os.close(fd)
        os.unlink(m.path)


def children_s():
    """Processor seconds of all child processes that have ended."""
    t = os.times()
    return t.children_user + t.children_system


def test_holes_are_staged_as_holes(c):
    """No command reads 64 GiB of zeros, which would take a minute of processor time; changed bytes
    in a hole are found."""
    name, data = c.mnt() + "/staged", os.urandom(MIB)
    os.mkdir(name)
    with open(name + "/file", "wb") as f:
        os.ftruncate(f.fileno(), 64 << 30)
        os.pwrite(f.fileno(), data, 5 << 30)
    nvme = c.dir + "/nvme"
    os.mkdir(nvme)
    began = children_s()
    c.leat("dataset", "create", "sparse@v1", name)
    c.leat("stage", "in", "sparse@v1", "--to", nvme)
    copy = c.leat("stage", "path", "sparse@v1", "--to", nvme).stdout.strip() + "/file"
    assert os.stat(copy).st_size == 64 << 30 and os.stat(copy).st_blocks * 512 <= 2 * MIB
    with open(copy, "rb") as f:
        assert os.pread(f.fileno(), MIB, 5 << 30) == data
        assert os.pread(f.fileno(), MIB, 7 << 30) == bytes(MIB)
    c.leat("stage", "verify", "sparse@v1", "--to", nvme)
    took = children_s() - began
    print("three commands took %.1f s of a processor" % took)
    assert took < 15, took
    os.chmod(copy, 0o600)
    with open(copy, "r+b") as f:
        f.seek(33 << 30)
        f.write(b"x")
    p = c.leat("stage", "verify", "sparse@v1", "--to", nvme, check=False)
    assert p.returncode != 0 and "damaged" in p.stderr + p.stdout, p
    for path in (name + "/file", copy):
        os.unlink(path)


def test_tools_copy_what_is_there(c):
    """Tools copy half a tebibyte quickly, because they use SEEK_DATA and SEEK_HOLE."""
    source = c.mnt() + "/image"
    fd = os.open(source, os.O_CREAT | os.O_RDWR, 0o644)
    parts = {0: os.urandom(10000), 77 * MIB + 5: os.urandom(2 * MIB),
             TIB // 4: os.urandom(PAGE), TIB // 2 - 100: os.urandom(100)}
    for at, data in parts.items():
        os.pwrite(fd, data, at)
    os.close(fd)
    run = lambda *argv: subprocess.run(argv, check=True, timeout=60, stdout=subprocess.DEVNULL)
    run("cp", "--sparse=always", source, c.mnt() + "/by_cp")
    run("leat", "cp", source, c.mnt() + "/by_leat")
    run("tar", "-S", "-C", c.mnt(), "-cf", c.mnt() + "/image.tar", "image")
    os.mkdir(c.mnt() + "/tar")
    run("tar", "-S", "-C", c.mnt() + "/tar", "-xf", c.mnt() + "/image.tar")
    for name in ("by_cp", "by_leat", "tar/image"):
        fd = os.open(c.mnt(2) + "/" + name, os.O_RDONLY)
        assert os.fstat(fd).st_size == TIB // 2, name
        for at, data in parts.items():
            assert os.pread(fd, len(data), at) == data, (name, at)
        assert sum(b - a for a, b in extents(fd)) < 8 * MIB, name
        os.close(fd)


if __name__ == "__main__":
    run_tests(globals())
