/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying a chunk into another data generation or another file. The bytes do not pass through this
 * server: the head of the chunk's chain writes them to the head of the other chain (oss_copy). Used
 * by replica_convert.c and ops/copy.c. Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_CHUNK_COPY_H
#define LEAT_MDS_FILE_CHUNK_COPY_H

#include "mds/mds.h"

/* How long a write that an object server sends for a copy may stay in flight after the request for
 * the copy has failed. */
#define COPY_LINGER_MS 6000u

struct chunk_copy {
	struct ino ino, to_ino;
	const struct layout *from, *to;
	uint32_t at;     /* position in the stripe of `from`, of the chain that has the chunk */
	uint64_t idx;    /* the chunk; COPY_NONE: copy nothing, only find the first one */
	uint64_t to_idx; /* its index in the copy */
};

/* Waits up to oss_timeout_ms for a connection to the head of the chain, then sends the request
 * once. rep->next: the next chunk that the chain has. Returns 0; -LE_TARGET_DOWN if no request was
 * sent; -LE_GIVEN_UP if one of the chains was given up; -LE_BUSY or another status that may be
 * retried (status_retry); -LE_CORRUPT_STORE or -LE_NOMEM. Yields. */
int chunk_copy(struct mds *m, const struct chunk_copy *cc, struct oss_copy_rep *rep) CHECK_RESULT;

#endif
