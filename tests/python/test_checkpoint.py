#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""leat.checkpoint: load returns what save got, damage and foreign files are reported, a checkpoint
exists whole or not at all."""
import collections
import contextlib
import errno
import json
import math
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
from leat import _store, checkpoint  # noqa: E402
import test_loader  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

BIG = 5 << 20


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8),
                               torch.nn.Flatten(), torch.nn.Linear(8 * 26 * 26, 10))


def same(test, a, b, where=""):
    """Equal, with equal types."""
    test.assertEqual(type(a), type(b), where)
    if isinstance(a, dict):
        test.assertEqual(list(a), list(b), where)
        for k in a:
            same(test, a[k], b[k], "%s/%s" % (where, k))
    elif isinstance(a, (list, tuple)):
        test.assertEqual(len(a), len(b), where)
        for k, (x, y) in enumerate(zip(a, b)):
            same(test, x, y, "%s/%d" % (where, k))
    elif torch is not None and isinstance(a, torch.Tensor):
        test.assertEqual((a.dtype, a.shape), (b.dtype, b.shape), where)
        test.assertTrue(torch.equal(a, b), where)
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, where)
        test.assertEqual(a.dtype, b.dtype)
    elif isinstance(a, float) and math.isnan(a):
        test.assertTrue(math.isnan(b))
    else:
        test.assertEqual(a, b, where)


class Base(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.path = self.tmp.name + "/step-1"

    def tearDown(self):
        self.tmp.cleanup()

    def bad(self, path=None, words=None, **options):
        with self.assertRaises(leat.LeatError) as raised:
            checkpoint.load(path or self.path, **options)
        self.assertEqual(raised.exception.errno, 74, raised.exception)
        self.assertEqual(raised.exception.filename, path or self.path)
        if words:
            self.assertIn(words, str(raised.exception))


class Anything(Base):
    def state(self):
        rng = np.random.default_rng(1)
        return {"a": rng.integers(0, 255, BIG, np.uint8), "deep": [{"x": (1, 2.5, None, True)}] * 2,
                "sets": [{1, "x"}, frozenset((2,)), bytearray(b"x"), 1 - 2j], "np": np.float64(3),
                "odd": {3: "three", (1, (2, None)): b"\0\xff", None: "", 1.5: -math.inf,
                        False: math.nan},
                "zero": np.zeros((0, 4), np.float32), "scalar": np.array(7, np.int16),
                "order": collections.OrderedDict(b=1, a=2), "large": 1 << 100, "text": "ä\0\n",
                "turned": np.arange(12, dtype=np.float64).reshape(3, 4).T}

    def test_what_goes_in_comes_out(self):
        state = self.state()
        size = checkpoint.save(self.path, state, meta={"step": 1}, threads=3)
        self.assertEqual(size, os.path.getsize(self.path))
        self.assertEqual(os.listdir(self.tmp.name), ["step-1"])
        for options in ({}, {"mmap": False}, {"verify": False}, {"threads": 1}):
            same(self, state, checkpoint.load(self.path, **options))
        info = checkpoint.info(self.path)
        self.assertEqual((info.meta, info.loader, info.bytes), ({"step": 1}, None, size))
        self.assertEqual([t.name for t in info.tensors], ["a", "zero", "scalar", "turned"])
        self.assertTrue(all(t.off % 4096 == 0 for t in info.tensors))

    def test_what_cannot_be_stored_is_named_and_leaves_nothing(self):
        for wrong, where in (({"a": {"b": object()}}, "a/b"), ({"f": len}, "f"),
                             ({"o": np.array([object()])}, "o"),
                             ({"s": {np.int64(1)}}, "member of s"),
                             ({"m": np.ma.array([1])}, "m is a MaskedArray"),
                             ({"x": np.zeros(2, [("f", "O")])}, "x has the dtype"),
                             ({"k": {np.int64(3): 1}}, "key of k"),
                             ({"k": {"l": {(1, np.float32(2)): 1}}}, "key of k/l"),
                             ({frozenset(): 1}, "key of the state")):
            with self.assertRaisesRegex(TypeError, where):
                checkpoint.save(self.path, wrong)
        loop = []
        loop.append(loop)
        with self.assertRaises(ValueError):
            checkpoint.save(self.path, loop)
        with self.assertRaises(TypeError):
            checkpoint.save(self.path, {}, meta=object())
        with self.assertRaisesRegex(TypeError, "meta/a is a tensor"):
            checkpoint.save(self.path, {}, meta={"a": np.zeros(1)})
        with self.assertRaisesRegex(TypeError, "loader/x is a tensor"):
            checkpoint.save(self.path, {}, loader={"x": np.zeros(1)})
        with mock.patch.object(checkpoint, "_JSON_MAX", 1000), \
                self.assertRaisesRegex(ValueError, "besides its tensors"):
            checkpoint.save(self.path, {"text": "x" * 1000})
        self.assertEqual(os.listdir(self.tmp.name), [])
        with self.assertRaises(FileNotFoundError):
            checkpoint.load(self.path)
        with self.assertRaises(FileNotFoundError):
            checkpoint.save(self.tmp.name + "/no/folder", {})

    def test_every_byte_counts(self):
        checkpoint.save(self.path, {"a": np.arange(3000), "b": np.ones(5)})
        with open(self.path, "rb") as f:
            good = f.read()
        info = checkpoint.info(self.path)
        used = list(range(64)) + random.Random(1).sample(
            range(64, 64 + struct.unpack_from("<Q", good, 16)[0]), 60)
        used += [t.off + k for t in info.tensors for k in (0, t.len // 2, t.len - 1)]
        for at in used:
            self.write(good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1:])
            for mmap in (True, False):
                self.bad(mmap=mmap)
        for length in list(range(0, 70)) + [100, 4096, len(good) - 1]:
            self.write(good[:length])
            self.bad()
        self.write(good + b"\0")
        self.bad(words="should have")
        self.write(good)
        self.assertEqual(checkpoint.load(self.path)["b"].sum(), 5)

    def write(self, data):
        with open(self.path, "wb") as f:
            f.write(data)

    def forge(self, header, size=8192):
        """A file whose checksums are right and whose JSON is not."""
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        head = struct.pack("<8sIIQQQQQ", b"LEATCKPT", 2, 0, len(text), size, self.sum(text), 0, 0)
        data = head + struct.pack("<Q", self.sum(head)) + text
        self.write(data.ljust(size, b"\0"))

    @staticmethod
    def sum(data):
        return checkpoint._sum(memoryview(bytearray(data)))

    def test_a_hostile_header_is_refused(self):
        row = {"name": "a", "kind": "numpy", "dtype": "|i1", "size": 1, "shape": [4], "part": 0,
               "at": 0}
        part = {"off": 4096, "len": 4, "sums": ["%016x" % self.sum(bytes(4))]}
        good = {"tensors": [row], "parts": [part], "tree": {"t": 0}, "meta": None, "loader": None}
        self.forge(good)
        self.assertEqual(checkpoint.load(self.path).tolist(), [0] * 4)
        for change in ({"off": -4096}, {"off": 1 << 62}, {"off": 8192}, {"off": 4097}, {"len": 5},
                       {"len": -1}, {"sums": []}, {"sums": ["zz"]}, {"sums": [0]},
                       {"off": 4096.0}, {"off": None}, {"len": 3}):
            self.forge(dict(good, parts=[dict(part, **change)]))
            self.bad()
        torch_row = {"kind": "torch", "dtype": "int8", "grad": 0}
        for change in ({"shape": [-4]}, {"shape": [1 << 62, 1 << 62]}, {"shape": [0, 1 << 62]},
                       {"shape": [True] * 4}, {"shape": "four"}, {"shape": [5]}, {"shape": [0]},
                       {"dtype": "object"}, {"dtype": "|O"}, {"dtype": "O,i4"}, {"dtype": "<f8"},
                       {"dtype": "load"}, {"dtype": ["|i1"]}, {"dtype": {"base": "|i1"}},
                       {"dtype": {"base": "|i1", "dims": ["x"]}}, {"dtype": "ml_dtypes:os"},
                       {"dtype": {"names": ["a"], "formats": ["|O"], "offsets": [0],
                                  "titles": [None], "itemsize": 1}},
                       {"kind": "t"}, {"kind": "torch"}, {"name": 3}, {"shape": [1] * 100},
                       {"at": 1}, {"at": -1}, {"at": "0"}, {"part": 1}, {"part": -1},
                       {"part": None}, {"part": True}, {"strides": [2]}, {"strides": [-1]},
                       {"strides": [1, 1]}, {"strides": ["1"]}, {"strides": 1},
                       {"strides": [1 << 62]}, {"size": 2}, {"size": 0},
                       dict(torch_row, dtype="load"), dict(torch_row, grad=4),
                       dict(torch_row, grad=None), dict(torch_row, dtype="int16"),
                       dict(torch_row, dtype="int16", size=2, shape=[1], at=1),
                       dict(torch_row, strides=[-1], at=3)):
            self.forge(dict(good, tensors=[dict(row, **change)]))
            self.bad()
        for rows in (3, [3], [[]], None, {}):
            self.forge(dict(good, tensors=rows, tree={"t": 0}))
            self.bad()
        for tree in ({"t": 1}, {"t": -1}, {"t": True}, {"x": 0}, {"d": [[1]]}, {"d": 3},
                     [1], {"f": "1"}, {"b": "*"}, {"d": [[{"l": []}, 1]]}, {"l": {}},
                     {"o": [], "m": 3}, {}, {"t": 0, "d": [], "l": []}, {"b": 3}, {"n": 0},
                     {"i": "0x1"}, {"i": "1_0"}, {"i": 1}, {"c": [1]}, {"c": ["1", 1]},
                     {"e": [{"l": []}]}, {"z": 3}, {"h": ["x"]}, {"h": [1 << 80]}, {"a": "*"},
                     {"s": "/w=="}, {"g": ["<f8", "AA=="]}, {"g": ["|O", "AAAAAAAAAAA="]},
                     {"g": ["<f8"]}, {"g": ["<U1", "AAAR/w=="]}):
            self.forge(dict(good, tree=tree))
            self.bad()
        for text in (b"", b"{", b"[]", b"null", b"[" * 100000, b"\xff" * 10, b'{"tensors": 3}',
                     b'{"tensors": [], "parts": 3}', b'{"tensors": [{}], "parts": []}',
                     b'{"tensors": [], "parts": [3]}', b'{"tensors": [], "parts": [{}]}'):
            self.forge(text, 1 << 20)
            self.bad()
        nested = b'{"l":[' * 500 + b"1" + b"]}" * 500
        self.forge(b'{"tensors":[],"parts":[],"tree":' + nested + b"}")
        self.bad()

    def test_a_file_whose_last_part_is_empty_can_be_loaded(self):
        for state in ({}, {"e": np.zeros(0)}, {"w": np.ones(5), "e": np.zeros((3, 0))},
                      {"w": np.ones(4096, np.uint8), "e": np.zeros(0)},
                      {"e": np.zeros(0), "w": np.ones(5)}, {"e": np.zeros(0), "s": np.array(1)}):
            size = checkpoint.save(self.path, state)
            self.assertEqual(os.path.getsize(self.path), size)
            same(self, state, checkpoint.load(self.path))

    def test_names_that_are_spelled_alike(self):
        state = {1: np.full(1, 1), "1": np.full(1, 2), "a": {"b": np.full(1, 3)},
                 "a/b": np.full(1, 4), "\ud83d\ude00": np.full(1, 5), "😀": np.full(1, 6)}
        checkpoint.save(self.path, state)
        self.assertEqual([int(v[0] if not isinstance(v, dict) else v["b"][0])
                          for v in checkpoint.load(self.path).values()], [1, 2, 3, 4, 5, 6])
        names = [t.name for t in checkpoint.info(self.path).tensors]
        self.assertEqual(names, ["1", "1~2", "a/b", "a/b~2", "\\ud83d\\ude00", "😀"])
        self.assertEqual(int(checkpoint.load(self.path, names=["1~2"])["1~2"][0]), 2)

    def test_paths(self):
        folder = pathlib.Path(self.tmp.name)
        for path in (folder / "p", os.fsencode(folder / "b"), folder / ("n" * 255),
                     str(folder / ("ä" * 127))):
            checkpoint.save(path, {"a": 1})
            self.assertEqual(checkpoint.load(path), {"a": 1})
            self.assertEqual(checkpoint.info(path).tensors, [])
        self.assertEqual(len(os.listdir(folder)), 4)

    def test_meta_and_the_loaders_state_come_back_as_they_were(self):
        meta, state = {1: (2, math.inf), "b": b"x"}, {"epoch": 1, "more": {0: None}}
        checkpoint.save(self.path, {}, meta=meta, loader=state)
        info = checkpoint.info(self.path)
        same(self, [meta, state], [info.meta, info.loader])

    def test_saved_while_it_changes(self):
        """The checksums are those of the written bytes."""
        a, stop = np.zeros(BIG, np.uint8), threading.Event()

        def train():
            while not stop.is_set():
                np.add(a, 1, out=a)

        thread = threading.Thread(target=train)
        thread.start()
        try:
            for _ in range(10):
                checkpoint.save(self.path, {"a": a, "b": a[1:]})
                checkpoint.load(self.path)
        finally:
            stop.set()
            thread.join()

    def test_an_error_in_any_call_leaves_the_old_one(self):
        checkpoint.save(self.path, {"v": 1})
        state = {"a": np.ones(40 << 10, np.uint8), "b": np.ones(3), "e": np.zeros(0)}
        calls = []
        for k in range(100):
            count = iter(range(1000))
            with contextlib.ExitStack() as stack:
                stack.enter_context(mock.patch.object(checkpoint, "_BLOCK", 16 << 10))
                for name in ("write", "sync", "close", "publish"):
                    original = getattr(_store.LocalFile, name)

                    def step(file, *words, original=original, name=name):
                        if next(count) == k:
                            calls.append(name)
                            raise OSError(errno.EIO, "broken " + name)
                        return original(file, *words)

                    stack.enter_context(mock.patch.object(_store.LocalFile, name, step))
                try:
                    checkpoint.save(self.path, state, threads=1)
                    break
                except OSError as error:
                    self.assertIn("broken", str(error))
            self.assertEqual(checkpoint.load(self.path), {"v": 1})
            self.assertEqual(os.listdir(self.tmp.name), ["step-1"])
        self.assertEqual(calls, ["write"] * 5 + ["sync", "close", "publish"])
        with mock.patch.object(checkpoint, "_BLOCK", 16 << 10):
            same(self, state, checkpoint.load(self.path))

    def test_without_numpy_and_torch(self):
        """Each alone, and without both."""
        checkpoint.save(self.path, {"a": np.arange(3), "n": np.float32(2)})
        if torch is not None:
            checkpoint.save(self.path + "t", {"deep": {"w": torch.ones(2)}, "s": torch.Size([1])})
        code = ("import sys\n"
                "class Nothing:\n"
                "    def find_spec(self, name, path=None, target=None):\n"
                "        if name.split('.')[0] in sys.argv[2:]:\n"
                "            raise ImportError('not here: ' + name)\n"
                "sys.meta_path.insert(0, Nothing())\n"
                "from leat import checkpoint\n"
                "p = sys.argv[1]\n"
                "if 'numpy' not in sys.argv:\n"
                "    assert checkpoint.load(p)['a'].tolist() == [0, 1, 2]\n"
                "    a = checkpoint.load(p)\n"
                "    checkpoint.save(p + '2', a)\n"
                "    assert checkpoint.load(p + '2', names='a')['a'].tolist() == [0, 1, 2]\n"
                "checkpoint.save(p + '3', {'x': [1, b'2', None, {3}]})\n"
                "assert checkpoint.load(p + '3') == {'x': [1, b'2', None, {3}]}\n"
                "print([t.shape for t in checkpoint.info(p).tensors], end=' ')\n"
                "try:\n    checkpoint.load(p + 't')\n"
                "except ImportError as error:\n    print(error, end='')\n")
        for without in (["torch"], ["torch", "numpy"]):
            child = self.python(code, self.path, *without)
            out, err = child.communicate(timeout=300)
            told = "tensor deep/w is one of torch, which is not installed" if torch else ""
            self.assertEqual((out if torch else out[:7], err), ("[(3,)] " + told, ""), without)

    def test_bfloat16_and_fp8_of_ml_dtypes_where_it_is_installed(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("the package ml_dtypes (bfloat16 and float8 of numpy) is not installed")
        state = {n: np.arange(5).astype(getattr(ml_dtypes, n))
                 for n in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
        checkpoint.save(self.path, state)
        back = checkpoint.load(self.path)
        self.assertEqual({k: (v.dtype, v.tobytes()) for k, v in back.items()},
                         {k: (v.dtype, v.tobytes()) for k, v in state.items()})

    def test_arrays_that_share_memory_share_it_again(self):
        a = np.arange(1 << 16)
        state = {"a": a, "again": a, "part": a[10:20], "back": a[::-1],
                 "turned": a.reshape(2, -1).T}
        size = checkpoint.save(self.path, state)
        self.assertLess(size, a.nbytes + 8192)
        for options in ({}, {"mmap": False}):
            back = checkpoint.load(self.path, **options)
            same(self, state, back)
            self.assertIs(back["a"], back["again"])
            back["a"][15] = -1
            self.assertEqual([int(back["part"][5]), int(back["back"][-16]),
                              int(back["turned"][15, 0])], [-1] * 3)
            self.assertTrue(back["turned"].flags.f_contiguous)
        # A few columns of a large array: only their bytes are written.
        wide = np.arange(1 << 16).reshape(-1, 256)
        self.assertLess(checkpoint.save(self.path, [wide[:, 1], wide[:, 1:2]]), 32 << 10)
        same(self, [wide[:, 1], wide[:, 1:2]], checkpoint.load(self.path))

    def test_a_failed_save_leaves_the_old_one(self):
        checkpoint.save(self.path, {"v": 1})
        code = ("import resource, sys, numpy; from leat import checkpoint;"
                "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20));"
                "checkpoint.save(sys.argv[1], {'a': numpy.zeros(40 << 20, 'u1')})")
        done = self.python(code, self.path)
        self.assertIn("File too large", done.communicate(timeout=300)[1])
        self.assertEqual(checkpoint.load(self.path), {"v": 1})
        self.assertEqual(os.listdir(self.tmp.name), ["step-1"])

    def python(self, code, *words):
        return subprocess.Popen([sys.executable, "-c", code, *words], text=True,
                                env=dict(os.environ, PYTHONPATH=SRC + "/client/python"),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_killed_at_any_time_there_is_a_whole_one(self):
        checkpoint.save(self.path, {"step": -1, "a": np.full(BIG, 255, np.uint8)})
        code = ("import sys, numpy; from leat import checkpoint\n"
                "for step in range(10**6):\n"
                "    checkpoint.save(sys.argv[1], {'step': step, 'a': numpy.full(%d, step %% 251,"
                "'u1')})\n    print(step, flush=True)" % BIG)
        rng, best = random.Random(3), -1
        for _ in range(5):
            child = self.python(code, self.path)
            child.stdout.readline()
            time.sleep(rng.uniform(0, 0.3))
            child.send_signal(signal.SIGKILL)
            child.communicate()
            state = checkpoint.load(self.path)
            self.assertTrue((state["a"] == state["step"] % 251).all())
            best = max(best, state["step"])
        self.assertGreaterEqual(best, 0)

    def test_only_some(self):
        layers = {"layer%d" % i: {"weight": np.full((4, 4), i), "bias": np.full(4, -i)}
                  for i in range(3)}
        checkpoint.save(self.path, {"model": layers})
        some = checkpoint.load(self.path, names=["model/layer1/*", "*bias"])
        self.assertEqual(sorted(some), ["model/layer0/bias", "model/layer1/bias",
                                        "model/layer1/weight", "model/layer2/bias"])
        self.assertTrue((some["model/layer1/weight"] == 1).all())
        with self.assertRaisesRegex(KeyError, "nothing"):
            checkpoint.load(self.path, names=["nothing"])
        # Tensors that are not requested are not read: damage there does not matter.
        info = {t.name: t for t in checkpoint.info(self.path).tensors}
        with open(self.path, "r+b") as f:
            f.seek(info["model/layer0/weight"].off)
            f.write(b"x")
        checkpoint.load(self.path, names="model/layer2/weight")
        self.bad(words="model/layer0/weight")

    def test_what_is_loaded_may_be_written_to(self):
        checkpoint.save(self.path, {"a": np.zeros(10)})
        a = checkpoint.load(self.path)["a"]
        a += 1
        self.assertEqual(checkpoint.load(self.path)["a"].sum(), 0)
        checkpoint.save(self.path, {"a": np.full(10, 5.0)})
        self.assertEqual(a.sum(), 10)

    def test_the_loader_goes_on(self):
        src = self.tmp.name + "/src"
        os.mkdir(src)
        test_loader.make_shards(src)
        with leat.Dataset(src, framework="numpy") as ds:
            with leat.DataLoader(ds, 10, seed=4) as loader:
                seen = [loader.next().ids.tolist() for _ in range(4)]
                checkpoint.save(self.path, {}, loader=loader)
            with leat.DataLoader(ds, 10, seed=4) as loader:
                self.assertEqual(checkpoint.load(self.path, loader=loader), {})
                seen += [b.ids.tolist() for b in loader]
            with leat.DataLoader(ds, 10, seed=4) as loader:
                self.assertEqual(seen, [b.ids.tolist() for b in loader])
            checkpoint.save(self.path, {})
            with leat.DataLoader(ds, 10) as loader, self.assertRaisesRegex(ValueError, "no loader"):
                checkpoint.load(self.path, loader=loader)

    def test_no_descriptor_and_no_memory_is_left(self):
        state = {"a": np.zeros(1 << 20, np.uint8)}
        for k in range(300):
            checkpoint.save(self.path, state)
            loaded = checkpoint.load(self.path, mmap=k % 2 == 0)
            if k == 20:
                first = (len(os.listdir("/proc/self/fd")), self.resident())
        del loaded
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), first[0])
        self.assertLess(self.resident(), first[1] + (32 << 20))

    @staticmethod
    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(Base):
    def test_a_model_and_its_optimizer_go_on_exactly(self):
        def step(model, optimizer, k):
            torch.manual_seed(k)
            loss = model(torch.randn(4, 1, 28, 28)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        def optimizer_of(model):
            return torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.98))

        model = net()
        optimizer = optimizer_of(model)
        step(model, optimizer, 1)
        checkpoint.save(self.path, {"model": model.state_dict(), "opt": optimizer.state_dict(),
                                    "rng": torch.get_rng_state()})
        step(model, optimizer, 2)
        other = net()
        other_optimizer = optimizer_of(other)
        state = checkpoint.load(self.path)
        other.load_state_dict(state["model"])
        other_optimizer.load_state_dict(state["opt"])
        step(other, other_optimizer, 2)
        same(self, dict(model.state_dict()), dict(other.state_dict()))
        self.assertEqual(state["model"]._metadata["1"], {"version": 2})

    def test_types_strides_and_sharing(self):
        base = torch.arange(24.0).reshape(4, 6)
        state = {"bf16": base.bfloat16(), "half": base.half(), "bool": base > 3, "turned": base.t(),
                 "part": base[1:3, ::2], "scalar": torch.tensor(3, dtype=torch.int64),
                 "empty": torch.zeros(0, 3), "complex": torch.complex(base, -base).conj(),
                 "param": torch.nn.Parameter(base[0].clone()), "tied": [base, base],
                 "numpy": np.arange(3)}
        checkpoint.save(self.path, state)
        for mmap in (True, False):
            back = checkpoint.load(self.path, mmap=mmap)
            same(self, state, back)
            self.assertTrue(back["param"].requires_grad and back["param"].is_leaf)
            self.assertEqual(back["tied"][0].data_ptr(), back["tied"][1].data_ptr())
        self.assertEqual(len(checkpoint.info(self.path).tensors), 11)

    def test_what_a_checkpoint_cannot_hold_is_refused_by_name(self):
        base = torch.ones(2, 2)
        wrong = {"sparse": base.to_sparse(), "csr": base.to_sparse_csr(),
                 "quantized": torch.quantize_per_tensor(base, 0.1, 0, torch.qint8),
                 "meta": base.to("meta"), "mkldnn": base.to_mkldnn(),
                 "MaskedTensor": base.as_subclass(type("MaskedTensor", (torch.Tensor,), {})),
                 "UninitializedParameter": torch.nn.UninitializedParameter(),
                 "dimensions": torch.empty([1] * 70), "dtype": torch.float32}
        if hasattr(torch, "nested_tensor") or hasattr(torch, "nested"):
            wrong["nested"] = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
        for name, value in wrong.items():
            with self.assertRaisesRegex(TypeError, "model/0/%s is .*cannot hold" % name):
                checkpoint.save(self.path, {"model": [{name: value}]})
        self.assertEqual(os.listdir(self.tmp.name), [])

    def test_fp8_of_newer_torch_by_name_only_where_torch_lacks_it(self):
        """float8 and similar types: this torch may not have them. Then loading fails and names the
        type."""
        for dtype in ("float8_e4m3fn", "float8_e5m2", "uint16", "uint64"):
            if hasattr(torch, dtype):
                state = {"a": torch.arange(8, dtype=torch.uint8).view(getattr(torch, dtype))}
                checkpoint.save(self.path, state)
                self.assertEqual(checkpoint.load(self.path)["a"].dtype, getattr(torch, dtype))
                continue
            print("this torch has no " + dtype)
            size = checkpoint._tensors._TORCH[dtype]
            checkpoint.save(self.path, {"a": torch.zeros(8, dtype=[torch.uint8, torch.int16, 0,
                                                                   0, torch.int64][size // 2])})
            with open(self.path, "rb") as f:
                data = f.read()
            n, = struct.unpack_from("<Q", data, 16)
            header = json.loads(data[64:64 + n])
            header["tensors"][0]["dtype"] = dtype
            Anything.forge(self, header, len(data))
            self.assertEqual(checkpoint.info(self.path).tensors[0].dtype, dtype)
            with self.assertRaisesRegex(TypeError, "tensor a is of the type %s, which" % dtype):
                checkpoint.load(self.path)

    write, sum = Anything.write, staticmethod(Anything.sum)

    def test_views_of_one_buffer_are_stored_once_and_share_it_again(self):
        flat = torch.arange(1 << 16, dtype=torch.float32)
        state = {"flat": flat, "w": flat[:1 << 15].view(256, -1), "b": flat[1 << 15:],
                 "turned": flat.view(256, -1).t(), "bits": flat.view(torch.int32),
                 "param": torch.nn.Parameter(flat[7:9]), "numpy": flat.numpy(),
                 "wide": torch.ones(1).expand(1 << 20)}
        size = checkpoint.save(self.path, state)
        self.assertLess(size, 4 * flat.numel() + 16384)
        for options in ({}, {"mmap": False}, {"map_location": "cpu"}):
            back = checkpoint.load(self.path, **options)
            same(self, state, back)
            self.assertEqual(back["turned"].stride(), (1, 256))
            back["flat"][8] = -1
            self.assertEqual([back["w"][0, 8].item(), back["turned"][8, 0].item(),
                              back["param"][1].item(), back["numpy"][8]], [-1] * 4)
            self.assertFalse(back["w"]._is_view())
        some = checkpoint.load(self.path, names=["b", "param"])
        self.assertTrue(torch.equal(some["b"], flat[1 << 15:]))
        self.assertEqual(some["param"].tolist(), [7, 8])

    def test_memory_of_a_device_is_fetched_once(self):
        """No device here: tensors that claim to be on one."""
        flat, tensors = torch.arange(1 << 12, dtype=torch.float32), checkpoint._tensors
        for views, count in (([flat, flat[5:9], flat.view(64, -1).t()], 1),
                             ([flat, flat[5:9].view(torch.int32)], 2)):
            values = [tensors.value_of("v", v)._replace(device=torch.device("cuda", 0))
                      for v in views]
            parts = tensors.lay_out(values)
            self.assertEqual(len(parts), count)
            made = tensors.Maker([v.row for v in values], {k: memoryview(bytearray(p.view))
                                                           for k, p in enumerate(parts)}, None)
            for k, v in enumerate(views):
                self.assertTrue(torch.equal(made.make(k), v))

    def test_tied_weights_stay_tied(self):
        model = torch.nn.ModuleDict({"a": torch.nn.Linear(64, 64), "b": torch.nn.Linear(64, 64)})
        model["b"].weight = model["a"].weight
        size = checkpoint.save(self.path, {"state": model.state_dict(), "p": model["a"].weight})
        self.assertLess(size, 64 * 64 * 4 + 16384)
        back = checkpoint.load(self.path)
        back["state"]["a.weight"][0, 0] = 7
        self.assertEqual(back["state"]["b.weight"][0, 0], 7)
        self.assertEqual(back["p"][0, 0], 7)
        self.assertIs(type(back["p"]), torch.nn.Parameter)

    def test_conjugates_and_negatives_are_tensors_of_their_own(self):
        x = torch.complex(torch.arange(6.0), torch.ones(6))
        state = {"x": x, "conj": x.conj(), "imag": x.imag, "neg": x.conj().imag, "again": x.conj(),
                 "one": x[:1].imag, "one_neg": x[:1].conj().imag}
        self.assertEqual(state["neg"].tolist(), [-1] * 6)
        checkpoint.save(self.path, state)
        back = checkpoint.load(self.path)
        self.assertEqual({k: v.tolist() for k, v in back.items()},
                         {k: v.tolist() for k, v in state.items()})
        self.assertEqual(back["conj"].data_ptr(), back["again"].data_ptr())

    def test_mapped_tensors_are_the_file(self):
        checkpoint.save(self.path, {"a": torch.arange(1 << 20)})
        with open("/proc/self/maps") as f:
            self.assertNotIn(self.path, f.read())
        a = checkpoint.load(self.path)["a"]
        with open("/proc/self/maps") as f:
            self.assertIn(self.path, f.read())
        self.assertEqual(int(a.sum()), (1 << 20) * ((1 << 20) - 1) // 2)
        del a
        with open("/proc/self/maps") as f:
            self.assertNotIn(self.path, f.read())
        loaded = checkpoint.load(self.path, map_location="meta")["a"]
        self.assertTrue(loaded.is_meta)

    def test_a_pickle_is_refused_not_run(self):
        torch.save({"a": torch.zeros(10)}, self.path)
        self.bad(words="no checkpoint of Leat")


if __name__ == "__main__":
    unittest.main()
