# SPDX-License-Identifier: Apache-2.0
"""Which tests run in the guest: the table of the suite `rdma`, for tests/run."""
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import cache
import uml

# Integration tests that do not run over verbs alone: the transport, or why they do not run.
INTEGRATION = {
    "bad_input": "auto",       # sends TCP to the servers itself
    "cli": None,               # no cluster
    "exports": None,           # makes a network of its own, where there is no device
    "stage_nodes": None,       # as exports
    "cli_net": None,           # messages without a device
    "memory": None,            # hours in a guest; soak checks memory
}
# raw_device skips, and says so, where the guest's kernel has no loop devices: kernel.config has
# them, a kernel given by LEAT_RDMA_UML may not.
# Tests of tests/fault that run over verbs too; the others need no network.
FAULT = ["chain_storm", "rolling_restart"]
SOAK_S = 1800
# The only number of hosts, or the only device and number, of a test that does not run with each.
HOSTS = {"failover": 1, "leaks": 1, "silence": 2, "soak": 2}
DEVICE = {"silence": "rxe", "soak": "rxe"}
# Processors of the guest, where the default is not enough.
CPUS = {"soak": 2}
# The tests of `make check`: (name, device, hosts), where the quick guest can run ...
SHORT = [("conformance", "rxe", 1), ("conformance", "siw", 1), ("failover", "siw", 1),
         ("copies", "rxe", 1), ("posix", "siw", 1), ("two_mounts", "rxe", 2)]
# ... and where only the emulated one can.
SHORT_EMULATED = [("conformance-brief", "rxe", 1)]


def has_quick_guest():
    try:
        uml.prepare(None)
    except cache.Unavailable:
        return False
    return True


def commands(build):
    """name: (command in the guest, seconds)"""
    over = HERE + "/over-verbs"
    found = {"conformance": ([build + "/tests/conformance"], 1500),
             "conformance-brief": ([build + "/tests/conformance", "--brief"], 900),
             "conformance-small-card": ([build + "/tests/conformance", "--card", "small"], 600),
             "failover": ([HERE + "/failover.py"], 200),
             "leaks": ([over, "verbs", HERE + "/leaks.py"], 600),
             "silence": ([over, "auto", HERE + "/silence.py"], 200),
             "troubles": ([HERE + "/troubles.py"], 300),
             "hostile": ([build + "/tests/hostile"], 200),
             "loader": ([over, "verbs", "env", "LD_LIBRARY_PATH=" + build,
                         "/usr/bin/python3", "-m", "unittest", "-v",
                         "tests/python/test_cluster.py"], 600),
             "peers": ([over, "verbs", "env", "LD_LIBRARY_PATH=" + build,
                        "/usr/bin/python3", "-m", "unittest", "-v",
                        "tests/python/test_peers.py"], 900)}
    found["soak"] = ([over, "auto", HERE + "/soak", "--seconds", str(SOAK_S)], SOAK_S + 900)
    for path in sorted(glob.glob("tests/integration/test_*.py") +
                       glob.glob("tests/integration/test_*.sh") +
                       ["tests/fault/test_%s.py" % name for name in FAULT]):
        name = os.path.basename(path)[len("test_"):-3]
        transport = INTEGRATION.get(name, "verbs")
        if transport and os.access(path, os.X_OK):
            found[name] = ([over, transport, os.path.abspath(path)], 900)
    return found


def tests(build, long):
    """(name, argv, seconds) of each test, according to `long` and to the guests that can run."""
    quick, known = has_quick_guest(), commands(build)
    yield "guest", [HERE + "/test_guest.sh"], 600
    if long:
        yield "without", [HERE + "/test_without.sh"], 900
    if not long:
        wanted = SHORT if quick else SHORT_EMULATED
    else:
        wanted = [(name, device, hosts) for hosts in (1, 2) for device in ("rxe", "siw")
                  for name in known
                  if name != "conformance-brief" and  # which is a part of conformance
                  HOSTS.get(name, hosts) == hosts and DEVICE.get(name, device) == device and
                  (quick or (hosts == 1 and name == "conformance"))]
    for name, device, hosts in wanted:
        command, seconds = known[name]
        argv = [HERE + "/guest", "--rdma", device, "--hosts", str(hosts), "--mem", "6144",
                "--cpus", str(CPUS.get(name, 0)), "--timeout", str(seconds), "--", *command]
        # The first download takes time too.
        yield "%s-%s%s" % (name, device, "-2hosts" * (hosts - 1)), argv, seconds + 300
