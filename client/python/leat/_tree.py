# SPDX-License-Identifier: Apache-2.0
"""Nested state as JSON and a list of tensors, and back. Only these types exist in it, so decoding
runs no code: dict (keys: str, bytes, numbers, bool, None, tuples), OrderedDict (with the _metadata
of torch modules), list, tuple, torch.Size, set, frozenset, str, bytes, bytearray, int, float,
complex, bool, None, numbers of numpy, tensors and arrays. An instance of a subclass (an IntEnum, a
namedtuple, a defaultdict) is decoded as its base class, which is equal to it.

A node is null, a bool, a number, a text, or a dict of one letter: "l" list, "u" tuple, "h"
torch.Size, "e" set, "z" frozenset, "d" dict and "o" OrderedDict as lists of pairs ("m": its
_metadata), "i" a large int in hexadecimal, "f" a float that JSON lacks, "c" complex, "b" bytes, "a"
bytearray, "s" text with surrogates, "g" a number of numpy, "t" a tensor or array."""
from __future__ import annotations

import base64
import collections
import math
import re
import sys
from typing import Any, Callable, Dict, List

from . import _tensors

DEPTH_MAX = 100
_HEX = re.compile(r"-?[0-9a-f]+")


class Tree:
    """Encodes a state. `tensors` are the (name, tensor) pairs found, each once, however often it
    occurs."""

    def __init__(self) -> None:
        self.tensors: List[tuple] = []
        self._known: dict = {}
        self._names: set = set()

    def encode(self, value: Any, name: str = "", depth: int = 0) -> Any:
        if depth > DEPTH_MAX:
            raise ValueError("%s is nested more than %d deep" % (name[:100], DEPTH_MAX))
        np, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if np is not None and isinstance(value, np.generic):  # some are floats and texts too
            return {"g": [_tensors.numpy_dtype(name, value.dtype), _text64(value.tobytes())]}
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (str, int, float, complex, bytes, bytearray)):
            return _scalar(value)
        if isinstance(value, collections.abc.Mapping):
            return self._mapping(value, name, depth)
        for kind, letter in ((getattr(torch, "Size", ()), "h"), (tuple, "u"), (list, "l")):
            if isinstance(value, kind):
                return {letter: [self.encode(v, _below(name, k), depth + 1)
                                 for k, v in enumerate(value)]}
        if isinstance(value, (set, frozenset)):
            for v in value:
                _check_key(v, name, "member")
            return {"e" if isinstance(value, set) else "z": [
                self.encode(v, name, depth + 1) for v in value]}
        return self._tensor(value, name)

    def _mapping(self, value, name: str, depth: int) -> Any:
        for k in value:
            _check_key(k, name, "key")
        items = [[self.encode(k, name, depth + 1), self.encode(v, _below(name, k), depth + 1)]
                 for k, v in value.items()]
        if not isinstance(value, collections.OrderedDict):
            return {"d": items}
        more = getattr(value, "_metadata", None)
        if more is None:
            return {"o": items}
        return {"o": items, "m": self.encode(dict(more), name + "/_metadata", depth + 1)}

    def _tensor(self, value: Any, name: str) -> Any:
        key = _tensors.key_of(value)
        if key is None:
            raise TypeError("%s is a %s, which a checkpoint cannot hold: only tensors, arrays, "
                            "numbers, text, bytes, lists, tuples, sets and dicts of them" % (
                                name or "the state", type(value).__qualname__))
        if key not in self._known:
            self._known[key] = len(self.tensors)
            # while it is referenced, no other value has its address
            self.tensors.append((self._unique(name), value))
        return {"t": self._known[key]}

    def _unique(self, name: str) -> str:
        """{1: …} and {"1": …} need different names for their tensors."""
        name = name.encode("utf-8", "backslashreplace").decode()
        unique, k = name, 1
        while unique in self._names:
            k += 1
            unique = "%s~%d" % (name, k)
        self._names.add(unique)
        return unique


def _below(name: str, key: Any) -> str:
    return "%s/%s" % (name, key) if name else str(key)


def _text64(data: Any) -> str:
    return base64.b64encode(data).decode()


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        value = str.__str__(value)
        try:
            value.encode()
            return value
        except UnicodeEncodeError:  # JSON would combine two surrogates into one character
            return {"s": _text64(value.encode("utf-8", "surrogatepass"))}
    if isinstance(value, int):
        value = int(value)
        return value if -1 << 63 <= value < 1 << 63 else {"i": "%x" % value}
    if isinstance(value, float):
        value = float(value)
        return value if math.isfinite(value) else {"f": repr(value)}
    if isinstance(value, complex):
        return {"c": [_scalar(value.real), _scalar(value.imag)]}
    return {"a" if isinstance(value, bytearray) else "b": _text64(value)}


def _check_key(key: Any, name: str, what: str) -> None:
    """Refuses keys that contain a tensor or an element of an array: decoding would make an
    unhashable object."""
    if isinstance(key, tuple):
        for k in key:
            _check_key(k, name, what)
    elif key is not None and not isinstance(key, (str, bytes, int, float)):
        raise TypeError("a %s of %s is a %s, and %ss can only be text, bytes, numbers, None and "
                        "tuples of them" % (what, name or "the state", type(key).__qualname__,
                                            what))


def decode(node: Any, tensor: Callable[[int], Any], depth: int = 0) -> Any:
    """tensor(i) makes tensor i. ValueError for nodes that encode does not make."""
    if node is None or isinstance(node, (bool, str, int, float)):
        return node
    if depth > DEPTH_MAX or not isinstance(node, dict) or not 1 <= len(node) <= 2:
        raise ValueError("the tree is damaged")
    kind, value = next(iter(node.items()))
    if kind in ("d", "o") and isinstance(value, list):
        return _decode_mapping(node, kind, value, tensor, depth)
    if kind in _LISTS and isinstance(value, list):
        items = [decode(v, tensor, depth + 1) for v in value]
        return _LISTS[kind](map(_key, items) if kind in "ez" else items)
    if kind in _TEXTS and isinstance(value, str):
        return _TEXTS[kind](value)
    if kind == "g" and isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
        return _number(value[0], base64.b64decode(value[1], validate=True))
    if kind == "t" and isinstance(value, int) and not isinstance(value, bool):
        return tensor(value)
    raise ValueError("the tree is damaged")


def _decode_mapping(node: dict, kind: str, items: list, tensor, depth: int):
    result = collections.OrderedDict() if kind == "o" else {}
    for pair in items:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError("the tree is damaged")
        result[_key(decode(pair[0], tensor, depth + 1))] = decode(pair[1], tensor, depth + 1)
    if "m" in node:
        meta = decode(node["m"], tensor, depth + 1)
        if not isinstance(meta, dict) or kind != "o":
            raise ValueError("the tree is damaged")
        result._metadata = collections.OrderedDict(meta)
    return result


def _key(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        raise ValueError("the tree is damaged") from None
    return key


def _int(text: str) -> int:
    if not _HEX.fullmatch(text):
        raise ValueError("the tree is damaged")
    return int(text, 16)


def _float(text: str) -> float:
    if text not in ("inf", "-inf", "nan"):
        raise ValueError("the tree is damaged")
    return float(text)


def _complex(parts: list) -> complex:
    if len(parts) != 2 or not all(type(p) in (int, float) for p in parts):
        raise ValueError("the tree is damaged")
    return complex(*parts)


def _size(items: list) -> Any:
    if not all(type(n) is int and abs(n) < 1 << 63 for n in items):
        raise ValueError("the tree is damaged")
    try:
        import torch
    except ImportError:
        return tuple(items)
    return torch.Size(items)


def _number(told: Any, data: bytes) -> Any:
    import numpy as np
    dtype = _tensors.numpy_dtype_of(told)
    if dtype.itemsize != len(data):
        raise ValueError("the tree is damaged")
    # An array would treat zeros at the end of a text as padding.
    if dtype.kind == "S":
        return np.bytes_(data)
    if dtype.kind == "U":
        order = "be" if dtype.byteorder == ">" else "le"
        return np.str_(data.decode("utf-32-" + order, "surrogatepass"))
    return np.frombuffer(bytearray(data), dtype)[0] if data else np.zeros((), dtype)[()]


_LISTS: Dict[str, Callable[[Any], Any]] = {"l": list, "u": tuple, "h": _size, "e": set,
                                           "z": frozenset, "c": _complex}
_TEXTS: Dict[str, Callable[[str], Any]] = {
    "i": _int, "f": _float, "b": lambda text: base64.b64decode(text, validate=True),
    "a": lambda text: bytearray(base64.b64decode(text, validate=True)),
    "s": lambda text: base64.b64decode(text, validate=True).decode("utf-8", "surrogatepass")}
