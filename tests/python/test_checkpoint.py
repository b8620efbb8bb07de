#!/usr/bin/python3
"""leat.checkpoint: what goes in comes out, damage and foreign files are told, a checkpoint is there
whole or not at all. timeout: 300"""
import collections
import json
import math
import os
import random
import resource
import signal
import struct
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
from leat import checkpoint  # noqa: E402
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
    """Types too."""
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
                             ({"o": np.array([object()])}, "o"), ({"s": {1, 2}}, "s"),
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
        head = struct.pack("<8sIIQQQQQ", b"LEATCKPT", 1, 0, len(text), size, self.sum(text), 0, 0)
        data = head + struct.pack("<Q", self.sum(head)) + text
        self.write(data.ljust(size, b"\0"))

    @staticmethod
    def sum(data):
        return checkpoint._sum(memoryview(bytearray(data)))

    def test_a_hostile_header_is_refused(self):
        row = {"name": "a", "dtype": "int8", "shape": [4], "off": 4096, "len": 4,
               "sums": ["%016x" % self.sum(bytes(4))]}
        good = {"tensors": [row], "tree": {"n": 0}, "meta": None, "loader": None}
        self.forge(good)
        self.assertEqual(checkpoint.load(self.path).tolist(), [0] * 4)
        for change in ({"off": -4096}, {"off": 1 << 62}, {"off": 8192}, {"off": 4097}, {"len": 5},
                       {"len": -1}, {"shape": [-4]}, {"shape": [1 << 62, 1 << 62]},
                       {"shape": [True] * 4}, {"shape": "four"}, {"dtype": "object"},
                       {"dtype": "load"}, {"sums": []}, {"sums": ["zz"]}, {"sums": [0]},
                       {"name": 3}, {"off": 4096.0}, {"off": None}, {"shape": [1] * 100}):
            self.forge(dict(good, tensors=[dict(row, **change)]))
            self.bad()
        for tree in ({"t": 1}, {"n": -1}, {"n": True}, {"x": 0}, {"d": [[1]]}, {"d": 3},
                     [1], {"f": "1"}, {"b": "*"}, {"d": [[{"l": []}, 1]]}, {"l": {}},
                     {"o": [], "m": 3}, {}, {"n": 0, "d": [], "l": []}, {"b": 3}):
            self.forge(dict(good, tree=tree))
            self.bad()
        for text in (b"", b"{", b"[]", b"null", b"[" * 100000, b"\xff" * 10, b'{"tensors": 3}',
                     b'{"tensors": [3]}', b'{"tensors": [{}]}'):
            self.forge(text, 1 << 20)
            self.bad()
        nested = b'{"l":[' * 500 + b"1" + b"]}" * 500
        self.forge(b'{"tensors":[],"tree":' + nested + b"}")
        self.bad()

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
        # What is not asked for is not read: damage there does not matter.
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
            state["param"] = state["param"].detach() if mmap else state["param"]
            same(self, state, back)
            self.assertEqual(back["tied"][0].data_ptr(), back["tied"][1].data_ptr())
        self.assertEqual(len(checkpoint.info(self.path).tensors), 11)
        with self.assertRaisesRegex(TypeError, "sparse"):
            checkpoint.save(self.path, {"sparse": base.to_sparse()})

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
