#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Grid Engine on this host, with the prolog as root: a job starts with its data staged. If
staging fails, the job gets an error with the reason in qstat -j, and the queue stays in service."""
# timeout: 240
import os
import pwd
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cluster import BUILD, Cluster, free_ports, SRC, wait_until

ENGINE, SHARE = "/usr/lib/gridengine", "/usr/share/gridengine"
NEEDED = (ENGINE + "/sge_qmaster", ENGINE + "/sge_execd", ENGINE + "/qsub",
          SHARE + "/default-configuration")
USER = "sgeadmin"  # from the packages; jobs need a user with a home
BOOTSTRAP = """admin_user              none
default_domain          none
ignore_fqdn             true
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         {root}/spooldb
binary_path             /usr/sbin
qmaster_spool_dir       {root}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""
EXEC_HOST = """hostname localhost
load_scaling NONE
complex_values NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""


class GridEngine:
    def __init__(self, c):
        self.c = c
        self.root = c.dir + "/sge"
        ports = free_ports(2)
        self.env = dict(os.environ, SGE_ROOT=self.root, SGE_CELL="default", SGE_ND="1",
                        SGE_QMASTER_PORT=str(ports[0]), SGE_EXECD_PORT=str(ports[1]),
                        PATH=ENGINE + ":" + os.environ["PATH"])
        self.children = []
        self.user = pwd.getpwnam(USER)

    def run(self, *argv, check=True, user=None):
        more = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        p = subprocess.run(argv, env=dict(self.env, HOME="/"), stdin=subprocess.DEVNULL, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100,
                           check=False, cwd=self.root + "/jobs", **more)
        assert not check or p.returncode == 0, (argv, p.stdout)
        return p

    def write(self, name, text):
        with open(self.root + "/" + name, "w") as f:
            f.write(text)
        return self.root + "/" + name

    def spawn(self, name):
        with open("%s/%s.out" % (self.root, name), "w") as log:
            self.children.append(subprocess.Popen([ENGINE + "/" + name], env=self.env, stdout=log,
                                                  stdin=subprocess.DEVNULL, stderr=log,
                                                  start_new_session=True))

    def make_cell(self):
        for name in ("default/common", "qmaster/job_scripts", "spooldb", "execd", "jobs"):
            os.makedirs(self.root + "/" + name)
        os.chown(self.root + "/jobs", self.user.pw_uid, self.user.pw_gid)
        for name in ("bin", "lib", "utilbin", "util"):
            os.symlink("/var/lib/gridengine/" + name, self.root + "/" + name)
        self.write("default/common/bootstrap", BOOTSTRAP.format(root=self.root))
        self.write("default/common/act_qmaster", "localhost\n")
        self.write("default/common/host_aliases", "localhost %s\n" % socket.gethostname())
        with open(SHARE + "/default-configuration") as f:
            conf = "".join("execd_spool_dir %s/execd\n" % self.root
                           if line.startswith("execd_spool_dir") else
                           "load_report_time 00:00:02\n" if line.startswith("load_report") else
                           "min_uid 0\n" if line.startswith("min_uid") else
                           "min_gid 0\n" if line.startswith("min_gid") else line for line in f)
        self.write("conf", conf)
        self.run(ENGINE + "/spoolinit", "berkeleydb", "libspoolb", self.root + "/spooldb", "init")
        for what, where in (("configuration", self.root + "/conf"),
                            ("complexes", SHARE + "/util/resources/centry"),
                            ("usersets", SHARE + "/util/resources/usersets"),
                            ("managers", "root")):
            self.run(ENGINE + "/spooldefaults", what, where)

    def make_queue(self):
        self.run("qconf", "-Ae", self.write("host", EXEC_HOST), check=False)
        self.run("qconf", "-as", "localhost", check=False)
        quick = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
        self.run("qconf", "-Msconf", self.write("sched", "".join(
            "%s %s\n" % (w[0], quick.get(w[0], w[1])) for w in
            (l.split(None, 1) for l in self.run("qconf", "-ssconf").stdout.splitlines()))))
        template = self.run("qconf", "-sq").stdout
        hook = "root@%s/deploy/sge/%s --conf %s/leat-sge.conf"
        given = {"qname": "test.q", "hostlist": "localhost", "slots": "2",
                 "prolog": hook % (SRC, "prolog", self.root),
                 "epilog": hook % (SRC, "epilog", self.root),
                 "shell": "/bin/bash", "shell_start_mode": "unix_behavior",
                 "load_thresholds": "NONE", "pe_list": "NONE",
                 "ckpt_list": "NONE"}
        lines = [l for l in template.replace("\\\n", " ").splitlines() if l.strip()]
        self.run("qconf", "-Aq", self.write("queue", "".join(
            "%s %s\n" % (w[0], given.get(w[0], w[1])) for w in (l.split(None, 1) for l in lines))))

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def start(self):
        os.mkdir(self.root)
        self.make_cell()
        self.write("leat-sge.conf", "LEAT=%s/leat\nexport LEAT_CONF=%s/conf\nSTAGE_DIR=%s/nvme\n"
                   "TIMEOUT=30\n" % (BUILD, self.c.dev, self.c.dir))
        self.spawn("sge_qmaster")
        wait_until(lambda: self.run("qconf", "-sm", check=False).returncode == 0, 30, "qmaster")
        self.run("qconf", "-ah", "localhost", check=False)
        self.make_queue()
        self.spawn("sge_execd")
        wait_until(lambda: self.run("qstat", "-f").stdout.find("test.q@") >= 0 and
                   self.queue_state() == "", 60, "the queue is in service")

    def __exit__(self, kind, value, trace):
        if kind is not None:
            for path in ("qmaster/messages", "sge_qmaster.out", "sge_execd.out"):
                if os.path.exists(self.root + "/" + path):
                    with open(self.root + "/" + path, errors="replace") as f:
                        print("--- %s\n%s" % (path, "".join(f.readlines()[-30:])))
        self.run("qdel", "-u", "*", check=False)
        for child in reversed(self.children):
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def queue_state(self):
        for line in self.run("qstat", "-f").stdout.splitlines():
            words = line.split()
            if words and words[0].startswith("test.q@"):
                return words[5] if len(words) > 5 else ""
        return "?"

    def submit(self, script, *options):
        self.write("jobs/job.sh", "#!/bin/bash\n" + script)
        out = self.run("qsub", "-terse", "-o", self.root + "/jobs/out", "-e",
                       self.root + "/jobs/err", *options, self.root + "/jobs/job.sh",
                       user=self.user).stdout.split()
        return out[-1]

    def gone(self, job):
        return self.run("qstat", "-j", job, check=False).returncode != 0


def make_set(c, name):
    folder = c.mnt() + "/" + name
    os.makedirs(folder)
    with open(folder + "/f", "wb") as f:
        f.write(os.urandom(1_000_000))
    c.leat("dataset", "create", name + "@v1", folder)


def test_staged(g):
    make_set(g.c, "one")
    job = g.submit("cmp %s/one/f $(%s/leat stage path one@v1 --to %s/nvme)/f && echo same\n" % (
        g.c.mnt(), BUILD, g.c.dir), "-v", "LEAT_STAGE=one@v1")
    wait_until(lambda: g.gone(job), 60, "the job has ended")
    with open(g.root + "/jobs/out") as f:
        assert f.read() == "same\n"
    # the epilog has released the lease
    assert g.c.leat("stage", "evict", "one@v1", "--to", g.c.dir + "/nvme").returncode == 0


def test_failure(g):
    job = g.submit("echo never\n", "-v", "LEAT_STAGE=none@v1")
    wait_until(lambda: "error reason" in g.run("qstat", "-j", job, check=False).stdout, 60,
               "the job has an error")
    told = g.run("qstat", "-j", job).stdout
    assert "none@v1: there is no such data set" in told, told
    assert "Eqw" in g.run("qstat", "-u", "*").stdout, g.run("qstat", "-u", "*").stdout
    assert g.queue_state() == "", "the queue stays in service"
    g.run("qdel", job)
    job = g.submit("echo next\n")
    wait_until(lambda: g.gone(job), 60, "the next job runs")


def test_hostile_job(g):
    """Root's prolog has the job's variables in its environment: it runs and trusts none of them."""
    evil = g.root + "/jobs/evil"
    os.makedirs(evil)
    canary = g.root + "/jobs/canary"
    os.mkdir(canary)
    os.chmod(canary, 0o777)
    script = "#!/bin/bash\n[ $(/usr/bin/id -u) != 0 ] || /usr/bin/touch %s/NAME\n" % canary
    for name in ("rc", "leat", "awk", "sed", "sort", "date", "mktemp", "timeout", "hostname",
                 "readlink",
                 "rm", "bash", "grep", "stat"):
        g.write("jobs/evil/" + name, script.replace("NAME", name))
        os.chmod(evil + "/" + name, 0o755)
    g.write("jobs/evil/hosts", "root:secret\n")
    make_set(g.c, "hostile")
    variables = {"LEAT_STAGE": "hostile@v1", "LEAT_SGE_CONF": evil + "/rc",
                 "BASH_ENV": evil + "/rc",
                 "ENV": evil + "/rc", "PATH": evil, "LEAT_CONF": evil + "/hosts",
                 "LEAT_STAGE_DIR": evil,
                 "PE_HOSTFILE": evil + "/hosts", "SGE_JOB_SPOOL_DIR": evil, "JOB_ID": "777",
                 "SGE_TASK_ID": "9", "LD_PRELOAD": evil + "/none.so", "PYTHONPATH": evil,
                 "IFS": "@",
                 "LC_ALL": "de_DE", "SHELLOPTS": "xtrace", "TMPDIR": evil, "ON_NODE": evil + "/rc"}
    job = g.submit("/usr/bin/touch %s/jobs/ran\n" % g.root, "-v", ",".join(
        "%s=%s" % v for v in variables.items()))
    wait_until(lambda: g.gone(job), 60, "the job has ended: %s" % g.run("qstat", "-j", job,
                                                                        check=False).stdout)
    assert os.path.exists(g.root + "/jobs/ran"), "the job ran"
    assert not os.listdir(canary), os.listdir(canary)
    assert g.c.leat("stage", "status", "hostile@v1", "--to", g.c.dir + "/nvme").returncode == 0
    assert g.c.leat("stage", "evict", "hostile@v1", "--to", g.c.dir + "/nvme").returncode == 0
    for names in ("$(touch %s/name)" % canary, "--to@/etc", "hostile@v1;touch %s/name" % canary):
        job = g.submit("echo never\n", "-v", "LEAT_STAGE=" + names)
        wait_until(lambda: "error reason" in g.run("qstat", "-j", job, check=False).stdout, 60,
                   "the job has an error")
        told = g.run("qstat", "-j", job).stdout
        assert "names no data sets: NAME@VERSION" in told, told
        g.run("qdel", job)
    assert not os.listdir(canary), os.listdir(canary)
    assert g.queue_state() == "", "the queue stays in service"


def main():
    lacking = [p for p in NEEDED if not os.path.exists(p)]
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("root and /dev/fuse are needed")
        sys.exit(77)
    if lacking or not shutil.which("qconf"):
        print("not installed: gridengine-master gridengine-exec gridengine-client")
        sys.exit(77)
    with Cluster(ossd=2, mounts=1) as c, GridEngine(c) as g:
        for name, test in list(globals().items()):
            if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
                test(g)
                print(name, flush=True)


if __name__ == "__main__":
    main()
