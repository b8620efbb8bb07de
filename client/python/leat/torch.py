"""For PyTorch: what an unmodified torch.utils.data.DataLoader takes.

    ds = leat.Dataset("leat:imagenet@v1", stage_dir="/nvme")

    leat.DataLoader(ds, 256)                 # the short way: C threads, zero copy, no workers

    data = leat.IterableDataset(ds, 256)     # decoding in worker processes of torch
    loader = torch.utils.data.DataLoader(data, batch_size=256, num_workers=8, collate_fn=decode)

    sampler = leat.Sampler(ds, 256)          # for map-style data sets of that length
    loader = torch.utils.data.DataLoader(ds, batch_size=256, sampler=sampler, collate_fn=decode)

Either way the batches come in the order of leat.DataLoader, each sample once per epoch, whatever
the number of workers: worker w of W takes the steps w, w + W, ... of its rank, and torch takes its
batches from the workers in turn. Call set_epoch(e) before each epoch, as with torch's
DistributedSampler; without it, each pass is the same.

Where training stands is what it has consumed, which only the training loop knows when workers read
ahead: state_dict(batches=n), n of the present pass.
"""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

import torch
from torch.utils import data as _data

from ._batch import Batch
from ._dataset import Dataset
from ._loader import DataLoader
from ._position import Position
from ._ranks import rank_and_world

__all__ = ["IterableDataset", "Sampler"]


class _Steps:
    """What both have in common: which epoch, from which step on."""

    def _start(self, ds: Dataset, batch_size: Optional[int], global_batch: Optional[int], seed: int,
               order: str, tail: str, rank: Union[int, str], world: Union[int, str]) -> None:
        if (batch_size is None) == (global_batch is None):
            raise ValueError("either batch_size (per rank) or global_batch")
        # Here, not in a worker, which does not know torch.distributed.
        rank, world = rank_and_world(rank, world)
        self.dataset = ds
        self._at = Position(ds, global_batch or batch_size * world, seed, order, tail, rank, world)
        # Shared with workers that live on from epoch to epoch: [epoch, step where a pass begins].
        self._where = torch.zeros(2, dtype=torch.int64).share_memory_()
        self._passed: Optional[int] = None  # steps of the present pass, where this process makes it

    def set_epoch(self, epoch: int) -> None:
        """The next pass is over this epoch, from its start; from the position of load_state_dict
        where that is in this epoch."""
        if epoch != int(self._where[0]):
            self._where[0], self._where[1] = epoch, 0
        self._passed = None

    def state_dict(self, batches: Optional[int] = None) -> Dict[str, Any]:
        """As of leat.DataLoader, after so many batches of this pass were consumed. None: as many as
        were taken in this process; ValueError where there were none, for example with workers."""
        epoch, step = (int(n) for n in self._where)
        if batches is None:
            if self._passed is None:
                raise ValueError("no batch was taken in this process: with worker processes say "
                                 "state_dict(batches=N), N batches of this pass consumed")
            batches = self._passed
        return self._at.state(epoch, step + batches)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Passes over the state's epoch begin there from now on. ValueError where the state belongs
        to something else. World size and number of workers may be others."""
        self._where[0], self._where[1] = self._at.where(state)
        self._passed = None


class IterableDataset(_Steps, _data.IterableDataset):
    """Samples, or whole batches, for torch.utils.data.DataLoader with any number of workers.

    batch_size    samples per rank and step (or global_batch, of all ranks together). Give the
                  DataLoader the same batch_size; with another one every sample still comes once,
                  but with several workers in another order.
    batched       give whole steps: the DataLoader has batch_size=None
    collate       of a step's leat.Batch (tensors without a copy) makes what is given, in the
                  worker. Without it: a dict of lists of tensors, and the int64 tensor "__ids__".
    seed, order, tail, rank, world, fields, decode, depth, memory_limit, on_error: of
                  leat.DataLoader; depth and memory are per worker

    A sample is a dict of uint8 tensors [bytes] (or what ds.types says), "__key__", "__id__" and,
    of plain files, "class".
    """

    def __init__(self, ds: Dataset, batch_size: Optional[int] = None, *,
                 global_batch: Optional[int] = None, seed: int = 0, order: str = "global",
                 tail: str = "drop", rank: Union[int, str] = "auto",
                 world: Union[int, str] = "auto", batched: bool = False,
                 collate: Optional[Callable[[Batch], Any]] = None, **loader: Any) -> None:
        super().__init__()
        self._start(ds, batch_size, global_batch, seed, order, tail, rank, world)
        self.batched, self.collate = batched or collate is not None, collate
        self._options = dict(loader, framework="torch")
        self._loader: Optional[DataLoader] = None
        self._key: tuple = ()

    def __len__(self) -> int:
        """Samples of a pass from the epoch's start; steps if batched."""
        if self.batched:
            return self._at.steps
        last = self._at.steps - 1
        if last < 0:
            return 0
        return last * (self._at.batch // self._at.world) + self._at.share(last)[1]

    def __getstate__(self) -> dict:
        return dict(vars(self), _loader=None, _key=())

    def __iter__(self) -> Iterator[Any]:
        info = _data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        epoch, first = (int(n) for n in self._where)
        if first + worker >= self._at.steps:
            return
        loader = self._open(worker, workers, epoch)
        loader.load_state_dict(self._at.state(epoch, first + worker))
        if not info:
            self._passed = 0
        for batch in loader:
            yield from self._give(batch)
            del batch
            if not info and self._passed is not None:
                self._passed += 1

    def _open(self, worker: int, workers: int, epoch: int) -> DataLoader:
        """One loader per process, for all its passes."""
        key = (os.getpid(), worker, workers)
        if self._key != key:
            at = self._at
            self._loader = DataLoader(self.dataset, global_batch=at.batch, seed=at.seed,
                                      epoch=epoch, order=at.mode, tail=at.tail, rank=at.rank,
                                      world=at.world, stride=workers, phase=worker,
                                      **self._options)
            self._key = key
        return self._loader

    def _give(self, batch: Batch) -> Iterator[Any]:
        if self.collate is not None:
            yield self.collate(batch)
        elif self.batched:
            yield dict(batch, __ids__=torch.from_numpy(batch.ids.astype("int64")))
        else:
            for sample, number in zip(self.dataset._samples(batch), batch.ids.tolist()):
                sample["__id__"] = number
                yield sample


class Sampler(_Steps, _data.Sampler):
    """The indices of this rank's samples of an epoch, in the order of leat.DataLoader, for
    map-style data sets of the same length as ds.

    batched: lists of a step's indices each, for DataLoader(batch_sampler=...); or, with
    DataLoader(ds, sampler=..., batch_size=None), for reading each step at once.
    The other arguments are those of leat.DataLoader.
    """

    def __init__(self, ds: Dataset, batch_size: Optional[int] = None, *,
                 global_batch: Optional[int] = None, seed: int = 0, order: str = "global",
                 tail: str = "drop", rank: Union[int, str] = "auto",
                 world: Union[int, str] = "auto", batched: bool = False) -> None:
        self._start(ds, batch_size, global_batch, seed, order, tail, rank, world)
        self.batched = batched

    def __len__(self) -> int:
        """Of a pass from the epoch's start: indices, or lists of them."""
        at = self._at
        return at.steps if self.batched else sum(at.share(s)[1] for s in range(at.steps))

    def __iter__(self) -> Iterator[Union[int, List[int]]]:
        at = self._at
        epoch, first = (int(n) for n in self._where)
        order = self.dataset.order(at.mode, at.seed, epoch, at.batch)
        for step in range(first, at.steps):
            start, count = at.share(step)
            # The tail "pad" begins again from the front.
            indices: Sequence[int] = [order[(start + i) % at.n] for i in range(count)]
            if self.batched:
                yield list(indices)
            else:
                yield from indices
