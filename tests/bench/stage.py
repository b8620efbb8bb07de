#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`leat stage in` on one node beside a plain copier (stage_copier.c), in one run: equal bytes, from
a local folder and from a cluster on this machine, to one disk, caches dropped before each time.

    tests/bench/stage.py [--rounds N] [--mib N] [--files N] [--nodes N]

Prints MiB/s and CPU-s per GiB (of the command alone, and with the servers), medians of the rounds,
and the ratio to the copier. The goal is 0.9. Then --nodes agents together: the time of all beside
that of one with an equal rate limit (RATE each), and how often the source was read. Goals: 1.3
times and 1.05. Both alternate within a round, so that other load on the machine affects both.
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import ports
from cluster import BUILD, SERVERS, SRC, Cluster

RATE = 40 << 20


def cpu_of(pids):
    ticks = 0
    for pid in pids:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(argv, servers=()):
    subprocess.run(["sync"], check=True)
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")
    before, others = os.times(), cpu_of(servers)
    start = time.perf_counter()
    out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    took = time.perf_counter() - start
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - \
        before.children_system
    return took, cpu, cpu + cpu_of(servers) - others, out


def one_node(args, leat, servers, data, work):
    figures = {"copier": [], "stage local": [], "stage cluster": []}
    for _ in range(args.rounds):
        to = os.path.join(work, "to")
        os.mkdir(to)
        figures["copier"].append(timed([BUILD + "/tests/stage_copier", data, to])[:3])
        shutil.rmtree(to)
        figures["stage local"].append(timed(
            [leat, "stage", "in", "local@v1", "--catalog", os.path.join(work, "catalog"), "--to",
             os.path.join(work, "node")])[:3])
        shutil.rmtree(os.path.join(work, "node"))
        figures["stage cluster"].append(timed(
            [leat, "stage", "in", "set@v1", "--to", os.path.join(work, "node")], servers)[:3])
        shutil.rmtree(os.path.join(work, "node"))
    gib = args.mib / 1024
    base = statistics.median(f[0] for f in figures["copier"])
    print("| what | MiB/s | CPU-s/GiB | with servers | ratio |\n|---|---|---|---|---|")
    for what, f in figures.items():
        took = statistics.median(x[0] for x in f)
        print("| %s | %.0f | %.2f | %.2f | %.2f |" %
              (what, args.mib / took, statistics.median(x[1] for x in f) / gib,
               statistics.median(x[2] for x in f) / gib, base / took))


def start_agent(leat, n, work):
    addr = "127.0.0.1:%d" % ports.free_ports(1)[0]
    ready = os.path.join(work, "ready%d" % n)
    p = subprocess.Popen([leat, "agent", "--set", "dirs=" + os.path.join(work, "agent%d" % n),
                          "--set", "listen=" + addr, "--set", "node=n%d" % n, "--ready-file",
                          ready], stderr=subprocess.DEVNULL)
    while not os.path.exists(ready) or not os.path.getsize(ready):
        time.sleep(0.02)
    return p, addr


def several_nodes(args, leat, work):
    agents = [start_agent(leat, n, work) for n in range(args.nodes)]
    try:
        for count in (1, args.nodes):
            nodes = ",".join(a for _, a in agents[:count])
            took, _, _, out = timed([leat, "stage", "in", "set@v1", "--nodes", nodes,
                                     "--max-rate", str(RATE), "--json"])
            r = json.loads(out)
            if count == 1:
                alone = took
            print("%d nodes, %d MiB/s each from the servers: %.1f s, %.2f times one node's, "
                  "amplification %.3f" % (count, RATE >> 20, took, took / alone,
                                          r["amplification"]))
            for n in range(count):
                subprocess.run([leat, "stage", "evict", "set@v1", "--to",
                                os.path.join(work, "agent%d" % n)], check=True,
                               capture_output=True)
    finally:
        for p, _ in agents:
            p.terminate()
            p.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=4)
    args = parser.parse_args()
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"], text=True,
                            capture_output=True, check=False).stdout.strip()
    print(platform.machine(), os.cpu_count(), "processors, commit", commit, "load",
          "%.1f" % os.getloadavg()[0])
    with Cluster(size="2G") as cluster:
        leat = BUILD + "/leat"
        work = os.path.join(cluster.dir, "bench")
        os.environ["LEAT_CONF"] = cluster.dev + "/conf"
        data = os.path.join(work, "data")
        os.makedirs(data)
        for i in range(args.files):
            with open(os.path.join(data, "file%d" % i), "wb") as f:
                for _ in range(args.mib // args.files):
                    f.write(os.urandom(1 << 20))
        shutil.copytree(data, cluster.mnt() + "/data")
        subprocess.run([leat, "dataset", "create", "set@v1", cluster.mnt() + "/data"], check=True,
                       capture_output=True)
        os.mkdir(os.path.join(work, "catalog"))
        subprocess.run([leat, "dataset", "create", "local@v1", data, "--catalog",
                        os.path.join(work, "catalog")], check=True, capture_output=True)
        one_node(args, leat, [cluster.pid(s) for s in SERVERS], data, work)
        several_nodes(args, leat, work)


main()
