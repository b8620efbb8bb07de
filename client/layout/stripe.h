/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunk of a file has which bytes. Pure functions. */
#ifndef LEAT_CLIENT_LAYOUT_STRIPE_H
#define LEAT_CLIENT_LAYOUT_STRIPE_H

#include <stdbool.h>
#include <stdint.h>

/* A part of a file range that lies in one chunk. */
struct stripe_part {
	uint64_t idx; /* number of the chunk in the file */
	uint32_t off; /* offset in the chunk */
	uint32_t len;
	uint64_t at; /* offset in the range that was split */
};

/* Returns the first part of [off, off + len): up to its end or the end of the chunk. */
static inline struct stripe_part stripe_first(uint32_t chunk_size, uint64_t off, uint64_t len)
{
	uint32_t in_chunk = (uint32_t)(off % chunk_size);
	uint32_t space = chunk_size - in_chunk;

	return (struct stripe_part){off / chunk_size, in_chunk, len < space ? (uint32_t)len : space,
				    0};
}

/* Splits [off, off + len) at chunk boundaries into at most max parts. Returns the number of parts;
 * *ret_len is the number of bytes that they cover. */
uint32_t stripe_cut(uint32_t chunk_size, uint64_t off, uint64_t len, struct stripe_part *ret_parts,
		    uint32_t max, uint64_t *ret_len);

/* Returns true if [a, a + a_len) and [b, b + b_len) share a byte. An empty range shares none. */
static inline bool range_overlaps(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
	return a_len > 0 && b_len > 0 && a < b + b_len && b < a + a_len;
}

#endif
