# SPDX-License-Identifier: Apache-2.0
"""A stand-in for horovod.torch in tests, over torch.distributed: the few functions that the example
and leat.horovod call, as Horovod documents them."""
import os

import torch
import torch.distributed as dist


def init():
    os.environ["RANK"] = os.environ["HOROVOD_RANK"]
    os.environ["WORLD_SIZE"] = os.environ["HOROVOD_SIZE"]
    dist.init_process_group("gloo")


def is_initialized():
    return dist.is_initialized()


def shutdown():
    dist.barrier()
    dist.destroy_process_group()


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def broadcast_object(value, root_rank=0, name=None):
    assert name
    box = [value if rank() == root_rank else None]
    dist.broadcast_object_list(box, root_rank)
    return box[0]


def broadcast_parameters(parameters, root_rank):
    for _, value in sorted(parameters.items()):
        dist.broadcast(value, root_rank)


def broadcast_optimizer_state(optimizer, root_rank):
    state = broadcast_object(optimizer.state_dict(), root_rank, "optimizer")
    if rank() != root_rank:
        optimizer.load_state_dict(state)


class DistributedOptimizer:
    """step() takes the mean of the gradients over the ranks."""

    def __init__(self, optimizer, named_parameters):
        self._optimizer, self._parameters = optimizer, [p for _, p in named_parameters]

    def __getattr__(self, name):
        return getattr(self._optimizer, name)

    def step(self):
        for p in self._parameters:
            dist.all_reduce(p.grad)
            p.grad /= size()
        with torch.no_grad():
            self._optimizer.step()
