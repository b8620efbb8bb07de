#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CSI node plugin, with a gRPC client of the test's own that encodes protobuf by hand (by the
numbers of csi.proto, not of the plugin's table) and reads /proc/self/mountinfo."""
# timeout: 180
import errno
import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys

if sys.executable != "/usr/bin/python3" and os.path.exists("/usr/bin/python3"):
    os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)  # has the packages
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from cluster import BUILD, SRC, Cluster, wait_until

try:
    import grpc
except ImportError:
    print("not installed: python3-grpcio, python3-protobuf")
    sys.exit(77)

READER_MANY, WRITER_MANY = 3, 5


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """bool and int: varint; str and bytes: with their length; dict: map<string, string>."""
    if isinstance(value, dict):
        return b"".join(field(number, field(1, k) + field(2, v)) for k, v in value.items())
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(**fields):
    return b"".join(field(int(name[1:]), value) for name, value in fields.items())


def parse(data):
    """{number: [values]}"""
    out, at = {}, 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n
    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        else:
            size = number()
            value = data[at:at + size]
            at += size
        out.setdefault(key >> 3, []).append(value)
    return out


def capability(mode, *flags):
    return message(f2=b"".join(field(2, f) for f in flags), f3=message(f1=mode))


class Plugin:
    """first: the plugin is process 1, as in a container."""

    def __init__(self, c, first=False):
        self.c = c
        self.socket = c.dir + ("/first.sock" if first else "/csi.sock")
        self.stage_dir = c.dir + "/nvme"
        self.first = first
        os.makedirs(self.stage_dir, exist_ok=True)

    def __enter__(self):
        self.log = open(self.c.dir + "/csi.log", "a")
        self.process = subprocess.Popen(
            (["unshare", "--pid", "--fork", "--kill-child"] if self.first else []) +
            ["/usr/bin/python3", SRC + "/deploy/k8s/leat-csi", "--endpoint", "unix://" + self.socket,
             "--node", "node7", "--stage-dir", self.stage_dir, "--leat", BUILD + "/leat",
             "--mount", BUILD + "/mount.leat", "--patience", "5"],
            stdin=subprocess.DEVNULL, stderr=self.log,
            env=dict(os.environ, LEAT_CONF=self.c.dev + "/conf", PYTHONDONTWRITEBYTECODE="1",
                     PATH=self.c.dir + "/bin:" + os.environ["PATH"]))
        wait_until(self.serves, 20, "the plugin serves")
        self.channel = grpc.insecure_channel("unix://" + self.socket)
        return self

    def serves(self):
        # Its socket exists a moment before it listens.
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(self.socket) == 0

    def pid(self):
        return children(self.process.pid)[0] if self.first else self.process.pid

    def __exit__(self, kind, value, trace):
        self.channel.close()
        os.kill(self.pid(), signal.SIGTERM)
        try:
            self.process.wait(300)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        if kind is not None:
            with open(self.c.dir + "/csi.log") as f:
                print(f.read())
        for path in sorted(mounts(self.c.dir + "/pods"), reverse=True):
            subprocess.run(["umount", "-l", path], check=False)

    def call(self, method, data=b""):
        service = "Node" if method.startswith("Node") else "Identity"
        fn = self.channel.unary_unary("/csi.v1.%s/%s" % (service, method))
        return parse(fn(data, timeout=100))

    def refused(self, code, method, data=b""):
        try:
            self.call(method, data)
        except grpc.RpcError as e:
            assert e.code().name == code, (e.code(), e.details())
            return e.details()
        raise AssertionError("%s was not refused" % method)


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        return [int(word) for word in f.read().split()]


def mounts(below):
    found = {}
    with open("/proc/self/mountinfo") as f:
        for line in f:
            words = line.split()
            if words[4].startswith(below):
                found[words[4]] = (words[words.index("-") + 1], words[5].split(","))
    return found


def no_programs_of_others(path):
    """A user who writes to the volume from another machine cannot become root on this one."""
    assert {"nosuid", "nodev"} <= set(mounts(path)[path][1]), mounts(path)


def test_identity(p):
    info = p.call("GetPluginInfo")
    assert info[1] == [b"csi.leat"] and re.match(rb"\d+\.\d+", info[2][0]), info
    assert p.call("GetPluginCapabilities") == {}
    assert parse(p.call("Probe")[1][0]) == {1: [1]}
    assert p.call("NodeGetInfo")[1] == [b"node7"]
    kinds = [parse(parse(c)[1][0])[1][0] for c in p.call("NodeGetCapabilities")[1]]
    assert kinds == [1, 2], kinds


def test_data_set(p):
    folder = p.c.mnt() + "/set"
    os.makedirs(folder + "/sub")
    data = os.urandom(3_000_000)
    with open(folder + "/sub/f", "wb") as f:
        f.write(data)
    p.c.leat("dataset", "create", "set@v1", folder)
    staging, target = p.c.dir + "/pods/staging", p.c.dir + "/pods/a/mount"
    os.makedirs(staging)
    os.makedirs(os.path.dirname(target))
    context = {"dataset": "set@v1"}
    stage = message(f1="vol1", f3=staging, f4=capability(READER_MANY), f6=context)
    publish = message(f1="vol1", f3=staging, f4=target, f5=capability(READER_MANY), f6=True,
                      f8=context)
    p.refused("FAILED_PRECONDITION", "NodePublishVolume", publish)
    for _ in range(2):  # a repeated call changes nothing
        p.call("NodeStageVolume", stage)
    for _ in range(2):
        p.call("NodePublishVolume", publish)
    assert "ro" in mounts(target)[target][1], mounts(target)
    no_programs_of_others(target)
    with open(target + "/sub/f", "rb") as f:
        assert f.read() == data
    try:
        open(target + "/new", "w").close()
        raise AssertionError("it can be written")
    except OSError as e:
        assert e.errno == 30, e
    usage = p.call("NodeGetVolumeStats", message(f1="vol1", f2=target))[1]
    assert parse(usage[0])[2][0] > 0
    # A copy that a pod may use is not evicted.
    assert p.c.leat("stage", "evict", "set@v1", "--to", p.stage_dir, check=False).returncode != 0
    # A second pod, while the first one is there.
    second = p.c.dir + "/pods/b"
    p.call("NodePublishVolume", message(f1="vol1", f3=staging, f4=second,
                                        f5=capability(READER_MANY), f6=True, f8=context))
    for path in (target, target, second):
        p.call("NodeUnpublishVolume", message(f1="vol1", f2=path))
    assert not mounts(target) and not mounts(second) and not os.path.exists(target)
    for _ in range(2):
        p.call("NodeUnstageVolume", message(f1="vol1", f2=staging))
    assert p.c.leat("stage", "evict", "set@v1", "--to", p.stage_dir).returncode == 0


def test_file_system(p):
    os.makedirs(p.c.mnt() + "/projects/x")
    staging, target = p.c.dir + "/pods/fs", p.c.dir + "/pods/c/mount"
    context = {"path": "/projects/x", "csi.storage.k8s.io/pod.name": "pod"}
    cap = capability(WRITER_MANY)
    for _ in range(2):
        p.call("NodeStageVolume", message(f1="vol2", f3=staging, f4=cap, f6=context))
    assert mounts(staging)[staging][0] == "fuse.leat"
    no_programs_of_others(staging)
    for _ in range(2):
        p.call("NodePublishVolume", message(f1="vol2", f3=staging, f4=target, f5=cap, f8=context))
    no_programs_of_others(target)
    with open(target + "/from-pod", "w") as f:
        f.write("hello")
    with open(p.c.mnt() + "/projects/x/from-pod") as f:
        assert f.read() == "hello"
    # The plugin may have been killed before it had made the mount read-only.
    for _ in range(2):
        p.call("NodePublishVolume", message(f1="vol2", f3=staging, f4=target, f5=cap, f6=True,
                                            f8=context))
        assert "ro" in mounts(target)[target][1], mounts(target)
    details = p.refused("ALREADY_EXISTS", "NodePublishVolume", message(
        f1="vol2", f3=staging, f4=target, f5=cap, f8=context))
    assert "another access mode" in details
    for path, code in (("/../..", "INVALID_ARGUMENT"), ("/projects/x/from-pod", "INVALID_ARGUMENT"),
                       ("/none", "NOT_FOUND")):
        p.refused(code, "NodePublishVolume", message(
            f1="vol2", f3=staging, f4=p.c.dir + "/pods/d", f5=cap, f8={"path": path}))
    p.call("NodeUnpublishVolume", message(f1="vol2", f2=target))
    p.call("NodeUnstageVolume", message(f1="vol2", f2=staging))
    assert not mounts(p.c.dir + "/pods")


def test_dead_mount(p):
    """The daemons end with the plugin's container; new pods get a live mount. A mount that is
    silent for a while does not count as dead."""
    staging, pods = p.c.dir + "/pods/dead", [p.c.dir + "/pods/p%d/mount" % i for i in range(3)]
    cap = capability(WRITER_MANY)
    os.makedirs(p.c.mnt() + "/alive")
    stage = message(f1="vol6", f3=staging, f4=cap)

    def publish(i, method="NodePublishVolume"):
        p.call(method, message(f1="vol6", f3=staging, f4=pods[i], f5=cap, f8={"path": "/alive"}))

    def kill(number):
        status = json.loads(os.getxattr(staging, "leat.status"))
        for pid in (status["supervisor"], status["pid"]):
            if pid:
                os.kill(pid, number)
        return [pid for pid in (status["supervisor"], status["pid"]) if pid]

    p.call("NodeStageVolume", stage)
    publish(0)
    # A silent mount: the plugin must not decide anything.
    held = kill(signal.SIGSTOP)
    assert "does not answer" in p.refused("UNAVAILABLE", "NodeStageVolume", stage)
    assert mounts(staging) and mounts(pods[0])
    for pid in held:
        os.kill(pid, signal.SIGCONT)
    p.call("NodeStageVolume", stage)
    with open(pods[0] + "/from-0", "w") as f:
        f.write("hello")

    kill(signal.SIGKILL)
    wait_until(lambda: is_dead(staging), 20, "the mount is dead")
    # The kubelet may only publish, for another pod, or stage first.
    publish(1)
    with open(pods[1] + "/from-0") as f:
        assert f.read() == "hello"
    assert is_dead(pods[0])
    publish(0)
    assert os.listdir(pods[0]) == ["from-0"]
    assert p.call("NodeGetVolumeStats", message(f1="vol6", f2=pods[1]))
    kill(signal.SIGKILL)
    wait_until(lambda: is_dead(staging), 20, "the mount is dead")
    p.refused("INTERNAL", "NodeGetVolumeStats", message(f1="vol6", f2=pods[1]))
    p.call("NodeStageVolume", stage)
    publish(2)
    assert os.listdir(pods[2]) == ["from-0"]
    for path in pods:
        p.call("NodeUnpublishVolume", message(f1="vol6", f2=path))
    p.call("NodeUnstageVolume", message(f1="vol6", f2=staging))
    assert not mounts(p.c.dir + "/pods"), mounts(p.c.dir + "/pods")


def is_dead(path):
    try:
        os.statvfs(path)
    except OSError as e:
        return e.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


def test_path_is_no_link(p):
    """A user who may write above a volume's path cannot get another directory mounted."""
    tenant = p.c.mnt() + "/tenants/t1"
    os.makedirs(tenant + "/results/deep")
    staging, target = p.c.dir + "/pods/links", p.c.dir + "/pods/l/mount"
    cap = capability(WRITER_MANY)
    p.call("NodeStageVolume", message(f1="vol4", f3=staging, f4=cap))
    for path in ("tenants/t1/results", "/tenants/t1/results/deep"):
        publish = message(f1="vol4", f3=staging, f4=target, f5=cap, f8={"path": path})
        p.call("NodePublishVolume", publish)
        assert os.stat(target).st_ino == os.stat(p.c.mnt() + "/" + path).st_ino
        p.call("NodeUnpublishVolume", message(f1="vol4", f2=target))
        os.rename(tenant + "/results", tenant + "/away")
        for to in ("../..", "away", "/"):
            os.symlink(to, tenant + "/results")
            p.refused("INVALID_ARGUMENT", "NodePublishVolume", publish)
            assert not mounts(target)
            os.unlink(tenant + "/results")
        os.rename(tenant + "/away", tenant + "/results")
    # The path is replaced during the mount: a program named `mount` does it first.
    os.mkdir(p.c.dir + "/bin")
    with open(p.c.dir + "/bin/mount", "w") as f:
        f.write("#!/bin/sh\nmv %s/results %s/away 2>/dev/null && ln -s ../.. %s/results\n"
                "PATH=/usr/bin:/bin exec mount \"$@\"\n" % (tenant, tenant, tenant))
    os.chmod(p.c.dir + "/bin/mount", 0o755)
    inode = os.stat(tenant + "/results").st_ino
    p.call("NodePublishVolume", message(f1="vol4", f3=staging, f4=target, f5=cap,
                                        f8={"path": "/tenants/t1/results"}))
    os.unlink(p.c.dir + "/bin/mount")
    assert os.path.islink(tenant + "/results") and os.stat(target).st_ino == inode
    p.call("NodeUnpublishVolume", message(f1="vol4", f2=target))
    p.call("NodeUnstageVolume", message(f1="vol4", f2=staging))


def test_leases(p):
    """Each volume holds its copy independently, until it has released it."""
    folder, staging = p.c.mnt() + "/held", p.c.dir + "/pods/held"
    os.mkdir(folder)
    with open(folder + "/f", "w") as f:
        f.write("x")
    p.c.leat("dataset", "create", "held@v1", folder)
    os.makedirs(staging)
    cap = capability(READER_MANY)
    names = ["held@v1", "held-v1", "held:v1", "held_v1", "held_40v1", "h" * 128, "h:" * 64,
             "held.tmp", "h" * 124 + ".tmp"]
    for name in names:
        p.call("NodeStageVolume", message(f1=name, f3=staging, f4=cap, f6={"dataset": "held@v1"}))
    for name in names:
        assert p.c.leat("stage", "evict", "held@v1", "--to", p.stage_dir,
                        check=False).returncode != 0, name
        p.call("NodeUnstageVolume", message(f1=name, f2=staging))
    p.call("NodeStageVolume", message(f1="v", f3=staging, f4=cap, f6={"dataset": "held@v1"}))
    # `leat` cannot remove a lease name that is not a file.
    lease, = glob.glob(p.stage_dir + "/.leat/*/leases/csi-v")
    os.unlink(lease)
    os.mkdir(lease)
    p.refused("INTERNAL", "NodeUnstageVolume", message(f1="v", f2=staging))
    os.rmdir(lease)
    # No lease can be released there; a volume without a lease needs none released.
    leases = os.path.dirname(lease)
    os.rename(leases, leases + ".away")
    os.symlink("leases", leases)
    p.call("NodeStageVolume", message(f1="plain", f3=staging, f4=capability(WRITER_MANY)))
    p.call("NodeUnstageVolume", message(f1="plain", f2=staging))
    os.unlink(leases)
    os.rename(leases + ".away", leases)
    p.call("NodeUnstageVolume", message(f1="v", f2=staging))
    assert p.c.leat("stage", "evict", "held@v1", "--to", p.stage_dir).returncode == 0


def test_first_process(p):
    """The daemons of mounts have no parent but process 1, which must leave no zombies."""
    staging, cap = p.c.dir + "/pods/first", capability(WRITER_MANY)
    with Plugin(p.c, first=True) as f:
        before = children(f.pid())
        f.call("NodeStageVolume", message(f1="vol5", f3=staging, f4=cap))
        assert len(children(f.pid())) > len(before), "the daemon of a mount"
        f.call("NodeUnstageVolume", message(f1="vol5", f2=staging))
        wait_until(lambda: children(f.pid()) == before, 20, "the daemon is gone, and buried")
    assert f.process.returncode == 0, f.process.returncode


def test_refused(p):
    cap = capability(READER_MANY)
    bad = [message(), message(f1="v"), message(f1="v", f3="/x"), message(f1="v", f3="x", f4=cap),
           message(f1="../v", f3="/x", f4=cap), message(f1="v", f3="/x", f4=message(f1=b"")),
           message(f1="v", f3="/x", f4=capability(0)),
           message(f1="v", f3="/x", f4=cap, f6={"dataset": "../x"}),
           message(f1="v", f3="/x", f4=cap, f6={"dataset": "--to@x"}),
           message(f1="v", f3="/x", f4=cap, f6={"wrong": "x"}),
           message(f1="v", f3="/x", f4=cap, f6={"mds": "a b"}),
           message(f1="v", f3="/x", f4=capability(READER_MANY, "ro,suid x"))]
    for data in bad:
        p.refused("INVALID_ARGUMENT", "NodeStageVolume", data)
    details = p.refused("NOT_FOUND", "NodeStageVolume", message(
        f1="v", f3=p.c.dir + "/pods/x", f4=cap, f6={"dataset": "none@v1"}))
    assert "none@v1" in details, details
    p.refused("INVALID_ARGUMENT", "NodePublishVolume", message(
        f1="v", f3="/x", f4="/y", f5=capability(WRITER_MANY), f8={"dataset": "a@b"}))
    for path in (p.c.dir, "some/path"):
        p.refused("NOT_FOUND", "NodeGetVolumeStats", message(f1="v", f2=path))
    p.refused("UNIMPLEMENTED", "NodeExpandVolume")


def main():
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("root and /dev/fuse are needed")
        sys.exit(77)
    with Cluster(ossd=2, mounts=1) as c, Plugin(c) as p:
        for name, test in list(globals().items()):
            if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
                test(p)
                print(name, flush=True)


if __name__ == "__main__":
    main()
