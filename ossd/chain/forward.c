/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/forward.h"

#include "common/base/log.h"
#include "ossd/chain/forward_data.h"
#include "ossd/chunk/chunk_read.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"

#define FORWARD_MS     1500u  /* for the first attempt; a new epoch ends it sooner */
#define FORWARD_MAX_MS 12000u /* later attempts wait longer: the member may only be slow */
#define RETRY_US       1000u
#define RETRY_MAX_US   50000u
#define FORWARD_PIECES (LEAT_BLOCKS_PER_CHUNK_MAX * PIECE_WIRE_SIZE)

/* True if a failure at the next member is permanent for the version, which must be aborted; false
 * if another attempt may succeed. */
static bool is_final(int status)
{
	switch (-status) {
	case LE_NOSPC:
	case LE_CORRUPT:
	case LE_FBIG:
	case LE_INVAL:
	case LE_NOTSUP:
	case LE_TOO_BIG:
	case LE_BAD_MESSAGE:
		return true;
	default:
		return false;
	}
}

/* ---- one attempt ---- */

struct attempt {
	struct version *v;
	struct oss_forward_req req;
	struct slot_vec vec[CHUNK_READ_VECS];
	uint32_t n_vec, bytes;
	uint32_t n_legs, n_accepted, timeout_ms, epoch;
	uint8_t pieces[FORWARD_PIECES], gaps[CHUNK_GAPS_ENC_MAX];
};

struct leg {
	struct attempt *a;
	uint32_t target;
	int rc;
};

static void put_pieces(struct attempt *a)
{
	const struct chunk_tx *tx = &a->v->tx;
	const struct chunk_record *rec = tx->rec;
	uint32_t bs = rec->block_size, n = 0;

	for (uint32_t i = tx->off / bs; i <= (tx->off + tx->len - 1) / bs; i++) {
		const struct chunk_block *b = &rec->blocks[i];
		struct piece p = block_piece(b, i * bs);

		piece_encode(&p, a->pieces + (size_t)n++ * PIECE_WIRE_SIZE);
		a->bytes += block_space(b);
	}
	a->req.pieces = bytes_of(a->pieces, n * PIECE_WIRE_SIZE);
	a->req.gaps = bytes_of(a->gaps, gaps_encode(chunk_record_gaps(rec), rec->n_gaps, a->gaps));
}

static int get_data(struct attempt *a)
{
	struct version *v = a->v;
	uint32_t bs = v->tx.rec->block_size;

	if (v->n_vec) {
		for (uint32_t i = 0; i < v->n_vec; i++) {
			a->vec[i] = v->vec[i];
			slot_ref(v->vec[i].slot);
		}
		a->n_vec = v->n_vec;
		return 0;
	}
	metric_add(&v->chain->all->metrics->forward_reads, 1);
	return chunk_tx_read(&v->tx, v->tx.off / bs, (v->tx.off + v->tx.len - 1) / bs, a->vec,
			     &a->n_vec);
}

static const uint32_t kinds[] = {
	[CHANGE_WRITE] = FORWARD_WRITE,
	[CHANGE_TRIM] = FORWARD_TRIM,
	[CHANGE_PUNCH] = FORWARD_PUNCH,
	[CHANGE_REMOVE] = FORWARD_REMOVE,
};

/* Copies what the message needs of the version's record, which may be freed when the version
 * ends. */
static int attempt_init(struct attempt *a, struct version *v)
{
	const struct chunk_tx *tx = &v->tx;
	const struct chunk_record *rec = tx->rec;

	a->v = v;
	a->n_vec = a->bytes = a->n_legs = a->n_accepted = 0;
	a->req = (struct oss_forward_req){
		.kind = v->chunkless ? FORWARD_ANSWER : kinds[tx->change],
		.flags = tx->lazy ? FORWARD_LAZY : 0,
		.chunk = chunk_key_id(&v->key),
		.version = v->number,
		.base = v->base,
		.sum = v->sum,
		.session = v->session,
		.slot = v->slot,
		.seq = v->seq,
		.op = v->op,
		.answer = bytes_of(v->answer, v->answer_len),
	};
	if (v->chunkless)
		return 0;
	a->req.committed = tx->ent->rec ? tx->ent->rec->version : 0;
	a->req.off = tx->off;
	a->req.len = tx->len;
	if (rec) {
		a->req.chunk_size = rec->chunk_size;
		a->req.end = rec->end;
		a->req.mtime_ns = rec->mtime_ns;
	}
	if (tx->change != CHANGE_WRITE)
		return 0;
	put_pieces(a);
	return get_data(a);
}

static void leg_accepted(void *arg)
{
	struct leg *l = arg;
	struct version *v = l->a->v;

	if (++l->a->n_accepted < l->a->n_legs)
		return;
	v->accepted_behind = true;
	waitq_wake_all(&v->q);
}

/* A SYNCING member that fails delays no other: its resync begins again. */
static int leg_status(struct chain *c, uint32_t target, int rc)
{
	if (rc == 0 || rc == -LE_STALE_EPOCH || rc == -LE_INTR || rc == -LE_SHUTDOWN ||
	    chain_state_of(c, target) != MEMBER_SYNCING || !c->all->hooks.failed)
		return rc;
	return c->all->hooks.failed(c, target, rc) ? 0 : rc;
}

/* Calls only in the epoch in which the attempt began: since then another head may have used the
 * number for another version. */
static int call_in(struct chain *c, uint32_t epoch, uint32_t target, struct rpc_call *call)
{
	return c->epoch == epoch ? chain_call(c, target, call) : -LE_STALE_EPOCH;
}

static void leg_run(void *arg)
{
	struct leg *l = arg;
	struct attempt *a = l->a;
	struct chain *c = a->v->chain;
	struct oss_forward_rep rep;
	struct rpc_call call = {.op = OP_oss_forward,
				.req = &a->req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(a->timeout_ms),
				.bulk_out = a->vec,
				.n_bulk_out = a->n_vec,
				.accepted = leg_accepted,
				.accepted_arg = l};
	int rc = call_in(c, a->epoch, l->target, &call);

	metric_add(&c->all->metrics->forwards, 1);
	metric_add(&c->all->metrics->forward_bytes, a->bytes);
	rpc_call_fini(&call);
	l->rc = leg_status(c, l->target, rc);
	if (rc < 0)
		log_debug("chain %u: version %llu to target %u: %s", c->id,
			  (unsigned long long)a->v->number, l->target, status_text(rc));
}

static int run_legs(struct attempt *a, const uint32_t *targets, uint32_t n)
{
	struct leg legs[CHAIN_MEMBERS_MAX];
	int rc = 0;

	a->n_legs = n;
	for (uint32_t i = 0; i < n; i++)
		legs[i] = (struct leg){a, targets[i], 0};
	if (n == 1)
		leg_run(&legs[0]);
	else
		fiber_parallel("forward-leg", leg_run, legs, sizeof(legs[0]), n, n);
	for (uint32_t i = 0; i < n; i++)
		rc = rc < 0 ? rc : legs[i].rc;
	return rc;
}

/* Returns 0 if all members downstream have it durably in the chain's present epoch. A reply in
 * another epoch is not valid: it may be of a member that is no longer downstream. */
static int forward_once(struct version *v, struct attempt *a)
{
	struct chain *c = v->chain;
	uint32_t targets[CHAIN_MEMBERS_MAX];
	uint32_t n = forward_targets(c, &v->key, targets);
	int rc = 0;

	a->epoch = c->epoch;
	if (n) {
		rc = attempt_init(a, v);
		if (rc == 0)
			rc = run_legs(a, targets, n);
		for (uint32_t i = 0; i < a->n_vec; i++)
			slot_unref(a->vec[i].slot);
	}
	if (c->epoch != a->epoch && (rc == 0 || is_final(rc)))
		return -LE_STALE_EPOCH;
	return rc;
}

/* ---- aborting ---- */

static int abort_once(struct chain *c, uint32_t epoch, const struct oss_forward_req *req)
{
	uint32_t targets[CHAIN_MEMBERS_MAX], n;
	struct chunk_key key = chunk_key_of(c->id, &req->chunk);
	int rc = 0;

	n = forward_targets(c, &key, targets);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct oss_forward_rep rep;
		struct rpc_call call = {.op = OP_oss_forward,
					.req = req,
					.rep = &rep,
					.deadline_us = loop_deadline_ms(FORWARD_MS)};

		rc = leg_status(c, targets[i], call_in(c, epoch, targets[i], &call));
		rpc_call_fini(&call);
	}
	return rc;
}

int forward_abort(struct chain *c, const struct oss_forward_req *in, uint32_t epoch)
{
	struct oss_forward_req req = {.kind = FORWARD_ABORT,
				      .chunk = in->chunk,
				      .version = in->version,
				      .base = in->base,
				      .upto = in->upto};

	for (;;) {
		/* Another head decides about these versions, and uses the numbers again. */
		if (c->epoch != epoch && (!chain_is_head(c) || c->epoch != epoch + 1))
			return -LE_STALE_EPOCH;
		epoch = c->epoch;
		if (abort_once(c, epoch, &req) == 0)
			return 0;
		if (c->all->stopping)
			return -LE_SHUTDOWN;
		(void)!fiber_sleep_us(RETRY_MAX_US);
	}
}

/* The present head may still have them: their writers must repeat the request there. */
static void left_to_others(struct list *gone)
{
	list_for_each (l, gone)
		list_entry(l, struct version, link)->status = -LE_STALE_EPOCH;
}

/* The head aborts a version that a member downstream cannot store, at all members and here, before
 * it replies. */
static void abort_version(struct version *v)
{
	struct chain *c = v->chain;
	struct chunk_store *s = c->all->store;
	struct oss_forward_req req = {
		.chunk = chunk_key_id(&v->key), .version = v->number, .base = v->base};
	struct chunk_ent *e = chunk_ent_find(&s->cache, &v->key);
	struct list gone;
	uint64_t group = 0;
	uint32_t epoch = 0;

	if (!e)
		return;
	list_init(&gone);
	fmutex_lock(&e->lock);
	if (version_pending(v) && v->behind && chain_is_head(c)) {
		epoch = c->epoch;
		req.upto = list_entry(e->held.prev, struct version, link)->number;
		group = versions_take_back(v, VERSION_ABORTED, v->behind, &gone);
	}
	fmutex_unlock(&e->lock);
	chunk_ent_put(&s->cache, e);
	if (!group)
		return;
	log_warn("chain %u inode=%llu gen=%u chunk=%llu version=%llu: aborted, because a member "
		 "downstream cannot store it: %s",
		 c->id, (unsigned long long)v->key.ino.v, v->key.gen,
		 (unsigned long long)v->key.idx, (unsigned long long)v->number,
		 status_text(v->behind));
	if (group_commit_wait(&s->gc, group) < 0 || forward_abort(c, &req, epoch) < 0)
		left_to_others(&gone);
	versions_gone(&gone);
}

/* ---- the fiber ---- */

static void forward_main(void *arg)
{
	struct version *v = arg;
	struct chain *c = v->chain;
	struct attempt a = {.timeout_ms = FORWARD_MS};
	uint64_t pause = RETRY_US;

	v->forwarder = fiber_self();
	while (version_pending(v) && !v->durable_behind && !v->behind && !v->unconfirmed &&
	       !c->all->stopping) {
		int rc = forward_once(v, &a);

		if (rc == 0) {
			v->accepted_behind = v->durable_behind = true;
		} else if (is_final(rc) && !v->chunkless) {
			v->behind = rc;
			waitq_wake_all(&v->q);
			if (chain_is_head(c))
				abort_version(v);
		} else {
			metric_add(&c->all->metrics->forward_retries, 1);
			if (rc == -LE_TIMEDOUT && a.timeout_ms < FORWARD_MAX_MS)
				a.timeout_ms *= 2;
			if (rc != -LE_INTR && fiber_sleep_us(pause) == 0 && pause < RETRY_MAX_US)
				pause *= 2;
		}
	}
	v->forwarder = NULL;
	v->forwarding = false;
	waitq_wake_all(&v->q);
	if (v->durable_behind) {
		forward_release(v);
		version_settle(v);
	}
	version_unref(v);
	latch_done(&c->all->fibers);
}

void forward_start(struct version *v)
{
	struct chains *cs = v->chain->all;
	uint32_t targets[CHAIN_MEMBERS_MAX];

	if (v->forwarding || v->unconfirmed)
		return;
	if (forward_targets(v->chain, &v->key, targets) == 0) {
		v->accepted_behind = v->durable_behind = true;
		forward_release(v);
		return;
	}
	v->forwarding = true;
	version_ref(v);
	latch_add(&cs->fibers, 1);
	if (fiber_spawn("forward", forward_main, v) < 0) {
		/* No fiber could be started: the resolver tries again. */
		latch_done(&cs->fibers);
		v->forwarding = false;
		cs->starved = true;
		version_unref(v);
	}
}
