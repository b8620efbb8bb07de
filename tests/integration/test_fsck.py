#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""leat fsck finds every kind of planted damage, names it, changes nothing without --repair, and
repairs it with --repair; in a sound system under load it finds nothing."""
import json
import os
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, run_tests, wait_until

CLUSTER = {"ossd": 3, "size": "256M", "mounts": 2}
SOUND, REPAIRED, LEFT, USAGE = 0, 1, 4, 16
SERVERS = ["mds", "ossd1", "ossd2", "ossd3"]


def fsck(c, *args, expect=SOUND):
    r = c.leat("fsck", "--json", *args, check=False)
    assert r.returncode == expect, (r.returncode, r.stdout, r.stderr)
    return json.loads(r.stdout)


def kinds(report):
    return {f["kind"] for f in report["findings"]}


def said(report, kind, words):
    """The report has exactly this one kind, with these words."""
    assert kinds(report) == {kind}, report["findings"]
    assert any(words in f["what"] for f in report["findings"]), (words, report["findings"])


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())
    return os.stat(path).st_ino


def store(c, name):
    if name != "mds":
        return "%s/%s/store/index" % (c.dev, name)
    top = c.dev + "/mds/store"
    for folder in [top] + [top + "/" + d for d in sorted(os.listdir(top))]:
        if os.path.exists(folder + "/CURRENT"):
            return folder
    raise AssertionError("no metadata store")


def plant(c, *edits):
    """Makes each edit, (server, word, numbers...), on stopped servers. Restarts the mounts."""
    for n in (1, 2):
        c.stop("mnt%d" % n)
    for name in SERVERS[1:] + ["mds"]:
        c.stop(name)
    changed = 0
    for name, *words in edits:
        r = subprocess.run([BUILD + "/tests/store_edit", store(c, name)] +
                           [str(w) for w in words], stdin=subprocess.DEVNULL, timeout=300,
                           stdout=subprocess.PIPE, text=True)
        assert r.returncode in (0, 1), (name, words)
        changed += int(r.stdout)
    assert changed, edits
    for name in SERVERS:
        c.start(name)
    wait_until(lambda: c.status()["cluster"]["targets_up"] == 3, 20, "targets are up")
    wait_until(lambda: c.status()["mds"]["chains"]["whole"] ==
               c.status()["mds"]["chains"]["n"], 30, "chains are whole")
    for n in (1, 2):
        c.start("mnt%d" % n)


def settled(c):
    """Waits until queued removals are done and files are closed."""
    wait_until(lambda: c.status()["mds"]["removals_waiting"] == 0 and
               c.status()["mds"]["recovery"]["state"] == "done", 30, "the server is at rest")


def test_sound(c):
    m = c.mnt(1)
    os.mkdir(m + "/two")
    c.leat("layout", "set", "--replicas", "2", m + "/two")
    os.mkdir(m + "/dir")
    for i in range(40):
        put("%s/dir/f%d" % (m, i), os.urandom(3000 * i))
    for i in range(6):
        put("%s/two/f%d" % (m, i), os.urandom((1 << 20) + 5000 * i))
    os.link(m + "/dir/f3", m + "/two/link")
    os.symlink("f3", m + "/dir/symlink")
    with open(m + "/dir/sparse", "wb") as f:
        f.truncate(5 << 20)
    with open(m + "/dir/cut", "wb") as f:
        f.seek(5 << 20)
        f.write(b"x" * 100000)
    os.truncate(m + "/dir/cut", 1 << 20)  # leaves a hole only
    settled(c)
    wait_until(lambda: not fsck(c)["busy"], 20, "all files are closed")
    r = fsck(c)
    assert r["sound"] and r["inodes"] == 52 and r["chunks"] >= 46, r
    assert not r["findings"] and not r["notes"] and not r["busy"], r
    # Windows of a few inodes give an equal result.
    small = fsck(c, "--window", "7")
    assert small["sound"] and small["entries"] == r["entries"] and small["notes"], small
    text = c.leat("fsck").stdout
    assert "52 inodes" in text and text.rstrip().endswith(": sound"), text


def test_busy(c):
    stop, errors = [], []

    def work(n):
        m, i = c.mnt(n % 2 + 1), 0
        try:
            while not stop:
                d = "%s/busy%d-%d" % (m, n, i % 7)
                os.mkdir(d)
                for k in range(6):
                    with open("%s/%d" % (d, k), "wb") as f:
                        f.write(os.urandom(200000))
                os.link(d + "/0", d + "/hard")
                os.rename(d + "/1", d + "/2")
                os.truncate(d + "/3", 1000)
                os.truncate(d + "/4", 0)
                with open(d + "/5", "r+b") as f:
                    os.unlink(d + "/5")
                    f.write(b"still open")
                shutil.rmtree(d)
                i += 1
        except OSError as e:
            errors.append("%s: %s" % (n, e))

    def overwrite():
        i = 0
        while not stop:
            with open("%s/two/f%d" % (c.mnt(2), i % 6), "r+b") as f:
                f.seek(i * 4096 % (1 << 20))
                f.write(os.urandom(4096))
            i += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    threads.append(threading.Thread(target=overwrite))
    for t in threads:
        t.start()
    try:
        end, n = time.monotonic() + 12, 0
        while time.monotonic() < end or n < 3:
            r = fsck(c, *(["--window", "50"] if n % 2 else []))
            assert r["sound"] and not r["findings"], r
            n += 1
    finally:
        stop.append(1)
        for t in threads:
            t.join()
    print("    %d checks under load" % n)
    assert not errors, errors
    settled(c)
    assert not fsck(c)["findings"]


def repair(c, kind):
    """fsck changes nothing without --repair, or with another word; with the right one it
    repairs."""
    other = "names" if kind != "names" else "links"
    before = fsck(c, expect=LEFT)
    assert fsck(c, "--repair=" + other, expect=LEFT)["findings"] == before["findings"]
    done = fsck(c, "--repair=" + kind, expect=REPAIRED)
    assert done["sound"] and done["counts"][kind]["repaired"] >= 1, done
    again = fsck(c, "--repair=" + kind)
    assert again["sound"] and not again["repairs"], again


def test_entry_of_nothing(c):
    ino = os.stat(c.mnt(1) + "/dir/f1").st_ino
    plant(c, ("mds", "drop-inode", ino))
    r = fsck(c, expect=LEFT)
    assert "entries" in kinds(r), r["findings"]
    assert any("'f1'" in f["what"] and "inode %d does not exist" % ino in f["what"]
               for f in r["findings"]), r["findings"]
    assert any("number of inodes, 52, should be 51" in f["what"] for f in r["findings"]), r
    r = fsck(c, "--repair=entries,orphans,links", expect=REPAIRED)
    assert r["sound"] and c.status()["mds"]["inodes"] == 51, r
    assert "f1" not in os.listdir(c.mnt(1) + "/dir")
    assert fsck(c)["sound"]


def test_link_count(c):
    ino = os.stat(c.mnt(1) + "/dir/f3").st_ino
    plant(c, ("mds", "nlink", ino, 7))
    said(fsck(c, expect=LEFT), "links", "inode %d: link count 7 should be 2" % ino)
    repair(c, "links")
    time.sleep(1.1)
    assert os.stat(c.mnt(1) + "/dir/f3").st_nlink == 2


def test_link_count_of_a_directory(c):
    ino = os.stat(c.mnt(1) + "/two").st_ino
    plant(c, ("mds", "nlink", ino, 9))
    said(fsck(c, "--window", "5", expect=LEFT), "links", "inode %d: link count 9" % ino)
    repair(c, "links")


def test_no_name(c):
    path = c.mnt(1) + "/dir/f5"
    ino = os.stat(path).st_ino
    with open(path, "rb") as f:
        data = f.read()
    plant(c, ("mds", "drop-entry", ino))
    r = fsck(c, expect=LEFT)
    assert kinds(r) == {"names", "links"}, r["findings"]  # its directory also has one entry too few
    assert any("inode %d: has no name" % ino in f["what"] for f in r["findings"]), r
    done = fsck(c, "--repair=names,links", expect=REPAIRED)
    assert done["sound"], done
    with open("%s/lost+found/ino.%d" % (c.mnt(2), ino), "rb") as f:
        assert f.read() == data


def test_false_orphan(c):
    ino = os.stat(c.mnt(1) + "/dir/f6").st_ino
    plant(c, ("mds", "orphan", 4999))
    r = c.leat("fsck", "--json", check=False)
    # The server itself removes false orphans when it starts.
    assert r.returncode in (SOUND, LEFT), r
    if r.returncode == LEFT:
        said(json.loads(r.stdout), "orphans", "orphan 4999: there is no such inode")
        repair(c, "orphans")
    assert os.stat(c.mnt(1) + "/dir/f6").st_ino == ino


def test_data_that_belongs_to_nothing(c):
    ino = os.stat(c.mnt(1) + "/dir/f20").st_ino
    # Name and inode are missing, the chunks are there.
    plant(c, ("mds", "drop-inode", ino), ("mds", "drop-entry", ino))
    r = fsck(c, expect=LEFT)
    assert "orphans" in kinds(r), r
    assert any("inode %d generation" % ino in f["what"] for f in r["findings"]), r
    # Repairs the number of inodes, and of the directory's entries.
    assert fsck(c, "--repair=links", expect=LEFT | REPAIRED)["counts"]["orphans"]["left"]
    used = c.status()["cluster"]["used"]
    repair(c, "orphans")
    wait_until(lambda: c.status()["cluster"]["used"] < used, 10, "the space is back")


def test_data_of_an_old_generation(c):
    ino = os.stat(c.mnt(1) + "/two/f5").st_ino
    plant(c, ("mds", "gen", ino, 5))
    r = fsck(c, expect=LEFT)
    assert kinds(r) == {"orphans", "missing"}, r["findings"]  # the new generation has no data
    assert any("inode %d generation 1: " % ino in f["what"] for f in r["findings"]), r
    r = fsck(c, "--repair=orphans", expect=LEFT | REPAIRED)
    assert kinds(r) == {"missing"} and r["counts"]["orphans"]["left"] == 0, r
    os.unlink(c.mnt(1) + "/two/f5")
    settled(c)
    assert fsck(c)["sound"]


def test_size_too_small(c):
    path = c.mnt(1) + "/dir/f30"
    ino, size = os.stat(path).st_ino, os.stat(path).st_size
    plant(c, ("mds", "size", ino, 17))
    said(fsck(c, expect=LEFT), "sizes", "inode %d: size 17, but data up to %d" % (ino, size))
    repair(c, "sizes")
    wait_until(lambda: os.stat(path).st_size == size, 5, "the size is right")


def drop_copies(c, inos, word):
    """Drops chunks on the first server that has any. Returns the number of files."""
    for server in SERVERS[1:]:
        c.stop(server)  # the test cannot tell beforehand which server has a replica
        n = sum(subprocess.run([BUILD + "/tests/store_edit", store(c, server), word, str(ino)],
                               stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False,
                               timeout=300).returncode == 0 for ino in inos)
        c.start(server)
        if n > 0:
            break
    wait_until(lambda: c.status()["mds"]["chains"]["whole"] ==
               c.status()["mds"]["chains"]["n"], 30, "chains are whole")
    return n


def test_a_lost_copy_comes_back(c):
    """At its start the server finds that its index misses chunks, and is resynced."""
    drop_copies(c, [os.stat(c.mnt(1) + "/two/f2").st_ino], "drop-chunks")
    assert fsck(c)["sound"]


def test_a_copy_is_missing(c):
    path = c.mnt(1) + "/two/f2"
    ino = os.stat(path).st_ino
    with open(path, "rb") as f:
        data = f.read()
    drop_copies(c, [ino], "forget-chunks")
    r = fsck(c, expect=LEFT)
    said(r, "copies", "inode %d generation" % ino)
    fsck(c, "--repair=links", expect=LEFT)
    done = fsck(c, "--repair=copies")
    assert done["sound"], done
    with open(path, "rb") as f:
        assert f.read() == data


def test_copies_of_many_files_are_missing(c):
    """fsck names each file; one scrub repairs all chunks of a target."""
    # Not the link: its target has one replica.
    inos = [f.stat().st_ino for f in os.scandir(c.mnt(1) + "/two") if f.name != "link"]
    n = drop_copies(c, inos, "forget-chunks")
    r = fsck(c, expect=LEFT)
    named = {ino for ino in inos for f in r["findings"]
             if f["kind"] == "copies" and "inode %d generation" % ino in f["what"]}
    assert len(named) == n > 1, (n, r)
    assert fsck(c, "--repair=copies")["sound"]


def test_data_is_gone(c):
    ino = os.stat(c.mnt(1) + "/two/f4").st_ino
    plant(c, *[(s, "drop-chunks", ino) for s in SERVERS[1:]])
    r = fsck(c, "--repair=all", expect=LEFT)
    said(r, "missing", "inode %d generation" % ino)
    assert [f for f in r["findings"] if f["what"].endswith("lost in all 2 copies")], r
    os.unlink(c.mnt(1) + "/two/f4")
    settled(c)
    assert fsck(c)["sound"]


def test_members_come_and_go(c):
    """While a chain changes, its replicas differ for good reasons."""
    stop = []

    def overwrite(n):
        i = 0
        while not stop:
            with open("%s/two/f%d" % (c.mnt(n), n), "r+b") as f:
                os.pwrite(f.fileno(), os.urandom(65536), i * 65536 % (1 << 20))
                os.fsync(f.fileno())
            i += 1

    threads = [threading.Thread(target=overwrite, args=(n,)) for n in (1, 2)]
    for t in threads:
        t.start()
    try:
        for down in (True, False):
            (c.kill if down else c.start)("ossd2")
            end, n = time.monotonic() + 3, 0
            while time.monotonic() < end or n < 3:
                n += 1
                r = c.leat("fsck", "--json", check=False)
                assert r.returncode in (SOUND, 8), (r.stdout, r.stderr)
                assert not json.loads(r.stdout)["findings"], r.stdout
    finally:
        stop.append(1)
        for t in threads:
            t.join()
    wait_until(lambda: c.status()["mds"]["chains"]["whole"] ==
               c.status()["mds"]["chains"]["n"], 30, "chains are whole")
    assert fsck(c)["sound"]


def test_command_line(c):
    for args in (["--repair=missing"], ["--repair=x"], ["--window", "0"], ["more"]):
        assert c.leat("fsck", *args, check=False).returncode == USAGE, args
    help_text = c.leat("fsck", "--help").stdout
    assert "--repair" in help_text and "Exit status" in help_text


def test_only_with_the_key(c):
    # A program of another user cannot read the key.
    r = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", BUILD + "/leat", "--conf",
                        c.dev + "/conf", "fsck"], stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, timeout=120)
    assert r.returncode in (8, 16) and "permission denied" in r.stderr.lower(), r


def test_an_object_server_is_away(c):
    c.kill("ossd3")
    r = c.leat("fsck", "--json", check=False)
    report = json.loads(r.stdout)
    assert r.returncode == 8 and report["sound"] and report["unread"] > 0, r
    c.start("ossd3")


def test_the_stores_are_sound(c):
    r = c.check_stores(check=False, stdout=subprocess.PIPE, text=True)
    assert r.returncode == 0, r.stdout


if __name__ == "__main__":
    run_tests(globals())
