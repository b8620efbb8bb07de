/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the names of chunks (rows N) with their records (rows K), to find records that were
 * lost since the start.
 *
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_NAMES_H
#define LEAT_OSSD_CHUNK_CHUNK_NAMES_H

#include "ossd/chunk/chunk_store.h"

/* Count and hash of the chunks that were read from rows K, for a comparison with their names. */
struct chunk_names {
	uint64_t n, hash;
};

static inline void chunk_names_add(struct chunk_names *c, const struct chunk_key *k)
{
	c->n++;
	c->hash ^= chunk_key_hash(k);
}

/* Finds chunks between first and last that have lost their row since the start. The rows are
 * restored, or replaced by rows that mark the chunk as lost. Then *ret_found is true, and the
 * caller must read the rows again. rows: the rows that the caller has read; NULL: every name is
 * checked. Yields. */
int chunk_find_lost_rows(struct chunk_store *s, const struct chunk_key *first,
			const struct chunk_key *last, const struct chunk_names *rows,
			bool *ret_found) CHECK_RESULT;

#endif
