/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over RDMA: connections by the RDMA connection manager (RoCE, InfiniBand, iWARP), and the
 * table of operations. Queue pairs, credits and frames are in verbs_link.c and verbs_send.c,
 * completions in verbs_loop.c, devices and memory in verbs_device.c.
 *
 * Connecting: resolve the address (which selects the device), resolve the route, make a queue pair,
 * connect, exchange a message of maximum size both ways. Both sides send a few limits in the
 * private data of the request and the answer (struct hello): the size and number of their receive
 * buffers. Keys of memory are sent in requests only, which rpc sends after the handshake has
 * authenticated the server.
 *
 * What an unauthenticated peer can consume is bounded: connection requests by PENDING_MAX and by
 * the queue pairs of the device, its messages by its credits.
 *
 * The loop itself reads the events of the connection manager; this file has no fiber.
 */
#include "common/rpc/verbs/transport_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/proto/wire.h"
#include "common/rpc/verbs/verbs_device.h"
#include "common/rpc/verbs/verbs_user_memory.h"
#include "common/rpc/verbs/verbs_link.h"
#include "common/rpc/verbs/verbs_loop.h"
#include "common/rpc/verbs/verbs_probe.h"
#include "common/rpc/verbs/verbs_region.h"
#include "common/rpc/verbs/verbs_send.h"
#include "common/rt/resolve.h"

#define HELLO_MAGIC 0x4256454cu /* "LEVB" */
#define HELLO_VERSION 2u
#define HELLO_SIZE 24u
#define RESOLVE_MS 2000
#define PENDING_MAX 256u
#define READY_MAX 1024u
#define RECV_SIZE_MIN 1024u
#define RECV_SIZE_MAX (1u << 20)

/* Sent in the private data, of which all fabrics carry 56 bytes. */
#define hello_FIELDS(F) \
	F(u32, magic) F(u32, version) F(i32, status) F(u32, recv_size) F(u32, credits) F(u32, reads)
WIRE_STRUCT(hello)
WIRE_DEFINE_MESSAGE(hello)

static struct verbs *verbs_of(struct transport *t)
{
	struct verbs *v = container_of(t, struct verbs, base);

	ASSERT(v->magic == VERBS_MAGIC);
	return v;
}

/* ---- private data ---- */

static void put_hello(const struct verbs_device *dev, int status, uint8_t out[HELLO_SIZE])
{
	struct hello h = { .magic = HELLO_MAGIC, .version = HELLO_VERSION, .status = status };
	struct wire_w w;

	if (dev != NULL) {
		h.recv_size = dev->v->opts.recv_size;
		h.credits = dev->credits;
		h.reads = dev->reads;
	}
	wire_w_init(&w, out, HELLO_SIZE);
	wire_put_hello(&w, &h);
	ASSERT(w.status == 0);
}

static int get_hello(const void *data, uint32_t len, struct hello *ret_hello)
{
	struct wire_r r;

	wire_r_init(&r, data, data != NULL ? len : 0);
	wire_get_hello(&r, ret_hello);
	if (r.status < 0 || ret_hello->magic != HELLO_MAGIC)
		return -LE_BAD_MESSAGE;
	return ret_hello->version == HELLO_VERSION ? 0 : -LE_VERSION;
}

/* Adopts the limits of the peer for the link. */
static int take_hello(struct verbs_link *k, const struct hello *h)
{
	uint32_t size = k->vl->v->opts.recv_size;

	if (size > h->recv_size)
		size = h->recv_size;
	if (h->recv_size < RECV_SIZE_MIN || h->recv_size > RECV_SIZE_MAX ||
	    h->credits < VERBS_CREDITS_MIN || h->credits > UINT16_MAX)
		return -LE_BAD_MESSAGE;
	k->piece = size - (uint32_t)sizeof(struct verbs_head);
	k->credits = k->credits_max = h->credits;
	return 0;
}

static struct rdma_conn_param conn_param(const struct verbs_device *dev, const uint8_t *hello)
{
	return (struct rdma_conn_param){
		.private_data = hello,
		.private_data_len = HELLO_SIZE,
		.responder_resources = (uint8_t)dev->serve_reads,
		.initiator_depth = (uint8_t)dev->reads,
		.flow_control = 1,
		.retry_count = 7,
		/* For ever: a sender with credits finds a buffer. */
		.rnr_retry_count = 7,
	};
}

static void set_timeout(struct verbs_link *k)
{
	uint8_t t = (uint8_t)k->vl->v->opts.ack_timeout;

	/* If it cannot be set, the default of the fabric applies. */
	(void)rdma_set_option(k->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &t, sizeof(t));
}

/* ---- listening ---- */

static void say_rejected(struct verbs *v, struct rdma_cm_id *id, int status)
{
	const struct sockaddr *sa = rdma_get_peer_addr(id);
	char peer[INET6_ADDRSTRLEN] = "?";

	if (!verbs_may_log(v, TROUBLE_PEER))
		return;
	if (sa->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr,
			  peer, sizeof(peer));
	else
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, peer,
			  sizeof(peer));
	log_warn("verbs: refused a connection from %s: %s (%s)", peer, status_text(status),
		 status_name(status));
}

static void reject(struct verbs_listener *ls, struct rdma_cm_id *id, int status)
{
	uint8_t hello[HELLO_SIZE];

	say_rejected(ls->vl->v, id, status);

	put_hello(NULL, status, hello);
	(void)rdma_reject(id, hello, sizeof(hello));
	rdma_destroy_id(id);
}

static void keep_peer(struct verbs_link *k)
{
	const struct sockaddr *sa = rdma_get_peer_addr(k->id);

	memset(&k->peer, 0, sizeof(k->peer));
	if (sa->sa_family == AF_INET6)
		memcpy(&k->peer.in6, sa, sizeof(k->peer.in6));
	else
		memcpy(&k->peer.in, sa, sizeof(k->peer.in));
}

static int answer(struct verbs_listener *ls, struct verbs_link *k, struct rdma_conn_param *wish,
		  const struct hello *h)
{
	uint8_t hello[HELLO_SIZE];

	TRY(take_hello(k, h));
	set_timeout(k);
	TRY(verbs_link_queue_pair(k));
	put_hello(k->dev, 0, hello);
	struct rdma_conn_param p = conn_param(k->dev, hello);
	/* READs in flight each way: as many as both sides support. */
	if (p.initiator_depth > wish->initiator_depth)
		p.initiator_depth = wish->initiator_depth;
	if (p.responder_resources > wish->responder_resources)
		p.responder_resources = wish->responder_resources;
	if (rdma_accept(k->id, &p) != 0)
		return status_from_errno(errno);
	k->listener = ls;
	ls->n_pending++;
	return 0;
}

/* Handles a connection request; id is new and owned by this side. */
static void requested(struct verbs_listener *ls, struct rdma_cm_id *id,
		      struct rdma_conn_param *wish, const uint8_t *data)
{
	struct verbs_link *k;
	struct hello h;

	if (ls->closed || ls->n_pending >= PENDING_MAX || ls->n_ready >= READY_MAX) {
		reject(ls, id, -LE_OVERLOAD);
		return;
	}
	int rc = get_hello(data, wish->private_data_len, &h);
	if (rc == 0)
		rc = verbs_link_create(ls->vl, id, &k);
	if (rc < 0) {
		reject(ls, id, rc);
		return;
	}
	keep_peer(k);
	k->accepted = true;
	rc = answer(ls, k, wish, &h);
	if (rc < 0) {
		uint8_t hello[HELLO_SIZE];
		say_rejected(ls->vl->v, id, rc);
		put_hello(NULL, rc, hello);
		(void)rdma_reject(id, hello, sizeof(hello));
		verbs_link_end_qp(k);
		verbs_link_free(k);
	}
}

static void listener_unref(struct verbs_listener *ls)
{
	if (--ls->refs > 0)
		return;
	ls->magic = 0;
	free(ls);
}

static struct verbs_listener *listener_of(struct listener *l)
{
	return CAST_OBJ(l, struct verbs_listener, VERBS_LISTENER_MAGIC);
}

/* Ends the pending state of an accepted connection, whether it is established or has failed. */
static void no_more_pending(struct verbs_link *k)
{
	struct verbs_listener *ls = k->listener;

	if (ls == NULL)
		return;
	k->listener = NULL;
	ls->n_pending--;
}

static void arrived(struct verbs_link *k)
{
	struct verbs_listener *ls = k->listener;

	no_more_pending(k);
	k->established = true;
	if (ls == NULL)
		return;
	list_push(&ls->ready, &k->ready);
	ls->n_ready++;
	waitq_wake_one(&ls->q);
}

/* ---- connecting ---- */

static void complain(struct verbs_link *k, const struct rdma_cm_event *e, const char *what,
		     const char *hint)
{
	char peer[NET_ADDR_TEXT_SIZE];

	net_addr_format(&k->peer, peer);
	if (verbs_may_log(k->vl->v, e->event == RDMA_CM_EVENT_ADDR_ERROR ? TROUBLE_ADDR
									   : TROUBLE_ROUTE))
		log_warn("verbs: %s: %s (%s): %s", peer, what,
			 e->status < 0 ? strerror(-e->status) : "refused", hint);
}

static int rejected(const struct rdma_cm_event *e)
{
	struct hello h;
	int rc = get_hello(e->param.conn.private_data, e->param.conn.private_data_len, &h);

	if (rc == 0 && h.status < 0)
		return h.status;
	return rc == -LE_VERSION ? rc : -LE_CONNREFUSED;
}

static int connected(struct verbs_link *k, const struct rdma_cm_event *e)
{
	struct hello h;

	TRY(get_hello(e->param.conn.private_data, e->param.conn.private_data_len, &h));
	TRY(take_hello(k, &h));
	k->established = true;
	return 0;
}

static void step_done(struct verbs_link *k, int status)
{
	k->cm_done = true;
	k->cm_status = status;
	waitq_wake_all(&k->cm);
}

static void connecting_event(struct verbs_link *k, const struct rdma_cm_event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		step_done(k, 0);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		step_done(k, connected(k, e));
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		complain(k, e, "no RDMA device reaches this address",
			 "`rdma link` shows devices and their networks, `ip route get` the way");
		step_done(k, e->status == -ENODEV ? -LE_NODEV : -LE_HOSTUNREACH);
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		complain(k, e, "no route for RDMA",
			 "InfiniBand needs a subnet manager, RoCE a GID of this address "
			 "(`rdma link`, /sys/class/infiniband/*/ports/1/gids)");
		step_done(k, -LE_HOSTUNREACH);
		break;
	case RDMA_CM_EVENT_REJECTED:
		step_done(k, rejected(e));
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
		step_done(k, -LE_HOSTUNREACH);
		break;
	default:
		complain(k, e, "the connection cannot be made",
			 "the MTU (`ibv_devinfo`) and the RoCE version have to be the same on both "
			 "sides");
		step_done(k, -LE_DISCONNECTED);
	}
}

static int wait_step(struct verbs_link *k, int err, uint64_t deadline_us)
{
	if (err != 0)
		return status_from_errno(errno);
	while (!k->cm_done)
		TRY(waitq_wait(&k->cm, deadline_us));
	k->cm_done = false;
	return k->cm_status;
}

/* Exchanges messages of maximum size. The connection manager's messages are small: their arrival
 * proves nothing about the MTU. */
static int try_way(struct verbs_link *k, uint64_t deadline_us)
{
	char peer[NET_ADDR_TEXT_SIZE];
	int rc = 0;

	while (rc == 0 && !k->eof && !verbs_link_try(k))
		rc = waitq_wait(&k->group->tx_space, deadline_us);
	while (rc == 0 && !k->eof && !k->tried)
		rc = waitq_wait(&k->cm, deadline_us);
	if (k->tried)
		return k->eof ? -LE_DISCONNECTED : 0;
	if ((rc == 0 || rc == -LE_TIMEDOUT) && verbs_may_log(k->vl->v, TROUBLE_WAY)) {
		net_addr_format(&k->peer, peer);
		log_warn("verbs: %s %s: connected, but a message of %u bytes does not come through "
			 "(%s)",
			 k->stats.device, peer, k->piece, VERBS_WAY_HINT);
	}
	return rc < 0 ? rc : -LE_DISCONNECTED;
}

static int dial(struct verbs_link *k, uint64_t deadline_us)
{
	uint8_t hello[HELLO_SIZE];

	TRY(wait_step(k, rdma_resolve_addr(k->id, NULL, &k->peer.sa, RESOLVE_MS), deadline_us));
	set_timeout(k);
	TRY(wait_step(k, rdma_resolve_route(k->id, RESOLVE_MS), deadline_us));
	TRY(verbs_link_queue_pair(k));
	put_hello(k->dev, 0, hello);
	struct rdma_conn_param p = conn_param(k->dev, hello);
	TRY(wait_step(k, rdma_connect(k->id, &p), deadline_us));
	return try_way(k, deadline_us);
}

static int verbs_connect(struct transport *t, const char *addr, uint64_t deadline_us,
			 struct link **ret_link)
{
	struct verbs *v = verbs_of(t);
	struct net_addr peer;
	struct verbs_loop *vl;
	struct verbs_link *k;
	struct rdma_cm_id *id;

	TRY(net_resolve(addr, deadline_us, &peer));
	TRY(verbs_loop_get(v, &vl));
	if (rdma_create_id(vl->events, &id, NULL, RDMA_PS_TCP) != 0)
		return status_from_errno(errno);
	int rc = verbs_link_create(vl, id, &k);
	if (rc < 0) {
		rdma_destroy_id(id);
		return rc;
	}
	k->peer = peer;
	rc = dial(k, deadline_us);
	if (rc < 0) {
		verbs_link_end_qp(k);
		verbs_link_free(k);
		return rc;
	}
	*ret_link = &k->base;
	return 0;
}

/* ---- events ---- */

static void drop_unborn(struct verbs_link *k)
{
	no_more_pending(k);
	verbs_link_end_qp(k);
	verbs_link_free(k);
}

/* An error detected just before is the more precise reason. */
static void disconnected(struct verbs_link *k)
{
	if (!list_empty(&k->doomed))
		verbs_link_break(k, k->reason, k->reason_status);
	else
		verbs_link_break(k, "ended by the peer or the device without notice",
				 -LE_DISCONNECTED);
}

static void link_event(struct verbs_link *k, const struct rdma_cm_event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_DISCONNECTED:
		/* Frames that it sent before are in the queue: handle them first. */
		if (k->group != NULL)
			verbs_group_poll(k->group);
		if (k->listener != NULL)
			drop_unborn(k);
		else
			disconnected(k);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		log_error("verbs: device %s is removed", k->stats.device);
		if (k->dev != NULL)
			atomic_store(&k->dev->gone, true);
		verbs_link_doom(k, "the device is removed", -LE_DISCONNECTED);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		break;
	default:
		if (k->listener == NULL)
			connecting_event(k, e);
		else if (e->event == RDMA_CM_EVENT_ESTABLISHED)
			arrived(k);
		else
			drop_unborn(k);
	}
}

static void events_ready(struct loop_watch *w)
{
	struct verbs_loop *vl = container_of(w, struct verbs_loop, watch);
	struct rdma_cm_event *e;
	uint8_t data[256];

	/* Each event may end the last link, and with it the watch. */
	while (w->internal != NULL && rdma_get_cm_event(vl->events, &e) == 0) {
		struct rdma_cm_event copy = *e;
		uint8_t len = e->param.conn.private_data_len;

		memset(data, 0, sizeof(data));
		if (e->param.conn.private_data != NULL && len > 0)
			memcpy(data, e->param.conn.private_data, len);
		else
			copy.param.conn.private_data_len = 0;
		copy.param.conn.private_data = data;
		/* An id cannot be destroyed while one of its events is not acknowledged. */
		rdma_ack_cm_event(e);
		if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			requested(container_of((uint32_t *)copy.listen_id->context,
					       struct verbs_listener, magic),
				  copy.id, &copy.param.conn, data);
		else if (*(uint32_t *)copy.id->context == VERBS_LINK_MAGIC)
			link_event(container_of((uint32_t *)copy.id->context, struct verbs_link,
						magic),
				   &copy);
	}
}

/* ---- the table ---- */

static void listener_text(const struct verbs_listener *ls, char *ret_addr)
{
	const struct sockaddr *sa = rdma_get_local_addr(ls->id);
	struct net_addr a = { 0 };

	if (sa->sa_family == AF_INET6)
		memcpy(&a.in6, sa, sizeof(a.in6));
	else
		memcpy(&a.in, sa, sizeof(a.in));
	/* The port is at the same offset in both address types. */
	a.in.sin_port = rdma_get_src_port(ls->id);
	net_addr_format(&a, ret_addr);
}

static int bind_and_listen(struct verbs_listener *ls, struct net_addr *a)
{
	struct verbs *v = ls->vl->v;
	struct verbs_device *dev;

	if (rdma_bind_addr(ls->id, &a->sa) != 0 || rdma_listen(ls->id, 1024) != 0) {
		int err = errno;
		char text[NET_ADDR_TEXT_SIZE];
		net_addr_format(a, text);
		log_error("verbs: cannot listen on %s: %s%s", text, strerror(err),
			  err == ENODEV || err == EADDRNOTAVAIL
				  ? " (`rdma link` shows the devices and their networks)"
				  : "");
		return status_from_errno(err);
	}
	/* Register memory now, which is slow, rather than for the first client. */
	if (ls->id->verbs != NULL)
		return verbs_device_get(v, ls->id->verbs, &dev);
	return verbs_device_all(v);
}

static int verbs_listen(struct transport *t, struct loop *l, const char *addr,
			struct listener **ret_listener, char *ret_addr)
{
	struct verbs_listener *ls;
	struct verbs_loop *vl;
	struct net_addr a;

	(void)l;
	TRY(net_addr_parse(addr, &a));
	TRY(verbs_loop_get(verbs_of(t), &vl));
	TRY(verbs_loop_use(vl));
	ls = calloc(1, sizeof(*ls));
	int rc = ls == NULL ? -LE_NOMEM : 0;
	if (rc == 0) {
		ls->magic = VERBS_LISTENER_MAGIC;
		ls->vl = vl;
		ls->refs = 1;
		list_init(&ls->ready);
		waitq_init(&ls->q);
		if (rdma_create_id(vl->events, &ls->id, &ls->magic, RDMA_PS_TCP) != 0)
			rc = status_from_errno(errno);
	}
	if (rc == 0) {
		rc = bind_and_listen(ls, &a);
		if (rc < 0)
			rdma_destroy_id(ls->id);
	}
	if (rc < 0) {
		free(ls);
		verbs_loop_unuse(vl);
		return rc;
	}
	listener_text(ls, ret_addr);
	*ret_listener = (struct listener *)ls;
	return 0;
}

static int verbs_accept(struct listener *listener, struct link **ret_link)
{
	struct verbs_listener *ls = listener_of(listener);
	int rc = 0;

	ls->refs++;
	while (ls->n_ready == 0 && !ls->closed && rc == 0)
		rc = waitq_wait(&ls->q, NO_DEADLINE);
	if (ls->closed) {
		rc = -LE_SHUTDOWN;
	} else if (rc == 0) {
		*ret_link = &container_of(list_pop(&ls->ready), struct verbs_link, ready)->base;
		ls->n_ready--;
	}
	listener_unref(ls);
	return rc;
}

static struct verbs_link *any_pending(const struct verbs_listener *ls)
{
	list_for_each(n, &ls->vl->groups) {
		struct verbs_group *g = container_of(n, struct verbs_group, link);

		for (uint32_t i = 0; i < g->links_max; i++)
			if (g->links[i] != NULL && g->links[i]->listener == ls)
				return g->links[i];
	}
	return NULL;
}

static void verbs_close(struct link *base);

static void verbs_listener_close(struct listener *listener)
{
	struct verbs_listener *ls = listener_of(listener);
	struct verbs_loop *vl = ls->vl;
	struct verbs_link *k;
	struct list *n;

	ls->closed = true;
	while ((k = any_pending(ls)) != NULL)
		drop_unborn(k);
	while ((n = list_pop(&ls->ready)) != NULL)
		verbs_close(&container_of(n, struct verbs_link, ready)->base);
	rdma_destroy_id(ls->id);
	waitq_wake_all(&ls->q);
	listener_unref(ls);
	verbs_loop_unuse(vl);
}

static void verbs_shutdown(struct link *base)
{
	verbs_link_shutdown(verbs_link_of(base));
}

static void verbs_sever(struct link *base)
{
	struct verbs_link *k = verbs_link_of(base);

	k->dead = true;
	verbs_link_end_qp(k);
}

/* Sends a request that the peer's device must acknowledge. If the peer's device lost its
 * connections, the notice of that may be lost too. Everything sent before was acknowledged, so only
 * the retries of something new detect it. */
static void verbs_probe(struct link *base)
{
	verbs_link_probe(verbs_link_of(base));
}

static void verbs_close(struct link *base)
{
	struct verbs_link *k = verbs_link_of(base);

	verbs_link_shutdown(k);
	/* If its last messages are still in flight, the link is freed after them. */
	if (k->qp != NULL)
		k->detached = true;
	else
		verbs_link_free(k);
}

static void verbs_peer_name(struct link *base, char *buf, size_t size)
{
	struct verbs_link *k = verbs_link_of(base);
	char text[NET_ADDR_TEXT_SIZE];

	net_addr_format(&k->peer, text);
	snprintf(buf, size, "verbs %s %s", k->stats.device, text);
}

static void verbs_stats(struct link *base, struct link_stats *ret_stats)
{
	struct verbs_link *k = verbs_link_of(base);

	*ret_stats = k->stats;
	ret_stats->wakeups = k->vl->wakeups;
}

static int verbs_add_pool(struct transport *t, struct slot_pool *pool, enum pool_use use)
{
	return verbs_pool_add(verbs_of(t), pool, use);
}

static int verbs_register_memory(struct transport *t, void *base, uint64_t len,
			     struct user_memory **ret_memory)
{
	return verbs_register_user(verbs_of(t), base, len, ret_memory);
}

static void verbs_unregister_memory(struct transport *t, struct user_memory *m)
{
	verbs_unregister_user(verbs_of(t), m);
}

static bool verbs_memory_lands(struct transport *t, const void *base, uint64_t len)
{
	return verbs_lands(verbs_of(t), base, len);
}

static void verbs_resources(struct transport *t, struct transport_resources *ret)
{
	struct verbs *v = verbs_of(t);

	pthread_mutex_lock(&v->lock);
	for (uint32_t i = 0; i < v->n_devices; i++) {
		const struct verbs_device *dev = v->devices[i];

		ret->queue_pairs += dev->n_qps;
		ret->completion_queues += dev->n_cqs;
		ret->regions += dev->n_mrs;
		ret->registered_bytes += dev->mr_bytes;
	}
	pthread_mutex_unlock(&v->lock);
}

static void verbs_destroy(struct transport *t)
{
	struct verbs *v = verbs_of(t);
	struct list *n;

	while ((n = v->loops.next) != &v->loops)
		verbs_loop_free(container_of(n, struct verbs_loop, link));
	verbs_pools_free(v);
	for (uint32_t i = 0; i < v->n_devices; i++)
		verbs_device_close(v->devices[i]);
	pthread_mutex_destroy(&v->lock);
	v->magic = 0;
	free(v->names);
	free(v);
}

static const struct transport_ops verbs_ops = {
	.name = "verbs",
	.bulk_apart = true,
	.listen = verbs_listen,
	.accept = verbs_accept,
	.listener_close = verbs_listener_close,
	.connect = verbs_connect,
	.send = verbs_send,
	.recv = verbs_recv,
	.recv_bulk = verbs_recv_bulk,
	.shutdown = verbs_shutdown,
	.sever = verbs_sever,
	.probe = verbs_probe,
	.close = verbs_close,
	.peer_name = verbs_peer_name,
	.stats = verbs_stats,
	.add_pool = verbs_add_pool,
	.register_memory = verbs_register_memory,
	.unregister_memory = verbs_unregister_memory,
	.lands = verbs_memory_lands,
	.resources = verbs_resources,
	.destroy = verbs_destroy,
};

static void set_defaults(struct transport_verbs_options *o)
{
	if (o->recv_size == 0)
		o->recv_size = 8192;
	if (o->recv_size < RECV_SIZE_MIN)
		o->recv_size = RECV_SIZE_MIN;
	if (o->recv_size > RECV_SIZE_MAX)
		o->recv_size = RECV_SIZE_MAX;
	if (o->credits > 1024)
		o->credits = 1024;
	if (o->wrs_max > 4096)
		o->wrs_max = 4096;
	if (o->ack_timeout == 0 || o->ack_timeout > 31)
		o->ack_timeout = 16;
	if (o->keepalive_ms == 0)
		o->keepalive_ms = 10000;
}

int transport_verbs_create(const struct transport_verbs_options *opts,
			   struct transport **ret_transport)
{
	char text[256];
	struct verbs *v;

	if (!transport_verbs_available(text, sizeof(text))) {
		log_error("verbs: %s", text);
		return -LE_NODEV;
	}
	v = calloc(1, sizeof(*v));
	if (v == NULL)
		return -LE_NOMEM;
	v->base.ops = &verbs_ops;
	v->magic = VERBS_MAGIC;
	v->events_ready = events_ready;
	if (opts != NULL)
		v->opts = *opts;
	set_defaults(&v->opts);
	if (v->opts.devices != NULL && (v->names = strdup(v->opts.devices)) == NULL) {
		free(v);
		return -LE_NOMEM;
	}
	v->opts.devices = NULL;
	pthread_mutex_init(&v->lock, NULL);
	list_init(&v->pools);
	list_init(&v->user_memory);
	list_init(&v->loops);
	*ret_transport = &v->base;
	return 0;
}
