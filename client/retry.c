#include "client/retry.h"

#include "client/client.h"
#include "client/kept.h"
#include "client/reclaim.h"
#include "client/route.h"
#include "client/session.h"
#include "common/base/fault.h"
#include "common/base/log.h"

#define BACKOFF_FIRST_US 1000u
#define BACKOFF_MAX_US   200000u
/* The first attempt may take this long before it is repeated; later ones longer and longer. */
#define ATTEMPT_FIRST_US 3000000u
#define ATTEMPT_MAX_US   12000000u
/* The same where others may have taken over meanwhile. */
#define ATTEMPT_CHAIN_US 700000u
/* Whoever let an attempt time out is not asked first for so long. */
#define SLOW_US   1000000u
#define MOVES_MAX 8u

void retry_begin(struct retry *r, struct client *c)
{
	uint64_t deadline = loop_deadline_ms(c->params.request_timeout_ms);

	*r = (struct retry){
		.c = c,
		.deadline_us = deadline < fiber_deadline() ? deadline : fiber_deadline(),
		.backoff_us = BACKOFF_FIRST_US,
		.attempt_us = ATTEMPT_FIRST_US,
	};
}

uint64_t retry_attempt_deadline(struct retry *r)
{
	uint64_t at = loop_now_us() + r->attempt_us;

	if (r->attempt_us < ATTEMPT_MAX_US)
		r->attempt_us *= 2;
	return at < r->deadline_us ? at : r->deadline_us;
}

/* Answers after which the same request is sent again; the others are final. */
static bool worth_repeating(const struct retry *r, int status)
{
	if (status == -LE_SHUTDOWN && r->c->stopping)
		return false;
	return status_retry(status) != RETRY_NEVER;
}

/* May another member have taken over from the one that did not answer? */
static bool map_doubted(const struct retry *r, int status)
{
	if (status_retry(status) == RETRY_MAP)
		return true;
	return r->chain != NULL && r->chain->n_members > 1 &&
	       (status_retry(status) == RETRY_CONN || status == -LE_TIMEDOUT);
}

static bool chain_moved(struct retry *r, uint32_t epoch)
{
	return r->chain != NULL && r->chain->epoch != epoch && r->n_moves++ < MOVES_MAX;
}

/* News of the chain ends it early. */
static int back_off(struct retry *r, uint32_t epoch)
{
	uint64_t jitter = env_random_u64(r->c->env) % (r->backoff_us / 2 + 1);
	uint64_t until_us = loop_now_us() + r->backoff_us + jitter;
	int rc = 0;

	while (rc >= 0 && !chain_moved(r, epoch))
		rc = waitq_wait(&r->c->map.changed, until_us);
	return rc == -LE_TIMEDOUT ? 0 : rc;
}

int retry_next(struct retry *r, int status)
{
	uint64_t now = loop_now_us();
	uint32_t epoch = r->chain != NULL ? r->chain->epoch : 0;

	if (!worth_repeating(r, status))
		return status == -LE_CANCELED ? -LE_INTR : status;
	if (now + r->backoff_us >= r->deadline_us)
		return -LE_IO;
	r->c->stats.retries++;
	if (status_retry(status) == RETRY_CONN || status == -LE_TIMEDOUT)
		r->unknown = true;
	if (map_doubted(r, status)) {
		int rc = map_refresh(r->c, r->deadline_us);
		if (rc == -LE_INTR)
			return rc;
		if (chain_moved(r, epoch))
			return 0;
	}
	TRY(back_off(r, epoch));
	if (r->backoff_us < BACKOFF_MAX_US)
		r->backoff_us *= 2;
	return 0;
}

/* The session of a request is gone: may the request be made in the new one? */
static int session_lost(struct retry *r, uint64_t session, bool mutation)
{
	int rc;

	if (session == r->c->session) {
		rc = session_renew(r->c, session);
		if (rc < 0)
			return rc == -LE_INTR ? rc : retry_next(r, -LE_TIMEDOUT);
	}
	/* Whether the old session's server did it cannot be known any more. */
	return mutation && r->unknown ? -LE_IO : 0;
}

/* What waits for another request to go with goes ahead of it, in one frame of the transport. */
static void take_along(struct client *c, uint16_t op)
{
	if (op == OP_mds_close || waitq_empty(&c->company))
		return;
	waitq_wake_all(&c->company);
	fiber_yield();
}

/* ---- withdrawn changes ---- */

void ll_request_withdraw(struct ll_request *r)
{
	r->withdrawn = true;
	if (r->waiting != NULL)
		fiber_interrupt(r->waiting);
}

/* What a request may ask for; other calls end what it began, or tell of opens and ask for rights on
 * its way. */
static bool may_be_withdrawn(uint16_t op, const void *req)
{
	return op == OP_mds_setattr || kept_must_be_once(op, req);
}

/* The request that the running fiber serves, while it asks for this change; NULL: none. What has
 * been begun is not left half done. */
static struct ll_request *asker_begin(uint16_t op, const void *req)
{
	struct ll_request *asker = may_be_withdrawn(op, req) ? fiber_local() : NULL;

	if (asker == NULL || asker->changed)
		return NULL;
	asker->waiting = fiber_self();
	return asker;
}

static void asker_end(struct ll_request *asker, int rc)
{
	if (asker == NULL)
		return;
	asker->waiting = NULL;
	asker->changed = rc >= 0;
	if (asker->withdrawn)
		(void)fiber_interrupt_clear();
}

/* Before an attempt: it is one that withdraws the change from now on. */
static void look_withdrawn(const struct ll_request *asker, struct rpc_call *call)
{
	if (asker == NULL || !asker->withdrawn || call->withdrawn)
		return;
	call->withdrawn = true;
	(void)fiber_interrupt_clear();
}

/* The attempt, or the wait for the next one, was ended so that the change be withdrawn. */
static bool just_withdrawn(const struct ll_request *asker, struct retry *r,
			   const struct rpc_call *call, int rc)
{
	if (rc != -LE_INTR || asker == NULL || !asker->withdrawn || call->withdrawn ||
	    FAULT(CLIENT_GIVE_UP))
		return false;
	r->unknown = true;
	return true;
}

/* How a request is made where it is not made as usual. */
struct manner {
	const bool *done; /* of mds_call_first */
	bool to_end;      /* of mds_call_to_end */
	uint32_t *n_late; /* of mds_call_lasting */
	bool sent, interrupted, late;
};

/* Before a wait: what is asked for as long as the client lasts has its time before it again. */
static void time_renew(struct manner *m, struct retry *r)
{
	uint64_t now = loop_now_us();

	if (m->n_late == NULL || r->c->stopping || now + r->backoff_us < r->deadline_us ||
	    now >= fiber_deadline())
		return;
	*m->n_late += !m->late;
	m->late = true;
	r->deadline_us = loop_deadline_ms(r->c->params.request_timeout_ms);
}

/* The slot and sequence of a mutation. */
static int number_take(struct manner *m, struct retry *r, struct rpc_call *call)
{
	struct seq_table *t = &r->c->mds_seqs;
	int rc;

	do {
		time_renew(m, r);
		rc = m->done != NULL ? seq_take_kept(t, r->deadline_us, &call->slot, &call->seq)
				     : kept_take(r->c, call->op, call->req, r->deadline_us,
						 &call->slot, &call->seq);
	} while (rc == -LE_TIMEDOUT && m->n_late != NULL && !r->c->stopping &&
		 loop_now_us() < fiber_deadline());
	return rc == -LE_TIMEDOUT ? -LE_IO : rc;
}

/* It was interrupted, and may have been counted: that is heard first. */
static bool must_hear(struct manner *m, struct retry *r, int rc)
{
	if (rc != -LE_INTR || !m->to_end || !m->sent)
		return false;
	m->interrupted = r->unknown = true;
	return true;
}

static void manner_end(struct manner *m, struct ll_request *asker, int rc)
{
	asker_end(asker, rc);
	if (m->interrupted)
		fiber_interrupt(fiber_self());
	if (m->late)
		--*m->n_late;
}

/* Of a file that is not open yet in a session that is new. What nobody knows whether it is known
 * there (mds_call_first) waits for all of them. */
static bool is_too_early(struct client *c, uint16_t op, const void *req, const bool *done)
{
	if (done != NULL)
		return c->reopening && !c->stopping;
	if (op == OP_mds_close)
		return session_reopens(c, ((const struct mds_close_req *)req)->ino);
	if (op == OP_mds_append)
		return session_reopens(c, ((const struct mds_append_req *)req)->ino);
	return op == OP_mds_lock && session_reopens(c, ((const struct mds_lock_req *)req)->ino);
}

/* Without a slot: those who wait must not keep others from theirs. */
static int await_reopened(struct manner *m, struct retry *r, uint16_t op, const void *req)
{
	while (m->done == NULL && is_too_early(r->c, op, req, NULL)) {
		time_renew(m, r);
		TRY(retry_next(r, -LE_NOT_READY));
	}
	return 0;
}

static int call_mds(struct client *c, uint16_t op, const void *req, void *rep,
		    struct rpc_call *call, struct manner m)
{
	struct ll_request *asker = asker_begin(op, req);
	const struct msg_desc *desc = msg_find(op);
	bool mutation = desc->kind == MSG_WRITE;
	struct retry r;
	int rc = 0;

	take_along(c, op);
	*call = (struct rpc_call){.op = op, .req = req, .rep = rep};
	memset(rep, 0, desc->rep_size);
	retry_begin(&r, c);
	if (mutation) {
		rc = await_reopened(&m, &r, op, req);
		if (rc >= 0)
			rc = number_take(&m, &r, call);
		if (rc < 0) {
			manner_end(&m, asker, rc);
			return rc;
		}
	}
	c->stats.meta_ops++;
	while (m.done == NULL || !*m.done) {
		memset(rep, 0, desc->rep_size);
		look_withdrawn(asker, call);
		/* Another fiber may have heard first that the session is gone. */
		if (mutation && r.unknown && call->session != c->session) {
			rc = -LE_IO;
			break;
		}
		call->session = c->session;
		/* Between the look and the request nobody else gets at the connection, and the
		 * session. */
		call->flags = m.done != NULL ? RPC_CALL_NO_WAIT : 0;
		call->deadline_us = retry_attempt_deadline(&r);
		call->sent_us = loop_now_us();
		rc = is_too_early(c, op, req, m.done) ? -LE_NOT_READY : rpc_call(c->mds, call);
		if (rc >= 0) {
			lease_heard(c, call->sent_us);
			break;
		}
		rpc_call_fini(call);
		call->body = NULL;
		m.sent |= call->ret_sent;
		time_renew(&m, &r);
		if (rc == -LE_SESSION_GONE)
			rc = session_lost(&r, call->session, mutation);
		else
			rc = retry_next(&r, rc);
		if (rc < 0 && !just_withdrawn(asker, &r, call, rc) && !must_hear(&m, &r, rc))
			break;
		rc = 0;
	}
	if (mutation && rc < 0 && r.unknown)
		seq_doubt(&c->mds_seqs, call->slot);
	if (mutation)
		kept_give(c, call->slot);
	manner_end(&m, asker, rc);
	return rc;
}

int mds_call(struct client *c, uint16_t op, const void *req, void *rep, struct rpc_call *call)
{
	return call_mds(c, op, req, rep, call, (struct manner){0});
}

int mds_call_first(struct client *c, uint16_t op, const void *req, void *rep, struct rpc_call *call,
		   const bool *done)
{
	return call_mds(c, op, req, rep, call, (struct manner){.done = done, .to_end = true});
}

int mds_call_to_end(struct client *c, uint16_t op, const void *req, void *rep,
		    struct rpc_call *call)
{
	return call_mds(c, op, req, rep, call, (struct manner){.to_end = true});
}

int mds_call_lasting(struct client *c, uint16_t op, const void *req, void *rep,
		     struct rpc_call *call, uint32_t *n_late)
{
	return call_mds(c, op, req, rep, call, (struct manner){.n_late = n_late});
}

/* A target does not know the session: ask the MDS, who decides whether it is so. */
static int session_doubted(struct retry *r, uint64_t session)
{
	if (session != r->c->session)
		return -LE_SESSION_GONE;
	if (session_check(r->c) == -LE_SESSION_GONE || session != r->c->session)
		return -LE_SESSION_GONE;
	return retry_next(r, -LE_NOT_READY);
}

/* ---- chains ---- */

/* One operation at a chain. */
struct chain_call {
	struct client *c;
	struct rpc_call *call;
	struct route *route;
	struct retry retry;
	bool mutation;
	struct promise promise; /* of a mutation */
	struct chain *held;     /* whose slot the call has; NULL: none */
};

/* The member to ask; a slot and sequence for the first attempt of a mutation. */
static int find_member(struct chain_call *cc, const struct layout *l, uint64_t idx)
{
	struct route *r = cc->route;
	struct client *c = cc->c;
	struct chain *ch = map_chain(c, l, idx);

	r->target = NULL;
	r->chain = ch;
	if (ch == NULL)
		return -LE_NO_TARGET;
	if (cc->retry.chain == NULL && ch->n_members > 1)
		cc->retry.attempt_us = ATTEMPT_CHAIN_US;
	cc->retry.chain = ch;
	if (cc->mutation && cc->held != ch) {
		if (!ch->has_seqs)
			TRY(seq_table_init(&ch->seqs, c->params.writes_in_flight, c->seq_base));
		ch->has_seqs = true;
		TRY(seq_take(&ch->seqs, cc->retry.deadline_us, &cc->call->slot, &cc->call->seq));
		cc->held = ch;
	}
	r->target = route_pick(r, ch, loop_now_us());
	if (r->target == NULL) {
		route_again(r);
		r->target = route_pick(r, ch, loop_now_us());
	}
	if (r->target == NULL)
		return r->n_asked > 0 ? -LE_CORRUPT : -LE_NO_TARGET;
	TRY(target_connect(r->target));
	/* Alone it is waited for in the call. */
	return ch->n_members > 1 ? target_await_up(r->target, cc->retry.deadline_us) : 0;
}

/* The member has not begun with what was asked. */
static bool is_refusal(int status)
{
	switch (-status) {
	case LE_SESSION_GONE:
	case LE_BAD_CAP:
	case LE_NO_LEASE:
	case LE_NO_TARGET:
	case LE_NOT_HEAD:
	case LE_NOT_READY:
	case LE_OVERLOAD:
		return true;
	default:
		return false;
	}
}

static int ask_member(struct chain_call *cc)
{
	struct route *r = cc->route;
	struct rpc_call *call = cc->call;
	struct flight f;
	int rc;

	/* The wait for the connection may have seen it move. */
	TRY(target_connect(r->target));
	if (FAULT(CLIENT_NEW_SEQ) && cc->mutation && call->epoch != 0)
		call->seq = ++r->chain->seqs.seqs[call->slot];
	call->target = r->target->id;
	call->chain = r->chain->id;
	call->epoch = r->chain->epoch;
	call->deadline_us = retry_attempt_deadline(&cc->retry);
	target_asked(r->target, r->chain);
	flight_begin(r->chain, &f, r->target, r->head);
	if (cc->mutation)
		promise_sent(&cc->promise, r->chain, call);
	rc = rpc_call(r->target->rpc, call);
	if (cc->mutation)
		promise_heard(&cc->promise, call, rc);
	rc = flight_end(&f, rc);
	if (rc >= 0)
		return rc;
	rpc_call_fini(call);
	call->body = NULL;
	r->unknown |= cc->mutation && call->ret_sent && !is_refusal(rc);
	/* Accepted is what every member in sync holds in memory, so it outlives any one of them;
	 * but how many have died cannot be told from here: readers of their own data look again. */
	if (call->ret_accepted) {
		cc->c->n_retracted++;
		call->ret_accepted = false;
		if (cc->promise.accepted != NULL)
			cc->promise.accepted(cc->promise.accepted_arg);
	}
	return rc;
}

/* What this member holds is of no use; others hold the same. */
static bool is_damage(int status)
{
	return status == -LE_CORRUPT || status == -LE_CORRUPT_STORE || status == -LE_IO;
}

/* A member has not answered a request that others can answer too: true when one of them is to be
 * asked at once. */
static bool try_another(struct chain_call *cc, int status)
{
	struct route *r = cc->route;

	if (r->head || r->target == NULL || status == -LE_INTR || status == -LE_STALE_EPOCH)
		return false;
	if (status == -LE_PENDING || status == -LE_NOT_HEAD) {
		r->head = true;
		return true;
	}
	if (!is_damage(status) && !worth_repeating(&cc->retry, status))
		return false;
	if (status == -LE_TIMEDOUT)
		r->target->slow_until_us = loop_now_us() + SLOW_US;
	route_failed(r, is_damage(status));
	if (route_pick(r, r->chain, loop_now_us()) == NULL)
		return false;
	cc->c->stats.failovers++;
	return true;
}

int oss_call(struct client *c, const struct layout *l, uint64_t idx, struct rpc_call *call,
	     struct route *route)
{
	const struct msg_desc *desc = msg_find(call->op);
	struct chain_call cc = {
		.c = c,
		.call = call,
		.route = route,
		.mutation = desc->kind == MSG_WRITE,
	};
	int rc;

	call->session = c->session;
	if (!route_any_member(call->op))
		route->head = true;
	if (cc.mutation)
		promise_begin(&cc.promise, c, call);
	retry_begin(&cc.retry, c);
	for (;;) {
		memset(call->rep, 0, desc->rep_size);
		rc = find_member(&cc, l, idx);
		if (rc >= 0)
			rc = ask_member(&cc);
		if (rc >= 0)
			break;
		if (loop_now_us() < cc.retry.deadline_us && try_another(&cc, rc))
			continue;
		if (rc == -LE_SESSION_GONE)
			rc = session_doubted(&cc.retry, call->session);
		else if (rc == -LE_BAD_CAP && route->renew != NULL)
			rc = route->renew(route->renew_arg);
		else
			rc = retry_next(&cc.retry, rc);
		if (rc < 0)
			break;
	}
	if (cc.held != NULL)
		seq_give(&cc.held->seqs, call->slot);
	if (cc.mutation)
		promise_end(&cc.promise, call);
	return rc;
}
