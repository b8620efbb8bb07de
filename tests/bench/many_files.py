#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""many_files.py [--files N] [--seconds S] [--workers W] [--bulk [--mknod]] [--remove]: very many
files.

A development cluster of its own below TMPDIR. One process fills one directory with 10^6 files while
W others fill directories of 100,000, all through one mount, until there are N files or S seconds
have passed. With --bulk a program makes them through the library instead, one directory (--per-dir)
after the other, with --at-once of them in flight. Prints --steps times, or every half minute, the
number of files, the rate, the processor time of each (microseconds in mds, mount and programs), and
the resident memory of metadata server and mount (with --bulk: of the program); then the times of
listings, random stats and a restart of the metadata server, the cost of removing, and resident
memory beside the configured limits.
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
from cluster import BUILD, Cluster

ONE_DIR, OTHER_DIRS = 1_000_000, 100_000
MIB = 1 << 20
PRINT_S = 30
# [mds] by default: cache_mib + kv_cache_mib + 3 * kv_write_buffer_mib, 256 bytes for each of
# leases_max, 64 MiB for the program. The mount: slot_memory, inodes_max and names_max.
MOUNT = 128 + 100 + 30 + 64
CAPS = {"mds": 256 + 128 + 3 * 64 + 256 + 64, "mnt1": MOUNT, "mnt2": MOUNT}


TICK = os.sysconf("SC_CLK_TCK")


def resident(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(dict(line.split(":", 1) for line in f)["VmRSS"].split()[0]) // 1024


used = {}


def cpu_s(pids):
    """Of the processes; of one that has ended, its use at the last call."""
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid) as f:
                used[pid] = sum(int(v) for v in f.read().rsplit(")", 1)[1].split()[11:13])
        except FileNotFoundError:
            pass
    return sum(used[pid] for pid in pids) / TICK


class Curve:
    """Lines of a table, one for each phase."""

    def __init__(self, mds, mount, programs):
        self.pids = {"mds": [mds], "mnt": [mount], "prog": programs}
        self.begun = time.monotonic()
        self.before = self.now(0, 0)
        print("%6s %10s %9s %8s %8s %7s %7s %7s %8s %8s" % (
            "s", "files", "in one", "files/s", "one/s", "mds us", "mnt us", "prog us", "mds MiB",
            "mnt MiB"))

    def now(self, total, one):
        return {"s": time.monotonic(), "total": total, "one": one,
                **{name: cpu_s(pids) for name, pids in self.pids.items()}}

    def line(self, total, one):
        now, before = self.now(total, one), self.before
        d = {name: now[name] - before[name] for name in now}
        each = [1e6 * d[name] / max(1, d["total"]) for name in ("mds", "mnt", "prog")]
        print("%6.0f %10d %9d %8.0f %8.0f %7.0f %7.0f %7.0f %8d %8d" % (
            now["s"] - self.begun, total, one, d["total"] / d["s"], d["one"] / d["s"], *each,
            resident(self.pids["mds"][0]), resident(self.pids["mnt"][0])), flush=True)
        self.before = now


def fill(top, worker, per_dir, counts, left, until):
    """Counts the files made in counts[worker], until none is left or the time has passed."""
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


def create(c, options):
    n = options.workers + 1
    counts = multiprocessing.Array("L", n, lock=False)
    left = multiprocessing.Value("l", options.files)
    top = c.mnt() + "/many"
    os.mkdir(top)
    until = time.monotonic() + options.seconds
    ps = [multiprocessing.Process(target=fill, args=(
        top, i, ONE_DIR if i == 0 else OTHER_DIRS, counts, left, until)) for i in range(n)]
    for p in ps:
        p.start()
    curve = Curve(c.pid("mds"), c.pid("mnt1"), [p.pid for p in ps])
    step = options.files // options.steps
    while any(p.is_alive() for p in ps):
        ends = time.monotonic() + PRINT_S
        while time.monotonic() < ends and sum(counts) < curve.before["total"] + step and any(
                p.is_alive() for p in ps):
            time.sleep(0.1)
        curve.line(sum(counts), counts[0])
    for p in ps:
        p.join()
        assert p.exitcode == 0, "a worker failed"
    return top + "/w0.0", counts[0], sum(counts)


def create_bulk(c, options):
    top = c.mnt() + "/many"
    os.mkdir(top)
    argv = [BUILD + "/tests/bulk_files", c.dev + "/conf", "/many", str(options.files),
            str(options.per_dir), str(options.at_once)] + (["mknod"] if options.mknod else [])
    until = time.monotonic() + options.seconds
    made = 0
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as p:
        curve = Curve(c.pid("mds"), p.pid, [p.pid])
        for line in p.stdout:
            made = int(line)
            if made < options.files and (
                    made >= curve.before["total"] + options.files // options.steps or
                    time.monotonic() >= curve.before["s"] + PRINT_S):
                curve.line(made, min(made, options.per_dir))
            if time.monotonic() >= until:
                p.terminate()
                break
    assert p.returncode == 0 or time.monotonic() >= until, "bulk_files failed"
    return top + "/d00000", min(made, options.per_dir), made


def timed(what, fn, *args):
    started = time.monotonic()
    n = fn(*args)
    seconds = time.monotonic() - started
    print("%-52s %8.1f s%s" % (what, seconds, " %9.0f/s" % (n / seconds) if n else ""), flush=True)


def list_names(folder, names):
    names += [e.name for e in os.scandir(folder)]
    return len(names)


def list_all(folder):
    n = 0
    with os.scandir(folder) as entries:
        for e in entries:
            e.stat(follow_symlinks=False)
            n += 1
    return n


def stat_random(folder, names):
    rng = random.Random(1)
    n = min(5000, len(names))
    for name in rng.choices(names, k=n):
        os.stat(folder + "/" + name)
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
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--workers", type=int, default=7)
    p.add_argument("--bulk", action="store_true")
    p.add_argument("--mknod", action="store_true")
    p.add_argument("--per-dir", type=int, default=OTHER_DIRS)
    p.add_argument("--at-once", type=int, default=64)
    p.add_argument("--remove", action="store_true")
    p.add_argument("--client", action="append", default=[], metavar="NAME=VALUE",
                   help="parameter of the mounts, as inodes_max=10000")
    options = p.parse_args()
    conf = {"client": dict(v.split("=", 1) for v in options.client)}
    with Cluster(size="1G", conf=conf) as c:
        one, in_one, total = (create_bulk if options.bulk else create)(c, options)
        other, names = one.replace(c.mnt(), c.mnt(2)), []
        timed("names of %d files, the other mount" % in_one, list_names, other, names)
        assert len(names) >= in_one, (len(names), in_one)
        timed("names and attributes, the other mount", list_all, other)
        timed("the same once more", list_all, other)
        timed("random stats, this mount", stat_random, one, names)
        timed("the metadata server restarted, first stat", restart, c)
        timed("random stats, the other mount, after it", stat_random, other, names)
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
