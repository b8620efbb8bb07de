#!/usr/bin/env python3
"""Dead servers: requests wait for them, then fail with EIO; nobody becomes unkillable; unmounting
works."""
import errno
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, run_tests, wait_until

CLUSTER = {"conf": {"client": {"request_timeout_ms": "3000"}}}


def test_requests_wait_for_a_restarted_server(c):
    with open(c.mnt() + "/w", "wb") as f:
        f.write(os.urandom(8 << 20))
    for name in ("mds", "ossd1"):
        c.kill(name)
        p = subprocess.Popen(["sh", "-c", "md5sum %s/w && touch %s/w2" % (c.mnt(2), c.mnt(2))],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        c.start(name)
        assert p.wait(20) == 0, name


def test_a_dead_server_gives_eio_after_the_deadline(c):
    c.kill("mds")
    started = time.monotonic()
    expect_errno(errno.EIO, os.mkdir, c.mnt() + "/never")
    assert 2 < time.monotonic() - started < 8
    c.start("mds")
    wait_until(lambda: subprocess.call(["mkdir", "-p", c.mnt() + "/later"], stderr=-3) == 0, 10,
               "mkdir")


def test_a_waiting_process_can_be_killed(c):
    with open(c.mnt() + "/k", "wb") as f:
        f.write(os.urandom(16 << 20))
    for o in c.ossd:
        c.kill(o, signal.SIGSTOP)
    p = subprocess.Popen(["cat", c.mnt(2) + "/k"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    p.kill()
    p.wait(10)
    for o in c.ossd:
        c.kill(o, signal.SIGCONT)
    with open(c.mnt(2) + "/k", "rb") as f:
        assert len(f.read()) == 16 << 20


def test_unmount_under_load(c):
    p = subprocess.Popen(["sh", "-c", "cd %s && while :; do dd if=/dev/zero of=load bs=1M count=20 "
                          "2>/dev/null || exit; done" % c.mnt(2)], stdin=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(1)
    assert subprocess.call(["umount", c.mnt(2)], stderr=subprocess.DEVNULL) != 0, "busy: refused"
    os.killpg(p.pid, signal.SIGKILL)
    p.wait(10)
    wait_until(lambda: subprocess.call(["umount", c.mnt(2)], stderr=subprocess.DEVNULL) == 0, 10,
               "umount")
    wait_until(lambda: not c.alive("mnt2"), 10, "the daemon ends")
    c.start("mnt2")
    assert os.path.exists(c.mnt(2) + "/load")


def test_unmount_with_dead_servers(c):
    for o in c.ossd + ["mds"]:
        c.kill(o)
    started = time.monotonic()
    subprocess.run(["umount", "-l", c.mnt(2)], timeout=20)
    wait_until(lambda: not c.alive("mnt2"), 30, "the daemon ends")
    assert time.monotonic() - started < 30
    for o in ["mds"] + c.ossd:
        c.start(o)
    c.start("mnt2")
    assert os.path.exists(c.mnt(2) + "/k")


if __name__ == "__main__":
    run_tests(globals())
