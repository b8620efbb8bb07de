#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of four nodes on this host: jobs start with their data staged on every node, a
failure is the job's reason in squeue, and no node is drained."""
# timeout: 600
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cluster import BUILD, Cluster, free_ports, SRC, wait_until

NODES = ["n1", "n2", "n3", "n4"]
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scontrol")
SLURM_CONF = """
ClusterName=leat
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd-%n.log
SlurmctldDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/linear
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
JobRequeue=1
ReturnToService=2
SwitchType=switch/none
BurstBufferType=burst_buffer/lua
JobSubmitPlugins=lua
PlugStackConfig={dir}/plugstack.conf
Prolog={dir}/prolog
Epilog={dir}/epilog
"""
LEAT_SLURM_CONF = """
LEAT={build}/leat
export LEAT_CONF={leat_conf}
STAGE_DIR={dir}/nvme-%n
TIMEOUT=60
ON_NODE='env SLURMD_NODENAME=%n'
"""


class Slurm:
    """munged, slurmctld and one slurmd for each of NODES, all below one folder."""

    def __init__(self, c):
        self.c = c
        self.dir = c.dir + "/slurm"
        self.children = []
        self.user = pwd.getpwnam("nobody")  # Slurm gives no burst buffers to root
        self.env = dict(os.environ, SLURM_CONF=self.dir + "/slurm.conf",
                        LEAT_CONF=c.dev + "/conf")

    def write(self, name, text, mode=0o644):
        with open(self.dir + "/" + name, "w") as f:
            f.write(text)
        os.chmod(self.dir + "/" + name, mode)

    def spawn(self, *argv):
        log = open("%s/%s.out" % (self.dir, os.path.basename(argv[0])), "a")
        self.children.append(subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL,
                                              stdout=log, stderr=log, start_new_session=True))
        log.close()

    def configure(self):
        ports = free_ports(1 + len(NODES))
        host = socket.gethostname().split(".")[0]
        conf = SLURM_CONF.format(host=host, ctld_port=ports[0], dir=self.dir)
        for name, port in zip(NODES, ports[1:]):
            conf += "NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=2\n" % (
                name, host, port)
        conf += "PartitionName=all Nodes=%s Default=YES State=UP\n" % ",".join(NODES)
        self.write("slurm.conf", conf)
        self.write("leat-slurm.conf", LEAT_SLURM_CONF.format(
            build=BUILD, leat_conf=self.c.dev + "/conf", dir=self.dir))
        self.write("burst_buffer.conf", "Directive=BB_LUA\nStageInTimeout=100\n")
        for name in ("leat-slurm", "prolog", "epilog"):  # slurmd passes no environment to them
            self.write(name, '#!/bin/sh\nexec %s/deploy/slurm/%s --conf %s/leat-slurm.conf "$@"\n' %
                       (SRC, name, self.dir), 0o755)
        for name in ("burst_buffer.lua", "job_submit.lua"):
            with open(SRC + "/deploy/slurm/" + name) as f:
                self.write(name, f.read().replace("/usr/share/leat/slurm/leat-slurm",
                                                  self.dir + "/leat-slurm"))
        self.write("plugstack.conf",
                   "optional %s/spank_leat.so leat=%s/leat stage_dir=%s/nvme-%%n timeout=60 "
                   "conf=%s/conf\n" % (BUILD, BUILD, self.dir, self.c.dev))

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def start(self):
        os.makedirs(self.dir + "/state")
        os.mkdir(self.dir + "/jobs")
        os.chown(self.dir + "/jobs", self.user.pw_uid, self.user.pw_gid)
        for name in NODES:
            os.makedirs(self.dir + "/spool-" + name)
            os.makedirs(self.dir + "/nvme-" + name)
        with open(self.dir + "/munge.key", "wb") as f:
            f.write(os.urandom(64))
        os.chmod(self.dir + "/munge.key", 0o400)
        self.configure()
        self.spawn("munged", "--foreground", "--force", "--socket=%s/munge.socket" % self.dir,
                   "--key-file=%s/munge.key" % self.dir, "--pid-file=%s/munge.pid" % self.dir,
                   "--seed-file=%s/munge.seed" % self.dir)
        wait_until(lambda: os.path.exists(self.dir + "/munge.socket"), 20, "munged is there")
        self.spawn("slurmctld", "-D", "-f", self.dir + "/slurm.conf")
        for name in NODES:
            self.spawn("slurmd", "-D", "-f", self.dir + "/slurm.conf", "-N", name)
        wait_until(self.all_idle, 60, "four idle nodes")

    def __exit__(self, kind, value, trace):
        if kind is not None:
            for name in sorted(os.listdir(self.dir)):
                if name.endswith((".log", ".out")):
                    with open(self.dir + "/" + name, errors="replace") as f:
                        sys.stdout.write("--- %s\n%s" % (name, "".join(f.readlines()[-40:])))
        self.run("scancel", "--user=nobody", check=False)
        time.sleep(1)
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in reversed(self.children):
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def run(self, *argv, check=True):
        p = subprocess.run(argv, env=self.env, stdin=subprocess.DEVNULL, timeout=120, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                           cwd=self.dir + "/jobs", user=self.user.pw_uid, group=self.user.pw_gid,
                           extra_groups=[])
        assert not check or p.returncode == 0, (argv, p.stdout, p.stderr)
        return p

    def all_idle(self):
        out = self.run("sinfo", "-h", "-N", "-o", "%N %t", check=False).stdout.split("\n")
        return sorted(out[:-1]) == ["%s idle" % n for n in NODES]

    def show(self, job):
        text = self.run("scontrol", "-o", "show", "job", job).stdout
        return dict(w.split("=", 1) for w in text.split() if "=" in w), text

    def submit(self, text, *options, nodes=4):
        self.write("job.sh", "#!/bin/bash\n" + text, 0o755)
        out = self.run("sbatch", "--parsable", "-N", str(nodes), "-o", self.dir + "/jobs/%j.txt",
                       *options, self.dir + "/job.sh").stdout.strip()
        return out.split(";")[0]

    def ends(self, job, state="COMPLETED"):
        def over():
            return self.show(job)[0]["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING",
                                                         "COMPLETING", "STAGE_OUT")
        wait_until(over, 60, "job %s ends" % job)
        told = self.show(job)
        assert told[0]["JobState"] == state, (told[1], self.output(job))

    def reason(self, job, words, keep=False):
        """Waits until squeue shows the reason of the pending job."""
        wait_until(lambda: words in self.run("squeue", "-h", "-o", "%r %R", "-j", job).stdout, 60,
                   "job %s gives the reason: %s" % (job, words))
        if not keep:
            self.run("scancel", job)

    def output(self, job):
        try:
            with open("%s/jobs/%s.txt" % (self.dir, job)) as f:
                return f.read()
        except FileNotFoundError:
            return ""


def make_set(c, name):
    folder = c.mnt() + "/" + name
    os.makedirs(folder)
    for i in range(3):
        with open("%s/f%d" % (folder, i), "wb") as f:
            f.write(os.urandom(2_000_000 + i))
    c.leat("dataset", "create", name + "@v1", folder)


# On each node: the copy is ready and equals the source. Tasks report to files, because srun may
# lose the output of one node's tasks without an error.
LOOK = """
export LEAT={leat} SOURCE={source}
srun bash -c '
    path=$($LEAT stage path {name}@v1 --to {dir}/nvme-$SLURMD_NODENAME) || exit 1
    diff -r "$SOURCE" "$path" && echo $SLURMD_NODENAME >>{dir}/jobs/same-$SLURM_JOB_ID'
"""


def same_on(s, job):
    with open("%s/jobs/same-%s" % (s.dir, job)) as f:
        return sorted(f.read().split())


def look(s, name):
    return LOOK.format(leat=BUILD + "/leat", source=s.c.mnt() + "/" + name, name=name, dir=s.dir)


def staged_on(s, name):
    return [n for n in NODES if s.c.leat("stage", "status", name + "@v1", "--to",
                                         s.dir + "/nvme-" + n, check=False).returncode == 0]


def test_option(s):
    """sbatch --stage: the plugin makes a burst buffer of it."""
    make_set(s.c, "one")
    job = s.submit("echo env $LEAT_STAGE $LEAT_STAGE_DIR\n" + look(s, "one"), "--stage=one@v1")
    s.ends(job)
    out = s.output(job)
    assert same_on(s, job) == NODES, out
    assert "env one@v1 %s/nvme-n" % s.dir in out, out
    # the burst buffer staged it, before the job started
    with open(s.dir + "/slurmctld.log") as f:
        assert "leat=one@v1" in f.read() or staged_on(s, "one") == NODES


def test_directive(s):
    make_set(s.c, "two")
    job = s.submit("#BB_LUA leat=two@v1 limit=1G\n" + look(s, "two"))
    s.ends(job)
    assert same_on(s, job) == NODES, s.output(job)


def test_reasons(s):
    """A job is refused immediately or pends with the reason; the nodes stay in service."""
    bad = s.run("sbatch", "--stage=no/name", s.dir + "/job.sh", check=False)
    assert bad.returncode != 0 and "NAME@VERSION" in bad.stderr, bad.stderr
    s.write("bad.sh", "#!/bin/bash\n#BB_LUA leat=../x\ntrue\n", 0o755)
    bad = s.run("sbatch", s.dir + "/bad.sh", check=False)
    assert bad.returncode != 0, bad
    s.reason(s.submit("true\n", "--stage=none@v1"), "none@v1")
    s.reason(s.submit("#BB_LUA leat=one@v1 limit=1K\ntrue\n"), "more than limit=1K")
    # one node cannot stage it
    shutil.rmtree(s.dir + "/nvme-n3")
    s.write("nvme-n3", "in the way\n")
    make_set(s.c, "three")
    job = s.submit("true\n", "--stage=three@v1")
    s.reason(job, "Burst buffer pre_run error", keep=True)
    assert "leat: n3: " in s.show(job)[1], s.show(job)[1]
    s.run("scancel", job)
    os.unlink(s.dir + "/nvme-n3")
    os.mkdir(s.dir + "/nvme-n3")
    wait_until(s.all_idle, 60, "no node is drained")
    job = s.submit(look(s, "three"), "--stage=three@v1")
    s.ends(job)


def leases(s, node):
    """The jobs that hold a copy on the node."""
    return sorted(os.path.basename(path) for path in glob.glob(
        "%s/nvme-%s/.leat/**/leases/slurm-*" % (s.dir, node), recursive=True))


def hook(s, *argv):
    """Calls leat-slurm like root does."""
    return subprocess.run([s.dir + "/leat-slurm", *argv], env=s.env, stdin=subprocess.DEVNULL,
                          text=True, stdout=subprocess.PIPE, timeout=300, check=False)


def test_job_name(s):
    """A job name neither chooses nodes nor becomes part of a command."""
    make_set(s.c, "named")
    s.write("asked", "")
    with open(s.dir + "/leat-slurm.conf") as f:
        before = f.read()
    s.write("on-node", "#!/bin/sh\nprintf '%%s\\n' \"$1\" >>%s/asked\nshift\nexec \"$@\"\n" %
            s.dir, 0o755)
    s.write("leat-slurm.conf", before + "ON_NODE='%s/on-node %%n'\n" % s.dir)
    for name in ("x NodeList=n9,-oProxyCommand=id", "x\n1 n9", "x NodeList=-h"):
        s.ends(s.submit("#BB_LUA leat=named@v1\ntrue\n", "-J", name, nodes=2))
    wait_until(lambda: not any(leases(s, n) for n in NODES), 60, "the leases are gone")
    for nodes in ("n1,-oProxyCommand=id", "-h"):
        p = hook(s, "release", "1", nodes)
        assert p.returncode == 1 and " no node" in p.stdout, p
    with open(s.dir + "/asked") as f:
        asked = set(f.read().split("\n")) - {""}
    assert asked and asked <= set(NODES), asked
    s.write("leat-slurm.conf", before)


def test_failed_elsewhere(s):
    """One node cannot stage: the others hold no lease for a job that may never run."""
    make_set(s.c, "partly")
    shutil.rmtree(s.dir + "/nvme-n3")
    s.write("nvme-n3", "in the way\n")
    # Slurm does not have this job, so a teardown would not find its nodes either.
    p = hook(s, "stage", "777", "n[1-4]", "partly@v1")
    assert p.returncode != 0 and p.stdout.startswith("leat: n3: "), p
    assert staged_on(s, "partly") == ["n1", "n2", "n4"]
    held = {n: leases(s, n) for n in NODES}
    assert not any(held.values()), held
    os.unlink(s.dir + "/nvme-n3")
    os.mkdir(s.dir + "/nvme-n3")


def test_without_burst_buffer(s):
    """srun instead of a batch script: the prolog starts staging, the tasks wait; on failure the
    tasks report the reason."""
    make_set(s.c, "four")
    s.write("job_submit.lua", "function slurm_job_submit(...) return slurm.SUCCESS end\n"
            "function slurm_job_modify(...) return slurm.SUCCESS end\nreturn slurm.SUCCESS\n")
    out = s.run("srun", "-N4", "--stage=four@v1", "bash", "-c",
                "test -e $(%s/leat stage path $LEAT_STAGE)/f2 && >%s/jobs/ok-$SLURMD_NODENAME" %
                (BUILD, s.dir))
    assert len(glob.glob(s.dir + "/jobs/ok-n*")) == 4, (out.stdout, out.stderr)
    out = s.run("srun", "-N2", "--stage=none@v2", "hostname", check=False)
    assert out.returncode != 0 and "none@v2 is not staged" in out.stderr, out.stderr
    wait_until(s.all_idle, 60, "no node is drained")


# Each process writes its way of start, rank, world, and ranks of its node to a file of its own (see
# LOOK). A task that fails ends the job, with its words.
TOLD = """
import os, sys
from leat import rank_and_world
from leat._ranks import ranks_of_node
rank, world = rank_and_world()
with open("%s/%s.%d" % (sys.argv[1], sys.argv[2], os.getpid()), "x") as f:
    print(rank, world, ranks_of_node(rank, world), file=f)
"""
# An old torchrun does not start under a new Python: sets its variables, for two processes.
TORCHRUN = """#!/bin/bash
first=$((SLURM_PROCID * 2)) world=$((SLURM_STEP_NUM_TASKS * 2))
for k in 0 1; do
    RANK=$((first + k)) WORLD_SIZE=$world LOCAL_RANK=$k LOCAL_WORLD_SIZE=2 "$@" &
done
wait -n && wait -n
"""
TELL = """
set -e
export PYTHONPATH={dir}/py OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_rmaps_base_oversubscribe=1
told="/usr/bin/python3 {dir}/told.py {dir}/jobs/told-$SLURM_JOB_ID"
mkdir {dir}/jobs/told-$SLURM_JOB_ID
"""
LAUNCHERS = TELL + """
$told batch
srun $told srun
srun -n4 -N2 --mpi=pmi2 $told pmi2
srun -N4 -n4 --ntasks-per-node=1 {dir}/torchrun $told torchrun
bash -c "$told shell"
"""
MPIRUN = TELL + """
if type mpirun.openmpi >/dev/null 2>&1; then
    mpirun.openmpi -np 2 $told ompi
    srun -N1 -n1 --overlap mpirun.openmpi -np 2 $told ompi-in-srun
fi
if type mpiexec.hydra >/dev/null 2>&1; then
    mpiexec.hydra -np 2 $told mpich
    srun -N1 -n1 --overlap mpiexec.hydra -np 2 $told mpich-in-srun
fi
"""


def told_by(s, job):
    """{way of start: the sorted reports of its processes}"""
    result = {}
    for path in glob.glob("%s/jobs/told-%s/*" % (s.dir, job)):
        with open(path) as f:
            way = os.path.basename(path).rsplit(".", 1)[0]
            result.setdefault(way, []).append(tuple(map(int, f.read().split())))
    return {way: sorted(ranks) for way, ranks in result.items()}


def test_ranks_of_launchers_in_jobs(s):
    """Slurm's variables count in steps only, and launchers inside a step override them: torchrun
    (simulated), mpirun of Open MPI and of MPICH if they are installed."""
    shutil.copytree(SRC + "/client/python/leat", s.dir + "/py/leat")
    shutil.copy(BUILD + "/libleat.so", s.dir + "/py/leat")
    s.write("told.py", TOLD)
    s.write("torchrun", TORCHRUN, 0o755)
    job = s.submit(LAUNCHERS.format(dir=s.dir), "--ntasks=8")
    s.ends(job)
    eight = [(r, 8, 2) for r in range(8)]
    told = told_by(s, job)
    assert told == {"batch": [(0, 1, 1)], "shell": [(0, 1, 1)], "srun": eight, "torchrun": eight,
                    "pmi2": [(r, 4, 2) for r in range(4)]}, (told, s.output(job))
    job = s.submit(MPIRUN.format(dir=s.dir), "--ntasks=2", nodes=1)
    s.ends(job)
    told = told_by(s, job)
    print("in jobs: %s" % ", ".join(sorted(told)))
    assert told == {way: [(r, 2, 2) for r in range(2)] for kind, program in
                    (("ompi", "mpirun.openmpi"), ("mpich", "mpiexec.hydra"))
                    if shutil.which(program) for way in (kind, kind + "-in-srun")}, (
                        told, s.output(job))


def test_agents(s):
    """Agents stage: each chunk is read from the servers once, for all four nodes."""
    make_set(s.c, "five")
    ports, agents = free_ports(len(NODES)), []
    conf = LEAT_SLURM_CONF.format(build=BUILD, leat_conf=s.c.dev + "/conf", dir=s.dir)
    for node, port in zip(NODES, ports):
        agents.append(subprocess.Popen(
            [BUILD + "/leat", "--conf", s.c.dev + "/conf", "agent", "--set", "node=" + node,
             "--set", "dirs=%s/nvme-%s" % (s.dir, node), "--set", "listen=127.0.0.1:%d" % port,
             "--ready-file", "%s/agent-%s" % (s.dir, node)], stdin=subprocess.DEVNULL))
        conf += "agent_%s=127.0.0.1:%d\n" % (node, port)
    try:
        wait_until(lambda: all(os.path.exists("%s/agent-%s" % (s.dir, n)) for n in NODES), 20,
                   "four agents")
        s.write("leat-slurm.conf", conf + "ON_NODE=false\nAGENTS=yes\n"
                "agent_of() { local v=agent_$1; printf '%s' \"${!v}\"; }\n")
        job = s.submit("#BB_LUA leat=five@v1\n" + look(s, "five"))
        s.ends(job)
        assert same_on(s, job) == NODES, s.output(job)
        wait_until(s.all_idle, 60, "the epilogs have ended")
        for node in NODES:  # the epilog has released the leases
            s.c.leat("stage", "evict", "five@v1", "--to", "%s/nvme-%s" % (s.dir, node))
        s.reason(s.submit("#BB_LUA leat=five@v1,none@v1\ntrue\n"), "none@v1")
        # The second data set cannot be staged: no lease of the first one stays for a job that may
        # never run and has no epilog.
        p = hook(s, "stage", "778", "n[1-4]", "five@v1,none@v1")
        assert p.returncode == 1 and "0 of 4 nodes" in p.stdout, p
        held = {n: leases(s, n) for n in NODES}
        assert staged_on(s, "five") == NODES and not any(held.values()), held
        # One agent does not answer: the others release their leases.
        p = hook(s, "stage", "779", "n[1-4]", "five@v1")
        assert p.returncode == 0 and [leases(s, n) for n in NODES] == [["slurm-779"]] * 4, p
        agents[2].terminate()
        agents[2].wait(300)
        hook(s, "release", "779", "n[1-4]")
        held = {n: leases(s, n) for n in NODES}
        assert held == {"n1": [], "n2": [], "n3": ["slurm-779"], "n4": []}, held
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(300)


def main():
    lacking = [p for p in NEEDED if not shutil.which(p)]
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("root and /dev/fuse are needed")
        sys.exit(77)
    if lacking or not os.path.exists(BUILD + "/spank_leat.so"):
        print("not installed: %s (slurmctld slurmd slurm-client munge libslurm-dev "
              "slurm-wlm-basic-plugins)" % " ".join(lacking or ["slurm/spank.h"]))
        sys.exit(77)
    with Cluster(ossd=2, mounts=1) as c, Slurm(c) as s:
        for name, test in list(globals().items()):
            if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
                started = time.monotonic()
                test(s)
                print("%-40s %.1f s" % (name, time.monotonic() - started), flush=True)


if __name__ == "__main__":
    main()
