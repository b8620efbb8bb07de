"""Checkpoints: state dicts of PyTorch (or numpy) in one file, written and read by several threads.

    leat.checkpoint.save("leat:/ckpt/step-1000", {"model": net.state_dict(),
                                                  "optimizer": opt.state_dict()}, loader=loader)
    state = leat.checkpoint.load("leat:/ckpt/step-1000", loader=loader)
    leat.checkpoint.load(path, names=["model/layer4.*"])    # {name: tensor}, only these are read

"leat:/path" goes through libleat, striped over the servers as the directory's layout says (`leat
layout set`); other paths are files of a mount or a local disk. A checkpoint appears whole or not at
all: it is written beside its place, synced, and then renamed, in the place of an older one if there
is one. Loading runs no code: the file holds JSON and bytes of tensors, never pickles. Every byte
that is returned was compared with its checksum (verify=True).

The file, little-endian, offsets from its start:
    0   64 bytes: "LEATCKPT", u32 version 1, u32 0, u64 length of the JSON, u64 length of the file,
        u64 XXH3 of the JSON, u64 0 twice, u64 XXH3 of the 56 bytes before
    64  JSON: {"tensors": [{"name", "dtype", "shape", "off", "len", "sums"}], "tree", "loader",
        "meta"}; sums: XXH3 of each 16 MiB of the tensor, in hexadecimal; tree: see _tree.py
    then each tensor at a multiple of 4096, row after row, gaps of zeros.
"""
from __future__ import annotations

import concurrent.futures
import ctypes
import errno
import fnmatch
import json
import mmap as _mmap
import os
import struct
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _store
from ._errors import LeatError
from ._files import FileSystem
from ._lib import lib as _c
from ._tree import Tree, decode

__all__ = ["Info", "TensorInfo", "info", "load", "save"]

_MAGIC, _VERSION = b"LEATCKPT", 1
_HEAD = struct.Struct("<8sIIQQQQQ")  # and 8 bytes of checksum
_HEAD_SIZE = 64
_ALIGN = 4096
_BLOCK = 16 << 20
_JSON_MAX = 1 << 30
_THREADS = 8
_SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
          "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
          "complex64": 8, "complex128": 16}


class TensorInfo(NamedTuple):
    name: str
    dtype: str
    shape: Tuple[int, ...]
    off: int
    len: int


class Info(NamedTuple):
    """What a checkpoint holds. loader: as of DataLoader.state_dict(), or None; meta: what save was
    given; bytes: of the file."""
    tensors: List[TensorInfo]
    loader: Optional[dict]
    meta: Any
    bytes: int


def _up(n: int) -> int:
    return (n + _ALIGN - 1) // _ALIGN * _ALIGN


def _sum(view: memoryview) -> int:
    return _c.leat_checksum(_store.address(view) if len(view) else None, len(view))


def _all(threads: int, work: Callable, items: Sequence) -> None:
    """work(item) for all of them, on several threads; raises the first error."""
    with concurrent.futures.ThreadPoolExecutor(max(1, min(threads, len(items)))) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise


# --- saving ---------------------------------------------------------------------------------------

class _Bytes(NamedTuple):
    dtype: str
    shape: tuple
    view: memoryview
    keep: Any  # whose memory it is


def _bytes_of(name: str, value: Any) -> _Bytes:
    if hasattr(value, "data_ptr"):
        value = value.detach().cpu().contiguous()
        value = value.resolve_conj().resolve_neg()
        dtype, shape = str(value.dtype).rpartition(".")[2], tuple(value.shape)
        at, length = value.data_ptr(), value.numel() * value.element_size()
    else:
        import numpy as np
        value = np.ascontiguousarray(value).reshape(np.shape(value))
        value = value.astype(value.dtype.newbyteorder("<"), copy=False)
        if not value.flags.writeable:
            value = value.copy()
        dtype, shape = value.dtype.name, value.shape
        at, length = value.ctypes.data, value.nbytes
    if dtype not in _SIZES:
        raise TypeError("%s is of type %s, which a checkpoint cannot hold" % (name, dtype))
    memory = (ctypes.c_uint8 * length).from_address(at) if length else bytearray()
    return _Bytes(dtype, shape, memoryview(memory).cast("B"), value)


def _blocks(length: int) -> List[Tuple[int, int]]:
    return [(at, min(_BLOCK, length - at)) for at in range(0, length, _BLOCK)]


def save(path: str, state: Any, *, loader: Any = None, meta: Any = None, threads: int = _THREADS,
         fs: Optional[FileSystem] = None, conf: Optional[str] = None) -> int:
    """Writes a checkpoint and returns its length in bytes; when this returns it is durable.

    state    nested dicts, lists and tuples of tensors (any device, any strides; tensors that are
             the same memory are stored once), numpy arrays, numbers, text, bytes and None
    loader   a leat.DataLoader, or anything with state_dict(), or such a state: where to go on
    meta     JSON of your own
    threads  that checksum and write, 16 MiB each at a time

    TypeError names what cannot be stored. OSError (LeatError for "leat:") where it cannot be
    written: nothing appears then, and an older checkpoint of that name is as it was."""
    tree = Tree()
    header: Dict[str, Any] = {"tree": tree.encode(state), "meta": meta}
    header["loader"] = loader.state_dict() if hasattr(loader, "state_dict") else loader
    parts = [_bytes_of(name, value) for name, value in tree.tensors]
    header["tensors"] = [
        {"name": name, "dtype": p.dtype, "shape": list(p.shape), "len": len(p.view), "off": 0,
         "sums": ["0" * 16] * len(_blocks(len(p.view)))}
        for (name, _), p in zip(tree.tensors, parts)]
    # Offsets lie behind the JSON, whose length they are part of: room for the longest numbers.
    end = _up(_HEAD_SIZE + len(_dump(header)) + 24 * len(parts) + 64)
    for row in header["tensors"]:
        row["off"] = end
        end = _up(end + row["len"])
    _write(_store.Place(path, fs, conf), header, parts, end, threads)
    return end


def _dump(header: dict) -> bytes:
    return json.dumps(header, allow_nan=False, separators=(",", ":")).encode()


def _write(place: _store.Place, header: dict, parts: List[_Bytes], end: int, threads: int) -> None:
    file = place.open(_store.temporary(place.path), write=True)

    def write_block(job):
        row, part, index, at, length = job
        view = part.view[at:at + length]
        row["sums"][index] = "%016x" % _sum(view)
        file.write(view, row["off"] + at)

    try:
        jobs = [(row, part, index, at, length)
                for row, part in zip(header["tensors"], parts)
                for index, (at, length) in enumerate(_blocks(len(part.view)))]
        _all(threads, write_block, jobs)
        text = bytearray(_dump(header))
        head = bytearray(_HEAD.pack(_MAGIC, _VERSION, 0, len(text), end, _sum(memoryview(text)), 0,
                                    0))
        head += struct.pack("<Q", _sum(memoryview(head)))
        file.write(memoryview(head + text), 0)
        rows = header["tensors"]
        if not rows or rows[-1]["off"] + rows[-1]["len"] < end:
            file.write(memoryview(bytearray(1)), end - 1)  # a gap at the end counts too
        file.sync()
        file.close()
        file.publish(place.path)
    except BaseException:
        _drop(file)
        raise


def _drop(file) -> None:
    for step in (file.close, file.discard):
        try:
            step()
        except OSError:
            pass  # what is being raised says more


# --- loading --------------------------------------------------------------------------------------

def _bad(path: str, what: str, off: Optional[int] = None) -> LeatError:
    where = "" if off is None else " at offset %d" % off
    return LeatError(errno.EBADMSG, "%s%s: %s" % (path, where, what), path, off)


class _Reader:
    """An open checkpoint whose header has been verified."""

    def __init__(self, file, path: str) -> None:
        self.file, self.path, self.size = file, path, file.size()
        head = self._read(0, _HEAD_SIZE, "it is too short to be a checkpoint")
        magic, version, _, n, size, json_sum, _, _ = _HEAD.unpack(head[:_HEAD.size])
        if magic != _MAGIC:
            raise _bad(path, "this is no checkpoint of Leat")
        if struct.unpack("<Q", head[56:])[0] != _sum(memoryview(head)[:56]):
            raise _bad(path, "the header is damaged", 0)
        if version != _VERSION:
            raise _bad(path, "version %d of the format, this library knows %d" % (
                version, _VERSION))
        if size != self.size:
            raise _bad(path, "the file has %d bytes, and should have %d" % (self.size, size))
        if n > min(_JSON_MAX, self.size - _HEAD_SIZE):
            raise _bad(path, "the header is damaged", 16)
        text = self._read(_HEAD_SIZE, n, "the file is truncated")
        if _sum(memoryview(text)) != json_sum:
            raise _bad(path, "the header is damaged", _HEAD_SIZE)
        try:
            self.header = json.loads(text)
            self.rows = [self._row(r) for r in self.header["tensors"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _bad(path, "the header is not one of a checkpoint (%s)" % error) from None

    def _read(self, off: int, n: int, what: str) -> bytearray:
        buffer = bytearray(n)
        if n and self.file.read_into(memoryview(buffer), off) != n:
            raise _bad(self.path, what)
        return buffer

    def _row(self, r: dict) -> Tuple[TensorInfo, List[int]]:
        numbers = [r["off"], r["len"], *r["shape"]]
        if (not isinstance(r["name"], str) or r["dtype"] not in _SIZES or len(r["shape"]) > 64
                or any(type(n) is not int or n < 0 for n in numbers)):
            raise ValueError("a tensor's row")
        count = 1
        for n in r["shape"]:
            count *= n
        if count * _SIZES[r["dtype"]] != r["len"] or r["off"] % _ALIGN or (
                r["off"] + r["len"] > self.size):
            raise ValueError("tensor %s" % r["name"][:80])
        sums = [int(s, 16) for s in r["sums"]]
        if len(sums) != len(_blocks(r["len"])):
            raise ValueError("tensor %s" % r["name"][:80])
        return TensorInfo(r["name"], r["dtype"], tuple(r["shape"]), r["off"], r["len"]), sums

    def info(self) -> Info:
        return Info([row for row, _ in self.rows], self.header.get("loader"),
                    self.header.get("meta"), self.size)

    def fetch(self, wanted: List[int], mmap: bool, verify: bool, threads: int) -> Dict[int, Any]:
        """Memory of each of these tensors, writable."""
        if mmap and isinstance(self.file, _store.LocalFile):
            # Private: what is written there stays in this process.
            whole = memoryview(_mmap.mmap(self.file.fd, self.size, access=_mmap.ACCESS_COPY))
            views = {i: whole[r.off:r.off + r.len] for i, (r, _) in self._some(wanted)}
        else:
            mmap, views = False, {i: memoryview(bytearray(r.len))
                                  for i, (r, _) in self._some(wanted)}

        def block(job):
            row, sums, view, index, at, n = job
            part = view[at:at + n]
            if not mmap and self.file.read_into(part, row.off + at) != n:
                raise _bad(self.path, "the file is truncated", row.off + at)
            if verify and _sum(part) != sums[index]:
                raise _bad(self.path, "the bytes of tensor %s are damaged" % row.name, row.off + at)

        if verify or not mmap:
            _all(threads, block, [(row, sums, views[i], index, at, n)
                                  for i, (row, sums) in self._some(wanted)
                                  for index, (at, n) in enumerate(_blocks(row.len))])
        return views

    def _some(self, wanted: List[int]):
        return [(i, self.rows[i]) for i in wanted]


def _tensor(kind: str, row: TensorInfo, view: memoryview) -> Any:
    if kind == "n":
        import numpy as np
        return np.frombuffer(view, np.dtype(row.dtype)).reshape(row.shape) if row.len else (
            np.zeros(row.shape, row.dtype))
    import torch
    dtype = getattr(torch, row.dtype, None)
    if dtype is None:
        raise ValueError("torch has no type %s" % row.dtype)
    # frombuffer keeps the memory alive as long as the tensor.
    return torch.frombuffer(view, dtype=dtype).reshape(row.shape) if row.len else (
        torch.zeros(row.shape, dtype=dtype))


def _open(path: str, fs, conf, use: Callable[[_Reader], Any]) -> Any:
    file = _store.Place(path, fs, conf).open()
    try:
        return use(_Reader(file, path))
    finally:
        file.close()


def info(path: str, *, fs: Optional[FileSystem] = None, conf: Optional[str] = None) -> Info:
    """Names, types and shapes of the tensors, the loader's state, meta; reads the header only."""
    return _open(path, fs, conf, _Reader.info)


def load(path: str, *, names: Optional[Sequence[str]] = None, map_location: Any = None,
         loader: Any = None, verify: bool = True, mmap: bool = True, threads: int = _THREADS,
         fs: Optional[FileSystem] = None, conf: Optional[str] = None) -> Any:
    """The state that save was given, tensors on the CPU or at map_location (what torch's to()
    takes).

    names    patterns ("model/layer4.*"): then a dict name -> tensor of those that match any, and
             nothing else is read; KeyError where one matches none. Names: keys joined by "/"
    loader   its load_state_dict is given the state that was stored; ValueError if there is none
    mmap     files of a mount or local disk: tensors are private mappings of the file, copied where
             they are written to
    verify   compare every block with its checksum first

    LeatError EBADMSG: foreign, truncated, damaged, with path and offset; other OSErrors where the
    file cannot be read."""
    def use(reader: _Reader) -> Any:
        if loader is not None and not isinstance(reader.header.get("loader"), dict):
            raise ValueError("%s holds no loader's state" % path)
        result = _load_all(reader, mmap, verify, threads, map_location) if names is None else (
            _load_some(reader, names, mmap, verify, threads, map_location))
        if loader is not None:
            loader.load_state_dict(reader.header["loader"])
        return result

    return _open(path, fs, conf, use)


def _to(tensor: Any, where: Any) -> Any:
    return tensor.to(where) if where is not None and hasattr(tensor, "to") else tensor


def _load_all(reader: _Reader, mmap: bool, verify: bool, threads: int, where: Any) -> Any:
    views = reader.fetch(list(range(len(reader.rows))), mmap, verify, threads)
    made: dict = {}

    def tensor(kind: str, i: int) -> Any:
        if not 0 <= i < len(reader.rows):
            raise ValueError("there is no tensor %d" % i)
        if (kind, i) not in made:
            made[kind, i] = _to(_tensor(kind, reader.rows[i][0], views[i]), where)
        return made[kind, i]

    try:
        return decode(reader.header.get("tree"), tensor)
    except (ValueError, TypeError) as error:
        raise _bad(reader.path, str(error)) from None


def _load_some(reader: _Reader, names: Sequence[str], mmap: bool, verify: bool, threads: int,
               where: Any) -> Dict[str, Any]:
    wanted = set()
    for pattern in [names] if isinstance(names, str) else names:
        found = {i for i, (row, _) in enumerate(reader.rows)
                 if fnmatch.fnmatchcase(row.name, pattern)}
        if not found:
            raise KeyError("%s holds no tensor %s" % (reader.path, pattern))
        wanted |= found
    views = reader.fetch(sorted(wanted), mmap, verify, threads)
    kinds = _kinds(reader.header.get("tree"))
    return {reader.rows[i][0].name: _to(_tensor(kinds.get(i, "t"), reader.rows[i][0], views[i]),
                                        where) for i in sorted(wanted)}


def _kinds(tree: Any) -> Dict[int, str]:
    """Which tensors are numpy's."""
    kinds: Dict[int, str] = {}
    try:
        decode(tree, lambda kind, i: kinds.setdefault(i, kind))
    except ValueError:
        pass  # then the whole could not be loaded, but these can
    return kinds
