/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a part of a chunk, without a lock: changes that have joined a group are visible. Owned by
 * the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_READ_H
#define LEAT_OSSD_CHUNK_CHUNK_READ_H

#include "ossd/chunk/chunk_tx.h"

#define CHUNK_READ_VECS 32u

/* Reads blocks [first, last] of tx->rec, of a held tx, from the disk into newly taken slots: in
 * order, as stored (block_space bytes each), verified. The caller owns a reference to each slot of
 * vec. Returns 0, -LE_STALE (the tx has ended while waiting for slots), -LE_CORRUPT, -LE_TOO_BIG
 * or -LE_TIMEDOUT. Yields. */
int chunk_tx_read(const struct chunk_tx *tx, uint32_t first, uint32_t last,
		  struct slot_vec vec[CHUNK_READ_VECS], uint32_t *ret_n) CHECK_RESULT;

/* A slot that several reads fill one after the other. */
struct read_space {
	struct slot *slot;
	uint32_t used;
};

struct chunk_read {
	struct chunk_key id;
	uint32_t off, len;
	bool verify;
	/* committed: read the committed record even if a newer one is pending. quiet, with
	 * committed: fail with -LE_PENDING if there is a newer one. */
	bool committed, quiet;
	/* Called when the record is chosen: 0 permits the read, else its error. Must not yield.
	 * May be NULL. */
	int (*admit)(void *arg);
	void *admit_arg;
	/* NULL: the read takes its own slots. Else it uses this slot, with space for all blocks
	 * that [off, off + len) touches (-LE_TOO_BIG: not enough space left), and vec has one
	 * entry in it, or slots of zeros. */
	struct read_space *space;
	/* Space for pieces, at least chunk_read_pieces_max(len). */
	struct piece *pieces;
	uint32_t n_pieces_max;
	/* Results. The caller owns a reference to each slot of vec. */
	uint64_t version;
	uint32_t end;
	int64_t mtime_ns;
	uint32_t n_pieces, n_vec;
	struct slot_vec vec[CHUNK_READ_VECS];
};

static inline uint32_t chunk_read_pieces_max(uint32_t len)
{
	return 2 * (len / LEAT_BLOCK_SIZE_MIN + 2);
}

/* Executes the read. Returns 0, -LE_CORRUPT (and logs), -LE_TOO_BIG, -LE_TIMEDOUT (no buffer in
 * time) or -LE_IO. For a chunk that does not exist, end is 0. Yields. */
int chunk_read(struct chunk_store *s, struct chunk_read *r) CHECK_RESULT;

/* Fills in the pieces of a whole chunk without data. Returns their number. */
uint32_t chunk_record_pieces(const struct chunk_record *r, struct piece *pieces, uint32_t max);

#endif
