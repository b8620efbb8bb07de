#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Close-to-open coherence on two mounts of one namespace."""
import errno
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, get, put, run_tests, wait_until

CLUSTER = {"conf": {"mds": {"session_ttl_ms": 8000}}}


def test_read_after_close(c):
    for i in range(30):
        data = os.urandom(1000 + 7919 * i)
        a, b = (1, 2) if i % 2 else (2, 1)
        put(c.mnt(a) + "/f", data)
        assert get(c.mnt(b) + "/f") == data, "round %d" % i


def test_fsync_is_enough_for_a_new_open(c):
    with open(c.mnt(1) + "/g", "wb") as f:
        for i in range(10):
            f.write(b"%04d" % i * 5000)
            f.flush()
            os.fsync(f.fileno())
            assert len(get(c.mnt(2) + "/g")) == 20000 * (i + 1)


def test_attributes_within_a_second(c):
    put(c.mnt(1) + "/h", b"1")
    assert os.stat(c.mnt(2) + "/h").st_size == 1
    put(c.mnt(1) + "/h", b"12345")
    os.chmod(c.mnt(1) + "/h", 0o600)
    time.sleep(1.1)
    st = os.stat(c.mnt(2) + "/h")
    assert st.st_size == 5 and st.st_mode & 0o777 == 0o600


def test_names(c):
    os.mkdir(c.mnt(1) + "/dir")
    put(c.mnt(1) + "/dir/a", b"a")
    assert get(c.mnt(2) + "/dir/a") == b"a"
    os.rename(c.mnt(2) + "/dir/a", c.mnt(2) + "/dir/b")
    assert os.listdir(c.mnt(1) + "/dir") == ["b"]
    put(c.mnt(1) + "/dir/new", b"n")
    assert get(c.mnt(2) + "/dir/new") == b"n", "negative entries are not cached"
    os.unlink(c.mnt(1) + "/dir/b")
    time.sleep(1.1)
    expect_errno(errno.ENOENT, os.stat, c.mnt(2) + "/dir/b")


def workers(c, n, code):
    """n processes on alternating mounts run code with M (mount) and I (number)."""
    procs = [subprocess.Popen([sys.executable, "-c", code, c.mnt(1 + i % 2), str(i)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
             for i in range(n)]
    outs = [p.communicate()[0] for p in procs]
    assert all(p.returncode == 0 for p in procs), outs
    return outs


def test_o_excl_has_one_winner(c):
    outs = workers(c, 6, """
import os, sys
for i in range(100):
    try:
        os.close(os.open("%s/race%d" % (sys.argv[1], i), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        print(i)
    except FileExistsError:
        pass
""")
    won = sorted(int(x) for o in outs for x in o.split())
    assert won == list(range(100))


def test_append_loses_nothing(c):
    workers(c, 4, """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
for i in range(100):
    assert os.write(fd, ("%s %05d " % (sys.argv[2], i)).encode().ljust(32, b".")) == 32
os.close(fd)
""")
    data = get(c.mnt(1) + "/log")
    assert len(data) == 4 * 100 * 32, len(data)
    lines = sorted(data[i:i + 32] for i in range(0, len(data), 32))
    assert lines == sorted(("%d %05d " % (w, i)).encode().ljust(32, b".")
                           for w in range(4) for i in range(100))


def test_rename_over_is_atomic(c):
    put(c.mnt(1) + "/cur", b"0" * 100)
    code = """
import os, sys, time
end = time.time() + 2
n = 0
while time.time() < end or n < 20:
    if int(sys.argv[2]) < 2:
        p = "%s/tmp%s" % (sys.argv[1], sys.argv[2])
        with open(p, "wb") as f:
            f.write(sys.argv[2].encode() * 100)
        os.rename(p, sys.argv[1] + "/cur")
    else:
        with open(sys.argv[1] + "/cur", "rb") as f:
            d = f.read()
        assert len(d) == 100 and len(set(d)) == 1, d
    n += 1
print(n)
"""
    workers(c, 4, code)


def test_a_replaced_file_is_opened_anew(c):
    for i in range(50):
        put(c.mnt(1) + "/new", b"%03d" % i)
        os.rename(c.mnt(1) + "/new", c.mnt(1) + "/now")
        assert get(c.mnt(2) + "/now") == b"%03d" % i, "the kernel's cached name must not do"
        assert get(c.mnt(1) + "/now") == b"%03d" % i


def test_a_replaced_file_is_opened_anew_while_others_have_it_open(c):
    held = []
    for i in range(20):
        put(c.mnt(1) + "/new", b"%03d" % i)
        os.rename(c.mnt(1) + "/new", c.mnt(1) + "/now")
        assert get(c.mnt(2) + "/now") == b"%03d" % i
        held.append(open(c.mnt(1 + i % 2) + "/now", "rb"))
    for i, f in enumerate(held):
        assert f.read() == b"%03d" % i
        f.close()


def test_unlinked_elsewhere_stays_readable(c):
    put(c.mnt(1) + "/keep", b"k" * 300000)
    with open(c.mnt(2) + "/keep", "rb") as f:
        assert f.read(10) == b"k" * 10
        os.unlink(c.mnt(1) + "/keep")
        time.sleep(2)
        assert f.read() == b"k" * 299990


def test_truncate_is_seen(c):
    put(c.mnt(1) + "/t", b"t" * 3000000)
    assert len(get(c.mnt(2) + "/t")) == 3000000
    os.truncate(c.mnt(1) + "/t", 1234567)
    assert get(c.mnt(2) + "/t") == b"t" * 1234567
    os.truncate(c.mnt(1) + "/t", 2000000)
    assert get(c.mnt(2) + "/t") == b"t" * 1234567 + bytes(2000000 - 1234567)


def test_a_close_does_not_undo_the_cut_of_another(c):
    path = "/cut-between"
    put(c.mnt(1) + path, b"")
    with open(c.mnt(1) + path, "rb"):  # its mount keeps the file cached
        put(c.mnt(1) + path, b"o" * 1000)
        os.truncate(c.mnt(2) + path, 10)
        with open(c.mnt(1) + path, "r+b") as f:
            f.write(b"n")
        for m in (1, 2):
            assert get(c.mnt(m) + path) == b"n" + b"o" * 9
            assert os.stat(c.mnt(m) + path).st_size == 10


HOLDER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.write(fd, b"o" * 1000)
os.fsync(fd)
print(flush=True)
if input():
    os.pwrite(fd, b"n", 0)
os.close(fd)
"""


def test_a_close_does_not_undo_a_cut_after_the_session(c):
    path = "/cut-silent"
    put(c.mnt(1) + path, b"")
    for writes, after in ("yes", b"n" + b"o" * 9), ("", b"o" * 10):
        n = c.log("mds").count("expired\n")
        # A separate program has the file open: starting a program closes files, and close waits.
        p = subprocess.Popen([sys.executable, "-c", HOLDER, c.mnt(1) + path], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        p.stdout.readline()
        c.kill("mnt1", signal.SIGSTOP)
        try:
            wait_until(lambda: c.log("mds").count("expired\n") > n, 20, "the end of its session")
            os.truncate(c.mnt(2) + path, 10)
        finally:
            c.kill("mnt1", signal.SIGCONT)
            p.communicate(writes + "\n")
        for m in (1, 2):
            assert get(c.mnt(m) + path) == after, (m, writes)


if __name__ == "__main__":
    run_tests(globals())
