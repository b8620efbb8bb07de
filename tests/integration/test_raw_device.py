#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""Object servers on raw block devices (here loop devices): format refuses a device that is in use
or not empty, a start on a wrong device fails, data survives kills, the stores are clean."""
import hashlib
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, Cluster


class LoopDevices:
    """n loop devices over sparse files; always removed at the end."""

    def __init__(self, n, mib):
        self.dir = tempfile.TemporaryDirectory(prefix="leat-loop-")
        self.n, self.mib = n, mib
        self.devices = []

    def __enter__(self):
        for i in range(self.n):
            path = "%s/%d" % (self.dir.name, i)
            with open(path, "wb") as f:
                f.truncate(self.mib << 20)
            out = subprocess.run(["losetup", "-f", "--show", path], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
            if out.returncode != 0:
                self.__exit__()
                print("SKIP: no loop devices here: " + out.stderr.strip())
                sys.exit(77)
            self.devices.append(out.stdout.strip())
        return self.devices

    def __exit__(self, *why):
        for d in self.devices:
            subprocess.run(["losetup", "-d", d], check=False)
        self.dir.cleanup()


def ossd(store, *args):
    return subprocess.run([BUILD + "/leat-ossd", "-c", "/dev/null", "--set", "data_dir=" + store] +
                          list(args), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_format_keeps_off(device, other, folder):
    with open(device, "wb") as f:
        f.write(b"precious")
        os.fsync(f.fileno())
    out = ossd(folder + "/a", "--set", "data_device=" + device, "format")
    assert out.returncode != 0 and "not empty" in out.stdout, out.stdout
    with open(device, "rb") as f:
        assert f.read(8) == b"precious"
    out = ossd(folder + "/b", "--set", "data_device=relative", "format")
    assert out.returncode != 0 and "whole path" in out.stdout, out.stdout
    for store, name, force in ((folder + "/a", device, ["--force"]), (folder + "/b", other, [])):
        out = ossd(store, "--set", "data_device=" + name, "format", *force)
        assert out.returncode == 0, out.stdout
    # The names have changed: each index finds the other one's device.
    for store, wrong in ((folder + "/a", other), (folder + "/b", device)):
        assert ossd(store, "check", "--data").returncode == 0
        os.unlink(store + "/data")
        os.symlink(wrong, store + "/data")
        out = ossd(store, "check")
        assert out.returncode != 0 and "label" in out.stdout, out.stdout


def test_cluster(devices):
    os.environ["LEAT_DEV_DEVICES"] = " ".join(devices)
    with Cluster(size="") as c:
        digests = {}
        for i in range(20):
            data = os.urandom(1500000 + i)
            with open("%s/%d" % (c.mnt(), i), "wb") as f:
                f.write(data)
                os.fsync(f.fileno())
            digests[i] = hashlib.sha256(data).digest()
            if i == 10:
                for o in c.ossd:
                    c.kill(o)
                    c.start(o)
        c.stop("mnt2")
        c.start("mnt2")
        for i, digest in digests.items():
            with open("%s/%d" % (c.mnt(2), i), "rb") as f:
                assert hashlib.sha256(f.read()).digest() == digest, i
        link = os.readlink(c.dev + "/ossd1/store/data")
        assert link == devices[0], link
        c.check_stores()


if __name__ == "__main__":
    with LoopDevices(4, 96) as loops:
        with tempfile.TemporaryDirectory(prefix="leat-raw-") as tmp:
            test_format_keeps_off(loops[0], loops[1], tmp)
        test_cluster(loops)
