#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Decoders that C threads call: functions of a C library, and Python functions through ctypes.
timeout: 300"""
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python"]
import leat  # noqa: E402
import test_loader  # noqa: E402
from test_loader import SAMPLES, payload, raw  # noqa: E402

LIBRARY = r"""
#include <errno.h>
#include <leat/leat_loader.h>
/* The number in the text, as an int64, times *arg. */
int64_t number(void *arg, const struct leat_decode_call *c)
{
	const char *text = c->in;
	int64_t v = 0;
	for (uint64_t i = 0; i < c->in_len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EILSEQ;
		v = v * 10 + text[i] - '0';
	}
	*(int64_t *)c->out = v * (arg ? *(const int64_t *)arg : 1);
	return sizeof(v);
}
"""


class Decoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.src = cls.tmp.name + "/src"
        os.mkdir(cls.src)
        test_loader.make_shards(cls.src)
        with open(cls.tmp.name + "/number.c", "w") as f:
            f.write(LIBRARY)
        subprocess.run(["cc", "-shared", "-fPIC", "-I", SRC + "/client/include", "-o",
                        cls.tmp.name + "/number.so", cls.tmp.name + "/number.c"], check=True)
        cls.library = ctypes.CDLL(cls.tmp.name + "/number.so")

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def setUp(self):
        self.ds = leat.Dataset(self.src)

    def tearDown(self):
        self.ds.close()

    def test_a_c_function(self):
        factor = ctypes.c_int64(1000)
        for arg, times in ((0, 1), (ctypes.addressof(factor), 1000)):
            decoders = {"cls": leat.Decoder(self.library.number, 8, type="<i8", arg=arg)}
            with leat.DataLoader(self.ds, 10, decoders=decoders, decode_threads=3,
                                 framework="numpy") as loader:
                for batch in loader:
                    for i, label, data in zip(batch.ids.tolist(), batch["cls"], batch["bin"]):
                        self.assertEqual((label.dtype, int(label)), (np.int64, i % 7 * times))
                        self.assertEqual(raw(data), payload(i))

    def test_a_python_function(self):
        threads = set()

        def double(data, out):
            threads.add(threading.get_ident())
            out[:2 * len(data)] = bytes(data) * 2
            return 2 * len(data)

        with leat.DataLoader(self.ds, 10, decoders={"bin": leat.Decoder(double, 1 << 16)},
                             tail="shorter") as loader:
            for _ in range(2):
                seen = 0
                for batch in loader:
                    for i, data in zip(batch.ids.tolist(), batch["bin"]):
                        self.assertEqual(raw(data), payload(i) * 2)
                        seen += 1
                self.assertEqual(seen, SAMPLES)
        self.assertNotIn(threading.get_ident(), threads)

    def test_exceptions_name_the_sample(self):
        def broken(data, out):
            if bytes(data) == payload(33):
                raise ValueError("no picture")
            out[0] = 1
            return 1

        decoders = {"bin": leat.Decoder(broken, 1)}
        with leat.DataLoader(self.ds, 10, order="sequential", decoders=decoders) as loader:
            for _ in range(3):
                loader.next()
            for _ in range(2):
                with self.assertRaises(leat.LeatError) as raised:
                    loader.next()
                self.assertIn("the decoder of bin failed: ValueError: no picture",
                              str(raised.exception))
                self.assertEqual(raised.exception.filename, "train-01.tar")
        with leat.DataLoader(self.ds, 10, on_error="skip", decoders=decoders) as loader:
            ids = [i for batch in loader for i in batch.ids.tolist()]
            self.assertEqual(sorted(ids), [i for i in range(SAMPLES) if i != 33])
            self.assertEqual(loader.metrics()["skipped"], 1)

    def test_one_that_does_not_return(self):
        go = threading.Event()

        def stuck(data, _out):
            if bytes(data) == payload(25):
                go.wait()
            return 0

        loader = leat.DataLoader(self.ds, 10, order="sequential", decode_ms=300,
                                 decoders={"bin": leat.Decoder(stuck, 1)})
        loader.next()
        loader.next()
        with self.assertRaises(leat.LeatError) as raised:
            loader.next()
        self.assertIn("at work on sample 25", str(raised.exception))
        begin = time.monotonic()
        loader.close()
        self.assertLess(time.monotonic() - begin, 10)
        go.set()

    def ended(self, tail):
        code = ("import leat, sys, time\n"
                "def slow(data, out):\n    time.sleep(0.01)\n    out[0] = 7\n    return 1\n"
                "ds = leat.Dataset(sys.argv[1])\n"
                "loader = leat.DataLoader(ds, 5, decoders={'bin': leat.Decoder(slow, 1)})\n"
                "batch = loader.next()\n" + tail)
        done = subprocess.run([sys.executable, "-c", code, self.src], timeout=300, text=True,
                              capture_output=True, check=False,
                              env=dict(os.environ, PYTHONPATH=SRC + "/client/python"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_interpreter_ends_while_they_work(self):
        for tail in ("pass", "sys.exit(0)", "loader.close()", "del loader, ds", "del batch",
                     "kept = batch['bin'][0]\ntime.sleep(0.05)"):
            self.ended(tail)

    def test_ctrl_c_while_they_work(self):
        code = ("import leat, sys, time\n"
                "def slow(data, out):\n    time.sleep(0.05)\n    return 0\n"
                "ds = leat.Dataset(sys.argv[1])\n"
                "loader = leat.DataLoader(ds, 50, decoders={'bin': leat.Decoder(slow, 1)})\n"
                "print('on', flush=True)\nwhile True:\n    loader.next()\n")
        child = subprocess.Popen([sys.executable, "-c", code, self.src], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=dict(os.environ, PYTHONPATH=SRC + "/client/python"))
        child.stdout.readline()
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=300)
        self.assertEqual(child.returncode, -signal.SIGINT, err)
        self.assertIn("KeyboardInterrupt", err)

    def test_a_forked_child_gets_an_error(self):
        decoders = {"cls": leat.Decoder(self.library.number, 8, type="<i8")}
        with leat.DataLoader(self.ds, 10, decoders=decoders, framework="numpy") as loader:
            batch = loader.next()
            for _ in range(5):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(300)
                    try:
                        loader.next()
                    except leat.LeatError as error:
                        right = [int(v) for v in batch["cls"]] == [i % 7 for i in
                                                                   batch.ids.tolist()]
                        loader.close()
                        os._exit(0 if "forked" in str(error) and right else 1)
                    os._exit(2)
                self.assertEqual(os.waitpid(pid, 0)[1], 0)
            del batch
            self.assertEqual(sum(len(b) for b in loader), SAMPLES - 10)

    def test_what_is_refused(self):
        def nothing(_data, _out):
            return 0

        for decoders in ({"jpg": leat.Decoder(nothing, 1)}, {"bin": leat.Decoder(nothing, 0)}):
            with self.assertRaises(leat.LeatError):
                leat.DataLoader(self.ds, 5, decoders=decoders)


if __name__ == "__main__":
    unittest.main()
