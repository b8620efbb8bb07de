#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damage on the servers' disks is found, reported clearly and never served; other data is
intact."""
import errno
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import ADDR, BUILD, Cluster, expect_errno, get, ON_SERVER, run_tests, wait_until

CLUSTER = {"ossd": 2, "size": "256M", "conf": {"client": {"request_timeout_ms": "60000"}}}
BLOCK = 16384


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())


def find(c, needle):
    """The place of these bytes on the targets: (server, offset in its data file)."""
    for name in c.ossd:
        at = get("%s/%s/store/data" % (c.dev, name)).find(needle)
        if at >= 0:
            return name, at
    raise AssertionError("the bytes are on no target")


def flip(c, name, at):
    fd = os.open("%s/%s/store/data" % (c.dev, name), os.O_RDWR)
    byte = os.pread(fd, 1, at)[0]
    os.pwrite(fd, bytes([byte ^ 0x10]), at)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def read_at(path, off, length):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, length, off)
    finally:
        os.close(fd)


def test_a_flipped_bit(c):
    data, other = os.urandom((3 << 20) + 5000), os.urandom(2 << 20)
    put(c.mnt(1) + "/hurt", data)
    put(c.mnt(1) + "/whole", other)
    ino = os.stat(c.mnt(1) + "/hurt").st_ino
    block = (1 << 20) + 3 * BLOCK  # chunk 1, block 3
    name, at = find(c, data[block + 1000:block + 1064])
    before = len(c.log(name))
    flip(c, name, at)
    path = c.mnt(2) + "/hurt"
    expect_errno(errno.EIO, get, path)
    expect_errno(errno.EIO, read_at, path, block + 5, 10)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    expect_errno(errno.EIO, os.pread, fd, 4096, block)
    os.close(fd)
    lines = [l for l in c.log(name)[before:].splitlines() if "inode=%d " % ino in l]
    assert lines and "chunk=1 " in lines[0] and "target=" in lines[0], lines
    print("    " + lines[0])
    # The blocks beside it and other files are intact.
    assert read_at(path, block - 4 * BLOCK, BLOCK) == data[block - 4 * BLOCK:block - 3 * BLOCK]
    assert read_at(path, 2 << 20, 2 << 20) == data[2 << 20:]
    assert get(c.mnt(2) + "/whole") == other


def test_writing_to_a_damaged_block(c):
    path, block = c.mnt(2) + "/hurt", (1 << 20) + 3 * BLOCK
    # A part of a block cannot be merged with a damaged one.
    fd = os.open(path, os.O_RDWR)
    try:
        # Without write-back, which needs a lease, the write fails; otherwise fsync does.
        def write():
            os.pwrite(fd, b"part", block + 100)
            os.fsync(fd)
        expect_errno(errno.EIO, write)
    finally:
        try:
            os.close(fd)
        except OSError as e:
            assert e.errno == errno.EIO, e
    # Writing the whole block repairs it.
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"w" * BLOCK, block)
    os.fsync(fd)
    os.close(fd)
    assert read_at(c.mnt(1) + "/hurt", block, BLOCK) == b"w" * BLOCK
    assert len(get(c.mnt(1) + "/hurt")) == (3 << 20) + 5000


def test_check_finds_it(c):
    data = os.urandom(BLOCK)
    put(c.mnt(1) + "/found", data)
    ino = os.stat(c.mnt(1) + "/found").st_ino
    name, at = find(c, data[500:600])
    flip(c, name, at)
    c.stop(name)
    result = check(c, name)
    assert result.returncode == 1, result
    assert "inode=%d " % ino in result.stdout and "chunk=0" in result.stdout, result
    print("    " + [l for l in result.stdout.splitlines() if "inode" in l][0])
    c.start(name)
    expect_errno(errno.EIO, get, c.mnt(2) + "/found")
    os.unlink(c.mnt(1) + "/found")


def test_a_data_file_that_lost_its_end(c):
    data = {i: os.urandom(1 << 20) for i in range(8)}
    for i in data:
        put("%s/cut%d" % (c.mnt(1), i), data[i])
    c.stop("ossd1")
    path = c.dev + "/ossd1/store/data"
    shutil.copy(path, c.dir + "/data")
    needles = [i for i in data if get(path).find(data[i][-4096:]) >= 0]
    assert needles, "nothing on this target"
    os.truncate(path, max(get(path).find(data[i][-4096:]) for i in needles))
    assert check(c, "ossd1").returncode == 1
    c.start("ossd1")
    c.run("cold", stdout=subprocess.DEVNULL)
    wrong = 0
    for i in data:
        try:
            assert get("%s/cut%d" % (c.mnt(1), i)) == data[i]
        except OSError as e:
            assert e.errno == errno.EIO, e
            wrong += 1
    assert 0 < wrong < len(data), wrong
    put(c.mnt(1) + "/goes-on", b"g" * 100000)
    c.stop("ossd1")
    shutil.copy(c.dir + "/data", path)
    c.start("ossd1")


def check(c, name, data=True):
    if name == "mds":
        argv = ["leat-mds", "-c", c.dev + "/conf", "check"]
    else:
        argv = ["leat-ossd", "-c", c.dev + "/conf", "--set",
                "data_dir=%s/%s/store" % (c.dev, name), "check"] + (["--data"] if data else [])
    argv[0] = BUILD + "/" + argv[0]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=300)


# --- store files ----------------------------------------------------------------------------------

def truncate_half(path):
    os.truncate(path, os.path.getsize(path) // 2)


def empty(path):
    os.truncate(path, 0)


def garbage_in_the_middle(path):
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        f.seek(max(0, size // 2 - 300))
        f.write(os.urandom(min(600, size)))


def all_garbage(path):
    size = os.path.getsize(path)
    with open(path, "wb") as f:
        f.write(os.urandom(size))


def start_and_see(c, name, folder):
    """Runs the server on a damaged store: (exit status or None if it serves, its output)."""
    ready = c.dir + "/ready"
    if os.path.exists(ready):
        os.unlink(ready)
    if name == "mds":
        argv = [BUILD + "/leat-mds", "-c", c.dev + "/conf", "--set", "data_dir=" + folder,
                "--set", "metrics=", "--ready-file", ready, "run"]
    else:
        argv = [BUILD + "/leat-ossd", "-c", c.dev + "/conf", "--set", "data_dir=" + folder,
                "--set", "metrics=", "--set", "listen=%s:0" % ADDR, "--ready-file", ready, "run"]
    p = subprocess.Popen(ON_SERVER + argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 120
    while p.poll() is None and not os.path.exists(ready) and time.monotonic() < end:
        time.sleep(0.02)
    serves = p.poll() is None and os.path.exists(ready)
    if p.poll() is None:
        p.send_signal(signal.SIGTERM)
    try:
        said = p.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        p.kill()
        raise AssertionError("hangs:\n" + p.communicate()[0])
    assert p.returncode >= 0, "killed by signal %d:\n%s" % (-p.returncode, said)
    assert serves or p.returncode != 0, "neither serves nor fails:\n" + said
    return (None if serves else p.returncode), said


def mds_check(c, folder):
    p = subprocess.run([BUILD + "/leat-mds", "-c", c.dev + "/conf", "--set", "data_dir=" + folder,
                        "check"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=300)
    return p.returncode, p.stdout


def damage_store_files(c, name, store, sub):
    """Damages every kind of file of the store in every way, on a copy. If a log lost its last
    records, the store cannot show it: the metadata server detects it for the object servers."""
    pristine, copy = c.dir + "/pristine", c.dir + "/copy"
    subprocess.run(["rm", "-rf", copy, pristine], check=True)
    subprocess.run(["cp", "-a", "--sparse=always", store, pristine], check=True)
    kinds = {}
    folder = pristine + sub
    for f in sorted(os.listdir(folder)):
        kind = f.split("-")[0] if not f[0].isdigit() else f.rsplit(".", 1)[1]
        if kind in ("CURRENT", "MANIFEST", "sst", "log") and os.path.getsize(folder + "/" + f) > 0:
            kinds[kind] = f
    assert {"CURRENT", "MANIFEST", "sst"} <= set(kinds), os.listdir(folder)
    results = []
    for kind, f in sorted(kinds.items()):
        for how in (empty, truncate_half, garbage_in_the_middle, all_garbage, os.unlink):
            subprocess.run(["rm", "-rf", copy], check=True)
            subprocess.run(["cp", "-a", "--sparse=always", pristine, copy], check=True)
            how(copy + sub + "/" + f)
            code, said = start_and_see(c, name, copy)
            results.append("%s %s: %s" % (how.__name__, kind, "serves" if code is None else
                                          "refused with %d" % code))
            if code is not None:
                words = ("damaged", "corrupt", "format", "no store", "no such file", "back in time")
                assert copy in said or "target" in said, said
                assert any(w in said.lower() for w in words), said
            elif kind == "sst":  # the server has not read the damaged part yet
                code, said = mds_check(c, copy)
                assert code == 1 or code == 4, results[-1] + ", and check says\n" + said
                assert "damaged" in said or "orrupt" in said, said
            else:
                assert name == "mds" and kind == "log" and how != garbage_in_the_middle, results[-1]
    subprocess.run(["rm", "-rf", copy, pristine], check=True)
    refused = sum("refused" in r for r in results)
    print("    %s: %d damaged stores, %d refused" % (name, len(results), refused))


def test_damaged_index_of_an_object_server(c):
    for i in range(300):
        put("%s/f%d" % (c.mnt(1), i), b"%d" % i * 100)
    c.stop("ossd1")
    c.start("ossd1")  # makes the index write a table besides the log
    for i in range(40):
        put("%s/late%d" % (c.mnt(1), i), b"late")
    time.sleep(1.5)  # a heartbeat has reported the number of commits
    c.stop("ossd1")
    damage_store_files(c, "ossd1", c.dev + "/ossd1/store", "/index")
    c.start("ossd1")
    assert get(c.mnt(2) + "/f7") == b"7" * 100


def test_damaged_store_of_the_metadata_server(c):
    c.stop("mds")
    c.start("mds")
    os.mkdir(c.mnt(1) + "/late-dir")
    for i in range(40):
        os.mkdir("%s/late-dir/%d" % (c.mnt(1), i))
    for o in c.ossd:  # they must not register with a damaged server
        c.stop(o)
    c.stop("mds")
    store = c.dev + "/mds/store"
    sub = "" if os.path.exists(store + "/CURRENT") else "/" + next(
        d for d in os.listdir(store) if os.path.exists("%s/%s/CURRENT" % (store, d)))
    damage_store_files(c, "mds", store, sub)
    c.start("mds")
    for o in c.ossd:
        c.start(o)
    assert get(c.mnt(2) + "/f9") == b"9" * 100 and os.path.isdir(c.mnt(1) + "/late-dir")


if __name__ == "__main__":
    run_tests(globals())
