/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/apply.h"

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "ossd/chain/forward.h"
#include "ossd/chain/forward_data.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"

#define BASE_WAIT_US 1000000u /* how long to wait for the base; then the sender repeats */

enum verdict {
	APPLY,    /* the base is the newest */
	SAME,     /* the version is already pending */
	DONE,     /* the version was applied, and its chunk has moved on */
	DROP,     /* versions after the base are not the head's */
	WAIT,     /* the base has not arrived yet */
	DIVERGED, /* cannot be applied */
};

struct judgement {
	enum verdict verdict;
	struct version *version; /* SAME, DROP */
};

static bool same(const struct version *v, const struct oss_forward_req *req)
{
	return v->sum == req->sum && v->base == req->base && v->session == req->session &&
	       v->slot == req->slot && v->seq == req->seq;
}

/* Returns the first pending version after the base, if the base is here. NULL: it is not. */
static struct version *behind_base(const struct chunk_ent *e, uint64_t base)
{
	uint64_t before = e->rec ? e->rec->version : 0;

	list_for_each (l, &e->held) {
		struct version *v = list_entry(l, struct version, link);

		if (before == base)
			return v;
		before = v->tx.rec ? v->number : 0;
	}
	return NULL;
}

/* True if the chunk does not exist here, and the head removes the committed version that was here:
 * an earlier head has forwarded that removal. */
static bool was_removed(const struct chain *c, const struct chunk_tx *tx,
			const struct oss_forward_req *req)
{
	return !tx->old && req->kind == FORWARD_REMOVE && req->base &&
	       req->base == req->committed && req->version <= c->floor;
}

static bool newest_is_the_heads(const struct chunk_ent *e)
{
	return list_empty(&e->held) || !list_entry(e->held.prev, struct version, link)->unconfirmed;
}

/* Determines what to do with a version. Call under the chunk's lock. */
static struct judgement judge(const struct chain *c, const struct chunk_tx *tx,
			      const struct oss_forward_req *req)
{
	const struct chunk_ent *e = tx->ent;
	uint64_t newest = tx->old ? tx->old->version : 0;
	bool doubted = false; /* an earlier pending version is possibly not the head's */
	struct version *v;

	list_for_each (l, &e->held) {
		struct version *h = list_entry(l, struct version, link);

		if (!version_pending(h))
			return (struct judgement){WAIT, NULL};
		if (h->number == req->version && !same(h, req))
			return (struct judgement){DROP, h};
		if (h->number == req->version)
			return (struct judgement){doubted ? WAIT : SAME, h};
		doubted |= h->unconfirmed;
	}
	if (e->seen_epoch == c->epoch && req->version <= e->seen)
		return (struct judgement){DONE, NULL};
	if (e->rec && req->version <= e->rec->version)
		return (struct judgement){DONE, NULL};
	if (list_empty(&e->held) && e->n_pend == 0 && was_removed(c, tx, req))
		return (struct judgement){DONE, NULL};
	/* Equal numbers are equal versions only if the head has both. */
	if (newest == req->base && newest_is_the_heads(e))
		return (struct judgement){APPLY, NULL};
	v = behind_base(e, req->base);
	if (v)
		return (struct judgement){DROP, v};
	if (e->rec && list_empty(&e->held) && e->n_pend == 0 && e->rec->version > req->base)
		return (struct judgement){DIVERGED, NULL};
	return (struct judgement){WAIT, NULL};
}

/* ---- the change ---- */

/* Describes the write in the message. gaps: storage for those of the message, used until the write
 * ends. */
static int write_of(struct chain *c, const struct rpc_req *r, const struct oss_forward_req *req,
		    struct chunk_gaps *gaps, struct chunk_write *w)
{
	*w = (struct chunk_write){
		.id = chunk_key_of(c->id, &req->chunk),
		.chunk_size = req->chunk_size,
		.session = SESSION_CHAIN | c->members[0].target,
		.pieces = req->pieces,
		.bulk = r->bulk,
		.n_bulk = r->n_bulk,
		.gaps = gaps,
	};
	/* chunk_write_check later verifies that the pieces are contiguous. */
	for (uint32_t i = 0; i < req->pieces.len / PIECE_WIRE_SIZE; i++) {
		struct piece p = chunk_write_piece(w, i);

		w->off = i ? w->off : p.off;
		w->len += p.len;
	}
	TRY(gaps_decode(req->gaps.data, req->gaps.len, req->end, gaps));
	return req->kind == FORWARD_WRITE ? chunk_write_check(w) : 0;
}

static int change(struct version *v, const struct oss_forward_req *req, const struct chunk_write *w)
{
	switch (req->kind) {
	case FORWARD_WRITE:
		return chunk_tx_write(&v->tx, w);
	case FORWARD_TRIM:
		return chunk_tx_trim(&v->tx, req->end);
	case FORWARD_PUNCH:
		return chunk_tx_punch(&v->tx, req->off, req->len);
	default:
		/* The head has lost the chunk: it is removed even if its record cannot be read
		 * here. */
		v->tx.over |= req->base == 0;
		return chunk_tx_remove(&v->tx);
	}
}

/* Compares the content that the change has made with that at the sender. */
static int compare(struct version *v, const struct oss_forward_req *req)
{
	struct chunk_record *rec = v->tx.rec;
	const struct chunk_key *k = &v->tx.ent->id;

	if (!rec)
		return 0;
	rec->mtime_ns = req->mtime_ns;
	rec->end = req->end;
	if (chunk_record_sum(rec) == req->sum)
		return 0;
	log_error("chain %u inode=%llu gen=%u chunk=%llu version=%llu: the change gives another "
		  "content here than at the previous member",
		  v->chain->id, (unsigned long long)k->ino.v, k->gen, (unsigned long long)k->idx,
		  (unsigned long long)req->version);
	return -LE_CORRUPT;
}

static int take_answer(struct version *v, const struct oss_forward_req *req)
{
	struct replay_key k = {v->chain->id, req->slot, req->session};

	v->session = req->session;
	v->slot = req->slot;
	v->seq = req->seq;
	v->op = req->op;
	if (req->seq == 0 || PLANTED_BUG(CHAIN_NO_DEDUPE))
		return 0;
	v->answer_len = (uint8_t)req->answer.len;
	if (v->answer_len)
		memcpy(v->answer, req->answer.data, v->answer_len);
	return replay_apply(&v->chain->all->store->replay, &k, req->seq, req->op, &v->replay);
}

static void drop_bulk(struct rpc_req *r)
{
	for (uint32_t i = 0; i < r->n_bulk; i++)
		slot_unref(r->bulk[i].slot);
	r->n_bulk = 0;
}

/* Applies a version after v->tx has begun and its newest record is the base. */
static int apply(struct version *v, struct rpc_req *r, const struct oss_forward_req *req,
		 const struct chunk_write *w)
{
	struct chain *c = v->chain;
	int rc;

	if (PLANTED_BUG(CHAIN_REFUSE) && req->kind == FORWARD_WRITE &&
	    env_random_u64(c->all->env) % 16 == 0) {
		chunk_tx_cancel(&v->tx);
		return -LE_NOSPC;
	}
	v->tx.version = req->version;
	TRY(change(v, req, w));
	if (!v->tx.changes) {
		log_error("chain %u: version %llu has no effect here", c->id,
			  (unsigned long long)req->version);
		return -LE_CORRUPT;
	}
	rc = compare(v, req);
	if (rc == 0 && c->epoch != r->hdr.epoch && !PLANTED_BUG(CHAIN_SKIP_EPOCH))
		rc = -LE_STALE_EPOCH;
	if (rc == 0)
		rc = take_answer(v, req);
	if (rc < 0) {
		chunk_tx_abort(&v->tx);
		return rc;
	}
	v->tx.lazy = req->flags & FORWARD_LAZY;
	if (req->kind == FORWARD_WRITE)
		forward_keep(v, w);
	version_join(v);
	drop_bulk(r);
	metric_add(&c->all->metrics->applies, 1);
	return 0;
}

/* Waits until the version is durable here and downstream. Succeeds only in the epoch of the
 * request: in a later one fewer members may be downstream, and the head would commit without those
 * that have left, and not log what they lack. */
static int wait_durable(struct version *v, struct rpc_req *r)
{
	const struct chain *c = v->chain;
	bool accepted = false;

	for (;;) {
		int rc;

		/* The head has reported that a change is committed. */
		if (v->state == VERSION_COMMITTED &&
		    (!v->chunkless || PLANTED_BUG(CHAIN_LONE_ANSWER)))
			return 0;
		if (v->durable && v->durable_behind &&
		    (version_pending(v) || v->state == VERSION_COMMITTED))
			return c->epoch == r->hdr.epoch || PLANTED_BUG(CHAIN_SKIP_EPOCH)
				       ? 0
				       : -LE_STALE_EPOCH;
		if (v->ended || !version_pending(v))
			return v->status ? v->status : -LE_STALE_EPOCH;
		if (v->behind)
			return v->behind;
		if (c->all->stopping)
			return -LE_SHUTDOWN;
		if (v->accepted_behind && !accepted) {
			accepted = true;
			rpc_accept(r);
			continue;
		}
		rc = waitq_wait(&v->q, NO_DEADLINE);
		(void)rc; /* it has joined: only its end releases the request */
	}
}

static int wait_for_base(struct chunk_tx *tx, uint64_t deadline_us)
{
	struct chunk_cache *cache = &tx->s->cache;
	struct chunk_ent *e = tx->ent;
	int rc;

	e->refs++;
	chunk_tx_cancel(tx);
	rc = waitq_wait(&e->moved, deadline_us);
	chunk_ent_put(cache, e);
	return rc;
}

/* Called first: even if this message cannot be applied, what it reports as committed will not be
 * reported again. */
static void mark_committed(struct chunk_ent *e, uint64_t committed)
{
	struct version *last = NULL;

	list_for_each (l, &e->held) {
		struct version *v = list_entry(l, struct version, link);

		if (v->number > committed)
			continue;
		v->told = true;
		last = v;
	}
	if (last)
		version_settle(last);
}

/* Called when the head has sent a version that was pending here before it became head. */
static void confirm(struct version *v)
{
	if (!v->unconfirmed)
		return;
	v->unconfirmed = false;
	v->known = ++v->chain->serial;
	waitq_wake_all(&v->tx.ent->moved);
	forward_start(v);
}

/* Begins the change. A chunk that the head makes new, or that it has lost and removes, need not be
 * restored here first. */
static int begin(struct chain *c, const struct chunk_key *key, const struct oss_forward_req *req,
		 struct chunk_tx *tx)
{
	struct chunk_store *s = c->all->store;
	int rc = chunk_tx_begin(s, key, tx);

	if (rc != -LE_CORRUPT || req->base)
		return rc;
	TRY(chunk_tx_begin_over(s, key, tx));
	if (!tx->over_row || tx->lost || req->kind == FORWARD_REMOVE)
		return 0;
	chunk_tx_cancel(tx);
	return -LE_CORRUPT;
}

/* Returns 0: *ret_version is pending here, with a reference for the caller. Returns 1: the version
 * is history. */
static int place(struct chain *c, struct rpc_req *r, const struct oss_forward_req *req,
		 struct version **ret_version)
{
	struct chunk_key key = chunk_key_of(c->id, &req->chunk);
	uint64_t deadline = env_now_us(c->all->env) + BASE_WAIT_US;
	struct version *v = *ret_version;
	struct chunk_gaps gaps;
	struct chunk_write w;

	TRY(write_of(c, r, req, &gaps, &w));
	for (;;) {
		struct judgement j;
		struct list gone;

		TRY(begin(c, &key, req, &v->tx));
		if ((c->epoch != r->hdr.epoch && !PLANTED_BUG(CHAIN_SKIP_EPOCH)) ||
		    c->all->stopping) {
			chunk_tx_cancel(&v->tx);
			return -LE_STALE_EPOCH;
		}
		mark_committed(v->tx.ent, req->committed);
		j = judge(c, &v->tx, req);
		switch (j.verdict) {
		case APPLY:
			return apply(v, r, req, &w);
		case SAME:
			version_ref(j.version);
			confirm(j.version);
			chunk_tx_cancel(&v->tx);
			version_unref(v);
			*ret_version = j.version;
			return 0;
		case DROP:
			list_init(&gone);
			(void)versions_take_back(j.version, VERSION_DROPPED, -LE_STALE_EPOCH,
						 &gone);
			chunk_tx_cancel(&v->tx);
			versions_gone(&gone);
			break;
		case WAIT:
			TRY(wait_for_base(&v->tx, deadline));
			break;
		case DONE:
			chunk_tx_cancel(&v->tx);
			return 1;
		case DIVERGED:
			chunk_tx_cancel(&v->tx);
			log_error("chain %u inode=%llu gen=%u chunk=%llu: the version committed "
				  "here is not one of the head's, which sends base %llu",
				  c->id, (unsigned long long)key.ino.v, key.gen,
				  (unsigned long long)key.idx, (unsigned long long)req->base);
			return -LE_CORRUPT;
		}
	}
}

static struct version *pending_answer(const struct chain *c, const struct oss_forward_req *req)
{
	list_for_each (l, &c->pending) {
		struct version *v = list_entry(l, struct version, chain_link);

		if (v->chunkless && v->session == req->session && v->slot == req->slot &&
		    v->seq == req->seq)
			return v;
	}
	return NULL;
}

/* Like place(), for a reply without a chunk. Does not yield. */
static int place_answer(struct chain *c, const struct oss_forward_req *req,
			struct version **ret_version)
{
	const struct replay_key key = {c->id, req->slot, req->session};
	struct version *v = *ret_version, *same = pending_answer(c, req);

	TRY(chunk_store_status(c->all->store));
	if (same) {
		version_ref(same);
		version_unref(v);
		*ret_version = same;
		return 0;
	}
	/* A late message: the slot has been used again, so the client has had this reply. */
	if (replay_is_past(&c->all->store->replay, &key, req->seq))
		return 1;
	TRY(take_answer(v, req));
	v->told = true; /* all that it answers was committed before */
	version_join_answer(v);
	return 0;
}

/* ---- aborting ---- */

/* True if the base has not arrived here yet. An abort must wait for it: a base that arrives after
 * the abort would be taken for history. */
static bool base_comes(const struct chain *c, const struct chunk_tx *tx,
		       const struct oss_forward_req *req)
{
	const struct chunk_ent *e = tx->ent;

	return (tx->old ? tx->old->version : 0) < req->base &&
	       (e->seen_epoch != c->epoch || e->seen < req->base);
}

/* Records that the numbers are used: the head does not use them again in this epoch, so a version
 * with one of them is history. */
static void note_seen(const struct chain *c, struct chunk_ent *e, const struct oss_forward_req *req)
{
	uint64_t seen = req->upto > req->version ? req->upto : req->version;

	if (e->seen_epoch == c->epoch && e->seen >= seen)
		return;
	e->seen_epoch = c->epoch;
	e->seen = seen;
}

/* Aborts the versions. Call under the chunk's lock. Returns the group in which this is durable, 0:
 * there were none. */
static uint64_t take_back(const struct chunk_ent *e, const struct oss_forward_req *req,
			  struct list *gone)
{
	uint64_t upto = req->upto ? req->upto : UINT64_MAX;

	list_for_each (l, &e->held) {
		struct version *h = list_entry(l, struct version, link);

		if (!version_pending(h) || h->number < req->version)
			continue;
		/* A late message: the head has made this version since, on the base that
		 * remained. */
		return h->number <= upto ? versions_take_back(h, VERSION_ABORTED, -LE_ABORTED, gone)
					 : 0;
	}
	return 0;
}

static int apply_abort(struct chain *c, struct rpc_req *r, const struct oss_forward_req *req)
{
	uint64_t deadline = env_now_us(c->all->env) + BASE_WAIT_US;
	struct chunk_store *s = c->all->store;
	struct chunk_key key = chunk_key_of(c->id, &req->chunk);
	struct chunk_tx tx;
	struct list gone;
	uint64_t group;
	int rc = 0;

	list_init(&gone);
	for (;;) {
		TRY(chunk_tx_begin(s, &key, &tx));
		if (c->epoch != r->hdr.epoch || c->all->stopping) {
			chunk_tx_cancel(&tx);
			return -LE_STALE_EPOCH;
		}
		if (!base_comes(c, &tx, req))
			break;
		TRY(wait_for_base(&tx, deadline));
	}
	group = take_back(tx.ent, req, &gone);
	note_seen(c, tx.ent, req);
	chunk_tx_cancel(&tx);
	if (group)
		rc = group_commit_wait(&s->gc, group);
	if (rc == 0)
		rc = forward_abort(c, req, r->hdr.epoch);
	versions_gone(&gone);
	return rc;
}

int chain_apply(struct chain *c, struct rpc_req *r, const struct oss_forward_req *req)
{
	struct version *v;
	int rc;

	if (req->kind < FORWARD_WRITE || req->kind > FORWARD_ANSWER ||
	    req->answer.len > REPLAY_REPLY_MAX || (req->kind != FORWARD_ANSWER && !req->version))
		return -LE_BAD_MESSAGE;
	if (chain_is_head(c))
		return -LE_STALE_EPOCH;
	if (req->kind == FORWARD_ABORT)
		return apply_abort(c, r, req);
	v = version_create(c);
	if (!v)
		return -LE_NOMEM;
	rc = req->kind == FORWARD_ANSWER ? place_answer(c, req, &v) : place(c, r, req, &v);
	if (rc == 0)
		rc = wait_durable(v, r);
	else if (rc == 1)
		rc = 0;
	version_unref(v);
	return rc;
}
