/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records what must be compared when a member of a chain returns. P rows: chunks with a version
 * that may not have reached all members (pending). D rows: chunks that have changed while a member
 * was away; the L row holds the epoch in which they begin. Each row is written once per chunk, in
 * the batch of the change. P rows are deleted in a later batch. The S row holds the last epoch in
 * which this target was SYNC.
 *
 * D rows are limited: if there would be more, the log is discarded (its L row records that), and a
 * returning member is compared in full.
 *
 * Owned by the store's loop. Nothing yields unless noted. Called by chains.c and commit.c.
 */
#ifndef LEAT_OSSD_CHAIN_CHAIN_LOG_H
#define LEAT_OSSD_CHAIN_CHAIN_LOG_H

#include "ossd/chunk/chunk_store.h"

struct log_chunk;
struct chain_log {
	struct chunk_store *s;
	struct hmap chains; /* struct log_chain */
	struct hmap chunks; /* struct log_chunk: chunks with a P or D row */
	struct list idle;   /* P rows of chunks that are no longer pending, oldest first */
	uint32_t n_idle, n_changed, changed_max;
	/* Called for every change that joins. Must not yield. May be NULL. */
	void (*watch)(void *arg, const struct chunk_key *k);
	void *watch_arg;
	struct log_chunk *free;
	void *slabs;
};

/* Reads the P, D, L and S rows. Returns 0, -LE_NOMEM or -LE_CORRUPT_STORE. Yields. */
int chain_log_open(struct chunk_store *s, uint32_t changed_max,
		   struct chain_log **ret_log) CHECK_RESULT;
void chain_log_close(struct chain_log *l);

/* A new epoch of a chain. chain_log_adopt adds its rows to the batch that has the E row. */
struct log_adopt {
	uint32_t chain, epoch;
	bool others;   /* there are other members, in any state */
	bool sync;     /* this target is SYNC */
	bool all_sync; /* all members are SYNC */
};
/* Begins or ends the log as the new epoch requires. Without memory no log is kept, so returning
 * members are compared in full. */
void chain_log_adopt(struct chain_log *l, const struct log_adopt *a, struct kv_batch *b);
/* Deletes all rows of the chain except its chunks, because this target is no longer a member. */
void chain_log_forget(struct chain_log *l, uint32_t chain, struct kv_batch *b);

/* Call for each change of a chunk: adds the rows that it needs to the batch. */
void chain_log_joined(struct chain_log *l, const struct chunk_key *k, struct kv_batch *b);
/* Call when no change of the chunk is pending: its P row may be deleted. */
void chain_log_committed(struct chain_log *l, const struct chunk_key *k);
/* Like chain_log_committed, but the chunk's record was never committed and stays to be compared,
 * like its P row, until all members are SYNC. */
void chain_log_kept(struct chain_log *l, const struct chunk_key *k);
/* Call when versions of the chunk were aborted or dropped: a running comparison treats this as a
 * change. quiet: nothing of the chunk is pending now. */
void chain_log_taken_back(struct chain_log *l, const struct chunk_key *k, bool quiet);
/* Deletes P rows that were idle for IDLE_US. Called periodically by a fiber. */
void chain_log_tick(struct chain_log *l);

/* Returns the epoch in which the D rows of the chain begin; 0: there is no log. */
uint32_t chain_log_epoch(const struct chain_log *l, uint32_t chain);
/* True while the log that began in that epoch is complete (epoch 0: false). A log that exceeds its
 * limit is discarded at any time, with its rows. */
static inline bool chain_log_valid(const struct chain_log *l, uint32_t chain, uint32_t epoch)
{
	return epoch && chain_log_epoch(l, chain) == epoch;
}
/* True if the chunk is in the log. */
bool chain_log_changed(const struct chain_log *l, const struct chunk_key *k);
/* Returns the last epoch in which this target was SYNC; 0: none. */
uint32_t chain_log_synced_epoch(const struct chain_log *l, uint32_t chain);

/* Calls each() for the chunks of the chain that are pending or suspect: they were pending when the
 * store was opened, or their record was never committed. A non-zero result ends the iteration.
 * Neither this nor each() yields. */
int chain_log_each_pending(struct chain_log *l, uint32_t chain,
			   int (*each)(void *arg, const struct chunk_key *k),
			   void *arg) CHECK_RESULT;
/* Lists chunks of the chain that have a row of that kind (ROW_PENDING, ROW_CHANGED), starting at
 * *from, at most max. ret_keys->k: space for max. more: there may be others. Waits until what has
 * joined is durable. Yields. */
struct chunk_keys {
	struct chunk_key *k;
	uint32_t n;
	bool more;
};
int chain_log_list(struct chain_log *l, enum row_kind kind, const struct chunk_key *from,
		   uint32_t max, struct chunk_keys *ret_keys) CHECK_RESULT;

#endif
