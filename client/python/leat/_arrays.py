# SPDX-License-Identifier: Apache-2.0
"""Memory of a slot as arrays of numpy, tensors of torch or memoryviews, without a copy."""
from __future__ import annotations

import array
import ctypes
import importlib
import io
import re
import sys
from typing import Optional

try:
    import numpy as np
except ImportError:  # then samples are memoryviews
    np = None

NONE = (1 << 64) - 1  # the offset of a field that a sample does not have


def framework(name: Optional[str]) -> str:
    """The kind of arrays to make: "numpy", "torch" or "memoryview". "auto" and None are numpy if it
    is installed, whatever has been imported. ValueError; ImportError if the framework is
    missing."""
    if name in (None, "auto"):
        return "memoryview" if np is None else "numpy"
    if name not in ("numpy", "torch", "memoryview"):
        raise ValueError("framework is auto, numpy, torch or memoryview, not %r" % (name,))
    if name != "memoryview":
        importlib.import_module(name)
    return name


def words(pointer, n: int, kind: str):
    """A copy of n integers of 64 bits, "Q" or "q"."""
    copy = array.array(kind, bytes(8 * n))
    if n:
        ctypes.memmove(copy.buffer_info()[0], pointer, 8 * n)
    return copy if np is None else np.frombuffer(copy, np.uint64 if kind == "Q" else np.int64)


def whole(kind: str, memory):
    """All of a slot, as an object whose slices are arrays of this kind."""
    if kind == "memoryview":
        return memoryview(memory).cast("B")
    everything = np.frombuffer(memory, np.uint8) if len(memory) else np.zeros(0, np.uint8)
    if kind == "torch":
        import torch
        return torch.from_numpy(everything)
    return everything


def cut(slot, field) -> list:
    # Making a tensor of each slice is slow; evenly spaced tensors are all made in one call.
    if hasattr(slot, "unbind") and len(field.offsets) > 1 and NONE not in field.offsets and (
            field.lengths.count(field.lengths[0]) == len(field.lengths)):
        step = _even(field.offsets, field.lengths[0])
        if step is not None:
            return list(slot.as_strided((len(field.offsets), field.lengths[0]), (step, 1),
                                        field.offsets[0]).unbind(0))
    return [None if o == NONE else slot[o:o + length]
            for o, length in zip(field.offsets, field.lengths)]


def on_device(there, memory, field, kind) -> list:
    """The samples of a field on a device. memory: the slot in host memory, from which the headers
    of arrays are read; kind None: bytes."""
    find = layout(kind) if kind and np is not None else None
    samples = []
    for o, length in zip(field.offsets, field.lengths):
        if o == NONE:
            samples.append(None)
        elif find is None:
            samples.append(there.cut(o, length))
        else:
            # Bytes that are on the device only have no header here.
            head = np.frombuffer(memory, np.uint8, length, o) if kind == "npy" else None
            dtype, shape, at, order = find(head)
            samples.append(there.typed(o + at, dtype, shape, order))
    return samples


def layout(kind: str):
    """Returns a function that finds the array in the bytes of a field of this type (see
    Dataset.types): from these bytes, as a numpy array, it returns (dtype, shape, offset, "C" or
    "F"). None if they stay bytes."""
    if kind == "npy":
        return _npy_layout
    m = re.fullmatch(r"([<>|=][biufc]\d+)(?:\[([\d,]*)\])?", kind)
    if not m:
        return None
    found = (np.dtype(m[1]), tuple(int(n) for n in (m[2] or "").split(",") if n), 0, "C")
    return lambda memory: found


def maker(kind: str, frame: str):
    """Returns a function that turns the bytes of a field of this type into an array; None if they
    stay bytes."""
    find = layout(kind)
    if find is None:
        return None
    return lambda s: _view(frame, s, *find(s if frame == "numpy" else s.numpy()))


def torch_type(dtype):
    """The torch type for a numpy type. TypeError if torch has none."""
    import torch
    return torch.from_numpy(np.zeros(0, dtype)).dtype


def _view(frame: str, s, dtype, shape, offset: int, order: str):
    memory = s if frame == "numpy" else s.numpy()
    count = int(np.prod(shape, dtype=np.int64))
    a = np.frombuffer(memory, dtype, count, offset).reshape(shape, order=order)
    if frame == "numpy":
        return a
    import torch
    if order == "C" and count and (s.storage_offset() + offset) % dtype.itemsize == 0:
        # A view of the slot's storage: all tensors of a batch are sent to another process as one.
        flat = s[offset:offset + count * dtype.itemsize]
        return flat.view(torch_type(dtype)).view(shape)
    return torch.from_numpy(a)


def _npy_layout(memory):
    head = io.BytesIO(memory[:min(len(memory), 1 << 16)].tobytes())
    version = np.lib.format.read_magic(head)
    read = (np.lib.format.read_array_header_1_0 if version == (1, 0)
            else np.lib.format.read_array_header_2_0)
    shape, fortran, dtype = read(head)
    if dtype.hasobject:
        raise ValueError("an array of objects cannot be read in place")
    return dtype, shape, head.tell(), "F" if fortran else "C"


def _even(addresses: list, length: int):
    """The distance from one array to the next if they are evenly spaced; else None."""
    steps = {b - a for a, b in zip(addresses, addresses[1:])}
    step = steps.pop() if len(steps) == 1 else 0
    return step if step >= length and length > 0 else None


def _root(a):
    """The object that owns the memory of an array."""
    while True:
        below = a.obj if isinstance(a, memoryview) else getattr(a, "base", None)
        if below is None:
            return a
        a = below


def stack(samples: list):
    """One array [n, ...] of n arrays or tensors of one shape and type: a view of their memory if
    they are evenly spaced, else a copy. ValueError if they differ or one is missing."""
    if not samples or any(s is None for s in samples):
        raise ValueError("there is nothing to stack, or a sample lacks the field")
    first = samples[0]
    if not hasattr(first, "dtype"):
        raise ValueError("arrays on a device are stacked by their framework: torch does")
    if any(s.shape != first.shape or s.dtype != first.dtype for s in samples):
        raise ValueError("the samples differ in shape or type: %s" % sorted(
            {"%s%s" % (s.dtype, list(s.shape)) for s in samples})[:4])
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(first, torch.Tensor):
        return _stack_tensors(torch, samples)
    step = _even([s.__array_interface__["data"][0] for s in samples], first.nbytes)
    if step is None or not first.flags.c_contiguous or len({id(_root(s)) for s in samples}) != 1:
        return np.stack(samples)
    return np.lib.stride_tricks.as_strided(first, (len(samples),) + first.shape,
                                           (step,) + first.strides)


def stack_at_once(frame: str, slot, field):
    """stack() of samples without their arrays, if they have one size and a type with a shape: a
    view if they are evenly spaced, else one gathering copy. None: use the arrays."""
    offsets, lengths = field.offsets, field.lengths
    if frame == "memoryview" or field.function or field.kind == "npy" or not offsets or (
            NONE in offsets or lengths.count(lengths[0]) != len(lengths) or lengths[0] == 0):
        return None
    length, whole = lengths[0], slot if frame == "numpy" else slot.numpy()
    find = layout(field.kind)
    dtype, shape = np.dtype("u1"), (length,)
    if find is not None:
        dtype, shape, _, _ = find(None)
    strides = [dtype.itemsize]
    for n in reversed(shape):
        strides.append(strides[-1] * n)
    if strides.pop() != length:
        return None
    step = length if len(offsets) == 1 else _even(offsets, length)
    if step is None or (frame == "torch" and (step | offsets[0]) % dtype.itemsize):
        # A window on the slot for every byte offset; of these the needed rows.
        windows = np.lib.stride_tricks.as_strided(whole, (len(whole) - length + 1, length), (1, 1))
        rows = windows[np.array(offsets, np.int64)].view(dtype).reshape((len(offsets),) + shape)
    else:
        rows = np.ndarray((len(offsets),) + shape, dtype, whole, offsets[0],
                          (step,) + tuple(reversed(strides)))
    if frame == "numpy":
        return rows
    import torch
    return torch.from_numpy(rows)


def _stack_tensors(torch, samples: list):
    first = samples[0]
    size = first.element_size()
    step = _even([s.data_ptr() for s in samples], first.numel() * size)
    one_slot = len({s.storage().data_ptr() for s in samples}) == 1
    if step is None or step % size or not first.is_contiguous() or not one_slot:
        return torch.stack(samples)
    return first.as_strided((len(samples),) + tuple(first.shape), (step // size,) + first.stride())
