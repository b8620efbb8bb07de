/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the first data of a file after a hole. Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_NEXT_H
#define LEAT_OSSD_CHUNK_CHUNK_NEXT_H

#include "ossd/chunk/chunk_store.h"

/* Returns in *ret_idx the first chunk of the file of *from, from that index to `last`, that has a
 * row or a name in the index, or is lost or uncertain (chunk_inventory.h). The chunk may be
 * unreadable. All changes that joined before the call are included. CHUNK_NONE: there is no such
 * chunk. Yields. */
#define CHUNK_NONE UINT64_MAX
int chunk_next(struct chunk_store *s, const struct chunk_key *from, uint64_t last,
	       uint64_t *ret_idx) CHECK_RESULT;

#endif
