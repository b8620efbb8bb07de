/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the chains of a file store: size, bytes and time of the newest write. Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_CHAIN_STAT_H
#define LEAT_MDS_FILE_CHAIN_STAT_H

#include "mds/mds.h"

struct ranges;

struct data_ends {
	uint64_t size, used, n_chunks;
	uint64_t covered; /* bytes of the preallocated ranges that are stored */
	int64_t mtime_ns;
};

/* Queries all chains of the layout. prepared: the preallocated ranges of the file, for
 * `covered`; NULL if the caller does not need that. Returns 0, -LE_TARGET_DOWN at the deadline,
 * or the error of the first chain that failed. Yields. */
int data_stat(struct mds *m, struct ino ino, const struct layout *l,
	      const struct ranges *preallocated, uint64_t deadline_us,
	      struct data_ends *ret_ends) CHECK_RESULT;
/* A signed capability to read and write the data generation of the inode, for the session. Does not
 * yield. */
struct cap data_cap(struct mds *m, struct ino ino, uint32_t gen, uint64_t session);
/* Like data_cap, for this server itself (SESSION_MDS). */
struct cap data_own_cap(struct mds *m, struct ino ino, uint32_t gen);

#endif
