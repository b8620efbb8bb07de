# SPDX-License-Identifier: Apache-2.0
"""For Horovod: rank and world of the loader are Horovod's, and the position is equal on all ranks.

    import horovod.torch as hvd
    hvd.init()
    loader = leat.horovod.loader(hvd, ds, batch_size=64, seed=1, framework="torch")
    leat.horovod.restore(hvd, loader, state if hvd.rank() == 0 else None)

Every rank has the same number of steps, so that no allreduce waits for a rank that has finished.
Elastic training: store state_dict() in the committed state, open the loader again after a reset
with the new world (global_batch stays) and restore it: consumed samples do not come again.
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
    """A leat.DataLoader for this rank, with options of DataLoader. ValueError for the tail
    "shorter": shares of different sizes in the last step would make averages over ranks wrong."""
    rank, world = rank_and_world(hvd)
    if options.get("tail") == "shorter" and world > 1:
        raise ValueError('with several ranks the tail must be "drop" or "pad"')
    return DataLoader(ds, batch_size, rank=rank, world=world, **options)


def restore(hvd: Any, ld: DataLoader, state: Optional[Dict[str, Any]]) -> None:
    """Sets rank 0's state on all ranks; ignores the state on other ranks. None on rank 0: from the
    start."""
    state = hvd.broadcast_object(state, root_rank=0, name="leat.loader")
    if state is not None:
        ld.load_state_dict(state)
