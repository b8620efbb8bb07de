#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""Two object servers of three disks each: six targets, each with its own loop, on one metrics page.
A disk that fails stops its own target only; a disk can be added."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import ADDR, BUILD, ON_SERVER, Cluster, wait_until


def write_files(c, n, tag, size=3000000):
    for i in range(n):
        with open("%s/%s%d" % (c.mnt(), tag, i), "wb") as f:
            f.write(bytes([i]) * size)
            os.fsync(f.fileno())


def read_files(c, n, tag):
    for i in range(n):
        with open("%s/%s%d" % (c.mnt(2), tag, i), "rb") as f:
            assert f.read() == bytes([i]) * 3000000, (tag, i)


def targets(c):
    return c.status()["targets"]


def test_six_targets_serve(c):
    assert len(targets(c)) == 6, targets(c)
    write_files(c, 24, "a")  # enough for every disk to have some
    read_files(c, 24, "a")
    used = [len(os.listdir("%s/ossd%d" % (c.dev, n))) for n in (1, 2)]
    assert used == [4, 4], used  # three stores and the ready file
    text = c.metrics_of("ossd1")
    writes = re.findall(r'^leat_ossd_\w*write_bytes_total\{disk="(\d)"\} (\d+)$', text, re.M)
    assert [d for d, _ in writes] == ["0", "1", "2"] and all(int(v) > 0 for _, v in writes), writes
    assert text.count("# TYPE leat_ossd_requests_total") <= 1


def test_threads_have_their_loops(c):
    names = []
    for tid in os.listdir("/proc/%d/task" % c.pid("ossd1")):
        with open("/proc/%d/task/%s/comm" % (c.pid("ossd1"), tid)) as f:
            names.append(f.read().strip())
    assert "ossd-1" in names and "ossd-2" in names, names


def test_restart_and_stop(c):
    c.kill("ossd2")
    c.start("ossd2")
    c.stop("ossd1")
    c.start("ossd1")
    write_files(c, 6, "b")
    read_files(c, 12, "a")


def test_a_disk_is_added(c):
    c.stop("ossd1")
    os.environ["LEAT_DEV_DISKS"] = c.env["LEAT_DEV_DISKS"] = "4"
    stores = " ".join("%s/ossd1/store%s" % (c.dev, n) for n in ("", "2", "3", "4"))
    out = subprocess.run([BUILD + "/leat-ossd", "-c", c.dev + "/conf", "--set",
                          "data_dir=" + stores, "--set", "data_size=64M", "format"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert out.returncode == 0 and out.stdout.count("a store already") == 3, out.stdout
    c.start("ossd1")
    wait_until(lambda: len(targets(c)) == 7, 10, "the seventh target")
    read_files(c, 6, "b")
    out = subprocess.run([BUILD + "/leat-ossd", "-c", c.dev + "/conf", "--set",
                          "data_dir=" + stores, "format"], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    assert out.returncode != 0, out.stdout


def test_a_refused_store_ends_alone(c):
    """An old copy of a store is refused; the other disks continue."""
    old = c.dev + "/ossd1/store3"
    c.stop("ossd1")
    subprocess.run(["cp", "-a", old, c.dir + "/old"], check=True)
    c.start("ossd1")
    write_files(c, 100, "c", 3000)  # enough for that disk to have some
    c.stop("ossd1")
    subprocess.run(["rm", "-r", old], check=True)
    subprocess.run(["mv", c.dir + "/old", old], check=True)
    said = open(c.dir + "/said", "a+")
    p = subprocess.Popen(ON_SERVER +
                         [BUILD + "/leat-ossd", "-c", c.dev + "/conf", "--set", "data_dir=" +
                          " ".join("%s/ossd1/store%s" % (c.dev, n) for n in ("", "2", "3", "4")),
                          "--set", "listen=%s:0" % ADDR, "--set", "metrics=", "run"],
                         stdout=subprocess.DEVNULL, stderr=said)

    def errors():
        said.seek(0)
        return said.read()

    try:
        wait_until(lambda: "back in time" in errors(), 15, "the old store is refused")
        wait_until(lambda: errors().count(" serves at ") == 3, 15, "the three others serve")
        wait_until(lambda: sum(t["state"] == "up" for t in targets(c)) == 6, 15, "six of seven")
        assert p.poll() is None, "the process has ended: " + errors()
    except AssertionError:
        print("--- the server\n" + errors()[-3000:])
        raise
    finally:
        p.terminate()
        p.wait(300)
    assert p.returncode == 3, p.returncode


if __name__ == "__main__":
    os.environ["LEAT_DEV_DISKS"] = "3"
    with Cluster(ossd=2, size="96M") as cluster:
        for test in (test_six_targets_serve, test_threads_have_their_loops, test_restart_and_stop,
                     test_a_disk_is_added, test_a_refused_store_ends_alone):
            test(cluster)
            print(test.__name__, "ok", flush=True)
