/*
 * The free map of a data area in units of 4 KiB: a bitmap (bit set: free) with a summary
 * bitmap above it (bit set: the word has a free unit). Kept in memory only, rebuilt from the
 * index at start. Owned by the store's loop; nothing yields.
 *
 * Space is counted twice: single units, and whole aligned groups of four (the common block).
 * Extents of four units or more start at such a group; smaller ones look for a broken group
 * first, so that the tails of files do not break up the space that whole blocks need.
 */
#ifndef LEAT_OSSD_EXTENT_ALLOC_H
#define LEAT_OSSD_EXTENT_ALLOC_H

#include <stdint.h>

#include "common/base/status.h"

#define UNIT_SIZE 4096u

struct extent_alloc {
	uint64_t *map, *summary;
	uint64_t n_units; /* of the whole area */
	uint64_t limit;   /* units at and behind it cannot be had yet (the file ends there) */
	uint64_t n_words;
	uint64_t free; /* units below limit */
	uint64_t free_quads;
	uint64_t high; /* one behind the highest unit ever taken */
	uint64_t cursor, small_cursor;
};

/* All of [0, limit) free. -LE_NOMEM */
int extent_alloc_init(struct extent_alloc *a, uint64_t n_units, uint64_t limit) CHECK_RESULT;
void extent_alloc_fini(struct extent_alloc *a);
/* The file has grown: [old limit, limit) is free now. */
void extent_alloc_grow(struct extent_alloc *a, uint64_t limit);

/* Up to want contiguous units, at least min (0 < min <= want): how many, or 0. */
uint32_t extent_get(struct extent_alloc *a, uint32_t want, uint32_t min, uint64_t *ret_start);
/* Gives back units that are in use. */
void extent_put(struct extent_alloc *a, uint64_t start, uint64_t n);
/* Marks units as used; -LE_CORRUPT_STORE when one lies outside or is used already (then all
 * that are inside are marked all the same). */
int extent_take(struct extent_alloc *a, uint64_t start, uint64_t n) CHECK_RESULT;
/* Units that whole blocks may count on, including what the file can still grow. */
uint64_t extent_usable(const struct extent_alloc *a);

#endif
