/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated network. A connection is one object with two ends, one in each process. Everything
 * that is transferred (a frame, the end of the connection) is an event of the simulator that runs
 * in the receiving loop. Without faults an end behaves like a TCP socket: frames arrive in order,
 * then the end of the connection.
 *
 * Memory belongs to the transport, not to the simulated processes: the memory of a crashed process
 * is freed when the transport is destroyed (after the simulator).
 */
#include "common/rpc/transport/transport_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/rt/net.h"
#include "common/rt/sim/sim.h"

#define NET_MAGIC 0x534e4554u
#define END_MAGIC 0x53454e44u
#define LISTENER_MAGIC 0x534c4953u
#define NAME_MAX_LEN 48

struct sim_net {
	struct transport base;
	uint32_t magic;
	struct sim *sim;
	struct transport_sim_options opts;
	struct list listeners, conns, dials, cuts, packets;
	uint32_t next_port;
};

struct sim_conn;
struct sim_end {
	struct link base;
	uint32_t magic;
	struct sim_conn *conn;
	struct sim_proc *proc;
	struct loop *loop;
	bool shut;   /* by this side */
	/* the peer has ended the connection: frames that have arrived can still be read */
	bool eof;
	bool closed; /* closed, or the process has crashed: the loop and q are no longer used */
	struct list rx;
	struct waitq q;
	struct packet *current; /* the frame that recv returned last */
	uint64_t last_at; /* frames sent later arrive later than this */
	char peer[NET_ADDR_TEXT_SIZE];
};

struct sim_conn {
	struct list link;
	struct sim_net *net;
	uint32_t refs; /* open ends and packets in flight */
	struct sim_end end[2]; /* 0 connecting side, 1 accepting side */
};

struct packet {
	struct list link; /* of net->packets, or of an end's rx */
	struct sim_end *to;
	bool is_break;
	uint32_t body_len, bulk_len;
	uint8_t data[]; /* header, body, bulk */
};

struct sim_listener {
	uint32_t magic;
	struct list link;
	struct sim_net *net;
	struct sim_proc *proc;
	struct loop *loop;
	struct waitq q;
	struct sim_end *backlog[64];
	uint32_t n_backlog, refs;
	bool closed;
	char addr[NET_ADDR_TEXT_SIZE];
};

/* An attempt to connect; refs: the fiber and the event in flight. */
struct dial {
	struct list link;
	struct sim_net *net;
	struct sim_proc *proc;
	uint32_t incarnation, refs;
	struct loop *loop;
	struct waitq q;
	bool done, abandoned;
	int status;
	struct sim_end *end;
	char addr[NET_ADDR_TEXT_SIZE];
};

struct cut {
	struct list link;
	char a[NAME_MAX_LEN], b[NAME_MAX_LEN];
};

static const struct transport_ops sim_ops;

static struct sim_end *end_of(struct link *k)
{
	return CAST_OBJ(k, struct sim_end, END_MAGIC);
}

static struct sim_net *net_of(struct transport *t)
{
	return CAST_OBJ(t, struct sim_net, NET_MAGIC);
}

static struct sim_end *other(struct sim_end *e)
{
	return e == &e->conn->end[0] ? &e->conn->end[1] : &e->conn->end[0];
}

static uint64_t delay(struct sim_net *net)
{
	return 1 + sim_random_below(net->sim, net->opts.delay_us_max);
}

static bool is_cut(struct sim_net *net, const char *a, const char *b)
{
	list_for_each(pos, &net->cuts) {
		struct cut *c = list_entry(pos, struct cut, link);
		if ((strcmp(c->a, a) == 0 && strcmp(c->b, b) == 0) ||
		    (strcmp(c->a, b) == 0 && strcmp(c->b, a) == 0))
			return true;
	}
	return false;
}

static bool is_cut_off(struct sim_end *e)
{
	return is_cut(e->conn->net, sim_proc_name(e->proc), sim_proc_name(other(e)->proc));
}

static void conn_unref(struct sim_conn *c)
{
	if (--c->refs > 0)
		return;
	list_remove(&c->link);
	c->end[0].magic = c->end[1].magic = 0;
	free(c);
}

/* ---- packets in flight ---- */

static void packet_free(struct packet *p)
{
	struct sim_conn *c = p->to->conn;

	list_remove(&p->link);
	free(p);
	conn_unref(c);
}

static void purge(struct sim_end *e)
{
	struct list *n;

	if (e->current != NULL)
		packet_free(e->current);
	e->current = NULL;
	while ((n = e->rx.next) != &e->rx)
		packet_free(list_entry(n, struct packet, link));
}

static void send_break(struct sim_end *to, uint64_t extra_us);

static void deliver(void *arg)
{
	struct packet *p = arg;
	struct sim_end *to = p->to;

	list_remove(&p->link);
	if (to->closed || to->shut) {
		/* Like a TCP reset: the sender learns that this end is closed. */
		if (!p->is_break && !is_cut_off(to))
			send_break(other(to), 0);
		packet_free(p);
		return;
	}
	if (p->is_break) {
		to->eof = true;
		packet_free(p);
	} else {
		list_push(&to->rx, &p->link);
	}
	waitq_wake_all(&to->q);
}

/* Takes over the packet. */
static void launch(struct packet *p, uint64_t after_us)
{
	struct sim_net *net = p->to->conn->net;

	p->to->conn->refs++;
	list_push(&net->packets, &p->link);
	if (p->to->closed || sim_after(net->sim, after_us, p->to->loop, deliver, p) < 0)
		packet_free(p);
}

static uint64_t in_order(struct sim_end *from, uint64_t after_us)
{
	uint64_t now = sim_now_us(from->conn->net->sim);

	if (now + after_us <= from->last_at)
		after_us = from->last_at - now + 1;
	from->last_at = now + after_us;
	return after_us;
}

static void send_break(struct sim_end *to, uint64_t extra_us)
{
	struct packet *p;

	if (to->closed || to->eof)
		return;
	p = calloc(1, sizeof(*p));
	ASSERT(p != NULL);
	p->to = to;
	p->is_break = true;
	launch(p, in_order(other(to), delay(to->conn->net) + extra_us));
}

/* ---- links ---- */

static void link_shutdown(struct link *k)
{
	struct sim_end *e = end_of(k);

	if (e->shut)
		return;
	e->shut = true;
	waitq_wake_all(&e->q);
	if (!is_cut_off(e))
		send_break(other(e), 0);
}

static void end_gone(struct sim_end *e)
{
	e->closed = true;
	purge(e);
	conn_unref(e->conn);
}

static void link_close(struct link *k)
{
	link_shutdown(k);
	end_gone(end_of(k));
}

static void flip_bit(struct sim_net *net, struct packet *p)
{
	uint64_t bit =
		sim_random_below(net->sim, 8ull * (FRAME_HEADER_SIZE + p->body_len + p->bulk_len));

	p->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static struct packet *packet_of(const struct link_tx *tx, struct sim_end *to)
{
	struct frame_hdr h = tx->hdr;
	uint32_t bulk_len = 0;

	for (uint32_t i = 0; i < tx->n_bulk; i++)
		bulk_len += tx->bulk[i].len;
	struct packet *p = malloc(sizeof(*p) + FRAME_HEADER_SIZE + tx->body_len + bulk_len);
	ASSERT(p != NULL);
	*p = (struct packet){ .to = to, .body_len = tx->body_len, .bulk_len = bulk_len };
	h.body_len = tx->body_len;
	h.bulk_len = bulk_len;
	h.n_desc = 0;
	frame_encode(&h, NULL, tx->body, p->data);
	uint8_t *at = p->data + FRAME_HEADER_SIZE;
	if (tx->body_len > 0)
		memcpy(at, tx->body, tx->body_len);
	at += tx->body_len;
	for (uint32_t i = 0; i < tx->n_bulk; i++) {
		const struct slot_vec *v = &tx->bulk[i];
		memcpy(at, v->slot->data + v->off, v->len);
		at += v->len;
	}
	return p;
}

static int link_send(struct link *k, const struct link_tx *tx, uint64_t deadline_us)
{
	struct sim_end *e = end_of(k);
	struct sim_net *net = e->conn->net;
	struct sim *s = net->sim;
	uint64_t bulk_len = 0;

	(void)deadline_us;
	for (uint32_t i = 0; i < tx->n_bulk; i++)
		bulk_len += tx->bulk[i].len;
	if (tx->body_len > FRAME_BODY_MAX || bulk_len > FRAME_BULK_MAX)
		return -LE_TOO_BIG;
	if (e->shut || e->eof)
		return -LE_DISCONNECTED;
	if (is_cut_off(e) || sim_chance_ppm(s, net->opts.lose_ppm))
		return 0;
	if (other(e)->closed) {
		send_break(e, 0);
		return 0;
	}
	bool twice = sim_chance_ppm(s, net->opts.double_ppm);
	for (int i = 0; i <= (twice ? 1 : 0); i++) {
		struct packet *p = packet_of(tx, other(e));
		if (sim_chance_ppm(s, net->opts.corrupt_ppm))
			flip_bit(net, p);
		uint64_t d = delay(net);
		if (i == 1 && net->opts.double_late_us_max > 0)
			launch(p, d + sim_random_below(s, net->opts.double_late_us_max));
		else
			launch(p, sim_chance_ppm(s, net->opts.reorder_ppm) ? d : in_order(e, d));
	}
	if (sim_chance_ppm(s, net->opts.break_ppm)) {
		send_break(e, 0);
		send_break(other(e), 0);
	}
	/* Sometimes yields, as a socket with a full buffer makes its sender wait. */
	if (sim_random_below(s, 4) == 0)
		fiber_yield();
	return 0;
}

static int link_recv(struct link *k, struct link_rx *ret_rx)
{
	struct sim_end *e = end_of(k);
	struct frame_hdr *h = &ret_rx->hdr;

	if (e->current != NULL)
		packet_free(e->current);
	e->current = NULL;
	while (!e->shut && list_empty(&e->rx)) {
		if (e->eof)
			return -LE_DISCONNECTED;
		TRY(waitq_wait(&e->q, NO_DEADLINE));
	}
	if (e->shut)
		return -LE_DISCONNECTED;
	struct packet *p = e->current = list_entry(list_pop(&e->rx), struct packet, link);
	int rc = frame_decode(p->data, h);
	if (rc == 0 && (h->body_len != p->body_len || h->bulk_len != p->bulk_len || h->n_desc != 0))
		rc = -LE_BAD_HASH;
	if (rc == 0)
		rc = frame_check(p->data, h, NULL, p->data + FRAME_HEADER_SIZE);
	if (rc < 0)
		link_shutdown(k);
	ret_rx->body = p->data + FRAME_HEADER_SIZE;
	return rc;
}

static int link_recv_bulk(struct link *k, const struct link_rx *rx, const struct slot_vec *vec,
			  uint32_t n)
{
	struct sim_end *e = end_of(k);

	(void)rx;
	if (sim_random_below(e->conn->net->sim, 2) == 0)
		fiber_yield();
	if (e->shut)
		return -LE_DISCONNECTED;
	if (vec == NULL)
		return 0;
	const uint8_t *from = e->current->data + FRAME_HEADER_SIZE + e->current->body_len;
	uint32_t left = e->current->bulk_len;
	for (uint32_t i = 0; i < n && left > 0; i++) {
		uint32_t len = vec[i].len < left ? vec[i].len : left;
		memcpy(vec[i].slot->data + vec[i].off, from, len);
		from += len;
		left -= len;
	}
	return 0;
}

static void link_peer_name(struct link *k, char *buf, size_t size)
{
	snprintf(buf, size, "sim %s", end_of(k)->peer);
}

/* ---- listening ---- */

static struct sim_listener *find_listener(struct sim_net *net, const char *addr)
{
	list_for_each(pos, &net->listeners) {
		struct sim_listener *ls = list_entry(pos, struct sim_listener, link);
		if (strcmp(ls->addr, addr) == 0 && !ls->closed)
			return ls;
	}
	return NULL;
}

static int net_listen_sim(struct transport *t, struct loop *l, const char *addr,
			  struct listener **ret_listener, char *ret_addr)
{
	struct sim_net *net = net_of(t);
	const char *colon = strrchr(addr, ':');
	char text[NET_ADDR_TEXT_SIZE];

	if (colon == NULL || strlen(addr) + 6 > sizeof(text))
		return -LE_INVAL;
	snprintf(text, sizeof(text), "%s", addr);
	if (strcmp(colon, ":0") == 0)
		snprintf(text + (colon - addr), sizeof(text) - (size_t)(colon - addr), ":%u",
			 net->next_port++ % 10000);
	if (find_listener(net, text) != NULL)
		return -LE_ADDRINUSE;
	struct sim_listener *ls = calloc(1, sizeof(*ls));
	if (ls == NULL)
		return -LE_NOMEM;
	*ls = (struct sim_listener){ .magic = LISTENER_MAGIC,
				     .net = net,
				     .proc = sim_proc_of_env(loop_env(l)),
				     .loop = l,
				     .refs = 1 };
	memcpy(ls->addr, text, sizeof(text));
	waitq_init(&ls->q);
	list_push(&net->listeners, &ls->link);
	snprintf(ret_addr, NET_ADDR_TEXT_SIZE, "%s", text);
	*ret_listener = (struct listener *)ls;
	return 0;
}

static void listener_unref(struct sim_listener *ls)
{
	if (--ls->refs > 0)
		return;
	list_remove(&ls->link);
	ls->magic = 0;
	free(ls);
}

static int listener_accept(struct listener *listener, struct link **ret_link)
{
	struct sim_listener *ls = CAST_OBJ(listener, struct sim_listener, LISTENER_MAGIC);
	int rc = 0;

	ls->refs++;
	while (ls->n_backlog == 0 && !ls->closed && rc == 0)
		rc = waitq_wait(&ls->q, NO_DEADLINE);
	if (ls->closed) {
		rc = -LE_SHUTDOWN;
	} else if (rc == 0) {
		*ret_link = &ls->backlog[0]->base;
		memmove(ls->backlog, ls->backlog + 1, --ls->n_backlog * sizeof(ls->backlog[0]));
	}
	listener_unref(ls);
	return rc;
}

static void listener_close(struct listener *listener)
{
	struct sim_listener *ls = CAST_OBJ(listener, struct sim_listener, LISTENER_MAGIC);

	ls->closed = true;
	for (uint32_t i = 0; i < ls->n_backlog; i++)
		link_close(&ls->backlog[i]->base);
	ls->n_backlog = 0;
	waitq_wake_all(&ls->q);
	listener_unref(ls);
}

/* Runs in the listener's loop. */
static void arrive_at_listener(void *arg)
{
	struct sim_end *e = arg;
	struct sim_listener *ls = find_listener(e->conn->net, other(e)->peer);

	if (ls == NULL || ls->loop != e->loop || ls->n_backlog == ARRAY_SIZE(ls->backlog)) {
		link_close(&e->base);
		return;
	}
	ls->backlog[ls->n_backlog++] = e;
	waitq_wake_one(&ls->q);
}

/* ---- connecting ---- */

static void dial_unref(struct dial *d)
{
	if (--d->refs > 0)
		return;
	list_remove(&d->link);
	free(d);
}

/* Runs in the loop of the connecting side, with the result. */
static void dial_answer(void *arg)
{
	struct dial *d = arg;

	d->done = true;
	if (d->abandoned && d->end != NULL)
		link_close(&d->end->base);
	else if (!d->abandoned)
		waitq_wake_all(&d->q);
	dial_unref(d);
}

static void end_init(struct sim_end *e, struct sim_conn *c, struct sim_proc *proc, struct loop *l)
{
	e->base.ops = &sim_ops;
	e->magic = END_MAGIC;
	e->conn = c;
	e->proc = proc;
	e->loop = l;
	list_init(&e->rx);
	waitq_init(&e->q);
}

static struct sim_conn *conn_create(struct dial *d, struct sim_listener *ls)
{
	struct sim_conn *c = calloc(1, sizeof(*c));

	ASSERT(c != NULL);
	c->net = d->net;
	c->refs = 2;
	list_push(&d->net->conns, &c->link);
	end_init(&c->end[0], c, d->proc, d->loop);
	end_init(&c->end[1], c, ls->proc, ls->loop);
	snprintf(c->end[0].peer, sizeof(c->end[0].peer), "%s", ls->addr);
	snprintf(c->end[1].peer, sizeof(c->end[1].peer), "%s", sim_proc_name(d->proc));
	return c;
}

/* At the listening process, outside of loops. */
static void dial_arrive(void *arg)
{
	struct dial *d = arg;
	struct sim_net *net = d->net;
	struct sim_listener *ls = find_listener(net, d->addr);
	char name[NAME_MAX_LEN];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(d->addr, ":"), d->addr);
	bool here = sim_proc_alive(d->proc) && sim_proc_incarnation(d->proc) == d->incarnation;
	if (!here || d->abandoned || sim_chance_ppm(net->sim, net->opts.lose_ppm) ||
	    is_cut(net, sim_proc_name(d->proc), ls != NULL ? sim_proc_name(ls->proc) : name)) {
		dial_unref(d);
		return;
	}
	d->status = -LE_CONNREFUSED;
	if (ls != NULL) {
		struct sim_conn *c = conn_create(d, ls);
		d->status = 0;
		d->end = &c->end[0];
		if (sim_after(net->sim, 1, ls->loop, arrive_at_listener, &c->end[1]) < 0)
			d->status = -LE_NOMEM;
	}
	if (sim_after(net->sim, delay(net), d->loop, dial_answer, d) < 0)
		dial_unref(d);
}

static int net_connect_sim(struct transport *t, const char *addr, uint64_t deadline_us,
			   struct link **ret_link)
{
	struct sim_net *net = net_of(t);
	struct dial *d = calloc(1, sizeof(*d));
	int rc = 0;

	if (d == NULL)
		return -LE_NOMEM;
	d->net = net;
	d->loop = loop_self();
	d->proc = sim_proc_of_env(loop_env(d->loop));
	d->incarnation = sim_proc_incarnation(d->proc);
	d->refs = 2;
	waitq_init(&d->q);
	snprintf(d->addr, sizeof(d->addr), "%s", addr);
	list_push(&net->dials, &d->link);
	if (sim_after(net->sim, delay(net), NULL, dial_arrive, d) < 0) {
		d->refs = 1;
		dial_unref(d);
		return -LE_NOMEM;
	}
	while (!d->done && rc == 0)
		rc = waitq_wait(&d->q, deadline_us);
	d->abandoned = !d->done;
	if (d->done)
		rc = d->status;
	if (rc == 0)
		*ret_link = &d->end->base;
	dial_unref(d);
	return rc;
}

/* ---- the transport ---- */

static void on_crash(void *arg, struct sim_proc *p)
{
	struct sim_net *net = arg;

	list_for_each_safe(pos, &net->listeners) {
		struct sim_listener *ls = list_entry(pos, struct sim_listener, link);
		if (ls->proc != p)
			continue;
		/* The fiber in accept has vanished with its reference. */
		ls->refs = 1;
		listener_unref(ls);
	}
	list_for_each_safe(pos, &net->conns) {
		struct sim_conn *c = list_entry(pos, struct sim_conn, link);
		c->refs++;
		for (int i = 0; i < 2; i++) {
			struct sim_end *e = &c->end[i];
			if (e->proc != p || e->closed)
				continue;
			e->shut = true;
			/* In a connection of a process to itself the other end has crashed as
			 * well. */
			if (!is_cut_off(e) && other(e)->proc != p)
				send_break(other(e), 10 * delay(net));
			end_gone(e);
		}
		conn_unref(c);
	}
}

/* Not counted: simulated transfers have no cost. */
static void sim_stats(struct link *k, struct link_stats *ret_stats)
{
	(void)k;
	*ret_stats = (struct link_stats){ 0 };
}

static int sim_add_pool(struct transport *t, struct slot_pool *pool, enum pool_use use)
{
	(void)t, (void)pool, (void)use;
	return 0;
}

static void sim_net_destroy(struct transport *t)
{
	struct sim_net *net = net_of(t);
	struct list *n;

	list_for_each(pos, &net->conns) {
		struct sim_conn *c = list_entry(pos, struct sim_conn, link);
		c->refs++;
		purge(&c->end[0]);
		purge(&c->end[1]);
	}
	while ((n = net->packets.next) != &net->packets)
		packet_free(list_entry(n, struct packet, link));
	while ((n = list_pop(&net->conns)) != NULL)
		free(list_entry(n, struct sim_conn, link));
	while ((n = list_pop(&net->listeners)) != NULL)
		free(list_entry(n, struct sim_listener, link));
	while ((n = list_pop(&net->dials)) != NULL)
		free(list_entry(n, struct dial, link));
	while ((n = list_pop(&net->cuts)) != NULL)
		free(list_entry(n, struct cut, link));
	free(net);
}

static const struct transport_ops sim_ops = {
	.name = "sim",
	.listen = net_listen_sim,
	.accept = listener_accept,
	.listener_close = listener_close,
	.connect = net_connect_sim,
	.send = link_send,
	.recv = link_recv,
	.recv_bulk = link_recv_bulk,
	.shutdown = link_shutdown,
	.close = link_close,
	.peer_name = link_peer_name,
	.stats = sim_stats,
	.add_pool = sim_add_pool,
	.destroy = sim_net_destroy,
};

void transport_sim_set_options(struct transport *t, const struct transport_sim_options *opts)
{
	struct sim_net *net = net_of(t);

	net->opts = *opts;
	if (net->opts.delay_us_max == 0)
		net->opts.delay_us_max = 300;
}

void transport_sim_partition(struct transport *t, const char *a, const char *b, bool cut)
{
	struct sim_net *net = net_of(t);

	if (cut && !is_cut(net, a, b)) {
		struct cut *c = calloc(1, sizeof(*c));
		ASSERT(c != NULL);
		snprintf(c->a, sizeof(c->a), "%s", a);
		snprintf(c->b, sizeof(c->b), "%s", b);
		list_push(&net->cuts, &c->link);
	}
	if (cut)
		return;
	list_for_each_safe(pos, &net->cuts) {
		struct cut *c = list_entry(pos, struct cut, link);
		if ((strcmp(c->a, a) == 0 && strcmp(c->b, b) == 0) ||
		    (strcmp(c->a, b) == 0 && strcmp(c->b, a) == 0)) {
			list_remove(&c->link);
			free(c);
		}
	}
}

int transport_sim_create(struct sim *s, const struct transport_sim_options *opts,
			 struct transport **ret_transport)
{
	struct sim_net *net = calloc(1, sizeof(*net));
	static const struct transport_sim_options none;

	if (net == NULL)
		return -LE_NOMEM;
	net->base.ops = &sim_ops;
	net->magic = NET_MAGIC;
	net->sim = s;
	net->next_port = 7440;
	list_init(&net->listeners);
	list_init(&net->conns);
	list_init(&net->dials);
	list_init(&net->cuts);
	list_init(&net->packets);
	transport_sim_set_options(&net->base, opts != NULL ? opts : &none);
	sim_on_crash(s, on_crash, net);
	*ret_transport = &net->base;
	return 0;
}
