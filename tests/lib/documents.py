# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md and deploy/README.md, read from the pages, and how each of them is run
by integration/test_documents.py.

A block that is indented by four spaces or fenced contains shell commands; one that is fenced as
python is a program; a figure (it has box-drawing characters) is neither.
"""
import collections
import os
import re
import subprocess

SRC = os.environ.get("LEAT_SRC") or os.path.realpath(os.path.dirname(__file__) + "/../..")

# setup: what the page presupposes; shows: a pattern of the output; after: what must hold then. why:
# the reason not to run it. once: for the first PREFIX only, because it does not depend on it.
Step = collections.namedtuple("Step", "setup shows after once why")


def does(setup="", shows="", after="", once=False):
    return Step(setup, shows, after, once, "")


def cannot(why):
    return Step("", "", "", False, why)


KEPT = "until grep -qsx kept /mnt/leat/file; do sleep 0.1; done"
ALL_UP = "until leat status --check; do sleep 0.1; done"
MOUNTED = "mountpoint -q /mnt/leat || leat mount /mnt/leat"
SHARD = """mountpoint -q /mnt/leat || leat mount /mnt/leat
mkdir -p /mnt/leat/imagenet /local/nvme /tmp/shard
for i in 1 2 3 4 5 6 7 8; do echo picture $i >/tmp/shard/$i.jpg; echo $i >/tmp/shard/$i.cls; done
tar -C /tmp/shard --sort=name -cf /mnt/leat/imagenet/train-0000.tar ."""
NO_MOUNT = "systemctl disable --now leat-mount@mnt-leat; no mountpoint -q /mnt/leat"

STEPS = {"deploy/README.md": {
    "deploy/dev-cluster up": does(once=True),
    'eval "$(deploy/dev-cluster env)"': does(once=True),
    'leat status "$(deploy/dev-cluster mountpoint)"': does(shows="4 of 4 targets up", once=True),
    "deploy/dev-cluster down": does(once=True, after="no grep ' fuse.leat ' /proc/mounts"),
    # PREFIX is an environment variable here.
    "make install": does(
        after="[ $(command -v leat) = $PREFIX/bin/leat ]; ls /sbin/mount.fuse.leat"),
    "(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \\n' >/etc/leat/cluster.key)":
        does(after="[ $(stat -c %a.%s /etc/leat/cluster.key) = 600.64 ]"),
    "cp /etc/leat/leat.conf.sample /etc/leat/leat.conf": does(),
    "sed -i 's/^#mds = .*/mds = mds1:7440/' /etc/leat/leat.conf":
        does(after="grep -x 'mds = mds1:7440' /etc/leat/leat.conf"),
    # Little space, no waiting, and the agent's folder where the README stages to.
    "leat config check": does(setup="""mkdir -p /local/nvme; sed -i '
s/^#data_size = .*/data_size = 512M/
s/^#zero_ahead = .*/zero_ahead = 16M/
s/^#convert_after_ms = .*/convert_after_ms = 100/
s|^#dirs = .*|dirs = /local/nvme|' /etc/leat/leat.conf"""),
    "scp -p /etc/leat/leat.conf /etc/leat/cluster.key oss1:/etc/leat/":
        cannot("one machine stands for all"),
    "leat-mds -c /etc/leat/leat.conf format": does(),
    "systemctl enable --now leat-mds": does(after="systemctl is-active leat-mds"),
    # Two replicas need two hosts.
    "leat-ossd -c /etc/leat/leat.conf --set data_dir=/var/lib/leat/ossd-1 format":
        does(setup="mkdir /var/lib/leat/ossd-1\n"
             "echo 'OSSD_OPTIONS=--set host=oss1' >/etc/leat/ossd-1.env"),
    "systemctl enable --now leat-ossd@1": does(after="systemctl is-active leat-ossd@1"),
    "echo 'OSSD_OPTIONS=--set listen=0.0.0.0:7451' >/etc/leat/ossd-2.env": does(),
    "leat-ossd -c /etc/leat/leat.conf --set data_dir=/var/lib/leat/ossd-2 format":
        does(setup="mkdir /var/lib/leat/ossd-2"),
    "systemctl enable --now leat-ossd@2": does(after="systemctl is-active leat-ossd@2"),
    # A third server, for `target drain 3`.
    "leat status --check": does(shows="3 of 3 targets up", setup="""mkdir /var/lib/leat/ossd-3
until leat status | grep '2 of 2 targets up'; do sleep 0.1; done
echo 'OSSD_OPTIONS=--set host=oss3 --set listen=0.0.0.0:7452' >/etc/leat/ossd-3.env
leat-ossd -c /etc/leat/leat.conf --set data_dir=/var/lib/leat/ossd-3 format
systemctl enable --now leat-ossd@3
until leat status --check >/run/status && grep '3 of 3 targets up' /run/status
do sleep 0.1; done"""),
    "mkdir -p /mnt/leat": does(setup="rm -rf /mnt/leat"),
    "leat mount /mnt/leat": does(shows="mounted at /mnt/leat", after="echo kept >/mnt/leat/file"),
    "python3 -c 'import leat'": does(
        after="cd /; python3 -c 'import leat; print(leat.__file__)' | grep ^$PREFIX/lib/"),
    "man leat": does(shows=r"(?i)leat\(1\)"),
    "leat umount /mnt/leat": does(after="no mountpoint -q /mnt/leat"),
    "echo 'leat: /mnt/leat fuse.leat _netdev,noatime 0 0' >>/etc/fstab": does(),
    "mount -a": does(after="grep -x kept /mnt/leat/file"),
    "umount /mnt/leat": does(after="no mountpoint -q /mnt/leat"),
    "systemctl daemon-reload": does(),
    "systemctl start mnt-leat.mount": does(
        after="systemctl is-active mnt-leat.mount; grep -x kept /mnt/leat/file"),
    'systemctl enable --now "leat-mount@$(systemd-escape -p /mnt/leat)"': does(
        setup="systemctl stop mnt-leat.mount; sed -i /leat/d /etc/fstab; systemctl daemon-reload",
        after=KEPT + "\nsystemctl is-active leat-mount@mnt-leat"),
    "systemctl enable --now leat-agent": does(
        after="until leat status --agent 127.0.0.1:7460; do sleep 0.1; done"),
    "make uninstall": does(after="no command -v leat-mds; [ ! -e /sbin/mount.fuse.leat ]\n"
                           "ls /etc/leat/cluster.key /etc/leat/leat.conf\n"
                           "cd /; no python3 -c 'import leat' 2>/dev/null"),
    "leat export add --root-squash 10.20.0.0/16": does(),
    "leat export add --ro --root-squash 10.30.0.0/16": does(),
    "leat export add 10.20.0.7": does(),
    "leat export ls": does(shows=r"10\.20\.0\.0/16(.*\n)*.*10\.30\.0\.0/16"),
    "systemctl restart leat-ossd@1": does(setup=ALL_UP, after=ALL_UP),
    "systemctl restart leat-mds": does(after=ALL_UP),
    "leat mount --upgrade /mnt/leat": does(after="grep -x kept /mnt/leat/file"),
}, "README.md": {
    "make demo": cannot("installs packages, and takes minutes"),
    "make check": cannot("this test is a part of it"),
    "make": cannot("has made what is installed here"),
    "deploy/dev-cluster up": does(once=True),
    'eval "$(deploy/dev-cluster env)"': does(once=True),
    "leat status": does(shows="targets up", once=True),
    'cp -r pictures "$(deploy/dev-cluster mountpoint)"': does(
        setup="mkdir pictures; echo one >pictures/1.jpg", once=True,
        after='cmp pictures/1.jpg "$(deploy/dev-cluster mountpoint)/pictures/1.jpg"'),
    "deploy/dev-cluster down": does(once=True),
    "mkdir -p /mnt/leat": does(setup=NO_MOUNT),
    "leat mount /mnt/leat": does(after="grep -x kept /mnt/leat/file"),
    "mount -t fuse.leat leat: /mnt/leat": does(setup="umount /mnt/leat\nmkdir -p leat",
                                               after="grep -x kept /mnt/leat/file"),
    "mount -t fuse.leat mds1:7440 /mnt/leat": does(setup="umount /mnt/leat",
                                                   after="grep -x kept /mnt/leat/file"),
    "leat layout set --chunk-size 4M /mnt/leat/big": does(setup="mkdir /mnt/leat/big"),
    "leat layout set --replicas 2 /mnt/leat/home": does(setup="mkdir /mnt/leat/home"),
    "leat layout set --replicas 2 --existing /mnt/leat/old": does(
        setup="mkdir /mnt/leat/old; echo old >/mnt/leat/old/file"),
    "leat cp -a /data/pictures /mnt/leat/": does(
        setup="mkdir -p /data/pictures; echo one >/data/pictures/1.jpg",
        after="cmp /data/pictures/1.jpg /mnt/leat/pictures/1.jpg"),
    "leat mount --upgrade /mnt/leat": does(after="grep -x kept /mnt/leat/file"),
    "leat umount /mnt/leat": does(after="no mountpoint -q /mnt/leat"),
    "leat target drain 3": does(shows="drained", after="leat target undrain 3"),
    "leat scrub start": does(),
    "leat fsck": does(),
    "leat dataset create imagenet@v1 /mnt/leat/imagenet": does(setup=SHARD),
    "leat stage in imagenet@v1 --to /local/nvme": does(),
    "leat stage path imagenet@v1 --to /local/nvme": does(shows="/local/nvme/"),
    "leat dataset seal imagenet@v1": does(
        after="no cp /etc/hosts /mnt/leat/imagenet/train-0000.tar"),
    "leat stage out /local/run7 /mnt/leat/run7": does(
        setup="mkdir -p /local/run7; echo result >/local/run7/result",
        after="grep -x result /mnt/leat/run7/result"),
    "leat stage in imagenet@v1 --nodes gpu01,gpu02,gpu03,gpu04": cannot(
        "there are no four nodes: test_stage_nodes.py"),
    "leat stage where imagenet@v1": does(
        setup="until leat stage where imagenet@v1; do sleep 0.1; done", shows="node1"),
    "import leat": does(),
}}


def key(command):
    """The command without the comment after it; of a program the first line."""
    text = re.sub(r"\s+#\s.*$", "", command, flags=re.M).strip()
    found = re.match(r"/usr/bin/python3 - <<'END'\n(.*)\n", text)
    return found.group(1) if found else text


def commands(lines):
    """A command ends with a line after which bash needs no further input."""
    found, text = [], ""
    for line in lines:
        text += line + "\n"
        if not re.sub(r"(?m)^\s*#.*$", "", text).strip():
            text = ""
            continue
        p = subprocess.run(["bash", "-n", "-c", text], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, check=False)
        if p.returncode == 0 and not p.stderr and not text.endswith("\\\n"):
            found.append(text.rstrip("\n"))
            text = ""
    assert not text, "not a command: " + text
    return found


def of_block(language, lines):
    if language == "python":
        return ["/usr/bin/python3 - <<'END'\n%s\nEND" % "\n".join(lines)]
    if language not in ("", "sh", "bash", "console") or any("──" in line for line in lines):
        return []
    return commands(lines)


def blocks(page):
    """The commands of each block of the page."""
    found, lines, language, before = [], [], None, ""
    with open(SRC + "/" + page) as f:
        for line in f.read().splitlines() + [""]:
            fence = re.match(r"```(\w*)$", line)
            if language is not None and fence:
                found.append(of_block(language, lines))
                lines, language = [], None
            elif language is not None:
                lines.append(line)
            elif fence:
                language = fence.group(1)
            elif line.startswith("    ") and (lines or not before.strip()):
                lines.append(line[4:])
            elif lines:
                found.append(of_block("", lines))
                lines = []
            before = line
    assert language is None, page + ": a fence is open"
    return [b for b in found if b]


def in_order():
    """(page, commands) of all blocks: README.md needs a cluster, which deploy/README.md sets up and
    removes at the end."""
    first, last = [], []
    for block in blocks("deploy/README.md"):
        into = last if "make uninstall" in [key(command) for command in block] else first
        into.append(("deploy/README.md", block))
    return first + [("README.md", block) for block in blocks("README.md")] + last
