#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The loader's disk cache, which has the future order, beside LRU on equal accesses.

    tests/bench/loader_cache.py [--samples N] [--bytes N] [--epochs N] [--share F] [--dir DIR]

A data set of fixed records is read for some epochs with a cache of a share of its size (a half).
The samples that the loader delivered, in their order, are then run through an LRU cache of the same
size, and through the optimum: Belady's algorithm with the whole trace. Prints the share of accesses
that hit from the second epoch on (the first one fills the cache), and the ratio to LRU. The data
set and the cache are in DIR (default: a new folder in $TMPDIR), removed at the end.
"""
import argparse
import bisect
import collections
import heapq
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, SRC + "/client/python")
import leat  # noqa: E402

UNIT, TRAILER, FILES = 4096, 32, 64  # the space of a piece on disk: client/loader/source/belady.c
ORDERS = ("global", "window:8", "file", "sequential")


def lru(trace, room):
    """Which accesses hit."""
    held, hits = collections.OrderedDict(), []
    for sample in trace:
        hits.append(sample in held)
        held[sample] = None
        held.move_to_end(sample)
        if len(held) > room:
            held.popitem(last=False)
    return hits


def optimum(trace, room):
    """Which accesses hit with Belady's algorithm, which may also leave out what it has just
    read."""
    times = collections.defaultdict(list)
    for t, sample in enumerate(trace):
        times[sample].append(t)
    held, farthest, hits = {}, [], []
    for t, sample in enumerate(trace):
        hits.append(sample in held)
        later = times[sample]
        k = bisect.bisect_right(later, t)
        held[sample] = later[k] if k < len(later) else len(trace) + t
        heapq.heappush(farthest, (-held[sample], sample))
        while len(held) > room:
            when, victim = heapq.heappop(farthest)
            if held.get(victim) == -when:
                del held[victim]
    return hits


def make_records(folder, samples, size):
    for f in range(FILES):
        with open("%s/%03d.bin" % (folder, f), "wb") as out:
            for s in range(f, samples, FILES):
                out.write(s.to_bytes(8, "little") * (size // 8))


def measure(folder, order, samples, size, epochs, share):
    """(hit rate of the loader, of LRU, of the optimum) from the second epoch on."""
    room = int(samples * share)
    cost = -(-(size + TRAILER) // UNIT) * UNIT
    cache = folder + "/cache"
    trace, counted = [], []
    with leat.Dataset(folder + "/data", format="fixed:%d" % size) as ds, leat.DataLoader(
            ds, 50, order=order, seed=7, tail="shorter", framework="numpy", cache_dir=cache,
            cache_bytes=room * cost) as loader:
        for _ in range(epochs):
            for batch in loader:
                ids = batch.ids.tolist()
                for i, record in zip(ids, batch["record"]):
                    first = int.from_bytes(record[:8].tobytes(), "little")
                    if first % FILES * (samples // FILES) + first // FILES != i:
                        raise SystemExit("sample %d has the bytes of another" % i)
                trace += ids
            del batch, record  # they would keep a slot
            while loader.metrics()["ready"] < loader.metrics()["depth"]:
                time.sleep(0.01)  # read-ahead of the next epoch counts for this one
            m = loader.metrics()
            counted.append((m["cache_hits"], m["cache_hits"] + m["cache_misses"]))
    shutil.rmtree(cache)
    hits, asked = counted[-1][0] - counted[0][0], counted[-1][1] - counted[0][1]
    return (hits / asked, sum(lru(trace, room)[samples:]) / (len(trace) - samples),
            sum(optimum(trace, room)[samples:]) / (len(trace) - samples))


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--samples", type=int, default=64000)
    p.add_argument("--bytes", type=int, default=4064)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--share", type=float, default=0.5)
    p.add_argument("--dir")
    a = p.parse_args()
    folder = tempfile.mkdtemp(prefix="loader-cache.", dir=a.dir)
    try:
        os.mkdir(folder + "/data")
        samples, size = a.samples // FILES * FILES, a.bytes // 8 * 8
        make_records(folder + "/data", samples, size)
        commit = subprocess.run(["git", "-C", SRC, "describe", "--always", "--dirty"], text=True,
                                capture_output=True, check=False).stdout.strip()
        print("%s, %d cores, commit %s: %d records of %d bytes, cache for %.0f %%, %d epochs" %
              (platform.machine(), os.cpu_count(), commit, samples, size, a.share * 100, a.epochs))
        print("| order | Leat | optimum | LRU | Leat / LRU |\n|---|---|---|---|---|")
        for order in ORDERS:
            ours, by_lru, best = measure(folder, order, samples, size, a.epochs, a.share)
            print("| %s | %.3f | %.3f | %.3f | %s |" %
                  (order, ours, best, by_lru, "%.2f" % (ours / by_lru) if by_lru else "-"))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
