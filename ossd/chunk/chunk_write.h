/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of one chunk: write a part, truncate, punch a hole, remove.
 *
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_WRITE_H
#define LEAT_OSSD_CHUNK_CHUNK_WRITE_H

#include "ossd/chunk/chunk_tx.h"

struct chunk_write;

struct chunk_write {
	struct chunk_key id;
	uint32_t chunk_size, off, len;
	uint64_t session; /* its grant pays for the space */
	bool keep;        /* keep the merged blocks in tx->stage */
	bool pack;        /* compress merged blocks where that saves space */
	bool placed;      /* fail with -LE_EXIST if the range has bytes that were written and
	                   * differ */
	/* The gaps of the chunk at its head; NULL: they follow from this write. */
	const struct chunk_gaps *gaps;
	struct bytes pieces;
	/* The data that the pieces describe, piece_space bytes each. The padding of the last piece
	 * may be overwritten. */
	const struct slot_vec *bulk;
	uint32_t n_bulk;
};

/* Returns piece i of a write that was checked. Does not yield. */
static inline struct piece chunk_write_piece(const struct chunk_write *w, uint32_t i)
{
	struct piece p;

	piece_decode((const uint8_t *)w->pieces.data + (size_t)i * PIECE_WIRE_SIZE, &p);
	return p;
}

/* Checks what does not depend on the chunk: limits, and the data against its pieces. */
int chunk_write_check(const struct chunk_write *w) CHECK_RESULT;
/* The changes of a tx that has begun. Sets tx->changes if there is a change to join. On failure,
 * or if nothing changes, the tx has ended (write: the write was checked before). Yield. */
int chunk_tx_write(struct chunk_tx *tx, const struct chunk_write *w) CHECK_RESULT;
int chunk_tx_trim(struct chunk_tx *tx, uint32_t end) CHECK_RESULT;
int chunk_tx_punch(struct chunk_tx *tx, uint32_t off, uint32_t len) CHECK_RESULT;
int chunk_tx_remove(struct chunk_tx *tx) CHECK_RESULT;
/* Checks the write, begins a tx and makes the change. Errors: -LE_INVAL, -LE_CORRUPT_WIRE (data
 * does not match its pieces), -LE_NOSPC, -LE_CORRUPT (an old block to merge with is damaged),
 * -LE_IO. */
int chunk_write_begin(struct chunk_store *s, const struct chunk_write *w,
		      struct chunk_tx *tx) CHECK_RESULT;
/* Truncates the chunk to end, if that is less than its present end, or removes it if end is 0.
 * Sets tx->changes if there is a change to join; else the tx has ended. */
int chunk_trim_begin(struct chunk_store *s, const struct chunk_key *id, uint32_t end,
		     struct chunk_tx *tx) CHECK_RESULT;
/* Makes [off, off + len) zeros. Whole blocks free their space. */
int chunk_punch_begin(struct chunk_store *s, const struct chunk_key *id, uint32_t off, uint32_t len,
		      struct chunk_tx *tx) CHECK_RESULT;

#endif
