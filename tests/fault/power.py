# SPDX-License-Identifier: Apache-2.0
"""Power-loss tests: a mount of powerfs, and a verification for each possible cut of its journal.

    with PowerFS() as fs:
        ... run something on fs.mnt, which writes acknowledgements to fs.mnt + "/.mark"
    failures = check_cuts(fs, lambda disk, marks: [program, "verify", disk, marks])

Cut disks are built in memory (/dev/shm) and removed again. The end of the PowerFS always removes
its mount, process and folders.
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import power_cut

BUILD = os.environ.get("BUILD") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))) + "/build"
LONG = os.environ.get("LEAT_LONG") == "1"


def on_term(number, frame):
    raise SystemExit("ended by signal %d" % number)


class PowerFS:
    def __init__(self):
        signal.signal(signal.SIGTERM, on_term)  # so that __exit__ runs
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = tempfile.mkdtemp(prefix="leat-power-", dir=os.environ.get("TMPDIR") or "/tmp")
        self.mem = tempfile.mkdtemp(prefix="leat-power-", dir=shm)
        self.mnt, self.journal = self.dir + "/mnt", self.mem + "/journal"
        self.daemon = None

    def __enter__(self):
        os.mkdir(self.mnt)
        os.mkdir(self.mem + "/backing")
        try:
            self.daemon = subprocess.Popen(
                [BUILD + "/powerfs", self.mem + "/backing", self.journal, self.mnt],
                stdin=subprocess.DEVNULL)
            end = time.monotonic() + 120
            while not os.path.ismount(self.mnt):
                if self.daemon.poll() is not None or time.monotonic() > end:
                    raise AssertionError("powerfs cannot be mounted")
                time.sleep(0.01)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def unmount(self):
        """Completes the journal, and removes the disk as it was."""
        if self.daemon is None:
            return
        for _ in range(1200):
            if subprocess.run(["umount", self.mnt], stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.05)
        else:
            subprocess.run(["umount", "-l", self.mnt], stderr=subprocess.DEVNULL)
        try:
            self.daemon.wait(120)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait(10)
        self.daemon = None
        shutil.rmtree(self.mem + "/backing", ignore_errors=True)

    def __exit__(self, kind, value, trace):
        self.unmount()
        shutil.rmtree(self.dir, ignore_errors=True)
        shutil.rmtree(self.mem, ignore_errors=True)


def end_child(child):
    """Ends the child, first by SIGTERM, so that it can end its servers."""
    child.terminate()
    try:
        child.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


class Cuts:
    """Verifies cut disks, `each` at once for each processor."""

    def __init__(self, fs, command, each):
        self.fs, self.command, self.width = fs, command, each * (os.cpu_count() or 1)
        self.running, self.failures, self.n, self.n_disks = [], [], 0, 0

    def start(self, label, disk, seed):
        while len(self.running) >= self.width:
            self.reap()
        self.n_disks += 1
        where = "%s/cut%d" % (self.fs.mem, self.n_disks)
        disk.write(seed, where)
        with open(where + ".marks", "w") as f:
            f.write("".join(disk.marks))
        out = open(where + ".out", "w+")
        child = subprocess.Popen(self.command(where, where + ".marks"), stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=out, start_new_session=True)
        self.running.append((label, where, child, out))

    def reap(self):
        label, where, child, out = self.running.pop(0)
        try:
            child.wait(600)
        except subprocess.TimeoutExpired:
            end_child(child)
        self.n += 1
        if child.returncode != 0:
            out.seek(0)
            text = out.read().strip()[-1500:]
            self.failures.append("%s: ended with %d: %s" % (label, child.returncode, text))
        out.close()
        shutil.rmtree(where, ignore_errors=True)
        os.unlink(where + ".marks")
        os.unlink(where + ".out")

    def finish(self):
        while self.running:
            self.reap()


def points(journal, at_marks=False):
    """(name of the cut, disk): just before every sync and at the end; or at every mark."""
    disk, n = power_cut.Disk(), 0
    for rec in power_cut.records(journal):
        is_sync = rec[0] in (power_cut.SYNC, power_cut.SYNCDIR)
        if is_sync and not at_marks:
            yield "sync %d" % n, disk
        disk.play(rec)
        n += is_sync
        if rec[0] == power_cut.MARK and at_marks:
            yield "mark %d" % len(disk.marks), disk
    yield "the end", disk


def check_cuts(fs, command, seeds=(1, 2), at_marks=False, skip_before_mark=True, every=1,
               stop_at_failure=False, seconds=None, each=1):
    """Builds and verifies a disk for every cut (or every n-th) and seed. Returns Cuts."""
    cuts, i, end = Cuts(fs, command, each), 0, time.monotonic() + (seconds or 3600)
    try:
        for label, disk in points(fs.journal, at_marks):
            if skip_before_mark and not disk.marks:
                continue
            i += 1
            if i % every:
                continue
            for s in seeds:
                cuts.start("%s, seed %d" % (label, s), disk, s * 1000003 + i)
            if (stop_at_failure and cuts.failures) or time.monotonic() > end:
                break
        cuts.finish()
    finally:
        for _, _, child, _ in cuts.running:
            child.terminate()
        for _, _, child, _ in cuts.running:
            end_child(child)
    return cuts


def report(what, fs, cuts, started):
    syncs = sum(1 for r in power_cut.records(fs.journal)
                if r[0] in (power_cut.SYNC, power_cut.SYNCDIR))
    print("%s: %d syncs in the journal of %.1f MiB, %d disks verified, %d wrong, %.1f s" %
          (what, syncs, os.path.getsize(fs.journal) / (1 << 20), cuts.n, len(cuts.failures),
           time.monotonic() - started))
    sys.stdout.flush()
