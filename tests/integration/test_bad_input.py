#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input is refused with a clear error, and nothing else is affected."""
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import ADDR, BUILD, Cluster, ON_SERVER, run_tests, wait_until

CLUSTER = {"size": "256M"}


def ports(c):
    """(host, port) of every server, for TCP."""
    found = []
    for name in ["mds"] + c.ossd:
        with open("%s/%s/ready" % (c.dev, name)) as f:
            addr = next(a for a in f.read().split() if not a.startswith("verbs:"))
            host, port = addr.removeprefix("tcp:").rsplit(":", 1)
            found.append((host, int(port)))
    return found


def works(c):
    path = c.mnt(1) + "/works"
    data = os.urandom(3 << 20)
    with open(path, "wb") as f:
        f.write(data)
    with open(path.replace(c.mnt(1), c.mnt(2)), "rb") as f:
        assert f.read() == data
    os.unlink(path)


def test_garbage_on_every_port(c):
    rng = random.Random(1)
    for host, port in ports(c):
        for i in range(60):
            s = socket.create_connection((host, port), 60)
            junk = rng.randbytes(rng.choice((0, 1, 71, 72, 500, 20000)))
            if i % 3 == 0:
                junk = b"LEAT" + junk  # a valid magic, then garbage
            elif i % 3 == 1:
                junk = b"LEAT\x01\x00\x00\x00" + bytes(36) + b"\xff\xff\xff\xff" + junk
            try:
                s.sendall(junk)
                if i % 2:
                    s.shutdown(socket.SHUT_WR)
                    s.settimeout(60)
                    while s.recv(4096):
                        pass
            except OSError:
                pass
            s.close()
    for name in ["mds"] + c.ossd:
        assert c.alive(name), name
    works(c)


def test_idle_strangers_are_dropped(c):
    host, port = ports(c)[0]
    s = socket.create_connection((host, port), 60)
    s.settimeout(120)
    s.sendall(b"LE")
    while s.recv(4096):  # the handshake has a deadline
        pass
    s.close()


def test_wrong_key(c):
    conf = open(c.dev + "/conf").read()
    with open(c.dir + "/badkey", "w") as f:
        f.write("ab" * 32)
    os.chmod(c.dir + "/badkey", 0o600)
    with open(c.dir + "/bad.conf", "w") as f:
        f.write(conf.replace(c.dev + "/key", c.dir + "/badkey"))
    p = subprocess.run([BUILD + "/leat", "--conf", c.dir + "/bad.conf", "status"], timeout=300,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert p.returncode != 0 and "key" in p.stderr, p
    works(c)


def test_store_that_went_back_in_time(c):
    c.stop("ossd2")
    shutil.copytree(c.dev + "/ossd2/store", c.dir + "/old", copy_function=copy_sparse)
    c.start("ossd2")
    time.sleep(1)
    works(c)
    works(c)
    c.stop("ossd2")
    os.rename(c.dev + "/ossd2/store", c.dir + "/true")
    os.rename(c.dir + "/old", c.dev + "/ossd2/store")
    refused(c, "ossd2", "back in time")
    shutil.rmtree(c.dev + "/ossd2/store")
    os.rename(c.dir + "/true", c.dev + "/ossd2/store")
    c.start("ossd2")
    wait_until(lambda: all(t["state"] == "up" for t in c.status()["targets"]), 20, "all targets up")
    works(c)


def test_target_of_another_cluster(c):
    with Cluster(ossd=1, size="128M") as other:
        other.stop("ossd1")
        c.stop("ossd1")
        os.rename(c.dev + "/ossd1/store", c.dir + "/mine")
        shutil.copytree(other.dev + "/ossd1/store", c.dev + "/ossd1/store",
                        copy_function=copy_sparse)
        refused(c, "ossd1", "another cluster")
        shutil.rmtree(c.dev + "/ossd1/store")
        os.rename(c.dir + "/mine", c.dev + "/ossd1/store")
        c.start("ossd1")
    wait_until(lambda: all(t["state"] == "up" for t in c.status()["targets"]), 20, "all targets up")
    works(c)


def test_paths_that_are_too_long(c):
    """If truncated, such a path would name another directory, above or beside the right one."""
    top = "/" + "/".join("%03d" % i + "d" * 247 for i in range(16))
    top += "/" + "e" * (4095 - 1 - len(top))
    fds = [os.open(c.mnt(), os.O_RDONLY)]
    for part in top.split("/")[1:]:
        os.mkdir(part, dir_fd=fds[-1])
        fds.append(os.open(part, os.O_RDONLY, dir_fd=fds[-1]))
    os.close(os.open("kept", os.O_WRONLY | os.O_CREAT, dir_fd=fds[-1]))
    long = "leat:" + top
    for path in (long + "/sub", long + "e"):
        for args in (("rm", "-rf", path), ("cp", "-r", path, c.dir + "/copy"), ("du", path),
                     ("dataset", "create", "long@v1", path),
                     ("stage", "in", path, "--to", c.dir + "/node")):
            p = c.leat(*args, check=False)
            assert p.returncode == 1 and "too long" in p.stderr, (args[:2], p.returncode, p.stderr)
    assert os.listdir(fds[-1]) == ["kept"]
    # A path of exactly the maximum length works.
    c.leat("rm", "-r", long)
    assert os.listdir(fds[-2]) == []
    for fd in fds:
        os.close(fd)
    c.leat("rm", "-r", c.mnt() + top[:251])


def test_two_servers_on_one_store(c):
    p = subprocess.run(ON_SERVER + [BUILD + "/leat-ossd", "-c", c.dev + "/conf", "--set",
                                    "data_dir=%s/ossd1/store" % c.dev, "--set",
                                    "listen=%s:0" % ADDR, "run"],
                       timeout=300, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert p.returncode != 0 and "in use" in p.stderr, p
    p = subprocess.run([BUILD + "/leat-mds", "-c", c.dev + "/conf", "check"], timeout=300,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert p.returncode != 0 and "in use" in p.stderr + p.stdout, p
    works(c)


def test_bad_configuration(c):
    for line, word in (("[mds]\nno_such = 1\n", "no_such"), ("[nonsense]\nx = 1\n", "nonsense"),
                       ("[mds]\ncache_mib = many\n", "cache_mib")):
        with open(c.dir + "/broken.conf", "w") as f:
            f.write(open(c.dev + "/conf").read() + line)
        p = subprocess.run([BUILD + "/leat-mds", "-c", c.dir + "/broken.conf", "run"], timeout=300,
                           stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert p.returncode != 0 and word in p.stderr and "broken.conf:" in p.stderr, p


def copy_sparse(src, dst):
    subprocess.run(["cp", "--sparse=always", src, dst], check=True)


def refused(c, name, word):
    """The server must exit by itself, and log the reason."""
    before = len(c.log(name))
    c.run("start", name, check=False, capture_output=True, timeout=240)
    wait_until(lambda: word in c.log(name)[before:], 20, "%s says '%s'" % (name, word))
    wait_until(lambda: not c.alive(name), 20, name + " has ended")


if __name__ == "__main__":
    run_tests(globals())
