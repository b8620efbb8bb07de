# SPDX-License-Identifier: Apache-2.0
"""A development cluster for integration tests: real servers, two real mounts, all below TMPDIR.

    with Cluster() as c:
        open(c.mnt(1) + "/file", "w")...
        c.kill("ossd2"); c.start("ossd2")

The cluster is taken down at the end, also after a failure.
"""
import contextlib
import ctypes
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

import ports

SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD") or SRC + "/build"
DEV_CLUSTER = SRC + "/deploy/dev-cluster"
# Address of the servers, if not 127.0.0.1, and the words before their command lines (dev-cluster).
ADDR = os.environ.get("LEAT_DEV_ADDR") or "127.0.0.1"
# Address of agents beside the mounts.
HERE = os.environ.get("LEAT_DEV_HERE") or "127.0.0.1"
ON_SERVER = os.environ.get("LEAT_DEV_SERVER", "").split()
# Time limits are for real machines, not for guests with emulated cards (tests/rdma).
SLOWNESS = 10 if os.environ.get("RDMA_GUEST") else 1
SERVERS = ["mds", "ossd1", "ossd2", "ossd3", "ossd4"]


def on_term(number, frame):
    raise SystemExit("ended by signal %d" % number)


class Cluster:
    """conf: extra lines for leat.conf, {"section": {"name": value}}."""

    def __init__(self, conf=None, ossd=4, size="512M", mounts=2, replicas=1):
        self.dir = tempfile.mkdtemp(prefix="leat-", dir=os.environ.get("TMPDIR", "/tmp"))
        for folder in {self.dir, os.path.dirname(self.dir)}:  # tests become other users
            if os.path.basename(folder).startswith("leat-"):
                os.chmod(folder, 0o711)
        self.dev = self.dir + "/dev"
        self.env = dict(os.environ, LEAT_DEV=self.dev, LEAT_DEV_OSSD=str(ossd), LEAT_DEV_SIZE=size,
                        LEAT_DEV_MOUNTS=str(mounts), BUILD=BUILD)
        self.replicas = replicas
        self.ossd = ["ossd%d" % (i + 1) for i in range(ossd)]
        if conf:
            path = self.dir + "/extra.conf"
            with open(path, "w") as f:
                for section, values in conf.items():
                    f.write("[%s]\n" % section)
                    for name, value in values.items():
                        f.write("%s = %s\n" % (name, value))
            self.env["LEAT_DEV_CONF"] = path

        signal.signal(signal.SIGTERM, on_term)  # so that __exit__ runs

    def run(self, *args, check=True, timeout=600, **kw):
        return subprocess.run([DEV_CLUSTER] + list(args), env=self.env, check=check,
                              timeout=timeout, stdin=subprocess.DEVNULL, **kw)

    def __enter__(self):
        try:
            self.run("up", str(self.replicas), stdout=subprocess.DEVNULL)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.show_logs()
        self.close_ours()
        self.run("down", check=False, stdout=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", self.dir], check=False)

    def close_ours(self):
        """After a failed test, open files would keep the mounts, and so their servers, busy, and
        change what later tests count."""
        gc.collect()
        here = os.open(self.dir, os.O_RDONLY)
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/self/fd/" + fd).startswith(self.dir + "/") and \
                        mount_id(fd) != mount_id(here):
                    os.close(int(fd))
        os.close(here)

    def mend(self):
        """After a failed test: starts every daemon, and closes everything."""
        mounts = ["mnt%d" % (i + 1) for i in range(int(self.env["LEAT_DEV_MOUNTS"]))]
        for name in ["mds"] + self.ossd + mounts:
            if self.alive(name):
                self.kill(name, signal.SIGCONT)
            else:
                self.run("start", name, check=False)
        self.close_ours()

    def show_logs(self, lines=40):
        if not os.path.isdir(self.dev + "/log"):
            return
        for name in sorted(os.listdir(self.dev + "/log")):
            print("--- %s" % name)
            sys.stdout.write("".join(self.log(name[:-4]).splitlines(True)[-lines:]))
        sys.stdout.flush()

    def mnt(self, n=1):
        return "%s/mnt%d" % (self.dev, n)

    def pid(self, name):
        with open("%s/pids/%s" % (self.dev, name)) as f:
            return int(f.read().split()[1])

    def alive(self, name):
        """Any of its threads: until the last one has ended, its files are open."""
        try:
            pid = self.pid(name)
            with open("/proc/%d/stat" % pid) as f:
                zombie = f.read().rsplit(")", 1)[1].split()[0] == "Z"
            return not zombie or len(os.listdir("/proc/%d/task" % pid)) > 1
        except (FileNotFoundError, ProcessLookupError):
            return False

    def kill(self, name, sig=signal.SIGKILL):
        os.kill(self.pid(name), sig)
        if sig == signal.SIGKILL:
            wait_until(lambda: not self.alive(name), 10, name + " is gone")

    def start(self, name):
        self.run("start", name)

    def stop(self, name):
        self.run("stop", name)

    def log(self, name):
        with open("%s/log/%s.log" % (self.dev, name), errors="replace") as f:
            return f.read()

    def leat(self, *args, check=True, timeout=600):
        argv = [BUILD + "/leat", "--conf", self.dev + "/conf"] + list(args)
        r = subprocess.run(argv, env=self.env, timeout=timeout, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and r.returncode:
            # The exception that follows contains neither the output of the command nor its errors.
            print("%s\n%s" % (r.stdout, r.stderr))
            r.check_returncode()
        return r

    def status(self):
        return json.loads(self.leat("status", "--timeout", "120", "--json").stdout)

    def told_by_servers(self, args=()):
        """leat status with the reply of every target's server: a slow one is queried again."""
        said = {}

        def all_have():
            said.update(json.loads(self.leat("status", "--timeout", "120", "--json",
                                             *args).stdout))
            return all("server" in t for t in said["targets"] if t["state"] == "up")

        wait_until(all_have, 30, "every server says how it is")
        return said

    def assert_sound(self):
        """fsck finds nothing, once every target is up: on a busy machine some are silent for a
        while."""
        wait_until(lambda: all(t["state"] == "up" for t in self.status()["targets"]), 30,
                   "every target is up")
        out = self.leat("fsck", check=False)
        assert out.returncode == 0, out.stdout + out.stderr

    def scrub(self):
        """Scrubs every target that is up completely. Returns the counters of each."""
        rows = []

        def ended():
            rows[:] = self._scrub_rows("status")
            return not any(r["running"] for r in rows)

        # A target that found much damage may have started a scrub by itself, before its chains were
        # whole.
        wait_until(ended, 60, "the end of a scrub before")
        self._scrub_rows("start")
        wait_until(ended, 60, "the scrub's end")
        return rows

    def _scrub_rows(self, what):
        rows = []

        def all_answer():
            up = {t["id"] for t in self.status()["targets"] if t["state"] == "up"}
            out = self.leat("scrub", what, "--json", check=False).stdout
            rows[:] = [r for r in json.loads(out)["targets"] if "error" not in r]
            return up and up <= {r["target"] for r in rows}

        wait_until(all_answer, 30, "every target answers: scrub " + what)
        return rows

    def metrics_of(self, name):
        """The text of that daemon's metrics page."""
        with open(self.dev + "/metrics") as f:
            page = dict(line.split() for line in f)[name]
        return urllib.request.urlopen("http://%s/metrics" % page, timeout=60).read().decode()

    def check_stores(self, **kw):
        """Takes everything down and checks it offline; servers stay down."""
        self.run("down", "--keep", stdout=subprocess.DEVNULL)
        return self.run("check", **kw)

    def new_ports(self, conf):
        """The text of a configuration, with free ports instead of those in it."""
        pattern = re.escape(ADDR) + r":(\d+)"
        old = set(re.findall(pattern, conf))
        new = dict(zip(old, ports.free_ports(len(old), "")))
        return re.sub(pattern, lambda match: "%s:%d" % (ADDR, new[match.group(1)]), conf)

    def status_of_mount(self, n=1):
        return json.loads(os.getxattr(self.mnt(n), "leat.status"))


def mount_id(fd):
    with open("/proc/self/fdinfo/%s" % fd) as f:
        return re.search(r"^mnt_id:\s*(\d+)", f.read(), re.M).group(1)


def unmount(at):
    """A program that lists all mounts (df) keeps each busy for an instant. If one is still in use
    after that, the test fails, and it is unmounted nevertheless."""
    try:
        wait_until(lambda: subprocess.run(["umount", at], check=False).returncode == 0, 10,
                   "umount " + at)
    except BaseException:
        subprocess.run(["umount", "-l", at], check=False)
        raise


def wait_until(predicate, seconds, what):
    """seconds: plenty on an idle machine. Busy machines get more time: this is not about speed."""
    patience = max(120, 4 * seconds)
    asked = time.monotonic()
    end = asked + patience
    while not predicate():
        if time.monotonic() > end:
            raise AssertionError("not within %s s: %s" % (patience, what))
        # At least half of the time is left to the process that is waited for, however expensive the
        # query.
        time.sleep(0.02 + time.monotonic() - asked)
        asked = time.monotonic()


def expect_errno(number, fn, *args, **kw):
    try:
        fn(*args, **kw)
    except OSError as e:
        assert e.errno == number, (os.strerror(e.errno), "expected: " + os.strerror(number))
        return e
    raise AssertionError("no error, expected %s" % os.strerror(number))


def free_ports(n):
    """On the address of agents."""
    return ports.free_ports(n, HERE)


def put(path, data=b"x"):
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


libc = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH, COLLAPSE, ZERO_RANGE = 1, 2, 8, 16  # modes of fallocate(2)


def fallocate(fd, mode, off, length):
    if libc.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(length)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def as_user(fn, uid, gid, groups=()):
    """Runs fn in a process of that user. Returns 0, or the errno with which it failed."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            fn()
            code = 0
        except OSError as e:
            code = e.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class slow_to_forget:
    """Meanwhile the thread of that mount that invalidates pages of the kernel runs only when the
    processor is idle, and another thread keeps it busy."""

    def __init__(self, c, mount):
        tasks = "/proc/%d/task" % c.pid("mnt%d" % mount)
        for task in os.listdir(tasks):
            with open("%s/%s/comm" % (tasks, task)) as f:
                if f.read().strip() == "invalidate":
                    self.task = int(task)
        self.cpus = os.sched_getaffinity(self.task)
        self.cpu = min(self.cpus)

    def __enter__(self):
        self.other = subprocess.Popen(
            ["taskset", "-c", str(self.cpu), sys.executable, "-c", "while True: pass"],
            close_fds=True)
        os.sched_setaffinity(self.task, {self.cpu})
        os.sched_setscheduler(self.task, os.SCHED_IDLE, os.sched_param(0))

    def __exit__(self, *_):
        os.sched_setscheduler(self.task, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(self.task, self.cpus)
        self.other.kill()
        self.other.wait()


def run_tests(namespace):
    """Runs every test_* function with one cluster, in order of definition, also after a failure; a
    module may set CLUSTER. Arguments of the program select tests."""
    names = [n for n in namespace if n.startswith("test_") and callable(namespace[n]) and
             (len(sys.argv) < 2 or n in sys.argv[1:])]
    failed = []
    with Cluster(**namespace.get("CLUSTER", {})) as c:
        for name in names:
            started, result = time.monotonic(), ""
            try:
                namespace[name](c)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                failed.append(name)
                result = "  FAILED"
            print("%-50s %.2f s%s" % (name, time.monotonic() - started, result))
            sys.stdout.flush()
            if result:
                c.mend()
        if failed:
            c.show_logs()
    if failed:
        sys.exit("failed: " + " ".join(failed))
