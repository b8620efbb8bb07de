#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Object servers are killed just when writes return: reads of another mount never return older data
than before."""
# timeout: 240
import multiprocessing
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import run_tests, wait_until

CLUSTER = {"mounts": 2, "ossd": 1}
ROUNDS = 15
SIZE = 4096


def record(n):
    return b"%08d" % n * (SIZE // 8)


def number(fd):
    return int(os.pread(fd, 8, 0))


def write_numbers(path, stop, result, done):
    """Writes increasing numbers; each is readable when its write has returned."""
    fd = os.open(path, os.O_RDWR)
    n = 0
    while not stop.is_set():
        n += 1
        os.pwrite(fd, record(n), 0)
        if number(fd) != n:
            result.put(("the writer reads", number(fd), "behind", n))
            break
        done.value = n
    os.close(fd)
    result.put(n)


def read_numbers(path, stop, result, done):
    """Reads numbers, which never decrease."""
    fd = os.open(path, os.O_RDWR)
    last = reads = 0
    while not stop.is_set():
        n = number(fd)
        reads += 1
        if n < last:
            result.put(("the reader reads", n, "behind", last))
            break
        last = n
        done.value = reads
    os.close(fd)
    result.put(reads)


def test_what_was_written_stays(c):
    """Both mounts have the file open to write, so a write returns when a server has accepted it.
    The workers are processes: starting a program closes files, and that waits for servers."""
    with open(c.mnt(1) + "/f", "wb") as f:
        f.write(record(0))
    stop = multiprocessing.Event()
    results = [multiprocessing.SimpleQueue() for _ in range(2)]
    done = [multiprocessing.Value("L", 0) for _ in range(2)]
    workers = [multiprocessing.Process(target=fn, args=(c.mnt(i + 1) + "/f", stop, results[i],
                                                        done[i]))
               for i, fn in enumerate((write_numbers, read_numbers))]
    for w in workers:
        w.start()
    try:
        for i in range(ROUNDS):
            before = [d.value for d in done]
            wait_until(lambda old=before: not all(w.is_alive() for w in workers) or all(
                d.value > 7 + n for d, n in zip(done, old)), 30, "both go on")
            time.sleep(0.1 + i * 0.001)
            c.kill("ossd1")
            c.start("ossd1")
            assert all(w.is_alive() for w in workers)
    finally:
        stop.set()
        for w in workers:
            w.join()
        said = [r.get() for r in results]
        print("%s writes, %s reads" % tuple(said))
    assert all(isinstance(s, int) and s > 100 for s in said), said
    assert "all have repeated what was under way" in c.log("ossd1")


def test_ended_in_order(c):
    """After a proper stop a server waits for no session, even if a client that wrote is dead."""
    with open(c.mnt(1) + "/g", "wb") as f:
        f.write(record(1))
        os.fsync(f.fileno())
    before = len(c.log("ossd1"))
    c.stop("ossd1")
    c.kill("mnt1")
    c.start("ossd1")
    with open(c.mnt(2) + "/g", "rb") as f:
        assert f.read() == record(1)
    awaited = re.findall(r"waits for (\d+) sessions|(\d+) sessions have not repeated",
                         c.log("ossd1")[before:])
    assert all(number in ("", "0") for pair in awaited for number in pair), awaited


if __name__ == "__main__":
    run_tests(globals())
