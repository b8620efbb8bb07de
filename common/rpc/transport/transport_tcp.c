/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over TCP.
 *
 * Receiving: small reads fill a buffer of the link, so that one system call receives many small
 * frames; a frame is used in place. Bulk data that was not read yet is received directly into its
 * final place. Data that has arrived is read without waiting, so a peer that sends as fast as this
 * side reads would monopolize the loop: after TURN_BYTES the reader yields to the other fibers.
 *
 * Sending: each frame is an item in the link's queue, on the stack of the fiber that sends it. The
 * fiber of the first item leads: it yields once so that other ready fibers add their frames (which
 * costs nothing if none is ready), and sends all with one sendmsg. sendmsg never blocks here and
 * copies immediately, so a fiber that gives up while it waits leaves no buffer in use; if its frame
 * is partly sent, the link is broken.
 */
#include "common/rpc/transport/transport_tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/rt/net.h"
#include "common/rt/resolve.h"

#define RX_SIZE (16u << 10)
#define TX_IOVS 128
/* A frame up to this size waits for the other frames of this turn. */
#define TX_GATHER_MAX (32u << 10)
#define TURN_BYTES (64u << 10)

#define LINK_MAGIC 0x54435031u
struct tcp_link {
	struct link base;
	uint32_t magic;
	int fd;
	bool dead;
	struct net_addr peer;
	struct link_stats stats;

	struct list queue; /* of tx_item: the first one may be partly sent */
	bool leading;      /* a fiber leads the queue */

	uint8_t *big; /* body of a frame larger than rx */
	uint32_t big_size, big_idle;
	uint32_t start, end; /* unused bytes in rx */
	uint64_t taken;      /* bytes received since the reader last yielded */
	uint8_t rx[RX_SIZE];
};

struct tx_item {
	struct list link;
	struct fiber *fiber;
	const struct link_tx *tx;
	uint64_t len, sent, begun_us; /* begun: when `sent` became positive */
	bool lead, done;
	uint8_t header[FRAME_HEADER_SIZE];
};

struct tcp_listener {
	uint32_t magic;
	int fd;
	uint32_t refs; /* the owner and each fiber in accept */
	bool closed;
};
#define LISTENER_MAGIC 0x54435032u

/* Discarded bytes are received into this buffer. */
static _Thread_local uint8_t discard_buf[RX_SIZE];

static const struct transport_ops tcp_ops;

static struct tcp_link *link_of(struct link *k)
{
	return CAST_OBJ(k, struct tcp_link, LINK_MAGIC);
}

/* A peer that vanishes silently is detected within half a minute. */
static void set_keepalive(int fd)
{
	const int one = 1, idle_s = 10, interval_s = 5, probes = 3, unacked_ms = 20000;

	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
}

static int link_create(int fd, const struct net_addr *peer, struct link **ret_link)
{
	struct tcp_link *k = malloc(sizeof(*k));

	if (k == NULL) {
		net_close(fd);
		return -LE_NOMEM;
	}
	memset(k, 0, offsetof(struct tcp_link, rx));
	k->base.ops = &tcp_ops;
	k->magic = LINK_MAGIC;
	k->fd = fd;
	k->peer = *peer;
	list_init(&k->queue);
	set_keepalive(fd);
	*ret_link = &k->base;
	return 0;
}

static void tcp_shutdown(struct link *base)
{
	struct tcp_link *k = link_of(base);

	if (k->dead)
		return;
	k->dead = true;
	net_shutdown(k->fd);
	/* The leader waits for the socket: the shutdown wakes it. */
	list_for_each(pos, &k->queue) {
		struct tx_item *it = list_entry(pos, struct tx_item, link);
		if (!it->lead)
			fiber_wake(it->fiber);
	}
}

static void tcp_close(struct link *base)
{
	struct tcp_link *k = link_of(base);

	ASSERT(list_empty(&k->queue));
	net_close(k->fd);
	free(k->big);
	k->magic = 0;
	free(k);
}

/* ---- receiving ---- */

static int broken(struct tcp_link *k, int status)
{
	tcp_shutdown(&k->base);
	return status;
}

/* Receives until rx has at least `need` bytes. */
static int fill(struct tcp_link *k, uint32_t need)
{
	if (k->start == k->end)
		k->start = k->end = 0;
	if (k->start + need > RX_SIZE) {
		memmove(k->rx, k->rx + k->start, k->end - k->start);
		k->end -= k->start;
		k->start = 0;
	}
	while (k->end - k->start < need) {
		if (k->dead)
			return -LE_DISCONNECTED;
		int64_t n = net_recv(k->fd, k->rx + k->end, RX_SIZE - k->end, NO_DEADLINE);
		if (n == -LE_INTR)
			return -LE_INTR;
		if (n <= 0)
			return broken(k, -LE_DISCONNECTED);
		k->end += (uint32_t)n;
		k->taken += (uint64_t)n;
	}
	return 0;
}

static int receive_all(struct tcp_link *k, struct iovec *iov, int n)
{
	if (k->dead)
		return -LE_DISCONNECTED;
	for (int i = 0; i < n; i++)
		k->taken += iov[i].iov_len;
	if (net_recv_all(k->fd, iov, n, NO_DEADLINE) < 0)
		return broken(k, -LE_DISCONNECTED);
	return 0;
}

/* Receives the descriptors and body of a frame that does not fit into rx; the caller has consumed
 * its header. */
static int recv_big(struct tcp_link *k, uint32_t size, const uint8_t **ret_data)
{
	if (k->big_size < size) {
		free(k->big);
		k->big_size = 0;
		k->big = malloc(size);
		if (k->big == NULL)
			return broken(k, -LE_NOMEM);
		k->big_size = size;
	}
	uint32_t have = k->end - k->start;
	if (have > size)
		have = size;
	memcpy(k->big, k->rx + k->start, have);
	k->start += have;
	if (have < size) {
		struct iovec iov = { k->big + have, size - have };
		TRY(receive_all(k, &iov, 1));
	}
	k->big_idle = 0;
	*ret_data = k->big;
	return 0;
}

static int tcp_recv(struct link *base, struct link_rx *ret_rx)
{
	struct tcp_link *k = link_of(base);
	struct frame_hdr *h = &ret_rx->hdr;
	uint8_t header[FRAME_HEADER_SIZE];
	const uint8_t *data;

	if (k->taken >= TURN_BYTES) {
		k->taken = 0;
		fiber_yield();
	}
	TRY(fill(k, FRAME_HEADER_SIZE));
	int rc = frame_decode(k->rx + k->start, h);
	if (rc < 0)
		return broken(k, rc);
	uint32_t desc_len = h->n_desc * FRAME_DESC_SIZE;
	uint32_t size = desc_len + h->body_len;
	if (FRAME_HEADER_SIZE + size <= RX_SIZE) {
		TRY(fill(k, FRAME_HEADER_SIZE + size));
		memcpy(header, k->rx + k->start, FRAME_HEADER_SIZE);
		data = k->rx + k->start + FRAME_HEADER_SIZE;
		k->start += FRAME_HEADER_SIZE + size;
		if (k->big != NULL && ++k->big_idle >= TRANSPORT_BIG_KEEP) {
			free(k->big);
			k->big = NULL;
			k->big_size = 0;
		}
	} else {
		memcpy(header, k->rx + k->start, FRAME_HEADER_SIZE);
		k->start += FRAME_HEADER_SIZE;
		TRY(recv_big(k, size, &data));
	}
	memcpy(ret_rx->descs, data, desc_len);
	ret_rx->body = data + desc_len;
	k->stats.frames_in++;
	rc = frame_check(header, h, ret_rx->descs, ret_rx->body);
	return rc < 0 ? broken(k, rc) : 0;
}

static int skip_bulk(struct tcp_link *k, uint32_t len)
{
	uint32_t have = k->end - k->start;

	if (have > len)
		have = len;
	k->start += have;
	len -= have;
	while (len > 0) {
		struct iovec iov = { discard_buf, len < RX_SIZE ? len : RX_SIZE };
		len -= (uint32_t)iov.iov_len;
		TRY(receive_all(k, &iov, 1));
	}
	return 0;
}

static int tcp_recv_bulk(struct link *base, const struct link_rx *rx, const struct slot_vec *vec,
			 uint32_t n)
{
	struct tcp_link *k = link_of(base);
	struct iovec iov[TX_IOVS];
	int n_iov = 0;

	if (vec == NULL)
		return skip_bulk(k, rx->hdr.bulk_len);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *to = vec[i].slot->data + vec[i].off;
		uint32_t len = vec[i].len, have = k->end - k->start;
		if (have > len)
			have = len;
		memcpy(to, k->rx + k->start, have);
		k->start += have;
		k->stats.bulk_in += len;
		k->stats.bytes_copied += have;
		if (have == len)
			continue;
		iov[n_iov++] = (struct iovec){ to + have, len - have };
		if (n_iov == TX_IOVS) {
			TRY(receive_all(k, iov, n_iov));
			n_iov = 0;
		}
	}
	return n_iov > 0 ? receive_all(k, iov, n_iov) : 0;
}

/* ---- sending ---- */

struct gather {
	struct iovec iov[TX_IOVS];
	int n;
	uint64_t skip;
};

static void gather_add(struct gather *g, const void *data, uint64_t len)
{
	if (g->skip >= len) {
		g->skip -= len;
		return;
	}
	if (g->n < TX_IOVS)
		g->iov[g->n++] = (struct iovec){ (uint8_t *)data + g->skip, len - g->skip };
	g->skip = 0;
}

static void gather_item(struct gather *g, const struct tx_item *it)
{
	g->skip = it->sent;
	gather_add(g, it->header, FRAME_HEADER_SIZE);
	gather_add(g, it->tx->body, it->tx->body_len);
	for (uint32_t i = 0; i < it->tx->n_bulk; i++) {
		const struct slot_vec *v = &it->tx->bulk[i];
		gather_add(g, v->slot->data + v->off, v->len);
	}
}

/* Sends as much of the queue as the socket accepts. -LE_AGAIN: it accepts nothing now. */
static int send_some(struct tcp_link *k, struct tx_item *own)
{
	struct gather g;

	g.n = 0;
	list_for_each(pos, &k->queue) {
		gather_item(&g, list_entry(pos, struct tx_item, link));
		if (g.n == TX_IOVS)
			break;
	}
	struct msghdr msg = { .msg_iov = g.iov, .msg_iovlen = (size_t)g.n };
	ssize_t n = sendmsg(k->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	k->stats.posts++;
	if (n < 0 && errno == EINTR)
		return 0;
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS
			       ? -LE_AGAIN
			       : -LE_DISCONNECTED;
	uint64_t left = (uint64_t)n;
	while (left > 0) {
		struct tx_item *it = list_entry(k->queue.next, struct tx_item, link);
		uint64_t part = it->len - it->sent < left ? it->len - it->sent : left;
		if (it->sent == 0)
			it->begun_us = loop_now_us();
		it->sent += part;
		left -= part;
		if (it->sent < it->len)
			break;
		list_remove(&it->link);
		it->done = true;
		if (it != own)
			fiber_wake(it->fiber);
	}
	return 0;
}

/* The deadline of an item. If it waited for others, its time starts with its first byte. */
static uint64_t send_until(const struct tx_item *it, uint64_t deadline_us)
{
	uint64_t until = it->begun_us + it->tx->rest_us;

	return it->sent > 0 && it->tx->rest_us > 0 && until > deadline_us ? until : deadline_us;
}

/* One step of sending the item: 0 on progress, or why the wait ended. */
static int send_step(struct tcp_link *k, struct tx_item *it, uint64_t deadline_us)
{
	if (!it->lead)
		return fiber_park_until(deadline_us);
	int rc = send_some(k, it);
	if (rc != -LE_AGAIN)
		return rc;
	rc = net_poll(k->fd, POLLOUT, deadline_us);
	return rc < 0 ? rc : 0;
}

static int send_item(struct tcp_link *k, struct tx_item *it, uint64_t deadline_us)
{
	bool interrupted = false;
	int rc = 0;

	while (!it->done && rc == 0) {
		if (k->dead) {
			rc = -LE_DISCONNECTED;
			break;
		}
		rc = send_step(k, it, send_until(it, deadline_us));
		if (rc == -LE_TIMEDOUT && loop_now_us() < send_until(it, deadline_us))
			rc = 0;
		if (it->done || rc == 0) {
			interrupted |= rc == -LE_INTR;
			rc = 0;
		} else if (it->sent > 0 && rc == -LE_INTR) {
			/* A partly sent frame cannot be withdrawn: finish it, then deliver the
			 * interrupt. */
			interrupted = true;
			rc = 0;
		} else if (it->sent > 0 || (rc != -LE_INTR && rc != -LE_TIMEDOUT)) {
			tcp_shutdown(&k->base);
			rc = -LE_DISCONNECTED;
		}
	}
	if (!it->done)
		list_remove(&it->link);
	if (interrupted)
		fiber_interrupt(fiber_self());
	return rc;
}

static int tcp_send(struct link *base, const struct link_tx *tx, uint64_t deadline_us)
{
	struct tcp_link *k = link_of(base);
	struct frame_hdr h = tx->hdr;
	struct tx_item it = { .fiber = fiber_self(), .tx = tx };
	uint64_t bulk_len = 0;

	if (k->dead)
		return -LE_DISCONNECTED;
	for (uint32_t i = 0; i < tx->n_bulk; i++)
		bulk_len += tx->bulk[i].len;
	if (tx->body_len > FRAME_BODY_MAX || bulk_len > FRAME_BULK_MAX)
		return -LE_TOO_BIG;
	h.body_len = tx->body_len;
	h.bulk_len = (uint32_t)bulk_len;
	h.n_desc = 0;
	frame_encode(&h, NULL, tx->body, it.header);
	it.len = FRAME_HEADER_SIZE + tx->body_len + bulk_len;

	it.lead = !k->leading;
	k->leading = true;
	list_push(&k->queue, &it.link);
	if (it.lead && it.len <= TX_GATHER_MAX)
		fiber_yield();
	int rc = send_item(k, &it, deadline_us);
	if (rc == 0) {
		k->stats.frames_out++;
		k->stats.bulk_out += bulk_len;
	}
	if (it.lead) {
		k->leading = !list_empty(&k->queue);
		if (k->leading) {
			struct tx_item *next = list_entry(k->queue.next, struct tx_item, link);
			next->lead = true;
			fiber_wake(next->fiber);
		}
	}
	return rc;
}

/* ---- listening and connecting ---- */

static int tcp_listen(struct transport *t, struct loop *l, const char *addr,
		      struct listener **ret_listener, char *ret_addr)
{
	struct net_addr a, bound;
	struct tcp_listener *ls;
	int fd;

	(void)t, (void)l;
	TRY(net_addr_parse(addr, &a));
	TRY(net_listen(&a, 1024, &fd, &bound));
	ls = calloc(1, sizeof(*ls));
	if (ls == NULL) {
		net_close(fd);
		return -LE_NOMEM;
	}
	*ls = (struct tcp_listener){ .magic = LISTENER_MAGIC, .fd = fd, .refs = 1 };
	net_addr_format(&bound, ret_addr);
	*ret_listener = (struct listener *)ls;
	return 0;
}

static void listener_unref(struct tcp_listener *ls)
{
	if (--ls->refs == 0) {
		net_close(ls->fd);
		free(ls);
	}
}

static int tcp_accept(struct listener *listener, struct link **ret_link)
{
	struct tcp_listener *ls = CAST_OBJ(listener, struct tcp_listener, LISTENER_MAGIC);
	struct net_addr peer;
	int fd, rc;

	ls->refs++;
	rc = net_accept(ls->fd, &fd, &peer);
	if (rc == 0 && ls->closed)
		net_close(fd);
	bool closed = ls->closed;
	listener_unref(ls);
	if (closed)
		return -LE_SHUTDOWN;
	TRY(rc);
	return link_create(fd, &peer, ret_link);
}

static void tcp_listener_close(struct listener *listener)
{
	struct tcp_listener *ls = CAST_OBJ(listener, struct tcp_listener, LISTENER_MAGIC);

	ls->closed = true;
	net_shutdown(ls->fd);
	listener_unref(ls);
}

static int tcp_connect(struct transport *t, const char *addr, uint64_t deadline_us,
		       struct link **ret_link)
{
	struct net_addr peer;
	int fd;

	(void)t;
	TRY(net_resolve(addr, deadline_us, &peer));
	TRY(net_connect(&peer, deadline_us, &fd));
	return link_create(fd, &peer, ret_link);
}

static void tcp_peer_name(struct link *base, char *buf, size_t size)
{
	char text[NET_ADDR_TEXT_SIZE];

	net_addr_format(&link_of(base)->peer, text);
	snprintf(buf, size, "tcp %s", text);
}

static void tcp_stats(struct link *base, struct link_stats *ret_stats)
{
	*ret_stats = link_of(base)->stats;
}

static int tcp_add_pool(struct transport *t, struct slot_pool *pool, enum pool_use use)
{
	(void)t, (void)pool, (void)use;
	return 0;
}

static void tcp_destroy(struct transport *t)
{
	free(t);
}

static const struct transport_ops tcp_ops = {
	.name = "tcp",
	.listen = tcp_listen,
	.accept = tcp_accept,
	.listener_close = tcp_listener_close,
	.connect = tcp_connect,
	.send = tcp_send,
	.recv = tcp_recv,
	.recv_bulk = tcp_recv_bulk,
	.shutdown = tcp_shutdown,
	.close = tcp_close,
	.peer_name = tcp_peer_name,
	.stats = tcp_stats,
	.add_pool = tcp_add_pool,
	.destroy = tcp_destroy,
};

int transport_tcp_create(struct transport **ret_transport)
{
	struct transport *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return -LE_NOMEM;
	t->ops = &tcp_ops;
	*ret_transport = t;
	return 0;
}
