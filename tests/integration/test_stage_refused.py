#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reasons why a data set cannot be staged: a source or a directory that this user may not use, a
manifest of another cluster or a damaged one, dead servers, a disk that becomes full midway. Each
message names the object and the next step, with the right exit status. No incomplete copy is READY,
other copies stay unchanged, and the repeated command resumes.
(A source that is replaced midway: test_cli_stage_verbs.sh.)"""
import filecmp
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from cluster import BUILD, Cluster, get, run_tests, wait_until

MIB = 1 << 20
CLUSTER = {"mounts": 1, "ossd": 2, "size": "256M", "conf": {"client": {"request_timeout_ms": 3000}}}
USER = 12345
AS_USER = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]


def make(folder, **files):
    os.makedirs(folder, exist_ok=True)
    for name, size in files.items():
        with open("%s/%s" % (folder, name), "wb") as f:
            f.write(os.urandom(size))


def stage(c, *args, who=()):
    conf = (c.dir + "/user" if who else c.dev) + "/conf"
    r = subprocess.run([*who, BUILD + "/leat", "--conf", conf, "stage", *args],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return r.returncode, r.stdout, r.stderr


def refused(c, code, words, *args, who=()):
    """Checks the exit status, and that the message has each of these words."""
    got, out, err = stage(c, "in", *args, who=who)
    assert got == code, (got, out, err)
    for w in words:
        assert w in err, (w, err)


def state_of(c, what, to, who=()):
    return json.loads(stage(c, "status", what, "--to", to, "--json", who=who)[1] or "{}")


def the_other_one(c, to, who=()):
    """Makes a copy beside the one that fails. Returns a check that it is unchanged."""
    make(c.dir + "/other", a=300000, b=5)
    os.chmod(c.dir + "/other", 0o755)
    code, out, err = stage(c, "in", c.dir + "/other", "--to", to, "--json", who=who)
    assert code == 0, err
    path = json.loads(out)["path"]

    def unharmed():
        assert stage(c, "verify", c.dir + "/other", "--to", to, who=who)[0] == 0
        assert filecmp.cmpfiles(c.dir + "/other", path, ["a", "b"], False)[0] == ["a", "b"]
    return unharmed


def same(a, b):
    names = os.listdir(a)
    return sorted(filecmp.cmpfiles(a, b, names, False)[0]) == sorted(names)


def let_user_in(c):
    """Gives the user a key of the cluster, and a directory. Returns the directory."""
    to = c.dir + "/user/copies"
    if os.path.isdir(to):
        return to
    os.makedirs(to)
    for name in ("conf", "key"):
        with open("%s/%s" % (c.dev, name)) as f:
            text = f.read().replace(c.dev + "/key", c.dir + "/user/key")
        with open("%s/user/%s" % (c.dir, name), "w") as f:
            os.fchmod(f.fileno(), 0o600)
            os.fchown(f.fileno(), USER, USER)
            f.write(text)
    os.chown(to, USER, USER)
    os.chmod(c.mnt(), 0o755)
    return to


def test_a_source_that_this_user_may_not_read(c):
    to = let_user_in(c)
    unharmed = the_other_one(c, to, AS_USER)
    make(c.mnt() + "/private", file=MIB)
    os.chmod(c.mnt() + "/private", 0o700)
    refused(c, 10, ["/private", "read the source"], "leat:/private", "--to", to, who=AS_USER)
    # If one file is not readable by all users, neither is the manifest.
    make(c.mnt() + "/mixed", a=2 * MIB, b=MIB, c=MIB)
    os.chmod(c.mnt() + "/mixed/b", 0o600)
    c.leat("dataset", "create", "mixed@v0", c.mnt() + "/mixed")
    refused(c, 10, ["manifest", "cannot read it"], "mixed@v0", "--to", to, who=AS_USER)
    # One file of many, found when its turn comes.
    os.chmod(c.mnt() + "/mixed/b", 0o644)
    c.leat("dataset", "create", "mixed@v1", c.mnt() + "/mixed")
    os.chmod(c.mnt() + "/mixed/b", 0o600)
    refused(c, 10, ["b", "cannot read the source"], "mixed@v1", "--to", to, who=AS_USER)
    # The query runs as the user, because root trusts no file in a user's directory.
    said = state_of(c, "mixed@v1", to, who=AS_USER)
    assert said["state"] == "FAILED" and said["failure"]["code"] == 10, said
    assert said["failure"]["path"] == "b", said
    assert stage(c, "path", "mixed@v1", "--to", to, who=AS_USER)[0] == 3
    # A directory of this machine behaves alike.
    make(c.dir + "/local", a=MIB, b=10)
    os.chmod(c.dir + "/local", 0o755)
    os.chmod(c.dir + "/local/b", 0o600)
    refused(c, 10, ["/local/b"], c.dir + "/local", "--to", to, who=AS_USER)
    unharmed()
    # After access is given, data that was fetched is not fetched again.
    os.chmod(c.mnt() + "/mixed/b", 0o644)
    code, out, err = stage(c, "in", "mixed@v1", "--to", to, "--json", who=AS_USER)
    assert code == 0, err
    assert json.loads(out)["bytes_moved"] <= 4 * MIB - said["bytes_verified"], (out, said)
    assert same(c.mnt() + "/mixed", json.loads(out)["path"])


def test_a_directory_that_this_user_may_not_write(c):
    let_user_in(c)
    make(c.mnt() + "/open", file=MIB)
    to = c.dir + "/roots"
    os.mkdir(to)
    unharmed = the_other_one(c, to)
    refused(c, 10, [to, "permission", "write to the directory"], "leat:/open", "--to", to,
            who=AS_USER)
    refused(c, 10, [to, "permission"], "leat:/open", "--to", c.dir + "/roots/new", who=AS_USER)
    unharmed()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "leat-ro", to], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro", to], check=True)
        refused(c, 10, [to, "read-only"], "leat:/open", "--to", to)
    finally:
        subprocess.run(["umount", to], check=True)
    unharmed()


def test_a_manifest_of_another_cluster(c):
    to = c.dir + "/foreign"
    unharmed = the_other_one(c, to)
    with Cluster(mounts=1, ossd=1, size="64M") as there:
        make(there.mnt() + "/data", file=MIB)
        there.leat("dataset", "create", "there@v1", there.mnt() + "/data")
        shutil.copytree(there.mnt() + "/.leat/datasets", c.dir + "/datasets")
        shutil.copytree(there.mnt() + "/data", c.mnt() + "/data")
    # A manifest with its data from another cluster: equal paths, but other files.
    make(c.mnt() + "/here", file=1)
    c.leat("dataset", "create", "here@v1", c.mnt() + "/here")
    shutil.copytree(c.dir + "/datasets", c.mnt() + "/.leat/datasets", dirs_exist_ok=True)
    refused(c, 9, ["another cluster", "leat dataset create"], "there@v1", "--to", to)
    # In a directory outside any cluster.
    refused(c, 9, ["another cluster", "no cluster"], "there@v1", "--to", to, "--catalog",
            c.dir + "/datasets")
    r = c.leat("dataset", "seal", "there@v1", check=False)
    assert r.returncode == 9 and "another cluster" in r.stderr, r
    assert stage(c, "status", "there@v1", "--to", to)[0] == 9
    unharmed()
    # The proposed command helps.
    c.leat("dataset", "rm", "there@v1")
    c.leat("dataset", "create", "there@v1", c.mnt() + "/data")
    assert stage(c, "in", "there@v1", "--to", to)[0] == 0


def folder_of(c, name):
    """The id of a data set, and its folder in the catalog."""
    with open("%s/.leat/datasets/%s" % (c.mnt(), name)) as f:
        ident, word = f.read().split()
    return ident, "%s/.leat/datasets/by-id/%s/%s" % (c.mnt(), ident, word)


def test_a_damaged_manifest(c):
    to = c.dir + "/damaged"
    unharmed = the_other_one(c, to)
    make(c.mnt() + "/hurt", file=MIB)
    c.leat("dataset", "create", "hurt@v1", c.mnt() + "/hurt")
    path = folder_of(c, "hurt@v1")[1] + "/manifest"
    with open(path, "r+b") as f:
        f.truncate(os.path.getsize(path) - 10)
    refused(c, 6, ["manifest", "cut off"], "hurt@v1", "--to", to)
    unharmed()


def test_damaged_samples(c):
    """Only the catalog has the samples of a name; no other file counts as them."""
    to = c.dir + "/samples"
    make(c.mnt() + "/fixed", file=4000)
    c.leat("dataset", "create", "fixed@v1", c.mnt() + "/fixed", "--format", "fixed:100")
    ident, folder = folder_of(c, "fixed@v1")
    path = folder + "/samples"
    ours = "%s/.leat/%s/samples"
    assert stage(c, "in", "fixed@v1", "--to", to)[0] == 0
    assert filecmp.cmp(path, ours % (to, ident), False)
    good = get(path)
    with open(path, "r+b") as f:
        f.truncate(10)
    assert stage(c, "in", "fixed@v1", "--to", to)[0] == 0
    assert get(ours % (to, ident)) == good
    assert stage(c, "in", "fixed@v1", "--to", to + "2")[0] == 0
    assert not os.path.exists(ours % (to + "2", ident))


def test_servers_that_are_gone(c):
    to = c.dir + "/gone"
    unharmed = the_other_one(c, to)
    make(c.mnt() + "/many", **{"f%d" % i: 4 * MIB for i in range(6)})
    c.leat("dataset", "create", "many@v1", c.mnt() + "/many")
    p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "stage", "in", "many@v1",
                          "--to", to, "--max-rate", "6M"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: state_of(c, "many@v1", to).get("bytes_verified", 0) > 0, 30, "some bytes")
    c.kill("ossd1")
    c.kill("ossd2")
    out, err = p.communicate(timeout=300)
    assert p.returncode == 5, (p.returncode, out, err)
    assert "cannot read the source" in err and "Run the same command again" in err, err
    said = state_of(c, "many@v1", to)
    assert said["state"] == "FAILED" and said["failure"]["code"] == 5, said
    unharmed()
    c.start("ossd1")
    c.start("ossd2")
    code, out, err = stage(c, "in", "many@v1", "--to", to, "--json")
    assert code == 0, err
    out = json.loads(out)
    assert 0 < out["bytes_moved"] <= out["bytes"] - said["bytes_verified"], (out, said)
    assert same(c.mnt() + "/many", out["path"])


def test_a_disk_that_fills_up_in_the_middle(c):
    """On a file system that cannot reserve space; one that can keeps the reservation."""
    image, to = c.dir + "/image", c.dir + "/disk"
    with open(image, "wb") as f:
        f.truncate(96 * MIB)
    subprocess.run(["mkfs.ext2", "-q", "-m", "0", image], check=True)
    os.mkdir(to)
    if subprocess.run(["mount", "-o", "loop", image, to], check=False).returncode:
        print("not shown: no loop devices here")
        return
    try:
        unharmed = the_other_one(c, to)
        make(c.mnt() + "/large", **{"f%d" % i: 12 * MIB for i in range(4)})
        c.leat("dataset", "create", "large@v1", c.mnt() + "/large")
        p = subprocess.Popen([BUILD + "/leat", "--conf", c.dev + "/conf", "stage", "in",
                              "large@v1", "--to", to, "--max-rate", "8M"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        wait_until(lambda: state_of(c, "large@v1", to).get("bytes_verified", 0) > 0, 30, "bytes")
        with open(to + "/filler", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(1 << 16))
            except OSError:
                pass
        out, err = p.communicate(timeout=300)
        assert p.returncode == 8, (p.returncode, out, err)
        assert "no space left" in err and "leat stage evict" in err, err
        said = state_of(c, "large@v1", to)
        assert said["state"] == "FAILED", said
        assert stage(c, "path", "large@v1", "--to", to)[0] == 3
        unharmed()
        os.unlink(to + "/filler")
        code, out, err = stage(c, "in", "large@v1", "--to", to, "--json")
        assert code == 0, err
        out = json.loads(out)
        assert 0 < out["bytes_moved"] <= out["bytes"] - said["bytes_verified"], (out, said)
        assert same(c.mnt() + "/large", out["path"])
    finally:
        subprocess.run(["umount", to], check=True)


run_tests(globals())
