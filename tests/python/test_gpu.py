#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Batches on a real GPU, where there is one."""
import ctypes
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import test_loader  # noqa: E402
from test_loader import payload  # noqa: E402

try:
    import torch
except ImportError:
    torch = None


def driver():
    """The driver and None, or None and why there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, "no CUDA driver (libcuda.so.1) on this machine"
    n = ctypes.c_int()
    if not hasattr(cuda, "cuInit") or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(n)):
        return None, "the CUDA driver does not start on this machine"
    if hasattr(cuda, "fake_cuda_left") or n.value == 0:
        return None, "no GPU on this machine"
    return cuda, None


cuda, why_not = driver()
if why_not:
    print("skipped: " + why_not)
    sys.exit(77)


NO_TORCH = None if torch and torch.cuda.is_available() else "this torch knows no CUDA"


class Gpu(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        test_loader.make_shards(self.tmp.name)
        self.ds = leat.Dataset(self.tmp.name)

    def tearDown(self):
        self.ds.close()
        self.tmp.cleanup()

    def test_device_memory(self):
        seen = set()
        ctx = ctypes.c_void_p()
        self.assertEqual(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0), 0)
        self.assertEqual(cuda.cuCtxPushCurrent_v2(ctx), 0)
        with leat.DataLoader(self.ds, 8, device="cuda:0", pinned="require", framework="numpy",
                             depth=3, tail="shorter") as loader:
            for batch in loader:
                for i, a in zip(batch.ids.tolist(), batch["bin"]):
                    host = ctypes.create_string_buffer(a.nbytes)
                    self.assertEqual(cuda.cuMemcpyDtoH_v2(host, ctypes.c_uint64(a.ptr),
                                                          ctypes.c_size_t(a.nbytes)), 0)
                    self.assertEqual(host.raw, payload(i))
                    seen.add(i)
                del a, batch
            self.assertEqual(seen, set(range(len(self.ds))))
            m = loader.metrics()
            self.assertEqual(m["memory_pinned"], m["memory"])
            self.assertGreater(m["bytes_device"], 0)
        self.assertEqual(cuda.cuCtxPopCurrent_v2(ctypes.byref(ctx)), 0)

    @unittest.skipIf(NO_TORCH, NO_TORCH)
    def test_tensors(self):
        torch.cuda.set_device(0)
        torch.zeros(1, device="cuda")
        sums = []
        with leat.DataLoader(self.ds, 8, device="cuda", depth=2, framework="torch") as loader:
            for batch in loader:
                sums.append((batch.ids.tolist(),
                             torch.stack([s.to(torch.int64).sum() for s in batch["bin"]])))
                del batch
        for ids, total in sums:
            self.assertEqual(total.tolist(), [sum(payload(i)) for i in ids])

    @unittest.skipIf(NO_TORCH, NO_TORCH)
    def test_pinned_by_itself(self):
        torch.zeros(1, device="cuda")
        with leat.DataLoader(self.ds, 8, framework="torch") as loader:
            batch = loader.next()
            self.assertTrue(batch["bin"][0].is_pinned())
            there = batch["bin"][0].to("cuda", non_blocking=True)
            self.assertEqual(bytes(there.cpu().numpy()), payload(int(batch.ids[0])))
            del batch, there

    @unittest.skipIf(NO_TORCH, NO_TORCH)
    def test_copied_as_a_whole(self):
        torch.zeros(1, device="cuda")
        for pinned in "require", "never":
            with leat.DataLoader(self.ds, 8, framework="torch", pinned=pinned) as loader:
                batch = loader.next()
                there, ids = batch.to_device(), batch.ids.tolist()
                del batch
                self.assertEqual(there.device, "cuda:0")
                for i, s in zip(ids, there["bin"]):
                    self.assertEqual(bytes(s.cpu().numpy()), payload(i))


if __name__ == "__main__":
    unittest.main()
