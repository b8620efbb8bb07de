/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One change of one chunk, from its lock to the disk. The changes themselves: chunk_write.h.
 *
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_TX_H
#define LEAT_OSSD_CHUNK_CHUNK_TX_H

#include "ossd/chunk/chunk_store.h"

struct chunk_write;

/*
 * One change of one chunk. chunk_tx_begin takes the chunk's lock. The change checks everything,
 * writes the data and leaves the new record in `rec` (NULL: deletion). join adds it to the open
 * group, makes it visible to readers and releases the lock. wait returns when it is durable. A
 * crash between the two leaves the old record. A change that succeeded must be followed by exactly
 * one of join (then wait) and abort.
 *
 * If `held` is set before join (chains), the change stays pending after it is durable, until
 * chunk_tx_commit, or chunk_tx_take_back and chunk_tx_taken_back.
 */
enum chunk_change {
	CHANGE_WRITE,
	CHANGE_TRIM,
	CHANGE_PUNCH,
	CHANGE_REMOVE
};

struct chunk_merged {
	uint32_t block, off; /* offset of its bytes in tx->stage */
};

struct chunk_tx {
	struct commit_member member;
	struct chunk_store *s;
	struct chunk_ent *ent;
	struct chunk_record *old, *rec;
	struct list in_flight; /* in ent->in_flight, from join until the group has ended; not
	                        * used if held is set */
	uint64_t session;      /* CHANGE_WRITE: the session that writes */
	uint64_t group;
	uint64_t version; /* of rec, or of the removal */
	/* The bools are independent: what the change does (data, changes), whether it holds the
	 * lock, which row it found (over, over_row, lost), and what the caller wants of join. */
	bool data, locked, changes;
	bool over;     /* begun by chunk_tx_begin_over, and the chunk has no readable record */
	bool over_row; /* if over: the chunk has a row */
	bool lost;     /* if over: the chunk is certainly lost */
	bool lose;     /* set before join of a deletion: the row is replaced by one that marks
	                * the chunk as lost */
	bool lazy;     /* set before join: the commit may be delayed so that more changes share
	                * it */
	/* Called with 0 when the change is durable, or with an error when it cannot become so.
	 * Must not yield. */
	void (*held)(struct chunk_tx *tx, int status);
	/* The change, so that other members can repeat it. CHANGE_WRITE and CHANGE_PUNCH: of [off,
	 * off + len). */
	enum chunk_change change;
	uint32_t off, len;
	/* CHANGE_WRITE with w->keep: the merged blocks. A reference or NULL. */
	struct slot *stage;
	struct chunk_merged merged[2];
	uint32_t n_merged;
};

/* Takes the chunk's lock and loads its newest record into tx->old. Yields. On failure nothing is
 * to be undone. On success call one of the four changes (chunk_write.h), which end the tx if they
 * fail, or chunk_tx_cancel. */
int chunk_tx_begin(struct chunk_store *s, const struct chunk_key *id,
		   struct chunk_tx *tx) CHECK_RESULT;
/* Like chunk_tx_begin, but accepts a chunk with an unreadable record or a lost row, as if it had
 * no record: the new record replaces it. */
int chunk_tx_begin_over(struct chunk_store *s, const struct chunk_key *id,
			struct chunk_tx *tx) CHECK_RESULT;
/* Ends a tx that has made no change, and releases the lock. Does not yield. */
void chunk_tx_cancel(struct chunk_tx *tx);
/* Like chunk_tx_begin, for a write: waits first until changes of other sessions to the same bytes
 * are durable. So a crash never loses two changes after a client has observed their order, and
 * clients may repeat them in any order. */
int chunk_tx_begin_write(struct chunk_store *s, const struct chunk_write *w,
			 struct chunk_tx *tx) CHECK_RESULT;
/* True if tx is of another session than w, or no write, and changes bytes that w writes. Call
 * under the chunk's lock. */
bool chunk_tx_in_the_way(const struct chunk_tx *tx, const struct chunk_write *w);

void chunk_tx_join(struct chunk_tx *tx); /* does not yield */
int chunk_tx_wait(struct chunk_tx *tx) CHECK_RESULT;
void chunk_tx_abort(struct chunk_tx *tx); /* does not yield */
/* Commits a held change that is durable and the oldest of its chunk: committed reads return it.
 * Ends the tx. */
void chunk_tx_commit(struct chunk_tx *tx);
/* Aborts a held change that is the newest of its chunk; call under the chunk's lock. Adds the
 * record before it to the open group. When that group is durable, call chunk_tx_taken_back, which
 * ends the tx. */
void chunk_tx_take_back(struct chunk_tx *tx);
void chunk_tx_taken_back(struct chunk_tx *tx);

/* Sets tx->rec to a copy of tx->old (or an empty record) with n_blocks blocks, and sets its
 * version and mtime. gaps: NULL: those of tx->old. Returns 0 or -LE_NOMEM. */
int tx_new_record(struct chunk_tx *tx, uint32_t chunk_size, uint32_t n_blocks,
		  const struct chunk_gaps *gaps) CHECK_RESULT;

/* Blocks that get new extents: those of [first, last] that have BLOCK_FRESH in their flags. */
struct alloc_request {
	uint64_t session;
	uint32_t first, last;
	uint32_t len;    /* bytes that the client writes, charged to its grant */
	uint32_t growth; /* units in addition to what will be freed */
	bool privileged; /* punch: may use the reserve */
};

/* Allocates extents for the blocks of tx->rec selected by *a, all or none. Yields. Returns 0 or
 * -LE_NOSPC. */
#define BLOCK_FRESH 0x80000000u
int tx_allocate(struct chunk_tx *tx, const struct alloc_request *a) CHECK_RESULT;

#endif
