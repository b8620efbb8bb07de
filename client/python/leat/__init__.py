# SPDX-License-Identifier: Apache-2.0
"""Leat: shuffled batches of training samples, each exactly once per epoch, without a copy.

    import leat

    ds = leat.Dataset("/nvme/.leat/<id>/data")           # a staged copy, or any directory
    ds = leat.Dataset("leat:/datasets/train")            # straight from the servers (LEAT_CONF)
    ds = leat.Dataset("leat:imagenet@v1", stage_dir="/nvme")   # the staged copy, else the servers

    ds = leat.Mixture([(web, 0.7), (books, 0.3)])              # several, by weight

    loader = leat.DataLoader(ds, batch_size=256, seed=1)
    for epoch in range(90):
        loader.set_epoch(epoch)
        for batch in loader:              # a dict: field -> list of uint8 arrays of NumPy
            images, labels = batch["jpg"], batch["cls"]

With framework="torch" they are tensors. A batch's arrays are in the memory of the loader, which
reuses it when the last of them is deleted: copy what you keep. The order is a pure function of
seed, epoch and data set, equal in C and Python and for any number of threads. state_dict() returns
the position of the training, and load_state_dict() continues exactly from there.

leat.torch (also leat.IterableDataset, leat.Sampler), leat.tf, leat.dali, leat.webdataset and
leat.horovod connect it to other loaders; leat.checkpoint saves and loads state dicts. Each of them
imports its framework only when it is used.
"""
from ._batch import Batch
from ._dataset import Dataset, Mixture, Order
from ._decode import Decoder
from ._device import DeviceArray
from ._errors import LeatError
from ._files import FileSystem, connect, stage_in
from ._lib import lib as _c
from ._loader import DataLoader
from ._ranks import rank_and_world

__all__ = ["Batch", "DataLoader", "Dataset", "Decoder", "DeviceArray", "FileSystem",
           "IterableDataset", "LeatError", "Mixture", "Order", "Sampler", "connect",
           "rank_and_world", "stage_in"]
__version__ = _c.leat_version().decode()

_MODULES = ("checkpoint", "dali", "horovod", "tf", "torch", "webdataset")


def __getattr__(name: str):
    # Imported on demand: the framework may not be installed.
    import importlib
    if name in _MODULES:
        return importlib.import_module("leat." + name)
    if name in ("IterableDataset", "Sampler"):
        return getattr(importlib.import_module("leat.torch"), name)
    raise AttributeError("module 'leat' has no attribute %r" % name)
