# SPDX-License-Identifier: Apache-2.0
"""A server whose disk is small, and another program that fills it."""
import contextlib
import errno
import os
import shutil
import subprocess

from cluster import unmount


def copy(home, to):
    subprocess.run(["cp", "-a", "--sparse=always", home + "/.", to], check=True)
    # A store's reserve for a full disk would become a hole: the store makes a new one where there
    # is space.
    for folder, _, names in os.walk(to):
        for name in {"ballast", "other"} & set(names):
            os.unlink(folder + "/" + name)


@contextlib.contextmanager
def small_disk(c, name, mib):
    """Puts the folder of that server (mds, ossd1, ...) on a file system of that many MiB. The
    server is started on it, and on its previous disk in the end."""
    c.stop(name)
    home = c.dev + "/" + name
    os.rename(home, home + ".was")
    os.mkdir(home)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dM,mode=755" % mib, "tmpfs", home],
                   check=True)
    try:
        copy(home + ".was", home)
        c.start(name)
        yield home
    finally:
        c.run("stop", name, check=False)
        shutil.rmtree(home + ".was")
        os.mkdir(home + ".was")
        copy(home, home + ".was")
        unmount(home)
        os.rmdir(home)
        os.rename(home + ".was", home)
        c.start(name)


def fill(home, leave):
    """Fills the disk with another program's file, except for that many bytes."""
    v = os.statvfs(home)
    with open(home + "/other", "ab") as f:
        try:
            f.write(b"x" * max(0, v.f_bavail * v.f_frsize - leave))
        except OSError as e:
            assert e.errno == errno.ENOSPC, e


def refused(fn, *args):
    """Whether it fails for lack of space."""
    try:
        fn(*args)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        return True
    return False
