#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What training programs do to a loader: hold batches, be slow, fork, fail, be interrupted, end at
any time, open and close for ever. No hang, no leak, a clear error."""
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import test_loader  # noqa: E402
from test_loader import SAMPLES, payload, raw  # noqa: E402

LONG = os.environ.get("LEAT_LONG") == "1"
# Times that everything is opened and closed; loaders and epochs on one data set.
OPENS, EPOCHS = (100_000, 100_000) if LONG else (300, 3_000)


def footprint():
    gc.collect()
    with open("/proc/self/statm") as f:
        resident = int(f.read().split()[1]) * resource.getpagesize()
    with open("/proc/self/maps") as f:
        maps = sum(1 for _ in f)
    return (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps, resident)


# A loader makes another buffer for batches when it needs one, which may be late: a descriptor and a
# mapping each, and at most as many as its depth.
BUFFERS = 8


class Robust(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.src = cls.tmp.name + "/src"
        os.mkdir(cls.src)
        test_loader.make_shards(cls.src)

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def not_grown(self, before):
        """What has ended may be visible a little longer: a thread after its join."""
        end = time.monotonic() + 60
        while True:
            after = footprint()
            same = (after[0] <= before[0] + BUFFERS and after[1] <= before[1]
                    and after[2] <= before[2] + BUFFERS)
            if same or time.monotonic() > end:
                break
            time.sleep(0.01)
        self.assertLessEqual(after[0], before[0] + BUFFERS, "descriptors")
        self.assertLessEqual(after[1], before[1], "threads")
        self.assertLessEqual(after[2], before[2] + BUFFERS, "mappings")
        self.assertLess(after[3], before[3] + (24 << 20), "memory")

    def repeat(self, n, work):
        for k in range(n):
            work(k)
            if k == n // 5:
                before = footprint()
        self.not_grown(before)

    def test_opening_and_closing_for_ever(self):
        def work(k):
            ds = leat.Dataset(self.src)
            loader = leat.DataLoader(ds, 10, seed=k, depth=2)
            if k % 3:
                loader.next()
            if k % 2:  # else leaves it to the garbage collector
                loader.close()
                ds.close()

        self.repeat(OPENS, work)

    def test_opening_with_all_that_may_be_asked_for(self):
        def first(data, out):
            out[0] = data[0] if len(data) else 0
            return 1

        def work(k):
            ds = leat.Dataset(self.src)
            mix = leat.Mixture([(ds, 2), (ds, 1)])
            loader = leat.DataLoader(mix, 10, seed=k, depth=2, cache_dir=self.tmp.name + "/cache",
                                     cache_bytes=1 << 20, decoders={"bin": leat.Decoder(first, 1)})
            if k % 3:
                loader.next()
            if k % 2:
                loader.close()
                mix.close()
            ds.close()

        self.repeat(OPENS // 10, work)

    def test_loaders_and_epochs_for_ever(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 50, fields=["cls"]) as kept:
            def work(k):
                kept.set_epoch(k)
                self.assertEqual(len(kept.next().ids), 50)
                if k % 10 == 0:
                    with leat.DataLoader(ds, 10, epoch=k, depth=2, fields=["cls"]) as loader:
                        loader.next()

            self.repeat(EPOCHS, work)

    def test_a_slow_consumer_costs_no_memory_and_is_named(self):
        # The machine decides what is slow enough, so naps get longer until the loader waits for
        # nothing.
        for nap_s in (0.02, 0.05, 0.2, 0.5, 1, 2):
            with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 10, depth=3) as loader:
                for batch in loader:
                    time.sleep(nap_s)
                    m = loader.metrics()
                    self.assertLessEqual(m["ready"] + m["held"] + m["filling"], 3)
                    self.assertLessEqual(m["memory"], 3 * (2 << 20))
                m, said = loader.metrics(), loader.explain()
            if "keeps up" in said:
                break
        self.assertGreater(m["utilisation"], 0.8)
        self.assertIn("keeps up", said)

    def test_the_cause_of_stalls_is_named(self):
        metrics = {"wait_us": 9_000_000, "busy_us": 1_000_000, "utilisation": 0.1, "batches": 5,
                   "samples": 50, "skipped": 0, "errors": 0, "bytes_local": 0,
                   "bytes_server": 1 << 20, "bytes_verified": 0, "held": 1, "depth": 6, "ready": 0,
                   "memory": 1, "memory_limit": 2, "bytes_device": 0, "memory_pinned": 0,
                   "bytes_peer": 3 << 20, "peers": 2, "peers_dropped": 1, "peers_lied": 1,
                   "bytes_direct": 0, "direct_failed": 0, "direct_mib_s": 0, "bounce_mib_s": 0,
                   "bytes_mended": 2 << 20, "blocks_stale": 4, "chunks_healed": 5}
        for name, words in (("server", "servers"), ("local", "disk"), ("verify", "unpacking"),
                            ("consumer", "still holds"), ("start", "first batches")):
            stalls = dict.fromkeys(("local", "server", "verify", "consumer", "start"), 100_000)
            text = leat._explain.explain(dict(metrics, stall_us=dict(stalls, **{name: 8_000_000})),
                                         "server")
            self.assertIn("90.0 % of the time", text)
            self.assertIn("Mostly for", text)
            self.assertIn(words, text.splitlines()[1])
            self.assertIn("taken from elsewhere: 2.0 MiB; 5 chunks", text)
            self.assertIn("4 blocks have changed", text)
            self.assertIn("Of other nodes: 3.0 MiB; 2 may be asked, 1 times one was left out", text)
        self.assertIn("2 batches had errors, 3 samples were skipped",
                      leat._explain.explain(dict(metrics, stall_us=stalls, errors=2, skipped=3),
                                            "copy"))

    def test_the_mount_that_a_path_lies_on(self):
        path, device = os.path.realpath(self.src), os.stat(self.src).st_dev
        number = "%d:%d" % (os.major(device), os.minor(device))
        table, line = self.src + "/../mountinfo", "36 35 %s / %s rw,noatime shared:1 - %s leat rw\n"
        for lines, want in (
                ([(number, "/", "fuse.leat")], "/"), ([(number, "/", "ext4")], None),
                ([(number, "/", "fuse.leather")], None), ([("0:9999", "/", "fuse.leat")], None),
                ([(number, "/", "fuse.leat"), (number, path, "fuse.leat"),
                  (number, path + "x", "fuse.leat")], path),
                ([(number, "/a\\040b\\134", "fuse.leat")], "/a b\\"), ([], None)):
            with open(table, "w", encoding="ascii") as f:
                f.write("".join(line % one for one in lines) + "garbage\n\n")
            self.assertEqual(leat._explain.mount_of(path, table), want, lines)
        self.assertIsNone(leat._explain.mount_of(path + "/none", table))
        self.assertIsNone(leat._explain.mount_of(path, table + ".none"))
        with leat.Dataset(self.src) as ds:
            self.assertEqual(ds.mounts, [])

    def test_batches_given_back_by_other_threads(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 5, depth=8) as loader:
            handed, wrong = [], []

            def consume():
                while True:
                    while not handed:
                        time.sleep(0.001)
                    batch = handed.pop()
                    if batch is None:
                        return
                    for i, data in zip(batch.ids.tolist(), batch["bin"]):
                        if raw(data) != payload(i):
                            wrong.append(i)
                    del batch, data

            threads = [threading.Thread(target=consume) for _ in range(2)]
            for t in threads:
                t.start()
            for _ in range(3):
                for batch in loader:
                    while len(handed) > 1:
                        time.sleep(0.001)
                    handed.append(batch)
                    del batch
            while handed:
                time.sleep(0.001)
            for t in threads:
                handed.append(None)
            for t in threads:
                t.join(300)
            self.assertEqual(wrong, [])

    def test_an_exception_in_the_loop_leaves_the_rest(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 10, depth=2) as loader:
            seen = []
            for _ in range(SAMPLES):
                try:
                    for batch in loader:
                        seen += batch.ids.tolist()
                        raise RuntimeError("in the loop")
                    break
                except RuntimeError:
                    del batch
            self.assertEqual(sorted(seen), list(range(SAMPLES)))

    def program(self, code, more_env=(), **more):
        return subprocess.Popen([sys.executable, "-c", "import leat, os, sys, time\n" + code,
                                 self.src], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE,
                                env=dict(os.environ, PYTHONPATH=SRC + "/client/python",
                                         **dict(more_env)), **more)

    def ends(self, child, code, words):
        out, err = child.communicate(timeout=300)
        self.assertEqual(child.returncode, code, err)
        self.assertIn(words, err)
        self.assertNotIn("Fatal", err)

    def test_ctrl_c_while_reading(self):
        code = ("ds = leat.Dataset(sys.argv[1]); loader = leat.DataLoader(ds, 5)\n"
                "print('on', flush=True)\n"
                "while True:\n    for batch in loader:\n        batch['bin'][0][:1]\n")
        for wait in (0, 0.05, 0.2):
            child = self.program(code)
            child.stdout.readline()
            time.sleep(wait)
            child.send_signal(signal.SIGINT)
            self.ends(child, -signal.SIGINT, "KeyboardInterrupt")

    def test_ctrl_c_while_next_fails_again_and_again(self):
        code = ("ds = leat.Dataset(sys.argv[1]); loader = leat.DataLoader(ds, 5, depth=2)\n"
                "kept = [loader.next(), loader.next()]\nprint('on', flush=True)\n"
                "while True:\n"
                "    try:\n        loader.next()\n"
                "    except leat.LeatError as error:\n        assert error.errno == 16\n")
        child = self.program(code)
        child.stdout.readline()
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        self.ends(child, -signal.SIGINT, "KeyboardInterrupt")

    def test_the_interpreter_ends_in_any_state(self):
        for tail in ("pass", "sys.exit(0)", "os._exit(0)", "loader.close()", "ds2 = ds; del ds",
                     "import threading; threading.Thread(target=lambda: [time.sleep(0.1),"
                     " loader.next()]).start()", "globals()['me'] = [batch, loader]; me.append(me)",
                     "import atexit; atexit.register(lambda: len(batch['bin'][0]))",
                     "loader2 = leat.DataLoader(ds, 3); b2 = loader2.next()"):
            child = self.program("ds = leat.Dataset(sys.argv[1]); loader = leat.DataLoader(ds, 5)\n"
                                 "batch = loader.next(); kept = batch['bin'][1]\n" + tail)
            self.ends(child, 0, "")

    def test_the_interpreter_ends_while_daemon_threads_read(self):
        for work in ("loader.next()", "ds.read([1, 2, 3])", "ds.key(7)", "loader.metrics()",
                     "loader.state_dict()", "leat.DataLoader(ds, 5).next()", "ds.order()[3]"):
            for _ in range(3):
                child = self.program(
                    "import threading\n"
                    "ds = leat.Dataset(sys.argv[1]); loader = leat.DataLoader(ds, 5)\n"
                    "going = threading.Event()\n"
                    "def work():\n"
                    "    while True:\n"
                    "        %s\n"
                    "        going.set()\n"
                    "for _ in range(4):\n"
                    "    threading.Thread(target=work, daemon=True).start()\n"
                    "going.wait()\n" % work, more_env={"MALLOC_PERTURB_": "165"})
                self.ends(child, 0, "")

    def test_closing_waits_for_the_calls_of_other_threads(self):
        with leat.Dataset(self.src) as ds:
            for _ in range(100):
                loader = leat.DataLoader(ds, 5, depth=2)
                told = []

                def work(loader=loader, told=told):
                    try:
                        while True:
                            loader.next()
                    except ValueError as error:
                        told.append(str(error))

                threads = [threading.Thread(target=work) for _ in range(2)]
                for t in threads:
                    t.start()
                loader.metrics()
                loader.close()
                for t in threads:
                    t.join(300)
                self.assertEqual(told, ["the loader is closed"] * 2)

    def test_a_forked_child_reads_its_batches_and_makes_loaders_of_its_own(self):
        with leat.Dataset(self.src) as ds, leat.DataLoader(ds, 10, seed=1) as loader:
            batch = loader.next()
            for _ in range(5):
                pid = os.fork()
                if pid == 0:
                    os._exit(self.child(ds, loader, batch))
                self.assertEqual(os.waitpid(pid, 0)[1], 0)
            del batch
            self.assertEqual(sum(len(b) for b in loader), SAMPLES - 10)

    @staticmethod
    def child(ds, loader, batch):
        try:
            if any(raw(d) != payload(i) for i, d in zip(batch.ids.tolist(), batch["bin"])):
                return 1
            try:
                loader.next()
                return 2
            except leat.LeatError as error:
                if error.errno != 95 or "forked" not in str(error):
                    return 3
            loader.close()
            with leat.DataLoader(ds, 10, seed=1, tail="shorter") as own:
                if sum(len(b) for b in own) != SAMPLES:
                    return 4
            return 0 if raw(ds[3]["bin"]) == payload(3) else 5
        except BaseException as error:  # no exception may reach the test's own runner
            print(repr(error), file=sys.stderr)
            return 6

    def test_forks_while_loaders_are_opened_by_other_threads(self):
        stop = threading.Event()

        def open_and_close():
            while not stop.is_set():
                with leat.Dataset(self.src) as ds:
                    len(ds)

        threads = [threading.Thread(target=open_and_close) for _ in range(2)]
        for t in threads:
            t.start()
        try:
            for _ in range(20):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(300)
                    with leat.Dataset(self.src) as ds:
                        os._exit(0 if raw(ds[1]["bin"]) == payload(1) else 1)
                self.assertEqual(os.waitpid(pid, 0)[1], 0)
        finally:
            stop.set()
            for t in threads:
                t.join(300)


if __name__ == "__main__":
    unittest.main()
