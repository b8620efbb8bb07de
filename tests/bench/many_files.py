#!/usr/bin/env python3
"""many_files.py [--files N] [--seconds S] [--workers W] [--remove]: very many files.

A development cluster of its own below TMPDIR. One process fills one directory with 10^6 files while
W others fill directories of 100,000, all through one mount, until there are N files or S seconds
are over. Prints every half minute how many there are, how many came each second, and the resident
memory of metadata server and mount; then how long listings, random stats and a restart of the
metadata server take, what removing costs, and resident memory beside what is configured.
"""
import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import Cluster

ONE_DIR, OTHER_DIRS = 1_000_000, 100_000
MIB = 1 << 20
PRINT_S = 30
# [mds] as it comes: cache_mib + kv_cache_mib + 3 * kv_write_buffer_mib, 256 bytes for each of
# leases_max, 64 MiB for the program. The mount: slot_memory, inodes_max and names_max.
MOUNT = 128 + 100 + 30 + 64
CAPS = {"mds": 256 + 128 + 3 * 64 + 256 + 64, "mnt1": MOUNT, "mnt2": MOUNT}


def resident(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(dict(line.split(":", 1) for line in f)["VmRSS"].split()[0]) // 1024


def fill(top, worker, per_dir, counts, left, until):
    """Counts what is made in counts[worker], until nothing is left or the time is over."""
    d = made = 0
    while time.monotonic() < until:
        folder = "%s/w%d.%d" % (top, worker, d)
        os.mkdir(folder)
        for i in range(per_dir):
            if i % 100 == 0:
                with left.get_lock():
                    if left.value <= 0 or time.monotonic() >= until:
                        return
                    left.value -= 100
            path = "%s/file-%07d" % (folder, i)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            made += 1
            counts[worker] = made
        d += 1
        if worker == 0:
            return


def report(c, counts, started, before):
    total, one = sum(counts), counts[0]
    now = time.monotonic()
    seconds = now - before[0]
    print("%6.0f %10d %9d %8.0f %8.0f %8d %8d" % (
        now - started, total, one, (total - before[1]) / seconds, (one - before[2]) / seconds,
        resident(c.pid("mds")), resident(c.pid("mnt1"))), flush=True)
    return now, total, one


def create(c, options):
    n = options.workers + 1
    counts = multiprocessing.Array("L", n, lock=False)
    left = multiprocessing.Value("l", options.files)
    top = c.mnt() + "/many"
    os.mkdir(top)
    started = time.monotonic()
    until = started + options.seconds
    ps = [multiprocessing.Process(target=fill, args=(
        top, i, ONE_DIR if i == 0 else OTHER_DIRS, counts, left, until)) for i in range(n)]
    for p in ps:
        p.start()
    print("%6s %10s %9s %8s %8s %8s %8s" % ("s", "files", "in one", "files/s", "one/s", "mds MiB",
                                            "mnt MiB"))
    before = (started, 0, 0)
    while any(p.is_alive() for p in ps):
        ends = time.monotonic() + PRINT_S
        while time.monotonic() < ends and any(p.is_alive() for p in ps):
            time.sleep(0.2)
        before = report(c, counts, started, before)
    for p in ps:
        p.join()
        assert p.exitcode == 0, "a worker failed"
    return top, counts[0], sum(counts)


def timed(what, fn, *args):
    started = time.monotonic()
    n = fn(*args)
    seconds = time.monotonic() - started
    print("%-52s %8.1f s%s" % (what, seconds, " %9.0f/s" % (n / seconds) if n else ""), flush=True)


def list_names(folder):
    n = sum(1 for _ in os.scandir(folder))
    return n


def list_all(folder):
    n = 0
    with os.scandir(folder) as entries:
        for e in entries:
            e.stat(follow_symlinks=False)
            n += 1
    return n


def stat_random(folder, n_files):
    rng = random.Random(1)
    n = min(5000, n_files)
    for _ in range(n):
        os.stat("%s/file-%07d" % (folder, rng.randrange(n_files)))
    return n


def restart(c):
    c.stop("mds")
    c.start("mds")
    os.stat(c.mnt() + "/many")
    return 0


def remove(folder):
    n = 0
    with os.scandir(folder) as entries:
        for e in entries:
            os.unlink(e.path)
            n += 1
    os.rmdir(folder)
    return n


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--files", type=int, default=1_000_000)
    p.add_argument("--seconds", type=int, default=3600)
    p.add_argument("--workers", type=int, default=7)
    p.add_argument("--remove", action="store_true")
    options = p.parse_args()
    with Cluster(size="1G") as c:
        top, in_one, total = create(c, options)
        one, other = top + "/w0.0", c.mnt(2) + "/many/w0.0"
        timed("names of %d files, the other mount" % in_one, list_names, other)
        timed("names and attributes, the other mount", list_all, other)
        timed("the same once more", list_all, other)
        timed("random stats, this mount", stat_random, one, in_one)
        timed("the metadata server restarted, first stat", restart, c)
        timed("random stats, the other mount, after it", stat_random, other, in_one)
        if options.remove:
            timed("removed, the directory with them", remove, one)
        status = json.loads(c.leat("status", "--json").stdout)
        size = subprocess.run(["du", "-sm", c.dev + "/mds"], stdout=subprocess.PIPE, check=True)
        print("resident MiB: " + ", ".join("%s %d (configured %d)" % (
            name, resident(c.pid(name)), cap) for name, cap in CAPS.items()))
        print("inodes %s, store %d MiB" % (status["mds"].get("inodes", total),
                                           int(size.stdout.split()[0])))


if __name__ == "__main__":
    main()
