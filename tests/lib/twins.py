# SPDX-License-Identifier: Apache-2.0
"""System calls that are made twice: in a directory of a local file system and in one of Leat, there
by any of several mounts. `Twin` is a process of one identity that makes them and returns both
results; its caller compares them (tests/integration/test_differential.py).

A call is (mount, name, at, args): `at` is the number of an open directory that paths begin at, or
None for the top. Descriptors and mappings have numbers that the caller gives; a descriptor belongs
to the mount that it was opened by. A result is a value or the name of an error. The process can
reach only the folder that both sides are in: random paths may lead out of their directory, by links
and `..`.
"""
import ctypes
import errno
import fcntl
import mmap
import multiprocessing
import os
import random
import stat
import struct
import traceback

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 4096, 16384, 1 << 18, 2
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_STATX_DONT_SYNC = -100, 0x1000, 0x400, 0x4000
F_OFD_GETLK, F_OFD_SETLK = 36, 37
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
FS_IMMUTABLE_FL, FS_APPEND_FL, FS_NODUMP_FL, FS_NOATIME_FL = 0x10, 0x20, 0x40, 0x80
FLAGS_SHOWN = FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL | FS_NOATIME_FL
PAGE = 4096
SYS_GETDENTS64 = {"x86_64": 217}.get(os.uname().machine, 61)
SYS_PIVOT_ROOT = {"x86_64": 155}.get(os.uname().machine, 41)
# The kernel checks whether the caller is the owner by the attributes that it last got.
OWNERS = {"chmod", "fchmod", "chown", "fchown", "utimens", "futimens", "setxattr", "fsetxattr",
          "removexattr", "fremovexattr", "chattr", "unlink", "rmdir", "rename"}
WHOLE = 8 << 20  # no file is longer


class NotOpen(Exception):
    """The number is not in use (the open failed, or was left out of the sequence)."""


class Hidden(Exception):
    """The results cannot be compared; the rules give the reason."""


def check(rc):
    if rc < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return rc


def payload(tag, length):
    return random.Random(tag).randbytes(length)


class Caller:
    """Performs the calls of one identity on one side. tops: the directory in each mount."""

    def __init__(self, tops):
        self.tops = [os.open(t, os.O_RDONLY | os.O_DIRECTORY) for t in tops]
        self.fds, self.maps = {}, {}  # number: (descriptor, mount, flags), number: (mmap, writable)

    def perform(self, mount, name, at, args):
        try:
            self.mount = mount if at is None else self.slot(at)[1]
            os.fchdir(self.tops[mount] if at is None else self.slot(at)[0])
            if name in OWNERS and os.geteuid() != 0:
                self.look_first(args[0])
            return getattr(self, "do_" + name)(*args)
        except OSError as e:
            return errno.errorcode.get(e.errno, str(e.errno))
        except NotOpen:
            return "not open"
        except Hidden as e:
            return str(e)
        finally:
            attempt(os.fchdir, self.tops[0])

    def look_first(self, what):
        """The kernel is notified of a new owner of an open file; by a name, a directory or O_PATH
        it may use the previous one."""
        if isinstance(what, str):
            attempt(os.stat, what)
            return
        fd = self.fd(what)
        if self.slot(what)[2] & os.O_PATH or kind_of(fd) != stat.S_IFREG:
            attempt(os.stat, fd)

    def slot(self, n):
        if n not in self.fds:
            raise NotOpen
        fd, _, flags = self.fds[n]
        if (flags & os.O_PATH or kind_of(fd) not in (stat.S_IFREG, stat.S_IFDIR)) and is_gone(fd):
            raise Hidden("gone")
        return self.fds[n]

    def fd(self, n):
        fd = self.slot(n)[0]
        if kind_of(fd) == stat.S_IFDIR and is_gone(fd):
            raise Hidden("gone")
        return fd

    def attr_fd(self, n):
        """Root may set attributes of a removed directory. Whether other users may, two mounts may
        decide differently: what is set then is visible in one mount alone."""
        return self.slot(n)[0] if os.geteuid() == 0 else self.fd(n)

    def data_fd(self, n):
        """Of a regular file (or a directory, which refuses): the content of a pipe or device does
        not belong to the file system."""
        fd, _, flags = self.slot(n)
        if kind_of(fd) not in (stat.S_IFREG, stat.S_IFDIR):
            raise Hidden("not a file")
        return fd, bool(flags & os.O_DIRECT)

    # ---- descriptors ----

    def do_open(self, n, path, flags, mode):
        try:
            fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
        except OSError as e:
            if e.errno == errno.ENXIO and stat.S_ISFIFO(os.stat(path).st_mode):
                raise Hidden("a pipe") from e
            raise
        if flags & os.O_ACCMODE == os.O_WRONLY and kind_of(fd) == stat.S_IFIFO:
            os.close(fd)
            raise Hidden("a pipe")
        self.drop(n)
        self.fds[n] = (fd, self.mount, flags)
        return "open"

    def drop(self, n):
        if n in self.fds:
            os.close(self.fds.pop(n)[0])

    def do_close(self, n):
        self.slot(n)
        self.drop(n)

    def do_dup(self, n, new):
        fd, mount, flags = self.slot(n)
        copy = os.dup(fd)
        self.drop(new)
        self.fds[new] = (copy, mount, flags)

    def do_set_append(self, n, on):
        fd, mount, flags = self.slot(n)
        if flags & os.O_DIRECT or flags_of(fd) & FS_APPEND_FL:
            raise Hidden("direct, or append-only")
        now = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, now | os.O_APPEND if on else now & ~os.O_APPEND)

    def do_getfl(self, n):
        return fcntl.fcntl(self.fd(n), fcntl.F_GETFL)

    # ---- data ----

    def do_read(self, n, length):
        fd, direct = self.data_fd(n)
        if direct:
            return self.do_pread(n, os.lseek(fd, 0, os.SEEK_CUR), length)
        return os.read(fd, length)

    def do_pread(self, n, off, length):
        fd, direct = self.data_fd(n)
        if not direct:
            return os.pread(fd, length, off)
        off, length = off // PAGE * PAGE, (length // PAGE + 1) * PAGE
        with mmap.mmap(-1, length) as buf:
            return buf[:os.preadv(fd, [buf], off)]

    def do_readv(self, n, off, lengths):
        fd, direct = self.data_fd(n)
        if direct:
            raise Hidden("direct")
        bufs = [bytearray(length) for length in lengths]
        got = os.preadv(fd, bufs, off)
        return b"".join(bufs)[:got]

    def do_write(self, n, tag, length):
        fd, direct = self.data_fd(n)
        if direct:
            return self.do_pwrite(n, os.lseek(fd, 0, os.SEEK_CUR), tag, length)
        return os.write(fd, payload(tag, length))

    def do_pwrite(self, n, off, tag, length, flags=0):
        fd, direct = self.data_fd(n)
        if not direct:
            return os.pwritev(fd, [payload(tag, length)], off, flags)
        off, length = off // PAGE * PAGE, (length // PAGE + 1) * PAGE
        with mmap.mmap(-1, length) as buf:
            buf[:] = payload(tag, length)
            return os.pwritev(fd, [buf], off)

    def do_writev(self, n, tag, lengths):
        fd, direct = self.data_fd(n)
        if direct:
            raise Hidden("direct")
        return os.writev(fd, [payload(tag + i, length) for i, length in enumerate(lengths)])

    def do_lseek(self, n, off, whence):
        fd, _ = self.data_fd(n)
        if kind_of(fd) == stat.S_IFDIR:
            raise Hidden("a directory")
        return os.lseek(fd, off, whence)

    def do_extents(self, n):
        """The data that SEEK_DATA and SEEK_HOLE find: all bytes except zeros."""
        fd, direct = self.data_fd(n)
        if direct or kind_of(fd) == stat.S_IFDIR:
            raise Hidden("not read")
        os.pread(fd, 1, 0)  # an error if it is not open for reading
        at, before = 0, os.lseek(fd, 0, os.SEEK_CUR)
        size = os.fstat(fd).st_size
        data = bytearray(size)
        try:
            while at < size:
                start = os.lseek(fd, at, os.SEEK_DATA)
                end = os.lseek(fd, start, os.SEEK_HOLE)
                data[start:end] = os.pread(fd, end - start, start)
                at = end
        except OSError as e:
            if e.errno != errno.ENXIO:
                raise
        finally:
            os.lseek(fd, before, os.SEEK_SET)
        return bytes(data)

    def do_beyond(self, n, whence):
        """SEEK_DATA and SEEK_HOLE at and after the end."""
        fd, _ = self.data_fd(n)
        size = os.fstat(fd).st_size
        if kind_of(fd) == stat.S_IFDIR:
            raise Hidden("a directory")
        return os.lseek(fd, size, whence)

    def do_ftruncate(self, n, size):
        os.ftruncate(self.data_fd(n)[0], size)

    def do_truncate(self, path, size):
        os.truncate(path, size)

    def do_fallocate(self, n, mode, off, length):
        check(libc.fallocate(self.data_fd(n)[0], mode, ctypes.c_long(off), ctypes.c_long(length)))

    def do_copy(self, source, source_off, target, target_off, length):
        s, d = self.data_fd(source), self.data_fd(target)
        if s[1] or d[1]:
            raise Hidden("direct")
        if self.fds[source][1] != self.fds[target][1] and number_of(s[0]) == number_of(d[0]):
            raise Hidden("on itself, through two mounts")
        os.fstat(s[0])  # the kernel uses the size that it last got
        return os.copy_file_range(s[0], d[0], length, source_off, target_off)

    def do_sendfile(self, target, source, off, length):
        s, d = self.data_fd(source), self.data_fd(target)
        if s[1] or d[1] or number_of(s[0]) == number_of(d[0]):
            raise Hidden("direct, or on itself")
        os.fstat(s[0])
        return os.sendfile(d[0], s[0], off, length)

    def do_fsync(self, n):
        os.fsync(self.data_fd(n)[0])

    def do_fdatasync(self, n):
        os.fdatasync(self.data_fd(n)[0])

    # ---- mappings ----

    def do_map(self, m, n, length, writable):
        if m in self.maps:
            self.maps.pop(m)[0].close()
        fd, _ = self.data_fd(n)
        if kind_of(fd) != stat.S_IFREG:
            raise Hidden("not a file")
        if os.fstat(fd).st_size < length:
            raise Hidden("too short")  # Python refuses it
        if writable and flags_of(fd) & FS_APPEND_FL:
            raise Hidden("append-only")
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.maps[m] = mmap.mmap(fd, length, mmap.MAP_SHARED, prot), writable

    def mapped(self, m, length):
        """The mapping, and how much of it may be accessed: nothing after the file's end."""
        if m not in self.maps:
            raise NotOpen
        area, writable = self.maps[m]
        return area, min(length, area.size(), len(area)), writable

    def do_map_read(self, m, off, length):
        area, end, _ = self.mapped(m, off + length)
        return area[off:max(off, end)]

    def do_map_write(self, m, off, tag, length):
        area, end, writable = self.mapped(m, off + length)
        if not writable:
            raise Hidden("read-only")
        if off < end:
            area[off:end] = payload(tag, end - off)
            area.flush()
        return max(0, end - off)

    def do_unmap(self, m):
        self.mapped(m, 0)[0].close()
        self.maps.pop(m)

    # ---- names ----

    def do_mkdir(self, path, mode):
        os.mkdir(path, mode)

    def do_rmdir(self, path):
        os.rmdir(path)

    def do_unlink(self, path):
        os.unlink(path)

    def do_mknod(self, path, mode, device):
        os.mknod(path, mode, device)

    def do_symlink(self, target, path):
        os.symlink(target, path)

    def do_readlink(self, path):
        return os.readlink(path)

    def do_link(self, old, new, follow):
        os.link(old, new, follow_symlinks=follow)

    def do_link_fd(self, n, path, by_proc):
        """Gives an open file a name, also one of O_TMPFILE."""
        fd, mount, _ = self.slot(n)
        os.fchdir(self.tops[mount])
        if by_proc:
            check(libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, os.fsencode(path),
                              AT_SYMLINK_FOLLOW))
        else:
            check(libc.linkat(fd, b"", AT_FDCWD, os.fsencode(path), AT_EMPTY_PATH))

    def do_rename(self, old, new, flags):
        check(libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))

    def do_list(self, path):
        with os.scandir(path) as entries:
            return sorted((e.name, stat.S_IFMT(e.stat(follow_symlinks=False).st_mode),
                           e.is_dir(follow_symlinks=False)) for e in entries)

    def do_list_fd(self, n):
        return sorted(os.listdir(self.slot(n)[0]))

    def do_list_during(self, path, removed, added):
        """Reads a directory while it changes: each name that exists all the time comes once."""
        before = set(os.listdir(path))
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = some_names(fd)
            attempt(os.unlink, path + "/" + removed)
            attempt(os.mkdir, path + "/" + added)
            while more := some_names(fd):
                names += more
        finally:
            os.close(fd)
        stayed = before & set(os.listdir(path))
        return sorted(n for n in names if n in stayed), sorted(os.listdir(path))

    # ---- attributes ----

    def do_chmod(self, path, mode):
        os.chmod(path, mode)

    def do_fchmod(self, n, mode):
        os.fchmod(self.attr_fd(n), mode)

    def do_chown(self, path, uid, gid, follow):
        os.chown(path, uid, gid, follow_symlinks=follow)

    def do_fchown(self, n, uid, gid):
        os.fchown(self.attr_fd(n), uid, gid)

    def do_utimens(self, path, times, follow):
        """times: two of (seconds, nanoseconds), which may be UTIME_NOW or UTIME_OMIT."""
        ts = struct.pack("4q", *times[0], *times[1]) if times else None
        check(libc.utimensat(AT_FDCWD, os.fsencode(path), ts, 0 if follow else 0x100))

    def do_futimens(self, n, times):
        check(libc.futimens(self.attr_fd(n), struct.pack("4q", *times[0], *times[1])))

    def do_access(self, path, mode, effective):
        check(libc.faccessat(AT_FDCWD, os.fsencode(path), mode, 0x200 if effective else 0))

    def do_umask(self, mask):
        os.umask(mask)

    def do_setxattr(self, path, name, value, flags, follow):
        os.setxattr(path, name, value, flags, follow_symlinks=follow)

    def do_fsetxattr(self, n, name, value, flags):
        os.setxattr(self.fd(n), name, value, flags)

    def do_getxattr(self, path, name, follow):
        return os.getxattr(path, name, follow_symlinks=follow)

    def do_removexattr(self, path, name, follow):
        os.removexattr(path, name, follow_symlinks=follow)

    def do_fremovexattr(self, n, name):
        os.removexattr(self.fd(n), name)

    def do_chattr(self, path, on, off):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if kind_of(fd) not in (stat.S_IFREG, stat.S_IFDIR):
                raise Hidden("not a file")
            flags = flags_of(fd) & ~off | on
            fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("Q", flags))
        finally:
            os.close(fd)

    def do_lsattr(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if kind_of(fd) not in (stat.S_IFREG, stat.S_IFDIR):
                raise Hidden("not a file")
            return flags_of(fd) & FLAGS_SHOWN
        finally:
            os.close(fd)

    # ---- locks ----

    def do_flock(self, n, how):
        fcntl.flock(self.fd(n), how | fcntl.LOCK_NB)

    def do_ofd_lock(self, n, kind, off, length):
        fcntl.fcntl(self.fd(n), F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, off, length, 0))

    def do_ofd_getlk(self, n, kind, off, length):
        got = fcntl.fcntl(self.fd(n), F_OFD_GETLK, struct.pack("hhqqi4x", kind, 0, off, length, 0))
        kind, whence, off, length, _ = struct.unpack("hhqqi4x", got)
        return (kind,) if kind == fcntl.F_UNLCK else (kind, whence, off, length)

    # ---- inspection ----

    def look(self, mount, at, path, deep=False):
        """All visible properties of a name, or of an open file (path None). Members beginning with
        an underscore are not compared."""
        seen = {}
        try:
            if path is None:
                what, follow = self.slot(at)[0], True
            else:
                os.fchdir(self.tops[mount])
                what, follow = path, False
            a = os.stat(what, follow_symlinks=follow)
        except OSError as e:
            return {"stat": errno.errorcode.get(e.errno, e.errno)}
        except (NotOpen, Hidden) as e:
            return {"stat": str(e)}
        kind = stat.S_IFMT(a.st_mode)
        seen.update(type=oct(kind), mode=oct(stat.S_IMODE(a.st_mode)), nlink=a.st_nlink,
                    uid=a.st_uid, gid=a.st_gid, _ino=a.st_ino,
                    _times=(a.st_mtime_ns, a.st_ctime_ns))
        if kind != stat.S_IFDIR:
            seen["size"] = a.st_size
        if kind in (stat.S_IFCHR, stat.S_IFBLK):
            seen["rdev"] = a.st_rdev
        seen["_handle"] = handle(what)
        if kind == stat.S_IFDIR and a.st_nlink == 0:
            return {"type": oct(kind), "nlink": 0}
        self.look_at_xattrs(seen, what, follow)
        if kind == stat.S_IFLNK and path is not None:
            seen["target"] = attempt(os.readlink, what)
        if kind == stat.S_IFDIR and path is not None:
            names = attempt(os.listdir, what)
            seen["names"] = sorted(names) if isinstance(names, list) else names
        if deep and kind == stat.S_IFREG:
            seen["data"] = attempt(read_whole, what)
        return seen

    def look_at_xattrs(self, seen, what, follow):
        kw = {} if isinstance(what, int) else {"follow_symlinks": follow}
        names = attempt(os.listxattr, what, **kw)
        if isinstance(names, str):
            seen["xattrs"] = names
            return
        seen["xattrs"] = {n: attempt(os.getxattr, what, n, **kw) for n in sorted(names)}

    def do_tree(self, mount):
        """All names below the top, as in that mount."""
        found, todo = {}, ["."]
        while todo:
            path = todo.pop()
            found[path] = self.look(mount, None, path, deep=True)
            if isinstance(found[path].get("names"), list):
                todo += [path + "/" + n for n in found[path]["names"]]
        return found


def flags_of(fd):
    """The flags of chattr; none where there can be none."""
    buf = bytearray(8)
    if kind_of(fd) in (stat.S_IFREG, stat.S_IFDIR):
        fcntl.ioctl(fd, FS_IOC_GETFLAGS, buf)
    return struct.unpack_from("I", buf)[0]


def changeable(path):
    """Clears the flags that prevent its removal."""
    if stat.S_IFMT(os.lstat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        flags = flags_of(fd)
        if flags & (FS_IMMUTABLE_FL | FS_APPEND_FL):
            flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL)
            fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("Q", flags))
    finally:
        os.close(fd)


def known(fd):
    """statx without a request: a request might change what the kernel has cached."""
    buf = ctypes.create_string_buffer(256)
    check(libc.statx(fd, b"", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 1, buf))
    return buf


def kind_of(fd):
    return stat.S_IFMT(struct.unpack_from("H", known(fd), 28)[0])


def number_of(fd):
    return struct.unpack_from("Q", known(fd), 32)[0]


def is_gone(fd):
    try:
        return os.fstat(fd).st_nlink == 0
    except OSError as e:
        if e.errno != errno.ESTALE:
            raise
        return True


def attempt(fn, *args, **kw):
    try:
        return fn(*args, **kw)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


def some_names(fd):
    """The result of one getdents with space for one long name or some short ones."""
    buf, names, at = ctypes.create_string_buffer(600), [], 0
    end = check(libc.syscall(SYS_GETDENTS64, fd, buf, 300))
    if end == 0:
        return []
    while at < end:
        length = struct.unpack_from("H", buf.raw, at + 16)[0]
        names.append(os.fsdecode(buf.raw[at + 19:at + length].split(b"\0")[0]))
        at += length
    return names


def read_whole(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, WHOLE, 0)
    finally:
        os.close(fd)


def handle(what):
    """Identifies a file even if another file had its inode number before."""
    buf = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 8 + 128)
    mount_id = ctypes.c_int()
    fd, path = (what, b"") if isinstance(what, int) else (AT_FDCWD, os.fsencode(what))
    rc = libc.name_to_handle_at(fd, path, buf, ctypes.byref(mount_id),
                                AT_EMPTY_PATH if path == b"" else 0)
    length = struct.unpack_from("I", buf.raw)[0]
    return buf.raw[8:8 + length] if rc == 0 else None


def shut_in(folder):
    """From now on only the folder and /proc are accessible. So no other mount stays busy."""
    os.makedirs(folder + "/proc", exist_ok=True)
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    check(libc.mount(os.fsencode(folder), os.fsencode(folder), None, MS_BIND | MS_REC, None))
    check(libc.mount(b"/proc", os.fsencode(folder) + b"/proc", None, MS_BIND, None))
    os.chdir(folder)
    check(libc.syscall(SYS_PIVOT_ROOT, b".", b"."))
    check(libc.umount2(b".", MNT_DETACH))
    os.chdir("/")


class Twin:
    """A process of that identity, with both sides."""

    def __init__(self, jail, local, leat, identity=None, patience_s=120):
        self.patience_s = patience_s
        self.pipe, its = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                shut_in(jail)
                sides = [Caller("/" + os.path.relpath(top, jail) for top in tops)
                         for tops in (local, leat)]
                self.work(its, sides, identity)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        its.close()

    @staticmethod
    def work(pipe, sides, identity):
        if identity:
            uid, gid, groups = identity
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        os.umask(0o022)
        while (got := pipe.recv()) is not None:
            call, looks = got
            results = [side.perform(*call) for side in sides]
            pipe.send((results, [[side.look(*look) for side in sides] for look in looks]))
        os._exit(0)

    def perform(self, call, looks=()):
        """Returns [both results], and for each look [what both found]."""
        try:
            self.pipe.send((call, looks))
            if not self.pipe.poll(self.patience_s):
                return ["back", "hangs"], []
            return self.pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return ["back", "killed"], []

    def end(self):
        try:
            self.pipe.send(None)
        except OSError:
            pass
        os.waitpid(self.pid, 0)
        self.pipe.close()
