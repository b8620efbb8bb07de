#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest, two hosts: the servers' cable is pulled for some seconds, several times, while a
program writes. The mount gets no message that its peer has lost every connection; it has to detect
that itself, continue over tcp, and move back. No operation fails.

    tests/rdma/guest --hosts 2 -- tests/rdma/over-verbs auto tests/rdma/silence.py [FLAPS]
"""
import multiprocessing
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE) + "/lib")
from cluster import Cluster

OUT_S = 2.5
BETWEEN_S = 14
LONGEST_S = 20


def cable(jobs):
    """In a process of its own, started before a file of the mount is open: a child of the writer
    would close its files first, and wait for the servers."""
    while jobs.get():
        subprocess.run([HERE + "/cable", "down", "2"], check=True)
        time.sleep(OUT_S)
        subprocess.run([HERE + "/cable", "up", "2"], check=True)


def write_one(path):
    begin = time.monotonic()
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x" * 300000)
    os.fsync(fd)
    os.close(fd)
    os.unlink(path)
    return time.monotonic() - begin


def main():
    with Cluster(ossd=2, mounts=1, size="384M", conf={"mds": {"session_ttl_ms": "30000"}}) as c:
        jobs = multiprocessing.Queue()
        puller = multiprocessing.Process(target=cable, args=(jobs,), daemon=True)
        puller.start()
        for flap in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
            write_one(c.mnt() + "/before")
            jobs.put(True)
            end, n, longest = time.monotonic() + BETWEEN_S, 0, 0
            while time.monotonic() < end:
                longest = max(longest, write_one("%s/f%d" % (c.mnt(), n % 20)))
                n += 1
            print("flap %d: %d files, the longest took %.1f s" % (flap, n, longest), flush=True)
            assert longest < LONGEST_S, "longer than %d s" % LONGEST_S
        jobs.put(False)
        puller.join(10)


if __name__ == "__main__":
    main()
