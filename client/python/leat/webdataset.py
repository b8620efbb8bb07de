# SPDX-License-Identifier: Apache-2.0
"""The iteration of the webdataset library over Leat, without that library:

    data = leat.webdataset.dataset("leat:/shards/train-{000000..000146}.tar", seed=1)
    data = data.decode(lambda s: ...).to_tuple("jpg", "cls").batched(64)

Samples are dicts like those of webdataset: "__key__", "__url__" and one item of bytes per
extension. So its decoders and map functions accept them, and `wds.DataPipeline(data, ...)` can
continue from there. Instead of a shuffle buffer there is Leat's order: a true permutation, each
sample exactly once per epoch over all ranks and workers, the same number of steps on every rank.
"""
from __future__ import annotations

import glob
import itertools
import os
import re
import zlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

from ._dataset import Dataset
from ._loader import DataLoader
from ._ranks import rank_and_world

try:  # torch's DataLoader recognizes only instances of its class
    import torch as _torch
    from torch.utils.data import IterableDataset as _Base
except ImportError:
    _torch, _Base = None, object

__all__ = ["WebDataset", "dataset", "expand"]

_SHARDS_MAX = 1_000_000


def expand(urls: str) -> List[str]:
    """ "a-{00..02}.tar" as webdataset writes it (also {a,b}); ValueError for more than 10^6."""
    parts: List[List[str]] = []
    total, end = 1, 0
    for m in re.finditer(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}", urls):
        parts.append([urls[end:m.start()]])
        end = m.end()
        n = m[3].count(",") + 1 if m[3] is not None else int(m[2]) - int(m[1]) + 1
        total *= n
        if n < 1 or total > _SHARDS_MAX:
            raise ValueError("%s has too many shards, or none" % urls)
        parts.append(m[3].split(",") if m[3] is not None else
                     ["%0*d" % (len(m[1]), i) for i in range(int(m[1]), int(m[2]) + 1)])
    return ["".join(words) for words in itertools.product(*parts, [urls[end:]])]


def _shards(urls: Union[str, Sequence[str]]) -> List[str]:
    return expand(urls) if isinstance(urls, str) else [u for one in urls for u in expand(one)]


def _what(shards: List[str]) -> str:
    """The one name of the data set that these shards are: a pattern for files of one directory."""
    if not shards:
        raise ValueError("no shards")
    if len(shards) == 1:
        return shards[0]
    folders = {os.path.dirname(s) for s in shards}
    front = os.path.commonprefix([os.path.basename(s) for s in shards])
    back = os.path.commonprefix([os.path.basename(s)[::-1] for s in shards])[::-1]
    if len(folders) != 1:
        raise ValueError("the shards lie in %d directories: one data set is one directory" %
                         len(folders))
    return "%s/%s*%s" % (folders.pop(), glob.escape(front), glob.escape(back[-4:]))


class _Epochs:
    """The epoch of each pass, in memory that is shared with torch's worker processes, whether they
    persist or are made for one pass. `mark` is equal for all workers of a pass and different for
    each pass. The worker that begins a pass first counts it. Each worker writes mark and count of
    the pass that it began to its word in one store, so no lock is needed."""

    WORKERS = 255  # further workers share words, which then belong to about the same pass

    def __init__(self, first: int) -> None:
        words = 1 + self.WORKERS
        self._words: Any = [0] * words if _torch is None else _torch.zeros(
            words, dtype=_torch.int64).share_memory_()
        self.set(first)

    def set(self, first: int) -> None:
        """Sets the epoch of the next pass."""
        for i in range(1, len(self._words)):
            self._words[i] = 0
        self._words[0] = first

    def _begun(self) -> List[int]:
        return [int(w) for w in self._words[1:] if w]

    def next(self) -> int:
        return int(self._words[0]) + max((w & 0xffffffff for w in self._begun()), default=0)

    def begin(self, worker: int, mark: int) -> int:
        begun = self._begun()
        count = next((w & 0xffffffff for w in begun if w >> 32 == mark),
                     max((w & 0xffffffff for w in begun), default=0) + 1)
        self._words[1 + worker % self.WORKERS] = mark << 32 | count
        return int(self._words[0]) + count - 1


class WebDataset(_Base):
    """See dataset(). Each pass is one epoch; the next pass is the next epoch, unless set_epoch
    selects another. Pipelines (map, decode, to_tuple, select, batched) consist of the methods of
    this object, which are named like those of webdataset."""

    def __init__(self, ds: Dataset, options: Dict[str, Any], chunk: int) -> None:
        self.dataset, self._options, self._chunk = ds, options, chunk
        self._epochs = _Epochs(0)
        self._passes = 0  # passes begun in this process, or before it was forked
        self._loader: Optional[DataLoader] = None
        self._key: tuple = ()
        self._stages: List[Callable[[Iterator[Any]], Iterator[Any]]] = []

    def __len__(self) -> int:
        """Samples of an epoch, of all ranks together."""
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        self._epochs.set(epoch)

    def __getstate__(self) -> dict:
        return dict(vars(self), _loader=None, _key=())

    def _open(self, worker: int, workers: int) -> DataLoader:
        key = (os.getpid(), worker, workers)
        if self._key != key:
            world = self._options["world"]
            self._loader = DataLoader(self.dataset, global_batch=self._chunk * world,
                                      stride=workers, phase=worker, framework="memoryview",
                                      **self._options)
            self._key = key
        return self._loader

    def _samples(self) -> Iterator[Dict[str, Any]]:
        worker, workers, seed = _worker()
        loader = self._open(worker, workers)
        self._passes += 1
        mark = zlib.crc32(b"%d %d" % (seed, self._passes)) >> 1
        loader.set_epoch(self._epochs.begin(worker, mark))
        for batch in loader:
            for k, key in enumerate(batch.names):
                sample = {"__key__": key, "__url__": self.dataset.path}
                for field in batch:
                    if batch[field][k] is not None:
                        sample[field] = bytes(batch[field][k])
                yield sample
            del batch

    def __iter__(self) -> Iterator[Any]:
        items: Iterator[Any] = self._samples()
        for stage in self._stages:
            items = stage(items)
        return items

    def compose(self, stage: Callable[[Iterator[Any]], Iterator[Any]]) -> WebDataset:
        """Returns this pipeline with one more stage, a generator over the items before it."""
        other = WebDataset(self.dataset, self._options, self._chunk)
        other.set_epoch(self._epochs.next())
        other._stages = self._stages + [stage]
        return other

    def map(self, function: Callable[[Any], Any]) -> WebDataset:
        return self.compose(_Map(_function("map", function)))

    def decode(self, function: Callable[[Any], Any]) -> WebDataset:
        """Like map(). Names of webdataset's decoders ("pil") need its library: TypeError says
        how."""
        return self.compose(_Map(_function("decode", function)))

    def select(self, predicate: Callable[[Any], bool]) -> WebDataset:
        _function("select", predicate)
        return self.compose(_Select(predicate))

    def map_dict(self, **functions: Callable[[Any], Any]) -> WebDataset:
        """field=function: applies the functions to these fields."""
        for field, function in functions.items():
            _function("map_dict of " + field, function)
        return self.compose(_Map(_MapDict(functions)))

    def to_tuple(self, *fields: str) -> WebDataset:
        """Tuples of these fields; "jpg;png": the first of them that exists. KeyError names the
        sample."""
        return self.compose(_Map(_ToTuple(" ".join(fields).split())))

    def batched(self, n: int, partial: bool = True) -> WebDataset:
        """Lists of n items; partial: also the shorter last one."""
        return self.compose(_Batched(n, partial))


def _function(method: str, given: Any) -> Callable[[Any], Any]:
    if callable(given):
        return given
    raise TypeError("%s takes a function, not %r%s" % (
        method, given, ": wds.DataPipeline(data, wds.decode(%r)) of the webdataset library takes "
        "that" % given if method == "decode" and isinstance(given, str) else ""))


class _Map:  # Objects, not closures: they are sent to spawned workers.
    def __init__(self, function):
        self.function = function

    def __call__(self, items):
        return (self.function(i) for i in items)


class _Select(_Map):
    def __call__(self, items):
        return (i for i in items if self.function(i))


class _MapDict:
    def __init__(self, functions):
        self.functions = functions

    def __call__(self, sample):
        return {f: self.functions[f](v) if f in self.functions else v for f, v in sample.items()}


class _ToTuple:
    def __init__(self, fields):
        self.fields = [f.split(";") for f in fields]

    def __call__(self, sample):
        return tuple(self._one(sample, names) for names in self.fields)

    @staticmethod
    def _one(sample, names):
        for name in names:
            if name in sample:
                return sample[name]
        raise KeyError("sample %s has no %s, only %s" % (
            sample.get("__key__"), " or ".join(names), ", ".join(sorted(sample))))


class _Batched:
    def __init__(self, n, partial):
        self.n, self.partial = n, partial

    def __call__(self, items):
        batch = []
        for item in items:
            batch.append(item)
            if len(batch) == self.n:
                yield batch
                batch = []
        if batch and self.partial:
            yield batch


def _worker() -> tuple:
    """(number, count, a number that they share) of a worker process of torch's DataLoader."""
    info = _torch.utils.data.get_worker_info() if _torch is not None else None
    return (info.id, info.num_workers, info.seed - info.id) if info else (0, 1, -1)


def _open_shards(shards: List[str], **options: Any) -> Dataset:
    what = _what(shards)
    # A name has the format with which it was created.
    path = what[len("leat:"):] if what.startswith("leat:") else what
    ds = Dataset(what, format="tar" if path.startswith("/") else None, **options)
    if len(shards) == 1:
        return ds
    asked, found = [os.path.basename(s) for s in shards], [ds.file(i) for i in range(ds.files)]
    if sorted(asked) != sorted(found):
        ds.close()
        lost, more = sorted(set(asked) - set(found)), sorted(set(found) - set(asked))
        raise ValueError("%d shards were asked for, and %s are %d%s%s" % (
            len(shards), _what(shards), len(found),
            ": %s is not there" % lost[0] if lost else "",
            "; %s was not asked for" % more[0] if more else ""))
    return ds


def dataset(urls: Union[str, Sequence[str], Dataset], *, seed: int = 0, order: str = "window",
            tail: str = "shorter", rank: Union[int, str] = "auto", world: Union[int, str] = "auto",
            chunk: int = 64, fs: Any = None, conf: Optional[str] = None,
            stage_dir: Optional[str] = None, **loader: Any) -> WebDataset:
    """Samples of tar shards, whatever their files are called.

    urls     "/data/train-{0000..0146}.tar", with "leat:" before it from the servers, a list of
             such in one directory, a directory, "leat:name@version", or a Dataset. Several shards
             are opened as the pattern PREFIX*SUFFIX that they have in common, which must match no
             other files (ValueError)
    order    "window": whole shards at a time, close to each other; "global"; "sequential" for tests
    chunk    samples that are read together, and delivered to one rank and worker together
    The others are those of leat.Dataset and leat.DataLoader. Errors are LeatError."""
    if not isinstance(urls, Dataset):
        urls = _open_shards(_shards(urls), fs=fs, conf=conf, stage_dir=stage_dir)
    rank, world = rank_and_world(rank, world)
    options = dict(loader, seed=seed, order=order, tail=tail, rank=rank, world=world)
    return WebDataset(urls, options, chunk)
