/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits a write into pieces at block boundaries, and verifies the pieces of a read reply.
 * Compresses whole blocks of a write if the layout enables compression, and decompresses those of a
 * reply. Pure functions: no state, no yield.
 */
#ifndef LEAT_CLIENT_LAYOUT_BLOCK_PIECES_H
#define LEAT_CLIENT_LAYOUT_BLOCK_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/proto/wire.h"

struct block_sums;
struct slot_vec;

/* Returns an upper bound for the number of pieces of a write of len bytes. */
static inline uint32_t pieces_max(uint32_t block_size, uint32_t len)
{
	return len / block_size + 2;
}

/* Returns true if [off, off + len) of a chunk contains at least one whole block. */
static inline bool pieces_whole(uint32_t block_size, uint32_t off, uint32_t len)
{
	uint32_t skip = (block_size - off % block_size) % block_size;

	return len >= skip && len - skip >= block_size;
}

/*
 * Splits a write at block boundaries. vec has the len bytes to write at offset off of the chunk.
 * Each piece is checksummed and encoded into out, which has PIECE_WIRE_SIZE * pieces_max bytes.
 * Returns the number of pieces.
 */
uint32_t pieces_cut(uint32_t block_size, uint32_t off, uint32_t len, const struct slot_vec *vec,
		    uint8_t *out);

/*
 * Splits a write to a compressed file: like pieces_cut, but compresses each whole block that
 * compression makes smaller. Copies the bytes to send to o->to, which has space for o->len bytes,
 * and encodes the pieces into o->pieces. Returns the number of bytes in o->to. *ret_n_packed is the
 * number of blocks that were compressed; if it is 0, the bytes and pieces equal those of
 * pieces_cut, so vec itself can be sent. May be called from any thread.
 */
struct pieces_out {
	uint32_t block_size, off, len;
	uint8_t *to, *pieces;
	uint8_t *scratch; /* block_size bytes */
};

uint32_t pieces_seal(const struct pieces_out *o, const struct slot_vec *vec,
		     uint32_t *ret_n_packed);

/*
 * Verifies and unpacks the reply to a read of at most `space` bytes from offset `off` of a chunk.
 * data has bulk_len bytes as received. Compressed blocks are decompressed in place, from the last
 * piece to the first, because no piece is stored after its uncompressed position. Holes become
 * zeros. On return data has *ret_len plain bytes.
 *
 * If sums is not NULL, the checksums of all blocks that [off, off + room) touches are recorded
 * there, on success only.
 *
 * Returns 0; -LE_BAD_MESSAGE if the pieces do not cover exactly the received bytes;
 * -LE_CORRUPT_WIRE if a checksum is wrong.
 */
struct pieces_in {
	struct bytes pieces;
	uint32_t block_size, off, space, bulk_len;
	uint8_t *data;           /* capacity: `space` bytes */
	uint8_t *scratch;        /* block_size bytes */
	struct block_sums *sums; /* may be NULL */
	uint64_t chunk_at;       /* file offset of the chunk's first byte; used with sums */
};

int pieces_open(const struct pieces_in *in, uint32_t *ret_len) CHECK_RESULT;
/* Returns the offset within the read range of the first hole, or len if the reply has none. len is
 * the *ret_len of pieces_open. */
uint32_t pieces_hole(const struct pieces_in *in, uint32_t len);

#endif
