#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grid Engine's prolog and epilog and PBS's hook, called like Grid Engine and PBS call them: they
stage on all nodes of the job, and a failure fails the job, never the node."""
# timeout: 180
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cluster import BUILD, SRC, Cluster

PBS = '''
import json, os, sys
EXECJOB_PROLOGUE, EXECJOB_EPILOGUE, LOG_WARNING, LOG_ERROR = 1, 2, 3, 4
given = json.load(open(os.environ["FAKE_PBS"]))
said = {"deleted": False, "log": []}
class Job:
    id = "17.server"
    comment = None
    Variable_List = given["variables"]
    def delete(self): said["deleted"] = True
class Event:
    type = given["type"]
    job = Job()
    def reject(self, text):
        said["rejected"] = text
        raise SystemExit(1)
the = Event()
def event(): return the
def get_local_nodename(): return "n1"
def logmsg(level, text): said["log"].append(text)
import atexit
atexit.register(lambda: print(json.dumps(dict(said, comment=Job.comment or the.job.comment))))
'''


def make_set(c, name):
    folder = c.mnt() + "/" + name
    os.makedirs(folder)
    with open(folder + "/f", "wb") as f:
        f.write(os.urandom(1_000_000))
    c.leat("dataset", "create", name + "@v1", folder)


def is_ready(c, name, folder):
    return c.leat("stage", "status", name + "@v1", "--to", folder, check=False).returncode == 0


def can_be_evicted(c, name, folder):
    return c.leat("stage", "evict", name + "@v1", "--to", folder, check=False).returncode == 0


def sge(c, script, names, **more):
    # Like the shepherd, which runs them in the folder of the job.
    spool = "%s/active_jobs/%s" % (c.dir, more.pop("job", "42.1"))
    os.makedirs(spool, exist_ok=True)
    with open(spool + "/pe_hostfile", "w") as f:
        f.write("n1 4 all.q@n1 UNDEFINED\nn2.site 4 all.q@n2 UNDEFINED\n")
    with open(spool + "/environment", "w") as f:
        f.write("HOME=/root\nLEAT_STAGE=%s\nX=y\n" % names)
    with open(c.dir + "/leat-sge.conf", "w") as f:
        f.write("LEAT=%s/leat\nexport LEAT_CONF=%s/conf\nSTAGE_DIR=%s/sge-%%n\nTIMEOUT=30\n"
                "ON_NODE='env ON=%%n'\n" % (BUILD, c.dev, c.dir))
    return subprocess.run(["/bin/sh", "-c", '"$0" --conf "$1"; exit $?', SRC + "/deploy/sge/" +
                           script, c.dir + "/leat-sge.conf"], env=more, text=True, timeout=300,
                          cwd=spool, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)


def test_grid_engine(c):
    make_set(c, "one")
    p = sge(c, "prolog", "one@v1")
    assert p.returncode == 0, p
    for node in ("n1", "n2.site"):
        assert is_ready(c, "one", c.dir + "/sge-" + node), node
        assert not can_be_evicted(c, "one", c.dir + "/sge-" + node), "leased by the job"
    assert sge(c, "epilog", "one@v1").returncode == 0
    assert can_be_evicted(c, "one", c.dir + "/sge-n1")
    # jobs without data sets
    assert sge(c, "prolog", "").returncode == 0
    # failures of the job itself
    p = sge(c, "prolog", "none@v1")
    assert p.returncode == 100 and "none@v1" in p.stderr, p
    for bad in ("../x", "one@v1;id", "--to@x", "one", "one@v1,"):
        p = sge(c, "prolog", bad)
        assert p.returncode == 100 and "NAME@VERSION" in p.stderr, (bad, p)
    p = sge(c, "prolog", "one@v1", job="x y")
    assert p.returncode == 100 and "no folder of a job" in p.stderr, p


def test_array(c):
    """Each task of an array holds its own lease, whichever task ends first."""
    make_set(c, "array")
    folders = [c.dir + "/sge-n1", c.dir + "/sge-n2.site"]
    for task in ("1", "2"):
        assert sge(c, "prolog", "array@v1", job="43." + task).returncode == 0
    assert sge(c, "epilog", "array@v1", job="43.1").returncode == 0
    assert not any(can_be_evicted(c, "array", f) for f in folders), "the second task runs"
    assert sge(c, "epilog", "array@v1", job="43.2").returncode == 0
    assert all(can_be_evicted(c, "array", f) for f in folders)


def pbs(c, kind, **variables):
    for name, text in (("pbs.py", PBS), ("given.json", json.dumps(
            {"type": kind, "variables": variables})), ("hook.json", json.dumps(
                {"leat": BUILD + "/leat", "conf": c.dev + "/conf", "timeout": 30,
                 "stage_dir": c.dir + "/pbs-%n"}))):
        with open(c.dir + "/" + name, "w") as f:
            f.write(text)
    env = dict(os.environ, PYTHONPATH=c.dir, FAKE_PBS=c.dir + "/given.json",
               PBS_HOOK_CONFIG_FILE=c.dir + "/hook.json", PYTHONDONTWRITEBYTECODE="1")
    p = subprocess.run([sys.executable, SRC + "/deploy/pbs/leat_stage.py"], env=env, text=True,
                       timeout=300, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, check=False)
    assert "Traceback" not in p.stderr, p.stderr
    return json.loads(p.stdout)


def test_pbs(c):
    make_set(c, "two")
    folder = c.dir + "/pbs-n1"
    said = pbs(c, 1, LEAT_STAGE="two@v1")
    assert not said["deleted"] and "rejected" not in said, said
    assert is_ready(c, "two", folder) and not can_be_evicted(c, "two", folder)
    said = pbs(c, 2, LEAT_STAGE="two@v1")
    assert not said["deleted"] and said["log"] == [], said
    assert can_be_evicted(c, "two", folder)
    assert pbs(c, 1)["deleted"] is False
    for bad in ("none@v1", "x;y", "two@v1,../z"):
        said = pbs(c, 1, LEAT_STAGE=bad)
        assert said["deleted"] and said["rejected"].startswith("leat: n1: "), said
        assert said["comment"] == said["rejected"], said


def main():
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("root and /dev/fuse are needed")
        sys.exit(77)
    with Cluster(ossd=2, mounts=1) as c:
        for name, test in list(globals().items()):
            if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
                test(c)
                print(name, flush=True)


if __name__ == "__main__":
    main()
