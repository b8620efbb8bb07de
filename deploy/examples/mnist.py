#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional net on digits (digits.py) that are stored in Leat.

    mnist.py --data leat:/digits --test leat:/digits-test
    torchrun --nproc_per_node 2 mnist.py --data ...   # two processes; of Debian 12: README.md

With --checkpoint PATH it saves there after each epoch (and every --save-every steps), and continues
from there when it is started again: with the next batch, also with another number of processes. The
model, its training and its test are functions that mnist_horovod.py uses too.
"""
import argparse
import errno
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import leat
from leat import checkpoint


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="directory, leat:/path or leat:name@version")
    parser.add_argument("--test", help="a data set to test on at the end of each epoch")
    parser.add_argument("--stage-dir", help="where staged copies are looked for first")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="of all processes together")
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", help="file, also leat:/path")
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS")
    parser.add_argument("--stop-after", type=int, default=0, metavar="STEPS",
                        help="end early, as if the job's time were over")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2),
                         nn.ReLU(), nn.Flatten(), nn.Linear(16 * 5 * 5, 32), nn.ReLU(),
                         nn.Linear(32, 10))


def digit(text):
    return int(bytes(text.numpy()))


def open_loader(args, what=None, **more):
    ds = leat.Dataset(what or args.data, stage_dir=args.stage_dir)
    return leat.DataLoader(ds, seed=args.seed, framework="torch", decode={"cls": digit}, **more)


def tensors(batch):
    images = torch.stack(batch["img"]).view(-1, 1, 28, 28).float() / 255
    return images, torch.tensor(batch["cls"])


def accuracy(args, model):
    right = total = 0
    model.eval()
    with torch.no_grad(), open_loader(args, args.test, batch_size=100, tail="shorter", rank=0,
                                      world=1) as loader:
        for batch in loader:
            images, labels = tensors(batch)
            right += int((model(images).argmax(1) == labels).sum())
            total += len(labels)
    model.train()
    return right / total


def resume(args, model, optimizer, loader):
    """Returns whether there was a checkpoint to continue from."""
    try:
        state = checkpoint.load(args.checkpoint, loader=loader)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return False
        raise
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return True


def train(args, model, optimizer, loader, plain, say):
    """plain: the model without the wrapper that distributes it. Returns whether all epochs are
    done."""
    steps = 0
    main = loader.rank == 0

    def save():
        if args.checkpoint and main:
            checkpoint.save(args.checkpoint, {"model": plain.state_dict(),
                                              "optimizer": optimizer.state_dict()}, loader=loader)

    for epoch in range(loader.state_dict()["epoch"], args.epochs):
        total, n, began = 0.0, 0, time.monotonic()
        for batch in loader:  # continues with the next epoch each time, or where it was restored
            images, labels = tensors(batch)
            del batch
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total, n, steps = total + float(loss), n + 1, steps + 1
            if args.save_every and steps % args.save_every == 0:
                save()
            if steps == args.stop_after:
                return False
        save()
        score = ", accuracy %.3f" % accuracy(args, plain) if args.test and main else ""
        say("epoch %d: %d steps, loss %.4f%s, %.1f s" % (
            epoch, n, total / max(n, 1), score, time.monotonic() - began))
    return True


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    model = plain = make_model(args.seed)
    loader = open_loader(args, global_batch=args.batch)  # rank and world of torch.distributed
    optimizer = torch.optim.Adam(plain.parameters(), lr=args.lr)

    def say(text):
        if loader.rank == 0:
            print(text, flush=True)

    if args.checkpoint and resume(args, plain, optimizer, loader):
        say("goes on from %s" % loader.state_dict())
    if dist.is_initialized():
        model = nn.parallel.DistributedDataParallel(plain)
    say("%d samples (%s), rank %d of %d, %d steps an epoch" % (
        len(loader.dataset), loader.dataset.source, loader.rank, loader.world, len(loader)))
    done = train(args, model, optimizer, loader, plain, say)
    say(loader.explain())
    say("done" if done else "stopped early")
    if dist.is_initialized():
        dist.barrier()  # rank 0 may still be saving or testing
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
