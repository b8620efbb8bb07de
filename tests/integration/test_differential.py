#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes random system calls, each in a directory of a local file system and in one of Leat, there
through one of two mounts. Everything that programs can see must be alike: results, errors, data,
attributes, extended attributes, names. The callers are root and a user with other groups.

    tests/run integration/differential
    LEAT_SEEDS=1..500 tests/integration/test_differential.py    these seeds
    tests/integration/test_differential.py --calls FILE LAYOUT   the calls that a failure printed
    LEAT_KEEP_GOING=1                                        continues after a failure

A sequence is a pure function of its seed. The test shortens a sequence that fails: it omits calls
and runs the rest in fresh directories, as long as the difference stays.

timeout: 1500
"""
import errno
import fcntl
import os
import random
import re
import shutil
import stat
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import Cluster
from twins import Twin, changeable

LONG = bool(os.environ.get("LEAT_LONG"))
SEEDS = os.environ.get("LEAT_SEEDS") or ("1..400" if LONG else "1..24")
KEEP_GOING = bool(os.environ.get("LEAT_KEEP_GOING"))
REMOUNT_EVERY = 25
USER, GROUP, OTHER_GROUP, STRANGER = 5001, 6001, 6002, 5002
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
KIB, MIB = 1 << 10, 1 << 20
MAY_SHRINK_S = 240
PATIENCE_S = 10
INSIDE = "/x/y/top"  # deep, so that no link to .. leaves a sequence

# What may differ, and why. Every other difference is a bug of one of the two.
#
# what                               why
# inode numbers, st_blocks, atime    a file system's own (only which names are one file is compared)
# st_size of directories             a file system's own
# data in pipes and devices, and     they are the machine's: two mounts are two machines, each has a
#   whether a pipe has a reader      pipe of its own; FUSE does not update their times
# where exactly holes are            ext4 has blocks, Leat has chunks: the data in the extents of
#                                    SEEK_DATA, and zeros elsewhere, must be the contents
# unaligned direct I/O               ext4 refuses it, so the test never tries it
# lseek on directories               cookies
# ctime, when an extended attribute  ext4 does nothing then; Leat sets it
#   gets the value that it has
# chown(-1, -1)                      POSIX leaves its times open, and FUSE does not send it
# writes to append-only files by     ext4 allows them without O_APPEND; Leat protects the data
#   descriptors from before          (integration/flags): not in seeds that write
# access(W_OK) of immutable files,   FUSE: the kernel does not have the flag, so it answers by mode
#   which of several possible        alone, and makes its other checks before it sends a request
#   errors is returned, O_APPEND     (likewise fcntl(F_SETFL) of append-only files)
#   and mappings of files that
#   became immutable or append-only
# open pipes, devices, O_PATH, and   FUSE does not send such an open: ESTALE, as in NFS; the MDS
#   extended attributes, flags and   counts no opens of directories, so each mount answers stat from
#   locks of open directories, when  what it has cached of one, and sets mode, owner and times there
#   the last name has been removed
# the new owner, right after         FUSE: the kernel checks chmod by its cached owner and refuses
#   another mount's chown, by a      the new one (Leat refuses the previous one): the test makes a
#   name, O_PATH, or a descriptor    stat before such a call of a user. Leat updates a kernel that
#   of a directory or device         has the file open; a name expires after 0.1 s
# copy_file_range and sendfile from  FUSE: the kernel does not request the size, but uses its cached
#   a file that has grown since      one: the test makes an fstat before the call
# sendfile of a file to itself       the result depends on the size of the steps
# copy_file_range of a file to       the kernel does not detect that it is one file, so it does not
#   itself through two mounts        refuse parts that overlap
# OFD locks, shortly after a close   FUSE: close does not wait for RELEASE, so the test retries them


def excused(call, fixed, local, leat):
    """Differences that the generator cannot avoid. fixed: a file is, or was, immutable or
    append-only."""
    if not fixed or local != "EPERM":
        return False
    return error(leat) or leat == {"access": None, "copy": 0}.get(call[2], -1)


def error(result):
    return isinstance(result, str) and result.isupper()



# ---- sequences ----

class Calls:
    """Draws a sequence. Each seed uses only some kinds of calls, with its own weights: an
    interaction of few kinds appears sooner than among all of them."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        rng = self.rng
        self.tag = seed * 1000
        self.names = ["a", "b", "c", "l"][:rng.choice((1, 2, 3, 4))]
        self.dirs = ["", "d/", "d/e/", "g/"][:rng.choice((1, 1, 2, 4))]
        self.user_share = rng.choice((0, 0, 0.3, 0.6))
        self.mounts = rng.choice(((0, 1), (0, 1), (0, 0, 0, 1), (0,)))
        self.slots = rng.choice((2, 3, 5))
        self.chunk = rng.choice((MIB, 64 * KIB, 64 * KIB))
        self.looks = rng.choice((0.3, 0.7, 1))
        # What may exist now: names, and numbers of descriptors and of mappings.
        self.there = {"d": "d", "d/e": "d", "g": "d"}
        self.numbers = {"root": ([], []), "user": ([], [])}
        every = sorted(n[4:] for n in dir(self) if n.startswith("draw"))
        groups = rng.sample(["data", "names", "attrs", "xattrs", "locks"], rng.choice((1, 2, 5)))
        self.kinds = ["_open"] * 4
        for kind in every:
            groups_of = getattr(self, "draw" + kind).groups
            if groups_of & set(groups) and rng.random() < 0.8:
                self.kinds += [kind] * rng.choice((1, 2, 4))
        self.writes = bool({"_write", "_pwrite", "_writev", "_sendfile"} & set(self.kinds))
        if "_map_write" in self.kinds:  # SIGBUS on ext4, an error of msync with FUSE
            self.kinds = [kind for kind in self.kinds if kind != "_chattr"]

    def sequence(self, length):
        rng = self.rng
        calls = [("root", 0, "mkdir", None, ("d", rng.choice((0o777, 0o1777, 0o755))), []),
                 ("root", 0, "mkdir", None, ("d/e", 0o777), []),
                 ("root", 0, "chmod", None, ("d/e", rng.choice((0o777, 0o700, 0o2777))), []),
                 ("root", 0, "mkdir", None, ("g", 0o777), []),
                 ("root", 0, "chown", None, ("g", rng.choice((0, USER)), OTHER_GROUP, True), []),
                 ("root", 0, "chmod", None, ("g", rng.choice((0o2777, 0o2770, 0o3775))), [])]
        while len(calls) < length + 6:
            calls.append(self.call())
            who, mount, name, _, args, _ = calls[-1]
            if name == "open" and "_write" in self.kinds and rng.random() < 0.5:
                fill = args[0], self.off(), self.next_tag(), self.length()
                calls.append((who, mount, "pwrite", None, fill, []))
        return calls

    def call(self):
        rng = self.rng
        kind = rng.choice(self.kinds)
        who = "user" if rng.random() < self.user_share else "root"
        if kind in ("_chattr", "_chown") and rng.random() < 0.8:
            who = "root"
        self.opened, self.mapped = self.numbers[who]
        args = getattr(self, "draw" + kind)()
        at = rng.randrange(self.slots) if rng.random() < 0.02 else None
        looks = []
        if rng.random() < self.looks:
            for arg in args:
                if isinstance(arg, str) and len(arg) < 300 and not arg.startswith("/"):
                    looks.append((rng.choice(self.mounts), None, arg))
                    if rng.random() < 0.3:
                        looks.append((0, None, os.path.dirname(arg.rstrip("/")) or "."))
            if isinstance(args[0], int) and kind not in ("_umask", "_map_read", "_unmap"):
                looks.append((0, args[0], None))
            if rng.random() < 0.3:
                looks.append((rng.choice(self.mounts), None, self.path(plain=True)))
        return (who, rng.choice(self.mounts), kind[1:], at, args, looks)

    # ---- arguments ----

    def new(self, kind):
        """A name to create a file, directory, link or node with."""
        p = self.path(there=False)
        apart = self.rng.random() < 0.3  # avoids existing names, else only those of other kinds
        for _ in range(self.rng.choice((0, 5, 5))):
            if p in self.there and (apart or self.there[p] != kind):
                p = self.path(there=False)
        if self.rng.random() < 0.9 and len(p) < 10 and p.strip("/"):
            self.there.setdefault(p.rstrip("/"), kind)
        return p

    def gone(self, kinds=""):
        """A name that a call will remove."""
        p = self.path(kinds)
        if self.rng.random() < 0.7 and p not in ("d", "d/e", "g"):
            self.there.pop(p, None)
        return p

    def path(self, kinds="", plain=False, there=True):
        """kinds: the kinds that the file at the path probably has."""
        rng = self.rng
        where, name = rng.choice(self.dirs), rng.choice(self.names)
        p = where + name
        if there and rng.random() < 0.85:
            files = list(self.there)[3:]
            if kinds and rng.random() < 0.9:
                files = [f for f in self.there if self.there[f] in kinds]
            p = rng.choice(files or [p])
            where, name = p[:p.rfind("/") + 1], p[p.rfind("/") + 1:]
        if plain or rng.random() < 0.88:
            return p
        return rng.choice((
            p + "/", "./" + p, where + name + "/../" + name, p + "/" + name, where + ".", "d/..",
            where + "\udcff\x01 \n" + name, where + "n" * 255, where + "n" * 256,
            "d/../" * 60 + p, "./" * 2100 + p, "", "d/e", "d", "g", p + "//", p + "/."))

    def slot(self):
        if self.opened and self.rng.random() < 0.95:
            return self.rng.choice(self.opened)
        return self.rng.randrange(self.slots)

    def new_slot(self):
        n = self.rng.randrange(self.slots)
        if n not in self.opened:
            self.opened.append(n)
        return n

    def mapping(self):
        return self.rng.choice(self.mapped or (0, 1))

    def off(self):
        rng = self.rng
        chunk = self.chunk
        near = rng.choice((0, 0, 4096, 8192, 60 * KIB, chunk, chunk, 2 * chunk))
        return max(0, near + rng.choice((0, 0, 0, 1, -1, 100, -100, rng.randrange(5000))))

    def length(self):
        rng = self.rng
        chunk = self.chunk
        return rng.choice((0, 1, 10, 100, 4095, 4096, 4097, 10000, chunk, chunk + 1,
                           rng.randrange(9000), rng.randrange(2 * chunk)))

    def next_tag(self):
        self.tag += 1
        return self.tag

    def mode(self):
        return self.rng.choice((0o644, 0o600, 0o666, 0o777, 0o700, 0o2755, 0o4755, 0o6777, 0o2745,
                                0o1777, 0, 0o444, 0o640, 0o070, 0o007, self.rng.randrange(0o10000)))

    def moment(self):
        rng = self.rng
        return rng.choice(((0, UTIME_NOW), (0, UTIME_OMIT), (1234567890, 123456789), (0, 0),
                           (-5, 999999999), (rng.randrange(1 << 30), rng.randrange(10 ** 9)),
                           (1, 10 ** 9)))

    def owners(self):
        uid = self.rng.choice((0, USER, USER, STRANGER, -1, -1))
        gid = self.rng.choice((0, GROUP, GROUP, OTHER_GROUP, 6003, -1, -1))
        return (uid, gid if uid >= 0 else max(0, gid))

    def xattr_name(self):
        rng = self.rng
        return rng.choice(("user.a", "user.a", "user.b", "trusted.a", "security.a", "user.",
                           "bogus.a", "security.capability", "system.posix_acl_access",
                           "system.posix_acl_access", "system.posix_acl_default"))

    def xattr(self):
        name = self.xattr_name()
        if name.startswith("system."):
            return name, self.acl()
        if name == "security.capability":
            return name, struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)
        # A new value each time: ext4 does not set the time if nothing changes.
        value = b"%d" % self.next_tag()
        return name, value * self.rng.choice((1, 1, 2, 20))

    def acl(self):
        """Most of them are valid."""
        rng = self.rng
        entries = [(1, rng.randrange(8), 0xffffffff)]
        named = rng.random() < 0.7
        if named:
            entries += [(2, rng.randrange(8), u) for u in sorted(rng.sample((USER, STRANGER), 1))]
        entries.append((4, rng.randrange(8), 0xffffffff))
        if named and rng.random() < 0.5:
            entries.append((8, rng.randrange(8), rng.choice((GROUP, OTHER_GROUP))))
        if named and rng.random() < 0.95 or rng.random() < 0.1:
            entries.append((16, rng.randrange(8), 0xffffffff))
        entries.append((32, rng.randrange(8), 0xffffffff))
        if rng.random() < 0.03:
            rng.shuffle(entries)
        return struct.pack("<I", rng.choice((2,) * 40 + (1,))) + b"".join(
            struct.pack("<HHI", *e) for e in entries[:rng.choice((9,) * 30 + (2, 0))])

    # ---- one for each kind: its arguments ----

    def of(*groups):
        def mark(fn):
            fn.groups = set(groups)
            return fn
        return mark

    @of("data", "names", "attrs", "xattrs", "locks")
    def draw_open(self):
        rng = self.rng
        flags = rng.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR))
        if rng.random() < 0.05:
            return self.new_slot(), rng.choice([d or "." for d in self.dirs]), \
                os.O_TMPFILE | max(flags, 1) | rng.choice((0, os.O_EXCL)), self.mode()
        if rng.random() < 0.05:
            return self.new_slot(), self.path("d"), os.O_DIRECTORY, 0
        for flag, share in ((os.O_CREAT, 0.7), (os.O_EXCL, 0.1), (os.O_TRUNC, 0.15),
                            (os.O_APPEND, 0.15), (os.O_DIRECTORY, 0.06), (os.O_NOFOLLOW, 0.1),
                            (os.O_SYNC, 0.05), (os.O_DSYNC, 0.05), (os.O_DIRECT, 0.08),
                            (os.O_PATH, 0.04), (os.O_NOATIME, 0.02)):
            if rng.random() < share:
                flags |= flag
        if flags & os.O_DIRECT:
            flags &= ~os.O_APPEND
        if flags & os.O_CREAT:  # Linux 6.4 changed the meaning of that pair
            flags &= ~os.O_DIRECTORY
        return self.new_slot(), self.new("f") if flags & os.O_CREAT else self.path("f"), flags, \
            self.mode() | (0o600 if rng.random() < 0.7 else 0)

    @of("data", "names", "locks")
    def draw_close(self):
        n = self.slot()
        if n in self.opened:
            self.opened.remove(n)
        return (n,)

    @of("data", "locks")
    def draw_dup(self):
        return self.slot(), self.new_slot()

    @of("data")
    def draw_set_append(self):
        return self.slot(), self.rng.random() < 0.5

    @of("data")
    def draw_getfl(self):
        return (self.slot(),)

    @of("data")
    def draw_read(self):
        return self.slot(), self.length()

    @of("data", "attrs", "names")
    def draw_pread(self):
        return self.slot(), self.off(), self.length()

    @of("data")
    def draw_readv(self):
        return self.slot(), self.off(), [self.length() for _ in range(self.rng.randrange(4))]

    @of("data", "attrs", "xattrs", "names")
    def draw_write(self):
        return self.slot(), self.next_tag(), self.length()

    @of("data", "attrs", "xattrs")
    def draw_pwrite(self):
        if self.rng.random() < 0.05:
            return self.slot(), self.off(), self.next_tag(), self.length(), \
                self.rng.choice((os.RWF_DSYNC, os.RWF_SYNC, 0x10))  # RWF_APPEND
        return self.slot(), self.off(), self.next_tag(), self.length()

    @of("data")
    def draw_writev(self):
        return self.slot(), self.next_tag(), [self.length() for _ in range(self.rng.randrange(4))]

    @of("data")
    def draw_lseek(self):
        rng = self.rng
        return self.slot(), rng.choice((0, 1, -1, self.off(), -self.off())), rng.randrange(3)

    @of("data")
    def draw_extents(self):
        return (self.slot(),)

    @of("data")
    def draw_beyond(self):
        return self.slot(), self.rng.choice((os.SEEK_DATA, os.SEEK_HOLE))

    @of("data", "attrs")
    def draw_ftruncate(self):
        return self.slot(), self.off()

    @of("data", "attrs", "names")
    def draw_truncate(self):
        return self.path("f"), self.off()

    @of("data", "attrs")
    def draw_fallocate(self):
        return self.slot(), self.rng.choice((0, 0, 1, 3, 3, 16, 17, 2)), self.off(), self.length()

    @of("data")
    def draw_copy(self):
        rng = self.rng
        offs = [rng.choice((None, self.off())) for _ in range(2)]
        return self.slot(), offs[0], self.slot(), offs[1], self.length()

    @of("data")
    def draw_sendfile(self):
        return self.slot(), self.slot(), self.rng.choice((None, self.off())), self.length()

    @of("data", "attrs")
    def draw_fsync(self):
        return (self.slot(),)

    @of("data")
    def draw_fdatasync(self):
        return (self.slot(),)

    @of("data")
    def draw_map(self):
        self.mapped.append(self.rng.randrange(2))
        length = self.rng.choice((1 + self.off(), 1 + self.rng.randrange(9000), 4096))
        return self.mapped[-1], self.slot(), length, self.rng.random() < 0.7

    @of("data")
    def draw_map_read(self):
        return self.mapping(), self.off() // self.rng.choice((1, 20)), self.length()

    @of("data")
    def draw_map_write(self):
        return self.mapping(), self.off() // self.rng.choice((1, 20)), self.next_tag(), \
            1 + self.length()

    @of("data")
    def draw_unmap(self):
        return (self.mapping(),)

    @of("names", "attrs", "xattrs")
    def draw_mkdir(self):
        return self.new("d"), self.mode() | (0o700 if self.rng.random() < 0.8 else 0)

    @of("names")
    def draw_rmdir(self):
        return (self.gone("d"),)

    @of("names", "data")
    def draw_unlink(self):
        return (self.gone("fln"),)

    @of("names", "attrs")
    def draw_mknod(self):
        kind = self.rng.choice((stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR,
                                stat.S_IFBLK, stat.S_IFDIR))
        device = os.makedev(1, 3) if kind == stat.S_IFCHR else os.makedev(259, 77)
        return self.new("n"), kind | self.mode(), device

    @of("names", "attrs")
    def draw_symlink(self):
        target = self.rng.choice((self.path(plain=True), self.rng.choice(self.names), "..", ".",
                                  "/proc/nowhere", "t" * 4000, ""))
        return target, self.new("l")

    @of("names")
    def draw_readlink(self):
        return (self.path("l"),)

    @of("names", "attrs", "data")
    def draw_link(self):
        return self.path("fln"), self.new("f"), self.rng.random() < 0.2

    @of("names", "data")
    def draw_link_fd(self):
        return self.slot(), self.new("f"), self.rng.random() < 0.5

    @of("names", "attrs", "data")
    def draw_rename(self):
        old = self.gone()
        return old, self.new(self.there.get(old, "f")), \
            self.rng.choice((0, 0, 0, 0, 1, 2, 2, 3, 4, 5, 6, 8))

    @of("names")
    def draw_list(self):
        return (self.rng.choice([d or "." for d in self.dirs] + [self.path("d")]),)

    @of("names")
    def draw_list_fd(self):
        return (self.slot(),)

    @of("names")
    def draw_list_during(self):
        return self.rng.choice([d or "." for d in self.dirs]), self.rng.choice(self.names), \
            self.rng.choice(self.names)

    @of("attrs", "xattrs", "names")
    def draw_chmod(self):
        return self.path(), self.mode()

    @of("attrs", "xattrs")
    def draw_fchmod(self):
        return self.slot(), self.mode()

    @of("attrs", "xattrs")
    def draw_chown(self):
        return (self.path(), *self.owners(), self.rng.random() < 0.7)

    @of("attrs")
    def draw_fchown(self):
        return (self.slot(), *self.owners())

    @of("attrs", "data")
    def draw_utimens(self):
        times = (self.moment(), self.moment()) if self.rng.random() < 0.8 else None
        return self.path(), times, self.rng.random() < 0.7

    @of("attrs", "data")
    def draw_futimens(self):
        return self.slot(), (self.moment(), self.moment())

    @of("attrs", "xattrs", "names")
    def draw_access(self):
        return self.path(), self.rng.randrange(8), self.rng.random() < 0.5

    @of("attrs", "names", "xattrs")
    def draw_umask(self):
        return (self.rng.choice((0, 0o22, 0o77, 0o777, 0o27)),)

    @of("xattrs", "attrs")
    def draw_setxattr(self):
        name, value = self.xattr()
        kinds = "d" if name.endswith("default") else ""
        return self.path(kinds), name, value, self.rng.choice((0, 0, 0, 1, 2, 3)), \
            self.rng.random() < 0.7

    @of("xattrs")
    def draw_fsetxattr(self):
        name, value = self.xattr()
        return self.slot(), name, value, self.rng.choice((0, 0, 1, 2))

    @of("xattrs")
    def draw_getxattr(self):
        return self.path(), self.xattr_name(), self.rng.random() < 0.7

    @of("xattrs", "attrs")
    def draw_removexattr(self):
        return self.path(), self.xattr_name(), self.rng.random() < 0.7

    @of("xattrs")
    def draw_fremovexattr(self):
        return self.slot(), self.xattr_name()

    @of("attrs")
    def draw_chattr(self):
        return self.path("fd"), self.rng.choice((0x10, 0 if self.writes else 0x20, 0x40, 0)), \
            self.rng.choice((0x70, 0x70, 0x10, 0x20))

    @of("attrs")
    def draw_lsattr(self):
        return (self.path(),)

    @of("locks")
    def draw_flock(self):
        return self.slot(), self.rng.choice((fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN))

    @of("locks")
    def draw_ofd_lock(self):
        return self.slot(), self.rng.choice((fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK)), \
            self.rng.randrange(6), self.rng.randrange(5)

    @of("locks")
    def draw_ofd_getlk(self):
        return self.slot(), self.rng.choice((fcntl.F_RDLCK, fcntl.F_WRLCK)), \
            self.rng.randrange(6), self.rng.randrange(5)


# ---- comparing ----

class Difference(Exception):
    """sign: equal signs mean that a difference is the one found before."""

    def __init__(self, sign, text):
        super().__init__(text)
        self.sign = sign


def short(value):
    if isinstance(value, bytes) and len(value) > 40:
        return "%d bytes %s…" % (len(value), value[:12].hex())
    return repr(value)


def where_bytes_differ(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return "%d and %d bytes, first different at %d: local %s, Leat %s" % (
        len(a), len(b), at, a[at:at + 16].hex(), b[at:at + 16].hex())


def alike(what, local, leat):
    if local == leat:
        return
    if isinstance(local, bytes) and isinstance(leat, bytes):
        raise Difference((what, "bytes"), "%s: %s" % (what, where_bytes_differ(local, leat)))
    sign = (what,) + tuple(v if error(v) else "" for v in (local, leat))
    raise Difference(sign, "%s: local %s, Leat %s" % (what, short(local), short(leat)))


class Seen:
    """What the test has seen of files: which local file is which of Leat's, and their times."""

    def __init__(self):
        self.leat_of, self.local_of, self.times = {}, {}, {}

    def compare(self, what, local, leat, ctime_may_rest=False):
        for field in sorted((local.keys() | leat.keys())):
            if not field.startswith("_"):
                alike("%s: %s" % (what, field), local.get(field), leat.get(field))
        if "_handle" in local:
            self.same_file(what, local["_handle"], leat["_ino"])
            if "_times" in local:
                self.same_times(what, local["_handle"], local["_times"], leat["_times"],
                                ctime_may_rest)

    def same_file(self, what, one, other):
        if self.leat_of.setdefault(one, other) != other or \
                self.local_of.setdefault(other, one) != one:
            raise Difference((what, "which"), "%s: not the same file as before" % what)

    def same_times(self, what, one, local, leat, ctime_may_rest):
        """Times change by calls that change them on both; times that were set are equal."""
        then_local, then_leat = self.times.get(one, (None, None))
        for i, name in enumerate(("mtime", "ctime")):
            if local[i] < 1_500_000_000 * 10 ** 9:
                alike("%s: %s as it was set" % (what, name), local[i], leat[i])
            if then_local is None:
                continue
            here, there = local[i] - then_local[i], leat[i] - then_leat[i]
            if here == 0 and name == "ctime" and ctime_may_rest:
                continue
            if bool(here) != bool(there):
                raise Difference((what, name, bool(here)), "%s: %s moved by %d ns locally, by %d "
                                 "on Leat" % (what, name, here, there))
        self.times[one] = local, leat


class Run:
    """A sequence in fresh directories."""
    number = 0

    def __init__(self, c, local, layout):
        Run.number += 1
        self.places = ["%s/%d" % (where, Run.number) for where in (local, c.mnt(1), c.mnt(2))]
        for place in self.places[:2]:
            os.mkdir(place)
            if place != self.places[0]:
                os.setxattr(place, "leat.layout", layout.encode())
            os.makedirs(place + INSIDE)
            os.chmod(place + INSIDE, 0o777)
        self.jail = c.dir
        self.local, *self.leat = [place + INSIDE for place in self.places]
        self.seen = Seen()
        user = (USER, GROUP, [GROUP, OTHER_GROUP])
        self.twins = {"root": Twin(self.jail, [self.local] * 2, self.leat),
                      "user": Twin(self.jail, [self.local] * 2, self.leat, user)}

    def run(self, calls):
        """Returns (number of the call, Difference), or None."""
        n, fixed = -1, False
        try:
            for n, (_, _, name, _, args, looks) in enumerate(calls):
                if SLOW_CLOCK:
                    time.sleep(0.01)
                results, seen = self.perform(calls[n])
                fixed = fixed or name == "chattr" and args[1] & 0x30 and not error(results[0])
                if not excused(calls[n], fixed, *results):
                    alike(name, *results)
                for look, both in zip(looks, seen):
                    how = "fstat" if look[2] is None else "lstat"
                    self.seen.compare("%s, then %s" % (name, how), *both,
                                      name.endswith("setxattr") and not error(results[0]))
            n = len(calls)
            self.compare_trees()
            self.end()
            return self.afterwards()
        except Difference as d:
            return n, d
        finally:
            self.end()
        return None

    def perform(self, call):
        who, mount, name, at, args, looks = call
        end = time.monotonic() + PATIENCE_S
        while True:
            results, seen = self.twins[who].perform((mount, name, at, args), looks)
            if not name.startswith("ofd") or results[0] == results[1] or time.monotonic() > end:
                return results, seen

    def end(self):
        for twin in self.twins.values():
            twin.end()
        self.twins = {}

    def compare_trees(self):
        for mount in (0, 1):
            results, _ = self.twins["root"].perform((mount, "tree", None, (mount,)))
            if not all(isinstance(r, dict) for r in results):
                raise Difference(("tree", str(results[1])), "the whole tree: %s" % results[1])
            local, leat = results
            for path in sorted(local.keys() | leat.keys()):
                self.seen.compare("the whole tree: %s" % path, local.get(path, {}),
                                  leat.get(path, {}))

    def afterwards(self):
        """Compares after everything is closed. Returns what run() returns."""
        self.twins = {"root": Twin(self.jail, [self.local] * 2, self.leat)}
        try:
            self.compare_trees()
        except Difference as d:
            return 10 ** 9, d
        finally:
            self.end()
        return None

    def remove(self):
        for top in self.places[:2]:
            for folder, names, files in os.walk(top):
                for name in ["."] + names + files:
                    changeable(folder + "/" + name)
            shutil.rmtree(top)


def clock_is_slow(folder):
    """True if two changes may get equal times: before Linux 6.13, or on another file system."""
    times = set()
    for i in range(3):
        with open(folder + "/clock", "wb") as f:
            f.write(b"x")
        times.add(os.stat(folder + "/clock").st_mtime_ns)
    os.unlink(folder + "/clock")
    return len(times) < 3


# ---- making it shorter ----

def shorten(calls, fails):
    """Removes the calls that the failure does not need, and simplifies the others."""
    end = time.monotonic() + MAY_SHRINK_S
    size = max(1, len(calls) // 2)
    while size and time.monotonic() < end:
        at, before = 0, len(calls)
        while at < len(calls) and time.monotonic() < end:
            fewer = calls[:at] + calls[at + size:]
            if fewer and fails(fewer):
                calls = fewer
            else:
                at += size
        if size > 1 or len(calls) == before:
            size //= 2
    for i in range(len(calls)):
        for simpler in simpler_calls(calls[i]):
            if time.monotonic() > end:
                break
            fewer = calls[:i] + [simpler] + calls[i + 1:]
            if fails(fewer):
                calls = fewer
    return calls


def simpler_calls(call):
    who, mount, name, at, args, looks = call
    if looks:
        yield who, mount, name, at, args, []
        if len(looks) > 1:
            yield who, mount, name, at, args, looks[-1:]
    if who != "root":
        yield "root", mount, name, at, args, looks
    if mount:
        yield who, 0, name, at, args, looks


def said(call):
    """For people to read, and for --calls."""
    call = re.sub(r"(nn|tt|(?:\./){9}|(?:d/\.\./){9})\1{9,}", lambda m: "%s' + %d * '%s' + '" % (
        m.group(1), len(m.group(0)) // len(m.group(1)) - 1, m.group(1)), repr(call))
    return "    %s," % call


class Failure(Exception):
    pass


def once(c, local, calls, layout):
    """Runs the calls, and leaves no files behind."""
    run = Run(c, local, layout)
    found = run.run(calls)
    run.remove()
    return found


def explain(c, local, calls, found, layout):
    """The message, with the shortest sequence that fails."""
    n, difference = found

    def fails(some):
        again = once(c, local, some, layout)
        return again is not None and again[1].sign == difference.sign

    calls = calls[:n + 1]
    if any(fails(calls) for _ in range(3)):
        calls = shorten(calls, fails)
        difference = (once(c, local, calls, layout) or (0, difference))[1]
        word = "shortened"
    else:
        word = "it did not show again; all calls before it"
    return "%s\n  %s (%s):\n%s" % (difference, word, layout, "\n".join(map(said, calls)))


def sequence(seed):
    drawn = Calls(seed)
    length = drawn.rng.choice((30, 60, 120, 200))
    layout = drawn.rng.choice(("", " compression=1", " width=1", " compression=1 width=1"))
    return drawn.sequence(length), "chunk_size=%d" % drawn.chunk + layout


def remount(c, kept, failed):
    c.run("cold", stdout=-3)
    for seed, run in kept:
        found = run.afterwards()
        if found:
            failed.append(seed)
            print("seed %d, after remounting: %s" % (seed, found[1]))
        run.remove()
    kept.clear()


def all_seeds(c, local, seeds):
    kept, failed, calls_made = [], [], 0
    for seed in seeds:
        calls, layout = sequence(seed)
        calls_made += len(calls)
        run = Run(c, local, layout)
        found = run.run(calls)
        if found:
            failed.append(seed)
            run.remove()
            text = explain(c, local, calls, found, layout)
            print("seed %d, call %d: %s" % (seed, found[0], text), flush=True)
            if not KEEP_GOING:
                break
        else:
            kept.append((seed, run))
        if len(kept) >= REMOUNT_EVERY:
            remount(c, kept, failed)
    remount(c, kept, failed)
    print("%d calls" % calls_made)
    return failed


def main():
    global SLOW_CLOCK
    seeds = list(range(*[int(s) + i for i, s in enumerate(SEEDS.split(".."))]))
    if "LEAT_SEEDS" not in os.environ:
        seeds.append(time.time_ns() // 1000 % 10 ** 9 + 10 ** 6)
        print("new seed: %d" % seeds[-1], flush=True)
    with Cluster() as c:
        local = c.dir + "/local"
        os.mkdir(local)
        SLOW_CLOCK = clock_is_slow(local)
        if sys.argv[1:2] == ["--calls"]:
            with open(sys.argv[2]) as f:
                calls = eval("[%s]" % f.read())
            print(once(c, local, calls, sys.argv[3] if sys.argv[3:] else "chunk_size=65536"))
            return
        try:
            failed = all_seeds(c, local, seeds)
        finally:
            for folder, _, files in os.walk(local):
                for name in ["."] + files:
                    changeable(folder + "/" + name)
    if failed:
        sys.exit("failed: seeds %s" % " ".join(map(str, failed)))


if __name__ == "__main__":
    main()
