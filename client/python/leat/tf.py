# SPDX-License-Identifier: Apache-2.0
"""For TensorFlow: a tf.data.Dataset over a loader.

    loader = leat.DataLoader(leat.Dataset("leat:/records"), 256, seed=1, framework="numpy")
    for epoch in range(90):
        loader.set_epoch(epoch)
        for batch in leat.tf.dataset(loader).map(decode).prefetch(2):
            ...

A field with one shape and type in ds.types is a dense tensor [n, ...]; any other field is a
tf.string tensor [n] of the samples' bytes, for tf.io.decode_jpeg, tf.io.parse_example and the like.
"__ids__" is int64 [n], "__labels__" int64 [n] (plain files). TensorFlow copies a batch, so the
loader's memory is free immediately.

TensorFlow takes batches ahead of your loop (prefetch, from_generator itself), and
loader.state_dict() counts the batches that TensorFlow took. The position of the training is
loader.state_at(epoch, steps that your loop consumed).
"""
from __future__ import annotations

import re
from typing import Any, Dict, Iterator

import numpy as np

from ._batch import Batch
from ._loader import DataLoader

__all__ = ["arrays", "dataset"]


def _dense(kind: str) -> bool:
    return re.fullmatch(r"[<>|=][biufc]\d+(\[[\d,]*\])?", kind) is not None


def _shape(kind: str) -> tuple:
    m = re.search(r"\[([\d,]*)\]", kind)
    return tuple(int(n) for n in (m[1] if m else "").split(",") if n)


def arrays(loader: DataLoader) -> Iterator[Dict[str, np.ndarray]]:
    """The arrays for the tensors: the rest of the loader's epoch, a dict of NumPy arrays per step;
    arrays of type object contain bytes."""
    for batch in loader:
        yield _arrays(batch, loader)
        del batch


def _arrays(batch: Batch, loader: DataLoader) -> Dict[str, np.ndarray]:
    out = {"__ids__": np.asarray(batch.ids, np.int64), "__labels__": np.asarray(batch.labels)}
    for field, samples in batch.items():
        if field in loader.decode or _dense(loader.dataset.types.get(field, "")):
            out[field] = np.stack([np.asarray(s) for s in samples])
        else:
            out[field] = np.empty(len(samples), object)
            out[field][:] = [b"" if s is None else np.asarray(s).tobytes() for s in samples]
    return out


def dataset(loader: DataLoader) -> Any:
    """A tf.data.Dataset of the rest of the loader's epoch; each further pass over it continues with
    the next epoch. A decode function of a field must return arrays of float32 in one shape.

    ImportError without TensorFlow; read errors end the pass as tf.errors."""
    import tensorflow as tf

    signature = {"__ids__": tf.TensorSpec([None], tf.int64),
                 "__labels__": tf.TensorSpec([None], tf.int64)}
    for field in loader.fields:
        kind = loader.dataset.types.get(field, "")
        if field in loader.decode:
            signature[field] = tf.TensorSpec(None, tf.float32)
        elif _dense(kind):
            dtype = tf.as_dtype(np.dtype(kind.partition("[")[0]).newbyteorder("="))
            signature[field] = tf.TensorSpec((None,) + _shape(kind), dtype)
        else:
            signature[field] = tf.TensorSpec([None], tf.string)
    return tf.data.Dataset.from_generator(lambda: arrays(loader), output_signature=signature)
