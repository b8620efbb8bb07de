# SPDX-License-Identifier: Apache-2.0
"""A connection to a cluster, and staging."""
from __future__ import annotations

import ctypes
import errno
import os
import threading
import weakref
from typing import Callable, Dict, Optional

from . import _lib
from ._errors import LeatError, text
from ._lib import lib as _c


def _close_in(pid: int, fs: ctypes.c_void_p) -> None:
    # A forked child has the memory of the connection, but none of its threads.
    if os.getpid() == pid:
        _c.leat_close_fs(fs)


class _Connection:
    """The connection of a FileSystem and of all objects that were opened with it, including their
    finalizers: garbage is finalized in any order, and the connection ends after the last of
    them."""

    __slots__ = ("close", "__weakref__")

    def __init__(self, fs: ctypes.c_void_p) -> None:
        self.close = weakref.finalize(self, _close_in, os.getpid(), fs)


class FileSystem:
    """A connection to a Leat cluster; conf: path of leat.conf, else $LEAT_CONF, else
    /etc/leat/leat.conf. In a forked or spawned process the object makes a new connection.

    Raises LeatError if the configuration is wrong or no server answers."""

    def __init__(self, conf: Optional[str] = None, *, _within_ms: int = 0) -> None:
        self.conf, self._within_ms = conf, _within_ms
        self._connect()

    def _connect(self) -> None:
        fs = ctypes.c_void_p()
        why = ctypes.create_string_buffer(4096)
        options = _lib.sized(_lib.Options, message_size=len(why),
                             message=ctypes.cast(why, ctypes.c_char_p))
        if self._within_ms:
            params = (ctypes.c_char_p * 2)(b"mount_timeout_ms=%d" % self._within_ms, None)
            options.params = ctypes.cast(params, ctypes.c_void_p)
        rc = _c.leat_open_fs(text(self.conf), ctypes.byref(options), ctypes.byref(fs))
        if rc < 0:
            conf = self.conf or os.environ.get("LEAT_CONF") or "/etc/leat/leat.conf"
            message = why.value.decode(errors="replace")
            # Otherwise no request was sent, and the message has the next step (leat.h).
            if message.startswith("mds = "):
                message = "cannot connect to the metadata servers that %s names: %s (leat " \
                          "status says more)" % (conf, message)
            else:
                message = "cannot connect to a Leat cluster: " + message
            raise LeatError(_c.leat_errno(rc), message, self.conf)
        self._p, self._pid = fs, os.getpid()
        self._connection = _Connection(fs)

    def _handle(self) -> ctypes.c_void_p:
        if self._p is None:
            raise ValueError("the connection is closed")
        if self._pid != os.getpid():
            self._connect()
        return self._p

    def __reduce__(self):
        return (FileSystem, (self.conf,))

    def close(self) -> None:
        """Ends the connection. Data sets opened with it must be closed before."""
        self._connection.close()
        self._p = None

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def connect(conf: Optional[str] = None) -> FileSystem:
    return FileSystem(conf)


# Time for a server to answer if a local copy can be used without it.
_WITHIN_MS = 1000
_NOBODY_THERE = {errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH,
                 errno.EHOSTDOWN, errno.EAGAIN, errno.EIO}


def connect_or_copy(what: str, conf: Optional[str],
                    stage_dir: Optional[str]) -> Optional[FileSystem]:
    """A connection; None if no server answers and `what` is staged in stage_dir by that name."""
    if stage_dir is None or what.startswith("/") or \
            _c.leat_stage_path(text(stage_dir), text(what), ctypes.create_string_buffer(4096),
                               4096) < 0:
        return FileSystem(conf)
    try:
        return FileSystem(conf, _within_ms=_WITHIN_MS)
    except LeatError as e:
        if e.errno not in _NOBODY_THERE:
            raise
        return None


_kept: Dict[Optional[str], FileSystem] = {}
_kept_lock = threading.Lock()


def kept(conf: Optional[str]) -> FileSystem:
    """A connection that stays until the process ends, for repeated calls."""
    with _kept_lock:
        fs = _kept.get(conf)
        if fs is None:
            fs = _kept[conf] = FileSystem(conf)
        return fs


def stage_in(source: str, to: str, *, fs: Optional[FileSystem] = None, conf: Optional[str] = None,
             catalog: Optional[str] = None, readback: bool = False,
             progress: Optional[Callable[[str, int, int], None]] = None) -> str:
    """Copies a data set to the local directory `to`, verified, and returns the path of the copy's
    files.

    source: an absolute directory, "leat:/path" or "leat:name@version". progress(phase, bytes,
    total) is called now and then. Data that the copy has already is not transferred again. Raises
    LeatError; the data copied until then stays for the next call.
    """
    own = None
    source = os.fsdecode(source)
    if source.startswith("leat:"):
        source = source[len("leat:"):]
        if fs is None:
            fs = own = FileSystem(conf)

    def report(_, p):
        if progress:
            progress(p.contents.phase.decode(), p.contents.bytes, p.contents.bytes_total)

    callback = _lib.PROGRESS(report)
    options = _lib.sized(_lib.StageOptions, fs=fs._handle() if fs else None, source=text(source),
                         to=text(to),
                         catalog=text(catalog), readback=readback, progress=callback)
    result = _lib.sized(_lib.StageResult)
    try:
        rc = _c.leat_stage_in(ctypes.byref(options), ctypes.byref(result))
    finally:
        if own:
            own.close()
    if rc < 0:
        message = result.message.decode(errors="replace")
        if fs is catalog is None and not source.startswith("/"):
            message += "; one of a Leat file system is called leat:" + source
        raise LeatError(_c.leat_errno(rc), message,
                        os.fsdecode(result.fail_path) or None)
    return os.fsdecode(result.path)
