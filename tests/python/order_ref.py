# SPDX-License-Identifier: Apache-2.0
"""The order of samples, written from client/loader/ORDER.md alone: the second implementation."""
import bisect
import hashlib
import math

M64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & M64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def fold(h, w):
    return mix64(((h ^ w) + GOLDEN) & M64)


def make_key(seed, epoch, dataset, version=1):
    return fold(fold(fold(fold(0, version), seed), epoch), dataset)


def dataset_word(files):
    """files: (path as bytes, size), sorted by path."""
    h = hashlib.blake2b(b"leat order 1\n", digest_size=32)
    for path, size in files:
        h.update(path + b"\0" + str(size).encode() + b"\n")
    return int.from_bytes(h.digest()[:8], "little")


def perm(key, m, x):
    if m <= 1:
        return x
    bits = max(8, (m - 1).bit_length())
    lo = (bits + 1) // 2
    lo_mask, hi_mask = (1 << lo) - 1, (1 << bits - lo) - 1
    rk = [fold(key, i + 1) for i in range(8)]
    while True:
        left, right = x >> lo, x & lo_mask
        for i in range(8):
            if i % 2 == 0:
                left ^= mix64(rk[i] ^ right) & hi_mask
            else:
                right ^= mix64(rk[i] ^ left) & lo_mask
        x = left << lo | right
        if x < m:
            return x


class Order:
    def __init__(self, mode, window, seed, epoch, dataset, counts):
        self.mode, self.window = mode, window
        self.key = make_key(seed, epoch, dataset)
        self.n = sum(counts)
        first = [0]
        for c in counts:
            first.append(first[-1] + c)
        shard_key = fold(self.key, 0x5348415244)
        n_shards = len(counts)
        if mode in ("window", "file"):
            self.shards = [perm(shard_key, n_shards, j) for j in range(n_shards)]
            self.first = [first[s] for s in self.shards]
            self.start = [0]
            for s in self.shards:
                self.start.append(self.start[-1] + counts[s])
            self.window = min(window or n_shards, n_shards)

    def __call__(self, p):
        assert 0 <= p < self.n
        if self.mode == "sequential":
            return p
        if self.mode == "global":
            return perm(self.key, self.n, p)
        if self.mode == "window":
            w = (bisect.bisect_right(self.start, p) - 1) // self.window
            base = self.start[w * self.window]
            m = self.start[min((w + 1) * self.window, len(self.shards))] - base
            p = base + perm(fold(fold(self.key, 0x57494E444F57), w), m, p - base)
        j = bisect.bisect_right(self.start, p) - 1
        return self.first[j] + p - self.start[j]


class Mixture:
    """parts: (order word, samples of each file, weight)."""

    def __init__(self, mode, window, seed, epoch, parts, length=0):
        common = math.gcd(*(w for _, _, w in parts))
        self.weights = [w // common for _, _, w in parts]
        self.block = sum(self.weights)
        self.sizes = [sum(counts) for _, counts, _ in parts]
        self.word = fold(0x4D4958, len(parts))
        for (word, _, _), w in zip(parts, self.weights):
            self.word = fold(fold(self.word, word), w)
        self.mix = fold(fold(fold(fold(0, 1), seed), 0x4D4958), self.word)
        self.blocks = max(1, (length or sum(self.sizes)) // self.block)
        self.n = self.blocks * self.block
        self.mode, self.window, self.epoch, self.parts = mode, window, epoch, parts
        self.made = {}

    def __call__(self, p):
        assert 0 <= p < self.n
        g = (self.epoch * self.blocks + p // self.block) & M64
        q = perm(fold(fold(self.mix, 0x424C4F434B), g), self.block, p % self.block)
        d = 0
        while q >= self.weights[d]:
            q -= self.weights[d]
            d += 1
        draw = (g * self.weights[d] + q) & M64
        lap = draw // self.sizes[d]
        if (d, lap) not in self.made:
            word, counts, _ = self.parts[d]
            self.made[d, lap] = Order(self.mode, self.window, fold(self.mix, d), lap, word, counts)
        return sum(self.sizes[:d]) + self.made[d, lap](draw % self.sizes[d])


def steps(n, batch, tail):
    return n // batch if tail == "drop" else -(-n // batch)


def share(n, batch, world, tail, step, rank):
    """(first position, count) of a rank in a step."""
    m = min(batch, n - step * batch) if tail == "shorter" else batch
    a, b = rank * m // world, (rank + 1) * m // world
    return step * batch + a, b - a
