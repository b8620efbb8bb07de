#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Staging by 4 and 8 agents in network namespaces, each behind a link of its own, beside one agent
alone, alternately.

    tests/bench/nodes.py [--rounds N] [--mib N] [--rate MIB_S] [--nodes N,N]

The rates together are at most half of what the disk writes, which is measured first, so that the
limit is the nodes' links and not the shared machine. Goals: 1.3 times one node's time,
amplification 1.05.
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import nodes


def disk_rate(folder, mib=256):
    """Rate of writing and syncing in MiB/s."""
    block = os.urandom(1 << 20)
    start = time.monotonic()
    with open(folder + "/rate", "wb") as f:
        for _ in range(mib):
            f.write(block)
        f.flush()
        os.fdatasync(f.fileno())
    took = time.monotonic() - start
    os.unlink(folder + "/rate")
    return mib / took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=96)
    parser.add_argument("--rate", type=int, default=8)
    parser.add_argument("--nodes", default="4,8")
    args = parser.parse_args()
    counts = [int(n) for n in args.nodes.split(",")]
    nodes.enter()
    from cluster import Cluster, SRC
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"], text=True,
                            capture_output=True, check=False).stdout.strip()
    with Cluster(mounts=1) as c, nodes.Nodes(c, max(counts), args.rate) as n:
        disk = disk_rate(c.dir)
        rate = args.rate * max(counts)
        print("%s %d processors, commit %s, load %.1f; disk %.0f MiB/s, links together %d MiB/s" %
              (platform.machine(), os.cpu_count(), commit, os.getloadavg()[0], disk, rate))
        if rate > disk / 2:
            sys.exit("the links are too fast for this disk: --rate")
        os.mkdir(c.mnt() + "/data")
        for i in range(4):
            with open(c.mnt() + "/data/%d" % i, "wb") as f:
                f.write(os.urandom((args.mib << 20) // 4))
        c.leat("dataset", "create", "set@v1", c.mnt() + "/data")
        took = {count: [] for count in [1] + counts}
        source = {count: [] for count in took}
        for _ in range(args.rounds):
            for count in took:
                seconds, r = n.stage("set@v1", count)
                took[count].append(seconds)
                source[count].append(r["amplification"])
                n.evict("set@v1", count)
        alone = statistics.median(took[1])
        print("| nodes | seconds | times one node's | amplification (worst) |\n|---|---|---|---|")
        for count in took:
            median = statistics.median(took[count])
            print("| %d | %.1f | %.2f | %.3f (%.3f) |" %
                  (count, median, median / alone, statistics.median(source[count]),
                   max(source[count])))
        print("load at the end %.1f" % os.getloadavg()[0])


main()
