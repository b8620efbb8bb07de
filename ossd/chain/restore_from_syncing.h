/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restores a chunk that the only SYNC member of a chain has lost (its row is lost, or its record
 * cannot be read) from a member that it fills. Owned by the target's loop. Called by resync.c.
 */
#ifndef LEAT_OSSD_CHAIN_RESTORE_FROM_SYNCING_H
#define LEAT_OSSD_CHAIN_RESTORE_FROM_SYNCING_H

#include "ossd/chain/maintenance.h"

struct restore {
	struct chain *c;
	uint32_t target, epoch; /* the member being filled */
	bool log_valid; /* chunks not in the log have not changed since the target was SYNC */
};

/* Finds the target's version of the chunk, and returns it as *ret_req for restore_take. Returns 1
 * if there is none to restore. A chunk that the target would have, or have marked as lost, had it
 * been committed, then no longer counts as lost here. Yields. */
int restore_find(struct maintenance *k, const struct restore *g, const struct chunk_key *key,
		struct oss_resync_chunk_req *ret_req) CHECK_RESULT;
/* Copies the chunk from the target. Durable on return. Yields. */
int restore_take(struct maintenance *k, const struct restore *g,
		const struct oss_resync_chunk_req *req) CHECK_RESULT;

#endif
