#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mnist.py under Horovod:

    horovodrun -np 2 python3 mnist_horovod.py --data leat:/digits --test leat:/digits-test
"""
import horovod.torch as hvd
import torch

import leat.horovod
import mnist


def main():
    args = mnist.arguments()
    torch.set_num_threads(args.threads)
    hvd.init()
    model = mnist.make_model(args.seed)
    ds = leat.Dataset(args.data, stage_dir=args.stage_dir)
    loader = leat.horovod.loader(hvd, ds, global_batch=args.batch, seed=args.seed,
                                 framework="torch", decode={"cls": mnist.digit})
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    # Rank 0 reads the checkpoint and broadcasts it.
    found = hvd.rank() == 0 and args.checkpoint and mnist.resume(args, model, optimizer, loader)
    leat.horovod.restore(hvd, loader, loader.state_dict() if found else None)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def say(text):
        if hvd.rank() == 0:
            print(text, flush=True)

    say("%d samples, rank %d of %d, %d steps an epoch" % (
        len(ds), loader.rank, loader.world, len(loader)))
    done = mnist.train(args, model, optimizer, loader, model, say)
    say("done" if done else "stopped early")
    hvd.shutdown()


if __name__ == "__main__":
    main()
