"""A batch in Python: a dict of lists of arrays that lie in the loader's memory."""
from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional

from . import _arrays, _device, _lib
from ._errors import check
from ._lib import lib as _c


class Slot:
    """The reference to a batch that C code fills in (`pointer`), given back when this object is
    gone, which every array of the batch keeps. Made before the call, so that a Ctrl-C between any
    two steps loses none."""

    __slots__ = ("pointer", "__weakref__")

    def __init__(self) -> None:
        self.pointer = ctypes.c_void_p()
        release = _Release(self, _c.leat_batch_unref)
        release._as_parameter_ = self.pointer
        if len(_releases) > 2 * _live[0] + 64:
            for key, other in list(_releases.items()):
                if other() is None:
                    _releases.pop(key, None)
            _live[0] = len(_releases)
        _releases[id(release)] = release


class _Release(weakref.ref):
    """Its callback is the C function, called with this: ctypes passes _as_parameter_. No Python
    code runs when a slot is given back, for that would be where a Ctrl-C is taken, and lost."""

    __slots__ = ("_as_parameter_",)


_releases: Dict[int, _Release] = {}  # they must outlive their slots; swept now and then
_live = [0]


class Batch(dict):
    """field -> list of arrays, one per sample, None where a sample has no such field: uint8 [bytes]
    unless Dataset.types says what they are. Also:

    ids       sample numbers, uint64 array [n] (a copy)
    labels    classes of plain files, int64 array [n], -1 where there is none (a copy)
    names     names of the samples
    epoch, step
    verified  every byte was checked against the checksum made when it was written
    device    "cuda:N" where a DataLoader with a device delivered it there, else None

    Arrays lie in the batch's slot, which is used again when the last of them is gone; they support
    DLPack as any array of their framework does. A batch that goes to another process is copied.
    """

    def __init__(self, slot: Slot, ds, fields: Iterable[str], framework: str,
                 decode: Dict[str, Callable], device: Optional[str] = None,
                 on_device: Iterable[str] = (), types: Optional[Dict[str, str]] = None) -> None:
        super().__init__()
        pointer = slot.pointer
        n = _c.leat_batch_len(pointer)
        self.epoch, self.step = _c.leat_batch_epoch(pointer), _c.leat_batch_step(pointer)
        base, size, fd = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
        _c.leat_batch_memory(pointer, ctypes.byref(base), ctypes.byref(size), ctypes.byref(fd))
        length = size.value if base.value else 0
        memory = (ctypes.c_uint8 * length).from_address(base.value or id(self))
        # The slot is free when neither this nor any array made from it is left.
        memory.slot = slot
        whole = _arrays.whole(framework, memory)
        self._memory = memory
        self._views: dict = {}
        self._ds = ds
        self._names = None
        self.ids = _arrays.words(_c.leat_batch_ids(pointer), n, "Q")
        self.labels = _arrays.words(_c.leat_batch_labels(pointer), n, "q")
        self.verified = True
        there = _device.OnDevice(slot, framework, device) if on_device else None
        self.device = "cuda:%d" % there.device if there else None
        for field in fields:
            view = _lib.sized(_lib.View)
            check(_c.leat_batch_field(pointer, field.encode(), ctypes.byref(view)))
            self.verified = bool(view.verified)
            kind, function = (types or ds.types).get(field, ""), decode.get(field)
            self._views[field] = view, None if function else kind, function
            if field in on_device:
                samples = _arrays.on_device(there, memory, view, n, None if function else kind)
            else:
                samples = _arrays.cut(whole, view, n)
                if function is None and framework != "memoryview":
                    function = _arrays.maker(kind, framework)
            if function:
                samples = [s if s is None else function(s) for s in samples]
            self[field] = samples

    def use_stream(self, stream: int) -> None:
        """Of a batch on a device: it is read in this stream too (a number; torch's is
        torch.cuda.Stream.cuda_stream). The one that was current when the batch came is known."""
        _device.use(self._memory.slot, stream)

    def copy_to_device(self, pointer: int, room: int, stream: int = 0) -> None:
        """Copies the batch's bytes, as they lie in its slot, to device memory of `room` bytes, in
        the stream, without waiting; from a loader with pinned memory. LeatError ERANGE."""
        _device.copy(self._memory.slot, pointer, room, stream)

    def to_device(self, device: Any = "cuda") -> Batch:
        """A batch of torch tensors that are copies on that device, the whole slot in one go; this
        one may be given back at once. From pinned memory (see DataLoader) nothing waits: the copy
        is in torch's current stream."""
        import torch
        host = _arrays.whole("torch", self._memory)
        there = _device.copied(self._memory.slot, host, device)
        batch = Batch.__new__(Batch)
        vars(batch).update(vars(self), _memory=None, _views={}, device=str(there.whole.device),
                           _names=self.names)
        for field, (view, kind, function) in self._views.items():
            samples = _arrays.on_device(there, self._memory, view, len(self.ids), kind)
            if function:
                samples = [s if s is None else function(s) for s in samples]
            batch[field] = samples
        return batch

    @property
    def names(self) -> List[str]:
        if self._names is None:
            self._names = [self._ds.key(i) for i in self.ids.tolist()]
        return self._names

    def stack(self, field: str) -> Any:
        """One array [n, ...] of the field: without a copy where the samples lie evenly in the
        slot, else copied once. ValueError where their shapes or types differ."""
        return _arrays.stack(self[field])

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return len(self.ids) > 0

    def __reduce__(self):
        state = {"epoch": self.epoch, "step": self.step, "verified": self.verified,
                 "ids": self.ids, "labels": self.labels, "_names": self.names}
        return (_unpack, ({field: _pack(samples) for field, samples in self.items()}, state))


def _pack(samples: list):
    """Tensors of one type as one: a tensor on its own costs a descriptor between processes."""
    torch = sys.modules.get("torch")
    if torch is None or not all(isinstance(s, torch.Tensor) for s in samples) or len(
            {s.dtype for s in samples}) != 1:
        return None, [s if s is None or not isinstance(s, memoryview) else bytes(s)
                      for s in samples]
    return [tuple(s.shape) for s in samples], torch.cat([s.reshape(-1) for s in samples])


def _unpack(fields: dict, state: dict) -> Batch:
    batch = Batch.__new__(Batch)
    vars(batch).update(state, _memory=None, _views={}, _ds=None)
    for field, (shapes, samples) in fields.items():
        if shapes is not None:
            sizes = [1] * len(shapes)
            for k, shape in enumerate(shapes):
                for n in shape:
                    sizes[k] *= n
            samples = [s.view(shape) for s, shape in zip(samples.split(sizes), shapes)]
        batch[field] = samples
    return batch
