/*
 * Rows that vanish while the store is in use. Nothing tells so but the name of the chunk, a row of
 * its own (ledger.h): whoever finds no record looks for the name before he takes that for a hole,
 * and who has walked over records compares them with the names. A chunk that is missed gets a row
 * that says that it is lost, and is met like one that was missed at the start.
 */
#include <stdlib.h>

#include "common/base/fault.h"
#include "common/base/log.h"
#include "ossd/chunk/store_impl.h"

#define LOOK_STEP 32u
#define SUM_STEP  1024u

/* Keeps the entry until its row is there to be read. */
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
	uint8_t key[CHUNK_ROW_SIZE];
	struct kv_value v;
	int rc;

	chunk_row_encode(ROW_NAME, id, key);
	rc = kv_get(s->kv, key, sizeof(key), &v);
	*ret_has = rc == 0;
	if (rc == 0)
		kv_value_fini(&v);
	return rc == -LE_NOENT ? 0 : rc;
}

int store_ent_vanished(struct chunk_store *s, struct chunk_ent *e)
{
	uint8_t key[CHUNK_ROW_SIZE], value[CHUNK_LOST_SIZE];
	struct mark *k;
	bool named;

	TRY(has_name(s, &e->id, &named));
	if (!named || e->known || e->n_pend || FAULT(OSS_SKIP_NAMES))
		return 0;
	TRY(chunk_store_status(s));
	k = calloc(1, sizeof(*k));
	if (!k)
		return -LE_NOMEM;
	*k = (struct mark){{.committed = mark_ended, .failed = mark_ended}, s, NULL};
	k->ent = chunk_ent_get(&s->cache, &e->id);
	ASSERT(k->ent == e);
	chunk_row_encode(ROW_CHUNK, &e->id, key);
	chunk_record_encode_lost(&e->id, value);
	kv_batch_put(group_commit_batch(&s->gc), key, sizeof(key), value, sizeof(value));
	ledger_marked(&s->ledger, e->id.chain, 1);
	(void)group_commit_join_lazy(&s->gc, &k->member, false);
	e->known = e->lost = true;
	s->n_vanished++;
	metric_add(&s->metrics->lost, 1);
	log_error("inode=%llu gen=%u chunk=%llu target=%u: the chunk has vanished from the index",
		  (unsigned long long)e->id.ino.v, e->id.gen, (unsigned long long)e->id.idx,
		  s->super.target);
	return 0;
}

/* ---- names ---- */

struct names {
	uint8_t key[CHUNK_ROW_SIZE + 1]; /* where to go on */
	size_t key_len;
	uint8_t end[CHUNK_ROW_SIZE + 1];
	bool more, keep;
	struct chunk_names sum;
	struct chunk_key k[LOOK_STEP]; /* those of the last step, if they are to be kept */
	uint32_t n;
};

static void names_init(struct names *n, const struct chunk_key *first, const struct chunk_key *last,
		       bool keep)
{
	*n = (struct names){.key_len = CHUNK_ROW_SIZE, .more = true, .keep = keep};
	chunk_row_encode(ROW_NAME, first, n->key);
	chunk_row_encode(ROW_NAME, last, n->end);
}

static int each_name(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct names *n = arg;
	struct chunk_key k;

	(void)value, (void)len;
	memcpy(n->key, key, key_len);
	n->key[key_len] = 0;
	n->key_len = key_len + 1;
	TRY(chunk_row_decode(ROW_NAME, key, key_len, &k));
	chunk_names_add(&n->sum, &k);
	if (n->keep)
		n->k[n->n++] = k;
	return 0;
}

static int names_step(struct chunk_store *s, struct names *n)
{
	struct kv_range range = {n->key, n->key_len, n->end, sizeof(n->end),
				 n->keep ? LOOK_STEP : SUM_STEP};

	n->n = 0;
	return kv_scan(s->kv, NULL, &range, each_name, n, &n->more);
}

/* The record is in memory still, and goes where it was. */
static void put_back(struct chunk_store *s, const struct chunk_ent *e)
{
	uint8_t key[CHUNK_ROW_SIZE];

	chunk_row_encode(ROW_CHUNK, &e->id, key);
	kv_batch_put(group_commit_batch(&s->gc), key, sizeof(key), s->scratch,
		     chunk_record_encode(&e->id, e->rec, s->scratch));
	(void)group_commit_join_lazy(&s->gc, NULL, false);
	s->n_vanished++;
	log_error("inode=%llu gen=%u chunk=%llu target=%u: the record had vanished from the index "
		  "and is put back",
		  (unsigned long long)e->id.ino.v, e->id.gen, (unsigned long long)e->id.idx,
		  s->super.target);
}

/* What has vanished is met by loading it. What was loaded before it vanished is compared. */
static int look_at_ent(struct chunk_store *s, struct chunk_ent *e)
{
	const struct chunk_record *rec = e->rec;
	bool known = e->known && rec && !e->n_pend;
	uint8_t key[CHUNK_ROW_SIZE];
	struct kv_value v;
	int rc;

	if (!known) {
		rc = store_ent_load(s, e);
		return rc == -LE_CORRUPT ? 0 : rc;
	}
	chunk_row_encode(ROW_CHUNK, &e->id, key);
	rc = kv_get(s->kv, key, sizeof(key), &v);
	if (rc == 0)
		kv_value_fini(&v);
	if (rc != -LE_NOENT)
		return rc;
	TRY(chunk_store_status(s));
	if (e->rec == rec && !e->n_pend)
		put_back(s, e);
	return 0;
}

static int look_at(struct chunk_store *s, const struct chunk_key *k)
{
	struct chunk_ent *e = chunk_ent_get(&s->cache, k);
	int rc;

	if (!e)
		return -LE_NOMEM;
	rc = look_at_ent(s, e);
	chunk_ent_put(&s->cache, e);
	return rc;
}

static int look_at_all(struct chunk_store *s, const struct chunk_key *first,
		       const struct chunk_key *last)
{
	struct names n;

	for (names_init(&n, first, last, true); n.more;) {
		TRY(names_step(s, &n));
		for (uint32_t i = 0; i < n.n; i++)
			TRY(look_at(s, &n.k[i]));
	}
	return 0;
}

int chunk_find_vanished(struct chunk_store *s, const struct chunk_key *first,
			const struct chunk_key *last, const struct chunk_names *rows,
			bool *ret_found)
{
	uint64_t before = s->n_vanished;
	struct names n;

	*ret_found = false;
	for (names_init(&n, first, last, false); rows && n.more;)
		TRY(names_step(s, &n));
	if (rows && n.sum.n == rows->n && n.sum.hash == rows->hash)
		return 0;
	TRY(look_at_all(s, first, last));
	*ret_found = s->n_vanished != before;
	return *ret_found ? group_commit_barrier(&s->gc) : 0;
}
