/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies whole chunks, as they are stored, between members of a chain. The source holds a chunk
 * unchanged and reads its blocks. The destination replaces its chunk by one of the source's
 * version. Blocks are sent as they are on disk: in whole units, compressed or not. Two members may
 * store the same block in different forms.
 *
 * Owned by the store's loop. Everything yields unless noted.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_COPY_H
#define LEAT_OSSD_CHUNK_CHUNK_COPY_H

#include "ossd/chunk/chunk_store.h"
#include "ossd/chunk/chunk_tx.h"

/* ---- source ---- */

/* Takes the chunk's lock and waits until no change of it is pending. tx->old is its record (NULL:
 * no such chunk) and does not change until chunk_release. Returns 0, -LE_TIMEDOUT, -LE_CORRUPT
 * (its record is damaged) or -LE_IO. */
int chunk_hold(struct chunk_store *s, const struct chunk_key *k, uint64_t deadline_us,
	       struct chunk_tx *tx) CHECK_RESULT;
/* Like chunk_hold, but begins with chunk_tx_begin_over: never fails with -LE_CORRUPT. */
int chunk_hold_over(struct chunk_store *s, const struct chunk_key *k, uint64_t deadline_us,
		    struct chunk_tx *tx) CHECK_RESULT;
void chunk_release(struct chunk_tx *tx); /* does not yield */

/* Reads blocks that have data, beginning with part->first: as many as the slot holds, each in
 * whole units. Sets part->next to the first block that did not fit (n_blocks: none), and part->len
 * to the number of bytes. The data is not verified. A range beyond the end of the data file reads
 * as zeros. Returns 0 or -LE_IO. */
struct chunk_part {
	uint32_t first, next;
	uint32_t len;
};
int chunk_part_read(struct chunk_store *s, const struct chunk_key *k,
		    const struct chunk_record *rec, struct slot *slot,
		    struct chunk_part *part) CHECK_RESULT;

/* ---- destination ---- */

/*
 * Begins to replace the chunk by one like `as` (version, end, blocks with their sums). Then call
 * chunk_part_write for all parts, then join and wait, or abort. tx->old is the present record.
 * Returns 0, -LE_NOSPC, -LE_NOMEM or -LE_TIMEDOUT.
 */
int chunk_copy_begin(struct chunk_store *s, const struct chunk_key *k,
		     const struct chunk_record *as, struct chunk_tx *tx) CHECK_RESULT;
/* Writes a part that chunk_part_read has read at the source, from the slot to the new extents.
 * -LE_BAD_MESSAGE: its length does not match the record. */
int chunk_part_write(struct chunk_tx *tx, const struct slot *slot,
		     const struct chunk_part *part) CHECK_RESULT;
/* Removes the chunk durably, even if its record is damaged. Returns 1 if there was one, else 0.
 * may: called under the chunk's lock; false: fails with -LE_CANCELED (-LE_CORRUPT if the record is
 * damaged). NULL: always permitted. */
int chunk_copy_remove(struct chunk_store *s, const struct chunk_key *k,
		      bool (*may)(void *arg, const struct chunk_key *k), void *arg) CHECK_RESULT;

/* Marks the chunk as lost, durably, whatever its record is. Returns 1, or 0 if it was marked
 * already. may: like chunk_copy_remove(), but not called if the chunk is marked already. */
int chunk_copy_lose(struct chunk_store *s, const struct chunk_key *k,
		    bool (*may)(void *arg, const struct chunk_key *k), void *arg) CHECK_RESULT;

/* A set of blocks: bit i % 64 of word i / 64. */
#define CHUNK_MASK_WORDS (LEAT_BLOCKS_PER_CHUNK_MAX / 64u)
struct chunk_mask {
	uint64_t w[CHUNK_MASK_WORDS];
};
static inline bool chunk_mask_has(const struct chunk_mask *m, uint32_t i)
{
	return m->w[i / 64] >> (i % 64) & 1;
}
static inline void chunk_mask_set(struct chunk_mask *m, uint32_t i)
{
	m->w[i / 64] |= 1ULL << (i % 64);
}
/* Begins to replace damaged blocks of a chunk under the same version. Then call
 * chunk_block_replace for some blocks, then join and wait, or abort. -LE_STALE: the chunk has
 * another version. */
int chunk_repair_begin(struct chunk_store *s, const struct chunk_key *k, uint64_t version,
		       struct chunk_tx *tx) CHECK_RESULT;
/* Replaces a block by that of another member, given in whole units in buf, in a new extent. On
 * failure the block stays as it was. -LE_STALE: its plain bytes differ. */
int chunk_block_replace(struct chunk_tx *tx, uint32_t index, const struct chunk_block *as,
			const void *buf) CHECK_RESULT;

#endif
