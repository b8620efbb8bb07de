/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are staged on this node. The kernel reads them itself (FUSE passthrough), or, where it
 * cannot, this daemon reads them out of the staged copy. These functions are for kernel/;
 * kernel_pages.h declares those for the other rooms. Owner: the mount's loop.
 *
 * The kernel decides per inode: while one open file of an inode passes through, every other one
 * must, with the same backing file, and none can start to while another is open otherwise. So the
 * open files of each inode are counted, if stage_dir is set.
 */
#ifndef LEAT_FUSE_KERNEL_PASSTHROUGH_H
#define LEAT_FUSE_KERNEL_PASSTHROUGH_H

#include "fuse/mount.h"

struct restart_state_pass;

/* Takes the parameters stage_dir and passthrough. Without stage_dir *ret_passthrough stays NULL.
 * Returns 0, -LE_NOMEM, or -LE_CONFIG, which has been logged. Does not yield. */
int passthrough_create(struct leatfs *fs, const char *stage_dir, const char *mode,
		       struct passthrough **ret_passthrough) CHECK_RESULT;
/* Call after the client was created (its cluster's uuid excludes copies of other clusters) and
 * before any open. p may be NULL. Returns 0 or a status. */
int passthrough_start(struct passthrough *p) CHECK_RESULT;
void passthrough_destroy(struct passthrough *p); /* NULL is fine */

/* Restores an open file of the previous daemon. The kernel continues to read its staged file, which
 * is no longer protected from eviction (it stays readable); reads that reach the daemon are sent to
 * the servers. *ret_file stays NULL without stage_dir. */
int passthrough_resume(struct leatfs *fs, uint64_t ino, uint32_t flags,
		       const struct restart_state_pass *restart,
		       struct pass_file **ret_file) CHECK_RESULT;
/* Call when this mount or another changes the content of the file: open files read from the servers
 * from now on. */
void passthrough_changed(struct leatfs *fs, uint64_t ino);

#endif
