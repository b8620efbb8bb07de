# SPDX-License-Identifier: Apache-2.0
"""Pointers that threads pass to C, and that a finalizer takes."""
from __future__ import annotations

import ctypes
import os
import threading
from typing import Dict, Optional


class Held:
    """A pointer that is not freed while another thread passes it to C: at the interpreter's end,
    finalizers run while daemon threads continue.

        with held as p:
            call(p)

    ValueError after it was taken. A forked child does not wait for threads, which do not exist
    there, and C returns whether it permits the call.
    """

    __slots__ = ("_what", "_pid", "_p", "_calls", "_changed")

    def __init__(self, p: ctypes.c_void_p, what: str) -> None:
        self._what, self._pid = what, os.getpid()
        self._p: Optional[ctypes.c_void_p] = p
        self._calls: Dict[int, int] = {}  # thread -> calls in progress
        # With a reentrant lock: a signal handler may close the object that it interrupts.
        self._changed = threading.Condition(threading.RLock())

    def __enter__(self) -> ctypes.c_void_p:
        if os.getpid() == self._pid:
            me = threading.get_ident()
            with self._changed:
                if self._p is not None:
                    self._calls[me] = self._calls.get(me, 0) + 1
                    return self._p
        elif self._p is not None:
            return self._p
        raise ValueError("the %s is closed" % self._what)

    def __exit__(self, *_) -> None:
        if os.getpid() != self._pid:
            return
        me = threading.get_ident()
        with self._changed:
            left = self._calls.pop(me, 0) - 1
            if left > 0:
                self._calls[me] = left
            else:
                self._changed.notify_all()

    def take(self) -> Optional[ctypes.c_void_p]:
        """Returns the pointer to the caller, which frees it, once, when no other thread uses it.
        None: the caller has nothing to free."""
        if os.getpid() != self._pid:
            return None
        me = threading.get_ident()
        with self._changed:
            p, self._p = self._p, None
            while any(thread != me for thread in self._calls):
                self._changed.wait()
            return p
