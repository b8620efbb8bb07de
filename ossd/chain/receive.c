/* SPDX-License-Identifier: Apache-2.0 */
/* Receives data from other members: parts of chunks, whole chunks, replies. */
#include "ossd/chain/receive.h"

#include "common/base/log.h"
#include "ossd/chain/commit.h"
#include "ossd/chunk/chunk_copy.h"
#include "ossd/chunk/chunk_tx.h"

#define FETCH_MS  10000u
#define NOTE_ROOM 48u /* encoded size of one version_note */

/* ---- a part of a chunk ---- */

/* Decodes a record of a message, which is not trusted. */
static int take_record(struct maintenance *k, const struct chunk_key *key, struct bytes in,
		       struct chunk_record **ret_rec)
{
	struct chunk_summary_info info;
	struct chunk_record *rec;
	int rc;

	if (chunk_record_summary(key, in.data, in.len, &info) < 0)
		return -LE_BAD_MESSAGE;
	rec = chunk_record_create(&k->s->cache, info.n_blocks, info.n_gaps);
	if (!rec)
		return -LE_NOMEM;
	rc = chunk_record_decode(key, in.data, in.len, rec, info.n_blocks);
	if (rc == 0 && chunk_record_sum(rec) != info.sum)
		rc = -LE_BAD_MESSAGE;
	if (rc < 0) {
		chunk_record_unref(&k->s->cache, rec);
		return -LE_BAD_MESSAGE;
	}
	*ret_rec = rec;
	return 0;
}

static uint64_t part_len(const struct chunk_record *rec, uint32_t first, uint32_t next)
{
	uint64_t units = 0;

	for (uint32_t i = first; i < next; i++)
		units += block_units(&rec->blocks[i]);
	return units * UNIT_SIZE;
}

int fetch_part(struct maintenance *k, struct chain *c, uint32_t from, const struct part_at *at,
	       struct fetched *ret_part)
{
	struct fetched f = {.part.first = at->first};
	struct oss_fetch_req req = {chunk_key_id(at->key), at->version, at->first, 0};
	struct oss_fetch_rep rep = {0};
	struct slot_vec vec = {0};
	struct rpc_call call = {.op = OP_oss_fetch,
				.req = &req,
				.rep = &rep,
				.bulk_in = &vec,
				.n_bulk_in = 1,
				.deadline_us = loop_deadline_ms(FETCH_MS)};
	int rc;

	TRY(slot_get(k->copies, call.deadline_us, &f.slot));
	vec = (struct slot_vec){f.slot, 0, f.slot->size};
	req.max = f.slot->size;
	rc = chain_call(c, from, &call);
	if (rc == 0)
		rc = take_record(k, at->key, rep.record, &f.rec);
	if (rc == 0 &&
	    (f.rec->version != at->version || rep.next > f.rec->n_blocks || rep.next < at->first ||
	     (rep.next == at->first && at->first < f.rec->n_blocks) ||
	     part_len(f.rec, at->first, rep.next) != call.ret_bulk_len))
		rc = -LE_BAD_MESSAGE;
	f.part.next = rep.next;
	f.part.len = call.ret_bulk_len;
	rpc_call_fini(&call);
	if (rc < 0)
		fetch_free(k, &f);
	else
		*ret_part = f;
	return rc;
}

void fetch_free(struct maintenance *k, struct fetched *f)
{
	chunk_record_unref(&k->s->cache, f->rec);
	slot_unref(f->slot);
	f->rec = NULL;
	f->slot = NULL;
}

/* ---- a whole chunk ---- */

static bool part_good(const struct fetched *f)
{
	const uint8_t *p = f->slot->data;

	for (uint32_t i = f->part.first; i < f->part.next; i++) {
		const struct chunk_block *b = &f->rec->blocks[i];

		if (b->len && !chunk_block_good(b, p))
			return false;
		p += (size_t)block_units(b) * UNIT_SIZE;
	}
	return true;
}

/* True if both are stored in the same form. One member may have compressed a block that another
 * has not. */
static bool same_form(const struct chunk_record *a, const struct chunk_record *b)
{
	if (a->version != b->version || a->end != b->end || a->n_blocks != b->n_blocks)
		return false;
	for (uint32_t i = 0; i < a->n_blocks; i++) {
		const struct chunk_block *x = &a->blocks[i], *y = &b->blocks[i];

		if (x->len != y->len || x->stored_len != y->stored_len || x->flags != y->flags ||
		    x->sum != y->sum || x->stored_sum != y->stored_sum)
			return false;
	}
	return true;
}

static bool same_bytes(const struct fetched *a, const struct fetched *b)
{
	return a->part.next == b->part.next && a->part.len == b->part.len &&
	       memcmp(a->slot->data, b->slot->data, a->part.len) == 0;
}

/* Replaces *part by the target's copy if that is good. Returns 1: replaced; 0: the target has no
 * good copy; else the error that prevented the check. */
static int better_part(struct maintenance *k, struct chain *c, uint32_t target,
		       const struct part_at *at, struct fetched *part, bool is_source)
{
	struct fetched f = {0};
	int rc = fetch_part(k, c, target, at, &f);

	if (rc < 0)
		return status_retry(rc) == RETRY_NEVER ? 0 : rc;
	if (same_form(f.rec, part->rec) && part_good(&f)) {
		fetch_free(k, part);
		*part = f;
		return 1;
	}
	/* Two different damages: at least one happened in transfer. */
	rc = is_source && !same_bytes(&f, part) ? -LE_CORRUPT_WIRE : 0;
	fetch_free(k, &f);
	return rc;
}

/* Fetches a part from the source. If it is damaged, requests it again, as the damage may have
 * happened in transfer, then from the other members: this may be the last time the source is read
 * before the others leave. A part that is damaged everywhere is used as it is; its readers get an
 * error. But fails if a member that may have a good copy does not answer. */
static int get_part(struct maintenance *k, struct chain *c, uint32_t source,
		    const struct part_at *at, struct fetched *ret_part)
{
	const struct chunk_key *key = at->key;

	int rc;

	TRY(fetch_part(k, c, source, at, ret_part));
	if (part_good(ret_part))
		return 0;
	rc = better_part(k, c, source, at, ret_part, true);
	for (uint32_t i = 0; rc == 0 && i < c->n_sync; i++) {
		uint32_t target = c->members[i].target;

		if (target != source && i != c->self)
			rc = better_part(k, c, target, at, ret_part, false);
	}
	if (rc > 0)
		return 0;
	if (rc < 0) {
		fetch_free(k, ret_part);
		return rc;
	}
	metric_add(&k->metrics->damaged_copies, 1);
	log_error("chain=%u inode=%llu gen=%u chunk=%llu: the copy from target %u has damaged "
		  "blocks, and no member has intact ones",
		  key->chain, (unsigned long long)key->ino.v, key->gen,
		  (unsigned long long)key->idx, source);
	return 0;
}

static int write_parts(struct maintenance *k, struct chain *c, uint32_t source, struct fetched *f,
		       struct chunk_tx *tx)
{
	struct chunk_key key = tx->ent->id;
	uint64_t sum = chunk_record_sum(f->rec);

	for (;;) {
		uint32_t next = f->part.next;

		TRY(chunk_part_write(tx, f->slot, &f->part));
		if (next >= tx->rec->n_blocks)
			return 0;
		fetch_free(k, f);
		TRY(get_part(k, c, source, &(struct part_at){&key, tx->rec->version, next}, f));
		if (chunk_record_sum(f->rec) != sum)
			return -LE_STALE;
	}
}

static bool is_own(const struct chunk_record *rec, const struct chunk_own *own)
{
	return rec ? rec->version == own->version && chunk_record_sum(rec) == own->sum
		   : own->version == 0;
}

int replace_own(struct maintenance *k, struct chain *c, const struct oss_resync_chunk_req *req,
		const struct chunk_own *own, uint64_t *ret_bytes)
{
	struct chunk_key id = chunk_key_of(c->id, &req->chunk), *key = &id;
	struct fetched f = {0};
	struct chunk_tx tx;
	int rc;

	TRY(get_part(k, c, req->source, &(struct part_at){key, req->version, 0}, &f));
	rc = chunk_record_sum(f.rec) == req->sum ? chunk_copy_begin(k->s, key, f.rec, &tx)
						 : -LE_STALE;
	if (rc == 0) {
		/* A late request: another attempt, or newer versions, came first. */
		rc = is_own(tx.old, own) ? write_parts(k, c, req->source, &f, &tx) : -LE_STALE;
		/* The source may have left the chain since. */
		if (rc == 0 && c->epoch != own->epoch)
			rc = -LE_STALE_EPOCH;
		if (rc < 0) {
			chunk_tx_abort(&tx);
		} else {
			*ret_bytes = chunk_record_used(tx.rec);
			chunk_tx_join(&tx);
			rc = chunk_tx_wait(&tx);
		}
	}
	fetch_free(k, &f);
	return rc;
}

static int own_version(struct maintenance *k, const struct chunk_key *key,
		       struct chunk_own *ret_own)
{
	struct chunk_tx tx;

	TRY(chunk_hold_over(k->s, key, fiber_deadline(), &tx));
	ret_own->version = tx.old ? tx.old->version : 0;
	ret_own->sum = tx.old ? chunk_record_sum(tx.old) : 0;
	chunk_release(&tx);
	return 0;
}

struct removal {
	struct chain *c;
	uint32_t epoch, source;
};

int member_state(struct chain *c, uint32_t target, const struct chunk_key *key,
		 struct version_state *ret_state)
{
	struct version_note note = {chunk_key_id(key), 0};
	uint8_t buf[NOTE_ROOM];
	struct oss_resolve_req req;
	struct oss_resolve_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_resolve,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(FETCH_MS)};
	struct wire_w w;
	struct wire_r r;
	int rc;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_version_note(&w, &note);
	ASSERT(w.status == 0);
	req.versions = bytes_of(buf, (uint32_t)w.len);
	rc = chain_call(c, target, &call);
	if (rc == 0) {
		wire_r_init(&r, rep.answers.data, rep.answers.len);
		wire_get_version_state(&r, ret_state);
		rc = r.status;
	}
	rpc_call_fini(&call);
	return rc;
}

/* True if the source has no such chunk now. It has reported so, but the message may be old, and
 * the chunk may have been made since. The query is made under the chunk's lock here, so that
 * nothing newer is applied in between. */
static bool still_none(void *arg, const struct chunk_key *key)
{
	struct removal *m = arg;
	struct version_state st = {0};

	return member_state(m->c, m->source, key, &st) == 0 &&
	       (st.newest == 0 || st.newest == VERSION_LOST) && m->c->epoch == m->epoch;
}

/* True if the chunk is still lost at the source. Queried like still_none(). */
static bool still_lost(void *arg, const struct chunk_key *key)
{
	struct removal *m = arg;
	struct version_state st = {0};

	return member_state(m->c, m->source, key, &st) == 0 && st.newest == VERSION_LOST &&
	       m->c->epoch == m->epoch;
}

static int remove_chunk(struct maintenance *k, struct chain *c,
			const struct oss_resync_chunk_req *req, const struct chunk_key *key)
{
	struct removal m = {c, c->epoch, req->source};

	return req->version == VERSION_LOST ? chunk_copy_lose(k->s, key, still_lost, &m)
					    : chunk_copy_remove(k->s, key, still_none, &m);
}

int receive_chunk(struct maintenance *k, struct chain *c, const struct oss_resync_chunk_req *req,
		  struct oss_resync_chunk_rep *rep)
{
	struct chunk_key key = chunk_key_of(c->id, &req->chunk);
	struct chunk_own own = {.epoch = c->epoch};
	int rc;

	rep->incarnation = k->incarnation;
	/* A chunk without a readable record is treated like none: it is replaced. */
	if (req->version == 0 || req->version == VERSION_LOST) {
		rc = remove_chunk(k, c, req, &key);
		rep->done = rc == 1 ? RESYNC_REMOVED : RESYNC_SAME;
		return rc < 0 ? rc : 0;
	}
	TRY(own_version(k, &key, &own));
	if (own.version == req->version && own.sum == req->sum) {
		rep->done = RESYNC_SAME;
		return 0;
	}
	rep->done = RESYNC_COPIED;
	return replace_own(k, c, req, &own, &rep->bytes);
}

/* ---- replies ---- */

static void put_floor(struct chain *c, uint64_t version, struct kv_batch *b)
{
	uint8_t key[CHAIN_KEY_SIZE], value[FLOOR_VALUE_SIZE];

	if (version <= c->floor)
		return;
	c->floor = version;
	chain_key_encode(ROW_FLOOR, c->id, key);
	floor_value_encode(version, value);
	kv_batch_put(b, key, sizeof(key), value, sizeof(value));
}

/* Adds the replies of versions that are pending here. If this member becomes head before it learns
 * that no other member has them, it commits them. Without the reply a repeated request would be
 * executed again. */
static void keep_answers(struct maintenance *k, struct chain *c, struct kv_batch *b)
{
	list_for_each (l, &c->pending) {
		const struct version *v = list_entry(l, struct version, chain_link);
		struct replay_key key = {c->id, v->slot, v->session};
		struct replay_row row = {v->seq, 0, v->op, bytes_of(v->answer, v->answer_len)};

		if (v->seq && v->answer_len)
			replay_keep(&k->s->replay, &key, &row, b);
	}
}

int receive_rows(struct maintenance *k, struct chain *c, const struct oss_resync_rows_req *req)
{
	struct kv_batch *b = group_commit_batch(&k->s->gc);
	struct wire_r r;
	int rc = 0;

	TRY(chunk_store_status(k->s));
	wire_r_init(&r, req->rows.data, req->rows.len);
	while (rc == 0 && !wire_r_end(&r)) {
		struct resync_row row;
		struct replay_row value;
		struct replay_key key;

		wire_get_resync_row(&r, &row);
		rc = r.status;
		key = (struct replay_key){c->id, row.slot, row.session};
		value = (struct replay_row){row.seq, 0, row.op, row.reply};
		if (rc == 0)
			rc = replay_import(&k->s->replay, &key, &value, b);
	}
	put_floor(c, req->floor, b);
	/* An empty message is the last one. By now all chunks of the chain are here. */
	if (rc == 0 && req->rows.len == 0) {
		replay_forget_unconfirmed(&k->s->replay, c->id, b);
		rc = inventory_take_uncertain(&k->s->inventory, c->id, req->uncertain, b);
		/* A chunk that was removed because the source does not have it may be lost
		 * there. */
		if (rc == 0 && req->uncertain.len)
			chunk_cache_forget_none(&k->s->cache, c->id);
	}
	keep_answers(k, c, b);
	/* Rows that were imported before an error are valid. */
	TRY(group_commit_wait(&k->s->gc, group_commit_join(&k->s->gc, NULL, false)));
	return rc < 0 ? rc : r.status;
}
