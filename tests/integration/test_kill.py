#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
"""kill -9 of the metadata server, of object servers and of the mount at random moments of write and
metadata storms: no acknowledged data is lost, the stores are sound, clients need no remount."""
import hashlib
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import Cluster, wait_until

ROUNDS = int(os.environ.get("ROUNDS", "20"))
seed = int(os.environ.get("SEED", str(int(time.time()))))

# Writes files, fsyncs and then reports each; renames some; removes some. A line on stdout is an
# acknowledgement: "+ NAME DIGEST" or "- NAME". Runs until an error.
STORM = r"""
import hashlib, os, random, sys
mnt, who, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(seed)
names = []
n = 0
out = sys.stdout
while True:
    kind = rng.random()
    if kind < 0.7 or not names:
        name = "%s-%s-%d" % (who, seed, n)
        n += 1
        data = rng.randbytes(rng.choice((0, 100, 5000, 100000, 2500000)))
        out.write("? %s\n" % name); out.flush()
        with open("%s/%s" % (mnt, name), "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        out.write("+ %s %s\n" % (name, hashlib.md5(data).hexdigest())); out.flush()
        names.append((name, hashlib.md5(data).hexdigest()))
    elif kind < 0.85:
        name, digest = names.pop(rng.randrange(len(names)))
        new = name + "r"
        out.write("? %s\n? %s\n" % (name, new)); out.flush()
        os.rename("%s/%s" % (mnt, name), "%s/%s" % (mnt, new))
        out.write("- %s\n+ %s %s\n" % (name, new, digest)); out.flush()
        names.append((new, digest))
    else:
        name, digest = names.pop(rng.randrange(len(names)))
        out.write("? %s\n" % name); out.flush()
        os.unlink("%s/%s" % (mnt, name))
        out.write("- %s\n" % name); out.flush()
"""


class Storm:
    def __init__(self, c, mount, who, round_seed):
        self.log = open("%s/storm-%s-%d" % (c.dir, who, round_seed), "w+")
        self.err = open("%s/storm-%s-%d.err" % (c.dir, who, round_seed), "w+")
        self.p = subprocess.Popen([sys.executable, "-c", STORM, c.mnt(mount), who, str(round_seed)],
                                  stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.err)

    def end(self, may_fail):
        early = self.p.poll()
        if early is None:
            self.p.kill()
        self.p.wait(300)
        self.err.seek(0)
        text = self.err.read()
        assert may_fail or early is None, "the application got an error:\n" + text
        self.log.seek(0)
        return self.log.read()


def play(text, state, unsure):
    """Collects acknowledged operations in state, and operations without a reply in unsure."""
    open_names = set()
    for line in text.splitlines():
        words = line.split()
        if words[0] == "?":
            open_names.add(words[1])
        elif words[0] == "+" and len(words) == 3:
            state[words[1]] = words[2]
            open_names.discard(words[1])
        elif words[0] == "-" and len(words) == 2:
            state.pop(words[1], None)
            open_names.discard(words[1])
    unsure |= open_names


def verify(mnt, state, unsure):
    there = set(os.listdir(mnt))
    for name, digest in state.items():
        if name in unsure:
            continue
        assert name in there, "%s: acknowledged, but gone" % name
        with open(mnt + "/" + name, "rb") as f:
            got = hashlib.md5(f.read()).hexdigest()
        assert got == digest, "%s: acknowledged bytes changed" % name
    strangers = there - set(state) - unsure
    assert not strangers, "came back or never made: %s" % sorted(strangers)[:5]


def main():
    rng = random.Random(seed)
    print("seed %d" % seed)
    state, unsure = {}, set()
    # The sessions of killed mounts keep their open files until they expire; here they expire soon.
    with Cluster(size="2G", conf={"mds": {"session_ttl_ms": "5000"}}) as c:
        used = lambda: (lambda s: (s.f_blocks - s.f_bfree) * s.f_frsize)(os.statvfs(c.mnt()))
        empty = used()
        victims = ["mds"] + c.ossd + ["mnt2"]
        for r in range(ROUNDS):
            victim = victims[r % len(victims)] if r < len(victims) else rng.choice(victims)
            storms = [Storm(c, 1, "a", r), Storm(c, 1, "b", r + 1000), Storm(c, 2, "c", r + 2000)]
            time.sleep(rng.uniform(0.3, 1.2))
            c.kill(victim)
            time.sleep(rng.uniform(0, 0.5))
            if victim == "mnt2":
                text = storms.pop().end(True)
                play(text, state, unsure)
            c.start(victim)
            time.sleep(rng.uniform(0.3, 1.0))
            for s in storms:
                play(s.end(False), state, unsure)
            verify(c.mnt(1 + r % 2), state, unsure)
            for name in list(state) + list(unsure):  # keeps the next round small
                try:
                    os.unlink(c.mnt(1) + "/" + name)
                except FileNotFoundError:
                    pass
            state.clear()
            unsure.clear()
            print("round %2d: kill -9 %s: nothing lost" % (r, victim))
            sys.stdout.flush()
        wait_until(lambda: used() < empty + (4 << 20), 30, "the space of all deleted files is back")
        assert not os.listdir(c.mnt())
        c.check_stores()


if __name__ == "__main__":
    main()
