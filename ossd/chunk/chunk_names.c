/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/chunk_names.h"

#include "common/base/log.h"
#include "ossd/chunk/store_record.h"

#define POLL_STEP 32u
#define SUM_STEP  1024u

struct names {
	uint8_t key[CHUNK_KEY_SIZE + 1]; /* the next key */
	size_t key_len;
	uint8_t end[CHUNK_KEY_SIZE + 1];
	bool more, keep;
	struct chunk_names sum;
	struct chunk_key k[POLL_STEP]; /* names of the last step, if keep is set */
	uint32_t n;
};

static void names_init(struct names *n, const struct chunk_key *first,
			      const struct chunk_key *last, bool keep)
{
	*n = (struct names){.key_len = CHUNK_KEY_SIZE, .more = true, .keep = keep};
	chunk_key_encode(ROW_NAME, first, n->key);
	chunk_key_encode(ROW_NAME, last, n->end);
}

static int each_name(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct names *n = arg;
	struct chunk_key k;

	(void)value, (void)len;
	memcpy(n->key, key, key_len);
	n->key[key_len] = 0;
	n->key_len = key_len + 1;
	TRY(chunk_key_decode(ROW_NAME, key, key_len, &k));
	chunk_names_add(&n->sum, &k);
	if (n->keep)
		n->k[n->n++] = k;
	return 0;
}

static int names_step(struct chunk_store *s, struct names *n)
{
	struct kv_range range = {n->key, n->key_len, n->end, sizeof(n->end),
				 n->keep ? POLL_STEP : SUM_STEP};

	n->n = 0;
	return kv_scan(s->kv, NULL, &range, each_name, n, &n->more);
}

/* Writes the row again, from the record in memory. */
static void put_back(struct chunk_store *s, const struct chunk_ent *e)
{
	uint8_t key[CHUNK_KEY_SIZE];

	chunk_key_encode(ROW_CHUNK, &e->id, key);
	kv_batch_put(group_commit_batch(&s->gc), key, sizeof(key), s->scratch,
		     chunk_record_encode(&e->id, e->rec, s->scratch));
	(void)group_commit_join_lazy(&s->gc, NULL, false);
	s->n_lost_rows++;
	log_error("inode=%llu gen=%u chunk=%llu target=%u: the row of the chunk was lost from the "
		  "index and is restored",
		  (unsigned long long)e->id.ino.v, e->id.gen, (unsigned long long)e->id.idx,
		  s->super.target);
}

/* A record that is not in memory is loaded, which detects a lost row. For one that was loaded
 * before, the row is looked up. */
static int look_at_ent(struct chunk_store *s, struct chunk_ent *e)
{
	const struct chunk_record *rec = e->rec;
	bool known = e->known && rec && !e->n_pend;
	uint8_t key[CHUNK_KEY_SIZE];
	struct kv_value v;
	int rc;

	if (!known) {
		rc = store_ent_load(s, e);
		return rc == -LE_CORRUPT ? 0 : rc;
	}
	chunk_key_encode(ROW_CHUNK, &e->id, key);
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

int chunk_find_lost_rows(struct chunk_store *s, const struct chunk_key *first,
			const struct chunk_key *last, const struct chunk_names *rows,
			bool *ret_found)
{
	uint64_t before = s->n_lost_rows;
	struct names n;

	*ret_found = false;
	for (names_init(&n, first, last, false); rows && n.more;)
		TRY(names_step(s, &n));
	if (rows && n.sum.n == rows->n && n.sum.hash == rows->hash)
		return 0;
	TRY(look_at_all(s, first, last));
	*ret_found = s->n_lost_rows != before;
	return *ret_found ? group_commit_barrier(&s->gc) : 0;
}
