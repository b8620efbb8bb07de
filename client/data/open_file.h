/* SPDX-License-Identifier: Apache-2.0 */
/* An open file (struct ll_file). Owned by the client's loop. */
#ifndef LEAT_CLIENT_DATA_OPEN_FILE_H
#define LEAT_CLIENT_DATA_OPEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/data/readahead.h"
#include "common/base/list.h"

struct client;
struct cred;
struct inode_io;
struct inode;
struct mds_close_req;

#define LL_FILE_MAGIC 0x4c4c464cu /* LLFL */

/* An open file. Its bools are independent: the first five are the flags of open(2), the others each
 * tell one thing that has happened to the file, which its close reports. */
struct ll_file {
	uint32_t magic;
	struct client *c;
	struct inode *inode;
	struct inode_io *d;
	uint32_t flags;   /* of open(2) */
	uint32_t counted; /* The flags as the MDS counts this open: without O_APPEND once the file
	                   * was written elsewhere (append.c). */
	bool can_read, can_write, sync, append, direct;
	bool wrote;     /* written through this file */
	bool was_read;  /* read through this file */
	bool expected;  /* a read was expected: ra_closed is called */
	bool new_atime; /* the close reports a new access time */
	bool delegated; /* counted in inode_io.n_delegated */
	/* Its writes remove set-id bits; otherwise the caller does that. */
	bool kills_suid;
	uint32_t err_seen; /* inode_io.err_gen up to which errors were reported */
	struct ra_state ra;
	struct mds_close_req *close_req; /* while the close is in flight */
	struct list link;                /* in inode_io.closes, or in client.free_files */
};

/* Creates a file for an inode in use, and takes over the caller's reference. Sets the credentials
 * for renewals of capabilities. NULL: no memory. Does not yield. */
struct ll_file *file_make(struct client *c, struct inode *i, struct inode_io *d,
			  const struct cred *cred, uint32_t flags);
/* Frees the file, but keeps its reference to the inode. Does not yield. */
void file_free(struct ll_file *f);

/* Adds `by` to the counter of opens with these flags of open(2). Does not yield. */
void open_count_add(struct inode_io *d, uint32_t flags, int by);

#endif
