#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a small random read from the servers costs: the loader's batches, the mount, a local file.

    tests/bench/loader_servers.py [--rounds N] [--mib N] [--dir DIR] [--max-load X]

4 KiB records of one file, each once, in random order:

    loader    from C (loader_rate.c), batches of 256, directly from the servers
    mount     fio through a mount of that cluster, O_DIRECT, io_uring, 4 jobs of 16
    local     fio on a file in DIR (default $TMPDIR, else /tmp), 1 job of 64

On a development cluster of its own, whose servers keep their data in DIR too. Prints a Markdown
table: reads per second, CPU of the client (program and mount) and of the servers per read in
microseconds, medians of the rounds. The goals: the loader's rate is at least 0.6 of the local
file's, its client's CPU at most a quarter of the mount's. With other programs busy the figures mean
little: the program exits when the load is above --max-load (0.7 for each CPU); --max-load 0
measures in any case.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
RECORD, BATCH = 4096, 256
TICK = os.sysconf("SC_CLK_TCK")


def dev_cluster(*args):
    return subprocess.run([SRC + "/deploy/dev-cluster", *args], check=True, text=True, timeout=180,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout


def ticks(pid):
    with open("/proc/%s/stat" % pid, encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Daemons:
    """CPU seconds of the cluster's processes since the last call: (of mounts, of servers)."""

    def __init__(self):
        self.pids = [line.split() for line in dev_cluster("pids").splitlines()]
        self.before = self.used()

    def used(self):
        sums = {True: 0.0, False: 0.0}
        for role, pid in self.pids:
            sums[role == "client"] += ticks(pid) / TICK
        return sums[True], sums[False]

    def since(self):
        before, self.before = self.before, self.used()
        return [b - a for a, b in zip(before, self.before)]


def loader(daemons):
    daemons.since()
    out = subprocess.run([BUILD + "/tests/loader_rate", "servers", "/bench", str(BATCH),
                          str(RECORD)], check=True, text=True, stdout=subprocess.PIPE,
                         timeout=300, stdin=subprocess.DEVNULL).stdout
    got, wall, cpu = (float(x) for x in out.split())
    n = got / RECORD
    return n / wall, cpu / n * 1e6, daemons.since()[1] / n * 1e6


def fio(path, jobs, depth, size, daemons):
    daemons.since()
    began = time.monotonic()
    out = subprocess.run(["fio", "--name=read", "--filename=" + path, "--rw=randread", "--bs=4k",
                          "--direct=1", "--ioengine=io_uring", "--iodepth=%d" % depth,
                          "--numjobs=%d" % jobs, "--runtime=8", "--time_based", "--size=%d" % size,
                          "--group_reporting", "--output-format=json"], check=True, text=True,
                         stdout=subprocess.PIPE, timeout=120, stdin=subprocess.DEVNULL).stdout
    job = json.loads(out[out.index("{"):])["jobs"][0]
    mounts, servers = daemons.since()
    n = job["read"]["total_ios"]
    own = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    if time.monotonic() - began < 7 or n == 0:
        sys.exit("loader_servers.py: fio ended early")
    return job["read"]["iops"], (own + mounts) / n * 1e6, servers / n * 1e6


def measure(tmp, size, rounds):
    """{name: [reads/s, client CPU us, servers' CPU us]}, medians."""
    mount = dev_cluster("mountpoint").strip()
    os.mkdir(mount + "/bench")
    for path in mount + "/bench/records", tmp + "/local":
        with open(path, "wb") as f:
            for _ in range(size >> 20):
                f.write(os.urandom(1 << 20))
            f.flush()
            os.fsync(f.fileno())
    daemons = Daemons()
    got = {}
    for _ in range(rounds):
        for name, run in (("loader", lambda: loader(daemons)),
                          ("mount", lambda: fio(mount + "/bench/records", 4, 16, size, daemons)),
                          ("local", lambda: fio(tmp + "/local", 1, 64, size, daemons))):
            got.setdefault(name, []).append(run())
            print("%s: %.0f reads/s, %.1f us client, %.1f us servers" % (name, *got[name][-1]),
                  file=sys.stderr)
    return {name: [statistics.median(x) for x in zip(*rows)] for name, rows in got.items()}


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n", 2)[2])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mib", type=int, default=512)
    p.add_argument("--dir", default=os.environ.get("TMPDIR", "/tmp"))
    p.add_argument("--max-load", type=float, default=0.7 * os.cpu_count())
    o = p.parse_args()
    load = os.getloadavg()[0]
    if o.max_load and load > o.max_load:
        sys.exit("loader_servers.py: the load is %.1f: wait, or --max-load 0" % load)
    with tempfile.TemporaryDirectory(prefix="leat-bench-", dir=o.dir) as tmp:
        os.environ.update(LEAT_DEV=tmp + "/dev", BUILD=BUILD, LEAT_CONF=tmp + "/dev/conf")
        try:
            dev_cluster("up")
            got = measure(tmp, o.mib << 20, o.rounds)
        finally:
            dev_cluster("down")
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"], check=False,
                            capture_output=True, text=True).stdout.strip()
    print("- %s, %d CPUs, commit %s, load %.1f at the start and %.1f at the end\n" % (
        platform.platform(), os.cpu_count(), commit, load, os.getloadavg()[0]))
    print("| 4 KiB random reads | reads/s | client CPU, us | servers' CPU, us |")
    print("|---|---:|---:|---:|")
    for name, row in got.items():
        print("| %s | %.0f | %.1f | %.1f |" % (name, *row))
    print("\nloader / local: %.2f of the rate; loader / mount: %.2f of the client's CPU" % (
        got["loader"][0] / got["local"][0], got["loader"][1] / got["mount"][1]))


if __name__ == "__main__":
    main()
