# SPDX-License-Identifier: Apache-2.0
"""Data sets, and the order of their samples."""
from __future__ import annotations

import ctypes
import errno
import itertools
import math
import os
import weakref
from contextlib import ExitStack
from fractions import Fraction
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _arrays, _explain, _lib
from ._batch import Batch, Slot
from ._errors import LeatError, check, text
from ._files import FileSystem, connect_or_copy
from ._held import Held
from ._lib import lib as _c

_ESTALE = errno.ESTALE


class Order:
    """The order of one epoch: order[p] is the sample at position p. IndexError beyond the end."""

    def __init__(self, ds: Dataset, mode: str = "global", seed: int = 0, epoch: int = 0,
                 batch: int = 1) -> None:
        p = ctypes.c_void_p()
        with ds._handle() as d:
            check(_c.leat_order_open(d, mode.encode(), seed, epoch, batch, ctypes.byref(p)))
        self._p, self._n = p, ds.positions
        self._close = weakref.finalize(self, _c.leat_order_close, p)
        # It is only memory, which other threads may still read.
        self._close.atexit = False

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, position: int) -> int:
        sample = _c.leat_order_at(self._p, position) if position >= 0 else -1
        if sample < 0:
            raise IndexError(position)
        return sample


class LeftOut(NamedTuple):
    """Files, or members of archives, that no sample uses."""
    why: str  # "hidden", "format", "beside" (class folders), "member"
    kind: str  # the end of their names, "jpg"; "": various
    first: str  # path of the first of them
    count: int
    bytes: int


def _left_out(p: ctypes.c_void_p) -> Iterator[LeftOut]:
    left = _lib.sized(_lib.Left)
    for i in itertools.count():
        if _c.leat_dataset_left(p, i, ctypes.byref(left)) < 0:
            return
        yield LeftOut(left.why.decode(), os.fsdecode(left.kind), os.fsdecode(left.first), left.n,
                      left.bytes)


def _mounts(p: ctypes.c_void_p, path: str) -> List[str]:
    """Mount points of the Leat file system that the data set on a plain path is on, by its first
    file."""
    first = _c.leat_dataset_file(p, 0)
    mount = _explain.mount_of(os.path.join(path, os.fsdecode(first))) if first else None
    return [mount] if mount else []


def _close(held: Held, _connections: tuple) -> None:
    _c.leat_dataset_close(held.take())


class Dataset:
    """Samples of a directory, a pattern for files ("/data/train-*.tar"), one file, a staged copy or
    a named data set.

    what       an absolute path, or "leat:/path" or "leat:name@version" of a Leat file system
    fs         a FileSystem to use; else one is opened for "leat:" names with conf
    stage_dir  directory of staged copies, which are preferred
    threads    loops that read and verify (local files; a Leat file system has its own loop)
    verify     compare the blocks of staged copies when they are first read
    framework  of the results of read() and ds[i]: "numpy" arrays ("auto", None: these), "torch"
               tensors or "memoryview"; loaders have their own option
    peers      for "leat:name@version" without a copy here: read from nodes with agents that have a
               copy (every byte is compared with the manifest), and the rest from the servers

    format     format of the samples: tar, tfrecord, mds, ffrecord, npz, npy (each row a sample),
               "fixed:BYTES", "fixed:BYTES+HEADER", files, whatever the files are called. Default:
               the format of most bytes of the files (not of a single file among many), or, for a
               named data set, the format with which it was created

    unpack_bytes  limit for unpacked contents in memory (1 GiB) of files that are packed as a whole
               (gzip, zstd, lz4; `packed` is their number); the files that were read last stay. If
               an order uses more shards at a time, each is unpacked repeatedly;
               leat stage in --unpack unpacks them once

    Tar archives are read by the WebDataset convention, one field per extension; TFRecords and
    FFRecords have the field "record" (its CRC is checked); NumPy archives have one field per array;
    MosaicML shards one per column. Each other file is a sample with the field "data" and its first
    folder as class.

    left_out lists files that no sample uses, as LeftOut (why, kind, first, count, bytes): hidden
    files, files of another format, files beside class folders that have none of their kind, members
    of archives with names that give no key. repr() shows format, samples, fields, classes and these
    files. mounts is a list of the mount points of the Leat file system that a plain path is on;
    else empty. types[field] is the type of its bytes: "" unknown, "npy" or "<f4[3,224,224]":
    delivered as arrays of that dtype and shape, in place. Errors are LeatError.

    It can be sent to other processes, forked or spawned (worker processes of other loaders). Each
    of them opens it at its first use, and finds the same samples or raises LeatError (ESTALE).
    """

    def __init__(self, what: str, *, fs: Optional[FileSystem] = None, conf: Optional[str] = None,
                 stage_dir: Optional[str] = None, catalog: Optional[str] = None, threads: int = 1,
                 verify: bool = True, framework: Optional[str] = "auto",
                 format: Optional[str] = None, peers: bool = True, unpack_bytes: int = 0) -> None:
        self._arguments = {"what": what, "fs": fs, "conf": conf, "stage_dir": stage_dir,
                           "catalog": catalog, "threads": threads, "verify": verify,
                           "format": format, "peers": peers, "unpack_bytes": unpack_bytes}
        self.framework = _arrays.framework(framework)
        self._open(**self._arguments)

    def _open(self, what, fs, conf, stage_dir, catalog, threads, verify, format, peers,
              unpack_bytes):
        what = os.fsdecode(what)  # a name, or any os.PathLike
        if not what.startswith(("leat:", "/")) and fs is catalog is stage_dir is None:
            raise LeatError(errno.EINVAL, "%r: an absolute path, \"leat:/path\" or "
                            "\"leat:name@version\" is needed; is it leat:%s?" % (what, what), what)
        if what.startswith("leat:"):
            what = what[len("leat:"):]
            if fs is None:
                fs = connect_or_copy(what, conf, stage_dir)
        options = _lib.sized(_lib.DatasetOptions, fs=fs._handle() if fs else None,
                             stage_dir=text(stage_dir), catalog=text(catalog), threads=threads,
                             no_verify=not verify, format=text(format), peers=not peers,
                             unpack_bytes=unpack_bytes)
        p = ctypes.c_void_p()
        check(_c.leat_dataset_open(text(what), ctypes.byref(options), ctypes.byref(p)))
        # It must outlive the data set and its loaders.
        self._take(p, (fs._connection,) if fs else ())

    def _take(self, p: ctypes.c_void_p, connections: tuple) -> None:
        """Takes over the opened data set."""
        self._p, self._pid, self._connections = Held(p, "data set"), os.getpid(), connections
        self._close = weakref.finalize(self, _close, self._p, connections)
        stat = _lib.sized(_lib.DatasetStat)
        _c.leat_dataset_stat(p, ctypes.byref(stat))
        self._n, self.files, self.positions = stat.samples, stat.files, stat.positions
        self.packed = stat.packed
        self.id, self.format = stat.id.decode(), stat.format.decode()
        self.source = stat.source.decode()
        self.path, self.bytes, self.order_word = os.fsdecode(stat.path), stat.bytes, stat.order_word
        self.fields = [os.fsdecode(_c.leat_dataset_field(p, i)) for i in range(stat.n_fields)]
        self.types = {f: os.fsdecode(_c.leat_dataset_field_type(p, i))
                      for i, f in enumerate(self.fields)}
        self.classes = [os.fsdecode(_c.leat_dataset_class(p, i)) for i in range(stat.n_classes)]
        self.left_out = list(_left_out(p))
        self.mounts = _mounts(p, self.path) if self.source == "local" else []

    def _again(self) -> None:
        """Opens the data set again, in a process to which it was sent."""
        same = (self._n, self.order_word)
        if self._close is not None:
            self._close.detach()
        self._open(**self._arguments)
        if (self._n, self.order_word) != same:
            raise LeatError(_ESTALE, "the data set %s changed since it was opened by the process "
                            "that this one comes from" % self.path, self.path)

    def __getstate__(self) -> dict:
        state = dict(vars(self), _p=None, _connections=(), _close=None)
        state["_pid"] = 0 if self._p is not None else None
        return state

    def close(self) -> None:
        """Closes the data set. No loader and no batch of it may be in use."""
        if self._close is not None:
            self._close()
        self._p, self._pid, self._connections = None, None, ()

    def _handle(self) -> Held:
        if self._pid is None:
            raise ValueError("the data set is closed")
        if self._pid != os.getpid():
            self._again()
        return self._p

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __len__(self) -> int:
        return self._n

    def __repr__(self) -> str:
        return _explain.describe(self)

    def key(self, i: int) -> str:
        """The name of sample i."""
        with self._handle() as p:
            key = _c.leat_dataset_key(p, i)
        if key is None:
            raise IndexError(i)
        return os.fsdecode(key)

    def file(self, i: int) -> str:
        """The path of file i, below that of the data set."""
        with self._handle() as p:
            file = _c.leat_dataset_file(p, i) if 0 <= i < self.files else None
        if file is None:
            raise IndexError(i)
        return os.fsdecode(file)

    def read(self, ids: Sequence[int]) -> Batch:
        """A Batch of these samples, in this order, with repetitions, read concurrently. IndexError,
        LeatError."""
        ids = [int(i) + self._n if i < 0 else int(i) for i in ids]
        for i in ids:
            if not 0 <= i < self._n:
                raise IndexError(i)
        slot, array = Slot(), (ctypes.c_uint64 * len(ids))(*ids)
        with self._handle() as p:
            check(_c.leat_dataset_read(p, array, len(ids), ctypes.byref(slot.pointer)))
        return Batch(slot, self, self.fields, self.framework, {})

    def _samples(self, batch: Batch) -> List[Dict[str, Any]]:
        samples, columns = [], [(f, batch[f]) for f in batch]
        for k in range(len(batch)):
            sample = {f: column[k] for f, column in columns if column[k] is not None}
            sample["__key__"] = self.key(int(batch.ids[k]))
            if batch.labels[k] >= 0:
                sample["class"] = int(batch.labels[k])
            samples.append(sample)
        return samples

    def __getitem__(self, i: Union[int, Sequence[int]]) -> Union[Dict[str, Any], Batch]:
        """One sample as a dict of arrays, with "__key__" and, for plain files, "class"; or a Batch
        for a list."""
        if hasattr(i, "__len__"):
            return self.read(i)
        return self._samples(self.read([i]))[0]

    def __getitems__(self, ids: Sequence[int]) -> List[Dict[str, Any]]:
        """Called by torch's fetchers with a batch of indices: returns a list of samples, read
        together."""
        return self._samples(self.read(ids))

    def order(self, mode: str = "global", seed: int = 0, epoch: int = 0, batch: int = 1) -> Order:
        """The order of an epoch. The default window depends on `batch` (samples of a batch of all
        ranks)."""
        return Order(self, mode, seed, epoch, batch)


class Mixture(Dataset):
    """A weighted mixture of data sets, which is a data set too. In every block of its order each
    part has as many places as its weight. Each part is shuffled, and all its samples come once
    before any comes again, also across epochs (client/loader/ORDER.md, "Mixtures").

    parts    (Dataset, weight) pairs: weights are whole numbers, or fractions in decimal notation
             (0.7 and 0.3 are 7 and 3); None: its number of samples
    epoch    positions of an epoch, rounded down to whole blocks; 0: about the number of samples
    threads  loops that read; framework as for a Dataset

    Samples are numbered part by part. The fields are those of all parts (None if a sample has no
    such field); classes with the same name are one class. ValueError, LeatError.
    """

    def __init__(self, parts: Sequence[Tuple[Dataset, Union[int, float, None]]], *, epoch: int = 0,
                 threads: int = 1, framework: Optional[str] = "auto") -> None:
        self._arguments = {"parts": [p for p, _ in parts],
                           "weights": _whole([w for _, w in parts]), "epoch": epoch,
                           "threads": threads}
        self.framework = _arrays.framework(framework)
        self._open(**self._arguments)

    def _open(self, parts, weights, epoch, threads):  # pylint: disable=arguments-differ
        options = _lib.sized(_lib.MixOptions, epoch=epoch, threads=threads)
        p = ctypes.c_void_p()
        with ExitStack() as stack:
            given = (_lib.MixPart * len(parts))(*((stack.enter_context(d._handle()), w)
                                                  for d, w in zip(parts, weights)))
            check(_c.leat_dataset_mix(given, len(parts), ctypes.byref(options), ctypes.byref(p)))
        self._take(p, tuple(c for d in parts for c in d._connections))
        self.mounts = list(dict.fromkeys(m for d in parts for m in d.mounts))


def _whole(weights: Sequence[Union[int, float, None]]) -> List[int]:
    """Returns whole numbers with these proportions; 0 for None."""
    if any(w is None for w in weights):
        if any(w is not None for w in weights):
            raise ValueError("either all parts have a weight or none")
        return [0] * len(weights)
    exact = [Fraction(str(w)) for w in weights]
    if any(w <= 0 for w in exact):
        raise ValueError("weights are above 0")
    common = math.lcm(*(w.denominator for w in exact))
    return [int(w * common) for w in exact]
