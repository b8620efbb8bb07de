#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""leat.webdataset, leat.tf, leat.dali and leat.horovod. TensorFlow, DALI and Horovod are not
available as packages here: stand-ins below check the arguments that the documentation of the real
ones requires. The samples themselves are compared with what tarfile reads."""
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import leat.dali  # noqa: E402
import leat.horovod  # noqa: E402
import leat.tf  # noqa: E402
import leat.webdataset  # noqa: E402
import test_loader  # noqa: E402
from test_loader import PER_SHARD, SAMPLES, SHARDS, payload  # noqa: E402

try:
    import torch
except ImportError:
    torch = None


def label_of(sample):
    return int(sample["cls"])


def same(items):
    return items


class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.src = cls.tmp.name + "/shards"
        os.mkdir(cls.src)
        test_loader.make_shards(cls.src)
        cls.plain = {}  # key: fields, by another reader
        for shard in sorted(os.listdir(cls.src)):
            with tarfile.open(cls.src + "/" + shard) as tar:
                for member in tar:
                    key, extension = member.name.rsplit(".", 1)
                    cls.plain.setdefault(key, {})[extension] = tar.extractfile(member).read()

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()


class WebDataset(Base):
    def test_braces(self):
        expand = leat.webdataset.expand
        self.assertEqual(expand("a-{08..11}.tar"), ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"])
        self.assertEqual(expand("{x,y}/{0..1}"), ["x/0", "x/1", "y/0", "y/1"])
        self.assertEqual(expand("a.tar"), ["a.tar"])
        for wrong in ("{3..1}", "{0..99999999}", "{0..9999}{0..9999}"):
            with self.assertRaises(ValueError):
                expand(wrong)
        with self.assertRaises(ValueError):
            leat.webdataset.dataset("/{a,b}/x.tar")

    def test_samples_are_those_of_the_tar_files(self):
        urls = self.src + "/train-{00..%02d}.tar" % (SHARDS - 1)
        for order in ("window", "global", "sequential"):
            data = leat.webdataset.dataset(urls, seed=1, order=order)
            self.assertEqual(len(data), SAMPLES)
            orders = []
            for _ in range(2):
                got = list(data)
                orders.append([s["__key__"] for s in got])
                self.assertEqual({s["__key__"]: {k: v for k, v in s.items() if k[0] != "_"}
                                  for s in got}, self.plain)
                self.assertEqual(len(got), SAMPLES)
            self.assertEqual(orders[0] == orders[1], order == "sequential")
        data.dataset.close()

    def test_some_of_the_shards(self):
        data = leat.webdataset.dataset([self.src + "/train-01.tar"])
        self.assertEqual(len(list(data)), PER_SHARD)
        with self.assertRaisesRegex(ValueError, "2 shards were asked for"):
            leat.webdataset.dataset(self.src + "/train-{00..01}.tar")
        # As many as requested, but other ones.
        urls = [self.src + "/train-%02d.tar" % i for i in range(1, SHARDS)] + [
            self.src + "/train-99.tar"]
        with self.assertRaisesRegex(ValueError, "train-99.tar is not there; train-00.tar was not"):
            leat.webdataset.dataset(urls)

    def test_pipelines(self):
        data = leat.webdataset.dataset(self.src, seed=1)
        tuples = list(data.select(lambda s: s["cls"] != b"0").map_dict(cls=int)
                      .to_tuple("png;bin", "cls", "__key__"))
        self.assertEqual({k: (b, c) for b, c, k in tuples},
                         {k: (f["bin"], int(f["cls"])) for k, f in self.plain.items()
                          if f["cls"] != b"0"})
        sizes = [len(b) for b in data.map(label_of).batched(30)]
        self.assertEqual(sizes, [30, 30, 30, 10])
        self.assertEqual(len(list(data.map(label_of).batched(30, partial=False))), 3)
        with self.assertRaisesRegex(KeyError, "has no jpg or jpeg, only __key__"):
            list(data.to_tuple("jpg;jpeg"))

    def test_what_is_no_function_is_told_at_once(self):
        data = leat.webdataset.dataset(self.src)
        with self.assertRaisesRegex(TypeError, r"decode takes a function, not 'pil': "
                                    r"wds\.DataPipeline\(data, wds\.decode\('pil'\)\)"):
            data.decode("pil")
        for method in (data.map, data.select, lambda f: data.map_dict(cls=f)):
            with self.assertRaisesRegex(TypeError, "takes a function, not 7"):
                method(7)

    def test_ranks_share_the_epoch(self):
        keys = []
        for rank in range(3):
            data = leat.webdataset.dataset(self.src, seed=5, rank=rank, world=3, chunk=4)
            keys += [s["__key__"] for s in data]
        self.assertEqual(sorted(keys), sorted(self.plain))

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_in_an_unmodified_torch_data_loader(self):
        data = leat.webdataset.dataset(self.src, seed=5, chunk=7).to_tuple("__key__", "cls")
        again = pickle.loads(pickle.dumps(data))
        for pipeline, workers in ((data, 0), (data, 3), (again, 2)):
            loader = torch.utils.data.DataLoader(pipeline, batch_size=7, num_workers=workers,
                                                 collate_fn=same)
            got = [pair for batch in loader for pair in batch]
            self.assertEqual(dict(got), {k: f["cls"] for k, f in self.plain.items()})
            self.assertEqual(len(got), SAMPLES)


    @unittest.skipIf(torch is None, "torch is not installed")
    def test_each_pass_of_workers_is_another_epoch(self):
        def passes(n, workers, first=0, **options):
            data = leat.webdataset.dataset(self.src, seed=5, chunk=7)
            loader = torch.utils.data.DataLoader(data, batch_size=7, num_workers=workers,
                                                 collate_fn=same, **options)
            data.set_epoch(first)
            return data, loader, [self.keys(loader) for _ in range(n)]

        _, _, want = passes(4, 0)
        self.assertEqual([sorted(keys) for keys in want], [sorted(self.plain)] * 4)
        self.assertEqual(len({tuple(keys) for keys in want}), 4)
        data, loader, got = passes(2, 3)
        self.assertEqual(got, want[:2])
        next(iter(loader))  # an interrupted pass counts as one, whichever worker began it
        self.assertEqual(self.keys(loader), want[3])
        self.assertEqual(self.keys(data.select(bool)), passes(1, 0, 4)[2][0])
        data.set_epoch(1)
        self.assertEqual(self.keys(loader), want[1])
        data, loader, got = passes(2, 2, 1, persistent_workers=True)
        self.assertEqual(got, want[1:3])
        data.set_epoch(0)
        self.assertEqual([self.keys(loader) for _ in range(3)], want[:3])
        context = torch.multiprocessing.get_context("spawn")
        self.assertEqual(passes(2, 2, 2, multiprocessing_context=context)[2], want[2:])

    @staticmethod
    def keys(loader):
        return [s["__key__"] for batch in loader
                for s in (batch if isinstance(batch, list) else [batch])]


class TensorSpec:
    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype


def tensorflow_stand_in():
    """from_generator as documented: the generator is called for each pass; each element is a nest
    of arrays that must fit the signature; strings are object arrays of bytes. Everything is
    copied."""
    tf = types.ModuleType("tensorflow")
    tf.int64, tf.float32, tf.string = np.dtype("int64"), np.dtype("float32"), np.dtype(object)
    tf.as_dtype, tf.TensorSpec = np.dtype, TensorSpec

    class Generated:
        def __init__(self, make, signature):
            self.make, self.signature = make, signature

        def __iter__(self):
            for element in self.make():
                if set(element) != set(self.signature):
                    raise TypeError("other keys than the signature's")
                yield {k: self.convert(v, self.signature[k]) for k, v in element.items()}

        @staticmethod
        def convert(value, spec):
            shape = spec.shape
            if value.dtype != spec.dtype or shape is not None and (
                    len(shape) != value.ndim or any(
                        s is not None and s != n for s, n in zip(shape, value.shape))):
                raise TypeError("%s%s is none of %s%s" % (value.dtype, value.shape, spec.dtype,
                                                          shape))
            if value.dtype == object and not all(type(b) is bytes for b in value):
                raise TypeError("not bytes")
            return value.copy()

    tf.data = types.SimpleNamespace(Dataset=types.SimpleNamespace(
        from_generator=lambda make, output_signature: Generated(make, output_signature)))
    return tf


class Tensorflow(Base):
    def setUp(self):
        self.assertNotIn("tensorflow", sys.modules)
        sys.modules["tensorflow"] = tensorflow_stand_in()
        self.addCleanup(sys.modules.pop, "tensorflow")

    def test_a_stand_in_for_tensorflow_gets_strings(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 8, seed=1, tail="shorter", depth=2,
                                                           framework="numpy") as loader:
            data = leat.tf.dataset(loader)
            for _ in range(2):
                ids = []
                for step in data:
                    ids += step["__ids__"].tolist()
                    self.assertEqual([payload(i) for i in step["__ids__"].tolist()],
                                     step["bin"].tolist())
                self.assertEqual(sorted(ids), list(range(SAMPLES)))

    def test_a_stand_in_for_tensorflow_gets_dense_arrays_and_decoded_ones(self):
        rows = np.arange(40 * 6, dtype="<f4").reshape(40, 2, 3)
        np.save(self.tmp.name + "/rows.npy", rows)
        with leat.Dataset(self.tmp.name + "/row*.npy", format="npy") as ds:
            with leat.DataLoader(ds, 8, framework="numpy") as loader:
                for step in leat.tf.dataset(loader):
                    np.testing.assert_array_equal(step[ds.fields[0]], rows[step["__ids__"]])
        with leat.Dataset(self.src) as ds, leat.DataLoader(
                ds, 8, fields=["cls"], framework="numpy",
                decode={"cls": lambda a: np.float32(int(a.tobytes()))}) as loader:
            for step in leat.tf.dataset(loader):
                np.testing.assert_array_equal(step["cls"], step["__ids__"] % 7)


class DaliPipeline:
    """external_source(source, num_outputs, batch=True): one call per batch returns a tuple of lists
    of contiguous arrays, which are copied immediately; StopIteration ends the epoch until
    reset()."""

    def __init__(self, source, num_outputs, batch_size):
        self.source, self.num_outputs, self.batch_size = source, num_outputs, batch_size
        self.ended = False

    def run(self):
        if self.ended:
            raise StopIteration
        try:
            outputs = self.source()
        except StopIteration:
            self.ended = True
            raise
        if type(outputs) is not tuple or len(outputs) != self.num_outputs:
            raise TypeError("not a tuple of %d outputs" % self.num_outputs)
        for output in outputs:
            if type(output) is not list or len(output) > self.batch_size:
                raise TypeError("not a list of at most %d samples" % self.batch_size)
            if len({(a.dtype, a.ndim) for a in output}) != 1:
                raise TypeError("samples of different types")
        return [[np.ascontiguousarray(a).copy() for a in output] for output in outputs]

    def reset(self):
        self.ended = False


class Dali(Base):
    def test_a_stand_in_for_dali_runs_two_epochs(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 10, seed=1, depth=2,
                                                           framework="numpy") as loader:
            source = leat.dali.source(loader, ["cls", "bin"])
            self.assertEqual(len(source), SAMPLES // 10)
            pipe = DaliPipeline(source, 2, 10)
            wanted = sorted((f["cls"], f["bin"]) for f in self.plain.values())
            for _ in range(2):
                got = []
                with self.assertRaises(StopIteration):
                    while True:
                        labels, data = pipe.run()
                        got += [(a.tobytes(), b.tobytes()) for a, b in zip(labels, data)]
                self.assertEqual(sorted(got), wanted)
                pipe.reset()
            self.assertEqual(sum(1 for _ in source), SAMPLES // 10)
            with self.assertRaises(ValueError):
                leat.dali.source(loader, ["jpg"])


class HorovodStandIn:
    """One of `world` ranks; ranks that start later get what rank 0 broadcasts."""
    board: dict = {}

    def __init__(self, rank, world, initialised=True):
        self._rank, self._world, self._initialised = rank, world, initialised

    def is_initialized(self):
        return self._initialised

    def rank(self):
        return self._rank

    def size(self):
        return self._world

    def broadcast_object(self, value, root_rank, name):
        if self._rank == root_rank:
            self.board[name] = pickle.dumps(value)
        return pickle.loads(self.board[name])


class Horovod(Base):
    def test_a_stand_in_for_horovod_shares_epoch_and_state(self):
        with leat.Dataset(self.src) as ds:
            with self.assertRaisesRegex(ValueError, "init"):
                leat.horovod.loader(HorovodStandIn(0, 1, False), ds, 4)
            with self.assertRaisesRegex(ValueError, "tail"):
                leat.horovod.loader(HorovodStandIn(0, 2), ds, 4, tail="shorter")
            with leat.horovod.loader(HorovodStandIn(0, 1), ds, 10, seed=1) as one:
                seen = [i for _ in range(3) for i in one.next().ids.tolist()]
                state = one.state_dict()
            for rank in range(2):  # continues with two ranks
                hvd = HorovodStandIn(rank, 2)
                with leat.horovod.loader(hvd, ds, 5, seed=1) as loader:
                    leat.horovod.restore(hvd, loader, state if rank == 0 else None)
                    seen += [i for b in loader for i in b.ids.tolist()]
            self.assertEqual(sorted(seen), list(range(SAMPLES)))
            leat.horovod.restore(HorovodStandIn(0, 1), None, None)


class Imports(unittest.TestCase):
    def test_everything_is_importable_without_the_frameworks(self):
        code = ("import sys\n"
                "class Nothing:\n"
                "    def find_spec(self, name, path=None, target=None):\n"
                "        if name.split('.')[0] in ('torch', 'tensorflow', 'nvidia', 'horovod',"
                "'webdataset'):\n"
                "            raise ImportError('not here: ' + name)\n"
                "sys.meta_path.insert(0, Nothing())\n"
                "import leat, leat.tf, leat.dali, leat.webdataset, leat.horovod, leat.checkpoint\n"
                "try:\n    leat.IterableDataset\n"
                "except ImportError as error:\n    print(error)\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=SRC + "/client/python"), check=False)
        self.assertEqual((done.stdout, done.stderr), ("not here: torch\n", ""))


if __name__ == "__main__":
    unittest.main()
