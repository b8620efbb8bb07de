#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Targets leave and join: drained, removed, added, rebalanced, and replaced after a long absence.
Every byte is compared, and servers are killed in between."""
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, Cluster, wait_until  # noqa: E402

# The lease is long, so that no target is down because the machine is slow.
CONF = {"mds": {"replace_after_ms": 3000, "lease_ms": 10000}}


def write_files(mnt, n=24, size=700000):
    sums = {}
    for i in range(n):
        data = os.urandom(size + i)
        with open("%s/f%d" % (mnt, i), "wb") as f:
            f.write(data)
            os.fsync(f.fileno())
        sums["f%d" % i] = hashlib.sha256(data).hexdigest()
    return sums


def compare(mnt, sums):
    for name, want in sums.items():
        fd = os.open(mnt + "/" + name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with open(fd, "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == want, name


def chains(c):
    return c.status()["mds"]["chains"]


def whole(c):
    h = chains(c)
    return h["whole"] == h["n"] and h["syncing"] == 0


def listed(c, target):
    rows = json.loads(c.leat("target", "list", "--all", "--json").stdout)["targets"]
    return [t for t in rows if t["id"] == target][0]


def target_of(c, name):
    """The id of the target that this object server has served last, from its log."""
    return int(re.findall(r" target (\d+) serves at ", c.log(name))[-1])


def test_drain_remove_add(c):
    sums = write_files(c.mnt())
    victim, name = target_of(c, "ossd3"), "ossd3"
    p = c.leat("target", "remove", str(victim), check=False)
    assert p.returncode == 1 and "drain" in p.stderr, (p.returncode, p.stderr)
    p = c.leat("target", "drain", "77", check=False)
    assert p.returncode == 9 and "77" in p.stderr, (p.returncode, p.stderr)

    c.leat("target", "drain", str(victim))
    assert listed(c, victim)["chains"] == 0 and listed(c, victim)["service"] == "draining"
    assert whole(c), chains(c)
    compare(c.mnt(), sums)
    c.leat("target", "remove", str(victim))
    assert listed(c, victim)["service"] == "removed"
    compare(c.mnt(), sums)
    c.stop(name)
    compare(c.mnt(), sums)

    c.leat("target", "add", str(victim))
    c.start(name)
    wait_until(lambda: listed(c, victim)["state"] == "up", 20, "it is back")
    c.leat("target", "rebalance")
    rows = json.loads(c.leat("target", "list", "--json").stdout)["targets"]
    assert max(t["chains"] for t in rows) - min(t["chains"] for t in rows) <= 4, rows
    assert whole(c)
    compare(c.mnt(), sums)


def test_too_few_are_left(c):
    """Three replicas on four hosts: one target may leave, not two."""
    c.leat("layout", "set", "--replicas", "3", c.mnt())
    one, two = target_of(c, "ossd1"), target_of(c, "ossd2")
    c.leat("target", "drain", str(one))
    p = c.leat("target", "drain", str(two), check=False)
    assert p.returncode == 1 and "too few" in p.stderr, (p.returncode, p.stderr)
    assert listed(c, two)["service"] == "in use"
    c.leat("target", "undrain", str(one))
    c.leat("target", "rebalance")
    assert listed(c, one)["service"] == "in use" and listed(c, one)["chains"] > 0
    c.leat("layout", "set", "--replicas", "2", c.mnt())


def test_drain_is_interrupted_and_goes_on(c):
    """Neither Ctrl-C of the command nor killed servers end the drain."""
    sums = write_files(c.mnt(), 60, 1200000)
    victim = target_of(c, "ossd2")
    p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "target", "drain",
                          str(victim)], env=c.env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: listed(c, victim)["service"] == "draining", 10, "it drains")
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=120)
    assert p.returncode in (0, 75), (p.returncode, err)
    c.kill("mds")
    c.start("mds")
    c.kill("ossd4")
    time.sleep(0.3)
    c.start("ossd4")
    wait_until(lambda: listed(c, victim)["chains"] == 0, 60, "all has moved")
    wait_until(lambda: whole(c), 30, "all is whole")
    compare(c.mnt(), sums)
    c.leat("target", "undrain", str(victim))
    p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "target", "rebalance"],
                         env=c.env, stdin=subprocess.DEVNULL)
    time.sleep(0.5)
    c.kill("ossd1")
    c.kill("mds")
    c.start("mds")
    c.start("ossd1")
    assert p.wait(timeout=600) == 0
    wait_until(lambda: whole(c), 30, "all is whole")
    assert listed(c, victim)["chains"] > 0
    compare(c.mnt(), sums)


def test_lost_for_long_is_replaced(c):
    """A dead target's chunks are copied to others, and not served when it returns."""
    sums = write_files(c.mnt())
    victim = target_of(c, "ossd4")
    c.kill("ossd4")
    # All chains are whole again, except the one of one member, whose only replica is away.
    wait_until(lambda: chains(c)["degraded"] == 0 and chains(c)["syncing"] == 0 and
               listed(c, victim)["chains"] == 1, 60, "copies are made anew")
    compare(c.mnt(), sums)
    # Now the old replicas are outdated.
    sums = write_files(c.mnt())
    c.start("ossd4")
    wait_until(lambda: listed(c, victim)["state"] == "up", 20, "it is back")
    wait_until(lambda: whole(c), 20, "all is whole")
    compare(c.mnt(), sums)
    c.leat("target", "rebalance")
    assert listed(c, victim)["chains"] > 1
    # It serves the current data, even as the only member of its chain that is up.
    compare(c.mnt(), sums)
    c.kill("ossd1")
    compare(c.mnt(), sums)
    c.start("ossd1")
    wait_until(lambda: whole(c), 30, "all is whole")


def test_writers_go_on(c):
    """Drain and rebalance under writers, which must not get an error."""
    errors, stop = [], threading.Event()

    def write(i):
        blocks, fd = {}, os.open("%s/w%d" % (c.mnt(), i), os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        n = 0
        try:
            while not stop.is_set():
                at = n % 40
                blocks[at] = os.urandom(65536)
                os.pwrite(fd, blocks[at], at * 65536)
                if n % 4 == 0:
                    os.fsync(fd)
                n += 1
            os.fsync(fd)
            for at, want in blocks.items():
                if os.pread(fd, 65536, at * 65536) != want:
                    errors.append("w%d: block %d" % (i, at))
        except OSError as e:
            errors.append("w%d: %s" % (i, e))
        os.close(fd)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    victim = target_of(c, "ossd3")
    try:
        c.leat("target", "drain", str(victim))
        c.leat("target", "undrain", str(victim))
        c.leat("target", "rebalance")
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not errors, errors
    wait_until(lambda: whole(c), 30, "all is whole")


def main():
    failed = []
    names = [n for n in globals() if n.startswith("test_")]
    with Cluster(conf=CONF, mounts=1, replicas=2) as c:
        c.leat("layout", "set", "--replicas", "2", c.mnt())
        for name in names:
            if len(sys.argv) > 1 and name not in sys.argv[1:]:
                continue
            started = time.monotonic()
            globals()[name](c)
            print("%-50s %.2f s" % (name, time.monotonic() - started))
            sys.stdout.flush()
        r = c.check_stores(check=False)
        if r.returncode != 0:
            failed.append("the stores are not sound")
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
