# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: state dicts of PyTorch (or numpy) in one file, written and read by several threads.

    leat.checkpoint.save("leat:/ckpt/step-1000", {"model": net.state_dict(),
                                                  "optimizer": opt.state_dict()}, loader=loader)
    state = leat.checkpoint.load("leat:/ckpt/step-1000", loader=loader)
    leat.checkpoint.load(path, names=["model/layer4.*"])    # {name: tensor}, only these are read

"leat:/path" is written through libleat, striped over the servers by the directory's layout (`leat
layout set`); other paths are files of a mount or a local disk. A checkpoint appears whole or not at
all: it is written to a temporary file, synced, and then renamed, which replaces an older one.
Loading runs no code: the file contains JSON and bytes of tensors, never pickles. Every byte that is
returned was compared with its checksum (verify=True).

Types: _tree.py. Tensors are loaded with their values, strides and requires_grad, and Parameters as
Parameters. Tensors that share memory share it again (tied weights, views of one buffer), and it is
stored once; _tensors.py says when. A value that cannot be stored is refused by its name in the
state.

The file, little-endian, offsets from its start:
    0   64 bytes: "LEATCKPT", u32 version 2, u32 0, u64 length of the JSON, u64 length of the file,
        u64 XXH3 of the JSON, u64 0 twice, u64 XXH3 of the 56 bytes before
    64  JSON: {"tensors": rows as in _tensors.py, "parts": [{"off", "len", "sums"}], "tree",
        "loader", "meta"}; sums: XXH3 of each 16 MiB of the part, in hexadecimal; the last three:
        see _tree.py
    then each part at a multiple of 4096, gaps of zeros.
"""
from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fnmatch
import json
import mmap as _mmap
import os
import struct
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import _store, _tensors
from ._errors import LeatError
from ._files import FileSystem
from ._lib import lib as _c
from ._tree import Tree, decode

__all__ = ["Info", "TensorInfo", "info", "load", "save"]

_MAGIC, _VERSION = b"LEATCKPT", 2
_HEAD = struct.Struct("<8sIIQQQQQ")  # followed by 8 bytes of checksum
_HEAD_SIZE = 64
_ALIGN = 4096
_BLOCK = 16 << 20
_JSON_MAX = 1 << 30
_THREADS = 8


class TensorInfo(NamedTuple):
    """dtype: torch's name, or numpy's type string (JSON for a structure); off: of its first element
    in the file; len: of its elements."""
    name: str
    dtype: str
    shape: Tuple[int, ...]
    off: int
    len: int


class Info(NamedTuple):
    """The contents of a checkpoint. loader: a state of DataLoader.state_dict(), or None; meta: the
    argument of save; bytes: of the file."""
    tensors: List[TensorInfo]
    loader: Optional[dict]
    meta: Any
    bytes: int


def _up(n: int) -> int:
    return (n + _ALIGN - 1) // _ALIGN * _ALIGN


def _sum(view: memoryview) -> int:
    return _c.leat_checksum(_store.address(view) if len(view) else None, len(view))


def _all(threads: int, work: Callable, items: Sequence) -> None:
    """Calls work(item) for all items, on several threads; raises the first error."""
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

def _blocks(length: int) -> List[Tuple[int, int]]:
    return [(at, min(_BLOCK, length - at)) for at in range(0, length, _BLOCK)]


def save(path: str, state: Any, *, loader: Any = None, meta: Any = None, threads: int = _THREADS,
         fs: Optional[FileSystem] = None, conf: Optional[str] = None) -> int:
    """Writes a checkpoint and returns its length in bytes; it is durable when this returns.

    state    nested dicts, lists, tuples and sets of tensors (any device, any strides; memory that
             several of them share is stored once), numpy arrays, numbers, text, bytes and None
    loader   a leat.DataLoader, or any object with state_dict(), or such a state: the position
    meta     any value without tensors: info() returns it
    threads  that checksum and write, 16 MiB each at a time

    TypeError names a value that cannot be stored. OSError (LeatError for "leat:") if the file
    cannot be written: then none appears, and an older checkpoint of that name is unchanged. If the
    program changes a tensor meanwhile, each block of it is stored as of some moment; the file is
    valid."""
    tree = Tree()
    header: Dict[str, Any] = {"tree": tree.encode(state), "meta": _plain(meta, "meta")}
    header["loader"] = _plain(loader.state_dict() if hasattr(loader, "state_dict") else loader,
                              "loader")
    values = [_tensors.value_of(name, value) for name, value in tree.tensors]
    parts = _tensors.lay_out(values)
    header["tensors"] = [v.row for v in values]
    lengths = [len(part.view) for part in parts]
    header["parts"] = [{"len": n, "off": 0, "sums": ["0" * 16] * len(_blocks(n))} for n in lengths]
    for row in header["tensors"]:
        _tensors.check_row(row, lengths)  # like load does
    # The parts' offsets depend on the length of the JSON, which contains them: reserve space for
    # the longest numbers.
    n = len(_dump(header)) + 24 * len(parts) + 64
    if n > _JSON_MAX:
        raise ValueError("the state has %d bytes besides its tensors, a checkpoint holds %d: make "
                         "arrays of large bytes and lists" % (n, _JSON_MAX))
    end = _up(_HEAD_SIZE + n)
    for row in header["parts"]:
        row["off"] = end
        end = _up(end + row["len"])
    _write(_store.Place(path, fs, conf), header, parts, end, threads)
    return end


def _plain(value: Any, name: str) -> Any:
    tree = Tree()
    node = tree.encode(value, name)
    if tree.tensors:
        raise TypeError("%s is a tensor, which only the state can hold" % tree.tensors[0][0])
    return node


def _dump(header: dict) -> bytes:
    return json.dumps(header, allow_nan=False, separators=(",", ":")).encode()


def _write(place: _store.Place, header: dict, parts: List[_tensors.Part], end: int,
           threads: int) -> None:
    own, largest = threading.local(), min(_BLOCK, max((len(p.view) for p in parts), default=0))
    file = place.open(_store.temporary(place.path), write=True)

    def write_block(job):
        row, part, index, at, length = job
        # Copies the data: training may continue meanwhile, and the checksum must match the written
        # bytes.
        if not hasattr(own, "buffer"):
            own.buffer = memoryview(bytearray(largest))
        view = own.buffer[:length]
        view[:] = part.view[at:at + length]
        row["sums"][index] = "%016x" % _sum(view)
        file.write(view, row["off"] + at)

    try:
        jobs = [(row, part, index, at, length)
                for row, part in zip(header["parts"], parts)
                for index, (at, length) in enumerate(_blocks(len(part.view)))]
        _all(threads, write_block, jobs)
        text = bytearray(_dump(header))
        head = bytearray(_HEAD.pack(_MAGIC, _VERSION, 0, len(text), end, _sum(memoryview(text)), 0,
                                    0))
        head += struct.pack("<Q", _sum(memoryview(head)))
        file.write(memoryview(head + text), 0)
        written = [len(head) + len(text)] + [row["off"] + row["len"] for row in header["parts"]]
        if max(written) < end:
            file.write(memoryview(bytearray(1)), end - 1)  # a gap at the end is part of the file
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
            pass  # the error being raised matters more


# --- loading --------------------------------------------------------------------------------------

def _bad(path: str, what: str, off: Optional[int] = None) -> LeatError:
    where = "" if off is None else " at offset %d" % off
    return LeatError(errno.EBADMSG, "%s%s: %s" % (path, where, what), path, off)


class _Part(NamedTuple):
    off: int
    len: int
    sums: List[int]


class _Reader:
    """An open checkpoint with a verified header."""

    def __init__(self, file, path: str) -> None:
        self.file, self.path, self.size = file, path, file.size()
        head = self._read(0, _HEAD_SIZE, "it is too short to be a checkpoint")
        magic, version, _, n, size, json_sum, _, _ = _HEAD.unpack(head[:_HEAD.size])
        if magic != _MAGIC:
            raise _bad(path, "this is no checkpoint of Leat")
        if struct.unpack("<Q", head[56:])[0] != _sum(memoryview(head)[:56]):
            raise _bad(path, "the header is damaged", 0)
        if version != _VERSION:
            raise _bad(path, "version %d of the format, this library knows %d: load it with the "
                       "Leat that saved it, and save it again" % (version, _VERSION))
        if size != self.size:
            raise _bad(path, "the file has %d bytes, and should have %d" % (self.size, size))
        if n > min(_JSON_MAX, self.size - _HEAD_SIZE):
            raise _bad(path, "the header is damaged", 16)
        text = self._read(_HEAD_SIZE, n, "the file is truncated")
        if _sum(memoryview(text)) != json_sum:
            raise _bad(path, "the header is damaged", _HEAD_SIZE)
        try:
            self.header = json.loads(text)
            self.parts = [self._part(p) for p in self.header["parts"]]
            self.rows = self.header["tensors"]
            for row in self.rows:
                _tensors.check_row(row, [p.len for p in self.parts])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _bad(path, "the header is not one of a checkpoint (%s)" % error) from None

    def _read(self, off: int, n: int, what: str) -> bytearray:
        buffer = bytearray(n)
        if n and self.file.read_into(memoryview(buffer), off) != n:
            raise _bad(self.path, what)
        return buffer

    def _part(self, p: dict) -> _Part:
        numbers = [p["off"], p["len"]]
        if any(type(n) is not int or n < 0 for n in numbers) or p["off"] % _ALIGN or (
                p["off"] + p["len"] > self.size):
            raise ValueError("a part's place")
        sums = [int(s, 16) for s in p["sums"]]
        if len(sums) != len(_blocks(p["len"])):
            raise ValueError("a part's checksums")
        return _Part(p["off"], p["len"], sums)

    def _told(self, i: int) -> TensorInfo:
        row = self.rows[i]
        dtype = row["dtype"] if isinstance(row["dtype"], str) else json.dumps(row["dtype"])
        off = _up(_HEAD_SIZE) if row["part"] is None else self.parts[row["part"]].off
        return TensorInfo(row["name"], dtype, tuple(row["shape"]), off + row["at"],
                          _tensors.count_of(row["shape"]) * row["size"])

    def plain(self, name: str) -> Any:
        """Returns the loader's state, or meta."""
        try:
            return decode(self.header.get(name), self._no_tensor)
        except (ValueError, TypeError, OverflowError) as error:
            raise _bad(self.path, "%s: %s" % (name, error)) from None

    @staticmethod
    def _no_tensor(i: int) -> Any:
        raise ValueError("there is no tensor %d" % i)

    def info(self) -> Info:
        return Info([self._told(i) for i in range(len(self.rows))], self.plain("loader"),
                    self.plain("meta"), self.size)

    def fetch(self, wanted: List[int], mmap: bool, verify: bool,
              threads: int) -> Dict[int, memoryview]:
        """Returns memory of the parts of these tensors, writable."""
        names: Dict[int, str] = {}
        for i in wanted:
            if self.rows[i]["part"] is not None:
                names.setdefault(self.rows[i]["part"], self.rows[i]["name"])
        if mmap and isinstance(self.file, _store.LocalFile):
            # A private mapping: writes stay in this process.
            whole = memoryview(_mmap.mmap(self.file.fd, self.size, access=_mmap.ACCESS_COPY))
            views = {k: whole[self.parts[k].off:self.parts[k].off + self.parts[k].len]
                     for k in names}
        else:
            mmap, views = False, {k: memoryview(bytearray(self.parts[k].len)) for k in names}

        def block(job):
            k, index, at, n = job
            piece, off = views[k][at:at + n], self.parts[k].off + at
            if not mmap and self.file.read_into(piece, off) != n:
                raise _bad(self.path, "the file is truncated", off)
            if verify and _sum(piece) != self.parts[k].sums[index]:
                raise _bad(self.path, "the bytes of tensor %s are damaged" % names[k], off)

        if verify or not mmap:
            _all(threads, block, [(k, index, at, n) for k in names for index, (at, n)
                                  in enumerate(_blocks(self.parts[k].len))])
        return views


def _open(path: str, fs, conf, use: Callable[[_Reader], Any]) -> Any:
    path = os.fsdecode(path)
    file = _store.Place(path, fs, conf).open()
    try:
        return use(_Reader(file, path))
    finally:
        file.close()


def info(path: str, *, fs: Optional[FileSystem] = None, conf: Optional[str] = None) -> Info:
    """Returns names, types and shapes of the tensors, the loader's state, and meta; reads only the
    header."""
    return _open(path, fs, conf, _Reader.info)


def load(path: str, *, names: Optional[Sequence[str]] = None, map_location: Any = None,
         loader: Any = None, verify: bool = True, mmap: bool = True, threads: int = _THREADS,
         fs: Optional[FileSystem] = None, conf: Optional[str] = None) -> Any:
    """Returns the state that save was given, with tensors on the CPU or at map_location (an
    argument of torch's to()).

    names    patterns ("model/layer4.*"): returns a dict name -> tensor of those that match any,
             and reads nothing else; KeyError for a pattern that matches none. Names: keys joined
             by "/"
    loader   its load_state_dict receives the stored state; ValueError if there is none
    mmap     for files of a mount or local disk: tensors are private mappings of the file; pages
             that the program writes to are copied
    verify   compare every block with its checksum first

    LeatError EBADMSG: foreign, truncated, damaged, with path and offset; other OSErrors if the file
    cannot be read."""
    def use(reader: _Reader) -> Any:
        state = reader.plain("loader")
        if loader is not None and state is None:
            raise ValueError("%s holds no loader's state" % reader.path)
        result = _load_all(reader, mmap, verify, threads, map_location) if names is None else (
            _load_some(reader, names, mmap, verify, threads, map_location))
        if loader is not None:
            loader.load_state_dict(state)
        return result

    return _open(path, fs, conf, use)


def _load_all(reader: _Reader, mmap: bool, verify: bool, threads: int, where: Any) -> Any:
    views = reader.fetch(list(range(len(reader.rows))), mmap, verify, threads)
    maker = _tensors.Maker(reader.rows, views, where)
    with _damage_of(reader.path):
        return decode(reader.header.get("tree"), maker.make)


def _load_some(reader: _Reader, names: Sequence[str], mmap: bool, verify: bool, threads: int,
               where: Any) -> Dict[str, Any]:
    wanted = set()
    for pattern in [names] if isinstance(names, str) else names:
        found = {i for i, row in enumerate(reader.rows)
                 if fnmatch.fnmatchcase(row["name"], pattern)}
        if not found:
            raise KeyError("%s holds no tensor %s" % (reader.path, pattern))
        wanted |= found
    views = reader.fetch(sorted(wanted), mmap, verify, threads)
    maker = _tensors.Maker(reader.rows, views, where)
    with _damage_of(reader.path):
        return {reader.rows[i]["name"]: maker.make(i) for i in sorted(wanted)}


@contextlib.contextmanager
def _damage_of(path: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise _bad(path, str(error)) from None
