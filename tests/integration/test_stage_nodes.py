#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four agents in network namespaces, each behind a link of 10 MiB/s: they read the source about
once, exchange the rest, and do so concurrently. An idle machine measures how much longer than one
alone they take (tests/bench/nodes.py)."""
import filecmp
import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import nodes

MIB, RATE, COUNT = 60, 10, 4


def a_slow_metadata_server_is_waited_for(c, n):
    """It is silent for longer than an agent waits for the addresses that it may serve."""
    os.mkdir(c.mnt() + "/small")
    with open(c.mnt() + "/small/file", "w") as f:
        f.write("small")
    c.leat("dataset", "create", "small@v1", c.mnt() + "/small")
    c.kill("mds", signal.SIGSTOP)
    timer = threading.Timer(6, c.kill, ("mds", signal.SIGCONT))
    timer.start()
    try:
        seconds, r = n.stage("small@v1", 1)
    finally:
        timer.join()
    assert seconds > 5 and r["ready"] == 1, (seconds, r)


def main():
    nodes.enter()
    from cluster import Cluster
    with Cluster(mounts=1) as c, nodes.Nodes(c, COUNT, RATE) as n:
        os.mkdir(c.mnt() + "/data")
        for i in range(3):
            with open(c.mnt() + "/data/%d" % i, "wb") as f:
                f.write(os.urandom((MIB << 20) // 3))
        c.leat("dataset", "create", "set@v1", c.mnt() + "/data")
        a_slow_metadata_server_is_waited_for(c, n)
        before = n.received(0)
        alone, r = n.stage("set@v1", 1)
        assert r["amplification"] == 1, r
        # The node does not move more bytes than it reports.
        moved = n.received(0) - before
        print("one node %.1f s, %d bytes moved" % (alone, moved))
        assert MIB << 20 < moved < 1.1 * (MIB << 20), moved
        # The link limits the rate; otherwise the test proves nothing.
        assert alone > 0.8 * MIB / RATE, alone
        n.evict("set@v1", 1)
        together, r = n.stage("set@v1", COUNT)
        print("%d nodes %.1f s: %.2f times; amplification %.3f" %
              (COUNT, together, together / alone, r["amplification"]))
        assert r["ready"] == COUNT, r
        # On a very busy machine nodes may look dead: the servers serve their chunks once more.
        left_out = sum(v["dropped"] for v in r["nodes"])
        assert r["amplification"] <= (1.5 if left_out else 1.05), r
        assert r["source"] + r["peers"] == COUNT * r["bytes"], r
        # One after the other would take COUNT times as long.
        assert together < 0.8 * COUNT * alone, (together, alone)
        for i in range(COUNT):
            names = os.listdir(c.mnt() + "/data")
            same, _, _ = filecmp.cmpfiles(c.mnt() + "/data", n.copy("set@v1", i), names, False)
            assert sorted(same) == sorted(names)


main()
