/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request on the server, from its frame to its reply: checks, slots for its data, a fiber, the
 * handler, the reply. Request objects are reused; a small request and its reply need no allocation.
 *
 * An error of one request is the status of its reply. A violation of the connection's rules (more
 * requests than granted) ends the connection.
 */
#include "common/rpc/rpc_request.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"

#define FREE_REQUESTS_MAX 1024u

/* ---- memory ---- */

static struct request *request_get(struct rpc_server *s)
{
	struct list *n = list_pop(&s->free_requests);

	if (n != NULL) {
		s->n_free_requests--;
		return list_entry(n, struct request, link);
	}
	struct request *q = malloc(sizeof(*q));
	if (q != NULL)
		q->magic = REQUEST_MAGIC;
	return q;
}

static void request_put(struct rpc_server *s, struct request *q)
{
	while (q->chunks != NULL) {
		struct arena_chunk *next = q->chunks->next;
		free(q->chunks);
		q->chunks = next;
	}
	if (s->n_free_requests < FREE_REQUESTS_MAX) {
		list_push_front(&s->free_requests, &q->link);
		s->n_free_requests++;
	} else {
		free(q);
	}
}

void request_pool_free(struct rpc_server *s)
{
	struct list *n;

	while ((n = list_pop(&s->free_requests)) != NULL)
		free(list_entry(n, struct request, link));
}

void *rpc_req_alloc(struct rpc_req *r, size_t size)
{
	struct request *q = container_of(r, struct request, pub);

	ASSERT(q->magic == REQUEST_MAGIC);
	if (size > RPC_ARENA_MAX)
		return NULL;
	uint32_t n = ((uint32_t)size + 15u) & ~15u;
	if (n <= ARENA_INLINE - q->arena_used) {
		void *p = (uint8_t *)q->arena + q->arena_used;
		q->arena_used += n;
		return p;
	}
	if (n > RPC_ARENA_MAX - q->arena_total)
		return NULL;
	struct arena_chunk *c = malloc(sizeof(*c) + n);
	if (c == NULL)
		return NULL;
	c->next = q->chunks;
	q->chunks = c;
	q->arena_total += n;
	return c->data;
}

bool rpc_req_canceled(const struct rpc_req *r)
{
	const struct request *q = container_of(r, struct request, pub);

	return q->canceled || q->sc->peer.gone;
}

static struct request *find(struct server_conn *sc, uint64_t id)
{
	struct hmap_node *n = hmap_find_id(&sc->by_id, id);

	return n != NULL ? container_of(n, struct request, node) : NULL;
}

/* The client has cancelled: confirms with RELEASED that its memory is no longer accessed, once no
 * transfer is running. At most once. */
static void release_memory(struct request *q)
{
	struct server_conn *sc = q->sc;

	if (q->rx.hdr.n_desc == 0 || q->released || q->fetching || q->replying)
		return;
	q->released = true;
	(void)!conn_send_plain(&sc->conn, FRAME_RELEASED, q->rx.hdr.id,
			       loop_deadline_ms(SEND_STALL_MS));
}

void request_cancel(struct server_conn *sc, uint64_t id)
{
	struct request *q = find(sc, id);

	if (q == NULL)
		return;
	q->canceled = true;
	release_memory(q);
}

void request_cancel_all(struct server_conn *sc)
{
	list_for_each(pos, &sc->running)
		list_entry(pos, struct request, link)->canceled = true;
}

void request_interrupt_all(struct server_conn *sc)
{
	list_for_each(pos, &sc->running) {
		struct request *q = list_entry(pos, struct request, link);
		if (q->fiber != NULL)
			fiber_interrupt(q->fiber);
	}
}

/* ---- the reply ---- */

static uint32_t stall_ms(const struct rpc_server *s, const struct link_tx *tx)
{
	uint64_t len = 0;

	for (uint32_t i = 0; i < tx->n_bulk; i++)
		len += tx->bulk[i].len;
	return len > 0 ? s->opts.data_stall_ms + (uint32_t)(len / SLOWEST_BYTES_PER_MS)
		       : SEND_STALL_MS;
}

static int send_reply(struct server_conn *sc, struct link_tx *tx)
{
	struct conn *conn = &sc->conn;
	uint32_t ms = stall_ms(sc->s, tx);
	uint64_t deadline_us = loop_deadline_ms(ms), n_sent = sc->n_sent;
	int rc;

	conn_ref(conn);
	tx->rest_us = ms * 1000ull;
	for (;;) {
		rc = conn->dead ? -LE_DISCONNECTED : conn->k->ops->send(conn->k, tx, deadline_us);
		/* The reply waited for others, and they were sent: the peer is slow, not dead. */
		if (rc == -LE_TIMEDOUT && sc->n_sent != n_sent) {
			n_sent = sc->n_sent;
			deadline_us = loop_deadline_ms(ms);
		} else if (rc != -LE_INTR) {
			break;
		}
	}
	sc->n_sent += rc == 0;
	if (rc < 0)
		conn_kill(conn, rc);
	conn_unref(conn);
	return rc;
}

static int reply_plain(struct server_conn *sc, const struct frame_hdr *h, int status)
{
	struct link_tx tx = { .hdr = { .type = FRAME_REPLY,
				       .op = h->op,
				       .id = h->id,
				       .status = status,
				       .session = h->session } };

	return send_reply(sc, &tx);
}

static void reply(struct request *q, int status)
{
	struct server_conn *sc = q->sc;
	const struct frame_hdr *h = &q->pub.hdr;
	struct body *body = NULL;
	struct link_tx tx = {
		.hdr = { .type = FRAME_REPLY, .op = h->op, .id = h->id, .session = h->session },
		.peer_descs = q->rx.descs + q->n_out,
		.n_peer_descs = h->n_desc - q->n_out
	};

	q->replying = true;
	if (status == 0 && q->released && q->pub.n_reply_bulk > 0)
		status = -LE_CANCELED;
	if (status >= 0)
		status = body_encode(sc->conn.bodies, q->pub.desc->put_rep, q->out, &body,
				     &tx.body_len);
	tx.hdr.status = status;
	if (status == 0) {
		tx.body = body->data;
		tx.bulk = q->pub.reply_bulk;
		tx.n_bulk = q->pub.n_reply_bulk;
	}
	(void)!send_reply(sc, &tx);
	body_put(body);
}

void rpc_accept(struct rpc_req *r)
{
	struct request *q = container_of(r, struct request, pub);
	struct link_tx tx = {
		.hdr = { .type = FRAME_ACCEPTED, .op = r->hdr.op, .id = r->hdr.id }
	};

	ASSERT(q->magic == REQUEST_MAGIC);
	if (q->accepted || q->sc->conn.dead)
		return;
	q->accepted = true;
	(void)!send_reply(q->sc, &tx);
}

static void served(struct request *q, int status)
{
	struct rpc_server *s = q->sc->s;
	struct rpc_peer *p = &q->sc->peer;
	uint64_t us = loop_now_us() - q->pub.start_us;

	if (s->opts.served != NULL)
		s->opts.served(s->opts.arg, &q->pub, status, us);
	if (s->opts.slow_ms > 0 && us > s->opts.slow_ms * 1000ull)
		log_warn("slow request op=%s peer=%s (%s) session=%llu id=%llu status=%s ms=%llu",
			 q->pub.desc->name, p->name, p->addr,
			 (unsigned long long)q->pub.hdr.session, (unsigned long long)q->pub.hdr.id,
			 status_name(status), (unsigned long long)(us / 1000));
}

static void drop_bulk(struct slot_vec *vec, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		slot_unref(vec[i].slot);
}

/* The end of a request, whether it ran or not. */
static void request_end(struct request *q)
{
	struct server_conn *sc = q->sc;
	struct rpc_server *s = sc->s;

	drop_bulk(q->pub.bulk, q->pub.n_bulk);
	drop_bulk(q->pub.reply_bulk, q->pub.n_reply_bulk);
	ASSERT(sc->n_running > 0 && s->n_requests >= sc->n_running);
	list_remove(&q->link);
	hmap_remove(&sc->by_id, &q->node);
	/* The last request of an ended connection: request_cancel_all has nothing left to stop. */
	if (--sc->n_running == 0 && sc->reader == NULL)
		list_remove(&sc->link);
	request_put(s, q);
	if (--s->n_requests == 0)
		waitq_wake_all(&s->idle);
	conn_unref(&sc->conn);
}

/* ---- the arrival ---- */

/* Collects slots for len bytes, all or none. Yields; this wait is the back-pressure on clients that
 * send faster than the server works. */
static int get_slots(struct rpc_server *s, uint32_t len, struct slot_vec *vec, uint32_t *ret_n)
{
	uint32_t size = slot_pool_size(s->opts.bulk_pool), n = 0;
	int rc = 0;

	fmutex_lock(&s->bulk_lock);
	while (len > 0 && rc == 0) {
		struct slot *slot;
		rc = slot_get(s->opts.bulk_pool, NO_DEADLINE, &slot);
		if (rc < 0)
			break;
		vec[n++] = (struct slot_vec){ slot, 0, len < size ? len : size };
		len -= vec[n - 1].len;
	}
	fmutex_unlock(&s->bulk_lock);
	if (rc < 0)
		drop_bulk(vec, n);
	else
		*ret_n = n;
	return rc;
}

/* Runs in the request's fiber, where the transport allows it (bulk_apart), so that neither the wait
 * for slots nor the transfer delays other frames of the connection. */
static int fetch_bulk(struct request *q)
{
	struct conn *conn = &q->sc->conn;

	TRY(get_slots(q->sc->s, q->pub.bulk_len, q->pub.bulk, &q->pub.n_bulk));
	if (q->released)
		return -LE_CANCELED;
	q->fetching = true;
	int rc = conn->dead ? -LE_DISCONNECTED
			    : conn->k->ops->recv_bulk(conn->k, &q->rx, q->pub.bulk, q->pub.n_bulk);
	q->fetching = false;
	if (q->canceled)
		release_memory(q);
	return rc;
}

static int check_bulk(const struct rpc_server *s, uint32_t len)
{
	if (len == 0)
		return 0;
	if (s->opts.bulk_pool == NULL || len > s->opts.bulk_max)
		return -LE_TOO_BIG;
	uint64_t n = ((uint64_t)len + slot_pool_size(s->opts.bulk_pool) - 1) /
		     slot_pool_size(s->opts.bulk_pool);
	return n > RPC_BULK_VECS_MAX || n > slot_pool_total(s->opts.bulk_pool) ? -LE_TOO_BIG : 0;
}

static int refuse(struct server_conn *sc, const struct link_rx *rx, int status)
{
	struct frame_hdr h = rx->hdr;

	if (h.bulk_len > 0)
		TRY(sc->conn.k->ops->recv_bulk(sc->conn.k, rx, NULL, 0));
	return reply_plain(sc, &h, status);
}

static int admit(const struct server_conn *sc, const struct frame_hdr *h,
		 const struct rpc_handler **ret_handler)
{
	const struct rpc_server *s = sc->s;

	if (s->closing)
		return -LE_SHUTDOWN;
	*ret_handler = h->op < OPS_MAX ? s->by_op[h->op] : NULL;
	if (*ret_handler == NULL)
		return -LE_UNKNOWN_OP;
	if (s->n_requests >= s->opts.requests_max)
		return -LE_OVERLOAD;
	return check_bulk(s, h->bulk_len);
}

/* The number of descriptors that cover the first len bytes. */
static uint32_t descs_of(const struct link_rx *rx, uint32_t len)
{
	uint32_t n = 0;

	while (n < rx->hdr.n_desc && len > 0 && rx->descs[n].len <= len)
		len -= rx->descs[n++].len;
	return n;
}

static void request_init(struct request *q, struct server_conn *sc, const struct link_rx *rx,
			 const struct rpc_handler *handler)
{
	struct rpc_req *r = &q->pub;

	q->canceled = q->accepted = q->fetching = q->replying = q->released = false;
	q->sc = sc;
	q->fiber = NULL;
	q->handler = handler;
	q->chunks = NULL;
	q->arena_used = q->arena_total = 0;
	q->rx.hdr = rx->hdr;
	q->rx.body = NULL;
	memcpy(q->rx.descs, rx->descs, rx->hdr.n_desc * sizeof(rx->descs[0]));
	q->n_out = descs_of(rx, rx->hdr.bulk_len);
	r->server = sc->s;
	r->peer = &sc->peer;
	r->desc = msg_find(rx->hdr.op);
	r->hdr = rx->hdr;
	r->in = q->in;
	r->out = q->out;
	r->n_bulk = r->n_reply_bulk = 0;
	r->bulk_len = rx->hdr.bulk_len;
	r->start_us = loop_now_us();
	r->deadline_us =
		rx->hdr.timeout_ms > 0 ? r->start_us + rx->hdr.timeout_ms * 1000ull : NO_DEADLINE;
	r->arg = sc->s->opts.arg;
	list_push(&sc->running, &q->link);
	hmap_insert_id(&sc->by_id, &q->node, rx->hdr.id);
	sc->n_running++;
	sc->s->n_requests++;
	conn_ref(&sc->conn);
}

static void request_main(void *arg)
{
	struct request *q = CAST_OBJ(arg, struct request, REQUEST_MAGIC);
	struct rpc_req *r = &q->pub;
	struct wire_r w;

	q->fiber = fiber_self();
	fiber_set_deadline(r->deadline_us);
	wire_r_init(&w, q->body, q->body_len);
	r->desc->get_req(&w, q->in);
	memset(q->out, 0, r->desc->rep_size);
	int status = w.status;
	if (status == 0 && r->bulk_len > 0 && r->n_bulk == 0)
		status = fetch_bulk(q);
	if (status == 0)
		status = q->handler->fn(r, q->in, q->out);
	q->fiber = NULL;
	reply(q, status);
	served(q, status);
	request_end(q);
}

static int take_body(struct request *q, const struct link_rx *rx)
{
	uint8_t *to = rpc_req_alloc(&q->pub, rx->hdr.body_len);

	if (to == NULL)
		return -LE_NOMEM;
	if (rx->hdr.body_len > 0)
		memcpy(to, rx->body, rx->hdr.body_len);
	q->body = to;
	q->body_len = rx->hdr.body_len;
	return 0;
}

static int take_bulk(struct request *q, const struct link_rx *rx)
{
	struct conn *conn = &q->sc->conn;

	TRY(get_slots(q->sc->s, rx->hdr.bulk_len, q->pub.bulk, &q->pub.n_bulk));
	conn_watch(conn, BULK_STALL_MS);
	int rc = conn->k->ops->recv_bulk(conn->k, rx, q->pub.bulk, q->pub.n_bulk);
	conn_watch_end(conn);
	return rc;
}

int request_arrived(struct server_conn *sc, const struct link_rx *rx)
{
	const struct rpc_handler *handler = NULL;

	if (rx->hdr.id == 0)
		return -LE_BAD_FRAME;
	/* Doubled by the network: the first one is answered. */
	if (find(sc, rx->hdr.id) != NULL)
		return rx->hdr.bulk_len > 0 ? sc->conn.k->ops->recv_bulk(sc->conn.k, rx, NULL, 0)
					    : 0;
	/* Twice the granted number: requests that the client gave up may still run here. */
	if (sc->n_running >= 2 * sc->credits)
		return -LE_OVERLOAD;
	int rc = admit(sc, &rx->hdr, &handler);
	if (rc < 0)
		return refuse(sc, rx, rc);
	struct request *q = request_get(sc->s);
	if (q == NULL)
		return refuse(sc, rx, -LE_NOMEM);
	request_init(q, sc, rx, handler);
	rc = take_body(q, rx);
	if (rc == 0 && rx->hdr.bulk_len > 0 && !sc->conn.k->ops->bulk_apart) {
		rc = take_bulk(q, rx);
		if (rc < 0) {
			request_end(q);
			return rc;
		}
	}
	if (rc == 0)
		rc = fiber_spawn(q->pub.desc->name, request_main, q);
	if (rc < 0) {
		bool received = q->pub.n_bulk > 0;
		struct frame_hdr h = rx->hdr;
		request_end(q);
		return received ? reply_plain(sc, &h, -LE_OVERLOAD) : refuse(sc, rx, -LE_OVERLOAD);
	}
	return 0;
}
