#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damage on the disks of some members of a chain: no program notices, logs and counters report it,
and repair needs no administrator. If no intact replica is left: a clear error, and nothing else."""
import errno
import os
import random
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, expect_errno, run_tests, wait_until

CLUSTER = {"ossd": 5, "size": "96M", "mounts": 2, "conf": {
    "mds": {"replace_after_ms": "2000", "lease_ms": "5000"}, "ossd": {"scrub_rate_mib_s": "0"},
    "client": {"request_timeout_ms": "60000"}}}
BLOCK = 16384
SEED = int(os.environ.get("LEAT_SEED", "7"))
GONE = []  # servers that have lost their only copies
FILES = {}  # path below the mount -> (content, copies)


def put(c, name, data, copies):
    with open(c.mnt(1) + "/" + name, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())
    FILES[name] = (data, copies)


def get(path, off=0, length=-1):
    """Reads from the servers, not from the page cache."""
    with open(path, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        f.seek(off)
        return f.read(length)


def data_file(c, name):
    return "%s/%s/store/data" % (c.dev, name)


UNIT = 4096


def units(c):
    """{first 32 bytes of a unit: [(server, offset)]}, for all units on the disks."""
    found, part = {}, bytearray(1 << 20)  # piecewise: some machines cannot map whole files
    for name in c.ossd:
        with open(data_file(c, name), "rb", buffering=0) as f:
            for start in range(0, os.path.getsize(data_file(c, name)), len(part)):
                for at in range(0, f.readinto(part), UNIT):
                    if part[at:at + 32] != bytes(32):
                        found.setdefault(bytes(part[at:at + 32]), []).append((name, start + at))
    return found


def places(c, block, index=None):
    """Each place of an intact replica of the block: (server, offset in its data file)."""
    def holds(name, at):
        with open(data_file(c, name), "rb", buffering=0) as f:
            return os.pread(f.fileno(), len(block), at) == block

    return [p for p in (index or units(c)).get(block[:32], []) if holds(*p)]


def flip(c, name, at):
    fd = os.open(data_file(c, name), os.O_RDWR)
    byte = os.pread(fd, 1, at)[0]
    os.pwrite(fd, bytes([byte ^ 0x10]), at)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def chains_whole(c):
    """All chains are whole, except those of one member on a lost target."""
    h = c.status()["mds"]["chains"]
    return h["degraded"] == h["syncing"] == 0 and h["down"] == len(GONE)


def counted(c, what):
    return sum(t["server"]["totals"][what] for t in c.told_by_servers()["targets"]
               if "server" in t)


def scrub(c):
    """Scrubs every target once. Returns the sums of the counters."""
    rows = c.scrub()
    assert all(isinstance(r[k], int) for r in rows for k in ("began", "ended")), rows  # seconds
    return {k: sum(r[k] for r in rows)
            for k in ("damaged", "repaired", "unrepaired", "differing", "chunks")}


def all_is_well(c, names=None):
    for name in names or FILES:
        for n in (1, 2):
            assert get("%s/%s" % (c.mnt(n), name)) == FILES[name][0], (name, n)


def redundant(c):
    """Every block of every file is on as many disks as its file has replicas, bit by bit."""
    index = units(c)
    for name, (data, copies) in FILES.items():
        for at in range(0, len(data), BLOCK):
            n = len({server for server, _ in places(c, data[at:at + BLOCK], index)})
            assert n >= copies, (name, at, n)


def whole_again(c):
    wait_until(lambda: chains_whole(c), 40, "all chains are whole")
    all_is_well(c)
    scrub(c)
    again = scrub(c)
    assert not again["damaged"] and not again["differing"], again
    redundant(c)


def damaged_files(c, copies):
    return [n for n in FILES if FILES[n][1] == copies]


def test_files_of_one_two_and_three_copies(c):
    for copies in (1, 2, 3):
        os.mkdir("%s/%d" % (c.mnt(1), copies))
        wait_until(lambda: c.leat("layout", "set", "--replicas", str(copies),
                                  "%s/%d" % (c.mnt(1), copies), check=False).returncode == 0,
                   30, "chains of %d members" % copies)
        for i in range(4):
            put(c, "%d/f%d" % (copies, i), os.urandom((1 << 20) + 70001 * i), copies)
    whole_again(c)
    assert counted(c, "corrupt") == 0


def test_bits_flipped_at_random(c):
    rng = random.Random(SEED)
    hurt = set()
    index = units(c)
    while len(hurt) < 24:
        name = rng.choice(damaged_files(c, 2) + damaged_files(c, 3))
        hurt.add((name, rng.randrange(len(FILES[name][0]) // BLOCK)))
    for name, block in sorted(hurt):
        data, copies = FILES[name]
        where = places(c, data[block * BLOCK:(block + 1) * BLOCK], index)
        assert len(where) == copies, (name, block, where)
        for server, at in rng.sample(where, copies - 1):  # one intact replica is enough
            flip(c, server, at + rng.randrange(BLOCK))
    lost = sum(FILES[n][1] - 1 for n, _ in hurt)
    all_is_well(c)  # despite the damage
    whole_again(c)
    assert counted(c, "repaired") == lost, (lost, counted(c, "repaired"))
    assert counted(c, "corrupt") >= lost, (lost, counted(c, "corrupt"))
    assert "%d blocks repaired" % lost in c.leat("status").stdout, c.leat("status").stdout
    logs = "".join(c.log(o) for o in c.ossd)
    for name, block in hurt:
        ino = os.stat("%s/%s" % (c.mnt(1), name)).st_ino
        assert "inode=%d " % ino in logs, name


def test_the_same_block_on_all_members(c):
    for copies in (2, 3):
        name = "%d/f1" % copies
        data, block = FILES[name][0], 5 * BLOCK
        where = places(c, data[block:block + BLOCK])
        assert len(where) == copies
        for server, at in where:
            flip(c, server, at + 777)
        path, ino = c.mnt(2) + "/" + name, os.stat(c.mnt(2) + "/" + name).st_ino
        before = len(c.log("mnt2"))
        expect_errno(errno.EIO, get, path)
        expect_errno(errno.EIO, get, path, block + 8, 10)
        assert "ino %d " % ino in c.log("mnt2")[before:], c.log("mnt2")[before:]
        # No other block of this file, and no other file, is affected.
        assert get(path, block + 8 * BLOCK) == data[block + 8 * BLOCK:]
        all_is_well(c, [n for n in FILES if n != name])
        seen = scrub(c)
        assert seen["unrepaired"] >= copies and not seen["differing"], seen
        assert c.leat("scrub", "status", check=False).returncode == 7
        # Writing the whole block repairs it on every member.
        fd = os.open(c.mnt(1) + "/" + name, os.O_RDWR)
        os.pwrite(fd, data[block:block + BLOCK], block)
        os.fsync(fd)
        os.close(fd)
        whole_again(c)


def test_one_copy(c):
    name, block = "1/f2", 3 * BLOCK
    data = FILES[name][0]
    (server, at), = places(c, data[block:block + BLOCK])
    flip(c, server, at + 1)
    path = c.mnt(2) + "/" + name
    ino, before = os.stat(path).st_ino, len(c.log("mnt2"))
    expect_errno(errno.EIO, get, path)
    expect_errno(errno.EIO, get, path, block, 1)
    said = [l for l in c.log("mnt2")[before:].splitlines() if "ino %d " % ino in l and " E " in l]
    assert said and "chunk 0" in said[0], c.log("mnt2")[before:]
    print("    " + said[0])
    assert get(path, block + 8 * BLOCK) == data[block + 8 * BLOCK:]
    all_is_well(c, [n for n in FILES if n != name])
    fd = os.open(c.mnt(1) + "/" + name, os.O_RDWR)
    os.pwrite(fd, data[block:block + BLOCK], block)
    os.fsync(fd)
    os.close(fd)
    whole_again(c)


def lose_everywhere(c, ino):
    """Removes the rows of the file's chunks from every index."""
    for name in c.ossd:
        c.kill(name)
    n = 0
    for name in c.ossd:
        r = subprocess.run([BUILD + "/tests/store_edit", "%s/%s/store/index" % (c.dev, name),
                            "drop-chunks", str(ino)], stdin=subprocess.DEVNULL, timeout=300,
                           stdout=subprocess.PIPE, text=True)
        n += int(r.stdout)
    for name in c.ossd:
        c.start(name)
    wait_until(lambda: chains_whole(c), 40, "all chains are whole")
    return n


def test_chunks_lost_on_all_members(c):
    """No byte is made up, whichever member is read and whatever happens next, and no call hangs."""
    name, data = "2/f3", FILES["2/f3"][0]
    path, ino = c.mnt(1) + "/" + name, os.stat(c.mnt(1) + "/" + name).st_ino
    assert len(data) > 1 << 20 and lose_everywhere(c, ino) == 4
    for again in range(2):
        for n in (1, 2):
            expect_errno(errno.EIO, get, "%s/%s" % (c.mnt(n), name), 5, 10)
            expect_errno(errno.EIO, get, "%s/%s" % (c.mnt(n), name), 1 << 20, 10)
        all_is_well(c, [n for n in FILES if n != name])
        if again:
            break
        for server in c.ossd:  # the member that fills it does not have the chunks either
            c.kill(server)
            time.sleep(3)
            c.start(server)
            wait_until(lambda: chains_whole(c), 40, "all chains are whole")
    began = time.monotonic()
    expect_errno(errno.EIO, os.truncate, path, 1000)
    expect_errno(errno.EIO, os.truncate, path, (1 << 20) + 1)
    # The operation would time out after 60 s.
    assert time.monotonic() - began < 50, "a truncation waits for what is lost"
    assert os.stat(path).st_size == len(data)
    os.truncate(path, 1 << 20)  # removes the second chunk
    os.truncate(path, len(data))
    for n in (1, 2):
        expect_errno(errno.EIO, get, "%s/%s" % (c.mnt(n), name), 5, 10)
        assert get("%s/%s" % (c.mnt(n), name), 1 << 20) == bytes(len(data) - (1 << 20))
    r = c.leat("fsck", check=False)
    assert r.returncode == 4 and "inode %d generation" % ino in r.stdout, r.stdout
    os.truncate(path, 0)
    put(c, name, data, 2)
    whole_again(c)


def test_many_chunks_lost_of_one_copy(c):
    """More chunks than the inventory can name: all of them are errors, and true holes stay
    holes."""
    chunks, step = 200, 1 << 20
    lost, kept = c.mnt(1) + "/1/lost", c.mnt(1) + "/1/sparse"
    for path in (lost, kept):
        with open(path, "wb") as f:
            for i in range(0 if path == lost else chunks - 1, chunks):
                os.pwrite(f.fileno(), b"x" * 100, i * step)
            os.fsync(f.fileno())
    ino, before = os.stat(lost).st_ino, len(c.log("mnt2"))
    assert lose_everywhere(c, ino) == chunks
    with open(c.mnt(2) + "/1/lost", "rb") as f, open(c.mnt(2) + "/1/sparse", "rb") as g:
        for file in (f, g):  # no readahead over chunks
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for i in range(chunks):
            expect_errno(errno.EIO, os.pread, f.fileno(), 100, i * step)
            assert os.pread(g.fileno(), 100, i * step) == (
                b"x" * 100 if i == chunks - 1 else bytes(100)), i
    said = [l for l in c.log("mnt2")[before:].splitlines() if "ino %d " % ino in l and " E " in l]
    assert said, c.log("mnt2")[before:]
    all_is_well(c)
    with open(kept, "r+b") as f:  # new chunks can be written in any cell
        for i in range(chunks - 1):
            os.pwrite(f.fileno(), b"y" * 100, i * step)
        os.fsync(f.fileno())
    os.unlink(lost)
    os.unlink(kept)
    whole_again(c)


def forget_single_copies(c):
    """The next tests lose a whole disk, and files of one replica may be lost with it."""
    for name in damaged_files(c, 1):
        os.unlink(c.mnt(1) + "/" + name)
        del FILES[name]


def test_a_data_file_cut_under_a_running_server(c):
    forget_single_copies(c)
    before = counted(c, "repaired")
    os.truncate(data_file(c, "ossd2"), 1 << 20)
    all_is_well(c)
    put(c, "2/later", os.urandom(1 << 20), 2)
    whole_again(c)
    assert counted(c, "repaired") > before


def test_a_data_file_cut_while_the_server_was_away(c):
    c.stop("ossd3")
    os.truncate(data_file(c, "ossd3"), 1 << 20)
    all_is_well(c)
    c.start("ossd3")
    put(c, "3/later", os.urandom(1 << 20), 3)
    whole_again(c)


def damage_tables(c, server):
    folder = "%s/%s/store/index" % (c.dev, server)
    names = [f for f in os.listdir(folder) if f.endswith(".sst")]
    assert names
    for f in names:
        size = os.path.getsize(folder + "/" + f)
        with open(folder + "/" + f, "r+b") as t:
            t.seek(size // 4)
            t.write(os.urandom(min(size // 4, 2000)))


def serves(c, server):
    """True if the server starts. With a damaged index it exits, or the start script fails."""
    try:
        c.run("start", server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except subprocess.CalledProcessError:
        return False
    return True


def new_store(c, server):
    """Follows the manual: empty the folder, format, start."""
    c.stop(server)
    store = "%s/%s/store" % (c.dev, server)
    shutil.rmtree(store)
    subprocess.run([BUILD + "/leat-ossd", "-c", c.dev + "/conf", "--set", "data_dir=" + store,
                    "--set", "data_size=96M", "format"], check=True, stderr=subprocess.DEVNULL,
                   stdin=subprocess.DEVNULL, timeout=120)
    c.start(server)


def test_an_index_of_garbage(c):
    forget_single_copies(c)
    c.stop("ossd4")
    c.start("ossd4")  # makes the index write a table besides the log
    wait_until(lambda: chains_whole(c), 30, "chains are whole")
    c.stop("ossd4")
    damage_tables(c, "ossd4")
    all_is_well(c)
    if not serves(c, "ossd4"):
        GONE.append("ossd4")
    put(c, "2/garbage", os.urandom(1 << 20), 2)
    whole_again(c)
    if "ossd4" not in GONE:
        c.stop("ossd4")
        GONE.append("ossd4")
    new_store(c, "ossd4")
    whole_again(c)


def test_an_index_that_is_gone(c):
    c.stop("ossd5")
    shutil.rmtree("%s/ossd5/store/index" % c.dev)
    os.truncate(data_file(c, "ossd5"), 0)  # so that redundant() counts only the other servers
    assert not serves(c, "ossd5")
    GONE.append("ossd5")
    assert "ossd5/store" in c.log("ossd5").splitlines()[-1], c.log("ossd5")
    put(c, "3/after", os.urandom(1 << 20), 3)
    whole_again(c)  # on the other four servers
    new_store(c, "ossd5")
    wait_until(lambda: c.status()["cluster"]["targets_up"] == 5, 30, "the new target is up")
    put(c, "3/new", os.urandom(1 << 20), 3)
    whole_again(c)


def test_the_stores_are_sound(c):
    assert c.check_stores(check=False, stdout=subprocess.PIPE, text=True).returncode == 0


if __name__ == "__main__":
    run_tests(globals())
