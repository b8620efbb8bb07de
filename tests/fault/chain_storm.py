#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures stalls of programs when servers die or fall silent under load, and checks every byte.

    chain_storm.py [--replicas R] [--seconds S] [--seed N] [--events kill,stop,mds] [--json FILE]

The workers are processes on two mounts; every operation is timed, and none may fail:

  writer   O_DSYNC writes to a file of its own; sometimes reads an acknowledged block back through
           the other mount, past every cache
  reader   direct reads of a file without writers: chunks without pending versions
  open     direct reads and O_DSYNC writes of a file that stays open
  meta     create, rename, stat, unlink

Events, one every few seconds, when all chains are whole again: an object server is killed (and
started 1 s later) or stopped for some seconds, or the metadata server is killed and started at
once. The longest operation of each kind between the event and the return of whole chains is the
stall of the event. (roll: every server stops orderly and starts, one after the other. calm: no
event, for as long as after a kill, to measure the machine itself.) At the end a new mount reads
everything back, and the stores of the stopped servers are checked.

A byte is right if it is from the last acknowledged write. A block of 4 KiB names its write:
(file, block, number), repeated.
"""
import argparse
import json
import mmap
import multiprocessing
import os
import random
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import Cluster, wait_until

BLOCK = 4096
FILE_BLOCKS = 4096  # 16 MiB: 16 chunks
IO_BLOCKS = (1, 3, 16, 40, 256)
NOTED_S = 0.010  # shorter operations are not worth a line
EVENT_SETTLE_S = 1.5


def block_bytes(file_no, block, number):
    return struct.pack("<QQQQ", 0x4C454154, file_no, block, number) * (BLOCK // 32)


class DirectFile:
    """A file that is read past every cache, with a buffer that O_DIRECT accepts."""

    def __init__(self, path, flags):
        self.fd = os.open(path, flags | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, max(IO_BLOCKS) * BLOCK)

    def read(self, block, n):
        view = memoryview(self.buffer)[:n * BLOCK]
        got = os.preadv(self.fd, [view], block * BLOCK)
        assert got == n * BLOCK, "short read: %d of %d" % (got, n * BLOCK)
        return view

    def write(self, block, data):
        view = memoryview(self.buffer)[:len(data)]
        view[:] = data
        put = os.pwritev(self.fd, [view], block * BLOCK)
        assert put == len(data), "short write: %d of %d" % (put, len(data))


class Worker:
    """Runs step() until stop is set; records slow operations."""

    def __init__(self, name, out, stop, seed):
        self.name, self.out, self.stop = name, out, stop
        self.rng = random.Random(seed)
        self.n_ops = 0

    def timed(self, kind, fn, *args):
        begin = time.monotonic()
        result = fn(*args)
        end = time.monotonic()
        self.n_ops += 1
        if end - begin >= NOTED_S:
            self.out.put(("slow", kind, begin, end))
        return result

    def run(self):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.open()
            self.out.put(("ready", self.name))
            while not self.stop.is_set():
                self.step()
            self.out.put(("done", self.name, self.n_ops, self.result()))
        except BaseException as e:  # the parent fails the test with it
            self.out.put(("failed", self.name, "%s: %s" % (type(e).__name__, e)))

    def result(self):
        return None


class Writer(Worker):
    """Has its file, and the number of the last acknowledged write of each block."""

    def __init__(self, name, out, stop, seed, path, other, file_no):
        super().__init__(name, out, stop, seed)
        self.path, self.other_path, self.file_no = path, other, file_no
        self.numbers = [0] * FILE_BLOCKS
        self.number = 0

    def open(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_DSYNC, 0o600)
        os.ftruncate(self.fd, FILE_BLOCKS * BLOCK)
        self.other = DirectFile(self.other_path, os.O_RDONLY)

    def step(self):
        n = self.rng.choice(IO_BLOCKS)
        block = self.rng.randrange(FILE_BLOCKS - n)
        self.number += 1
        data = b"".join(block_bytes(self.file_no, block + i, self.number) for i in range(n))
        assert self.timed("write", os.pwrite, self.fd, data, block * BLOCK) == len(data)
        for i in range(n):
            self.numbers[block + i] = self.number
        if self.rng.random() < 0.5:
            self.check(self.rng.randrange(FILE_BLOCKS - 16), 16)
        time.sleep(0.005)

    def check(self, block, n):
        view = self.timed("read_back", self.other.read, block, n)
        check_blocks(view, self.file_no, block, self.numbers[block:block + n])

    def result(self):
        return self.path, self.file_no, self.numbers


def check_blocks(view, file_no, block, numbers):
    for i, number in enumerate(numbers):
        want = block_bytes(file_no, block + i, number) if number else bytes(BLOCK)
        if view[i * BLOCK:(i + 1) * BLOCK] != want:
            got = struct.unpack("<QQQQ", view[i * BLOCK:i * BLOCK + 32])
            raise AssertionError("file %d block %d: write %d expected, found %s" %
                                 (file_no, block + i, number, got))


class Reader(Worker):
    def __init__(self, name, out, stop, seed, path, file_no):
        super().__init__(name, out, stop, seed)
        self.path, self.file_no = path, file_no

    def open(self):
        self.file = DirectFile(self.path, os.O_RDONLY)

    def step(self):
        block = self.rng.randrange(FILE_BLOCKS - 16)
        view = self.timed("read", self.file.read, block, 16)
        check_blocks(view, self.file_no, block, [1] * 16)
        time.sleep(0.002)


class OpenFile(Writer):
    """Opens its file once, before the events, so its data does not need the metadata server."""

    def open(self):
        super().open()
        self.file = DirectFile(self.path, os.O_RDWR | os.O_DSYNC)

    def step(self):
        block = self.rng.randrange(FILE_BLOCKS - 16)
        self.number += 1
        data = b"".join(block_bytes(self.file_no, block + i, self.number) for i in range(16))
        self.timed("open_write", self.file.write, block, data)
        self.numbers[block:block + 16] = [self.number] * 16
        block = self.rng.randrange(FILE_BLOCKS - 16)
        view = self.timed("open_read", self.file.read, block, 16)
        check_blocks(view, self.file_no, block, self.numbers[block:block + 16])
        time.sleep(0.005)


class Meta(Worker):
    def __init__(self, name, out, stop, seed, folder, other):
        super().__init__(name, out, stop, seed)
        self.folder, self.other = folder, other
        self.names = []
        self.n = 0

    def open(self):
        os.makedirs(self.folder, exist_ok=True)

    def step(self):
        self.n += 1
        name = "n%d" % self.n
        self.timed("meta", self.create, name)
        self.names.append(name)
        if len(self.names) > 50:
            old = self.names.pop(0)
            self.timed("meta", os.rename, self.at(old), self.at(old + "r"))
            assert not os.path.exists(self.at(old))
            self.timed("meta", os.stat, self.at(old + "r"))
            self.timed("meta", os.unlink, self.at(old + "r"))
        time.sleep(0.005)

    def at(self, name):
        return self.folder + "/" + name

    def create(self, name):
        os.close(os.open(self.at(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def result(self):
        return self.folder, sorted(self.names)


class Storm:
    def __init__(self, c, options):
        self.c, self.options = c, options
        self.rng = random.Random(options.seed)
        self.out = multiprocessing.Queue()
        self.stop = multiprocessing.Event()
        self.slow, self.events, self.results = [], [], []
        self.n_ready = self.n_ops = 0
        self.workers = []

    # ---- workers ----

    def prepare(self):
        one = self.c.mnt(1)
        with open(one + "/fixed", "wb") as f:
            f.write(b"".join(block_bytes(1, i, 1) for i in range(FILE_BLOCKS)))
            os.fsync(f.fileno())

    def launch(self):
        q, stop, seed = self.out, self.stop, self.options.seed
        made = []
        for i in range(2):
            a, b = self.c.mnt(1 + i % 2), self.c.mnt(2 - i % 2)
            name = "w%d" % i
            made.append(Writer("writer%d" % i, q, stop, seed + i, "%s/%s" % (a, name),
                               "%s/%s" % (b, name), 10 + i))
            made.append(Reader("reader%d" % i, q, stop, seed + 10 + i, a + "/fixed", 1))
        made.append(OpenFile("open", q, stop, seed + 20, self.c.mnt(1) + "/open",
                             self.c.mnt(2) + "/open", 20))
        made.append(Meta("meta", q, stop, seed + 30, self.c.mnt(1) + "/d", self.c.mnt(2) + "/d"))
        for w in made:
            p = multiprocessing.Process(target=w.run, daemon=True)
            p.start()
            self.workers.append(p)
        while self.n_ready < len(made):
            self.take(timeout=300)

    def take(self, timeout=0.0):
        """Takes one message of a worker; a failed worker ends the test."""
        try:
            m = self.out.get(timeout=timeout) if timeout else self.out.get_nowait()
        except Exception:
            assert timeout == 0, "no word from a worker for %s s" % timeout
            return False
        if m[0] == "failed":
            raise AssertionError("%s: %s" % m[1:])
        if m[0] == "ready":
            self.n_ready += 1
        elif m[0] == "slow":
            self.slow.append(m[1:])
        elif m[0] == "done":
            self.n_ops += m[2]
            if m[3] is not None:
                self.results.append(m[3])
            self.n_ready -= 1
        return True

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            while self.take():
                pass
            time.sleep(0.02)

    # ---- events ----

    def whole(self):
        """Every chain has all its members in sync."""
        try:
            status = json.loads(self.c.leat("status", "--json", check=False).stdout)
            return "mds" in status and chains_whole(status)
        except ValueError:
            return False

    def wait_whole(self, seconds=400):
        end = time.monotonic() + seconds
        while not self.whole():
            assert time.monotonic() < end, "chains are not whole again within %d s" % seconds
            self.sleep(0.1)

    def roll(self):
        """Every server stops orderly and starts again, as for an upgrade."""
        for name in self.c.ossd + ["mds"]:
            self.c.stop(name)
            self.c.start(name)
            self.wait_whole()

    def blow(self, kind):
        victim = "mds" if kind == "mds" else self.rng.choice(self.c.ossd)
        begin = time.monotonic()
        if kind == "roll":
            victim = "all"
            self.roll()
        elif kind == "calm":
            victim = "nobody"
            self.sleep(1)
        elif kind == "stop":
            self.c.kill(victim, signal.SIGSTOP)
            self.sleep(self.rng.uniform(3, 5))
            self.c.kill(victim, signal.SIGCONT)
        else:
            os.kill(self.c.pid(victim), signal.SIGKILL)
            self.sleep(0 if kind == "mds" else 1)
            wait_until(lambda: not self.c.alive(victim), 10, victim + " is gone")
            self.c.start(victim)
        self.wait_whole()
        self.sleep(EVENT_SETTLE_S)
        self.events.append((kind, victim, begin, time.monotonic()))
        print("%6.1f s  %-4s %s" % (begin - self.began, kind, victim), flush=True)

    def run(self):
        self.prepare()
        self.wait_whole()
        self.launch()
        self.began = time.monotonic()
        kinds = self.options.events.split(",")
        self.sleep(2)
        while time.monotonic() < self.began + self.options.seconds or len(self.events) < len(kinds):
            self.blow(kinds[len(self.events) % len(kinds)])
        self.stop.set()
        while self.n_ready > 0:
            self.take(timeout=300)
        for p in self.workers:
            p.join(10)

    # ---- what came of it ----

    def verify(self):
        """Reads through a mount that has cached nothing."""
        self.c.stop("mnt2")
        self.c.start("mnt2")
        two = self.c.mnt(2)
        for r in self.results:
            path = two + r[0][len(self.c.mnt(1)):]
            if len(r) == 2:
                assert sorted(os.listdir(path)) == r[1], "names of " + path
                continue
            with open(path, "rb") as f:
                check_blocks(memoryview(f.read()), r[1], 0, r[2])
        with open(two + "/fixed", "rb") as f:
            check_blocks(memoryview(f.read()), 1, 0, [1] * FILE_BLOCKS)

    def stalls(self):
        """{event kind: {operation kind: [longest of each event, ms]}}"""
        table = {}
        for kind, _, begin, end in self.events:
            row = table.setdefault(kind, {})
            for op in ("read", "write", "read_back", "open_read", "open_write", "meta"):
                # An operation that overlaps two events belongs to the one that has more of it.
                longest = max((b - a for k, a, b in self.slow
                               if k == op and begin < (a + b) / 2 <= end), default=0.0)
                row.setdefault(op, []).append(round(longest * 1000, 1))
        return table

    def report(self):
        table = self.stalls()
        print("replicas %d, seed %d: %d operations, %d events, longest stall in ms per event" %
              (self.options.replicas, self.options.seed, self.n_ops, len(self.events)))
        print("%-6s %-11s %7s %7s %7s %7s" % ("event", "operation", "n", "median", "p90", "max"))
        for kind, row in table.items():
            for op, values in row.items():
                v = sorted(values)
                print("%-6s %-11s %7d %7.0f %7.0f %7.0f" %
                      (kind, op, len(v), v[len(v) // 2], v[min(len(v) - 1, len(v) * 9 // 10)],
                       v[-1]))
        if self.options.json:
            with open(self.options.json, "w") as f:
                json.dump({"replicas": self.options.replicas, "seed": self.options.seed,
                           "operations": self.n_ops, "stalls_ms": table}, f, indent=1)


def chains_whole(status):
    chains = status["mds"]["chains"]
    return chains["n"] > 0 and chains["whole"] == chains["n"]


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--replicas", type=int, default=2)
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("--events", default="kill,stop,mds")
    p.add_argument("--json")
    options = p.parse_args(argv)
    print("seed %d" % options.seed, flush=True)
    with Cluster(replicas=options.replicas) as c:
        s = Storm(c, options)
        try:
            s.run()
        finally:
            for w in s.workers:
                w.kill()
        s.verify()
        c.check_stores()
        s.report()


if __name__ == "__main__":
    main()
