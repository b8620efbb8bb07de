#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The package under torch.utils.data.DataLoader, as torch ships it: with no worker processes and
with several, forked and spawned."""
import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import test_loader  # noqa: E402
from test_loader import SAMPLES, payload, raw  # noqa: E402

try:
    import torch
    from torch.utils.data import DataLoader
except ImportError:
    torch = None
G = 12


def ids_of(samples):
    """collate_fn: checks the bytes in the worker, then only numbers are sent."""
    for s in samples:
        if raw(s["bin"]) != payload(s["__id__"]) or s["bin"].dtype != torch.uint8:
            raise AssertionError("sample %d is wrong" % s["__id__"])
    return [s["__id__"] for s in samples]


def names_of(samples):
    return [s["__key__"] for s in samples]


def batch_itself(batch):
    return batch


def once(batch):
    raise RuntimeError("broken collate of step %d" % batch.step)


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        test_loader.make_shards(cls.tmp.name)
        cls.ds = leat.Dataset(cls.tmp.name)

    @classmethod
    def tearDownClass(cls):
        cls.ds.close()
        cls.tmp.cleanup()

    def want(self, epoch=0, batch=G, first=0, **options):
        """Steps of numbers, from leat's own loader."""
        with leat.DataLoader(self.ds, batch, seed=3, epoch=epoch, **options) as loader:
            return [b.ids.tolist() for b in loader][first:]

    def test_samples_come_in_order_and_once_for_any_number_of_workers(self):
        for tail in ("drop", "shorter", "pad"):
            for workers in (0, 1, 3):
                data = leat.IterableDataset(self.ds, G, seed=3, tail=tail)
                loader = DataLoader(data, batch_size=G, num_workers=workers, collate_fn=ids_of)
                for epoch in (0, 1):
                    data.set_epoch(epoch)
                    got = list(loader)
                    self.assertEqual(got, self.want(epoch, tail=tail), (tail, workers))
                    self.assertEqual(len(loader), len(got))

    def test_more_workers_than_steps(self):
        data = leat.IterableDataset(self.ds, 40, seed=3, tail="shorter")
        self.assertEqual(list(DataLoader(data, batch_size=40, num_workers=5, collate_fn=ids_of)),
                         self.want(0, 40, tail="shorter"))

    def test_ranks_and_workers(self):
        seen = []
        for rank in range(3):
            data = leat.IterableDataset(self.ds, global_batch=G, seed=3, tail="shorter", rank=rank,
                                        world=3)
            got = list(DataLoader(data, batch_size=G // 3, num_workers=2, collate_fn=ids_of))
            self.assertEqual(sum(len(b) for b in got), len(data))
            seen += sum(got, [])
        self.assertEqual(sorted(seen), list(range(SAMPLES)))

    def test_resume_with_another_number_of_workers_and_ranks(self):
        data = leat.IterableDataset(self.ds, G, seed=3, tail="shorter")
        data.set_epoch(4)
        seen = []
        for k, batch in enumerate(DataLoader(data, batch_size=G, num_workers=2,
                                             collate_fn=ids_of)):
            seen += batch
            if k == 2:
                break
        with self.assertRaises(ValueError):
            data.state_dict()  # workers read ahead: this process does not have the number
        state = json.loads(json.dumps(data.state_dict(batches=3)))
        with leat.DataLoader(self.ds, G, seed=3, tail="shorter") as loader:
            loader.load_state_dict(state)  # one state for all ranks
            rest = [b.ids.tolist() for b in loader]
        got = []
        for rank in range(2):
            other = leat.IterableDataset(self.ds, global_batch=G, seed=3, tail="shorter", rank=rank,
                                         world=2)
            other.load_state_dict(state)
            other.set_epoch(4)
            got += sum(DataLoader(other, batch_size=G // 2, num_workers=3, collate_fn=ids_of), [])
        self.assertEqual(sorted(got), sorted(sum(rest, [])))
        self.assertEqual(sorted(seen + got), list(range(SAMPLES)))
        other.set_epoch(5)
        self.assertEqual(other.state_dict(batches=0)["pos"], 0)
        with self.assertRaises(ValueError):
            leat.IterableDataset(self.ds, G, seed=4).load_state_dict(state)

    def test_state_of_this_process(self):
        data = leat.IterableDataset(self.ds, G, seed=3, batched=True)
        for k, batch in enumerate(DataLoader(data, batch_size=None)):
            self.assertIsInstance(batch["__ids__"], torch.Tensor)
            if k == 1:
                break
        self.assertEqual(data.state_dict()["pos"], 2 * G)
        self.assertEqual(data.state_dict(batches=2)["pos"], 2 * G)

    def test_persistent_workers_hear_of_epochs(self):
        data = leat.IterableDataset(self.ds, G, seed=3)
        loader = DataLoader(data, batch_size=G, num_workers=2, collate_fn=ids_of,
                            persistent_workers=True)
        for epoch in (0, 7, 7, 1):
            data.set_epoch(epoch)
            self.assertEqual(list(loader), self.want(epoch))

    def test_spawned_workers(self):
        data = leat.IterableDataset(self.ds, G, seed=3)
        loader = DataLoader(data, batch_size=G, num_workers=1, collate_fn=ids_of,
                            multiprocessing_context="spawn")
        self.assertEqual(list(loader), self.want())

    def test_whole_batches_come_through_processes(self):
        data = leat.IterableDataset(self.ds, G, seed=3, collate=batch_itself)
        steps = []
        for batch in DataLoader(data, batch_size=None, num_workers=2, collate_fn=batch_itself):
            steps.append(batch.ids.tolist())
            self.assertEqual(batch.names, [self.ds.key(i) for i in steps[-1]])
            for i, tensor in zip(steps[-1], batch["bin"]):
                self.assertEqual(raw(tensor), payload(i))
        self.assertEqual(steps, self.want())

    def test_an_error_in_a_worker_is_raised_here(self):
        data = leat.IterableDataset(self.ds, G, seed=3, collate=once)
        with self.assertRaisesRegex(RuntimeError, "broken collate of step 0"):
            list(DataLoader(data, batch_size=None, num_workers=2))

    def test_map_style_with_workers_opens_for_itself(self):
        for context in (None, "fork", "spawn"):
            loader = DataLoader(self.ds, batch_size=10, num_workers=1 if context else 0,
                                collate_fn=names_of, multiprocessing_context=context)
            self.assertEqual(sum(loader, []), [self.ds.key(i) for i in range(SAMPLES)])

    def test_sampler(self):
        for tail in ("drop", "shorter", "pad"):
            sampler = leat.Sampler(self.ds, G, seed=3, tail=tail)
            sampler.set_epoch(2)
            self.assertEqual(list(sampler), sum(self.want(2, tail=tail), []))
            self.assertEqual(len(list(sampler)), len(sampler))
        batches = leat.Sampler(self.ds, G, seed=3, batched=True)
        stock = DataLoader(self.ds, sampler=batches, batch_size=None, num_workers=2,
                           collate_fn=batch_itself)
        self.assertEqual([b.ids.tolist() for b in stock], self.want())
        batches.load_state_dict(batches.state_after(2))
        self.assertEqual(list(batches), self.want(first=2))
        keys = DataLoader(self.ds, batch_sampler=batches, collate_fn=names_of)
        self.assertEqual(list(keys), [[self.ds.key(i) for i in b] for b in self.want(first=2)])

    def test_a_data_set_that_changed_is_told_in_the_worker(self):
        with tempfile.TemporaryDirectory() as tmp:
            for i in range(4):
                with open("%s/%d" % (tmp, i), "w") as f:
                    f.write("x")
            ds = leat.Dataset(tmp)
            frozen = pickle.dumps(ds)
            os.unlink(tmp + "/3")
            with self.assertRaisesRegex(leat.LeatError, "changed"):
                pickle.loads(frozen)[0]
            ds.close()
            with self.assertRaises(ValueError):
                ds[0]

    def test_what_was_imported_before_decides_nothing(self):
        code = ("def kinds(ds, **more):\n"
                "    with leat.DataLoader(ds, 4, **more) as loader:\n"
                "        batch = loader.next()\n"
                "        return [type(s).__module__ for s in (batch['bin'][0], ds[0]['bin'],\n"
                "                ds[[0, 1]]['bin'][1], batch.stack('cls'))]\n"
                "with leat.Dataset(sys.argv[1]) as ds, leat.Dataset(\n"
                "        sys.argv[1], framework='torch') as other, leat.Mixture(\n"
                "        [(ds, 1)], framework=None) as mix:\n"
                "    sampled = next(iter(leat.IterableDataset(ds, 4)))['bin']\n"
                "    print(kinds(ds), kinds(ds, framework=None), kinds(mix),\n"
                "          kinds(other, framework='torch'), type(sampled).__module__)\n")
        said = {subprocess.run([sys.executable, "-c", imports + code, self.tmp.name], check=True,
                               stdout=subprocess.PIPE).stdout.decode() for imports in (
            "import sys, torch, leat\n", "import sys, leat\n")}
        self.assertEqual(said, {"%s %s %s %s torch\n" % (
            ["numpy"] * 4, ["numpy"] * 4, ["numpy"] * 4, ["torch"] * 4)})

    def test_tensors_share_the_slot(self):
        with leat.DataLoader(self.ds, G, seed=3, framework="torch") as loader:
            batch = loader.next()
            low = min(t.data_ptr() for t in batch["bin"])
            self.assertEqual({t.storage().data_ptr() for t in batch["bin"] + batch["cls"]},
                             {batch["bin"][0].storage().data_ptr()})
            self.assertGreaterEqual(low, batch["bin"][0].storage().data_ptr())
            other = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(batch["bin"][1]))
            self.assertEqual(other.data_ptr(), batch["bin"][1].data_ptr())


def update(batch):
    other = {}
    other.update(batch)
    return other


class Stacks(unittest.TestCase):
    def test_rows_of_an_array(self):
        with tempfile.TemporaryDirectory() as tmp:
            rows = np.random.default_rng(1).standard_normal((64, 3, 16)).astype("<f4")
            np.save(tmp + "/rows.npy", rows)
            for framework in ["numpy"] + ["torch"] * (torch is not None):
                with leat.Dataset(tmp, format="npy") as ds, leat.DataLoader(
                        ds, 16, seed=1, framework=framework, depth=2) as loader:
                    for batch in loader:
                        field, = batch
                        stacked = batch.stack(field)
                        self.assertEqual(np.asarray(stacked).tobytes(),
                                         rows[batch.ids.astype(int)].tobytes())
                        self.assertEqual(tuple(stacked.shape), (16, 3, 16))
                    with leat.DataLoader(ds, 16, order="sequential", framework=framework) as inline:
                        batch = inline.next()
                        stacked, one = batch.stack(field), batch[field][5]
                        # Neighbours with even spacing in the file: a view, not a copy.
                        self.assertTrue(np.shares_memory(np.asarray(stacked), np.asarray(one)))
                        self.assertEqual(np.asarray(stacked).tobytes(), rows[:16].tobytes())
                    del batch, stacked, one

    def test_at_once_is_as_one_by_one(self):
        """Records with even and uneven spacing, of bytes and of typed arrays."""
        with tempfile.TemporaryDirectory() as tmp:
            for format, size in (("fixed:64", 64), ("fixed:37", 37), ("fixed:64+5", 64)):
                folder = "%s/%s" % (tmp, format)
                os.mkdir(folder)
                with open(folder + "/a.bin", "wb") as f:
                    head = 5 * format.endswith("+5")
                    content = os.urandom(50 * size + head)
                    f.write(content)
                    content = content[head:]
                for framework in ["numpy"] + ["torch"] * (torch is not None):
                    for order in "global", "sequential":
                        with leat.Dataset(folder, format=format) as ds, leat.DataLoader(
                                ds, 10, seed=1, framework=framework, order=order) as loader:
                            for batch in loader:
                                at_once = np.asarray(batch.stack("record")).copy()
                                self.assertEqual(at_once.shape, (10, size))
                                for i, row, one in zip(batch.ids.tolist(), at_once,
                                                       batch["record"]):
                                    self.assertEqual(row.tobytes(), np.asarray(one).tobytes())
                                    self.assertEqual(row.tobytes(), content[i * size:][:size])
                                    one[0] = 1 - one[0]  # a tensor like any other
                                at_once[:, 0] = 1 - at_once[:, 0]
                                self.assertTrue((np.asarray(batch.stack("record")) ==
                                                 at_once).all())

    def test_typed_rows_that_lie_anywhere(self):
        """Tensors must be aligned to their element: else they are copied."""
        with tempfile.TemporaryDirectory() as tmp:
            rows = np.random.default_rng(2).standard_normal((60, 7)).astype("<f8")
            np.save(tmp + "/rows.npy", rows)
            for framework in ["numpy"] + ["torch"] * (torch is not None):
                with leat.Dataset(tmp, format="npy") as ds, leat.DataLoader(
                        ds, 20, seed=3, framework=framework) as loader:
                    for batch in loader:
                        field, = batch
                        self.assertEqual(np.asarray(batch.stack(field)).tobytes(),
                                         rows[batch.ids.astype(int)].tobytes())

    def test_fields_are_made_when_they_are_asked_for(self):
        """All ways to read a dict."""
        ways = {"[]": lambda b: {"record": b["record"]}, "dict": dict, "**": lambda b: dict(**b),
                "{**}": lambda b: {**b}, "items": lambda b: dict(b.items()),
                "values": lambda b: dict(zip(b, b.values())), "copy": lambda b: b.copy(),
                "get": lambda b: {"record": b.get("record")}, "or": lambda b: b | {},
                "ror": lambda b: {} | b, "pop": lambda b: {"record": b.pop("record")},
                "popitem": lambda b: dict([b.popitem()]),
                "setdefault": lambda b: {"record": b.setdefault("record", 1)},
                "copy.copy": copy.copy, "pickle": lambda b: pickle.loads(pickle.dumps(b)),
                "iter": lambda b: {k: b[k] for k in b}, "update": update}
        with tempfile.TemporaryDirectory() as tmp:
            with open(tmp + "/a.bin", "wb") as f:
                f.write(bytes(range(256)))
            with leat.Dataset(tmp, format="fixed:32", framework="numpy") as ds:
                for name, way in ways.items():
                    batch = ds[[1, 3]]
                    self.assertEqual((len(batch), list(batch.keys()), "record" in batch,
                                      "other" in batch), (2, ["record"], True, False))
                    got = way(batch)
                    self.assertEqual([bytes(s) for s in got["record"]],
                                     [bytes(range(32, 64)), bytes(range(96, 128))], name)
                batch = ds[[0]]
                self.assertIn("record", repr(batch))
                self.assertIsNone(batch.get("other"))
                with self.assertRaises(KeyError):
                    batch["other"]  # pylint: disable=pointless-statement
                with self.assertRaises(KeyError):
                    batch.pop("other")
                batch["mine"] = 7
                self.assertEqual((batch["mine"], sorted(batch)), (7, ["mine", "record"]))

    def test_what_cannot_be_stacked(self):
        with tempfile.TemporaryDirectory() as tmp:
            for i in range(2):
                with open("%s/%d" % (tmp, i), "wb") as f:
                    f.write(b"x" * (i + 1))
            with leat.Dataset(tmp, framework="numpy") as ds:
                with self.assertRaises(ValueError):
                    ds[[0, 1]].stack("data")


if __name__ == "__main__":
    unittest.main()
