#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pictures.py ICONS BACKGROUNDS OUT SHARDS: sorts pictures into folders, one for each future shard.

Each picture becomes a sample of two files with the same key, as WebDataset requires: KEY.img, a
hard link or copy of the picture, and KEY.cls, the number of its class (the name of its folder). OUT
gets icons-NNN and large-NNN folders, and originals.tsv: key, class, SHA-256, path of the original.
"""
import hashlib
import os
import shutil
import sys

LARGE_PER_SHARD = 8


def pictures(folder, endings):
    """Regular files only: icon themes are full of links from one name to another."""
    found = []
    for here, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(here, name)
            if name.endswith(endings) and os.path.isfile(path) and not os.path.islink(path):
                found.append(path)
    return sorted(found)


def put(source, target):
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def main():
    icons, backgrounds, out, n_shards = sys.argv[1:5]
    small = pictures(icons, (".png",))
    large = pictures(backgrounds, (".webp", ".jpg", ".png", ".svg"))
    n_shards = int(n_shards)
    shards = [("icons-%03d" % i, small[i::n_shards]) for i in range(n_shards)]
    shards += [("large-%03d" % (i // LARGE_PER_SHARD), large[i:i + LARGE_PER_SHARD])
               for i in range(0, len(large), LARGE_PER_SHARD)]
    classes = {name: i for i, name in enumerate(sorted(
        {os.path.basename(os.path.dirname(p)) for p in small + large}))}
    os.makedirs(out)
    size, n = 0, 0
    with open(os.path.join(out, "originals.tsv"), "w") as originals:
        for name, paths in shards:
            folder = os.path.join(out, name)
            os.mkdir(folder)
            for path in paths:
                key, label = "%06d" % n, classes[os.path.basename(os.path.dirname(path))]
                put(path, os.path.join(folder, key + ".img"))
                with open(os.path.join(folder, key + ".cls"), "w") as f:
                    f.write("%d" % label)
                print(key, label, sha256(path), path, sep="\t", file=originals)
                size += os.path.getsize(path)
                n += 1
    print("%d pictures of %d classes, %d MiB, in %d shards" % (
        n, len(classes), size >> 20, len(shards)))


main()
