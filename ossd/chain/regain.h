/*
 * A chunk that the only SYNC member of a chain has lost (its row has vanished, or its record cannot
 * be read) is taken over from a member that it fills. Owned by the target's loop; resync.c calls.
 */
#ifndef LEAT_OSSD_REGAIN_H
#define LEAT_OSSD_REGAIN_H

#include "ossd/chain/care.h"

struct regain {
	struct chain *c;
	uint32_t target, epoch; /* who is filled */
	bool log_valid; /* what is not in the log has not changed since the target was SYNC */
};

/* What the target has, as *ret_req to be copied. 1: nothing that could be taken; what the target
 * would have, or know to be lost, if it had ever been committed is not missed any more. Yields. */
int regain_find(struct care *k, const struct regain *g, const struct chunk_key *key,
		struct oss_resync_chunk_req *ret_req) CHECK_RESULT;
/* Durable when it returns. Yields. */
int regain_take(struct care *k, const struct regain *g,
		const struct oss_resync_chunk_req *req) CHECK_RESULT;

#endif
