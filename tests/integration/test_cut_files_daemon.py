#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One mount makes files shorter and longer while the other reads, and the process that updates the
kernel's size ends: no zeros that were never there, at most an error if no process can update it."""
# timeout: 240
import contextlib
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
from cluster import BUILD, put, run_tests, unmount, wait_until
from test_cut_files import SIZE, Reader, make, open_cut_and_fill

CLUSTER = {"mounts": 2}
SECONDS = 6
PART = 10000  # its last page is filled in part


def probes(mountpoint):
    """The processes that request attributes of the mount now, to update the kernel's size."""
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
    """Continues after EIO."""
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
    """Truncates and fills a file under a reader, and calls disturb repeatedly."""
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
        # A busy machine may need longer than SECONDS for enough progress.
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


@contextlib.contextmanager
def supervised(c):
    """A mount whose daemon may be killed."""
    at = c.dir + "/m"
    os.makedirs(at, exist_ok=True)
    subprocess.run([BUILD + "/mount.leat", "leat", at, "-o", "conf=%s/conf" % c.dev], check=True,
                   stdin=subprocess.DEVNULL, timeout=300)
    first = status(at)
    try:
        yield at
        unmount(at)
    except BaseException:  # open files must not keep the mount
        os.kill(first["supervisor"] or first["pid"], signal.SIGKILL)
        subprocess.run(["umount", "-l", at], check=False)
        raise


def run_out(c):
    return sum(int(line.split()[1]) for i in range(4)
               for line in c.metrics_of("ossd%d" % (i + 1)).splitlines()
               if line.startswith("leat_ossd_chunk_leases_run_out_total "))


def status(at):
    return json.loads(os.getxattr(at, "leat.status"))


def daemon(at):
    return status(at)["pid"]


def test_daemon_is_killed(c):
    """The daemon is killed during an update of a kernel size. The next one does not have the
    kernel's sizes; it drops all pages, and no request waits for leases of the killed one."""
    with supervised(c) as at:
        kill_again_and_again(c, at)


def kill_again_and_again(c, at):
    before, killed = run_out(c), []

    def kill(r):
        # The next daemon must first answer the reads that were in flight. Then it drops the pages,
        # and only then it reports that the leases have ended. So wait for two reads.
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

    cut_meanwhile(c, "killed", at + "/cut/killed", kill)
    print("killed %d times" % len(killed))
    assert len(set(killed)) > 1
    wait_until(lambda: not probes(at), 10, "the end of who asked")
    time.sleep(2.5)  # leases of the killed daemons expire; the next request counts them
    os.truncate(c.mnt(1) + "/cut/killed", 0)
    after = run_out(c)
    print("%d leases ran out" % (after - before))
    assert after - before <= len(killed) // 4
    before = after
    cut_meanwhile(c, "killed", at + "/cut/killed", lambda r: time.sleep(0.1))
    assert run_out(c) == before, (run_out(c), before)


def written_to(c):
    return [sum(int(line.split()[1]) for line in c.metrics_of(s).splitlines()
                if line.startswith("leat_ossd_write_bytes_total ")) for s in c.ossd]


def on_two_servers(c, directory):
    """Two files of one chunk each, by name, on two servers, and the server of the first."""
    found = {}
    for i in range(40):
        before = written_to(c)
        put("%s/%d" % (directory, i), b"a" * PART)
        wrote = [s for s, n, m in zip(c.ossd, before, written_to(c)) if m > n]
        assert len(wrote) == 1, wrote
        found.setdefault(wrote[0], str(i))
        if len(found) == 2:
            (server, held), (_, grows) = found.items()
            return held, grows, server
    raise AssertionError("all files are on one server")


def test_pages_that_a_killed_daemon_left(c):
    """The kernel still has the killed daemon's last short reply, because dropping its pages waits
    for another file, whose server is silent: no program may see the file grow before they are
    dropped."""
    directory = c.mnt(1) + "/left"
    os.mkdir(directory)
    c.leat("layout", "set", "--chunk-size", "64K", "--width", "1", directory)
    held, grows, server = on_two_servers(c, directory)
    time.sleep(0.5)
    with supervised(c) as at:
        # `held` is open twice: its pages are dropped first, in whichever order.
        reads = [os.open("%s/left/%s" % (at, f), os.O_RDONLY) for f in (held, grows, held)]
        assert os.pread(reads[1], 2 * PART, 0) == b"a" * PART
        writer = os.open(directory + "/" + grows, os.O_WRONLY)
        pid = daemon(at)
        c.kill(server, signal.SIGSTOP)
        busy = [threading.Thread(target=os.pread, args=(reads[0], 4096, 0)),
                threading.Thread(target=os.truncate, args=(directory + "/" + held, PART + 1))]
        looked = []

        def look():
            looked.append((os.stat("%s/left/%s" % (at, grows)).st_size,
                           os.pread(reads[1], 2 * PART, 0)))

        looker = threading.Thread(target=look)
        try:
            for t in busy:
                t.start()
                time.sleep(0.3)
            assert os.pread(reads[1], 2 * PART, 0) == b"a" * PART
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: daemon(at) != pid, 30, "the next daemon")
            os.pwrite(writer, b"b" * PART, PART)
            looker.start()
            looker.join(0.3)
            waited = looker.is_alive()
        finally:
            c.kill(server, signal.SIGCONT)
        looker.join()
        for t in busy:
            t.join()
        for fd in reads + [writer]:
            os.close(fd)
        (size, data), = looked
        assert (size, data) == (2 * PART, b"a" * PART + b"b" * PART), (
            size, len(data), data.count(b"\0"))
        assert waited, "the pages were gone"


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
    """(the data, whether the read ended with EIO)"""
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
    """The daemon has no free descriptors: a clean error. When it has some again, reads succeed."""
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
