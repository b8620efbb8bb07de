/* SPDX-License-Identifier: Apache-2.0 */
#include "client/layout/block_sums.h"

#include <stddef.h>


/* NOTHING: no byte of the block was read yet. NOT_SAME: the parts had different checksums, or none.
 * A block never matches if its true checksum equals one of these values. */
#define NOTHING  UINT64_MAX
#define NOT_SAME 0u

/* Returns the entry of block i of the file, or NULL if it is outside the array. */
static uint64_t *sum_of(const struct block_sums *s, uint64_t i)
{
	return i >= s->first && i - s->first < s->n ? &s->sum[i - s->first] : NULL;
}

static void note_one(struct block_sums *s, uint64_t i, uint64_t sum)
{
	uint64_t *p = sum_of(s, i);

	if (p != NULL)
		*p = *p == NOTHING || *p == sum ? sum : NOT_SAME;
}

void block_sums_clear(struct block_sums *s, uint64_t off, uint64_t len)
{
	for (uint64_t i = s != NULL ? off / s->block : 0; s != NULL && i * s->block < off + len;
	     i++) {
		uint64_t *p = sum_of(s, i);

		if (p != NULL)
			*p = NOTHING;
	}
}

void block_sums_note(struct block_sums *s, uint32_t block, uint64_t off, uint64_t len, uint64_t sum)
{
	if (s == NULL || len == 0)
		return;
	if (block != s->block || off / block != (off + len - 1) / block || sum == NOTHING)
		sum = NOT_SAME;
	for (uint64_t i = off / s->block; i * s->block < off + len; i++)
		note_one(s, i, sum);
}

void block_sums_copy(struct block_sums *s, const struct block_sums *from, uint64_t off,
		     uint64_t len)
{
	if (s == NULL)
		return;
	for (uint64_t i = off / s->block; i * s->block < off + len; i++) {
		const uint64_t *p = from->block == s->block ? sum_of(from, i) : NULL;

		note_one(s, i, p != NULL && *p != NOTHING ? *p : NOT_SAME);
	}
}

bool block_sums_match(const struct block_sums *s, uint64_t block, uint64_t sum)
{
	const uint64_t *p = sum_of(s, block);

	return p != NULL && *p == sum && sum != NOTHING && sum != NOT_SAME;
}
