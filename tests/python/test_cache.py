#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The loader's disk cache beside LRU and the optimum, with several ranks, mixtures and processes.
timeout: 300"""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python", SRC + "/tests/bench"]
import leat  # noqa: E402
import loader_cache  # noqa: E402
from leat._ranks import ranks_of_node  # noqa: E402

# Thousands of small files: in memory, where the machine has /dev/shm.
PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
SAMPLES, SIZE = 1280, 2048


def number_of(sample):
    """The content of a sample's records, as loader_cache.make_records lays them out."""
    each = SAMPLES // loader_cache.FILES
    return sample % each * loader_cache.FILES + sample // each


class Cache(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory(dir=PLACE)
        self.src, self.cache = self.tmp.name + "/data", self.tmp.name + "/cache"
        os.mkdir(self.src)
        loader_cache.make_records(self.src, SAMPLES, SIZE)

    def tearDown(self):
        self.tmp.cleanup()

    def check(self, batch, base=0):
        for i, record in zip(batch.ids.tolist(), batch["record"]):
            self.assertEqual(record.tobytes(), number_of(i - base).to_bytes(8, "little")
                             * (SIZE // 8))

    def test_half_of_the_data_hits_far_more_than_lru_would(self):
        for order in ("global", "window:8", "sequential"):
            ours, lru, best = loader_cache.measure(self.tmp.name, order, SAMPLES, SIZE, 4, 0.5)
            self.assertGreaterEqual(ours, 1.8 * lru)
            self.assertGreaterEqual(ours, 0.95 * best)

    def test_a_full_disk(self):
        small = self.tmp.name + "/small"
        os.mkdir(small)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small],
                              capture_output=True, check=False)
        if done.returncode:
            self.skipTest("a small file system cannot be mounted here")
        code = ("import sys, leat\n"
                "with leat.Dataset(sys.argv[1], format='fixed:2048') as ds, leat.DataLoader(ds, 32,"
                " cache_dir=sys.argv[2], cache_bytes=1 << 30, tail='shorter') as loader:\n"
                "    for epoch in range(4):\n"
                "        n = sum(len(batch) for batch in loader)\n"
                "        assert n == 1280, n\n"
                "    m = loader.metrics()\n"
                "    print(m['cache_hits'], m['cache_failed'], m['cache_limit'], m['errors'])\n")
        try:
            done = subprocess.run([sys.executable, "-c", code, self.src, small], timeout=120,
                                  capture_output=True, text=True, check=False,
                                  env=dict(os.environ, PYTHONPATH=SRC + "/client/python"))
        finally:
            subprocess.run(["umount", small], check=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        hits, failed, limit, errors = map(int, done.stdout.split())
        # The available space is used; one line reports that there is less; the loader does not
        # fail.
        self.assertGreater(hits, 3 * 200)
        self.assertGreater(failed, 0)
        self.assertLess(limit, 2 << 20)
        self.assertEqual(errors, 0)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("no space left; training goes on", done.stderr)

    def test_a_mixture(self):
        other = self.tmp.name + "/other"
        os.mkdir(other)
        loader_cache.make_records(other, 128, SIZE)
        with leat.Dataset(self.src, format="fixed:%d" % SIZE) as a, \
                leat.Dataset(other, format="fixed:%d" % SIZE) as b, \
                leat.Mixture([(a, 1), (b, 1)], epoch=1024) as mix, \
                leat.DataLoader(mix, 32, framework="numpy", cache_dir=self.cache,
                                cache_bytes=(128 + SAMPLES // 2) * 4096) as loader:
            for epoch in range(6):
                for batch in loader:
                    for i, record in zip(batch.ids.tolist(), batch["record"]):
                        first = int.from_bytes(record[:8].tobytes(), "little")
                        self.assertEqual(first, number_of(i) if i < SAMPLES else
                                         (i - SAMPLES) % 2 * 64 + (i - SAMPLES) // 2)
                if epoch == 1:
                    before = loader.metrics()
            m = loader.metrics()
            hits = m["cache_hits"] - before["cache_hits"]
            # The small part fits completely, and half of the large one.
            self.assertGreater(hits, 0.65 * (hits + m["cache_misses"] - before["cache_misses"]))
            self.assertEqual((m["cache_bad"], m["cache_failed"], m["errors"]), (0, 0, 0))

    def test_processes_of_one_node(self):
        code = ("import sys, leat\n"
                "src, cache, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
                "with leat.Dataset(src, format='fixed:2048') as ds, leat.DataLoader(ds, 8,"
                " rank=rank, world=4, cache_dir=cache, cache_bytes=4096 * 1280,"
                " cache_ranks=4) as loader:\n"
                "    for epoch in range(4):\n"
                "        for batch in loader:\n"
                "            print(*(int.from_bytes(bytes(r[:8]), 'little')"
                " - (i % 20 * 64 + i // 20)"
                "                    for i, r in zip(batch.ids.tolist(), batch['record'])))\n"
                "            del batch\n"
                "            sys.stdout.flush()\n"
                "            sys.stdin.readline()\n"
                "    m = loader.metrics()\n"
                "    print(m['cache_hits'], m['cache_misses'], m['cache_limit'])\n")
        ranks = [subprocess.Popen([sys.executable, "-c", code, self.src, self.cache, str(r)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env=dict(os.environ, PYTHONPATH=SRC + "/client/python"))
                 for r in range(4)]
        try:
            for _ in range(4 * SAMPLES // 32):
                for r in ranks:
                    self.assertEqual(set(r.stdout.readline().split()), {"0"})
                for r in ranks:
                    r.stdin.write("\n")
                    r.stdin.flush()
            last = [list(map(int, r.stdout.readline().split())) for r in ranks]
        finally:
            for r in ranks:
                r.stdin.close()
                r.stdout.close()
                r.wait(300)
        self.assertEqual({limit for _, _, limit in last}, {4096 * 320})
        # Everything fits: after the first of four epochs, most is cached.
        hits, misses = sum(h for h, _, _ in last), sum(m for _, m, _ in last)
        self.assertGreater(hits, 0.55 * (hits + misses))

    def test_python_options(self):
        self.assertEqual(ranks_of_node(5, 8, env={}), 1)
        self.assertEqual(ranks_of_node(5, 8, env={"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}), 4)
        self.assertEqual(ranks_of_node(5, 8, env={"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}), 1)
        with leat.Dataset(self.src, format="fixed:%d" % SIZE) as ds:
            with self.assertRaises(leat.LeatError) as raised:
                leat.DataLoader(ds, 8, cache_dir=self.src + "/000.bin", cache_bytes=1 << 20)
            self.assertEqual(raised.exception.errno, 20)
            with leat.DataLoader(ds, 8, cache_dir=self.cache, cache_bytes=1 << 24) as loader:
                for batch in loader:
                    self.check(batch)


if __name__ == "__main__":
    unittest.main()
