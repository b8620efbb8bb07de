"""Leat: shuffled batches of training samples, each exactly once per epoch, without a copy.

    import leat

    ds = leat.Dataset("/nvme/.leat/<id>/data")           # a staged copy, or any directory
    ds = leat.Dataset("leat:/datasets/train")            # straight from the servers (LEAT_CONF)
    ds = leat.Dataset("leat:imagenet@v1", stage_dir="/nvme")   # the staged copy, else the servers

    loader = leat.DataLoader(ds, batch_size=256, seed=1)
    for epoch in range(90):
        loader.set_epoch(epoch)
        for batch in loader:              # a dict: field -> list of uint8 arrays
            images, labels = batch["jpg"], batch["cls"]

A batch's arrays lie in the loader's own memory, which is used again when the last of them is
gone: copy what is to be kept. The order is a pure function of seed, epoch and data set, the same
in C and for every number of threads; state_dict() says where training stands and
load_state_dict() goes on from there, exactly.
"""
import array
import ctypes
import functools
import io
import json
import os
import re
import sys
import weakref

try:
    import numpy as np
except ImportError:  # then samples are memoryviews
    np = None

from . import _lib
from ._lib import lib as _c
from ._ranks import rank_and_world

__all__ = ["Batch", "DataLoader", "Dataset", "FileSystem", "LeatError", "Order", "connect",
           "stage_in"]
__version__ = _c.leat_version().decode()

_BUSY = 16
_TIMEDOUT = 110
_TICK_MS = 200  # how long a call stays in C before Python may take a Ctrl-C


class LeatError(OSError):
    """errno and filename as in any OSError; `offset` in the file (None: all of it); `origin`
    "local", "server" or ""."""

    def __init__(self, errno, message, filename=None, offset=None, origin=""):
        # All in args, so that it survives pickling between processes.
        super().__init__(errno, message, filename)
        self.offset, self.origin = offset, origin

    def __reduce__(self):
        return (LeatError, (self.errno, self.strerror, self.filename, self.offset, self.origin))

    def __str__(self):
        return self.strerror


def _check(rc):
    if rc >= 0:
        return rc
    e = _c.leat_last_error().contents
    offset = None if e.offset == (1 << 64) - 1 else e.offset
    raise LeatError(_c.leat_errno(rc), e.message.decode(errors="replace"),
                    os.fsdecode(e.path) or None, offset,
                    e.origin.decode())


def _text(s):
    return None if s is None else os.fsencode(s)


class FileSystem:
    """A connection to a Leat cluster; conf: path of leat.conf, else $LEAT_CONF, else
    /etc/leat/leat.conf."""

    def __init__(self, conf=None):
        fs = ctypes.c_void_p()
        rc = _c.leat_open_fs(_text(conf), None, ctypes.byref(fs))
        if rc < 0:
            raise LeatError(_c.leat_errno(rc), _c.leat_strerror(rc).decode(), conf)
        self._p = fs
        self._close = weakref.finalize(self, _c.leat_close_fs, fs)

    def close(self):
        """Ends the connection. Data sets opened with it must have been closed."""
        self._close()


def connect(conf=None):
    return FileSystem(conf)


class Order:
    """The order of one epoch: order[p] is the sample at position p."""

    def __init__(self, ds, mode="global", seed=0, epoch=0, batch=1):
        p = ctypes.c_void_p()
        _check(_c.leat_order_open(ds._handle(), mode.encode(), seed, epoch, batch, ctypes.byref(p)))
        self._p, self._n = p, len(ds)
        self._close = weakref.finalize(self, _c.leat_order_close, p)

    def __len__(self):
        return self._n

    def __getitem__(self, position):
        sample = _c.leat_order_at(self._p, position) if position >= 0 else -1
        if sample < 0:
            raise IndexError(position)
        return sample


class Batch(dict):
    """field -> list of uint8 arrays, one per sample, None where a sample has no such field. Also:

    ids       sample numbers, uint64 array (a copy)
    labels    classes of plain files, int64 array, -1 where there is none (a copy)
    names     names of the samples
    epoch, step
    verified  every byte was checked against the checksum made when it was written
    """

    def __init__(self, pointer, ds, fields, framework, decode):
        super().__init__()
        n = _c.leat_batch_len(pointer)
        self.epoch, self.step = _c.leat_batch_epoch(pointer), _c.leat_batch_step(pointer)
        base, size, fd = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
        _c.leat_batch_memory(pointer, ctypes.byref(base), ctypes.byref(size), ctypes.byref(fd))
        length = size.value if base.value else 0
        memory = (ctypes.c_uint8 * length).from_address(base.value or id(self))
        # The slot is free when neither this nor any array made from it is left.
        weakref.finalize(memory, _c.leat_batch_unref, pointer).atexit = False
        slot = _as(framework, memory)
        self._memory = memory
        self._ds = ds
        self.ids = _copy(_c.leat_batch_ids(pointer), n, "Q")
        self.labels = _copy(_c.leat_batch_labels(pointer), n, "q")
        self.verified = True
        for field in fields:
            view = _lib.sized(_lib.View)
            _check(_c.leat_batch_field(pointer, field.encode(), ctypes.byref(view)))
            self.verified = bool(view.verified)
            samples = _cut(slot, view, n)
            function = decode.get(field)
            if function is None and framework != "memoryview":
                function = _array_maker(ds.types.get(field, ""), framework)
            if function:
                samples = [s if s is None else function(s) for s in samples]
            self[field] = samples

    @property
    def names(self):
        return [self._ds.key(i) for i in self.ids.tolist()]

    def __len__(self):
        return len(self.ids)

    def __bool__(self):
        return len(self.ids) > 0


def _copy(pointer, n, kind):
    words = array.array(kind, bytes(8 * n))
    if n:
        ctypes.memmove(words.buffer_info()[0], pointer, 8 * n)
    return words if np is None else np.frombuffer(words, np.uint64 if kind == "Q" else np.int64)


def _as(framework, memory):
    """The whole slot, without a copy, as what slices of it are to be."""
    if framework == "memoryview":
        return memoryview(memory).cast("B")
    whole = np.frombuffer(memory, np.uint8) if len(memory) else np.zeros(0, np.uint8)
    if framework == "torch":
        import torch
        return torch.from_numpy(whole)
    return whole


def _cut(slot, view, n):
    none = (1 << 64) - 1
    return [None if o == none else slot[o:o + length]
            for o, length in zip(view.offsets[:n], view.lengths[:n])]


def _array_maker(kind, framework):
    """What turns the bytes of a field of this type (see Dataset.types) into an array, without a
    copy; None where they stay bytes."""
    if kind == "npy":
        return functools.partial(_read_npy, framework)
    m = re.fullmatch(r"([<>|=][biufc]\d+)(?:\[([\d,]*)\])?", kind)
    if not m:
        return None
    dtype, shape = np.dtype(m[1]), tuple(int(n) for n in (m[2] or "").split(",") if n)
    return lambda s: _view(framework, s, dtype, shape, 0, "C")


def _view(framework, s, dtype, shape, offset, order):
    memory = s if framework == "numpy" else s.numpy()
    count = int(np.prod(shape, dtype=np.int64))
    a = np.frombuffer(memory, dtype, count, offset).reshape(shape, order=order)
    if framework == "numpy":
        return a
    import torch
    return torch.from_numpy(a)


def _read_npy(framework, s):
    memory = s if framework == "numpy" else s.numpy()
    head = io.BytesIO(memory[:min(len(memory), 1 << 16)].tobytes())
    version = np.lib.format.read_magic(head)
    read = (np.lib.format.read_array_header_1_0 if version == (1, 0)
            else np.lib.format.read_array_header_2_0)
    shape, fortran, dtype = read(head)
    if dtype.hasobject:
        raise ValueError("an array of objects cannot be read in place")
    return _view(framework, s, dtype, shape, head.tell(), "F" if fortran else "C")


def _framework(name):
    if name == "auto":
        return "memoryview" if np is None else "torch" if "torch" in sys.modules else "numpy"
    if name not in ("numpy", "torch", "memoryview"):
        raise ValueError("framework is auto, numpy, torch or memoryview, not %r" % name)
    return name


class Dataset:
    """Samples of a directory, a pattern for files ("/data/train-*.tar"), a staged copy or a
    named data set.

    what       an absolute path, or "leat:/path" or "leat:name@version" of a Leat file system
    fs         a FileSystem to use; else one is opened for "leat:" names with conf
    stage_dir  where to look for a staged copy first
    threads    loops that read and verify (local files; a Leat file system reads in its own)
    verify     check the blocks of staged copies when they are first read

    format     of a directory or pattern: tar, tfrecord, mds, ffrecord, npz, npy (each row a
               sample), "fixed:BYTES", "fixed:BYTES+HEADER", files; else told by the files' names

    *.tar files are read by the WebDataset convention, one field per extension; TFRecords and
    FFRecords have the field "record", whose CRC is checked; *.npz one field per array; MosaicML
    shards one per column; other files are a sample each, with the field "data" and the first folder
    as class.
    types[field] says what its bytes are: "" nothing known, "npy" or "<f4[3,224,224]": delivered as
    arrays of that dtype and shape, in place. Errors are LeatError.
    """

    def __init__(self, what, *, fs=None, conf=None, stage_dir=None, catalog=None, threads=1,
                 verify=True, framework="auto", format=None):
        self._fs, self._own_fs = fs, None
        if what.startswith("leat:"):
            what = what[len("leat:"):]
            if fs is None:
                self._fs = self._own_fs = FileSystem(conf)
        options = _lib.sized(_lib.DatasetOptions, fs=self._fs._p if self._fs else None,
                             stage_dir=_text(stage_dir), catalog=_text(catalog), threads=threads,
                             no_verify=not verify, format=_text(format))
        p = ctypes.c_void_p()
        _check(_c.leat_dataset_open(_text(what), ctypes.byref(options), ctypes.byref(p)))
        self._p, self.framework = p, framework
        self._close = weakref.finalize(self, _close_dataset, p, self._own_fs)
        stat = _lib.sized(_lib.DatasetStat)
        _c.leat_dataset_stat(p, ctypes.byref(stat))
        self._n = stat.samples
        self.id, self.format = stat.id.decode(), stat.format.decode()
        self.source = stat.source.decode()
        self.path, self.bytes, self.order_word = os.fsdecode(stat.path), stat.bytes, stat.order_word
        self.fields = [_c.leat_dataset_field(p, i).decode() for i in range(stat.n_fields)]
        self.types = {f: _c.leat_dataset_field_type(p, i).decode()
                      for i, f in enumerate(self.fields)}
        self.classes = [os.fsdecode(_c.leat_dataset_class(p, i)) for i in range(stat.n_classes)]

    def close(self):
        """No loader and no batch of it may be in use."""
        self._close()
        self._p = None

    def _handle(self):
        if self._p is None:
            raise ValueError("the data set is closed")
        return self._p

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __len__(self):
        return self._n

    def key(self, i):
        """The name of sample i."""
        key = _c.leat_dataset_key(self._handle(), i)
        if key is None:
            raise IndexError(i)
        return os.fsdecode(key)

    def read(self, ids):
        """A Batch of these samples, in this order, repeats allowed."""
        ids = [int(i) + self._n if i < 0 else int(i) for i in ids]
        for i in ids:
            if not 0 <= i < self._n:
                raise IndexError(i)
        p, array = ctypes.c_void_p(), (ctypes.c_uint64 * len(ids))(*ids)
        _check(_c.leat_dataset_read(self._handle(), array, len(ids), ctypes.byref(p)))
        return Batch(p, self, self.fields, _framework(self.framework), {})

    def _samples(self, batch):
        samples = []
        for k in range(len(batch)):
            sample = {f: batch[f][k] for f in batch if batch[f][k] is not None}
            sample["__key__"] = self.key(int(batch.ids[k]))
            if batch.labels[k] >= 0:
                sample["class"] = int(batch.labels[k])
            samples.append(sample)
        return samples

    def __getitem__(self, i):
        """One sample as a dict, or a Batch for a list."""
        if hasattr(i, "__len__"):
            return self.read(i)
        return self._samples(self.read([i]))[0]

    def __getitems__(self, ids):
        """What torch's fetchers call with a batch of indices: a list of samples, read together."""
        return self._samples(self.read(ids))

    def order(self, mode="global", seed=0, epoch=0, batch=1):
        return Order(self, mode, seed, epoch, batch)


def _close_dataset(p, own_fs):
    _c.leat_dataset_close(p)
    if own_fs is not None:
        own_fs.close()


class DataLoader:
    """Batches of a Dataset in shuffled order, read ahead by C threads.

    batch_size    samples per rank and step; or global_batch, of all ranks together
    seed, epoch   where the order begins
    order         "global", "window", "window:N" (shards), "sequential", "file"
    tail          what becomes of the last, incomplete step: "drop", "pad", "shorter"
    rank, world   "auto": of torch.distributed if it is initialised, else RANK and WORLD_SIZE,
                  OMPI_*, PMI_*, SLURM_*, HOROVOD_*, else 0 and 1
    depth         batches in memory, those in use included; memory_limit in bytes
    on_error      "raise", or "skip": a sample that cannot be read shortens its batch
    fields        which to read (all); decode: field -> function of one array
    framework     "numpy" or "torch" arrays, or "memoryview"; "auto": torch if it has been
                  imported, else numpy

    Iterating yields Batch dicts to the end of the epoch; iterating again goes on with the next
    epoch, and after a break with the next batch. set_epoch() goes to an epoch's start.
    """

    def __init__(self, ds, batch_size=None, *, global_batch=None, seed=0, epoch=0, order="global",
                 tail="drop",
                 rank="auto", world="auto", depth=0, memory_limit=0, on_error="raise", fields=None,
                 decode=None,
                 framework="auto"):
        rank, world = rank_and_world(rank, world)
        if (batch_size is None) == (global_batch is None):
            raise ValueError("either batch_size (per rank) or global_batch")
        if on_error not in ("raise", "skip"):
            raise ValueError("on_error is raise or skip, not %r" % on_error)
        self.dataset, self.rank, self.world = ds, rank, world
        self.fields = list(ds.fields if fields is None else fields)
        self.decode, self.framework = dict(decode or {}), framework
        names = None
        if fields is not None:
            encoded = [f.encode() for f in self.fields] + [None]
            names = (ctypes.c_char_p * len(encoded))(*encoded)
        options = _lib.sized(_lib.LoaderOptions, order=order.encode(), tail=tail.encode(),
                             seed=seed, epoch=epoch,
                             batch=global_batch or batch_size * world, rank=rank, world=world,
                             depth=depth,
                             memory_limit=memory_limit, on_error=on_error == "skip")
        options.fields = names
        p = ctypes.c_void_p()
        _check(_c.leat_loader_open(ds._handle(), ctypes.byref(options), ctypes.byref(p)))
        self._p = p
        self._close = weakref.finalize(self, _c.leat_loader_close, p)
        self.steps = _c.leat_loader_steps(p)

    def close(self):
        """Batches stay valid."""
        self._close()
        self._p = None

    def _handle(self):
        if self._p is None:
            raise ValueError("the loader is closed")
        return self._p

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __len__(self):
        return self.steps

    def next(self):
        """The next Batch, or None at the end of the epoch."""
        p = ctypes.c_void_p()
        while True:
            rc = _c.leat_next_within(self._handle(), _TICK_MS, ctypes.byref(p))
            if rc < 0 and _c.leat_errno(rc) == _TIMEDOUT:
                continue
            if rc < 0 and _c.leat_errno(rc) == _BUSY and self._collect():
                continue
            if _check(rc) == 0:
                return None
            return Batch(p, self.dataset, self.fields, _framework(self.framework), self.decode)

    def _collect(self):
        """Batches in reference cycles look held: once, before that becomes an error."""
        import gc
        before = self.metrics()["held"]
        gc.collect()
        return self.metrics()["held"] < before

    def __iter__(self):
        while True:
            batch = self.next()
            if batch is None:
                return
            yield batch
            del batch

    def set_epoch(self, epoch):
        _check(_c.leat_loader_set_epoch(self._handle(), epoch))

    def state_dict(self):
        """Where training stands: batches handed out, never those read ahead. Small, JSON-able,
        the same on all ranks."""
        text = ctypes.create_string_buffer(256)
        _check(_c.leat_loader_state(self._handle(), text, 256))
        return json.loads(text.value)

    def load_state_dict(self, state):
        """Goes on from there; the world size may be another, the global batch not."""
        _check(_c.leat_loader_set_state(self._handle(), json.dumps(state).encode()))

    def metrics(self):
        """Counters; `utilisation`: the share of time not spent waiting; `stall_us`: waits by
        their cause."""
        m = _lib.sized(_lib.Metrics)
        _c.leat_loader_metrics(self._handle(), ctypes.byref(m))
        result = {name: getattr(m, name) for name, kind in m._fields_
                  if name != "size" and kind in (ctypes.c_uint64, ctypes.c_uint32)}
        result["stall_us"] = dict(zip(_lib.STALLS, m.stall_us))
        result["wait_histogram"] = list(m.wait_histogram)
        total = m.wait_us + m.busy_us
        result["utilisation"] = m.busy_us / total if total else 1.0
        return result


def stage_in(source, to, *, fs=None, conf=None, catalog=None, readback=False, progress=None):
    """Copies a data set to the local directory `to`, verified, and returns the path of the
    copy's files.

    source: an absolute directory, "leat:/path" or "leat:name@version". progress(phase, bytes,
    total) is called now and then. What is there already is not moved again.
    """
    own = None
    if source.startswith("leat:"):
        source = source[len("leat:"):]
        if fs is None:
            fs = own = FileSystem(conf)

    def report(_, p):
        if progress:
            progress(p.contents.phase.decode(), p.contents.bytes, p.contents.bytes_total)

    callback = _lib.PROGRESS(report)
    options = _lib.sized(_lib.StageOptions, fs=fs._p if fs else None, source=_text(source),
                         to=_text(to),
                         catalog=_text(catalog), readback=readback, progress=callback)
    result = _lib.sized(_lib.StageResult)
    try:
        rc = _c.leat_stage_in(ctypes.byref(options), ctypes.byref(result))
    finally:
        if own:
            own.close()
    if rc < 0:
        raise LeatError(_c.leat_errno(rc), result.message.decode(errors="replace"),
                        os.fsdecode(result.fail_path) or None)
    return os.fsdecode(result.path)
