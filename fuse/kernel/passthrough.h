/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are staged on this node. The kernel reads them itself (FUSE passthrough), or, where it
 * cannot, this daemon reads them out of the staged copy. Owner: the mount's loop.
 *
 *   passthrough_begin before the client's open → the client opens the file → passthrough_open
 *   decides, and fills in the reply → passthrough_read for reads that still reach the daemon
 *   → passthrough_end at release
 *
 * The kernel decides per inode: while one open file of an inode passes through, every other one
 * must, with the same backing file, and none can start to while another is open otherwise. So the
 * open files of each inode are counted, if stage_dir is set.
 */
#ifndef LEAT_FUSE_KERNEL_PASSTHROUGH_H
#define LEAT_FUSE_KERNEL_PASSTHROUGH_H

#include "fuse/mount.h"

struct restart_state_pass;
struct passthrough;
struct pass_file;

/* Takes the parameters stage_dir and passthrough. Without stage_dir *ret_passthrough stays NULL.
 * Returns 0, -LE_NOMEM, or -LE_CONFIG, which has been logged. Does not yield. */
int passthrough_create(struct leatfs *fs, const char *stage_dir, const char *mode,
		       struct passthrough **ret_passthrough) CHECK_RESULT;
/* Call after the client was created (its cluster's uuid excludes copies of other clusters) and
 * before any open. p may be NULL. Returns 0 or a status. */
int passthrough_start(struct passthrough *p) CHECK_RESULT;
void passthrough_destroy(struct passthrough *p); /* NULL is fine */
/* Requests passthrough in the answer to INIT; p may be NULL. */
void passthrough_negotiate(struct passthrough *p, struct fuse_conn_info *conn);

/* Call before an open is sent to the metadata server. -LE_BUSY for a writer while the kernel reads
 * a staged copy of the file that is not sealed. *ret_file stays NULL for readers, and without
 * stage_dir. Does not yield. */
int passthrough_begin(struct leatfs *fs, uint64_t ino, uint32_t flags,
		      struct pass_file **ret_file) CHECK_RESULT;
/* Call when the file is open: decides how the kernel treats it, and fills that in fi. *file: from
 * passthrough_begin; if that is NULL, it is made here. Returns 0, -LE_BUSY as above, or -LE_NOMEM.
 * Yields. */
int passthrough_open(fuse_req_t req, const struct attr *attr, struct fuse_file_info *fi,
		     struct pass_file **file) CHECK_RESULT;
/* Answers a READ out of the staged copy. Returns false if no copy can be read: the request has then
 * not been answered. f may be NULL. Yields. */
bool passthrough_read(fuse_req_t req, struct pass_file *f, size_t size, off_t off);
/* Call when the file is closed, or could not be opened. NULL is fine. */
void passthrough_end(struct pass_file *f);

/* Fills in what the next daemon needs of an open file; f may be NULL. */
void passthrough_note(const struct pass_file *f, struct restart_state_pass *ret_kept);
/* Restores an open file of the previous daemon. The kernel continues to read its staged file, which
 * is no longer protected from eviction (it stays readable); reads that reach the daemon are sent to
 * the servers. *ret_file stays NULL without stage_dir. */
int passthrough_resume(struct leatfs *fs, uint64_t ino, uint32_t flags,
		       const struct restart_state_pass *restart,
		       struct pass_file **ret_file) CHECK_RESULT;
/* Call when this mount or another changes the content of the file: open files read from the servers
 * from now on. */
void passthrough_changed(struct leatfs *fs, uint64_t ino);
/* Call before a request of this mount changes the content. -LE_BUSY while the kernel reads a copy
 * that is not sealed; otherwise like passthrough_changed(), and 0. */
int passthrough_may_change(struct leatfs *fs, uint64_t ino) CHECK_RESULT;

/* Writes members for the JSON of leat.status, without braces. */
void passthrough_status(const struct leatfs *fs, char *buf, size_t size);

#endif
