/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/replay.h"

#include <stdlib.h>

#include "common/base/planted_bug.h"
#include "common/rt/loop.h"

WIRE_DEFINE_MESSAGE(replay_row)

#define ROW_MAX (REPLAY_REPLY_MAX + 32u)

void replay_init(struct replay *r, uint32_t max)
{
	r->max = max;
	hmap_init(&r->map, 256);
}

void replay_fini(struct replay *r)
{
	struct hmap_node *n = hmap_next(&r->map, NULL);

	while (n) {
		struct replay_ent *e = container_of(n, struct replay_ent, node);

		n = hmap_next(&r->map, n);
		free(e);
	}
	hmap_fini(&r->map);
}

static uint64_t key_hash(const struct replay_key *k)
{
	return hash_u64_2(hash_u64_2(k->session, k->slot), k->chain);
}

static struct replay_ent *find(struct replay *r, const struct replay_key *k)
{
	struct hmap_node *n = hmap_find(&r->map, key_hash(k));

	for (; n; n = hmap_find_next(n)) {
		struct replay_ent *e = container_of(n, struct replay_ent, node);

		if (e->key.session == k->session && e->key.slot == k->slot &&
		    e->key.chain == k->chain)
			return e;
	}
	return NULL;
}

/* Allocates per chain, session and slot, not per request. */
static struct replay_ent *add(struct replay *r, const struct replay_key *k)
{
	struct replay_ent *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->key = *k;
	replay_seq_init(&e->seqs);
	hmap_insert(&r->map, &e->node, key_hash(k));
	return e;
}

int replay_parse(const void *value, size_t len, struct replay_row *ret_row)
{
	struct wire_r w;

	wire_r_init(&w, value, len);
	wire_get_replay_row(&w, ret_row);
	return w.status < 0 || ret_row->seq == 0 || ret_row->reply.len > REPLAY_REPLY_MAX
		       ? -LE_CORRUPT_STORE
		       : 0;
}

/* ---- lanes ---- */

static bool is_lane(const struct replay_key *k)
{
	return k->slot >= REPLAY_SLOTS;
}

void replay_step_encode(uint64_t idx, uint8_t out[REPLAY_STEP_SIZE])
{
	struct wire_w w;

	wire_w_init(&w, out, REPLAY_STEP_SIZE);
	wire_put_u64(&w, &idx);
}

/* The last chunk of the lane that was changed. */
static uint64_t step_of(const void *reply, uint32_t len)
{
	uint64_t idx = 0;
	struct wire_r w;

	wire_r_init(&w, reply, len);
	wire_get_u64(&w, &idx);
	return idx;
}

/* True if the row is newer than the reply in the entry. */
static bool is_news(const struct replay_ent *e, const struct replay_row *row)
{
	if (row->seq != e->seqs.last || !is_lane(&e->key))
		return row->seq > e->seqs.last;
	return step_of(row->reply.data, row->reply.len) > step_of(e->reply, e->reply_len);
}

static void set(struct replay_ent *e, const struct replay_row *row)
{
	e->seqs.last = row->seq;
	e->op = row->op;
	e->reply_len = (uint16_t)row->reply.len;
	if (row->reply.len)
		memcpy(e->reply, row->reply.data, row->reply.len);
}

int replay_load(struct replay *r, const void *key, size_t key_len, const void *value, size_t len)
{
	struct replay_key k = {0};
	struct replay_row row;
	struct replay_ent *e;

	TRY(replay_key_decode(key, key_len, &k));
	TRY(replay_parse(value, len, &row));
	e = add(r, &k);
	if (!e)
		return -LE_NOMEM;
	set(e, &row);
	return 0;
}

static void put_row(const struct replay_key *k, const struct replay_row *row, struct kv_batch *b)
{
	uint8_t key[REPLAY_KEY_SIZE], buf[ROW_MAX];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_replay_row(&w, row);
	ASSERT(w.status == 0);
	replay_key_encode(k, key);
	kv_batch_put(b, key, sizeof(key), buf, w.len);
}

int replay_import(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		  struct kv_batch *b)
{
	struct replay_ent *e = find(r, key);

	if (row->seq == 0 || row->reply.len > REPLAY_REPLY_MAX)
		return -LE_BAD_MESSAGE;
	if (!e && r->map.n >= r->max)
		return -LE_OVERLOAD;
	if (!e)
		e = add(r, key);
	if (!e)
		return -LE_NOMEM;
	if (e->unconfirmed ? e->seqs.running == row->seq
		       : e->seqs.running >= row->seq || !is_news(e, row)) {
		e->unconfirmed = false;
		return 0;
	}
	e->unconfirmed = false;
	set(e, row);
	put_row(key, row, b);
	return 0;
}

void replay_mark_unconfirmed(struct replay *r, uint32_t chain)
{
	for (struct hmap_node *n = hmap_next(&r->map, NULL); n; n = hmap_next(&r->map, n)) {
		struct replay_ent *e = container_of(n, struct replay_ent, node);

		if (e->key.chain == chain)
			e->unconfirmed = true;
	}
}

/* Deletes the row in this batch. */
static void forget(struct replay_ent *e, struct kv_batch *b)
{
	uint8_t key[REPLAY_KEY_SIZE];

	replay_key_encode(&e->key, key);
	kv_batch_delete(b, key, sizeof(key));
}

/* The entry stays, because a request may hold it. It expires with its session. */
void replay_forget_unconfirmed(struct replay *r, uint32_t chain, struct kv_batch *b)
{
	for (struct hmap_node *n = hmap_next(&r->map, NULL); n; n = hmap_next(&r->map, n)) {
		struct replay_ent *e = container_of(n, struct replay_ent, node);

		if (e->key.chain != chain || !e->unconfirmed)
			continue;
		e->unconfirmed = false;
		e->seqs.last = 0;
		forget(e, b);
	}
}

void replay_keep(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		 struct kv_batch *b)
{
	const struct replay_ent *e = find(r, key);

	if (!e || is_news(e, row))
		put_row(key, row, b);
}

/* Waits until no request up to seq runs. Returns REPLAY_EXECUTE or REPLAY_ANSWER, or an error. */
static int await(struct replay *r, const struct replay_key *key, uint64_t seq,
		 struct replay_ent **ret_ent)
{
	struct replay_ent *e = find(r, key);
	int rc;

	if (!e) {
		if (r->map.n >= r->max)
			return -LE_OVERLOAD;
		e = add(r, key);
		if (!e)
			return -LE_NOMEM;
	}
	e->users++;
	do
		rc = replay_seq_check(&e->seqs, seq);
	while (rc == REPLAY_WAIT && (rc = replay_seq_wait(&e->seqs)) == 0);
	e->users--;
	if (PLANTED_BUG(OSS_NO_DEDUPE) && e->seqs.running == 0)
		rc = REPLAY_EXECUTE;
	TRY(rc);
	e->last_us = loop_now_us();
	*ret_ent = e;
	return rc;
}

static void run_begin(struct replay_ent *e, uint64_t seq, uint16_t op)
{
	e->users++;
	e->run++;
	replay_seq_begin(&e->seqs, seq);
	e->next_op = op;
	e->next_len = 0;
}

int replay_begin(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		 struct replay_ent **ret_ent)
{
	struct replay_ent *e;
	int rc = await(r, key, seq, &e);

	TRY(rc);
	if (rc == REPLAY_ANSWER && op != e->op)
		return -LE_STALE_SEQ;
	*ret_ent = e;
	if (rc == REPLAY_EXECUTE)
		run_begin(e, seq, op);
	return rc;
}

int replay_step_begin(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		      uint64_t idx, struct replay_step *ret_step)
{
	struct replay_key lane = *key;
	struct replay_ent *e;
	int rc;

	ASSERT(key->slot < REPLAY_SLOTS);
	lane.slot += (1 + replay_lane(idx)) * REPLAY_SLOTS;
	rc = await(r, &lane, seq, &e);
	TRY(rc);
	if (rc == REPLAY_ANSWER && idx <= step_of(e->reply, e->reply_len))
		return REPLAY_ANSWER;
	run_begin(e, seq, op);
	*ret_step = (struct replay_step){e, e->run};
	return REPLAY_EXECUTE;
}

void replay_join(struct replay_ent *e, struct kv_batch *b, const void *reply, uint32_t len)
{
	struct replay_row row = {e->seqs.running, 0, e->next_op, bytes_of(reply, len)};

	ASSERT(len <= REPLAY_REPLY_MAX);
	if (len)
		memcpy(e->next, reply, len);
	e->next_len = (uint16_t)len;
	put_row(&e->key, &row, b);
}

bool replay_is_past(struct replay *r, const struct replay_key *key, uint64_t seq)
{
	const struct replay_ent *e = find(r, key);

	return e && !e->unconfirmed && (e->seqs.last > seq || e->seqs.running > seq);
}

int replay_apply(struct replay *r, const struct replay_key *key, uint64_t seq, uint16_t op,
		 struct replay_ent **ret_ent)
{
	struct replay_ent *e = find(r, key);

	if (!e)
		e = add(r, key);
	if (!e)
		return -LE_NOMEM;
	e->last_us = loop_now_us();
	e->run++;
	e->seqs.running = seq;
	e->unconfirmed = false;
	e->next_op = op;
	e->next_len = 0;
	*ret_ent = e;
	return 0;
}

static void ended(struct replay_ent *e, bool durable)
{
	if (durable) {
		e->op = e->next_op;
		e->reply_len = e->next_len;
		memcpy(e->reply, e->next, e->next_len);
	}
	replay_seq_end(&e->seqs, durable);
}

void replay_end(struct replay_ent *e, uint64_t run, bool durable)
{
	ASSERT(e->users > 0 && e->run >= run);
	e->users--;
	if (e->run == run)
		ended(e, durable);
}

void replay_settle(struct replay_ent *e, uint64_t seq, bool committed)
{
	/* The reply may also have been imported from another member. A lane keeps its earlier
	 * step. */
	if (!committed && e->seqs.last == seq &&
	    (!is_lane(&e->key) || step_of(e->reply, e->reply_len) >= step_of(e->next, e->next_len)))
		e->seqs.last = 0;
	if (e->seqs.running == seq)
		ended(e, committed);
}

void replay_take_back(struct replay *r, const struct replay_key *key, const struct replay_row *row,
		      struct kv_batch *b)
{
	const struct replay_ent *e = is_lane(key) ? find(r, key) : NULL;
	uint8_t buf[REPLAY_KEY_SIZE];

	if (e && e->seqs.last == row->seq && is_news(e, row)) {
		struct replay_row before = {e->seqs.last, 0, e->op,
					    bytes_of(e->reply, e->reply_len)};

		put_row(key, &before, b);
		return;
	}
	replay_key_encode(key, buf);
	kv_batch_delete(b, buf, sizeof(buf));
}

/* True for a lane if its request has a reply: all steps of the lane were made. */
static bool is_over(struct replay *r, const struct replay_ent *e)
{
	struct replay_key parent = e->key;
	const struct replay_ent *p;

	if (!is_lane(&e->key))
		return false;
	parent.slot %= REPLAY_SLOTS;
	p = find(r, &parent);
	return p && !p->seqs.running && p->seqs.last >= e->seqs.last;
}

uint32_t replay_expire(struct replay *r, struct kv_batch *b, uint64_t before_us, uint32_t max,
		       bool (*alive)(void *arg, uint64_t session), void *arg)
{
	struct hmap_node *n = hmap_next(&r->map, NULL);
	uint8_t key[REPLAY_KEY_SIZE];
	uint32_t n_dropped = 0;

	while (n && n_dropped < max) {
		struct replay_ent *e = container_of(n, struct replay_ent, node);

		n = hmap_next(&r->map, n);
		if (e->seqs.running || e->users || e->last_us >= before_us ||
		    (alive(arg, e->key.session) && !is_over(r, e)))
			continue;
		replay_key_encode(&e->key, key);
		kv_batch_delete(b, key, sizeof(key));
		hmap_remove(&r->map, &e->node);
		free(e);
		n_dropped++;
	}
	return n_dropped;
}
