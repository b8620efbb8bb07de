#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""The chunk store of leat-ossd, with the power cut at every sync: the check is clean, every
acknowledged write, punch, trim and remove is there with its recorded reply, and the store
continues. A run without syncs must fail."""
import subprocess
import time

from power import BUILD, LONG, PowerFS, check_cuts, report

TOOL = BUILD + "/tests/power_store"


def session(what, ops, missing=(), **how):
    started = time.monotonic()
    with PowerFS() as fs:
        subprocess.run([TOOL, "run", fs.mnt + "/store", fs.mnt + "/.mark", str(ops), *missing],
                       check=True, timeout=600)
        fs.unmount()
        cuts = check_cuts(fs, lambda disk, marks: [TOOL, "verify", disk + "/store", marks], **how)
        report(what, fs, cuts, started)
        return cuts


def main():
    cuts = session("chunk store", 300 if LONG else 60, seeds=range(6) if LONG else (1, 2))
    for f in cuts.failures[:5]:
        print(f)
    assert not cuts.failures and cuts.n > 300, (len(cuts.failures), cuts.n)
    # Proves that this test can fail.
    for missing in "nosync", "nodatasync":
        cuts = session("chunk store, " + missing, 40, [missing], at_marks=missing == "nosync",
                       every=7, seeds=(1,), stop_at_failure=True)
        assert cuts.failures, "lost operations were not noticed"
        print("noticed: " + cuts.failures[0].splitlines()[-1])


if __name__ == "__main__":
    main()
