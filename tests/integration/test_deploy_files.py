#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files for systemd, Kubernetes and container tools are well-formed, complete, and consistent with
what the build installs. (This test does not run them there.)"""
# timeout: 120
import configparser
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SRC = os.environ.get("LEAT_SRC") or os.path.realpath(os.path.dirname(__file__) + "/../..")
DAEMONS = ("leat-mds", "leat-ossd", "leat agent", "mount.leat")

try:
    import yaml
except ImportError:
    print("not installed: python3-yaml")
    sys.exit(77)


def documents():
    for path in sorted(glob.glob(SRC + "/deploy/k8s/*.yaml")):
        with open(path) as f:
            for d in yaml.safe_load_all(f):
                yield os.path.basename(path), d


def pod_spec(d):
    return d["spec"]["template"]["spec"] if d["kind"] in ("DaemonSet", "Job") else None


def test_units():
    started = []
    for path in sorted(glob.glob(SRC + "/deploy/systemd/*.service")):
        unit = configparser.RawConfigParser(strict=False)
        unit.optionxform = str
        unit.read(path)
        service = unit["Service"]
        assert service["LimitMEMLOCK"] == "infinity", path   # rings of io_uring, buffers of RDMA
        assert int(service["LimitNOFILE"]) >= 1 << 20, path
        # systemd waits until a service serves, and restarts it if it stops: common/base/notify.h.
        assert service["Type"] == "notify" and service["Restart"] == "on-failure", path
        assert service["WatchdogSec"] and service["TimeoutStartSec"], path
        # A mount is two processes; the second one reports its state.
        assert service["NotifyAccess"] == ("all" if "mount" in path else "main"), path
        # A start without a configuration must fail, not be skipped.
        assert unit["Unit"]["AssertPathExists"] == "/etc/leat/leat.conf", path
        assert not any(k.startswith("Condition") for k in unit["Unit"]), path
        assert unit["Install"]["WantedBy"], path
        started += [d for d in DAEMONS if "/" + d in service["ExecStart"]]
    assert sorted(started) == sorted(DAEMONS), started
    if not shutil.which("systemd-analyze"):
        print("units: no systemd-analyze, form only")
        return
    with tempfile.TemporaryDirectory() as tmp:
        for path in glob.glob(SRC + "/deploy/systemd/*.service"):
            with open(path) as f, open(tmp + "/" + os.path.basename(path), "w") as to:
                text = re.sub(r"/usr/local/s?bin/[a-z.-]+", "/bin/true", f.read())
                to.write(re.sub("(?m)^Documentation=.*\n", "", text))  # no manuals here
        p = subprocess.run(["systemd-analyze", "verify"] + glob.glob(tmp + "/*"), text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        bad = [l for l in p.stdout.splitlines() if tmp in l or "leat" in l]
        assert not bad, bad


def test_manifests():
    images, kinds = set(), []
    for file, d in documents():
        assert d["apiVersion"] and d["kind"] and d["metadata"]["name"], (file, d)
        kinds.append(d["kind"])
        spec = pod_spec(d)
        if not spec:
            continue
        volumes = {v["name"] for v in spec["volumes"]}
        for c in spec["containers"]:
            images.add(c["image"])
            used = {m["name"] for m in c["volumeMounts"]}
            assert used <= volumes, (file, c["name"], used - volumes)
            assert "resources" in c, (file, c["name"])
        if d["kind"] == "DaemonSet":
            assert d["spec"]["selector"]["matchLabels"].items() <= \
                d["spec"]["template"]["metadata"]["labels"].items(), file
    assert sorted(kinds) == sorted(["Namespace", "ServiceAccount", "CSIDriver", "DaemonSet",
                                    "DaemonSet", "PersistentVolume", "PersistentVolume",
                                    "PersistentVolumeClaim", "PersistentVolumeClaim", "Job"])
    assert len([i for i in images if "/leat:" in i]) == 1, images


def test_volumes_and_driver():
    """Names that must be equal in several files."""
    with open(SRC + "/deploy/k8s/leat-csi") as f:
        plugin = f.read()
    name = re.search(r'^NAME = "(.*)"', plugin, re.M).group(1)
    known = re.search(r"KNOWN = \((.*)\)", plugin).group(1).replace('"', "").split(", ")
    by_kind = {}
    for _, d in documents():
        by_kind.setdefault(d["kind"], []).append(d)
    assert by_kind["CSIDriver"][0]["metadata"]["name"] == name
    claims = {d["spec"]["volumeName"]: d for d in by_kind["PersistentVolumeClaim"]}
    for d in by_kind["PersistentVolume"]:
        c = d["spec"]["csi"]
        assert c["driver"] == name and set(c["volumeAttributes"]) <= set(known), c
        claim = claims[d["metadata"]["name"]]
        assert d["spec"]["claimRef"]["name"] == claim["metadata"]["name"]
        assert d["spec"]["accessModes"] == claim["spec"]["accessModes"]
    wanted = {v["persistentVolumeClaim"]["claimName"] for v in
              pod_spec(by_kind["Job"][0])["volumes"]}
    assert wanted == {d["metadata"]["name"] for d in by_kind["PersistentVolumeClaim"]}
    for file, d in documents():
        if d["kind"] == "DaemonSet" and d["metadata"]["name"] == "leat-csi":
            text = yaml.dump(d)
            assert "/plugins/%s/csi.sock" % name in text and "Bidirectional" in text


def test_container():
    with open(SRC + "/deploy/container/Containerfile") as f:
        text = f.read()
    with open(SRC + "/Makefile") as f:
        makefile = f.read()
    for word in re.findall(r"deploy/[a-z.-]+", text):
        if "Containerfile" not in word and word != "deploy/container":
            assert os.path.exists(SRC + "/" + word), word
    assert "PREFIX=/usr" in text and "DATADIR" in makefile
    with open(SRC + "/deploy/container/leat.def") as f:
        final = f.read()

    def packages(t):
        return set(re.findall(r"\blib[a-z]+[0-9.]*\b", t)) - {"lib"}

    # Both images install the libraries that the programs load.
    assert packages(final) <= packages(text), packages(final) - packages(text)
    assert {"librocksdb7.8", "liburing2", "librdmacm1"} <= packages(final)


INSTALLED = ("bin/leat", "sbin/leat-mds", "sbin/leat-ossd", "sbin/mount.leat", "lib/libleat.so",
             "share/leat/k8s/leat-csi", "share/leat/k8s/csi_messages.py",
             "share/leat/slurm/leat-slurm", "share/leat/slurm/burst_buffer.lua",
             "share/leat/slurm/leat-slurm.conf", "share/leat/slurm/job_submit.lua",
             "share/leat/slurm/prolog", "share/leat/slurm/epilog", "share/leat/hook.sh",
             "share/leat/sge/prolog", "share/leat/sge/epilog", "share/leat/sge/leat-sge",
             "share/leat/pbs/leat_stage.py", "share/man/man8/mount.leat.8", "include/leat/leat.h")


def make(goal, root, prefix, *more):
    build = os.environ.get("BUILD") or SRC + "/build"
    argv = ["make", "-s", "-C", SRC, "BUILD=" + build, goal, "DESTDIR=" + root, "PREFIX=" + prefix]
    if os.environ.get("LEAT_CC"):
        argv.append("CC=" + os.environ["LEAT_CC"])
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    subprocess.run(argv + list(more), check=True, stdout=subprocess.DEVNULL, env=env)


def files_below(root):
    return sorted(os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs)


def check_installed(root, prefix, units):
    """Everything that a manifest or a unit starts exists, where the manifest or unit expects it."""
    for path in INSTALLED:
        assert os.path.exists(root + prefix + "/" + path), path
    for path in ("share/leat/k8s/leat-csi", "share/leat/slurm/prolog"):
        assert os.access(root + prefix + "/" + path, os.X_OK), path
    names = os.listdir(root + units)
    assert len(names) == len(DAEMONS), names
    for name in names:
        with open(root + units + "/" + name) as f:
            program = re.search(r"^ExecStart=(\S+)", f.read(), re.M).group(1)
        assert program.startswith(prefix + "/") and os.path.exists(root + program), (name, program)
    with open(root + prefix + "/lib/pkgconfig/leat.pc") as f:
        text = f.read()
    assert "@" not in text and "libdir=%s/lib\n" % prefix in text, text


def check_helpers(root, prefix):
    """mount(8) searches /sbin only, which may be a link to /usr/sbin."""
    sbin = os.path.realpath("/sbin")
    for name in ("mount.leat", "mount.fuse.leat"):
        path = os.path.join(root + sbin, name)
        if os.path.islink(path):
            path = os.path.join(root + sbin, os.readlink(path))
            if not path.startswith(root):
                path = root + path
        assert os.path.samefile(path, root + prefix + "/sbin/mount.leat"), path


def python_folder(root):
    """The folder where Debian's Python would find the package if root were /."""
    code = "import sys; print('\\n'.join(sys.path))"
    p = subprocess.run(["/usr/bin/python3", "-c", code], text=True, cwd="/", check=True,
                       stdout=subprocess.PIPE, env={"PATH": "/usr/bin"})
    found = [d for d in p.stdout.splitlines()
             if d and os.path.exists(root + d + "/leat/__init__.py")]
    assert len(found) == 1, (found, p.stdout)
    return found[0]


def test_install():
    """For each PREFIX, the users of installed files find them, and uninstall removes these files
    and no others."""
    for prefix, units in (("/usr", "/usr/lib/systemd/system"),
                          ("/usr/local", "/usr/local/lib/systemd/system"),
                          ("/opt/leat", "/usr/local/lib/systemd/system")):
        with tempfile.TemporaryDirectory() as root:
            make("install", root, prefix)
            check_installed(root, prefix, units)
            check_helpers(root, prefix)
            assert os.path.isdir(root + "/var/lib/leat"), "where `format` makes stores"
            package = root + python_folder(root) + "/leat"
            named = os.path.exists(root + "/etc/ld.so.conf.d/leat.conf")
            assert named == (prefix == "/opt/leat"), "the linker's folders"

            others = [root + prefix + "/share/leat/slurm/of-the-site", root + "/etc/leat/leat.conf",
                      root + prefix + "/include/other.h"]
            for path in others:
                with open(path, "w"):
                    pass
            os.mkdir(package + "/__pycache__")
            with open(package + "/__pycache__/_lib.cpython-311.pyc", "w"):
                pass
            if prefix == "/opt/leat":
                make("install", root, prefix)   # over the first installation
            make("uninstall", root, prefix)
            assert files_below(root) == sorted(others), files_below(root)
            assert not os.path.exists(package), "an empty folder is left"
            assert not os.path.exists(root + prefix + "/share/leat/sge"), "an empty folder is left"
            assert not os.path.exists(root + "/var/lib/leat"), "an empty folder is left"


def test_old_libfuse():
    """make builds a libfuse with everything that a mount needs, and reports where it cannot."""
    p = subprocess.run(["pkg-config", "--atleast-version=3.17", "fuse3"], check=False)
    with tempfile.TemporaryDirectory() as tmp:
        os.makedirs(tmp + "/deps")
        with open(tmp + "/deps/libfuse.failed", "w"):
            pass
        for more, tried in (([], True), (["FUSE=system"], False)):
            argv = ["make", "-n", "-C", SRC, "BUILD_ROOT=" + tmp, "BUILD=" + tmp + "/b", "programs"]
            said = subprocess.run(argv + more, check=True, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT).stdout
            old = p.returncode != 0
            assert ("libfuse.failed to try again" in said) == (old and tried), (more, said[:500])
            assert ("THIS BUILD LACKS" in said) == old, (more, said[-2000:])


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
            test()
            print(name, flush=True)


if __name__ == "__main__":
    main()
