#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Stopped after any batch and continued from its state, each sample comes exactly once, or the
state is refused with a message: under torch's DataLoader and under a stand-in for torchdata's
StatefulDataLoader, with no workers and with several."""
import copy
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402

try:
    import torch
    from torch.utils.data import DataLoader
    import stateful_standin
    from stateful_standin import StatefulDataLoader
except ImportError:
    torch = None
SAMPLES, STEP = 40, 4
LONG = os.environ.get("LEAT_LONG") == "1"


def ids_of(samples):
    """The ids of samples, or of a whole step."""
    if isinstance(samples, dict):
        return samples["__ids__"].tolist()
    for s in samples:
        if int(s["data"][0]) != s["__id__"]:
            raise AssertionError("sample %d is wrong" % s["__id__"])
    return [s["__id__"] for s in samples]


@unittest.skipIf(torch is None, "torch is not installed")
class ExactlyOnce(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        for i in range(SAMPLES):
            with open("%s/%02d.bin" % (cls.tmp.name, i), "wb") as f:
                f.write(bytes([i]))
        cls.ds = leat.Dataset(cls.tmp.name + "/*.bin")
        with leat.DataLoader(cls.ds, STEP, seed=1, epoch=3, framework="numpy") as loader:
            cls.order = [b.ids.tolist() for b in loader]

    @classmethod
    def tearDownClass(cls):
        cls.ds.close()
        cls.tmp.cleanup()

    def data(self, **options):
        data = leat.IterableDataset(self.ds, STEP, seed=1, **options)
        data.set_epoch(3)
        return data

    def once(self, *heads_and_rest):
        got = sum(sum(heads_and_rest, []), [])
        self.assertEqual((len(got), len(set(got))), (SAMPLES, SAMPLES))

    def every_stop(self, make, state_of, load):
        """make(state) returns an iterable; the test stops after each of its batches."""
        loader, heads, states = make(), [], []
        for batch in loader:
            heads.append(batch)
            states.append(copy.deepcopy(state_of(loader, len(heads))))
        self.once(heads)
        for k, state in enumerate(states):
            again = make()
            load(again, json.loads(json.dumps(state)))
            self.once(heads[:k + 1], list(again))
        return len(states)

    def test_torch_without_workers_and_with_batches_of_any_size(self):
        for size, options in ((STEP, {}), (3, {}), (1, {}), (7, {}), (None, {"batched": True})):
            data = [None]

            def make(size=size, options=options, data=data):
                data[0] = self.data(**options)
                return DataLoader(data[0], batch_size=size, collate_fn=ids_of)

            self.every_stop(make, lambda loader, n: loader.dataset.state_dict(),
                            lambda loader, state: loader.dataset.load_state_dict(state))

    def test_torch_with_workers_needs_to_be_told(self):
        for before, after in ((1, 3), (2, 2), (3, 0), (0, 2)):
            for k in range(1, SAMPLES // STEP + 1, 1 if LONG or before == 2 else 4):
                data, heads = self.data(), []
                for batch in DataLoader(data, batch_size=STEP, num_workers=before,
                                        collate_fn=ids_of):
                    heads.append(batch)
                    if len(heads) == k:
                        break
                if before:
                    with self.assertRaisesRegex(ValueError, r"state_dict\(batches=N\).*Stateful"):
                        data.state_dict()
                else:
                    self.assertEqual(data.state_dict(), data.state_dict(batches=k))
                again = self.data()
                again.load_state_dict(data.state_dict(batches=k))
                again.set_epoch(3)
                self.once(heads, list(DataLoader(again, batch_size=STEP, num_workers=after,
                                                 collate_fn=ids_of)))

    def test_more_steps_than_were_given_are_refused(self):
        """A DataLoader with another batch_size, whose batches are counted like steps."""
        for workers in (0, 2):
            data = self.data()
            batches = iter(DataLoader(data, batch_size=1, num_workers=workers, collate_fn=ids_of))
            for _ in range(12):
                next(batches)
            with self.assertRaisesRegex(ValueError, "12 steps of this pass cannot .*batch_size"):
                data.state_dict(batches=12)
            self.assertEqual(data.state_dict(batches=3)["pos"], 3 * STEP)

    def test_an_older_pass_here_is_not_taken_for_that_of_workers(self):
        data = self.data()
        next(iter(data))
        self.assertEqual(data.state_dict()["skip"], 1)
        loader = iter(DataLoader(data, batch_size=STEP, num_workers=1, collate_fn=ids_of))
        next(loader)
        self.assertRaisesRegex(ValueError, "no batch of this pass", data.state_dict)
        with leat.DataLoader(self.ds, STEP, seed=1) as other:
            other.load_state_dict(data.state_dict(batches=1))
            self.assertEqual(other.next().ids.tolist(), self.order[1])

    def test_a_stand_in_for_stateful_data_loader_of_torchdata(self):
        stops = 0
        for workers in (0, 1, 2, 3):
            ways = ((STEP, {}), (3, {}), (None, {"batched": True}))
            for size, options in ways if LONG or workers in (0, 2) else ways[:1]:
                stops += self.every_stop(
                    lambda w=workers, s=size, o=options: StatefulDataLoader(
                        leat.IterableDataset(self.ds, STEP, seed=1, **o), s, w, ids_of),
                    lambda loader, n: loader.state_dict(),
                    lambda loader, state: loader.load_state_dict(state))
        print("%d stops, %d of %d samples after each" % (stops, SAMPLES, SAMPLES))

    def test_a_stand_in_for_stateful_data_loader_goes_on_in_the_epoch_and_then_the_next(self):
        for workers in (0, 2):
            loader = StatefulDataLoader(self.data(), STEP, workers, ids_of)
            batches = iter(loader)
            heads = [next(batches) for _ in range(5)]
            again = leat.IterableDataset(self.ds, STEP, seed=1)
            other = StatefulDataLoader(again, STEP, workers, ids_of)
            other.load_state_dict(loader.state_dict())
            batches.close()
            self.assertEqual(heads + list(other), self.order)
            self.assertEqual(list(other), self.order, "without set_epoch each pass is the same")
            again.set_epoch(4)
            self.once(list(other))

    def test_a_stand_in_for_stateful_data_loader_with_another_number_of_workers(self):
        """If the loader itself does not refuse, the data set does."""
        loader = StatefulDataLoader(self.data(), STEP, 2, ids_of)
        batches = iter(loader)
        next(batches)
        workers = loader.state_dict()["workers"]
        batches.close()
        for number, states in ((3, workers + workers[:1]), (1, workers[:1]), (2, workers[::-1])):
            other = StatefulDataLoader(self.data(), STEP, number, ids_of)
            other.load_state_dict({"workers": states, "turn": 0})
            with self.assertRaisesRegex(ValueError, "as many workers as it had.*leat.DataLoader"):
                list(other)
        state = workers[0]["dataset"]
        with self.assertRaisesRegex(ValueError, "this is no worker"):
            self.data().load_state_dict(state)
        with leat.DataLoader(self.ds, STEP, seed=1) as other, \
                self.assertRaisesRegex(ValueError, "worker 0 of 2 .*only leat.IterableDataset"):
            other.load_state_dict(state)

    def test_a_stand_in_for_stateful_data_loader_asks_samplers_ahead(self):
        def sampler(**options):
            result = leat.Sampler(self.ds, STEP, seed=1, **options)
            result.set_epoch(3)
            return result

        for ahead in (1, 6):
            for size, options in ((STEP, {}), (3, {}), (None, {"batched": True})):
                self.every_stop(
                    lambda a=ahead, s=size, o=options: stateful_standin.StatefulSampling(
                        sampler(**o), s, a),
                    lambda loader, n: loader.state_dict(),
                    lambda loader, state: loader.load_state_dict(state))

    def test_the_middle_of_a_step(self):
        data = self.data()
        items = iter(data)
        head = [next(items)["__id__"] for _ in range(6)]
        state = data.state_dict()
        self.assertEqual((state["pos"], state["skip"]), (STEP, 2))
        with leat.DataLoader(self.ds, STEP, seed=1) as other, \
                self.assertRaisesRegex(ValueError, "in the middle of a step"):
            other.load_state_dict(state)
        two = leat.IterableDataset(self.ds, global_batch=STEP, seed=1, rank=0, world=2)
        for wrong in (self.data(batched=True), leat.Sampler(self.ds, STEP, seed=1, batched=True),
                      two):
            with self.assertRaisesRegex(ValueError, "in the middle of a step"):
                wrong.load_state_dict(state)
        for skip in (4, -1, 2.0, 1 << 70):
            with self.assertRaises(ValueError):
                data.load_state_dict(dict(state, skip=skip))
        again = self.data()
        again.load_state_dict(state)
        rest = sum(DataLoader(again, batch_size=STEP, num_workers=2, collate_fn=ids_of), [])
        self.assertEqual(sorted(head + rest), list(range(SAMPLES)))
        self.assertRaisesRegex(ValueError, "cannot be counted", again.state_dict, batches=1)

    def test_who_takes_batches_ahead_of_the_loop_says_how_many_it_consumed(self):
        """Like tf.data's prefetch and DALI's queue."""
        for consumed in range(SAMPLES // STEP + 1):
            with leat.DataLoader(self.ds, STEP, seed=1, epoch=3, framework="numpy") as loader:
                source = leat.dali.source(loader)
                taken = [[int(a[0]) for a in source()[0]]
                         for _ in range(min(consumed + 3, SAMPLES // STEP))]
                head = taken[:consumed]
                state = loader.state_at(3, consumed)
            with leat.DataLoader(self.ds, STEP, seed=1, framework="numpy") as loader:
                loader.load_state_dict(state)
                self.once(head, [b.ids.tolist() for b in loader])

    def test_one_pass_at_a_time(self):
        data = self.data()
        first = iter(data)
        next(first)
        second = iter(data)
        with self.assertRaisesRegex(RuntimeError, "another pass"):
            next(first)
        self.assertEqual([s["__id__"] for s in second], sum(self.order, []))

    def test_ranks_stop_together_and_go_on_with_others(self):
        heads = []
        for rank in range(2):
            data = leat.IterableDataset(self.ds, global_batch=STEP, seed=1, rank=rank, world=2)
            batches = iter(DataLoader(data, batch_size=STEP // 2, collate_fn=ids_of))
            heads += [next(batches) for _ in range(3)]
            state = data.state_dict()
        rest = []
        for rank in range(4):
            data = leat.IterableDataset(self.ds, global_batch=STEP, seed=1, rank=rank, world=4)
            data.load_state_dict(state)
            rest += list(DataLoader(data, batch_size=1, num_workers=2, collate_fn=ids_of))
        self.once(heads, rest)


if __name__ == "__main__":
    unittest.main()
