/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side: calls run in the fibers of their callers over the current connection (conn.c),
 * and wait while there is none. client_path.c makes the connections.
 *
 *    connect → handshake → setup (the connected hook, in a separate fiber) → up → lost →
 *    back-off → …
 *
 * With several rails, requests that change something keep to the path of their slot, so that a
 * repeated one reaches the same place; the others use the paths in turn.
 *
 * An error that retrying cannot resolve (wrong key, version or cluster at every address) is
 * returned to the callers immediately, while the paths continue to retry. So is an unknown host, if
 * the client's options request that (hosts_known).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/client_conn.h"
#include "common/rpc/client_path.h"
#include "common/rpc/client_unreachable.h"
#include "common/rt/env.h"

/* ---- the interface ---- */

static void client_free(struct rpc_client *c)
{
	body_pool_unref(c->bodies);
	free(c->name);
	c->magic = 0;
	free(c);
}

static void set_defaults(struct rpc_client_options *o)
{
	if (o->in_flight_max == 0)
		o->in_flight_max = 256;
	if (o->connect_timeout_ms == 0)
		o->connect_timeout_ms = 2000;
	if (o->backoff_max_ms == 0)
		o->backoff_max_ms = 500;
	if (o->rails_max == 0)
		o->rails_max = 1;
}

int rpc_client_create(const struct rpc_client_options *opts, struct rpc_client **ret_client)
{
	struct rpc_client *c;

	if (opts->addrs[strspn(opts->addrs, " ,\t")] == '\0')
		return -LE_INVAL;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -LE_NOMEM;
	c->magic = CLIENT_MAGIC;
	c->opts = *opts;
	set_defaults(&c->opts);
	c->opts.addrs = NULL;
	c->cluster = opts->cluster;
	c->spread = (uint32_t)(env_random_u64(loop_env(loop_self())) & 0xffff);
	waitq_init(&c->ready);
	waitq_init(&c->idle);
	list_init(&c->conns);
	snprintf(c->stats.peer, sizeof(c->stats.peer), "not connected yet");
	c->name = strdup(opts->name != NULL ? opts->name : "");
	c->opts.name = c->name;
	int rc = c->name != NULL ? body_pool_create(&c->bodies) : -LE_NOMEM;
	if (rc == 0)
		rc = paths_init(c, opts->addrs);
	if (rc == 0)
		rc = path_start(&c->paths[0]);
	if (rc < 0) {
		client_free(c);
		return rc;
	}
	*ret_client = c;
	return 0;
}

/* Sending GOODBYE yields, and the list may change meanwhile: start again after each. */
static void end_connections(struct rpc_client *c)
{
	bool more = true;

	while (more) {
		more = false;
		list_for_each (pos, &c->conns) {
			struct client_conn *cc = list_entry(pos, struct client_conn, link);
			if (cc->conn.dead)
				continue;
			client_conn_retire(cc);
			more = true;
			break;
		}
	}
}

void rpc_client_destroy(struct rpc_client *c)
{
	if (c == NULL)
		return;
	ASSERT(c->magic == CLIENT_MAGIC);
	c->closing = true;
	client_away_end(c);
	waitq_wake_all(&c->ready);
	for (uint32_t i = 0; i < RPC_PATHS_MAX; i++)
		if (c->paths[i].next != NULL)
			conn_kill(&c->paths[i].next->conn, -LE_SHUTDOWN);
	end_connections(c);
	for (uint32_t i = 0; i < RPC_PATHS_MAX; i++)
		if (c->paths[i].manager != NULL)
			fiber_interrupt(c->paths[i].manager);
	while (c->n_users > 0) {
		int rc = waitq_wait(&c->idle, NO_DEADLINE);
		(void)rc;
	}
	client_free(c);
}

static int no_connection(const struct rpc_client *c, int rc)
{
	int heard = c->last_error;

	if (rc == -LE_TIMEDOUT && (heard == -LE_CONNREFUSED || is_hard(heard) || is_unnamed(heard)))
		return heard;
	return rc;
}

static bool usable(const struct client_conn *cc, const struct rpc_call *call)
{
	if (cc == NULL || cc->conn.dead)
		return false;
	return cc->state == CONN_UP ||
	       ((call->flags & RPC_CALL_SETUP) != 0 && cc->state == CONN_SETUP);
}

/* Picks the connection for a call; NULL: none is usable. */
static struct client_conn *pick(struct rpc_client *c, const struct rpc_call *call)
{
	struct client_conn *first = c->paths[0].conn, *all[RPC_PATHS_MAX];
	uint32_t n = 0, n_verbs = 0;

	if (c->opts.rails_max == 1)
		return usable(first, call) ? first : NULL;
	for (uint32_t i = 0; i < RPC_PATHS_MAX; i++) {
		struct client_conn *cc = c->paths[i].conn;
		if (!usable(cc, call))
			continue;
		/* Path 0 may have fallen back to tcp while a rail is still up. */
		if (addr_is_verbs(cc->addr) && n_verbs++ == 0)
			n = 0;
		if (n_verbs == 0 || addr_is_verbs(cc->addr))
			all[n++] = cc;
	}
	if (n <= 1)
		return n == 1 ? all[0] : NULL;
	return all[(call->seq != 0 ? call->slot : c->turn++) % n];
}

/* Waits for a connection that this call may use. */
static int wait_connection(struct rpc_client *c, const struct rpc_call *call, uint64_t deadline_us,
			   struct client_conn **ret_cc)
{
	for (;;) {
		if (c->closing)
			return -LE_SHUTDOWN;
		*ret_cc = pick(c, call);
		if (*ret_cc != NULL)
			return 0;
		if ((call->flags & (RPC_CALL_SETUP | RPC_CALL_NO_WAIT)) != 0)
			return -LE_DISCONNECTED;
		if (c->hard_error < 0)
			return c->hard_error;
		int rc = waitq_wait(&c->ready, deadline_us);
		if (rc < 0)
			return no_connection(c, rc);
	}
}

static int call_once(struct rpc_client *c, struct rpc_call *call, uint64_t deadline_us,
		     bool *ret_sent)
{
	struct client_conn *cc;

	*ret_sent = call->ret_sent = false;
	call->body = NULL;
	call->ret_bulk_len = 0;
	call->ret_accepted = false;
	TRY(wait_connection(c, call, deadline_us, &cc));
	struct conn *conn = &cc->conn;
	conn_ref(conn);
	int rc = conn_call(conn, call, FRAME_REQUEST, deadline_us, ret_sent);
	call->ret_sent = *ret_sent;
	/* The last call on a connection that was replaced ends it. */
	if (cc->moved && conn->in_flight == 0) {
		waitq_wake_all(&cc->path->news);
		if (!client_has_session(c))
			conn_kill(conn, -LE_SHUTDOWN);
	}
	conn_unref(conn);
	return rc;
}

int rpc_call(struct rpc_client *c, struct rpc_call *call)
{
	uint64_t deadline_us = conn_deadline(call);
	bool sent;
	int rc;

	ASSERT(c->magic == CLIENT_MAGIC);
	c->n_users++;
	do {
		rc = call_once(c, call, deadline_us, &sent);
		/* A request that was not sent may use the next connection. */
	} while (rc == -LE_DISCONNECTED && !sent && !c->closing &&
		 (call->flags & (RPC_CALL_SETUP | RPC_CALL_NO_WAIT)) == 0);
	if (rc == -LE_DISCONNECTED && c->closing)
		rc = -LE_SHUTDOWN;
	c->stats.broken += rc == -LE_DISCONNECTED && sent;
	client_leave(c);
	return rc;
}

bool rpc_client_connected(const struct rpc_client *c)
{
	return client_connected(c);
}

const struct uuid *rpc_client_cluster(const struct rpc_client *c)
{
	return &c->cluster;
}

void rpc_client_stats(const struct rpc_client *c, struct rpc_client_stats *ret_stats)
{
	*ret_stats = c->stats;
	list_for_each (pos, &c->conns)
		client_add_stats(ret_stats, &list_entry(pos, struct client_conn, link)->conn);
}

static void fill_net(const struct rpc_client *c, struct client_conn *cc, struct rpc_net *n)
{
	static const char *const states[] = {"setup", "up", "leaving"};

	conn_net(&cc->conn, n);
	n->state = states[cc->state];
	n->role = cc->peer.role;
	n->name = cc->peer.name;
	n->addr = cc->addr;
	n->rail = cc->path->i;
	n->age_us = loop_now_us() - cc->since_us;
	n->reconnects = c->stats.connects > 0 ? c->stats.connects - 1 : 0;
	n->moves = c->stats.moves;
	n->repeated = c->stats.broken + c->stats.timeouts;
}

void rpc_client_net(const struct rpc_client *c, void (*fn)(void *arg, const struct rpc_net *n),
		    void *arg)
{
	struct rpc_net n;

	list_for_each (pos, &c->conns) {
		n = (struct rpc_net){ 0 };
		fill_net(c, list_entry(pos, struct client_conn, link), &n);
		fn(arg, &n);
	}
	if (!list_empty(&c->conns))
		return;
	n = (struct rpc_net){ .state = "connecting", .name = "", .transport = "",
			      .addr = c->n_candidates > 0 ? c->candidates[0].addr : "",
			      .why = c->last_error, .reconnects = c->stats.connects };
	fn(arg, &n);
}

void rpc_client_totals(const struct rpc_client *c, struct rpc_net_totals *totals)
{
	net_totals_add(totals, &c->ended);
	transport_resources(c->opts.transport, &totals->held);
	list_for_each (pos, &c->conns)
		conn_total(&list_entry(pos, struct client_conn, link)->conn, false, totals);
}
