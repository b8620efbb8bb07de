#include "client/retry.h"

#include "client/client.h"
#include "client/session.h"
#include "common/base/log.h"

#define BACKOFF_FIRST_US 1000u
#define BACKOFF_MAX_US   200000u
/* The first attempt may take this long before it is repeated; later ones longer and longer. */
#define ATTEMPT_FIRST_US 3000000u
#define ATTEMPT_MAX_US   12000000u

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

int retry_next(struct retry *r, int status)
{
	uint64_t now = loop_now_us(), jitter;

	if (!worth_repeating(r, status))
		return status == -LE_CANCELED ? -LE_INTR : status;
	if (now + r->backoff_us >= r->deadline_us)
		return -LE_IO;
	r->c->stats.retries++;
	if (status_retry(status) == RETRY_CONN || status == -LE_TIMEDOUT)
		r->unknown = true;
	if (status_retry(status) == RETRY_MAP) {
		int rc = map_refresh(r->c, r->deadline_us);
		if (rc == -LE_INTR)
			return rc;
	}
	jitter = env_random_u64(r->c->env) % (r->backoff_us / 2 + 1);
	TRY(fiber_sleep_us(r->backoff_us + jitter));
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

int mds_call(struct client *c, uint16_t op, const void *req, void *rep, struct rpc_call *call)
{
	const struct msg_desc *desc = msg_find(op);
	bool mutation = desc->kind == MSG_WRITE;
	struct retry r;
	int rc;

	*call = (struct rpc_call){.op = op, .req = req, .rep = rep};
	memset(rep, 0, desc->rep_size);
	retry_begin(&r, c);
	if (mutation) {
		rc = seq_take(&c->mds_seqs, r.deadline_us, &call->slot, &call->seq);
		if (rc < 0)
			return rc == -LE_TIMEDOUT ? -LE_IO : rc;
	}
	c->stats.meta_ops++;
	for (;;) {
		memset(rep, 0, desc->rep_size);
		call->session = c->session;
		call->deadline_us = retry_attempt_deadline(&r);
		rc = rpc_call(c->mds, call);
		if (rc >= 0)
			break;
		rpc_call_fini(call);
		call->body = NULL;
		if (rc == -LE_SESSION_GONE)
			rc = session_lost(&r, call->session, mutation);
		else
			rc = retry_next(&r, rc);
		if (rc < 0)
			break;
	}
	if (mutation)
		seq_give(&c->mds_seqs, call->slot);
	return rc;
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

int oss_call(struct client *c, const struct layout *l, uint64_t idx, struct rpc_call *call,
	     struct target **ret_target)
{
	const struct msg_desc *desc = msg_find(call->op);
	bool mutation = desc->kind == MSG_WRITE;
	struct target *t = NULL, *held = NULL; /* held: whose slot we have */
	struct retry r;
	int rc;

	*ret_target = NULL;
	call->session = c->session;
	retry_begin(&r, c);
	for (;;) {
		memset(call->rep, 0, desc->rep_size);
		rc = map_find(c, l, idx, &t, &call->epoch);
		if (rc >= 0 && mutation && held != t) {
			if (held != NULL)
				seq_give(&held->seqs, call->slot);
			held = NULL;
			rc = seq_take(&t->seqs, r.deadline_us, &call->slot, &call->seq);
			if (rc >= 0)
				held = t;
			/* The wait may have seen a new map. */
			if (rc >= 0 && t->rpc == NULL)
				rc = map_find(c, l, idx, &t, &call->epoch);
		}
		if (rc >= 0) {
			*ret_target = t;
			call->target = t->id;
			call->deadline_us = retry_attempt_deadline(&r);
			rc = rpc_call(t->rpc, call);
			if (rc >= 0)
				break;
			rpc_call_fini(call);
			call->body = NULL;
			/* The server may have died and forgotten what it had accepted. */
			c->n_retracted += call->ret_accepted;
			call->ret_accepted = false;
		}
		if (rc == -LE_SESSION_GONE)
			rc = session_doubted(&r, call->session);
		else
			rc = retry_next(&r, rc);
		if (rc < 0)
			break;
	}
	if (held != NULL)
		seq_give(&held->seqs, call->slot);
	return rc;
}
