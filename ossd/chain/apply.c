#include "ossd/chain/apply.h"

#include "common/base/fault.h"
#include "common/base/log.h"
#include "ossd/chain/forward.h"

#define BASE_WAIT_US 1000000u /* a base that does not come in this time is asked for anew */

enum verdict {
	APPLY,    /* the base is the newest */
	SAME,     /* it is pending already */
	DONE,     /* it was here, and is history */
	DROP,     /* what is behind the base is not the head's */
	WAIT,     /* the base is on its way */
	DIVERGED, /* never */
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

/* The first pending version behind the base, when the base itself is here. NULL: it is not. */
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

/* There is no chunk here, and the head is about to remove it from what is committed, so what was
 * here once: it has been told before, by a head that is none any more. */
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

/* What is to be done with a version, under the chunk's lock. */
static struct judgement judge(const struct chain *c, const struct chunk_tx *tx,
			      const struct oss_forward_req *req)
{
	const struct chunk_ent *e = tx->ent;
	uint64_t newest = tx->old ? tx->old->version : 0;
	bool doubted = false; /* is what it was made of the head's? */
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
	/* Equal numbers are equal versions only when both are the head's. */
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

/* gaps: taken from the message; they last as long as the write. */
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
	/* Whether they follow each other is checked later. */
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
		/* What the head has lost is removed whatever is known of it here. */
		v->tx.over |= req->base == 0;
		return chunk_tx_remove(&v->tx);
	}
}

/* The same change has made the same content? */
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
	log_error("chain %u inode=%llu gen=%u chunk=%llu version=%llu: the same change has another "
		  "content here than before",
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
	if (req->seq == 0 || FAULT(CHAIN_NO_DEDUPE))
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

/* v->tx has begun and its newest record is the base. */
static int apply(struct version *v, struct rpc_req *r, const struct oss_forward_req *req,
		 const struct chunk_write *w)
{
	struct chain *c = v->chain;
	int rc;

	if (FAULT(CHAIN_REFUSE) && req->kind == FORWARD_WRITE &&
	    env_random_u64(c->all->env) % 16 == 0) {
		chunk_tx_cancel(&v->tx);
		return -LE_NOSPC;
	}
	v->tx.version = req->version;
	TRY(change(v, req, w));
	if (!v->tx.changes) {
		log_error("chain %u: version %llu changes nothing here", c->id,
			  (unsigned long long)req->version);
		return -LE_CORRUPT;
	}
	rc = compare(v, req);
	if (rc == 0 && c->epoch != r->hdr.epoch && !FAULT(CHAIN_SKIP_EPOCH))
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

/* Until it is durable here and behind. That is said in the epoch in which it was asked: who is
 * behind now may be fewer, and the head would commit without those who are gone and not know that
 * they lack it. */
static int wait_durable(struct version *v, struct rpc_req *r)
{
	const struct chain *c = v->chain;
	bool accepted = false;

	for (;;) {
		int rc;

		/* Of a change the head has told so. */
		if (v->state == VERSION_COMMITTED && (!v->chunkless || FAULT(CHAIN_LONE_ANSWER)))
			return 0;
		if (v->durable && v->durable_behind &&
		    (version_pending(v) || v->state == VERSION_COMMITTED))
			return c->epoch == r->hdr.epoch || FAULT(CHAIN_SKIP_EPOCH)
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
		(void)rc; /* it has joined */
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

/* At once: what comes with this message may not be applied, and nobody asks for what is told. */
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

/* The head has it, too. */
static void confirm(struct version *v)
{
	if (!v->unconfirmed)
		return;
	v->unconfirmed = false;
	v->known = ++v->chain->serial;
	waitq_wake_all(&v->tx.ent->moved);
	forward_start(v);
}

/* A chunk that the head makes anew, or that is lost there and removed, is none that anybody would
 * have to find for this one first. */
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

/* 0: *ret_version is pending here, a reference for the caller; 1: it is history. */
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
		if ((c->epoch != r->hdr.epoch && !FAULT(CHAIN_SKIP_EPOCH)) || c->all->stopping) {
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
			log_error("chain %u inode=%llu gen=%u chunk=%llu: committed here is what "
				  "the head does not have: base %llu",
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

/* As place. Does not yield. */
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
	/* This may come late: the slot has been used again, so whoever asked has had it. */
	if (replay_is_past(&c->all->store->replay, &key, req->seq))
		return 1;
	TRY(take_answer(v, req));
	v->told = true; /* all that it answers was committed before */
	version_join_answer(v);
	return 0;
}

/* ---- taking back ---- */

/* Is what remains still on its way here? Whoever took it back before it has come would then answer
 * that it had it. */
static bool base_comes(const struct chain *c, const struct chunk_tx *tx,
		       const struct oss_forward_req *req)
{
	const struct chunk_ent *e = tx->ent;

	return (tx->old ? tx->old->version : 0) < req->base &&
	       (e->seen_epoch != c->epoch || e->seen < req->base);
}

/* The head uses none of these numbers again: who hears of them later knows that they are history.
 */
static void note_seen(const struct chain *c, struct chunk_ent *e, const struct oss_forward_req *req)
{
	uint64_t seen = req->upto > req->version ? req->upto : req->version;

	if (e->seen_epoch == c->epoch && e->seen >= seen)
		return;
	e->seen_epoch = c->epoch;
	e->seen = seen;
}

/* Under the chunk's lock: the group in which it is durable, 0: there was nothing. */
static uint64_t take_back(const struct chunk_ent *e, const struct oss_forward_req *req,
			  struct list *gone)
{
	uint64_t upto = req->upto ? req->upto : UINT64_MAX;

	list_for_each (l, &e->held) {
		struct version *h = list_entry(l, struct version, link);

		if (!version_pending(h) || h->number < req->version)
			continue;
		/* This may come late: what the head has made since is built on what was before. */
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
