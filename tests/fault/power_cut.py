#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a disk may hold after a power failure, computed from a journal of powerfs.

    power_cut.py count JOURNAL                      number of syncs
    power_cut.py cut JOURNAL N SEED OUTDIR          the disk just before sync N+1 is carried out;
                                                    prints the marks that were written before it

Rules (stricter than ext4's): data, size and zeroing of a file are durable once that file has been
synced; names once their directory has been synced, in the order in which they were made. Of later
changes, each 4 KiB page of each write survives or not by the seed, size changes and names survive
up to a point drawn from the seed.
"""
import os
import random
import struct
import sys

RECORD = struct.Struct("<IIQQIIQ")
(CREATE, MKDIR, UNLINK, RMDIR, RENAME, WRITE, TRUNCATE, SYNC, SYNCDIR, MARK, ZERO,
 LINK) = range(1, 13)
PAGE = 4096


def records(path):
    with open(path, "rb") as f:
        while True:
            head = f.read(RECORD.size)
            if len(head) < RECORD.size:
                return
            kind, fid, off, length, n1, n2, n3 = RECORD.unpack(head)
            yield (kind, fid, off, length, f.read(n1).decode(), f.read(n2).decode(), f.read(n3))


class Content:
    """The bytes of a file and its size; zeros between the end of the bytes and the size. So the
    large empty file with which a store reserves space costs nothing."""

    def __init__(self, data=b"", size=0):
        self.data, self.size = bytearray(data), size

    def copy(self):
        return Content(self.data, self.size)

    def apply(self, op):
        kind, off, length, payload = op
        if kind == WRITE:
            if len(self.data) < off:
                self.data.extend(bytes(off - len(self.data)))
            self.data[off:off + length] = payload
            self.size = max(self.size, off + length)
        elif kind == TRUNCATE:
            del self.data[off:]
            self.size = off
        elif kind == ZERO:
            end = min(off + length, len(self.data))
            if off < end:
                self.data[off:end] = bytes(end - off)


class File:
    """Durable content, and the changes since the last sync."""

    def __init__(self):
        self.content = Content()
        self.pending = []

    def sync(self):
        for op in self.pending:
            self.content.apply(op)
        self.pending.clear()

    def after_cut(self, rng):
        """Durable content plus an arbitrary part of the pending changes."""
        content = self.content.copy()
        keep = rng.choice((0.0, 0.3, 0.7, 1.0))
        for kind, off, length, payload in self.pending:
            if kind != WRITE:
                if rng.random() < keep:
                    content.apply((kind, off, length, payload))
                continue
            at = off
            while at < off + length:
                end = min(at // PAGE * PAGE + PAGE, off + length)
                if rng.random() < keep:
                    content.apply((WRITE, at, end - at, payload[at - off:end - off]))
                at = end
        return content


class Disk:
    def __init__(self):
        self.files = {}     # current file of an id
        self.names = {}     # durable: path -> File, or None for a directory
        self.live = {}      # as the running system sees them
        self.pending = []   # changes of names since the last sync of a directory
        self.marks = []

    def name_op(self, names, op):
        kind, a, b, file = op
        if kind == CREATE:
            names[a] = file
        elif kind == MKDIR:
            names[a] = None
        elif kind in (UNLINK, RMDIR):
            names.pop(a, None)
        elif kind == LINK:
            if a in names:
                names[b] = names[a]
        elif kind == RENAME and a in names:
            for old in [p for p in names if p == a or p.startswith(a + "/")]:
                names[b + old[len(a):]] = names.pop(old)

    def play(self, rec):
        kind, fid, off, length, a, b, payload = rec
        if kind in (CREATE, MKDIR, UNLINK, RMDIR, RENAME, LINK):
            file = None
            if kind == CREATE:
                file = self.files[fid] = File()
            op = (kind, a, b, file)
            self.name_op(self.live, op)
            self.pending.append(op)
        elif kind in (WRITE, TRUNCATE, ZERO):
            self.files[fid].pending.append((kind, off, length, payload))
        elif kind == SYNC:
            self.files[fid].sync()
        elif kind == SYNCDIR:
            for op in self.pending:
                self.name_op(self.names, op)
            self.pending.clear()
        elif kind == MARK:
            self.marks.append(payload.decode())

    def write(self, seed, out):
        rng = random.Random(seed)
        names = dict(self.names)
        for op in self.pending[:rng.randint(0, len(self.pending))]:
            self.name_op(names, op)
        os.makedirs(out, exist_ok=True)
        for path in sorted(names):
            where = out + path
            if names[path] is None:
                os.makedirs(where, exist_ok=True)
        done = {}
        for path in sorted(names):
            file = names[path]
            if file is None:
                continue
            where = out + path
            if not os.path.isdir(os.path.dirname(where)):
                continue
            if id(file) in done:
                os.link(done[id(file)], where)
                continue
            done[id(file)] = where
            write_sparse(where, file.after_cut(rng))


def write_sparse(path, content):
    zero = bytes(65536)
    with open(path, "wb") as f:
        for at in range(0, len(content.data), 65536):
            piece = content.data[at:at + 65536]
            if piece != zero[:len(piece)]:
                f.seek(at)
                f.write(piece)
        f.truncate(content.size)


def cuts(journal):
    """Yields (number of syncs so far, disk) just before each next sync, and at the end."""
    disk, n = Disk(), 0
    for rec in records(journal):
        if rec[0] in (SYNC, SYNCDIR):
            yield n, disk
            n += 1
        disk.play(rec)
    yield n, disk


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "count":
        print(sum(1 for r in records(sys.argv[2]) if r[0] in (SYNC, SYNCDIR)))
    elif len(sys.argv) == 6 and sys.argv[1] == "cut":
        want = int(sys.argv[3])
        for n, disk in cuts(sys.argv[2]):
            if n == want:
                disk.write(int(sys.argv[4]), sys.argv[5])
                sys.stdout.write("".join(disk.marks))
                return 0
        return 1
    else:
        sys.stderr.write(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
