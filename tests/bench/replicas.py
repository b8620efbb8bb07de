#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of a second and a third replica: writes into directories of one, two and three replicas
of one cluster, in turn, in one run.

    tests/bench/replicas.py [--rounds N] [--mib N]

All servers share one disk here, so R replicas write R times: two replicas reach at best half the
rate of one. Prints MiB/s of a file written and fsynced, the mean of 4 KiB O_DSYNC writes, and files
of 100 KiB per second; medians of the rounds and the ratio to one replica. Beside it, the servers'
counters of the sequential writes: bytes forwarded downstream and bytes copied in memory, for each
byte written (expected: replicas - 1, and 0).
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
from cluster import SRC, Cluster

SMALL_FILES = 64
COUNTERS = ("leat_ossd_forward_bytes_total", "leat_ossd_data_copied_bytes_total")


def counters(c):
    """The sum over all object servers of each of COUNTERS."""
    total = dict.fromkeys(COUNTERS, 0)
    with open(c.dev + "/metrics") as f:
        pages = [line.split()[1] for line in f if line.startswith("ossd")]
    for page in pages:
        with urllib.request.urlopen("http://%s/metrics" % page, timeout=10) as r:
            for line in r.read().decode().splitlines():
                name, _, value = line.partition(" ")
                if name in total:
                    total[name] += float(value)
    return [total[name] for name in COUNTERS]

KINDS = ("seq", "sync", "small", "sent", "copied")


def sequential(folder, mib):
    block = os.urandom(1 << 20)
    begin = time.monotonic()
    with open(folder + "/seq", "wb", buffering=0) as f:
        for _ in range(mib):
            f.write(block)
        os.fsync(f.fileno())
    rate = mib / (time.monotonic() - begin)
    os.unlink(folder + "/seq")
    return rate


def synced(folder):
    data = os.urandom(4096)
    fd = os.open(folder + "/sync", os.O_WRONLY | os.O_CREAT | os.O_DSYNC, 0o600)
    n, begin = 0, time.monotonic()
    while time.monotonic() < begin + 1:
        os.pwrite(fd, data, n % 256 * 4096)
        n += 1
    mean_us = (time.monotonic() - begin) / n * 1e6
    os.close(fd)
    os.unlink(folder + "/sync")
    return mean_us


def small(folder):
    data = os.urandom(100 << 10)
    begin = time.monotonic()
    for i in range(SMALL_FILES):
        with open("%s/s%d" % (folder, i), "wb", buffering=0) as f:
            f.write(data)
    rate = SMALL_FILES / (time.monotonic() - begin)
    for i in range(SMALL_FILES):
        os.unlink("%s/s%d" % (folder, i))
    return rate


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mib", type=int, default=256)
    o = p.parse_args()
    figures = {(r, k): [] for r in (1, 2, 3) for k in KINDS}
    with Cluster(size="2G") as c:
        folders = {}
        for r in (1, 2, 3):
            folders[r] = "%s/r%d" % (c.mnt(), r)
            os.mkdir(folders[r])
            c.leat("layout", "set", "--replicas", str(r), folders[r])
        for n in range(o.rounds + 1):  # round 0 is a warm-up
            for r, folder in folders.items():
                before = counters(c)
                rate = sequential(folder, o.mib)
                sent, copied = [(b - a) / (o.mib << 20) for a, b in zip(before, counters(c))]
                values = rate, synced(folder), small(folder), sent, copied
                if n > 0:
                    for k, v in zip(KINDS, values):
                        figures[r, k].append(v)
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    print("%s, %d CPUs, commit %s, %d rounds" % (platform.machine(), os.cpu_count(), commit,
                                                 o.rounds))
    print("| copies | sequential MiB/s | ratio | 4 KiB O_DSYNC us | ratio "
          "| 100 KiB files/s | ratio | sent on | copied |")
    print("|---|---|---|---|---|---|---|---|---|")
    m = {k: statistics.median(v) for k, v in figures.items()}
    for r in (1, 2, 3):
        print("| %d | %.0f | %.2f | %.0f | %.2f | %.0f | %.2f | %.3f | %.3f |" %
              (r, m[r, "seq"], m[r, "seq"] / m[1, "seq"], m[r, "sync"], m[r, "sync"] / m[1, "sync"],
               m[r, "small"], m[r, "small"] / m[1, "small"], m[r, "sent"], m[r, "copied"]))


if __name__ == "__main__":
    main()
