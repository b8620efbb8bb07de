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
        # It is only memory, which other threads may be looking at.
        self._close.atexit = False

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, position: int) -> int:
        sample = _c.leat_order_at(self._p, position) if position >= 0 else -1
        if sample < 0:
            raise IndexError(position)
        return sample


class LeftOut(NamedTuple):
    """Files, or members of archives, that no sample has anything of."""
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


def _close(held: Held, _connections: tuple) -> None:
    _c.leat_dataset_close(held.take())


class Dataset:
    """Samples of a directory, a pattern for files ("/data/train-*.tar"), one file, a staged copy or
    a named data set.

    what       an absolute path, or "leat:/path" or "leat:name@version" of a Leat file system
    fs         a FileSystem to use; else one is opened for "leat:" names with conf
    stage_dir  where to look for a staged copy first
    threads    loops that read and verify (local files; a Leat file system reads in its own)
    verify     check the blocks of staged copies when they are first read
    peers      of "leat:name@version" without a copy here: read from nodes whose agents have one
               (every byte is compared with the manifest), and from the servers what they lack

    format     what the samples are: tar, tfrecord, mds, ffrecord, npz, npy (each row a sample),
               "fixed:BYTES", "fixed:BYTES+HEADER", files, whatever the files are called; else what
               most bytes of the files are (not a single file among many), or, of a named data
               set, what was said when it was created

    unpack_bytes  of files that are packed as a whole (gzip, zstd, lz4; `packed` says how many): so
               much of what comes out of them is kept in memory, of those that were read last
               (1 GiB). An order that goes to more shards at a time unpacks them again and again:
               leat stage in --unpack does it once

    Tar archives are read by the WebDataset convention, one field per extension; TFRecords and
    FFRecords have the field "record", whose CRC is checked; NumPy archives one field per array;
    MosaicML shards one per column; other files are a sample each, with the field "data" and the
    first folder as class.
    left_out lists what no sample has anything of, as LeftOut (why, kind, first, count, bytes):
    hidden files, those of another format, those beside class folders that have none of their kind,
    members of archives that no sample can be called after. repr() tells format, samples, fields,
    classes and this.
    types[field] says what its bytes are: "" nothing known, "npy" or "<f4[3,224,224]": delivered as
    arrays of that dtype and shape, in place. Errors are LeatError.

    It can be handed to other processes, forked or spawned (worker processes of other loaders): each
    opens it for itself at its first use, and finds the same samples or raises LeatError (ESTALE).
    """

    def __init__(self, what: str, *, fs: Optional[FileSystem] = None, conf: Optional[str] = None,
                 stage_dir: Optional[str] = None, catalog: Optional[str] = None, threads: int = 1,
                 verify: bool = True, framework: str = "auto",
                 format: Optional[str] = None, peers: bool = True, unpack_bytes: int = 0) -> None:
        self._arguments = {"what": what, "fs": fs, "conf": conf, "stage_dir": stage_dir,
                           "catalog": catalog, "threads": threads, "verify": verify,
                           "format": format, "peers": peers, "unpack_bytes": unpack_bytes}
        self.framework = framework
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
        # Must outlive the data set, and its loaders.
        self._take(p, (fs._connection,) if fs else ())

    def _take(self, p: ctypes.c_void_p, connections: tuple) -> None:
        """What was opened is this one's."""
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

    def _again(self) -> None:
        """In a process that the data set was handed to."""
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
        """No loader and no batch of it may be in use."""
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
        """A Batch of these samples, in this order, repeats allowed, all read at once. IndexError,
        LeatError."""
        ids = [int(i) + self._n if i < 0 else int(i) for i in ids]
        for i in ids:
            if not 0 <= i < self._n:
                raise IndexError(i)
        slot, array = Slot(), (ctypes.c_uint64 * len(ids))(*ids)
        with self._handle() as p:
            check(_c.leat_dataset_read(p, array, len(ids), ctypes.byref(slot.pointer)))
        return Batch(slot, self, self.fields, _arrays.framework(self.framework), {})

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
        """One sample as a dict of arrays, "__key__" and, of plain files, "class"; or a Batch for a
        list."""
        if hasattr(i, "__len__"):
            return self.read(i)
        return self._samples(self.read([i]))[0]

    def __getitems__(self, ids: Sequence[int]) -> List[Dict[str, Any]]:
        """What torch's fetchers call with a batch of indices: a list of samples, read together."""
        return self._samples(self.read(ids))

    def order(self, mode: str = "global", seed: int = 0, epoch: int = 0, batch: int = 1) -> Order:
        """The order of an epoch; `batch` (of all ranks) decides on the window where mode leaves it
        open."""
        return Order(self, mode, seed, epoch, batch)


class Mixture(Dataset):
    """A weighted mixture of data sets, a data set itself: in every block of its order each part has
    as many places as its weight says, each part is shuffled, and all its samples come once before
    one comes again, also from one epoch to the next (client/loader/ORDER.md, "Mixtures").

    parts    (Dataset, weight) pairs: weights are whole numbers, or fractions that are taken as they
             are written (0.7 and 0.3 are 7 and 3); None: its number of samples
    epoch    positions of an epoch, cut to whole blocks; 0: about as many as there are samples
    threads  loops that read

    Samples are numbered part by part; fields are those of all parts (None where a sample has no
    such field), classes of the same name are one. ValueError, LeatError.
    """

    def __init__(self, parts: Sequence[Tuple[Dataset, Union[int, float, None]]], *, epoch: int = 0,
                 threads: int = 1, framework: str = "auto") -> None:
        self._arguments = {"parts": [p for p, _ in parts],
                           "weights": _whole([w for _, w in parts]), "epoch": epoch,
                           "threads": threads}
        self.framework = framework
        self._open(**self._arguments)

    def _open(self, parts, weights, epoch, threads):  # pylint: disable=arguments-differ
        options = _lib.sized(_lib.MixOptions, epoch=epoch, threads=threads)
        p = ctypes.c_void_p()
        with ExitStack() as stack:
            given = (_lib.MixPart * len(parts))(*((stack.enter_context(d._handle()), w)
                                                  for d, w in zip(parts, weights)))
            check(_c.leat_dataset_mix(given, len(parts), ctypes.byref(options), ctypes.byref(p)))
        self._take(p, tuple(c for d in parts for c in d._connections))


def _whole(weights: Sequence[Union[int, float, None]]) -> List[int]:
    """The same proportions in whole numbers; 0 for None."""
    if any(w is None for w in weights):
        if any(w is not None for w in weights):
            raise ValueError("either all parts have a weight or none")
        return [0] * len(weights)
    exact = [Fraction(str(w)) for w in weights]
    if any(w <= 0 for w in exact):
        raise ValueError("weights are above 0")
    common = math.lcm(*(w.denominator for w in exact))
    return [int(w * common) for w in exact]
