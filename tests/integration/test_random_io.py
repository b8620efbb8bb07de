#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random reads and writes of every kind on one file, compared with the bytes in memory."""
import collections
import ctypes
import errno
import mmap
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, run_tests

MAX = 6 << 20
libc = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16


def fallocate(fd, mode, off, length):
    if libc.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(length)) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class Model:
    def __init__(self, path, seed):
        self.path, self.data, self.rng = path, bytearray(), random.Random(seed)
        # To explain a wrong byte: (action, offset, end, clock), and the data that was written.
        self.changes, self.payloads = [], collections.deque(maxlen=100)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def span(self, limit):
        off = self.rng.randrange(MAX - 1)
        if self.rng.random() < 0.3:
            off = off // 4096 * 4096
        length = 1 + self.rng.randrange(self.rng.choice((10, 5000, 70000, limit)))
        return off, min(length, MAX - off)

    def grow(self, size):
        if size > len(self.data):
            self.data.extend(bytes(size - len(self.data)))

    def write(self):
        off, length = self.span(2 << 20)
        payload = self.rng.randbytes(length)
        assert os.pwrite(self.fd, payload, off) == length
        self.grow(off + length)
        self.data[off:off + length] = payload
        self.changed("write", off, length, payload)

    def changed(self, what, off, length, payload=b""):
        self.changes.append((what, off, off + length, round(time.time() % 3600, 3)))
        if payload:
            self.payloads.append((len(self.changes) - 1, off, payload))

    def read(self):
        off, length = self.span(2 << 20)
        self.compare(os.pread(self.fd, length, off), off, length)

    def truncate(self):
        size = self.rng.randrange(MAX)
        os.ftruncate(self.fd, size)
        self.changed("truncate", size, MAX - size)
        del self.data[size:]
        self.grow(size)

    def punch(self):
        off, length = self.span(1 << 20)
        fallocate(self.fd, PUNCH | KEEP_SIZE, off, length)
        end = min(off + length, len(self.data))
        self.changed("punch", off, length)
        if off < end:
            self.data[off:end] = bytes(end - off)

    def zero(self):
        off, length = self.span(1 << 20)
        fallocate(self.fd, ZERO, off, length)
        self.grow(off + length)
        self.data[off:off + length] = bytes(length)
        self.changed("zero", off, length)

    def allocate(self):
        off, length = self.span(1 << 20)
        fallocate(self.fd, 0, off, length)
        self.grow(off + length)

    def map_shared(self):
        if len(self.data) < 8192:
            return
        with mmap.mmap(self.fd, len(self.data)) as m:
            off = self.rng.randrange(len(self.data) - 4096)
            self.compare(m[off:off + 4096], off, 4096)
            payload = self.rng.randbytes(3000)
            m[off:off + 3000] = payload
            m.flush()
        self.data[off:off + 3000] = payload
        self.changed("map_shared", off, 3000, payload)

    def direct(self):
        fd = os.open(self.path, os.O_RDWR | os.O_DIRECT)
        buf = mmap.mmap(-1, 1 << 18)
        length = 4096 * (1 + self.rng.randrange(64))
        off = self.rng.randrange((MAX - length) // 4096) * 4096
        if self.rng.random() < 0.5:
            payload = self.rng.randbytes(length)
            buf[:length] = payload
            assert os.pwritev(fd, [memoryview(buf)[:length]], off) == length
            self.grow(off + length)
            self.data[off:off + length] = payload
            self.changed("direct", off, length, payload)
        else:
            n = os.preadv(fd, [memoryview(buf)[:length]], off)
            self.compare(buf[:n], off, length)
        os.close(fd)

    def reopen(self):
        os.close(self.fd)
        assert os.stat(self.path).st_size == len(self.data)
        self.fd = os.open(self.path, os.O_RDWR)

    def sync(self):
        os.fsync(self.fd)

    def check(self):
        assert os.fstat(self.fd).st_size == len(self.data)
        self.compare(os.pread(self.fd, MAX + 1, 0), 0, MAX + 1)

    def compare(self, got, off, length):
        """Checks the data that was read at off."""
        if got != self.data[off:off + length]:
            raise AssertionError(self.explain(got, off, min(length, len(self.data) - off)))

    def explain(self, got, off, length):
        """Reports the wrong bytes, what is there instead, whether the servers agree, since when."""
        clock, want = time.time() % 3600, self.data
        again = os.pread(self.fd, length, off)
        fd, buf = os.open(self.path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, MAX + 4096)
        direct = buf[:os.preadv(fd, [buf], 0)][off:off + length]
        os.close(fd)

        def blocks(read):
            """The blocks of the file that were read wrongly."""
            return [b for b in range(off // 4096 * 4096, off + length, 4096)
                    if part(read, b) != part(want[off:off + length], b)]

        def part(read, block):
            return read[max(0, block - off):block - off + 4096]

        bad = blocks(got)
        at = next(off + i for i in range(length) if got[i:i + 1] != want[off + i:off + i + 1])
        found = got[at - off:at - off + 16]
        return ("wrong byte at %d, at %.3f: blocks %s, of them all zero %d; read again: wrong in "
                "%s; by direct reads: wrong in %s; %d of %d bytes were read; there is %s, which "
                "was written by (number, at): %s; changes there: %s" % (
                    at, clock, bad, sum(not any(part(got, b)) for b in bad), blocks(again),
                    blocks(direct), len(got), length, found.hex(),
                    [(n, start + p.find(found)) for n, start, p in self.payloads if found in p],
                    [(n, *c) for n, c in enumerate(self.changes)
                     if c[1] < at + 4096 and at < c[2]][-12:]))


OPS = (["write"] * 8 + ["read"] * 8 +
       ["truncate", "punch", "zero", "allocate", "map_shared", "direct", "direct",
        "reopen", "sync"])


def test_random_operations(c):
    for seed in range(6):
        m = Model("%s/io%d" % (c.mnt(), seed), seed)
        for step in range(120):
            op = m.rng.choice(OPS)
            try:
                getattr(m, op)()
            except BaseException:
                print("seed %d step %d: %s" % (seed, step, op))
                raise
        m.check()
        os.close(m.fd)
        with open(m.path.replace(c.mnt(1), c.mnt(2)), "rb") as f:
            assert f.read() == m.data, "seen through the other mount"
        os.unlink(m.path)


def test_private_mapping_changes_nothing(c):
    p = c.mnt() + "/private"
    with open(p, "wb") as f:
        f.write(b"p" * 100000)
    with open(p, "r+b") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE) as m:
        m[0:5] = b"other"
    with open(p, "rb") as f:
        assert f.read(5) == b"ppppp"


def test_offsets_at_the_limit(c):
    fd = os.open(c.mnt() + "/limit", os.O_RDWR | os.O_CREAT)
    assert os.pwrite(fd, b"far", 1 << 40) == 3
    assert os.fstat(fd).st_size == (1 << 40) + 3
    assert os.pread(fd, 10, 1 << 40) == b"far" and os.pread(fd, 5, 1 << 39) == bytes(5)
    assert os.fstat(fd).st_blocks * 512 < 1 << 20
    os.close(fd)
    os.unlink(c.mnt() + "/limit")


if __name__ == "__main__":
    run_tests(globals())
