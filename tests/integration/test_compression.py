#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compressed files: layout, space, random changes against a model with one replica and with two,
servers that die, flipped bits in compressed blocks, data sets."""
import errno
import json
import os
import random
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import expect_errno, run_tests, wait_until
from test_damage import find, flip, get, put
from test_random_io import Model, OPS

CLUSTER = {"ossd": 3, "size": "512M",
           "conf": {"client": {"request_timeout_ms": "60000"}, "mds": {"convert_after_ms": "300"}}}
BLOCK = 16384
MIB = 1 << 20


def words(rng, length):
    some = [rng.randbytes(rng.randrange(3, 9)).hex().encode() for _ in range(60)]
    out = b" ".join(rng.choices(some, k=length // 8))
    return (out * (length // max(1, len(out)) + 1))[:length]


def folder(c, name, *layout):
    path = "%s/%s" % (c.mnt(1), name)
    os.mkdir(path)
    c.leat("layout", "set", *layout, path)
    return path


def layout_of(c, path):
    return json.loads(c.leat("layout", "get", "--json", path).stdout)["layouts"][0]


def stored(path):
    """The space that stat reports. It is the size during writes, and while attributes are
    cached."""
    return os.stat(path).st_blocks * 512


def used(c):
    """The servers' own figures; the metadata server's figure is one heartbeat old."""
    return sum(t["server"]["space"]["used"] for t in c.told_by_servers()["targets"])


def counter(c, name):
    """The sum over all object servers."""
    text = "".join(c.metrics_of(name) for name in c.ossd)
    return sum(int(n) for n in re.findall(r"^%s(?:\{.*\})? (\d+)$" % name, text, re.M))


def test_layout(c):
    d = folder(c, "layout", "--compression", "lz4")
    assert layout_of(c, d)["compression"] == "lz4"
    assert "compressed with lz4" in c.leat("layout", "get", d).stdout
    os.mkdir(d + "/below")
    put(d + "/below/file", b"f" * 100000)
    assert layout_of(c, d + "/below")["compression"] == "lz4"
    assert layout_of(c, d + "/below/file")["compression"] == "lz4"
    c.leat("layout", "set", "--width", "1", d + "/below")
    assert layout_of(c, d + "/below")["compression"] == "lz4", "another change leaves it alone"
    c.leat("layout", "set", "--compression", "off", d + "/below")
    put(d + "/below/plain", b"f" * 100000)
    assert layout_of(c, d + "/below/plain")["compression"] == "off"
    wait_until(lambda: stored(d + "/below/plain") >= 100000 > stored(d + "/below/file") * 2, 10,
               "only the packed one takes little")
    assert c.leat("layout", "set", "--compression", "off", d + "/below/file",
                  check=False).returncode != 0, "a file with data"
    assert c.leat("layout", "set", "--compression", "zip", d, check=False).returncode == 2
    os.mkdir(c.mnt(1) + "/default")
    assert layout_of(c, c.mnt(1) + "/default")["compression"] == "off"


def test_space(c):
    rng = random.Random(1)
    text, noise = words(rng, 24 * MIB + 5000), rng.randbytes(4 * MIB)
    mixed = b"".join(words(rng, 3 * BLOCK) + rng.randbytes(BLOCK) for _ in range(64))
    grew = {}
    for name, extra in (("plain", ["--compression", "off"]), ("packed", ["--compression", "lz4"])):
        d = folder(c, "space-" + name, *extra)
        before = used(c)
        put(d + "/text", text)
        assert os.stat(d + "/text").st_blocks > 0
        grew[name] = used(c) - before
        put(d + "/noise", noise)
        put(d + "/mixed", mixed)
        for mount in (1, 2):
            at = d.replace(c.mnt(1), c.mnt(mount))
            assert get(at + "/text") == text and get(at + "/noise") == noise
            assert get(at + "/mixed") == mixed
    assert grew["plain"] >= len(text) and grew["packed"] < grew["plain"] * 0.8, grew

    def as_they_are():
        plain, packed = ([stored("%s/space-%s/%s" % (c.mnt(1), name, f)) for f in
                          ("text", "noise", "mixed")] for name in ("plain", "packed"))
        assert plain[0] >= len(text)
        return (packed[0] < plain[0] * 0.7 and plain[1] == packed[1] == len(noise) and
                packed[1] / 2 < packed[2] < plain[2])

    wait_until(as_they_are, 10, "the mount tells what files take")
    assert counter(c, "leat_ossd_packed_total") > 1000


class Mixed(random.Random):
    """Payloads that compress, that do not, and mixtures."""
    def randbytes(self, n):
        kind = self.randrange(4)
        if kind == 0 or n < 200:
            return super().randbytes(n)
        cut = self.randrange(n) if kind == 1 else 0
        return super().randbytes(cut) + self.text(n - cut)

    def text(self, n):
        line = b"%d tokens of text " % self.randrange(1000)
        return (line * (n // len(line) + 1))[:n]


def random_operations(c, d, seeds):
    for seed in seeds:
        m = Model("%s/io%d" % (d, seed), seed)
        m.rng = Mixed(seed)
        for step in range(150):
            op = m.rng.choice(OPS)
            try:
                getattr(m, op)()
            except BaseException:
                print("seed %d step %d: %s" % (seed, step, op))
                raise
        m.check()
        os.close(m.fd)
        assert get(m.path.replace(c.mnt(1), c.mnt(2))) == m.data, "seen through the other mount"


def test_random_operations_on_one_copy(c):
    before = counter(c, "leat_ossd_unpacks_total")
    d = folder(c, "one", "--compression", "lz4", "--replicas", "1")
    random_operations(c, d, range(4))
    assert counter(c, "leat_ossd_unpacks_total") > before + 20


def test_random_operations_on_two_copies(c):
    d = folder(c, "two", "--compression", "lz4", "--replicas", "2", "--chunk-size", "128K")
    random_operations(c, d, range(10, 13))


def test_large_blocks(c):
    d = folder(c, "large", "--compression", "lz4", "--replicas", "2", "--chunk-size", "64M")
    random_operations(c, d, range(20, 22))


def test_a_server_dies(c):
    """Writers and readers continue, and acknowledged data stays, also after the server's return."""
    d = folder(c, "dies", "--compression", "lz4", "--replicas", "2")
    rng, files, errors, stop = Mixed(5), {}, [], threading.Event()

    def writer(n):
        try:
            i = 0
            while not stop.is_set():
                path, data = "%s/f%d-%d" % (d, n, i % 20), rng.randbytes(300000)
                put(path, data)
                files[path] = data
                assert get(path) == data
                i += 1
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for victim in ("ossd2", "ossd3"):
        time.sleep(1)
        c.kill(victim)
        wait_until(lambda: not whole(c), 10, "chains go on without it")
        time.sleep(1)
        c.start(victim)
        wait_until(lambda: whole(c), 60, "all members are in sync")
    stop.set()
    for t in threads:
        t.join()
    assert not errors, errors
    for path, data in files.items():
        assert get(path.replace(c.mnt(1), c.mnt(2))) == data
    print("    %d files" % len(files))


def whole(c):
    """True if every member of every chain is in sync."""
    try:
        s = c.status()
    except subprocess.CalledProcessError:
        return False
    h = s["mds"]["chains"]
    return (all(t["state"] == "up" for t in s["targets"]) and
            h["degraded"] == h["down"] == h["syncing"] == 0)


def marked(rng):
    """A block that compresses, and begins with bytes that the disk holds uncompressed."""
    mark = random.Random(rng.random()).randbytes(64)
    return mark, mark + words(rng, BLOCK - 64)


def test_a_flipped_bit_with_one_copy(c):
    rng = random.Random(7)
    d = folder(c, "flip1", "--compression", "lz4", "--replicas", "1")
    mark, block = marked(rng)
    data = words(rng, 3 * BLOCK) + block + words(rng, 3 * BLOCK)
    put(d + "/f", data)
    wait_until(lambda: stored(d + "/f") < len(data), 10, "it takes less than it holds")
    name, at = find(c, mark)
    flip(c, name, at + 20)
    path = d.replace(c.mnt(1), c.mnt(2)) + "/f"
    expect_errno(errno.EIO, get, path)
    with open(path, "rb") as f:
        assert os.pread(f.fileno(), 3 * BLOCK, 0) == data[:3 * BLOCK], "the blocks beside it"
    with open(path, "r+b") as f:
        f.seek(3 * BLOCK)
        f.write(block)
        os.fsync(f.fileno())
    assert get(c.mnt(1) + "/flip1/f") == data


def test_flipped_bits_are_repaired(c):
    rng = random.Random(8)
    d = folder(c, "flip2", "--compression", "lz4", "--replicas", "2")
    mark, block = marked(rng)
    scrubbed, block2 = marked(rng)
    data = words(rng, 3 * BLOCK) + block + words(rng, 3 * BLOCK) + block2
    put(d + "/f", data)
    homes = [n for n in c.ossd if get("%s/%s/store/data" % (c.dev, n)).find(mark) >= 0]
    assert len(homes) == 2, homes
    for name in homes:  # reads find a damaged block first, then a repaired one
        flip(c, name, get("%s/%s/store/data" % (c.dev, name)).find(mark) + 30)
        for mount in (1, 2, 2, 1):
            c.run("cold", stdout=subprocess.DEVNULL)
            assert get(d.replace(c.mnt(1), c.mnt(mount)) + "/f") == data
        assert_scrub(c)
    # A scrub finds a damaged block that no program reads.
    before = counter(c, "leat_ossd_repaired_blocks_total")
    flip(c, homes[0], get("%s/%s/store/data" % (c.dev, homes[0])).find(scrubbed) + 30)
    assert_scrub(c)
    wait_until(lambda: counter(c, "leat_ossd_repaired_blocks_total") == before + 1,
               5, "it is repaired")
    c.run("cold", stdout=subprocess.DEVNULL)
    assert get(c.mnt(2) + "/flip2/f") == data


def assert_scrub(c):
    rows = c.scrub()
    assert all(r["unrepaired"] == 0 and r["differing"] == 0 for r in rows), rows


def test_data_set(c):
    """The checksums of a manifest are those of the uncompressed bytes."""
    d = folder(c, "set", "--compression", "lz4")
    rng, data = Mixed(9), {}
    for i in range(30):
        data["f%d.bin" % i] = rng.randbytes(rng.randrange(1, 200000))
        put("%s/f%d.bin" % (d, i), data["f%d.bin" % i])
    node = c.dir + "/node"
    os.mkdir(node)
    c.leat("dataset", "create", "packed@v1", d)
    c.leat("stage", "in", "packed@v1", "--to", node)
    at = c.leat("stage", "path", "packed@v1", "--to", node).stdout.strip()
    for name in data:
        assert get("%s/%s" % (at, name)) == data[name], name


def test_another_number_of_copies(c):
    """A conversion copies the blocks of existing files in compressed form."""
    d, rng = folder(c, "convert", "--compression", "lz4", "--replicas", "1"), random.Random(11)
    data = words(rng, 2 * MIB + 777) + rng.randbytes(100000)
    put(d + "/f", data)
    wait_until(lambda: stored(d + "/f") < len(data) * 0.7, 10, "it takes less than it holds")
    before = stored(d + "/f")
    c.leat("layout", "set", "--replicas", "2", "--existing", d)
    wait_until(lambda: layout_of(c, d + "/f")["replicas"] == 2, 60, "it has two copies")
    assert layout_of(c, d + "/f")["compression"] == "lz4"
    assert get(d.replace(c.mnt(1), c.mnt(2)) + "/f") == data
    wait_until(lambda: stored(d + "/f") == before, 10, "it takes as much as before")


def test_check_finds_nothing(c):
    """Checks all stores and decompresses every block. Runs last, because the servers stay down."""
    c.check_stores(stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    run_tests(globals())
