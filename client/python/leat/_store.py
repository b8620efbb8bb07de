# SPDX-License-Identifier: Apache-2.0
"""A file to read at any offset, or one to write and then publish, on a local (or mounted) file
system or through libleat ("leat:/path"). Several threads may make all calls concurrently."""
from __future__ import annotations

import ctypes
import errno
import os
import secrets
import socket
from typing import Optional, Union

from ._errors import LeatError, check_file
from ._files import FileSystem, kept
from ._lib import lib as _c


_NAME_MAX = 255


def temporary(path: str) -> str:
    """A name for a temporary file beside path; of a long name only the beginning is used."""
    tail = os.fsencode(".%s-%d-%s.part" % (socket.gethostname()[:64], os.getpid(),
                                           secrets.token_hex(4)))
    folder, name = os.path.split(os.fsencode(path))
    return os.fsdecode(os.path.join(folder, name[:_NAME_MAX - len(tail)] + tail))


def address(buffer) -> int:
    """The address of a writable buffer."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class LocalFile:
    def __init__(self, path: str, write: bool) -> None:
        self.path, self.fd = path, -1
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if write else os.O_RDONLY
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o666)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read_into(self, buffer: memoryview, off: int) -> int:
        """Returns the bytes read: fewer only at the end of the file."""
        done = 0
        while done < len(buffer):
            n = os.preadv(self.fd, [buffer[done:]], off + done)
            if n == 0:
                break
            done += n
        return done

    def write(self, data: memoryview, off: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self.fd, data[done:], off + done)

    def sync(self) -> None:
        os.fsync(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def publish(self, path: str) -> None:
        """Renames the file to path and replaces an existing file; durable when this returns."""
        os.rename(self.path, path)
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        os.unlink(self.path)


class LeatFile:
    """A file through libleat: needs no mount."""

    def __init__(self, path: str, write: bool, fs: FileSystem) -> None:
        self.path, self._fs, self._p = path, fs, None
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if write else os.O_RDONLY
        p = ctypes.c_void_p()
        check_file(_c.leat_open(fs._handle(), os.fsencode(path), flags, 0o666, ctypes.byref(p)),
                   path)
        self._p = p

    def size(self) -> int:
        return check_file(_c.leat_lseek(self._p, 0, os.SEEK_END), self.path)

    def read_into(self, buffer: memoryview, off: int) -> int:
        done = 0
        while done < len(buffer):
            part = buffer[done:]
            n = check_file(_c.leat_pread(self._p, address(part), len(part), off + done), self.path)
            if n == 0:
                break
            done += n
        return done

    def write(self, data: memoryview, off: int) -> None:
        done = 0
        while done < len(data):
            part = data[done:]
            n = check_file(_c.leat_pwrite(self._p, address(part), len(part), off + done),
                           self.path)
            if n == 0:
                raise LeatError(errno.EIO, "%s: nothing was written" % self.path, self.path)
            done += n

    def sync(self) -> None:
        check_file(_c.leat_fsync(self._p), self.path)

    def close(self) -> None:
        if self._p is not None:
            p, self._p = self._p, None
            check_file(_c.leat_close(p), self.path)

    def publish(self, path: str) -> None:
        check_file(_c.leat_rename(self._fs._handle(), os.fsencode(self.path), os.fsencode(path), 0),
                   self.path)

    def discard(self) -> None:
        check_file(_c.leat_unlink(self._fs._handle(), os.fsencode(self.path)), self.path)


class Place:
    """The file system that a path leads to."""

    def __init__(self, path: Union[str, bytes, os.PathLike], fs: Optional[FileSystem],
                 conf: Optional[str]) -> None:
        path = os.fsdecode(path)
        self.is_leat = path.startswith("leat:")
        self.path = path[len("leat:"):] if self.is_leat else path
        self._fs = fs if fs is not None or not self.is_leat else kept(conf)

    def open(self, path: Optional[str] = None, write: bool = False):
        path = self.path if path is None else path
        return LeatFile(path, write, self._fs) if self.is_leat else LocalFile(path, write)
