# SPDX-License-Identifier: Apache-2.0
"""Arrays of a batch as DLPack capsules."""
from __future__ import annotations

import ctypes
from typing import Any, Sequence

from . import _lib
from ._errors import check
from ._lib import lib as _c

_NAME = b"dltensor"  # the consumer of the tensor renames its capsule
_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api))


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _gone(capsule):
    """Destructor of a capsule: frees the tensor if no consumer has taken it."""
    if _is_valid(capsule, _NAME):
        _c.leat_dlpack_delete(_pointer(capsule, _NAME))


def capsule(batch, address: int, shape: Sequence[int], typestr: str, fortran: bool,
            device: int) -> Any:
    """Makes a capsule of memory of the batch; device -1: host memory."""
    array = _lib.sized(_lib.Array, data=address, type=typestr.encode(), fortran=fortran,
                       n_dims=len(shape))
    array.shape[:len(shape)] = shape
    array.len = int(typestr[2:])
    for n in shape:
        array.len *= n
    tensor = ctypes.c_void_p()
    check(_c.leat_batch_dlpack(batch, ctypes.byref(array), device, ctypes.byref(tensor)))
    return _new(tensor, _NAME, ctypes.cast(_gone, ctypes.c_void_p))
