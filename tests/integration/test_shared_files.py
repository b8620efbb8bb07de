#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that several mounts have open, one of them to write: reads and writes need the object
servers only, and see the writes, truncations and changes of other mounts."""
import errno
import json
import mmap
import os
import signal
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import as_user, get, run_tests, slow_to_forget, wait_until

CLUSTER = {"mounts": 2}
BLOCK = 4096
BLOCKS = 256


def asked(c, i):
    """Requests of that mount to the metadata server."""
    return json.loads(os.getxattr(c.mnt(i), "leat.status"))["meta_ops"]


class Shared:
    """One file that both mounts have open for reading and writing."""

    def __init__(self, c, name, blocks=BLOCKS):
        self.c = c
        self.paths = ["%s/%s" % (c.mnt(i), name) for i in (1, 2)]
        with open(self.paths[0], "wb") as f:
            f.write(bytes(blocks * BLOCK))
        self.fds = [os.open(p, os.O_RDWR) for p in self.paths]
        # The first open was under a lease, so its kernel caches pages, which are dropped after each
        # read (docs/decisions/0007).
        os.close(self.fds[0])
        self.fds[0] = os.open(self.paths[0], os.O_RDWR)

    def __enter__(self):
        wait_until(self.asks_nobody, 20, "both share it")
        return self

    def __exit__(self, *_):
        for fd in self.fds:
            os.close(fd)

    def asks_nobody(self):
        before = [asked(self.c, i) for i in (1, 2)]
        for _ in range(20):
            for fd in self.fds:
                os.pwrite(fd, b"s" * 100, 0)
                os.pread(fd, 100, 0)
        return all(asked(self.c, i) <= n + 1 for i, n in zip((1, 2), before))


def exchange(fds, blocks, rounds, tag):
    """The mounts write in turn; the other one reads immediately."""
    for n in range(rounds):
        writer, reader = fds[n % 2], fds[1 - n % 2]
        at = n * 37 % blocks * BLOCK
        data = (b"%s %d %d " % (tag, n, at)).ljust(BLOCK, b".")
        assert os.pwrite(writer, data, at) == BLOCK
        assert os.pread(reader, BLOCK, at) == data, (n, at)


def test_reads_and_writes_ask_nobody(c):
    with Shared(c, "nobody") as s:
        before = [asked(c, i) for i in (1, 2)]
        started = time.monotonic()
        exchange(s.fds, BLOCKS, 500, b"nobody")
        # Each mount checks once a second that the file is still shared.
        most = 4 + 2 * (time.monotonic() - started)
        for i in (1, 2):
            assert asked(c, i) - before[i - 1] <= most, (asked(c, i) - before[i - 1], most)


def test_pages_of_who_had_it_open_first(c):
    path = c.mnt(1) + "/first"
    with open(path, "wb") as f:
        f.write(bytes(4 * BLOCK))
    reader = os.open(path, os.O_RDONLY)
    assert os.pread(reader, BLOCK, 0) == bytes(BLOCK)
    writer = os.open(c.mnt(2) + "/first", os.O_RDWR)
    try:
        with slow_to_forget(c, 1):
            for n in range(200):
                at = n % 4 * BLOCK
                data = (b"first %d " % n).ljust(BLOCK, b".")
                os.pread(reader, 4 * BLOCK, 0)
                assert os.pwrite(writer, data, at) == BLOCK
                assert os.pread(reader, BLOCK, at) == data, n
                # And at the end of the file.
                end = os.fstat(writer).st_size
                os.pread(reader, 2 * BLOCK, end - 100)
                assert os.pwrite(writer, data[:10], end) == 10
                assert os.pread(reader, BLOCK, end) == data[:10], n
    finally:
        os.close(reader)
        os.close(writer)


def test_what_who_had_it_open_first_writes(c):
    """One mount's kernel keeps a page that it has written, and the other mount writes it next."""
    path = c.mnt(1) + "/first-writes"
    with open(path, "wb") as f:
        f.write(bytes(4 * BLOCK))
    one = os.open(path, os.O_RDWR)
    assert os.pread(one, BLOCK, 0) == bytes(BLOCK)
    two = os.open(c.mnt(2) + "/first-writes", os.O_RDWR)
    try:
        with slow_to_forget(c, 1):
            for n in range(200):
                at = n % 4 * BLOCK
                data = (b"second %d " % n).ljust(BLOCK, b".")
                os.pwrite(one, (b"first %d " % n).ljust(2 * BLOCK + 100, b"."), at)
                assert os.pwrite(two, data, at) == BLOCK
                assert os.pread(one, BLOCK, at) == data, n
                assert os.pwrite(two, data, at + 2 * BLOCK) == BLOCK
                assert os.pread(one, BLOCK, at + 2 * BLOCK) == data, n
    finally:
        os.close(one)
        os.close(two)


def test_a_mapping_of_a_file_that_several_have_open(c):
    """Maps a file whose opens bypass the page cache."""
    path = c.mnt(1) + "/mapped"
    with open(path, "wb") as f:
        f.write(bytes(4 * BLOCK))
    two = os.open(c.mnt(2) + "/mapped", os.O_RDWR)
    one = os.open(path, os.O_RDONLY)
    try:
        with mmap.mmap(one, 4 * BLOCK, prot=mmap.PROT_READ) as m:
            for n in range(50):
                at = n % 4 * BLOCK
                m[at:at + BLOCK]
                data = (b"second %d " % n).ljust(BLOCK, b".")
                assert os.pwrite(two, data, at) == BLOCK
                assert m[at:at + BLOCK] == data, n
    finally:
        os.close(one)
        os.close(two)


def leases_run_out(c):
    """Chunk leases that no mount released in time, over all object servers."""
    name, n = "leat_ossd_chunk_leases_run_out_total", 0
    for server in ("ossd1", "ossd2", "ossd3", "ossd4"):
        n += sum(int(line.split()[1]) for line in c.metrics_of(server).splitlines()
                 if line.startswith(name + " "))
    return n


CHANGE = """
import mmap, os, sys
fd, size, first = os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2]), int(sys.argv[3])
m = mmap.mmap(fd, size)
print("ready", flush=True)
sys.stdin.readline()
for at in range(first, first + size // 2, 4096):
    m[at:at + 8] = b"%08d" % (at // 4096)
m.flush()
for at in range(first, first + size // 2, 4096):
    assert m[at:at + 8] == b"%08d" % (at // 4096)
"""


def test_two_mappings_that_are_written(c):
    """Each mount changes its own half. With each page the kernel also reads others around it, of
    the other half too. Dropping these waits for write-back of pages, which must not wait for the
    pages that the other mount is to drop."""
    size, before = 8 << 20, leases_run_out(c)
    for n in range(8):
        paths = ["%s/halves%d" % (c.mnt(i), n) for i in (1, 2)]
        with open(paths[0], "wb") as f:
            f.truncate(size)
        both = [subprocess.Popen([sys.executable, "-c", CHANGE, path, str(size), str(first)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                for path, first in zip(paths, (0, size // 2))]
        try:
            for p in both:
                assert p.stdout.readline() == b"ready\n"
            for p in both:
                p.stdin.write(b"go\n")
                p.stdin.flush()
            assert [p.wait(120) for p in both] == [0, 0]
        finally:
            for p in both:
                p.kill()
                p.communicate()
        for path in paths:
            data = get(path)
            assert all(data[at:at + 8] == b"%08d" % (at // BLOCK) for at in range(0, size, BLOCK))
    assert leases_run_out(c) == before


def test_who_syncs_a_mapping_is_seen_in_others(c):
    """Even while the other mount's kernel is slow to drop pages."""
    path = c.mnt(1) + "/synced"
    with open(path, "wb") as f:
        f.write(bytes(2 * BLOCK))
    two = os.open(c.mnt(2) + "/synced", os.O_RDWR)
    one = os.open(path, os.O_RDWR)
    try:
        with slow_to_forget(c, 1), mmap.mmap(one, 2 * BLOCK) as m1, \
                mmap.mmap(two, 2 * BLOCK) as m2:
            for n in range(50):
                m1[:8]
                m2[:8] = b"%08d" % n
                m2.flush()
                assert m1[:8] == b"%08d" % n, n
    finally:
        os.close(one)
        os.close(two)


def exchange_without(c, s, tag, stop, start):
    """Exchanges blocks while the metadata server is away, from stop() to start(). A thread calls
    start() after 2 s, for leases expire 4 s after the last contact, which is renewed first: a
    machine may be so slow that they do expire, and what waits for the server then goes on."""
    for i in (1, 2):
        assert not os.path.exists("%s/contact-before-%s" % (c.mnt(i), tag.decode()))
    stop()
    timer, rounds = threading.Timer(2, start), 0
    timer.start()
    try:
        while timer.is_alive() and rounds < 200:
            exchange(s.fds, BLOCKS, 10, tag)
            rounds += 10 * timer.is_alive()
    finally:
        timer.join()
    assert rounds > 10, rounds


def test_the_metadata_server_is_not_needed(c):
    with Shared(c, "not-needed") as s:
        exchange_without(c, s, b"stopped", lambda: c.kill("mds", signal.SIGSTOP),
                         lambda: c.kill("mds", signal.SIGCONT))
        exchange(s.fds, BLOCKS, 100, b"awake")
        exchange_without(c, s, b"dead", lambda: c.kill("mds"), lambda: c.start("mds"))
        exchange(s.fds, BLOCKS, 200, b"back")


def test_the_end_of_the_file(c):
    """The object servers answer reads past the end, and both mounts see the end move."""
    with Shared(c, "end", blocks=4) as s:
        one, two = s.fds
        for n in range(4, 60):
            writer, reader = (one, two) if n % 2 else (two, one)
            os.pwrite(writer, b"%d" % n * 500, n * BLOCK)
            assert os.pread(reader, 2 * BLOCK, n * BLOCK) == b"%d" % n * 500
            assert os.fstat(reader).st_size == n * BLOCK + len(b"%d" % n * 500)
        for n in range(50, 0, -7):
            cutter, reader = (one, two) if n % 2 else (two, one)
            os.ftruncate(cutter, n * BLOCK + 10)
            assert len(os.pread(reader, 2 * BLOCK, n * BLOCK)) == 10
            assert os.pread(reader, BLOCK, (n + 1) * BLOCK) == b""
            assert os.fstat(reader).st_size == n * BLOCK + 10
        os.ftruncate(one, 20 * BLOCK)
        assert os.pread(two, BLOCK, 19 * BLOCK) == bytes(BLOCK)
        assert os.pread(two, BLOCK, 20 * BLOCK) == b""


def test_cut_while_it_is_read(c):
    """A byte that was truncated is never read again, whichever size a mount has cached."""
    with Shared(c, "cut", blocks=64) as s:
        one, two = s.fds
        for n in range(40):
            os.pwrite(one, b"x" * BLOCK * 16, 0)
            assert len(os.pread(two, 16 * BLOCK, 0)) == 16 * BLOCK
            os.ftruncate(one, 100)
            assert os.pread(two, 16 * BLOCK, 0) == b"x" * 100, n
            os.ftruncate(one, 64 * BLOCK)
            assert os.pread(two, 16 * BLOCK, 0) == b"x" * 100 + bytes(16 * BLOCK - 100), n


def test_what_is_being_cut_is_no_hole(c):
    """One mount truncates a file without holes to its first chunk, and writes the chunks again."""
    with Shared(c, "no hole", 1) as s:
        stop, seen, mib = threading.Event(), set(), 1 << 20

        def cut_and_fill():
            while not stop.is_set():
                for k in range(5):
                    os.pwrite(s.fds[0], b"x" * mib, k * mib)
                os.ftruncate(s.fds[0], mib)

        def look():
            while not stop.is_set():
                try:
                    seen.add(os.lseek(s.fds[1], mib, os.SEEK_DATA))
                except OSError as e:  # ENXIO: the end of the file
                    seen.add(e.errno)

        ts = [threading.Thread(target=f) for f in (cut_and_fill, look, look, look)]
        for t in ts:
            t.start()
        time.sleep(6)
        stop.set()
        for t in ts:
            t.join(300)
        assert seen <= {mib, errno.ENXIO} and len(seen) == 2, seen


def test_a_mode_that_changes(c):
    """A write by another user clears the set-user-id bit, however the bit was set."""
    with Shared(c, "mode") as s:
        os.chmod(s.paths[0], 0o666)

        def write():
            fd = os.open(s.paths[1], os.O_RDWR)
            for _ in range(3):
                os.pwrite(fd, b"a", 0)
            os.close(fd)

        for _ in range(3):
            os.chmod(s.paths[0], 0o4777)
            assert os.stat(s.paths[1]).st_mode & stat.S_ISUID
            as_user(write, 1000, 1000)
            for p in s.paths:
                assert not os.stat(p).st_mode & stat.S_ISUID
        value = bytes.fromhex("0100000200040000000000000000000000000000")
        for _ in range(3):
            os.setxattr(s.paths[0], "security.capability", value)
            assert "security.capability" in os.listxattr(s.paths[1])
            os.pwrite(s.fds[1], b"b", 0)
            assert "security.capability" not in os.listxattr(s.paths[0])


def test_times(c):
    with Shared(c, "times") as s:
        for n in range(3):
            os.utime(s.paths[n % 2], (1000, 1000 + n))
            assert [os.fstat(fd).st_mtime for fd in s.fds] == [1000 + n] * 2
        before = time.time() - 2
        os.pwrite(s.fds[0], b"t", 0)
        assert os.fstat(s.fds[0]).st_mtime > before
        os.close(s.fds[0])
        wait_until(lambda: os.fstat(s.fds[1]).st_mtime > before, 20, "a new time")
        s.fds[0] = os.open(s.paths[0], os.O_RDWR)


def test_who_is_left_asks_nobody(c):
    s = Shared(c, "left").__enter__()
    one, two = s.fds
    exchange(s.fds, BLOCKS, 50, b"both")
    os.close(two)

    def quiet():
        os.pwrite(one, b"left", 0)
        before = asked(c, 1)
        for _ in range(50):
            os.fstat(one)
            os.pwrite(one, b"left", 0)
        return asked(c, 1) == before
    wait_until(quiet, 20, "nobody is asked")
    assert get(s.paths[1])[:4] == b"left"
    os.pwrite(one, b"gone", 0)
    os.close(one)
    assert get(s.paths[1])[:4] == b"gone"


def answered_alone(c, fd):
    """True if fstat returns while no server answers."""
    servers = ["mds"] + c.ossd
    for name in servers:
        c.kill(name, signal.SIGSTOP)
    try:
        t = threading.Thread(target=os.fstat, args=(fd,))
        t.start()
        t.join(1)
        return not t.is_alive()
    finally:
        for name in servers:
            c.kill(name, signal.SIGCONT)
        t.join()


def test_who_writes_alone_again_knows_the_size(c):
    """The reader closes the file, so the only opener gets a write lease."""
    path = c.mnt(1) + "/alone"
    with open(path, "wb") as f:
        f.write(b"1")
    writer = os.open(path, os.O_RDWR)
    with open(c.mnt(2) + "/alone", "rb") as f:
        for n in range(20):
            os.pwrite(writer, b"%d" % n, n)
            f.seek(n)
            assert f.read(2) == b"%d" % n
        assert not answered_alone(c, writer)

    def again():
        os.pwrite(writer, b"again", 0)
        os.fsync(writer)  # without it the write has no time yet
        return answered_alone(c, writer)
    wait_until(again, 30, "a write lease")
    assert get(c.mnt(2) + "/alone")[:5] == b"again"
    os.close(writer)


def test_who_only_looks_takes_no_lease(c):
    """A stat of a file that another mount writes, without an open."""
    writer = os.open(c.mnt(1) + "/looked-at", os.O_RDWR | os.O_CREAT)
    for n in range(1, 4):
        os.pwrite(writer, b"%d" % n * 1000, 0)
        assert os.stat(c.mnt(2) + "/looked-at").st_size == 1000
        time.sleep(0.5)  # after a recall no lease is given for a while
        assert os.stat(c.mnt(2) + "/looked-at").st_size == 1000

    def again():
        os.pwrite(writer, b"again", 0)
        os.fsync(writer)
        return answered_alone(c, writer)
    wait_until(again, 30, "a write lease")
    os.close(writer)


def test_a_file_that_grows(c):
    """Its record lacks the data that writers have added; stats and reads run concurrently."""
    with Shared(c, "grows", blocks=0) as s:
        one, two = s.fds[0], os.open(s.paths[1], os.O_RDONLY)
        os.close(s.fds[1])  # a reader has no size of its own
        s.fds[1] = two
        stop = threading.Event()
        wrong = []

        def look():
            while not stop.is_set():
                os.fstat(two)

        t = threading.Thread(target=look)
        t.start()
        end = time.monotonic() + 4
        n = 0
        while time.monotonic() < end:
            os.pwrite(one, b"%d" % (n % 10) * BLOCK, n % BLOCKS * BLOCK)
            for at in (n % BLOCKS, n // 2 % BLOCKS):
                if len(os.pread(two, BLOCK, at * BLOCK)) != BLOCK:
                    wrong.append((n, at))
            n += 1
        stop.set()
        t.join()
        assert not wrong, wrong[:5]


def test_many_at_once(c):
    """Both mounts write blocks of their own concurrently. A third thread repeatedly opens and
    closes the file, which starts and ends the sharing."""
    with Shared(c, "many") as s:
        stop = threading.Event()
        wrong = []

        def worker(k):
            n = 0
            while not stop.is_set():
                at = (n * 2 + k) % BLOCKS * BLOCK
                data = (b"%d %d " % (k, n)).ljust(BLOCK, b"-")
                os.pwrite(s.fds[k], data, at)
                if os.pread(s.fds[1 - k], BLOCK, at) != data:
                    wrong.append((k, n))
                n += 1

        def opener():
            while not stop.is_set():
                fd = os.open(s.paths[0], os.O_RDWR)
                os.pwrite(fd, b"end", BLOCKS * BLOCK)
                os.close(fd)
                os.utime(s.paths[1])

        threads = [threading.Thread(target=worker, args=(k,)) for k in (0, 1)]
        threads.append(threading.Thread(target=opener))
        for t in threads:
            t.start()
        time.sleep(5)
        stop.set()
        for t in threads:
            t.join()
        assert not wrong, wrong[:5]


if __name__ == "__main__":
    run_tests(globals())
