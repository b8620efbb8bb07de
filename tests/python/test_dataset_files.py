#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A data set follows from its files: bytes decide the format, not names and never one stray file;
classes stay classes; files that are left out are reported."""
import bz2
import ctypes
import ctypes.util
import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", HERE]
import leat  # noqa: E402
import leat.webdataset  # noqa: E402
from test_formats import ffrecord, mds, tfrecord  # noqa: E402

RNG = random.Random(31)
LEAT = os.path.join(os.environ.get("BUILD") or os.path.join(SRC, "build"), "leat")


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def npz_of(**arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def zstd(data):
    c = ctypes.CDLL(ctypes.util.find_library("zstd"))
    c.ZSTD_compress.restype = c.ZSTD_compressBound.restype = ctypes.c_size_t
    c.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    c.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t] * 2 + [ctypes.c_int]
    out = ctypes.create_string_buffer(c.ZSTD_compressBound(len(data)))
    n = c.ZSTD_compress(out, len(out), data, len(data), 3)
    return out.raw[:n]


def lz4(data):
    c = ctypes.CDLL(ctypes.util.find_library("lz4"))
    c.LZ4F_compressFrame.restype = c.LZ4F_compressFrameBound.restype = ctypes.c_size_t
    c.LZ4F_compressFrameBound.argtypes = [ctypes.c_size_t, ctypes.c_void_p]
    c.LZ4F_compressFrame.argtypes = [ctypes.c_char_p, ctypes.c_size_t] * 2 + [ctypes.c_void_p]
    out = ctypes.create_string_buffer(c.LZ4F_compressFrameBound(len(data), None))
    n = c.LZ4F_compressFrame(out, len(out), data, len(data), None)
    return out.raw[:n]


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="leat-files-")
        self.addCleanup(folder.cleanup)
        self.root = folder.name + "/set"
        os.mkdir(self.root)

    def put(self, name, data=b"x"):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def drop(self, name):
        os.unlink(os.path.join(self.root, name))

    def open(self, what=None, **options):
        ds = leat.Dataset(what or self.root, framework="numpy", **options)
        self.addCleanup(ds.close)
        return ds

    def refused(self, *words, what=None, **options):
        with self.assertRaises(leat.LeatError) as raised:
            self.open(what, **options)
        for word in words:
            self.assertIn(word, str(raised.exception))

    def left(self, ds):
        return sorted((left.why, left.kind, left.first, left.count) for left in ds.left_out)

    # ---- stray files ----

    def pictures(self, n=5):
        for c in ("cat", "dog"):
            for i in range(n):
                self.put("%s/%d.jpg" % (c, i), b"jpg")

    def test_classes_stay_beside_any_stray_file(self):
        self.pictures()
        strays = {".DS_Store": ("hidden", ""), "README.md": ("beside", "md"),
                  "mean_std.npz": ("beside", "npz"), "backup.tar": ("beside", "tar"),
                  ".git/objects/aa/x.jpg": ("hidden", "jpg"), "cat/.thumbs.jpg": ("hidden", "jpg"),
                  "broken.tar": ("beside", "tar"), "LICENSE": ("beside", "")}
        content = {"mean_std.npz": npz_of(mean=np.zeros(3)), "broken.tar": b"no tar",
                   "backup.tar": tar_of([("cat/0.jpg", b"jpg")] * 1)}
        for stray, (why, kind) in strays.items():
            self.put(stray, content.get(stray, b"x"))
            ds = self.open()
            self.assertEqual((ds.format, len(ds), ds.classes), ("files", 10, ["cat", "dog"]), stray)
            self.assertEqual(ds.read(range(10)).labels.tolist(), [0] * 5 + [1] * 5, stray)
            self.assertEqual(self.left(ds), [(why, kind, stray, 1)])
            self.assertIn(stray, repr(ds))
            self.drop(stray)
        del strays["broken.tar"]  # two archives are more than a stray file
        for stray in strays:
            self.put(stray, content.get(stray, b"x"))
        ds = self.open()
        self.assertEqual((ds.format, len(ds), ds.classes), ("files", 10, ["cat", "dog"]))
        self.assertEqual(sum(left.count for left in ds.left_out), len(strays))
        self.assertLessEqual(len(repr(ds).splitlines()), 10)

    def test_a_picture_beside_the_classes_takes_no_label_from_the_others(self):
        self.pictures()
        self.put("overview.jpg")
        ds = self.open()
        self.assertEqual((len(ds), ds.classes), (11, ["cat", "dog"]))
        self.assertEqual(ds.read(range(11)).labels.tolist(), [0] * 5 + [1] * 5 + [-1])

    def test_a_tree_of_programs_is_plain_files(self):
        """Names that begin with underscores, arrays among them, files at the top: each is a
        sample."""
        n = 0
        for p in range(40):
            for m in ("__init__.py", "_core.py", "data/mean.npz", "data/t.tar", "METADATA",
                      "x.pyc"):
                self.put("package%d/%s" % (p, m), npz_of(mean=np.zeros(3)) if m.endswith("npz")
                         else tar_of([("a.txt", b"x")]) if m.endswith("tar") else b"x" * 2000)
                n += 1
        self.put("six.py")
        ds = self.open()
        # The format with most bytes wins, so archives with little text must not outweigh it.
        self.assertEqual(ds.format, "tar")
        ds = self.open(format="files")
        self.assertEqual((ds.format, len(ds), ds.left_out), ("files", n + 1, []))
        for p in range(40):
            self.drop("package%d/data/t.tar" % p)
        ds = self.open()
        self.assertEqual((ds.format, len(ds), ds.left_out), ("files", n + 1 - 40, []))

    def test_most_bytes_decide(self):
        for i in range(3):
            self.put("s%d.tar" % i, tar_of([("%d.bin" % i, bytes(20000))]))
        for i in range(30):
            self.put("notes/%d.txt" % i, b"x" * 100)
        self.put("mean.npz", npz_of(mean=np.zeros(3)))
        self.put("index.json", b"{}")
        self.put("README", b"x")
        ds = self.open()
        self.assertEqual((ds.format, len(ds)), ("tar", 3))
        self.assertEqual(self.left(ds), [
            ("format", "", "README", 1), ("format", "json", "index.json", 1),
            ("format", "npz", "mean.npz", 1), ("format", "txt", "notes/0.txt", 30)])

    def test_one_shard_among_few_files_is_the_data_set(self):
        self.put("train.tar", tar_of([("%d.bin" % i, b"x") for i in range(5)]))
        for name in ("README.md", "LICENSE", "labels.json", "sizes.txt"):
            self.put(name)
        ds = self.open()
        self.assertEqual((ds.format, len(ds)), ("tar", 5))

    def test_many_files_are_sampled(self):
        """Many more files of each kind than are examined."""
        for i in range(300):
            self.put("c%d/%d.bin" % (i % 3, i), b"x" * 20)
            self.put("shard-%05d-of-00300" % i, tfrecord([b"record %d" % i] * 3))
        ds = self.open()
        self.assertEqual((ds.format, len(ds)), ("tfrecord", 900))
        self.assertEqual(self.left(ds), [("format", "bin", "c0/0.bin", 300)])

    def test_only_hidden_files(self):
        self.put(".a.jpg")
        self.put(".b.jpg")
        self.assertEqual(len(self.open()), 2)

    def test_empty_files_say_it_by_their_names(self):
        self.put("a.tfrecord", b"")
        self.assertEqual((self.open().format, len(self.open())), ("tfrecord", 0))

    # ---- bytes, not names ----

    def test_any_name_of_each_format(self):
        columns = [("x", "bytes", None)]
        whole = {"tar": (tar_of([("%d.bin" % i, b"%d" % i) for i in range(5)]), 5),
                 "tfrecord": (tfrecord([b"%d" % i for i in range(5)]), 5),
                 "ffrecord": (ffrecord([b"%d" % i for i in range(5)]), 5),
                 "mds": (mds([[b"%d" % i] for i in range(5)], columns), 5),
                 "npz": (npz_of(x=np.arange(5)), 1)}
        for fmt, (data, n) in whole.items():
            for name in ("train-00000-of-00002", "flowers00-230.tfrec", "shard", "part.0", "a.bin",
                         "b.txt", "weird name"):
                path = self.put(name, data)
                for options in ({}, {"format": fmt}):
                    for what in (self.root, self.root + "/*", path):
                        ds = self.open(what, **options)
                        self.assertEqual((ds.format, len(ds)), (fmt, n), (name, what, options))
                self.assertEqual(len(self.open(format="files")), 1)
                self.drop(name)

    def test_one_file_whatever_it_is_called_or_linked_to(self):
        os.mkdir(self.root + "/../blobs")
        with open(self.root + "/../blobs/abc", "wb") as f:
            f.write(tar_of([("%d.bin" % i, b"%d" % i) for i in range(5)]))
        os.symlink("../blobs/abc", self.root + "/linked.tar")
        os.symlink("set", self.root + "/../folder")
        self.put("a[1]*?.tar", tar_of([("1.bin", b"1")]))
        self.put("a1.tar", tar_of([("2.bin", b"2")] * 1))
        for what, n in (("/linked.tar", 5), ("/a[1]*?.tar", 1), ("/../folder", 7),
                        ("/../folder/linked.tar", 5), ("/a[1].tar", 1)):
            self.assertEqual(len(self.open(self.root + what)), n, what)
        data = leat.webdataset.dataset(self.root + "/a[1]*?.tar")
        self.assertEqual([s["__key__"] for s in data], ["1"])

    def test_a_format_that_was_asked_for_leaves_the_others(self):
        self.put("a", tfrecord([b"r"] * 3))
        self.put("b.tar", tar_of([("%d.bin" % i, bytes(9000)) for i in range(9)]))
        self.put("c.tar", tar_of([("%d.bin" % i, bytes(9000)) for i in range(9)]))
        ds = self.open(format="tfrecord")
        self.assertEqual((len(ds), self.left(ds)), (3, [("format", "tar", "b.tar", 2)]))
        self.refused("no file is of the format mds", "2 .tar", format="mds")

    def test_a_damaged_shard_is_named_not_left_out(self):
        for i in range(4):
            self.put("train-%05d-of-00004" % i, tfrecord([b"r"] * 3))
        data = bytearray(tfrecord([b"r"] * 3))
        data[0] ^= 1
        self.put("train-00002-of-00004", data)
        self.refused("train-00002-of-00004", "pattern")
        self.put("train-00002-of-00004", tfrecord([b"r"] * 3))
        self.put("x.tar", b"this is no tar")
        self.assertEqual(len(self.open()), 12)
        self.refused("x.tar", what=self.root + "/x.tar")

    def test_a_file_that_may_not_be_read_does_not_matter_beside_the_samples(self):
        self.pictures()
        os.chmod(self.put("notes.txt"), 0)
        self.assertEqual(len(self.open()), 10)

    # ---- names of members: webdataset's rule ----

    def fields_of(self, files):
        """The samples that this library makes of an archive, as webdataset would give them."""
        ds = self.open(self.put("a.tar", tar_of(files)), format="tar")
        with leat.DataLoader(ds, batch_size=7, order="sequential", tail="shorter",
                             framework="numpy") as loader:
            return [dict({field: column[k].tobytes() for field, column in batch.items()
                          if column[k] is not None}, __key__=batch.names[k])
                    for batch in loader for k in range(len(batch))]

    @staticmethod
    def webdataset_of(files):
        """The rule of webdataset's tar_file_iterator and group_by_keys, implemented here."""
        samples = []
        for name, data in files:
            if re.match(r"__[^/]*__($|/)", name):
                continue
            found = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)
            if not found:
                continue
            if not samples or samples[-1]["__key__"] != found[1]:
                samples.append({"__key__": found[1]})
            assert found[2].lower() not in samples[-1]
            samples[-1][found[2].lower()] = data
        return samples

    def test_periods_anywhere_in_names(self):
        many = [("%d Track 2.0 take %d.mp3" % (i, i), b"%d" % i) for i in range(300)]
        for files in (many, [("1.mp4", b"x"), ("0002 Dr. Who and the very long title of an episode "
                                               "that goes on and on (1964).mp4", b"y")],
                      [("__init__.py", b"1"), ("main.py", b"2")],
                      [("one." + "%d" % i, b"%d" % i) for i in range(200)]):
            self.assertEqual(self.fields_of(files), self.webdataset_of(files))
        self.assertEqual(len(self.open(self.root + "/a.tar")), 1)

    def test_odd_archives_are_read_as_webdataset_reads_them(self):
        seed = 29
        print("seed", seed)
        rng = random.Random(seed)
        words = ["a", "B", "__", "_", ".", "..", "/", "1", " ", "x" * 70, "tar", "-", "ext", "@"]
        for turn in range(200):
            names = []
            for _ in range(rng.randrange(1, 30)):
                name = "/".join(part for part in "".join(rng.choices(words, k=rng.randrange(1, 9)))
                                .split("/") if part not in ("", ".", ".."))
                if name and name not in names:
                    names.append(name)
            files = [(name, rng.randbytes(rng.randrange(40))) for name in names]
            try:
                want = self.webdataset_of(files)
            except AssertionError:  # a field twice, except for capitals
                self.put("a.tar", tar_of(files))
                self.refused("a.tar", "twice", format="tar")
                continue
            if not files:
                continue
            self.assertEqual(self.fields_of(files), want, (turn, names))

    def test_a_batch_of_many_fields_lists_those_it_has(self):
        self.put("a.tar", tar_of([("%d.f%d" % (i, i), b"%d" % i) for i in range(500)]))
        ds = self.open()
        self.assertEqual(len(ds.fields), 500)
        batch = ds.read([3, 400, 3])
        self.assertEqual(sorted(batch), ["f3", "f400"])
        self.assertEqual([s is None for s in batch["f3"]], [False, True, False])
        self.assertEqual((batch["f7"], batch.get("f7")), ([None] * 3, None))
        with self.assertRaises(KeyError):
            batch["none such"]  # pylint: disable=pointless-statement
        self.assertLessEqual(len(repr(ds).splitlines()), 10)
        with leat.DataLoader(ds, batch_size=50, order="sequential", fields=["f9", "f8"],
                             framework="numpy") as loader:
            first = next(iter(loader))
            self.assertEqual((list(first), first["f9"][9].tobytes()), (["f9", "f8"], b"9"))
        both = leat.Mixture([(ds, None), (ds, None)], framework="numpy")
        self.addCleanup(both.close)
        self.assertEqual((len(both), both[777]["f277"].tobytes()), (1000, b"277"))

    # ---- compressed ----

    def shards(self, n, pack=gzip.compress, end=".tar.gz", samples=20):
        """Makes n packed shards. Returns their samples in order."""
        want = []
        for k in range(n):
            files = []
            for i in range(samples):
                key = "%d_%d" % (k, i)
                files += [(key + ".jpg", RNG.randbytes(RNG.randrange(30000))),
                          (key + ".cls", b"%d" % i)]
                want.append({"__key__": key, "jpg": files[-2][1], "cls": files[-1][1]})
            self.put("data-%05d%s" % (k, end), pack(tar_of(files)))
        return want

    def samples(self, ds, **options):
        """The samples by number, read through the loader."""
        seen = {}
        with leat.DataLoader(ds, batch_size=6, seed=3, tail="shorter", framework="numpy",
                             **options) as loader:
            for batch in loader:
                for k, i in enumerate(batch.ids.tolist()):
                    self.assertNotIn(i, seen)
                    seen[i] = dict({f: batch[f][k].tobytes() for f in batch},
                                   __key__=batch.names[k])
        return [seen[i] for i in sorted(seen)]

    def test_packed_shards_are_read_as_what_is_in_them(self):
        for pack, end in ((gzip.compress, ".tar.gz"), (zstd, ".tar.zst"), (lz4, ".tar.lz4"),
                          (lambda data: gzip.compress(data[:5000]) + gzip.compress(data[5000:]),
                           ".tgz"), (zstd, "-odd-name")):
            want = self.shards(3, pack, end)
            for threads in (1, 3):
                ds = self.open(threads=threads)
                self.assertEqual((ds.format, len(ds), ds.packed), ("tar", 60, 3))
                for order in ("sequential", "global", "window:1"):
                    self.assertEqual(self.samples(ds, order=order), want, (end, order))
            self.assertIn("packed    3 files", repr(ds))
            self.assertEqual(ds[59]["cls"].tobytes(), b"19")
            for k in range(3):
                self.drop("data-%05d%s" % (k, end))

    def test_webdataset_of_packed_shards(self):
        want = self.shards(2)
        data = leat.webdataset.dataset(self.root + "/data-{00000..00001}.tar.gz")
        got = sorted(data, key=lambda s: [int(n) for n in s["__key__"].split("_")])
        self.assertEqual([{k: v for k, v in s.items() if k != "__url__"} for s in got], want)

    def test_packed_records(self):
        records = [RNG.randbytes(RNG.randrange(5000)) for _ in range(200)]
        self.put("r-00000-of-00001.gz", gzip.compress(tfrecord(records)))
        ds = self.open()
        self.assertEqual((ds.format, len(ds)), ("tfrecord", 200))
        self.assertEqual([ds[i]["record"].tobytes() for i in (0, 1, 199, 100)],
                         [records[i] for i in (0, 1, 199, 100)])
        self.drop("r-00000-of-00001.gz")
        rows = [[b"%d" % i, RNG.randbytes(i)] for i in range(50)]
        columns = [("a", "str", None), ("b", "bytes", None)]
        self.put("shard.00000.mds.zstd", zstd(mds(rows, columns)))
        ds = self.open()
        self.assertEqual((ds.format, len(ds), ds[49]["b"].tobytes()), ("mds", 50, rows[49][1]))
        self.drop("shard.00000.mds.zstd")
        self.put("a.npz.gz", gzip.compress(npz_of(x=np.arange(7), y=np.arange(70000))))
        np.testing.assert_array_equal(self.open()[0]["y"], np.arange(70000))

    def test_little_memory_for_what_comes_out(self):
        """Space for one shard and a half: each is unpacked again and again, and right."""
        want = self.shards(4)
        sizes = []
        for k in range(4):
            with gzip.open(self.root + "/data-%05d.tar.gz" % k) as f:
                sizes.append(len(f.read()))
        size = max(sizes)
        for threads in (1, 4):
            ds = self.open(unpack_bytes=size * 3 // 2, threads=threads)
            self.assertEqual(self.samples(ds, order="global"), want)
        self.refused("data-0000", "unpack_bytes", unpack_bytes=size - 1)

    def test_damaged_packed_shards(self):
        want = self.shards(2)
        path = self.root + "/data-00001.tar.gz"
        with open(path, "rb") as f:
            data = f.read()
        for bad in (data[:-10], data[:len(data) // 2] + b"damage" + data[len(data) // 2 + 6:]):
            self.put("data-00001.tar.gz", bad)
            self.refused("data-00001.tar.gz", "packed")
        self.put("data-00001.tar.gz", data)
        ds = self.open()
        self.put("data-00001.tar.gz", gzip.compress(tar_of([("a.b", b"other")])))
        self.assertEqual(self.samples(ds, on_error="skip"), want[:20])
        with self.assertRaises(leat.LeatError) as raised:
            ds[30]
        self.assertIn("data-00001.tar.gz", str(raised.exception))
        self.assertEqual(ds[10]["cls"].tobytes(), b"10")

    def test_a_bomb_takes_no_memory(self):
        self.put("a.tar.zst", zstd(tar_of([("a.b", bytes(1 << 28))])))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.refused("a.tar.zst", "unpack_bytes", unpack_bytes=1 << 24)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        self.assertLess(grown << 10, 1 << 26)

    def test_packed_shards_by_name_are_verified(self):
        want = self.shards(3, zstd, ".tar.zst")
        catalog, place = (os.path.dirname(self.root) + x for x in ("/catalog", "/stage"))
        os.mkdir(catalog)
        os.mkdir(place)
        told = json.loads(self.leat("--json", "dataset", "create", "d@v1", self.root, "--catalog",
                                    catalog))
        self.assertEqual((told["format"], told["samples"]), ("tar", 60))
        ds = self.open("d@v1", catalog=catalog)
        self.assertEqual(self.samples(ds), want)
        both = leat.Mixture([(ds, None), (self.open(), None)], framework="numpy")
        self.addCleanup(both.close)
        self.assertEqual(self.samples(both), want + want)
        with open(self.root + "/data-00001.tar.zst", "r+b") as f:
            f.seek(100)
            f.write(b"other bytes")
        with self.assertRaises(leat.LeatError) as raised:
            self.samples(self.open("d@v1", catalog=catalog))
        self.assertIn("data-00001.tar.zst", str(raised.exception))
        self.assertIn("changed", str(raised.exception))

    def test_packings_without_a_library_are_named(self):
        data = tar_of([("a.b", b"x")])
        for name, packed in (("a.tar.xz", lzma.compress(data)), ("b.tbz2", bz2.compress(data))):
            self.put(name, packed)
            self.refused(name, "unpack")
            self.refused(name, "unpack", format="tar")
            self.drop(name)

    def test_other_compressed_files_are_samples(self):
        """Volumes of brains (.nii.gz) are files that the user's decoder gets unchanged."""
        data = gzip.compress(struct.pack("<i", 348) + bytes(2000))
        for i in range(3):
            self.put("case%d/brain.nii.gz" % i, data)
        ds = self.open()
        self.assertEqual((ds.format, len(ds), ds[1]["data"].tobytes()), ("files", 3, data))

    # ---- messages ----

    def test_repr(self):
        self.pictures()
        self.put("README.md")
        text = repr(self.open())
        for word in (self.root, "files", "10", "data", "cat, dog", "README.md", "beside"):
            self.assertIn(word, text)
        for i in range(100):
            self.put("many.%s%s" % (chr(97 + i // 26), chr(97 + i % 26)))
            self.put("c%02d/x.jpg" % i)
        self.assertLessEqual(len(repr(self.open()).splitlines()), 10)

    def test_names_that_are_no_text(self):
        path = os.path.join(os.fsencode(self.root), b"\xe4.\xfc")
        with open(path, "wb") as f:
            f.write(b"x")
        self.put("s.tar", tar_of([("a.b", bytes(4000))]))
        ds = self.open()
        self.assertEqual(os.fsencode(ds.left_out[0].first), b"\xe4.\xfc")
        self.assertIn("s.tar", ds.file(0))
        repr(ds).encode()

    def leat(self, *words):
        return subprocess.run([LEAT, *words], check=True, stdout=subprocess.PIPE).stdout.decode()

    def test_create_names_what_is_no_archive(self):
        self.put("a.tar", tar_of([("a.b", b"x")]))
        self.put("b.tar", b"this is no archive" * 100)
        done = subprocess.run([LEAT, "dataset", "create", "d@v1", self.root, "--catalog",
                               os.path.dirname(self.root)], stderr=subprocess.PIPE, check=False)
        self.assertNotEqual(done.returncode, 0)
        for word in (b"b.tar", b"checksum", b"repair it, or move it away"):
            self.assertIn(word, done.stderr)
        self.assertNotIn(b"servers", done.stderr)

    def test_create_and_show_tell_it(self):
        self.pictures()
        self.put("README.md", b"four")
        self.put(".DS_Store")
        catalog = os.path.dirname(self.root) + "/catalog"
        os.mkdir(catalog)
        text = self.leat("dataset", "create", "d@v1", self.root, "--catalog", catalog)
        for word in (" files ", "fields: data", "classes: 2", "left out: 1 .md (README.md)",
                     ".DS_Store"):
            self.assertIn(word, text)
        self.assertEqual(text, self.leat("dataset", "show", "d@v1", "--catalog", catalog))
        told = json.loads(self.leat("--json", "dataset", "show", "d@v1", "--catalog", catalog))
        self.assertEqual((told["samples"], told["files"], told["fields"], told["classes"]),
                         (10, 12, ["data"], 2))
        self.assertIn({"why": "beside", "kind": "md", "first": "README.md", "count": 1, "bytes": 4},
                      told["left_out"])
        self.assertEqual(len(told["left_out"]), 2)
        listed = json.loads(self.leat("--json", "dataset", "ls", "--catalog", catalog))
        self.assertEqual(listed["datasets"], [told])
        ds = self.open("d@v1", catalog=catalog)
        self.assertEqual(len(ds.left_out), 2)


if __name__ == "__main__":
    unittest.main()
