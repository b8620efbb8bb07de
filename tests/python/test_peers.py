#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Copies on other nodes as a source, with real agents: bytes that they send are right or not used,
and no reader waits for agents that die, sleep, lie or have lost their copies."""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or SRC + "/build"
sys.path[:0] = [SRC + "/client/python", SRC + "/tests/python", SRC + "/tests/lib"]
import leat  # noqa: E402
import ports  # noqa: E402
import test_cluster  # noqa: E402
from test_loader import raw  # noqa: E402

FILES, NODES = 48, 3
ADDR = os.environ.get("LEAT_DEV_HERE") or "127.0.0.1"


def content(i):
    return random.Random(i).randbytes(200_000 + 37_003 * i)


@unittest.skipIf(test_cluster.why_not(), test_cluster.why_not())
class Peers(unittest.TestCase):
    dev = classmethod(test_cluster.Cluster.dev.__func__)
    tool = test_cluster.Cluster.tool

    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.mkdtemp()
        cls.env = dict(os.environ, LEAT_DEV=cls.tmp + "/dev", LEAT_DEV_SIZE=str(1 << 30),
                       BUILD=BUILD, LEAT_DEV_MOUNTS="1")
        cls.agents = {}
        try:
            cls.dev("up")
            os.environ["LEAT_CONF"] = cls.env["LEAT_CONF"] = cls.tmp + "/dev/conf"
            mount = cls.dev("mountpoint").strip()
            os.mkdir(mount + "/files")
            for i in range(FILES):
                with open("%s/files/%03d" % (mount, i), "wb") as f:
                    f.write(content(i))
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        for n in list(cls.agents):
            cls.end(n)
        cls.dev("down")
        shutil.rmtree(cls.tmp, ignore_errors=True)

    @classmethod
    def end(cls, n):
        agent = cls.agents.pop(n)
        agent.send_signal(signal.SIGCONT)
        agent.kill()
        agent.wait()

    def start(self, n):
        port = ports.free_ports(1, ADDR)[0]
        ready = "%s/ready%d" % (self.tmp, n)
        with open("%s/agent%d.log" % (self.tmp, n), "a") as log:
            self.agents[n] = subprocess.Popen(
                [BUILD + "/leat", "agent", "--set", "dirs=%s/node%d" % (self.tmp, n),
                 "--set", "listen=%s:%d" % (ADDR, port), "--set", "node=node%d" % n,
                 "--set", "report_ms=200", "--ready-file", ready],
                env=self.env, stderr=log)
        end = time.monotonic() + 60
        while not (os.path.exists(ready) and os.path.getsize(ready)):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        os.unlink(ready)
        return "%s:%d" % (ADDR, port)

    def setUp(self):
        """All nodes have a copy of it."""
        name = "set@%s" % self._testMethodName[5:30]
        for n in list(self.agents):
            self.end(n)
        shutil.rmtree(self.tmp + "/node", ignore_errors=True)
        for n in range(NODES):
            shutil.rmtree("%s/node%d" % (self.tmp, n), ignore_errors=True)
        nodes = [self.start(n) for n in range(NODES)]
        self.tool("dataset", "create", name, "leat:/files")
        self.tool("stage", "in", name, "--nodes", ",".join(nodes))
        self.name, self.total = name, sum(200_000 + 37_003 * i for i in range(FILES))

    def epoch(self, ds, each=None, **more):
        """Returns metrics() after one epoch, and compares every byte."""
        seen = set()
        with leat.DataLoader(ds, 2, seed=3, framework="numpy", **more) as loader:
            for step, batch in enumerate(loader):
                self.assertTrue(batch.verified)
                for i, data in zip(batch.ids.tolist(), batch["data"]):
                    self.assertTrue(raw(data) == content(i % FILES), "sample %d" % i)
                    seen.add(i)
                if each:
                    each(step)
            self.assertEqual(len(seen), len(ds))
            return loader.metrics(), loader.explain()

    def open(self, **more):
        """Opens the data set, whose source is the servers."""
        ds = leat.Dataset("leat:" + self.name, **more)
        self.assertEqual(ds.source, "server")
        return ds

    def settled(self, ds, peers, lied):
        """The results of an epoch that sent requests to that many nodes and excluded none. A busy
        machine may make nodes too slow; they are excluded for a while, and tried again later."""
        m, _ = self.epoch(ds)  # connects
        for _ in range(20):
            dropped = m["peers_dropped"]
            m, said = self.epoch(ds)
            if m["peers"] == peers and m["peers_dropped"] == dropped and m["bytes_server"] == 0:
                break
            time.sleep(1)
        self.assertEqual((m["peers"], m["peers_dropped"], m["peers_lied"]), (peers, dropped, lied))
        return m, said

    def test_peers_before_servers(self):
        with self.open() as ds:
            m, said = self.settled(ds, NODES, 0)
            self.assertEqual(m["bytes_server"], 0)
            self.assertGreaterEqual(m["bytes_peer"], self.total)
            self.assertIn("Of other nodes", said)
            mix = leat.Mixture([(ds, 1), (ds, 1)])
            m, _ = self.epoch(mix)
            self.assertEqual(m["bytes_server"], 0)
            mix.close()
        with self.open(peers=False) as ds:
            m, said = self.epoch(ds)
            self.assertEqual((m["bytes_peer"], m["peers"]), (0, 0))
            self.assertGreaterEqual(m["bytes_server"], self.total)
            self.assertNotIn("Of other nodes", said)
        # A local copy is nearer.
        path = leat.stage_in("leat:" + self.name, self.tmp + "/node0")
        with leat.Dataset("leat:" + self.name, stage_dir=self.tmp + "/node0") as ds:
            self.assertEqual((ds.source, ds.path), ("copy", path))

    def test_a_cache_keeps_what_peers_gave(self):
        with self.open() as ds:
            self.epoch(ds)
            cache = {"cache_dir": self.tmp + "/cache", "cache_bytes": 1 << 30}
            m, _ = self.epoch(ds, **cache)
            self.assertGreaterEqual(m["bytes_peer"], self.total)
            m, _ = self.epoch(ds, **cache)
            self.assertEqual((m["bytes_peer"], m["bytes_server"]), (0, 0))
            self.assertGreaterEqual(m["bytes_cache"], self.total)

    def test_a_node_that_lies_is_asked_no_more(self):
        for folder, _, names in os.walk(self.tmp + "/node1/.leat"):
            for name in names:
                if os.path.basename(folder) != "data":
                    continue
                path = os.path.join(folder, name)
                os.chmod(path, 0o644)
                with open(path, "r+b") as f:
                    for at in range(1000, os.path.getsize(path), 64 << 10):
                        f.seek(at)
                        byte = f.read(1)[0]
                        f.seek(at)
                        f.write(bytes([byte ^ 1]))
        with self.open() as ds:
            m, _ = self.settled(ds, NODES - 1, 1)
            self.assertEqual(m["bytes_server"], 0)

    def test_who_may_not_write_a_copy_tells_its_agent(self):
        """A copy of root's, which another user reads: root's agent repairs it."""
        data = os.path.dirname(leat.stage_in("leat:" + self.name, self.tmp + "/node0")) + "/data"
        for name in sorted(os.listdir(data))[::4]:
            path = data + "/" + name
            with open(path, "r+b") as f:
                f.seek(70_000)
                byte = f.read(1)[0]
                f.seek(70_000)
                f.write(bytes([byte ^ 1]))
        # That user's own configuration; the folders on its path contain no secrets.
        for folder in self.tmp, os.path.dirname(self.tmp):
            os.chmod(folder, os.stat(folder).st_mode & 0o7777 | 0o011)
        for name in "conf", "key":
            shutil.copy(self.tmp + "/dev/" + name, self.tmp + "/" + name)
            os.chown(self.tmp + "/" + name, 65534, 65534)
        with open(self.tmp + "/conf", encoding="utf-8") as f:
            text = f.read().replace(self.tmp + "/dev/key", self.tmp + "/key")
        with open(self.tmp + "/conf", "w", encoding="utf-8") as f:
            f.write(text)
        code = ("import os, sys\n"
                "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
                "import leat, zlib\n"
                "with leat.Dataset(sys.argv[1], stage_dir=sys.argv[2]) as ds:\n"
                "    with leat.DataLoader(ds, 4, tail='shorter', framework='numpy') as loader:\n"
                "        for batch in loader:\n"
                "            for i, one in zip(batch.ids.tolist(), batch['data']):\n"
                "                print(ds.source, i, zlib.crc32(one))\n")
        done = subprocess.run([sys.executable, "-c", code, "leat:" + self.name,
                               self.tmp + "/node0"], check=False, capture_output=True, text=True,
                              env=dict(self.env, LEAT_CONF=self.tmp + "/conf",
                                       PYTHONPATH=SRC + "/client/python"), timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.split("\n"))[1:],
                         sorted("copy %d %d" % (i, zlib.crc32(content(i))) for i in range(FILES)))
        end = time.monotonic() + 30
        while self.wrong(data) and time.monotonic() < end:
            time.sleep(0.2)
        with open(self.tmp + "/agent0.log", encoding="utf-8") as f:
            log = f.read()
        self.assertEqual(self.wrong(data), [], done.stderr + log)
        self.tool("stage", "verify", self.name, "--to", self.tmp + "/node0")
        self.assertIn("damaged chunks have been put right", log)

    def wrong(self, data):
        found = []
        for i in range(FILES):
            with open("%s/%03d" % (data, i), "rb") as f:
                if f.read() != content(i):
                    found.append(i)
        return found

    def test_nodes_that_die_and_sleep_and_evict(self):
        def trouble(step):
            if step == 3:
                self.agents[0].kill()
            if step == 8:
                self.agents[1].send_signal(signal.SIGSTOP)
            if step == 15:
                self.tool("stage", "evict", self.name, "--to", self.tmp + "/node2")
            if step == 20:
                self.agents[1].send_signal(signal.SIGCONT)

        with self.open() as ds:
            self.epoch(ds)
            m, said = self.epoch(ds, trouble, depth=2)
            self.assertGreater(m["bytes_peer"], 0)
            self.assertGreater(m["bytes_peer"] + m["bytes_server"], self.total - 1)
            for n in range(1, NODES):
                self.end(n)
            begin = time.monotonic()
            m, said = self.epoch(ds)
            self.assertEqual(m["bytes_peer"], 0, said)
            self.assertGreaterEqual(m["bytes_server"], self.total)
            # No reader waits for connections without replies.
            self.assertLess(m["stall_us"]["peer"], 2_000_000, said)
            self.assertLess(time.monotonic() - begin, 60)


if __name__ == "__main__":
    unittest.main()
