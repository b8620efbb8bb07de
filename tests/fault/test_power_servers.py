#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""leat-mds and leat-ossd with a mount; the power of both is cut at some of the syncs: servers start
on the cut disk, all acknowledged data is there, both checks are clean. A server that does not sync
fails. (test_power_servers_all.py cuts at every sync.)"""
import sys
import time

import power_servers
from power import PowerFS, check_cuts, points, report

N_CUTS = 40
# Cuts at once for each processor: a restart mostly waits for the leases of dead clients.
EACH = 3


def verify_command(disk, marks):
    return [sys.executable, power_servers.__file__, "verify", disk, marks]


def session(what, ops, n_cuts, conf=None, **how):
    started = time.monotonic()
    with PowerFS() as fs:
        power_servers.run(fs, ops, conf)
        fs.unmount()
        n = sum(1 for _, disk in points(fs.journal, how.get("at_marks", False)) if disk.marks)
        cuts = check_cuts(fs, verify_command, every=max(1, n // n_cuts) if n_cuts else 1,
                          each=EACH, **how)
        report(what, fs, cuts, started)
        return cuts


def no_sync(server):
    conf = {k: dict(v) for k, v in power_servers.CONF.items()}
    conf[server]["sync"] = "false"
    return conf


def main(ops=40, n_cuts=N_CUTS, seeds=(1,)):
    cuts = session("servers", ops, n_cuts, seeds=seeds)
    for f in cuts.failures[:5]:
        print(f)
    assert not cuts.failures and cuts.n >= (n_cuts or 300), (len(cuts.failures), cuts.n)
    # Proves that this test can fail.
    for server in "ossd", "mds":
        cuts = session("leat-%s does not sync" % server, 15, 4, no_sync(server), at_marks=True,
                       seeds=(1,), stop_at_failure=True)
        assert cuts.failures, "lost operations were not noticed"
        print("noticed: " + cuts.failures[-1].splitlines()[-1])


if __name__ == "__main__":
    main()
