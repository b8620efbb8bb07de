/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/layout/block_sums.h"
#include "client/ll.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/proto/types.h"

#define BLOCK     LEAT_BLOCK_SIZE_MIN
#define PARTS_MAX 48u
#define PART_MAX  6000u

void sums_keep(struct sums_past *p, const struct sums_state *now)
{
	struct sums_state *s = &p->was[p->n];

	ASSERT(p->n < SUMS_PAST_MAX);
	s->data = malloc(now->size > 0 ? now->size : 1);
	ASSERT(s->data != NULL);
	memcpy(s->data, now->data, now->size);
	s->size = now->size;
	p->n++;
}

void sums_forget(struct sums_past *p)
{
	while (p->n > 0)
		free(p->was[--p->n].data);
}

/* Returns the length from the start of the block that has the checksum (a block may end where its
 * zeros begin); 0: none. */
static uint64_t len_with(const struct sums_state *s, uint64_t block, uint64_t sum)
{
	uint64_t at = block * BLOCK;
	uint64_t len = at >= s->size ? 0 : s->size - at < BLOCK ? s->size - at : BLOCK;

	while (len > 0 && checksum64(s->data + at, len) != sum)
		len = s->data[at + len - 1] == 0 ? len - 1 : 0;
	return len;
}

/* Whether the part read of the block can be a part of the block in state s, with that checksum. */
static bool is_of(const struct sums_state *s, uint64_t block, uint64_t sum,
		  const struct ll_part *part)
{
	uint64_t lo = block * BLOCK, hi = lo + BLOCK, end = part->off + (uint64_t)part->done;

	lo = lo > part->off ? lo : part->off;
	hi = hi < end ? hi : end;
	return hi <= block * BLOCK + len_with(s, block, sum) &&
	       memcmp(s->data + lo, (const uint8_t *)part->buf + (lo - part->off), hi - lo) == 0;
}

static bool holds(const struct sums_file *f, uint64_t block, uint64_t sum,
		  const struct ll_part *part)
{
	bool found = is_of(&f->now, block, sum, part);

	for (uint32_t i = f->past->n; i > 0 && !found; i--)
		found = is_of(&f->past->was[i - 1], block, sum, part);
	return found;
}

uint64_t sums_wrong_block(const struct sums_file *f, const struct ll_part *part)
{
	const struct block_sums *s = part->sums;

	for (uint64_t i = s->first; i * BLOCK < part->off + (uint64_t)part->done; i++) {
		uint64_t sum = s->sum[i - s->first];

		if (block_sums_match(s, i, sum) && !holds(f, i, sum, part))
			return i;
	}
	return SUMS_HOLD;
}

/* Reads all parts in one call. */
static int64_t read_parts(struct client *c, const struct sums_file *f, struct ll_part *parts,
			  uint32_t n, uint64_t *ret_wrong)
{
	struct block_sums sums[PARTS_MAX];
	uint64_t sum[PARTS_MAX][SUMS_FILE_MAX / BLOCK + 2];
	int64_t done = 0;

	for (uint32_t i = 0; i < n; i++) {
		sums[i] = (struct block_sums){BLOCK, ARRAY_SIZE(sum[i]), parts[i].off / BLOCK,
					      sum[i]};
		parts[i].sums = &sums[i];
	}
	ll_pread_batch(c, parts, n);
	for (uint32_t i = 0; i < n && done >= 0; i++) {
		done = parts[i].done < 0 ? parts[i].done : done + parts[i].done;
		if (parts[i].done > 0 && *ret_wrong == SUMS_HOLD)
			*ret_wrong = sums_wrong_block(f, &parts[i]);
	}
	return done;
}

static void compare(const struct sums_want *w, const struct sums_file *f, uint64_t len,
		    uint64_t wrong_block, char why[SUMS_WHY_SIZE])
{
	uint64_t at = 0;

	while (at < len && w->to[at] == f->now.data[w->off + at])
		at++;
	why[0] = '\0';
	if (at < len)
		snprintf(why, SUMS_WHY_SIZE, "wrong byte at %llu: %02x, must be %02x",
			 (unsigned long long)(w->off + at), w->to[at], f->now.data[w->off + at]);
	else if (wrong_block != SUMS_HOLD)
		snprintf(why, SUMS_WHY_SIZE, "told of block %llu the checksum of other bytes",
			 (unsigned long long)wrong_block);
}

int64_t sums_read(const struct sums_want *w, const struct sums_file *f, char ret_why[SUMS_WHY_SIZE])
{
	struct ll_part parts[PARTS_MAX];
	uint64_t at = 0, wrong = SUMS_HOLD;
	int64_t done = 0;

	while (at < w->len) {
		uint32_t n = 0;
		int64_t got;

		for (; n < PARTS_MAX && at < w->len; n++) {
			uint64_t left = w->len - at, take = left;

			if (w->cut != NULL)
				take = 1 + sim_random_below(w->cut, PART_MAX);
			take = take < left ? take : left;
			parts[n] = (struct ll_part){w->file,        w->to + at, w->off + at,
						    (uint32_t)take, 0,          NULL};
			at += take;
		}
		got = read_parts(w->client, f, parts, n, &wrong);
		if (got < 0)
			return got;
		done += got;
	}
	compare(w, f, (uint64_t)done, wrong, ret_why);
	return done;
}
