#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package over local directories and staged copies."""
import gc
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import order_ref  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

SHARDS, PER_SHARD = 5, 20
SAMPLES = SHARDS * PER_SHARD


def payload(s):
    return bytes((s * 7 + i) % 251 for i in range(s * 31 % 3000 + (0 if s % 10 else 20000)))


def raw(array):
    """Of a numpy array or a tensor (bytes() of a tensor with one element means something else)."""
    return np.asarray(array).tobytes()


def add(tar, name, data, **more):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


def make_shards(folder):
    for i in range(SHARDS):
        # One of each dialect of tar.
        kind = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)[i % 3]
        with tarfile.open(folder + "/train-%02d.tar" % i, "w", format=kind) as tar:
            for s in range(i * PER_SHARD, (i + 1) * PER_SHARD):
                deep = kind != tarfile.USTAR_FORMAT and s % 5 == 0
                name = "d/" * (40 if deep else 1) + "s%04d" % s
                add(tar, name + ".bin", payload(s))
                add(tar, name + ".cls", str(s % 7).encode())


class Shards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.src, cls.to = cls.tmp.name + "/src", cls.tmp.name + "/to"
        os.mkdir(cls.src)
        os.mkdir(cls.to)
        make_shards(cls.src)

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def check(self, batch):
        for k, s in enumerate(batch.ids.tolist()):
            self.assertEqual(raw(batch["bin"][k]), payload(s))
            self.assertEqual(raw(batch["cls"][k]), str(s % 7).encode())

    def test_two_epochs_each_sample_once(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 8, seed=3, tail="shorter") as loader:
            self.assertEqual(len(ds), SAMPLES)
            self.assertEqual(sorted(ds.fields), ["bin", "cls"])
            self.assertEqual(len(loader), -(-SAMPLES // 8))
            orders = []
            for epoch in range(2):
                loader.set_epoch(epoch)
                ids = []
                for batch in loader:
                    self.check(batch)
                    ids += batch.ids.tolist()
                self.assertEqual(sorted(ids), list(range(SAMPLES)))
                orders.append(ids)
            self.assertNotEqual(orders[0], orders[1])

    def test_the_order_is_that_of_the_specification(self):
        sizes = {f: os.path.getsize(self.src + "/" + f) for f in os.listdir(self.src)}
        files = sorted((name.encode(), size) for name, size in sizes.items())
        word = order_ref.dataset_word(files)
        with leat.Dataset(self.src) as ds:
            self.assertEqual(ds.order_word, word)
            for mode in ("global", "window:2", "file", "sequential"):
                name, _, window = mode.partition(":")
                ref = order_ref.Order(name, int(window or 0), 11, 4, word, [PER_SHARD] * SHARDS)
                want = [ref(p) for p in range(SAMPLES)]
                order = ds.order(mode, seed=11, epoch=4)
                self.assertEqual([order[p] for p in range(SAMPLES)], want)
                with leat.DataLoader(ds, 10, seed=11, epoch=4, order=mode) as loader:
                    self.assertEqual([i for b in loader for i in b.ids.tolist()], want)

    def test_what_is_printed_is_short(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 8, seed=3) as loader:
            self.assertIn("%d steps an epoch" % len(loader), repr(loader))
            self.assertIn("fields bin, cls", repr(loader))
            self.assertIn(self.src, repr(loader))
            batch = loader.next()
            size = sum(map(len, batch["bin"]))
            for text in (repr(batch), str(batch)):
                self.assertIn("8 samples, epoch 0, step 0", text)
                self.assertIn("'bin': %d bytes" % size, text)
                self.assertLess(len(text), 200)
            again = pickle.loads(pickle.dumps(batch))
            self.assertIn("8 samples, epoch 0, step 0: 'bin', 'cls'", repr(again))
            del batch
        self.assertIn("closed", repr(loader))

    def test_state_and_resume(self):
        with leat.Dataset(self.src) as ds:
            with leat.DataLoader(ds, global_batch=12, seed=1, tail="shorter", rank=0,
                                 world=1) as loader:
                seen = []
                for k, batch in enumerate(loader):
                    seen += batch.ids.tolist()
                    if k == 2:
                        break
                state = json.loads(json.dumps(loader.state_dict()))
            self.assertLessEqual(len(json.dumps(state, separators=(",", ":"))), 256)
            for rank in range(3):
                with leat.DataLoader(ds, global_batch=12, seed=1, tail="shorter", rank=rank,
                                     world=3) as loader:
                    loader.load_state_dict(state)
                    seen += [i for b in loader for i in b.ids.tolist()]
            self.assertEqual(sorted(seen), list(range(SAMPLES)))
            with leat.DataLoader(ds, global_batch=10, seed=1) as loader:
                with self.assertRaises(leat.LeatError):
                    loader.load_state_dict(state)

    def test_staged_copy_is_preferred_and_verified(self):
        phases = []
        path = leat.stage_in(self.src, self.to, progress=lambda *what: phases.append(what[0]))
        self.assertIn("copy", phases)
        self.assertEqual(leat.stage_in(self.src, self.to), path)
        with leat.Dataset(self.src, stage_dir=self.to) as ds:
            self.assertEqual((ds.source, ds.path, len(ds.id)), ("copy", path, 64))
            with leat.DataLoader(ds, 16) as loader:
                for batch in loader:
                    self.assertTrue(batch.verified)
                    self.check(batch)
                metrics = loader.metrics()
                self.assertGreater(metrics["bytes_verified"], 0)
                self.assertEqual(metrics["batches"], SAMPLES // 16)
                self.assertEqual(set(metrics["stall_us"]),
                                 {"local", "server", "verify", "consumer", "start", "decode",
                                  "peer"})

    def test_a_batch_costs_the_same_calls_whatever_is_in_it(self):
        class Counted:
            calls = []

            def __getattr__(self, name):
                self.calls.append(name)
                return getattr(leat._lib.lib, name)

        modules = leat._loader, leat._batch
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 50, framework="numpy") as loader:
            loader.next()
            try:
                for m in modules:
                    m._c = Counted()
                batch = loader.next()
                self.assertEqual([len(batch[f]) for f in batch], [50] * len(ds.fields))
            finally:
                for m in modules:
                    m._c = leat._lib.lib
            del batch
        calls = [c for c in Counted.calls if c not in ("leat_next_within", "leat_errno")]
        self.assertEqual(sorted(calls), ["leat_batch_info", "leat_batch_unref"])

    def test_random_access(self):
        with leat.Dataset(self.src) as ds:
            sample = ds[7]
            self.assertEqual(raw(sample["bin"]), payload(7))
            self.assertEqual(sample["__key__"], "d/s0007")
            self.assertEqual(raw(ds[-1]["bin"]), payload(SAMPLES - 1))
            self.check(ds[[5, 5, 99]])
            self.assertEqual([s["__key__"] for s in ds.__getitems__([1, 2])],
                             ["d/s0001", "d/s0002"])
            with self.assertRaises(IndexError):
                ds[SAMPLES]

    def test_arrays_outlive_loader_and_data_set(self):
        ds = leat.Dataset(self.src)
        loader = leat.DataLoader(ds, 10)
        batch = next(iter(loader))
        ids, arrays = batch.ids, batch["bin"]
        loader.close()
        ds.close()
        del batch, loader, ds
        gc.collect()
        for s, array in zip(ids.tolist(), arrays):
            self.assertEqual(raw(array), payload(s))

    def test_holding_everything_is_an_error_not_a_hang(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 5, depth=3) as loader:
            kept = [loader.next() for _ in range(3)]
            with self.assertRaises(leat.LeatError) as raised:
                loader.next()
            self.assertEqual(raised.exception.errno, 16)
            one = kept.pop()["bin"][0]
            with self.assertRaises(leat.LeatError):
                loader.next()  # one array still keeps the slot
            del one
            self.check(loader.next())

    def test_errors_name_the_file(self):
        with self.assertRaises(leat.LeatError) as raised:
            leat.Dataset("/no/such/folder")
        self.assertEqual((raised.exception.errno, raised.exception.filename),
                         (2, "/no/such/folder"))
        again = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((again.errno, again.filename), (2, "/no/such/folder"))
        with leat.Dataset(self.src) as ds:
            with self.assertRaises(leat.LeatError):
                leat.DataLoader(ds, 8, fields=["jpg"])
            with self.assertRaises(ValueError):
                leat.DataLoader(ds)

    def test_fields_and_decode(self):
        with leat.Dataset(self.src) as ds:
            with leat.DataLoader(ds, 10, fields=["cls"],
                                 decode={"cls": lambda a: int(raw(a))}) as loader:
                for batch in loader:
                    self.assertEqual(list(batch), ["cls"])
                    self.assertEqual(batch["cls"], [s % 7 for s in batch.ids.tolist()])

    def test_what_decode_is_not(self):
        with leat.Dataset(self.src) as ds:
            with self.assertRaisesRegex(TypeError, "decode is a dict .field: function.*'pil'"):
                leat.DataLoader(ds, 10, decode="pil")
            with self.assertRaisesRegex(TypeError, r"decode\['cls'\] is a function.*'int'"):
                leat.DataLoader(ds, 10, decode={"cls": "int"})

    def test_an_error_in_decode_leaves_the_loader_usable(self):
        def broken(array):
            raise RuntimeError("decode")

        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 10, decode={"bin": broken},
                                                           depth=2) as loader:
            for _ in range(5):
                with self.assertRaises(RuntimeError):
                    loader.next()

    def test_interpreter_exit_with_batches_alive(self):
        code = ("import leat; ds = leat.Dataset(%r); loader = leat.DataLoader(ds, 5);"
                "it = iter(loader); batch = next(it); print(len(batch))" % self.src)
        done = subprocess.run([sys.executable, "-c", code], timeout=300, capture_output=True,
                              text=True,
                              env=dict(os.environ, PYTHONPATH=SRC + "/client/python"), check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "5\n", ""))

    def test_a_forked_child_gets_an_error(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 5) as loader:
            batch = loader.next()
            pid = os.fork()
            if pid == 0:
                try:
                    loader.next()
                    os._exit(1)
                except leat.LeatError as error:
                    os._exit(0 if "forked" in str(error) else 2)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.check(batch)

    def test_a_framework_is_known_and_there_or_told_at_once(self):
        with leat.Dataset(self.src) as ds:
            for opened in (leat.Dataset, lambda _, **o: leat.DataLoader(ds, 8, **o),
                           lambda _, **o: leat.Mixture([(ds, 1)], **o)):
                with self.assertRaisesRegex(ValueError, "numpy.*'tourch'"):
                    opened(self.src, framework="tourch")
                with unittest.mock.patch.dict(sys.modules, torch=None), \
                        self.assertRaisesRegex(ImportError, "torch"):
                    opened(self.src, framework="torch")

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch_tensors_without_a_copy(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 8, depth=2,
                                                           framework="torch") as loader:
            for batch in loader:
                tensor = batch["bin"][0]
                self.assertIsInstance(tensor, torch.Tensor)
                self.assertEqual(bytes(tensor.numpy()), payload(int(batch.ids[0])))
                del tensor
        with leat.Dataset(self.src, framework="numpy") as ds:
            stock = torch.utils.data.DataLoader(ds, batch_size=4, collate_fn=list)
            self.assertEqual(sum(len(b) for b in stock), SAMPLES)


class Files(unittest.TestCase):
    def test_classes(self):
        with tempfile.TemporaryDirectory() as tmp:
            for i in range(9):
                os.makedirs(tmp + "/" + "abc"[i % 3], exist_ok=True)
                with open("%s/%s/%d.txt" % (tmp, "abc"[i % 3], i), "w") as f:
                    f.write(str(i))
            with leat.Dataset(tmp) as ds, leat.DataLoader(ds, 9) as loader:
                self.assertEqual(ds.classes, ["a", "b", "c"])
                batch = loader.next()
                self.assertEqual([int(raw(d)) % 3 for d in batch["data"]], batch.labels.tolist())
                self.assertEqual(ds[0]["class"], 0)


class Package(unittest.TestCase):
    def test_pip_install_without_network(self):
        with tempfile.TemporaryDirectory() as tmp:
            copy = tmp + "/src"
            # Not what an earlier build may have left there.
            shutil.copytree(SRC + "/client/python", copy, ignore=shutil.ignore_patterns(
                "build", "*.egg-info", "__pycache__"))
            before = sorted((d, sorted(files)) for d, _, files in os.walk(copy))
            done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-index",
                                   "--no-deps", "--quiet",
                                   "--no-build-isolation", "--target", tmp + "/site", copy],
                                  capture_output=True, text=True,
                                  env=dict(os.environ, BUILD=BUILD,
                                           PIP_DISABLE_PIP_VERSION_CHECK="1"),
                                  check=False)
            if "No module named pip" in done.stderr:
                self.skipTest("pip is not installed")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted((d, sorted(files)) for d, _, files in os.walk(copy)), before,
                             "pip has left something in the source tree")
            for name in ("py.typed", "libleat.so"):
                self.assertTrue(os.path.exists(tmp + "/site/leat/" + name), name)
            code = ("import leat, leat.checkpoint, leat.webdataset, leat.dali, leat.tf;"
                    "print(leat.__version__, leat.__file__, leat._lib.lib._name)")
            out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                                 text=True, cwd=tmp,
                                 env={"PATH": os.environ["PATH"], "PYTHONPATH": tmp + "/site"})
            self.assertIn(tmp + "/site/leat/__init__.py " + tmp + "/site/leat/libleat.so",
                          out.stdout)


if __name__ == "__main__":
    unittest.main()
