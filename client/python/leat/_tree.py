"""Nested state as JSON and a list of tensors, and back. Nothing but these types exists in it, so
reading one runs no code: dict (keys: str, bytes, int, float, bool, None, tuples), OrderedDict
(with the _metadata of torch modules), list, tuple, str, bytes, int, float, bool, None, tensors and
numpy arrays."""
from __future__ import annotations

import base64
import collections
import math
import sys
from typing import Any, Callable, List

DEPTH_MAX = 100


class Tree:
    """Encodes: `tensors` are the (name, tensor) pairs found, each once, however often it comes."""

    def __init__(self) -> None:
        self.tensors: List[tuple] = []
        self._known: dict = {}
        self._names: set = set()

    def encode(self, value: Any, name: str = "", depth: int = 0) -> Any:
        if depth > DEPTH_MAX:
            raise ValueError("%s is nested more than %d deep" % (name[:100], DEPTH_MAX))
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else {"f": repr(float(value))}
        if isinstance(value, (bytes, bytearray)):
            return {"b": base64.b64encode(value).decode()}
        if isinstance(value, collections.abc.Mapping):
            return self._mapping(value, name, depth)
        if isinstance(value, (list, tuple)):
            items = [self.encode(v, "%s/%d" % (name, k) if name else str(k), depth + 1)
                     for k, v in enumerate(value)]
            return {"u": items} if isinstance(value, tuple) else {"l": items}
        return self._tensor(value, name)

    def _mapping(self, value, name: str, depth: int) -> Any:
        for k in value:
            _check_key(k, name)
        items = [[self.encode(k, name, depth + 1),
                  self.encode(v, "%s/%s" % (name, k) if name else str(k), depth + 1)]
                 for k, v in value.items()]
        if not isinstance(value, collections.OrderedDict):
            return {"d": items}
        more = getattr(value, "_metadata", None)
        if more is None:
            return {"o": items}
        return {"o": items, "m": self.encode(dict(more), name + "/_metadata", depth + 1)}

    def _tensor(self, value: Any, name: str) -> Any:
        np, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            if value.layout != torch.strided or value.is_quantized:
                raise TypeError("%s is sparse or quantized, which a checkpoint cannot hold" % name)
            # Conjugates and negatives are views of the same bytes.
            kind, key = "t", (value.data_ptr(), value.dtype, tuple(value.shape), value.stride(),
                              str(value.device), value.is_conj(),
                              value.is_neg()) if value.numel() else (id(value),)
        elif np is not None and isinstance(value, (np.ndarray, np.generic)):
            kind, key = "n", (id(value),)
        else:
            raise TypeError("%s is a %s, which a checkpoint cannot hold: only tensors, arrays, "
                            "numbers, text, bytes, lists, tuples and dicts of them" % (
                                name or "the state", type(value).__qualname__))
        if key not in self._known:
            if name in self._names:
                raise ValueError("two tensors are called %s" % name)
            self._names.add(name)
            self._known[key] = len(self.tensors)
            self.tensors.append((name, value))  # keeps it alive, so that its address stays its own
        return {kind: self._known[key]}


def _check_key(key: Any, name: str) -> None:
    """A tensor, or an array's element, would come back as one that is no key."""
    if isinstance(key, tuple):
        for k in key:
            _check_key(k, name)
    elif key is not None and not isinstance(key, (str, bytes, int, float)):
        raise TypeError("a key of %s is a %s, and keys can only be text, bytes, numbers, None and "
                        "tuples of them" % (name or "the state", type(key).__qualname__))


def decode(node: Any, tensor: Callable[[str, int], Any], depth: int = 0) -> Any:
    """tensor(kind, i) makes tensor i, of torch ("t") or numpy ("n"). ValueError for anything that
    encode does not make."""
    if node is None or isinstance(node, (bool, str, int, float)):
        return node
    if depth > DEPTH_MAX or not isinstance(node, dict) or not 1 <= len(node) <= 2:
        raise ValueError("the tree is damaged")
    kind, value = next(iter(node.items()))
    if kind in ("l", "u") and isinstance(value, list):
        items = [decode(v, tensor, depth + 1) for v in value]
        return tuple(items) if kind == "u" else items
    if kind in ("d", "o") and isinstance(value, list):
        return _decode_mapping(node, kind, value, tensor, depth)
    if kind == "f" and value in ("inf", "-inf", "nan"):
        return float(value)
    if kind == "b" and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if kind in ("t", "n") and isinstance(value, int) and not isinstance(value, bool):
        return tensor(kind, value)
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
