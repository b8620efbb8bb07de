# SPDX-License-Identifier: Apache-2.0
"""Nodes that stage: agents, each in a network namespace of its own behind a link with a rate.

    nodes.enter()                      # this process into a namespace of its own; before Cluster
    with Cluster() as c, Nodes(c, 4, rate_mib=4) as n:
        result = n.stage("set@v1", 4)  # the output of `leat stage in --json`, and the seconds

Servers, mounts and commands are on a bridge in the namespace of the calling process. Namespaces and
links disappear with their processes.
"""
import ctypes
import json
import os
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000
BRIDGE, NET = "leatbr0", "10.77.0."
HUB = NET + "254"


def ip(*args):
    subprocess.run(["ip"] + list(args), check=True, capture_output=True)


def enter():
    """Exits with 77 where that is not possible."""
    os.environ["LEAT_DEV_ADDR"] = HUB  # before cluster.py reads it
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) < 0:
            raise OSError(ctypes.get_errno(), "unshare")
        ip("link", "set", "lo", "up")
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", HUB + "/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
    except (OSError, subprocess.CalledProcessError) as error:
        print("network namespaces and bridges are needed: %s" % error)
        sys.exit(77)


def limit(words, device, rate_mib):
    subprocess.run(words + ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                            "%dbit" % (rate_mib * (8 << 20)), "burst", "256k", "limit",
                            "32m"], check=True, capture_output=True)


class Nodes:
    """count agents; each sends and receives at most rate_mib MiB/s."""

    def __init__(self, cluster, count, rate_mib, conf=None):
        self.cluster, self.count, self.rate = cluster, count, rate_mib
        self.conf = conf or []
        self.holders, self.agents = [], []

    def inside(self, i):
        return ["nsenter", "--net=/proc/%d/ns/net" % self.holders[i].pid]

    def folder(self, i):
        return "%s/node%d" % (self.cluster.dir, i)

    def add(self, i):
        # Its namespace exists as long as this process, which ends when the pipe is closed here.
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holders.append(holder)
        holder.stdout.readline()
        link = "leatv%d" % i
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        ip("link", "set", link, "master", BRIDGE, "up")
        for args in (["link", "set", "lo", "up"],
                     ["addr", "add", "%s%d/24" % (NET, i + 1), "dev", "eth0"],
                     ["link", "set", "eth0", "up"]):
            subprocess.run(self.inside(i) + ["ip"] + args, check=True)
        try:
            limit([], link, self.rate)
            limit(self.inside(i), "eth0", self.rate)
        except subprocess.CalledProcessError:
            print("tc has no token bucket here")
            sys.exit(77)
        ready = self.folder(i) + ".ready"
        argv = self.inside(i) + [self.cluster.env["BUILD"] + "/leat", "--conf",
                                 self.cluster.dev + "/conf", "agent", "--ready-file", ready]
        for p in ["dirs=" + self.folder(i), "listen=" + self.addr(i), "node=node%d" % i,
                  "report_ms=200"] + self.conf:
            argv += ["--set", p]
        with open(self.folder(i) + ".log", "w") as log:
            self.agents.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log))
        for _ in range(1200):
            if os.path.exists(ready) and os.path.getsize(ready):
                return
            time.sleep(0.05)
        raise AssertionError("agent %d does not start: see %s.log" % (i, self.folder(i)))

    def __enter__(self):
        try:
            for i in range(self.count):
                self.add(i)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        for i in range(len(self.agents) if kind else 0):
            with open(self.folder(i) + ".log") as f:
                print("--- node%d\n%s" % (i, f.read()))
        for p in self.agents:
            p.terminate()
        for p in self.agents:
            p.wait()
        for p in self.holders:
            p.stdin.close()
            p.wait()

    def addr(self, i):
        return "%s%d:7460" % (NET, i + 1)

    def stage(self, what, count, *args):
        """Stages on the first `count` nodes: (seconds, the command's output)."""
        start = time.monotonic()
        r = self.cluster.leat("stage", "in", what, "--nodes",
                              ",".join(self.addr(i) for i in range(count)), "--json", *args)
        return time.monotonic() - start, json.loads(r.stdout)

    def received(self, i):
        """Bytes received on its link so far."""
        r = subprocess.run(["ip", "-s", "-j", "link", "show", "leatv%d" % i], check=True,
                           capture_output=True)
        return json.loads(r.stdout)[0]["stats64"]["tx"]["bytes"]

    def copy(self, what, i):
        return self.cluster.leat("stage", "path", what, "--to", self.folder(i)).stdout.strip()

    def evict(self, what, count):
        for i in range(count):
            self.cluster.leat("stage", "evict", what, "--to", self.folder(i))
