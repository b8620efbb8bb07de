#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Errors without a configuration, or without a usable key file: the exception names the file that
was tried, and what to do; nothing else is printed."""
import errno
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, SRC + "/client/python")
import leat  # noqa: E402

USUAL = "/etc/leat/leat.conf"
PROGRAM = """import leat
try:
    leat.Dataset("leat:digits@v1")
except leat.LeatError as e:
    print(e.errno, e, end="")
"""


class Connect(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)

    def write(self, name, text, mode=0o600):
        path = "%s/%s" % (self.tmp.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def conf(self, key):
        return self.write("leat.conf", "[cluster]\nmds = 127.0.0.1:1\nkey_file = %s\n" % key)

    def refused(self, conf, number, *words):
        """With each way to name a configuration."""
        with self.assertRaises(leat.LeatError) as raised:
            leat.FileSystem(conf)
        e = raised.exception
        env = dict(os.environ, PYTHONPATH=SRC + "/client/python", LEAT_CONF=conf or "")
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=False, text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.stdout, "%d %s" % (e.errno, e))
        self.assertEqual(e.errno, number, str(e))
        for word in words:
            self.assertIn(word, str(e))
        self.assertEqual(str(pickle.loads(pickle.dumps(e))), str(e))
        self.assertNotIn("the configuration cannot be used", str(e))
        self.assertEqual(done.stderr, "", "it is in the exception, and nowhere else")

    def test_no_configuration_where_one_was_named(self):
        self.refused(self.tmp.name + "/none.conf", errno.EINVAL, self.tmp.name + "/none.conf",
                     "No such file", "LEAT_CONF", "--conf")

    @unittest.skipIf(os.path.exists(USUAL), USUAL + " is there")
    def test_no_configuration_at_all(self):
        self.refused(None, errno.ENOENT, "there is no " + USUAL, "cluster key /etc/leat/",
                     "LEAT_CONF", "--conf")

    def test_a_wrong_configuration(self):
        conf = self.write("leat.conf", "[cluster]\nmdz = 127.0.0.1:1\n")
        self.refused(conf, errno.EINVAL, conf + ":2: unknown parameter 'mdz'", "config sample")

    def test_no_key_file(self):
        key = self.tmp.name + "/none"
        conf = self.conf(key)
        self.refused(conf, errno.ENOENT, "cluster key %s: no such file" % key, "key_file", conf)

    def test_a_key_file_that_cannot_be_used(self):
        conf = self.conf(self.write("key", "0" * 64 + "\n", 0o644))
        self.refused(conf, errno.EACCES, self.tmp.name + "/key: others than its owner",
                     "chmod 0600", conf)
        self.write("key", "abc\n")
        self.refused(conf, errno.EINVAL, self.tmp.name + "/key: it does not hold 64 hex digits",
                     "openssl rand", conf)

    def test_a_name_that_lacks_leat(self):
        with self.assertRaises(FileNotFoundError) as raised:
            leat.stage_in("digits@v1", self.tmp.name)
        for word in ("digits@v1: there is no such data set", "is called leat:digits@v1"):
            self.assertIn(word, str(raised.exception))

    def test_the_servers_where_they_were_asked(self):
        conf = self.conf(self.write("key", "0" * 64 + "\n"))
        with self.assertRaises(ConnectionRefusedError) as raised:
            leat.FileSystem(conf, _within_ms=300)
        for word in (conf, "mds = 127.0.0.1:1: ", "leat status"):
            self.assertIn(word, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
