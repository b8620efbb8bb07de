# SPDX-License-Identifier: Apache-2.0
"""A batch in Python: a dict of lists of arrays in the loader's memory."""
from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from . import _arrays, _device, _lib
from ._errors import check
from ._lib import lib as _c


class Slot:
    """The reference to a batch, which C code sets (`pointer`). It is released when this object is
    deleted; every array of the batch refers to this object. It is made before the call, so that a
    Ctrl-C between any two steps loses no reference."""

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
    """A weak reference with the C function as its callback: ctypes passes _as_parameter_. No Python
    code runs when a slot is released, because Python would raise a pending Ctrl-C there and lose
    it."""

    __slots__ = ("_as_parameter_",)


_releases: Dict[int, _Release] = {}  # they must outlive their slots; removed now and then
_live = [0]


class Field:
    """The place of a field's samples in the slot, and the arrays made of them. offsets, lengths:
    lists, for each sample; an offset of _arrays.NONE: the sample has no such field."""

    __slots__ = ("offsets", "lengths", "kind", "function", "on_device")

    def __init__(self, info, k: int, kind: str, function: Optional[Callable],
                 on_device: bool) -> None:
        at = k * info.stride
        self.offsets, self.lengths = info.offsets[at:at + info.n], info.lengths[at:at + info.n]
        self.kind, self.function = None if function else kind, function
        self.on_device = on_device


_NOT_MADE: Any = object()


class Batch(dict):
    """field -> list of arrays, one per sample, None if a sample has no such field: uint8 [bytes]
    unless Dataset.types has their type. With more than 64 fields the dict lists those that a sample
    of the batch has, but batch[field] works for each. Also:

    ids       sample numbers, uint64 array [n] (a copy)
    labels    classes of plain files, int64 array [n], -1 for none (a copy)
    names     names of the samples
    epoch, step
    verified  every byte was compared with the checksum from when it was written
    device    "cuda:N" if a DataLoader with a device delivered it there, else None

    The arrays are in the batch's slot, which is reused when the last of them is deleted. They
    support DLPack like other arrays of their framework. They are made at the first access to their
    field; stack() needs none of them. A batch that is sent to another process is copied.
    """

    def __init__(self, slot: Slot, ds, fields: Sequence[str], framework: str,
                 decode: Dict[str, Callable], device: Optional[str] = None,
                 on_device: Iterable[str] = (), types: Optional[Dict[str, str]] = None) -> None:
        super().__init__()
        info = _lib.sized(_lib.BatchInfo)
        _c.leat_batch_info(slot.pointer, ctypes.byref(info))
        n, types = info.n, types or ds.types
        self.epoch, self.step, self.verified = info.epoch, info.step, bool(info.verified)
        length = info.len if info.base else 0
        memory = (ctypes.c_uint8 * length).from_address(info.base or id(self))
        # The slot is released when this batch and all arrays made from it are deleted.
        memory.slot = slot
        self._memory = memory
        self._framework = framework
        self._whole = _arrays.whole(framework, memory)
        self._ds = ds
        self._names = None
        self.ids = _arrays.words(info.ids, n, "Q")
        self.labels = _arrays.words(info.labels, n, "q")
        self._there = _device.OnDevice(slot, framework, device) if on_device else None
        self.device = "cuda:%d" % self._there.device if self._there else None
        self._wanted = ds.types if len(fields) == len(ds.types) else fields
        self._fields: Dict[str, Field] = {}
        for row, k in enumerate(info.fields[:info.n_fields]):
            field = fields[k]
            self._fields[field] = Field(info, row, types.get(field, ""), decode.get(field),
                                        field in on_device)
            super().__setitem__(field, _NOT_MADE)
        # Decodes now, so that a failure is raised here.
        for field in decode:
            if field in self._fields:
                self[field]  # pylint: disable=pointless-statement

    def _make(self, field: str) -> list:
        f = self._fields[field]
        function = f.function
        if f.on_device:
            samples = _arrays.on_device(self._there, self._memory, f, f.kind)
        else:
            samples = _arrays.cut(self._whole, f)
            if function is None and self._framework != "memoryview":
                function = _arrays.maker(f.kind, self._framework)
        if function:
            samples = [s if s is None else function(s) for s in samples]
        self[field] = samples
        return samples

    def __getitem__(self, field: str) -> Any:
        samples = super().__getitem__(field)
        return self._make(field) if samples is _NOT_MADE else samples

    def __missing__(self, field: str) -> list:
        if self._ds is None or field not in self._wanted:
            raise KeyError("%r: the fields of this batch are %s" % (
                field, ", ".join(map(repr, self)) or "none"))
        return [None] * len(self)

    # Methods of dict do not call __getitem__: make all fields first.

    def _made(self) -> dict:
        for field, samples in super().items():
            if samples is _NOT_MADE:
                self._make(field)
        return self

    def __iter__(self):
        # A method here keeps dict(batch) and **batch from copying fields that are not made.
        return super().__iter__()

    def get(self, field: str, default: Any = None) -> Any:
        return self[field] if field in self else default

    def items(self):
        return dict.items(self._made())

    def values(self):
        return dict.values(self._made())

    def copy(self) -> dict:
        return dict(self.items())

    def __or__(self, other: dict) -> dict:
        return self.copy() | other

    def __ror__(self, other: dict) -> dict:
        return other | self.copy()

    def pop(self, field: str, *default: Any) -> Any:
        return dict.pop(self._made(), field, *default)

    def popitem(self):
        return dict.popitem(self._made())

    def setdefault(self, field: str, default: Any = None) -> Any:
        return dict.setdefault(self._made(), field, default)

    def __eq__(self, other: object) -> bool:
        return self is other or dict.__eq__(self._made(), other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore

    def __repr__(self) -> str:
        # The bytes of the arrays would fill pages, and the arrays need not be made for this.
        fields = ["%r: %d bytes" % (name, sum(f.lengths)) for name, f in self._fields.items()]
        fields += ["%r" % name for name in self if name not in self._fields]
        device = getattr(self, "device", None)
        return "<leat.Batch of %d samples, epoch %d, step %d%s: %s>" % (
            len(self), self.epoch, self.step, " on " + device if device else "",
            ", ".join(fields) or "no fields")

    def use_stream(self, stream: int) -> None:
        """For a batch on a device: announces that it is read in this stream too (a number; torch's
        is torch.cuda.Stream.cuda_stream). Not needed for the stream that was current when the batch
        was delivered."""
        _device.use(self._memory.slot, stream)

    def copy_to_device(self, pointer: int, room: int, stream: int = 0) -> None:
        """Copies the batch's bytes, in the layout of its slot, to device memory of `room` bytes, in
        the stream, without waiting; from a loader with pinned memory. LeatError ERANGE."""
        _device.copy(self._memory.slot, pointer, room, stream)

    def to_device(self, device: Any = "cuda") -> Batch:
        """A batch of torch tensors that are copies on that device; the whole slot is copied in one
        operation. This batch may be released immediately. From pinned memory (see DataLoader) the
        call does not wait: the copy is in torch's current stream."""
        import torch
        if any(sum(f.lengths) for f in self._fields.values()) and not len(self._memory):
            raise ValueError("the batch is on its device only")
        host = _arrays.whole("torch", self._memory)
        there = _device.copied(self._memory.slot, host, device)
        batch = Batch.__new__(Batch)
        vars(batch).update(vars(self), _memory=None, _whole=None, _fields={}, _there=None,
                           device=str(there.whole.device), _names=self.names)
        for field, f in self._fields.items():
            samples = _arrays.on_device(there, self._memory, f, f.kind)
            if f.function:
                samples = [s if s is None else f.function(s) for s in samples]
            batch[field] = samples
        return batch

    @property
    def names(self) -> List[str]:
        if self._names is None:
            self._names = [self._ds.key(i) for i in self.ids.tolist()]
        return self._names

    def stack(self, field: str) -> Any:
        """One array [n, ...] of the field: without a copy if the samples are evenly spaced in the
        slot, else copied once. ValueError if their shapes or types differ."""
        f = self._fields.get(field)
        if f is not None and dict.__getitem__(self, field) is _NOT_MADE and not f.on_device:
            stacked = _arrays.stack_at_once(self._framework, self._whole, f)
            if stacked is not None:
                return stacked
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
    """Tensors of one type as one: each tensor sent to another process needs a descriptor."""
    torch = sys.modules.get("torch")
    if torch is None or not all(isinstance(s, torch.Tensor) for s in samples) or len(
            {s.dtype for s in samples}) != 1:
        return None, [s if s is None or not isinstance(s, memoryview) else bytes(s)
                      for s in samples]
    return [tuple(s.shape) for s in samples], torch.cat([s.reshape(-1) for s in samples])


def _unpack(fields: dict, state: dict) -> Batch:
    batch = Batch.__new__(Batch)
    vars(batch).update(state, _memory=None, _whole=None, _fields={}, _ds=None)
    for field, (shapes, samples) in fields.items():
        if shapes is not None:
            sizes = [1] * len(shapes)
            for k, shape in enumerate(shapes):
                for n in shape:
                    sizes[k] *= n
            samples = [s.view(shape) for s, shape in zip(samples.split(sizes), shapes)]
        batch[field] = samples
    return batch
