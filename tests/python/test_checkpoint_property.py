#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What leat.checkpoint.save has saved successfully, load reads, and it is equal: random states of
all types of torch and numpy, empty, 0-d, strided, sharing memory, nested; on a local disk, through
a mount and by "leat:", 1,000 each with LEAT_LONG. SEED= gives another run."""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
from leat import checkpoint  # noqa: E402
import checkpoint_states  # noqa: E402

LONG = os.environ.get("LEAT_LONG") == "1"
SEED = int(os.environ.get("SEED") or 20)
NO_MOUNT = "mounting needs root and /dev/fuse" if (
    os.getuid() != 0 or not os.path.exists("/dev/fuse")) else None


class States(unittest.TestCase):
    def all_come_back(self, path, count, **options):
        tensors, size, since = 0, 0, time.monotonic()
        for k in range(count):
            seed = SEED * 1_000_000 + k
            state = checkpoint_states.States(random.Random(seed)).state()
            size += checkpoint.save(path, state, **options)
            for way in ({}, {"mmap": False}) if k % 8 == 0 else ({"mmap": k % 2 == 0},):
                try:
                    wrong = checkpoint_states.differ(state, checkpoint.load(path, **way, **options))
                except OSError as error:
                    wrong = str(error)
                self.assertIsNone(wrong, "state of seed %d" % seed)
            tensors += len(checkpoint.info(path, **options).tensors)
        print("%s: %d of %d states of SEED=%d came back equal: %d tensors and arrays, %.1f MB, "
              "%.1f s" % (path, count, count, SEED, tensors, size / 1e6, time.monotonic() - since))

    def test_on_a_local_disk(self):
        with tempfile.TemporaryDirectory() as tmp:
            self.all_come_back(tmp + "/state", 1000 if LONG else 300)
            self.assertEqual(os.listdir(tmp), ["state"])

    @unittest.skipIf(NO_MOUNT, NO_MOUNT)
    def test_through_a_mount_and_by_leat(self):
        tmp = tempfile.mkdtemp()
        env = dict(os.environ, LEAT_DEV=tmp + "/dev", LEAT_DEV_SIZE=str(1 << 30), BUILD=BUILD,
                   LEAT_DEV_MOUNTS="1")

        def dev(*words):
            return subprocess.run([SRC + "/deploy/dev-cluster", *words], env=env, check=True,
                                  text=True, stdout=subprocess.PIPE).stdout

        try:
            dev("up")
            count, conf = 1000 if LONG else 60, tmp + "/dev/conf"
            self.all_come_back("leat:/by-leat", count, conf=conf)
            mount = dev("mountpoint").strip()
            self.all_come_back(mount + "/mounted", count)
            self.assertEqual(sorted(n for n in os.listdir(mount) if n != ".leat"),
                             ["by-leat", "mounted"])
        finally:
            dev("down")
            shutil.rmtree(tmp, ignore_errors=True)


if __name__ == "__main__":
    unittest.main()
