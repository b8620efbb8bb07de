#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""digits.py FOLDER [SAMPLES [PER_SHARD [SEED]]]: imitated handwriting, as WebDataset shards.

Each sample is KEY.img, 28 x 28 bytes of grey, and KEY.cls, its digit: a 5 x 7 glyph, enlarged,
slanted, moved, of some strength, with noise over it. Equal arguments give equal bytes.
"""
import io
import os
import sys
import tarfile

import numpy as np

GLYPHS = """
01110 00100 01110 11110 00010 11111 00110 11111 01110 01110
10001 01100 10001 00001 00110 10000 01000 00001 10001 10001
10011 00100 00001 00001 01010 11110 10000 00010 10001 10001
10101 00100 00010 01110 10010 00001 11110 00100 01110 01111
11001 00100 00100 00001 11111 00001 10001 01000 10001 00001
10001 00100 01000 00001 00010 10001 10001 01000 10001 00010
01110 01110 11111 11110 00010 01110 01110 01000 01110 01100
"""


def glyphs():
    rows = [line.split() for line in GLYPHS.strip().splitlines()]
    return np.array([[[int(c) for c in row[d]] for row in rows] for d in range(10)])


def draw(glyph, rng):
    wide, high = rng.integers(2, 4), rng.integers(2, 4)
    big = np.kron(glyph, np.ones((high, wide)))
    slant = rng.uniform(-0.25, 0.25)
    page = np.zeros((28, 28))
    top = rng.integers(1, 28 - big.shape[0])
    left = rng.integers(3, 28 - big.shape[1] - 2)
    for y, row in enumerate(big):
        x = int(np.clip(left + slant * (y - big.shape[0] / 2), 0, 28 - len(row)))
        page[top + y, x:x + len(row)] = row
    page = page * rng.uniform(120, 255) + rng.normal(0, 20, page.shape)
    return np.clip(page, 0, 255).astype(np.uint8)


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write(folder, samples=6016, per_shard=500, seed=1):
    os.makedirs(folder, exist_ok=True)
    rng, shapes = np.random.default_rng(seed), glyphs()
    for shard, first in enumerate(range(0, samples, per_shard)):
        with tarfile.open("%s/digits-%04d.tar" % (folder, shard), "w") as tar:
            for key in range(first, min(first + per_shard, samples)):
                digit = int(rng.integers(10))
                add(tar, "%06d.img" % key, draw(shapes[digit], rng).tobytes())
                add(tar, "%06d.cls" % key, b"%d" % digit)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    write(sys.argv[1], *(int(n) for n in sys.argv[2:]))
