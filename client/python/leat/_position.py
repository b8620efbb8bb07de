# SPDX-License-Identifier: Apache-2.0
"""The steps of an epoch in its order, for data sets that deliver them without a loader."""
from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple

from ._dataset import Dataset
from ._loader import DataLoader


class Place(NamedTuple):
    """A step of an epoch, and how many samples of the rank's share of it were delivered already."""
    epoch: int
    step: int
    skip: int


class Position:
    """The steps of a loader with these options: their number, their samples, and the state after
    any of them. Equal arguments yield equal results on every machine."""

    def __init__(self, ds: Dataset, global_batch: int, seed: int, order: str, tail: str, rank: int,
                 world: int) -> None:
        # A loader checks the options and names the state. Without memory it reads nothing.
        with DataLoader(ds, global_batch=global_batch, seed=seed, order=order, tail=tail, rank=rank,
                        world=world, depth=2, memory_limit=1) as loader:
            self._state, self.steps = loader.state_dict(), loader.steps
        self.n, self.batch, self.rank, self.world = ds.positions, global_batch, rank, world
        self.tail, self.seed, self.mode = tail, seed, self._state["order"]

    def share(self, step: int) -> Tuple[int, int]:
        """This rank's first position in a step, and the number of its positions
        (client/loader/ORDER.md)."""
        base, m = step * self.batch, self.batch
        if self.tail == "shorter":
            m = min(m, self.n - base)
        first = self.rank * m // self.world
        return base + first, (self.rank + 1) * m // self.world - first

    def state(self, place: Place) -> Dict[str, Any]:
        """Like DataLoader.state_dict() at this place. In the middle of a step the state has "skip",
        the delivered samples of the rank's share, and "world", the number of ranks that have such
        shares."""
        state = dict(self._state, epoch=place.epoch,
                     pos=min(place.step, self.steps) * self.batch)
        if place.skip:
            state.update(skip=place.skip, world=self.world)
        return state

    def where(self, state: Dict[str, Any], worker: Optional[int] = None,
              workers: int = 1) -> Place:
        """The place of a state: of a state of this worker, or this worker's place in a state of all
        workers. ValueError if the state belongs to another data set or order."""
        for name in ("v", "ds", "n", "order", "seed", "G"):
            if state.get(name) != self._state[name]:
                raise ValueError("the state is of another data set, order, seed or global batch: "
                                 "%s is %r, here it is %r" % (name, state.get(name),
                                                              self._state[name]))
        epoch, pos, skip = state.get("epoch"), state.get("pos"), state.get("skip", 0)
        if any(not isinstance(n, int) or n < 0 for n in (epoch, pos, skip)):
            raise ValueError("the state has no position")
        if skip and state.get("world") != self.world:
            raise ValueError("the state is in the middle of a step of %s ranks, and here are %d: "
                             "with other ranks one goes on after whole steps; give torch's "
                             "DataLoader the batch_size of a step" % (state.get("world"),
                                                                      self.world))
        step = pos // self.batch
        if pos % self.batch or step > self.steps or skip and (
                step == self.steps or skip >= self.share(step)[1]):
            raise ValueError("the state's position %d, %d is none of this epoch" % (pos, skip))
        if "workers" not in state:
            return Place(epoch, step + (worker or 0), 0 if worker else skip)
        if (state.get("worker"), state["workers"]) != (worker, workers):
            raise ValueError(
                "the state is of worker %s of %s, and this is %s: StatefulDataLoader goes on with "
                "as many workers as it had; to change their number, keep "
                "state_dict(batches=N) of leat.IterableDataset, or use leat.DataLoader" % (
                    state.get("worker"), state["workers"],
                    "no worker" if worker is None else "worker %d of %d" % (worker, workers)))
        return Place(epoch, step, skip)
