#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much foreground performance is left while a member of the chains is resynced.

    tests/bench/resync.py [--rounds N] [--mib N] [--replicas R]

On one cluster, in turn: a writer and a reader for some seconds while every chain is whole; then a
server is killed, --mib MiB are written without it, and it restarts: the writer and the reader run
until `leat status` reports that all chains are whole again. Prints MiB/s of either, their ratio,
and how fast the member was filled; medians of the rounds.
"""
import argparse
import json
import mmap
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
from cluster import SRC, Cluster, wait_until

MIB = 1 << 20
QUIET_S = 6
FILE_MIB = 128


class Load:
    """1 MiB direct reads of one file and 1 MiB synced writes of another, at random places."""

    def __init__(self, folder):
        self.done = {"read": 0, "write": 0}
        self.fixed, self.changed = folder + "/fixed", folder + "/changed"
        for path in (self.fixed, self.changed):
            write_file(path, FILE_MIB)

    def run(self, until):
        """{"read": MiB/s, "write": MiB/s, "seconds": s} of the time until `until()`."""
        stop = threading.Event()
        self.done = {"read": 0, "write": 0}
        threads = [threading.Thread(target=f, args=(stop,)) for f in (self.read, self.write)]
        begin = time.monotonic()
        for t in threads:
            t.start()
        try:
            while not until(time.monotonic() - begin):
                time.sleep(0.05)
            seconds = time.monotonic() - begin
            done = dict(self.done)
        finally:
            stop.set()
            for t in threads:
                t.join()
        return {"seconds": seconds, **{k: n / seconds for k, n in done.items()}}

    def read(self, stop):
        rng, buffer = random.Random(1), mmap.mmap(-1, MIB)
        fd = os.open(self.fixed, os.O_RDONLY | os.O_DIRECT)
        while not stop.is_set():
            assert os.preadv(fd, [buffer], rng.randrange(FILE_MIB) * MIB) == MIB
            self.done["read"] += 1
        os.close(fd)

    def write(self, stop):
        rng, data = random.Random(2), os.urandom(MIB)
        fd = os.open(self.changed, os.O_WRONLY | os.O_DSYNC)
        while not stop.is_set():
            assert os.pwrite(fd, data, rng.randrange(FILE_MIB) * MIB) == MIB
            self.done["write"] += 1
        os.close(fd)


def write_file(path, mib):
    data = os.urandom(MIB)
    with open(path, "wb", buffering=0) as f:
        for _ in range(mib):
            f.write(data)
        os.fsync(f.fileno())


def whole(c):
    status = c.leat("status", "--json", check=False, timeout=20).stdout
    try:
        chains = json.loads(status)["mds"]["chains"]
    except ValueError:
        return False
    return chains["n"] > 0 and chains["whole"] == chains["n"]


def one_round(c, load, folder, mib):
    quiet = load.run(lambda s: s >= QUIET_S)
    victim = c.ossd[0]
    c.kill(victim, signal.SIGKILL)
    wait_until(lambda: not c.alive(victim), 10, victim + " is gone")
    write_file(folder + "/missed", mib)
    c.start(victim)
    filling = load.run(lambda s: s > 1 and whole(c))
    os.unlink(folder + "/missed")
    return quiet, filling


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--replicas", type=int, default=2)
    o = p.parse_args()
    v = {k: [] for k in ("read", "write", "read ratio", "write ratio", "filled", "seconds")}
    with Cluster(size="4G", replicas=o.replicas) as c:
        load = Load(c.mnt())
        wait_until(lambda: whole(c), 30, "all chains are whole")
        for _ in range(o.rounds):
            quiet, filling = one_round(c, load, c.mnt(), o.mib)
            for k in ("read", "write"):
                v[k].append(quiet[k])
                v[k + " ratio"].append(filling[k] / quiet[k])
            v["seconds"].append(filling["seconds"])
            v["filled"].append(o.mib * o.replicas / len(c.ossd) / filling["seconds"])
    m = {k: statistics.median(x) for k, x in v.items()}
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    print("%d CPUs, commit %s, %d rounds, %d copies" % (os.cpu_count(), commit, o.rounds,
                                                        o.replicas))
    print("reads %.0f MiB/s, of it during the resync %.2f (%s)" %
          (m["read"], m["read ratio"], " ".join("%.2f" % x for x in v["read ratio"])))
    print("writes %.0f MiB/s, of it during the resync %.2f (%s)" %
          (m["write"], m["write ratio"], " ".join("%.2f" % x for x in v["write ratio"])))
    print("resync: %.0f MiB/s at least, %.1f s" % (m["filled"], m["seconds"]))


if __name__ == "__main__":
    main()
