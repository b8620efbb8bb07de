#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a client that reads from the servers pays for comparing a named version with its manifest.

    tests/bench/named_reads.py [--rounds N] [--mib N] [--dir DIR] [--max-load X]

Records of 4 KiB, 128 KiB and 1 MiB of one file, and of 100,000 and 1,000,000 bytes, which begin and
end within blocks, each once, in random order, by the loader (loader_rate.c): by a path, which gives
no guarantee, and by the name of a version, each block of which is compared with the manifest. Each
round measures both, one after the other, with enough repetitions.

On a development cluster of its own, whose servers keep their data in DIR. Prints a Markdown table:
microseconds of the client's CPU (user and system) per read, medians of the rounds, and their ratio
(goal 1.05), the median of the rounds' own ratios. Processor time is counted, not waiting, but a
busy machine's caches and clocks make it larger: the program exits when the load is above --max-load
(0.7 for each CPU); --max-load 0 measures in any case.
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
RECORDS = (4096, 131072, 1 << 20, 100_000, 1_000_000)
BATCH_BYTES, LEAST_S = 8 << 20, 1.0
SOURCES = {"path": "/bench%d", "named": "bench%d@v1"}


def run(*args):
    return subprocess.run(args, check=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE).stdout


def dev_cluster(*args):
    return run(SRC + "/deploy/dev-cluster", *args)


def read_once(source, record):
    """(reads, CPU seconds) of all records, each once."""
    batch = max(1, min(256, BATCH_BYTES // record))
    got, _, cpu = map(float, run(BUILD + "/tests/loader_rate", "servers", SOURCES[source] % record,
                                 str(batch), str(record)).split())
    return got / record, cpu


def one_round(record):
    """{source: CPU us per read}, alternating between both."""
    reads, cpu = dict.fromkeys(SOURCES, 0), dict.fromkeys(SOURCES, 0)
    while min(cpu.values()) < LEAST_S:
        for source in SOURCES:
            n, s = read_once(source, record)
            reads[source] += n
            cpu[source] += s
    return {source: cpu[source] / reads[source] * 1e6 for source in SOURCES}


def measure(size, rounds):
    """[(record, us by path, us by name, ratio)]"""
    mount = dev_cluster("mountpoint").strip()
    rows = []
    for record in RECORDS:
        folder = "/bench%d" % record
        os.mkdir(mount + folder)
        with open(mount + folder + "/records", "wb") as f:
            for _ in range(size // record):
                f.write(os.urandom(record))
            f.flush()
            os.fsync(f.fileno())
        run(BUILD + "/leat", "dataset", "create", "bench%d@v1" % record, "leat:" + folder)
        all_rounds = [one_round(record) for _ in range(rounds)]
        for r in all_rounds:
            print("%d: %.1f us by path, %.1f by name" % (record, r["path"], r["named"]),
                  file=sys.stderr)
        rows.append((record, *(statistics.median(r[s] for r in all_rounds) for s in SOURCES),
                     statistics.median(r["named"] / r["path"] for r in all_rounds)))
    return rows


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n", 2)[2])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mib", type=int, default=256)
    p.add_argument("--dir", default=os.environ.get("TMPDIR", "/tmp"))
    p.add_argument("--max-load", type=float, default=0.7 * os.cpu_count())
    o = p.parse_args()
    load = os.getloadavg()[0]
    if o.max_load and load > o.max_load:
        sys.exit("named_reads.py: the load is %.1f: wait, or --max-load 0" % load)
    with tempfile.TemporaryDirectory(prefix="leat-bench-", dir=o.dir) as tmp:
        os.environ.update(LEAT_DEV=tmp + "/dev", BUILD=BUILD, LEAT_CONF=tmp + "/dev/conf",
                          LEAT_DEV_MOUNTS="1")
        try:
            dev_cluster("up")
            rows = measure(o.mib << 20, o.rounds)
        finally:
            dev_cluster("down")
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"], check=False,
                            capture_output=True, text=True).stdout.strip()
    print("- %s, %d CPUs, commit %s, load %.1f at the start and %.1f at the end\n" % (
        platform.platform(), os.cpu_count(), commit, load, os.getloadavg()[0]))
    print("| bytes of a record | by path, us | by name, us | ratio |")
    print("|---:|---:|---:|---:|")
    for row in rows:
        print("| %d | %.1f | %.1f | %.2f |" % row)


if __name__ == "__main__":
    main()
