#!/usr/bin/env python3
"""Dead servers: requests wait for them, then fail with EIO; nobody becomes unkillable; unmounting
works."""
import errno
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, run_tests, wait_until

CLUSTER = {"conf": {"client": {"request_timeout_ms": "120000"}}}


def mount_anew(c, n, timeout_ms):
    with open(c.dev + "/conf") as f:
        conf = re.sub(r"request_timeout_ms = \d+", "request_timeout_ms = %d" % timeout_ms, f.read())
    with open(c.dev + "/conf", "w") as f:
        f.write(conf)
    c.stop("mnt%d" % n)
    c.start("mnt%d" % n)


def test_requests_wait_for_a_restarted_server(c):
    with open(c.mnt() + "/w", "wb") as f:
        f.write(os.urandom(8 << 20))
    for name in ("mds", "ossd1"):
        c.kill(name)
        p = subprocess.Popen(["sh", "-c", "md5sum %s/w && touch %s/w2" % (c.mnt(2), c.mnt(2))],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        c.start(name)
        assert p.wait(120) == 0, name


def test_a_dead_server_gives_eio_after_the_deadline(c):
    mount_anew(c, 1, 3000)
    c.kill("mds")
    started = time.monotonic()
    expect_errno(errno.EIO, os.mkdir, c.mnt() + "/never")
    assert time.monotonic() - started > 2
    c.start("mds")
    wait_until(lambda: subprocess.call(["mkdir", "-p", c.mnt() + "/later"], stderr=-3) == 0, 10,
               "mkdir")
    mount_anew(c, 1, 120000)


def test_a_waiting_process_can_be_killed(c):
    with open(c.mnt() + "/k", "wb") as f:
        f.write(os.urandom(16 << 20))
    mount_anew(c, 2, 3000)  # what asks the servers for a size waits so long, killed or not
    for o in c.ossd:
        c.kill(o, signal.SIGSTOP)
    p = subprocess.Popen(["cat", c.mnt(2) + "/k"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    p.kill()
    p.wait(60)
    for o in c.ossd:
        c.kill(o, signal.SIGCONT)
    mount_anew(c, 2, 120000)
    with open(c.mnt(2) + "/k", "rb") as f:
        assert len(f.read()) == 16 << 20


def test_unmount_under_load(c):
    p = subprocess.Popen(["sh", "-c", "cd %s && while :; do dd if=/dev/zero of=load bs=1M count=20 "
                          "2>/dev/null || exit; done" % c.mnt(2)], stdin=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    wait_until(lambda: os.path.exists(c.mnt(2) + "/load"), 10, "the load")
    assert subprocess.call(["umount", c.mnt(2)], stderr=subprocess.DEVNULL) != 0, "busy: refused"
    os.killpg(p.pid, signal.SIGKILL)
    p.wait(60)
    wait_until(lambda: subprocess.call(["umount", c.mnt(2)], stderr=subprocess.DEVNULL) == 0, 10,
               "umount")
    wait_until(lambda: not c.alive("mnt2"), 10, "the daemon ends")
    c.start("mnt2")
    assert os.path.exists(c.mnt(2) + "/load")


def test_unmount_with_dead_servers(c):
    mount_anew(c, 2, 3000)
    for o in c.ossd + ["mds"]:
        c.kill(o)
    subprocess.run(["umount", "-l", c.mnt(2)], timeout=60)
    wait_until(lambda: not c.alive("mnt2"), 30, "the daemon ends")
    for o in ["mds"] + c.ossd:
        c.start(o)
    c.start("mnt2")
    assert os.path.exists(c.mnt(2) + "/k")


if __name__ == "__main__":
    run_tests(globals())
