# SPDX-License-Identifier: Apache-2.0
"""OpenPBS hook: stages a job's data sets on each of its nodes before it starts.

    qmgr -c 'create hook leat_stage event="execjob_prologue,execjob_epilogue"'
    qmgr -c 'set hook leat_stage alarm = 4000'
    qmgr -c 'import hook leat_stage application/x-python default leat_stage.py'
    qmgr -c 'import hook leat_stage application/x-config default leat_stage.json'
    qsub -v LEAT_STAGE=imagenet@v1 -l select=4:ncpus=8 job.sh

It runs as root on every node of the job, each stages its own copy. A failure affects the job alone:
it is deleted with the reason as its comment and in its log; the node stays in service.
Configuration (leat_stage.json, root's file): {"leat": "/usr/bin/leat", "stage_dir": "/local/nvme",
"timeout": 3600, "conf": "/etc/leat/leat.conf"}; %n in stage_dir is the node's name.
"""
import json
import os
import re
import subprocess

import pbs

ONE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}@[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
NAMES = re.compile(ONE + "(," + ONE + ")*")
DEFAULTS = {"leat": "/usr/bin/leat", "stage_dir": "/local/nvme", "timeout": 3600,
            "conf": "/etc/leat/leat.conf"}


def configuration():
    path = os.environ.get("PBS_HOOK_CONFIG_FILE")
    found = {}
    if path:
        with open(path) as f:
            st = os.fstat(f.fileno())
            if st.st_uid not in (0, os.geteuid()) or st.st_mode & 0o022:
                raise ValueError("%s: owner %d, mode %03o; it has to be root's, and only root may "
                                 "write it" % (path, st.st_uid, st.st_mode & 0o777))
            found = json.load(f)
    unknown = set(found) - set(DEFAULTS)
    if unknown:
        raise ValueError("leat_stage.json: %s?" % ", ".join(sorted(unknown)))
    return dict(DEFAULTS, **found)


def leat(conf, timeout, *argv):
    """Returns None, or the reason of the failure in one line."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LEAT_CONF": conf["conf"]}
    try:
        p = subprocess.run([conf["leat"], "stage"] + list(argv), env=env, timeout=timeout,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE)
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    if p.returncode == 0:
        return None
    lines = [l for l in p.stderr.decode("ascii", "replace").splitlines() if l.strip()]
    return lines[0][:300] if lines else "exit status %d" % p.returncode


def main(event):
    names = str((event.job.Variable_List or {}).get("LEAT_STAGE", ""))
    if not names:
        return
    conf = configuration()
    folder = str(conf["stage_dir"]).replace("%n", pbs.get_local_nodename())
    lease = "pbs-" + re.sub(r"[^A-Za-z0-9._-]", "-", str(event.job.id))[:100]
    if event.type == pbs.EXECJOB_EPILOGUE:
        why = leat(conf, 60, "release", "--lease", lease, "--to", folder)
        if why:
            pbs.logmsg(pbs.LOG_WARNING, "leat: job %s: %s" % (event.job.id, why))
        return
    why = None if NAMES.fullmatch(names) and len(names) <= 4096 \
        else "LEAT_STAGE: %a names no data sets: NAME@VERSION[,NAME@VERSION...]" % names[:80]
    for name in names.split(",") if why is None else []:
        why = why or leat(conf, conf["timeout"] + 60, "in", name, "--to", folder, "--evict",
                          "--lease", lease, "--timeout", str(conf["timeout"]),
                          "--progress", "none")
    if why:
        # Neither hold nor requeue: on another node it would most likely fail again.
        text = "leat: %s: %s" % (pbs.get_local_nodename(), why)
        event.job.comment = text
        event.job.delete()
        event.reject(text)


try:
    main(pbs.event())
except SystemExit:
    raise
except Exception as e:  # a bug here must not take the node out of service
    pbs.logmsg(pbs.LOG_ERROR, "leat: %s: %s" % (type(e).__name__, e))
    pbs.event().job.delete()
    pbs.event().reject("leat: %s" % e)
