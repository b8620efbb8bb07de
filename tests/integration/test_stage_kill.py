#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Staging under kill -9 of agents, of `leat stage in` and of the servers, at random moments. This
program itself compares what is marked READY, file by file, with the source as it was written; data
that was verified and synced is not fetched again. Four rounds with a quarter of the data, in which
every kind of process is killed; with --long 50 rounds, with random victims. LEAT_ROUNDS and
LEAT_SEED choose number and seed.
"""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, SRC + "/tests/lib")
from ports import free_ports
BIN = os.environ.get("BUILD") or os.path.join(SRC, "build")
TMP = os.environ["TMPDIR"]
LEAT = os.path.join(BIN, "leat")
DEV = os.path.join(TMP, "dev")
HERE = os.environ.get("LEAT_DEV_HERE") or "127.0.0.1"
LONG = bool(os.environ.get("LEAT_LONG"))
ROUNDS = int(os.environ.get("LEAT_ROUNDS") or (50 if LONG else 4))
SERVERS = ["mds", "ossd1", "ossd2", "ossd3", "ossd4"]
# The largest size of the four large files; the time that they take alone, and the latest time of a
# kill, follow from it.
LARGE, RATE_ALONE, RATE_TOGETHER, LATEST_S = (30 << 20, "40M", "20M", 2.5) if LONG else \
    (8 << 20, "16M", "8M", 1.4)
SEED = int(os.environ.get("LEAT_SEED") or time.time_ns() % 10 ** 9)
NODES = 3
rng = random.Random(SEED)
counts = {"ready": 0, "killed": 0, "resumed": 0, "kept": 0}


def dev(*args):
    return subprocess.run([os.path.join(SRC, "deploy/dev-cluster"), *args], check=True,
                          capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, LEAT_DEV=DEV, LEAT_DEV_SIZE="1G", BUILD=BIN))


def leat(*args, ok=True, timeout=120):
    p = subprocess.run([LEAT, *args], capture_output=True, text=True, timeout=timeout)
    if ok and p.returncode:
        sys.exit("seed %d: leat %s: %d %s" % (SEED, " ".join(args), p.returncode, p.stderr))
    return p


def make_data(folder, mount):
    sums = {}
    sizes = [rng.randrange(LARGE // 2, LARGE) for _ in range(4)] + \
            [rng.randrange(0, 200000) for _ in range(60)]
    for i, size in enumerate(sizes):
        path = "%d/file%d" % (i % 7, i)
        data = rng.randbytes(size)
        sums[path] = hashlib.sha256(data).hexdigest()
        os.makedirs(os.path.dirname(os.path.join(mount, folder, path)), exist_ok=True)
        with open(os.path.join(mount, folder, path), "wb") as f:
            f.write(data)
    return sums


def check_copies(node, sums_of):
    """Every copy that is READY has every byte."""
    base = os.path.join(node, ".leat")
    for ident in os.listdir(base) if os.path.isdir(base) else []:
        if not os.path.exists(os.path.join(base, ident, "READY")):
            continue
        sums = sums_of[ident]
        found = {}
        data = os.path.join(base, ident, "data")
        for folder, _, names in os.walk(data):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    found[os.path.relpath(path, data)] = hashlib.sha256(f.read()).hexdigest()
        if found != sums:
            wrong = [p for p in set(found) | set(sums) if found.get(p) != sums.get(p)]
            sys.exit("seed %d: READY, but wrong: %s %s" % (SEED, ident, wrong[:5]))
        counts["ready"] += 1


class Agent:
    def __init__(self, n):
        self.addr = "%s:%d" % (HERE, free_ports(1)[0])
        self.dir = os.path.join(TMP, "node%d" % n)
        self.ready = os.path.join(TMP, "ready%d" % n)
        self.log = open(os.path.join(TMP, "agent%d.log" % n), "ab")
        self.name = "node%d" % n
        self.p = None

    def start(self):
        if self.p and self.p.poll() is None:
            return
        if os.path.exists(self.ready):
            os.unlink(self.ready)
        self.p = subprocess.Popen(
            [LEAT, "agent", "--set", "dirs=" + self.dir, "--set", "listen=" + self.addr, "--set",
             "node=" + self.name, "--set", "report_ms=200", "--ready-file", self.ready],
            stderr=self.log)
        end = time.time() + 60
        while not os.path.exists(self.ready) or not os.path.getsize(self.ready):
            if time.time() > end or self.p.poll() is not None:
                sys.exit("an agent does not start, see %s" % self.log.name)
            time.sleep(0.02)

    def kill(self):
        self.p.kill()
        self.p.wait()
        counts["killed"] += 1


def kill_server(name):
    """Kills one server and starts it again."""
    with open(os.path.join(DEV, "pids", name)) as f:
        os.kill(int(f.read().split()[1]), signal.SIGKILL)
    counts["killed"] += 1
    time.sleep(rng.random())
    dev("start", name)


def verified(ident, node):
    """The number of bytes that the copy reports as verified."""
    q = leat("stage", "status", ident, "--to", node, "--json", ok=False)
    return json.loads(q.stdout).get("bytes_verified", 0) if q.returncode in (0, 3) else 0


def expect_rest_only(who, moved, whole, had):
    if moved > whole - had:
        sys.exit("seed %d: %s: %d bytes moved, %d of %d were there" % (SEED, who, moved, had,
                                                                        whole))
    counts["resumed"] += had > 0
    counts["kept"] += had


def one_alone(name, ident, node, sums_of):
    """Without an agent: killed, then resumed. Synced data is not moved again."""
    p = subprocess.Popen([LEAT, "stage", "in", name, "--to", node, "--max-rate", RATE_ALONE],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(rng.uniform(0.05, LATEST_S))
    p.kill()
    p.wait()
    counts["killed"] += 1
    check_copies(node, sums_of)
    had = verified(ident, node)
    r = json.loads(leat("stage", "in", name, "--to", node, "--json").stdout)
    expect_rest_only(node, r["bytes_moved"], r["bytes"], had)
    check_copies(node, sums_of)


class Plan:
    """The victims of a round: random, or in a few rounds each kind at least once."""

    def __init__(self, number):
        self.n_agents = rng.randrange(0, NODES) if LONG else 1 + number % 2
        self.cli = rng.random() < 0.3 if LONG else number % 4 == 1
        self.server = rng.choice(SERVERS) if LONG else ["mds", None][number % 2] or \
            rng.choice(SERVERS[1:])
        if LONG and rng.random() > 0.4:
            self.server = None
        # Others detect agents that stay silent, which takes 10 s.
        self.silent = rng.random() < 0.5 if LONG else number == 0


def one_together(name, agents, sums_of, plan):
    nodes = ",".join(a.addr for a in agents)
    p = subprocess.Popen([LEAT, "stage", "in", name, "--nodes", nodes, "--max-rate",
                          RATE_TOGETHER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(rng.uniform(0.1, LATEST_S))
    dead = rng.sample(agents, plan.n_agents)
    for a in dead:
        a.kill()
        check_copies(a.dir, sums_of)
    if plan.cli:
        p.kill()
        counts["killed"] += 1
    if plan.server:
        kill_server(plan.server)
    had = {a.addr: verified(ids[name], a.dir) for a in dead}
    if plan.silent:
        p.wait()
    for a in agents:
        a.start()
    p.wait()
    for a in agents:
        check_copies(a.dir, sums_of)
    r = json.loads(leat("stage", "in", name, "--nodes", nodes, "--json").stdout)
    for v in r["nodes"]:
        if v["node"] in had:
            expect_rest_only(v["node"], v["source"] + v["peers"], r["bytes"], had[v["node"]])
    for a in agents:
        if not os.path.exists(os.path.join(a.dir, ".leat", ids[name], "READY")):
            sys.exit("seed %d: not READY at %s after all" % (SEED, a.name))
        check_copies(a.dir, sums_of)


if os.geteuid() or not os.path.exists("/dev/fuse"):
    print("not root, or no /dev/fuse")
    sys.exit(77)
print("seed", SEED)
ids = {}
agents = [Agent(n) for n in range(NODES)]
try:
    dev("up")
    os.environ["LEAT_CONF"] = os.path.join(DEV, "conf")
    mount = dev("mountpoint").stdout.strip()
    sums_of = {}
    for a in agents:
        a.start()
    for i in range(ROUNDS):
        name = "set%d@v1" % i
        sums = make_data("data%d" % i, mount)
        leat("dataset", "create", name, os.path.join(mount, "data%d" % i))
        ids[name] = json.loads(leat("dataset", "show", name, "--json").stdout)["id"]
        sums_of[ids[name]] = sums
        one_alone(name, ids[name], os.path.join(TMP, "alone"), sums_of)
        one_together(name, agents, sums_of, Plan(i))
        for folder in [os.path.join(TMP, "alone")] + [a.dir for a in agents]:
            leat("stage", "evict", name, "--to", folder)
        leat("dataset", "rm", name)
        shutil.rmtree(os.path.join(mount, "data%d" % i))
finally:
    for a in agents:
        if a.p and a.p.poll() is None:
            a.p.terminate()
            a.p.wait()
    dev("down")
print("%d rounds, %d kills, %d READY copies compared, %d gone on with, %.0f MiB not fetched again" %
      (ROUNDS, counts["killed"], counts["ready"], counts["resumed"], counts["kept"] / (1 << 20)))
