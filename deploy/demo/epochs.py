#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""epochs.py DATASET ORIGINALS EPOCHS [STAGE_DIR]: reads a data set shuffled, and checks everything.

Every sample must come exactly once per epoch, its picture byte for byte the original, its class the
right one; and each epoch must have an order of its own, which follows from seed and epoch.
"""
import hashlib
import sys

import leat

BATCH = 64
SEED = 2026
SOURCES = {"copy": "the staged copy", "server": "the servers"}


def originals(path):
    """key: (class, SHA-256, path)"""
    with open(path) as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    return {key: (int(label), digest, picture) for key, label, digest, picture in rows}


def check_epoch(loader, ds, epoch, wanted):
    """Returns the keys in the order in which they came."""
    loader.set_epoch(epoch)
    order = ds.order("global", SEED, epoch, BATCH)
    seen = []
    for batch in loader:
        for k, sample in enumerate(batch.ids):
            key = ds.key(int(sample))
            label, digest, picture = wanted[key]
            if hashlib.sha256(batch["img"][k]).hexdigest() != digest:
                sys.exit("epoch %d: %s is not the picture %s" % (epoch, key, picture))
            if int(bytes(batch["cls"][k])) != label:
                sys.exit("epoch %d: %s has the wrong class" % (epoch, key))
            if order[len(seen)] != sample:
                sys.exit("epoch %d: sample %d is not the one of the order" % (epoch, len(seen)))
            seen.append(key)
        if not batch.verified:
            sys.exit("epoch %d: a batch was not verified" % epoch)
    if sorted(seen) != sorted(wanted):
        sys.exit("epoch %d: %d samples, %d different ones, of %d" % (
            epoch, len(seen), len(set(seen)), len(wanted)))
    return seen


def main():
    what, path, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    wanted = originals(path)
    ds = leat.Dataset(what, stage_dir=sys.argv[4] if len(sys.argv) > 4 else None)
    before = None
    with leat.DataLoader(ds, batch_size=BATCH, seed=SEED, tail="shorter") as loader:
        for epoch in range(epochs):
            seen = check_epoch(loader, ds, epoch, wanted)
            if seen == before:
                sys.exit("epoch %d has the order of the one before" % epoch)
            before = seen
            print("epoch %d from %s: %d samples, each once and as its original; first: %s" % (
                epoch, SOURCES.get(ds.source, ds.source), len(seen), " ".join(seen[:4])))
        m = loader.metrics()
    print("waited %.2f s for batches; %.1f MiB read locally, %.1f MiB from the servers" % (
        m["wait_us"] / 1e6, m["bytes_local"] / 2**20, m["bytes_server"] / 2**20))


main()
