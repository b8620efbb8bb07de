/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/session.h"

#include <stdio.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/ll.h"
#include "client/servers/cluster_map.h"
#include "client/servers/open_count.h"
#include "client/servers/request_slots.h"
#include "client/servers/restart_log.h"
#include "client/servers/retry.h"
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/wire.h"
#include "common/rpc/mds_clock.h"
#include "common/rpc/rpc.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

void session_contact(struct client *c, uint64_t sent_us)
{
	struct client_leases *ls = &c->leases;

	if (sent_us > ls->last_contact_us)
		ls->last_contact_us = sent_us;
	if (loop_now_us() < lease_until_us(c))
		ls->lapsed = false;
}

uint64_t lease_until_us(const struct client *c)
{
	return c->leases.last_contact_us + c->leases.term_us;
}

#define SETUP_TIMEOUT_MS 5000u
#define PING_MIN_MS      100u
#define PING_MAX_MS      5000u

int session_call(struct client *c, uint16_t op, const void *req, void *rep,
		    struct rpc_call *call)
{
	uint16_t flags = call->flags;

	*call = (struct rpc_call){
		.op = op,
		.flags = flags,
		.req = req,
		.rep = rep,
		.session = c->session,
		.deadline_us = loop_deadline_ms(SETUP_TIMEOUT_MS),
		.sent_us = loop_now_us(),
	};
	return rpc_call(c->mds, call);
}

int session_setup_call(struct client *c, uint16_t flags, uint16_t op, const void *req, void *rep)
{
	struct rpc_call call = {
		.op = op,
		.flags = flags,
		.req = req,
		.rep = rep,
		.session = c->session,
		.slot = c->setup_slot,
		.seq = ++c->mds_seqs.seqs[c->setup_slot],
		.deadline_us = loop_deadline_ms(SETUP_TIMEOUT_MS),
	};
	int rc = rpc_call(c->mds, &call);

	rpc_call_fini(&call);
	return rc;
}

int session_await(struct inode_io *d)
{
	struct retry r;
	int rc;

	retry_begin(&r, d->c);
	while (session_misses(d)) {
		rc = open_count_is_reopening(d) ? -LE_NOT_READY : d->c->session_ops->reopen_lost(d);
		if (rc < 0)
			TRY(retry_next(&r, rc));
	}
	return 0;
}

static void clock_observe(struct client *c, int64_t now_ns, uint64_t sent_us)
{
	char who[CLIENT_NAME_SIZE + 16];

	snprintf(who, sizeof(who), "client %s", c->name);
	mds_clock_observe_by(&c->clock, c->env, who, now_ns, sent_us);
}

int64_t ll_mds_now_ns(const struct client *c)
{
	return mds_clock_now_ns(&c->clock, c->env);
}

/* Opens a session, or resumes session `previous` (0: none), and restores the client's state at the
 * MDS. Yields. */
static int session_open(struct client *c, uint16_t flags, uint64_t previous)
{
	struct mds_session_open_req req = {
		.client = c->id,
		.name = bytes_str(c->name),
		.session = previous,
		.slots = MDS_SLOTS,
		.takeover = c->taking_over,
	};
	struct mds_session_open_rep rep = {0};
	struct rpc_call call = {.flags = flags};
	uint64_t old = c->session, sent_us = env_now_us(c->env);
	bool anew; /* the MDS has no record of this client's leases */
	int rc, left = 0;

	rc = session_call(c, OP_mds_session_open, &req, &rep, &call);
	rpc_call_fini(&call);
	if (rc == -LE_SESSION_GONE && previous != 0)
		return session_open(c, flags, 0);
	TRY(rc);
	clock_observe(c, rep.now_ns, sent_us);
	c->session = rep.session;
	anew = old != rep.session || c->incarnation != rep.incarnation;
	c->incarnation = rep.incarnation;
	c->mds_checks_access = rep.mds_checks_access != 0;
	c->ttl_ms = rep.ttl_ms;
	request_slots_limit(&c->mds_seqs, rep.slots);
	if (old != rep.session) {
		c->session_gen++;
		/* Set until all files are open again, also over a later connection: the server may
		 * remove files that it has not recorded as open. */
		c->reopening = old != 0;
		if (old != 0)
			c->session_ops->lost(c, old);
	}
	if (anew)
		c->session_ops->void_leases(c, rep.lease_ms,
					    old == rep.session &&
						    rep.reclaim == RECLAIM_ALL);
	else /* The leases may be those of the previous process, so they hold. */
		c->leases.term_us = (uint64_t)rep.lease_ms * 1000;
	restart_log_session(c);
	/* A restarted server, or a new session, has no state of a previous process that would have
	 * to be ended. */
	if (rep.reclaim != RECLAIM_TAKEOVER)
		c->taking_over = false;
	if (rep.reclaim != RECLAIM_NONE)
		TRY(c->session_ops->reclaim(c, flags, rep.reclaim == RECLAIM_ALL));
	else if (c->reopening)
		TRY(left = c->session_ops->reopen(c, flags));
	c->reopening = left > 0; /* the next ping continues */
	c->reporting = false;
	if (old != 0)
		c->session_ops->taken_up(c);
	if (c->map.epoch != 0)
		map_saw_epoch(c, rep.map_epoch);
	return 0;
}

static int connected(void *arg, struct rpc_client *rpc)
{
	struct client *c = CAST_OBJ(arg, struct client, CLIENT_MAGIC);
	int rc;

	/* The first call comes from rpc_client_create, before it returns. */
	if (c->mds == NULL)
		c->mds = rpc;
	fmutex_lock(&c->session_lock);
	rc = session_open(c, RPC_CALL_SETUP, c->session);
	c->setup_status = rc;
	fmutex_unlock(&c->session_lock);
	if (rc < 0)
		log_debug("client %s: cannot open a session: %s", c->name, status_name(rc));
	return rc;
}

int session_renew(struct client *c, uint64_t gone)
{
	int rc = 0;

	fmutex_lock(&c->session_lock);
	if (c->session == gone) {
		/* RPC_CALL_NO_WAIT, because the connected hook, which would end a wait, needs the
		 * lock that is held here. */
		rc = session_open(c, RPC_CALL_NO_WAIT, 0);
	}
	fmutex_unlock(&c->session_lock);
	return rc;
}

/* Continues a reopening that was interrupted, over the same connection. Yields. */
static int session_reopen(struct client *c)
{
	int rc = 0;

	fmutex_lock(&c->session_lock);
	if (c->reopening)
		rc = session_open(c, RPC_CALL_NO_WAIT, c->session);
	fmutex_unlock(&c->session_lock);
	return rc;
}

int session_check(struct client *c)
{
	struct mds_ping_req req = {.map_epoch = c->map.epoch,
				   .ahead_us = c->clock.ahead_us,
				   .bound_us = c->clock.bound_us};
	struct mds_ping_rep rep = {0};
	struct rpc_call call = {.flags = RPC_CALL_NO_WAIT};
	uint64_t session = c->session, sent_us = env_now_us(c->env);
	int rc = session_call(c, OP_mds_ping, &req, &rep, &call);

	rpc_call_fini(&call);
	if (rc >= 0) {
		clock_observe(c, rep.now_ns, sent_us);
		map_saw_epoch(c, rep.map_epoch);
		if (session == c->session)
			session_contact(c, call.sent_us);
	}
	if (rc >= 0 && c->reopening)
		return session_reopen(c);
	if (rc != -LE_SESSION_GONE)
		return rc;
	if (session == c->session)
		TRY(session_renew(c, session));
	return -LE_SESSION_GONE;
}

static void keepalive_fiber(void *arg)
{
	struct client *c = CAST_OBJ(arg, struct client, CLIENT_MAGIC);

	c->keepalive = fiber_self();
	while (!c->stopping) {
		uint32_t ms = c->ttl_ms / 4, lease_ms = (uint32_t)(c->leases.term_us / 4000);
		int rc;

		if (lease_ms < ms)
			ms = lease_ms;
		if (ms < PING_MIN_MS)
			ms = PING_MIN_MS;
		if (ms > PING_MAX_MS)
			ms = PING_MAX_MS;
		rc = fiber_sleep_us((uint64_t)ms * 1000);
		if (c->stopping)
			break;
		if (rc >= 0)
			rc = session_check(c);
		if (rc < 0)
			log_debug("client %s: ping of the metadata server failed: %s", c->name,
				  status_name(rc));
	}
	c->keepalive = NULL;
	client_bg_end(c);
}

void ll_report_unreachable(struct client *c)
{
	rpc_client_report_unreachable(c->mds, "the metadata server");
}

int ll_unreachable(const struct client *c)
{
	return rpc_client_unreachable(c->mds);
}

int session_start(struct client *c, const struct client_options *opts, uint64_t deadline_us)
{
	struct rpc_client_options ro = {
		.transport = c->transport,
		.addrs = opts->mds_addrs,
		.name = c->name,
		.role = ROLE_CLIENT,
		.key = c->key,
		.in_flight_max = CLIENT_IN_FLIGHT_MAX,
		.arg = c,
		.connected = connected,
		.callback = c->session_ops->callback,
		/* A takeover waits for DNS to come back, as a mount that is in use must. */
		.hosts_known = c->previous_us == 0,
	};
	uint64_t seq;
	int rc = -LE_CONNREFUSED;

	fmutex_init(&c->session_lock);
	TRY(request_slots_init(&c->mds_seqs, MDS_SLOTS, c->seq_base));
	c->mds_seqs.n_reserved = 1; /* ops/delegated_open.h */
	TRY(request_slot_take(&c->mds_seqs, NO_DEADLINE, &c->setup_slot, &seq));
	restart_log_reserve(c);
	TRY(rpc_client_create(&ro, &c->mds));
	if (opts->reports_unreachable)
		ll_report_unreachable(c);
	/* Every call waits for the connection, and so for the session. One attempt gets only a part
	 * of the time, because a frame may be lost. */
	while (rc < 0 && loop_now_us() < deadline_us) {
		uint64_t once_us = loop_deadline_ms(SETUP_TIMEOUT_MS);
		struct mds_ping_req req = {0};
		struct mds_ping_rep rep = {0};
		struct rpc_call call = {
			.op = OP_mds_ping,
			.req = &req,
			.rep = &rep,
			.session = c->session,
			.deadline_us = once_us < deadline_us ? once_us : deadline_us,
		};

		rc = rpc_call(c->mds, &call);
		rpc_call_fini(&call);
		if (rc == -LE_SESSION_GONE && c->session != 0)
			rc = 0; /* the hook ran after the ping was sent with the old number */
		/* An unknown host name is final, unless the attempt timed out: other addresses may
		 * answer. */
		if (rc == -LE_NO_HOST && loop_now_us() < call.deadline_us)
			break;
		if (rc < 0 && (status_retry(rc) == RETRY_NEVER || fiber_sleep_us(1000) < 0))
			break;
	}
	if (rc < 0)
		return rc == -LE_TIMEDOUT && c->setup_status < 0 ? c->setup_status : rc;
	return client_bg_spawn(c, "keepalive", keepalive_fiber, c);
}

void session_stop(struct client *c)
{
	struct mds_session_close_req req = {.session = c->session};
	struct mds_session_close_rep rep;
	struct rpc_call call;
	int rc = 0;

	if (c->mds == NULL)
		return;
	if (c->session != 0) {
		call = (struct rpc_call){
			.op = OP_mds_session_close,
			.flags = RPC_CALL_NO_WAIT,
			.req = &req,
			.rep = &rep,
			.session = c->session,
			.deadline_us = loop_deadline_ms(1000),
		};
		rc = rpc_call(c->mds, &call);
		rpc_call_fini(&call);
	}
	if (rc < 0)
		log_debug("client %s: cannot close the session: %s", c->name, status_name(rc));
	rpc_client_destroy(c->mds);
	c->mds = NULL;
}

bool ll_mds_checks_access(const struct client *c)
{
	return c->mds_checks_access;
}
