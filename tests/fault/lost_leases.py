# SPDX-License-Identifier: Apache-2.0
"""A client that holds very many leases disappears: killed, or stopped. Other clients continue
within LIMIT_S, whatever they access, and the stopped client sees their changes afterwards."""
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, Cluster, wait_until

# If each of CHANGES waited 3 s, this would fail. An idle machine takes 5 s for all, a busy one 12.
LIMIT_S = 60
CHANGES = 300


def leases(c):
    for line in c.metrics_of("mds").splitlines():
        if line.startswith("leat_mds_leases "):
            return int(float(line.split()[1]))
    raise AssertionError("no such metric")


def name(folder, i):
    return "%s/file-%09d" % (folder, i)


def make(c, n):
    os.mkdir(c.mnt() + "/many")
    subprocess.run([BUILD + "/tests/bulk_files", c.dev + "/conf", "/many", str(n), str(n)],
                   stdout=subprocess.DEVNULL, check=True)


def hold(c, folder, n, others):
    """Caches nearly all files on the second mount. Returns its leases; others: the first's."""

    def listed():
        with os.scandir(folder) as entries:
            found = sum(1 for e in entries if e.stat(follow_symlinks=False).st_mode & 0o777)
        assert found == n, found
        return leases(c) - others >= n * 9 // 10

    wait_until(listed, 30, "leases on nine of ten files")  # none while files are being closed
    return leases(c) - others


def change(folder, n, mode):
    """Changes attributes, names and data of many files. Returns the longest and the total time."""
    rng = random.Random(mode)
    longest, started = 0, time.monotonic()
    chosen = rng.sample(range(n), CHANGES)
    for k, i in enumerate(chosen):
        at = time.monotonic()
        os.chmod(name(folder, i), mode)
        if k % 10 == 0:
            os.rename(name(folder, i), name(folder, i) + "r")
            os.rename(name(folder, i) + "r", name(folder, i))
        if k % 10 == 5:
            with open(name(folder, i), "wb") as f:
                f.write(b"%d" % mode)
        longest = max(longest, time.monotonic() - at)
    return chosen, longest, time.monotonic() - started


def expect_seen(folder, chosen, mode):
    for k, i in enumerate(chosen):
        assert os.stat(name(folder, i)).st_mode & 0o777 == mode, i
        if k % 10 == 5:
            with open(name(folder, i), "rb") as f:
                assert f.read() == b"%d" % mode, i


def vanish(c, folders, n, others, sig, mode):
    mine, theirs = folders
    held = hold(c, theirs, n, others)
    os.kill(c.pid("mnt2"), sig)
    chosen, longest, total = change(mine, n, mode)
    print("%s with %d leases: %d changes in %.2f s, the longest %.2f s" % (
        signal.Signals(sig).name, held, CHANGES, total, longest), flush=True)
    if sig == signal.SIGSTOP:
        os.kill(c.pid("mnt2"), signal.SIGCONT)
    else:
        c.start("mnt2")
    assert total < LIMIT_S, total
    expect_seen(theirs, chosen, mode)


def run(n):
    conf = {"mds": {"leases_max": str(4 * n + 1000)},
            "client": {"inodes_max": str(2 * n + 1000), "names_max": str(2 * n + 1000)}}
    with Cluster(conf=conf) as c:
        folders = c.mnt(1) + "/many/d00000", c.mnt(2) + "/many/d00000"
        make(c, n)
        wait_until(lambda: os.path.isdir(folders[1]), 10, "the other mount sees it")
        wait_until(lambda: leases(c) < 100, 30, "those of who made the files are gone")
        others = leases(c)
        vanish(c, folders, n, others, signal.SIGSTOP, 0o600)
        vanish(c, folders, n, others, signal.SIGKILL, 0o640)
