# SPDX-License-Identifier: Apache-2.0
"""For NVIDIA DALI: a source for fn.external_source.

    loader = leat.DataLoader(ds, 256, seed=1, framework="numpy", fields=["jpg", "cls"])
    source = leat.dali.source(loader)

    @pipeline_def(batch_size=256, num_threads=4, device_id=0)
    def train():
        jpegs, labels = fn.external_source(source=source, num_outputs=2, batch=True)
        return fn.decoders.image(jpegs, device="mixed"), labels

DALI copies a batch before it requests the next one (no_copy=False, the default), so the loader's
memory is free then. At the end of an epoch the source raises StopIteration, and the pipeline's
reset() continues with the next epoch. The tail "drop" or "pad" keeps batches of one size; with
"shorter" the pipeline must allow smaller ones.

DALI takes batches ahead of your loop (prefetch_queue_depth), and loader.state_dict() counts the
batches that DALI took. The position of the training is loader.state_at(epoch, steps that your loop
consumed).
"""
from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import numpy as np

from ._loader import DataLoader

__all__ = ["Source", "source"]


class Source:
    """Called without arguments (or with a batch number, which is ignored). Returns a tuple with,
    for each field, a list of NumPy arrays, of type uint8 [bytes] or that of ds.types. Missing
    fields are empty arrays. Also an iterator, for external_source's own handling of epochs."""

    def __init__(self, loader: DataLoader, fields: Optional[Sequence[str]] = None) -> None:
        self.loader = loader
        self.fields = list(loader.fields if fields is None else fields)
        unknown = [f for f in self.fields if f not in loader.fields]
        if unknown:
            raise ValueError("the loader does not read %s" % ", ".join(unknown))

    def __call__(self, _: Optional[int] = None) -> Tuple[List[np.ndarray], ...]:
        batch = self.loader.next()
        if batch is None:
            raise StopIteration
        empty = np.zeros(0, np.uint8)
        return tuple([empty if s is None else np.asarray(s) for s in batch[f]] for f in self.fields)

    def __iter__(self) -> Source:
        return self

    __next__ = __call__

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.loader)


def source(loader: DataLoader, fields: Optional[Sequence[str]] = None) -> Source:
    """fields: names in the order of the outputs; None: those of the loader. ValueError for unknown
    ones."""
    return Source(loader, fields)
