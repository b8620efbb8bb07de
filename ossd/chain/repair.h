/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces damaged blocks of a chunk by those of other members. Owned by the target's loop.
 */
#ifndef LEAT_OSSD_CHAIN_REPAIR_H
#define LEAT_OSSD_CHAIN_REPAIR_H

#include "ossd/chain/maintenance.h"

/* Reads all blocks of the chunk. Fetches damaged ones from other SYNC members and replaces them
 * under the same version. Returns 0: all are good now (or there is no such chunk). -LE_CORRUPT:
 * some could not be repaired. -LE_BUSY: another fiber has just repaired the chunk. Yields. */
struct repair {
	uint32_t found, repaired;
	uint64_t bytes; /* bytes read */
	/* The record cannot be read here, and all other SYNC members, or all other members of the
	 * chain, have answered that they do not have it either. */
	bool nobody, nowhere;
};

int repair_chunk(struct maintenance *k, const struct chunk_key *key,
		 struct repair *ret) CHECK_RESULT;

#endif
