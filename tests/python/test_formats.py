#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every format of data sets, written here by independent code (NumPy, zipfile, struct after the
formats' own descriptions), read by the loader: each sample once with the right bytes and types;
damage is found and named, or skipped."""
import io
import json
import os
import struct
import sys
import tempfile
import unittest
import zipfile
import zlib

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python"]
import leat  # noqa: E402

RNG = np.random.default_rng(7)


def crc32c(data):
    """Castagnoli, bit by bit: slow, and independent of the code under test."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def tfrecord(records):
    out = b""
    for r in records:
        length = struct.pack("<Q", len(r))
        out += length + struct.pack("<I", masked(length)) + r + struct.pack("<I", masked(r))
    return out


def ffrecord(records):
    at, offsets = 12 + 12 * len(records), []
    for r in records:
        offsets.append(at)
        at += len(r)
    body = struct.pack("<%dI" % len(records), *(zlib.crc32(r) for r in records))
    body += struct.pack("<%dq" % len(records), *offsets)
    return struct.pack("<IQ", zlib.crc32(body), len(records)) + body + b"".join(records)


def mds(rows, columns):
    """columns: (name, encoding, size or None); rows: lists of bytes."""
    config = json.dumps({"version": 2, "format": "mds", "compression": None, "hashes": [],
                         "size_limit": 1 << 26, "column_names": [c[0] for c in columns],
                         "column_encodings": [c[1] for c in columns],
                         "column_sizes": [c[2] for c in columns]}, sort_keys=True).encode()
    samples = []
    for row in rows:
        sizes = [len(v) for v, c in zip(row, columns) if c[2] is None]
        samples.append(struct.pack("<%dI" % len(sizes), *sizes) + b"".join(row))
    at, offsets = 4 + 4 * (len(rows) + 1) + len(config), []
    for s in samples:
        offsets.append(at)
        at += len(s)
    offsets.append(at)
    return (struct.pack("<I", len(rows)) + struct.pack("<%dI" % len(offsets), *offsets) + config +
            b"".join(samples))


def blobs(n, top=5000):
    return [RNG.bytes(int(RNG.integers(0, top))) for _ in range(n)]


class Formats(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="leat-formats-")
        self.addCleanup(self.folder.cleanup)

    def put(self, name, data):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def open(self, **options):
        ds = leat.Dataset(self.folder.name, framework="numpy", **options)
        self.addCleanup(ds.close)
        return ds

    def all_records(self, ds, **options):
        """Read through the loader, in shuffled order, by sample number."""
        seen = {}
        with leat.DataLoader(ds, batch_size=7, seed=3, tail="shorter",
                             **options) as loader:
            for batch in loader:
                for i, record in zip(batch.ids.tolist(), batch["record"]):
                    self.assertNotIn(i, seen)
                    seen[i] = record.tobytes()
        return seen

    def check_records(self, ds, want):
        self.assertEqual(len(ds), len(want))
        self.assertEqual(self.all_records(ds), dict(enumerate(want)))

    def test_tfrecord(self):
        a, b = blobs(40), blobs(30, 200000)
        self.put("train.tfrecord-00000-of-00002", tfrecord(a))
        self.put("train.tfrecord-00001-of-00002", tfrecord(b))
        self.put("README", b"left out")
        ds = self.open()
        self.assertEqual((ds.format, ds.fields), ("tfrecord", ["record"]))
        self.check_records(ds, a + b)

    def test_empty_tfrecord(self):
        self.put("a.tfrecord", b"")
        self.put("b.tfrecord", tfrecord([b"", b"x"]))
        self.check_records(self.open(), [b"", b"x"])

    def test_tfrecord_damaged_data(self):
        records = blobs(20, 3000) + [b"y" * 100]
        data = bytearray(tfrecord(records))
        data[-50] ^= 1  # in the last record
        self.put("a.tfrecord", data)
        ds = self.open()
        with self.assertRaises(leat.LeatError) as raised:
            ds[20]
        self.assertIn("a.tfrecord", str(raised.exception))
        self.assertIn("checksum", str(raised.exception))
        seen = self.all_records(ds, on_error="skip")
        self.assertEqual(seen, dict(enumerate(records[:20])))

    def test_tfrecord_damaged_length(self):
        data = bytearray(tfrecord(blobs(5, 300)))
        data[0] ^= 1
        self.put("a.tfrecord", data)
        with self.assertRaises(leat.LeatError) as raised:
            self.open()
        self.assertIn("CRC", str(raised.exception))

    def test_tfrecord_truncated(self):
        self.put("a.tfrecord", tfrecord(blobs(5, 300))[:-3])
        with self.assertRaises(leat.LeatError) as raised:
            self.open()
        self.assertIn("truncated", str(raised.exception))

    def test_ffrecord(self):
        a, b = blobs(25), blobs(1)
        self.put("a.ffr", ffrecord(a))
        self.put("b.ffr", ffrecord(b))
        ds = self.open()
        self.assertEqual(ds.format, "ffrecord")
        self.check_records(ds, a + b)
        data = bytearray(ffrecord(a))
        data[-1] ^= 4
        self.put("a.ffr", data)
        with self.assertRaises(leat.LeatError):
            self.open().read(range(25))

    def test_mds(self):
        columns = [("class", "int", 8), ("image", "jpeg", None), ("score", "float32", 4),
                   ("text", "str", None)]
        rows = [[struct.pack("<q", i), RNG.bytes(10 * i), struct.pack("<f", i / 2),
                 b"t%d" % i] for i in range(33)]
        self.put("shard.00000.mds", mds(rows[:20], columns))
        self.put("shard.00001.mds", mds(rows[20:], columns))
        self.put("index.json", b"{}")
        ds = self.open()
        self.assertEqual((ds.format, len(ds)), ("mds", 33))
        self.assertEqual(ds.types, {"class": "<i8", "image": "jpeg", "score": "<f4", "text": "str"})
        for i in (0, 19, 20, 32):
            sample = ds[i]
            self.assertEqual((sample["class"].shape, int(sample["class"])), ((), i))
            self.assertEqual(float(sample["score"]), i / 2)
            self.assertEqual(sample["image"].tobytes(), rows[i][1])
            self.assertEqual(sample["text"].tobytes(), b"t%d" % i)

    def test_mds_compressed_is_refused(self):
        config = mds([[b"x"]], [("a", "bytes", None)]).replace(b'"compression": null',
                                                              b'"compression": "zs"')
        self.put("shard.00000.mds", config)
        with self.assertRaises(leat.LeatError) as raised:
            self.open()
        self.assertIn("compressed", str(raised.exception))

    def arrays(self):
        return {"x": RNG.standard_normal((4, 5, 6)).astype("<f4"), "y": np.array(3, "<i8"),
                "big": np.zeros(200000, "u1"), "f": np.asfortranarray(RNG.integers(0, 9, (3, 4)))}

    def check_npz(self, save):
        want = [self.arrays() for _ in range(6)]
        for i, w in enumerate(want):
            out = io.BytesIO()
            save(out, **w)
            self.put("case_%d.npz" % i, out.getvalue())
        ds = self.open()
        self.assertEqual((ds.format, len(ds), ds.key(2)), ("npz", 6, "case_2"))
        self.assertEqual(ds.types["x"], "npy")
        batch = ds.read([5, 0, 3, 3])
        for k, i in enumerate([5, 0, 3, 3]):
            for field, array in want[i].items():
                got = batch[field][k]
                self.assertEqual((got.dtype, got.shape), (array.dtype, array.shape))
                np.testing.assert_array_equal(got, array)
        return ds

    def test_npz_stored(self):
        self.check_npz(np.savez)

    def test_npz_deflated(self):
        self.check_npz(np.savez_compressed)

    def test_npz_damage(self):
        for save in (np.savez, np.savez_compressed):
            out = io.BytesIO()
            save(out, x=RNG.standard_normal(5000))
            data = bytearray(out.getvalue())
            data[len(data) // 2] ^= 8
            self.put("a.npz", data)
            with self.assertRaises(leat.LeatError) as raised:
                self.open()[0]
            self.assertIn("a.npz", str(raised.exception))

    def test_npz_zip64_and_comment(self):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as z:
            z.comment = b"PK\5\6 is not the end" + bytes(100)
            with z.open("x.npy", "w", force_zip64=True) as member:
                np.save(member, np.arange(10))
        self.put("a.npz", out.getvalue())
        np.testing.assert_array_equal(self.open()[0]["x"], np.arange(10))

    def test_npy_rows(self):
        a, b = (RNG.integers(0, 1 << 40, (n, 3, 4)) for n in (10, 7))
        for name, array in (("a.npy", a), ("b.npy", b)):
            out = io.BytesIO()
            np.save(out, array)
            self.put(name, out.getvalue())
        ds = self.open(format="npy")
        self.assertEqual((ds.format, len(ds), ds.types["data"]), ("npy", 17, "<i8[3,4]"))
        both = np.concatenate([a, b])
        for i in (0, 9, 10, 16):
            np.testing.assert_array_equal(ds[i]["data"], both[i])
        # Without a given format, each file is a sample.
        self.assertEqual(len(self.open()), 2)

    def test_npy_objects_are_refused(self):
        out = io.BytesIO()
        np.save(out, np.array([{}], dtype=object), allow_pickle=True)
        self.put("a.npy", out.getvalue())
        with self.assertRaises(leat.LeatError):
            self.open(format="npy")

    def test_npy_rows_of_no_bytes_are_refused(self):
        """A header of a few bytes may claim any size."""
        out = io.BytesIO()
        np.save(out, np.zeros((1 << 40, 0), "f4"))
        self.put("a.npy", out.getvalue())
        with self.assertRaises(leat.LeatError) as raised:
            self.open(format="npy")
        self.assertIn("no bytes", str(raised.exception))

    def test_fixed(self):
        records = [RNG.bytes(321) for _ in range(50)]
        self.put("a.bin", b"header" + b"".join(records[:30]))
        self.put("b.bin", b"header" + b"".join(records[30:]))
        self.check_records(self.open(format="fixed:321+6"), records)
        with self.assertRaises(leat.LeatError) as raised:
            self.open(format="fixed:320+6")
        self.assertIn("whole records", str(raised.exception))
        with self.assertRaises(leat.LeatError):
            self.open(format="fixed:0")

    def test_unknown_format(self):
        self.put("a", b"x")
        for name in ("parquet", "fixed", "fixed:", "fixed:-1", ""):
            with self.assertRaises(leat.LeatError):
                self.open(format=name)

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        out = io.BytesIO()
        np.savez(out, x=np.arange(12, dtype="f4").reshape(3, 4))
        self.put("a.npz", out.getvalue())
        with leat.Dataset(self.folder.name, framework="torch") as ds:
            x = ds[0]["x"]
            self.assertEqual((x.dtype, tuple(x.shape)), (torch.float32, (3, 4)))
            self.assertEqual(float(x.sum()), 66.0)


if __name__ == "__main__":
    unittest.main()
