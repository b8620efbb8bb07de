# SPDX-License-Identifier: Apache-2.0
"""Batches on a CUDA device: as torch tensors, or as arrays that CuPy, Numba and others take."""
from __future__ import annotations

import ctypes
import errno
import sys
from typing import Any, Optional, Sequence, Tuple

from . import _arrays, _dlpack, _lib
from ._errors import LeatError, check
from ._lib import lib as _c

PINNED = ("auto", "never", "try", "require")  # enum leat_pinned
DIRECT = ("never", "auto", "require")  # enum leat_direct


class DeviceArray:
    """Memory of a CUDA device that belongs to a batch, for libraries that support
    `__cuda_array_interface__` (cupy.asarray, numba.cuda.as_cuda_array, torch.as_tensor).

    ptr     device address; device: its number
    shape   in elements; typestr as NumPy writes it ("|u1", "<f4"); strides in bytes, None: C order
    stream  the stream, a number, in which it may be read: a released batch is reused only after the
            work in that stream (0: the legacy default stream)

    The batch's slot is reused when the last of its arrays is deleted.
    """

    __slots__ = ("ptr", "shape", "typestr", "strides", "device", "stream", "_slot")

    def __init__(self, slot, ptr: int, shape: Tuple[int, ...], typestr: str, device: int,
                 stream: int, strides: Optional[Tuple[int, ...]] = None) -> None:
        self._slot, self.ptr, self.shape, self.typestr = slot, ptr, tuple(shape), typestr
        self.device, self.stream, self.strides = device, stream, strides

    @property
    def __cuda_array_interface__(self):
        return {"version": 3, "shape": self.shape, "typestr": self.typestr,
                "data": (self.ptr if self.nbytes else 0, False), "strides": self.strides,
                "stream": self.stream or 1}

    def __dlpack__(self, *, stream: Optional[int] = None, **_) -> Any:
        """For from_dlpack of CuPy, JAX, torch and others. stream: that of the consumer, which then
        waits for the batch (None: the legacy default stream; -1: the consumer synchronizes
        itself)."""
        if stream != -1:
            use(self._slot, 0 if stream in (None, 1) else stream)  # 1 is the legacy one too
        order = "C"
        if self.strides is not None:
            step = int(self.typestr[2:])
            for n, stride in zip(self.shape, self.strides):
                if stride != step:
                    raise BufferError("neither C nor Fortran order")
                step *= n
            order = "F"
        return _dlpack.capsule(self._slot.pointer, self.ptr, self.shape, self.typestr,
                               order == "F", self.device)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return 2, self.device  # kDLCUDA

    @property
    def nbytes(self) -> int:
        n = int(self.typestr[2:])
        for k in self.shape:
            n *= k
        return n

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __reduce__(self):
        raise TypeError("an array on a device stays in its process: copy it first")

    def __repr__(self) -> str:
        return "DeviceArray(cuda:%d, %s%s)" % (self.device, self.typestr, list(self.shape))


class OnDevice:
    """The memory of one batch on its device. cut() and typed() make arrays of it."""

    def __init__(self, slot, frame: str, device: str) -> None:
        self.slot, self.torch = slot, sys.modules["torch"] if frame == "torch" else None
        # The stream of torch's next operations on that device.
        self.stream = self.torch.cuda.current_stream(device).cuda_stream if self.torch else 0
        view = use(slot, self.stream)
        self.base, self.device = view.base, view.device
        self.whole = self._array(0, (view.len,), "|u1")
        if self.torch is not None:
            self.whole = self.torch.as_tensor(self.whole, device="cuda:%d" % self.device)

    def _array(self, offset: int, shape, typestr: str, strides=None) -> DeviceArray:
        return DeviceArray(self.slot, self.base + offset, shape, typestr, self.device, self.stream,
                           strides)

    def cut(self, offset: int, length: int):
        """Bytes."""
        if self.torch is not None:
            return self.whole[offset:offset + length]
        return self._array(offset, (length,), "|u1")

    def typed(self, offset: int, dtype, shape: Sequence[int], order: str):
        """An array of numpy's dtype and shape; order "C" or "F". A tensor that is not aligned for
        its type is copied, on the device."""
        count = dtype.itemsize
        for n in shape:
            count *= n
        if self.torch is None:
            strides = None
            if order == "F" and len(shape) > 1:
                strides, step = [], dtype.itemsize
                for n in shape:
                    strides.append(step)
                    step *= n
                strides = tuple(strides)
            return self._array(offset, shape, dtype.str, strides)
        flat = self.whole[offset:offset + count]
        if offset % dtype.itemsize:
            flat = flat.clone()
        flat = flat.view(_arrays.torch_type(dtype))
        if order == "C":
            return flat.view(tuple(shape))
        return flat.view(tuple(reversed(shape))).permute(*reversed(range(len(shape))))


class Copied(OnDevice):
    """A copy of a batch's bytes in memory of torch, on any device."""

    def __init__(self, whole) -> None:  # pylint: disable=super-init-not-called
        self.torch, self.whole = sys.modules["torch"], whole


def copied(slot, host, device: Any) -> Copied:
    """host: the slot's bytes as a tensor. If the loader's memory is pinned, the loader copies
    without waiting; else torch copies."""
    torch = sys.modules["torch"]
    whole = torch.empty(host.numel(), dtype=torch.uint8, device=device)
    if whole.is_cuda:
        try:
            copy(slot, whole.data_ptr(), whole.numel(),
                 torch.cuda.current_stream(whole.device).cuda_stream)
            return Copied(whole)
        except LeatError as e:
            if e.errno != errno.ENODEV:
                raise
    whole.copy_(host)
    return Copied(whole)


def use(slot, stream: int) -> Any:
    """Announces that the batch is read in this stream too."""
    view = _lib.sized(_lib.DeviceView)
    check(_c.leat_batch_device(slot.pointer, stream, ctypes.byref(view)))
    return view


def resolve(device: Any, frame: str) -> str:
    """Resolves "cuda" like torch: to the device that this thread has chosen."""
    if str(device) == "cuda" and frame == "torch":
        return "cuda:%d" % sys.modules["torch"].cuda.current_device()
    return str(device)


def copy(slot, pointer: int, room: int, stream: int) -> None:
    check(_c.leat_batch_copy(slot.pointer, pointer, room, stream))
