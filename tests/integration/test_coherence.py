#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Litmus tests of the coherence contract: when a call on one mount has returned, the other mount
sees its effect, whatever either has cached."""
# timeout: 240
import errno
import fcntl
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import (BUILD, KEEP_SIZE, PUNCH, as_user, expect_errno, fallocate, get, put, run_tests,
                     unmount, wait_until)

CLUSTER = {"mounts": 2}
USER, FORMER, GROUP, OTHER_GROUP = 5001, 5002, 6001, 6002
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_NODUMP = 0x80086601, 0x40086602, 0x40


def requests(c):
    for line in c.metrics_of("mds").splitlines():
        if line.startswith("leat_mds_requests_total "):
            return int(float(line.split()[1]))
    raise AssertionError("no such metric")


def both(c, i):
    return (c.mnt(1), c.mnt(2)) if i % 2 else (c.mnt(2), c.mnt(1))


def test_attributes_at_once(c):
    put(c.mnt(1) + "/a", b"1")
    for i in range(40):
        me, other = both(c, i)
        for m in (me, other):
            os.stat(m + "/a")
        os.chmod(me + "/a", 0o600 + i % 8)
        assert os.stat(other + "/a").st_mode & 0o777 == 0o600 + i % 8, "round %d" % i
        os.utime(me + "/a", ns=(i, i * 1000))
        assert os.stat(other + "/a").st_mtime_ns == i * 1000, "round %d" % i
        os.truncate(me + "/a", i * 3)
        assert os.stat(other + "/a").st_size == i * 3, "round %d" % i


def set_flags(fd, flags):
    fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("I", flags))


def acl_of(user):
    """An access list: rwx for that user, the owner, and all others."""
    entries = [(1, 7, -1), (2, 7, user), (4, 7, -1), (16, 7, -1), (32, 7, -1)]
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, perm, who & 0xffffffff) for tag, perm, who in entries)


# Operations on a descriptor that only the owner may do. The kernel checks its cached owner.
OWNERS_CALLS = {
    "fchmod": lambda fd: os.fchmod(fd, 0o777),
    "fchown": lambda fd: os.fchown(fd, -1, OTHER_GROUP),
    "futimens": lambda fd: os.utime(fd, ns=(1, 2)),
    "access list": lambda fd: os.setxattr(fd, "system.posix_acl_access", acl_of(FORMER)),
    "flags": lambda fd: set_flags(fd, FS_NODUMP),
    "O_NOATIME": lambda fd: fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NOATIME),
}


def given_away(me, other, kind, call):
    """Results of the call by the previous owner and by the new one."""
    if kind == "directory":
        os.mkdir(me)
    else:
        put(me, b"x")
    os.chmod(me, 0o777)
    os.chown(me, FORMER, GROUP)
    writer = os.open(me, os.O_RDWR) if kind == "shared" else -1
    fd = os.open(other, os.O_RDONLY)
    try:
        os.fstat(fd)
        if kind == "changed":
            os.utime(me, ns=(3, 4))
        os.chown(me, USER, GROUP)
        return [as_user(lambda: call(fd), who, GROUP, (GROUP, OTHER_GROUP))
                for who in (FORMER, USER)]
    finally:
        os.close(fd)
        if writer >= 0:
            os.close(writer)


def test_the_owner_at_once(c):
    """Descriptors that were opened before another mount changed the owner. The inode is open on one
    mount only, or on both, or was changed by the other before, or is a directory."""
    for kind in ("alone", "shared", "changed", "directory"):
        for i, (name, call) in enumerate(OWNERS_CALLS.items()):
            paths = [m + "/owned-%s-%d" % (kind, i) for m in both(c, i)]
            results = given_away(*paths, kind, call)
            assert results == [errno.EPERM, 0], "%s, %s: %s" % (name, kind, results)


def mounted_without(c, capability):
    """A mount whose processes lack the capability. Returns its path and its log."""
    at, log = c.dir + "/lacking", c.dir + "/lacking.log"
    os.makedirs(at, exist_ok=True)
    subprocess.run(["setpriv", "--bounding-set", "-" + capability, "--inh-caps", "-" + capability,
                    BUILD + "/mount.leat", "leat", at, "-o", "conf=%s/conf,log=%s" % (c.dev, log)],
                   check=True, stdin=subprocess.DEVNULL, timeout=300)
    return at, log


def given_away_without_handles(c, root, name):
    """root: the root of the mount that lacks the capability. Only root may walk there."""
    put(c.mnt(1) + "/" + name, b"x")
    os.chmod(c.mnt(1) + "/" + name, 0o666)
    os.chown(c.mnt(1) + "/" + name, FORMER, GROUP)
    fd = os.open(name, os.O_RDONLY, dir_fd=root)
    try:
        os.fstat(fd)
        os.chown(c.mnt(1) + "/" + name, USER, GROUP)
        assert as_user(lambda: os.fchmod(fd, 0o777), FORMER, GROUP) == errno.EPERM
    finally:
        os.close(fd)

    def new_owner_may():
        result = as_user(lambda: os.chmod(name, 0o700, dir_fd=root), USER, GROUP)
        assert result in (0, errno.EPERM), os.strerror(result)
        return result == 0

    wait_until(new_owner_may, 10, "the kernel has asked for the name again")
    assert os.stat(c.mnt(1) + "/" + name).st_mode & 0o777 == 0o700


def test_the_owner_where_no_handle_may_be_opened(c):
    """As in many containers: chown succeeds, and the previous owner is refused. The new owner may
    change the file by name after the kernel's names have expired (0.1 s). The log reports it
    once."""
    at, log = mounted_without(c, "dac_read_search")
    try:
        root = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for i in range(3):
                given_away_without_handles(c, root, "lacking-%d" % i)
        finally:
            os.close(root)
        with open(log) as f:
            said = f.read()
        assert said.count("CAP_DAC_READ_SEARCH") == 1, said
    finally:
        unmount(at)


def test_names_at_once(c):
    os.mkdir(c.mnt(1) + "/names")
    for i in range(30):
        me, other = [m + "/names" for m in both(c, i)]
        expect_errno(errno.ENOENT, os.stat, other + "/x")
        put(me + "/x", b"x")
        os.stat(other + "/x")
        os.rename(me + "/x", me + "/y")
        expect_errno(errno.ENOENT, os.stat, other + "/x")
        os.stat(other + "/y")
        os.link(other + "/y", other + "/z")
        assert os.stat(me + "/y").st_nlink == 2, "round %d" % i
        os.unlink(me + "/z")
        assert os.stat(other + "/y").st_nlink == 1, "round %d" % i
        assert sorted(os.listdir(other)) == ["y"], "round %d" % i
        os.unlink(other + "/y")
        expect_errno(errno.ENOENT, os.stat, me + "/y")
        os.mkdir(other + "/d")
        os.rmdir(me + "/d")
        expect_errno(errno.ENOENT, os.stat, other + "/d")


def test_a_name_that_moved_is_seen_to_go(c):
    """The kernel moves a cached name from one directory to another, with its remaining lifetime."""
    for i in range(10):
        mounts = both(c, i)
        os.mkdir(mounts[0] + "/moved%d" % i)
        me, other = [os.open(m + "/moved%d" % i, os.O_RDONLY) for m in mounts]
        try:
            os.mkdir("d", dir_fd=me)
            os.close(os.open("d/a", os.O_CREAT, 0o600, dir_fd=other))
            os.link("d/a", "b", src_dir_fd=other, dst_dir_fd=other)
            os.rename("d/a", "a", src_dir_fd=me, dst_dir_fd=me)
            os.unlink("a", dir_fd=other)
            expect_errno(errno.ENOENT, os.stat, "a", dir_fd=me)
        finally:  # open descriptors would block the unmount
            os.close(me)
            os.close(other)


def test_rename_over_is_atomic(c):
    path = "/over"
    put(c.mnt(1) + path, b"0" * 4096)
    stop = threading.Event()
    wrong = []

    def read():
        while not stop.is_set():
            try:
                data = get(c.mnt(2) + path)
            except OSError as e:
                wrong.append(e)
                return
            if len(data) != 4096 or len(set(data)) != 1:
                wrong.append(data[:16])
                return

    t = threading.Thread(target=read)
    t.start()
    for i in range(100):
        put(c.mnt(1) + "/tmp", b"%d" % (i % 10) * 4096)
        os.rename(c.mnt(1) + "/tmp", c.mnt(1) + path)
        assert get(c.mnt(2) + path)[:1] == b"%d" % (i % 10), "round %d" % i
    stop.set()
    t.join()
    assert not wrong, wrong


def test_one_wins(c):
    won = [0, 0]

    def race(k):
        for i in range(60):
            try:
                os.close(os.open(c.mnt(k + 1) + "/excl%d" % i, os.O_CREAT | os.O_EXCL))
                won[k] += 1
            except FileExistsError:
                os.stat(c.mnt(k + 1) + "/excl%d" % i)

    ts = [threading.Thread(target=race, args=(k,)) for k in range(2)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert sum(won) == 60, won


def write_in_turn(c, fds):
    size = 0
    rng = random.Random(5)
    for i in range(150):
        k = rng.randrange(2)
        data = bytes([65 + i % 26]) * rng.choice((1, 100, 5000))
        off = rng.randrange(size + 1)
        os.pwrite(fds[k], data, off)
        size = max(size, off + len(data))
        assert os.pread(fds[1 - k], len(data), off) == data, "round %d" % i
        assert os.fstat(fds[1 - k]).st_size == size, "round %d" % i
        assert os.stat(c.mnt(2 - k) + "/w").st_size == size, "round %d" % i
        if i % 40 == 39:
            size //= 2
            os.ftruncate(fds[k], size)
            assert os.fstat(fds[1 - k]).st_size == size, "round %d" % i
            assert os.pread(fds[1 - k], 10, size) == b"", "round %d" % i


def test_writes_are_seen_while_all_have_it_open(c):
    """Without close or fsync: the next read and stat on the other mount have the write."""
    put(c.mnt(1) + "/w", b"")
    fds = [os.open(m + "/w", os.O_RDWR) for m in (c.mnt(1), c.mnt(2))]
    try:
        write_in_turn(c, fds)
    finally:
        for fd in fds:
            os.close(fd)


def test_a_reader_sees_what_comes_while_it_reads(c):
    """The reader opened the file before there was a writer, so its kernel has cached the file."""
    put(c.mnt(1) + "/r", b"a" * 100000)
    with open(c.mnt(2) + "/r", "rb", buffering=0) as r:
        assert r.read(100000) == b"a" * 100000
        with open(c.mnt(1) + "/r", "r+b", buffering=0) as w:
            for i in range(20):
                w.seek(0)
                w.write(bytes([66 + i]) * 100000)
                time.sleep(0.02)  # pages of a read are dropped soon after it
                assert os.pread(r.fileno(), 100000, 0) == bytes([66 + i]) * 100000, i
                assert os.fstat(r.fileno()).st_size == 100000


def test_written_data_is_seen_by_stat_before_it_is_sent(c):
    """The only writer coalesces writes; a stat on another mount makes it flush them."""
    with open(c.mnt(1) + "/g", "wb", buffering=0) as w:
        for i in range(20):
            w.write(b"x" * 10)
            if i % 3 == 2:
                assert os.stat(c.mnt(2) + "/g").st_size == (i + 1) * 10, i
        assert get(c.mnt(2) + "/g") == b"x" * 200


def test_the_time_of_what_another_writes(c):
    """A mount that has the file open for writing, but does not write, gets the new time too."""
    p = [c.mnt(n) + "/when" for n in (1, 2)]
    fds = [os.open(path, os.O_RDWR | os.O_CREAT) for path in p]
    os.utime(p[0], (1, 1))
    os.close(fds[0])
    fds[0] = os.open(p[0], os.O_RDWR)
    for writer in (0, 0, 1, 1):
        before = os.stat(p[0]).st_mtime_ns
        os.pwrite(fds[writer], b"data", 0)
        times = [os.stat(path).st_mtime_ns for path in p]
        assert times[0] == times[1] > before, (writer, times, before)
    for fd in fds:
        os.close(fd)
    os.unlink(p[0])


def test_writes_and_utimes_in_turn(c):
    """Whichever mounts have it open: every mount immediately sees the time of the latest change."""
    rng = random.Random(1)
    p = [c.mnt(n) + "/turns" for n in (1, 2)]
    for writers in ((0,), (1,), (0, 1)):
        fds = [os.open(p[n], os.O_RDWR | os.O_CREAT | os.O_TRUNC) for n in writers]
        for i in range(60):
            before = os.stat(p[0]).st_mtime_ns
            how = rng.choice(("write", "far", "punch", "cut", "past", "past", "future"))
            if how in ("past", "future"):
                want = (10 ** 9 if how == "past" else 4 * 10 ** 9) * 10 ** 9 + i
                os.utime(rng.choice(p + fds), ns=(want, want))
            else:
                want = None
                fd = rng.choice(fds)
                if how in ("write", "far"):
                    os.pwrite(fd, b"data", rng.choice((0, 5, 70000)) << 20 * (how == "far"))
                elif how == "cut":
                    os.ftruncate(fd, rng.choice((1, 70000)))
                else:
                    fallocate(fd, KEEP_SIZE | PUNCH, 1, 100)
            times = [os.stat(path).st_mtime_ns for path in rng.sample(p, 2)]
            times += [os.fstat(fd).st_mtime_ns for fd in fds]
            assert len(set(times)) == 1, (writers, i, how, times)
            assert times[0] == want or want is None and times[0] != before, (writers, i, how, times)
        for fd in fds:
            os.close(fd)
        time.sleep(0.1)
        after = {os.stat(path).st_mtime_ns for path in p}
        assert after == {times[0]}, (writers, how, times[0], after)
        os.unlink(p[0])


def test_a_time_that_another_sets_stays(c):
    """A client that wrote before the time was set reports its write time at close."""
    p = [c.mnt(n) + "/past" for n in (1, 2)]
    for n_open in (1, 2):
        fds = [os.open(p[1], os.O_RDWR | os.O_CREAT) for _ in range(n_open)]
        os.pwrite(fds[0], b"data", 0)
        os.stat(p[0])
        os.utime(p[0], (1234567890, 1234567890))
        for fd in reversed(fds):
            os.close(fd)
        time.sleep(0.2)
        assert [int(os.stat(path).st_mtime) for path in p] == [1234567890] * 2, n_open
        os.unlink(p[0])


def test_append_loses_nothing(c):
    def append(k):
        with open(c.mnt(k + 1) + "/log", "ab", buffering=0) as f:
            for i in range(100):
                f.write(b"%d %04d\n" % (k, i))

    ts = [threading.Thread(target=append, args=(k,)) for k in range(2)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    lines = get(c.mnt(1) + "/log").splitlines()
    assert len(lines) == 200
    for k in range(2):
        assert [x for x in lines if x[:1] == b"%d" % k] == [b"%d %04d" % (k, i) for i in range(100)]


def test_who_cuts_a_file_keeps_it_to_itself(c):
    """No other mount has the file open: its pages stay cached, and its size needs no request."""
    def asked():
        s = json.loads(os.getxattr(c.mnt(1), "leat.status"))
        return s["meta_ops"] + s["read_ops"]

    def use(fd, m, size):
        """The number of requests that 20 passes over the whole file make."""
        before = asked()
        for _ in range(20):
            assert m[::4096] == b"x" * (size // 4096)
            assert os.fstat(fd).st_size == size
        return asked() - before

    for mode in (os.O_RDWR | os.O_CREAT, os.O_RDWR):
        fd = os.open(c.mnt(1) + "/own", mode)
        for size in (1 << 20, 3 << 19, 1 << 20):
            os.ftruncate(fd, size)
            with mmap.mmap(fd, size) as m:
                m[::4096] = b"x" * len(m[::4096])
                m.flush()
                # An earlier close, or a stat of the other mount, may interfere for a while.
                wait_until(lambda: use(fd, m, size) <= 5, 20, "nobody is asked")
            assert os.stat(c.mnt(2) + "/own").st_size == size
        os.close(fd)
        assert get(c.mnt(2) + "/own")[::4096] == b"x" * (size // 4096)


def test_mmap_and_msync(c):
    put(c.mnt(1) + "/m", b"\0" * 8192)
    with open(c.mnt(1) + "/m", "r+b") as w:
        with mmap.mmap(w.fileno(), 8192) as m:
            for i in range(10):
                m[100 * i : 100 * i + 5] = b"%05d" % i
                m.flush()
                assert get(c.mnt(2) + "/m")[100 * i : 100 * i + 5] == b"%05d" % i, i


def test_listing_while_it_changes(c):
    """A name that exists all the time is listed once; a name that never exists is not listed."""
    d = "/list"
    os.mkdir(c.mnt(1) + d)
    stay = {"stay%03d" % i for i in range(300)}
    for n in stay:
        put(c.mnt(1) + d + "/" + n, b"")
    stop = threading.Event()

    def churn():
        i = 0
        while not stop.is_set():
            put(c.mnt(1) + d + "/come%d" % (i % 50), b"")
            os.unlink(c.mnt(1) + d + "/come%d" % (i % 50))
            i += 1

    t = threading.Thread(target=churn)
    t.start()
    try:
        for _ in range(20):
            names = [n for n in os.listdir(c.mnt(2) + d) if n.startswith("stay")]
            assert len(names) == len(set(names)) and set(names) == stay
    finally:
        stop.set()
        t.join()


def test_two_mounts_change_one_directory(c):
    """Each mount's kernel holds its lock of the directory while it waits for the other's lease."""
    os.mkdir(c.mnt(1) + "/busy")
    n = [0, 0]
    end = time.monotonic() + 4

    def change(k):
        d = c.mnt(k + 1) + "/busy/"
        while time.monotonic() < end:
            name = "%d.%d" % (k, n[k])
            put(d + name, b"")
            os.stat(c.mnt(k + 1) + "/busy")
            os.rename(d + name, d + name + "x")
            os.listdir(d)
            os.unlink(d + name + "x")
            n[k] += 1

    ts = [threading.Thread(target=change, args=(k,)) for k in range(2)]
    for t in ts:
        t.start()
    for t in ts:
        t.join(300)
        assert not t.is_alive(), "stuck"
    assert min(n) >= 3, n
    assert os.listdir(c.mnt(1) + "/busy") == os.listdir(c.mnt(2) + "/busy") == []


def test_unlinked_stays_readable(c):
    put(c.mnt(1) + "/u", b"still here")
    with open(c.mnt(2) + "/u", "rb") as r:
        os.unlink(c.mnt(1) + "/u")
        assert r.read() == b"still here"
        expect_errno(errno.ENOENT, os.stat, c.mnt(2) + "/u")
        assert os.fstat(r.fileno()).st_nlink == 0


def test_cached_names_and_attributes_cost_no_request(c):
    """stat under a lease does not reach the metadata server."""
    os.mkdir(c.mnt(1) + "/quiet")
    for i in range(100):
        put(c.mnt(1) + "/quiet/%03d" % i, b"")
    time.sleep(4)  # contended leases are not given for up to 3.2 s
    d = c.mnt(2) + "/quiet"
    for i in range(100):
        os.stat(d + "/%03d" % i)
    before = requests(c)
    begin = time.monotonic()
    for _ in range(20):
        for i in range(100):
            os.stat(d + "/%03d" % i)
    took = time.monotonic() - begin
    asked = requests(c) - before
    # The counter includes heartbeats and pings of some ten connections.
    assert asked < 200 + 60 * took, "%d requests for 2000 calls in %.1f s" % (asked, took)


def test_a_silent_client_does_not_stop_others(c):
    """A client with leases on names and data, a write lease among them, does not answer."""
    os.mkdir(c.mnt(1) + "/held")
    put(c.mnt(1) + "/held/f", b"f")
    os.stat(c.mnt(2) + "/held/f")
    with open(c.mnt(2) + "/held/w", "wb", buffering=0) as w:
        w.write(b"gathered")
        hold(c, w)


def hold(c, w):
    pid = c.pid("mnt2")
    os.kill(pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        put(c.mnt(1) + "/held/new", b"n")
        os.rename(c.mnt(1) + "/held/new", c.mnt(1) + "/held/f")
        assert get(c.mnt(1) + "/held/f") == b"n"
        os.stat(c.mnt(1) + "/held/w")
        took = time.monotonic() - begin
        assert took < 20, "%.1f s" % took
    finally:
        os.kill(pid, signal.SIGCONT)
    # The client has lost its session and requests the file again. Unflushed data fails with an
    # error.
    end = time.monotonic() + 30
    while get(c.mnt(2) + "/held/f") != b"n":
        assert time.monotonic() < end
        time.sleep(0.1)
    assert os.path.exists(c.mnt(2) + "/held/f")
    try:
        w.write(b"more")
        os.fsync(w.fileno())
    except OSError as e:
        assert e.errno in (errno.EIO, errno.ESTALE), e
    assert sorted(os.listdir(c.mnt(2) + "/held")) == ["f", "w"]


def test_the_metadata_server_restarts(c):
    """A restart ends all leases; clients must not use what they have cached."""
    put(c.mnt(1) + "/s", b"old")
    put(c.mnt(1) + "/never-opened", b"")
    for m in (1, 2):
        assert get(c.mnt(m) + "/s") == b"old"
    time.sleep(4)  # for the root's leases, which were contended
    os.stat(c.mnt(2) + "/never-opened")
    c.kill("mds")
    c.start("mds")
    os.chmod(c.mnt(1) + "/never-opened", 0o611)
    assert os.stat(c.mnt(2) + "/never-opened").st_mode & 0o777 == 0o611
    put(c.mnt(1) + "/s", b"new!")
    assert os.stat(c.mnt(2) + "/s").st_size == 4
    assert get(c.mnt(2) + "/s") == b"new!"


if __name__ == "__main__":
    run_tests(globals())
