# SPDX-License-Identifier: Apache-2.0
"""For PyTorch: data sets and samplers for an unmodified torch.utils.data.DataLoader.

    ds = leat.Dataset("leat:imagenet@v1", stage_dir="/nvme")

    leat.DataLoader(ds, 256, framework="torch")   # the short way: C threads, no copy, no workers

    data = leat.IterableDataset(ds, 256)     # decoding in worker processes of torch
    loader = torch.utils.data.DataLoader(data, batch_size=256, num_workers=8, collate_fn=decode)

    sampler = leat.Sampler(ds, 256)          # for map-style data sets of that length
    loader = torch.utils.data.DataLoader(ds, batch_size=256, sampler=sampler, collate_fn=decode)

leat.DataLoader and ds itself return NumPy arrays unless they have framework="torch"; an
IterableDataset returns tensors.

In both cases the batches come in the order of leat.DataLoader, each sample once per epoch, for any
number of workers: worker w of W takes the steps w, w + W, ... of its rank, and torch takes its
batches from the workers in turn. Call set_epoch(e) before each epoch, as with torch's
DistributedSampler; without it, all passes are equal.

The position of the training is what the loop has consumed, never what was read ahead for it:

    no workers                     data.state_dict() after any batch, of any size
    torch's DataLoader, workers    data.state_dict(batches=n): only the loop has the number of steps
                                   of this pass that it consumed; without a number it refuses
    torchdata's StatefulDataLoader loader.state_dict(), with any number of workers: the data set
                                   and the sampler support its protocol. It continues only with
                                   the same number of workers
    wrappers that fetch a batch    data.state_dict(batches=n): Lightning and accelerate fetch one
    ahead                          batch ahead, also without workers

A state of whole steps can be continued with any number of workers and ranks, and in
leat.DataLoader.
"""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

import torch
from torch.utils import data as _data

from ._batch import Batch
from ._dataset import Dataset
from ._loader import DataLoader
from ._position import Place, Position
from ._ranks import rank_and_world

__all__ = ["IterableDataset", "Sampler"]


_WORKERS = ("no batch of this pass was taken in this process. With worker processes only the "
            "training loop knows how many it consumed: say state_dict(batches=N), N steps of this "
            "pass, or use torchdata's StatefulDataLoader and its state_dict(), or leat.DataLoader, "
            "which needs no workers")


_WORKERS_MAX = 1024  # limit for workers that count their steps
_MIDDLE = "the state is in the middle of a step, and here whole steps are given"


class _Steps:
    """The common part of data set and sampler: which epoch, from which step on."""

    def _start(self, ds: Dataset, batch_size: Optional[int], global_batch: Optional[int], seed: int,
               order: str, tail: str, rank: Union[int, str], world: Union[int, str]) -> None:
        if (batch_size is None) == (global_batch is None):
            raise ValueError("either batch_size (per rank) or global_batch")
        # In this process: torch.distributed is not initialised in a worker.
        rank, world = rank_and_world(rank, world)
        self.dataset = ds
        self._at = Position(ds, global_batch or batch_size * world, seed, order, tail, rank, world)
        # Shared with workers that persist across epochs: epoch, step where a pass begins, samples
        # of that step that it leaves out, and whether the latest pass is in a worker.
        self._where = torch.zeros(4, dtype=torch.int64).share_memory_()
        # steps, for each worker
        self._begun = torch.zeros(_WORKERS_MAX, dtype=torch.int64).share_memory_()
        self._pass: Any = None  # the latest pass of this process

    def _begin(self, place: Place) -> None:
        for k, n in enumerate(place):
            self._where[k] = n
        self._where[3] = 0
        self._begun.zero_()
        self._pass = None

    def set_epoch(self, epoch: int) -> None:
        """Makes the next pass one over this epoch, from its start, or from the position of
        load_state_dict if that is in this epoch."""
        place = self._place()
        self._begin(place if epoch == place.epoch else Place(epoch, 0, 0))

    def _place(self) -> Place:
        return Place(*(int(n) for n in self._where[:3]))

    def _after(self, batches: int) -> Dict[str, Any]:
        """The state after so many steps of the present pass."""
        mine = self._pass is not None and not self._where[3]
        place = self._pass.began if mine else self._place()
        if place.skip:
            raise ValueError("this pass began in the middle of a step: steps of it cannot be "
                             "counted; give torch's DataLoader the batch_size of a step")
        begun = int(self._begun.sum())
        if 0 < begun < batches:
            raise ValueError("%d steps of this pass cannot have been consumed, only %d were given: "
                             "does torch's DataLoader have the batch_size of a step?" % (batches,
                                                                                         begun))
        return self._at.state(place._replace(step=place.step + batches))


class _Pass:
    """One pass of one process: an iterator that counts what it has returned."""

    def __init__(self, data: IterableDataset, place: Place, worker: int, workers: int) -> None:
        self._data, self.began, self.place = data, place, place
        self._worker, self._workers, self._pid = worker, workers, os.getpid()
        self._rest: List[Any] = []  # of the present step, the last sample first
        self._batches: Iterator[Batch] = iter(())
        if place.step < data._at.steps:
            loader = data._open(worker, workers, place.epoch)
            loader.load_state_dict(data._at.state(place._replace(skip=0)))
            self._batches = iter(loader)

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        if self._data._pass is not self:
            raise RuntimeError("another pass over this data set has begun in this process since, "
                               "and took its place: make an IterableDataset for each")
        while not self._rest:
            batch = next(self._batches, None)
            if batch is None:
                self._ended()
                raise StopIteration
            skip = self.place.skip if batch.step == self.place.step else 0
            self.place = Place(self.place.epoch, batch.step, skip)
            if self._worker < _WORKERS_MAX:
                self._data._begun[self._worker] += 1
            self._rest = self._data._give(batch)[skip:][::-1]
            if not self._rest:
                self.place = Place(self.place.epoch, batch.step + self._workers, 0)
        item = self._rest.pop()
        # Counted before it is returned: the caller that has a sample has consumed it.
        epoch, step, skip = self.place
        self.place = Place(epoch, step, skip + 1) if self._rest else (
            Place(epoch, step + self._workers, 0))
        return item

    def _ended(self) -> None:
        """Clears a loaded position after the pass that began there, unless other workers may still
        need it."""
        data = self._data
        if _data.get_worker_info() is None and data._place() == self.began and (
                self.began.step or self.began.skip):
            data._where[1] = data._where[2] = 0

    def state(self) -> Dict[str, Any]:
        state = self._data._at.state(self.place)
        if _data.get_worker_info() is not None:
            state.update(worker=self._worker, workers=self._workers)
        return state


class IterableDataset(_Steps, _data.IterableDataset):
    """Samples, or whole batches, for torch.utils.data.DataLoader with any number of workers.

    batch_size    samples per rank and step (or global_batch, of all ranks together). Give the
                  DataLoader the same batch_size; with another one every sample still comes once,
                  but with several workers in another order, and state_dict(batches=n) counts steps,
                  not batches.
    batched       return whole steps: the DataLoader has batch_size=None
    collate       makes an item of a step's leat.Batch (tensors without a copy), in the worker.
                  Without it: a dict of lists of tensors, and the int64 tensor "__ids__".
    seed, order, tail, rank, world, fields, decode, depth, memory_limit, on_error: those of
                  leat.DataLoader; depth and memory are per worker

    A sample is a dict of tensors, of type uint8 [bytes] or that of ds.types, with "__key__",
    "__id__" and, for plain files, "class".
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
        self._resume: Optional[Place] = None  # of this worker, for its next pass

    def __len__(self) -> int:
        """Samples of a pass from the epoch's start; steps if batched."""
        if self.batched:
            return self._at.steps
        last = self._at.steps - 1
        if last < 0:
            return 0
        return last * (self._at.batch // self._at.world) + self._at.share(last)[1]

    def __getstate__(self) -> dict:
        return dict(vars(self), _loader=None, _key=(), _pass=None)

    def __iter__(self) -> Iterator[Any]:
        info = _data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        epoch, step, skip = self._place()
        place = Place(epoch, step + worker, 0 if worker else skip)
        self._where[3] = int(info is not None)
        if info is None:
            self._begun.zero_()
        elif worker < _WORKERS_MAX:
            self._begun[worker] = 0
        self._pass = _Pass(self, self._resume or place, worker, workers)
        self._resume = None
        return self._pass

    def state_dict(self, batches: Optional[int] = None) -> Dict[str, Any]:
        """Like that of leat.DataLoader, after what was consumed of this pass. A state in the middle
        of a step is marked so, and can be continued only with the same number of ranks. batches:
        after so many steps of this pass. ValueError, with the remedy, if this process cannot count
        them (workers of torch's DataLoader), or if more steps are given than were returned.

        In a worker, where StatefulDataLoader calls it, it is the state of that worker."""
        if batches is not None:
            return self._after(batches)
        p = self._pass
        if p is None or p._pid != os.getpid() or (
                self._where[3] and _data.get_worker_info() is None):
            raise ValueError(_WORKERS)
        return p.state()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Makes passes over the state's epoch begin at its position, until a pass was read to its
        end in this process, or set_epoch selects another epoch. ValueError if the state belongs to
        another data set or order. World size and number of workers may differ for a state of whole
        steps.

        In a worker, where StatefulDataLoader passes that worker's state, it applies to the worker's
        next pass."""
        info = _data.get_worker_info()
        place = self._at.where(state, *((info.id, info.num_workers) if info else ()))
        if place.skip and self.batched:
            raise ValueError(_MIDDLE)
        if info is None:
            self._begin(place)
            return
        self._where[0], self._where[1], self._where[2] = place.epoch, 0, 0
        self._resume = place

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

    def _give(self, batch: Batch) -> List[Any]:
        if self.collate is not None:
            return [self.collate(batch)]
        if self.batched:
            return [dict(batch, __ids__=torch.from_numpy(batch.ids.astype("int64")))]
        samples = self.dataset._samples(batch)
        for sample, number in zip(samples, batch.ids.tolist()):
            sample["__id__"] = number
        return samples


class _Draws:
    """Indices of one pass. Its state, which torchdata's samplers store, is the number drawn so
    far."""

    def __init__(self, sampler: Sampler, place: Place) -> None:
        self._sampler, self._place, self._order = sampler, place, None

    def __iter__(self) -> _Draws:
        return self

    def __next__(self) -> Union[int, List[int]]:
        at, (epoch, step, skip) = self._sampler._at, self._place
        if step >= at.steps:
            raise StopIteration
        if self._order is None:
            self._order = self._sampler.dataset.order(at.mode, at.seed, epoch, at.batch)
        start, count = at.share(step)
        # The tail "pad" continues with the first samples.
        if self._sampler.batched:
            self._place = Place(epoch, step + 1, 0)
            return [self._order[(start + i) % at.n] for i in range(count)]
        last = skip + 1 >= count
        self._place = Place(epoch, step + last, 0 if last else skip + 1)
        return self._order[(start + skip) % at.n] if count else next(self)

    def state_dict(self) -> Dict[str, Any]:
        return self._sampler._at.state(self._place)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        place = self._sampler._at.where(state)
        if place.skip and self._sampler.batched:
            raise ValueError(_MIDDLE)
        self._place, self._order = place, None


class Sampler(_Steps, _data.Sampler):
    """The indices of this rank's samples of an epoch, in the order of leat.DataLoader, for
    map-style data sets of the same length as ds.

    batched: lists of a step's indices each, for DataLoader(batch_sampler=...); or, with
    DataLoader(ds, sampler=..., batch_size=None), for reading the samples of a step together. The
    other arguments are those of leat.DataLoader.

    torch draws from samplers ahead of the loop: state_after(n) is the state after n steps of this
    pass were consumed. (There is no state_dict, because torchdata would use it for the number
    drawn; StatefulDataLoader uses the state of the sampler's iterator.)
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

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Makes passes over the state's epoch begin at its position, until set_epoch selects
        another epoch. ValueError if the state belongs to another data set or order. The world size
        may differ."""
        place = self._at.where(state)
        if place.skip and self.batched:
            raise ValueError(_MIDDLE)
        self._begin(place)

    def state_after(self, batches: int) -> Dict[str, Any]:
        """Like DataLoader.state_dict(), after so many steps of this pass were consumed."""
        return self._after(batches)

    def __iter__(self) -> Iterator[Union[int, List[int]]]:
        return _Draws(self, self._place())
