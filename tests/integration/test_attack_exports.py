#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""The rules of `leat export` refuse operations to a client that has the cluster's key and sends
forged frames. The client uses other addresses of the loopback interface."""
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")

import frames
from cluster import BUILD, free_ports, put, run_tests, wait_until
from frames import AGENT, CLIENT, CRED_CHECKED, MDS, OSSD, TOOL, Peer, cred

CLUSTER = {"mounts": 1, "ossd": 2, "size": "256M", "replicas": 2,
           "conf": {"mds": {"session_ttl_ms": 12000}}}
ALICE, BOB, NOBODY, NOGROUP = 2001, 2002, 7777, 7778
FREE, SQUASHED, READ_ONLY, ALL_SQUASHED, BOTH = ["127.0.0.%d" % n for n in range(1, 6)]
ROWS = {SQUASHED: ["--root-squash"], READ_ONLY: ["--ro"], ALL_SQUASHED: ["--all-squash"],
        BOTH: ["--ro", "--root-squash"]}
M = frames.Messages()
SET_MODE, SET_UID, SET_GID, SET_SIZE, SET_SEALED, SET_PROJECT = 1, 2, 4, 8, 512, 8192
SET_KILL_SUID = 1024


def mds_of(c):
    m = re.search(r"^mds = (\S+):(\d+)$", open(c.dev + "/conf").read(), re.M)
    return m.group(1), int(m.group(2))


def peer(c, source, role=CLIENT, addr=None):
    return Peer(addr or mds_of(c), frames.read_key(c.dev + "/key"), role, source, M)


def rows(c):
    for source, words in ROWS.items():
        c.leat("export", "add", "--anon-uid", str(NOBODY), "--anon-gid", str(NOGROUP), *words,
               source)


# ---- every operation, with every lie ----

class Tree:
    """A directory with one file of each kind, to operate on. open_: all users may do everything."""

    def __init__(self, c, name, open_):
        self.path, self.open = "%s/%s" % (c.mnt(), name), open_
        self.make()

    def make(self):
        shutil.rmtree(self.path, ignore_errors=True)
        os.mkdir(self.path)
        put(self.path + "/file", b"content")
        os.setxattr(self.path + "/file", "user.old", b"1")
        os.setxattr(self.path + "/file", "trusted.old", b"1")
        os.mkdir(self.path + "/empty")
        os.symlink("target", self.path + "/link")
        for name, mode in (("/file", 0o660), ("/empty", 0o770), ("", 0o770)):
            os.chown(self.path + name, ALICE, 0)
            os.chmod(self.path + name, mode | (mode >> 3 if self.open else 0))
        self.ino = {n: os.lstat("%s/%s" % (self.path, n)).st_ino for n in ("file", "link", "empty")}
        self.ino["."] = os.lstat(self.path).st_ino
        self.was = self.look()

    def look(self):
        """The state of the whole tree, but for times and paths."""
        def one(path):
            st = os.lstat(path)
            names = [] if os.path.islink(path) else sorted(os.listxattr(path))
            return (st.st_mode, st.st_uid, st.st_gid, st.st_nlink,
                    0 if os.path.isdir(path) else st.st_size,
                    [(n, os.getxattr(path, n)) for n in names])
        return [("", one(self.path))] + [(n, one(self.path + "/" + n))
                                         for n in sorted(os.listdir(self.path))]


def attempts(t):
    """(operation, fields but the credential), for each operation that has a credential."""
    file, top = t.ino["file"], t.ino["."]
    at = {"parent": top, "name": b"new"}
    return [
        ("mds_lookup", {"parent": top, "name": b"file"}),
        ("mds_getattr", {"ino": file}),
        ("mds_setattr", {"ino": file, "mask": SET_MODE, "attr": {"mode": 0o104777}}),
        ("mds_setattr", {"ino": file, "mask": SET_UID | SET_GID, "attr": {"uid": 0, "gid": 0}}),
        ("mds_setattr", {"ino": file, "mask": SET_SIZE, "attr": {"size": 1}}),
        ("mds_setattr", {"ino": file, "mask": SET_PROJECT, "attr": {"project": 1}}),
        ("mds_create", dict(at, mode=0o104755, flags=os.O_RDWR)),
        ("mds_mknod", dict(at, mode=0o020666, rdev=0x103)),
        ("mds_mkdir", dict(at, mode=0o755)),
        ("mds_symlink", dict(at, target=b"elsewhere")),
        ("mds_readlink", {"ino": t.ino["link"]}),
        ("mds_link", dict(at, ino=file)),
        ("mds_unlink", {"parent": top, "name": b"file"}),
        ("mds_rmdir", {"parent": top, "name": b"empty"}),
        ("mds_rename", {"parent": top, "name": b"file", "new_parent": top, "new_name": b"new"}),
        ("mds_readdir", {"ino": top, "max_bytes": 4096, "flags": 1}),
        ("mds_open", {"ino": file, "flags": os.O_RDONLY}),
        ("mds_open", {"ino": file, "flags": os.O_RDWR}),
        ("mds_fallocate", {"ino": file, "len": 8192}),
        ("mds_getxattr", {"ino": file, "name": b"user.old"}),
        ("mds_getxattr", {"ino": file, "name": b"trusted.old"}),
        ("mds_setxattr", {"ino": file, "name": b"user.new", "value": b"1"}),
        ("mds_setxattr", {"ino": file, "name": b"trusted.new", "value": b"1"}),
        ("mds_setxattr", {"ino": file, "name": b"security.new", "value": b"1"}),
        ("mds_listxattr", {"ino": file}),
        ("mds_removexattr", {"ino": file, "name": b"user.old"}),
        ("mds_layout_set", {"ino": t.ino["empty"], "layout": {"replicas": 1}}),
        ("mds_access", {"ino": file, "mask": 7}),
        ("mds_tmpfile", {"parent": top, "mode": 0o600, "flags": os.O_RDWR}),
        ("mds_copy", {"ino": file, "len": 7}),
        ("mds_quota_set", {"ino": top, "mask": 1, "bytes_hard": 1 << 20}),
        ("mds_quota_list", {}),
    ]


# (the credential that a client sends, the one that it counts as), where root is squashed
LIES = [
    (cred(0, 0), cred(NOBODY, NOGROUP)),
    (cred(BOB, 0), cred(BOB, NOGROUP)),
    (cred(BOB, BOB, groups=[5, 0, 6]), cred(BOB, BOB, groups=[5, 6])),
    (cred(BOB, BOB, CRED_CHECKED), cred(BOB, BOB)),
    (cred(BOB, BOB, 0xffffffff), cred(BOB, BOB)),
    (cred(0, 0, CRED_CHECKED, groups=[0]), cred(NOBODY, NOGROUP)),
]


def fields_of(name, values):
    known = {f for _, f in M.fields[name + "_req"]}
    return {k: v for k, v in values.items() if k in known}


def differences(c, p, lies, open_):
    """Runs each operation with a lie on one tree and with the truth on another. Returns operations
    with different results or effects, and the number of successes."""
    liar, honest = Tree(c, "liar", open_), Tree(c, "honest", open_)
    found, n_done = [], 0
    for k in range(len(attempts(liar))):
        for said, true in lies:
            results = []
            for tree, who in ((liar, said), (honest, true)):
                name, values = attempts(tree)[k]
                status, rep = p.ask(name, cred=who, **fields_of(name, values))
                if status == "OK" and name in ("mds_open", "mds_create", "mds_tmpfile"):
                    ino = rep["attr"]["ino"]
                    p.ask("mds_close", ino=ino, flags=values["flags"])
                results.append(status)
                n_done += status == "OK"
            if M.kind[name] == "WRITE" and ("OK" in results or said == lies[-1][0]):
                results += [liar.look(), honest.look()]
                for tree, now in ((liar, results[2]), (honest, results[3])):
                    if now != tree.was:
                        tree.make()
            if results[:1] + results[2:3] != results[1:2] + results[3:4]:
                found.append((name, values, said, results))
    return found, n_done


def test_all_operations_with_a_credential_are_tried(c):
    tried = {name for name, _ in attempts(Tree(c, "liar", True))}
    assert tried == {n[:-4] for n, fields in M.fields.items()
                     if n.endswith("_req") and ("cred", "cred") in fields}, tried


def test_nothing_that_a_client_says_of_itself_makes_it_more(c):
    rows(c)
    everybody = [(said, cred(NOBODY, NOGROUP)) for said, _ in LIES] + [
        (cred(ALICE, ALICE, CRED_CHECKED, groups=[0]), cred(NOBODY, NOGROUP))]
    for source, lies, open_ in ((SQUASHED, LIES, False), (SQUASHED, LIES, True),
                                (BOTH, LIES, True), (ALL_SQUASHED, everybody, False)):
        with peer(c, source, TOOL if open_ else CLIENT) as p:
            p.open_session()
            found, n_done = differences(c, p, lies, open_)
            assert not found, (source, len(found), found[0])
            # An honest client may do things; otherwise only refusals would be compared.
            assert n_done > 20 or not open_, (source, n_done)


def test_a_read_only_network_changes_nothing_whatever_it_says(c):
    tree = Tree(c, "liar", True)
    for role in (CLIENT, AGENT, TOOL):
        with peer(c, READ_ONLY, role) as p:
            p.open_session()
            for name, values in attempts(tree):
                status, _ = p.ask(name, cred=cred(0, 0, CRED_CHECKED), **fields_of(name, values))
                assert tree.look() == tree.was, (name, status)
                changes = M.kind[name] == "WRITE" and values.get("flags") != os.O_RDONLY
                assert status == "ROFS" if changes else status in ("OK", "ROFS"), (name, status)


def test_servers_are_not_believed_in_networks_of_less_rights(c):
    before = c.status()["targets"]
    uuid = os.urandom(16)
    rogue = {"mds_target_register": {"uuid": uuid, "addrs": b"127.0.0.2:1", "host": b"evil",
                                     "capacity": 1 << 40, "free": 1 << 40, "incarnation": 1},
             "mds_target_heartbeat": {"target": 1}, "mds_chain_synced": {"chain": 1},
             "mds_target_bad": {"target": 1}, "mds_session_list": {},
             "mds_residency_set": {"node": b"gpu01", "addrs": b"127.0.0.2:1", "ttl_ms": 60000,
                                   "rows": bytes()},
             "mds_target_admin": {"what": 1, "target": 1}, "mds_fsck_page": {"kind": 1},
             "mds_target_lose": {"what": 1, "accept": 1, "targets": b"\1\0\0\0"},
             "mds_fsck_repair": {"what": 1}, "mds_export_set": {"what": 2}}
    for source in ROWS:
        for role in (CLIENT, MDS, OSSD, AGENT, TOOL):
            with peer(c, source, role) as p:
                for name, values in rogue.items():
                    assert p.ask(name, **values)[0] == "PERM", (source, role, name)
                if role in (MDS, OSSD):
                    assert p.ask("mds_status")[0] == "PERM", (source, role)
                    tree = Tree(c, "liar", True)
                    for name, values in attempts(tree)[:3]:
                        assert p.ask(name, cred=cred(), **fields_of(name, values))[0] == "PERM"
    assert [t["id"] for t in c.status()["targets"]] == [t["id"] for t in before]
    # The servers' own network cannot become a restricted one.
    r = c.leat("export", "add", "--ro", "127.0.0.0/30", check=False)
    assert r.returncode == 1 and "machine" in r.stderr, r
    c.leat("export", "add", "127.0.0.1")
    c.leat("export", "add", "--ro", "127.0.0.0/30")
    wait_until(lambda: all(t["state"] == "up" for t in c.status()["targets"]), 10, "servers go on")
    for network in ("127.0.0.0/30", "127.0.0.1"):
        c.leat("export", "rm", network)


# ---- reads end with the session ----

def read_all(p, who, chains, at):
    """Reads the file's first bytes from each member of its chains: {(chain, target): result}."""
    ino, gen, cap = who
    said = {}
    for chain_id, chain in chains.items():
        for target in chain["targets"]:
            key = frames.read_key(at["key"])
            with Peer(at["targets"][target], key, CLIENT, at["source"], M) as q:
                q.session = p.session
                status, rep = q.ask("oss_read", cap=cap, len=4096,
                                    chunk={"ino": ino, "gen": gen, "idx": 0},
                                    frame={"target": target, "chain": chain_id,
                                           "epoch": chain["epoch"]})
                said[(chain_id, target)] = (status, rep and rep["end"])
    return said


def may_read(c, path, copies):
    """Opens a session and a file in it. Returns the arguments of read_all."""
    p = peer(c, FREE)
    p.open_session()
    attr = p.walk(path, cred())
    status, rep = p.ask("mds_open", cred=cred(), ino=attr["ino"], flags=os.O_RDONLY)
    assert status == "OK"
    targets, chains = p.map()
    return (p, (attr["ino"], rep["cap"]["gen"], rep["cap"]),
            {k: ch for k, ch in chains.items() if ch["replicas"] == copies},
            {"targets": targets, "key": c.dev + "/key", "source": FREE})


def test_a_read_right_ends_with_its_session(c):
    data = b"secret " * 512
    put(c.mnt() + "/data", data)

    def begin():
        began = may_read(c, "/data", 2)
        said = read_all(*began)
        held = {k: v for k, v in said.items() if v == ("OK", len(data))}
        assert len(held) == 2, said  # both replicas
        return began

    def refused(began):
        said = read_all(*began)
        return all(status == "SESSION_GONE" for status, _ in said.values()), said

    # The session is closed; the rights of its network change; its client falls silent.
    for how in ("close", "export", "silence"):
        p, who, chains, where = began = begin()
        if how == "close":
            try:
                assert p.ask("mds_session_close", session=p.session)[0] == "OK"
            except ConnectionError:
                pass  # the connection may close before the reply arrives
        elif how == "export":
            # A session of a network; then the network's rights are reduced.
            p.close()
            where["source"] = "127.0.0.6"
            p = peer(c, "127.0.0.6")
            p.open_session()
            status, rep = p.ask("mds_open", cred=cred(), ino=who[0], flags=os.O_RDONLY)
            who = (who[0], rep["cap"]["gen"], rep["cap"])
            began = (p, who, chains, where)
            assert not refused(began)[0]
            c.leat("export", "add", "--root-squash", "127.0.0.6")
        else:
            # The client's machine disappears.
            p.close()
            wait_until(lambda: refused(began)[0], 60, "its session has ended")
            continue
        time.sleep(2)
        ok, said = refused(began)
        assert ok, (how, said)
        p.close()
    c.leat("export", "rm", "127.0.0.6")

    # A live session keeps its right to read: while the metadata server is down, and after it has
    # restarted.
    began = begin()
    c.kill("mds")
    for _ in range(6):
        said = read_all(*began)
        assert list(said.values()).count(("OK", len(data))) == 2, said
        time.sleep(1)
    c.start("mds")
    # A client resumes its session after a restart.
    with peer(c, FREE) as again:
        again.session = began[0].session
        for _ in range(3):
            time.sleep(1)
            said = read_all(*began)
            assert list(said.values()).count(("OK", len(data))) == 2, said


def test_a_server_that_is_out_of_touch_reads_for_nobody(c):
    """An object server without contact to the metadata server cannot learn that a session has
    ended, so it refuses reads, even of a file with one replica."""
    top = c.mnt() + "/single"
    os.mkdir(top)
    c.leat("layout", "set", "--replicas", "1", top)
    data = b"secret " * 512
    put(top + "/data", data)
    rows(c)  # each object server has the rules
    began = may_read(c, "/single/data", 1)
    with began[0]:
        def held(status):
            said = read_all(*began)
            return [v for v in said.values() if v[0] == status and v[1] in (None, len(data))], said

        assert len(held("OK")[0]) == 1, held("OK")
        c.kill("mds", signal.SIGSTOP)
        try:
            time.sleep(2)
            found, said = held("NO_LEASE")
            assert len(found) == len(said), said
        finally:
            c.kill("mds", signal.SIGCONT)
        wait_until(lambda: len(held("OK")[0]) == 1, 10, "it is heard again")


# ---- numbers of inodes ----

def below_private(c):
    """A directory of Alice's that only she may search; everything in it is open to all users."""
    top = c.mnt() + "/private"
    shutil.rmtree(top, ignore_errors=True)
    os.makedirs(top + "/dir/deep")
    put(top + "/dir/file", b"for alice alone")
    os.setxattr(top + "/dir/file", "user.old", b"1")
    os.symlink("target", top + "/dir/link")
    for path, mode in (("/dir/file", 0o666), ("/dir/deep", 0o777), ("/dir", 0o777), ("", 0o700)):
        os.chmod(top + path, mode)
        os.chown(top + path, ALICE, ALICE)
    return top, {n: os.lstat(top + "/dir/" + n).st_ino for n in ("file", "link", "deep", ".")}


def by_number(ino):
    """Each operation that names an inode, with inode numbers below that directory."""
    file, deep = ino["file"], ino["deep"]
    at = {"parent": deep, "name": b"new"}
    return [
        ("mds_lookup", {"parent": ino["."], "name": b"file"}),
        ("mds_lookup", {"parent": ino["."], "name": b"absent"}),
        ("mds_lookup", {"parent": ino["."], "name": b".."}),
        ("mds_getattr", {"ino": file}),
        ("mds_getattr", {"ino": deep}),
        ("mds_setattr", {"ino": file, "mask": SET_SIZE, "attr": {"size": 1}}),
        ("mds_create", dict(at, mode=0o644, flags=os.O_RDWR)),
        ("mds_create", {"parent": ino["."], "name": b"file", "flags": os.O_RDWR}),
        ("mds_mknod", dict(at, mode=0o010666)),
        ("mds_mkdir", dict(at, mode=0o755)),
        ("mds_symlink", dict(at, target=b"elsewhere")),
        ("mds_readlink", {"ino": ino["link"]}),
        ("mds_link", dict(at, ino=file)),
        ("mds_link", {"parent": frames.ROOT_INO, "name": b"out", "ino": file}),
        ("mds_unlink", {"parent": ino["."], "name": b"file"}),
        ("mds_rmdir", {"parent": ino["."], "name": b"deep"}),
        ("mds_rename", {"parent": ino["."], "name": b"file", "new_parent": ino["."],
                        "new_name": b"new"}),
        ("mds_readdir", {"ino": ino["."], "max_bytes": 4096, "flags": 1}),
        ("mds_open", {"ino": file, "flags": os.O_RDONLY}),
        ("mds_open", {"ino": file, "flags": os.O_RDWR}),
        ("mds_open", {"ino": file, "flags": os.O_RDWR | os.O_TRUNC}),
        ("mds_tmpfile", {"parent": deep, "mode": 0o600, "flags": os.O_RDWR}),
        ("mds_copy", {"ino": file, "to": file, "len": 7}),
        ("mds_fallocate", {"ino": file, "len": 8192}),
        ("mds_getxattr", {"ino": file, "name": b"user.old"}),
        ("mds_setxattr", {"ino": file, "name": b"user.new", "value": b"1"}),
        ("mds_listxattr", {"ino": file}),
        ("mds_removexattr", {"ino": file, "name": b"user.old"}),
        ("mds_layout_set", {"ino": deep, "layout": {"replicas": 1}}),
        ("mds_access", {"ino": file, "mask": 4}),
    ]


def test_no_inode_is_used_past_a_directory_that_may_not_be_searched(c):
    rows(c)
    top, ino = below_private(c)
    os.chmod(c.mnt(), 0o777)
    bob = cred(BOB, BOB)
    with peer(c, SQUASHED) as p:
        p.open_session()
        before = (sorted(os.listdir(top + "/dir")), os.stat(top + "/dir/file").st_size)
        for name, values in by_number(ino):
            status, _ = p.ask(name, cred=bob, **values)
            assert status == "ACCES", (name, values, status)
        assert p.ask("mds_lock_test", ino=ino["file"],
                     lock={"type": 1, "last": 10, "owner": 1})[0] == "STALE"
        status, rep = p.ask("mds_close", ino=ino["file"], flags=1 << 25)
        assert status != "OK" or rep["attr"]["ino"] == 0, (status, rep)
        assert before == (sorted(os.listdir(top + "/dir")), os.stat(top + "/dir/file").st_size)
        # Without a session too.
        with peer(c, SQUASHED) as q:
            assert q.ask("mds_getattr", cred=bob, ino=ino["file"])[0] == "ACCES"
        # A user with search permission on the whole path may use inode numbers too.
        alice = cred(ALICE, ALICE)
        for name, values in by_number(ino):
            if M.kind[name] != "WRITE":
                status, _ = p.ask(name, cred=alice, **values)
                assert status != "ACCES", (name, values, status)
        # Leases from Alice's requests belong to the session, and give Bob no right.
        for name, values in by_number(ino):
            status, _ = p.ask(name, cred=bob, **values)
            assert status == "ACCES", (name, values, status)
        assert p.ask("mds_open", cred=alice, ino=ino["file"], flags=os.O_RDONLY)[0] == "OK"
    # A directory that Bob may read but not search gives him no attributes of its inodes.
    os.chmod(top, 0o744)
    with peer(c, SQUASHED) as p:
        p.open_session()
        status, rep = p.ask("mds_readdir", cred=bob, ino=os.stat(top).st_ino, max_bytes=4096,
                            flags=1)
        said = M.decode_all("dirent_wire", rep["entries"])
        assert [e["attr"]["uid"] for e in said] == [0], said
        os.chmod(top, 0o755)
        assert p.ask("mds_getattr", cred=bob, ino=ino["file"])[0] == "OK"
        os.chmod(top, 0o700)


def test_a_file_of_several_names_is_reached_by_each(c):
    rows(c)
    top, ino = below_private(c)
    os.chmod(c.mnt(), 0o777)
    bob = cred(BOB, BOB)

    def getattr_by_number(p):
        return p.ask("mds_getattr", cred=bob, ino=ino["file"])[0]

    with peer(c, SQUASHED) as p:
        p.open_session()
        os.link(top + "/dir/file", c.mnt() + "/public")
        assert getattr_by_number(p) == "OK"
        # The newest name is one that Bob may not use; he must look up the other one.
        os.link(top + "/dir/file", top + "/dir/again")
        assert getattr_by_number(p) == "ACCES"
        assert p.walk("/public", bob)["ino"] == ino["file"]
        assert getattr_by_number(p) == "OK"
        os.rename(c.mnt() + "/public", top + "/dir/public")
        assert getattr_by_number(p) == "ACCES"
        os.rename(top + "/dir/public", c.mnt() + "/public")
        assert getattr_by_number(p) == "OK"
        # A file that Bob has open stays accessible after a rename. After close it is not.
        assert p.ask("mds_open", cred=bob, ino=ino["file"], flags=os.O_RDWR)[0] == "OK"
        os.rename(c.mnt() + "/public", top + "/dir/public")
        assert getattr_by_number(p) == "OK"
        assert p.ask("mds_close", ino=ino["file"], flags=os.O_RDWR)[0] == "OK"
        wait_until(lambda: getattr_by_number(p) == "ACCES", 10, "it is out of reach")


def test_an_open_that_a_restart_has_forgotten_is_no_right(c):
    rows(c)
    os.chmod(c.mnt(), 0o777)
    secret, program, own = [c.mnt() + "/" + n for n in ("secret", "program", "of bob")]
    for name, owner, mode in ((secret, ALICE, 0o600), (program, ALICE, 0o4755), (own, BOB, 0o644)):
        put(name, b"content" * 10000)
        os.chown(name, owner, owner)
        os.chmod(name, mode)
    secret_ino, program_ino, own_ino = [os.stat(n).st_ino for n in (secret, program, own)]
    bob = cred(BOB, BOB)
    mine = os.urandom(16)

    def begin(p):
        status, rep = p.ask("mds_session_open", client=mine, name=b"frames.py", slots=64)
        assert status == "OK"
        p.session = rep["session"]
        return rep["reclaim"]

    def attack(p, name):
        """The statuses of copying Alice's secret to a new file, and of changing her program."""
        status, rep = p.ask("mds_create", cred=bob, parent=frames.ROOT_INO, name=name, mode=0o600,
                            flags=os.O_RDWR | os.O_EXCL)
        assert status == "OK", status
        return [p.ask("mds_copy", cred=bob, ino=secret_ino, to=rep["attr"]["ino"], len=70000)[0],
                p.ask("mds_setattr", cred=bob, ino=program_ino, mask=SET_KILL_SUID)[0]]

    with peer(c, SQUASHED) as p:
        assert begin(p) == 0
        assert attack(p, b"before") == ["STALE", "ACCES"]
        assert p.ask("mds_open", cred=bob, ino=own_ino, flags=os.O_RDONLY)[0] == "OK"
        seq = p.seq[0]
    c.kill("mds")
    c.start("mds")
    with peer(c, SQUASHED) as p:
        assert begin(p) == 1
        claimed = b"".join(struct.pack("<QII", i, f, 1) for i, f in (
            (secret_ino, os.O_RDONLY), (program_ino, os.O_RDWR), (own_ino, os.O_RDWR)))
        # A repetition of an open from before the restart cannot open another file either.
        p.ask("mds_open", cred=bob, ino=program_ino, flags=os.O_RDWR, frame={"seq": seq})
        p.seq[0] = seq
        assert p.ask("mds_reclaim", opens=claimed, done=1)[0] == "OK"
        assert attack(p, b"after") == ["STALE", "ACCES"]
        # An honest client keeps the access that the file's mode allows.
        assert p.ask("mds_setattr", cred=bob, ino=own_ino, mask=SET_SIZE,
                     attr={"size": 1})[0] == "OK"
    assert os.stat(program).st_mode & 0o4000 and os.stat(own).st_size == 1


# ---- agents are no way around ----

def test_an_agent_does_nothing_for_networks_of_less_rights(c):
    home, stage = c.mnt() + "/home", c.dir + "/nvme"
    for path in (home, stage):
        os.mkdir(path, 0o700)
    put(home + "/secret", b"for alice alone")
    os.chown(home, ALICE, ALICE)
    ready = c.dir + "/agent.ready"
    port, = free_ports(1)
    argv = [BUILD + "/leat", "--conf", c.dev + "/conf", "agent", "--ready-file", ready,
            "--set", "listen=127.0.0.1:%d" % port, "--set", "dirs=" + stage]
    agent = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.exists(ready), 30, "the agent is there")
        at = ("127.0.0.1", port)

        def ask(source, message, role=AGENT, **fields):
            with peer(c, source, role, at) as p:
                return p.ask(message, **fields)

        def began():
            return os.path.isdir(stage + "/.leat")

        start = {"verb": 1, "what": b"/home", "timeout_ms": 20000}
        for source in (SQUASHED, READ_ONLY, ALL_SQUASHED, BOTH):
            for role in (CLIENT, MDS, OSSD, AGENT, TOOL):
                for verb in range(1, 8):
                    status = ask(source, "peer_stage", role, **dict(start, verb=verb))[0]
                    assert status == "PERM", (source, role, verb, status)
        assert not began()
        # The node itself may stage, as may a network without a rule. Then there is a copy to read.
        assert ask(FREE, "peer_stage", **start)[0] == "OK"
        rep = []

        def is_ready():
            rep[:] = [ask("127.0.0.7", "peer_status", what=b"/home")[1]]
            return b'"READY"' in rep[0]["json"]

        wait_until(is_ready, 30, "the copy is made")
        copy = [n for n in os.listdir(stage + "/.leat") if len(n) == 64]
        chunk = {"id": copy[0].encode(), "chunk": 0, "wait_ms": 100}
        for source, may in ((FREE, True), ("127.0.0.7", True), (READ_ONLY, True),
                            (SQUASHED, False), (ALL_SQUASHED, False), (BOTH, False)):
            for message, fields in (("peer_chunk", chunk), ("peer_status", {})):
                status = ask(source, message, **fields)[0]
                assert status == ("OK" if may else "PERM"), (source, message, status)
        # Reduced rights take effect within seconds.
        c.leat("export", "add", "--root-squash", "127.0.0.7")
        wait_until(lambda: ask("127.0.0.7", "peer_chunk", **chunk)[0] == "PERM", 5, "it is heard")
        c.leat("export", "rm", "127.0.0.7")
        # While the metadata server is down, the agent replies AGAIN to a network if it has never
        # received the network's rights. For other networks it applies the last rights that it
        # received.
        c.kill("mds")
        assert ask("127.0.0.8", "peer_chunk", **chunk) == ("AGAIN", None)
        assert ask(READ_ONLY, "peer_chunk", **chunk)[0] == "OK"
        assert ask(SQUASHED, "peer_chunk", **chunk)[0] == "PERM"
        c.start("mds")
    finally:
        agent.terminate()
        agent.wait(300)


run_tests(globals())
