/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/conn.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/planted_bug.h"

#define BODIES_KEPT 64u
/* If a reply is arriving at the deadline of its call, the call may take this much longer. */
#define GRACE_MS 1000u
#define CANCEL_MS 100u
/* How long a caller that gives up waits for the peer to release its memory, before it breaks the
 * connection. */
#define RELEASE_MS 500u
/* A request without a reply frees its slot this long after its caller gave up. */
#define FORGET_US 30000000u
#define POLL_US   1000000u /* interval of the search for such slots */
/* If a call times out while the connection has been silent for so long, the connection ends. */
#define SILENT_US 10000000u
/* A caller that has waited so long, the latter half without any frame, has the link check that the
 * peer is alive. */
#define PROBE_US 1000000u
#define RATE_US 1000000u

/* One call in flight; on the stack of its fiber. */
struct pending {
	struct rpc_call *call;
	struct fiber *fiber;
	bool done, waiting, receiving;
	bool user_memory;     /* the peer may touch its memory */
	bool released; /* and no longer does */
	int status;
	struct body *body;
	uint32_t body_len;
};

/* ---- bodies ---- */

int body_pool_create(struct body_pool **ret_pool)
{
	struct body_pool *p = malloc(sizeof(*p));

	if (p == NULL)
		return -LE_NOMEM;
	*p = (struct body_pool){ .refs = 1 };
	list_init(&p->free);
	*ret_pool = p;
	return 0;
}

void body_pool_unref(struct body_pool *p)
{
	struct list *n;

	if (p == NULL || --p->refs > 0)
		return;
	while ((n = list_pop(&p->free)) != NULL)
		free(list_entry(n, struct body, link));
	free(p);
}

struct body *body_get(struct body_pool *p, uint32_t size)
{
	struct list *n = size <= BODY_SIZE ? list_pop(&p->free) : NULL;
	struct body *b;

	if (n != NULL) {
		p->n_free--;
		b = list_entry(n, struct body, link);
	} else {
		uint32_t cap = size <= BODY_SIZE ? BODY_SIZE : size;
		b = malloc(sizeof(*b) + cap);
		if (b == NULL)
			return NULL;
		b->pool = p;
		b->cap = cap;
	}
	p->refs++;
	return b;
}

void body_put(struct body *b)
{
	if (b == NULL)
		return;
	struct body_pool *p = b->pool;
	if (b->cap == BODY_SIZE && p->n_free < BODIES_KEPT && p->refs > 1) {
		/* Most recently used first: warm in the cache. */
		list_push_front(&p->free, &b->link);
		p->n_free++;
	} else {
		free(b);
	}
	body_pool_unref(p);
}

int body_encode(struct body_pool *p, void (*put)(struct wire_w *w, const void *m), const void *m,
		struct body **ret_body, uint32_t *ret_len)
{
	uint32_t size = BODY_SIZE;

	for (;;) {
		struct body *b = body_get(p, size);
		struct wire_w w;

		if (b == NULL)
			return -LE_NOMEM;
		wire_w_init(&w, b->data, b->cap);
		put(&w, m);
		if (w.status == 0) {
			*ret_body = b;
			*ret_len = (uint32_t)w.len;
			return 0;
		}
		body_put(b);
		if (size == FRAME_BODY_MAX)
			return w.status;
		size = FRAME_BODY_MAX;
	}
}

/* ---- the connection ---- */

static void watchdog_fired(struct timer *t)
{
	conn_kill(container_of(t, struct conn, watchdog), -LE_TIMEDOUT);
}

void conn_init(struct conn *c, struct link *k, struct body_pool *bodies,
	       void (*destroy)(struct conn *c))
{
	c->magic = CONN_MAGIC;
	c->refs = 1;
	c->k = k;
	c->loop = loop_self();
	c->bodies = bodies;
	c->bodies->refs++;
	c->destroy = destroy;
	c->last_rx_us = c->rate.at_us = loop_now_us();
	timer_init(&c->watchdog, watchdog_fired);
	turnq_init(&c->space);
}

int conn_set_window(struct conn *c, uint32_t n)
{
	if (n > CONN_WINDOW_MAX)
		n = CONN_WINDOW_MAX;
	c->window = calloc(n, sizeof(c->window[0]));
	c->free_slots = calloc(n, sizeof(c->free_slots[0]));
	if (c->window == NULL || c->free_slots == NULL)
		return -LE_NOMEM;
	c->n_window = c->n_free = n;
	/* The lowest first: the few that are used stay in the cache. */
	for (uint32_t i = 0; i < n; i++)
		c->free_slots[i] = (uint16_t)(n - 1 - i);
	return 0;
}

void conn_ref(struct conn *c)
{
	ASSERT(c->magic == CONN_MAGIC && c->refs > 0);
	c->refs++;
}

void conn_unref(struct conn *c)
{
	ASSERT(c->magic == CONN_MAGIC && c->refs > 0);
	if (--c->refs > 0)
		return;
	conn_kill(c, -LE_DISCONNECTED);
	c->k->ops->close(c->k);
	free(c->window);
	free(c->free_slots);
	body_pool_unref(c->bodies);
	c->magic = 0;
	c->destroy(c);
}

static void finish(struct pending *p, int status)
{
	p->done = true;
	p->status = status;
	if (p->waiting)
		fiber_wake(p->fiber);
}

void conn_kill(struct conn *c, int why)
{
	NO_YIELD();

	if (c->dead)
		return;
	ASSERT(c->n_exposed <= c->in_flight);
	c->dead = true;
	c->why = why;
	timer_cancel(&c->watchdog);
	c->k->ops->shutdown(c->k);
	/* The callers may reuse their memory as soon as they are woken. */
	if (c->n_exposed > 0)
		c->k->ops->sever(c->k);
	for (uint32_t i = 0; i < c->n_window; i++) {
		struct pending *p = c->window[i].pending;
		/* If data is arriving in the caller's buffers, the reader ends this call. */
		if (p != NULL && !p->receiving) {
			c->window[i].pending = NULL;
			finish(p, -LE_DISCONNECTED);
		}
	}
	turnq_wake(&c->space);
}

void conn_watch(struct conn *c, uint64_t ms)
{
	if (!c->dead)
		timer_set(&c->watchdog, loop_deadline_ms(ms));
}

void conn_watch_end(struct conn *c)
{
	timer_cancel(&c->watchdog);
}

/* Updates the rates, at most once in RATE_US however often this is called. */
static void take_rate(struct conn_rate *r, const struct link_stats *k)
{
	uint64_t now = loop_now_us(), us = now - r->at_us;

	if (us < RATE_US)
		return;
	r->in_rate = (uint64_t)((double)(k->bulk_in - r->bulk_in) * 1e6 / (double)us);
	r->out_rate = (uint64_t)((double)(k->bulk_out - r->bulk_out) * 1e6 / (double)us);
	r->at_us = now;
	r->bulk_in = k->bulk_in;
	r->bulk_out = k->bulk_out;
}

void conn_total(struct conn *c, bool ended, struct rpc_net_totals *totals)
{
	struct rpc_net_sum *s =
		strcmp(c->k->ops->name, "verbs") == 0 ? &totals->verbs : &totals->tcp;
	struct link_stats k = { 0 };

	c->k->ops->stats(c->k, &k);
	take_rate(&c->rate, &k);
	s->connections += !ended;
	s->connects++;
	s->frames_in += k.frames_in;
	s->frames_out += k.frames_out;
	s->bulk_in += k.bulk_in;
	s->bulk_out += k.bulk_out;
	s->copied += k.bytes_copied;
	s->stalls += k.credit_stalls + k.queue_stalls;
}

static void sum_add(struct rpc_net_sum *to, const struct rpc_net_sum *from)
{
	to->connections += from->connections;
	to->connects += from->connects;
	to->frames_in += from->frames_in;
	to->frames_out += from->frames_out;
	to->bulk_in += from->bulk_in;
	to->bulk_out += from->bulk_out;
	to->copied += from->copied;
	to->stalls += from->stalls;
}

void net_totals_add(struct rpc_net_totals *to, const struct rpc_net_totals *from)
{
	sum_add(&to->tcp, &from->tcp);
	sum_add(&to->verbs, &from->verbs);
}

void conn_net(struct conn *c, struct rpc_net *ret_net)
{
	ret_net->transport = c->k->ops->name;
	ret_net->calls = c->n_calls;
	ret_net->replies = c->n_replies;
	ret_net->in_flight = c->in_flight;
	c->k->ops->stats(c->k, &ret_net->link);
	take_rate(&c->rate, &ret_net->link);
	ret_net->in_rate = c->rate.in_rate;
	ret_net->out_rate = c->rate.out_rate;
}

/* ---- the window ---- */

static void slot_release(struct conn *c, uint32_t i)
{
	ASSERT(c->window[i].id != 0 && c->n_free < c->n_window);
	c->window[i] = (struct window_slot){ 0 };
	c->free_slots[c->n_free++] = (uint16_t)i;
	turnq_wake(&c->space);
}

static void forget_old(struct conn *c)
{
	uint64_t now = loop_now_us();

	for (uint32_t i = 0; i < c->n_window; i++) {
		struct window_slot *s = &c->window[i];
		if (s->id != 0 && s->pending == NULL && s->given_up_us + FORGET_US < now)
			slot_release(c, i);
	}
}

static bool has_space(void *arg)
{
	struct conn *c = arg;

	/* Free old slots before any wait: a caller with a deadline below POLL_US would otherwise
	 * never do it. */
	if (c->n_free == 0 && !c->dead)
		forget_old(c);
	return c->n_free > 0 || c->dead;
}

static int slot_acquire(struct conn *c, uint64_t deadline_us, uint32_t *ret_i)
{
	/* Silence is measured from the first call in flight. Calls that were given up count, as
	 * they keep their slots. */
	if (c->n_free == c->n_window)
		c->last_rx_us = loop_now_us();
	TRY(turnq_wait(&c->space, has_space, c, POLL_US, deadline_us));
	if (c->dead) {
		turnq_wake(&c->space);
		return -LE_DISCONNECTED;
	}
	uint32_t i = c->free_slots[--c->n_free];
	ASSERT(c->window[i].id == 0);
	c->window[i].id = ++c->next_number << 16 | i;
	*ret_i = i;
	if (c->n_free > 0)
		turnq_wake(&c->space);
	return 0;
}

/* ---- calls ---- */

uint64_t conn_deadline(const struct rpc_call *call)
{
	uint64_t own = call->deadline_us != 0 ? call->deadline_us : NO_DEADLINE;
	uint64_t inherited = fiber_deadline();

	return own < inherited ? own : inherited;
}

int conn_send_plain(struct conn *c, enum frame_type type, uint64_t id, uint64_t deadline_us)
{
	struct link_tx tx = { .hdr = { .type = (uint8_t)type, .id = id } };

	return c->dead ? -LE_DISCONNECTED : c->k->ops->send(c->k, &tx, deadline_us);
}

static uint32_t timeout_ms(uint64_t deadline_us)
{
	uint64_t now = loop_now_us();

	if (deadline_us == NO_DEADLINE)
		return 0;
	if (deadline_us <= now)
		return 1;
	uint64_t ms = (deadline_us - now + 999) / 1000;
	return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static int send_request(struct conn *c, const struct rpc_call *call, const struct msg_desc *d,
			enum frame_type type, uint64_t id, uint64_t deadline_us)
{
	struct body *body;
	struct link_tx tx = {
		.hdr = { .type = (uint8_t)type,
			 .op = call->op,
			 .id = id,
			 .session = call->session,
			 .slot = call->slot,
			 .epoch = call->epoch,
			 .flags = (call->again ? FRAME_AGAIN : 0) |
				  (call->seen ? FRAME_SEEN : 0) |
				  (call->cancelled ? FRAME_CANCEL_IF_NOT_STARTED : 0),
			 .seq = call->seq,
			 .target = call->target,
			 .chain = call->chain,
			 .timeout_ms = timeout_ms(deadline_us) },
		.bulk = call->bulk_out,
		.n_bulk = call->n_bulk_out,
		.bulk_in = call->bulk_in,
		.n_bulk_in = call->n_bulk_in,
	};

	TRY(body_encode(c->bodies, d->put_req, call->req, &body, &tx.body_len));
	tx.body = body->data;
	c->bytes_out += FRAME_HEADER_SIZE + tx.body_len;
	for (uint32_t i = 0; i < tx.n_bulk; i++)
		c->bytes_out += tx.bulk[i].len;
	int rc = c->k->ops->send(c->k, &tx, deadline_us);
	body_put(body);
	return rc;
}

/* Waits until the peer has released the caller's memory; breaks the connection if it does not. */
static void take_back(struct conn *c, struct pending *p)
{
	uint64_t until = loop_deadline_ms(RELEASE_MS);
	bool interrupted = false;

	while (!p->done && !p->released) {
		p->waiting = true;
		int rc = fiber_park_until(until);
		p->waiting = false;
		interrupted |= rc == -LE_INTR;
		if (rc == -LE_TIMEDOUT && !p->done && !p->released)
			conn_kill(c, -LE_TIMEDOUT);
	}
	if (interrupted)
		fiber_interrupt(fiber_self());
}

/* Gives up a call: on return nothing of it is accessed any longer. Its slot waits for the reply. */
static void give_up(struct conn *c, struct pending *p, uint32_t i, int why)
{
	struct window_slot *s = &c->window[i];
	uint64_t id = s->id, now = loop_now_us();

	s->given_up_us = now;
	c->n_timeouts += why == -LE_TIMEDOUT;
	if (!p->user_memory)
		s->pending = NULL;
	if (why == -LE_TIMEDOUT && c->last_rx_us + SILENT_US <= now) {
		conn_kill(c, -LE_TIMEDOUT);
		return;
	}
	int rc = conn_send_plain(c, FRAME_CANCEL, id, loop_deadline_ms(CANCEL_MS));
	if (rc == -LE_INTR)
		fiber_interrupt(fiber_self());
	if (p->user_memory)
		take_back(c, p);
	if (s->id == id && s->pending == p)
		s->pending = NULL;
}

/* Parks, and returns before the deadline each PROBE_US. One probe of the link serves all callers
 * that wait on it. */
static int park_for_reply(struct conn *c, uint64_t until)
{
	uint64_t look = loop_now_us() + PROBE_US;

	if (c->k->ops->probe == NULL || look >= until)
		return fiber_park_until(until);
	int rc = fiber_park_until(look);
	if (rc != -LE_TIMEDOUT)
		return rc;
	uint64_t now = loop_now_us();
	uint64_t last = c->last_rx_us > c->probed_us ? c->last_rx_us : c->probed_us;
	if (!c->dead && last + PROBE_US / 2 <= now) {
		c->probed_us = now;
		c->k->ops->probe(c->k);
	}
	return 0;
}

/* Waits for the reply. After a failure the call has been given up. */
static int wait_reply(struct conn *c, struct pending *p, uint32_t i, uint64_t deadline_us)
{
	bool interrupted = false;
	uint64_t until = deadline_us;

	while (!p->done) {
		p->waiting = true;
		int rc = park_for_reply(c, until);
		p->waiting = false;
		if (rc == 0 || p->done) {
			interrupted |= rc == -LE_INTR;
			continue;
		}
		if (!p->receiving) {
			give_up(c, p, i, rc);
			return rc;
		}
		/* The data is arriving in the caller's buffers right now: wait for it, but for a
		 * limited time. */
		interrupted |= rc == -LE_INTR;
		if (rc == -LE_TIMEDOUT && until != deadline_us) {
			conn_kill(c, -LE_TIMEDOUT);
			until = NO_DEADLINE;
		} else {
			until = loop_deadline_ms(GRACE_MS);
		}
	}
	if (interrupted)
		fiber_interrupt(fiber_self());
	return 0;
}

static int take_reply(struct pending *p, const struct msg_desc *d)
{
	struct rpc_call *call = p->call;
	struct wire_r r;

	if (p->status < 0) {
		body_put(p->body);
		return p->status;
	}
	wire_r_init(&r, p->body->data, p->body_len);
	d->get_rep(&r, call->rep);
	if (r.status < 0) {
		body_put(p->body);
		return r.status;
	}
	call->body = p->body;
	return 0;
}

int conn_call(struct conn *c, struct rpc_call *call, enum frame_type type, uint64_t deadline_us,
	      bool *ret_sent)
{
	const struct msg_desc *d = msg_find(call->op);
	struct pending p = { .call = call, .fiber = fiber_self() };
	uint32_t i;

	*ret_sent = false;
	call->body = NULL;
	call->ret_bulk_len = 0;
	call->ret_accepted = false;
	if (d == NULL)
		return -LE_UNKNOWN_OP;
	TRY(slot_acquire(c, deadline_us, &i));
	p.user_memory = call->n_bulk_in + call->n_bulk_out > 0 && c->k->ops->sever != NULL;
	c->n_exposed += p.user_memory;
	c->window[i].pending = &p;
	c->in_flight++;
	c->n_calls++;
	int rc = send_request(c, call, d, type, c->window[i].id, deadline_us);
	if (rc < 0 && !p.done && !p.receiving) {
		*ret_sent = rc == -LE_DISCONNECTED;
		c->n_timeouts += rc == -LE_TIMEDOUT;
		slot_release(c, i);
		if (rc == -LE_DISCONNECTED)
			conn_kill(c, rc);
	} else {
		*ret_sent = true;
		rc = wait_reply(c, &p, i, deadline_us);
		/* A dead connection's slots are freed with it; a reply has freed its slot. */
		if (rc == 0)
			rc = take_reply(&p, d);
		else
			body_put(p.body);
	}
	ASSERT(c->in_flight > 0 && c->n_exposed >= p.user_memory);
	c->in_flight--;
	c->n_exposed -= p.user_memory;
	return rc;
}

void rpc_call_fini(struct rpc_call *call)
{
	body_put(call->body);
	call->body = NULL;
}

/* ---- replies ---- */

/* Limits the caller's buffers to len bytes; -LE_BAD_MESSAGE if they are smaller. */
static int clip(const struct rpc_call *call, uint32_t len, struct slot_vec *vec, uint32_t *ret_n)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < call->n_bulk_in && len > 0 && n < RPC_BULK_VECS_MAX; i++) {
		vec[n] = call->bulk_in[i];
		if (vec[n].len > len)
			vec[n].len = len;
		len -= vec[n++].len;
	}
	*ret_n = n;
	return len > 0 ? -LE_BAD_MESSAGE : 0;
}

static int receive_bulk(struct conn *c, const struct link_rx *rx, struct pending *p,
			int *ret_status)
{
	struct slot_vec vec[RPC_BULK_VECS_MAX];
	uint32_t n;
	int rc;

	if (p == NULL || *ret_status < 0 || clip(p->call, rx->hdr.bulk_len, vec, &n) < 0) {
		if (*ret_status == 0)
			*ret_status = -LE_BAD_MESSAGE;
		return c->k->ops->recv_bulk(c->k, rx, NULL, 0);
	}
	p->receiving = true;
	rc = c->k->ops->recv_bulk(c->k, rx, vec, n);
	p->receiving = false;
	p->call->ret_bulk_len = rx->hdr.bulk_len;
	return rc;
}

void conn_accepted(struct conn *c, uint64_t id)
{
	uint32_t i = id & 0xffff;
	struct window_slot *s = i < c->n_window ? &c->window[i] : NULL;
	struct pending *p = s != NULL && id != 0 && s->id == id ? s->pending : NULL;
	NO_YIELD();

	/* Ignore a frame that the network doubled or the reply overtook, or that comes after the
	 * caller has given up. */
	if (p == NULL || p->done || p->call->ret_accepted)
		return;
	p->call->ret_accepted = true;
	if (p->call->accepted != NULL)
		p->call->accepted(p->call->accepted_arg);
}

void conn_released(struct conn *c, uint64_t id)
{
	uint32_t i = id & 0xffff;
	struct window_slot *s = i < c->n_window ? &c->window[i] : NULL;
	struct pending *p = s != NULL && id != 0 && s->id == id ? s->pending : NULL;

	/* Ignore it if the call was not given up, or the reply came first. */
	if (p == NULL || p->done)
		return;
	p->released = true;
	if (p->waiting)
		fiber_wake(p->fiber);
}

int conn_reply_arrived(struct conn *c, const struct link_rx *rx)
{
	uint32_t i = rx->hdr.id & 0xffff;
	struct window_slot *s = i < c->n_window ? &c->window[i] : NULL;
	bool known = s != NULL && rx->hdr.id != 0 &&
		     (s->id == rx->hdr.id || (s->id != 0 && PLANTED_BUG(RPC_ANY_REPLY)));
	struct pending *p = known ? s->pending : NULL;
	int status = rx->hdr.status;

	c->n_replies += known;
	if (p != NULL && status == 0) {
		p->body = body_get(c->bodies, rx->hdr.body_len);
		if (p->body == NULL)
			status = -LE_NOMEM;
		else if (rx->hdr.body_len > 0)
			memcpy(p->body->data, rx->body, rx->hdr.body_len);
		p->body_len = rx->hdr.body_len;
	}
	if (rx->hdr.bulk_len > 0) {
		int rc = receive_bulk(c, rx, p, &status);
		if (rc < 0) {
			if (p != NULL && s->pending == p) {
				s->pending = NULL;
				finish(p, -LE_DISCONNECTED);
			}
			return rc;
		}
		/* A call without buffers may have been given up while the data was discarded. */
		if (p != NULL && s->pending != p)
			p = NULL;
	}
	/* If the caller had given up, forget_old may have freed the slot, for another call, while
	 * the data arrived. */
	if (known && s->id == rx->hdr.id)
		slot_release(c, i);
	if (p != NULL)
		finish(p, status);
	return 0;
}
