/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper process of kernel_size.c: `mount.leat --probe-size MOUNTPOINT` makes the kernel send
 * GETATTR for an inode, and reports which size and owner the kernel has afterwards.
 *
 * Standard output is a socket. The helper reads one struct probe_file, writes one struct
 * probe_answer, then one byte when it is ready for the next file.
 */
#ifndef LEAT_FUSE_KERNEL_KERNEL_SIZE_HELPER_H
#define LEAT_FUSE_KERNEL_KERNEL_SIZE_HELPER_H

#include <stdint.h>

#define PROBE_SIZE "--probe-size"

struct probe_file {
	uint64_t node; /* the kernel's node id */
	/* Report as soon as i_size is not above that. UINT64_MAX: as soon as the kernel has the
	 * reply to its GETATTR. */
	uint64_t end;
};

/* What the kernel has afterwards. err: 0, or the errno with which the inode could not be opened;
 * the rest is not valid then. */
struct probe_answer {
	uint64_t size;
	uint32_t uid, gid, err;
};

/* The main function of the helper. Returns its exit status. */
int kernel_size_helper(char **argv);

#endif
