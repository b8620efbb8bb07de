# SPDX-License-Identifier: Apache-2.0
"""The quick guest: User Mode Linux, a kernel that is a process of the host. It starts in about a
second. Threads of one guest process never run at the same time, however many processors it has.

One processor: with two of them the kernel (7.2) does not notify the other one that a page was
removed from a process's memory. So a store through a shared mapping during a write-back or an
invalidation is lost now and then, on any file system."""
import os
import subprocess

import cache

NAME = "uml"
CPUS = 1
HERE = os.path.dirname(os.path.abspath(__file__))


def program():
    """The kernel: $LEAT_RDMA_UML, else that of build-kernel in the cache."""
    return os.environ.get("LEAT_RDMA_UML") or cache.path("linux")


def prepare(_):
    kernel = program()
    if os.uname().machine != "x86_64":
        raise cache.Unavailable("User Mode Linux runs on x86-64 only")
    if not os.access(kernel, os.X_OK):
        raise cache.Unavailable("no guest kernel %s (tests/rdma/build-kernel builds one, in 7 to "
                                "20 minutes; or set LEAT_RDMA_UML)" % kernel)
    try:
        works = subprocess.run([kernel, "--version"], stdin=subprocess.DEVNULL, capture_output=True,
                               timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    if not works:
        raise cache.Unavailable("the guest kernel %s does not run" % kernel)


def settings(_):
    return {"CONSOLE": "/dev/tty0", "OUTPUT": "/dev/tty1", "MODULES": ""}


def argv(options, control):
    return [program(), "mem=%dM" % options.mem, "ncpus=%d" % (options.cpus or CPUS),
            "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
            "init=%s/uml-init.sh" % HERE,
            "leat_control=" + control, "umid=guest", "uml_dir=" + control,
            # Consoles: kernel messages to stderr, the command's output to stdout.
            "con=null", "con0=null,fd:2", "con1=null,fd:1",
            # System calls by ptrace, which takes half as long again as seccomp but allows only one
            # processor: with several processors and seccomp, four threads that registered memory at
            # one time got EINVAL and ENOSYS for it.
            "seccomp=auto" if (options.cpus or CPUS) > 1 else "seccomp=off",
            "panic=-1", "quiet", "nowatchdog", "random.trust_cpu=on"]


def environment():
    """The guest's memory is a file in TMPDIR: in a file system in memory."""
    return {"TMPDIR": "/dev/shm"} if os.path.isdir("/dev/shm") else {}
