/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/chain_call.h"

#include <string.h>

#include "client/client.h"
#include "client/data/capability.h"
#include "client/servers/cluster_map.h"
#include "client/servers/crash_replay.h"
#include "client/servers/map_refresh.h"
#include "client/servers/replica_select.h"
#include "client/servers/request_slots.h"
#include "client/servers/retry.h"
#include "client/servers/session.h"
#include "client/servers/target.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/messages.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* Timeout of the first attempt at a chain with several members: another member may have taken
 * over. */
#define ATTEMPT_CHAIN_US 700000u
/* How long a member that let an attempt time out is not preferred. */
#define SLOW_US   1000000u
#define MOVES_MAX 8u

/* State of one oss_call. */
struct chain_call {
	struct client *c;
	struct rpc_call *call;
	struct replica_route *replica_route;
	struct retry retry;
	bool mutation;
	struct unstable_write unstable_write; /* for mutations */
	struct chain *held;     /* the chain of the call's slot; NULL: no slot */
	/* The chain of the last attempt; NULL: none yet. If it has several members, a failed
	 * attempt means that the map may have changed. */
	const struct chain *chain;
	uint32_t n_moves; /* immediate attempts because the chain had changed */
};

/* Returns true if the status means that the map may be outdated: another member may have taken over
 * from the one that got the request. */
static bool map_may_be_old(const struct chain_call *cc, int status)
{
	if (status_retry(status) == RETRY_MAP)
		return true;
	return cc->chain != NULL && cc->chain->n_members > 1 &&
	       (status_retry(status) == RETRY_CONN || status == -LE_TIMEDOUT);
}

/* Returns true if the chain's epoch is not `epoch` any longer; at most MOVES_MAX times per call. */
static bool chain_moved(struct chain_call *cc, uint32_t epoch)
{
	return cc->chain != NULL && cc->chain->epoch != epoch && cc->n_moves++ < MOVES_MAX;
}

/* Like retry_next, but first refreshes the map if the status calls for it, and returns as soon as
 * the chain has a new epoch. Yields. */
static int chain_retry_next(struct chain_call *cc, int status)
{
	uint32_t epoch = cc->chain != NULL ? cc->chain->epoch : 0;
	uint64_t until_us;
	int rc = 0;

	TRY(retry_allowed(&cc->retry, status));
	if (map_may_be_old(cc, status)) {
		rc = map_refresh(cc->c, cc->retry.deadline_us);
		if (rc == -LE_INTR)
			return rc;
		if (chain_moved(cc, epoch))
			return 0;
	}
	rc = 0;
	until_us = retry_wait_us(&cc->retry);
	while (rc >= 0 && !chain_moved(cc, epoch))
		rc = waitq_wait(&cc->c->map.changed, until_us);
	return rc == -LE_TIMEDOUT ? 0 : rc;
}

/* Handles the refusal of a target that has no record of the session: the MDS decides whether the
 * session still exists. If it does, waits and returns 0. Otherwise returns -LE_SESSION_GONE or the
 * error that ends the call. Yields. */
static int session_is_unknown(struct chain_call *cc, uint64_t session)
{
	if (session != cc->c->session)
		return -LE_SESSION_GONE;
	if (session_check(cc->c) == -LE_SESSION_GONE || session != cc->c->session)
		return -LE_SESSION_GONE;
	return chain_retry_next(cc, -LE_NOT_READY);
}

/* Selects the member for the next attempt and connects to it. The first attempt of a mutation also
 * takes a slot and sequence. Yields. */
static int find_member(struct chain_call *cc, const struct layout *l, uint64_t idx)
{
	struct replica_route *r = cc->replica_route;
	struct client *c = cc->c;
	struct chain *ch = map_chain(c, l, idx);

	r->target = NULL;
	r->chain = ch;
	if (ch == NULL)
		return -LE_NO_TARGET;
	if (ch->lost)
		return -LE_GIVEN_UP;
	if (cc->chain == NULL && ch->n_members > 1)
		cc->retry.attempt_us = ATTEMPT_CHAIN_US;
	cc->chain = ch;
	if (cc->mutation && cc->held != ch) {
		if (!ch->has_seqs)
			TRY(request_slots_init(&ch->seqs, c->params.writes_in_flight, c->seq_base));
		ch->has_seqs = true;
		TRY(request_slot_take(&ch->seqs, cc->retry.deadline_us, &cc->call->slot, &cc->call->seq));
		cc->held = ch;
	}
	r->target = replica_pick(r, ch, loop_now_us());
	if (r->target == NULL) {
		replica_retry_failed(r);
		r->target = replica_pick(r, ch, loop_now_us());
	}
	if (r->target == NULL)
		return r->n_tried > 0 ? -LE_CORRUPT : -LE_NO_TARGET;
	TRY(target_connect(r->target));
	/* With one member, rpc_call waits for the connection instead. */
	return ch->n_members > 1 ? target_await_up(r->target, cc->retry.deadline_us) : 0;
}

/* Returns true if the status proves that the member has not started the operation. */
static bool is_refusal(int status)
{
	switch (-status) {
	case LE_SESSION_GONE:
	case LE_BAD_CAP:
	case LE_CAP_EXPIRED:
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

/* Makes one attempt at the selected member. Yields. */
static int ask_member(struct chain_call *cc)
{
	struct replica_route *r = cc->replica_route;
	struct rpc_call *call = cc->call;
	struct flight f;
	int rc;

	/* The chain may have changed during the wait for the connection. */
	TRY(target_connect(r->target));
	if (PLANTED_BUG(CLIENT_NEW_SEQ) && cc->mutation && call->epoch != 0)
		call->seq = ++r->chain->seqs.seqs[call->slot];
	call->target = r->target->id;
	call->chain = r->chain->id;
	call->epoch = r->chain->epoch;
	call->deadline_us = retry_attempt_deadline(&cc->retry);
	target_asked(r->target, r->chain);
	flight_begin(r->chain, &f, r->target, r->head);
	if (cc->mutation)
		unstable_sent(&cc->unstable_write, r->chain, call);
	rc = rpc_call(r->target->rpc, call);
	if (cc->mutation)
		unstable_answered(&cc->unstable_write, call, rc);
	rc = flight_end(&f, rc);
	if (rc >= 0)
		return rc;
	rpc_call_fini(call);
	call->body = NULL;
	r->unknown |= cc->mutation && call->ret_sent && !is_refusal(rc);
	/* An accepted write is in the memory of every member in sync, so it survives the loss of
	 * any one of them. The client cannot determine how many have failed, so it counts the write
	 * as retracted. A read that includes this client's writes checks the counter. */
	if (call->ret_accepted) {
		cc->c->n_retracted++;
		call->ret_accepted = false;
		if (cc->unstable_write.accepted != NULL)
			cc->unstable_write.accepted(cc->unstable_write.accepted_arg);
	}
	return rc;
}

/* Returns true if this member's replica is unusable while other members may have a good one. */
static bool is_damage(int status)
{
	return status == -LE_CORRUPT || status == -LE_CORRUPT_STORE || status == -LE_IO;
}

/* Marks the member as failed for a request that other members can answer too. Returns true if
 * another member is to be tried immediately. */
static bool try_another(struct chain_call *cc, int status)
{
	struct replica_route *r = cc->replica_route;

	if (r->head || r->target == NULL || status == -LE_INTR || status == -LE_STALE_EPOCH)
		return false;
	if (status == -LE_PENDING || status == -LE_NOT_HEAD) {
		r->head = true;
		return true;
	}
	if (!is_damage(status) && !retry_is_worth(&cc->retry, status))
		return false;
	if (status == -LE_TIMEDOUT)
		r->target->slow_until_us = loop_now_us() + SLOW_US;
	replica_failed(r, is_damage(status));
	if (replica_pick(r, r->chain, loop_now_us()) == NULL)
		return false;
	cc->c->stats.failovers++;
	return true;
}

int oss_call(struct client *c, const struct layout *l, uint64_t idx, struct rpc_call *call,
	     struct replica_route *replica_route)
{
	const struct msg_desc *desc = msg_find(call->op);
	struct chain_call cc = {
		.c = c,
		.call = call,
		.replica_route = replica_route,
		.mutation = desc->kind == MSG_WRITE,
	};
	int rc;

	call->session = c->session;
	if (!replica_any_member(call->op))
		replica_route->head = true;
	if (cc.mutation)
		unstable_begin(&cc.unstable_write, c, call);
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
			rc = session_is_unknown(&cc, call->session);
		else if (cap_is_refused(rc) && replica_route->renew != NULL)
			rc = replica_route->renew(replica_route->renew_arg, rc);
		else
			rc = chain_retry_next(&cc, rc);
		if (rc < 0)
			break;
	}
	if (cc.held != NULL)
		request_slot_release(&cc.held->seqs, call->slot);
	if (cc.mutation)
		unstable_end(&cc.unstable_write, call);
	return rc;
}
