#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Staging by many nodes, simulated with the shipped code (tests/sim/README.md): how long N nodes
take beside one, and how often the source is read.

    tests/bench/fanout.py [--chunks N] [--nodes N,N,...] [--out DIR]

Prints a table; --out writes fanout.csv and fanout.svg. Virtual time: the machine's speed and load
change only the run time.
"""
import argparse
import csv
import math
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("BUILD", os.path.join(HERE, "..", "..", "build"))
FIELDS = ["nodes", "chunks", "ready", "dead", "lying", "slow", "seconds", "seconds_all",
          "amplification", "busiest", "dropped", "lied"]
WIDTH, HEIGHT, MARGIN = 720, 400, 60


def simulate(nodes, chunks, faults):
    argv = [BUILD + "/leat-sim", "fanout", "--nodes", str(nodes), "--chunks", str(chunks)]
    out = subprocess.run(argv + (["--faults"] if faults else []), check=True, capture_output=True,
                         text=True).stdout
    row = dict(zip(FIELDS, (float(x) for x in out.split("\n")[0].split(","))))
    row["faults"] = faults
    return row


def place(row, rows, value, top):
    most = math.log(max(r["nodes"] for r in rows)) or 1
    x = MARGIN + (WIDTH - 2 * MARGIN) * math.log(row["nodes"]) / most
    return x, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * min(value, top) / top


def plot(rows, path):
    """A graph of the time, as a multiple of one node's time, and of the amplification, over the
    number of nodes (logarithmic)."""
    top = max(2.5, max(r["times"] for r in rows))
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
             'font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" '
             'fill="white"/>' % (WIDTH, HEIGHT)]
    for tick in range(int(top * 2) + 1):
        y = place(rows[0], rows, tick / 2, top)[1]
        parts.append('<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" '
                     'text-anchor="end">%.1f</text>' %
                     (MARGIN, y, WIDTH - MARGIN, MARGIN - 6, y + 4, tick / 2))
    for row in rows:
        x = place(row, rows, 0, top)[0]
        parts.append('<text x="%.1f" y="%d" text-anchor="middle">%d</text>' %
                     (x, HEIGHT - MARGIN + 18, row["nodes"]))
    lines = [("times", False, "#1f77b4", "time / one node's"),
             ("amplification", False, "#2ca02c", "source bytes / data set"),
             ("times", True, "#d62728", "time, 5 % of the nodes faulty"),
             ("amplification", True, "#9467bd", "source bytes, 5 % faulty")]
    for i, (what, faults, colour, label) in enumerate(lines):
        points = [place(r, rows, r[what], top) for r in rows if r["faults"] == faults]
        parts.append('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>' %
                     (colour, " ".join("%.1f,%.1f" % p for p in points)))
        parts += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (x, y, colour)
                  for x, y in points]
        parts.append('<text x="%d" y="%d" fill="%s">%s</text>' %
                     (MARGIN + 10, 20 + 15 * i, colour, label))
    parts.append('<text x="%d" y="%d" text-anchor="middle">nodes</text></svg>' %
                 (WIDTH // 2, HEIGHT - 14))
    with open(path, "w") as f:
        f.write("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=2000)
    parser.add_argument("--nodes", default="1,2,4,8,16,32,64,125,250,500,1000")
    parser.add_argument("--out")
    args = parser.parse_args()
    nodes = [int(n) for n in args.nodes.split(",")]
    rows, alone = [], simulate(1, args.chunks, False)["seconds"]
    print("| nodes | faulty | seconds | times one node's | slow ones too | amplification | "
          "busiest gave | left out |\n|---|---|---|---|---|---|---|---|")
    for faults in (False, True):
        for n in nodes:
            row = simulate(n, args.chunks, faults)
            row["times"] = row["seconds"] / alone
            rows.append(row)
            print("| %d | %d | %.1f | %.2f | %.0f | %.3f | %.2f | %d |" %
                  (n, row["dead"] + row["lying"] + row["slow"], row["seconds"], row["times"],
                   row["seconds_all"], row["amplification"], row["busiest"], row["dropped"]),
                  flush=True)
    if args.out:
        os.makedirs(args.out, exist_ok=True)
        with open(args.out + "/fanout.csv", "w", newline="") as f:
            writer = csv.DictWriter(f, FIELDS + ["faults", "times"])
            writer.writeheader()
            writer.writerows(rows)
        plot(rows, args.out + "/fanout.svg")


main()
