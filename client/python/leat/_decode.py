# SPDX-License-Identifier: Apache-2.0
"""Decoders: functions that threads of the loader call ahead of the program."""
from __future__ import annotations

import ctypes
import errno
import os
from typing import Any, Callable, Dict, Optional, Union

from . import _lib

_BYTES = ctypes.c_uint8


def functions(decode: Optional[Dict[str, Callable[[Any], Any]]]) -> Dict[str, Callable]:
    """Checks the argument `decode` of DataLoader: TypeError."""
    if decode is None:
        return {}
    if not hasattr(decode, "keys"):
        raise TypeError("decode is a dict {field: function of one array}, not %r" % (decode,))
    for field, function in decode.items():
        if not callable(function):
            raise TypeError("decode[%r] is a function of one array, not %r" % (field, function))
    return dict(decode)


class Decoder:
    """Converts the bytes of a field to those that a batch contains; passed to a DataLoader as
    decoders={field: Decoder(...)}.

    function   a C function of the type of leat_decoder.decode in leat_loader.h, from ctypes, or its
               address; or a Python function (data, out): both memoryviews of bytes, returning how
               many bytes of out it wrote. Several threads call it concurrently; a Python function
               holds Python's lock, so only C gains by threads
    out_bytes  limit for the bytes that it writes, for each sample
    type       type of these bytes: "" bytes, "<f4" elements, "<f4[3,224,224]" an array
    arg        address passed to a C function

    A C function returns -errno for a sample that it cannot convert, and may set a text; a Python
    function raises. Then the sample is skipped, or next() raises LeatError with file and offset, by
    on_error. The objects behind function and arg must live as long as the loader.
    """

    def __init__(self, function: Union[Callable[..., Any], int], out_bytes: int, *, type: str = "",
                 arg: int = 0) -> None:
        self.out_bytes, self.type, self.arg = out_bytes, type, arg
        if not isinstance(function, (int, ctypes._CFuncPtr)):
            function = _lib.DECODE(_guarded(function))
        self.function = function  # referenced, because C has only its address
        self.address = function if isinstance(function, int) else ctypes.cast(
            function, ctypes.c_void_p).value


def _guarded(function: Callable[[memoryview, memoryview], int]) -> Callable:
    def call(_arg, pointer) -> int:
        c = pointer.contents
        try:
            data = memoryview((_BYTES * c.in_len).from_address(c.in_ or 1)).cast("B")
            out = memoryview((_BYTES * c.out_max).from_address(c.out)).cast("B")
            return int(function(data.toreadonly(), out))
        except BaseException as error:  # no exception may pass through C
            text = ("%s: %s" % (type(error).__name__, error)).encode()[:c.error_size - 1]
            ctypes.memmove(c.error, text + b"\0", len(text) + 1)
            return -(getattr(error, "errno", None) or errno.EINVAL)
    return call


def table(decoders):
    """The array that leat_loader_options.decoders points to."""
    entries = [_lib.Decoder(os.fsencode(field), d.address, d.arg, d.out_bytes)
               for field, d in decoders.items()]
    return (_lib.Decoder * len(entries))(*entries) if entries else None
