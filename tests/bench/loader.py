#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a sample costs: the loader, the stock torch DataLoader, and a C program that preads, on the
same files in one run.

    tests/bench/loader.py [--rounds N] [--quick] [--dir DIR] [--max-load X]

TFRecord shards with records of 4 KiB, 115 KB and 2.8 MB, read once in random order, hot (in the
page cache) and cold (dropped from it before):

    pread     a C program (loader_rate.c) that compares each record's CRC; the best of 1 and 2
              threads. Its CPU is the minimum for a program that copies and checks each byte
    keep      like pread, but records stay in memory for a while, as a batch does: the next ones do
              not reuse a few pages that are in the processor's cache
    leat-c    the loader from C, which compares them too; the best of 1 and 2 threads
    leat      the loader from Python (leat.DataLoader), likewise
    torch     torch.utils.data.DataLoader over a map-style data set that preads; no CRC; the best of
              0, 1 and 2 workers, once for speed and once for CPU; by default stacked tensors,
              and torch-list: no workers, a collate_fn that leaves lists (between processes each
              tensor would be a file)

Prints machine, commit, load and a Markdown table of MB/s and CPU seconds per GB, medians of the
rounds; less than five minutes on two idle cores. --quick reads little, so that the loaders' memory,
which is allocated once, weighs much. With other programs busy the figures mean little: the program
exits when the load is above --max-load (of the last minute, 0.7 for each CPU); --max-load 0
measures in any case.
"""
import argparse
import json
import os
import platform
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
# bytes of a record, how many, batch
SIZES = {"4 KiB": (4096, 65536, 256), "115 KB": (114660, 4096, 64), "2.8 MB": (2828486, 192, 4)}
SHARDS = 8
HEAD, TAIL = 12, 4
WORKERS = (0, 1, 2)


# --- one measurement, in a process of its own -----------------------------------------------------

def used():
    """CPU seconds of this process and of its children that have ended."""
    return sum(r.ru_utime + r.ru_stime for r in (resource.getrusage(resource.RUSAGE_SELF),
                                                 resource.getrusage(resource.RUSAGE_CHILDREN)))


def shards(folder):
    return sorted(folder + "/" + n for n in os.listdir(folder) if n.endswith(".tfrecord"))


def make_cold(folder):
    for path in shards(folder):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class Records:
    """Map-style, as a user would write it: without Leat."""

    def __init__(self, folder, length):
        self.length, self.files = length, []
        for path in shards(folder):
            fd = os.open(path, os.O_RDONLY)
            n = os.fstat(fd).st_size // (HEAD + length + TAIL)
            self.files += [(fd, i * (HEAD + length + TAIL) + HEAD) for i in range(n)]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        import torch
        fd, offset = self.files[i]
        data = bytearray(self.length)
        if os.preadv(fd, [data], offset) != self.length:
            raise OSError("short read")
        return torch.frombuffer(data, dtype=torch.uint8)


def one(kind, folder, length, batch, n, cold):
    """Prints BYTES SECONDS CPU_SECONDS."""
    if kind == "leat":
        sys.path.insert(0, SRC + "/client/python")
        import leat
        import numpy  # noqa: F401
        ds = leat.Dataset(folder, threads=n)

        def begin():
            return leat.DataLoader(ds, batch, seed=7, tail="shorter", framework="numpy")
    else:
        import torch
        from torch.utils.data import DataLoader
        torch.set_num_threads(1)
        records = Records(folder, length)

        def begin():
            return DataLoader(records, batch, shuffle=True, num_workers=n,
                              collate_fn=list if kind == "torch-list" else None)
    if cold:
        make_cold(folder)
    wall, cpu, samples = time.monotonic(), used(), 0
    loader = begin()
    for b in loader:
        samples += len(b["record"]) if kind == "leat" else len(b)
    del b
    if kind == "leat":
        loader.close()
    print(samples * length, time.monotonic() - wall, used() - cpu)


# --- the measurements -----------------------------------------------------------------------------

def measure(kind, folder, length, batch, n, cold):
    """(MB/s, CPU seconds per GB)"""
    if kind in ("pread", "keep", "leat-c"):
        argv = [BUILD + "/tests/loader_rate", "leat" if kind == "leat-c" else kind, folder,
                str(batch if kind == "leat-c" else length), str(n)] + (["cold"] if cold else [])
    else:
        argv = [sys.executable, os.path.abspath(__file__), "--one",
                json.dumps([kind, folder, length, batch, n, cold])]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=600, check=False)
    if done.returncode:
        sys.exit("loader.py: %s: %s" % (kind, done.stderr.strip()))
    got, wall, cpu = (float(x) for x in done.stdout.split())
    return got / wall / 1e6, cpu / (got / 1e9)


def make(folder, length, count, masked_crc):
    """The build's own crc32c computes the CRC: Python would take minutes."""
    noise = os.urandom(length)
    head = struct.pack("<Q", length)
    head += struct.pack("<I", masked_crc(head))
    record = head + noise + struct.pack("<I", masked_crc(noise))
    for i in range(SHARDS):
        with open("%s/%02d.tfrecord" % (folder, i), "wb") as f:
            for _ in range(count // SHARDS):
                f.write(record)
            f.flush()
            os.fsync(f.fileno())


def crc_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
        table.append(i)
    return table


def masked_crc(data, table=tuple(crc_table())):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def run(folder, size, cold, rounds):
    """{name: (MB/s, CPU s/GB)}: each the best of its settings, medians of the rounds."""
    length, _, batch = SIZES[size]
    settings = {"pread": (1, 2), "keep": (1, 2), "leat-c": (1, 2), "leat": (1, 2),
                "torch": WORKERS,
                "torch-list": (0,)}
    got = {}
    if not cold:
        for path in shards(folder):
            with open(path, "rb") as f:
                while f.read(1 << 20):
                    pass
    for _ in range(rounds):
        for kind, numbers in settings.items():
            for n in numbers:
                result = measure(kind, folder, length, batch, n, cold)
                got.setdefault((kind, n), []).append(result)
                print("%s %s %s %d: %.0f MB/s, %.2f CPU s/GB" % (
                    size, "cold" if cold else "hot", kind, n, *result), file=sys.stderr)
    best = {}
    for kind, numbers in settings.items():
        medians = [[statistics.median(x) for x in zip(*got[kind, n])] for n in numbers]
        best[kind] = max(m[0] for m in medians), min(m[1] for m in medians)
    return best


def row(size, cold, best):
    torch = (max(best[k][0] for k in ("torch", "torch-list")),
             min(best[k][1] for k in ("torch", "torch-list")))
    cells = ["%s %s" % (size, "cold" if cold else "hot")]
    cells += ["%.0f / %.2f" % best[k]
              for k in ("pread", "keep", "leat-c", "leat", "torch", "torch-list")]
    cells += ["%.2f" % (best["leat-c"][0] / best["pread"][0]),
              "%.2f" % (best["leat"][0] / best["pread"][0]),
              "%.2f" % (best["leat-c"][1] / best["pread"][1]),
              "%.2f" % (best["leat-c"][1] / best["keep"][1]),
              "%.2f" % (best["leat"][1] / torch[1]), "%.2f" % (best["leat"][0] / torch[0])]
    return "| %s |" % " | ".join(cells)


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n", 2)[2])
    p.add_argument("--one")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--dir", default=os.environ.get("TMPDIR", "/tmp"))
    p.add_argument("--max-load", type=float, default=0.7 * os.cpu_count())
    o = p.parse_args()
    if o.one:
        return one(*json.loads(o.one))
    load = os.getloadavg()[0]
    if o.max_load and load > o.max_load:
        sys.exit("loader.py: the load is %.1f: wait, or --max-load 0" % load)
    commit = subprocess.run(["git", "-C", SRC, "rev-parse", "--short", "HEAD"], check=False,
                            capture_output=True, text=True).stdout.strip()
    lines = []
    with tempfile.TemporaryDirectory(prefix="leat-bench-", dir=o.dir) as tmp:
        for size, (length, count, _) in SIZES.items():
            folder = "%s/%d" % (tmp, length)
            os.mkdir(folder)
            make(folder, length, count // 4 if o.quick else count, masked_crc)
            for cold in (False, True):
                lines.append(row(size, cold, run(folder, size, cold, o.rounds)))
            for path in shards(folder):
                os.unlink(path)
    print("- %s, %d CPUs, commit %s, load %.1f at the start and %.1f at the end" % (
        platform.platform(), os.cpu_count(), commit, load, os.getloadavg()[0]))
    print("- MB/s / CPU seconds per GB, each the best of its threads or workers\n")
    print("| records | pread | keep | leat-c | leat | torch | torch-list | leat-c ÷ pread MB/s "
          "| leat ÷ pread MB/s | leat-c ÷ pread CPU | leat-c ÷ keep CPU | leat ÷ torch CPU "
          "| leat ÷ torch MB/s |")
    print("|---|" + "---:|" * 12)
    print("\n".join(lines))
    return None


if __name__ == "__main__":
    main()
