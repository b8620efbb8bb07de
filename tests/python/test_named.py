#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A named version is its bytes, from whichever source: bytes that changed on the servers since it
was made are refused, with file and offset, or skipped and counted. LEAT_LONG=1: 10,000 overwrites.
timeout: 300
waits: yes"""
import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import test_cluster  # noqa: E402
import test_loader  # noqa: E402
from test_loader import raw  # noqa: E402

LONG = os.environ.get("LEAT_LONG") == "1"
SEED = int(os.environ.get("LEAT_SEED", "29"))
FILES, OVERWRITES = 40, 10_000 if LONG else 200


def content(i):
    """Small files, of less than a block, and larger ones, of several."""
    return random.Random(i).randbytes((900, 5_000, 16_384, 40_003, 300_000)[i % 5] + 7 * i)


@unittest.skipIf(test_cluster.why_not(), test_cluster.why_not())
class Named(unittest.TestCase):
    dev = classmethod(test_cluster.Cluster.dev.__func__)
    tool = test_cluster.Cluster.tool
    to = test_cluster.Cluster.to

    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.mkdtemp()
        cls.env = dict(os.environ, LEAT_DEV=cls.tmp + "/dev", LEAT_DEV_SIZE=str(1 << 30),
                       BUILD=BUILD, LEAT_DEV_MOUNTS="1")
        try:
            cls.dev("up")
            os.environ["LEAT_CONF"] = cls.env["LEAT_CONF"] = cls.tmp + "/dev/conf"
            cls.mount = cls.dev("mountpoint").strip()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.dev("down")
        shutil.rmtree(cls.tmp, ignore_errors=True)

    def make(self, name):
        """Makes files. Returns their names and their folder under the mount."""
        folder = "%s/%s" % (self.mount, name)
        os.mkdir(folder)
        for i in range(FILES):
            with open("%s/%03d" % (folder, i), "wb") as f:
                f.write(content(i))
        self.tool("dataset", "create", name + "@v1", "leat:/" + name)
        return folder

    def overwrite(self, path, off, data, sync=True):
        fd = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(fd, data, off)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def refused(self, ds, i, path=None):
        """The error for sample i."""
        with self.assertRaises(leat.LeatError) as raised:
            ds[i]
        e = raised.exception
        self.assertEqual(e.errno, errno.ESTALE, str(e))
        self.assertEqual(e.filename, path or "%03d" % i)
        self.assertIsNotNone(e.offset)
        self.assertIn(e.filename, str(e))
        self.assertIn("make a new version", str(e))
        return e

    def test_what_is_delivered_while_files_are_overwritten(self):
        print("seed %d" % SEED)
        folder, r, done = self.make("hot"), random.Random(SEED), threading.Event()

        def trouble():
            """Overwrites some bytes, and restores them now and then."""
            wrong = {}
            try:
                for _ in range(OVERWRITES):
                    i = r.randrange(FILES)
                    path, data = "%s/%03d" % (folder, i), content(i)
                    if i in wrong and r.random() < 0.7:
                        for off, n in wrong.pop(i):
                            self.overwrite(path, off, data[off:off + n], False)
                        continue
                    off = r.randrange(len(data))
                    n = min(r.choice((1, 7, 4096, 20_000)), len(data) - off)
                    self.overwrite(path, off, bytes(b ^ 0x55 for b in data[off:off + n]),
                                   r.random() < 0.2)
                    wrong.setdefault(i, []).append((off, n))
            finally:
                done.set()

        seen = {"right": 0, "skipped": 0, "refused": 0}

        def epoch(ds, **more):
            with leat.DataLoader(ds, 4, tail="shorter", framework="numpy", **more) as loader:
                while True:
                    try:
                        batch = loader.next()
                        if batch is None:
                            break
                    except leat.LeatError as e:
                        self.assertEqual(e.errno, errno.ESTALE, str(e))
                        self.assertLess(e.offset, len(content(int(e.filename))))
                        seen["refused"] += 1
                        break
                    for i, data in zip(batch.ids.tolist(), batch["data"]):
                        self.assertTrue(raw(data) == content(i), "sample %d is wrong" % i)
                        seen["right"] += 1
                m = loader.metrics()
                seen["skipped"] += m["skipped"]
                if m["skipped"]:
                    self.assertGreater(m["blocks_stale"], 0)

        with leat.Dataset("leat:hot@v1") as ds:
            self.assertEqual(ds.source, "server")
            thread = threading.Thread(target=trouble)
            thread.start()
            n = 0
            while not done.is_set():
                more = {} if n % 3 else {"cache_dir": self.to("hot-cache"), "cache_bytes": 1 << 30}
                epoch(ds, seed=n, on_error="raise" if n % 2 else "skip", **more)
                n += 1
            thread.join()
        print("%d overwrites: %s" % (OVERWRITES, seen))
        for what, count in seen.items():
            self.assertGreater(count, 0, what)

    def test_parts_of_blocks_while_they_are_overwritten(self):
        """Records that are less than a block, or cross two, of a compressed file: right though only
        they are read, while bytes around them are overwritten and restored again and again."""
        print("seed %d" % SEED)
        folder, r, record = self.mount + "/parts", random.Random(SEED), 3000
        os.mkdir(folder)
        self.tool("layout", "set", "--compression", "lz4", folder)
        # Blocks of words and of noise alternately.
        right = b"".join(random.Random(i).randbytes(8) * 2048 if i % 2 else
                         random.Random(i).randbytes(16384) for i in range(200))[:1000 * record]
        with open(folder + "/records", "wb") as f:
            f.write(right)
        self.tool("dataset", "create", "parts@v1", "leat:/parts")

        def epoch(ds, seed):
            with leat.DataLoader(ds, 50, seed=seed, on_error="skip", tail="shorter",
                                 framework="numpy") as loader:
                for batch in loader:
                    for i, data in zip(batch.ids.tolist(), batch["record"]):
                        self.assertTrue(raw(data) == right[i * record:(i + 1) * record],
                                        "record %d is wrong" % i)
                return loader.metrics()

        wrong, done, skipped, epochs = set(), threading.Event(), 0, 0

        def trouble():
            with open(folder + "/records", "r+b", buffering=0) as f:
                for _ in range(OVERWRITES):
                    i = wrong.pop() if len(wrong) > 3 or wrong and r.random() < 0.5 else None
                    off = r.randrange(len(right)) if i is None else i
                    n = min(2000, len(right) - off)
                    data = right[off:off + n]
                    f.seek(off)
                    f.write(data if i is not None else bytes(b ^ 0x55 for b in data))
                    if i is None:
                        wrong.add(off)
                    elif any(abs(off - w) < 2000 for w in wrong):
                        wrong.add(off)
                    if r.random() < 0.5:
                        os.fsync(f.fileno())
            done.set()

        with leat.Dataset("leat:parts@v1", format="fixed:%d" % record) as ds:
            thread = threading.Thread(target=trouble)
            thread.start()
            while not done.is_set():
                skipped += epoch(ds, epochs)["skipped"]
                epochs += 1
            thread.join()
            self.overwrite(folder + "/records", 0, right)
            m = epoch(ds, epochs)
        print("%d overwrites: %d epochs, %d skipped" % (OVERWRITES, epochs, skipped))
        self.assertGreater(skipped, 0)
        # The loader read the records, and little in between; the blocks around them are 6 times as
        # large.
        self.assertEqual(m["skipped"], 0)
        self.assertLess(m["bytes_server"], 1.5 * len(right))
        self.assertGreaterEqual(m["bytes_verified"], len(right))

    def test_each_kind_of_change(self):
        folder = self.make("cold")
        with leat.Dataset("leat:cold@v1") as ds, leat.Dataset("leat:/cold") as by_path:
            # One byte, in the last block: the error must not name the first.
            i = 4
            self.overwrite(folder + "/004", len(content(i)) - 1, b"\0" if content(i)[-1] else b"\1")
            self.assertEqual(self.refused(ds, i).offset, (len(content(i)) - 1) // 16384 * 16384)
            self.assertIn("cold@v1", str(self.refused(ds, i)))
            self.assertEqual(len(raw(by_path[i]["data"])), len(content(i)))  # no guarantee
            self.overwrite(folder + "/004", len(content(i)) - 1, content(i)[-1:])
            self.assertTrue(raw(ds[i]["data"]) == content(i), "restored")
            os.unlink(folder + "/001")
            self.refused(ds, 1)
            os.rename(folder + "/002", folder + "/elsewhere")
            self.refused(ds, 2)
            os.rename(folder + "/elsewhere", folder + "/002")
            self.assertTrue(raw(ds[2]["data"]) == content(2), "renamed back")
            os.truncate(folder + "/003", 100)
            self.refused(ds, 3)
            # Bytes after the end do not belong to the version.
            with open(folder + "/006", "ab") as f:
                f.write(b"more")
            self.assertTrue(raw(ds[6]["data"]) == content(6))
            with open(folder + "/new", "wb") as f:
                f.write(bytes(b ^ 1 for b in content(7)))
            os.rename(folder + "/new", folder + "/007")
            self.refused(ds, 7)
            with open(folder + "/new", "wb") as f:
                f.write(content(7))
            os.rename(folder + "/new", folder + "/007")
            self.assertTrue(raw(ds[7]["data"]) == content(7), "restored by another file")
            os.unlink(folder + "/008")
            os.mkdir(folder + "/008")
            self.refused(ds, 8)
            with leat.DataLoader(ds, FILES, on_error="skip") as loader:
                for batch in loader:
                    self.assertEqual(len(batch), FILES - 3)
                self.assertEqual(loader.metrics()["skipped"], 3)
                self.assertIn("blocks have changed since", loader.explain())

    def test_what_the_samples_are(self):
        """Versions of archives: an index that is rebuilt, the adapters, and the bytes between
        samples."""
        folder = self.mount + "/tars"
        os.mkdir(folder)
        test_loader.make_shards(folder)
        self.tool("dataset", "create", "tars@v1", "leat:/tars")
        with leat.Dataset("leat:tars@v1") as ds:
            self.assertEqual(len(ds), test_loader.SAMPLES)
        with leat.Dataset("leat:tars@v1", format="files") as ds:
            self.assertEqual(len(ds), test_loader.SHARDS)
        # The name of the first member.
        with open(folder + "/train-02.tar", "rb") as f:
            first = f.read(512)
        self.overwrite(folder + "/train-02.tar", 0, b"e" + first[1:])
        os.unlink(self.find_samples("tars@v1"))
        with self.assertRaises(leat.LeatError) as raised:
            leat.Dataset("leat:tars@v1")
        e = raised.exception
        self.assertEqual((e.errno, e.filename, e.offset), (errno.ESTALE, "train-02.tar", 0), str(e))
        self.overwrite(folder + "/train-02.tar", 0, first)
        samples = leat.webdataset.dataset("leat:tars@v1", order="sequential", stage_dir=None)
        self.assertEqual(sum(1 for _ in samples), test_loader.SAMPLES)
        self.overwrite(folder + "/train-02.tar", 20_000, b"\xff")  # no payload contains that
        with self.assertRaises(leat.LeatError) as raised:
            # Without errors of samples that were only read ahead.
            list(leat.webdataset.dataset(samples.dataset, order="sequential"))
        self.assertEqual((raised.exception.errno, raised.exception.filename),
                         (errno.ESTALE, "train-02.tar"))

    def damage(self, copy, n, r):
        """Writes wrong bytes to n different blocks of the copy's files."""
        files = sorted(os.path.join(d, f) for d, _, fs in os.walk(copy) for f in fs)
        blocks = [(f, i) for f in files for i in range(-(-os.path.getsize(f) // 16384))]
        for path, i in r.sample(blocks, n):
            mode, size = os.stat(path).st_mode & 0o7777, os.path.getsize(path)
            os.chmod(path, 0o600)
            with open(path, "r+b") as f:
                at = i * 16384 + r.randrange(min(16384, size - i * 16384))
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1 << r.randrange(8)]))
            os.chmod(path, mode)

    def test_damaged_blocks_of_a_copy(self):
        """Read from the servers, and repaired, while another loader reads too."""
        print("seed %d" % SEED)
        r, folder, to = random.Random(SEED), self.mount + "/deep", self.to("deep")
        os.mkdir(folder)
        data = [random.Random(i).randbytes(1_500_000 + i) for i in range(20)]
        for i, one in enumerate(data):
            with open("%s/%02d" % (folder, i), "wb") as f:
                f.write(one)
        self.tool("dataset", "create", "deep@v1", "leat:/deep")
        self.tool("stage", "in", "deep@v1", "--to", to)
        with leat.Dataset("leat:deep@v1", stage_dir=to) as ds, \
                leat.Dataset("leat:deep@v1", stage_dir=to) as other:
            self.damage(ds.path, 1000, r)
            with leat.DataLoader(ds, 2, tail="shorter", framework="numpy") as loader, \
                    leat.DataLoader(other, 2, tail="shorter", framework="numpy") as beside:
                for batches in zip(loader, beside):
                    for batch in batches:
                        self.assertTrue(batch.verified)
                        for i, got in zip(batch.ids.tolist(), batch["data"]):
                            self.assertTrue(raw(got) == data[i], "sample %d" % i)
                m, said = loader.metrics(), loader.explain()
                self.assertEqual((m["skipped"], m["blocks_stale"]), (0, 0))
                # A chunk that one loader has healed is right when the other reads it.
                self.assertGreaterEqual(m["bytes_mended"] + beside.metrics()["bytes_mended"],
                                        900 * 16384)
                self.assertIn("Wrong where they were read", said)
                end = time.monotonic() + 60
                while m["chunks_healed"] + beside.metrics()["chunks_healed"] < 30 and \
                        time.monotonic() < end:
                    time.sleep(0.1)
                    m = loader.metrics()
                self.assertGreaterEqual(m["chunks_healed"] + beside.metrics()["chunks_healed"], 30)
            path = ds.path
        # Without readers: everything is right, and stays read-only.
        self.tool("stage", "verify", "deep@v1", "--to", to)
        self.assertIn("READY", self.tool("stage", "status", "--to", to))
        self.assertEqual(os.stat(path + "/03").st_mode & 0o222, 0)
        with leat.Dataset("leat:deep@v1", stage_dir=to) as ds:
            with leat.DataLoader(ds, 2, tail="shorter", framework="numpy") as loader:
                for batch in loader:
                    pass
                self.assertEqual(loader.metrics()["bytes_mended"], 0)
        # Without servers the error says so, and what to do.
        self.damage(path, 200, r)
        self.dev("stop", "mds")
        try:
            with leat.Dataset("leat:deep@v1", stage_dir=to) as ds:
                with self.assertRaises(leat.LeatError) as raised:
                    for i in range(20):
                        self.assertTrue(raw(ds[i]["data"]) == data[i])
                e = raised.exception
                self.assertEqual(len(e.filename), 2)
                self.assertIsNotNone(e.offset)
                self.assertIn("leat stage in", str(e))
        finally:
            self.dev("start", "mds")
        self.tool("stage", "verify", "deep@v1", "--to", to, code=7)
        self.tool("stage", "in", "deep@v1", "--to", to)
        self.tool("stage", "verify", "deep@v1", "--to", to)

    def open_copy(self, what, to):
        """Opens in a process of its own: (source, id, log, seconds)."""
        code = ("import sys, leat\n"
                "with leat.Dataset(sys.argv[1], stage_dir=sys.argv[2]) as ds:\n"
                "    print(ds.source, ds.id, len(ds[0]['data']))\n")
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code, what, to], check=False, text=True,
                              capture_output=True, timeout=120,
                              env=dict(self.env, PYTHONPATH=SRC + "/client/python"))
        took = time.monotonic() - began
        return (*(done.stdout.split() + ["", ""])[:2], done.stderr, took)

    def test_a_copy_opens_by_its_name_without_the_metadata_server(self):
        self.make("near")
        self.tool("dataset", "create", "near@latest", "leat:/near")
        to = self.to("near")
        self.tool("stage", "in", "near@v1", "--to", to)
        self.tool("stage", "in", "near", "--to", to)
        source, name_id, said, took = self.open_copy("leat:near@v1", to)
        self.assertEqual((source, said), ("copy", ""))
        at_once = 6 + 4 * took  # with all servers, on a machine as busy as now
        try:
            self.dev("stop", "mds")
            source, now, said, took = self.open_copy("leat:near@v1", to)
            self.assertEqual((source, now), ("copy", name_id), said)
            self.assertLess(took, at_once, "it waited for the server")
            self.assertEqual(said.count("\n"), 1, said)
            self.assertIn("near@v1: the metadata server cannot be asked", said)
            # A source without a version may have changed.
            for what in ("near", "near@latest"):
                source, _, said, took = self.open_copy("leat:" + what, to)
                self.assertEqual(source, "", what)
                self.assertIn("give name@version", said, what)
                self.assertLess(took, at_once)
            # An id identifies the content.
            self.assertEqual(self.open_copy("leat:" + name_id[:16], to)[:2], ("copy", name_id))
        finally:
            self.dev("start", "mds")
        # A connection whose servers have stopped.
        fs = leat.connect()
        self.dev("stop", "mds")
        try:
            began = time.monotonic()
            with leat.Dataset("leat:near@v1", fs=fs, stage_dir=to) as ds:
                self.assertEqual(ds.source, "copy")
                self.assertLess(time.monotonic() - began, at_once)
        finally:
            self.dev("start", "mds")

    def test_the_metadata_server_says_what_a_name_means_now(self):
        folder, to = self.make("again"), self.to("again")
        self.tool("stage", "in", "again@v1", "--to", to)
        with leat.Dataset("leat:again@v1", stage_dir=to) as ds:
            first = ds.id
        self.tool("dataset", "rm", "again@v1")
        self.overwrite(folder + "/000", 0, b"?")
        self.tool("dataset", "create", "again@v1", "leat:/again")
        with leat.Dataset("leat:again@v1", stage_dir=to) as ds:
            self.assertEqual(ds.source, "server")
            self.assertNotEqual(ds.id, first)
            second = ds.id
        self.tool("stage", "in", "again@v1", "--to", to)
        with leat.Dataset("leat:again@v1", stage_dir=to) as ds:
            self.assertEqual((ds.source, ds.id), ("copy", second))
        with leat.Dataset("leat:" + first, stage_dir=to) as ds:
            self.assertEqual((ds.source, ds.id), ("copy", first))

    def find_samples(self, name):
        """The file of the catalogue that records its samples."""
        with open("%s/.leat/datasets/%s" % (self.mount, name), encoding="ascii") as f:
            return "%s/.leat/datasets/by-id/%s/%s/samples" % (self.mount, *f.read().split())


if __name__ == "__main__":
    unittest.main()
