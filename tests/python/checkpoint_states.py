# SPDX-License-Identifier: Apache-2.0
"""Random states for checkpoints, and whether two are equal: types, shapes, bytes, gradients."""
import collections
import math
import struct

import numpy as np

try:
    import torch
except ImportError:
    torch = None

NUMPY = ["?", "<i1", "<u1", "<i2", ">i2", "<u4", ">i8", "<f2", "<f4", ">f4", "<f8", "<f16", "<c8",
         ">c16", "<c32", "<M8[ns]", ">m8[25s]", "<U3", ">U2", "S5", "V7",
         [("a", "<i2"), ("b", ">f8", (2, 3)), ("c", [("d", "S3"), ("ä", "<M8[D]")])],
         {"names": ["x", "y"], "formats": ["<i4", "<u2"], "offsets": [4, 6], "itemsize": 24},
         {"names": ["x"], "formats": ["<f4"], "titles": ["the x"]}]


def torch_dtypes():
    """All types of this torch's tensors, without quantization."""
    kinds = {v for v in vars(torch).values() if isinstance(v, torch.dtype)}
    return sorted((k for k in kinds if not str(k).startswith(("torch.q",))), key=str)


class States:
    """One per random.Random: each state() differs."""

    def __init__(self, dice):
        self.dice = dice
        self.pool = []  # arrays with which later values may share memory

    def state(self):
        self.pool = []
        return self.node(self.dice.choice((0, 1, 1, 2, 3)))

    def node(self, depth):
        if depth == 0:
            return self.leaf()
        n = self.dice.choice((0, 1, 2, 3, 6))
        kind = self.dice.choice(("dict", "dict", "dict", "ordered", "list", "tuple"))
        if kind in ("list", "tuple"):
            return {"list": list, "tuple": tuple}[kind](self.node(depth - 1) for _ in range(n))
        result = collections.OrderedDict() if kind == "ordered" else {}
        for _ in range(n):
            result[self.key()] = self.node(self.dice.randrange(depth))
        if kind == "ordered" and self.dice.random() < 0.3:
            result._metadata = collections.OrderedDict({"": {"version": 2}})
        return result

    def key(self):
        d = self.dice
        return d.choice((lambda: "k%d" % d.randrange(1000), lambda: d.randrange(-3, 1000),
                         lambda: "a/b", lambda: "", lambda: None, lambda: d.random(),
                         lambda: (d.randrange(3), ("x", None)), lambda: d.randbytes(3),
                         lambda: "\ud83d\ude00", lambda: "😀", lambda: 1 << 70))()

    def leaf(self):
        d = self.dice
        if d.random() < 0.6:
            return self.tensor() if torch is not None and d.random() < 0.6 else self.array()
        return d.choice((
            lambda: None, lambda: d.random() < 0.5, lambda: d.randrange(-9, 9),
            lambda: d.getrandbits(d.choice((63, 64, 65, 20000))) - (1 << 64), lambda: d.random(),
            lambda: d.choice((math.inf, -math.inf, math.nan, -0.0, 5e-324)),
            lambda: complex(d.random(), math.nan), lambda: "text ä\0\n\"\\ %d" % d.randrange(9),
            lambda: "\ud800 and \ud83d\ude00", lambda: d.randbytes(d.choice((0, 1, 5000))),
            lambda: bytearray(d.randbytes(7)), lambda: {d.randrange(9), "x", (1, None)},
            lambda: frozenset([b"x", 2.5]), list, tuple, dict, set, self.number,
            lambda: torch.Size([d.randrange(9), 0]) if torch else None))()

    def shape(self):
        d = self.dice
        return d.choice(((), (0,), (1,), (3, 0, 2), (d.randrange(1, 5000),), (1, 1, 1, 1),
                         (d.randrange(5), d.randrange(5)), (2, 3, 4),
                         tuple(d.randrange(1, 4) for _ in range(d.randrange(1, 6)))))

    def number(self):
        a = self.fresh_array((1,), self.dice.choice(NUMPY[:21]))
        return a[0]

    # --- numpy

    def fresh_array(self, shape, dtype):
        dtype = np.dtype(dtype)
        n = math.prod(shape)
        if dtype.kind == "b":
            data = bytes(self.dice.randrange(2) for _ in range(n))
        elif dtype.kind == "U":
            letters = [self.dice.randrange(1, 0xd000) for _ in range(n * dtype.itemsize // 4)]
            data = struct.pack("%s%dI" % (dtype.byteorder.replace("=", "<"), len(letters)),
                               *letters)
        else:
            data = self.dice.randbytes(n * dtype.itemsize)
        return np.ndarray(shape, dtype, bytearray(data)) if data else np.zeros(shape, dtype)

    def array(self):
        d = self.dice
        mine = [a for a in self.pool if isinstance(a, np.ndarray)]
        a = d.choice(mine) if mine and d.random() < 0.4 else \
            self.fresh_array(self.shape(), d.choice(NUMPY))
        self.pool.append(a)
        how = d.randrange(7)
        if how == 0:
            a = a.T
        elif how == 1 and a.ndim:
            a = a[::-1]
        elif how == 2 and a.ndim:
            a = a[..., ::2]
        elif how == 3:
            a = np.broadcast_to(a, (3,) + a.shape)
        elif how == 4:
            a = np.asfortranarray(a)
        elif how == 5:
            a = a[...]
            a.flags.writeable = False
        self.pool.append(a)
        return a

    # --- torch

    def fresh_tensor(self, shape, dtype):
        n = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        data = self.dice.randbytes(n)
        if dtype == torch.bool:
            data = bytes(b & 1 for b in data)
        if not n:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)

    def tensor(self):
        d = self.dice
        mine = [t for t in self.pool if isinstance(t, torch.Tensor)]
        if mine and d.random() < 0.4:
            t = d.choice(mine)
        elif d.random() < 0.1:
            t = torch.from_numpy(self.fresh_array(self.shape(), "<f4"))
            self.pool.append(t.numpy())
        else:
            t = self.fresh_tensor(self.shape(), d.choice(torch_dtypes()))
        self.pool.append(t)
        t = t.detach()
        how = d.randrange(10)
        if how == 0 and t.dim() >= 2:
            t = t.transpose(0, 1)
        elif how == 1 and t.dim() and t.shape[0] > 1:
            t = t[1:]
        elif how == 2 and t.dim():
            t = t[..., ::2]
        elif how == 3:
            t = t.expand((3,) + tuple(t.shape))
        elif how == 4 and t.is_complex():
            t = t.conj()
        elif how == 5 and t.is_complex() and t.dtype != torch.complex32:
            t = d.choice((t.real, t.imag, t.conj().imag))
        elif how == 6 and (t.is_floating_point() or t.is_complex()):
            t = t.requires_grad_()
        elif how == 7 and t.is_floating_point():
            t = torch.nn.Parameter(t, requires_grad=d.random() < 0.5)
        elif how == 8 and t.dtype == torch.float32 and t.is_contiguous():
            t = t.view(torch.int32)
        self.pool.append(t)
        return t


def bytes_of(t):
    t = t.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def differ(a, b, where="state"):
    """None, or a description of the difference."""
    if type(a) is not type(b):
        return "%s: %s came back as %s" % (where, type(a), type(b))
    if isinstance(a, dict):
        if repr(list(a)) != repr(list(b)):
            return "%s: keys %r came back as %r" % (where, list(a), list(b))
        if getattr(a, "_metadata", None) != getattr(b, "_metadata", None):
            return where + ": _metadata"
        pairs = [(k, a[k], w) for k, w in zip(a, b.values())]
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return "%s: %d came back as %d" % (where, len(a), len(b))
        pairs = [(k, v, w) for k, (v, w) in enumerate(zip(a, b))]
    else:
        return differ_leaf(a, b, where)
    return next(filter(None, (differ(v, w, "%s/%s" % (where, ascii(k))) for k, v, w in pairs)),
                None)


def differ_leaf(a, b, where):
    if torch is not None and isinstance(a, torch.Tensor):
        for what in ("dtype", "shape", "requires_grad", "device"):
            if getattr(a, what) != getattr(b, what):
                return "%s: %s %s came back as %s" % (where, what, getattr(a, what),
                                                      getattr(b, what))
        return None if bytes_of(a) == bytes_of(b) else where + ": other bytes"
    if isinstance(a, (np.ndarray, np.generic)):
        if a.dtype != b.dtype or a.dtype.byteorder != b.dtype.byteorder:
            return "%s: dtype %s came back as %s" % (where, a.dtype, b.dtype)
        if a.shape != b.shape:
            return "%s: shape %s came back as %s" % (where, a.shape, b.shape)
        return None if a.tobytes() == b.tobytes() else where + ": other bytes"
    if isinstance(a, float) and math.isnan(a) or isinstance(a, complex):
        return None if repr(a) == repr(b) else "%s: %r came back as %r" % (where, a, b)
    same = a == b and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))
    return None if same else "%s: %.100r came back as %.100r" % (where, a, b)
