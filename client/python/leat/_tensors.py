# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch and arrays of numpy as rows of JSON and parts of memory, and back.

A row describes a value: "name", "kind" ("torch" or "numpy"), "dtype" (torch's name; numpy's type
string, or a dict for a structure), "size" of an element, "shape", and for torch "grad": 1
requires_grad, 2 a Parameter. It also has the place of the value: "part" (null: it is empty), "at",
the offset of its first element there, and "strides" in bytes if it is not row after row.

A part is memory that is stored once. Values that overlap are one part and overlap again when they
are loaded, with the same strides, as long as that memory is no larger than all their elements
together; otherwise each is stored by itself, row after row."""
from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

_TORCH = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
          "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
          "complex32": 4, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
          "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
          "bits8": 1, "bits16": 2, "bits1x8": 1, "bits2x4": 1, "bits4x2": 1}
_TORCH.update({"%s%d" % (sign, bits): 1 for sign in ("int", "uint") for bits in range(1, 8)})
_NUMPY = re.compile(r"[<>|=][biufcmMSUV]\d*(\[\w+\])?")
_ML_DTYPES = re.compile(r"ml_dtypes:(bfloat16|float\d+_\w+|u?int\d)")
DIMS_MAX = 64
_NEST_MAX = 16
_COUNT_MAX = 1 << 62
_GRAD, _PARAMETER = 1, 2


# --- types of numpy -------------------------------------------------------------------------------

def numpy_dtype(name: str, dtype: Any) -> Any:
    """A dtype as JSON. TypeError if it cannot be stored."""
    if not dtype.hasobject:
        told = _told(dtype)
        try:
            if told is not None and numpy_dtype_of(told) == dtype:
                return told
        except ValueError:
            pass
    raise TypeError("%s has the dtype %s, which a checkpoint cannot hold: convert it to one of "
                    "numpy's plain types, or to text or lists" % (name or "the state", dtype))


def _told(dtype: Any) -> Any:
    if dtype.subdtype is not None:
        return {"base": _told(dtype.subdtype[0]), "dims": list(dtype.subdtype[1])}
    if dtype.names is not None:
        fields = [dtype.fields[n] for n in dtype.names]
        return {"names": list(dtype.names), "formats": [_told(f[0]) for f in fields],
                "offsets": [f[1] for f in fields],
                "titles": [f[2] if len(f) > 2 else None for f in fields],
                "itemsize": dtype.itemsize}
    if dtype.isbuiltin == 2:  # of another library, such as ml_dtypes
        return "ml_dtypes:" + dtype.name if dtype.type.__module__ == "ml_dtypes" else None
    return dtype.str


def numpy_dtype_of(told: Any, depth: int = 0) -> Any:
    """The dtype from the result of numpy_dtype. ValueError for anything else."""
    import numpy as np
    if isinstance(told, str) and _ML_DTYPES.fullmatch(told):
        name = told.partition(":")[2]
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError("the array's dtype %s needs the package ml_dtypes, which is not "
                              "installed" % name) from None
        told = getattr(ml_dtypes, name, None)
        if not isinstance(told, type) or not issubclass(told, np.generic):
            raise ValueError("the dtype %s, which this ml_dtypes does not have" % name)
    elif isinstance(told, dict) and depth < _NEST_MAX:
        told = _structure(told, depth)
    elif not isinstance(told, str) or not _NUMPY.fullmatch(told):
        raise ValueError("an unknown dtype")
    try:
        dtype = np.dtype(told)
    except (TypeError, ValueError, OverflowError, KeyError, SyntaxError) as error:
        raise ValueError("a dtype that numpy refuses (%s)" % error) from None
    if dtype.hasobject:
        raise ValueError("a dtype of objects")
    return dtype


def _structure(told: dict, depth: int) -> Any:
    if set(told) == {"base", "dims"} and isinstance(told["dims"], list):
        return numpy_dtype_of(told["base"], depth + 1), tuple(told["dims"])
    keys = ("names", "formats", "offsets", "titles")
    if set(told) != {*keys, "itemsize"} or not all(isinstance(told[k], list) for k in keys):
        raise ValueError("a structure's dtype")
    result = dict(told, formats=[numpy_dtype_of(f, depth + 1) for f in told["formats"]])
    if not any(told["titles"]):
        del result["titles"]
    return result


# --- what a value is ------------------------------------------------------------------------------

class Value(NamedTuple):
    """row: the description without the place; strides in bytes; data: detached, referenced."""
    row: Dict[str, Any]
    strides: Tuple[int, ...]
    address: int
    device: Any
    data: Any


def key_of(value: Any) -> Optional[tuple]:
    """A key that two names of one tensor or array share; None: it is neither. Unique as long as the
    value lives."""
    np, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor or value.is_nested or value.layout != torch.strided or (
                value.device.type != "cpu" or not value.numel()):
            return ("id", id(value))
        # Conjugates and negatives are views of the same bytes.
        return (value.data_ptr(), value.dtype, tuple(value.shape), value.stride(), value.is_conj(),
                value.is_neg(), value.requires_grad)
    if np is not None and isinstance(value, np.ndarray):
        return ("id", id(value))
    return None


def value_of(name: str, value: Any) -> Value:
    """TypeError names a value that cannot be stored."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(name, value, torch)
    return _of_numpy(name, value)


def _cannot(name: str, what: str, do: str) -> TypeError:
    return TypeError("%s is %s, which a checkpoint cannot hold: %s" % (name or "the state", what,
                                                                       do))


def _of_torch(name: str, value: Any, torch: Any) -> Value:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise _cannot(name, "a %s" % type(value).__qualname__,
                      "save the plain torch.Tensor of its values")
    if value.layout != torch.strided:
        raise _cannot(name, "sparse (%s)" % value.layout, "save its indices and values")
    if value.is_quantized:
        raise _cannot(name, "quantized", "save int_repr() with its scale and zero point")
    if value.is_nested:
        raise _cannot(name, "a nested tensor", "save the list that unbind() gives")
    if value.device.type == "meta":
        raise _cannot(name, "on the device meta", "it has no bytes there")
    dtype = str(value.dtype).rpartition(".")[2]
    if dtype not in _TORCH:
        raise _cannot(name, "of the type %s" % dtype, "convert it to another type first")
    data = value.detach().resolve_conj().resolve_neg()
    size = data.element_size()
    grad = _GRAD * value.requires_grad + _PARAMETER * isinstance(value, torch.nn.Parameter)
    return Value({"name": name, "kind": "torch", "dtype": dtype, "size": size, "grad": grad,
                  "shape": _dims(name, data.shape)},
                 tuple(s * size for s in data.stride()), data.data_ptr(), data.device, data)


def _of_numpy(name: str, value: Any) -> Value:
    import numpy as np
    if type(value) not in (np.ndarray, np.memmap):
        raise _cannot(name, "a %s" % type(value).__qualname__, "save numpy.asarray() of it, and "
                      "apart what that leaves out")
    return Value({"name": name, "kind": "numpy", "dtype": numpy_dtype(name, value.dtype),
                  "size": value.itemsize, "shape": _dims(name, value.shape)},
                 value.strides, value.__array_interface__["data"][0], None, value)


def _dims(name: str, shape: Any) -> List[int]:
    if len(shape) > DIMS_MAX:
        raise _cannot(name, "of %d dimensions" % len(shape), "%d are the most" % DIMS_MAX)
    return [int(n) for n in shape]


def count_of(shape: Any) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _reach(shape: Any, strides: Any) -> Tuple[int, int]:
    """The distances from the first element down to the lowest one and up to the highest one."""
    ways = [s * (n - 1) for n, s in zip(shape, strides)]
    return -sum(w for w in ways if w < 0), sum(w for w in ways if w > 0)


def _even(shape: Any, size: int) -> List[int]:
    """Strides of an array stored row after row."""
    strides, n = [0] * len(shape), size
    for k in range(len(shape) - 1, -1, -1):
        strides[k] = n
        n *= max(1, shape[k])
    return strides


# --- where values lie -----------------------------------------------------------------------------

class Part(NamedTuple):
    """Memory as bytes, and the object that owns it."""
    view: memoryview
    keep: Any


def _memory(address: int, length: int, keep: Any) -> Part:
    return Part(memoryview((ctypes.c_uint8 * length).from_address(address)).cast("B"), keep)


def _bytes(v: Value) -> int:
    return count_of(v.row["shape"]) * v.row["size"]


def _together(values: List[Value]) -> List[List[Value]]:
    """Groups of values with overlapping memory, from the lowest address on."""
    found: List[tuple] = []
    for v in values:
        before, behind = _reach(v.row["shape"], v.strides)
        # Addresses on other devices are not comparable.
        known = v.device is None or v.device.type in ("cpu", "cuda")
        where = "cpu" if v.device is None else str(v.device) if known else "%d" % id(v.data)
        found.append((where, v.address - before, v.address + behind + v.row["size"], v))
    groups: List[List[Value]] = []
    last, end = None, 0
    for where, low, high, v in sorted(found, key=lambda f: f[:3]):
        if where == last and low < end:
            groups[-1].append(v)
            end = max(end, high)
        else:
            groups.append([v])
            last, end = where, high
    return groups


def _as_it_lies(group: List[Value]) -> Optional[Tuple[int, Part]]:
    """Address and memory of a group; None if its values are better stored one by one."""
    first = group[0]
    low = first.address - _reach(first.row["shape"], first.strides)[0]
    length = max(v.address + _reach(v.row["shape"], v.strides)[1] + v.row["size"]
                 for v in group) - low
    if length > sum(_bytes(v) for v in group):
        return None
    # A loaded tensor's elements must be at multiples of their size.
    if any((v.address - low) % v.row["size"] for v in group if v.row["kind"] == "torch"):
        return None
    if first.device is None or first.device.type == "cpu":
        return low, _memory(low, length, [v.data for v in group])
    if len({v.data.dtype for v in group}) > 1:
        return None
    data = first.data.as_strided((length // first.row["size"],), (1,)).cpu()
    return low, _memory(data.data_ptr(), length, data)


def _by_itself(v: Value) -> Part:
    if v.row["kind"] == "torch":
        data = v.data.cpu().contiguous()
        return _memory(data.data_ptr(), _bytes(v), data)
    import numpy as np
    # As plain bytes: for a structure numpy would copy only the fields, without the gaps.
    data = v.data if v.data.dtype.names is None else v.data.view("V%d" % v.row["size"])
    data = np.ascontiguousarray(data)
    return _memory(data.ctypes.data, _bytes(v), data)


def lay_out(values: List[Value]) -> List[Part]:
    """Returns the parts; sets the place in each value's row."""
    parts: List[Part] = []
    for v in values:
        v.row.update(part=None, at=0)
    for group in _together([v for v in values if _bytes(v)]):
        found = _as_it_lies(group)
        for k, v in enumerate(group):
            if found is None or k == 0:
                parts.append(found[1] if found else _by_itself(v))
            v.row["part"] = len(parts) - 1
            if found:
                v.row["at"] = v.address - found[0]
                shape, even = v.row["shape"], _even(v.row["shape"], v.row["size"])
                if any(n > 1 and s != e for n, s, e in zip(shape, v.strides, even)):
                    v.row["strides"] = list(v.strides)
    return parts


# --- loading --------------------------------------------------------------------------------------

def check_row(r: Any, part_lengths: List[int]) -> None:
    """ValueError if it is no row, or places a value outside its part."""
    shape, size, at = r["shape"], r["size"], r["at"]
    strides = r.get("strides", [])
    if (not isinstance(r["name"], str) or not isinstance(shape, list) or len(shape) > DIMS_MAX
            or not isinstance(strides, list)
            or any(type(n) is not int or n < 0 for n in [size, at, *shape])
            or any(type(n) is not int for n in strides)):
        raise ValueError("a tensor's row")
    if r["kind"] == "torch":
        good = _TORCH.get(r["dtype"]) == size and r["grad"] in (0, 1, 2, 3) and (
            type(r["grad"]) is int)
        good = good and not (at % size or any(s < 0 or s % size for s in strides))
    else:
        good = r["kind"] == "numpy" and isinstance(r["dtype"], (str, dict))
    count, part = count_of(shape) * size, r["part"]
    # The limit of torch and numpy, which holds even if one of the dimensions is 0.
    good = good and count_of(max(1, n) for n in [size, *shape]) < _COUNT_MAX
    if part is None:
        good = good and count == 0
    elif good:
        good = count > 0 and type(part) is int and 0 <= part < len(part_lengths) and (
            "strides" not in r or len(strides) == len(shape))
    if part is not None and good:
        before, behind = _reach(shape, strides or _even(shape, size))
        good = before <= at and at + behind + size <= part_lengths[part]
    if not good:
        raise ValueError("tensor %s, its type, shape or place" % r["name"][:80])


class Maker:
    """Makes values from rows and the memory of their parts, each once. where: an argument of
    torch's to(), or None."""

    def __init__(self, rows: List[dict], views: Dict[int, memoryview], where: Any) -> None:
        self._rows, self._views, self._where = rows, views, where
        self._made: Dict[int, Any] = {}
        self._bases: Dict[int, Any] = {}

    def make(self, i: int) -> Any:
        if not 0 <= i < len(self._rows):
            raise ValueError("there is no tensor %d" % i)
        if i not in self._made:
            row = self._rows[i]
            self._made[i] = self._tensor(row) if row["kind"] == "torch" else self._array(row)
        return self._made[i]

    def _array(self, row: dict) -> Any:
        import numpy as np
        dtype = numpy_dtype_of(row["dtype"])
        if dtype.itemsize != row["size"]:
            raise ValueError("the dtype of array %s" % row["name"][:80])
        if row["part"] is None:
            return np.ndarray(row["shape"], dtype)  # empty() would make an S1 of an S0
        return np.ndarray(row["shape"], dtype, self._views[row["part"]], row["at"],
                          row.get("strides"))

    def _tensor(self, row: dict) -> Any:
        try:
            import torch
        except ImportError:
            raise ImportError("tensor %s is one of torch, which is not installed" %
                              row["name"]) from None
        dtype = getattr(torch, row["dtype"], None)
        if not isinstance(dtype, torch.dtype):
            raise TypeError("tensor %s is of the type %s, which torch %s does not have" % (
                row["name"], row["dtype"], torch.__version__))
        # Moves the part as a whole, so that values which share memory still do.
        device = self._where if isinstance(self._where, (str, int, torch.device)) else None
        shape, size = row["shape"], row["size"]
        if row["part"] is None:
            tensor = torch.empty(shape, dtype=dtype, device=device)
        else:
            base = self._base(torch, row["part"], device)
            base = base[:base.numel() // size * size].view(dtype)
            strides = row.get("strides") or _even(shape, size)
            tensor = torch.empty(0, dtype=dtype, device=base.device).set_(
                base, row["at"] // size, tuple(shape), tuple(s // size for s in strides))
        if device is None and self._where is not None:
            tensor = tensor.to(self._where)
        if row["grad"] & _PARAMETER:
            return torch.nn.Parameter(tensor, requires_grad=bool(row["grad"] & _GRAD))
        return tensor.requires_grad_() if row["grad"] & _GRAD else tensor

    def _base(self, torch: Any, part: int, device: Any) -> Any:
        """The part's bytes as a tensor, which keeps the memory alive."""
        if part not in self._bases:
            base = torch.frombuffer(self._views[part], dtype=torch.uint8)
            self._bases[part] = base if device is None else base.to(device)
        return self._bases[part]
