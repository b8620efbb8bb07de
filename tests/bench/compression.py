#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What compression costs and saves: the same data into a plain and a compressed directory of one
cluster, in turn, in one run.

    tests/bench/compression.py [--rounds N] [--mib N]

Data: text (the sources of Leat), noise (random bytes, which do not compress), half (every other 16
KiB of each). Prints MiB/s of plain bytes of a file written and fsynced through one mount, read
through another that has not cached it, and MiB on disk; medians of the rounds and the ratio to the
plain directory.
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
from cluster import SRC, Cluster

MIB = 1 << 20
BLOCK = 16 << 10


def sources(length):
    text = bytearray()
    for folder, _, names in sorted(os.walk(SRC)):
        for name in sorted(n for n in names if n.endswith((".c", ".h", ".py", ".md"))):
            if "/build" not in folder and len(text) < length:
                with open(os.path.join(folder, name), "rb") as f:
                    text += f.read()
    return bytes((text * (length // len(text) + 1))[:length])


def kinds():
    """At least a MiB of each, repeated while writing: the period is longer than a block."""
    text, noise = sources(8 * MIB), os.urandom(8 * MIB)
    half = b"".join((noise if i % 2 else text)[i * BLOCK:(i + 1) * BLOCK] for i in range(512))
    return {"text": text, "noise": noise, "half": half}


def write(path, data, mib):
    begin = time.monotonic()
    with open(path, "wb", buffering=0) as f:
        for i in range(mib):
            f.write(data[i % 8 * MIB:(i % 8 + 1) * MIB])
        os.fsync(f.fileno())
    return mib / (time.monotonic() - begin)


def read(path, data, mib):
    begin = time.monotonic()
    with open(path, "rb", buffering=0) as f:
        for i in range(mib):
            assert f.read(MIB) == data[i % 8 * MIB:(i % 8 + 1) * MIB]
    return mib / (time.monotonic() - begin)


def one(c, folder, data, mib):
    path = folder + "/file"
    rates = write(path, data, mib), read(path.replace(c.mnt(1), c.mnt(2)), data, mib)
    time.sleep(1.2)  # attributes are cached for a second
    stored = os.stat(path).st_blocks * 512 / MIB
    os.unlink(path)
    return rates + (stored,)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mib", type=int, default=256)
    o = p.parse_args()
    figures, data = {}, kinds()
    with Cluster(size="2G") as c:
        for layout in ("off", "lz4"):
            os.mkdir("%s/%s" % (c.mnt(), layout))
            c.leat("layout", "set", "--compression", layout, "%s/%s" % (c.mnt(), layout))
        for n in range(o.rounds + 1):  # round 0 is a warm-up
            for kind in data:
                for layout in ("off", "lz4"):
                    values = one(c, "%s/%s" % (c.mnt(), layout), data[kind], o.mib)
                    if n > 0:
                        figures.setdefault((kind, layout), []).append(values)
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    print("%s, %d CPUs, commit %s, %d rounds, %d MiB" % (platform.machine(), os.cpu_count(), commit,
                                                         o.rounds, o.mib))
    print("| data | compression | write MiB/s | ratio | read MiB/s | ratio | on disk MiB | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    m = {k: [statistics.median(x) for x in zip(*v)] for k, v in figures.items()}
    for kind, layout in m:
        cells = ["%.0f | %.2f" % (a, a / b) for a, b in zip(m[kind, layout], m[kind, "off"])]
        print("| %s | %s | %s |" % (kind, layout, " | ".join(cells)))


if __name__ == "__main__":
    main()
