"""Decoders that the loader's own threads call, ahead of the program."""
from __future__ import annotations

import ctypes
import errno
import os
from typing import Any, Callable, Union

from . import _lib

_BYTES = ctypes.c_uint8


class Decoder:
    """Turns the bytes of a field into what a batch has in their place; given to a DataLoader as
    decoders={field: Decoder(...)}.

    function   a C function of the type of leat_decoder.decode in leat_loader.h, from ctypes, or its
               address; or a Python function (data, out): both memoryviews of bytes, returning how
               many bytes of out it wrote. It is called by several threads at once, and with
               Python's lock, so that only C gains by threads
    out_bytes  how many it may write, for each sample
    type       what they are: "" bytes, "<f4" elements, "<f4[3,224,224]" an array
    arg        address handed to a C function

    A C function returns -errno for a sample that it can make nothing of, and may say why; a Python
    function raises. Then the sample is skipped, or next() raises LeatError with file and offset, as
    on_error says. What function and arg stand for must live as long as the loader.
    """

    def __init__(self, function: Union[Callable[..., Any], int], out_bytes: int, *, type: str = "",
                 arg: int = 0) -> None:
        self.out_bytes, self.type, self.arg = out_bytes, type, arg
        if not isinstance(function, (int, ctypes._CFuncPtr)):
            function = _lib.DECODE(_guarded(function))
        self.function = function  # kept: C only has its address
        self.address = function if isinstance(function, int) else ctypes.cast(
            function, ctypes.c_void_p).value


def _guarded(function: Callable[[memoryview, memoryview], int]) -> Callable:
    def call(_arg, pointer) -> int:
        c = pointer.contents
        try:
            data = memoryview((_BYTES * c.in_len).from_address(c.in_ or 1)).cast("B")
            out = memoryview((_BYTES * c.out_max).from_address(c.out)).cast("B")
            return int(function(data.toreadonly(), out))
        except BaseException as error:  # nothing may pass through C
            text = ("%s: %s" % (type(error).__name__, error)).encode()[:c.error_size - 1]
            ctypes.memmove(c.error, text + b"\0", len(text) + 1)
            return -(getattr(error, "errno", None) or errno.EINVAL)
    return call


def table(decoders):
    """The array that leat_loader_options.decoders points to."""
    entries = [_lib.Decoder(os.fsencode(field), d.address, d.arg, d.out_bytes)
               for field, d in decoders.items()]
    return (_lib.Decoder * len(entries))(*entries) if entries else None
