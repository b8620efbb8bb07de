#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The frozen vectors, checked by the independent implementation."""
import os
import unittest

import order_ref

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("LEAT_SRC") or os.path.dirname(os.path.dirname(HERE))
VECTORS = SRC + "/tests/unit/client/loader/order_vectors.txt"
MIXTURES = SRC + "/tests/unit/client/loader/mixture_vectors.txt"


def fnv(values):
    h = 0xCBF29CE484222325
    for v in values:
        for byte in v.to_bytes(8, "little"):
            h = (h ^ byte) * 0x100000001B3 & order_ref.M64
    return h


class Vectors(unittest.TestCase):
    def test_all_vectors(self):
        seen = 0
        with open(VECTORS) as f:
            for line in f:
                if line.startswith("#") or not line.strip():
                    continue
                mode, window, seed, epoch, ds, rule, stride, digest, head = line.split()
                a, b, c, s = map(int, rule.split(":"))
                counts = [a + i * b % c for i in range(s)]
                order = order_ref.Order(mode, int(window), int(seed), int(epoch), int(ds, 16),
                                        counts)
                values = [order(p) for p in range(0, order.n, int(stride))]
                self.assertEqual([int(x) for x in head.split(",")], values[:8], line)
                self.assertEqual(int(digest, 16), fnv(values), line)
                seen += 1
        self.assertGreaterEqual(seen, 20)

    def test_all_vectors_of_mixtures(self):
        seen = 0
        with open(MIXTURES) as f:
            for line in f:
                if line.startswith("#") or not line.strip():
                    continue
                mode, window, seed, epoch, length, parts, stride, digest, head = line.split()
                given = []
                for part in parts.split("+"):
                    word, rule, weight = part.split("/")
                    a, b, c, s = map(int, rule.split(":"))
                    given.append((int(word, 16), [a + i * b % c for i in range(s)], int(weight)))
                mix = order_ref.Mixture(mode, int(window), int(seed), int(epoch), given,
                                        int(length))
                values = [mix(p) for p in range(0, mix.n, int(stride))]
                self.assertEqual([int(x) for x in head.split(",")], values[:8], line)
                self.assertEqual(int(digest, 16), fnv(values), line)
                seen += 1
        self.assertGreaterEqual(seen, 15)

    def test_shares_cover_the_epoch(self):
        for n in (0, 1, 7, 64, 1000, 1023):
            for batch, world in ((1, 1), (8, 4), (64, 8), (100, 5)):
                for tail in ("drop", "pad", "shorter"):
                    got = []
                    for step in range(order_ref.steps(n, batch, tail)):
                        for rank in range(world):
                            a, k = order_ref.share(n, batch, world, tail, step, rank)
                            got += range(a, a + k)
                    self.assertEqual(got, list(range(len(got))))
                    whole = {"drop": n // batch * batch, "pad": -(-n // batch) * batch,
                             "shorter": n}[tail]
                    self.assertEqual(len(got), whole)


if __name__ == "__main__":
    unittest.main()
