#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removed targets appear nowhere and count nowhere, before and after a restart of the metadata
server; a target that was started by mistake is removed without a drain."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import Cluster, wait_until  # noqa: E402

# The lease is long, so that no target is down because the machine is slow.
CONF = {"mds": {"lease_ms": 10000}}


def target_of(c, name):
    """The id of the target that this object server has served last, from its log."""
    return int(re.findall(r" target (\d+) serves at ", c.log(name))[-1])


def ids(c, *args):
    rows = json.loads(c.leat("target", "list", "--json", *args).stdout)["targets"]
    return {t["id"] for t in rows}


def metric(c, name):
    return float(re.search(r"^%s ([0-9.e+]+)$" % name, c.metrics_of("mds"), re.M).group(1))


def assert_gone(c, gone, n_left):
    """These targets appear only in the list of all targets."""
    assert not gone & ids(c) and gone <= ids(c, "--all"), (ids(c), ids(c, "--all"))
    assert len(ids(c)) == n_left, ids(c)
    p = c.leat("status", "--check", "--timeout", "60", "--json", check=False)
    rows = json.loads(p.stdout)["targets"]
    assert p.returncode == 0 and not gone & {t["id"] for t in rows}, (p.returncode, p.stdout)
    assert not gone & {t["id"] for t in c.status()["mds"]["targets"]}
    p = c.leat("scrub", "status", "--json", check=False)
    assert p.returncode == 0 and len(json.loads(p.stdout)["targets"]) == n_left, p.stdout
    p = c.leat("fsck", check=False)
    assert p.returncode == 0, p.stdout + p.stderr
    df = json.loads(c.leat("df", "--json").stdout)
    size = sum(t["size"] for t in df["targets"])
    assert len(df["targets"]) == n_left and df["size"] == size, df
    st = os.statvfs(c.mnt())
    assert abs(st.f_blocks * st.f_frsize - size) <= size / 100, (st, size)
    assert metric(c, "leat_mds_targets") == metric(c, "leat_mds_targets_up") == n_left
    assert metric(c, "leat_mds_cluster_capacity_bytes") == size
    assert c.status_of_mount()["targets"] == n_left, c.status_of_mount()


def assert_gone_for_good(c, gone, n_left):
    assert_gone(c, gone, n_left)
    c.kill("mds")
    c.start("mds")
    wait_until(lambda: len([t for t in c.status()["targets"] if t["state"] == "up"]) == n_left, 30,
               "every target is back")
    wait_until(lambda: metric(c, "leat_mds_targets_up") == n_left, 30, "the figures are new")
    assert_gone(c, gone, n_left)


def test_mistaken_and_stopped(c):
    """A target without data is down: it needs neither a drain nor --lost."""
    by_mistake = target_of(c, "ossd5")
    c.kill("ossd5")
    wait_until(lambda: [t["state"] for t in c.status()["targets"] if t["id"] == by_mistake] ==
               ["down"], 60, "it is down")
    c.leat("target", "remove", str(by_mistake))
    wait_until(lambda: c.status_of_mount()["targets"] == 4, 30, "the mount has heard of it")
    wait_until(lambda: metric(c, "leat_mds_targets") == 4, 30, "the figures are new")
    assert_gone_for_good(c, {by_mistake}, 4)


def test_started_by_mistake(c):
    """A target without data is removed immediately while up; its chains get other members."""
    by_mistake = target_of(c, "ossd4")
    c.leat("target", "remove", str(by_mistake))
    c.stop("ossd4")
    wait_until(lambda: c.status_of_mount()["targets"] == 3, 30, "the mount has heard of it")
    wait_until(lambda: metric(c, "leat_mds_targets") == 3, 30, "the figures are new")
    assert_gone_for_good(c, {by_mistake, target_of(c, "ossd5")}, 3)


def test_drained(c):
    """A target with data cannot be removed before its drain."""
    data = os.urandom(1 << 20)
    for i in range(6):
        with open("%s/f%d" % (c.mnt(), i), "wb") as f:
            f.write(data)
            os.fsync(f.fileno())
    victim = target_of(c, "ossd3")
    wait_until(lambda: all(t["used"] > 0 for t in c.status()["targets"]), 30, "all hold something")
    p = c.leat("target", "remove", str(victim), check=False)
    assert p.returncode == 1 and "drain" in p.stderr, (p.returncode, p.stderr)
    c.leat("target", "drain", str(victim))
    c.leat("target", "remove", str(victim))
    c.stop("ossd3")
    wait_until(lambda: c.status_of_mount()["targets"] == 2, 30, "the mount has heard of it")
    wait_until(lambda: metric(c, "leat_mds_targets") == 2, 30, "the figures are new")
    assert_gone_for_good(c, {victim, target_of(c, "ossd4"), target_of(c, "ossd5")}, 2)
    for i in range(6):
        with open("%s/f%d" % (c.mnt(), i), "rb") as f:
            assert f.read() == data


def main():
    with Cluster(conf=CONF, ossd=5, mounts=1) as c:
        for test in (test_mistaken_and_stopped, test_started_by_mistake, test_drained):
            test(c)
            print(test.__name__)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
