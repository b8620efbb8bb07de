/*
 * Files that are staged on this node, served by the kernel itself (FUSE passthrough) or, where that
 * cannot be, by this daemon out of the staged copy. Owner: the mount's loop.
 *
 *   passthrough_begin before the client's open → it opens → passthrough_open decides and fills in
 *   the reply → passthrough_read for reads that come here all the same → passthrough_end at release
 *
 * The kernel decides per inode: while one open file of it passes through, every other has to, by
 * the same backing file, and none can start to while another is open otherwise. So the inodes that
 * are open here are counted, and only with stage_dir set.
 */
#ifndef LEAT_FUSE_PASSTHROUGH_H
#define LEAT_FUSE_PASSTHROUGH_H

#include "fuse/mount.h"

struct kept_pass;
struct passthrough;
struct pass_file;

/* With the parameters stage_dir and passthrough: *ret stays NULL without stage_dir. */
int passthrough_create(struct leatfs *fs, const char *stage_dir, const char *mode,
		       struct passthrough **ret_passthrough) CHECK_RESULT;
/* Before anything is opened. Needs the client, so that copies of another cluster are told from this
 * one's. NULL is fine. */
int passthrough_start(struct passthrough *p) CHECK_RESULT;
void passthrough_destroy(struct passthrough *p); /* NULL is fine */
/* What the kernel is asked for when the mount begins; p may be NULL. */
void passthrough_negotiate(struct passthrough *p, struct fuse_conn_info *conn);

/* Of an open for writing, before anything happens to the file: -LE_BUSY while it passes through.
 * ret_file NULL for readers, or without stage_dir. */
int passthrough_begin(struct leatfs *fs, uint64_t ino, uint32_t flags,
		      struct pass_file **ret_file) CHECK_RESULT;
/* The file is open: how the kernel is to treat it, in fi. *file: of passthrough_begin, or NULL.
 * -LE_BUSY as above. Yields. */
int passthrough_open(fuse_req_t req, const struct attr *attr, struct fuse_file_info *fi,
		     struct pass_file **file) CHECK_RESULT;
/* Answers out of the staged copy: true. Yields. */
bool passthrough_read(fuse_req_t req, struct pass_file *f, size_t size, off_t off);
/* The file is closed, or was not opened in the end. NULL is fine. */
void passthrough_end(struct pass_file *f);

/* What the next daemon has to know of it; f may be NULL. */
void passthrough_note(const struct pass_file *f, struct kept_pass *ret_kept);
/* A file that a former daemon opened. The kernel goes on with the staged file that it reads, which
 * is not held against eviction any more (it stays readable); what comes to the daemon is read from
 * the servers. *ret_file NULL without stage_dir. */
int passthrough_resume(struct leatfs *fs, uint64_t ino, uint32_t flags,
		       const struct kept_pass *kept, struct pass_file **ret_file) CHECK_RESULT;
/* Its content changes, here or elsewhere: who has it open reads from the servers from now on. */
void passthrough_changed(struct leatfs *fs, uint64_t ino);
/* The same by a request of this mount, before it is done: -LE_BUSY while the kernel reads it
 * without us. */
int passthrough_may_change(struct leatfs *fs, uint64_t ino) CHECK_RESULT;

/* JSON members for `leat status`, without braces. */
void passthrough_status(const struct leatfs *fs, char *buf, size_t size);

#endif
