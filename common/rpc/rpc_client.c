/*
 * The client's side. One fiber, the manager, connects, shakes hands, then reads until the
 * connection ends, backs off and begins again. Calls run in the fibers of their callers over the
 * connection of the moment (conn.c); without one they wait for it.
 *
 *   connect → handshake → setup (the connected hook, in a fiber of its own) → up → lost → back-off
 * → …
 *
 * A failure that time does not heal (wrong key, version or cluster at every address) is given to
 * the callers at once, while the manager goes on trying.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/auth.h"
#include "common/rpc/conn.h"
#include "common/rt/env.h"

#define CLIENT_MAGIC 0x52504343u
#define ADDRS_MAX 16u
#define HANDSHAKE_MS 5000u
#define BACKOFF_FIRST_US 1000u
/* A connection that lived so long lets the back-off begin anew. */
#define PROVEN_US 1000000u
#define CALLBACKS_MAX 256u
#define LOG_AGAIN_US 60000000u
#define GOODBYE_MS 100u

enum client_state { CLIENT_CONNECTING, CLIENT_SETUP, CLIENT_UP };

struct rpc_client {
	uint32_t magic;
	struct rpc_client_options opts;
	char *text;              /* of addrs and name */
	const char *addrs[ADDRS_MAX];
	uint32_t n_addrs, addr;  /* addr: the last one that worked */
	struct fiber *manager;
	enum client_state state;
	struct client_conn *conn;
	struct waitq ready;      /* a connection, or a reason why there is none */
	struct waitq idle;       /* for destroy */
	uint32_t n_users;        /* fibers inside: calls, callbacks, the manager */
	bool closing;
	int hard_error;          /* what every address answered last, if time does not heal it */
	int last_error;          /* of the last attempt; 0 since a connection */
	int logged_error;
	uint64_t logged_us;
	struct uuid cluster;
	struct body_pool *bodies;
	struct rpc_client_stats stats;
};

struct client_conn {
	struct conn conn;
	struct rpc_client *client;
	struct waitq setup_done;
	bool setting_up, was_up;
	uint32_t n_callbacks;
};

/* A callback of the server while it runs. */
struct callback {
	struct client_conn *cc;
	const struct msg_desc *desc;
	struct frame_hdr hdr;
	struct body *body;
	uint64_t in[MSG_STRUCT_MAX / 8], out[MSG_STRUCT_MAX / 8];
};

static bool is_hard(int status)
{
	return status == -LE_AUTH || status == -LE_VERSION || status == -LE_WRONG_CLUSTER;
}

static void leave(struct rpc_client *c)
{
	if (--c->n_users == 0)
		waitq_wake_all(&c->idle);
}

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
	if (status == 0 && !c->closing)
		status = c->opts.callback(c->opts.arg, c, cb->hdr.op, cb->in, cb->out);
	callback_reply(cb, status);
	body_put(cb->body);
	free(cb);
	cc->n_callbacks--;
	conn_unref(&cc->conn);
	leave(c);
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

/* ---- one connection ---- */

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
	case FRAME_HELLO: /* doubled by the network */
		return 0;
	case FRAME_GOODBYE:
		/* Replies may still come; new calls wait for the next connection. */
		if (cc->client->conn == cc)
			cc->client->state = CLIENT_CONNECTING;
		return 0;
	default:
		return -LE_BAD_FRAME;
	}
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
	} else if (!cc->conn.dead && c->state == CLIENT_SETUP) {
		c->state = CLIENT_UP;
		waitq_wake_all(&c->ready);
	}
	cc->setting_up = false;
	waitq_wake_all(&cc->setup_done);
}

static int start_setup(struct client_conn *cc)
{
	struct rpc_client *c = cc->client;

	if (c->opts.connected == NULL) {
		c->state = CLIENT_UP;
		cc->was_up = true;
		waitq_wake_all(&c->ready);
		return 0;
	}
	c->state = CLIENT_SETUP;
	TRY(fiber_spawn("rpc-setup", setup_main, cc));
	cc->setting_up = true;
	return 0;
}

static void wait_setup(struct client_conn *cc)
{
	while (cc->setting_up) {
		int rc = waitq_wait(&cc->setup_done, NO_DEADLINE);
		(void)rc; /* an interrupt means that the client is closing: the hook's calls fail by
			     themselves */
	}
}

static void add_stats(struct rpc_client_stats *s, const struct conn *c)
{
	s->calls += c->n_calls;
	s->replies += c->n_replies;
	s->timeouts += c->n_timeouts;
	s->bytes_out += c->bytes_out;
	s->bytes_in += c->bytes_in;
	s->in_flight += c->in_flight;
}

/* From the handshake to the end of the connection. */
static void run_connection(struct rpc_client *c, struct client_conn *cc)
{
	struct link_rx rx;

	c->conn = cc;
	c->last_error = c->hard_error = 0;
	c->stats.connects++;
	cc->conn.k->ops->peer_name(cc->conn.k, c->stats.peer, sizeof(c->stats.peer));
	log_debug("rpc: connected to %s", c->stats.peer);
	int rc = start_setup(cc);
	while (rc == 0 && !cc->conn.dead) {
		rc = cc->conn.k->ops->recv(cc->conn.k, &rx);
		if (rc == 0)
			rc = dispatch(cc, &rx);
	}
	conn_kill(&cc->conn, rc < 0 ? rc : -LE_DISCONNECTED);
	c->state = CLIENT_CONNECTING;
	wait_setup(cc);
	c->conn = NULL;
	c->stats.disconnects++;
	uint32_t in_flight = c->stats.in_flight;
	add_stats(&c->stats, &cc->conn);
	c->stats.in_flight = in_flight;
	log_debug("rpc: lost %s: %s", c->stats.peer, status_name(cc->conn.why));
	snprintf(c->stats.peer, sizeof(c->stats.peer), "not connected: %s",
		 status_text(cc->conn.why));
	if (cc->was_up && c->opts.disconnected != NULL)
		c->opts.disconnected(c->opts.arg, c, cc->conn.why);
}

/* ---- connecting ---- */

static int shake_hands(struct rpc_client *c, struct client_conn *cc)
{
	struct auth_self self = { .role = c->opts.role, .name = c->opts.name, .cluster = c->cluster,
				  .key = &c->opts.key, .loop = c->opts.loop,
				  .credits = c->opts.in_flight_max, .bulk_max = FRAME_BULK_MAX };
	struct auth_peer peer;

	conn_watch(&cc->conn, HANDSHAKE_MS);
	int rc = auth_client(cc->conn.k, &self, &peer);
	conn_watch_end(&cc->conn);
	if (cc->conn.dead)
		return cc->conn.why;
	TRY(rc);
	if (uuid_is_zero(&c->cluster))
		c->cluster = peer.cluster;
	uint32_t n = peer.credits < c->opts.in_flight_max ? peer.credits : c->opts.in_flight_max;
	return conn_set_window(&cc->conn, n);
}

static int connect_to(struct rpc_client *c, const char *addr, struct client_conn **ret_cc)
{
	struct transport *t = c->opts.transport;
	struct client_conn *cc;
	struct link *k;

	TRY(t->ops->connect(t, addr, loop_deadline_ms(c->opts.connect_timeout_ms), &k));
	cc = calloc(1, sizeof(*cc));
	if (cc == NULL) {
		k->ops->close(k);
		return -LE_NOMEM;
	}
	conn_init(&cc->conn, k, c->bodies, conn_free);
	cc->client = c;
	waitq_init(&cc->setup_done);
	int rc = c->closing ? -LE_SHUTDOWN : 0;
	if (rc == 0) {
		c->conn = cc; /* for destroy, to break it */
		rc = shake_hands(c, cc);
		c->conn = NULL;
	}
	if (rc < 0)
		conn_unref(&cc->conn);
	else
		*ret_cc = cc;
	return rc;
}

static void log_failure(struct rpc_client *c, const char *addr, int rc)
{
	uint64_t now = loop_now_us();

	if (!is_hard(rc) || (rc == c->logged_error && now - c->logged_us < LOG_AGAIN_US))
		return;
	c->logged_error = rc;
	c->logged_us = now;
	log_warn("cannot use server %s: %s (%s)", addr, status_text(rc), status_name(rc));
}

/* Every address in turn, beginning with the one that worked last. */
static int connect_any(struct rpc_client *c, struct client_conn **ret_cc)
{
	int rc = -LE_CONNREFUSED, hard = 0;
	bool all_hard = true;

	for (uint32_t i = 0; i < c->n_addrs && !c->closing; i++) {
		uint32_t a = (c->addr + i) % c->n_addrs;
		rc = connect_to(c, c->addrs[a], ret_cc);
		if (rc == 0) {
			c->addr = a;
			return 0;
		}
		log_failure(c, c->addrs[a], rc);
		all_hard = all_hard && is_hard(rc);
		if (is_hard(rc))
			hard = rc;
	}
	/* The clearest of what was heard. */
	c->last_error = hard < 0 ? hard : rc;
	c->hard_error = all_hard ? hard : 0;
	snprintf(c->stats.peer, sizeof(c->stats.peer), "not connected: %s",
		 status_text(c->last_error));
	if (c->hard_error < 0)
		waitq_wake_all(&c->ready);
	return c->last_error;
}

/* Half of it fixed, half random, so that a thousand clients do not come at once. */
static void back_off(struct rpc_client *c, uint64_t *backoff_us)
{
	uint64_t max = c->opts.backoff_max_ms * 1000ull;
	uint64_t us =
		*backoff_us / 2 + env_random_u64(loop_env(loop_self())) % (*backoff_us / 2 + 1);

	*backoff_us = *backoff_us * 2 < max ? *backoff_us * 2 : max;
	if (!c->closing)
		(void)fiber_sleep_us(us);
}

static void manager_main(void *arg)
{
	struct rpc_client *c = arg;
	uint64_t backoff_us = BACKOFF_FIRST_US;

	c->manager = fiber_self();
	while (!c->closing) {
		struct client_conn *cc = NULL;

		if (connect_any(c, &cc) == 0) {
			uint64_t since = loop_now_us();
			run_connection(c, cc);
			conn_unref(&cc->conn);
			if (loop_now_us() - since > PROVEN_US)
				backoff_us = BACKOFF_FIRST_US;
		}
		back_off(c, &backoff_us);
	}
	c->manager = NULL;
	leave(c);
}

/* ---- the interface ---- */

/* Copies the strings; the addresses are cut at blanks and commas. */
static int copy_text(struct rpc_client *c, const struct rpc_client_options *opts)
{
	const char *name = opts->name != NULL ? opts->name : "";
	size_t addrs_len = strlen(opts->addrs), name_len = strlen(name);
	char *save = NULL;

	c->text = malloc(addrs_len + name_len + 2);
	if (c->text == NULL)
		return -LE_NOMEM;
	memcpy(c->text, opts->addrs, addrs_len + 1);
	c->opts.name = memcpy(c->text + addrs_len + 1, name, name_len + 1);
	c->opts.addrs = NULL;
	for (char *a = strtok_r(c->text, " ,\t", &save); a != NULL && c->n_addrs < ADDRS_MAX;
	     a = strtok_r(NULL, " ,\t", &save))
		c->addrs[c->n_addrs++] = a;
	return c->n_addrs > 0 ? 0 : -LE_INVAL;
}

static void client_free(struct rpc_client *c)
{
	body_pool_unref(c->bodies);
	free(c->text);
	c->magic = 0;
	free(c);
}

int rpc_client_create(const struct rpc_client_options *opts, struct rpc_client **ret_client)
{
	struct rpc_client *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -LE_NOMEM;
	c->magic = CLIENT_MAGIC;
	c->opts = *opts;
	if (c->opts.in_flight_max == 0)
		c->opts.in_flight_max = 256;
	if (c->opts.connect_timeout_ms == 0)
		c->opts.connect_timeout_ms = 2000;
	if (c->opts.backoff_max_ms == 0)
		c->opts.backoff_max_ms = 500;
	c->cluster = opts->cluster;
	waitq_init(&c->ready);
	waitq_init(&c->idle);
	snprintf(c->stats.peer, sizeof(c->stats.peer), "not connected yet");
	int rc = copy_text(c, opts);
	if (rc == 0)
		rc = body_pool_create(&c->bodies);
	if (rc == 0)
		rc = fiber_spawn_on(loop_self(), "rpc-client", manager_main, c);
	if (rc < 0) {
		client_free(c);
		return rc;
	}
	c->n_users = 1;
	*ret_client = c;
	return 0;
}

void rpc_client_destroy(struct rpc_client *c)
{
	if (c == NULL)
		return;
	ASSERT(c->magic == CLIENT_MAGIC);
	c->closing = true;
	waitq_wake_all(&c->ready);
	if (c->conn != NULL) {
		struct conn *conn = &c->conn->conn;
		conn_ref(conn);
		if (c->state != CLIENT_CONNECTING)
			(void)!conn_send_plain(conn, FRAME_GOODBYE, 0,
					       loop_deadline_ms(GOODBYE_MS));
		conn_kill(conn, -LE_SHUTDOWN);
		conn_unref(conn);
	}
	if (c->manager != NULL)
		fiber_interrupt(c->manager);
	while (c->n_users > 0) {
		int rc = waitq_wait(&c->idle, NO_DEADLINE);
		(void)rc;
	}
	client_free(c);
}

static int no_connection(const struct rpc_client *c, int rc)
{
	int heard = c->last_error;

	if (rc == -LE_TIMEDOUT && (heard == -LE_CONNREFUSED || is_hard(heard)))
		return heard;
	return rc;
}

/* 0: there is a connection that this call may use. */
static int wait_connection(struct rpc_client *c, const struct rpc_call *call, uint64_t deadline_us)
{
	for (;;) {
		if (c->closing)
			return -LE_SHUTDOWN;
		bool setup = (call->flags & RPC_CALL_SETUP) != 0 && c->state == CLIENT_SETUP;
		if (c->conn != NULL && !c->conn->conn.dead && (c->state == CLIENT_UP || setup))
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
	*ret_sent = false;
	call->body = NULL;
	call->ret_bulk_len = 0;
	call->ret_accepted = false;
	TRY(wait_connection(c, call, deadline_us));
	struct conn *conn = &c->conn->conn;
	conn_ref(conn);
	int rc = conn_call(conn, call, FRAME_REQUEST, deadline_us, ret_sent);
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
		/* What has not been sent may go over the next connection. */
	} while (rc == -LE_DISCONNECTED && !sent && !c->closing &&
		 (call->flags & (RPC_CALL_SETUP | RPC_CALL_NO_WAIT)) == 0);
	if (rc == -LE_DISCONNECTED && c->closing)
		rc = -LE_SHUTDOWN;
	leave(c);
	return rc;
}

bool rpc_client_connected(const struct rpc_client *c)
{
	return c->state == CLIENT_UP && c->conn != NULL && !c->conn->conn.dead;
}

const struct uuid *rpc_client_cluster(const struct rpc_client *c)
{
	return &c->cluster;
}

void rpc_client_stats(const struct rpc_client *c, struct rpc_client_stats *ret_stats)
{
	*ret_stats = c->stats;
	if (c->conn != NULL)
		add_stats(ret_stats, &c->conn->conn);
}
