/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of mounting: the device, mount(2), remounting, unmounting. Called before the
 * loop runs or from it; nothing here waits for a request to the daemon. Nothing yields.
 */
#ifndef LEAT_FUSE_KERNEL_KERNEL_MOUNT_H
#define LEAT_FUSE_KERNEL_KERNEL_MOUNT_H

#include <stdbool.h>

#include "common/base/status.h"

struct mount_options;

/* Applies one word of -o that is a flag of mount(2) to *flags, and adds the flag to *said.
 * allow_suid and allow_dev change nothing if an earlier word has said that flag. Returns false if
 * the word is no such flag, and changes nothing then. */
bool kernel_flag_word(const char *word, unsigned long *flags, unsigned long *said);

/* Mounts o->source, under that name, at o->mountpoint. *ret_fd: the device that serves the mount;
 * -1: it is opened here. Returns 0; or an errno of open(2) or mount(2), and closes the device. */
int kernel_mount(const struct mount_options *o, int *ret_fd) CHECK_RESULT;
/* Gives the Leat mount at o->mountpoint the flags o->ms_flags. nosuid and nodev stay as they are at
 * the mount, unless a word of -o set them. Returns 0 or an errno; EINVAL: no Leat file system is
 * mounted there. */
int kernel_remount(const struct mount_options *o) CHECK_RESULT;
/* Unmounts (MNT_DETACH), unless the device fd reports that the mount has ended. Logs a failure. */
void kernel_unmount(const char *mountpoint, int fd);

/* The topmost mount at a path. */
struct kernel_mount_info {
	unsigned dev_major, dev_minor;
	bool is_leat;
	unsigned long flags; /* MS_NOSUID, MS_NODEV */
};
/* Returns false if nothing is mounted at exactly that path. */
bool kernel_mount_find(const char *mountpoint, struct kernel_mount_info *ret_info);

#endif
