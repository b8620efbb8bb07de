# SPDX-License-Identifier: Apache-2.0
"""The loader, its state and its metrics."""
from __future__ import annotations

import ctypes
import gc
import json
import operator
import os
import weakref
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Union

from . import _arrays, _decode, _device, _lib
from ._batch import Batch, Slot
from ._dataset import Dataset
from ._decode import Decoder
from ._errors import check, text
from ._explain import explain
from ._held import Held
from ._lib import lib as _c
from ._ranks import rank_and_world, ranks_of_node

_BUSY = 16
_TIMEDOUT = 110
_TICK_MS = 200  # limit for a call in C, after which Python may raise a Ctrl-C


def _close(held: Held, _connections: tuple) -> None:
    _c.leat_loader_close(held.take())


def _check_whole(state: Any) -> None:
    """ValueError for a state from which only leat.IterableDataset can continue."""
    if isinstance(state, dict) and ("skip" in state or "workers" in state):
        raise ValueError("the state is %s: only leat.IterableDataset goes on from there" % (
            "of worker %s of %s of torchdata's StatefulDataLoader" % (
                state.get("worker"), state["workers"]) if "workers" in state else
            "in the middle of a step"))


class DataLoader:
    """Batches of a Dataset in shuffled order, read ahead by C threads.

    batch_size    samples per rank and step; or global_batch, of all ranks together
    seed, epoch   start of the order
    order         "global", "window", "window:N" (shards), "sequential", "file"
    tail          treatment of the last, incomplete step: "drop", "pad", "shorter"
    rank, world   "auto": from the launcher (leat.rank_and_world), else 0 and 1; the logger "leat"
                  reports the launcher, at the level INFO
    depth         batches in memory, including those in use (0: up to 8, read ahead as far as the
                  source's delays require); memory_limit in bytes (0: 1 GiB)
    on_error      "raise", or "skip": a sample that cannot be read shortens its batch
    fields        which to read (all); decode: field -> function of one array
    framework     "numpy" arrays, "torch" tensors or "memoryview"; "auto", None: numpy (memoryview
                  without numpy), whatever has been imported
    stride, phase only every stride-th step, from phase on: for worker processes of your own
    device        "cuda:N" or "cuda": batches are copied there as soon as they are complete, and
                  their arrays are tensors of that device (framework "torch"; others: DeviceArray);
                  device_fields: only these, the others stay in host memory
    pinned        the memory of batches is registered with CUDA, so that tensor.to("cuda",
                  non_blocking=True) is asynchronous: "auto", if this thread uses CUDA; "never";
                  "try", which starts the driver if there is one; "require"
    direct        "auto": batches are read from local files straight to the device, by cuFile, if
                  there is one, the processor need not process them (staged copies: from the second
                  epoch on) and it was measured to be faster; "require": there must be one
    cache_dir     a folder of a local disk that caches up to cache_bytes of a data set that is not
                  staged; the data that is needed last is dropped first; shared by cache_ranks ranks
                  of this node ("auto": from the launcher, else 1)
    decoders      field -> Decoder: functions that decode_threads (0: 2) C threads call ahead; a
                  call that takes longer than decode_ms (0: 10000) is an error (EBUSY), not a hang

    Iterating yields Batch dicts to the end of the epoch. Iterating again continues with the next
    epoch; after a break it continues with the next batch. set_epoch() moves to the start of an
    epoch.

    LeatError: EBUSY if the caller holds all batches; for a read error with file and offset, after
    which the next call tries the same batch again; EOPNOTSUPP in a forked child. Ctrl-C is raised
    within 0.2 s.
    """

    def __init__(self, ds: Dataset, batch_size: Optional[int] = None, *,
                 global_batch: Optional[int] = None, seed: int = 0, epoch: int = 0,
                 order: str = "global", tail: str = "drop", rank: Union[int, str] = "auto",
                 world: Union[int, str] = "auto", depth: int = 0, memory_limit: int = 0,
                 on_error: str = "raise", fields: Optional[Sequence[str]] = None,
                 decode: Optional[Dict[str, Callable[[Any], Any]]] = None,
                 framework: Optional[str] = "auto", stride: int = 1, phase: int = 0,
                 device: Optional[str] = None, device_fields: Optional[Sequence[str]] = None,
                 pinned: str = "auto", direct: str = "never",
                 cache_dir: Optional[str] = None, cache_bytes: int = 0,
                 cache_ranks: Union[int, str] = "auto",
                 decoders: Optional[Dict[str, Decoder]] = None, decode_threads: int = 0,
                 decode_ms: int = 0) -> None:
        if not isinstance(ds, Dataset):
            raise TypeError("%r is no data set: DataLoader(leat.Dataset(...), ...)" % (ds,))
        rank, world = rank_and_world(rank, world)
        if (batch_size is None) == (global_batch is None):
            raise ValueError("either batch_size (per rank) or global_batch")
        name, size = ("batch_size", batch_size) if global_batch is None else (
            "global_batch", global_batch)
        if not 1 <= operator.index(size) <= 0xffffffff:
            raise ValueError("%s is %d: a batch has at least one sample" % (name, size))
        if on_error not in ("raise", "skip"):
            raise ValueError("on_error is raise or skip, not %r" % on_error)
        if pinned not in _device.PINNED:
            raise ValueError("pinned is %s, not %r" % (", ".join(_device.PINNED), pinned))
        if device_fields is not None and device is None:
            raise ValueError("device_fields without a device")
        if direct not in _device.DIRECT:
            raise ValueError("direct is %s, not %r" % (", ".join(_device.DIRECT), direct))
        if direct != "never" and (device is None or device_fields is not None or decode or decoders
                                  or "npy" in map(ds.types.get, fields or ds.fields)):
            raise ValueError("direct needs a device, all fields on it, no decoders, and no NumPy "
                             "arrays, whose headers are read here")
        self.dataset, self.rank, self.world = ds, rank, world
        self.fields = list(ds.fields if fields is None else dict.fromkeys(fields))
        self.decode, self.framework = _decode.functions(decode), _arrays.framework(framework)
        self._device = None
        if device is not None:
            self._device = _device.resolve(device, self.framework)
        names = None
        if fields is not None:
            encoded = [os.fsencode(f) for f in self.fields] + [None]
            names = (ctypes.c_char_p * len(encoded))(*encoded)
        options = _lib.sized(_lib.LoaderOptions, order=order.encode(), tail=tail.encode(),
                             seed=seed, epoch=epoch,
                             batch=global_batch or batch_size * world, rank=rank, world=world,
                             depth=depth, memory_limit=memory_limit, on_error=on_error == "skip",
                             stride=stride, phase=phase, pinned=_device.PINNED.index(pinned),
                             direct=_device.DIRECT.index(direct),
                             device=self._device and self._device.encode(),
                             cache_dir=text(cache_dir),
                             cache_bytes=cache_bytes,
                             cache_ranks=ranks_of_node(rank, world, cache_ranks),
                             decode_threads=decode_threads, decode_ms=decode_ms)
        options.fields = names
        self._decoders = dict(decoders or {})
        self._types = {**ds.types, **{field: d.type for field, d in self._decoders.items()}}
        options.decoders, options.n_decoders = _decode.table(self._decoders), len(self._decoders)
        self._on_device = frozenset()
        if device is not None:
            self._on_device = frozenset(self.fields if device_fields is None else device_fields)
            if not self._on_device <= set(self.fields):
                raise ValueError("device_fields that are not read: %s" % ", ".join(
                    sorted(self._on_device - set(self.fields))))
        p = ctypes.c_void_p()
        with ds._handle() as d:
            check(_c.leat_loader_open(d, ctypes.byref(options), ctypes.byref(p)))
        self._p = Held(p, "loader")
        self._close = weakref.finalize(self, _close, self._p, ds._connections)
        self.steps = _c.leat_loader_steps(p)

    def close(self) -> None:
        """Closes the loader. Batches stay valid."""
        self._close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __len__(self) -> int:
        """Steps of an epoch, equal on every rank."""
        return self.steps

    def __repr__(self) -> str:
        closed = not self._close.alive
        return "<leat.DataLoader of %s: %d steps an epoch, rank %d of %d, fields %s%s>" % (
            self.dataset.path or self.dataset.source, self.steps, self.rank, self.world,
            ", ".join(self.fields) or "none", ", closed" if closed else "")

    def next(self) -> Optional[Batch]:
        """The next Batch, or None at the end of the epoch."""
        slot = Slot()
        while True:
            with self._p as p:
                rc = _c.leat_next_within(p, _TICK_MS, ctypes.byref(slot.pointer))
            if rc < 0 and _c.leat_errno(rc) == _TIMEDOUT:
                continue
            if rc < 0 and _c.leat_errno(rc) == _BUSY and self._collect():
                continue
            if check(rc) == 0:
                return None
            return Batch(slot, self.dataset, self.fields, self.framework, self.decode,
                         self._device, self._on_device, self._types)

    def _collect(self) -> bool:
        """Collects garbage once before EBUSY is raised: batches in reference cycles count as
        held."""
        before = self.metrics()["held"]
        gc.collect()
        return self.metrics()["held"] < before

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batch = self.next()
            if batch is None:
                return
            yield batch
            del batch

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of that epoch; does nothing if the loader is at that start."""
        with self._p as p:
            check(_c.leat_loader_set_epoch(p, epoch))

    def state_dict(self) -> Dict[str, Any]:
        """The position of the training: batches handed out, never those read ahead. Small,
        JSON-able, equal on all ranks. If another library takes batches ahead of the loop (tf.data's
        prefetch, DALI's queue), use state_at()."""
        text = ctypes.create_string_buffer(256)
        with self._p as p:
            check(_c.leat_loader_state(p, text, 256))
        return json.loads(text.value)

    def state_at(self, epoch: int, steps: int) -> Dict[str, Any]:
        """The state after `steps` steps of that epoch, counted from its start, were consumed."""
        state = self.state_dict()
        return dict(state, epoch=epoch, pos=min(steps, self.steps) * state["G"])

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continues from there. The world size may differ, the global batch may not. LeatError
        (EINVAL) if the state belongs to another data set, order, seed or global batch; ValueError
        if only leat.IterableDataset can continue from it."""
        _check_whole(state)
        with self._p as p:
            check(_c.leat_loader_set_state(p, json.dumps(state).encode()))

    def metrics(self) -> Dict[str, Any]:
        """Counters since the loader was opened. Times in us, memory in bytes; `utilisation`: the
        share of time not spent waiting; `stall_us`: waits by their cause; `wait_histogram`: bucket
        i counts waits below 2**i us."""
        m = _lib.sized(_lib.Metrics)
        with self._p as p:
            check(_c.leat_loader_metrics(p, ctypes.byref(m)))
        result = {name: getattr(m, name) for name, kind in m._fields_
                  if name != "size" and kind in (ctypes.c_uint64, ctypes.c_uint32)}
        result["stall_us"] = dict(zip(_lib.STALLS, m.stall_us))
        result["wait_histogram"] = list(m.wait_histogram)
        total = m.wait_us + m.busy_us
        result["utilisation"] = m.busy_us / total if total else 1.0
        return result

    def explain(self) -> str:
        """A few lines: the share of time spent waiting for batches, the causes, and remedies."""
        return explain(self.metrics(), self.dataset.source, self.dataset.mounts)
