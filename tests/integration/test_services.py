#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What service managers and administrators learn: logs with priorities, even if no process reads
stderr; which programs serve and which wait; when a server cannot be reached."""
import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../lib")
from cluster import BUILD, get, run_tests, unmount, wait_until  # noqa: E402

CLUSTER = {"mounts": 0, "ossd": 1}
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
libc = ctypes.CDLL(None, use_errno=True)


def mount(source, at, kind, flags):
    if libc.mount(source.encode(), at.encode(), kind, flags, None) < 0:
        raise OSError(ctypes.get_errno(), "mount " + at)


def own_dev(folder):
    """A mount namespace with another /dev, whose /dev/log belongs to the test."""
    if libc.unshare(CLONE_NEWNS) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", folder, b"tmpfs", 0)
    for name in os.listdir("/dev"):
        path, there = "/dev/" + name, folder + "/" + name
        if os.path.islink(path):
            os.symlink(os.readlink(path), there)
        elif name != "log":
            if os.path.isdir(path):
                os.mkdir(there)
            else:
                open(there, "x", encoding="ascii").close()
            mount(path, there, None, MS_BIND | MS_REC)
    mount(folder, "/dev", None, MS_BIND | MS_REC)


class Syslog:
    """Receives the messages to /dev/log."""

    def __init__(self):
        self.lines = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("/dev/log")
        self.socket.setblocking(False)

    def find(self, pattern):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.lines.append(self.socket.recv(4096).decode())
        return next((m for m in (re.search(pattern, line) for line in self.lines) if m), None)

    def having(self, text):
        return [line for line in self.lines if text in line]

    def wait_for(self, pattern):
        wait_until(lambda: self.find(pattern), 20, "a line like " + pattern)
        return self.find(pattern)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            print("--- /dev/log\n" + "\n".join(self.lines))
        self.socket.close()
        os.unlink("/dev/log")


def test_a_mount_in_the_background_logs_to_the_machine(c):
    at = c.dir + "/m"
    os.mkdir(at)
    with Syslog() as log:
        out = subprocess.run([BUILD + "/mount.leat", "leat", at, "-o", "conf=%s/conf" % c.dev],
                             check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=120)
        try:
            assert out.stdout == "", out.stdout
            # daemon.info and daemon.warning
            head = r"^<%d>\w{3} [ \d]\d [\d:]{8} mount\.leat\[(\d+)\]: "
            daemon = int(log.wait_for(head % 30 + "leat mounted at " + at).group(1))
            supervisor = json.loads(os.getxattr(at, "leat.status"))["supervisor"]
            # Both processes log: the supervisor, and the daemon after the one that is killed.
            os.kill(daemon, signal.SIGKILL)
            said = log.wait_for(head % 28 + "the daemon of %s was ended by signal 9" % at)
            assert int(said.group(1)) == supervisor
            wait_until(lambda: log.find(head % 30 + "leat mounted at") and
                       len(log.having("leat mounted at " + at)) == 2, 20, "another daemon speaks")
        finally:
            unmount(at)
        log.wait_for(head % 30 + at + " unmounted")


class Service:
    """A program, started like a service manager starts it."""

    def __init__(self, argv, log, watchdog_s=None):
        self.log = log
        self.reads = open(log, "ab")
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(log + ".notify")
        self.manager.setblocking(False)
        self.told = []  # messages to the manager, in order
        env = dict(os.environ, NOTIFY_SOCKET=log + ".notify")
        if watchdog_s:
            env["WATCHDOG_USEC"] = "%d" % (watchdog_s * 1000000)
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.reads,
                                        stderr=self.reads, env=env)

    def hear(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.told += self.manager.recv(4096).decode().splitlines()
        return self.told

    def is_told(self, pattern):
        return any(re.search(pattern, line) for line in self.hear())

    def wait_told(self, pattern):
        wait_until(lambda: self.is_told(pattern), 20, "the manager hears " + pattern)

    def wait_for(self, pattern):
        wait_until(lambda: re.search(pattern, get(self.log).decode()), 20,
                   "%s says %s" % (self.log, pattern))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reads.close()
        if kind:
            print("--- %s\n%s%s" % (self.log, get(self.log).decode(), self.hear()))
        self.manager.close()
        os.unlink(self.log + ".notify")


def ossd(c, log, *more):
    """Replaces ossd1, which must not run."""
    return Service([BUILD + "/leat-ossd", "-c", c.dev + "/conf", "--set",
                    "data_dir=%s/ossd1/store" % c.dev, "--set", "listen=127.0.0.1:0", "--set",
                    "host=host1", *more, "run"], log)


def mounted(c, at, log, options="", **more):
    return Service([BUILD + "/mount.leat", "leat", at, "-f", "-o",
                    "conf=%s/conf%s" % (c.dev, options)], log, **more)


def test_who_cannot_reach_the_metadata_server_says_so(c):
    """Object servers and mounts log it immediately, and log when the server is back."""
    address = re.search(r"(?m)^mds = (.*)$", get(c.dev + "/conf").decode()).group(1)
    there = r"the metadata server at (tcp:)?%s " % re.escape(address)
    away, back = there + "cannot be reached: connection refused", there + "is reached again, after"
    at = c.dir + "/m"
    os.makedirs(at, exist_ok=True)
    c.stop("ossd1")
    with mounted(c, at, c.dir + "/mount.log") as mount:
        mount.wait_for("mounted at")
        c.stop("mds")
        with ossd(c, c.dir + "/ossd.log", "--set", "metrics=") as server:
            for s in (mount, server):
                s.wait_for(r"(?m) W [\w.]+ " + away)
            c.start("mds")
            for s in (mount, server):
                s.wait_for(r"(?m) I [\w.]+ " + back)
            server.wait_for("serves at")
    c.start("ossd1")


def test_a_second_object_server_finds_a_port_for_its_metrics(c):
    """The default port is taken: it takes the next one, which `leat status` prints."""
    c.stop("ossd1")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 9450))
        taken.listen()
        with ossd(c, c.dir + "/page.log", "--set", "metrics=127.0.0.1:9450") as s:
            s.wait_for("the /metrics page is at 127.0.0.1:9451: another process has")
            s.wait_for("serves at")
            told = json.loads(c.leat("status", "--json").stdout)
            assert told["targets"][0]["server"]["metrics"] == "127.0.0.1:9451", told["targets"]
            assert " 127.0.0.1:9451\n" in c.leat("status").stdout
            with urllib.request.urlopen("http://127.0.0.1:9451/metrics", timeout=20) as page:
                assert b"leat_ossd_free_bytes" in page.read()
        with ossd(c, c.dir + "/no-page.log", "--set", "metrics=localhost:9450") as s:
            s.wait_for("(?m) W [\\w.]+ no /metrics page at .*: address already in use")
            s.wait_for("serves at")
    c.start("ossd1")


def test_an_object_server_is_ready_when_it_serves(c):
    """A server that waits reports this, and requests more time."""
    c.stop("ossd1")
    c.stop("mds")
    with ossd(c, c.dir + "/ossd.log", "--set", "metrics=") as s:
        s.wait_told("^STATUS=waits for the metadata server at .*: connection refused$")
        s.wait_told("^EXTEND_TIMEOUT_USEC=")
        assert not s.is_told("^READY=1$"), s.told
        c.start("mds")
        s.wait_told("^READY=1$")
        # The log shows that the message is true at that time.
        assert re.search("target 1 serves at", get(s.log).decode())
        s.wait_told("^STATUS=1 of 1 targets serve$")
        s.process.send_signal(signal.SIGTERM)
        s.wait_told("^STOPPING=1$")
    c.start("ossd1")


def test_a_metadata_server_and_an_agent_are_ready_when_they_serve(c):
    c.stop("mds")
    with Service([BUILD + "/leat-mds", "-c", c.dev + "/conf", "--set", "metrics=", "run"],
                 c.dir + "/mds.log", watchdog_s=0.3) as mds:
        mds.wait_told("^READY=1$")
        mds.wait_told("^STATUS=serves at .*:")
        mds.wait_told("^WATCHDOG=1$")
        os.makedirs(c.dir + "/local", exist_ok=True)
        with Service([BUILD + "/leat", "--conf", c.dev + "/conf", "agent", "--set",
                      "dirs=%s/local" % c.dir, "--set", "listen=127.0.0.1:0"],
                     c.dir + "/agent.log", watchdog_s=0.3) as agent:
            agent.wait_told("^READY=1$")
            agent.wait_told("^STATUS=serves at 127.0.0.1:")
            agent.wait_told("^WATCHDOG=1$")
            agent.process.send_signal(signal.SIGTERM)
            agent.wait_told("^STOPPING=1$")
    c.start("mds")


def test_a_taken_port_costs_the_page_alone(c):
    """The metadata server, a mount and an agent serve without the page, like an object server."""
    at = c.dir + "/no-page"
    os.makedirs(at, exist_ok=True)
    os.makedirs(c.dir + "/local", exist_ok=True)
    c.stop("mds")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        addr = "127.0.0.1:%d" % taken.getsockname()[1]
        complains = "no /metrics page at %s: address already in use" % addr
        with Service([BUILD + "/leat-mds", "-c", c.dev + "/conf", "--set", "metrics=" + addr,
                      "run"],
                     c.dir + "/mds-no-page.log") as mds:
            mds.wait_told("^READY=1$")
            mds.wait_for(complains)
            with Service([BUILD + "/leat", "--conf", c.dev + "/conf", "agent", "--set",
                          "dirs=%s/local" % c.dir, "--set", "listen=127.0.0.1:0", "--set",
                          "metrics=" + addr], c.dir + "/agent-no-page.log") as agent:
                agent.wait_told("^READY=1$")
                agent.wait_for(complains)
            with mounted(c, at, c.dir + "/mount-no-page.log", options=",metrics_addr=" + addr) as m:
                m.wait_told("^READY=1$")
                m.wait_for(complains)
    c.start("mds")


def test_an_agent_ends_without_a_metadata_server(c):
    """The agent must not wait for a reply until the timeout of ten minutes."""
    conf = c.dir + "/patient.conf"
    with open(c.dev + "/conf", encoding="utf-8") as f, open(conf, "w", encoding="utf-8") as to:
        to.write(f.read() + "\n[client]\nrequest_timeout_ms = 600000\n")
    os.makedirs(c.dir + "/local", exist_ok=True)
    with Service([BUILD + "/leat", "--conf", conf, "agent", "--set", "dirs=%s/local" % c.dir,
                  "--set", "listen=127.0.0.1:0", "--set", "report_ms=1000"],
                 c.dir + "/agent2.log") as agent:
        agent.wait_told("^READY=1$")
        c.kill("mds")
        agent.wait_told("^STATUS=.*the metadata server cannot be reached")
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(timeout=300) == 0
    c.start("mds")


def test_a_mount_is_ready_when_it_is_mounted(c):
    """The supervisor reports it, also after an upgrade, and kills a stuck daemon."""
    at = c.dir + "/m"
    os.makedirs(at, exist_ok=True)
    # A daemon counts as stuck after two thirds of this, which a busy machine does not reach.
    with mounted(c, at, c.dir + "/mount.log", watchdog_s=12) as m:
        m.wait_told("^READY=1$")
        assert os.path.ismount(at)
        m.wait_told("^STATUS=mounted at %s$" % at)
        m.wait_told("^WATCHDOG=1$")
        m.process.send_signal(signal.SIGHUP)
        m.wait_told("^RELOADING=1$")
        wait_until(lambda: m.hear().count("READY=1") == 2, 20, "the new daemon is ready")
        status = json.loads(os.getxattr(at, "leat.status"))
        assert status["supervisor"] == m.process.pid and status["upgrades"] == 1, status
        children = "/proc/%d/task/%d/children" % (m.process.pid, m.process.pid)
        daemon = int(get(children).split()[0])
        os.kill(daemon, signal.SIGSTOP)
        m.wait_for("has been stuck for [0-9]+ s: killing it")
        m.wait_for("another one goes on")
        with open(at + "/file", "w", encoding="ascii") as f:
            f.write("x")
        os.unlink(at + "/file")
        assert m.process.poll() is None
        m.process.send_signal(signal.SIGTERM)
        m.wait_told("^STOPPING=1$")


if __name__ == "__main__":
    import tempfile
    with tempfile.TemporaryDirectory() as tmp:
        own_dev(tmp)
        try:
            run_tests(globals())
        finally:
            libc.umount2(b"/dev", 2)
            libc.umount2(tmp.encode(), 2)
