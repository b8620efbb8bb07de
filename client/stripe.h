/*
 * Pure arithmetic of the data path: where bytes of a file lie, how a write is cut into block
 * pieces, whether what was read is what was written; whole blocks are packed and unpacked on the
 * way, if the layout says so. No state, no yielding.
 */
#ifndef LEAT_CLIENT_STRIPE_H
#define LEAT_CLIENT_STRIPE_H

#include "client/block_sums.h"
#include "common/proto/types.h"
#include "common/rt/slot.h"

/* A part of a file that lies in one chunk. */
struct stripe_part {
	uint64_t idx; /* of the chunk */
	uint32_t off; /* in the chunk */
	uint32_t len;
	uint64_t at; /* bytes of the range that lie before it */
};

/* The first part of [off, off + len), at most to the end of its chunk. */
static inline struct stripe_part stripe_first(uint32_t chunk_size, uint64_t off, uint64_t len)
{
	uint32_t in_chunk = (uint32_t)(off % chunk_size);
	uint32_t room = chunk_size - in_chunk;

	return (struct stripe_part){off / chunk_size, in_chunk, len < room ? (uint32_t)len : room,
				    0};
}

/* Cuts [off, off + len) at chunk boundaries: the number of parts, at most max; *ret_len bytes are
 * covered. */
uint32_t stripe_cut(uint32_t chunk_size, uint64_t off, uint64_t len, struct stripe_part *ret_parts,
		    uint32_t max, uint64_t *ret_len);

/* The most pieces a write of len bytes can have. */
static inline uint32_t pieces_max(uint32_t block_size, uint32_t len)
{
	return len / block_size + 2;
}

/* Is there a whole block in it? */
static inline bool pieces_whole(uint32_t block_size, uint32_t off, uint32_t len)
{
	uint32_t skip = (block_size - off % block_size) % block_size;

	return len >= skip && len - skip >= block_size;
}

/*
 * Cuts the len bytes of vec, which go to chunk offset off, at block boundaries, checksums each
 * piece and encodes it into out (PIECE_WIRE_SIZE * pieces_max bytes). Returns the number of pieces.
 */
uint32_t pieces_cut(uint32_t block_size, uint32_t off, uint32_t len, const struct slot_vec *vec,
		    uint8_t *out);

/*
 * The same for a file that is to be compressed: packs whole blocks where that pays, and puts all
 * that is to be sent into `to`, with room for len bytes. Returns how many bytes that are.
 * ret_n_packed: 0: the pieces are those of pieces_cut, and the bytes of vec as good. From any
 * thread.
 */
struct pieces_out {
	uint32_t block_size, off, len;
	uint8_t *to, *pieces;
	uint8_t *scratch; /* of block_size bytes */
};
uint32_t pieces_seal(const struct pieces_out *o, const struct slot_vec *vec,
		     uint32_t *ret_n_packed);

/*
 * Checks the reply to a read of up to room bytes from chunk offset off: bulk_len bytes in data,
 * which become the plain bytes that the pieces tell of, *ret_len of them: packed blocks are
 * unpacked in place, from the last piece to the first, as none lies behind its plain place; holes
 * become zeros. -LE_BAD_MESSAGE: the pieces do not cover exactly these bytes; -LE_CORRUPT_WIRE: a
 * checksum is wrong. sums: notes those of the blocks that all of the room touches, when it returns
 * 0.
 */
struct pieces_in {
	struct bytes pieces;
	uint32_t block_size, off, room, bulk_len;
	uint8_t *data;           /* of room bytes */
	uint8_t *scratch;        /* of block_size bytes */
	struct block_sums *sums; /* NULL: not wanted */
	uint64_t chunk_at;       /* where in the file the chunk begins; for sums */
};
int pieces_open(const struct pieces_in *in, uint32_t *ret_len) CHECK_RESULT;
/* Of what has been opened, len bytes: where the room has the first byte that is not stored; its
 * end: nowhere. */
uint32_t pieces_hole(const struct pieces_in *in, uint32_t len);

/* Do [a, a + a_len) and [b, b + b_len) share a byte? Empty ranges share none. */
static inline bool range_overlaps(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
	return a_len > 0 && b_len > 0 && a < b + b_len && b < a + a_len;
}

/* Cuts vec at its offset at: the part [at, at + len), as vecs without references. Returns their
 * number, at most max. */
uint32_t vec_slice(const struct slot_vec *vec, uint32_t n, uint64_t at, uint64_t len,
		   struct slot_vec *ret_vec, uint32_t max);
uint64_t vec_len(const struct slot_vec *vec, uint32_t n);
void vec_copy_out(const struct slot_vec *vec, uint32_t n, uint8_t *to);

#endif
