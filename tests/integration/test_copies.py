#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data is not copied on its way: whole blocks from and to slots cost no copy in the client library
or the object server. What has to be copied is, and the counters say so."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, run_tests

CLUSTER = {"ossd": 2, "mounts": 0}
MIB = 1 << 20
FRAGMENT = 5001  # of copies.c
# A card writes to registered memory only, and that of a caller is not.
OVER_VERBS = os.environ.get("LEAT_DEV_TRANSPORT") == "verbs"


def nets(c):
    """What the object servers say of their connections."""
    return [t["server"]["net"] for t in c.told_by_servers(["--net"])["targets"]]


def move(c, what):
    """Bytes that the client moved; bytes copied there; bytes copied by the servers."""
    def by_servers():
        return sum(n["data_copied_bytes"] for n in nets(c))

    before = by_servers()
    out = subprocess.run([BUILD + "/tests/copies", c.dev + "/conf", "/copies", what], check=True,
                         timeout=600, stdout=subprocess.PIPE, text=True).stdout.split()
    return int(out[1]), int(out[3]), by_servers() - before


def test_whole_blocks_are_not_copied(c):
    for _ in range(2):  # a new file, then over what is there
        assert move(c, "slots") == (16 * MIB, 0, 0)


def test_a_fragment_is_copied_once_by_the_server(c):
    assert move(c, "fragment") == (2 * FRAGMENT, 0, FRAGMENT)


def test_memory_of_the_caller_is_copied_once_to_write_it(c):
    """And not to read it: over TCP what the servers send is received there."""
    assert move(c, "memory") == (2 * MIB, (1 + OVER_VERBS) * MIB, 0)


def test_small_reads_at_once_go_in_few_requests(c):
    moved, by_client, by_servers = move(c, "many")
    assert moved > 100 * 1000 and by_servers == 0
    assert by_client == moved * OVER_VERBS, (moved, by_client)


def test_batches_of_the_loader_are_not_copied(c):
    """Over verbs too: what servers write lands in the batch."""
    assert move(c, "loader") == (8 * MIB, 0, 0)


if __name__ == "__main__":
    run_tests(globals())
