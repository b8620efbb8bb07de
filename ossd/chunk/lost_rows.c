/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects rows that are lost while the store is in use. The only trace of such a row is the
 * chunk's name, a separate row (chunk_inventory.h). A lookup that finds no record checks the name
 * before it treats the chunk as a hole, and a scan of records compares them with the names. A lost
 * chunk gets a row that marks it as lost, like one that was missing at the start.
 */
#include "ossd/chunk/lost_rows.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"

/* Keeps the entry in memory until the row that marks it is durable. */
struct mark {
	struct commit_member member;
	struct chunk_store *s;
	struct chunk_ent *ent;
};

static void mark_ended(struct commit_member *m)
{
	struct mark *k = container_of(m, struct mark, member);

	chunk_ent_put(&k->s->cache, k->ent);
	free(k);
}

static int has_name(struct chunk_store *s, const struct chunk_key *id, bool *ret_has)
{
	uint8_t key[CHUNK_KEY_SIZE];
	struct kv_value v;
	int rc;

	chunk_key_encode(ROW_NAME, id, key);
	rc = kv_get(s->kv, key, sizeof(key), &v);
	*ret_has = rc == 0;
	if (rc == 0)
		kv_value_fini(&v);
	return rc == -LE_NOENT ? 0 : rc;
}

int store_ent_row_lost(struct chunk_store *s, struct chunk_ent *e)
{
	uint8_t key[CHUNK_KEY_SIZE], value[CHUNK_LOST_SIZE];
	struct mark *k;
	bool named;

	TRY(has_name(s, &e->id, &named));
	if (!named || e->known || e->n_pend || PLANTED_BUG(OSS_SKIP_NAMES))
		return 0;
	TRY(chunk_store_status(s));
	k = calloc(1, sizeof(*k));
	if (!k)
		return -LE_NOMEM;
	*k = (struct mark){{.committed = mark_ended, .failed = mark_ended}, s, NULL};
	k->ent = chunk_ent_get(&s->cache, &e->id);
	ASSERT(k->ent == e);
	chunk_key_encode(ROW_CHUNK, &e->id, key);
	chunk_record_encode_lost(&e->id, value);
	kv_batch_put(group_commit_batch(&s->gc), key, sizeof(key), value, sizeof(value));
	inventory_marked(&s->inventory, e->id.chain, 1);
	(void)group_commit_join_lazy(&s->gc, &k->member, false);
	e->known = e->lost = true;
	s->n_lost_rows++;
	metric_add(&s->metrics->lost, 1);
	log_error("inode=%llu gen=%u chunk=%llu target=%u: the row of the chunk was lost from the "
		  "index",
		  (unsigned long long)e->id.ino.v, e->id.gen, (unsigned long long)e->id.idx,
		  s->super.target);
	return 0;
}

