# SPDX-License-Identifier: Apache-2.0
"""Where the guests' parts are kept between runs, and Debian packages unpacked there.

Nothing is installed on the host: packages are downloaded by apt with the host's own sources and
only unpacked. Several runs may prepare a part concurrently: the first does it, the others wait."""
import contextlib
import fcntl
import glob
import os
import re
import shutil
import subprocess

FOLDER = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                      "leat-rdma")
APT = ["-q", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1"]


class Unavailable(Exception):
    """This guest cannot run here; the text says why."""


def path(*parts):
    return os.path.join(FOLDER, *parts)


def run(argv, **more):
    """Runs a command and returns its stdout; raises Unavailable with its last words if it fails."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, **more)
    except OSError as error:
        raise Unavailable(str(error))
    if done.returncode:
        raise Unavailable("%s: %s" % (" ".join(argv[:6]), " ".join(done.stdout.split()[-40:])))
    return done.stdout


@contextlib.contextmanager
def part(name):
    """with part("tools") as folder: a folder to be filled; None if it is already filled."""
    os.makedirs(FOLDER, exist_ok=True)
    with open(path(name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(path(name, "complete")):
            yield None
            return
        shutil.rmtree(path(name), ignore_errors=True)
        os.makedirs(path(name))
        yield path(name)
        with open(path(name, "complete"), "w"):
            pass


def need_apt():
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("no apt-get on this system to download the guest's parts with")


def unpack(folder, packages):
    """Downloads packages without their dependencies, and unpacks them into folder."""
    need_apt()
    downloads = folder + "/.deb"
    os.makedirs(downloads, exist_ok=True)
    try:
        run(["apt-get", *APT, "download", *packages], cwd=downloads)
    except Unavailable:  # the lists may be old, or missing as in a fresh container
        if os.getuid() != 0:
            raise
        run(["apt-get", *APT, "update"])
        run(["apt-get", *APT, "download", *packages], cwd=downloads)
    unpack_all(folder, downloads)


def unpack_with_libraries(folder, packages):
    """Like unpack, with the dependencies that the host lacks."""
    need_apt()
    downloads = folder + "/.deb"
    os.makedirs(downloads + "/partial", exist_ok=True)
    run(["apt-get", *APT, "install", "-y", "--download-only", "--no-install-recommends",
         "-o", "Dir::Cache::archives=" + downloads, *packages])
    unpack_all(folder, downloads)


def unpack_all(folder, downloads):
    for package in glob.glob(downloads + "/*.deb"):
        run(["dpkg-deb", "-x", package, folder])
    shutil.rmtree(downloads)


def library_path(folder):
    return ":".join(glob.glob(folder + "/lib/*-linux-gnu") +
                    glob.glob(folder + "/usr/lib/*-linux-gnu"))


def depends(package, pattern):
    """The first package that `package` depends on and whose name matches, or None."""
    need_apt()
    found = re.search(r"^\s*Depends: (%s)$" % pattern, run(["apt-cache", "depends", package]), re.M)
    return found.group(1) if found else None


def tools():
    """perftest, rping, ibv_* for inspecting a guest by hand: guest --tools."""
    with part("tools") as folder:
        if folder:
            unpack(folder, ["perftest", "ibverbs-utils", "rdmacm-utils", "libibumad3", "libpci3"])
    return path("tools")
