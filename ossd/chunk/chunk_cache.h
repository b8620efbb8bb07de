/*
 * The chunks in memory: for each an entry with its lock, its committed record and its newest
 * pending one, which has joined a group commit: what readers see and the next writer builds on.
 * Bounded: entries that nobody uses and that are committed go, least recently used first, when
 * records need more than bytes_max.
 *
 * Owned by the store's loop; nothing here yields. Records and entries come from slabs that
 * are kept, so a steady state allocates nothing.
 */
#ifndef LEAT_OSSD_CHUNK_CACHE_H
#define LEAT_OSSD_CHUNK_CACHE_H

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"
#include "ossd/chunk/chunk_record.h"

#define RECORD_CLASSES 10u /* 1, 2, 4, … 512 blocks, or what gaps take of that room */

struct chunk_ent {
	struct hmap_node node;
	struct list lru; /* in the cache's list while refs is 0 and nothing is pending */
	struct chunk_key id;
	struct fmutex lock;        /* writers of this chunk */
	struct chunk_record *rec;  /* committed; NULL: no such chunk (if known) */
	struct chunk_record *pend; /* newest, not committed yet; NULL: deletion (if n_pend) */
	uint32_t refs, n_pend;
	bool known; /* rec tells what the index holds */
	bool lost;  /* then: it holds that the chunk is lost */
	struct list under_way; /* struct chunk_tx that have joined and are not durable */
	/* Of ossd/chain: pending versions that stay so until all members have them, oldest first,
	 * and the highest number that was given to one in an epoch. */
	struct list held;
	struct waitq moved;
	uint64_t seen;
	uint32_t seen_epoch;
};

struct chunk_cache {
	struct hmap map;
	struct list lru; /* oldest first */
	uint64_t bytes, bytes_max;
	uint64_t slab_bytes;
	void *free_records[RECORD_CLASSES];
	void *free_ents;
	void *slabs;
};

void chunk_cache_init(struct chunk_cache *c, uint64_t bytes_max);
void chunk_cache_fini(struct chunk_cache *c);

/* Found or made, one reference for the caller. NULL without memory. */
struct chunk_ent *chunk_ent_get(struct chunk_cache *c, const struct chunk_key *id);
void chunk_ent_put(struct chunk_cache *c, struct chunk_ent *e);
/* After a commit: rec (a reference is taken over, NULL for a deletion) is what the index has. */
void chunk_ent_committed(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec);
/* Entries of the chain that say that there is no such chunk say nothing any more: the index and the
 * ledger are asked again. */
void chunk_cache_forget_none(struct chunk_cache *c, uint32_t chain);
/* What was read from the index, unless a commit came first. Takes over the reference. */
void chunk_ent_load(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec);
/* Of a writer under the entry's lock; a reference is taken over (NULL: deletion). Readers see it
 * from now on; the entry stays until it is committed. */
void chunk_ent_set_pending(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec);
/* The newest pending one is none any more; rec (a reference is taken over) is the one before it. */
void chunk_ent_revert(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec);
/* Found, not made: a reference for the caller, or NULL. */
struct chunk_ent *chunk_ent_find(struct chunk_cache *c, const struct chunk_key *id);
/* The newest, pending or committed. Only if known or pending. */
static inline struct chunk_record *chunk_ent_newest(const struct chunk_ent *e)
{
	return e->n_pend ? e->pend : e->rec;
}

/* Zeroed header, one reference. NULL without memory. */
struct chunk_record *chunk_record_create(struct chunk_cache *c, uint32_t n_blocks, uint32_t n_gaps);
static inline struct chunk_record *chunk_record_ref(struct chunk_record *r)
{
	if (r)
		r->refs++;
	return r;
}
void chunk_record_unref(struct chunk_cache *c, struct chunk_record *r); /* NULL is fine */

#endif
