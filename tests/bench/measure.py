# SPDX-License-Identifier: Apache-2.0
"""The measurements of tests/bench/run on one mounted file system. Sections:

    idle    memory and CPU of the file system's own processes without any load
    seq     one large file: written in pieces of 1 MiB and an fsync, read cold, read warm
    rand    4 KiB random reads of that file by 4 jobs 16 deep, through the page cache and O_DIRECT
    meta    mdops.c with 2 and with 16 processes. On the local disk also *_sync_limit: operations
            per second of as many threads whose operations are a synced write of 4 KiB each, in
            groups (syncrate.c); on the others *_sync_ratio: the slowest of create, rename and
            remove, divided by that
    small   files of 100 KiB: created, read cold and warm in random order, compared, removed

Figures named *_cpu_client, *_cpu_servers and *_cpu_machine are CPU seconds per GiB moved (of the
meta sections in total, of removals per 1000 files): of the mount's processes, of all others of the
file system, and of the whole machine with the programs that cause the load. "Cold" means that the
page cache was dropped, after the file system's own command for that.
"""
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

WORK = "leat-bench-work"
SECTIONS = ("idle", "seq", "rand", "meta", "small")
FILE_KIB, FILES_PER_DIR, JOBS = 100, 1000, 4
STEP_TIMEOUT_S = 1800
MUTATIONS = ("dir_create", "create", "rename", "unlink", "dir_remove")  # phases of mdops
TICK = os.sysconf("SC_CLK_TCK")


class Sizes:
    big_mib, rand_s, items, dirs, idle_s = 2048, 10, 2000, 20, 10


class System:
    """A mounted file system: its folder, and commands for its processes and caches."""

    def __init__(self, label, path):
        self.label, self.path = label, path
        self.pids_command = self.cold_command = None
        self.local = False  # the disk below, without any network

    def pids(self):
        if not self.pids_command:
            return []
        text = subprocess.run(self.pids_command, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False).stdout
        return [line.split()[:2] for line in text.splitlines() if len(line.split()) >= 2]

    def cold(self):
        subprocess.run(["sync"], check=False)
        if self.cold_command:
            subprocess.run(self.cold_command, stdin=subprocess.DEVNULL, stdout=sys.stderr,
                           check=True, timeout=STEP_TIMEOUT_S)
        subprocess.run(["sync"], check=False)
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")


def read(path):
    try:
        with open(path) as f:
            return f.read()
    except OSError:
        return ""


def process_ticks(pid):
    fields = read("/proc/%s/stat" % pid).rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def machine_ticks():
    user, nice, system, _, _, irq, softirq = map(int, read("/proc/stat").split()[1:8])
    return user + nice + system + irq + softirq


class Cpu:
    """CPU seconds between two calls: client, servers, machine."""

    def __init__(self, system):
        self.system = system
        self.before = self.look()

    def look(self):
        used = {"client": 0, "servers": 0}
        for role, pid in self.system.pids():
            used["client" if role == "client" else "servers"] += process_ticks(pid)
        return dict(used, machine=machine_ticks())

    def seconds(self):
        after = self.look()
        return {k: (after[k] - self.before[k]) / TICK for k in after
                if k == "machine" or self.system.pids_command}


class Measure:
    """Runs one section after the other: run(section, system). add(label, figure, value, unit) takes
    results."""

    def __init__(self, sizes, add):
        self.sizes, self.add_result = sizes, add
        self.limits = {}

    def __enter__(self):
        # In memory, so that the load reads no disk.
        self.tmp = tempfile.mkdtemp(prefix="leat-bench-", dir="/dev/shm")
        here = os.path.dirname(os.path.abspath(__file__))
        for name in ("mdops", "syncrate"):
            subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-pthread", "-o", self.tmp + "/" + name,
                            "%s/%s.c" % (here, name)], check=True)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.tmp, ignore_errors=True)

    def run(self, section, system):
        self.system = system
        self.work = os.path.join(system.path, WORK)
        os.makedirs(self.work, exist_ok=True)
        try:
            getattr(self, section)()
        except (OSError, subprocess.SubprocessError) as error:
            print("bench: %s: %s: %s" % (system.label, section, error), file=sys.stderr)
            self.add(section, "fail", "-")

    def add(self, figure, value, unit):
        self.add_result(self.system.label, figure, value, unit)

    def add_cpu(self, name, cpu, divisor, unit):
        for who, seconds in cpu.seconds().items():
            self.add("%s_cpu_%s" % (name, who), seconds / divisor, unit)

    def add_memory(self, name):
        kib = {}
        for role, pid in self.system.pids():
            for line in read("/proc/%s/status" % pid).splitlines():
                if line.startswith("VmRSS"):
                    for key in (role, "all"):
                        kib[key] = kib.get(key, 0) + int(line.split()[1])
        for role, value in kib.items():
            self.add("%s_rss_%s" % (name, role), value / 1024, "MiB")

    def command(self, argv, **more):
        return subprocess.run(argv, timeout=STEP_TIMEOUT_S, check=True, **more)

    # --- idle

    def idle(self):
        self.add_memory("idle")
        cpu = Cpu(self.system)
        time.sleep(self.sizes.idle_s)
        self.add_cpu("idle", cpu, self.sizes.idle_s, "s/s")

    # --- the large file

    def fio(self, name, way, *options):
        """Runs fio on the large file. Returns its results of one direction."""
        out = self.tmp + "/fio.json"
        self.command(["fio", "--name=" + name, "--filename=" + self.work + "/big",
                      "--size=%dM" % self.sizes.big_mib, "--fallocate=none", "--invalidate=0",
                      "--output-format=json", "--output=" + out] + list(options),
                     stdin=subprocess.DEVNULL, stdout=sys.stderr)
        with open(out) as f:
            text = f.read()
        return json.loads(text[text.index("{"):])["jobs"][0][way]

    def fio_step(self, name, way, *options):
        cpu = Cpu(self.system)
        try:
            r = self.fio(name, way, *options)
        except subprocess.SubprocessError:
            self.add(name, "fail", "IOPS" if name.startswith("rand") else "MiB/s")
            return
        if name.startswith("rand"):
            self.add(name, float(r["iops"]), "IOPS")
            self.add(name + "_p99", r["clat_ns"]["percentile"]["99.000000"] / 1000, "us")
        else:
            self.add(name, r["bw_bytes"] / 2**20, "MiB/s")
        self.add_cpu(name, cpu, r["io_bytes"] / 2**30, "s/GiB")

    def seq(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.work + "/big")
        subprocess.run(["sync"], check=False)
        pieces = ("--bs=1M", "--ioengine=psync")
        self.fio_step("seq_write", "write", "--rw=write", "--end_fsync=1", *pieces)
        self.system.cold()
        self.fio_step("seq_read_cold", "read", "--rw=read", *pieces)
        self.fio_step("seq_read_warm", "read", "--rw=read", *pieces)

    def rand(self):
        if not os.path.exists(self.work + "/big"):
            self.fio("prepare", "write", "--rw=write", "--bs=1M", "--end_fsync=1")
        # A quarter of the file in total: with more, most would be cached at the end.
        how = ("--rw=randread", "--bs=4k", "--ioengine=io_uring", "--iodepth=16", "--numjobs=4",
               "--group_reporting", "--io_size=%dM" % max(1, self.sizes.big_mib // 16),
               "--runtime=%d" % self.sizes.rand_s)
        for name, direct in (("rand_read_cold", 0), ("rand_read_direct", 1)):
            self.system.cold()
            self.fio_step(name, "read", "--direct=%d" % direct, *how)

    # --- metadata

    def sync_limit(self, name, threads):
        done = self.command([self.tmp + "/syncrate", self.work + "/syncrate", "2", str(threads)],
                            stdout=subprocess.PIPE, text=True)
        self.limits[name] = float(done.stdout.split()[0])
        self.add(name + "_sync_limit", self.limits[name], "ops/s")

    def meta(self):
        for name, processes in (("md", 2), ("md16", 16)):
            folder = self.work + "/meta"
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder)
            subprocess.run(["sync"], check=False)
            cpu = Cpu(self.system)
            try:
                done = self.command([self.tmp + "/mdops", folder, str(self.sizes.items),
                                     str(processes)], stdout=subprocess.PIPE, text=True)
            except subprocess.SubprocessError:
                self.add(name, "fail", "ops/s")
                continue
            rates = {phase: float(rate) for phase, rate in map(str.split, done.stdout.splitlines())}
            for phase, rate in rates.items():
                self.add("%s_%s" % (name, phase), rate, "ops/s")
            if self.system.local:
                self.sync_limit(name, processes)
            elif name in self.limits:
                slowest = min(rate for phase, rate in rates.items() if phase in MUTATIONS)
                self.add(name + "_sync_ratio", slowest / self.limits[name], "ratio")
            self.add_cpu(name, cpu, 1, "s")
            self.add_memory(name)
            os.rmdir(folder)

    # --- small files

    def prepare_small(self):
        """A folder of 1000 random files in memory, and a random order of all copies of it."""
        source = self.tmp + "/source"
        if not os.path.isdir(source):
            os.mkdir(source)
            for i in range(FILES_PER_DIR):
                with open("%s/f%03d" % (source, i), "wb") as f:
                    f.write(os.urandom(FILE_KIB * 1024))
        small = self.work + "/small"
        shutil.rmtree(small, ignore_errors=True)
        os.mkdir(small)
        folders = ["%s/%02d" % (small, d) for d in range(self.sizes.dirs)]
        files = ["%s/f%03d" % (d, i) for d in folders for i in range(FILES_PER_DIR)]
        random.Random(1).shuffle(files)
        return source, folders, files

    def workers(self, argv, args, per_call, stdout=None):
        """Runs argv with per_call of args appended at a time, JOBS concurrently."""
        self.command(["xargs", "-0", "-P", str(JOBS), "-n", str(per_call)] + argv,
                     input="\0".join(args).encode(), stdout=stdout)

    def small_step(self, name, run):
        n = self.sizes.dirs * FILES_PER_DIR
        gib = n * FILE_KIB / 2**20
        cpu, start = Cpu(self.system), time.monotonic()
        try:
            run()
        except subprocess.SubprocessError:
            self.add(name, "fail", "files/s")
            return
        seconds = time.monotonic() - start
        if name.endswith("_sync"):
            self.add(name, seconds, "s")
            return
        self.add(name, n / seconds, "files/s")
        if name.endswith("_remove"):
            self.add_cpu(name, cpu, n / 1000, "s/1000files")
        else:
            self.add(name + "_bw", gib * 1024 / seconds, "MiB/s")
            self.add_cpu(name, cpu, gib, "s/GiB")

    def small(self):
        source, folders, files = self.prepare_small()
        subprocess.run(["sync"], check=False)
        copy = ["cp", "-r", "--reflink=never", "--sparse=never", source]

        def read_all():
            self.workers(["cat"], files, 250, subprocess.DEVNULL)

        self.small_step("small_create", lambda: self.workers(copy, folders, 1))
        self.small_step("small_create_sync", lambda: self.command(["sync"]))
        self.system.cold()
        self.small_step("small_read_cold", read_all)
        self.small_step("small_read_warm", read_all)
        self.add_memory("small")
        same = subprocess.run(["diff", "-rq", source, folders[0]], stdout=sys.stderr, check=False)
        self.add("small_verify", 0.0 if same.returncode == 0 else "fail", "differences")
        self.small_step("small_remove", lambda: self.command(["rm", "-r", self.work + "/small"]))
