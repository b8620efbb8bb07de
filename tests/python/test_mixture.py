#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Weighted mixtures of data sets: the order of the specification, the right bytes, resuming.
timeout: 300"""
import json
import os
import pickle
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import order_ref  # noqa: E402
import test_loader  # noqa: E402
from test_loader import PER_SHARD, SAMPLES, SHARDS, payload, raw  # noqa: E402

PICTURES = 37


def picture(i):
    return b"picture %d " % i * (i * 13 % 50 + 1)


class Mixtures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.shards, cls.pictures = cls.tmp.name + "/shards", cls.tmp.name + "/pictures"
        os.mkdir(cls.shards)
        test_loader.make_shards(cls.shards)
        for i in range(PICTURES):
            os.makedirs("%s/%s" % (cls.pictures, "ab"[i % 2]), exist_ok=True)
            with open("%s/%s/%02d.png" % (cls.pictures, "ab"[i % 2], i // 2), "wb") as f:
                f.write(picture(i))

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def setUp(self):
        self.a, self.b = leat.Dataset(self.shards), leat.Dataset(self.pictures)

    def tearDown(self):
        self.a.close()
        self.b.close()

    def check(self, batch):
        for k, s in enumerate(batch.ids.tolist()):
            if s < SAMPLES:
                self.assertEqual(raw(batch["bin"][k]), payload(s))
                self.assertIsNone(batch["data"][k])
                self.assertEqual(batch.labels[k], -1)
            else:
                s -= SAMPLES
                even = (PICTURES + 1) // 2  # the samples of class a come first
                i = s * 2 if s < even else (s - even) * 2 + 1
                self.assertEqual(raw(batch["data"][k]), picture(i))
                self.assertIsNone(batch["cls"][k])
                self.assertEqual(batch.labels[k], i % 2)

    def test_the_order_is_that_of_the_specification(self):
        parts = [(self.a.order_word, [PER_SHARD] * SHARDS, 3),
                 (self.b.order_word, [1] * PICTURES, 1)]
        with leat.Mixture([(self.a, 0.75), (self.b, 0.25)]) as mix:
            self.assertEqual((len(mix), mix.source, mix.format), (SAMPLES + PICTURES, "mixture",
                                                                  "mixture"))
            self.assertEqual(sorted(mix.fields), ["bin", "cls", "data"])
            self.assertEqual(mix.classes, ["a", "b"])
            for mode in ("global", "window:2", "file", "sequential"):
                name, _, window = mode.partition(":")
                for epoch in (0, 3):
                    ref = order_ref.Mixture(name, int(window or 0), 11, epoch, parts)
                    self.assertEqual((mix.order_word, mix.positions), (ref.word, ref.n))
                    want = [ref(p) for p in range(ref.n)]
                    order = mix.order(mode, seed=11, epoch=epoch)
                    self.assertEqual([order[p] for p in range(ref.n)], want)
                    with leat.DataLoader(mix, 4, seed=11, epoch=epoch, order=mode) as loader:
                        got = []
                        for batch in loader:
                            self.check(batch)
                            self.assertEqual(sum(i >= SAMPLES for i in batch.ids.tolist()), 1)
                            got += batch.ids.tolist()
                        self.assertEqual(got, want)

    def test_without_weights_each_sample_comes_once(self):
        with leat.Mixture([(self.a, None), (self.b, None)]) as mix:
            for epoch in range(2):
                with leat.DataLoader(mix, 10, epoch=epoch, tail="shorter") as loader:
                    ids = [i for b in loader for i in b.ids.tolist()]
                self.assertEqual(sorted(ids), list(range(SAMPLES + PICTURES)))

    def test_resume_with_another_world(self):
        def loaders(world):
            return [leat.DataLoader(mix, global_batch=12, seed=1, rank=r, world=world,
                                    tail="shorter") for r in range(world)]

        with leat.Mixture([(self.a, 1), (self.b, 1)], epoch=100) as mix:
            self.assertEqual(mix.positions, 100)
            whole, = loaders(1)
            want = [b.ids.tolist() for b in whole]
            whole.close()
            first = loaders(2)
            got = [[i for r in first for i in r.next().ids.tolist()] for _ in range(3)]
            state = json.dumps(first[0].state_dict(), separators=(",", ":"))
            self.assertLessEqual(len(state), 256)
            then = loaders(4)
            for r in first:
                r.close()
            for r in then:
                r.load_state_dict(json.loads(state))
            got += [[i for r in then for i in r.next().ids.tolist()] for _ in range(len(want) - 3)]
            self.assertEqual(got, want)
            other = leat.Mixture([(self.a, 1), (self.b, 2)], epoch=100)
            with leat.DataLoader(other, global_batch=12, seed=1) as loader:
                with self.assertRaises(leat.LeatError):
                    loader.load_state_dict(json.loads(state))
            for r in then:
                r.close()
            other.close()

    def test_parts_may_be_closed_and_it_can_be_handed_to_other_processes(self):
        mix = leat.Mixture([(self.a, 2), (self.b, 3)])
        again = pickle.loads(pickle.dumps(mix))
        self.a.close()
        self.b.close()
        for m in (mix, again):
            with leat.DataLoader(m, 5) as loader:
                for batch in loader:
                    self.check(batch)
            self.check(m.read([0, SAMPLES, 3, SAMPLES + PICTURES - 1]))
            m.close()

    def test_what_makes_no_mixture(self):
        with leat.Mixture([(self.a, 1)]) as mix, self.assertRaises(leat.LeatError) as raised:
            leat.Mixture([(mix, 1), (self.b, 1)])
        self.assertIn("part of another", str(raised.exception))
        for parts in ([(self.a, 0), (self.b, 1)], [(self.a, None), (self.b, 1)]):
            with self.assertRaises(ValueError):
                leat.Mixture(parts)
        with self.assertRaises(leat.LeatError):
            leat.Mixture([])

    def test_errors_name_the_file_of_the_part(self):
        with tempfile.TemporaryDirectory() as tmp:
            with open(tmp + "/one.bin", "wb") as f:
                f.write(b"x" * 100)
            with leat.Dataset(tmp) as one, leat.Mixture([(self.b, 1), (one, 1)]) as mix:
                os.truncate(tmp + "/one.bin", 10)
                with self.assertRaises(leat.LeatError) as raised:
                    mix.read([PICTURES])
                self.assertEqual(raised.exception.filename, "one.bin")
                with leat.DataLoader(mix, 4, on_error="skip") as loader:
                    self.assertEqual({len(b) for b in loader}, {2})


if __name__ == "__main__":
    unittest.main()
