#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The mount outlives its daemon, which is killed with SIGKILL or replaced repeatedly, under
programs that write, read, lock and rename. They may notice nothing but EIO from fsync or close,
once for each open file, if unsynced writes were lost."""
import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")
from cluster import (BUILD, SLOWNESS, expect_errno, get, put, run_tests,  # noqa: E402
                     unmount, wait_until)

CLUSTER = {"mounts": 1, "ossd": 2}
SECONDS = int(os.environ.get("SUPERVISOR_SECONDS", "12"))
BLOCK = 4096
OFD_SETLK = 37


class Mount:
    """A supervised mount with its own program, so that the test can install another one, and with
    its own configuration and key, which the configuration names by a relative path."""

    def __init__(self, c, options="", source="leat"):
        self.c = c
        self.source = source
        self.at = c.dir + "/m"
        self.log = c.dir + "/m.log"
        self.program = c.dir + "/mount.leat"
        self.conf = c.dir + "/leat.conf"
        self.key = c.dir + "/m.key"
        self.options = "log=%s%s" % (self.log, options)

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def begin(self):
        os.makedirs(self.at, exist_ok=True)
        if os.path.exists(self.program):
            os.unlink(self.program)  # it may still be busy
        shutil.copy(BUILD + "/mount.leat", self.program)
        shutil.copy(self.c.dev + "/key", self.key)
        self.configure()
        self.mount()

    def configure(self, more="", mode=0o600):
        """Writes the configuration, with `more` in [mount], and sets the mode of the key."""
        text = open(self.c.dev + "/conf").read()
        assert "key_file = %s/key\n" % self.c.dev in text and "[mount]" not in text
        with open(self.conf, "w") as f:
            f.write(text.replace(self.c.dev + "/key", self.key) + "\n[mount]\n" + more)
        os.chmod(self.key, mode)

    def mount(self):
        subprocess.run([self.program, self.source, self.at, "-o", self.options], check=True,
                       timeout=60 * SLOWNESS, stdin=subprocess.DEVNULL, cwd=self.c.dir,
                       env=dict(os.environ, LEAT_CONF="leat.conf"))
        self.supervisor = self.status()["supervisor"]
        assert self.supervisor > 0 or "supervise=no" in self.options

    def __exit__(self, kind, value, trace):
        ended = False
        try:
            if kind is None:
                unmount(self.at)
                wait_until(self.is_gone, 20, "the end of supervisor and daemon")
                assert not any(self.at in m for m in open("/proc/mounts"))
                ended = True
        finally:
            if not ended:
                self.end_at_once()

    def end_at_once(self):
        """After a failure: ends the mount even if files are open or processes wait there."""
        with contextlib.suppress(FileNotFoundError), open(self.log, errors="replace") as f:
            print("--- mount\n" + "".join(f.readlines()[-60:]))
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while subprocess.run(["umount", "-l", self.at], check=False,
                             stderr=subprocess.DEVNULL).returncode == 0:
            pass
        wait_until(self.is_gone, 20, "the end of supervisor and daemon")

    def processes(self):
        """Supervisors and daemons of this program."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%s/exe" % pid).split(" ")[0] == self.program:
                    found.append(int(pid))
        return found

    def is_gone(self):
        return not self.processes()

    def status(self):
        return json.loads(os.getxattr(self.at, "leat.status"))

    def kill(self):
        before = self.status()
        os.kill(before["pid"], signal.SIGKILL)
        return before

    def kill_and_wait(self):
        before = self.kill()
        after = self.status()
        assert after["pid"] != before["pid"] and after["restarts"] == before["restarts"] + 1
        assert after["session"] == before["session"]

    def upgrade(self, check=True):
        argv = [BUILD + "/leat", "--conf", self.c.dev + "/conf", "mount", "--upgrade", self.at]
        return subprocess.run(argv, check=check, timeout=120, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)


def write_behind(m, fd, data):
    """Writes at the start of the file, so that only the daemon has the data. A write without a
    grant goes to the servers synchronously; so the write is repeated until one stays unflushed."""
    def is_behind():
        assert os.pwrite(fd, data, 0) == len(data)
        return m.status()["dirty_bytes"] > 0
    wait_until(is_behind, 20, "a write that no server has yet")


def pattern(name, number, size):
    return (hashlib.sha256(b"%s %d" % (name.encode(), number)).digest() * (size // 32 + 1))[:size]


class Worker(threading.Thread):
    def __init__(self, fn, stop, *args):
        super().__init__()
        self.fn, self.stop, self.args = fn, stop, args
        self.error = None
        self.eio = self.rounds = 0
        self.start()

    def run(self):
        try:
            while not self.stop.is_set():
                self.fn(self, *self.args)
                self.rounds += 1
        except BaseException as e:  # end() raises it
            self.error = e
            self.stop.set()

    def end(self):
        self.join()
        if self.error:
            raise self.error


def writer(w, folder, name, lossless):
    """Writes, syncs, checks: synced data is there; other data too, or a call returned EIO."""
    path = "%s/%s.%d" % (folder, name, w.rounds % 5)
    size = random.choice([100, BLOCK, 70000, 300000])
    told = False
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        for i in range(8):
            data = pattern(path, w.rounds * 8 + i, size)
            assert os.pwrite(fd, data, i * size) == size
            if random.random() < 0.5:
                try:
                    os.fsync(fd)
                except OSError as e:
                    if e.errno != errno.EIO or lossless:
                        raise
                    told = True
                    w.eio += 1
                    break
                if not told:
                    for k in range(i + 1):
                        got = os.pread(fd, size, k * size)
                        assert got == pattern(path, w.rounds * 8 + k, size), (path, i, k, len(got))
    finally:
        try:
            os.close(fd)
        except OSError as e:
            if e.errno != errno.EIO or lossless:
                raise
            told = True
            w.eio += 1
    if told:
        return
    with open(path, "rb") as f:
        assert os.fstat(f.fileno()).st_size == 8 * size, (path, os.fstat(f.fileno()).st_size)
        for k in range(8):
            got = f.read(size)
            assert got == pattern(path, w.rounds * 8 + k, size), (path, k, len(got))


def appender(w, path, count, lost, lossless):
    """Each record is there once, in order, except records for which close returned EIO."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    first = count[0]
    try:
        for _ in range(10):
            record = b"%015d\n" % count[0]
            assert os.write(fd, record) == 16
            count[0] += 1
    finally:
        try:
            os.close(fd)
        except OSError as e:
            if e.errno != errno.EIO or lossless:
                raise
            w.eio += 1
            lost.update(range(first, count[0]))


def namer(w, folder):
    """Every call takes effect exactly once: no EEXIST or ENOENT for names made or removed here."""
    base = "%s/n%d" % (folder, w.rounds)
    os.mkdir(base)
    fd = os.open(base + "/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(fd)
    os.link(base + "/new", base + "/link")
    os.symlink("new", base + "/symlink")
    os.rename(base + "/new", base + "/renamed")
    os.setxattr(base + "/link", "user.a", b"1", os.XATTR_CREATE)
    os.removexattr(base + "/link", "user.a")
    assert sorted(os.listdir(base)) == ["link", "renamed", "symlink"]
    assert os.stat(base + "/link").st_nlink == 2
    os.unlink(base + "/link")
    os.unlink(base + "/symlink")
    os.unlink(base + "/renamed")
    os.rmdir(base)


def reader(w, path, sums):
    with open(path, "rb") as f:
        assert hashlib.sha256(f.read()).digest() == sums[path], path


def count_one(w, f, lossless):
    fcntl.flock(f, fcntl.LOCK_EX)
    n = int(f.read() or b"0")
    for _ in range(10):  # repeats the write as long as fsync reports its loss
        f.seek(0)
        f.write(b"%d" % (n + 1))
        try:
            os.fsync(f.fileno())
            break
        except OSError as e:
            if e.errno != errno.EIO or lossless:
                raise
            w.eio += 1
    fcntl.flock(f, fcntl.LOCK_UN)


def locker(w, path, lossless):
    """Two of these count in one file, under a lock."""
    f = open(path, "r+b", buffering=0)
    try:
        count_one(w, f, lossless)
    finally:
        try:
            f.close()
        except OSError as e:  # a write of the other one was lost meanwhile
            if e.errno != errno.EIO or lossless:
                raise
            w.eio += 1


def storm(m, disturb, lossless):
    folder = m.at + "/storm"
    os.mkdir(folder)
    sums = {}
    for i in range(3):
        data = os.urandom(3 << 20)
        sums["%s/data%d" % (folder, i)] = hashlib.sha256(data).digest()
        with open("%s/data%d" % (folder, i), "wb") as f:
            f.write(data)
            os.fsync(f.fileno())
    with open(folder + "/counter", "wb") as f:
        f.write(b"0")
        os.fsync(f.fileno())
    stop, count, lost = threading.Event(), [0], set()
    workers = [Worker(writer, stop, folder, "w%d" % i, lossless) for i in range(3)]
    workers += [Worker(namer, stop, folder + "/"),
                Worker(appender, stop, folder + "/log", count, lost, lossless)]
    workers += [Worker(reader, stop, p, sums) for p in list(sums)[:2]]
    lockers = [Worker(locker, stop, folder + "/counter", lossless) for _ in range(2)]
    end = time.monotonic() + SECONDS
    times = 0
    try:
        while time.monotonic() < end and not stop.is_set():
            time.sleep(random.uniform(0.3, 2))
            disturb()
            times += 1
    finally:
        stop.set()
        for w in workers + lockers:
            w.join()
    for w in workers + lockers:
        w.end()
    with open(folder + "/log", "rb") as f:
        text = f.read()
    seen = [int(text[i:i + 15]) for i in range(0, len(text), 16)]
    assert text == b"".join(b"%015d\n" % i for i in seen) and seen == sorted(set(seen)), seen
    assert set(range(count[0])) - set(seen) <= lost, (len(seen), count[0], sorted(lost))
    with open(folder + "/counter", "rb") as f:
        assert int(f.read()) == sum(w.rounds for w in lockers)
    for path in sums:
        reader(None, path, sums)
    print("  %d times; rounds %s; EIO %d" % (
        times, [w.rounds for w in workers + lockers], sum(w.eio for w in workers + lockers)))
    shutil.rmtree(folder)
    return times


def test_what_is_open_survives(c):
    with Mount(c) as m:
        os.mkdir(m.at + "/d")
        f = open(m.at + "/a", "w+b", buffering=0)
        f.write(b"synced")
        os.fsync(f.fileno())
        gone = open(m.at + "/gone", "w+b", buffering=0)
        gone.write(b"x" * 300000)
        os.fsync(gone.fileno())
        os.unlink(m.at + "/gone")
        mapped = open(m.at + "/mapped", "w+b", buffering=0)
        mapped.write(b"m" * 100000)
        os.fsync(mapped.fileno())
        mem = mmap.mmap(mapped.fileno(), 100000)
        listing = os.scandir(m.at)
        next(listing)
        fcntl.flock(f, fcntl.LOCK_EX)
        other = open(m.at + "/a", "rb")
        os.chdir(m.at + "/d")
        try:
            for i in range(3):
                m.kill_and_wait()
                assert os.getcwd() == m.at + "/d"
                open("here%d" % i, "w").close()
                f.seek(0)
                assert f.read() == b"synced" + b"+" * i, i
                f.write(b"+")
                os.fsync(f.fileno())
                assert os.pread(gone.fileno(), 400000, 0) == b"x" * (300000 + i)
                os.pwrite(gone.fileno(), b"x", 300000 + i)
                os.fsync(gone.fileno())
                assert os.fstat(gone.fileno()).st_nlink == 0
                assert mem[:] == b"n" * i + b"m" * (100000 - i)
                mem[i] = ord("n")
                mem.flush()
                try:
                    fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    raise AssertionError("the lock is lost")
                except BlockingIOError:
                    pass
            assert {e.name for e in listing} <= {"a", "d", "mapped"}
            fcntl.flock(f, fcntl.LOCK_UN)
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.chdir("/")
        mem.close()
        for file in (f, gone, mapped, other):
            file.close()
        assert os.stat(m.at + "/a").st_size == 9
        assert m.status()["restarts"] == 3


def test_an_append_that_waits_for_space_is_made_once(c):
    """The servers have the append when the daemon is killed, and have not replied."""
    with open(c.mnt() + "/read", "wb") as f:
        f.write(bytes(16 << 20))
    for i in range(3):
        with Mount(c) as m:
            with open(m.at + "/read", "rb") as f:
                f.read()  # connects to the servers
            append_to_stopped(c, m, m.at + "/append%d" % i)
        with open("%s/append%d" % (c.mnt(), i), "rb") as f:
            text = f.read()
        assert text == b"once\n", text


def append_to_stopped(c, m, path):
    daemon = m.status()["pid"]
    for s in ("ossd1", "ossd2"):
        c.kill(s, signal.SIGSTOP)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        t = threading.Thread(target=os.write, args=(fd, b"once\n"))
        t.start()
        time.sleep(0.3)
        waits = t.is_alive()
        os.kill(daemon, signal.SIGSTOP)
    finally:
        for s in ("ossd1", "ossd2"):
            c.kill(s, signal.SIGCONT)
        time.sleep(0.3)
        os.kill(daemon, signal.SIGKILL)
        t.join(300)
        with contextlib.suppress(OSError):  # may return EIO
            os.fsync(fd)
        os.close(fd)
    assert waits, "it has not waited"


def test_one_that_appends_no_more_is_not_appended_over(c):
    """Neither its writes before another daemon takes over are appended over, nor those after it,
    even if the metadata server restarts as well."""
    def restart_both(m):
        c.kill("mds")
        c.start("mds")
        m.kill_and_wait()

    with Mount(c) as m:
        for k, replace in enumerate((Mount.upgrade, Mount.kill_and_wait, restart_both)):
            paths = [at + "/plain%d" % k for at in (m.at, c.mnt(1))]
            fd = os.open(paths[0], os.O_RDWR | os.O_CREAT | os.O_APPEND)
            os.write(fd, b"first")
            other = os.open(paths[1], os.O_WRONLY | os.O_APPEND)
            os.write(other, b"second")
            fcntl.fcntl(fd, fcntl.F_SETFL, 0)
            expected = b"firstsecond"
            for i in range(4):
                os.pwrite(fd, b"plain%d" % i, len(expected))
                if i % 2 == 0:
                    os.fsync(fd)
                    replace(m)
                os.write(other, b"other%d" % i)
                expected += b"plain%dother%d" % (i, i)
            os.close(fd)
            os.close(other)
            assert get(paths[0]) == get(paths[1]) == expected, (k, get(paths[1]))


def test_files_of_the_dead_are_closed(c):
    """Space of unlinked files is freed and sizes are settled, although the daemon that closed the
    file never reported this."""
    with Mount(c) as m:
        f = open(m.at + "/settled", "wb", buffering=0)
        f.write(b"y" * 50000)
        os.fsync(f.fileno())
        m.kill_and_wait()
        f.close()
        assert os.stat(m.at + "/settled").st_size == 50000
        time.sleep(6)
        with open(c.mnt(1) + "/settled", "rb") as g:
            assert g.read() == b"y" * 50000
        os.unlink(m.at + "/settled")


def test_locks_of_a_file_that_is_being_released(c):
    """An OFD lock ends with its open file, even if the daemon that was about to release it is
    killed, and even if others on the mount have the file open."""
    lock = lambda fd: fcntl.fcntl(fd, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    with Mount(c, ",dirty_ms=60000") as m:
        other = os.open(m.at + "/released", os.O_CREAT | os.O_RDWR)
        fd = os.open(m.at + "/released", os.O_RDWR)
        lock(fd)
        # The descriptor is in flight in a socket: closing the socket releases it without a flush.
        ways = socket.socketpair()
        socket.send_fds(ways[0], [b"x"], [fd])
        os.close(fd)
        write_behind(m, other, b"what others have to see before the lock is free")
        for s in ("ossd1", "ossd2"):
            c.kill(s, signal.SIGSTOP)
        try:
            for s in ways:
                s.close()
            time.sleep(0.3)
            status = m.status()
            os.kill(status["pid"], signal.SIGKILL)
            assert status["dirty_bytes"] > 0, status
        finally:
            for s in ("ossd1", "ossd2"):
                c.kill(s, signal.SIGCONT)

        def is_free():
            with contextlib.suppress(BlockingIOError):
                lock(other)
                return True
        wait_until(is_free, 10, "the lock is given back")
        with contextlib.suppress(OSError):  # the write may be lost
            os.fsync(other)
        os.close(other)


def test_many_locks_stay(c):
    """More locks than fit into one reply: the next daemon has each of them."""
    n = 3000
    with Mount(c) as m:
        with open(m.at + "/many-locks", "wb") as f:
            for i in range(n):
                fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * i)
            m.kill_and_wait()
            assert c.status()["mds"]["locks"] == n
            for i in range(n):
                fcntl.lockf(f, fcntl.LOCK_UN, 1, 2 * i)
            assert c.status()["mds"]["locks"] == 0


def test_lost_writes_are_told(c):
    """Unflushed writes that no server had: EIO, once for each open file."""
    with Mount(c, ",dirty_ms=60000") as m:
        f = open(m.at + "/lost", "wb", buffering=0)
        os.fsync(f.fileno())
        f.write(b"first")
        os.fsync(f.fileno())
        second = open(m.at + "/lost", "r+b", buffering=0)
        clean = open(m.at + "/clean", "wb", buffering=0)
        clean.write(b"clean")
        os.fsync(clean.fileno())
        write_behind(m, f.fileno(), b"lost!")
        m.kill_and_wait()
        for file in (f, second):
            try:
                os.fsync(file.fileno())
                raise AssertionError("a lost write was not told")
            except OSError as e:
                assert e.errno == errno.EIO
            os.fsync(file.fileno())
        os.fsync(clean.fileno())
        f.seek(0)
        f.write(b"again")
        os.fsync(f.fileno())
        m.kill_and_wait()  # every open file has reported the loss
        for file in (f, second, clean):
            os.fsync(file.fileno())
            file.close()
        with open(m.at + "/lost", "rb") as g:
            assert g.read() == b"again"


def write_and_kill(paths, pipe):
    """For each message with pids: writes, kills the pids as the write returns, reports this, and
    then reports the results of fsync and of a read. Another mount has the file open, so a server
    has accepted each write that returned."""
    f, other = os.open(paths[0], os.O_RDWR | os.O_CREAT), os.open(paths[1], os.O_RDWR)
    i = 0
    for pids in iter(pipe.recv, None):
        i += 1
        os.pwrite(f, b"old%05d" % i * 512, 0)
        os.fsync(f)
        new = b"new%05d" % i * 512
        os.pwrite(f, new, 0)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        pipe.send("killed")
        try:
            os.fsync(f)
            pipe.send("there" if os.pread(f, 4096, 0) == new else "lost")
        except OSError as e:
            pipe.send("told" if e.errno == errno.EIO else repr(e))
    os.close(f)
    os.close(other)


def test_lost_with_daemon_and_server(c):
    """The server that had accepted a write dies together with the daemon, so the write is lost. An
    fsync without an error means that the write is there. The files belong to a separate process,
    because starting a program closes files, which waits for servers."""
    said = []
    with Mount(c) as m:
        mine, pipe = multiprocessing.Pipe()
        worker = multiprocessing.Process(target=write_and_kill, daemon=True,
                                         args=((m.at + "/seen", c.mnt() + "/seen"), pipe))
        worker.start()
        while len(said) < 3 or (len(said) < 12 and "told" not in said):
            mine.send([m.status()["pid"], c.pid("ossd1"), c.pid("ossd2")])
            assert mine.recv() == "killed"
            for name in ("ossd1", "ossd2"):
                wait_until(lambda n=name: not c.alive(n), 10, name + " is gone")
                c.start(name)
            said.append(mine.recv())
        mine.send(None)
        worker.join()
    print(*said)
    assert set(said) <= {"there", "told"} and "told" in said, said


def test_upgrade_loses_nothing(c):
    """Not even unsynced writes; a wait for a lock continues throughout."""
    with Mount(c, ",dirty_ms=60000") as m:
        f = open(m.at + "/behind", "wb", buffering=0)
        write_behind(m, f.fileno(), b"behind")
        fcntl.lockf(f, fcntl.LOCK_EX)
        child = os.fork()
        if child == 0:
            try:
                g = open(m.at + "/behind", "r+b", buffering=0)
                fcntl.lockf(g, fcntl.LOCK_EX)
                os._exit(0 if g.read() == b"behind" else 1)
            except BaseException:
                os._exit(2)
        time.sleep(0.3)
        old = m.status()
        shutil.copy(m.program, m.program + ".new")
        os.rename(m.program + ".new", m.program)
        print("  " + m.upgrade().stdout.strip())
        new = m.status()
        assert new["pid"] != old["pid"] and new["upgrades"] == 1 and new["restarts"] == 0, new
        assert new["session"] == old["session"]
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        os.fsync(f.fileno())
        fcntl.lockf(f, fcntl.LOCK_UN)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        f.close()


def test_leases_after_a_daemon(c):
    """The next daemon gets its own leases from a metadata server that did not restart."""
    with Mount(c) as m:
        path = m.at + "/leased"
        put(path, b"leased")
        os.utime(path, (time.time() + 1, time.time() - 10))  # too recent for another update

        def is_delegated():
            before = m.status()["delegated_opens"]
            get(path)
            return m.status()["delegated_opens"] > before

        def asks_nobody():
            before = m.status()["meta_ops"]
            for _ in range(10):
                os.stat(path)
            return m.status()["meta_ops"] == before

        for replace in (lambda: None, m.upgrade, m.kill_and_wait):
            replace()
            wait_until(is_delegated, 20, "an open is delegated")
            wait_until(asks_nobody, 20, "what is known is believed")


def staged_set(c, m, folder):
    """Three staged files, one of them open from before. Each copy differs in one byte."""
    names = ["%s/%s/f%d" % (m.at, folder, i) for i in range(3)]
    os.mkdir(m.at + "/" + folder)
    for name in names:
        with open(name, "wb") as f:
            f.write(b"s" * 300000)
    wait_until(lambda: c.status()["mds"]["opens"] == 0, 20, "all closes have arrived")
    plain = open(names[1], "rb", buffering=0)
    assert plain.read(10) == b"s" * 10
    r = c.leat("stage", "in", m.at + "/" + folder, "--to", c.dir + "/stage", "--json")
    path = json.loads(r.stdout)["path"]
    for i in range(3):
        copy = "%s/f%d" % (path, i)
        os.chmod(copy, 0o644)
        with open(copy, "r+b") as f:
            f.seek(200000)
            f.write(b"C")
        os.chmod(copy, 0o444)
    return names, plain, path


def staged_files_go_on(c, m, folder, replace):
    """Files are open when the daemon is replaced: the kernel continues with the copies that it
    reads, and the next daemon has the restrictions on those files."""
    names, plain, path = staged_set(c, m, folder)
    f, g = (open(names[i], "rb", buffering=0) for i in (0, 2))
    mem = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    assert os.pread(f.fileno(), 1, 200000) == os.pread(g.fileno(), 1, 200000) == b"C"
    replace(f)
    assert os.pread(f.fileno(), 2, 200000) == b"Cs" and mem[200000:200002] == b"Cs"
    assert os.pread(plain.fileno(), 2, 200000) == b"ss"
    # A new open uses the same copy. This file cannot be written; one that the daemon reads can.
    h = open(names[0], "rb", buffering=0)
    assert os.pread(h.fileno(), 1, 200000) == b"C" and m.status()["staged_opens_passed"] > 0
    expect_errno(errno.EBUSY, open, names[0], "r+b")
    with open(names[1], "r+b") as w:
        w.write(b"w")
    assert os.pread(plain.fileno(), 2, 0) == b"ws"
    shutil.rmtree(path)
    assert os.pread(f.fileno(), 1, 200000) == b"C"
    for each in (f, plain, h):
        each.close()
    expect_errno(errno.EBUSY, open, names[0], "r+b")  # because of the mapping
    mem.close()
    wait_until(lambda: open(names[0], "r+b").close() or True, 10, "writable again")
    replace(g)
    g.close()
    wait_until(lambda: open(names[2], "r+b").close() or True, 10, "writable again")
    with open(names[0], "rb") as again:
        assert again.read() == b"s" * 300000


def test_staged_files_go_on(c):
    os.mkdir(c.dir + "/stage")
    with Mount(c, ",passthrough=staged,stage_dir=%s/stage" % c.dir) as m:
        if m.status()["passthrough"].startswith("off"):
            print("not here: passthrough is " + m.status()["passthrough"])
            return

        def killed(f):
            m.kill()
            assert os.pread(f.fileno(), 1, 200000) == b"C"  # the kernel needs no daemon for this
            m.status()

        staged_files_go_on(c, m, "killed", killed)
        staged_files_go_on(c, m, "upgraded", lambda f: m.upgrade())
        s = m.status()
        assert (s["restarts"], s["upgrades"], s["upgrades_failed"]) == (2, 2, 0), s
        with open(m.log) as log:
            assert "the kernel keeps a staged file open" not in log.read()


def test_stage_dir_on_overlay_later(c):
    """The promises that the first daemon made to the kernel stay."""
    stage = c.dir + "/later"
    for name in ("lower", "upper", "work"):
        os.makedirs("%s/layers/%s" % (c.dir, name))
    os.mkdir(stage)
    with Mount(c, ",passthrough=staged,stage_dir=" + stage) as m:
        r = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", ",".join(
            "%sdir=%s/layers/%s" % (name, c.dir, name) for name in ("lower", "upper", "work")),
            stage], check=False, capture_output=True, text=True)
        if r.returncode != 0:
            print("not here: " + r.stderr)
            return
        try:
            m.kill_and_wait()
            m.upgrade()
        finally:
            subprocess.run(["umount", stage], check=True)


def test_upgrade_to_what_does_not_work(c):
    """The previous program continues, and the failure is reported."""
    with Mount(c) as m:
        f = open(m.at + "/f", "wb", buffering=0)
        f.write(b"1")
        with open(m.program + ".new", "w") as g:
            g.write("#!/bin/sh\nexit 3\n")
        os.chmod(m.program + ".new", 0o755)
        os.rename(m.program, m.program + ".good")
        os.rename(m.program + ".new", m.program)
        r = m.upgrade(check=False)
        os.rename(m.program + ".good", m.program)
        assert r.returncode == 1 and "continues" in r.stderr, r
        s = m.status()
        assert s["upgrades_failed"] == 1 and s["upgrades"] == 0, s
        f.write(b"2")
        os.fsync(f.fileno())
        f.close()
        with open(m.at + "/f", "rb") as g:
            assert g.read() == b"12"


def test_upgrades_under_load(c):
    with Mount(c) as m:
        assert storm(m, m.upgrade, True) > 2
        assert m.status()["restarts"] == 0 and m.status()["upgrades_failed"] == 0


def test_kills_under_load(c):
    with Mount(c) as m:
        times = storm(m, m.kill, False)
        assert times > 2 and m.status()["restarts"] == times


def test_supervisor_killed(c):
    """As without a supervisor, the mount is dead until it is unmounted."""
    with Mount(c) as m:
        os.kill(m.supervisor, signal.SIGKILL)
        wait_until(m.is_gone, 10, "the daemon ends with its supervisor")
        try:
            os.stat(m.at + "/a")
            raise AssertionError("who answers?")
        except OSError as e:
            assert e.errno in (errno.ENOTCONN, errno.ECONNABORTED)


def test_supervisor_unmounts(c):
    with Mount(c) as m:
        os.kill(m.supervisor, signal.SIGTERM)
        wait_until(m.is_gone, 20, "the end")
        assert not any(m.at in line for line in open("/proc/mounts"))
        m.mount()


def test_asked_to_end_between_two_daemons(c):
    """The supervisor ends, whenever it gets the signal."""
    for ms in (0, 1, 2, 4, 8, 16, 32):
        with Mount(c) as m:
            m.kill()
            time.sleep(ms / 1000)
            os.kill(m.supervisor, signal.SIGTERM)
            wait_until(m.is_gone, 20, "the end, asked for after %d ms" % ms)
            m.mount()


def test_configuration_is_edited(c):
    """An upgrade finds errors in the configuration or the key, and fails. The successor of a killed
    daemon uses the configuration that has worked."""
    wrong = {
        "what nobody knows": ("nonsense = 1\n", 0o600),
        "a key that others may read": ("", 0o644),
        "another promise to the kernel": ("local_locks = yes\n", 0o600),
    }
    with Mount(c) as m:
        f = open(m.at + "/f", "wb", buffering=0)
        for n, (what, (more, mode)) in enumerate(wrong.items()):
            m.configure(more, mode)
            f.write(b"1")
            os.fsync(f.fileno())
            m.kill_and_wait()
            r = m.upgrade(check=False)
            assert r.returncode == 1 and "continues" in r.stderr, (what, r)
            f.write(b"2")
            os.fsync(f.fileno())
            assert m.status()["upgrades_failed"] == n + 1, what
        os.unlink(m.conf)
        m.kill_and_wait()
        assert m.upgrade(check=False).returncode == 1
        m.configure("slow_ms = 12345\n")
        m.upgrade()
        os.unlink(m.conf)
        m.kill_and_wait()
        assert m.status()["upgrades"] == 1
        f.close()
        with open(m.at + "/f", "rb") as g:
            assert g.read() == b"12" * len(wrong)


def test_metadata_server_away(c):
    """The mount survives daemons that cannot start to serve, and can be ended nevertheless."""
    with Mount(c, ",mount_timeout_ms=%d,request_timeout_ms=60000" % (500 * SLOWNESS)) as m:
        with open(m.at + "/there", "wb") as f:
            f.write(b"there")
        before = m.status()
        c.kill("mds")
        os.kill(before["pid"], signal.SIGKILL)
        time.sleep(5)
        c.start("mds")
        with open(m.at + "/there", "rb") as f:
            assert f.read() == b"there"
        assert m.status()["restarts"] == 1
        c.kill("mds")
        m.kill()
        time.sleep(1)
        os.kill(m.supervisor, signal.SIGTERM)
        wait_until(m.is_gone, 20, "the end")
        c.start("mds")
        m.mount()


class Relay:
    """A proxy of the metadata server that drops requests of the kinds in `lost`."""
    HEADER, REQUEST, MAP_GET = 80, 2, 0x0106

    def __init__(self, c):
        with open(c.dev + "/conf") as f:
            self.server = re.search(r"^mds = (\S+):(\d+)$", f.read(), re.M).groups()
        self.lost, self.n_lost = set(), 0
        self.listener = socket.create_server((self.server[0], 0))
        self.addr = "%s:%d" % self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(self.server)
                for ends in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self.run, args=ends, daemon=True).start()

    def run(self, source, to, requests):
        with contextlib.suppress(OSError), source.makefile("rb") as f:
            while requests and (header := f.read(self.HEADER)):
                kind, op = header[4], int.from_bytes(header[6:8], "little")
                body = f.read(sum(struct.unpack_from("<2I", header, 44)))
                if kind == self.REQUEST and op in self.lost:
                    self.n_lost += 1
                else:
                    to.sendall(header + body)
            while data := f.read1(1 << 16):
                to.sendall(data)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_session_of_who_comes_not_so_far_as_to_serve(c):
    """It has taken over the session already, and leaves it unchanged to the next daemon."""
    with Relay(c) as relay, Mount(c, ",mount_timeout_ms=%d" % (500 * SLOWNESS),
                                  relay.addr + "/") as m:
        f = open(m.at + "/locked", "w+b", buffering=0)
        gone = open(m.at + "/gone", "w+b", buffering=0)
        for file in (f, gone):
            file.write(b"w" * 3000)
            os.fsync(file.fileno())
        os.unlink(m.at + "/gone")
        fcntl.flock(f, fcntl.LOCK_EX)
        relay.lost.add(relay.MAP_GET)
        before = m.kill()
        wait_until(lambda: relay.n_lost >= 2, 20, "two daemons that do not learn of the cluster")
        relay.lost.clear()
        assert m.status()["session"] == before["session"]
        with open(c.mnt() + "/locked", "rb") as other:
            expect_errno(errno.EAGAIN, fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for file in (f, gone):
            assert os.pread(file.fileno(), 4000, 0) == b"w" * 3000
            file.close()


def test_asked_twice_for_another_daemon(c):
    """A second request during a replacement has no further effect."""
    with Mount(c, ",dirty_ms=60000") as m:
        f = open(m.at + "/behind", "wb", buffering=0)
        write_behind(m, f.fileno(), b"behind")
        before = m.status()
        for s in ("ossd1", "ossd2"):
            c.kill(s, signal.SIGSTOP)
        try:
            for _ in range(3):  # the unflushed write keeps the daemon from ending
                os.kill(m.supervisor, signal.SIGHUP)
                time.sleep(0.3)
        finally:
            for s in ("ossd1", "ossd2"):
                c.kill(s, signal.SIGCONT)
        wait_until(lambda: m.status()["upgrades"] == 1, 30, "another daemon")
        os.fsync(f.fileno())
        f.close()
        after = m.status()
        assert after["restarts"] == after["upgrades_failed"] == 0, after
        assert after["session"] == before["session"]
        with open(m.at + "/behind", "rb") as f:
            assert f.read() == b"behind"


def test_root_is_renamed(c):
    """Another mount renames it: the mounted directory stays the same."""
    was = c.mnt() + "/project"
    os.makedirs(was + "/sub")
    put(was + "/sub/there", b"there")
    with Mount(c, source="leat:/project/sub") as m:
        os.rename(was + "/sub", was + "/moved")
        m.kill_and_wait()
        assert get(m.at + "/there") == b"there"
        os.mkdir(was + "/sub")
        m.kill_and_wait()
        put(m.at + "/new", b"new")
        m.upgrade()
        assert sorted(os.listdir(m.at)) == sorted(os.listdir(was + "/moved")) == ["new", "there"]
        os.rename(was, was + ".moved")
        m.kill_and_wait()
        assert get(m.at + "/new") == b"new"


def test_reload_of_a_mount_without_supervisor(c):
    """The signal of `systemctl reload` does not end it."""
    with Mount(c, ",supervise=no") as m:
        os.kill(m.status()["pid"], signal.SIGHUP)
        time.sleep(0.1)
        open(m.at + "/reloaded", "w").close()


if __name__ == "__main__":
    run_tests(globals())
