/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks in memory. Each has an entry with its lock, its committed record and its newest pending
 * record, which has joined a group commit. Readers use the newest record, and the next writer
 * builds on it.
 *
 * The cache is bounded: when records need more than bytes_max, unused committed entries are
 * evicted, least recently used first. Entries of chunks that do not exist are evicted after
 * CHUNK_NONE_KEEP_US without use, so that removed files do not occupy memory. The delay is needed
 * for `seen`: it shows that the change of a repeated forward is already done. Within that time the
 * sender has its reply, or the chain has another epoch.
 *
 * Owned by the store's loop. Nothing here yields. Records and entries come from slabs that are not
 * freed, so a steady state allocates nothing.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_CACHE_H
#define LEAT_OSSD_CHUNK_CHUNK_CACHE_H

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"
#include "ossd/chunk/chunk_record.h"

#define CHUNK_NONE_KEEP_US 30000000u
#define RECORD_CLASSES 10u /* 1, 2, 4, … 512 blocks, or gaps of the same size */

struct chunk_ent {
	struct hmap_node node;
	struct list lru;  /* in the cache's list `lru` while refs is 0 and nothing is pending */
	struct list none; /* also in `none` if the chunk does not exist or its record is not
	                   * loaded */
	uint64_t idle_us; /* since when it is in `none` */
	struct chunk_key id;
	struct fmutex lock;        /* writers of this chunk */
	struct chunk_record *rec;  /* the committed record; NULL: no such chunk. Valid if known */
	struct chunk_record *pend; /* the newest record, not committed; NULL: deletion. Valid if
	                            * n_pend */
	uint32_t refs, n_pend;
	bool known; /* rec is loaded: it is what the index holds */
	bool lost;  /* with `known`: the index marks the chunk as lost */
	struct list in_flight; /* struct chunk_tx that have joined a group and are not durable */
	/* For ossd/chain: versions that stay pending until all members have them, oldest first,
	 * and the highest version number used in seen_epoch. */
	struct list held;
	struct waitq moved;
	uint64_t seen;
	uint32_t seen_epoch;
};

struct chunk_cache {
	struct hmap map;
	struct list lru, none; /* oldest first */
	uint64_t bytes, bytes_max;
	uint64_t slab_bytes;
	void *free_records[RECORD_CLASSES];
	void *free_ents;
	void *slabs;
};

void chunk_cache_init(struct chunk_cache *c, uint64_t bytes_max);
void chunk_cache_fini(struct chunk_cache *c);

/* Returns the entry, newly made if absent, with a reference for the caller. NULL: no memory. */
struct chunk_ent *chunk_ent_get(struct chunk_cache *c, const struct chunk_key *id);
/* Drops a reference. May evict entries. */
void chunk_ent_put(struct chunk_cache *c, struct chunk_ent *e);
/* Call after a commit: rec is what the index has. Takes over a reference; NULL: deleted. */
void chunk_ent_committed(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec);
/* Invalidates the entries of chunks of the chain that do not exist: the next use reads the index
 * and the inventory again. */
void chunk_cache_forget_none(struct chunk_cache *c, uint32_t chain);
/* Sets the record that was read from the index, unless a commit was faster. Takes over the
 * reference. */
void chunk_ent_load(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec);
/* Called by a writer under the entry's lock. Takes over a reference (NULL: deletion). Readers use
 * the record from now on. The entry stays until the record is committed. */
void chunk_ent_set_pending(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec);
/* Drops the newest pending record. rec (a reference is taken over) is the one before it. */
void chunk_ent_revert(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec);
/* Like chunk_ent_get(), but returns NULL if there is no entry. */
struct chunk_ent *chunk_ent_find(struct chunk_cache *c, const struct chunk_key *id);
/* The newest record, pending or committed. Call only if `e->known` or `e->n_pend`. */
static inline struct chunk_record *chunk_ent_newest(const struct chunk_ent *e)
{
	return e->n_pend ? e->pend : e->rec;
}

/* Returns a record with a zeroed header and one reference. NULL: no memory. */
struct chunk_record *chunk_record_create(struct chunk_cache *c, uint32_t n_blocks, uint32_t n_gaps);
static inline struct chunk_record *chunk_record_ref(struct chunk_record *r)
{
	if (r)
		r->refs++;
	return r;
}
void chunk_record_unref(struct chunk_cache *c, struct chunk_record *r); /* NULL is fine */

#endif
