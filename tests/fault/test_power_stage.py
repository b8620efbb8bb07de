#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""`leat stage in`, killed, resumed, evicted, unpacked, with the power cut at some of the syncs
(with --long at every one): no wrong copy is READY, every acknowledged one is, and only unsynced
data moves again. Without syncs of data, or of names, the test must fail."""
import sys
import time

import power_cut
import power_stage
from power import LONG, PowerFS, check_cuts, points, report

N_CUTS = 30


def verify_command(disk, marks):
    return [sys.executable, power_stage.__file__, "verify", disk, marks]


def leave_out(fs, name, is_left_out):
    """The journal of a program that omits these syncs."""
    out, path_of = "%s/journal-%s" % (fs.mem, name), {}
    with open(out, "wb") as f:
        for kind, fid, off, length, a, b, data in power_cut.records(fs.journal):
            if kind == power_cut.CREATE:
                path_of[fid] = a
            if is_left_out(kind, path_of.get(fid, "")):
                continue
            a, b = a.encode(), b.encode()
            f.write(power_cut.RECORD.pack(kind, fid, off, length, len(a), len(b), len(data)) +
                    a + b + data)
    fs.journal = out


def cut(what, fs, **how):
    started = time.monotonic()
    cuts = check_cuts(fs, verify_command, **how)
    report(what, fs, cuts, started)
    return cuts


def main():
    with PowerFS() as fs:
        power_stage.run(fs)
        fs.unmount()
        whole = fs.journal
        n = sum(1 for _, disk in points(whole) if disk.marks)
        cuts = cut("staging", fs, seeds=(1, 2) if LONG else (1,),
                   every=1 if LONG else max(1, n // N_CUTS))
        for f in cuts.failures[:5]:
            print(f)
        assert not cuts.failures and cuts.n >= N_CUTS, (len(cuts.failures), cuts.n)
        # Proves that this test can fail.
        for name, is_left_out in (
                ("data", lambda kind, path: kind == power_cut.SYNC and "/part/" in path),
                ("names", lambda kind, path: kind == power_cut.SYNCDIR)):
            fs.journal = whole
            leave_out(fs, name, is_left_out)
            cuts = cut("staging, no sync of " + name, fs, seeds=(3,), every=4,
                       stop_at_failure=True)
            assert cuts.failures, "lost data was not noticed"
            print("noticed: " + cuts.failures[0].splitlines()[-1])


if __name__ == "__main__":
    main()
