/*
 * What has to be compared when a member of a chain returns: which chunks had a version that may not
 * have reached everybody (P rows: pending), and which have changed while somebody was away (D rows,
 * begun by the L row). Each row is put once per chunk, in the batch of the change itself; P rows
 * are deleted in some later batch. The S row tells until when this target was in sync.
 *
 * D rows are bounded: when there would be more than the limit, the log is given up (its L row says
 * so), and whoever returns is compared in full.
 *
 * Owned by the store's loop; nothing yields unless said. chain.c and commit.c call it.
 */
#ifndef LEAT_OSSD_CHAIN_LOG_H
#define LEAT_OSSD_CHAIN_LOG_H

#include "ossd/chunk/chunk_store.h"

struct log_chunk;
struct chain_log {
	struct chunk_store *s;
	struct hmap chains; /* struct log_chain */
	struct hmap chunks; /* struct log_chunk: those with a P or D row */
	struct list idle;   /* P rows whose chunk is not pending any more, oldest first */
	uint32_t n_idle, n_changed, changed_max;
	/* Hears of every change that joins, must not yield. NULL: nobody. */
	void (*watch)(void *arg, const struct chunk_key *k);
	void *watch_arg;
	struct log_chunk *free;
	void *slabs;
};

/* Reads the P, D, L and S rows. -LE_NOMEM, -LE_CORRUPT_STORE. Yields. */
int chain_log_open(struct chunk_store *s, uint32_t changed_max,
		   struct chain_log **ret_log) CHECK_RESULT;
void chain_log_close(struct chain_log *l);

/* The chain as it will be; what follows for the rows goes into the batch that has its E row. */
struct log_adopt {
	uint32_t chain, epoch;
	bool others;   /* there are other members, in whatever state */
	bool sync;     /* this target is SYNC */
	bool all_sync; /* every member is */
};
void chain_log_adopt(struct chain_log *l, const struct log_adopt *a, struct kv_batch *b);
/* This target is no member any more: all rows of the chain but its chunks go. */
void chain_log_forget(struct chain_log *l, uint32_t chain, struct kv_batch *b);

/* A change of the chunk goes into the batch: the rows that it needs as well. */
void chain_log_joined(struct chain_log *l, const struct chunk_key *k, struct kv_batch *b);
/* Nothing of the chunk is pending now: its P row may go. */
void chain_log_committed(struct chain_log *l, const struct chunk_key *k);
/* The same, but what is there was never committed, and stays to be compared: so does the P row,
 * until all members are SYNC. */
void chain_log_kept(struct chain_log *l, const struct chunk_key *k);
/* Versions of the chunk were taken back, which is a change like any other for who compares just
 * now. quiet: nothing of it is pending now. */
void chain_log_taken_back(struct chain_log *l, const struct chunk_key *k, bool quiet);
/* Deletes P rows that were idle for some seconds. Now and then, from a fiber. */
void chain_log_tick(struct chain_log *l);

/* The epoch in which the D rows of the chain begin; 0: there is no log. */
uint32_t chain_log_epoch(const struct chain_log *l, uint32_t chain);
/* Is it still the log that begins in that epoch (0: it is none)? With too much in it it is given
 * up, at any time, and its rows with it. */
static inline bool chain_log_is(const struct chain_log *l, uint32_t chain, uint32_t epoch)
{
	return epoch && chain_log_epoch(l, chain) == epoch;
}
/* Is the chunk in the log? */
bool chain_log_changed(const struct chain_log *l, const struct chunk_key *k);
/* The last epoch in which this target knew itself SYNC; 0: never. */
uint32_t chain_log_synced_epoch(const struct chain_log *l, uint32_t chain);

/* Chunks of the chain that are pending or suspect: that were pending when the store was opened, or
 * hold what was never committed. Does not yield, nor must each; non-zero ends it. */
int chain_log_each_pending(struct chain_log *l, uint32_t chain,
			   int (*each)(void *arg, const struct chunk_key *k),
			   void *arg) CHECK_RESULT;
/* Chunks of the chain that have such a row (ROW_PENDING, ROW_CHANGED), from *from on, at most max:
 * how many come. more: there may be others. Waits for what has joined. Yields. */
struct chunk_keys {
	struct chunk_key *k;
	uint32_t n;
	bool more;
};
int chain_log_list(struct chain_log *l, enum row_kind kind, const struct chunk_key *from,
		   uint32_t max, struct chunk_keys *ret_keys) CHECK_RESULT;

#endif
