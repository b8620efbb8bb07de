"""For NVIDIA DALI: a source for fn.external_source.

    loader = leat.DataLoader(ds, 256, seed=1, framework="numpy", fields=["jpg", "cls"])
    source = leat.dali.source(loader)

    @pipeline_def(batch_size=256, num_threads=4, device_id=0)
    def train():
        jpegs, labels = fn.external_source(source=source, num_outputs=2, batch=True)
        return fn.decoders.image(jpegs, device="mixed"), labels

DALI copies what it is given before it asks for the next batch (no_copy=False, the default), so
the loader's memory is free then. At the end of an epoch the source raises StopIteration, and the
pipeline's reset() goes on with the next one. The tail "drop" or "pad" keeps batches of one size;
with "shorter" the pipeline must allow smaller ones.

DALI takes batches ahead of your loop (prefetch_queue_depth): loader.state_dict() says what it took.
Where training stands is loader.state_at(epoch, steps that your loop consumed).
"""
from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import numpy as np

from ._loader import DataLoader

__all__ = ["Source", "source"]


class Source:
    """Called without arguments (or with a batch number, which is not needed): a tuple with, for
    each field, a list of NumPy arrays [bytes] uint8, or of what ds.types says. Missing fields are
    empty arrays. Also an iterator, for external_source's own handling of epochs."""

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
    """fields: which, and in which order; the loader's where None. ValueError for unknown ones."""
    return Source(loader, fields)
