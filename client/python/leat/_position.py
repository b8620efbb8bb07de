"""Where the steps of an epoch lie in its order, for those who deal them out without a loader."""
from __future__ import annotations

from typing import Any, Dict, Tuple

from ._dataset import Dataset
from ._loader import DataLoader


class Position:
    """The steps of a loader with these options: how many, which samples, and the state after so
    many of them. One with the same arguments gives the same on every machine."""

    def __init__(self, ds: Dataset, global_batch: int, seed: int, order: str, tail: str, rank: int,
                 world: int) -> None:
        # A loader checks the options and names the state. With no memory it reads nothing.
        with DataLoader(ds, global_batch=global_batch, seed=seed, order=order, tail=tail, rank=rank,
                        world=world, depth=2, memory_limit=1) as loader:
            self._state, self.steps = loader.state_dict(), loader.steps
        self.n, self.batch, self.rank, self.world = ds.positions, global_batch, rank, world
        self.tail, self.seed, self.mode = tail, seed, self._state["order"]

    def share(self, step: int) -> Tuple[int, int]:
        """This rank's first position in a step, and how many (client/loader/ORDER.md)."""
        base, m = step * self.batch, self.batch
        if self.tail == "shorter":
            m = min(m, self.n - base)
        first = self.rank * m // self.world
        return base + first, (self.rank + 1) * m // self.world - first

    def state(self, epoch: int, step: int) -> Dict[str, Any]:
        """As DataLoader.state_dict() after `step` steps of the epoch."""
        return dict(self._state, epoch=epoch, pos=min(step, self.steps) * self.batch)

    def where(self, state: Dict[str, Any]) -> Tuple[int, int]:
        """(epoch, step) of a state. ValueError where it belongs to something else."""
        for name in ("v", "ds", "n", "order", "seed", "G"):
            if state.get(name) != self._state[name]:
                raise ValueError("the state is of another data set, order, seed or global batch: "
                                 "%s is %r, here it is %r" % (name, state.get(name),
                                                              self._state[name]))
        epoch, pos = state.get("epoch"), state.get("pos")
        if not isinstance(epoch, int) or not isinstance(pos, int) or epoch < 0 or pos < 0:
            raise ValueError("the state has no position")
        if pos % self.batch or pos > self.steps * self.batch:
            raise ValueError("the state's position %d is none of this epoch" % pos)
        return epoch, pos // self.batch
