/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers by which the kernel names open files (fuse_file_info.fh). They are indexes of a table
 * that outlives the daemon (restart_state.h), so that the next daemon can restore each file. It
 * needs no record of open directories: it starts a new listing for an unknown number.
 *
 * Owner: the mount's loop.
 */
#ifndef LEAT_FUSE_RESTART_HANDLE_TABLE_H
#define LEAT_FUSE_RESTART_HANDLE_TABLE_H

#include "fuse/mount.h"

/* Allocates fs->handles. Returns 0 or -LE_NOMEM. */
int open_files_init(struct leatfs *fs) CHECK_RESULT;

/* Return the open file of a number. file_of asserts that there is one. file_find returns NULL if
 * the file is closed, which happens only to a request that the kernel has resent. Do not yield. */
struct mount_file *file_of(fuse_req_t req, const struct fuse_file_info *fi);
struct mount_file *file_find(const struct leatfs *fs, const struct fuse_file_info *fi);

/* Gives mf a number, in fi->fh, and records it for the next daemon. -LE_NFILE when the table is
 * full. Does not yield. */
int open_files_add(fuse_req_t req, struct mount_file *mf, struct fuse_file_info *fi) CHECK_RESULT;
/* Call when the kernel has the reply with that number. Does not yield. */
void open_files_answered(struct leatfs *fs, const struct fuse_file_info *fi);
/* Closes the file: releases its OFD locks and its number, frees mf and what it holds. Yields. */
void open_files_end(struct leatfs *fs, struct mount_file *mf);
/* Records that `owner` has taken a lock through this file, so that the next daemon can release it.
 * Does not yield. */
void open_files_lock(struct leatfs *fs, const struct mount_file *mf, uint64_t owner);

/* Restore what a previous daemon had open. resume: opens the recorded files at the client (as
 * client_options.resume; arg is the struct leatfs). resumed: call after the client was created;
 * restores lock owners. resume returns 0 or a status, and yields. */
int open_files_resume(void *arg, struct client *c) CHECK_RESULT;
void open_files_resumed(struct leatfs *fs);
/* Call when the kernel has resent the request with that number: closes what the previous daemon
 * opened for it, unless the kernel had the reply. Yields. */
void open_files_resent(struct leatfs *fs, uint64_t unique);
/* Drops the pages and attributes that the kernel cached under the previous daemon: its leases may
 * have ended. Run it as a separate fiber (arg is the struct leatfs), because it waits for page
 * locks that requests hold. Yields. */
void open_files_drop_pages(void *arg);

#endif
