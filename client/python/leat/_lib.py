# SPDX-License-Identifier: Apache-2.0
"""libleat.so through ctypes: only structs and prototypes of leat.h, leat_loader.h and
leat_stage.h."""
import ctypes
import ctypes.util
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_int, c_int64, c_size_t,
                    c_uint32, c_uint64,
                    c_void_p)

STALLS = ("local", "server", "verify", "consumer", "start", "decode", "peer")
WAIT_BUCKETS = 24


class Error(Structure):
    _fields_ = [("status", c_int), ("origin", c_char_p), ("offset", c_uint64),
                ("path", c_char * 4096),
                ("message", c_char * 512)]


class Options(Structure):
    _fields_ = [("size", c_size_t), ("mds", c_char_p), ("key_file", c_char_p), ("name", c_char_p),
                ("params", c_void_p), ("message", c_char_p), ("message_size", c_size_t)]


class DatasetOptions(Structure):
    _fields_ = [("size", c_size_t), ("fs", c_void_p), ("stage_dir", c_char_p),
                ("catalog", c_char_p),
                ("threads", c_uint32), ("no_verify", c_int), ("format", c_char_p),
                ("peers", c_int), ("unpack_bytes", c_uint64)]


class DatasetStat(Structure):
    _fields_ = [("size", c_size_t), ("samples", c_uint64), ("files", c_uint64), ("bytes", c_uint64),
                ("order_word", c_uint64), ("n_fields", c_uint32), ("n_classes", c_uint32),
                ("id", c_char * 65),
                ("format", c_char * 16), ("source", c_char * 16), ("path", c_char * 4096),
                ("positions", c_uint64), ("packed", c_uint64)]


class Left(Structure):
    _fields_ = [("size", c_size_t), ("why", c_char_p), ("kind", c_char_p), ("first", c_char_p),
                ("n", c_uint64), ("bytes", c_uint64)]


class MixPart(Structure):
    _fields_ = [("ds", c_void_p), ("weight", c_uint64)]


class MixOptions(Structure):
    _fields_ = [("size", c_size_t), ("epoch", c_uint64), ("threads", c_uint32)]


class DecodeCall(Structure):
    _fields_ = [("size", c_size_t), ("sample", c_uint64), ("label", c_int64), ("key", c_char_p),
                ("field", c_char_p), ("in_", c_void_p), ("in_len", c_uint64), ("out", c_void_p),
                ("out_max", c_uint64), ("error", c_void_p), ("error_size", c_size_t)]


DECODE = CFUNCTYPE(c_int64, c_void_p, POINTER(DecodeCall))


class Decoder(Structure):
    _fields_ = [("field", c_char_p), ("decode", c_void_p), ("arg", c_void_p), ("out_max", c_uint64)]


class LoaderOptions(Structure):
    _fields_ = [("size", c_size_t), ("order", c_char_p), ("tail", c_char_p), ("seed", c_uint64),
                ("epoch", c_uint64), ("batch", c_uint32), ("rank", c_uint32), ("world", c_uint32),
                ("epochs", c_uint64), ("depth", c_uint32), ("memory_limit", c_uint64),
                ("on_error", c_int),
                ("fields", POINTER(c_char_p)), ("stride", c_uint32), ("phase", c_uint32),
                ("pinned", c_int), ("device", c_char_p),
                ("cache_dir", c_char_p), ("cache_bytes", c_uint64), ("cache_ranks", c_uint32),
                ("decoders", POINTER(Decoder)), ("n_decoders", c_uint32),
                ("decode_threads", c_uint32), ("decode_ms", c_uint32), ("direct", c_int)]


class DeviceView(Structure):
    _fields_ = [("size", c_size_t), ("base", c_uint64), ("len", c_uint64), ("device", c_int)]


class BatchInfo(Structure):
    _fields_ = [("size", c_size_t), ("n", c_uint64), ("epoch", c_uint64), ("step", c_uint64),
                ("ids", c_void_p), ("labels", c_void_p), ("base", c_void_p), ("len", c_uint64),
                ("offsets", POINTER(c_uint64)), ("lengths", POINTER(c_uint64)),
                ("stride", c_uint64), ("n_fields", c_uint32), ("fd", c_int), ("verified", c_int),
                ("fields", POINTER(c_uint32))]


class Array(Structure):
    _fields_ = [("size", c_size_t), ("data", c_void_p), ("len", c_uint64), ("type", c_char * 16),
                ("fortran", c_int), ("n_dims", c_uint32), ("shape", c_uint64 * 32)]


class Metrics(Structure):
    _fields_ = [("size", c_size_t), ("batches", c_uint64), ("samples", c_uint64),
                ("skipped", c_uint64),
                ("bytes_local", c_uint64), ("bytes_server", c_uint64), ("bytes_verified", c_uint64),
                ("errors", c_uint64), ("wait_us", c_uint64), ("busy_us", c_uint64),
                ("stall_us", c_uint64 * len(STALLS)), ("wait_histogram", c_uint64 * WAIT_BUCKETS),
                ("depth", c_uint32), ("ready", c_uint32), ("held", c_uint32), ("filling", c_uint32),
                ("memory", c_uint64), ("memory_limit", c_uint64), ("memory_pinned", c_uint64),
                ("bytes_device", c_uint64), ("cache_hits", c_uint64),
                ("cache_misses", c_uint64), ("bytes_cache", c_uint64), ("cache_bytes", c_uint64),
                ("cache_limit", c_uint64), ("cache_bad", c_uint64), ("cache_failed", c_uint64),
                ("ahead", c_uint64), ("bytes_peer", c_uint64), ("peers", c_uint64),
                ("peers_dropped", c_uint64), ("peers_lied", c_uint64), ("bytes_direct", c_uint64),
                ("direct_mib_s", c_uint64), ("bounce_mib_s", c_uint64), ("direct_failed", c_uint64),
                ("bytes_mended", c_uint64), ("blocks_stale", c_uint64),
                ("chunks_healed", c_uint64)]


class StageProgress(Structure):
    _fields_ = [("size", c_size_t), ("phase", c_char_p), ("bytes", c_uint64),
                ("bytes_total", c_uint64),
                ("bytes_moved", c_uint64), ("files", c_uint64), ("files_total", c_uint64),
                ("elapsed_us", c_uint64)]


PROGRESS = CFUNCTYPE(None, c_void_p, POINTER(StageProgress))


class StageOptions(Structure):
    _fields_ = [("size", c_size_t), ("fs", c_void_p), ("source", c_char_p), ("catalog", c_char_p),
                ("to", c_char_p), ("capacity", c_uint64), ("timeout_ms", c_uint32),
                ("readback", c_int),
                ("progress", PROGRESS), ("arg", c_void_p), ("cancel", c_void_p),
                ("format", c_char_p)]


class StageResult(Structure):
    _fields_ = [("size", c_size_t), ("code", c_int), ("id", c_char * 65), ("path", c_char * 4096),
                ("files", c_uint64), ("bytes", c_uint64), ("bytes_verified", c_uint64),
                ("bytes_moved", c_uint64), ("bytes_missing", c_uint64), ("elapsed_us", c_uint64),
                ("skipped", c_uint32), ("message", c_char * 512), ("fail_path", c_char * 4096),
                ("fail_offset", c_uint64)]


def sized(cls, **members):
    """A struct that begins with its size."""
    s = cls(**members)
    s.size = ctypes.sizeof(cls)
    return s


P = c_void_p
PROTOTYPES = {
    "leat_strerror": (c_char_p, [c_int64]),
    "leat_errno": (c_int, [c_int64]),
    "leat_version": (c_char_p, []),
    "leat_open_fs": (c_int, [c_char_p, POINTER(Options), POINTER(P)]),
    "leat_close_fs": (None, [P]),
    "leat_stage_path": (c_int, [c_char_p, c_char_p, P, c_size_t]),
    "leat_last_error": (POINTER(Error), []),
    "leat_dataset_open": (c_int, [c_char_p, POINTER(DatasetOptions), POINTER(P)]),
    "leat_dataset_mix": (c_int, [POINTER(MixPart), c_uint32, POINTER(MixOptions), POINTER(P)]),
    "leat_dataset_close": (None, [P]),
    "leat_dataset_stat": (c_int, [P, POINTER(DatasetStat)]),
    "leat_dataset_field": (c_char_p, [P, c_uint32]),
    "leat_dataset_field_type": (c_char_p, [P, c_uint32]),
    "leat_dataset_class": (c_char_p, [P, c_uint32]),
    "leat_dataset_file": (c_char_p, [P, c_uint32]),
    "leat_dataset_left": (c_int, [P, c_uint32, POINTER(Left)]),
    "leat_dataset_key": (c_char_p, [P, c_uint64]),
    "leat_dataset_read": (c_int, [P, POINTER(c_uint64), c_uint32, POINTER(P)]),
    "leat_order_open": (c_int, [P, c_char_p, c_uint64, c_uint64, c_uint32, POINTER(P)]),
    "leat_order_at": (c_int64, [P, c_uint64]),
    "leat_order_close": (None, [P]),
    "leat_loader_open": (c_int, [P, POINTER(LoaderOptions), POINTER(P)]),
    "leat_loader_close": (None, [P]),
    "leat_loader_steps": (c_uint64, [P]),
    "leat_next_within": (c_int, [P, c_uint32, POINTER(P)]),
    "leat_loader_event_fd": (c_int, [P]),
    "leat_loader_set_epoch": (c_int, [P, c_uint64]),
    "leat_loader_state": (c_int, [P, c_char_p, c_size_t]),
    "leat_loader_set_state": (c_int, [P, c_char_p]),
    "leat_batch_unref": (None, [P]),
    "leat_batch_info": (None, [P, POINTER(BatchInfo)]),
    "leat_batch_device": (c_int, [P, P, POINTER(DeviceView)]),
    "leat_batch_copy": (c_int, [P, c_uint64, c_uint64, P]),
    "leat_batch_dlpack": (c_int, [P, POINTER(Array), c_int, POINTER(P)]),
    "leat_dlpack_delete": (None, [P]),
    "leat_loader_metrics": (c_int, [P, POINTER(Metrics)]),
    "leat_checksum": (c_uint64, [P, c_uint64]),
    "leat_open": (c_int, [P, c_char_p, c_int, c_uint32, POINTER(P)]),
    "leat_close": (c_int, [P]),
    "leat_pread": (c_int64, [P, P, c_size_t, c_uint64]),
    "leat_pwrite": (c_int64, [P, P, c_size_t, c_uint64]),
    "leat_fsync": (c_int, [P]),
    "leat_lseek": (c_int64, [P, c_int64, c_int]),
    "leat_rename": (c_int, [P, c_char_p, c_char_p, c_uint32]),
    "leat_unlink": (c_int, [P, c_char_p]),
    "leat_stage_in": (c_int, [POINTER(StageOptions), POINTER(StageResult)]),
}


def _candidates():
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("LEAT_LIBRARY"):
        yield os.environ["LEAT_LIBRARY"]
        return
    if os.environ.get("BUILD"):
        yield os.path.join(os.environ["BUILD"], "libleat.so")
    yield os.path.join(here, "libleat.so")
    yield os.path.join(here, "..", "..", "..", "build", "libleat.so")
    found = ctypes.util.find_library("leat")
    if found:
        yield found
    for folder in ("/usr/local/lib", "/usr/lib"):
        yield os.path.join(folder, "libleat.so")


def load():
    tried = []
    for path in _candidates():
        if "/" in path and not os.path.exists(path):
            tried.append(path)
            continue
        lib = ctypes.CDLL(path)
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        return lib
    raise ImportError("libleat.so was not found: build it (make), install it, or set "
                      "LEAT_LIBRARY. Tried: " + ", ".join(tried))


lib = load()
