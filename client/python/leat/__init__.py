"""Leat: shuffled batches of training samples, each exactly once per epoch, without a copy.

    import leat

    ds = leat.Dataset("/nvme/.leat/<id>/data")           # a staged copy, or any directory
    ds = leat.Dataset("leat:/datasets/train")            # straight from the servers (LEAT_CONF)
    ds = leat.Dataset("leat:imagenet@v1", stage_dir="/nvme")   # the staged copy, else the servers

    ds = leat.Mixture([(web, 0.7), (books, 0.3)])              # several, by weight

    loader = leat.DataLoader(ds, batch_size=256, seed=1)
    for epoch in range(90):
        loader.set_epoch(epoch)
        for batch in loader:              # a dict: field -> list of uint8 arrays
            images, labels = batch["jpg"], batch["cls"]

A batch's arrays lie in the loader's own memory, which is used again when the last of them is
gone: copy what is to be kept. The order is a pure function of seed, epoch and data set, the same
in C and for every number of threads; state_dict() says where training stands and
load_state_dict() goes on from there, exactly.

leat.torch (also leat.IterableDataset, leat.Sampler), leat.tf, leat.dali, leat.webdataset and
leat.horovod fit it to other loaders; leat.checkpoint saves and loads state dicts. None of them
needs its framework before it is used.
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
    # Only now: what they stand for may not be installed.
    import importlib
    if name in _MODULES:
        return importlib.import_module("leat." + name)
    if name in ("IterableDataset", "Sampler"):
        return getattr(importlib.import_module("leat.torch"), name)
    raise AttributeError("module 'leat' has no attribute %r" % name)
