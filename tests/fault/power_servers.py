#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole servers on the power-loss file system: workload, and verification of one cut.

    power_servers.py verify DISK MARKS      starts servers on the cut disk; everything that was
                                            acknowledged must be there, and both checks be clean

Worker w works alone in directory w<w>, with one small operation after the other. Each operation
returns when it is acknowledged and is then marked. The content of the directory after operation n
follows from (w, n), so the marks suffice. The operation in flight at the cut may be done or not,
its data block by block.
"""
import hashlib
import os
import random
import stat
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE) + "/lib")
sys.path.insert(0, HERE)
from cluster import BUILD, Cluster

WORKERS = 4
BLOCK = 16384
CONF = {"ossd": {"zero_ahead": "0", "grow_step": "1M", "kv_write_buffer_size": "256K"},
        "mds": {"kv_write_buffer_mib": "1", "session_ttl_ms": "10000"}}
SIZE = "16M"


class File:
    def __init__(self, mode):
        self.data, self.mode, self.xattrs = b"", mode, {}


class Model:
    """The content of worker w's directory: name -> File, ("dir",) or ("link", target)."""

    def __init__(self, who):
        self.who, self.names = who, {}

    def op(self, n):
        """(kind, arguments) of operation n, which must be the next."""
        rng = random.Random(self.who * 1000003 + n)
        files = sorted(k for k, v in self.names.items() if isinstance(v, File))
        dirs = sorted(k for k, v in self.names.items() if v == ("dir",))
        fresh = "n%d" % n
        if len(files) < 3 or rng.random() < 0.2:
            return "create", fresh, rng.choice((0o600, 0o644))
        kind = rng.choice(("write", "write", "write", "write", "replace", "rename", "rename_over",
                           "unlink", "mkdir", "rmdir", "symlink", "link", "chmod", "xattr",
                           "truncate", "append", "punch"))
        name = rng.choice(files)
        size = len(self.names[name].data)
        if kind == "write":
            off = rng.choice((0, size, rng.randrange(size + 1)))
            return kind, name, off, 1 + rng.randrange(rng.choice((300, 20000, 60000)))
        if kind == "append":
            return kind, name, 1 + rng.randrange(3000)
        if kind == "replace":
            return kind, name, 1 + rng.randrange(rng.choice((300, 40000)))
        if kind == "rename_over":
            return kind, name, rng.choice([f for f in files if f != name])
        if kind in ("rename", "link", "symlink"):
            return kind, name, fresh
        if kind == "mkdir":
            return kind, fresh
        if kind == "rmdir" and dirs:
            return kind, rng.choice(dirs)
        if kind == "chmod":
            return kind, name, rng.choice((0o600, 0o640, 0o755))
        if kind == "xattr":
            return kind, name, "user.x%d" % rng.randrange(3), b"%d" % n
        if kind == "truncate":
            return kind, name, rng.randrange(size + 2000)
        if kind == "punch" and size > 1:
            off = rng.randrange(size - 1)
            return kind, name, off, 1 + rng.randrange(size - off)
        return "unlink", name

    def payload(self, n, length):
        return random.Random(self.who * 7919 + n * 104729).randbytes(length)

    def apply(self, n):
        op = self.op(n)
        kind, name = op[0], op[1]
        f = self.names.get(name)
        if kind == "create":
            self.names[name] = File(op[2])
        elif kind in ("write", "append"):
            off, length = (op[2], op[3]) if kind == "write" else (len(f.data), op[2])
            f.data = (f.data[:off].ljust(off, b"\0") + self.payload(n, length) +
                      f.data[off + length:])
        elif kind == "replace":
            self.names[name] = File(0o644)
            self.names[name].data = self.payload(n, op[2])
        elif kind in ("rename", "rename_over"):
            del self.names[name]
            if self.names.get(op[2]) is f:  # two names of one file: no effect
                self.names[name] = f
            self.names[op[2]] = f
        elif kind == "link":
            self.names[op[2]] = f
        elif kind == "symlink":
            self.names[op[2]] = ("link", name)
        elif kind == "mkdir":
            self.names[name] = ("dir",)
        elif kind in ("rmdir", "unlink"):
            del self.names[name]
        elif kind == "chmod":
            f.mode = op[2]
        elif kind == "xattr":
            f.xattrs[op[2]] = op[3]
        elif kind == "truncate":
            f.data = f.data[:op[2]].ljust(op[2], b"\0")
        elif kind == "punch":
            f.data = f.data[:op[2]] + bytes(op[3]) + f.data[op[2] + op[3]:]
        return op


# --- the workload ---------------------------------------------------------------------------------

def put(path, flags, off, data, mode=0o644, sync=True):
    fd = os.open(path, os.O_WRONLY | flags, mode)
    try:
        assert os.pwrite(fd, data, off) == len(data)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def perform(model, n, folder):
    op = model.op(n)
    kind, path = op[0], folder + "/" + op[1]
    if kind == "create":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, op[2]))
    elif kind == "write":
        put(path, 0, op[2], model.payload(n, op[3]))
    elif kind == "append":
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        assert os.write(fd, model.payload(n, op[2])) == op[2]
        os.fsync(fd)
        os.close(fd)
    elif kind == "replace":  # without a sync: the rename must make the data durable
        put(folder + "/tmp", os.O_CREAT, 0, model.payload(n, op[2]), sync=False)
        os.rename(folder + "/tmp", path)
    elif kind in ("rename", "rename_over"):
        os.rename(path, folder + "/" + op[2])
    elif kind == "link":
        os.link(path, folder + "/" + op[2])
    elif kind == "symlink":
        os.symlink(op[1], folder + "/" + op[2])
    elif kind == "mkdir":
        os.mkdir(path)
    elif kind == "rmdir":
        os.rmdir(path)
    elif kind == "unlink":
        os.unlink(path)
    elif kind == "chmod":
        os.chmod(path, op[2])
    elif kind == "xattr":
        os.setxattr(path, op[2], op[3])
    elif kind == "truncate":
        os.truncate(path, op[2])
    elif kind == "punch":
        subprocess.run(["fallocate", "-p", "-o", str(op[2]), "-l", str(op[3]), path], check=True,
                       stdin=subprocess.DEVNULL)


def work(who, mnt, mark, ops, errors):
    try:
        model, folder = Model(who), "%s/w%d" % (mnt, who)
        os.mkdir(folder)
        fd = os.open(mark, os.O_WRONLY)
        for n in range(1, ops + 1):
            perform(model, n, folder)
            model.apply(n)
            os.write(fd, b"%d %d\n" % (who, n))
        os.close(fd)
    except BaseException as e:
        errors.append("worker %d: %r" % (who, e))


def run(fs, ops, conf=None):
    """Runs the workload on servers whose stores are on fs. Returns the folder with conf and key."""
    conf = {k: dict(v) for k, v in (conf or CONF).items()}
    c = Cluster(conf=conf, ossd=1, size=SIZE, mounts=1)
    os.makedirs(c.dev)
    for name in ("mds", "ossd1"):
        os.mkdir(fs.mnt + "/" + name)
        os.symlink(fs.mnt + "/" + name, c.dev + "/" + name)
    os.umask(0o022)
    with c:
        fd = os.open(fs.mnt, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        errors = []
        threads = [threading.Thread(target=work, args=(w, c.mnt(), fs.mnt + "/.mark", ops, errors))
                   for w in range(WORKERS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors, errors
        c.run("down", "--keep", stdout=subprocess.DEVNULL)
        for name in ("conf", "key", "metrics"):
            with open(c.dev + "/" + name, "rb") as src, open(fs.mem + "/" + name, "wb") as dst:
                dst.write(src.read().replace(c.dev.encode(), b"@DEV@"))


# --- the verification -----------------------------------------------------------------------------

def contents(path):
    """All bytes up to the size of stat. An interrupted truncation is completed after the restart;
    if this happens between stat and read, the sizes differ once."""
    for _ in range(50):
        size = os.lstat(path).st_size
        with open(path, "rb") as src:
            data = src.read()
        if len(data) == size:
            return data
        time.sleep(0.2)
    raise AssertionError("%s: stat tells %d bytes, read gives %d" % (path, size, len(data)))


def snapshot(folder):
    found = {}
    for name in os.listdir(folder):
        path = folder + "/" + name
        st = os.lstat(path)
        if stat.S_ISDIR(st.st_mode):
            found[name] = ("dir",)
        elif stat.S_ISLNK(st.st_mode):
            found[name] = ("link", os.readlink(path))
        else:
            f = File(stat.S_IMODE(st.st_mode))
            f.data = contents(path)
            f.xattrs = {x: os.getxattr(path, x) for x in os.listxattr(path)}
            f.ino, f.nlink = st.st_ino, st.st_nlink
            found[name] = f
    return found


def same(got, want):
    if not isinstance(got, File) or not isinstance(want, File):
        return got == want
    return (got.data, got.mode, got.xattrs) == (want.data, want.mode, want.xattrs)


def describe(v):
    if not isinstance(v, File):
        return str(v)
    digest = hashlib.md5(v.data).hexdigest()[:8]
    return "%d bytes %s mode %o %s" % (len(v.data), digest, v.mode, v.xattrs)


def blockwise(got, old, new):
    """True if every block is old or new, and the size is between both."""
    if not (isinstance(got, File) and isinstance(old, File) and isinstance(new, File)):
        return False
    sizes = sorted((len(old.data), len(new.data)))
    if not sizes[0] <= len(got.data) <= sizes[1] or got.mode != old.mode:
        return False
    for at in range(0, len(got.data), BLOCK):
        piece = got.data[at:at + BLOCK]
        a, b = (x.data[at:at + len(piece)].ljust(len(piece), b"\0") for x in (old, new))
        # Past the old end a block that was not yet written is a hole.
        if piece not in (a, b, a[:max(0, len(old.data) - at)].ljust(len(piece), b"\0")):
            return False
    return True


def verify_worker(folder, who, n):
    old, new = Model(who), Model(who)
    for i in range(1, n + 1):
        old.apply(i)
        new.apply(i)
    op = new.apply(n + 1)
    got = snapshot(folder)
    touched = set(str(x) for x in op[1:3]) | {"tmp"}
    wrong = []
    for name in sorted(set(got) | set(old.names) | set(new.names)):
        g, o, w = got.get(name), old.names.get(name), new.names.get(name)
        if same(g, o) or same(g, w) and not same(o, w):
            continue
        if name == "tmp" and op[0] == "replace":
            continue
        if isinstance(o, File) and isinstance(old.names.get(op[1]), File) and o is old.names[op[1]]:
            touched.add(name)  # another name of the changed file
        if name in touched and blockwise(g, o, w):
            continue
        wrong.append("w%d/%s after operation %d, before %s: is %s, was %s, would become %s" %
                     (who, name, n, op[:3], describe(g), describe(o), describe(w)))
    # After a rename one of its names exists, not both or none.
    if op[0] in ("rename", "rename_over", "replace") and not wrong:
        now = {k for k in got if k != "tmp"}
        if now not in (set(old.names), set(new.names)):
            wrong.append("w%d: %s was done in part: %s" % (who, op, sorted(now)))
    for name, f in got.items():  # hard links
        if isinstance(f, File) and name in old.names and not touched & {name} and not wrong:
            links = sum(1 for v in old.names.values() if v is old.names[name])
            if f.nlink != links and op[0] not in ("link", "unlink", "rename_over", "replace"):
                wrong.append("w%d/%s: %d links, not %d" % (who, name, f.nlink, links))
    return wrong


def verify(disk, marks):
    mem = os.path.dirname(disk)
    last = {w: 0 for w in range(WORKERS)}
    with open(marks) as f:
        for line in f:
            who, n = map(int, line.split())
            last[who] = max(last[who], n)
    c = Cluster(ossd=1, mounts=1)
    os.makedirs(c.dev)
    for name in ("mds", "ossd1"):
        os.symlink(disk + "/" + name, c.dev + "/" + name)
    for name in ("conf", "key", "metrics"):
        with open(mem + "/" + name, "rb") as src, open(c.dev + "/" + name, "wb") as dst:
            text = src.read().replace(b"@DEV@", c.dev.encode())
            if name == "conf":
                text = c.new_ports(text.decode()).encode()
            elif name == "metrics":
                text = b""
            dst.write(text)
        os.chmod(c.dev + "/" + name, 0o600)
    with c:
        wrong = []
        for who, n in last.items():
            folder = "%s/w%d" % (c.mnt(), who)
            if n == 0 and not os.path.isdir(folder):
                continue
            wrong += verify_worker(folder, who, n)
            with open(folder + "/after", "wb") as f:
                f.write(b"it goes on" * 1000)
        for who, n in last.items():
            if n:
                with open("%s/w%d/after" % (c.mnt(), who), "rb") as f:
                    assert f.read() == b"it goes on" * 1000
        assert not wrong, "\n".join(wrong)
        result = c.check_stores(check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)
        assert result.returncode == 0, result.stdout


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "verify":
        sys.exit(__doc__)
    verify(sys.argv[2], sys.argv[3])
