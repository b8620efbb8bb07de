#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads of staged files through the mount, beside direct reads of these files in the local store,
in one run: 1 MiB sequential, 4 KiB at random, the whole file through mmap; hot, and 1 MiB cold.

    tests/bench/passthrough.py [--rounds N] [--mib N]

Prints MiB/s (operations/s at random), medians of the rounds, and the ratio to the local file
system. The goal is 0.9. The two alternate within a round, so that other load on the machine affects
both.
"""
import argparse
import mmap
import os
import platform
import random
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
from cluster import SRC, Cluster

FILES = 2
RANDOM_READS = 20000


def sequential(path, size):
    fd = os.open(path, os.O_RDONLY)
    buf = bytearray(1 << 20)
    start = time.perf_counter()
    while os.readv(fd, [buf]) > 0:
        pass
    took = time.perf_counter() - start
    os.close(fd)
    return size / took / (1 << 20)


def at_random(path, size):
    fd = os.open(path, os.O_RDONLY)
    rng = random.Random(7)
    offsets = [rng.randrange(size // 4096) * 4096 for _ in range(RANDOM_READS)]
    buf = [bytearray(4096)]
    start = time.perf_counter()
    for off in offsets:
        os.preadv(fd, buf, off)
    took = time.perf_counter() - start
    os.close(fd)
    return RANDOM_READS / took


def mapped(path, size):
    fd = os.open(path, os.O_RDONLY)
    start = time.perf_counter()
    m = mmap.mmap(fd, size, prot=mmap.PROT_READ)
    for off in range(0, size, 1 << 20):
        m[off:off + (1 << 20)]  # copies
    took = time.perf_counter() - start
    m.close()
    os.close(fd)
    return size / took / (1 << 20)


def cold(path, size):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    return sequential(path, size)


MEASURES = [("1 MiB sequential, hot", sequential, "MiB/s"), ("4 KiB random, hot", at_random, "/s"),
            ("mmap, hot", mapped, "MiB/s"), ("1 MiB sequential, cold", cold, "MiB/s")]


def one_round(results, local, mount, size, rnd):
    for name, fn, _ in MEASURES:
        for i in range(FILES):
            sides = [("local", local[i]), ("mount", mount[i])]
            for side, path in sides if rnd % 2 else sides[::-1]:
                if fn is cold:  # the page cache is the local file's in both cases
                    fd = os.open(local[i], os.O_RDONLY)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(fd)
                else:
                    sequential(local[i], size)
                results.setdefault((name, side), []).append(fn(path, size))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--mib", type=int, default=128)
    o = p.parse_args()
    size = o.mib << 20
    results = {}
    commit = subprocess.run(["git", "-C", SRC, "describe", "--always", "--dirty"], text=True,
                            stdout=subprocess.PIPE, check=False).stdout.strip()
    with Cluster(conf={"mount": {"passthrough": "staged"}}, ossd=2, size="1G", mounts=1) as c:
        stage = c.dir + "/stage"
        os.mkdir(stage)
        c.run("stop", "mnt1")
        with open(c.dev + "/conf", "a") as f:
            f.write("[mount]\nstage_dir = %s\n" % stage)
        c.run("start", "mnt1")
        os.mkdir(c.mnt() + "/set")
        mount = [c.mnt() + "/set/%d" % i for i in range(FILES)]
        for path in mount:
            with open(path, "wb") as f:
                for _ in range(o.mib):
                    f.write(os.urandom(1 << 20))
                os.fsync(f.fileno())
        folder = c.leat("stage", "in", c.mnt() + "/set", "--to", stage) and \
            c.leat("stage", "path", c.mnt() + "/set", "--to", stage).stdout.strip()
        local = [folder + "/%d" % i for i in range(FILES)]
        for rnd in range(o.rounds):
            one_round(results, local, mount, size, rnd)
        s = c.status_of_mount()
        if s["staged_opens_passed"] < FILES * o.rounds * len(MEASURES):
            sys.exit("not every open passed through: %s" % s)
    print("%s, %d CPUs, kernel %s, commit %s, %d x %d MiB, %d rounds" % (
        platform.machine(), os.cpu_count(), platform.release(), commit, FILES, o.mib, o.rounds))
    print("\n| staged files | local | mount | ratio (goal 0.9) |\n|---|---|---|---|")
    for name, _, unit in MEASURES:
        a, b = (statistics.median(results[(name, side)]) for side in ("local", "mount"))
        print("| %s | %.0f %s | %.0f %s | %.2f |" % (name, a, unit, b, unit, b / a))


if __name__ == "__main__":
    main()
