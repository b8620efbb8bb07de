#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
"""RocksDB behind common/kv, with the power cut at every sync: it opens, every acknowledged batch is
there, every other one wholly or not at all. A run without syncs must fail."""
import subprocess
import time

from power import BUILD, LONG, PowerFS, check_cuts, report

TOOL = BUILD + "/tests/power_kv"


def session(what, ops, sync, **how):
    started = time.monotonic()
    with PowerFS() as fs:
        subprocess.run([TOOL, "run", fs.mnt + "/store", fs.mnt + "/.mark", str(ops)] +
                       ([] if sync else ["nosync"]), check=True, timeout=600)
        fs.unmount()
        cuts = check_cuts(fs, lambda disk, marks: [TOOL, "verify", disk + "/store", marks], **how)
        report(what, fs, cuts, started)
        return cuts


def main():
    cuts = session("kv", 600 if LONG else 120, True, seeds=range(6) if LONG else (1, 2))
    for f in cuts.failures[:5]:
        print(f)
    assert not cuts.failures and cuts.n > 100, (len(cuts.failures), cuts.n)
    # Proves that this test can fail.
    cuts = session("kv without syncs", 40, False, at_marks=True, every=7, seeds=(1,),
                   stop_at_failure=True)
    assert cuts.failures, "lost batches were not noticed"
    print("noticed: " + cuts.failures[0].splitlines()[0])


if __name__ == "__main__":
    main()
