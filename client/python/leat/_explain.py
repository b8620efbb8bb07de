# SPDX-License-Identifier: Apache-2.0
"""Text about data sets and counters of a loader."""
from __future__ import annotations

import os
import re
from typing import Any, Dict, Optional, Sequence

_ENOUGH = 0.95  # share of time computing that needs no improvement

_CAUSES = {
    "local": ("reading local files",
              "a faster disk, or more threads= of the Dataset"),
    "server": ("the servers or the network to them",
               "stage the data set (leat stage in), or look at `leat status --net` and the "
               "servers' disks"),
    "verify": ("verifying and unpacking what was read",
               "more threads= of the Dataset, or cores for them; a second epoch of a staged copy "
               "is not verified again"),
    "consumer": ("batches that the program itself still holds",
                 "keep no arrays of old batches (copy what is kept), or raise depth= or "
                 "memory_limit="),
    "decode": ("the decoders", "more decode_threads=, or cores for them"),
    "peer": ("other nodes that have a copy, or the network to them",
             "stage the data set here too (leat stage in), or read from the servers: peers=False "
             "of the Dataset"),
    "start": ("the first batches, or a jump to another epoch or state",
              "nothing: it passes; a larger depth= starts reading earlier"),
}


def _mib(n: int) -> str:
    return "%.1f MiB" % (n / 2**20)


def mount_of(path: str, mountinfo: str = "/proc/self/mountinfo") -> Optional[str]:
    """Where the Leat file system that contains path is mounted; None: path is on no Leat file
    system, or that cannot be determined."""
    try:
        path = os.path.realpath(path)
        device = os.stat(path).st_dev
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as f:
            lines = f.readlines()
    except OSError:
        return None
    number, found = "%d:%d" % (os.major(device), os.minor(device)), []
    for line in lines:
        mount, _, kind = line.partition(" - ")
        words = mount.split()
        if len(words) > 4 and words[2] == number and kind.split(" ")[0] == "fuse.leat":
            # Separators within a field are written as octal digits.
            found.append(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), words[4]))
    above = [p for p in found if path == p or path.startswith(p.rstrip("/") + "/")]
    return max(above, key=len) if above else found[-1] if found else None


_FASTER = ("open it past the kernel by name (leat.Dataset(\"leat:NAME@VERSION\"); `leat "
           "dataset create` makes one), or stage a copy (leat.stage_in)")


def explain(m: Dict[str, Any], source: str, mounts: Sequence[str] = ()) -> str:
    """m: DataLoader.metrics(); mounts: mount points of Leat that data sets on plain paths are
    on."""
    causes, local = _CAUSES, "local files"
    if mounts:
        local = "the mount of Leat at " + ", ".join(mounts)
        causes = dict(_CAUSES, local=("reading through " + local, _FASTER))
    total = m["wait_us"] + m["busy_us"]
    lines = ["%d batches, %d samples in %.1f s: %.1f %% of the time was spent waiting for data."
             % (m["batches"], m["samples"], total / 1e6, 100 * (1 - m["utilisation"]))]
    stalls = sorted(((us, name) for name, us in m["stall_us"].items() if us), reverse=True)
    waited = sum(us for us, _ in stalls)
    if m["utilisation"] >= _ENOUGH or not stalls:
        lines.append("The loader keeps up.")
    else:
        why, remedy = causes[stalls[0][1]]
        lines.append("Mostly for %s (%s: %.2f s, %.0f %% of the waits). What helps: %s." % (
            why, stalls[0][1], stalls[0][0] / 1e6, 100 * stalls[0][0] / waited, remedy))
        for us, name in stalls[1:]:
            if us * 20 >= waited:
                lines.append("Also for %s (%s: %.2f s)." % (causes[name][0], name, us / 1e6))
    lines.append("Read: %s from %s, %s verified; %d of %d slots held, %d ready; %s of %s memory."
                 % (
        _mib(m["bytes_local"] + m["bytes_server"]),
        {"copy": "the staged copy", "server": "the servers"}.get(source, local),
        _mib(m["bytes_verified"]), m["held"], m["depth"], m["ready"], _mib(m["memory"]),
        _mib(m["memory_limit"])))
    if mounts:
        lines.append("These paths lie on %s: the kernel reads from the servers, and no manifest is "
                     "compared. Faster: %s." % (local, _FASTER))
    if m["bytes_peer"] or m["peers_dropped"]:
        lines.append("Of other nodes: %s; %d may be asked, %d times one was left out (%d for wrong "
                     "bytes)." % (_mib(m["bytes_peer"]), m["peers"], m["peers_dropped"],
                                  m["peers_lied"]))
    if m["bytes_mended"] or m["chunks_healed"]:
        lines.append("Wrong where they were read, taken from elsewhere: %s; %d chunks of the "
                     "staged copy were put right." % (_mib(m["bytes_mended"]), m["chunks_healed"]))
    if m["blocks_stale"]:
        lines.append("%d blocks have changed since the version was made: restore the files, or "
                     "make a new version (leat dataset create)." % m["blocks_stale"])
    if m["bytes_device"] or m["memory_pinned"]:
        lines.append("Copied to the device: %s; %s of the memory are pinned%s." % (
            _mib(m["bytes_device"]), _mib(m["memory_pinned"]),
            "" if m["memory_pinned"] >= m["memory"] else
            " (copies from the rest are slow: pinned=\"require\" says why)"))
    if m["bytes_direct"] or m["direct_failed"]:
        lines.append("Straight to the device: %s; measured %d MiB/s, through host memory %d MiB/s; "
                     "%d batches failed and went that way." % (
                         _mib(m["bytes_direct"]), m["direct_mib_s"], m["bounce_mib_s"],
                         m["direct_failed"]))
    if m["errors"] or m["skipped"]:
        lines.append("%d batches had errors, %d samples were skipped." % (m["errors"],
                                                                          m["skipped"]))
    return "\n".join(lines)


_LEFT_MAX = 4  # lines
_WHY = {"hidden": "hidden: the name begins with a period",
        "format": "not of the format",
        "beside": "beside the class folders, which have none of this kind",
        "member": "members of archives that no sample can be called after"}


def _some(names: list, most: int) -> str:
    return "%d: %s%s" % (len(names), ", ".join(repr(n)[1:-1] if len(n) < 40 else repr(n)[1:38] + "…"
                                               for n in names[:most]),
                         ", …" if len(names) > most else "")


def _left(left: Any) -> str:
    kind = " ." + left.kind if left.kind else ""
    return "  left out  %d%s (%s%s), %s" % (left.count, kind, repr(left.first)[1:-1][:60],
                                            ", …" if left.count > 1 else "", _WHY[left.why])


def describe(ds: Any) -> str:
    """A Dataset in at most ten lines."""
    lines = ["%s %s" % (type(ds).__name__, ds.path or "of several data sets"),
             "  format    %s%s" % (ds.format, ": each file is a sample"
                                   if ds.format == "files" else ""),
             "  samples   %d in %d files, %s, read from %s" % (
                 len(ds), ds.files, _mib(ds.bytes),
                 {"copy": "the staged copy", "server": "the servers",
                  "local": "the mount of Leat at " + ", ".join(ds.mounts) if ds.mounts else
                  "local files"}.get(ds.source, "where each of them lies")),
             "  fields    " + _some(ds.fields, 8)]
    if ds.packed:
        lines.append("  packed    %d files, unpacked when they are read" % ds.packed)
    if ds.classes:
        lines.append("  classes   " + _some(ds.classes, 8))
    lines += [_left(left) for left in ds.left_out[:_LEFT_MAX]]
    if len(ds.left_out) > _LEFT_MAX:
        lines.append("            and %d more (left_out)" % sum(
            left.count for left in ds.left_out[_LEFT_MAX:]))
    return "\n".join(lines)
