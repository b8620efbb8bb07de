#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Loader and staging against real servers.
waits: yes"""
import ctypes
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import numpy as np  # noqa: E402
import leat  # noqa: E402
from leat import _c, checkpoint  # noqa: E402
import test_loader  # noqa: E402

BIG = 64 << 20


def why_not():
    if os.getuid() != 0:
        return "mounting needs root"
    if not os.path.exists("/dev/fuse"):
        return "no /dev/fuse"
    return None


@unittest.skipIf(why_not(), why_not())
class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.mkdtemp()
        with open(cls.tmp + "/more.conf", "w") as f:
            f.write("[client]\nrequest_timeout_ms = 20000\n")
        cls.env = dict(os.environ, LEAT_DEV=cls.tmp + "/dev", LEAT_DEV_SIZE=str(1 << 30),
                       BUILD=BUILD,
                       LEAT_DEV_CONF=cls.tmp + "/more.conf", LEAT_DEV_MOUNTS="1")
        try:
            cls.dev("up")
            os.environ["LEAT_CONF"] = cls.env["LEAT_CONF"] = cls.tmp + "/dev/conf"
            cls.mount = cls.dev("mountpoint").strip()
            os.mkdir(cls.mount + "/shards")
            test_loader.make_shards(cls.mount + "/shards")
            os.mkdir(cls.tmp + "/local")
            test_loader.make_shards(cls.tmp + "/local")
            os.mkdir(cls.mount + "/big")
            for i in range(4):
                with open("%s/big/%d" % (cls.mount, i), "wb") as f:
                    f.write(random.Random(i).randbytes(BIG // 4))
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.dev("down")
        shutil.rmtree(cls.tmp, ignore_errors=True)

    @classmethod
    def dev(cls, *words):
        return subprocess.run([SRC + "/deploy/dev-cluster", *words], env=cls.env, check=True,
                              text=True,
                              stdout=subprocess.PIPE).stdout

    def test_a_wrong_key(self):
        with open(self.tmp + "/dev/conf") as f:
            conf = f.read().replace(self.tmp + "/dev/key", self.tmp + "/wrong.key")
        with open(self.tmp + "/wrong.conf", "w") as f:
            f.write(conf)
        with open(self.tmp + "/wrong.key", "w") as f:
            f.write("ab" * 32 + "\n")
        os.chmod(self.tmp + "/wrong.key", 0o600)
        with self.assertRaises(PermissionError) as raised:
            leat.FileSystem(self.tmp + "/wrong.conf")
        for word in (self.tmp + "/wrong.conf", "mds = ", "wrong cluster key", "leat status"):
            self.assertIn(word, str(raised.exception))

    def tool(self, *words, code=0):
        done = subprocess.run([BUILD + "/leat", *words], env=self.env, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def made_by_the_library(self, path, flags=os.O_RDWR | os.O_CREAT):
        """0, or the error number."""
        p = ctypes.c_void_p()
        fs = leat.FileSystem(self.tmp + "/dev/conf")
        rc = _c.leat_open(fs._handle(), os.fsencode(path), flags, 0o644, ctypes.byref(p))
        if rc == 0:
            rc = _c.leat_close(p)
        fs.close()
        return 0 if rc == 0 else _c.leat_errno(rc)

    def test_the_library_makes_what_a_link_names(self):
        d = self.mount + "/links"
        os.makedirs(d + "/sub")
        for name, target in (("a", "sub/new"), ("b", "/links/abs"), ("c", "a2"), ("a2", "sub/far"),
                             ("loop", "loop"), ("lost", "nowhere/x"), ("no", "sub/no")):
            os.symlink(target, "%s/%s" % (d, name))
        for name, made in (("a", "sub/new"), ("b", "abs"), ("c", "sub/far")):
            self.assertEqual(self.made_by_the_library("/links/" + name), 0)
            self.assertTrue(os.path.isfile("%s/%s" % (d, made)), name)
            self.assertEqual(self.made_by_the_library("/links/" + name), 0, "it is there now")
        self.assertEqual(self.made_by_the_library("/links/loop"), errno.ELOOP)
        self.assertEqual(self.made_by_the_library("/links/lost"), errno.ENOENT)
        for flag, error in ((os.O_EXCL, errno.EEXIST), (os.O_NOFOLLOW, errno.ELOOP)):
            self.assertEqual(
                self.made_by_the_library("/links/no", os.O_RDWR | os.O_CREAT | flag), error)
        self.assertEqual(sorted(os.listdir(d + "/sub")), ["far", "new"])

    def to(self, name):
        path = self.tmp + "/" + name
        os.makedirs(path, exist_ok=True)
        return path

    def epoch(self, ds, **more):
        with leat.DataLoader(ds, 8, seed=1, tail="shorter", framework="numpy", **more) as loader:
            ids = []
            for batch in loader:
                for k, s in enumerate(batch.ids.tolist()):
                    self.assertEqual(test_loader.raw(batch["bin"][k]), test_loader.payload(s))
                ids += batch.ids.tolist()
            return ids, batch.verified, loader.metrics()

    def test_servers_copies_and_local_files_give_the_same_epoch(self):
        with leat.Dataset(self.tmp + "/local") as ds:
            want, verified, _ = self.epoch(ds)
            self.assertFalse(verified)
        with leat.Dataset("leat:/shards") as ds:
            got, verified, metrics = self.epoch(ds)
            self.assertEqual((ds.source, got, verified), ("server", want, True))
            self.assertGreater(metrics["bytes_server"], 0)
        to = self.to("same")
        path = leat.stage_in("leat:/shards", to)
        with leat.Dataset("leat:/shards", stage_dir=to) as ds:
            got, verified, metrics = self.epoch(ds)
            self.assertEqual((ds.source, ds.path, got, verified), ("copy", path, want, True))
            self.assertEqual(metrics["bytes_server"], 0)
        self.tool("dataset", "create", "shards@v1", "leat:/shards")
        with leat.Dataset("leat:shards@v1") as ds:
            got, verified, _ = self.epoch(ds)
            self.assertEqual((ds.source, got, verified), ("server", want, True))

    def test_a_path_on_a_mount_is_told_from_local_files(self):
        os.symlink(self.mount + "/shards", self.tmp + "/link to it")
        said = "the mount of Leat at " + self.mount
        for what in (self.mount + "/shards", self.mount + "/shards/*.tar",
                     self.mount + "/shards/train-00.tar", self.tmp + "/link to it"):
            with leat.Dataset(what) as ds, leat.DataLoader(ds, 8) as loader:
                loader.next()
                self.assertEqual((ds.source, ds.mounts), ("local", [self.mount]), what)
                self.assertIn("read from " + said, repr(ds))
                text = loader.explain()
                for words in ("from %s," % said, "the kernel reads from the servers",
                              "leat:NAME@VERSION", "leat.stage_in"):
                    self.assertIn(words, text)
                self.assertNotIn("local files", text)
                waited = dict(loader.metrics(), utilisation=0.1, stall_us={"local": 9_000_000})
                text = leat._explain.explain(waited, ds.source, ds.mounts)
                self.assertIn("Mostly for reading through %s " % said, text)
                self.assertNotIn("disk", text)
        with leat.Dataset(self.mount + "/shards") as far, leat.Dataset("leat:/shards") as past, \
                leat.Dataset(self.tmp + "/local") as local, \
                leat.Mixture([(far, 1), (local, 1)]) as mix:
            for ds, mounts in ((past, []), (local, []), (mix, [self.mount])):
                with leat.DataLoader(ds, 8) as loader:
                    loader.next()
                    self.assertEqual(ds.mounts, mounts)
                    self.assertEqual(said in loader.explain(), bool(mounts))

    def test_a_copy_stands_for_its_source_where_that_is(self):
        to = self.to("elsewhere")
        leat.stage_in("leat:/shards", to)
        with self.assertRaises(leat.LeatError) as raised:  # this folder does not exist locally
            leat.Dataset("/shards", stage_dir=to)
        self.assertEqual(raised.exception.errno, errno.ENOENT)
        local, to = self.tmp + "/local", self.to("here")
        leat.stage_in(local, to)
        os.makedirs(self.mount + local)
        with open(self.mount + local + "/other", "wb") as f:
            f.write(b"other")
        with leat.Dataset("leat:" + local, stage_dir=to) as ds:
            self.assertEqual((ds.source, len(ds), test_loader.raw(ds[0]["data"])),
                             ("server", 1, b"other"))
        with leat.Dataset(local, stage_dir=to) as ds:
            self.assertEqual((ds.source, len(ds)), ("copy", test_loader.SAMPLES))

    def test_garbage_that_refers_to_itself_ends_in_the_right_order(self):
        code = ("import gc, leat\n"
                "class Garbage: pass\n"
                "gc.disable()\n"
                "for k in range(20):\n"
                "    t = Garbage()\n"
                "    if k % 2:\n"
                "        t.fs = leat.FileSystem()\n"
                "    t.ds = leat.Dataset('leat:/shards', fs=t.fs if k % 2 else None)\n"
                "    t.loader, t.me = leat.DataLoader(t.ds, 8, depth=8), t\n"
                "    t.loader.next()\n"
                "    del t\n"
                "    gc.collect()\n")
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], check=False,
                              capture_output=True, text=True, timeout=300,
                              env=dict(self.env, PYTHONPATH=SRC + "/client/python",
                                       MALLOC_PERTURB_="165"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_cache_saves_reads_from_the_servers(self):
        with leat.Dataset("leat:/shards") as ds:
            _, _, once = self.epoch(ds)
            # A piece uses whole units of 4 KiB; the larger pieces are few.
            with leat.DataLoader(ds, 8, tail="shorter", framework="numpy",
                                 cache_dir=self.to("cache"), cache_bytes=4 << 20) as loader:
                for _ in range(4):
                    for batch in loader:
                        self.assertTrue(batch.verified)
                        for k, s in enumerate(batch.ids.tolist()):
                            self.assertEqual(test_loader.raw(batch["bin"][k]),
                                             test_loader.payload(s))
                    del batch
                m = loader.metrics()
            self.assertGreater(m["cache_hits"], 2 * test_loader.SAMPLES)
            # The first epoch, and what is read ahead of the next before the cache has written it.
            self.assertLess(m["bytes_server"], 2 * once["bytes_server"])
            self.assertEqual((m["bytes_local"], m["cache_bad"], m["cache_failed"]), (0, 0, 0))

    def test_a_mixture_of_servers_copies_and_local_files(self):
        to = self.to("mixed")
        fs = leat.connect()
        leat.stage_in("leat:/shards", to)
        with leat.Dataset("leat:/shards", fs=fs) as far, \
                leat.Dataset("leat:/shards", fs=fs, stage_dir=to) as near, \
                leat.Dataset(self.tmp + "/local") as local, \
                leat.Mixture([(far, 1), (near, 1), (local, 2)]) as mix:
            self.assertEqual((far.source, near.source, local.source), ("server", "copy", "local"))
            with leat.DataLoader(mix, 8, framework="numpy", cache_dir=self.to("mixed-cache"),
                                 cache_bytes=4 << 20) as loader:
                for _ in range(2):
                    for batch in loader:
                        self.assertFalse(batch.verified)  # local files have no checksums
                        for k, s in enumerate(batch.ids.tolist()):
                            self.assertEqual(test_loader.raw(batch["bin"][k]),
                                             test_loader.payload(s % test_loader.SAMPLES))
                    del batch
                m = loader.metrics()
            self.assertGreater(m["bytes_server"], 0)
            self.assertGreater(m["bytes_local"], 0)
            self.assertGreater(m["cache_hits"], 0)
        fs.close()

    def test_checkpoints_through_libleat_and_through_the_mount(self):
        state = {"a": np.arange(3 << 20), "b": np.ones(7, np.float32), "c": [1, "two"]}
        with leat.FileSystem() as fs:
            checkpoint.save("leat:/step-1", state, fs=fs, meta=1)
            checkpoint.save("leat:/step-1", state, meta=2)  # replaces the first
        for path in ("leat:/step-1", self.mount + "/step-1"):
            self.assertEqual(checkpoint.info(path).meta, 2)
            back = checkpoint.load(path)
            np.testing.assert_array_equal(back["a"], state["a"])
            np.testing.assert_array_equal(back["b"], state["b"])
            self.assertEqual(back["c"], state["c"])
        checkpoint.save(self.mount + "/step-2", {"v": 2})
        self.assertEqual(checkpoint.load("leat:/step-2"), {"v": 2})
        self.assertEqual({n for n in os.listdir(self.mount) if "step" in n}, {"step-1", "step-2"})
        with self.assertRaises(leat.LeatError) as raised:
            checkpoint.load("leat:/step-3")
        self.assertEqual((raised.exception.errno, raised.exception.filename), (2, "/step-3"))

    def test_a_save_that_is_killed_leaves_a_whole_checkpoint(self):
        """By "leat:" and through the mount, killed at any moment; the name never leads to a
        part."""
        code = ("import sys, numpy; from leat import checkpoint\n"
                "for step in range(10**6):\n"
                "    checkpoint.save(sys.argv[1], {'step': step, 'a': numpy.full(3 << 20, step%251,"
                " 'u1'), 'e': numpy.zeros(0)})\n    print(step, flush=True)")
        rng, saved = random.Random(5), 0
        for path in ("leat:/killed", self.mount + "/killed-too"):
            checkpoint.save(path, {"step": -1, "a": np.full(9, 250, np.uint8)})
            for _ in range(20 if os.environ.get("LEAT_LONG") == "1" else 2):
                child = subprocess.Popen([sys.executable, "-c", code, path], env=dict(
                    self.env, PYTHONPATH=SRC + "/client/python"), stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL)
                child.stdout.readline()
                time.sleep(rng.uniform(0, 0.3))
                child.send_signal(signal.SIGKILL)
                child.communicate()
                state = checkpoint.load(path)
                self.assertTrue((state["a"] == state["step"] % 251).all())
                saved += state["step"] + 1
        self.assertGreater(saved, 0)
        for name in os.listdir(self.mount):
            if name.endswith(".part"):
                os.unlink(self.mount + "/" + name)

    def test_connections_that_come_and_go_leave_no_space_granted(self):
        # Each server that a connection writes to grants it up to 64 MiB.
        state = {"a%d" % k: np.ones(100) for k in range(20)}
        for _ in range(100):
            with leat.FileSystem() as fs:
                checkpoint.save("leat:/again", state, fs=fs)

    def test_killed_at_random_and_never_ready_too_early(self):
        to, rng, moved = self.to("killed"), random.Random(7), 0
        for _ in range(8):
            child = subprocess.Popen([BUILD + "/leat", "stage", "in", "leat:/big", "--to", to],
                                     env=self.env,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.005, 0.12))
            child.send_signal(signal.SIGKILL)
            child.wait()
            copies = json.loads(self.tool("stage", "ls", "--to", to, "--json"))["copies"]
            for copy in copies:
                if copy["state"] == "READY":
                    self.same("/big", copy["path"])
        result = json.loads(self.tool("stage", "in", "leat:/big", "--to", to, "--json"))
        moved = result["bytes_moved"]
        self.assertEqual((result["state"], result["bytes_verified"]), ("READY", BIG))
        self.assertLessEqual(moved, BIG)
        self.same("/big", result["path"])
        again = json.loads(self.tool("stage", "in", "leat:/big", "--to", to, "--json"))
        self.assertEqual(again["bytes_moved"], 0)
        self.tool("stage", "verify", result["id"], "--to", to)

    def same(self, source, copy):
        subprocess.run(["diff", "-r", self.mount + source, copy], check=True)

    def test_a_changed_source_is_told(self):
        os.mkdir(self.mount + "/moving")
        with open(self.mount + "/moving/a", "wb") as f:
            f.write(b"a" * 100000)
        self.tool("dataset", "create", "moving@v1", "leat:/moving")
        with open(self.mount + "/moving/a", "r+b") as f:
            f.write(b"b")
        self.tool("stage", "in", "moving@v1", "--to", self.to("moving"), code=9)

    def test_a_copy_is_opened_by_its_name_without_the_servers(self):
        to, all_of_them = self.to("kept"), ["ossd%d" % k for k in range(1, 5)] + ["mds"]
        self.tool("dataset", "create", "kept@v1", "leat:/shards")
        leat.stage_in("leat:kept@v1", to)
        fs = leat.FileSystem()
        try:
            leat.Dataset("leat:kept@v1", fs=fs).close()
            for name in all_of_them:
                self.dev("stop", name)
                if name not in ("ossd4", "mds"):
                    continue
                since = time.monotonic()
                with leat.Dataset("leat:kept@v1", fs=fs, stage_dir=to) as ds:
                    self.assertEqual((ds.source, len(ds)), ("copy", test_loader.SAMPLES))
                self.assertLess(time.monotonic() - since, 15, "it asked, for 20 s")
        finally:
            for name in reversed(all_of_them):
                self.dev("start", name)
            fs.close()

    def test_a_dead_server_is_an_error_and_then_goes_on(self):
        with leat.Dataset("leat:/big") as ds, leat.DataLoader(ds, 1, depth=2,
                                                              order="sequential") as loader:
            loader.next()
            self.dev("stop", "ossd2")
            try:
                with self.assertRaises(leat.LeatError) as raised:
                    for _ in range(8):
                        loader.next()
                self.assertEqual(raised.exception.origin, "server")
                self.assertIsNotNone(raised.exception.filename)
            finally:
                self.dev("start", "ossd2")
            deadline = time.monotonic() + 300
            while True:
                try:
                    batch = loader.next()
                    break
                except leat.LeatError:
                    self.assertLess(time.monotonic(), deadline)
            want = random.Random(int(batch.names[0])).randbytes(BIG // 4)
            self.assertEqual(test_loader.raw(batch["data"][0]), want)


if __name__ == "__main__":
    unittest.main()
