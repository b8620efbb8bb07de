/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/chain_log.h"

#include <stdlib.h>

#include "common/base/log.h"

#define SLAB_CHUNKS 256u
#define IDLE_MAX    64u      /* P rows that may wait for their deletion */
#define IDLE_US     3000000u /* and how long */
#define SWEEP       32u      /* rows deleted with one change */
#define LIST_STEP   1024u
#define OVERFLOWED  UINT32_MAX /* in an L row: the log was discarded */

struct log_chain {
	struct hmap_node node;
	uint32_t chain;
	uint32_t log_epoch, synced_epoch;
	bool others;
	bool overflowed; /* no log until all members are SYNC */
};

struct log_chunk {
	struct hmap_node node;
	struct list idle;
	struct log_chunk *next_free;
	struct chunk_key key;
	uint64_t idle_us;
	bool pending; /* it has a P row */
	bool changed; /* it has a D row */
	bool busy;    /* a version of it is pending */
	bool suspect; /* pending when the store was opened, or its record was never committed */
};

struct slab {
	struct slab *next;
	struct log_chunk c[SLAB_CHUNKS];
};

/* ---- chains and chunks ---- */

static struct log_chain *log_chain_find(const struct chain_log *l, uint32_t chain)
{
	struct hmap_node *n = hmap_find_id(&l->chains, chain);

	return n ? container_of(n, struct log_chain, node) : NULL;
}

static struct log_chain *log_chain_get(struct chain_log *l, uint32_t chain)
{
	struct log_chain *c = log_chain_find(l, chain);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->chain = chain;
	hmap_insert_id(&l->chains, &c->node, chain);
	return c;
}

static struct log_chunk *log_chunk_find(const struct chain_log *l, const struct chunk_key *k)
{
	struct hmap_node *n = hmap_find(&l->chunks, chunk_key_hash(k));

	for (; n; n = hmap_find_next(n)) {
		struct log_chunk *c = container_of(n, struct log_chunk, node);

		if (chunk_key_equal(&c->key, k))
			return c;
	}
	return NULL;
}

static void slab_add(struct chain_log *l)
{
	struct slab *s = malloc(sizeof(*s));

	if (!s)
		return;
	s->next = l->slabs;
	l->slabs = s;
	for (uint32_t i = 0; i < SLAB_CHUNKS; i++) {
		s->c[i].next_free = l->free;
		l->free = &s->c[i];
	}
}

static struct log_chunk *log_chunk_get(struct chain_log *l, const struct chunk_key *k)
{
	struct log_chunk *c = log_chunk_find(l, k);

	if (c)
		return c;
	if (!l->free)
		slab_add(l);
	c = l->free;
	if (!c)
		return NULL;
	l->free = c->next_free;
	*c = (struct log_chunk){.key = *k};
	list_init(&c->idle);
	hmap_insert(&l->chunks, &c->node, chunk_key_hash(k));
	return c;
}

/* Frees a chunk that has no row. */
static void log_chunk_put(struct chain_log *l, struct log_chunk *c)
{
	if (c->pending || c->changed)
		return;
	hmap_remove(&l->chunks, &c->node);
	c->next_free = l->free;
	l->free = c;
}

/* ---- rows ---- */

static void put_row(struct kv_batch *b, enum row_kind kind, const struct chunk_key *k)
{
	uint8_t key[CHUNK_KEY_SIZE];

	chunk_key_encode(kind, k, key);
	kv_batch_put(b, key, sizeof(key), NULL, 0);
}

static void delete_row(struct kv_batch *b, enum row_kind kind, const struct chunk_key *k)
{
	uint8_t key[CHUNK_KEY_SIZE];

	chunk_key_encode(kind, k, key);
	kv_batch_delete(b, key, sizeof(key));
}

static void put_epoch(struct kv_batch *b, enum row_kind kind, uint32_t chain, uint32_t epoch)
{
	uint8_t key[CHAIN_KEY_SIZE], value[EPOCH_VALUE_SIZE];

	chain_key_encode(kind, chain, key);
	epoch_value_encode(epoch, value);
	kv_batch_put(b, key, sizeof(key), value, sizeof(value));
}

static void delete_chain_row(struct kv_batch *b, enum row_kind kind, uint32_t chain)
{
	uint8_t key[CHAIN_KEY_SIZE];

	chain_key_encode(kind, chain, key);
	kv_batch_delete(b, key, sizeof(key));
}

/* Deletes all rows of a kind that begin with the chain's number. */
static void delete_rows(struct kv_batch *b, enum row_kind kind, uint32_t chain)
{
	uint8_t begin[CHAIN_KEY_SIZE], end[CHAIN_KEY_SIZE];

	chain_key_encode(kind, chain, begin);
	if (chain == UINT32_MAX)
		chain_key_encode((enum row_kind)(kind + 1), 0, end);
	else
		chain_key_encode(kind, chain + 1, end);
	kv_batch_delete_range(b, begin, sizeof(begin), end, sizeof(end));
}

static void set_changed(struct chain_log *l, struct log_chunk *c, struct kv_batch *b)
{
	if (c->changed)
		return;
	put_row(b, ROW_CHANGED, &c->key);
	c->changed = true;
	l->n_changed++;
}

static void unset_pending(struct chain_log *l, struct log_chunk *c, struct kv_batch *b)
{
	delete_row(b, ROW_PENDING, &c->key);
	c->pending = c->busy = c->suspect = false;
	if (!list_empty(&c->idle))
		l->n_idle--;
	list_remove(&c->idle);
}

/* ---- adoption ---- */

/* Versions that are pending now may be committed without the absent members, so their chunks are
 * logged too. Suspect chunks keep their P row, which is compared like the log. They have not
 * changed since the members left. */
static void log_begin(struct chain_log *l, struct log_chain *c, uint32_t epoch, struct kv_batch *b)
{
	c->log_epoch = epoch;
	put_epoch(b, ROW_LOG, c->chain, epoch);
	for (struct hmap_node *n = hmap_next(&l->chunks, NULL); n; n = hmap_next(&l->chunks, n)) {
		struct log_chunk *k = container_of(n, struct log_chunk, node);

		if (k->key.chain == c->chain && k->busy)
			set_changed(l, k, b);
	}
}

static void log_end(struct chain_log *l, struct log_chain *c, struct kv_batch *b)
{
	struct hmap_node *n = hmap_next(&l->chunks, NULL);

	c->log_epoch = 0;
	delete_chain_row(b, ROW_LOG, c->chain);
	delete_rows(b, ROW_CHANGED, c->chain);
	while (n) {
		struct log_chunk *k = container_of(n, struct log_chunk, node);

		n = hmap_next(&l->chunks, n);
		if (k->key.chain != c->chain || !k->changed)
			continue;
		k->changed = false;
		l->n_changed--;
		log_chunk_put(l, k);
	}
}

/* Discards the log durably: one that begins later must not seem complete. */
static void give_up(struct chain_log *l, struct log_chain *c, struct kv_batch *b)
{
	log_end(l, c, b);
	c->overflowed = true;
	put_epoch(b, ROW_LOG, c->chain, OVERFLOWED);
}

static void drop_suspects(struct chain_log *l, uint32_t chain, struct kv_batch *b)
{
	struct hmap_node *n = hmap_next(&l->chunks, NULL);

	while (n) {
		struct log_chunk *k = container_of(n, struct log_chunk, node);

		n = hmap_next(&l->chunks, n);
		if (k->key.chain != chain || !k->suspect)
			continue;
		k->suspect = false;
		if (k->busy)
			continue; /* it has a version that other members may lack */
		unset_pending(l, k, b);
		log_chunk_put(l, k);
	}
}

void chain_log_adopt(struct chain_log *l, const struct log_adopt *a, struct kv_batch *b)
{
	struct log_chain *c = log_chain_get(l, a->chain);

	if (!c)
		return; /* no log, so a full comparison */
	c->others = a->others;
	if (a->sync && c->synced_epoch != a->epoch) {
		c->synced_epoch = a->epoch;
		put_epoch(b, ROW_SYNCED, a->chain, a->epoch);
	}
	if (a->all_sync || !a->sync) {
		if (c->log_epoch || c->overflowed)
			log_end(l, c, b);
		c->overflowed = false;
	} else if (!c->log_epoch && !c->overflowed) {
		log_begin(l, c, a->epoch, b);
	}
	if (a->all_sync)
		drop_suspects(l, a->chain, b);
}

void chain_log_forget(struct chain_log *l, uint32_t chain, struct kv_batch *b)
{
	static const enum row_kind kinds[] = {ROW_PENDING, ROW_CHANGED, ROW_REPLAY, ROW_LOG,
					      ROW_CHAIN,   ROW_FLOOR,   ROW_SYNCED};
	struct log_chain *c = log_chain_find(l, chain);
	struct hmap_node *n = hmap_next(&l->chunks, NULL);

	while (n) {
		struct log_chunk *k = container_of(n, struct log_chunk, node);

		n = hmap_next(&l->chunks, n);
		if (k->key.chain != chain)
			continue;
		if (k->pending)
			unset_pending(l, k, b);
		l->n_changed -= k->changed;
		k->changed = false;
		log_chunk_put(l, k);
	}
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		delete_rows(b, kinds[i], chain);
	if (c) {
		hmap_remove(&l->chains, &c->node);
		free(c);
	}
}

/* ---- changes ---- */

static void sweep(struct chain_log *l, uint32_t keep, uint64_t before_us, struct kv_batch *b)
{
	for (uint32_t i = 0; i < SWEEP && l->n_idle > keep; i++) {
		struct log_chunk *c = list_entry(l->idle.next, struct log_chunk, idle);

		if (c->idle_us > before_us)
			break;
		unset_pending(l, c, b);
		log_chunk_put(l, c);
	}
}

void chain_log_joined(struct chain_log *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct log_chain *c = log_chain_find(l, k->chain);
	struct log_chunk *e;

	if (l->watch)
		l->watch(l->watch_arg, k);
	if (!c || !c->others)
		return;
	e = log_chunk_get(l, k);
	if (!e) { /* no memory: the P row is written each time, and the log is discarded */
		put_row(b, ROW_PENDING, k);
		if (c->log_epoch)
			give_up(l, c, b);
		return;
	}
	if (!e->pending)
		put_row(b, ROW_PENDING, k);
	if (!list_empty(&e->idle)) {
		list_remove(&e->idle);
		l->n_idle--;
	}
	e->pending = e->busy = true;
	if (c->log_epoch && !e->changed && l->n_changed >= l->changed_max) {
		log_warn("chain %u: more than %u chunks have changed while a member is away: it "
			 "will be compared in full", k->chain, l->changed_max);
		give_up(l, c, b);
	}
	if (c->log_epoch)
		set_changed(l, e, b);
	sweep(l, IDLE_MAX, UINT64_MAX, b);
}

void chain_log_committed(struct chain_log *l, const struct chunk_key *k)
{
	struct log_chunk *e = log_chunk_find(l, k);

	if (!e)
		return;
	e->busy = false;
	if (!e->pending || e->suspect || !list_empty(&e->idle))
		return;
	e->idle_us = env_now_us(l->s->env);
	list_push(&l->idle, &e->idle);
	l->n_idle++;
}

void chain_log_kept(struct chain_log *l, const struct chunk_key *k)
{
	struct log_chunk *e = log_chunk_find(l, k);

	if (!e)
		return;
	e->busy = false;
	e->suspect = e->pending;
}

void chain_log_taken_back(struct chain_log *l, const struct chunk_key *k, bool quiet)
{
	if (l->watch)
		l->watch(l->watch_arg, k);
	if (quiet)
		chain_log_committed(l, k);
}

void chain_log_tick(struct chain_log *l)
{
	uint64_t now = env_now_us(l->s->env);
	struct log_chunk *first = list_entry(l->idle.next, struct log_chunk, idle);

	if (!l->n_idle || first->idle_us + IDLE_US > now || chunk_store_status(l->s) < 0)
		return;
	sweep(l, 0, now - IDLE_US, group_commit_batch(&l->s->gc));
	(void)group_commit_join_lazy(&l->s->gc, NULL, false);
}

/* ---- queries ---- */

uint32_t chain_log_epoch(const struct chain_log *l, uint32_t chain)
{
	const struct log_chain *c = log_chain_find(l, chain);

	return c ? c->log_epoch : 0;
}

bool chain_log_changed(const struct chain_log *l, const struct chunk_key *k)
{
	const struct log_chunk *c = log_chunk_find(l, k);

	return c && c->changed;
}

uint32_t chain_log_synced_epoch(const struct chain_log *l, uint32_t chain)
{
	const struct log_chain *c = log_chain_find(l, chain);

	return c ? c->synced_epoch : 0;
}

int chain_log_each_pending(struct chain_log *l, uint32_t chain,
			   int (*each)(void *arg, const struct chunk_key *k), void *arg)
{
	for (struct hmap_node *n = hmap_next(&l->chunks, NULL); n; n = hmap_next(&l->chunks, n)) {
		const struct log_chunk *c = container_of(n, struct log_chunk, node);
		int rc;

		if (c->key.chain != chain || !(c->busy || c->suspect))
			continue;
		rc = each(arg, &c->key);
		if (rc)
			return rc;
	}
	return 0;
}

struct list_arg {
	enum row_kind kind;
	struct chunk_keys *keys;
	uint32_t max;
};

static int list_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct list_arg *a = arg;

	(void)value, (void)len;
	if (a->keys->n == a->max)
		return 0;
	return chunk_key_decode(a->kind, key, key_len, &a->keys->k[a->keys->n++]);
}

int chain_log_list(struct chain_log *l, enum row_kind kind, const struct chunk_key *from,
		   uint32_t max, struct chunk_keys *ret_keys)
{
	struct chunk_key last = {from->chain, {UINT64_MAX}, UINT32_MAX, UINT64_MAX};
	struct list_arg a = {kind, ret_keys, max};
	uint8_t begin[CHUNK_KEY_SIZE], end[CHUNK_KEY_SIZE + 1] = {0};
	struct kv_range range = {begin, sizeof(begin), end, sizeof(end), max};

	TRY(group_commit_barrier(&l->s->gc));
	chunk_key_encode(kind, from, begin);
	chunk_key_encode(kind, &last, end);
	ret_keys->n = 0;
	return kv_scan(l->s->kv, NULL, &range, list_row, &a, &ret_keys->more);
}

/* ---- start ---- */

struct load {
	struct chain_log *l;
	uint8_t next[KV_KEY_MAX + 1];
	size_t next_len;
};

static int load_chunk(struct chain_log *l, enum row_kind kind, const void *key, size_t key_len)
{
	struct log_chunk *c;
	struct chunk_key k;

	TRY(chunk_key_decode(kind, key, key_len, &k));
	c = log_chunk_get(l, &k);
	if (!c)
		return -LE_NOMEM;
	if (kind == ROW_PENDING) {
		c->pending = c->suspect = true;
	} else {
		c->changed = true;
		l->n_changed++;
	}
	return 0;
}

static int load_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *d = arg;
	enum row_kind kind = *(const uint8_t *)key;
	struct log_chain *c;
	uint32_t chain, epoch;

	memcpy(d->next, key, key_len);
	d->next[key_len] = 0;
	d->next_len = key_len + 1;
	if (kind == ROW_PENDING || kind == ROW_CHANGED)
		return load_chunk(d->l, kind, key, key_len);
	TRY(chain_key_decode(kind, key, key_len, &chain));
	TRY(epoch_value_decode(value, len, &epoch));
	c = log_chain_get(d->l, chain);
	if (!c)
		return -LE_NOMEM;
	if (kind == ROW_LOG) {
		c->overflowed = epoch == OVERFLOWED;
		c->log_epoch = c->overflowed ? 0 : epoch;
	} else {
		c->synced_epoch = epoch;
	}
	/* Assumed until the metadata server sends the chain, so that every change is logged. */
	c->others = true;
	return 0;
}

static int load_rows(struct chain_log *l, enum row_kind kind)
{
	struct load d = {.l = l, .next = {(uint8_t)kind}, .next_len = 1};
	uint8_t end = (uint8_t)(kind + 1);
	bool more = true;

	while (more) {
		struct kv_range range = {d.next, d.next_len, &end, 1, LIST_STEP};

		TRY(kv_scan(l->s->kv, NULL, &range, load_row, &d, &more));
	}
	return 0;
}

int chain_log_open(struct chunk_store *s, uint32_t changed_max, struct chain_log **ret_log)
{
	static const enum row_kind kinds[] = {ROW_LOG, ROW_SYNCED, ROW_PENDING, ROW_CHANGED};
	struct chain_log *l = calloc(1, sizeof(*l));
	int rc = 0;

	if (!l)
		return -LE_NOMEM;
	l->s = s;
	l->changed_max = changed_max;
	list_init(&l->idle);
	hmap_init(&l->chains, 16);
	hmap_init(&l->chunks, 256);
	for (size_t i = 0; i < ARRAY_SIZE(kinds) && rc == 0; i++)
		rc = load_rows(l, kinds[i]);
	if (rc < 0) {
		chain_log_close(l);
		return rc;
	}
	*ret_log = l;
	return 0;
}

void chain_log_close(struct chain_log *l)
{
	struct hmap_node *n = hmap_next(&l->chains, NULL);

	while (n) {
		struct log_chain *c = container_of(n, struct log_chain, node);

		n = hmap_next(&l->chains, n);
		free(c);
	}
	hmap_fini(&l->chains);
	hmap_fini(&l->chunks);
	while (l->slabs) {
		struct slab *s = l->slabs;

		l->slabs = s->next;
		free(s);
	}
	free(l);
}
