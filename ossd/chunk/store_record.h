/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of chunks: from the cache, or from their rows in the index. A chunk that has no row
 * either never existed or is lost; the inventory and the names distinguish the two.
 *
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_STORE_RECORD_H
#define LEAT_OSSD_CHUNK_STORE_RECORD_H

#include "ossd/chunk/chunk_store.h"

/* True if changes of the chunk have joined a group and are visible. A store that has failed makes
 * only committed changes visible, as later ones may not be on disk. */
static inline bool store_ent_pending(const struct chunk_store *s, const struct chunk_ent *e)
{
	return e->n_pend && s->gc.status == 0;
}

/* The record that readers use; NULL: there is no chunk. Call only after store_ent_load. */
static inline struct chunk_record *store_ent_seen(const struct chunk_store *s,
						  const struct chunk_ent *e)
{
	return store_ent_pending(s, e) ? e->pend : e->rec;
}

/* True if ent->rec is the committed record. False: it cannot be read, though a pending one may be.
 * Call only after store_ent_load. */
static inline bool store_ent_readable(const struct chunk_ent *e)
{
	return e->known && !e->lost;
}

/* Loads ent->rec, unless a pending record is visible. Returns 0, or -LE_CORRUPT if its row cannot
 * be read (*ret_row), or if there is no row but should be. Yields. */
int store_ent_load_row(struct chunk_store *s, struct chunk_ent *e, bool *ret_row) CHECK_RESULT;

static inline CHECK_RESULT int store_ent_load(struct chunk_store *s, struct chunk_ent *e)
{
	bool row;

	return store_ent_load_row(s, e, &row);
}

/* Decodes a record from its row. Logs and returns -LE_CORRUPT if it is damaged. */
int store_record_decode(struct chunk_store *s, const struct chunk_key *id, const void *data,
			size_t len, struct chunk_record **ret_rec) CHECK_RESULT;

/* Returns the record, with a reference for the caller; NULL if there is no such chunk. */
int chunk_store_record(struct chunk_store *s, const struct chunk_key *id,
		       struct chunk_record **ret_rec) CHECK_RESULT;
/* Reports why a chunk cannot be read (-LE_CORRUPT). LOST: its row or the inventory marks it as
 * lost. UNSURE: it may be lost. NONE: its record is damaged, or it can be read. Yields. */
enum inventory_answer chunk_store_lost(struct chunk_store *s, const struct chunk_key *id);
/* Returns the committed record. With quiet, -LE_PENDING if there is a newer one. */
int chunk_store_committed(struct chunk_store *s, const struct chunk_key *id, bool quiet,
			  struct chunk_record **ret_rec) CHECK_RESULT;

#endif
