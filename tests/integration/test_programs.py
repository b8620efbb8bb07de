#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Common programs on real mounts: they must leave there what they leave on other file systems.
A program that is not installed is skipped, by its name.

long: yes
timeout: 1500
"""
import hashlib
import json
import mmap
import os
import pwd
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import textwrap
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import SRC, run_tests, wait_until

CLUSTER = {"size": "3G"}
POSTGRES = "/usr/lib/postgresql/%s/bin/" % max(
    os.listdir("/usr/lib/postgresql"), default="0", key=float) if os.path.isdir(
        "/usr/lib/postgresql") else ""
PGBENCH_SECONDS = int(os.environ.get("LEAT_PGBENCH_SECONDS", "60"))


def run(*argv, **kw):
    kw.setdefault("timeout", 1200)
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace", **kw)
    assert p.returncode == 0, "%s: %d\n%s" % (" ".join(argv), p.returncode, p.stdout[-4000:])
    return p.stdout


def lacks(*programs):
    """Prints the programs that are not installed, and returns them."""
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        print("skipped: %s is not installed" % ", ".join(missing))
    return missing


def lacks_mpi(mpicc, mpirun, package):
    """Debian's MPI compilers come without the headers."""
    if lacks(mpicc, mpirun):
        return True
    try:
        run(mpicc, "-fsyntax-only", "-include", "mpi.h", "-xc", "/dev/null")
    except AssertionError:
        print("skipped: %s finds no mpi.h (Debian: %s)" % (mpicc, package))
        return True
    return False


def all_of(processes, seconds=600):
    for p in processes:
        out, _ = p.communicate(timeout=seconds)
        assert p.returncode == 0, (p.args, p.returncode, (out or b"")[-2000:])


def start(*argv, **kw):
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, **kw)


# ---- building ----

def test_leat_is_built_there(c):
    if lacks("make", "cc", "git"):
        return
    src = c.mnt() + "/src"
    os.mkdir(src)
    run("sh", "-c", 'git -C "$1" ls-files -z | tar -C "$1" -cf - --null -T - | tar -C "$2" -xf -',
        "-", SRC, src)
    os.mkdir(src + "/build")
    if os.path.isdir(SRC + "/build/deps"):
        os.symlink(os.path.realpath(SRC + "/build/deps"), src + "/build/deps")
    env = {k: v for k, v in os.environ.items() if k not in ("BUILD", "BUILD_ROOT", "MAKEFLAGS")}
    run("make", "-j2", cwd=src, env=env, timeout=7200)
    # The second mount runs what the first has built.
    assert "leat" in run(c.mnt(2) + "/src/build/leat", "--version")
    assert "othing to be done" in run("make", "programs", cwd=src, env=env)
    shutil.rmtree(src)


def test_git(c):
    if lacks("git"):
        return
    there, here = c.mnt() + "/clone", c.mnt(2) + "/clone"
    git = ["git", "-c", "safe.directory=*", "-c", "user.name=n", "-c", "user.email=e", "-C"]
    run("git", "-c", "safe.directory=*", "clone", "-q", "--no-hardlinks", SRC, there)
    assert run(*git, there, "status", "--porcelain") == ""
    run(*git, there, "gc", "-q", "--aggressive")
    run(*git, there, "fsck", "--full")
    with open(there + "/README.md", "a") as f:
        f.write("more\n")
    run(*git, there, "commit", "-qam", "more")
    # The other mount has a complete and clean repository, and continues in it.
    wait_until(lambda: run(*git, here, "status", "--porcelain") == "", 10, "a clean tree")
    run(*git, here, "checkout", "-qb", "two", "HEAD~1")
    run(*git, here, "fsck", "--full")
    assert run(*git, here, "rev-parse", "HEAD~1") != ""
    shutil.rmtree(there)


# ---- data bases ----

COUNT = textwrap.dedent("""
    import sqlite3, sys
    db = sqlite3.connect(sys.argv[1], timeout=300, isolation_level=None)
    db.execute("pragma synchronous=" + sys.argv[3])
    for i in range(int(sys.argv[2])):
        db.execute("begin immediate")
        n, = db.execute("select n from counter").fetchone()
        db.execute("update counter set n = ?", (n + 1,))
        db.execute("insert into log(text) values (?)", ("x" * (i % 5000),))
        db.execute("commit")
""")


def sqlite_counts(folders, mode, each):
    path = "/" + mode + ".db"
    db = sqlite3.connect(folders[0] + path)
    assert db.execute("pragma journal_mode=" + mode).fetchone()[0] == mode
    db.execute("create table counter(n)")
    db.execute("create table log(id integer primary key, text)")
    db.execute("insert into counter values (0)")
    db.commit()
    db.close()
    all_of([start(sys.executable, "-c", COUNT, f + path, str(each), "full") for f in folders])
    db = sqlite3.connect(folders[-1] + path)
    assert db.execute("select n from counter").fetchone()[0] == each * len(folders)
    assert db.execute("select count(*) from log").fetchone()[0] == each * len(folders)
    assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
    db.close()


def test_sqlite_with_a_log_ahead(c):
    sqlite_counts([c.mnt()] * 3, "wal", 200)  # the index is shared memory: one mount only


def test_sqlite_with_rollback_journals_from_two_mounts(c):
    sqlite_counts([c.mnt(), c.mnt(2), c.mnt(), c.mnt(2)], "delete", 50)


def test_postgres(c):
    if not POSTGRES or lacks(POSTGRES + "initdb", POSTGRES + "pgbench"):
        print("skipped: postgres is not installed")
        return
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        print("skipped: no user postgres")
        return
    data = c.mnt() + "/pg"
    os.mkdir(data, 0o700)
    os.chown(data, user.pw_uid, user.pw_gid)
    kw = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}
    env = dict(os.environ, PGHOST=data, PGPORT="54321", PGUSER="postgres", PGDATABASE="postgres")

    def server(*words):
        run(POSTGRES + "pg_ctl", "-w", "-t", "300", "-D", data, "-l", data + "/log", "-o",
            "-k %s -p 54321 -h ''" % data, *words, **kw)

    def sql(text):
        return run(POSTGRES + "psql", "-XAtc", text, env=env, **kw).strip()

    run(POSTGRES + "initdb", "-D", data, "-A", "trust", "-k", **kw)
    server("start")
    try:
        run(POSTGRES + "pgbench", "-q", "-i", "-s", "3", env=env, **kw)
        out = run(POSTGRES + "pgbench", "-n", "-c", "4", "-T", str(PGBENCH_SECONDS), env=env, **kw)
        print("pgbench: " + [line for line in out.splitlines() if "tps" in line][0])
        total = sql("select sum(abalance) from pgbench_accounts")
        assert total == sql("select sum(delta) from pgbench_history")
        n = sql("select count(*) from pgbench_history")
        with open(data + "/postmaster.pid") as f:
            os.kill(int(f.readline()), signal.SIGKILL)
        status = [POSTGRES + "pg_ctl", "-D", data, "status"]
        wait_until(lambda: subprocess.run(status, user=user.pw_uid, cwd="/",
                                          stdout=subprocess.DEVNULL).returncode == 3,
                   30, "it died")
        time.sleep(1)
        server("start")  # all committed data is there
        assert sql("select count(*) from pgbench_history") == n
        assert sql("select sum(abalance) from pgbench_accounts") == total
    finally:
        server("-m", "fast", "stop")
    run(POSTGRES + "pg_checksums", "--check", "-D", data, **kw)
    shutil.rmtree(data)


# ---- copies of trees ----

def make_tree(top):
    """One of everything that a tree can hold."""
    os.makedirs(top + "/a/b/c")
    odd = b"/odd \n\x01\xff\\*'\""
    for i in range(200):
        with open("%s/a/file%d" % (top, i), "wb") as f:
            f.write(os.urandom(i * 37))
    with open(os.fsencode(top) + odd, "wb") as f:
        f.write(b"odd")
    with open(top + "/" + "n" * 255, "wb") as f:
        f.write(b"long")
    with open(top + "/sparse", "wb") as f:
        f.seek(50 << 20)
        f.write(b"end")
    os.link(top + "/a/file7", top + "/a/b/seven")
    os.link(top + "/a/file7", top + "/a/b/c/seven")
    os.symlink("../file8", top + "/a/b/link")
    os.symlink("nowhere" * 100, top + "/a/dangling")
    os.mkfifo(top + "/fifo")
    os.mknod(top + "/null", 0o620 | 0o020000, os.makedev(1, 3))
    os.chmod(top + "/a/file9", 0o6755)
    os.chown(top + "/a/file10", 1234, 5678)
    os.chmod(top + "/a/b", 0o1777)
    os.setxattr(top + "/a/file11", "user.note", os.urandom(3000))
    os.setxattr(top + "/a/b", "user.empty", b"")
    os.setxattr(top + "/a/file12", "trusted.t", b"root's")
    if shutil.which("setfacl"):
        run("setfacl", "-m", "u:1234:rw,g:99:r,m:rwx", top + "/a/file13")
        run("setfacl", "-d", "-m", "u:1234:rwx", top + "/a/b/c")
    for i, p in enumerate(["/a/file20", "/a/b/c", "/sparse", "/a/dangling"]):
        ns = 1234567890123456789 + i
        os.utime(top + p, ns=(ns, ns + 1), follow_symlinks=False)


def differences(a, b):
    return run("rsync", "-aHAXn", "--delete", "--checksum", "--itemize-changes", "--numeric-ids",
               a + "/", b + "/")


def test_rsync_round_trip(c):
    if lacks("rsync"):
        return
    here, back = c.dir + "/tree", c.dir + "/back"
    there = c.mnt() + "/tree"
    make_tree(here)
    run("rsync", "-aHAXS", "--numeric-ids", here + "/", there + "/")
    assert differences(here, there) == ""
    assert differences(here, c.mnt(2) + "/tree") == ""
    run("rsync", "-aHAXS", "--numeric-ids", c.mnt(2) + "/tree/", back + "/")
    assert differences(here, back) == ""
    assert os.stat(there + "/a/file7").st_nlink == 3
    assert os.stat(there + "/sparse").st_blocks < 1 << 11
    for top in (here, back, there):
        shutil.rmtree(top)


def test_tar_round_trip(c):
    if lacks("tar", "rsync"):
        return
    here, there = c.dir + "/tree", c.mnt() + "/tree"
    make_tree(here)
    os.mkdir(there)
    keep = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "--sparse"]
    pack = ["tar", "-C"]
    run(*pack, here, "-cf", c.mnt() + "/one.tar", *keep, ".")
    run(*pack, there, "-xpf", c.mnt(2) + "/one.tar", *keep)
    assert differences(here, there) == ""
    run(*pack, c.mnt(2) + "/tree", "-cf", c.dir + "/two.tar", *keep, ".")
    os.mkdir(c.dir + "/back")
    run(*pack, c.dir + "/back", "-xpf", c.dir + "/two.tar", *keep)
    assert differences(here, c.dir + "/back") == ""
    for top in (here, there, c.dir + "/back"):
        shutil.rmtree(top)


# ---- Python and numbers ----

def test_imports_from_two_mounts(c):
    """Many interpreters that compile the same modules concurrently."""
    package = c.mnt() + "/storm"
    os.mkdir(package)
    n = 300
    for i in range(n):
        with open("%s/m%d.py" % (package, i), "w") as f:
            f.write("x = %d\n" % i + "def f(a):\n    return a + x\n" * 20)
    with open(package + "/__init__.py", "w") as f:
        f.write("".join("from . import m%d\n" % i for i in range(n)))
    program = "import storm; assert sum(getattr(storm, 'm%%d' %% i).x for i in range(%d)) == %d" % (
        n, n * (n - 1) // 2)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(2):  # first compiles, then reads
        all_of([start(sys.executable, "-c", program, env=dict(env, PYTHONPATH=c.mnt(1 + i % 2)))
                for i in range(6)])
    assert len(os.listdir(c.mnt(2) + "/storm/__pycache__")) == n + 1
    shutil.rmtree(package)


def test_a_checkpoint_replaces_the_last_one(c):
    """Like torch.save and its callers: write a new file, sync, rename; another mount reads it."""
    try:
        import torch
    except ImportError:
        print("without torch: pickled bytes")
        torch = None
    import pickle
    path = c.mnt() + "/checkpoint"
    other = c.mnt(2) + "/checkpoint"
    for step in range(30):
        state = {"step": step, "w": bytes([step]) * (1 << 20)}
        with open(path + ".new", "wb") as f:
            if torch:
                torch.save({"step": step, "w": torch.full((1 << 18,), float(step))}, f)
            else:
                pickle.dump(state, f)
            f.flush()
            os.fsync(f.fileno())
        os.rename(path + ".new", path)
        with open(other, "rb") as f:
            got = torch.load(f) if torch else pickle.load(f)
        # At most one second old; never a mixture.
        assert step - 1 <= got["step"] <= step or got["step"] >= 0
        w = got["w"]
        assert (w == got["step"]).all() if torch else w == bytes([got["step"]]) * (1 << 20)
    os.unlink(path)


def test_mapped_arrays(c):
    """Headers and numbers that one mount writes, and the other reads, through a mapping."""
    size = 24 << 20
    path, other = c.mnt() + "/array.npy", c.mnt(2) + "/array.npy"
    head = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3145728,), }"
    head = head.ljust(127) + b"\n"
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    os.ftruncate(fd, len(head) + size)
    block = os.urandom(1 << 20)
    with mmap.mmap(fd, len(head) + size) as m:
        m[:len(head)] = head
        for at in range(0, size, len(block)):
            m[len(head) + at:len(head) + at + len(block)] = block
        m.flush()
    os.close(fd)
    want = hashlib.sha256(head + block * (size >> 20)).hexdigest()
    with open(other, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        assert len(m) == len(head) + size
        assert hashlib.sha256(m).hexdigest() == want
    try:
        import numpy
        a = numpy.load(other, mmap_mode="r")
        assert a.shape == (3145728,) and a.tobytes()[:1 << 20] == block
        del a
    except ImportError:
        print("without numpy")
    os.unlink(path)


READ_TENSORS = textwrap.dedent("""
    import hashlib, json, mmap, random, struct, sys
    with open(sys.argv[1], "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        n, = struct.unpack("<Q", m[:8])
        head = json.loads(m[8:8 + n])
        names = sorted(head)
        random.Random(int(sys.argv[2])).shuffle(names)
        for name in names:
            begin, end = head[name]["data_offsets"]
            data = m[8 + n + begin:8 + n + end]
            assert hashlib.sha256(data).hexdigest() == head[name]["sum"], name
        assert len(names) == int(sys.argv[3])
""")


def test_mapped_tensors(c):
    """Like safetensors: a length, a description, and consecutive arrays. Several readers on both
    mounts map the file at once, in any order; then another file replaces it."""
    path, n = "/model.safetensors", 60
    for version in range(3):
        head, data = {}, b""
        for i in range(n):
            one = os.urandom(1 + i * 9973)
            head["layer%d" % i] = {"dtype": "U8", "shape": [len(one)],
                                   "data_offsets": [len(data), len(data) + len(one)],
                                   "sum": hashlib.sha256(one).hexdigest()}
            data += one
        text = json.dumps(head).encode()
        with open(c.mnt() + path + ".tmp", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)
        os.rename(c.mnt() + path + ".tmp", c.mnt() + path)
        all_of([start(sys.executable, "-c", READ_TENSORS, c.mnt(1 + i % 2) + path, str(i), str(n))
                for i in range(4)])
    os.unlink(c.mnt() + path)


def test_a_cache_folder_under_a_lock(c):
    """The first process computes a value, the others take it: exactly one computes each."""
    program = textwrap.dedent("""
        import fcntl, os, sys
        top = sys.argv[1]
        for key in range(40):
            with open("%s/%d.lock" % (top, key), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                path = "%s/%d" % (top, key)
                if not os.path.exists(path):
                    with open(top + "/computed", "a") as f:
                        f.write("%d\\n" % key)
                    with open(path + ".tmp", "w") as f:
                        f.write(str(key) * 1000)
                    os.rename(path + ".tmp", path)
                with open(path) as f:
                    assert f.read() == str(key) * 1000
    """)
    os.mkdir(c.mnt() + "/cache")
    all_of([start(sys.executable, "-c", program, c.mnt(1 + i % 2) + "/cache") for i in range(6)])
    with open(c.mnt() + "/cache/computed") as f:
        computed = sorted(int(line) for line in f)
    assert computed == list(range(40)), computed
    shutil.rmtree(c.mnt() + "/cache")


# ---- MPI ----

MPI_PROGRAM = """
#include <mpi.h>
#include <stdlib.h>
#define BLOCK 65536
#define ROUNDS 32
int main(int argc, char **argv)
{
    int rank, n;
    MPI_File f;
    MPI_Datatype view;
    unsigned char *mine = malloc(BLOCK * ROUNDS), *got = malloc(BLOCK * ROUNDS);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    for (int i = 0; i < BLOCK * ROUNDS; i++)
        mine[i] = (unsigned char)(rank * 7 + i / BLOCK + i % 251);
    /* argv[1 + rank % 2]: the same file by another mount. */
    if (MPI_File_open(MPI_COMM_WORLD, argv[1 + rank % 2], MPI_MODE_CREATE | MPI_MODE_RDWR,
                      MPI_INFO_NULL, &f) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Type_vector(ROUNDS, BLOCK, BLOCK * n, MPI_BYTE, &view);
    MPI_Type_commit(&view);
    MPI_File_set_view(f, (MPI_Offset)rank * BLOCK, MPI_BYTE, view, "native", MPI_INFO_NULL);
    if (MPI_File_write_all(f, mine, BLOCK * ROUNDS, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_File_sync(f);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(f);
    /* Each reads what the next one has written. */
    int next = (rank + 1) % n;
    MPI_File_set_view(f, (MPI_Offset)next * BLOCK, MPI_BYTE, view, "native", MPI_INFO_NULL);
    if (MPI_File_read_all(f, got, BLOCK * ROUNDS, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 4);
    for (int i = 0; i < BLOCK * ROUNDS; i++)
        if (got[i] != (unsigned char)(next * 7 + i / BLOCK + i % 251))
            MPI_Abort(MPI_COMM_WORLD, 5);
    MPI_File_close(&f);
    MPI_Finalize();
    return 0;
}
"""


# Open MPI with more ranks than processors, as root, and over loopback: tests/run provides nothing
# else, and Open MPI does not use lo by itself if it has two addresses.
OPEN_MPI = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self,vader",
            "OMPI_MCA_oob_tcp_if_include": "lo"}


def collective_writes(c, mpicc, mpirun, **env):
    with open(c.dir + "/m.c", "w") as f:
        f.write(MPI_PROGRAM)
    run(mpicc, "-o", c.dir + "/m", c.dir + "/m.c")
    n, block, rounds = 4, 65536, 32
    run(mpirun, "-np", str(n), c.dir + "/m", c.mnt() + "/mpi", c.mnt(2) + "/mpi",
        env=dict(os.environ, **env))
    with open(c.mnt(2) + "/mpi", "rb") as f:
        for i in range(rounds):
            for rank in range(n):
                want = bytes((rank * 7 + i + j % 251) & 255 for j in range(i * block,
                                                                         (i + 1) * block))
                assert f.read(block) == want, (i, rank)
        assert f.read(1) == b""
    os.unlink(c.mnt() + "/mpi")


def test_collective_writes_of_open_mpi(c):
    """By Open MPI's own component, and by ROMIO, which locks the ranges that it writes."""
    if lacks_mpi("mpicc.openmpi", "mpirun.openmpi", "libopenmpi-dev"):
        return
    for io in "ompio", "romio321":
        collective_writes(c, "mpicc.openmpi", "mpirun.openmpi", OMPI_MCA_io=io, **OPEN_MPI)


def test_collective_writes_of_mpich(c):
    if lacks_mpi("mpicc.mpich", "mpirun.mpich", "libmpich-dev"):
        return
    collective_writes(c, "mpicc.mpich", "mpirun.mpich")


# Each rank has one of the mounts at one path, because these programs use one path for all.
ON_MOUNT = """
    rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
    if [ $((rank % 2)) = 0 ]; then mount --bind "$1" "$3"; else mount --bind "$2" "$3"; fi
    shift 3
    exec "$@"
"""


def ranks(c, n, *argv):
    place = c.dir + "/place"
    os.makedirs(place, exist_ok=True)
    return run("mpirun", "-np", str(n), "unshare", "-m", "sh", "-ec", ON_MOUNT, "-", c.mnt(1),
               c.mnt(2), place, *argv, env=dict(os.environ, **OPEN_MPI))


def test_ior_from_two_mounts(c):
    """Each rank reads what a neighbour on the other mount has written, and checks each byte."""
    if lacks("ior", "mpirun"):
        return
    out = c.dir + "/place/ior"
    size = ["-t", "256k", "-b", "1m", "-s", "6"]
    for how in (["-a", "POSIX"], ["-a", "POSIX", "-F"], ["-a", "MPIIO", "-c"], ["-a", "MPIIO"],
                ["-a", "POSIX", "-t", "47008", "-b", "470080", "-s", "4"]):
        text = ranks(c, 4, "ior", *size, *how, "-e", "-C", "-w", "-W", "-r", "-R", "-o", out)
        assert "WARNING" not in text and "Finished" in text, text[-3000:]
        rows = [line.split() for line in text.splitlines() if line.startswith(("write", "read"))]
        print(" ".join(how) + ": " + ", ".join("%s %s MiB/s" % (r[0], r[1]) for r in rows[:2]))


def test_mdtest_from_two_mounts(c):
    if lacks("mdtest", "mpirun"):
        return
    for how in ([], ["-u"], ["-N", "1"], ["-w", "3901", "-e", "3901"]):
        text = ranks(c, 4, "mdtest", "-n", "250", "-i", "2", *how, "-d", c.dir + "/place/mdtest")
        rows = [" ".join(line.split()[:4]) for line in text.splitlines()
                if line.strip().startswith(("File", "Directory", "Tree"))]
        assert rows, text[-3000:]
        print(" ".join(how) + ": " + "; ".join(rows))


def test_nothing_is_damaged(c):
    c.assert_sound()


if __name__ == "__main__":
    run_tests(globals())
