#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data is not copied in memory: client library and object server move whole blocks from and to
slots without a copy. Data that must be copied is copied, and the counters show it."""
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
    """The connection counters of the object servers."""
    return [t["server"]["net"] for t in c.told_by_servers(["--net"])["targets"]]


def move(c, what):
    """(bytes that the client moved, bytes that it copied, bytes that the servers copied)"""
    def by_servers():
        return sum(n["data_copied_bytes"] for n in nets(c))

    before = by_servers()
    out = subprocess.run([BUILD + "/tests/copies", c.dev + "/conf", "/copies", what], check=True,
                         timeout=600, stdout=subprocess.PIPE, text=True).stdout.split()
    return int(out[1]), int(out[3]), by_servers() - before


def test_whole_blocks_are_not_copied(c):
    for _ in range(2):  # a new file, then over its data
        assert move(c, "slots") == (16 * MIB, 0, 0)


def test_a_fragment_is_copied_once_by_the_server(c):
    assert move(c, "fragment") == (2 * FRAGMENT, 0, FRAGMENT)


def test_memory_of_the_caller_is_copied_once_to_write_it(c):
    """Reads copy nothing: over TCP the client receives the data there."""
    assert move(c, "memory") == (2 * MIB, (1 + OVER_VERBS) * MIB, 0)


def test_small_reads_at_once_go_in_few_requests(c):
    moved, by_client, by_servers = move(c, "many")
    assert moved > 100 * 1000 and by_servers == 0
    assert by_client == moved * OVER_VERBS, (moved, by_client)


def test_batches_of_the_loader_are_not_copied(c):
    """Over verbs too: the servers write directly into the batch."""
    assert move(c, "loader") == (8 * MIB, 0, 0)


if __name__ == "__main__":
    run_tests(globals())
