# SPDX-License-Identifier: Apache-2.0
"""The guest that needs no kernel build: QEMU with Debian's stock kernel, on an emulated processor.
It starts in about ten seconds and is slow, but its threads run concurrently.

QEMU, the kernel and its modules are downloaded into the cache. The root is the host's through 9p.
siw is not in Debian's kernels: it is built from the kernel's source package at the first use."""
import glob
import lzma
import os
import re
import shutil
import stat
import tarfile

import cache

NAME = "emulated"
CPUS = 2
# The modules for the access to the host's root.
BOOT_MODULES = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"]
# The modules that inside.sh loads, and their dependencies (siw needs iw_cm).
MODULES = ["fuse", "dummy", "rdma_ucm", "ib_umad", "iw_cm", "rdma_rxe", "crc32_generic",
           "crc32c_generic", "libcrc32c", "ext4", "loop", "sch_netem"]
INIT = """#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
for m in %(modules)s; do insmod /modules/$m; done
how=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $how,cache=loose,ro host /lower || echo "guest: no root" >/dev/console
mount -t tmpfs -o size=80%% overlay /over; mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work overlay /root
mount --move /dev /root/dev
mount -t proc proc /root/proc; mount -t sysfs sysfs /root/sys
mount -t tmpfs -o mode=755 run /root/run; mkdir /root/run/guest
mount -t 9p -o $how,cache=none control /root/run/guest
exec switch_root /root /bin/bash /run/guest/inside.sh
"""


def qemu():
    """(program, its environment, its options)"""
    found = shutil.which("qemu-system-x86_64")
    if found:
        return found, {}, []
    folder = cache.path("qemu")
    share = folder + "/usr/share/"
    return (folder + "/usr/bin/qemu-system-x86_64",
            {"LD_LIBRARY_PATH": cache.library_path(folder)},
            ["-L", share + "seabios", "-L", share + "qemu"])


def kmod(name, *arguments):
    """depmod and modprobe are one program that acts according to its name."""
    folder = cache.path("kernel")
    link = "%s/%s" % (folder, name)
    if not os.path.islink(link):
        os.symlink("bin/kmod", link)
    return cache.run([link, *arguments],
                     env=dict(os.environ, LD_LIBRARY_PATH=cache.library_path(folder)))


def release():
    return os.path.basename(glob.glob(cache.path("kernel/lib/modules/*"))[0])


def prepare(options):
    if os.uname().machine != "x86_64":
        raise cache.Unavailable("the emulated guest is made for x86-64 hosts only")
    if not shutil.which("qemu-system-x86_64"):
        with cache.part("qemu") as folder:
            if folder:
                cache.unpack_with_libraries(folder, ["qemu-system-x86"])
    with cache.part("kernel") as folder:
        if folder:
            prepare_kernel(folder)
    if options.rdma in ("siw", "both"):
        with cache.part("siw") as folder:
            if folder:
                build_siw(folder)


def prepare_kernel(folder):
    image = cache.depends("linux-image-amd64", r"linux-image-\d\S*")
    if not image:
        raise cache.Unavailable("no package linux-image-amd64")
    cache.unpack(folder, [image, "busybox-static", "kmod", "libkmod2"])
    kmod("depmod", "-b", folder, release())
    keep_only(modules_of(*BOOT_MODULES, *MODULES))
    with open(glob.glob(folder + "/boot/vmlinuz-*")[0], "rb") as f:
        vmlinuz = f.read()
    with open(folder + "/vmlinux", "wb") as f:
        f.write(decompressed(vmlinuz))
    with open(folder + "/initrd", "wb") as f:
        f.write(initrd(folder))


def decompressed(vmlinuz):
    """Unpacks the kernel proper, so that the emulated processor does not have to at each start."""
    for found in re.finditer(rb"\xfd7zXZ\0", vmlinuz):
        try:
            kernel = lzma.LZMADecompressor().decompress(vmlinuz[found.start():])
        except lzma.LZMAError:
            continue
        if kernel.startswith(b"\x7fELF"):
            return kernel
    return vmlinuz


def keep_only(files):
    """The stock kernel has 4,000 modules, of which the guest uses about thirty."""
    for file in glob.glob(cache.path("kernel/lib/modules/**/*.ko*"), recursive=True):
        if file not in files:
            os.unlink(file)
    kmod("depmod", "-b", cache.path("kernel"), release())


def modules_of(*names):
    """The files of these modules and of their dependencies, in the order of loading."""
    files = []
    for name in names:
        shown = kmod("modprobe", "-d", cache.path("kernel"), "-S", release(), "-D", name)
        for file in re.findall(r"^insmod (\S+)", shown, re.M):
            if file not in files:
                files.append(file)
    return files


def cpio_entry(number, name, mode, data=b""):
    """One file of a cpio archive, form "newc" (the kernel's early-userspace documentation)."""
    header = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    entry = b"070701" + b"".join(b"%08X" % n for n in header) + name.encode() + b"\0"
    entry += bytes(-len(entry) % 4)
    return entry + data + bytes(-len(data) % 4)


def initrd(folder):
    files = modules_of(*BOOT_MODULES)
    entries = [(name, stat.S_IFDIR | 0o755, b"")
               for name in "bin proc sys dev root lower over modules".split()]
    with open(folder + "/bin/busybox", "rb") as f:
        entries.append(("bin/busybox", stat.S_IFREG | 0o755, f.read()))
    entries += [("bin/" + name, stat.S_IFLNK | 0o777, b"busybox")
                for name in "sh mount insmod mkdir echo switch_root".split()]
    for file in files:
        with open(file, "rb") as f:
            entries.append(("modules/" + os.path.basename(file), stat.S_IFREG | 0o644, f.read()))
    init = INIT % {"modules": " ".join(os.path.basename(f) for f in files)}
    entries.append(("init", stat.S_IFREG | 0o755, init.encode()))
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(cpio_entry(n + 1, *entry) for n, entry in enumerate(entries))


def build_siw(folder):
    """siw.ko for the stock kernel, beside its own modules."""
    kernel, version = release(), re.match(r"\d+\.\d+", release()).group(0)
    compiler = cache.depends("linux-headers-" + kernel, r"linux-compiler-\S+")
    headers = ["linux-headers-" + kernel, "linux-headers-%s-common" % kernel.rsplit("-", 1)[0],
               "linux-kbuild-" + version]
    cache.unpack(folder, headers + [compiler] + ["linux-source-" + version])
    archive = "%s/usr/src/linux-source-%s.tar.xz" % (folder, version)
    inner = "linux-source-%s/drivers/infiniband/sw/siw/" % version
    source = folder + "/module"
    os.makedirs(source)
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.startswith(inner) and member.isfile():
                with open(source + "/" + os.path.basename(member.name), "wb") as f:
                    shutil.copyfileobj(tar.extractfile(member), f)
    os.unlink(archive)
    tree = "%s/usr/src/linux-headers-%s" % (folder, kernel)
    replace(tree + "/Makefile", "/usr/src/", folder + "/usr/src/")
    replace(source + "/Makefile", "$(CONFIG_RDMA_SIW)", "m")
    cache.run(["make", "-s", "-C", tree, "M=" + source, "modules"])
    target = cache.path("kernel/lib/modules/%s/extra" % kernel)
    os.makedirs(target, exist_ok=True)
    cache.run(["strip", "-g", "-o", target + "/siw.ko", source + "/siw.ko"])
    kmod("depmod", "-b", cache.path("kernel"), kernel)
    shutil.rmtree(folder + "/usr")


def replace(file, old, new):
    with open(file) as f:
        text = f.read()
    with open(file, "w") as f:
        f.write(text.replace(old, new))


def settings(_):
    return {"CONSOLE": "/dev/console", "OUTPUT": "/dev/hvc0", "MODULES": cache.path("kernel")}


def shared(tag, folder, *more):
    return ["-fsdev", ",".join(("local", "id=" + tag, "path=" + folder, "security_model=none",
                                "multidevs=remap") + more),
            "-device", "virtio-9p-pci,fsdev=%s,mount_tag=%s" % (tag, tag)]


def argv(options, control):
    program, _, own = qemu()
    command = [program, *own, "-M", "pc,usb=off,vmport=off",
               "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max",
               "-smp", str(options.cpus or CPUS),
               "-m", str(options.mem), "-nodefaults", "-no-user-config", "-display", "none",
               "-no-reboot", "-nic", "none", "-kernel", cache.path("kernel/vmlinux"),
               "-initrd", cache.path("kernel/initrd"), "-append",
               "console=ttyS0 panic=-1 quiet audit=0 selinux=0 apparmor=0 nowatchdog "
               "random.trust_cpu=on mitigations=off nokaslr tsc=reliable no_timer_check",
               "-chardev", "file,id=log,path=%s/kernel.log" % control, "-serial", "chardev:log",
               "-device", "virtio-serial-pci", "-chardev", "stdio,id=out,signal=off",
               "-device", "virtconsole,chardev=out"]
    command += shared("host", "/", "readonly=on") + shared("control", control)
    for n, folder in enumerate(options.share):
        command += shared("share%d" % n, folder)
    return command


def environment():
    return qemu()[1]
