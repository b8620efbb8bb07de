/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's side: one fiber per listening address accepts, one per connection does the handshake
 * and reads. Requests are in rpc_request.c.
 *
 * A connection: accepted (a stranger, with a deadline; beyond STRANGERS_MAX the oldest stranger is
 * dropped) → authenticated → the opened hook → requests → the end, by either side → the closed hook
 * → freed after its last request and its last reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/rpc/addr.h"
#include "common/rpc/auth.h"
#include "common/rpc/rpc_request.h"
#include "common/rt/env.h"
#include "common/rt/net.h"

#define STRANGERS_MAX 1024u
#define CALLBACK_WINDOW 64u
#define ACCEPT_RETRY_US 50000u
#define LOG_AGAIN_US 60000000u
#define ADDRS_SIZE (LISTENERS_MAX * (ADDR_TEXT_SIZE + 1))

/* ---- peers ---- */

static struct server_conn *conn_of(struct rpc_peer *p)
{
	struct server_conn *sc = container_of(p, struct server_conn, peer);

	ASSERT(sc->magic == SERVER_CONN_MAGIC);
	return sc;
}

void rpc_peer_ref(struct rpc_peer *p)
{
	conn_ref(&conn_of(p)->conn);
}

void rpc_peer_unref(struct rpc_peer *p)
{
	conn_unref(&conn_of(p)->conn);
}

void rpc_peer_kill(struct rpc_peer *p)
{
	conn_kill(&conn_of(p)->conn, -LE_DISCONNECTED);
}

int rpc_callback(struct rpc_peer *p, struct rpc_call *call)
{
	struct conn *c = &conn_of(p)->conn;
	bool sent;

	call->body = NULL;
	call->ret_bulk_len = 0;
	if (p->gone || c->dead)
		return -LE_DISCONNECTED;
	if (call->n_bulk_out > 0 || call->n_bulk_in > 0)
		return -LE_INVAL;
	conn_ref(c);
	int rc = conn_call(c, call, FRAME_CALLBACK, conn_deadline(call), &sent);
	conn_unref(c);
	return rc;
}

void rpc_server_each_peer(struct rpc_server *s, void (*fn)(void *arg, struct rpc_peer *p),
			  void *arg)
{
	list_for_each_safe(pos, &s->conns) {
		struct server_conn *sc = list_entry(pos, struct server_conn, link);
		NO_YIELD();

		if (sc->peer.version != 0 && !sc->peer.gone)
			fn(arg, &sc->peer);
	}
}

/* ---- one connection ---- */

static void conn_free(struct conn *conn)
{
	struct server_conn *sc = container_of(conn, struct server_conn, conn);

	hmap_fini(&sc->by_id);
	sc->magic = 0;
	free(sc);
}

/* True once a minute for one combination of host, status and kind of end. */
static bool may_log(struct rpc_server *s, const char *addr, bool welcomed, int status)
{
	const char *port = strrchr(addr, ':');
	uint64_t hash =
		hash_u64_2(checksum64(addr, port != NULL ? (size_t)(port - addr) : strlen(addr)),
			   (uint64_t)(int64_t)status << 1 | welcomed);
	uint64_t now = loop_now_us();
	struct log_peer *l = &s->logged[hash % LOG_PEERS];

	if (l->hash == hash && now - l->at_us < LOG_AGAIN_US)
		return false;
	*l = (struct log_peer){ hash, now };
	return true;
}

static void no_stranger(struct server_conn *sc)
{
	if (list_empty(&sc->stranger_link))
		return;
	ASSERT(sc->s->n_strangers > 0);
	list_remove(&sc->stranger_link);
	sc->s->n_strangers--;
}

/* From the first byte to the end of the opened hook. */
static int welcome(struct server_conn *sc)
{
	struct rpc_server *s = sc->s;
	struct conn *conn = &sc->conn;
	struct auth_self self = { .role = s->opts.role,
				  .name = s->opts.name,
				  .cluster = s->opts.cluster,
				  .key = &s->opts.key,
				  .credits = s->opts.in_flight_max,
				  .bulk_max = s->opts.bulk_max };
	struct auth_peer peer = { 0 };
	struct auth_state st;
	char told[ADDR_LIST_SIZE];

	rpc_server_announced(s, told, sizeof(told));
	self.addrs = told;
	conn_watch(conn, HANDSHAKE_MS);
	int rc = auth_server(conn->k, &self, &st, &peer);
	if (rc < 0 && conn->dead)
		rc = conn->why;
	if (rc < 0 && may_log(s, sc->peer.addr, false, rc))
		log_warn("refused %s '%s': %s (%s)", sc->peer.addr, peer.name, status_text(rc),
			 status_name(rc));
	TRY(rc);
	no_stranger(sc);
	sc->peer.role = peer.role;
	sc->peer.version = peer.version;
	sc->credits = peer.credits;
	memcpy(sc->peer.name, peer.name, sizeof(sc->peer.name));
	TRY(conn_set_window(conn, CALLBACK_WINDOW));
	/* The hook has no time limit. */
	conn_watch_end(conn);
	rc = s->closing               ? -LE_SHUTDOWN
	     : s->opts.opened != NULL ? s->opts.opened(s->opts.arg, &sc->peer)
				      : 0;
	int sent = auth_server_finish(conn->k, &st, rc < 0 ? rc : 0);
	if (rc == 0 && sent < 0 && s->opts.closed != NULL) {
		sc->peer.gone = true;
		s->opts.closed(s->opts.arg, &sc->peer);
	}
	return rc < 0 ? rc : sent;
}

static int dispatch(struct server_conn *sc, const struct link_rx *rx)
{
	struct conn *conn = &sc->conn;

	conn->last_rx_us = loop_now_us();
	conn->bytes_in += FRAME_HEADER_SIZE + rx->hdr.body_len + rx->hdr.bulk_len;
	if (rx->hdr.type == FRAME_REQUEST)
		return request_arrived(sc, rx);
	if (rx->hdr.bulk_len > 0)
		return -LE_BAD_FRAME;
	switch (rx->hdr.type) {
	case FRAME_CALLBACK_REPLY:
		return conn_reply_arrived(conn, rx);
	case FRAME_CANCEL:
		request_cancel(sc, rx->hdr.id);
		return 0;
	case FRAME_GOODBYE: /* the end of the stream follows */
	case FRAME_HELLO:   /* doubled by the network */
		return 0;
	default:
		return -LE_BAD_FRAME;
	}
}

static void serve(struct server_conn *sc)
{
	struct conn *conn = &sc->conn;
	struct link_rx rx;
	int rc = 0;

	while (rc == 0 && !conn->dead) {
		rc = conn->k->ops->recv(conn->k, &rx);
		if (rc == 0)
			rc = dispatch(sc, &rx);
	}
	conn_kill(conn, rc < 0 ? rc : -LE_DISCONNECTED);
	/* The reason recorded first is the real one. */
	rc = conn->why;
	bool usual = rc == -LE_DISCONNECTED || rc == -LE_INTR || rc == -LE_SHUTDOWN;
	if (!usual && may_log(sc->s, sc->peer.addr, true, rc))
		log_warn("cut off %s (%s): %s (%s)", sc->peer.name, sc->peer.addr, status_text(rc),
			 status_name(rc));
	sc->peer.gone = true;
	request_cancel_all(sc);
	if (sc->s->opts.closed != NULL)
		sc->s->opts.closed(sc->s->opts.arg, &sc->peer);
}

static void conn_main(void *arg)
{
	struct server_conn *sc = arg;
	struct rpc_server *s = sc->s;

	sc->reader = fiber_self();
	if (welcome(sc) == 0)
		serve(sc);
	sc->peer.gone = true;
	conn_total(&sc->conn, true, &s->ended);
	sc->reader = NULL;
	no_stranger(sc);
	conn_kill(&sc->conn, -LE_DISCONNECTED);
	if (sc->n_running == 0)
		list_remove(&sc->link);
	if (--s->n_conns == 0)
		waitq_wake_all(&s->idle);
	conn_unref(&sc->conn);
}

/* ---- accepting ---- */

static struct server_conn *conn_create(struct rpc_server *s, struct link *k)
{
	struct server_conn *sc = calloc(1, sizeof(*sc));

	if (sc == NULL) {
		k->ops->close(k);
		return NULL;
	}
	sc->magic = SERVER_CONN_MAGIC;
	sc->s = s;
	sc->since_us = loop_now_us();
	hmap_init(&sc->by_id, 16);
	list_init(&sc->running);
	list_init(&sc->link);
	list_init(&sc->stranger_link);
	conn_init(&sc->conn, k, s->bodies, conn_free);
	k->ops->peer_name(k, sc->peer.addr, sizeof(sc->peer.addr));
	/* Random, so that it is unique over all loops of the process without a shared counter. */
	sc->peer.id = env_random_u64(loop_env(loop_self()));
	return sc;
}

static void accepted(struct rpc_server *s, struct link *k)
{
	if (s->n_conns >= s->opts.connections_max) {
		k->ops->close(k);
		return;
	}
	/* The one that has waited longest is the least likely to be a real client. */
	if (s->n_strangers >= STRANGERS_MAX) {
		struct server_conn *oldest =
			list_entry(s->strangers.next, struct server_conn, stranger_link);
		conn_kill(&oldest->conn, -LE_OVERLOAD);
		no_stranger(oldest);
	}
	struct server_conn *sc = conn_create(s, k);
	if (sc == NULL)
		return;
	if (fiber_spawn("rpc-conn", conn_main, sc) < 0) {
		conn_unref(&sc->conn);
		return;
	}
	list_push(&s->conns, &sc->link);
	list_push(&s->strangers, &sc->stranger_link);
	s->n_conns++;
	s->n_strangers++;
}

struct acceptor {
	struct rpc_server *s;
	uint32_t i;
};

static void accept_main(void *arg)
{
	struct acceptor *a = arg;
	struct rpc_server *s = a->s;
	uint32_t i = a->i;
	struct listener *ls = s->listeners[i];
	const struct transport_ops *ops = s->opts.transport->ops;

	free(a);
	s->acceptors[i] = fiber_self();
	while (!s->closing) {
		struct link *k;
		int rc = ops->accept(ls, &k);

		if (rc == 0 && s->closing)
			k->ops->close(k);
		else if (rc == 0)
			accepted(s, k);
		else if (!s->closing)
			/* Most likely out of descriptors, until other connections close. */
			(void)!fiber_sleep_us(ACCEPT_RETRY_US);
	}
	s->acceptors[i] = NULL;
	if (--s->n_acceptors == 0)
		waitq_wake_all(&s->idle);
}

static int listen_at(struct rpc_server *s, const char *addr)
{
	const struct transport_ops *ops = s->opts.transport->ops;
	char real[ADDR_TEXT_SIZE];
	uint32_t i = s->n_listeners;
	struct acceptor *a;

	if (i == LISTENERS_MAX)
		return -LE_CONFIG;
	TRY(ops->listen(s->opts.transport, loop_self(), addr, &s->listeners[i], real));
	s->n_listeners++;
	size_t used = strlen(s->addrs);
	snprintf(s->addrs + used, ADDRS_SIZE - used, "%s%s", used > 0 ? " " : "", real);
	a = malloc(sizeof(*a));
	if (a == NULL)
		return -LE_NOMEM;
	*a = (struct acceptor){ s, i };
	int rc = fiber_spawn_on(loop_self(), "rpc-accept", accept_main, a);
	if (rc < 0)
		free(a);
	else
		s->n_acceptors++;
	return rc;
}

/* Listens on one configured address, which may stand for several. One working address is enough:
 * verbs may be missing where tcp is not. */
static int listen_on(struct rpc_server *s, const char *addr)
{
	struct transport *t = s->opts.transport;
	char list[2 * ADDR_TEXT_SIZE + 2] = "", *save = NULL;
	uint32_t before = s->n_listeners;
	int failed = -LE_CONFIG;

	if (t->ops->expand == NULL)
		return listen_at(s, addr);
	int rc = t->ops->expand(t, addr, ADDR_LISTEN, list, sizeof(list));
	if (rc < 0 || list[0] == '\0')
		log_error("listen at %s: not an address for this transport", addr);
	for (char *a = strtok_r(list, " ", &save); a != NULL && rc == 0;
	     a = strtok_r(NULL, " ", &save)) {
		int one = listen_at(s, a);
		if (one < 0)
			log_warn("cannot listen at %s: %s", a, status_text(one));
		failed = one < 0 ? one : failed;
	}
	return rc < 0 ? rc : s->n_listeners > before ? 0 : failed;
}

/* ---- the interface ---- */

static void set_defaults(struct rpc_server_options *o)
{
	if (o->in_flight_max == 0)
		o->in_flight_max = 256;
	if (o->in_flight_max > CONN_WINDOW_MAX)
		o->in_flight_max = CONN_WINDOW_MAX;
	if (o->requests_max == 0)
		o->requests_max = 8192;
	if (o->connections_max == 0)
		o->connections_max = 16384;
	if (o->data_stall_ms == 0)
		o->data_stall_ms = 4000;
	if (o->bulk_max > FRAME_BULK_MAX)
		o->bulk_max = FRAME_BULK_MAX;
}

static int server_init(struct rpc_server *s)
{
	const char *name = s->opts.name != NULL ? s->opts.name : "";
	size_t len = strlen(s->opts.addrs) + 1, name_len = strlen(name) + 1;

	s->magic = SERVER_MAGIC;
	set_defaults(&s->opts);
	list_init(&s->conns);
	list_init(&s->strangers);
	list_init(&s->free_requests);
	waitq_init(&s->idle);
	fmutex_init(&s->bulk_lock);
	for (uint32_t i = 0; i < s->opts.n_handlers; i++) {
		const struct rpc_handler *h = &s->opts.handlers[i];
		ASSERT(h->op < OPS_MAX && msg_find(h->op) != NULL && s->by_op[h->op] == NULL);
		s->by_op[h->op] = h;
	}
	s->advertise = s->opts.advertise != NULL ? strdup(s->opts.advertise) : NULL;
	if (s->opts.advertise != NULL && s->advertise == NULL)
		return -LE_NOMEM;
	s->opts.advertise = s->advertise;
	s->text = malloc(len + name_len);
	s->addrs = calloc(1, ADDRS_SIZE);
	if (s->text == NULL || s->addrs == NULL)
		return -LE_NOMEM;
	memcpy(s->text, s->opts.addrs, len);
	s->opts.addrs = NULL;
	s->opts.name = memcpy(s->text + len, name, name_len);
	return body_pool_create(&s->bodies);
}

int rpc_server_create(const struct rpc_server_options *opts, struct rpc_server **ret_server)
{
	struct rpc_server *s = calloc(1, sizeof(*s));
	char *save = NULL;

	if (s == NULL)
		return -LE_NOMEM;
	s->opts = *opts;
	int rc = server_init(s);
	if (rc == 0 && opts->bulk_pool != NULL)
		rc = opts->transport->ops->add_pool(opts->transport, opts->bulk_pool,
						    POOL_SINK);
	if (rc == 0)
		for (char *a = strtok_r(s->text, " ,\t", &save); a != NULL && rc == 0;
		     a = strtok_r(NULL, " ,\t", &save))
			rc = listen_on(s, a);
	if (rc == 0 && s->n_listeners == 0)
		rc = -LE_CONFIG;
	if (rc < 0) {
		rpc_server_destroy(s, 0);
		return rc;
	}
	*ret_server = s;
	return 0;
}

struct transport *rpc_server_transport(const struct rpc_server *s)
{
	return s->opts.transport;
}

const char *rpc_server_addrs(const struct rpc_server *s)
{
	return s->addrs;
}

void rpc_server_announced(const struct rpc_server *s, char *buf, size_t size)
{
	struct transport *t = s->opts.transport;
	char copy[ADDRS_SIZE], list[ADDR_LIST_SIZE], *save = NULL, *save2 = NULL;
	bool given = s->opts.advertise != NULL && s->opts.advertise[0] != '\0';

	buf[0] = '\0';
	snprintf(copy, sizeof(copy), "%s", given ? s->opts.advertise : s->addrs);
	for (char *a = strtok_r(copy, " ,\t", &save); a != NULL;
	     a = strtok_r(NULL, " ,\t", &save)) {
		snprintf(list, sizeof(list), "%s", a);
		if (!given && t->ops->expand != NULL) {
			list[0] = '\0';
			(void)!t->ops->expand(t, a, ADDR_TELL, list, sizeof(list));
		}
		for (char *b = strtok_r(list, " ", &save2); b != NULL;
		     b = strtok_r(NULL, " ", &save2))
			(void)addr_list_add(buf, size, b);
	}
}

void rpc_server_net(struct rpc_server *s, void (*fn)(void *arg, const struct rpc_net *n), void *arg)
{
	list_for_each (pos, &s->conns) {
		struct server_conn *sc = list_entry(pos, struct server_conn, link);
		struct rpc_net n = { .state = "up", .name = sc->peer.name, .addr = sc->peer.addr,
				     .role = sc->peer.role,
				     .age_us = loop_now_us() - sc->since_us };

		if (sc->peer.version == 0 || sc->peer.gone)
			continue;
		conn_net(&sc->conn, &n);
		n.calls = n.link.frames_in;
		n.replies = n.link.frames_out;
		n.in_flight = sc->n_running;
		fn(arg, &n);
	}
}

void rpc_server_totals(struct rpc_server *s, struct rpc_net_totals *totals)
{
	net_totals_add(totals, &s->ended);
	transport_resources(s->opts.transport, &totals->held);
	list_for_each (pos, &s->conns) {
		struct server_conn *sc = list_entry(pos, struct server_conn, link);
		if (sc->reader != NULL)
			conn_total(&sc->conn, false, totals);
	}
}

static void stop_accepting(struct rpc_server *s)
{
	for (uint32_t i = 0; i < s->n_listeners; i++)
		if (s->acceptors[i] != NULL)
			fiber_interrupt(s->acceptors[i]);
	while (s->n_acceptors > 0)
		(void)!waitq_wait(&s->idle, NO_DEADLINE);
	for (uint32_t i = 0; i < s->n_listeners; i++)
		s->opts.transport->ops->listener_close(s->listeners[i]);
}

/* Sending yields, and the list may change meanwhile: start again after each. */
static void say_goodbye(struct rpc_server *s)
{
	bool more = true;

	while (more) {
		more = false;
		list_for_each(pos, &s->conns) {
			struct server_conn *sc = list_entry(pos, struct server_conn, link);
			if (sc->said_goodbye || sc->conn.dead || sc->peer.version == 0)
				continue;
			sc->said_goodbye = true;
			conn_ref(&sc->conn);
			(void)!conn_send_plain(&sc->conn, FRAME_GOODBYE, 0,
					       loop_deadline_ms(GOODBYE_MS));
			conn_unref(&sc->conn);
			more = true;
			break;
		}
	}
}

static void close_all(struct rpc_server *s)
{
	list_for_each(pos, &s->conns) {
		struct server_conn *sc = list_entry(pos, struct server_conn, link);
		conn_kill(&sc->conn, -LE_SHUTDOWN);
		request_cancel_all(sc);
		request_interrupt_all(sc);
		/* The reader may be waiting for a slot. */
		if (sc->reader != NULL)
			fiber_interrupt(sc->reader);
	}
	while (s->n_conns > 0 || s->n_requests > 0)
		(void)!waitq_wait(&s->idle, NO_DEADLINE);
}

void rpc_server_destroy(struct rpc_server *s, uint32_t drain_ms)
{
	if (s == NULL)
		return;
	ASSERT(s->magic == SERVER_MAGIC);
	s->closing = true;
	if (s->n_listeners > 0) {
		uint64_t until = loop_deadline_ms(drain_ms);
		stop_accepting(s);
		say_goodbye(s);
		while (s->n_requests > 0 && loop_now_us() < until)
			(void)!waitq_wait(&s->idle, until);
		close_all(s);
	}
	request_pool_free(s);
	body_pool_unref(s->bodies);
	free(s->text);
	free(s->advertise);
	free(s->addrs);
	s->magic = 0;
	free(s);
}
