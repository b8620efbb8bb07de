#!/usr/bin/env python3
"""Files that one mount makes shorter and longer while the other reads, and whoever tells the kernel
of it ends: no zeros where there never were any, an error at most where nobody can tell it."""
# timeout: 240
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, run_tests, wait_until
from test_cut_files import SIZE, Reader, make, open_cut_and_fill

CLUSTER = {"mounts": 2}
SECONDS = 6


def probes(mountpoint):
    """The processes that ask the kernel there now."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[1:3] == [b"--probe-size", mountpoint.encode()]:
            found.append(int(pid))
    return found


class Tolerant(Reader):
    """Goes on after EIO."""
    errors = 0

    def run(self):
        read = self.read

        def tolerant(off, n):
            try:
                return read(off, n)
            except OSError as e:
                if e.errno != errno.EIO:
                    raise
                self.errors += 1
                return b""
        self.read = tolerant
        super().run()


def cut_meanwhile(c, name, path, disturb, kind=Reader):
    """A reader of a file that is cut and filled, while something is disturbed again and again."""
    one, _ = make(c, name)
    time.sleep(0.5)
    fd = os.open(path, os.O_RDONLY)
    os.pread(fd, SIZE, 0)
    r = kind(lambda off, n: os.pread(fd, n, off), True)
    change, n = open_cut_and_fill(one), 0
    stop = threading.Event()

    def disturbing():
        while not stop.is_set():
            disturb(r)

    t = threading.Thread(target=disturbing)
    r.start()
    t.start()
    try:
        begin = time.monotonic()
        # Progress is waited for: on a busy machine SECONDS are not always enough.
        while not r.wrong and time.monotonic() - begin < 60 and (
                time.monotonic() - begin < SECONDS or n <= 3 or r.reads <= 10):
            change(n)
            n += 1
    finally:
        stop.set()
        t.join()
        r.stop.set()
        r.join()
        os.close(fd)
    print("%d changes, %d reads, %d of them short" % (n, r.reads, r.short))
    assert not r.wrong, r.wrong
    assert r.reads > 10 and n > 3
    return r


def run_out(c):
    return sum(int(line.split()[1]) for i in range(4)
               for line in c.metrics_of("ossd%d" % (i + 1)).splitlines()
               if line.startswith("leat_ossd_chunk_leases_run_out_total "))


def daemon(at):
    return json.loads(os.getxattr(at, "leat.status"))["pid"]


def test_daemon_is_killed(c):
    """In the middle of asking: the next one knows nothing of what the kernel shows, but that it is
    gone, and nobody waits for leases that the killed one had."""
    at = c.dir + "/m"
    os.mkdir(at)
    subprocess.run([BUILD + "/mount.leat", "leat", at, "-o", "conf=%s/conf" % c.dev], check=True,
                   stdin=subprocess.DEVNULL, timeout=60)
    before, killed = run_out(c), []

    def kill(r):
        # A daemon lives until reads have ended: it answers those that the killed one had under way
        # before the pages go, and says only then that the leases are over.
        n, end = r.reads, time.monotonic() + 10
        while r.reads < n + 2 and r.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.3)
        pid = daemon(at)
        end = time.monotonic() + 1
        while not probes(at) and time.monotonic() < end:
            pass
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    try:
        cut_meanwhile(c, "killed", at + "/cut/killed", kill)
        print("killed %d times" % len(killed))
        assert len(set(killed)) > 1
        wait_until(lambda: not probes(at), 10, "the end of who asked")
        time.sleep(2.5)  # those that the killed ones had; they are counted when somebody looks
        os.truncate(c.mnt(1) + "/cut/killed", 0)
        after = run_out(c)
        print("%d leases ran out" % (after - before))
        assert after - before <= len(killed) // 4
        before = after
        cut_meanwhile(c, "killed", at + "/cut/killed", lambda r: time.sleep(0.1))
        assert run_out(c) == before, (run_out(c), before)
    finally:
        if subprocess.run(["umount", at], check=False).returncode != 0:
            subprocess.run(["umount", "-l", at], check=False)


def test_who_asks_is_killed(c):
    def kill(r):
        for pid in probes(c.mnt(2)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.03)

    r = cut_meanwhile(c, "asks", c.mnt(2) + "/cut/asks", kill, Tolerant)
    print("%d errors" % r.errors)
    if r.errors:
        assert "cannot be told that it is shorter" in c.log("mnt2")


def read_all(fd):
    """What there is, and whether it ended with EIO."""
    data = b""
    try:
        while True:
            more = os.pread(fd, SIZE, len(data))
            if not more:
                return data, False
            data += more
    except OSError as e:
        if e.errno != errno.EIO:
            raise
        return data, True


def test_nobody_can_ask(c):
    """The daemon gets no descriptors: a clean error, and all is well when it gets some."""
    one, two = make(c, "nobody")
    time.sleep(0.5)
    fd = os.open(two, os.O_RDONLY)
    os.pread(fd, SIZE, 0)
    writer = os.open(one, os.O_WRONLY)
    pid = c.pid("mnt2")
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir("/proc/%d/fd" % pid)), hard))
    try:
        os.ftruncate(writer, 100000)
        data, failed = read_all(fd)
        print("%d bytes%s" % (len(data), ", then an error" if failed else ""))
        assert failed or len(data) == 100000, len(data)
        assert b"\0" not in data
        assert not failed or "cannot be told that it is shorter" in c.log("mnt2")
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    data, failed = read_all(fd)
    assert not failed and len(data) == 100000 and b"\0" not in data, len(data)
    os.close(fd)
    os.close(writer)


if __name__ == "__main__":
    run_tests({n: f for n, f in globals().items() if n.startswith("test_") or n == "CLUSTER"})
