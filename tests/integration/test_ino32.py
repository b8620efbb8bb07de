#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mount option ino32: programs with 32-bit types list directories and seek in them. A 32-bit
program does so if this machine can run one; and the values that all programs get fit in 32 bits."""
import ctypes
import os
import random
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/lib")
from cluster import BUILD, put, run_tests, unmount

CLUSTER = {"mounts": 1, "ossd": 1}
FILES = 3000
SYS_getdents64 = 217
libc = ctypes.CDLL(None, use_errno=True)

# Without a 32-bit library: opens a directory, calls getdents of i386 to the end, and prints the
# number of entries. A value that does not fit its types gives -EOVERFLOW.
PROGRAM = r"""
struct dirent32 { unsigned long ino, off; unsigned short len; char name[]; };
static int call(int n, int a, void *b, int c)
{
	int r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory");
	return r;
}
__attribute__((force_align_arg_pointer)) static void run(const char *path)
{
	static char buf[4096], text[16];
	int fd = call(5, (int)path, (void *)0200000, 0), n = 0, got, at = 15;

	while ((got = call(141, fd, buf, sizeof(buf))) > 0)
		for (int i = 0; i < got; i += ((struct dirent32 *)(buf + i))->len)
			n++;
	if (got < 0)
		call(1, 100, 0, 0);
	do
		text[--at] = (char)('0' + n % 10);
	while ((n /= 10) > 0);
	call(4, 1, text + at, 15 - at);
	call(1, 0, 0, 0);
}
__asm__(".globl _start\n_start: movl 8(%esp), %eax\n pushl %eax\n call run_it\n");
__attribute__((used)) void run_it(const char *path) { run(path); }
"""


def entries(fd):
    """All entries after the position of fd: (inode number, cookie, name)."""
    buf = ctypes.create_string_buffer(32768)
    found = []
    while True:
        n = libc.syscall(SYS_getdents64, fd, buf, len(buf))
        assert n >= 0, os.strerror(ctypes.get_errno())
        if n == 0:
            return found
        at = 0
        while at < n:
            ino, place, size = struct.unpack_from("<QqH", buf.raw, at)
            name = buf.raw[at + 19:at + size].split(b"\0")[0].decode()
            found.append((ino, place, name))
            at += size


def mount(c, options):
    at = c.dir + "/" + options.split("=")[0]
    os.makedirs(at, exist_ok=True)
    subprocess.run([BUILD + "/mount.leat", "leat", at, "-o", "conf=%s/conf,%s" % (c.dev, options)],
                   check=True, stdin=subprocess.DEVNULL, timeout=120)
    return at


def check_places(folder):
    names = sorted(["f%d" % i for i in range(FILES)] + [".", ".."])
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        told = entries(fd)
        assert sorted(name for _, _, name in told) == names
        for ino, place, name in told:
            assert 0 < ino < 1 << 32 and 0 < place < 1 << 31, (ino, place, name)
            if name not in (".", ".."):
                assert os.lstat(folder + "/" + name).st_ino == ino
        places = [place for _, place, _ in told]
        assert places == sorted(places)
        # After each cookie come the entries that came there first, in another open directory too.
        other = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for n in random.Random(5).sample(range(FILES), 40):
            if places.count(places[n]) > 1:
                continue
            for where in (fd, other):
                os.lseek(where, places[n], os.SEEK_SET)
                assert entries(where) == told[n + 1:], n
        os.close(other)
    finally:
        os.close(fd)


def run_32(c, folder):
    """The number of entries that a 32-bit program finds; None if this machine cannot run one."""
    source, program = c.dir + "/list.c", c.dir + "/list"
    put(source, PROGRAM.encode())
    flags = ["-m32", "-O1", "-w", "-static", "-nostdlib", "-fno-pic", "-fno-stack-protector"]
    if subprocess.run(["gcc"] + flags + ["-o", program, source], check=False,
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
        return None
    try:
        r = subprocess.run([program, folder], check=False, stdout=subprocess.PIPE, timeout=60)
    except OSError:
        return None
    return int(r.stdout) if r.returncode == 0 else "status %d" % r.returncode


def test_directories_of_a_mount_with_ino32(c):
    os.mkdir(c.mnt() + "/dir")
    for i in range(FILES):
        os.mknod("%s/dir/f%d" % (c.mnt(), i))
    at = mount(c, "ino32")
    try:
        check_places(at + "/dir")
        found = run_32(c, at + "/dir")
        print("a program of 32 bits: %s" % ("none runs here" if found is None else found))
        assert found in (None, FILES + 2), found
        os.unlink(at + "/dir/f7")
        assert len(os.listdir(at + "/dir")) == FILES - 1
    finally:
        unmount(at)


if __name__ == "__main__":
    run_tests(globals())
