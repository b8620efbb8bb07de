"""For Horovod: the loader's rank and world are Horovod's, and the position is the same everywhere.

    import horovod.torch as hvd
    hvd.init()
    loader = leat.horovod.loader(hvd, ds, batch_size=64, seed=1)
    leat.horovod.restore(hvd, loader, state if hvd.rank() == 0 else None)

Steps are the same number on every rank, so that no allreduce waits for a rank that has finished.
Elastic training: keep state_dict() in the state that is committed, open the loader again after a
reset with the new world (global_batch stays) and restore it: what was consumed does not come again.
"""
from __future__ import annotations

from typing import Any, Dict, Optional

from ._dataset import Dataset
from ._loader import DataLoader

__all__ = ["loader", "rank_and_world", "restore"]


def rank_and_world(hvd: Any) -> tuple:
    """hvd: horovod.torch, horovod.tensorflow or their like. ValueError before hvd.init()."""
    if not hvd.is_initialized():
        raise ValueError("Horovod is not initialised: call hvd.init() first")
    return hvd.rank(), hvd.size()


def loader(hvd: Any, ds: Dataset, batch_size: Optional[int] = None, **options: Any) -> DataLoader:
    """A leat.DataLoader for this rank. options are DataLoader's. ValueError for the tail
    "shorter", which gives ranks shares of different sizes in the last step: averages over ranks
    would be wrong."""
    rank, world = rank_and_world(hvd)
    if options.get("tail") == "shorter" and world > 1:
        raise ValueError('with several ranks the tail must be "drop" or "pad"')
    return DataLoader(ds, batch_size, rank=rank, world=world, **options)


def restore(hvd: Any, ld: DataLoader, state: Optional[Dict[str, Any]]) -> None:
    """Rank 0's state on all ranks; the others' is not looked at. None on rank 0: from the start."""
    state = hvd.broadcast_object(state, root_rank=0, name="leat.loader")
    if state is not None:
        ld.load_state_dict(state)
