#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each command of README.md and deploy/README.md literally and checks that it does what the
page says, after `make install`, for two PREFIXES; likewise mount units and the next start.

  this test → for each PREFIX its own mounts and processes (unshare) → an overlay over this
  system's root → systemd, which systemd-nspawn starts there → each command in bash, one after
  the other, as lib/documents.py says

One container stands for all machines of a cluster. `test_documents.py PREFIX ...` runs these only;
-v shows each command. The test changes nothing on the system itself, and leaves nothing behind.
"""
# timeout: 240
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)) + "/../lib")
import documents

SRC = os.environ.get("LEAT_SRC") or os.path.realpath(os.path.dirname(__file__) + "/../..")
BUILD = os.path.realpath(os.environ.get("BUILD") or SRC + "/build")
PREFIXES = ("/usr/local", "/usr")
PATIENCE_S = 120   # for one command, on a busy machine
STATE = "/run/documents.env"
NAMES = "127.0.0.1 localhost\n127.0.0.1 node1 mds1 oss1 oss2 oss3\n"
VERBOSE = "-v" in sys.argv


def skip(why):
    print(why)
    sys.exit(77)


def call(*argv, **more):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, check=False, **more)


def must(*argv):
    p = call(*argv)
    assert p.returncode == 0, (argv, p.stdout)


def wait_for(what, ready, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while not ready():
        assert time.monotonic() < end, "waited in vain: " + what
        time.sleep(0.1)


# --- the control groups of a container ------------------------------------------------------------

class Groups:
    """nspawn leaves groups below its own; so the test runs it in a group that it removes."""
    ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")

    def __init__(self):
        self.made = []
        with open("/proc/self/cgroup") as f:
            mine = dict(line.rstrip("\n").split(":", 1)[1].split(":", 1) for line in f)
        for root in self.ROOTS:
            group = mine.get("name=systemd" if root.endswith("/systemd") else "", "/")
            parent = root + group.rstrip("/")
            if not os.path.exists(parent + "/cgroup.procs"):
                continue
            for stale in glob.glob(parent + "/leat-documents-*"):
                if not os.path.exists("/proc/" + stale.rsplit("-", 1)[1]):
                    self.remove(stale)
            try:
                os.mkdir(parent + "/leat-documents-%d" % os.getpid())
            except OSError:
                continue
            self.made.append(parent + "/leat-documents-%d" % os.getpid())

    def enter(self):
        for group in self.made:
            with open(group + "/cgroup.procs", "w") as f:
                f.write("0")

    @staticmethod
    def remove(group):
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass

    def remove_all(self):
        for group in self.made:
            self.remove(group)


# --- the container --------------------------------------------------------------------------------

class Container:
    """A copy of this system without its configuration of Leat. Discards all writes."""

    def __init__(self, tmp, prefix):
        self.prefix, self.tmp = prefix, tmp
        self.root, self.log = tmp + "/fs/root", tmp + "/output"
        self.env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "PREFIX": prefix,
                    "BUILD": BUILD, "MANPAGER": "cat", "PYTHONDONTWRITEBYTECODE": "1"}
        if os.environ.get("BUILD_ROOT"):
            self.env["BUILD_ROOT"] = os.path.realpath(os.environ["BUILD_ROOT"])
        if os.environ.get("LEAT_CC"):
            self.env["CC"] = os.environ["LEAT_CC"]
        self.nspawn = self.first = None
        os.makedirs(tmp + "/fs")
        os.makedirs(tmp + "/data")
        must("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", tmp + "/fs")
        must("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")   # nspawn writes to it
        self.overlay("/", "root")
        for path in (SRC, BUILD):
            if os.stat(path).st_dev != os.stat("/").st_dev and \
                    not path.startswith(SRC + "/"):
                os.makedirs(self.root + path, exist_ok=True)
                self.overlay(path, path.strip("/").replace("/", "-"), self.root + path)
        self.forget()

    def overlay(self, lower, name, at=None):
        at = at or self.tmp + "/fs/" + name
        folders = [self.tmp + "/fs/" + kind + name for kind in ("upper-", "work-")]
        for folder in folders + [at]:
            os.makedirs(folder, exist_ok=True)
        p = call("mount", "-t", "overlay", "-o", "lowerdir=%s,upperdir=%s,workdir=%s" %
                 (lower, *folders), "overlay", at)
        if p.returncode != 0:
            skip("no overlay over %s here: %s" % (lower, p.stdout.strip()))

    def forget(self):
        for path in ("/etc/systemd/system", "/etc/leat", "/var/lib/leat", "/var/log/journal",
                     "/var/lib/systemd"):
            shutil.rmtree(self.root + path, ignore_errors=True)
        wants = self.root + "/etc/systemd/system/multi-user.target.wants"
        os.makedirs(wants)
        os.symlink("/lib/systemd/system/remote-fs.target", wants + "/remote-fs.target")
        os.makedirs(self.root + "/var/lib/leat")
        for prefix in PREFIXES:
            for path in glob.glob(self.root + prefix + "/*bin/*leat*") + \
                    glob.glob(self.root + prefix + "/lib/python3*/dist-packages/leat") + \
                    glob.glob(self.root + prefix + "/lib/systemd/system/leat-*") + \
                    glob.glob(self.root + prefix + "/lib/libleat*"):
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.remove(path)
        os.makedirs(self.root + "/etc/tmpfiles.d", exist_ok=True)
        # With tmp.conf systemd would empty /tmp, where the sources may be.
        for path, text in (("/etc/fstab", ""), ("/etc/machine-id", ""), ("/etc/hosts", NAMES),
                           ("/etc/hostname", "node1\n"), ("/etc/tmpfiles.d/tmp.conf", "")):
            with open(self.root + path, "w") as f:
                f.write(text)

    def first_process(self):
        """The container's process 1, if systemd runs. It is a child of nspawn."""
        try:
            with open("/proc/%d/task/%d/children" % (self.nspawn.pid, self.nspawn.pid)) as f:
                pids = f.read().split()
            for pid in pids:
                with open("/proc/%s/status" % pid) as f:
                    text = f.read()
                if re.search(r"^Name:\s+systemd$", text, re.M) and \
                        re.search(r"^NSpid:.*\s1$", text, re.M):
                    return pid
        except OSError:
            pass
        return None

    def start(self):
        argv = ["systemd-nspawn", "--quiet", "--boot", "--directory=" + self.root,
                "--private-network", "--register=no", "--keep-unit", "--machine=node1",
                "--bind=/dev/fuse", "--bind=%s:/var/lib/leat" % (self.tmp + "/data"),
                "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"]
        # Otherwise /tmp would be empty in the container, and the sources may be there.
        env = dict(self.env, SYSTEMD_NSPAWN_TMPFS_TMP="0")
        with open(self.tmp + "/console", "a") as console:
            self.nspawn = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=console,
                                           stderr=console, env=env)

        def started():
            if self.nspawn.poll() is not None:
                with open(self.tmp + "/console") as f:
                    skip("no container can be started here: " + f.read().strip()[-300:])
            self.first = self.first_process()
            return self.first is not None
        wait_for("the container's systemd", started)

        wait_for("systemd's socket", lambda: os.path.exists(
            "/proc/%s/root/run/systemd/private" % self.first))
        wait_for("systemd's start", lambda: self.bash("systemctl is-system-running --wait")[1]
                 .strip() in ("running", "degraded"))

    def restart(self):
        self.bash("systemctl reboot")
        assert self.nspawn.wait(PATIENCE_S) == 133, "nspawn's status for a restart"
        self.start()

    def bash(self, script):
        """(exit status, output). Output is a file, because background processes keep it open."""
        with open(self.log, "w") as out:
            p = subprocess.run(["nsenter", "--target", self.first, "--mount", "--uts", "--ipc",
                                "--net", "--pid", "--cgroup", "--root", "--wd",
                                "timeout", str(PATIENCE_S), "bash", "-c", script],
                               stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env,
                               check=False)
        with open(self.log, errors="replace") as f:
            return p.returncode, f.read()

    def do(self, script):
        code, text = self.bash("no() { ! \"$@\"; }\nset -e\ncd %s\n%s" % (SRC, script))
        if code != 0:
            raise AssertionError("status %d of: %s\n%s\n%s" % (code, script, text, self.account()))

    def account(self):
        """The journal, for people who read that a test has failed."""
        return self.bash("leat status; findmnt -t fuse.leat; systemctl --failed; "
                         "journalctl -b --no-pager -n 60 -p notice")[1]


# --- what is written ------------------------------------------------------------------------------

# Precondition, command, check. (set -e ignores a status that `!` negates.)
SCRIPT = """no() { ! "$@"; }
(set -e; cd %(src)s; %(setup)s
) || exit
echo %(mark)s
cd %(src)s; [ ! -e %(state)s ] || . %(state)s
%(command)s
code=$?
export -p >%(state)s
echo %(mark)s
[ $code = 0 ] || exit $code
(set -e; %(after)s
)"""


def run_command(c, command, step):
    if VERBOSE:
        print("%6.1f %s  %s" % (time.monotonic() - T0, c.prefix, command), flush=True)
    mark = "-- %d --" % os.getpid()
    code, text = c.bash(SCRIPT % {"src": SRC, "state": STATE, "mark": mark, "command": command,
                                  "setup": step.setup or ":", "after": step.after or ":"})
    parts = text.split(mark + "\n")
    if code == 0 and re.search(step.shows, parts[1]):
        return
    raise AssertionError("%s: %s, status %d; before, by it, after:\n%s\n%s" % (
        command, ["not set up", "failed", "'%s' is not told" % step.shows if code == 0 else
                  "not as it should be"][len(parts) - 1], code, text, c.account()))


def run_block(c, page, block):
    c.bash("rm -f " + STATE)
    for command in block:
        step = documents.STEPS[page][documents.key(command)]
        if not step.why and not (step.once and c.prefix != PREFIXES[0]):
            run_command(c, command, step)


def check_starts(c):
    """All services start with the machine, and also if they start in the wrong order."""
    if c.prefix == PREFIXES[0]:
        mount = "mnt-leat.mount"
        c.do("echo 'leat: /mnt/leat fuse.leat _netdev,noatime 0 0' >>/etc/fstab\n"
             "systemctl daemon-reload\nsystemctl start " + mount)
    else:
        mount = "leat-mount@mnt-leat.service"
        c.do("systemctl enable --now " + mount)
    readable = "until grep -qsx kept /mnt/leat/file; do sleep 0.1; done\n" \
        "until leat status --check; do sleep 0.1; done\nmountpoint /mnt/leat"
    # On one machine all end at one time: mount and agent wait for the servers.
    c.do(readable + "\nsystemctl stop leat-agent " + mount)
    c.restart()
    c.do(readable)
    c.do("systemctl stop %s leat-ossd@1 leat-ossd@2 leat-ossd@3 leat-mds\n"
         "no mountpoint -q /mnt/leat\n"
         "systemctl start --no-block %s\n"
         "until pgrep -x mount.leat; do sleep 0.1; done\n"
         "systemctl start --no-block leat-ossd@3 leat-ossd@2 leat-ossd@1\n"
         "until [ $(pgrep -cx leat-ossd) = 3 ]; do sleep 0.1; done\n"
         "systemctl start leat-mds\n" % (mount, mount))
    c.do(readable)
    c.do("systemctl is-active " + mount)
    c.do("systemctl stop %s" % mount)


def inside(prefix, tmp):
    c = Container(tmp, prefix)
    c.start()
    try:
        for page, block in documents.in_order():
            if any(documents.key(command) == "make uninstall" for command in block):
                check_starts(c)
            run_block(c, page, block)
        c.bash("systemctl poweroff")
        c.nspawn.wait(PATIENCE_S)
    finally:
        c.nspawn.kill()
        c.nspawn.wait()


def check_table():
    """Each command of the pages has a line in the table, and each line has a command."""
    for page, steps in documents.STEPS.items():
        there = {documents.key(command) for block in documents.blocks(page) for command in block}
        assert not there - set(steps), "%s: nobody says how to run %s (tests/lib/documents.py)" % (
            page, sorted(there - set(steps)))
        assert not set(steps) - there, "%s has no such commands: %s" % (
            page, sorted(set(steps) - there))


def main():
    if sys.argv[1:2] == ["--inside"]:
        return inside(*sys.argv[2:4])
    check_table()
    if os.getuid() != 0:
        skip("not root")
    for program, package in (("systemd-nspawn", "systemd-container"), ("man", "man-db"),
                             ("pgrep", "procps"), ("nsenter", "util-linux")):
        if not shutil.which(program):
            skip("not installed: %s (package %s)" % (program, package))
    if call("unshare", "--mount", "--pid", "--fork", "--kill-child", "true").returncode != 0:
        skip("no process may have mounts and processes of its own here (unshare)")
    if not os.path.exists("/dev/fuse") or not os.path.exists("/lib/systemd/systemd"):
        skip("no /dev/fuse, or no systemd")
    for prefix in [a for a in sys.argv[1:] if a != "-v"] or PREFIXES:
        tmp = tempfile.mkdtemp(prefix="documents-", dir=os.environ.get("TMPDIR"))
        groups = Groups()
        try:
            p = subprocess.run(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "--propagation", "private", sys.executable, os.path.realpath(__file__),
                 "--inside", prefix, tmp] + ["-v"] * VERBOSE, check=False,
                preexec_fn=groups.enter)
        finally:
            groups.remove_all()
            shutil.rmtree(tmp, ignore_errors=True)
        if p.returncode != 0:
            sys.exit(p.returncode)
        print("as written: PREFIX=%s" % prefix, flush=True)
    return 0


T0 = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())
