#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: clients connect, disconnect and are killed, a server is killed and started again;
in the end servers, mount and kernel hold as many queue pairs, completion queues and memory regions
as before.

    tests/rdma/guest -- tests/rdma/over-verbs verbs tests/rdma/leaks.py [ROUNDS]
"""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, Cluster

KINDS = ["qp", "cq", "mr"]
ROUNDS = 8
# With a shared receive queue (rxe) a peer that disappears without a message may keep a buffer:
# after so many (VERBS_SPARE) a group of connections gets no new ones, and another one is made, with
# a completion queue and a region. It ends with its last connection.
SPARE = 16
ENDS_PER_ROUND = 3
SETTLE_S = 40  # a vanished peer is detected by the retries of the device, or when idle


def kernel():
    """The kernel's number of objects of each kind, of all processes."""
    text = subprocess.run(["rdma", "resource", "show"], check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    device = re.search(r"^\d+: %s: (.*)$" % re.escape(os.environ["RDMA_DEV"]), text, re.M).group(1)
    words = device.split()
    have = dict(zip(words[::2], map(int, words[1::2])))
    return {kind: have[kind] for kind in KINDS}


def held(c):
    status = json.loads(c.leat("status", "--net", "--json", c.mnt()).stdout)
    nets = {"mds": status["mds"]["server"]["net"] if "server" in status["mds"]
            else status["mds"]["net"]}
    for t in status["targets"]:
        nets["target %d" % t["id"]] = t["server"]["net"]
    nets["mount"] = status["mount"]["net"]
    return {whose: net["rdma"] for whose, net in nets.items()}


def some_io(c):
    """A file over all servers, so that the mount is connected to each."""
    with open(c.mnt() + "/some", "wb") as f:
        f.write(os.urandom(8 << 20))
        f.flush()
        os.fsync(f.fileno())
    os.unlink(c.mnt() + "/some")


def connect(c, kill):
    p = subprocess.Popen([BUILD + "/tests/copies", c.dev + "/conf", "/leaks", "slots"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if kill:
        time.sleep(0.3)
        p.kill()
    elif p.wait(60) != 0:
        raise SystemExit("FAILED: copies ended with %d" % p.returncode)
    p.wait()


def round_of(c, number):
    connect(c, False)
    connect(c, True)
    if number % 4 == 3:
        c.kill("ossd2")
        c.start("ossd2")
    some_io(c)


def settled(look, want):
    """Returns the result of look, as soon as it is as wanted, or at the time limit."""
    end = time.monotonic() + SETTLE_S
    while True:
        found = look()
        if found == want or time.monotonic() > end:
            return found
        time.sleep(0.5)


def same(before, now, qp, cq, mr, groups):
    """As many as before, except for groups of connections: one queue and one region each."""
    more = now[cq] - before[cq]
    return now[qp] == before[qp] and abs(more) <= groups and now[mr] - before[mr] == more and \
        (more != 0 or now == before)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    groups = 0
    if os.environ["RDMA_KIND"] == "rxe":
        groups = 1 + rounds * ENDS_PER_ROUND // SPARE
    with Cluster(ossd=2, mounts=1) as c:
        round_of(c, 3)
        time.sleep(15)
        there = kernel(), held(c)
        print("before: %s %s" % there)
        if not all(there[0].values()) or not all(all(h.values()) for h in there[1].values()):
            raise SystemExit("FAILED: nothing is counted")
        for i in range(rounds):
            round_of(c, i)
        now = settled(kernel, there[0]), settled(lambda: held(c), there[1])
        print("after:  %s %s" % now)
        ok = same(there[0], now[0], "qp", "cq", "mr", groups * len(there[1])) and \
            there[1].keys() == now[1].keys() and \
            all(same(there[1][whose], h, "queue_pairs", "completion_queues", "memory_regions",
                     groups) for whose, h in now[1].items())
        if not ok:
            raise SystemExit("FAILED: not as many as before")


if __name__ == "__main__":
    main()
