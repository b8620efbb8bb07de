/*
 * Of a chunk the ranges below its end that nobody has written. They read as zeros, and so do zeros
 * that somebody has written: an append may fill the former only (chunk_write.placed).
 *
 * A gap begins where a write begins behind the chunk's end. There are at most CHUNK_GAPS_MAX, the
 * last ones: what was one before them counts as written. To punch a range changes none: what was
 * written there still counts as written.
 */
#ifndef LEAT_OSSD_CHUNK_GAPS_H
#define LEAT_OSSD_CHUNK_GAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define CHUNK_GAPS_MAX     64u
#define CHUNK_GAP_SIZE     8u /* encoded: u32 off, u32 end */
#define CHUNK_GAPS_ENC_MAX (CHUNK_GAPS_MAX * CHUNK_GAP_SIZE)

struct chunk_gap {
	uint32_t off, end;
};
/* In their order; none is empty, none touches another one. */
struct chunk_gaps {
	uint32_t n;
	struct chunk_gap at[CHUNK_GAPS_MAX];
};

/* [off, end) is written into a chunk that ends at old_end. */
void gaps_written(struct chunk_gaps *g, uint32_t old_end, uint32_t off, uint32_t end);
/* The chunk is cut at end. */
void gaps_cut(struct chunk_gaps *g, uint32_t end);
/* Has nobody written into [off, end) of a chunk that ends at chunk_end? */
bool gaps_cover(const struct chunk_gap *at, uint32_t n, uint32_t chunk_end, uint32_t off,
		uint32_t end);

/* Into out, CHUNK_GAPS_ENC_MAX bytes: length. */
uint32_t gaps_encode(const struct chunk_gap *at, uint32_t n, uint8_t *out);
/* Checks number, order and that they lie below chunk_end: -LE_BAD_MESSAGE. */
int gaps_decode(const void *data, uint32_t len, uint32_t chunk_end,
		struct chunk_gaps *g) CHECK_RESULT;

#endif
