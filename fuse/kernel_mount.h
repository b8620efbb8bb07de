/*
 * Mounting as the kernel sees it: the device, mount(2), remounting, unmounting. Called before the
 * loop runs or from it; nothing here waits for a request of ours.
 */
#ifndef LEAT_FUSE_KERNEL_MOUNT_H
#define LEAT_FUSE_KERNEL_MOUNT_H

#include <stdbool.h>

#include "common/base/status.h"

struct mount_options;

/* One word of -o that is a flag of mount(2): applied to *flags, and noted in *said. False: it is
 * none. */
bool kernel_flag_word(const char *word, unsigned long *flags, unsigned long *said);

/* Mounts o->source, under that name, at o->mountpoint. ret_fd: the open device, which serves the
 * mount; it is opened if that is -1. The error is an errno, as what mount(2) says is what helps. */
int kernel_mount(const struct mount_options *o, int *ret_fd) CHECK_RESULT;
/* Gives the Leat mount at o->mountpoint o->ms_flags; it must be one. Set-user-id programs and
 * devices stay as they are there, unless a word of -o tells of them. An errno, too. */
int kernel_remount(const struct mount_options *o) CHECK_RESULT;
/* Unless fd says that it is unmounted already. */
void kernel_unmount(const char *mountpoint, int fd);

/* The device number of the topmost mount there, and whether it is one of Leat. */
struct kernel_mount_info {
	unsigned dev_major, dev_minor;
	bool is_leat;
	unsigned long flags; /* MS_NOSUID, MS_NODEV */
};
bool kernel_mount_find(const char *mountpoint, struct kernel_mount_info *ret_info);

#endif
