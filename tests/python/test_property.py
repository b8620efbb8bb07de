#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exactly once, whatever happens: random modes, worlds and worker processes over a large data set,
killed at random steps and resumed with another world; the order is the specification's.
timeout: 1800"""
import array
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import order_ref  # noqa: E402

LONG = os.environ.get("LEAT_LONG") == "1"
# In `make check`, a million samples are only ordered; the loaders read some of them.
ORDERED, READ, ROUNDS = 1_000_003, 1_000_003 if LONG else 60_007, 6 if LONG else 3
RECORD, FILES = 16, 37
MODES = ("global", "window", "window:3", "file", "sequential")
SEED = int(os.environ.get("SEED") or random.randrange(1 << 32))


def make(folder, samples):
    """Each record is its sample's number, twice."""
    os.mkdir(folder)
    rest, first, dice = samples, 0, random.Random(samples)
    counts = []
    for f in range(FILES):
        n = rest if f == FILES - 1 else min(rest, dice.randrange(2 * samples // FILES))
        with open("%s/%03d.bin" % (folder, f), "wb") as out:
            out.write(np.repeat(np.arange(first, first + n, dtype="<u8"), 2).tobytes())
        first, rest = first + n, rest - n
        counts.append(n)
    return counts


def worker(folder, state_file, out):
    """Runs all ranks and worker processes of a job in step, until the epoch ends or the test kills
    it: for each step writes first the ids, then a line with the state after it."""
    with open(state_file) as f:
        job = json.load(f)
    with leat.Dataset(folder, format="fixed:%d" % RECORD) as ds, open(out + ".ids", "ab") as ids, \
            open(out + ".states", "a") as states:
        world, stride = job["world"], job["stride"]
        first = job["state"]["pos"] // job["batch"] if job["state"] else 0
        loaders = {}
        for rank in range(world):
            for phase in range(stride):
                loaders[rank, phase] = leat.DataLoader(
                    ds, global_batch=job["batch"], rank=rank, world=world, stride=stride,
                    phase=phase, order=job["mode"], seed=job["seed"], epoch=job["epoch"],
                    tail=job["tail"], depth=2, framework="numpy")
                if job["state"]:
                    # Each worker continues with its next step.
                    step = first + (phase - first) % stride
                    loaders[rank, phase].load_state_dict(
                        dict(job["state"], pos=min(step, loaders[rank, phase].steps)
                             * job["batch"]))
        steps = loaders[0, 0].steps
        for step in range(first, steps):
            for rank in range(world):
                batch = loaders[rank, step % stride].next()
                if batch.step != step:
                    raise SystemExit("step %d came in place of %d" % (batch.step, step))
                for i, record in zip(batch.ids.tolist(), batch["record"]):
                    if record.tobytes() != i.to_bytes(8, "little") * 2:
                        raise SystemExit("sample %d has the bytes of another" % i)
                ids.write(batch.ids.astype("<u8").tobytes())
                del batch
            ids.flush()
            state = dict(loaders[0, step % stride].state_dict(), pos=(step + 1) * job["batch"])
            text = json.dumps(state, separators=(",", ":"))
            if len(text) > 256:
                raise SystemExit("a state of %d bytes" % len(text))
            states.write(text + "\n")
            states.flush()


class Property(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.folder = cls.tmp.name + "/data"
        cls.counts = make(cls.folder, READ)
        print("SEED=%d" % SEED)

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def run_until_killed(self, job, out, kill_after):
        """Returns True if the epoch ended."""
        with open(out + ".job", "w") as f:
            json.dump(job, f)
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "worker", self.folder,
                                  out + ".job", out], stderr=subprocess.PIPE, text=True)
        try:
            begin = time.monotonic()
            # After this number of steps, at a random moment.
            while child.poll() is None:
                if os.path.exists(out + ".states"):
                    with open(out + ".states") as f:
                        if f.read().count("\n") >= kill_after:
                            break
                self.assertLess(time.monotonic() - begin, 600)
                time.sleep(0.002)
            time.sleep(random.random() * 0.01)
            child.send_signal(signal.SIGKILL)
            _, err = child.communicate(timeout=300)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        self.assertIn(child.returncode, (0, -signal.SIGKILL), err)
        return child.returncode == 0

    def finished_steps(self, out, job):
        """The ids of the steps whose state was written, and the last of these states."""
        with open(out + ".states") as f:
            lines = [line for line in f.read().splitlines(True) if line.endswith("\n")]
        begin = min(job["state"]["pos"], READ) if job["state"] else 0
        state = json.loads(lines[-1]) if lines else job["state"]
        end = min(state["pos"], READ) if state else 0
        with open(out + ".ids", "rb") as f:
            ids = array.array("Q", f.read((end - begin) * 8))
        self.assertEqual(len(ids), end - begin)
        return ids, state

    def one_epoch(self, dice):
        batch = dice.choice((240, 720, 1260, 5040))
        job = {"mode": dice.choice(MODES), "seed": dice.randrange(1 << 64), "batch": batch,
               "epoch": dice.randrange(1 << 20), "tail": "shorter", "state": None}
        seen, ended, part = [], False, 0
        while not ended:
            job["world"] = dice.choice([w for w in (1, 2, 3, 4, 5, 6) if batch % w == 0])
            job["stride"] = dice.choice((1, 1, 2, 3))
            out = "%s/%d-%d" % (self.tmp.name, job["epoch"], part)
            part += 1
            left = (READ - (job["state"]["pos"] if job["state"] else 0)) // batch
            ended = self.run_until_killed(job, out, dice.randrange(1, left // 2 + 3)
                                          if part < 6 else 1 << 30)
            if os.path.exists(out + ".states"):
                ids, job["state"] = self.finished_steps(out, job)
                seen.extend(ids)
        self.assertEqual(len(seen), READ, job)
        self.assertTrue((np.bincount(np.array(seen, dtype=np.int64), minlength=READ) == 1).all(),
                        job)
        # Not only an equal set: the specified order, whichever process delivered it.
        with leat.Dataset(self.folder, format="fixed:%d" % RECORD) as ds:
            order = ds.order(job["mode"], seed=job["seed"], epoch=job["epoch"], batch=batch)
            self.assertEqual([order[p] for p in range(0, READ, 101)], seen[::101])
        return part

    def test_killed_and_resumed_with_another_world(self):
        dice = random.Random(SEED)
        parts = sum(self.one_epoch(dice) for _ in range(ROUNDS))
        self.assertGreater(parts, ROUNDS)

    def test_c_and_python_have_the_same_order(self):
        dice = random.Random(SEED + 1)
        step = 1 if LONG else 53
        with leat.Dataset(self.folder, format="fixed:%d" % RECORD) as ds:
            for mode in ("global", "window:5", "file"):
                name, _, window = mode.partition(":")
                seed, epoch = dice.randrange(1 << 64), dice.randrange(1 << 64)
                ref = order_ref.Order(name, int(window or 0), seed, epoch, ds.order_word,
                                      self.counts)
                order = ds.order(mode, seed=seed, epoch=epoch)
                for p in range(0, READ, step):
                    self.assertEqual(order[p], ref(p), (mode, seed, epoch, p))

    def test_a_million_samples_in_every_mode(self):
        """Every position once in the ranks' shares of all steps."""
        dice = random.Random(SEED + 2)
        folder = self.tmp.name + "/million"
        make(folder, ORDERED)
        with leat.Dataset(folder, format="fixed:%d" % RECORD) as ds, \
                leat.Mixture([(ds, None)]) as mix:
            for whole, mode in [(ds, m) for m in MODES] + [(mix, "global")]:
                seed, batch = dice.randrange(1 << 64), dice.choice((240, 720, 5040))
                world = dice.choice([w for w in range(1, 17) if batch % w == 0])
                order = whole.order(mode, seed=seed, epoch=dice.randrange(1 << 30), batch=batch)
                at = leat._lib.lib.leat_order_at
                handle, seen, last = order._p, np.zeros(ORDERED, dtype=np.uint8), 0
                for s in range(order_ref.steps(ORDERED, batch, "shorter")):
                    for rank in range(world):
                        first, n = order_ref.share(ORDERED, batch, world, "shorter", s, rank)
                        self.assertEqual(first, last)
                        last = first + n
                        seen[[at(handle, p) for p in range(first, first + n)]] += 1
                self.assertTrue((seen == 1).all(), (mode, seed))
                self.assertRaises(IndexError, order.__getitem__, ORDERED)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(*sys.argv[2:])
    else:
        unittest.main()
