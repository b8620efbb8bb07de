#!/usr/bin/env python3
"""What is handed to systemd, Kubernetes and container tools: well formed, complete, and of one
piece with what the build installs. (That it works there is not shown here.)"""
# timeout: 60
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
        assert service["LimitMEMLOCK"] == "infinity", path   # io_uring's rings, RDMA's buffers
        assert int(service["LimitNOFILE"]) >= 1 << 20, path
        assert service["Type"] == "exec" and service["Restart"] == "on-failure", path
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
                to.write(re.sub("(?m)^Documentation=.*\n", "", text))  # is not installed here
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
    """Names that have to be the same in several files."""
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

    # What the programs load is the same in both.
    assert packages(final) <= packages(text), packages(final) - packages(text)
    assert {"librocksdb7.8", "liburing2", "librdmacm1"} <= packages(final)


def test_install():
    """Everything that a manifest or a unit starts is installed."""
    with tempfile.TemporaryDirectory() as tmp:
        build = os.environ.get("BUILD") or SRC + "/build"
        subprocess.run(["make", "-s", "-C", SRC, "BUILD=" + build, "install", "DESTDIR=" + tmp,
                        "PREFIX=/usr"], check=True, stdout=subprocess.DEVNULL)
        for path in ("bin/leat", "sbin/leat-mds", "sbin/leat-ossd", "sbin/mount.leat",
                     "share/leat/k8s/leat-csi", "share/leat/k8s/csi_messages.py",
                     "share/leat/slurm/leat-slurm", "share/leat/slurm/burst_buffer.lua",
                     "share/leat/slurm/leat-slurm.conf", "share/leat/slurm/job_submit.lua",
                     "share/leat/slurm/prolog", "share/leat/slurm/epilog", "share/leat/hook.sh",
                     "share/leat/sge/prolog", "share/leat/sge/epilog", "share/leat/sge/leat-sge",
                     "share/leat/pbs/leat_stage.py"):
            assert os.path.exists(tmp + "/usr/" + path), path
        units = os.listdir(tmp + "/usr/lib/systemd/system")
        assert len(units) == len(DAEMONS), units
        for name in units:
            with open(tmp + "/usr/lib/systemd/system/" + name) as f:
                program = re.search(r"^ExecStart=(\S+)", f.read(), re.M).group(1)
            assert os.path.exists(tmp + program), (name, program)


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
            test()
            print(name, flush=True)


if __name__ == "__main__":
    main()
