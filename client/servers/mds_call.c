/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/mds_call.h"

#include <string.h>

#include "client/client.h"
#include "client/ll.h"
#include "client/servers/cancel.h"
#include "client/servers/request_slots.h"
#include "client/servers/restart_log.h"
#include "client/servers/retry.h"
#include "client/servers/session.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/messages.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* Called when the request's session has ended: opens a new one if no other fiber has. Returns 0 if
 * the request may be repeated in the new session. Yields. */
static int session_lost(struct retry *r, uint64_t session, bool mutation)
{
	int rc;

	if (session == r->c->session) {
		rc = session_renew(r->c, session);
		if (rc < 0)
			return rc == -LE_INTR ? rc : retry_next(r, -LE_TIMEDOUT);
	}
	/* The outcome in the old session can no longer be determined. */
	return mutation && r->unknown ? -LE_IO : 0;
}

/* Wakes the asynchronous closes that wait for the next request, so that the transport sends them in
 * one frame with it. Yields. */
static void take_along(struct client *c, uint16_t op)
{
	if (op == OP_mds_close || waitq_empty(&c->piggyback_q))
		return;
	waitq_wake_all(&c->piggyback_q);
	fiber_yield();
}

/* How a request differs from a plain mds_call. */
struct manner {
	const bool *done; /* see mds_call_priority */
	bool uninterruptible;      /* see mds_call_uninterruptible */
	uint32_t *n_late; /* see mds_call_lasting */
	bool sent, interrupted, late;
};

/* Extends the deadline of a lasting request when its time is almost used up. Called before each
 * wait. */
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

/* Takes the slot and sequence of a mutation. Yields. */
static int number_take(struct manner *m, struct retry *r, struct rpc_call *call)
{
	struct request_slots *t = &r->c->mds_seqs;
	int rc;

	do {
		time_renew(m, r);
		rc = m->done != NULL ? request_slot_take_reserved(t, r->deadline_us, &call->slot,
								  &call->seq)
				     : restart_log_begin(r->c, call->op, call->req, r->deadline_us,
							 &call->slot, &call->seq);
	} while (rc == -LE_TIMEDOUT && m->n_late != NULL && !r->c->stopping &&
		 loop_now_us() < fiber_deadline());
	return rc == -LE_TIMEDOUT ? -LE_IO : rc;
}

/* Returns true if the request was interrupted but the MDS may have counted it. The fiber then waits
 * for the reply, and the interrupt is deferred. */
static bool must_hear(struct manner *m, struct retry *r, int rc)
{
	if (rc != -LE_INTR || !m->uninterruptible || !m->sent)
		return false;
	m->interrupted = r->unknown = true;
	return true;
}

/* Ends a request: cancellation, deferred interrupt, late counter. */
static void manner_end(struct manner *m, struct ll_request *asker, int rc)
{
	cancel_end(asker, rc);
	if (m->interrupted)
		fiber_interrupt(fiber_self());
	if (m->late)
		--*m->n_late;
}

/* Returns true if the request concerns a file that is not open yet in a new session. With `done`,
 * all files must be open again. */
static bool is_too_early(struct client *c, uint16_t op, const void *req, const bool *done)
{
	if (done != NULL)
		return c->reopening && !c->stopping;
	if (op == OP_mds_close)
		return c->session_ops->reopens(c, ((const struct mds_close_req *)req)->ino);
	if (op == OP_mds_append)
		return c->session_ops->reopens(c, ((const struct mds_append_req *)req)->ino);
	return op == OP_mds_lock &&
	       c->session_ops->reopens(c, ((const struct mds_lock_req *)req)->ino);
}

/* Waits until the file is open in the new session. The caller has no slot yet, so that waiting
 * requests do not occupy slots that others need. Yields. */
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
	struct ll_request *asker = cancel_begin(op, req);
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
		cancel_check(asker, call);
		/* Another fiber may have noticed the loss of the session first. */
		if (mutation && r.unknown && call->session != c->session) {
			rc = -LE_IO;
			break;
		}
		call->session = c->session;
		/* With RPC_CALL_NO_WAIT, rpc_call does not yield before it sends: connection and
		 * session are those of this check. */
		call->flags = m.done != NULL ? RPC_CALL_NO_WAIT : 0;
		call->deadline_us = retry_attempt_deadline(&r);
		call->sent_us = loop_now_us();
		rc = is_too_early(c, op, req, m.done) ? -LE_NOT_READY : rpc_call(c->mds, call);
		if (rc >= 0) {
			session_contact(c, call->sent_us);
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
		if (rc < 0 && !cancel_just_requested(asker, &r, call, rc) && !must_hear(&m, &r, rc))
			break;
		rc = 0;
	}
	if (mutation && rc < 0 && r.unknown)
		request_slot_mark_unknown(&c->mds_seqs, call->slot);
	if (mutation)
		restart_log_end(c, call->slot);
	manner_end(&m, asker, rc);
	return rc;
}

int mds_call(struct client *c, uint16_t op, const void *req, void *rep, struct rpc_call *call)
{
	return call_mds(c, op, req, rep, call, (struct manner){0});
}

int mds_call_priority(struct client *c, uint16_t op, const void *req, void *rep,
		      struct rpc_call *call, const bool *done)
{
	return call_mds(c, op, req, rep, call,
			(struct manner){.done = done, .uninterruptible = true});
}

int mds_call_uninterruptible(struct client *c, uint16_t op, const void *req, void *rep,
			     struct rpc_call *call)
{
	return call_mds(c, op, req, rep, call, (struct manner){.uninterruptible = true});
}

int mds_call_lasting(struct client *c, uint16_t op, const void *req, void *rep,
		     struct rpc_call *call, uint32_t *n_late)
{
	return call_mds(c, op, req, rep, call, (struct manner){.n_late = n_late});
}
