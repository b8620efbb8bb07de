/*
 * Whole chunks as they are stored, between members of a chain: holding one still at the source,
 * reading its blocks, and putting a chunk of the same version in the place of what there is at the
 * destination. Blocks travel as they lie on disk, whole units, compressed or not; that two members
 * have the same block in different forms is no difference.
 *
 * Owned by the store's loop; everything yields unless said.
 */
#ifndef LEAT_OSSD_CHUNK_COPY_H
#define LEAT_OSSD_CHUNK_COPY_H

#include "ossd/chunk/chunk_store.h"

/* ---- source ---- */

/* Takes the chunk's lock and waits until nothing of it is pending: tx->old is what there is (NULL:
 * no such chunk) until chunk_release. -LE_TIMEDOUT, -LE_CORRUPT (its record is damaged), -LE_IO. */
int chunk_hold(struct chunk_store *s, const struct chunk_key *k, uint64_t deadline_us,
	       struct chunk_tx *tx) CHECK_RESULT;
/* The same as after chunk_tx_begin_over: never -LE_CORRUPT. */
int chunk_hold_over(struct chunk_store *s, const struct chunk_key *k, uint64_t deadline_us,
		    struct chunk_tx *tx) CHECK_RESULT;
void chunk_release(struct chunk_tx *tx); /* does not yield */

/* Blocks from `first` on that have data, as many as the slot holds, in whole units one behind the
 * other: ret_next is the first block that did not fit (n_blocks: none), ret_len bytes. The data is
 * not verified. -LE_IO. A range that the file does not have reads as zeros. */
struct chunk_part {
	uint32_t first, next;
	uint32_t len;
};
int chunk_part_read(struct chunk_store *s, const struct chunk_key *k,
		    const struct chunk_record *rec, struct slot *slot,
		    struct chunk_part *part) CHECK_RESULT;

/* ---- destination ---- */

/*
 * Begins putting a chunk like `as` (version, end, blocks with their sums) in place of what there
 * is; then chunk_part_write for all parts, then join and wait, or abort. tx->old is what there is.
 * repair: what there is has the same version already; only its blocks move.
 * -LE_NOSPC, -LE_NOMEM, -LE_TIMEDOUT.
 */
int chunk_copy_begin(struct chunk_store *s, const struct chunk_key *k,
		     const struct chunk_record *as, struct chunk_tx *tx) CHECK_RESULT;
int chunk_part_write(struct chunk_tx *tx, const struct slot *slot,
		     const struct chunk_part *part) CHECK_RESULT;
/* Durable: there is no such chunk, nor its damaged record. 1 when there was one. may: asked under
 * the chunk's lock, false: -LE_CANCELED. NULL: it may. */
int chunk_copy_remove(struct chunk_store *s, const struct chunk_key *k,
		      bool (*may)(void *arg, const struct chunk_key *k), void *arg) CHECK_RESULT;

/* Durable: the chunk is lost, whatever there was of it. 1 when that was not known. may: as above,
 * not asked when it was. */
int chunk_copy_lose(struct chunk_store *s, const struct chunk_key *k,
		    bool (*may)(void *arg, const struct chunk_key *k), void *arg) CHECK_RESULT;

/* Some blocks, bit i of word i / 64. */
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
/* Begins putting good blocks in place of damaged ones, under the same version: then
 * chunk_block_replace for some, then join and wait, or abort. -LE_STALE: the chunk is not of that
 * version any more. */
int chunk_repair_begin(struct chunk_store *s, const struct chunk_key *k, uint64_t version,
		       struct chunk_tx *tx) CHECK_RESULT;
/* The block as another member has it, in whole units in buf, into an extent of its own. When that
 * fails the block stays as it was. -LE_STALE: its plain bytes are others. */
int chunk_block_replace(struct chunk_tx *tx, uint32_t index, const struct chunk_block *as,
			const void *buf) CHECK_RESULT;

#endif
