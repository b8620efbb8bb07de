#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dead servers: requests wait for them and then fail with EIO; every process can be killed;
unmounting works."""
import contextlib
import errno
import os
import re
import shutil
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


def break_connections(c):
    """Breaks connections to the metadata server, which is stopped: it must not receive later what
    is sent now. Some kernels cannot do this; then less is tested."""
    with open(c.dev + "/conf") as f:
        port = re.search(r"^mds = .*:(\d+)", f.read(), re.M).group(1)
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(["ss", "-K", "dport", "=", ":" + port], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def test_a_close_outlasts_the_metadata_server(c):
    """A file that was closed while the server was silent does not count as open for the life of the
    mount; another open does not wait forever."""
    mount_anew(c, 1, 2000)
    wait_until(lambda: c.status()["mds"]["opens"] == 0, 20, "nothing is open")
    with open(c.mnt() + "/outlast", "wb") as f:
        f.write(b"o")
        f.flush()
        os.fsync(f.fileno())
        c.kill("mds", signal.SIGSTOP)
        break_connections(c)
    try:
        time.sleep(4)
        expect_errno(errno.EIO, os.open, c.mnt() + "/outlast", os.O_RDWR)
    finally:
        c.kill("mds", signal.SIGCONT)
    wait_until(lambda: c.status()["mds"]["opens"] == 0, 20, "nothing is open")
    with open(c.mnt() + "/outlast", "rb") as f:
        assert f.read() == b"o"
    mount_anew(c, 1, 120000)


def test_a_waiting_process_can_be_killed(c):
    with open(c.mnt() + "/k", "wb") as f:
        f.write(os.urandom(16 << 20))
    c.stop("mnt2")
    c.start("mnt2")
    with stopped(c, c.ossd):
        kill_waiting(["cat", c.mnt(2) + "/k"])
    with open(c.mnt(2) + "/k", "rb") as f:
        assert len(f.read()) == 16 << 20


def test_who_waits_for_several_servers_can_be_killed(c):
    """Two mounts have the file open, so a read bypasses the pages: one request for both chunks."""
    with open(c.mnt() + "/both", "wb") as f:
        f.write(os.urandom(2 << 20))
        f.flush()
        reader = subprocess.Popen(
            [sys.executable, "-c", "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR); "
             "sys.stdin.read(); os.pread(fd, 1 << 20, 1 << 19)", c.mnt(2) + "/both"],
            stdin=subprocess.PIPE)
        time.sleep(1)
        with stopped(c, c.ossd):
            reader.stdin.close()
            time.sleep(0.5)
            assert reader.poll() is None
            reader.kill()
            reader.wait(20)


@contextlib.contextmanager
def stopped(c, daemons):
    for d in daemons:
        c.kill(d, signal.SIGSTOP)
    try:
        yield
    finally:
        for d in daemons:
            c.kill(d, signal.SIGCONT)


def kill_waiting(command):
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    assert p.poll() is None, command
    p.kill()
    p.wait(20)


def writes(c, name):
    return int(re.search(r"^leat_ossd_writes_total (\d+)$", c.metrics_of(name), re.M).group(1))


def one_file_each(c, folder):
    """{object server: a file that only this server holds}"""
    os.mkdir(folder)
    c.leat("layout", "set", "--width", "1", folder)
    at = {}
    for i in range(20):
        before = [writes(c, o) for o in c.ossd]
        with open("%s/%d" % (folder, i), "wb") as f:
            f.write(os.urandom(1 << 20))
            os.fsync(f.fileno())
        for o, n in zip(c.ossd, before):
            if writes(c, o) > n:
                at[o] = f.name
    return at


def test_a_stream_to_a_silent_server_leaves_room_for_others(c):
    at = one_file_each(c, c.mnt() + "/silent")
    silent, other = list(at)[:2]
    with stopped(c, [silent]):
        dd = subprocess.Popen(["dd", "if=/dev/zero", "of=" + at[silent], "bs=128k", "count=100",
                               "conv=notrunc"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def written():
            with open("/proc/%d/fdinfo/1" % dd.pid) as f:
                return int(f.readline().split()[1])

        wait_until(lambda: written() >= 32 * (128 << 10), 10, "much is written behind")
        assert dd.poll() is None
        for command in (["ls", "-l", c.mnt()], ["cp", at[other], c.dir + "/copy"],
                        ["dd", "if=/dev/zero", "of=" + at[other], "bs=128k", "count=100",
                         "conv=notrunc,fsync"]):
            subprocess.run(command, timeout=60, check=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert dd.wait(60) == 0


SYNC_WRITES, SYNC_CHUNKS = 64, 4
SYNC_WRITER = """
import mmap, os, sys, threading
done = []
def write(i):
    fd = os.open(sys.argv[1] + "/sync%d" % i, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    data = mmap.mmap(-1, 1 << 20)
    data[:] = bytes([i]) * (1 << 20)
    for k in range(int(sys.argv[3])):
        assert os.pwrite(fd, data, k << 20) == 1 << 20
    done.append(i)
threads = [threading.Thread(target=write, args=(i,)) for i in range(int(sys.argv[2]))]
for t in threads:
    t.start()
for t in threads:
    t.join()
sys.exit(len(done) != len(threads))
"""


def test_synchronous_writes_to_a_silent_server_leave_room_for_others(c):
    """A synchronous write returns after the reply only, so each keeps its bytes until then."""
    with stopped(c, ["ossd1"]):
        writer = subprocess.Popen([sys.executable, "-c", SYNC_WRITER, c.mnt(), str(SYNC_WRITES),
                                   str(SYNC_CHUNKS)], stdin=subprocess.DEVNULL)
        time.sleep(5)
        for i in range(5):
            started = time.monotonic()
            beside = subprocess.Popen(["mkdir", c.mnt() + "/beside%d" % i],
                                      stdin=subprocess.DEVNULL)
            wait_until(lambda p=beside: p.poll() == 0, 5, "a directory is made beside them")
            assert time.monotonic() - started < 60  # requests time out after 120 s
        assert writer.poll() is None
    assert writer.wait(120) == 0
    for i in range(SYNC_WRITES):
        with open(c.mnt(2) + "/sync%d" % i, "rb") as f:
            assert f.read() == bytes([i]) * (SYNC_CHUNKS << 20), i
        os.unlink(c.mnt(2) + "/sync%d" % i)


def test_what_was_killed_changes_nothing_any_more(c):
    """A program that was killed while its server was down has changed nothing, and changes nothing
    when the server is back: whoever cleans up after it must not be surprised later."""
    d = c.mnt(2) + "/gone"
    os.mkdir(d)
    for n in "abcde":
        with open("%s/%s" % (d, n), "w") as f:
            f.write(n)
    wait_until(lambda: sum(os.stat("%s/gone/%s" % (c.mnt(1), n)).st_size for n in "abcde") == 5, 20,
               "the other mount sees the files")
    before = names(c.mnt(1) + "/gone")
    c.kill("mds")
    for command in (["touch", d + "/new"], ["rm", "-f", d + "/a"], ["mv", d + "/b", d + "/moved"],
                    ["mkdir", d + "/dir"], ["chmod", "600", d + "/c"], ["ln", d + "/d", d + "/l"],
                    ["ln", "-s", "to", d + "/symlink"], ["mkfifo", d + "/fifo"],
                    ["truncate", "-s", "10", d + "/e"],
                    ["python3", "-c", "import os; os.setxattr('%s/e', 'user.x', b'x')" % d]):
        kill_waiting(command)
    c.start("mds")
    # Requests of the killed programs arrive before the next requests of this mount.
    with open(d + "/after", "w"):
        pass
    os.unlink(d + "/after")
    time.sleep(5)
    for m in (1, 2):
        assert names(c.mnt(m) + "/gone") == before
    assert os.stat(c.mnt(1) + "/gone/e").st_size == 1
    assert os.listxattr(c.mnt(1) + "/gone/e") == []
    shutil.rmtree(d)


def names(folder):
    return sorted((n, os.stat(folder + "/" + n).st_mode & 0o777) for n in os.listdir(folder))


def open_files(c):
    return int(float(re.search(r"^leat_mds_open_files (\S+)$", c.metrics_of("mds"), re.M).group(1)))


def test_whatever_waits_for_metadata_can_be_killed(c):
    d = c.mnt(2) + "/meta"
    os.mkdir(d)
    for n in "abcdefg":
        with open("%s/%s" % (d, n), "w") as f:
            f.write(n)
    opened = open_files(c)
    time.sleep(0.3)  # the kernel's names expire
    with stopped(c, ["mds"]):
        time.sleep(5)  # the leases expire
        for command in (["stat", d + "/none"], ["ls", "-l", d], ["cat", d + "/a"],
                        ["touch", d + "/new"], ["rm", "-f", d + "/b"],
                        ["mv", d + "/c", d + "/moved"], ["mkdir", d + "/dir"],
                        ["chmod", "600", d + "/d"], ["ln", d + "/e", d + "/l"],
                        ["truncate", "-s", "10", d + "/f"], ["df", d],
                        ["python3", "-c", "import os; os.getxattr('%s/g', 'user.x')" % d]):
            kill_waiting(command)
    # The server may still execute the requests; then both mounts see the result.
    wait_until(lambda: open_files(c) <= opened, 20, "what was opened for nobody is closed")
    time.sleep(1)
    assert names(d) == names(c.mnt(1) + "/meta")
    for n in "abdefg":
        if os.path.exists("%s/%s" % (d, n)):
            assert (os.stat("%s/%s" % (d, n)).st_size
                    == os.stat("%s/meta/%s" % (c.mnt(1), n)).st_size), n
    for n in os.listdir(d):
        subprocess.check_call(["rm", "-r", "%s/%s" % (d, n)])


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
