#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One mount makes files shorter and longer while the other reads: the reader gets no zeros that
were never in the file."""
# timeout: 240
import json
import mmap
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import run_tests, slow_to_forget

CLUSTER = {"mounts": 2}
CHUNK = 64 << 10
SIZE = 12 * CHUNK
PAGE = 4096
SECONDS = 4


def enough(begin, done):
    """True after SECONDS if there was enough progress. A busy machine may need longer."""
    took = time.monotonic() - begin
    return took > 60 or (took > SECONDS and done)


def pattern(n):
    return bytes([1 + n % 255]) * SIZE


class Reader(threading.Thread):
    """Reads repeatedly by read(offset, length) and checks that there are no zeros. pages: allows
    zeros in the rest of the last page, where the read ends too. When a file is truncated, the
    kernel zeroes that part while it may be read (ext4 does so too, for 3 of 1,000 such reads)."""

    def __init__(self, read, pages=False):
        super().__init__()
        self.read = read
        self.pages = pages
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
                if at >= 0 and not (self.pages and ends_in_page(data, at, off)):
                    self.wrong.append((off, len(data), at))
        except OSError as e:
            self.wrong.append(e)


def ends_in_page(data, at, off):
    return (off + len(data)) % PAGE == 0 and len(data) - at < PAGE and not data[at:].strip(b"\0")


def open_cut_and_fill(path):
    """Opens the file for each change."""
    def change(n):
        start = n * 7 % 12 * CHUNK // 2 + n % 2 * 1000
        os.truncate(path, start)
        fd = os.open(path, os.O_WRONLY)
        fill(fd, n, start)
        os.close(fd)
    return change


def watched(readers, change):
    """Makes changes while the readers read, until there was enough progress."""
    if isinstance(readers, Reader):
        readers = [readers]
    for r in readers:
        r.start()
    begin = time.monotonic()
    n = 0
    while not enough(begin, n > 5 and all(r.reads > 20 for r in readers)) and \
            not any(r.wrong for r in readers):
        change(n)
        n += 1
    for r in readers:
        r.stop.set()
    for r in readers:
        r.join()
        print("%d changes, %d reads, %d of them short" % (n, r.reads, r.short))
    assert not any(r.wrong for r in readers), [r.wrong for r in readers]
    assert all(r.reads > 20 for r in readers) and n > 5, ([r.reads for r in readers], n)


def make(c, name):
    directory = c.mnt(1) + "/cut"
    if not os.path.isdir(directory):
        os.mkdir(directory)
        c.leat("layout", "set", "--chunk-size", "64K", directory)
    with open(directory + "/" + name, "wb") as f:
        f.write(pattern(0))
    return [c.mnt(i) + "/cut/" + name for i in (1, 2)]


def fill(fd, n, start):
    """Writes from start to SIZE in order, and each chunk separately, so that no gap remains."""
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
    """Both mounts have the file open to write, so neither caches it."""
    one, two = make(c, "shared")
    fds = [os.open(p, os.O_RDWR) for p in (one, two)]
    os.close(fds[0])
    fds[0] = os.open(one, os.O_RDWR)
    watched(Reader(lambda off, n: os.pread(fds[1], n, off)), cut_and_fill(fds[0]))
    for fd in fds:
        os.close(fd)


def test_pages_of_who_had_it_open_first(c):
    """The reader's kernel caches pages for a short time."""
    one, two = make(c, "pages")
    reader = os.open(two, os.O_RDONLY)
    os.pread(reader, SIZE, 0)
    writer = os.open(one, os.O_RDWR)
    watched(Reader(lambda off, n: os.pread(reader, n, off), True), cut_and_fill(writer))
    os.close(reader)
    os.close(writer)


def counters(c):
    """(chunk leases that no client released in time, processes that updated a kernel size)"""
    lines = [line.split() for line in "".join(
        c.metrics_of(p) for p in ("ossd1", "ossd2", "ossd3", "ossd4", "mnt2")).splitlines()]
    return [sum(int(words[1]) for words in lines if words[0] == name) for name in (
        "leat_ossd_chunk_leases_run_out_total", "leat_mount_size_probes_total")]


def cut_through_pages(c, name, readers, looks):
    """The file is settled when it is opened, so the kernel caches its pages, and takes it to be as
    long as it was last. No wait may last until a chunk lease expires."""
    one, two = make(c, name)
    time.sleep(0.5)
    reader = os.open(two, os.O_RDONLY)
    before = counters(c)
    stop = threading.Event()

    def look():
        while not stop.is_set():
            os.stat(two)

    looker = threading.Thread(target=look)
    if looks:
        looker.start()
    try:
        watched([Reader(lambda off, n: os.pread(reader, n, off), True) for _ in range(readers)],
                open_cut_and_fill(one))
    finally:
        stop.set()
        if looks:
            looker.join()
        os.close(reader)
    run_out, probes = [n - b for n, b in zip(counters(c), before)]
    print("%d leases run out, %d probes" % (run_out, probes))
    assert run_out == 0 and probes > 0, (run_out, probes)


def test_pages_of_a_settled_file(c):
    cut_through_pages(c, "settled", 1, False)


def test_pages_of_two_who_read(c):
    cut_through_pages(c, "two", 2, False)


def test_pages_of_a_file_that_is_looked_at(c):
    cut_through_pages(c, "looked", 1, True)


def asked(c, i):
    """Requests of that mount to the metadata server."""
    return json.loads(os.getxattr(c.mnt(i), "leat.status"))["meta_ops"]


def test_attributes_that_change_without_pause(c):
    """They are not truncations: a reader of holes must not start again because of them."""
    paths = ["%s/chmod" % c.mnt(i) for i in (1, 2)]
    writer = os.open(paths[0], os.O_CREAT | os.O_RDWR, 0o644)
    os.pwrite(writer, b"x" * CHUNK, 3 * CHUNK)
    os.ftruncate(writer, 8 * CHUNK)
    reader = os.open(paths[1], os.O_RDWR)
    stop = threading.Event()

    def change():
        mode = 0
        while not stop.is_set():
            mode += 1
            os.fchmod(writer, 0o600 + mode % 64)

    threads = [threading.Thread(target=change) for _ in range(3)]
    for t in threads:
        t.start()
    took, before = [], asked(c, 2)
    try:
        begin = time.monotonic()
        while not enough(begin, len(took) > 20):
            at = time.monotonic()
            assert os.lseek(reader, 0, os.SEEK_DATA) == 3 * CHUNK
            assert os.lseek(reader, 3 * CHUNK, os.SEEK_HOLE) == 4 * CHUNK
            assert os.pread(reader, 2 * CHUNK, 2 * CHUNK) == bytes(CHUNK) + b"x" * CHUNK
            assert os.fstat(reader).st_size == 8 * CHUNK
            took.append(time.monotonic() - at)
        asks = (asked(c, 2) - before) / len(took)
    finally:
        stop.set()
        for t in threads:
            t.join()
        os.close(reader)
        os.close(writer)
    print("  %d rounds, longest %.3f s, %.1f requests each" % (len(took), max(took), asks))
    # The requests show that no read starts again; the times show that no read waits.
    assert sorted(took)[len(took) // 2] < 2 and len(took) > 20 and asks < 20


def test_pages_that_are_slow_to_go(c):
    with slow_to_forget(c, 2):
        cut_through_pages(c, "slow", 1, False)


def grow(c, name, look):
    """One mount appends. The other looks at each new end while a thread there reads through
    pages."""
    one, two = make(c, name)
    time.sleep(0.5)
    reader = os.open(two, os.O_RDONLY)
    os.pread(reader, 1, 0)
    writer = os.open(one, os.O_WRONLY | os.O_APPEND)
    stop = threading.Event()

    def read():
        while not stop.is_set():
            os.pread(reader, SIZE, 0)

    t = threading.Thread(target=read)
    t.start()
    try:
        size, end, wrong = SIZE, time.monotonic() + SECONDS, []
        while time.monotonic() < end:
            size += os.write(writer, b"e" * 100)
            seen = look(reader, two, size)
            if seen != size:
                wrong.append((size, seen))
        assert not wrong, wrong[:5]
    finally:
        stop.set()
        t.join()
        os.close(reader)
        os.close(writer)


def test_who_reads_sees_what_was_added(c):
    grow(c, "read", lambda fd, path, size: size - 100 + len(os.pread(fd, 1000, size - 100)))


def test_who_looks_for_the_end_sees_what_was_added(c):
    grow(c, "end", lambda fd, path, size: os.lseek(fd, 0, os.SEEK_END))


def test_who_looks_and_reads_sees_what_was_added(c):
    """The size by name and by a listing, then the data."""
    def look(fd, path, size):
        with os.scandir(os.path.dirname(path)) as names:
            listed = [n.stat().st_size for n in names if n.name == "looked_and_read"]
        sizes = {os.stat(path).st_size, size - 100 + len(os.pread(fd, 1000, size - 100))}
        return sizes.union(listed).pop() if sizes.union(listed) == {size} else (sizes, listed)

    grow(c, "looked_and_read", look)


def test_a_new_name_tells_no_former_size(c):
    """Nor does a new mode: the kernel trusts the size in these replies, even over a newer one."""
    def look(fd, path, size):
        os.link(path, path + ".2")
        os.chmod(path, 0o600 + size // 100 % 8)
        seen = size - 100 + len(os.pread(fd, 1000, size - 100))
        os.unlink(path + ".2")
        return seen

    grow(c, "named", look)


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
    """The writer opens the file for each change, so leases come and go."""
    one, two = make(c, "leased")
    reader = os.open(two, os.O_RDONLY)
    watched(Reader(lambda off, n: os.pread(reader, n, off), True), open_cut_and_fill(one))
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

    watched(Reader(read, True), change)


def test_the_size(c):
    """Each chunk is truncated separately, but no size in between is visible."""
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
    """Another machine truncates the log (logrotate's copytruncate): it continues at its new end."""
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
