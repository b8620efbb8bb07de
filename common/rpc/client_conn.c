/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of a client: the handshake, the connected hook in a separate fiber, a reader until
 * it ends, the disconnected hook. Calls run over it in the fibers of their callers (conn.c).
 */
#include "common/rpc/client_conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rt/env.h"

#define CALLBACKS_MAX 256u

/* A callback from the server, while its handler runs. */
struct callback {
	struct client_conn *cc;
	const struct msg_desc *desc;
	struct frame_hdr hdr;
	struct body *body;
	uint64_t in[MSG_STRUCT_MAX / 8], out[MSG_STRUCT_MAX / 8];
};

static void conn_free(struct conn *conn)
{
	free(container_of(conn, struct client_conn, conn));
}

/* ---- callbacks ---- */

static void callback_reply(struct callback *cb, int status)
{
	struct conn *conn = &cb->cc->conn;
	struct body *body = NULL;
	struct link_tx tx = {
		.hdr = { .type = FRAME_CALLBACK_REPLY, .op = cb->hdr.op, .id = cb->hdr.id }
	};

	if (status >= 0)
		status = body_encode(conn->bodies, cb->desc->put_rep, cb->out, &body, &tx.body_len);
	tx.hdr.status = status;
	tx.body = body != NULL ? body->data : NULL;
	int rc = conn->dead ? 0 : conn->k->ops->send(conn->k, &tx, loop_deadline_ms(HANDSHAKE_MS));
	if (rc < 0)
		conn_kill(conn, rc);
	body_put(body);
}

static void callback_main(void *arg)
{
	struct callback *cb = arg;
	struct client_conn *cc = cb->cc;
	struct rpc_client *c = cc->client;
	struct wire_r r;

	wire_r_init(&r, cb->body->data, cb->hdr.body_len);
	cb->desc->get_req(&r, cb->in);
	int status = r.status;
	if (status == 0 && c->opts.callback == NULL)
		status = -LE_UNKNOWN_OP;
	/* Not 0, which the server would take for a completed recall. */
	if (status == 0 && c->closing)
		status = -LE_SHUTDOWN;
	if (status == 0)
		status = c->opts.callback(c->opts.arg, c, cb->hdr.op, cb->in, cb->out);
	callback_reply(cb, status);
	body_put(cb->body);
	free(cb);
	ASSERT(cc->n_callbacks > 0);
	cc->n_callbacks--;
	conn_unref(&cc->conn);
	client_leave(c);
}

static int callback_arrived(struct client_conn *cc, const struct link_rx *rx)
{
	const struct msg_desc *d = msg_find(rx->hdr.op);
	struct callback *cb;

	if (cc->n_callbacks >= CALLBACKS_MAX)
		return -LE_OVERLOAD;
	if (d == NULL) {
		struct link_tx tx = { .hdr = { .type = FRAME_CALLBACK_REPLY, .op = rx->hdr.op,
					       .id = rx->hdr.id, .status = -LE_UNKNOWN_OP } };
		return cc->conn.k->ops->send(cc->conn.k, &tx, loop_deadline_ms(HANDSHAKE_MS));
	}
	cb = calloc(1, sizeof(*cb));
	if (cb == NULL)
		return -LE_NOMEM;
	cb->cc = cc;
	cb->desc = d;
	cb->hdr = rx->hdr;
	cb->body = body_get(cc->conn.bodies, rx->hdr.body_len);
	if (cb->body == NULL || fiber_spawn("rpc-callback", callback_main, cb) < 0) {
		body_put(cb->body);
		free(cb);
		return -LE_NOMEM;
	}
	memcpy(cb->body->data, rx->body, rx->hdr.body_len);
	cc->n_callbacks++;
	conn_ref(&cc->conn);
	cc->client->n_users++;
	return 0;
}

/* ---- the connection ---- */

static int dispatch(struct client_conn *cc, const struct link_rx *rx)
{
	cc->conn.last_rx_us = loop_now_us();
	cc->conn.bytes_in += FRAME_HEADER_SIZE + rx->hdr.body_len + rx->hdr.bulk_len;
	if (rx->hdr.type == FRAME_REPLY)
		return conn_reply_arrived(&cc->conn, rx);
	if (rx->hdr.bulk_len > 0)
		return -LE_BAD_FRAME;
	switch (rx->hdr.type) {
	case FRAME_CALLBACK:
		return callback_arrived(cc, rx);
	case FRAME_ACCEPTED:
		conn_accepted(&cc->conn, rx->hdr.id);
		return 0;
	case FRAME_RELEASED:
		conn_released(&cc->conn, rx->hdr.id);
		return 0;
	case FRAME_HELLO: /* doubled by the network */
		return 0;
	case FRAME_GOODBYE:
		/* Replies may still arrive; new calls wait for the next connection. */
		cc->state = CONN_LEFT;
		return 0;
	default:
		return -LE_BAD_FRAME;
	}
}

static void up(struct client_conn *cc)
{
	cc->state = CONN_UP;
	waitq_wake_all(&cc->client->ready);
}

static void setup_main(void *arg)
{
	struct client_conn *cc = arg;
	struct rpc_client *c = cc->client;
	int rc = c->closing ? -LE_SHUTDOWN : c->opts.connected(c->opts.arg, c);

	cc->was_up = rc >= 0;
	if (rc < 0) {
		c->last_error = rc;
		conn_kill(&cc->conn, rc);
	} else if (!cc->conn.dead && cc->state == CONN_SETUP) {
		up(cc);
	}
	cc->setting_up = false;
	waitq_wake_all(&cc->setup_done);
	waitq_wake_all(&cc->path->news);
}

static void wait_setup(struct client_conn *cc)
{
	while (cc->setting_up) {
		int rc = waitq_wait(&cc->setup_done, NO_DEADLINE);
		(void)rc; /* interrupted only when the client closes: the hook's calls then fail */
	}
}

static void ended(struct client_conn *cc)
{
	struct rpc_client *c = cc->client;
	uint32_t in_flight = c->stats.in_flight;

	c->stats.disconnects++;
	client_add_stats(&c->stats, &cc->conn);
	c->stats.in_flight = in_flight;
	conn_total(&cc->conn, true, &c->ended);
	log_debug("rpc: lost %s: %s", cc->addr, status_name(cc->conn.why));
	if (!cc->was_up || cc->moved || c->opts.disconnected == NULL)
		return;
	c->opts.disconnected(c->opts.arg, c, cc->conn.why);
	/* Other rails are up: run the connected hook again, to restore what the server dropped with
	 * this connection. */
	if (c->opts.rails_max > 1 && c->opts.connected != NULL && !c->closing &&
	    client_connected(c))
		(void)!c->opts.connected(c->opts.arg, c);
}

static void reader_main(void *arg)
{
	struct client_conn *cc = arg;
	struct rpc_client *c = cc->client;
	struct link_rx rx;
	int rc = 0;

	while (rc == 0 && !cc->conn.dead) {
		rc = cc->conn.k->ops->recv(cc->conn.k, &rx);
		if (rc == 0)
			rc = dispatch(cc, &rx);
	}
	conn_kill(&cc->conn, rc < 0 ? rc : -LE_DISCONNECTED);
	wait_setup(cc);
	ended(cc);
	list_remove(&cc->link);
	c->path_ops->lost(cc->path, cc);
	conn_unref(&cc->conn);
	client_leave(c);
}

int client_conn_start(struct client_conn *cc)
{
	struct rpc_client *c = cc->client;

	cc->state = CONN_SETUP;
	TRY(fiber_spawn("rpc-client", reader_main, cc));
	conn_ref(&cc->conn);
	c->n_users++;
	list_push(&c->conns, &cc->link);
	cc->since_us = loop_now_us();
	c->stats.connects++;
	if (c->opts.connected == NULL) {
		cc->was_up = true;
		up(cc);
		return 0;
	}
	cc->setting_up = true;
	int rc = fiber_spawn("rpc-setup", setup_main, cc);
	if (rc < 0) {
		cc->setting_up = false;
		conn_kill(&cc->conn, rc);
	}
	return 0;
}

void client_conn_retire(struct client_conn *cc)
{
	struct conn *conn = &cc->conn;

	conn_ref(conn);
	cc->state = CONN_LEFT;
	(void)!conn_send_plain(conn, FRAME_GOODBYE, 0, loop_deadline_ms(GOODBYE_MS));
	conn_kill(conn, -LE_SHUTDOWN);
	conn_unref(conn);
}

/* ---- the handshake ---- */

static int shake_hands(struct client_conn *cc, uint64_t timeout_ms)
{
	struct rpc_client *c = cc->client;
	struct auth_self self = { .role = c->opts.role, .name = c->opts.name, .cluster = c->cluster,
				  .key = &c->opts.key, .loop = c->opts.loop,
				  .credits = c->opts.in_flight_max, .bulk_max = FRAME_BULK_MAX };

	conn_watch(&cc->conn, timeout_ms);
	int rc = auth_client(cc->conn.k, &self, &cc->peer);
	conn_watch_end(&cc->conn);
	if (cc->conn.dead)
		return cc->conn.why;
	TRY(rc);
	if (uuid_is_zero(&c->cluster))
		c->cluster = cc->peer.cluster;
	c->path_ops->announced(c, cc->peer.addrs, cc->addr);
	uint32_t n = cc->peer.credits < c->opts.in_flight_max ? cc->peer.credits
							      : c->opts.in_flight_max;
	return conn_set_window(&cc->conn, n);
}

int client_conn_open(struct path *path, const struct candidate *at, uint64_t timeout_ms,
		     struct client_conn **ret_cc)
{
	struct rpc_client *c = path->c;
	struct transport *t = c->opts.transport;
	struct client_conn *cc = calloc(1, sizeof(*cc));
	struct link *k;

	if (cc == NULL)
		return -LE_NOMEM;
	/* The candidate's entry may be replaced during a yield. */
	cc->rank = at->rank;
	memcpy(cc->addr, at->addr, sizeof(cc->addr));
	int rc = t->ops->connect(t, cc->addr, loop_deadline_ms(timeout_ms), &k);
	if (rc < 0) {
		free(cc);
		return rc;
	}
	conn_init(&cc->conn, k, c->bodies, conn_free);
	cc->client = c;
	cc->path = path;
	waitq_init(&cc->setup_done);
	rc = c->closing ? -LE_SHUTDOWN : 0;
	if (rc == 0) {
		path->next = cc; /* so that rpc_client_destroy can break it */
		rc = shake_hands(cc, timeout_ms < c->opts.connect_timeout_ms ? 2 * timeout_ms
								     : HANDSHAKE_MS);
		path->next = NULL;
	}
	if (rc < 0)
		conn_unref(&cc->conn);
	else
		*ret_cc = cc;
	return rc;
}
