/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/store_record.h"

#include "common/base/log.h"
#include "ossd/chunk/lost_rows.h"

int store_record_decode(struct chunk_store *s, const struct chunk_key *id, const void *data,
			size_t len, struct chunk_record **ret_rec)
{
	struct chunk_summary_info info;
	struct chunk_record *rec;
	int rc = chunk_record_summary(id, data, len, &info);

	if (rc == 0) {
		rec = chunk_record_create(&s->cache, info.n_blocks, info.n_gaps);
		if (!rec)
			return -LE_NOMEM;
		rc = chunk_record_decode(id, data, len, rec, info.n_blocks);
		if (rc == 0) {
			*ret_rec = rec;
			return 0;
		}
		chunk_record_unref(&s->cache, rec);
	}
	metric_add(&s->metrics->corrupt, 1);
	log_error("inode=%llu gen=%u chunk=%llu target=%u: the record of the chunk is damaged",
		  (unsigned long long)id->ino.v, id->gen, (unsigned long long)id->idx,
		  s->super.target);
	return -LE_CORRUPT;
}

static int lost_by_name(struct chunk_store *s, const struct chunk_key *id)
{
	metric_add(&s->metrics->corrupt, 1);
	log_error("inode=%llu gen=%u chunk=%llu target=%u: the chunk is lost",
		  (unsigned long long)id->ino.v, id->gen, (unsigned long long)id->idx,
		  s->super.target);
	return -LE_CORRUPT;
}

/* Called for a chunk without a row: fails if the chunk is or may be lost according to the
 * inventory. */
static int check_lost(struct chunk_store *s, const struct chunk_key *id)
{
	switch (inventory_has(&s->inventory, id)) {
	case INVENTORY_NONE:
		return 0;
	case INVENTORY_LOST:
		return lost_by_name(s, id);
	case INVENTORY_UNSURE:
		metric_add(&s->metrics->corrupt, 1);
		log_error("chain=%u inode=%llu gen=%u chunk=%llu target=%u: the index has lost "
			  "several chunks, and their names: this may be one of them",
			  id->chain, (unsigned long long)id->ino.v, id->gen,
			  (unsigned long long)id->idx, s->super.target);
		return -LE_CORRUPT;
	}
	return -LE_CORRUPT;
}

int store_ent_load_row(struct chunk_store *s, struct chunk_ent *e, bool *ret_row)
{
	struct chunk_record *rec = NULL;
	uint8_t key[CHUNK_KEY_SIZE];
	struct kv_value v;
	int rc;

	*ret_row = false;
	if (e->known || store_ent_pending(s, e)) {
		metric_add(&s->metrics->cache_hits, 1);
		if (!e->lost || store_ent_pending(s, e))
			return 0;
		*ret_row = true;
		return lost_by_name(s, &e->id);
	}
	metric_add(&s->metrics->cache_misses, 1);
	chunk_key_encode(ROW_CHUNK, &e->id, key);
	rc = kv_get(s->kv, key, sizeof(key), &v);
	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	*ret_row = rc == 0;
	if (rc == 0) {
		bool lost = chunk_record_is_lost(&e->id, v.data, v.len);

		if (!e->known && lost)
			e->known = e->lost = true;
		else if (!e->known)
			rc = store_record_decode(s, &e->id, v.data, v.len, &rec);
		kv_value_fini(&v);
		TRY(rc);
		if (e->lost && !store_ent_pending(s, e))
			return lost_by_name(s, &e->id);
	} else if (!e->known && !e->n_pend) {
		TRY(store_ent_row_lost(s, e));
		*ret_row = e->known && e->lost;
		if (*ret_row && !store_ent_pending(s, e))
			return lost_by_name(s, &e->id);
		/* Checked last, without a yield before the entry is set: a cell that becomes
		 * uncertain later finds the entry, and resets it (chunk_cache_forget_none). */
		if (!e->known && !e->n_pend)
			TRY(check_lost(s, &e->id));
	}
	chunk_ent_load(&s->cache, e, rec);
	return 0;
}

int chunk_store_record(struct chunk_store *s, const struct chunk_key *id,
		       struct chunk_record **ret_rec)
{
	struct chunk_ent *e = chunk_ent_get(&s->cache, id);
	int rc;

	if (!e)
		return -LE_NOMEM;
	rc = store_ent_load(s, e);
	if (rc == 0)
		*ret_rec = chunk_record_ref(store_ent_seen(s, e));
	chunk_ent_put(&s->cache, e);
	return rc;
}

enum inventory_answer chunk_store_lost(struct chunk_store *s, const struct chunk_key *id)
{
	struct chunk_ent *e = chunk_ent_find(&s->cache, id);
	bool pending = e && store_ent_pending(s, e);
	bool known = pending || (e && e->known), lost = !pending && known && e->lost;
	uint8_t key[CHUNK_KEY_SIZE];
	struct kv_value v;
	int rc;

	if (e)
		chunk_ent_put(&s->cache, e);
	if (known)
		return lost ? INVENTORY_LOST : INVENTORY_NONE;
	chunk_key_encode(ROW_CHUNK, id, key);
	rc = kv_get(s->kv, key, sizeof(key), &v);
	if (rc < 0)
		return rc == -LE_NOENT ? inventory_has(&s->inventory, id) : INVENTORY_NONE;
	lost = chunk_record_is_lost(id, v.data, v.len);
	kv_value_fini(&v);
	return lost ? INVENTORY_LOST : INVENTORY_NONE;
}

int chunk_store_committed(struct chunk_store *s, const struct chunk_key *id, bool quiet,
			  struct chunk_record **ret_rec)
{
	struct chunk_ent *e = chunk_ent_get(&s->cache, id);
	int rc;

	if (!e)
		return -LE_NOMEM;
	rc = store_ent_load(s, e);
	if (rc == 0 && quiet && e->n_pend)
		rc = -LE_PENDING;
	else if (rc == 0 && !store_ent_readable(e))
		rc = -LE_CORRUPT;
	if (rc == 0)
		*ret_rec = chunk_record_ref(e->rec);
	chunk_ent_put(&s->cache, e);
	return rc;
}
