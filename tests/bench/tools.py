#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""leat cp -r, rm -r and du -s beside cp -r, rm -rf and du -s on the mount: one tree of small files,
one cluster, in turn, in one run.

    tests/bench/tools.py [--files N] [--size BYTES] [--dirs N] [--rounds N] [--skip in,within,out]

Each step begins with a new mount; the servers' caches stay as they are. Prints seconds, the load of
the machine before, and the ratio of the medians. --skip leaves the slow comparisons of copying out
(into Leat, within, out of it); leat cp makes the trees then.
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
from cluster import BUILD, SRC, Cluster


def make_tree(top, files, dirs, size):
    data = os.urandom(size)
    for d in range(dirs):
        folder = "%s/d%02d/e%d" % (top, d % 20, d)
        os.makedirs(folder)
        for i in range(files // dirs):
            with open("%s/f%d" % (folder, i), "wb") as f:
                f.write(data)


def timed(c, argv):
    c.stop("mnt1")
    c.start("mnt1")
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("1")
    load = os.getloadavg()[0]
    begin = time.monotonic()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - begin
    print("  %8.2f s  load %.1f  %s" % (seconds, load, " ".join(argv[-4:])), flush=True)
    return seconds


def one_round(c, source, skip, times):
    leat = [BUILD + "/leat", "--conf", c.dev + "/conf"]
    ours, theirs = c.mnt() + "/ours", c.mnt() + "/theirs"
    steps = [
        ("in", "cp -r, local to Leat", ["cp", "-r", source, ours], ["cp", "-r", source, theirs]),
        ("du", "du -s", ["du", "-s", ours], ["du", "-s", theirs]),
        ("within", "cp -r, within Leat", ["cp", "-r", ours, ours + "2"],
         ["cp", "-r", theirs, theirs + "2"]),
        ("out", "cp -r, Leat to local", ["cp", "-r", ours, source + "-ours"],
         ["cp", "-r", theirs, source + "-theirs"]),
        ("rm", "rm -r", ["rm", "-r", ours], ["rm", "-rf", theirs]),
    ]
    if "in" in skip:
        for path in (ours, theirs):
            timed(c, leat + ["cp", "-r", source, path])
    for key, name, mine, other in steps:
        if key not in skip:
            row = times.setdefault(name, ([], []))
            row[0].append(timed(c, leat + mine))
            row[1].append(timed(c, other))
    for path in (source + "-ours", source + "-theirs", ours + "2", theirs + "2"):
        if os.path.exists(path):
            subprocess.run(leat + ["rm", "-rf", path], check=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--files", type=int, default=100000)
    p.add_argument("--size", type=int, default=4096)
    p.add_argument("--dirs", type=int, default=200)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--skip", default="", type=lambda text: text.split(","))
    a = p.parse_args()
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"], text=True,
                            stdout=subprocess.PIPE, check=False).stdout.strip()
    print("%s, %d CPUs, commit %s, %d files of %d B in %d directories" %
          (platform.node(), os.cpu_count(), commit, a.files, a.size, a.dirs), flush=True)
    times = {}
    with Cluster(mounts=1, size="4G") as c:
        source = c.dir + "/source"
        make_tree(source, a.files, a.dirs, a.size)
        for _ in range(a.rounds):
            one_round(c, source, a.skip, times)
    print("\n| | leat, s | on the mount, s | ratio |\n|---|---|---|---|")
    for name, (ours, theirs) in times.items():
        mine, other = statistics.median(ours), statistics.median(theirs)
        print("| %s | %.2f | %.2f | %.1f |" % (name, mine, other, other / mine))


main()
