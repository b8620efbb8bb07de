/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The free map of a data area in units of 4 KiB: a bitmap (bit set: free) with a summary bitmap
 * above it (bit set: the word has a free unit). Kept in memory only, rebuilt from the index at
 * start. Owned by the store's loop. Nothing here yields.
 *
 * Free space is counted twice: in single units, and in whole aligned groups of four (the common
 * block). Extents of four units or more start at such a group. Smaller ones are taken from a
 * broken group if possible, so that the tails of files do not break up the space that whole blocks
 * need.
 */
#ifndef LEAT_OSSD_CHUNK_EXTENT_ALLOC_H
#define LEAT_OSSD_CHUNK_EXTENT_ALLOC_H

#include <stdint.h>

#include "common/base/status.h"

#define UNIT_SIZE 4096u

struct extent_alloc {
	uint64_t *map, *summary;
	uint64_t n_units; /* of the whole area */
	uint64_t limit;   /* units from here on are not usable yet (the file ends here) */
	uint64_t n_words;
	uint64_t free; /* units below limit */
	uint64_t free_quads;
	uint64_t high; /* one above the highest unit ever taken */
	uint64_t cursor, small_cursor;
};

/* Makes all of [0, limit) free. Returns 0 or -LE_NOMEM. */
int extent_alloc_init(struct extent_alloc *a, uint64_t n_units, uint64_t limit) CHECK_RESULT;
void extent_alloc_fini(struct extent_alloc *a);
/* Call when the file has grown: frees [old limit, limit). */
void extent_alloc_grow(struct extent_alloc *a, uint64_t limit);

/* Takes up to want contiguous units, at least min (0 < min <= want). Returns their number, or 0. */
uint32_t extent_get(struct extent_alloc *a, uint32_t want, uint32_t min, uint64_t *ret_start);
/* Frees units that are in use. */
void extent_put(struct extent_alloc *a, uint64_t start, uint64_t n);
/* Marks units as used. Returns -LE_CORRUPT_STORE if any lies outside or is used already; all units
 * inside are still marked. */
int extent_take(struct extent_alloc *a, uint64_t start, uint64_t n) CHECK_RESULT;
/* Returns the units available to whole blocks, including those by which the file can still grow. */
uint64_t extent_usable(const struct extent_alloc *a);

#endif
