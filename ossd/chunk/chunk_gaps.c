/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/chunk_gaps.h"

#include <string.h>

#include "common/proto/wire.h"

/* Appends a gap after all others. */
static void add(struct chunk_gaps *g, uint32_t off, uint32_t end)
{
	if (off >= end)
		return;
	if (g->n > 0 && g->at[g->n - 1].end == off) {
		g->at[g->n - 1].end = end;
		return;
	}
	if (g->n == CHUNK_GAPS_MAX)
		memmove(g->at, g->at + 1, --g->n * sizeof(g->at[0]));
	g->at[g->n++] = (struct chunk_gap){off, end};
}

void gaps_written(struct chunk_gaps *g, uint32_t old_end, uint32_t off, uint32_t end)
{
	struct chunk_gaps was = *g;

	g->n = 0;
	for (uint32_t i = 0; i < was.n; i++) {
		const struct chunk_gap *o = &was.at[i];

		add(g, o->off, o->end < off ? o->end : off);
		add(g, o->off > end ? o->off : end, o->end);
	}
	add(g, old_end, off);
}

void gaps_cut(struct chunk_gaps *g, uint32_t end)
{
	while (g->n > 0 && g->at[g->n - 1].off >= end)
		g->n--;
	if (g->n > 0 && g->at[g->n - 1].end > end)
		g->at[g->n - 1].end = end;
}

bool gaps_cover(const struct chunk_gap *at, uint32_t n, uint32_t chunk_end, uint32_t off,
		uint32_t end)
{
	for (uint32_t i = 0; i < n && off < end; i++)
		if (at[i].off <= off && off < at[i].end)
			off = at[i].end;
	return off >= end || off >= chunk_end;
}

uint32_t gaps_encode(const struct chunk_gap *at, uint32_t n, uint8_t *out)
{
	struct wire_w w;

	wire_w_init(&w, out, CHUNK_GAPS_ENC_MAX);
	for (uint32_t i = 0; i < n; i++) {
		wire_put_u32(&w, &at[i].off);
		wire_put_u32(&w, &at[i].end);
	}
	return (uint32_t)w.len;
}

int gaps_decode(const void *data, uint32_t len, uint32_t chunk_end, struct chunk_gaps *g)
{
	struct wire_r r;

	if (len > CHUNK_GAPS_ENC_MAX || len % CHUNK_GAP_SIZE != 0)
		return -LE_BAD_MESSAGE;
	wire_r_init(&r, data, len);
	g->n = len / CHUNK_GAP_SIZE;
	for (uint32_t i = 0, before = 0; i < g->n; i++) {
		struct chunk_gap *o = &g->at[i];

		wire_get_u32(&r, &o->off);
		wire_get_u32(&r, &o->end);
		if ((i > 0 && o->off <= before) || o->off >= o->end || o->end > chunk_end)
			return -LE_BAD_MESSAGE;
		before = o->end;
	}
	return 0;
}
