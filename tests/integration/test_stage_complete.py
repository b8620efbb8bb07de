#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A copy is complete, or staging says what is missing: symbolic links in the layout of Hugging Face
hub, empty directories, times, names of any bytes, names that begin with .leat. Devices and links
that lead nowhere are reported by kind and name, and in the exit status; holes stay holes. For the
namespace and a local directory, in and out."""
import base64
import json
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from cluster import BUILD, HERE, free_ports, run_tests, wait_until

CLUSTER = {"mounts": 1, "ossd": 2, "size": "256M"}
ALICE, BOB = 12001, 12002
NAMES = [b"M\xfcller.jpg", b"new\nline", b"quote\"'\\", b"e\x1b[31mred", b"\xff\xfe", b"x" * 255,
         "\u00fc\u4e2d.txt".encode(), b" ", b".leatignore", b".leat-out-notours", b"\xc0\xaf"]


def leat(c, *args):
    r = subprocess.run([BUILD + "/leat", "--conf", c.dev + "/conf", *args],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    return r.returncode, r.stdout, r.stderr


def leat_json(c, want, *args):
    code, out, err = leat(c, *args, "--json")
    assert code == want, (args, code, out, err)
    return json.loads(out)


def write(path, data=b"y"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def tree(top):
    """{name: (kind, content, time)} of everything below top."""
    found = {}
    top = os.fsencode(top)
    for at, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(at, name)
            st = os.lstat(path)
            rel = os.path.relpath(path, top)
            if os.path.islink(path):
                found[rel] = ("link", os.readlink(path), st.st_mtime_ns)
            elif os.path.isdir(path):
                found[rel] = ("dir", st.st_mtime_ns)
            else:
                with open(path, "rb") as f:
                    found[rel] = ("file", f.read(), st.st_mtime_ns)
    return found


def places(c):
    return (c.mnt() + "/", c.dir + "/local/")


def hub(top):
    """A snapshot in the layout of huggingface_hub."""
    for i in range(3):
        write("%s/blobs/b%d" % (top, i), os.urandom(100000))
        os.makedirs(top + "/snapshots/abc", exist_ok=True)
        os.symlink("../../blobs/b%d" % i, "%s/snapshots/abc/part-%d.safetensors" % (top, i))
    write(top + "/snapshots/abc/README.md", b"hi")
    write(top + "/snapshots/abc/.leatignore")
    return top + "/snapshots/abc"


def test_a_hub_snapshot_is_staged_as_its_files(c):
    for k, place in enumerate(places(c)):
        to = "%s/stage-hub%d" % (c.dir, k)
        src = hub(place + "hub")
        done = leat_json(c, 0, "stage", "in", src, "--to", to)
        assert done["not_copied"] == [] and done["files"] == 5, done
        got = tree(done["path"])
        assert len(got) == 5 and all(v[0] == "file" for v in got.values()), got
        for name, what in got.items():
            with open(os.path.join(os.fsencode(src), name), "rb") as f:
                assert f.read() == what[1], name
        # Staging again moves nothing. Staging after a change of one blob finds the change.
        assert leat_json(c, 0, "stage", "in", src, "--to", to)["bytes_moved"] == 0
        write(place + "hub/blobs/b1", os.urandom(100000))
        again = leat_json(c, 0, "stage", "in", src, "--to", to)
        assert again["id"] != done["id"]
    c.leat("dataset", "create", "hub@v1", c.mnt() + "/hub/snapshots/abc")
    named = leat_json(c, 0, "stage", "in", "hub@v1", "--to", c.dir + "/stage-named")
    assert len(tree(named["path"])) == 5
    assert leat(c, "stage", "verify", "hub@v1", "--to", c.dir + "/stage-named")[0] == 0
    leat_json(c, 0, "dataset", "seal", "hub@v1")


def fill(top):
    """Fills the directory. Returns what the copy must contain."""
    for name in NAMES:
        write(os.fsdecode(os.path.join(os.fsencode(top), b"names", name)), name)
    os.makedirs(top + "/empty/below")
    write(top + "/d/file", b"z" * 5000)
    os.symlink("d/file", top + "/link")
    os.symlink("../link", top + "/d/link-to-link")
    os.symlink("d", top + "/link-to-dir")
    os.symlink(b"names/" + NAMES[0], os.fsencode(top) + b"/l\xe4nk")
    write(top + "/sub/.leat/user", b"mine")
    for at, dirs, files in os.walk(os.fsencode(top), topdown=False):
        for name in dirs + files:
            os.utime(os.path.join(at, name), ns=(10**18, 10**18 + len(name)), follow_symlinks=False)
    os.utime(top, ns=(10**18, 10**18))
    return tree(top)


def test_links_directories_times_and_names_are_those_of_the_source(c):
    for k, place in enumerate(places(c)):
        src, to = place + "all", "%s/stage-all%d" % (c.dir, k)
        want = fill(src)
        done = leat_json(c, 0, "stage", "in", src, "--to", to)
        assert done["not_copied"] == [], done
        got = tree(done["path"])
        assert got == want, (set(got.items()) ^ set(want.items()))
        assert os.stat(done["path"]).st_mtime_ns == 10**18
        # A copy without one of its links or empty directories is not complete.
        os.rmdir(done["path"] + "/empty/below")
        os.unlink(done["path"] + "/link")
        os.symlink("/etc/passwd", done["path"] + "/link")
        assert leat(c, "stage", "path", src, "--to", to)[0] == 3
        done = leat_json(c, 0, "stage", "in", src, "--to", to)
        assert tree(done["path"]) == want and done["bytes_moved"] == 0
        for verb in (["stage", "ls", "--to", to], ["stage", "events", "--to", to],
                     ["stage", "status", src, "--to", to]):
            for line in leat(c, *verb, "--json")[1].splitlines():
                json.loads(line)
        # Staging out gives an equal tree.
        leat_json(c, 0, "stage", "out", src, place + "out")
        got = tree(place + "out")
        assert got == want, (set(got.items()) ^ set(want.items()))
        # Empty directories and links are content.
        os.rmdir(src + "/empty/below")
        other = leat_json(c, 0, "stage", "in", src, "--to", to)
        assert other["id"] != done["id"]
    c.leat("dataset", "create", "all@v1", c.mnt() + "/all")
    named = leat_json(c, 0, "stage", "in", "all@v1", "--to", c.dir + "/stage-all")
    assert tree(named["path"]) == tree(c.mnt() + "/all")


def odd(top):
    write(top + "/file", b"x" * 1000)
    os.makedirs(top + "/../beside/dir", exist_ok=True)
    os.symlink("nothing", top + "/dangling")
    os.symlink("file/", top + "/slash")
    os.symlink("loop-b", top + "/loop-a")
    os.symlink("loop-a", top + "/loop-b")
    os.symlink("../beside/dir", top + "/folder")
    os.symlink("/proc/version", top + "/elsewhere")
    os.symlink("/dev/null", top + "/null")
    os.mkfifo(top + "/pipe\xfc".encode("latin1").decode("utf8", "surrogateescape"))
    s = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(top)
    s.bind("socket")
    os.chdir(here)
    s.close()


def by_why(done):
    return {l["why"]: (l["count"], [n["name"] for n in l["names"]]) for l in done["not_copied"]}


def test_what_is_left_out_is_told_and_the_status_is_partial(c):
    for k, place in enumerate(places(c)):
        src, to = place + "odd/tree", "%s/stage-odd%d" % (c.dir, k)
        os.makedirs(src)
        odd(src)
        done = leat_json(c, 5, "stage", "in", src, "--to", to)
        why = by_why(done)
        # /proc and /dev of the namespace are not the machine's: those links dangle.
        links = 2 + 2 * (k == 0)
        assert why["dangling"][0] == links, why
        assert set(why["dangling"][1]) <= {"dangling", "slash", "elsewhere", "null"}, why
        assert why["loop"] == (2, ["loop-a", "loop-b"]), why
        assert why["directory"] == (1, ["folder"]), why
        assert why["socket"] == (1, ["socket"]), why
        assert why["pipe"] == (1, ["pipe\ufffd"]), why
        names = [l for l in done["not_copied"] if l["why"] == "pipe"][0]["names"]
        assert base64.b64decode(names[0]["name_b64"]) == b"pipe\xfc"
        assert ("outside" in why) == (k == 1), why
        assert done["skipped"] == 9 and done["state"] == "READY", done
        assert [k for k in tree(done["path"])] == [b"file"]
        code, out, _ = leat(c, "stage", "in", src, "--to", to)
        assert code == 5 and b"not copied: 2 symbolic links that lead back" in out, out
        assert b"--skip links,special" in out, out
        assert leat(c, "stage", "in", src, "--to", to, "--skip", "links")[0] == 5
        code, out, _ = leat(c, "stage", "in", src, "--to", to, "--skip", "links,special")
        assert code == 0 and b"not copied" in out and b"--skip" not in out, out
        assert leat(c, "stage", "in", src, "--to", to, "--skip", "files")[0] == 2
        assert by_why(leat_json(c, 5, "stage", "out", src, place + "odd-out"))["loop"][0] == 2
        assert [k for k in tree(place + "odd-out")] == [b"file"]
    made = leat_json(c, 5, "dataset", "create", "odd@v1", c.mnt() + "/odd/tree")
    assert by_why(made)["loop"][0] == 2, made
    assert leat(c, "dataset", "create", "odd@v2", c.mnt() + "/odd/tree", "--skip",
                "links,special")[0] == 0


class Agents:
    """Two agents on this machine."""

    def __init__(self, c, name):
        self.ports, self.all = free_ports(2), []
        self.dirs = ["%s/%s-agent%d" % (c.dir, name, i) for i in range(2)]
        self.nodes = ",".join("%s:%d" % (HERE, p) for p in self.ports)
        for port, place in zip(self.ports, self.dirs):
            ready = place + "-ready"
            self.all.append(subprocess.Popen(
                [BUILD + "/leat", "--conf", c.dev + "/conf", "agent", "--set", "dirs=" + place,
                 "--set", "listen=%s:%d" % (HERE, port), "--set", "node=n%d" % port,
                 "--set", "report_ms=200", "--ready-file", ready]))
            wait_until(lambda r=ready: os.path.exists(r) and os.path.getsize(r), 20, "an agent")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.all:
            p.terminate()
            p.wait()


def test_agents_and_together_tell_what_is_left_out(c):
    src = c.mnt() + "/odd/tree"
    with Agents(c, "odd") as a:
        done = leat_json(c, 5, "stage", "in", src, "--nodes", a.nodes)
        assert by_why(done)["loop"] == (2, ["loop-a", "loop-b"]) and done["ready"] == 2, done
        names = [l for l in done["not_copied"] if l["why"] == "pipe"][0]["names"]
        assert base64.b64decode(names[0]["name_b64"]) == b"pipe\xfc" and done["skipped"] == 9
        for place in a.dirs:
            assert tree(leat(c, "stage", "path", src, "--to", place)[1].decode().strip())
        skip = ("--skip", "links,special")
        assert leat(c, "stage", "in", src, "--nodes", a.nodes, *skip)[0] == 0
        code, out, _ = leat(c, "stage", "in", src, "--agent", a.nodes.split(",")[0])
        assert code == 5 and b"not copied: 2 symbolic links that lead back" in out, (code, out)
    together = ("stage", "in", src, "--to", c.dir + "/odd-together", "--together", "1", "--listen",
                HERE + ":0")
    assert by_why(leat_json(c, 5, *together))["loop"][0] == 2
    code, out, _ = leat(c, *together)
    assert code == 5 and b"--skip links,special" in out, (code, out)
    assert leat(c, *together, *skip)[0] == 0


def test_names_of_any_bytes_by_cp_and_by_agents(c):
    src = c.mnt() + "/names"
    want = fill(src)
    for place in (c.dir + "/names-cp", c.mnt() + "/names-cp"):
        c.leat("cp", "-a", src, place)
        assert tree(place) == want
        # Copying back from this machine gives an equal tree.
        c.leat("cp", "-a", place, c.mnt() + "/names-again")
        assert tree(c.mnt() + "/names-again") == want
        c.leat("rm", "-r", c.mnt() + "/names-again")
    with Agents(c, "names") as a:
        leat_json(c, 0, "stage", "in", src, "--nodes", a.nodes)
        for place in a.dirs:
            copy = leat(c, "stage", "path", src, "--to", place)[1].decode().strip()
            assert tree(copy) == want
    # Each event printed is a line of JSON, even if the file contains garbage.
    to = a.dirs[0]
    with open(to + "/.leat/events", "ab") as f:
        f.write(b"\x1b]0;no event\x07\n{\"event\":\"\xff\"}\n{\"event\":\"\xc2\x9b\"}\n")
    code, out, _ = leat(c, "stage", "events", "--to", to)
    assert code == 0 and b"READY" in out, out
    assert b"\x1b" not in out and b"\xff" not in out and b"\xc2\x9b" not in out, out


def may_read(user, groups, path):
    who = ["setpriv", "--reuid", str(user), "--regid", str(user)]
    who += ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
    return subprocess.run(who + ["cat", path], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def test_what_tells_of_a_data_set_is_for_those_who_may_read_it(c):
    os.chmod(c.mnt(), 0o755)
    team, other = 13001, 13002
    cases = [  # modes of folder and file, owner of the second file; readable by: alice, team, bob
        (0o755, 0o644, ALICE, (True, True, True)),
        (0o750, 0o644, ALICE, (True, True, False)),
        (0o755, 0o640, ALICE, (True, True, False)),
        (0o700, 0o644, ALICE, (True, False, False)),
        (0o755, 0o600, ALICE, (True, False, False)),
        (0o755, 0o640, BOB, (False, True, False)),
        (0o755, 0o600, BOB, (False, False, False)),
    ]
    for k, (folder, mode, owner, want) in enumerate(cases):
        top = "%s/rights%d" % (c.mnt(), k)
        write(top + "/d/one", b"1")
        write(top + "/d/two", b"2%d" % k)
        for path, uid, bits in ((top, ALICE, folder), (top + "/d", ALICE, 0o755),
                                (top + "/d/one", ALICE, mode), (top + "/d/two", owner, mode)):
            os.chown(path, uid, team)
            os.chmod(path, bits)
        made = leat_json(c, 0, "dataset", "create", "rights%d@v1" % k, top)
        by_id = "%s/.leat/datasets/by-id/%s" % (c.mnt(), made["id"])
        word, = os.listdir(by_id)
        for part in ("manifest", "sums", "samples"):
            path = "%s/%s/%s" % (by_id, word, part)
            got = (may_read(ALICE, [], path), may_read(other, [team], path),
                   may_read(other, [], path))
            assert got == want, (cases[k], part, got)
            assert os.lstat(path).st_uid == 0
    # Modes above the data set count, too.
    os.mkdir(c.mnt() + "/closed", 0o700)
    write(c.mnt() + "/closed/open/file")
    made = leat_json(c, 0, "dataset", "create", "closed@v1", c.mnt() + "/closed/open")
    word, = os.listdir("%s/.leat/datasets/by-id/%s" % (c.mnt(), made["id"]))
    assert not may_read(other, [], "%s/.leat/datasets/by-id/%s/%s/manifest" %
                        (c.mnt(), made["id"], word))


def test_a_planted_link_opens_nothing(c):
    """alice's links name a file of root, and one in a directory of bob that she may not search. The
    files of the copy are readable by exactly the users who could read those."""
    for k, place in enumerate(places(c)):
        top, to = place + "planted", "%s/stage-planted%d" % (c.dir, k)
        write(top + "/secret/root-only", b"r")
        os.chmod(top + "/secret/root-only", 0o600)
        write(top + "/bobs/readable", b"b")
        for path in (top + "/bobs", top + "/bobs/readable"):
            os.chown(path, BOB, BOB)
        os.chmod(top + "/bobs", 0o700)
        os.chmod(top + "/bobs/readable", 0o644)
        os.makedirs(top + "/alices")
        os.chown(top + "/alices", ALICE, ALICE)
        os.symlink("../secret/root-only", top + "/alices/a")
        os.symlink("../bobs/readable", top + "/alices/b")
        c.leat("stage", "in", top + "/alices", "--to", to)
        ids = [n for n in os.listdir(to + "/.leat") if len(n) == 64]
        with open("%s/.leat/%s/manifest" % (to, ids[0]), encoding="utf8") as f:
            rows = [json.loads(line) for line in f]
        a, b = [r for r in rows if "path" in r]
        assert (a["mode"], a["uid"]) == (0o600, 0), a
        assert (b["mode"], b["uid"]) == (0o400, BOB), b
        assert b["from"].endswith("/planted/bobs/readable"), b


def test_holes_need_no_space(c):
    step = 640 << 20
    for k, place in enumerate(places(c)):
        size = (3, 10)[k] << 30
        src, to = place + "holes", "%s/stage-holes%d" % (c.dir, k)
        write(src + "/sparse", b"")
        pieces = {at: os.urandom(65536) for at in range(12288, size, step)}
        with open(src + "/sparse", "r+b") as f:
            f.truncate(size)
            for at, data in pieces.items():
                f.seek(at)
                f.write(data)
        done = leat_json(c, 0, "stage", "in", src, "--to", to, "--capacity", "4M")
        assert done["bytes"] == size and done["bytes_moved"] <= 32 << 20, done
        assert leat_json(c, 0, "stage", "status", src, "--to", to)["bytes_data"] <= 2 << 20
        leat_json(c, 0, "stage", "out", done["path"], place + "holes-out")
        for path in (done["path"], place + "holes-out"):
            st = os.stat(path + "/sparse")
            assert st.st_size == size and st.st_blocks * 512 < 4 << 20, (path, st)
            with open(path + "/sparse", "rb") as f:
                for at, data in pieces.items():
                    f.seek(at - 100)
                    assert f.read(65636) == bytes(100) + data, (path, at)
            os.unlink(path + "/sparse")


run_tests(globals())
