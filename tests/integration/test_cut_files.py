#!/usr/bin/env python3
"""Files that one mount makes shorter and longer while the other reads: no zeros where there never
were any."""
# timeout: 240
import mmap
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import run_tests

CLUSTER = {"mounts": 2}
CHUNK = 64 << 10
SIZE = 12 * CHUNK
SECONDS = 4


def pattern(n):
    return bytes([1 + n % 255]) * SIZE


class Reader(threading.Thread):
    """Reads again and again, by read(offset, length): what comes has no zeros."""

    def __init__(self, read):
        super().__init__()
        self.read = read
        self.stop = threading.Event()
        self.reads = self.short = 0
        self.wrong = []

    def run(self):
        n = 0
        try:
            while not self.stop.is_set() and len(self.wrong) < 5:
                off = n * 5 % 11 * CHUNK + n % 3 * 5000
                n += 1
                data = self.read(off, SIZE - off)
                self.reads += 1
                self.short += len(data) < SIZE - off
                at = data.find(b"\0")
                if at >= 0:
                    self.wrong.append((off, len(data), at))
        except OSError as e:
            self.wrong.append(e)


def watched(reader, change):
    """How often something changed while somebody read."""
    reader.start()
    end = time.monotonic() + SECONDS
    n = 0
    while time.monotonic() < end and not reader.wrong:
        change(n)
        n += 1
    reader.stop.set()
    reader.join()
    print("%d changes, %d reads, %d of them short" % (n, reader.reads, reader.short))
    assert not reader.wrong, reader.wrong
    assert reader.reads > 20 and n > 5, (reader.reads, n)


def make(c, name):
    directory = c.mnt(1) + "/cut"
    if not os.path.isdir(directory):
        os.mkdir(directory)
        c.leat("layout", "set", "--chunk-size", "64K", directory)
    with open(directory + "/" + name, "wb") as f:
        f.write(pattern(0))
    return [c.mnt(i) + "/cut/" + name for i in (1, 2)]


def fill(fd, n, start):
    """From there to the end, in order and each chunk by itself: nobody leaves a gap."""
    while start < SIZE:
        end = min(start + 20000, start // CHUNK * CHUNK + CHUNK)
        os.pwrite(fd, pattern(n)[:end - start], start)
        start = end


def cut_and_fill(fd):
    def change(n):
        start = n * 7 % 12 * CHUNK // 2 + n % 2 * 1000
        os.ftruncate(fd, start)
        fill(fd, n, start)
    return change


def test_shared(c):
    """Both have it open to write: nobody caches anything."""
    one, two = make(c, "shared")
    fds = [os.open(p, os.O_RDWR) for p in (one, two)]
    os.close(fds[0])
    fds[0] = os.open(one, os.O_RDWR)
    watched(Reader(lambda off, n: os.pread(fds[1], n, off)), cut_and_fill(fds[0]))
    for fd in fds:
        os.close(fd)


def test_pages_of_who_had_it_open_first(c):
    """The reader's kernel caches pages for a moment."""
    one, two = make(c, "pages")
    reader = os.open(two, os.O_RDONLY)
    os.pread(reader, SIZE, 0)
    writer = os.open(one, os.O_RDWR)
    watched(Reader(lambda off, n: os.pread(reader, n, off)), cut_and_fill(writer))
    os.close(reader)
    os.close(writer)


def test_direct_reads(c):
    one, two = make(c, "direct")
    writer = os.open(one, os.O_RDWR)
    reader = os.open(two, os.O_RDONLY | os.O_DIRECT)
    buf = mmap.mmap(-1, SIZE)

    def read(off, n):
        off = off // 4096 * 4096
        return buf[:os.preadv(reader, [memoryview(buf)[:SIZE - off]], off)]

    watched(Reader(read), cut_and_fill(writer))
    os.close(reader)
    os.close(writer)


def test_a_reader_with_a_lease(c):
    """Who changes the file opens it each time, so that leases come and go."""
    one, two = make(c, "leased")
    reader = os.open(two, os.O_RDONLY)

    def change(n):
        start = n * 7 % 12 * CHUNK // 2 + n % 2 * 1000
        os.truncate(one, start)
        fd = os.open(one, os.O_WRONLY)
        fill(fd, n, start)
        os.close(fd)

    watched(Reader(lambda off, n: os.pread(reader, n, off)), change)
    os.close(reader)


def test_who_opens_it_each_time(c):
    one, two = make(c, "opened")

    def read(off, n):
        with open(two, "rb", buffering=0) as f:
            f.seek(off)
            return f.read(n)

    def change(n):
        with open(one, "wb", buffering=0) as f:
            fill(f.fileno(), n, 0)

    watched(Reader(read), change)


def test_the_size(c):
    """Each chunk is cut by itself, but there is no size in between."""
    one, two = make(c, "size")
    writer = os.open(one, os.O_RDWR)
    stop = threading.Event()
    wrong = []

    def look():
        while not stop.is_set():
            size = os.stat(two).st_size
            if size not in (CHUNK, SIZE):
                wrong.append(size)

    t = threading.Thread(target=look)
    t.start()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        os.ftruncate(writer, CHUNK)
        for at in range(SIZE - 1, CHUNK, -CHUNK):
            os.pwrite(writer, b"e", at)
    stop.set()
    t.join()
    assert not wrong, wrong[:5]
    os.close(writer)


def test_a_log_that_is_cut(c):
    """By another machine, as logrotate's copytruncate does: it goes on at its new end."""
    one, two = make(c, "log")
    log = os.open(one, os.O_WRONLY | os.O_APPEND)
    for n in range(20):
        os.write(log, b"line %d\n" % n * 100)
        os.truncate(two, 0)
        os.write(log, b"after %d\n" % n)
        with open(two, "rb") as f:
            assert f.read() == b"after %d\n" % n, n
    os.close(log)


if __name__ == "__main__":
    run_tests(globals())
