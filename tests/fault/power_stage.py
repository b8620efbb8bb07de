#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Staging onto the power-loss file system: workload, and verification of one cut.

    power_stage.py verify DISK MARKS

The verification uses the sources, not what `leat` reports of its copies: a READY copy has every
byte, every bit of a bitmap stands for bytes that are there, an acknowledged copy is READY. Then
every copy is made again, which moves no chunk that has its bit, and is compared once more.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
import time

BUILD = os.environ.get("BUILD") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))) + "/build"
CHUNK = 1 << 20
SETS = {"a": [], "b": [], "c": ["--unpack"]}


def leat(*args, check=True):
    r = subprocess.run([BUILD + "/leat", "stage", *args], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=300)
    assert not check or r.returncode == 0, (args, r.returncode, r.stdout, r.stderr)
    return r


def stage(name, mem, to, *more):
    return json.loads(leat("in", mem + "/" + name, "--to", to, "--json", *SETS[name],
                           *more).stdout)


# --- the workload ---------------------------------------------------------------------------------

def make(folder, sizes, rng):
    for path, size in sizes.items():
        os.makedirs(os.path.dirname(folder + "/" + path), exist_ok=True)
        with open(folder + "/" + path, "wb") as f:
            f.write(rng.randbytes(size))


def make_sources(mem):
    rng = random.Random(5)
    make(mem + "/a", {"large": 3 * CHUNK + 777, "empty": 0, "deep/er/x": CHUNK + 5000,
                      **{"sub/%d" % i: 3000 * i + 1 for i in range(8)}}, rng)
    make(mem + "/b", {"1": CHUNK, "2": 2 * CHUNK - 1, "d/3": 40000}, rng)
    make(mem + "/members", {"c/m/1": CHUNK + 1, "c/m/2": 12345, "plain": 99}, rng)
    os.mkdir(mem + "/c")
    with tarfile.open(mem + "/c/c.tar", "w") as t:
        t.add(mem + "/members/c/m", "m")
    os.link(mem + "/members/plain", mem + "/c/plain")
    # The expected content of each copy, by its id.
    ids = {stage(n, mem, mem + "/ids")["id"]: m for n, m in (("a", "a"), ("b", "b"),
                                                             ("c", "members"))}
    ids[json.loads(leat("in", mem + "/c", "--to", mem + "/ids", "--json").stdout)["id"]] = "c"
    with open(mem + "/sets.json", "w") as f:
        json.dump(ids, f)


def run(fs):
    to, mem = fs.mnt + "/stage", fs.mem
    make_sources(mem)

    def mark(text):
        with open(fs.mnt + "/.mark", "w") as f:
            f.write(text + "\n")

    os.mkdir(to)
    fd = os.open(fs.mnt, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    mark("begin")
    stage("a", mem, to, "--max-rate", "1500K")
    mark("ready a")
    # Killed, and resumed.
    p = subprocess.Popen([BUILD + "/leat", "stage", "in", mem + "/b", "--to", to, "--max-rate",
                          "1M"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while json.loads(leat("status", mem + "/b", "--to", to, "--json", check=False).stdout or
                     "{}").get("bytes_verified", 0) == 0:
        assert p.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    p.kill()
    p.wait()
    stage("b", mem, to, "--max-rate", "2M")
    mark("ready b")
    mark("evict a")
    leat("evict", mem + "/a", "--to", to)
    stage("c", mem, to, "--max-rate", "2M")
    mark("ready c")


# --- the verification -----------------------------------------------------------------------------

def files_of(folder):
    """{path: data}, in the order of the chunks."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder).encode()] = f.read()
    return dict(sorted(found.items()))


def piece_of(copy, number, path, off, size):
    for name in (copy + "/data/" + path.decode(), "%s/part/%d" % (copy, number)):
        if os.path.exists(name):
            with open(name, "rb") as f:
                f.seek(off)
                return f.read(size)
    return None


def verified_bytes(copy, source):
    """Checks each chunk that has its bit, and returns the number of their bytes."""
    try:
        with open(copy + "/bitmap", "rb") as f:
            bitmap = f.read()
    except FileNotFoundError:
        return 0
    n = sum((len(d) + CHUNK - 1) // CHUNK for d in source.values())
    if len(bitmap) != 16 + n // 8 + 1 or bitmap[:8] != b"LEATBMP1":
        return 0  # `leat` does not trust it either
    assert struct.unpack_from("<Q", bitmap, 8)[0] == n
    chunk = had = 0
    for number, (path, data) in enumerate(source.items()):
        for off in range(0, len(data), CHUNK):
            if bitmap[16 + chunk // 8] >> (chunk % 8) & 1:
                want = data[off:off + CHUNK]
                assert piece_of(copy, number, path, off, CHUNK) == want, \
                    "chunk %d of %s has its bit, and is wrong" % (off // CHUNK, path)
                had += len(want)
            chunk += 1
    return had


def expect_whole(copy, source, when):
    assert files_of(copy + "/data") == source, "READY %s, and not whole" % when


def verify(disk, marks):
    mem, base = os.path.dirname(disk), disk + "/stage/.leat"
    with open(marks) as f:
        said = set(f.read().split("\n"))
    with open(mem + "/sets.json") as f:
        ids = json.load(f)
    sources = {i: files_of(mem + "/" + folder) for i, folder in ids.items()}
    had, ready = dict.fromkeys(ids, 0), set()
    for ident in ids:
        if not os.path.isdir(base + "/" + ident):
            continue
        had[ident] = verified_bytes(base + "/" + ident, sources[ident])
        if os.path.exists(base + "/" + ident + "/READY"):
            with open(base + "/" + ident + "/READY") as f:
                # A name can become durable before the content, and an empty mark marks nothing.
                if f.read().startswith(ident):
                    ready.add(ident)
        if ident in ready:
            expect_whole(base + "/" + ident, sources[ident], "after the cut")
    of = {folder: i for i, folder in ids.items()}
    for name, folder in (("a", "a"), ("b", "b"), ("c", "members")):
        if "ready " + name in said and "evict " + name not in said:
            assert of[folder] in ready, "%s was READY" % name
        r = stage(name, mem, disk + "/stage")
        assert r["id"] == of[folder], r
        expect_whole(base + "/" + r["id"], sources[r["id"]], "again")
        # An unpacked copy is fetched as an archive.
        fetched = of[name]
        most = sum(len(d) for d in sources[fetched].values()) - had[fetched]
        assert r["bytes_moved"] <= (0 if of[folder] in ready else most), (name, r, had, ready)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "verify":
        sys.exit(__doc__)
    verify(sys.argv[2], sys.argv[3])
