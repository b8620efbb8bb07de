"""A connection to a cluster, and staging."""
from __future__ import annotations

import ctypes
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
    """What FileSystem and all that was opened with it refer to, their finalizers too: garbage is
    finalized in any order, and the connection ends behind the last of them."""

    __slots__ = ("close", "__weakref__")

    def __init__(self, fs: ctypes.c_void_p) -> None:
        self.close = weakref.finalize(self, _close_in, os.getpid(), fs)


class FileSystem:
    """A connection to a Leat cluster; conf: path of leat.conf, else $LEAT_CONF, else
    /etc/leat/leat.conf. A forked or spawned process that is given one connects for itself.

    Raises LeatError where the configuration is wrong or nobody answers."""

    def __init__(self, conf: Optional[str] = None) -> None:
        self.conf = conf
        self._connect()

    def _connect(self) -> None:
        fs = ctypes.c_void_p()
        rc = _c.leat_open_fs(text(self.conf), None, ctypes.byref(fs))
        if rc < 0:
            raise LeatError(_c.leat_errno(rc), _c.leat_strerror(rc).decode(), self.conf)
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
        """Ends the connection. Data sets opened with it must have been closed."""
        self._connection.close()
        self._p = None

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def connect(conf: Optional[str] = None) -> FileSystem:
    return FileSystem(conf)


_kept: Dict[Optional[str], FileSystem] = {}
_kept_lock = threading.Lock()


def kept(conf: Optional[str]) -> FileSystem:
    """A connection that stays until the process ends, for calls that come again and again."""
    with _kept_lock:
        fs = _kept.get(conf)
        if fs is None:
            fs = _kept[conf] = FileSystem(conf)
        return fs


def stage_in(source: str, to: str, *, fs: Optional[FileSystem] = None, conf: Optional[str] = None,
             catalog: Optional[str] = None, readback: bool = False,
             progress: Optional[Callable[[str, int, int], None]] = None) -> str:
    """Copies a data set to the local directory `to`, verified, and returns the path of the
    copy's files.

    source: an absolute directory, "leat:/path" or "leat:name@version". progress(phase, bytes,
    total) is called now and then. What is there already is not moved again. Raises LeatError;
    what was copied until then is kept for the next call.
    """
    own = None
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
        raise LeatError(_c.leat_errno(rc), result.message.decode(errors="replace"),
                        os.fsdecode(result.fail_path) or None)
    return os.fsdecode(result.path)
