#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 3600
"""Resident memory of every daemon: idle, and after each of three equal phases of metadata and I/O
operations (OPS in all: 20,000; with --long 1,000,000). It stops growing after the second phase and
stays below the configured limits. `leat status --memory` explains it. Prints the figures."""
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import Cluster

LONG = os.environ.get("LEAT_LONG") == "1" or os.environ.get("LONG") == "1"
OPS = int(os.environ.get("OPS", "1000000" if LONG else "20000"))
MIB = 1 << 20
# Limits in MiB, so small that the workload fills them.
CONF = {"mds": {"cache_mib": "16", "kv_cache_mib": "8", "kv_write_buffer_mib": "4"},
        "ossd": {"cache_size": "8M", "kv_cache_size": "8M", "kv_write_buffer_size": "4M",
                 "slots": "16", "read_slots": "16", "small_slots": "64", "merge_slots": "8"},
        "client": {"slot_memory": "48M", "dirty_max": "16M", "inodes_max": "10000",
                   "names_max": "10000"}}
# Caches and buffers of the configuration (three write buffers at once, slots of 1 MiB + 64 KiB), a
# client's records of 131,072 inodes that it has evicted (client/README.md), and 64 MiB for program,
# stacks, connections and RocksDB.
CAPS = {"mds": 16 + 8 + 3 * 4 + 64, "ossd": 8 + 8 + 3 * 4 + 40 * 1.07 + 64 / 16 + 64,
        "mnt": 48 + (10000 * 1024 + 10000 * 144) / MIB + 10 + 64}
SLACK = 0.04, 2  # share and MiB by which the third phase may exceed the second


def rss(c):
    found = {}
    for name in ["mds"] + c.ossd + ["mnt1", "mnt2"]:
        with open("/proc/%d/status" % c.pid(name)) as f:
            fields = dict(line.split(":", 1) for line in f)
        found[name] = int(fields["VmRSS"].split()[0]) / 1024
    return found


def storm(mnt, who, n_ops, seed, failures):
    """About n_ops operations, each counted once. Leaves no files behind."""
    try:
        folder, done, i = "%s/s%s-%d" % (mnt, who, seed), 0, 0
        os.mkdir(folder)
        small, large = os.urandom(5000), os.urandom(MIB)
        names = []
        while done < n_ops:
            path = "%s/f%d" % (folder, i)
            data = large if i % 50 == 0 else small
            with open(path, "wb") as f:
                f.write(data)
            with open(path, "rb") as f:
                assert len(f.read()) == len(data)
            os.chmod(path, 0o600)
            os.stat(path)
            os.rename(path, path + "r")
            names.append(path + "r")
            done += 8  # create, write, close, open, read, chmod, stat, rename
            i += 1
            if len(names) == 500:
                assert len(os.listdir(folder)) == 500
                for name in names:
                    os.unlink(name)
                done += 501
                names.clear()
        for name in names:
            os.unlink(name)
        os.rmdir(folder)
    except BaseException as e:
        failures.append(repr(e))


def phase(c, n, ops):
    failures = []
    threads = [threading.Thread(target=storm, args=(c.mnt(1 + i % 2), i, ops // 4, n, failures))
               for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
    time.sleep(2)  # for removals and flushes


def explained(c):
    """The parts that `leat status --memory` reports add up to the resident memory (untouched memory
    counts too, and the process continues meanwhile), and none exceeds its limit."""
    status = json.loads(c.leat("status", "--memory", "--json", c.mnt(1)).stdout)
    told = {"mds": status["mds"]["memory"], "mount": status["mount"]["memory"]}
    for target in status["targets"]:
        told["target %d" % target["id"]] = target["server"]["memory"]
    assert len(told) == 6, list(told)
    wrong = []
    for name, memory in told.items():
        rest = sum(memory[k] for k in ("heap_other", "heap_free", "buffers", "stacks", "program"))
        parts = sum(p["used"] for p in memory["parts"])
        if not 0.9 * memory["resident"] - MIB < parts + rest < 1.1 * memory["resident"] + 4 * MIB:
            wrong.append("%s: %.1f of %.1f MiB are told" % (
                name, (parts + rest) / MIB, memory["resident"] / MIB))
        wrong += ["%s: %s: %.1f MiB" % (name, p["name"], p["used"] / MIB)
                  for p in memory["parts"] if p["max"] and p["used"] > 1.1 * p["max"] + MIB]
        if memory["heap_other"] > 16 * MIB:
            wrong.append("%s: %.1f MiB are of no part" % (name, memory["heap_other"] / MIB))
    return wrong


def main():
    with Cluster(conf=CONF, size="1G") as c:
        time.sleep(1)
        columns = [("idle", rss(c))]
        for n in range(1, 4):
            started = time.monotonic()
            phase(c, n, OPS // 3)
            columns.append(("+%d ops" % (OPS // 3), rss(c)))
            print("phase %d: %d operations, %.1f s" % (n, OPS // 3, time.monotonic() - started))
        print("\nRSS in MiB  " + "".join("%14s" % title for title, _ in columns) + "%14s" % "cap")
        wrong = []
        for name in columns[0][1]:
            v = [values[name] for _, values in columns]
            cap = CAPS[name.rstrip("0123456789")]
            print("%-12s" % name + "".join("%14.1f" % x for x in v) + "%14.0f" % cap)
            if max(v) > cap:
                wrong.append("%s: %.1f MiB, more than %.0f" % (name, max(v), cap))
            if v[3] > v[2] * (1 + SLACK[0]) + SLACK[1]:
                wrong.append("%s grows: %.1f, then %.1f MiB" % (name, v[2], v[3]))
        wrong += explained(c)
        assert not wrong, wrong


if __name__ == "__main__":
    main()
