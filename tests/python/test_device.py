#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Batches on a device: with a simulated driver (tests/cuda), and tensors in the host's memory
instead of torch's CUDA part, which is not in every build."""
import ctypes
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
FAKE = BUILD + "/tests/libcuda.so.1"
# Before the package loads it by name: then the package gets this library.
fake = ctypes.CDLL(FAKE, mode=ctypes.RTLD_GLOBAL)
cufile = ctypes.CDLL(BUILD + "/tests/libcufile.so.0", mode=ctypes.RTLD_GLOBAL)
import leat  # noqa: E402
import test_loader  # noqa: E402
from test_loader import payload  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
N = 24


def finished():
    """Waits until all streams of device 1 are done."""
    ctx = ctypes.c_void_p()
    assert fake.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 1) == 0
    assert fake.cuCtxPushCurrent_v2(ctx) == 0
    assert fake.cuCtxSynchronize() == 0
    fake.cuCtxPopCurrent_v2(ctypes.byref(ctx))
    fake.cuDevicePrimaryCtxRelease_v2(1)


def memory(array):
    """The bytes of a DeviceArray: the fake device's memory is host memory."""
    i = array.__cuda_array_interface__
    assert i["version"] == 3 and not i["data"][1]
    finished()
    raw = ctypes.string_at(i["data"][0], array.nbytes)
    flat = np.frombuffer(raw, i["typestr"])
    if i["strides"] is None:
        return flat.reshape(i["shape"])
    return np.lib.stride_tricks.as_strided(flat, i["shape"], i["strides"])


class StandIn:
    """torch.cuda of a machine with two devices, whose tensors are in the host's memory."""

    class Stream:
        cuda_stream = 0

    def __init__(self):
        self.real, self.asked = torch.as_tensor, []

    def current_device(self):
        return 1

    def current_stream(self, device=None):
        self.asked.append(device)
        return self.Stream

    def as_tensor(self, data, *args, **kwargs):
        if not isinstance(data, leat.DeviceArray):
            return self.real(data, *args, **kwargs)
        assert kwargs["device"] == "cuda:1"
        finished()  # the host does not wait for streams, as a device would
        i = data.__cuda_array_interface__
        assert i["shape"] == (data.nbytes,) and i["typestr"] == "|u1"
        buffer = (ctypes.c_uint8 * data.nbytes).from_address(i["data"][0])
        buffer.keep = data
        return torch.from_numpy(np.frombuffer(buffer, np.uint8))

    def __enter__(self):
        self.cuda, torch.cuda, torch.as_tensor = torch.cuda, self, self.as_tensor
        return self

    def __exit__(self, *_):
        torch.cuda, torch.as_tensor = self.cuda, self.real


class Fake(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        test_loader.make_shards(self.tmp.name)
        fake.fake_cuda_delay(2000)

    def tearDown(self):
        gc.collect()
        self.tmp.cleanup()
        self.assertEqual((fake.fake_cuda_left(), fake.fake_cuda_violations()), (0, 0))
        self.assertEqual((cufile.fake_cufile_left(), cufile.fake_cufile_violations()), (0, 0))

    def npz(self):
        folder = self.tmp.name + "/npz"
        os.mkdir(folder)
        for i in range(N):
            rng = np.random.default_rng(i)
            np.savez("%s/%03d.npz" % (folder, i), x=rng.random((3, 5), dtype=np.float32),
                     f=np.asfortranarray(rng.integers(0, 999, (4, 2, 3))), y=np.int64(i))
        return folder

    def test_arrays_of_no_framework(self):
        seen = set()
        with leat.Dataset(self.tmp.name) as ds, leat.DataLoader(
                ds, 8, device="cuda:1", depth=2, framework="numpy", device_fields=["bin"],
                tail="shorter") as loader:
            for batch in loader:
                self.assertEqual(batch.device, "cuda:1")
                for i, a, host in zip(batch.ids.tolist(), batch["bin"], batch["cls"]):
                    self.assertIsInstance(a, leat.DeviceArray)
                    self.assertIsInstance(host, np.ndarray)
                    self.assertEqual(memory(a).tobytes(), payload(i))
                    seen.add(i)
                with self.assertRaises(TypeError):
                    a.__reduce__()
                with self.assertRaises(ValueError):
                    batch.stack("bin")
                del a, host
            self.assertEqual(seen, set(range(len(ds))))
            m = loader.metrics()
            self.assertGreater(m["bytes_device"], 0)
            self.assertEqual(m["memory_pinned"], m["memory"])
            self.assertIn("are pinned.", loader.explain())

    def test_typed_arrays(self):
        with leat.Dataset(self.npz()) as ds, leat.DataLoader(ds, 4, device="cuda:1",
                                                             framework="numpy") as loader:
            for batch in loader:
                for i, x, f, y in zip(batch.ids.tolist(), batch["x"], batch["f"], batch["y"]):
                    rng = np.random.default_rng(i)
                    np.testing.assert_array_equal(memory(x), rng.random((3, 5), dtype=np.float32))
                    np.testing.assert_array_equal(memory(f), rng.integers(0, 999, (4, 2, 3)))
                    self.assertEqual((f.strides, memory(y).item()), ((8, 32, 64), i))

    def test_an_array_keeps_its_slot(self):
        with leat.Dataset(self.tmp.name) as ds, leat.DataLoader(ds, 8, device="cuda:1", depth=2,
                                                                framework="numpy") as loader:
            batch = loader.next()
            number, kept = int(batch.ids[0]), batch["bin"][0]
            del batch
            gc.collect()
            self.assertEqual(loader.metrics()["held"], 1)
            batch = True
            while batch is not None:  # through the one slot that is left
                batch = None
                batch = loader.next()
            self.assertEqual(memory(kept).tobytes(), payload(number))
            del kept
            self.assertEqual(loader.metrics()["held"], 0)

    def test_dlpack(self):
        """A consumer's import; numpy and a torch without CUDA accept no device tensors."""
        class Tensor(ctypes.Structure):  # from dlpack.h
            _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                        ("n_dims", ctypes.c_int32), ("code", ctypes.c_uint8),
                        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                        ("shape", ctypes.POINTER(ctypes.c_int64)),
                        ("strides", ctypes.POINTER(ctypes.c_int64)),
                        ("byte_offset", ctypes.c_uint64), ("ctx", ctypes.c_void_p),
                        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
        with leat.Dataset(self.npz()) as ds, leat.DataLoader(ds, 4, device="cuda:1", depth=2,
                                                             framework="numpy") as loader:
            batch = loader.next()
            x, f, number = batch["x"][1], batch["f"][1], int(batch.ids[1])
            rng = np.random.default_rng(number)
            want = rng.random((3, 5), dtype=np.float32)
            self.assertEqual(x.__dlpack_device__(), (2, 1))
            capsule, unwanted = x.__dlpack__(stream=1), f.__dlpack__()
            strides = Tensor.from_address(api.PyCapsule_GetPointer(unwanted, b"dltensor")).strides
            self.assertEqual(strides[:3], [1, 4, 8])
            t = Tensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
            api.PyCapsule_SetName(capsule, b"used_dltensor")
            del capsule, batch, x, f
            gc.collect()
            self.assertEqual((t.device[:], t.n_dims, t.shape[:2], t.strides[:2]),
                             ([2, 1], 2, [3, 5], [5, 1]))
            self.assertEqual((t.code, t.bits, t.lanes, t.byte_offset), (2, 32, 1, 0))
            self.assertEqual(loader.metrics()["held"], 1)
            finished()
            self.assertEqual(ctypes.string_at(t.data, 60), want.tobytes())
            t.deleter(ctypes.addressof(t))
            self.assertEqual(loader.metrics()["held"], 1)  # of the capsule that was not consumed
            del unwanted
            self.assertEqual(loader.metrics()["held"], 0)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_a_batch_copied_as_a_whole(self):
        with leat.Dataset(self.npz()) as ds, leat.DataLoader(
                ds, 4, depth=2, framework="torch", decode={"y": lambda s: int(s.sum())}) as loader:
            batch = loader.next()
            there = batch.to_device("cpu")
            ids = batch.ids.tolist()
            self.assertEqual(there["y"], batch["y"])
            del batch
            gc.collect()
            self.assertEqual(loader.metrics()["held"], 0)
            self.assertEqual((there.device, there.ids.tolist(), len(there.names)), ("cpu", ids, 4))
            for _ in loader:  # the slot is used again
                pass
            for i, x, f in zip(ids, there["x"], there["f"]):
                rng = np.random.default_rng(i)
                np.testing.assert_array_equal(x.numpy(), rng.random((3, 5), dtype=np.float32))
                np.testing.assert_array_equal(f.numpy(), rng.integers(0, 999, (4, 2, 3)))

    def test_streams_and_copies(self):
        with leat.Dataset(self.tmp.name) as ds, leat.DataLoader(ds, 8, device="cuda:1", depth=2,
                                                                framework="numpy") as loader:
            batch = loader.next()
            batch.use_stream(0)
            end = time.monotonic() + 60
            while loader.metrics()["ready"] < 1 and time.monotonic() < end:
                time.sleep(0.01)  # the next batch is copied, too, and no further one
            before = fake.fake_cuda_calls(b"cuMemcpyHtoDAsync_v2")
            first = batch["bin"][0]
            with self.assertRaisesRegex(leat.LeatError, "there is room for 1"):
                batch.copy_to_device(first.ptr, 1)
            self.assertEqual(fake.fake_cuda_calls(b"cuMemcpyHtoDAsync_v2"), before)
            del first, batch

    def test_read_straight_to_the_device(self):
        rows = np.random.default_rng(4).standard_normal((512, 64, 33)).astype("<f4")
        folder = BUILD + "/tests/direct-%d" % os.getpid()  # a file system with O_DIRECT
        os.mkdir(folder)
        self.addCleanup(shutil.rmtree, folder)
        np.save(folder + "/rows.npy", rows)
        fake.fake_cuda_delay_up(150000)
        self.addCleanup(fake.fake_cuda_delay_up, 0)
        with leat.Dataset(folder, format="npy") as ds, leat.DataLoader(
                ds, 32, order="sequential", device="cuda:1", framework="numpy",
                direct="require") as loader:
            field, = ds.fields
            for epoch in range(3):
                for batch in loader:
                    for i, a in zip(batch.ids.tolist(), batch[field]):
                        np.testing.assert_array_equal(memory(a), rows[i])
                    with self.assertRaises(ValueError):
                        batch.stack(field)
                    del a, batch
            m, said = loader.metrics(), loader.explain()
            self.assertGreater(m["bytes_direct"], rows.nbytes)
            self.assertEqual(m["direct_failed"], 0)
            self.assertGreaterEqual(m["direct_mib_s"], m["bounce_mib_s"])
            self.assertIn("Straight to the device", said)
            for wrong in ({"direct": "yes"}, {"direct": "auto"},
                          {"direct": "auto", "device": "cuda:1", "device_fields": [field]},
                          {"direct": "auto", "device": "cuda:1", "decode": {field: bytes}}):
                with self.assertRaises(ValueError):
                    leat.DataLoader(ds, 8, **wrong)

    def test_options(self):
        with leat.Dataset(self.tmp.name) as ds:
            for wrong in ({"pinned": "yes"}, {"device_fields": ["bin"]},
                          {"device": "cuda:0", "device_fields": ["bin", "none"]}):
                with self.assertRaises(ValueError):
                    leat.DataLoader(ds, 8, **wrong)
            with self.assertRaisesRegex(leat.LeatError, "no cuda:5 among 2"):
                leat.DataLoader(ds, 8, device="cuda:5", framework="numpy")
            with leat.DataLoader(ds, 8, pinned="require") as loader:
                batch = loader.next()
                self.assertIsNone(batch.device)
                self.assertGreater(loader.metrics()["memory_pinned"], 0)
                with self.assertRaisesRegex(leat.LeatError, "without a device"):
                    batch.use_stream(0)
                del batch

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_tensors_with_a_stand_in_for_torch_cuda(self):
        with StandIn() as cuda, leat.Dataset(self.npz()) as ds, leat.DataLoader(
                ds, 6, device="cuda", depth=3, framework="torch") as loader:
            for batch in loader:
                self.assertEqual((batch.device, cuda.asked[-1]), ("cuda:1", "cuda:1"))
                for i, x, f, y in zip(batch.ids.tolist(), batch["x"], batch["f"], batch["y"]):
                    rng = np.random.default_rng(i)
                    want = rng.random((3, 5), dtype=np.float32)
                    self.assertEqual((x.dtype, tuple(x.shape)), (torch.float32, (3, 5)))
                    np.testing.assert_array_equal(x.numpy(), want)
                    np.testing.assert_array_equal(f.numpy(), rng.integers(0, 999, (4, 2, 3)))
                    self.assertEqual(y.item(), i)
                stacked = batch.stack("x")
                self.assertEqual(tuple(stacked.shape), (6, 3, 5))
                del x, f, y, stacked
            del batch
            gc.collect()
            self.assertEqual(loader.metrics()["held"], 0)


class Without(unittest.TestCase):
    def test_no_driver(self):
        code = ("import leat, sys; ds = leat.Dataset(sys.argv[1])\n"
                "leat.DataLoader(ds, 4, pinned='try').next()\n"
                "for o in {'device': 'cuda:0'}, {'pinned': 'require'}:\n"
                "    try: leat.DataLoader(ds, 4, **o)\n"
                "    except leat.LeatError as e: print(e.errno, e)\n")
        with tempfile.TemporaryDirectory() as tmp:
            test_loader.make_shards(tmp)
            done = subprocess.run([sys.executable, "-c", code, tmp], capture_output=True, text=True,
                                  timeout=300, check=False,
                                  env=dict(os.environ, PYTHONPATH=SRC + "/client/python"))
        lines = done.stdout.splitlines()
        if done.returncode == 0 and not lines:
            self.skipTest("this machine has a CUDA driver")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertIn("19 no CUDA driver: libcuda.so.1", line)


if __name__ == "__main__":
    unittest.main()
