/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gaps: ranges of a chunk below its end that were never written. They read as zeros, like written
 * zeros, but only a gap may be filled by an append (chunk_write.placed).
 *
 * A gap forms where a write begins after the chunk's end. Only the last CHUNK_GAPS_MAX gaps are
 * stored: earlier ones count as written. Punching a hole changes no gap: what was written there
 * still counts as written.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_GAPS_H
#define LEAT_OSSD_CHUNK_CHUNK_GAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define CHUNK_GAPS_MAX     64u
#define CHUNK_GAP_SIZE     8u /* encoded: u32 off, u32 end */
#define CHUNK_GAPS_ENC_MAX (CHUNK_GAPS_MAX * CHUNK_GAP_SIZE)

struct chunk_gap {
	uint32_t off, end;
};
/* In ascending order. None is empty, no two touch. */
struct chunk_gaps {
	uint32_t n;
	struct chunk_gap at[CHUNK_GAPS_MAX];
};

/* Updates the gaps for a write of [off, end) into a chunk that ends at old_end. */
void gaps_written(struct chunk_gaps *g, uint32_t old_end, uint32_t off, uint32_t end);
/* Updates the gaps for a truncation of the chunk to end. */
void gaps_cut(struct chunk_gaps *g, uint32_t end);
/* True if [off, end) of a chunk that ends at chunk_end was never written. */
bool gaps_cover(const struct chunk_gap *at, uint32_t n, uint32_t chunk_end, uint32_t off,
		uint32_t end);

/* Encodes into out, CHUNK_GAPS_ENC_MAX bytes. Returns the length. */
uint32_t gaps_encode(const struct chunk_gap *at, uint32_t n, uint8_t *out);
/* Decodes, and checks number, order and that the gaps lie below chunk_end. Returns 0 or
 * -LE_BAD_MESSAGE. */
int gaps_decode(const void *data, uint32_t len, uint32_t chunk_end,
		struct chunk_gaps *g) CHECK_RESULT;

#endif
