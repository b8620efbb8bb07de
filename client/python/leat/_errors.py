# SPDX-License-Identifier: Apache-2.0
"""Errors as exceptions."""
from __future__ import annotations

import functools
import os
from typing import Optional

from ._lib import lib as _c

NO_OFFSET = (1 << 64) - 1


class LeatError(OSError):
    """errno and filename like any OSError; `offset` in the file (None: the whole file); `origin`
    "local", "server" or "". It is also an instance of Python's class for its errno, if there is
    one: FileNotFoundError, PermissionError, TimeoutError, ConnectionRefusedError, ..."""

    def __new__(cls, errno: int, message: str, filename: Optional[str] = None,
                offset: Optional[int] = None, origin: str = "") -> LeatError:
        kind = _kind(errno) if cls is LeatError else cls
        return super().__new__(kind, errno, message, filename)

    def __init__(self, errno: int, message: str, filename: Optional[str] = None,
                 offset: Optional[int] = None, origin: str = "") -> None:
        super().__init__(errno, message, filename)
        self.offset, self.origin = offset, origin

    def __reduce__(self):
        # All arguments, so that it survives pickling between processes.
        return (LeatError, (self.errno, self.strerror, self.filename, self.offset, self.origin))

    def __str__(self) -> str:
        return self.strerror


@functools.lru_cache(None)
def _kind(errno: int) -> type:
    of_python = type(OSError(errno, ""))
    if of_python is OSError:
        return LeatError
    return type("Leat" + of_python.__name__, (LeatError, of_python), {"__module__": __name__})


def check(rc: int) -> int:
    """Returns rc unless it is an error; else raises what leat_last_error returns."""
    if rc >= 0:
        return rc
    e = _c.leat_last_error().contents
    raise LeatError(_c.leat_errno(rc), e.message.decode(errors="replace"),
                    os.fsdecode(e.path) or None, None if e.offset == NO_OFFSET else e.offset,
                    e.origin.decode())


def check_file(rc: int, path: str) -> int:
    """Like check(), for functions of leat.h, which return only a status."""
    if rc >= 0:
        return rc
    message = _c.leat_strerror(rc).decode()
    raise LeatError(_c.leat_errno(rc), "%s: %s" % (path, message), path, None, "server")


def text(s: Optional[str]) -> Optional[bytes]:
    return None if s is None else os.fsencode(s)
