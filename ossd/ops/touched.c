/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/ops/touched.h"

#include <stdlib.h>

#include "common/base/hmap.h"

#define CELLS (1u << 19)
#define GRAIN (16u << 10) /* bytes of a chunk that share a cell */
#define MANY  UINT32_MAX  /* more than one session */

/* Sessions are numbered consecutively, so the lower halves of live ones differ. 0 is no session. */
static uint32_t tag_of(uint64_t session)
{
	uint32_t tag = (uint32_t)session ^ (uint32_t)(session >> 32);

	return tag ? tag : MANY;
}

static uint32_t cell_of(const struct chunk_key *k, enum touched_how how, uint32_t grain)
{
	return (uint32_t)(hash_u64_2(chunk_key_hash(k), (uint64_t)how << 32 | grain) % CELLS);
}

/* Selects a cell that no chunk of a file uses. */
static uint32_t cell_of_whole(const struct chunk_key *k, enum touched_whole what)
{
	const struct chunk_key file = {k->chain, k->ino, k->gen, UINT64_MAX};

	return cell_of(&file, TOUCHED_WRITTEN, (uint32_t)what);
}

void touched_begin(struct touched *t)
{
	t->cells = calloc(CELLS, sizeof(*t->cells));
}

void touched_end(struct touched *t)
{
	free(t->cells);
	t->cells = NULL;
}

static void note(struct touched *t, uint32_t cell, uint64_t session)
{
	uint32_t tag = tag_of(session), *c = &t->cells[cell];

	*c = *c == 0 || *c == tag ? tag : MANY;
}

static bool noted_by_others(const struct touched *t, uint32_t cell, uint64_t session)
{
	uint32_t c = t->cells[cell];

	return c != 0 && (c == MANY || c != tag_of(session));
}

void touched_note(struct touched *t, const struct touched_bytes *b, enum touched_how how,
		  uint64_t session)
{
	if (!t->cells || b->len == 0)
		return;
	for (uint64_t g = b->off / GRAIN; g <= ((uint64_t)b->off + b->len - 1) / GRAIN; g++)
		note(t, cell_of(b->chunk, how, (uint32_t)g), session);
}

void touched_note_whole(struct touched *t, const struct chunk_key *k, enum touched_whole what,
			uint64_t session)
{
	if (t->cells)
		note(t, cell_of_whole(k, what), session);
}

bool touched_by_others(const struct touched *t, const struct touched_bytes *b, enum touched_how how,
		       uint64_t session)
{
	if (!t->cells)
		return true;
	for (uint64_t g = b->off / GRAIN; g <= ((uint64_t)b->off + b->len - 1) / GRAIN; g++)
		if (noted_by_others(t, cell_of(b->chunk, how, (uint32_t)g), session))
			return true;
	return false;
}

bool touched_whole_by_others(const struct touched *t, const struct chunk_key *k,
			     enum touched_whole what, uint64_t session)
{
	return !t->cells || noted_by_others(t, cell_of_whole(k, what), session);
}
