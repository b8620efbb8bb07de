#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Text of a job reaches the hooks of Slurm, Grid Engine, PBS and Kubernetes as data: 200 hostile
names and environments run no command and become no option; each is refused with a sentence."""
# timeout: 240
import ctypes
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
import types

if sys.executable != "/usr/bin/python3" and os.path.exists("/usr/bin/python3"):
    os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)  # has the packages
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cluster import SRC

TMP = os.environ.get("TMPDIR") or "/tmp/hooks-hostile"
LONG = os.environ.get("LEAT_LONG") == "1"
SCRIPTS = 200 if LONG else 80  # names for hooks that are scripts; as many environments
SEED = int(os.environ.get("LEAT_SEED", "29"))
# Replaces leat, ssh, scontrol, squeue and mount.leat: records its arguments and the names of its
# variables.
FAKE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/') + 1;
	FILE *f = fopen(CALLS, "a");
	for (int i = 0; i < argc; i++)
		fprintf(f, "%s%c", argv[i], i + 1 < argc ? '\x1e' : '\x1d');
	for (char **e = environ; *e; e++)
		fprintf(f, "%.*s\x1e", (int)strcspn(*e, "="), *e);
	fputc('\x1c', f);
	fclose(f);
	if (strcmp(name, "scontrol") == 0 && argc == 4)
		for (char *w = strtok(argv[3], ","); w; w = strtok(NULL, ","))
			puts(w);
	if (strcmp(name, "squeue") == 0)
		puts("7 n1");
	if (argc > 2 && strcmp(argv[2], "dataset") == 0)
		puts("{\"bytes\": 5}");
	return 0;
}
"""
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
# All calls that a hook may make: any other line of arguments is an injection.
ALLOWED = [re.compile(p, re.S) for p in (
    r"leat stage in NAME@NAME --to \S+ --evict --lease NAME( --detach --scheduler slurm-prolog)?"
    r"( --timeout \d+)?( --progress none)?( --timeout \d+)?",
    r"leat stage in NAME@NAME --to \S+ --timeout \d+ --progress none",
    r"leat stage release --lease NAME --to \S+",
    r"leat stage path NAME@NAME --to \S+",
    r"leat --json dataset show NAME@NAME",
    r"scontrol show hostnames [A-Za-z0-9][A-Za-z0-9,._\[\]-]*",
    r"scontrol update JobId=\d+ AdminComment=leat: .*",
    r"squeue -h -t all -j \d+ -o %A %N",
    r"on-node NAME \S*leat stage (in|release) .*")]
ALLOWED = [re.compile(p.pattern.replace("NAME", NAME), re.S) for p in ALLOWED]


class Place:
    """A folder with fake programs, a configuration that root owns, and canaries."""

    def __init__(self):
        self.dir = os.path.join(TMP, "hooks")
        shutil.rmtree(self.dir, ignore_errors=True)
        for name in ("bin", "evil", "nvme", "canary", "jobs", "tmp"):
            os.makedirs(self.dir + "/" + name)
        self.calls = self.dir + "/calls"
        self.write("fake.c", FAKE)
        subprocess.run(["cc", "-o", self.dir + "/bin/leat", '-DCALLS="%s"' % self.calls,
                        self.dir + "/fake.c"], check=True)
        for name in ("scontrol", "squeue", "mount.leat", "on-node"):
            os.link(self.dir + "/bin/leat", self.dir + "/bin/" + name)
        # Runs if a hook searches the job's PATH for a program.
        for name in ("awk sed sort head date mktemp timeout hostname rm grep cut tr stat cat id "
                     "readlink env bash sh logger numfmt leat ssh scontrol squeue mount umount "
                     "python3").split():
            self.write("evil/" + name, "#!/bin/bash\ntouch %s/canary/path-%s\n" %
                       (self.dir, name), 0o755)
        self.write("evil/rc", "touch %s/canary/rc\n" % self.dir)
        self.write("evil/conf", "touch %s/canary/conf\n" % self.dir)
        self.write("evil/sitecustomize.py", "open(%r, 'w')\n" % (self.dir + "/canary/python"))
        self.write("evil/hosts", "root:$y$secret\n")
        self.conf = self.write("hook.conf", "LEAT={0}/bin/leat\nSTAGE_DIR={0}/nvme\nTIMEOUT=9\n"
                               "ON_NODE='{0}/bin/on-node %n'\n"
                               "PATH={0}/bin:$PATH\n".format(self.dir))

    def write(self, name, text, mode=0o644):
        path = self.dir + "/" + name
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def canaries(self):
        return os.listdir(self.dir + "/canary")

    def new_calls(self):
        """The calls since the last time."""
        if not os.path.exists(self.calls):
            return []
        with open(self.calls, errors="surrogateescape") as f:
            records = f.read().split("\x1c")[:-1]
        os.unlink(self.calls)
        return [[part.split("\x1e") for part in r.split("\x1d", 1)] for r in records]

    def judge(self, what, told=None):
        """No canary exists; all calls have an allowed form and pass no variable on."""
        calls = self.new_calls()
        assert not self.canaries(), (what, self.canaries())
        for argv, env in calls:
            text = " ".join([os.path.basename(argv[0])] + argv[1:])
            assert any(p.fullmatch(text) for p in ALLOWED), (what, argv)
            bad = [v for v in env if v.startswith(("LEAT_", "BASH", "LD_", "EVIL", "PYTHON", "IFS"))
                   and v != "LEAT_CONF"]
            assert not bad, (what, argv, bad)
        if told is not None:
            assert all(" " <= c <= "~" or c == "\n" for c in told), (what, told)
            assert "$y$secret" not in told, (what, told)
            assert len(told) < 2000, (what, len(told))
        return calls


def hostile_names(place, number):
    """Names from a table of known attacks, and random ones from pieces of shell syntax, options and
    patterns."""
    touch = "touch %s/canary/name" % place.dir
    table = ["$(%s)", "`%s`", ";%s", "a@v1;%s", "a@v1|%s", "a@v1&%s", "a@v1\n%s\n", "\n%s",
             "a@v1$(%s)",
             "() { :;}; %s", "a@v1,$(%s)", "${x:=$(%s)}", "a[$(%s)]@v1", "'%s'", "\";%s;\"",
             "a@v1\\\n%s",
             "a@v1' ;%s; '", "x$(( a[$(%s)] ))@v1"]
    names = [t % touch for t in table] + [
        "--to=/etc", "-h", "--help", "--conf=%s/evil/conf" % place.dir, "--lease=x",
        "-oProxyCommand=id",
        "a@v1 --to /etc", "a@v1\t--evict", "a@v1,--to@x", "--to@x", "../../etc@v1", "a@../v1",
        "/etc/passwd",
        ".a@v1", "a@.v1", "a@@v1", "@v1", "a@", "a@v1,", ",a@v1", "a@v1,,b@v1", "*", "?@v1",
        "[a]@v1",
        "~@v1", "%n@v1", "%s%n@v1", "a@v1\r", "a@v1 ", " a@v1", "\x1b[31m@v1", "\x7f@v1", "ä@v1",
        "\udce4@v1", "a" * 129 + "@v1", "a@" + "v" * 129, "a@v1," * 900 + "a@v1", "leat:a@v1",
        "a@v1#x",
        "IFS=x@v1", "a=b@v1", "a@v1=x", "!!@v1", "{a,b}@v1", "a@v1{,}", "a@v1>x", "<x@v1",
        "a@v1\x0b",
        "A" * 100_000]
    rng = random.Random(SEED)
    bits = ["a", "v1", "@", ",", "-", "--", " ", "\n", "$(%s)" % touch, ";%s;" % touch, "'", '"',
            "\\", "*", "..",
            "/", "%n", "=", "ü", "\t", "|", "&", "{", "}", "`%s`" % touch, "\x1b", "#", "a@v1"]
    wellformed = re.compile("%s@%s(,%s@%s)*" % ((NAME,) * 4))
    while len(names) < number:
        text = "".join(rng.choice(bits) for _ in range(rng.randint(1, 9)))
        if not wellformed.fullmatch(text):
            names.append(text)
    return names


def hostile_environments(place):
    """Each with a well-formed data set: only staging may happen."""
    d, touch = place.dir, "touch %s/canary/env" % place.dir
    lines = [
        {"LEAT_SGE_CONF": d + "/evil/conf"}, {"LEAT_SLURM_CONF": d + "/evil/conf"},
        {"LEAT_SLURM": d + "/evil/leat"}, {"LEAT_CONF": d + "/evil/conf"},
        {"LEAT_STAGE_DIR": "/etc"},
        {"BASH_ENV": d + "/evil/rc"}, {"ENV": d + "/evil/rc"}, {"PATH": d + "/evil"},
        {"PATH": d + "/evil:/usr/bin:/bin"}, {"PATH": ""}, {"SHELLOPTS": "xtrace",
        "PS4": "$(%s)" % touch},
        {"BASHOPTS": "expand_aliases"}, {"PROMPT_COMMAND": touch}, {"IFS": "@"},
        {"CDPATH": d + "/evil"},
        {"GLOBIGNORE": "*"}, {"POSIXLY_CORRECT": "1", "ENV": d + "/evil/rc"},
        {"PYTHONPATH": d + "/evil"},
        {"PYTHONSTARTUP": d + "/evil/rc"}, {"PYTHONHOME": d + "/evil"}, {"HOME": d + "/evil"},
        {"TMPDIR": d + "/evil"}, {"LC_ALL": "de_DE.ISO-8859-1"}, {"LANG": "xx"},
        {"LANGUAGE": "../.."},
        {"PE_HOSTFILE": d + "/evil/hosts"}, {"PE_HOSTFILE": "/etc/shadow"},
        {"HOSTNAME": "-oProxyCommand=x"},
        {"SGE_JOB_SPOOL_DIR": d + "/evil"}, {"JOB_ID": "$(%s)" % touch}, {"JOB_ID": "8",
        "SGE_TASK_ID": "x;id"},
        {"SGE_TASK_ID": "a[$(%s)]" % touch}, {"ON_NODE": touch}, {"STAGE_DIR": "$(%s)" % touch},
        {"LEAT": touch},
        {"TIMEOUT": "a[$(%s)]" % touch}, {"one": ".*"}, {"names": ";%s" % touch},
        {"conf": d + "/evil/conf"},
        {"fail": touch}, {"LINES": "a[$(%s)]" % touch}, {"BASH_XTRACEFD": "1",
        "SHELLOPTS": "xtrace"},
        {"SLURM_JOB_ID": "1;%s" % touch}, {"SLURM_JOB_ID": "-h"},
        {"SLURMD_NODENAME": "$(%s)" % touch},
        {"SLURM_CONF": d + "/evil/conf"}, {"SPANK_LEAT_STAGE_DIR": "/etc"}, {"EVIL": "x" * 100_000},
        {"BASH_FUNC_timeout%%": "() { %s; }" % touch}, {"BASH_FUNC_exec%%": "() { %s; }" % touch},
        {"BASH_FUNC_readlink%%": "() { %s; }" % touch}, {"BASH_FUNC_set%%": "() { %s; }" % touch},
        {"BASH_FUNC_awk%%": "() { %s; }" % touch}, {"BASH_FUNC_printf%%": "() { %s; }" % touch},
        {"BASH_FUNC_/usr/bin/readlink%%": "() { %s; }" % touch}]
    return lines + [dict(a, **b) for a, b in zip(lines, lines[7:] + lines[:7]) if LONG]


def run(argv, env, cwd=None, user=None):
    """Runs argv with exactly this environment."""
    env = dict({"PATH": "/usr/bin:/bin"}, **env)
    env = {k: v.encode(errors="surrogateescape") for k, v in env.items()}
    return subprocess.run(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300, check=False, user=user,
                          extra_groups=[] if user else None)


def said(p):
    return p.stdout.decode(errors="replace")


# ---- Grid Engine ----

def sge(place, script, env, conf=None, hosts="n1 4 q\n", job="7.1"):
    folder = "%s/jobs/%s" % (place.dir, job)
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/pe_hostfile", "w") as f:
        f.write(hosts)
    open(folder + "/error", "w").close()
    p = run(["/bin/sh", "-c", '"$0" --conf "$1"; exit $?', SRC + "/deploy/sge/" + script,
             conf or place.conf], env, cwd=folder)
    with open(folder + "/error", errors="surrogateescape") as f:
        return p, f.read()


def test_grid_engine(place):
    for name in hostile_names(place, SCRIPTS):
        p, reason = sge(place, "prolog", {"LEAT_STAGE": name})
        assert p.returncode == 100 and "NAME@VERSION" in reason, (name, p, reason)
        assert reason.count("\n") == 1, (name, reason)
        assert not place.judge(name, said(p)), "nothing was called"
    for i, env in enumerate(hostile_environments(place)):
        for script in ("prolog", "epilog") if LONG or i % 8 == 0 else ("prolog",):
            p, reason = sge(place, script, dict({"LEAT_STAGE": "a@v1"}, **env))
            assert p.returncode == 0 and not reason, (env, p, reason)
            calls = place.judge(env, said(p))
            assert len(calls) == 1 and "sge-7.1" in calls[0][0], (env, calls)
    # The spool belongs to Grid Engine; invalid hosts in it are refused nevertheless.
    for host in ("-oProxyCommand=x", "a;b", "$(id)", "../x", "\x1b[31m", "x" * 300):
        p, reason = sge(place, "prolog", {"LEAT_STAGE": "a@v1"}, hosts=host + " 4 q\n")
        assert p.returncode == 100 and "is no host" in reason, (host, p, reason)
        assert not place.judge(host, said(p))
    for job in ("x", "7", "-1.1", "7.1 --to", "7.1;id"):
        p, reason = sge(place, "prolog", {"LEAT_STAGE": "a@v1"}, job=job)
        assert p.returncode == 100 and "no folder of a job" in reason, (job, p, reason)
        assert not place.judge(job, said(p))


# ---- Slurm ----

def slurm(place, *argv, env=None, conf=None):
    return run([SRC + "/deploy/slurm/leat-slurm", "--conf", conf or place.conf, *argv], env or {})


def test_slurm(place):
    good = {"SPANK_LEAT_STAGE": "a@v1", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    os.makedirs(place.dir + "/nvme/.leat", exist_ok=True)
    names = hostile_names(place, SCRIPTS)
    for name in names:
        p = slurm(place, "check", name)
        assert p.returncode == 1 and "names no data set" in said(p), (name, p)
        p = slurm(place, "prolog", env=dict(good, SPANK_LEAT_STAGE=name))
        assert p.returncode == 0, "no node is drained"
        assert not place.judge(name, said(p))
    for name in names if LONG else names[::6]:
        assert slurm(place, "stage", "7", "n1", name).returncode == 1
        for argv in (("stage", name, "n1", "a@v1"), ("release", name, "n1")):
            p = slurm(place, *argv)
            assert p.returncode == 1 and "is no job" in said(p), (argv, p)
        assert not place.judge(name)
        p = slurm(place, "check", "a@v1", name)
        assert p.returncode == 1 and "is no size" in said(p), (name, p)
        p = slurm(place, "stage", "7", name.replace(",", ""), "a@v1")
        assert p.returncode == 1 and " no node" in said(p), (name, p)
        for argv, _ in place.new_calls():
            assert argv[1:3] == ["show", "hostnames"] and not argv[3].startswith("-"), argv
        assert not place.canaries(), (name, place.canaries())
    for i, env in enumerate(hostile_environments(place)):
        for hook in ("prolog", "epilog") if LONG or i % 8 == 0 else ("prolog",):
            p = slurm(place, hook, env=dict(good, **env))
            assert p.returncode == 0, (env, p)
            calls = place.judge(env, said(p))
            assert len(calls) == (0 if "SLURM_JOB_ID" in env else 1), (env, calls)


LUA = """
slurm = {SUCCESS = 0, ERROR = -1, log_error = function() end}
os.getenv = function(name) error("the environment is read: " .. name) end
dofile(arg[1])
dofile(arg[2])
for line in io.lines(arg[3]) do
    local text = line:gsub("%%(%x%x)", function(h) return string.char(tonumber(h, 16)) end)
    local path = arg[4]
    local f = io.open(path, "wb")
    f:write("#!/bin/bash\\n#BB_LUA leat=" .. text .. "\\ntrue\\n")
    f:close()
    local rc, why = slurm_bb_job_process(path)
    local rc2 = slurm_bb_data_in(7, path)
    local rc3 = slurm_bb_pre_run(7, path)
    if rc == 0 then
        slurm_bb_job_teardown(7, path, false)
    end
    local job = {spank_job_env = {[0] = "LEAT_STAGE=" .. text}, spank_job_env_size = 1,
                 script = "#!/bin/bash\\ntrue\\n"}
    slurm_job_submit(job)
    print(rc, rc2, rc3, select(2, job.script:gsub("\\n", "")), why)
end
"""


def test_lua(place):
    lua = next(filter(None, map(shutil.which, ("lua5.3", "lua5.4", "lua5.1", "lua"))), None)
    if not lua:
        print("not installed: lua5.3; the Lua hooks are left out")
        return
    helper = place.write("bin/helper",
                         "#!/bin/sh\nexec %s/deploy/slurm/leat-slurm --conf %s \"$@\"\n" %
                         (SRC, place.conf), 0o755)
    names = hostile_names(place, 200) + ["a@v1 limit=$(touch %s/canary/l)" % place.dir,
                                         "a@v1 limit=-h", "a@v1 limit=1,2", "x" * 1_000_000]
    scripts = []
    for name in ("burst_buffer.lua", "job_submit.lua"):
        with open(SRC + "/deploy/slurm/" + name) as f:
            scripts.append(place.write(name, f.read().replace(
                "/usr/share/leat/slurm/leat-slurm", helper)))
    place.write("names", "".join("".join("%%%02x" % b for b in n.encode(errors="surrogateescape")) +
                                 "\n" for n in names))
    place.write("hooks.lua", LUA)
    p = run([lua, place.dir + "/hooks.lua", *scripts, place.dir + "/names", place.dir + "/script"],
            {"PATH": place.dir + "/bin:/usr/bin:/bin"})
    lines = said(p).splitlines()
    assert p.returncode == 0 and len(lines) == len(names), (p.returncode, said(p)[-500:])
    for name, line in zip(names, lines):
        first = name.split("\n")[0].split()[:1]
        rc, rc2, rc3, n_lines, why = line.split("\t", 4)
        if not re.fullmatch("%s@%s(,%s@%s)*" % ((NAME,) * 4), first[0] if first else ""):
            assert rc == rc2 == rc3 == "-1" or not first or why == "nil", (name[:99], line)
            assert int(n_lines) <= 3, (name[:99], line)  # at most one line more, the hook's own
        assert all(" " <= c <= "~" for c in why) and len(why) < 400, (name[:99], why)
    place.judge("lua")


# ---- PBS ----

def pbs(place, names, config):
    said_ = {}
    fake = types.ModuleType("pbs")
    fake.EXECJOB_PROLOGUE, fake.EXECJOB_EPILOGUE, fake.LOG_WARNING, fake.LOG_ERROR = 1, 2, 3, 4

    class Job:
        id, comment, Variable_List = "17.server", None, {"LEAT_STAGE": names}

        def delete(self):
            said_["deleted"] = True

    class Event:
        type, job = fake.EXECJOB_PROLOGUE, Job()

        def reject(self, text):
            said_["rejected"] = text
            raise SystemExit(1)

    event = Event()
    fake.event = lambda: event
    fake.get_local_nodename = lambda: "n1"
    fake.logmsg = lambda level, text: said_.setdefault("log", text)
    sys.modules["pbs"] = fake
    os.environ["PBS_HOOK_CONFIG_FILE"] = config
    with open(SRC + "/deploy/pbs/leat_stage.py") as f:
        code = compile(f.read(), "leat_stage.py", "exec")
    try:
        exec(code, {"__name__": "hook"})  # like PBS
    except SystemExit:
        pass
    return said_


def test_pbs(place):
    config = place.write("pbs.json", json.dumps({"leat": place.dir + "/bin/leat", "timeout": 9,
                                                 "stage_dir": place.dir + "/nvme"}))
    for name in hostile_names(place, 200) + ["a" * 1_000_000, "a@v1\0x", "a@v1," * 200_000]:
        told = pbs(place, name, config)
        assert told.get("deleted") and "NAME@VERSION" in told["rejected"], (name[:99], told)
        assert not place.judge(name[:99], told["rejected"])
    before = dict(os.environ)
    for env in hostile_environments(place):
        try:
            os.environ.update({k: v for k, v in env.items()})
            told = pbs(place, "a@v1", config)
        finally:
            os.environ.clear()
            os.environ.update(before)
        assert not told and len(place.judge(env)) == 1, (env, told)


# ---- Kubernetes ----

def test_csi(place):
    try:
        loader = importlib.machinery.SourceFileLoader("leat_csi", SRC + "/deploy/k8s/leat-csi")
        spec = importlib.util.spec_from_loader("leat_csi", loader)
        m = importlib.util.module_from_spec(spec)
        loader.exec_module(m)
    except ImportError as e:
        print("%s; leat-csi is left out" % e)
        return
    node = m.Node(m.options(["--leat", place.dir + "/bin/leat", "--timeout", "9", "--node", "n1",
                             "--mount", place.dir + "/bin/mount.leat",
                             "--stage-dir", place.dir + "/nvme"]))

    class Context:
        def abort(self, code, text):
            raise RuntimeError("%s: %s" % (code.name, text))

    def call(method, request):
        h = m.handler(node, method)
        try:
            h.unary_unary(request, Context())
        except RuntimeError as e:
            return str(e)
        return None

    def request(volume="v1", target=place.dir + "/tmp/target", flags=(), **context):
        cap = m.csi.VolumeCapability(mount=m.csi.MountVolume(mount_flags=flags),
                                     access_mode=m.csi.AccessMode(mode=3))
        return m.csi.NodeStageVolumeRequest(volume_id=volume, staging_target_path=target,
                                            volume_capability=cap, volume_context=context)

    for name in hostile_names(place, 200) + ["a" * 1_000_000, "a@v1\0x"]:
        try:
            name.encode()
        except UnicodeEncodeError:
            continue  # protobuf carries UTF-8 only
        asked = [request(dataset=name), request(flags=[name]), request(options=name),
                 request(mds=name)]
        if not m.VOLUME.fullmatch(name):
            asked.append(request(volume=name, dataset="a@v1"))
        if not name.startswith("/"):
            asked.append(request(target=name, dataset="a@v1"))
        for i, r in enumerate(asked):
            told = call("NodeStageVolume", r)
            for argv, _ in place.new_calls():
                # An address may be one that no server has, a flag one that no program has.
                assert os.path.basename(argv[0]) == "mount.leat", (name[:99], argv)
                assert i in (1, 2, 3), (name[:99], argv)
                assert not argv[1].startswith("-") and len(argv) in (3, 5), (name[:99], argv)
                assert len(argv) == 3 or re.fullmatch(r"[\w=.:/,-]+", argv[4]), (name[:99], argv)
                assert not (len(argv) == 5 and argv[4].startswith("-")), (name[:99], argv)
            assert told and len(told) < 2000 and told.isprintable(), (name[:99], i, told)
        assert not place.canaries(), (name[:99], place.canaries())


# ---- configuration ----

def test_configuration(place):
    """A file of another user, or one that others may write, is not read, but reported."""
    conf = place.write("others.conf", "touch %s/canary/conf\n" % place.dir)
    os.makedirs(place.dir + "/nvme/.leat", exist_ok=True)
    for uid, mode in ((65534, 0o644), (0, 0o666), (0, 0o664), (0, 0o646)):
        os.chown(conf, uid, 0)
        os.chmod(conf, mode)
        p, reason = sge(place, "prolog", {"LEAT_STAGE": "a@v1"}, conf=conf)
        assert p.returncode == 100 and "it has to be root's" in reason, (p, reason)
        assert sge(place, "epilog", {}, conf=conf)[0].returncode == 0
        p = slurm(place, "check", "a@v1", conf=conf)
        assert p.returncode == 1 and "it has to be root's" in said(p), p
        for hook in ("prolog", "epilog"):
            p = slurm(place, hook, conf=conf,
                      env={"SPANK_LEAT_STAGE": "a@v1", "SLURM_JOB_ID": "7"})
            assert p.returncode == 0, p
        told = pbs(place, "a@v1", conf)
        assert told.get("deleted") and "it has to be root's" in told["rejected"], told
        assert not place.judge("configuration")
    p, reason = sge(place, "prolog", {"LEAT_STAGE": "a@v1"}, conf=place.dir + "/none")
    assert p.returncode == 100 and "cannot be read" in reason, (p, reason)
    assert not place.judge("no configuration")


# ---- the plugin of srun and sbatch ----

SPANK_H = """
#include <stdint.h>
typedef void *spank_t;
typedef int spank_err_t;
typedef int (*spank_opt_cb_f)(int, const char *, int);
struct spank_option { char *name, *arginfo, *usage; int has_arg, val; spank_opt_cb_f cb; };
enum { ESPANK_SUCCESS = 0, ESPANK_BAD_ARG = 3000, S_CTX_LOCAL = 1, S_CTX_REMOTE, S_CTX_ALLOCATOR };
#define SPANK_PLUGIN(name, version) const char plugin_name[] = #name;
#define slurm_error(...) ((void)0)
static inline int spank_context(void) { return S_CTX_REMOTE; }
static inline int spank_option_register(spank_t s, struct spank_option *o)
{ (void)s, (void)o; return 0; }
static inline int spank_job_control_setenv(spank_t s, const char *n, const char *v, int o)
{ (void)s, (void)n, (void)v, (void)o; return 0; }
static inline int spank_setenv(spank_t s, const char *n, const char *v, int o)
{ (void)s, (void)n, (void)v, (void)o; return 0; }
"""


def test_spank(place):
    os.makedirs(place.dir + "/inc/slurm")
    place.write("inc/slurm/spank.h", SPANK_H)
    source = place.write("plugin.c", '#include "%s/deploy/slurm/spank_leat.c"\n'
                         "int ask(const char *s) { return take_option(0, s, 1); }\n"
                         "void set(const char *s) { take_argument(s); }\n" % SRC)
    subprocess.run(["cc", "-w", "-std=gnu17", "-D_GNU_SOURCE", "-I", place.dir + "/inc", "-fPIC",
                    "-shared", "-o",
                    place.dir + "/plugin.so", source], check=True)
    plugin = ctypes.CDLL(place.dir + "/plugin.so")
    assert plugin.ask(b"a@v1,b-2@x.y") == 0
    for name in hostile_names(place, 200) + ["x" * 1_000_000]:
        assert plugin.ask(name.encode(errors="surrogateescape")) != 0, name[:99]
    assert plugin.ask(None) != 0
    plugin.set(b"leat=%s/bin/leat" % place.dir.encode())
    plugin.set(b"stage_dir=%s/nvme" % place.dir.encode())
    assert plugin.ask(b"a@v1") == 0
    before = dict(os.environ)
    try:
        os.environ.update({"LEAT_CONF": place.dir + "/evil/conf", "PATH": place.dir + "/evil",
                           "BASH_ENV": place.dir + "/evil/rc", "EVIL": "x"})
        assert plugin.slurm_spank_task_init_privileged(None, 0, None) == 0
    finally:
        os.environ.clear()
        os.environ.update(before)
    calls = place.judge("spank")
    assert len(calls) == 1 and "LEAT_CONF" not in calls[0][1], calls


def main():
    if os.geteuid() != 0:
        print("root is needed: the configuration has to be root's")
        sys.exit(77)
    print("seed %d" % SEED)
    for name, test in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
            test(Place())
            print(name, flush=True)


if __name__ == "__main__":
    main()
