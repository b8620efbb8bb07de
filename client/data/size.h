/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The true size and times of a file, and whether it was truncated.
 *
 * The size in the inode record is authoritative only for a settled file. While a file has writers,
 * the size is the larger of the record's size and the end of the data that its chains have stored.
 * This module queries the chains and the MDS, unless a lease makes the client's cached state
 * sufficient.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_SIZE_H
#define LEAT_CLIENT_DATA_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cache/inode_cache.h"
#include "common/base/status.h"
#include "common/proto/wire.h"

struct attr;
struct client;
struct cred;

#define STAT_WIDTH 16u

/* Queries the chains for size, times and space of a file with writers, unless this client is the
 * only one. attr: the attributes that the MDS has just sent. Repeats the query if the file is
 * truncated meanwhile. Returns 0 or an error. Yields. */
int size_settle(struct client *c, struct inode *i, const struct attr *attr) CHECK_RESULT;

/* What all chains have stored of a file. size, used and covered in bytes; covered: the part of used
 * that lies in preallocated ranges (common/proto/ranges.h). mtime_ns: of the newest write. */
struct size_stored {
	uint64_t size, used, covered;
	int64_t mtime_ns;
};

/* Queries all chains of the file, concurrently. prepared: encoded preallocated ranges, may be
 * empty. Returns 0 or the first error. Yields. */
int size_stat_chains(struct inode_io *d, struct bytes preallocated,
		     struct size_stored *ret_stored) CHECK_RESULT;

/* Returns true if this client has written to the file and no server has confirmed the time of the
 * write: mtime would change again. */
static inline bool size_times_are_open(const struct inode *i)
{
	return i->data != NULL && i->data->mtime_guess_ns != 0;
}

/* Waits until a server has confirmed the time of every write. Returns 0 or -LE_INTR. Yields. */
int size_wait_times(struct inode *i) CHECK_RESULT;

/* Requests the attributes from the MDS into the cache. Returns 0 or an error. Yields. */
int size_request_attr(struct client *c, const struct cred *cred, struct inode *i) CHECK_RESULT;

/* Whether an open file was truncated since its attributes had the counter `n_truncations`. Under a
 * lease, also a shared one, the client determines that without a request. */
enum trunc_state {
	TRUNC_NONE,
	TRUNC_MAYBE, /* truncated, or a hole was punched */
	/* A truncation is active: what the chains have stored is meaningless. */
	TRUNC_ACTIVE,
};

/* Sets *ret_state. Requests the attributes if the client has no lease. Returns 0 or an error.
 * Yields. */
int size_truncated_since(struct client *c, struct inode *i, uint32_t n_truncations,
		 enum trunc_state *ret_state) CHECK_RESULT;

/* The back-off while a truncation is active; starts as zeros. */
struct trunc_patience {
	uint64_t wait_us, until_us;
};

/* Waits for the next try, longer each time. Returns 0; -LE_IO when the time of one operation is
 * used up; -LE_INTR. Yields. */
int size_wait_untruncated(const struct client *c, struct trunc_patience *p) CHECK_RESULT;
/* Returns true if the client can exclude, without a request, that the file was truncated since
 * `n_truncations`. Does not yield. */
bool size_known_untruncated(struct client *c, struct inode *i, uint32_t n_truncations);
/* Ensures that mode, owner, flags and project in the cache are valid. Requests them if the client
 * has no lease. Returns 0 or an error. Yields. */
int size_refresh_rights(struct client *c, const struct cred *cred, struct inode *i) CHECK_RESULT;
/* Returns the settled attributes. Requests them if the client has no lease; with one, ATTR_LEASED
 * is set. Returns 0 or an error. Yields. */
int size_get_attr(struct client *c, const struct cred *cred, struct inode *i,
	    struct attr *ret_attr) CHECK_RESULT;
/* Returns the settled attributes from the cache, after the chains were queried if needed. Does not
 * yield. */
void size_settled_attr(const struct client *c, const struct inode *i, struct attr *ret_attr);

/* Returns true if the client has a valid shared lease: several clients have the file open, this one
 * among them, and the cached attributes are from the MDS. Size, blocks and mtime are then what the
 * chains report, if that is more. From time to time starts a background query whether the file is
 * still shared. Does not yield. */
bool lease_shared(struct client *c, struct inode *i);

#endif
