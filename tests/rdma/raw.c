/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rdma/raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/rpc/verbs/verbs_loop.h"
#include "common/rpc/verbs/verbs_link.h"
#include "common/rpc/verbs/verbs_send.h"

#define MEMORY_SIZE (128u << 10)
#define SENDS       256u
#define CONNECT_MS  4000

struct raw {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint32_t n_receives, n_posted;
	bool connected, failed, closed;
	struct sockaddr_in addr;
	uint8_t memory[MEMORY_SIZE];
};

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "raw: %s: %s\n", what, strerror(errno));
	abort();
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Returns the next event of the connection manager, or -1. */
static int next_event(struct raw *r, int timeout_ms)
{
	struct pollfd p = {.fd = r->events->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	if (poll(&p, 1, timeout_ms) <= 0)
		return -1;
	must(rdma_get_cm_event(r->events, &e) == 0, "rdma_get_cm_event");
	int type = e->event;
	rdma_ack_cm_event(e);
	return type;
}

struct raw *raw_create(const char *addr, uint32_t n_receives)
{
	struct raw *r = calloc(1, sizeof(*r));
	char host[64];
	const char *colon = strrchr(addr, ':');

	must(r != NULL && colon != NULL && (size_t)(colon - addr) < sizeof(host), "address");
	memcpy(host, addr, (size_t)(colon - addr));
	host[colon - addr] = 0;
	r->n_receives = n_receives;
	r->addr.sin_family = AF_INET;
	r->addr.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
	must(inet_pton(AF_INET, host, &r->addr.sin_addr) == 1, "IPv4 address");
	r->events = rdma_create_event_channel();
	must(r->events != NULL, "rdma_create_event_channel");
	must(rdma_create_id(r->events, &r->id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	must(rdma_resolve_addr(r->id, NULL, (struct sockaddr *)&r->addr, CONNECT_MS) == 0,
	     "rdma_resolve_addr");
	must(next_event(r, CONNECT_MS) == RDMA_CM_EVENT_ADDR_RESOLVED, "address resolved");
	must(rdma_resolve_route(r->id, CONNECT_MS) == 0, "rdma_resolve_route");
	must(next_event(r, CONNECT_MS) == RDMA_CM_EVENT_ROUTE_RESOLVED, "route resolved");
	r->pd = ibv_alloc_pd(r->id->verbs);
	r->cq = ibv_create_cq(r->id->verbs, (int)(SENDS + n_receives), NULL, NULL, 0);
	must(r->pd != NULL && r->cq != NULL, "ibv_create_cq");
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
				     .send_cq = r->cq,
				     .recv_cq = r->cq,
				     .cap = {.max_send_wr = SENDS,
					     .max_recv_wr = n_receives + 1,
					     .max_send_sge = 1,
					     .max_recv_sge = 1}};
	must(rdma_create_qp(r->id, r->pd, &a) == 0, "rdma_create_qp");
	r->mr = ibv_reg_mr(r->pd, r->memory, MEMORY_SIZE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ);
	must(r->mr != NULL, "ibv_reg_mr");
	for (uint32_t i = 0; i < n_receives; i++) {
		struct ibv_sge s = {(uintptr_t)r->memory + MEMORY_SIZE / 2, 8192, r->mr->lkey};
		struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;
		must(ibv_post_recv(r->id->qp, &wr, &bad) == 0, "ibv_post_recv");
	}
	return r;
}

enum raw_result raw_connect(struct raw *r, const void *private_data, uint32_t len)
{
	struct rdma_conn_param p = {.private_data = private_data,
				    .private_data_len = (uint8_t)len,
				    .responder_resources = 4,
				    .initiator_depth = 4,
				    .retry_count = 7,
				    .rnr_retry_count = 7};

	must(rdma_connect(r->id, &p) == 0, "rdma_connect");
	switch (next_event(r, CONNECT_MS)) {
	case RDMA_CM_EVENT_ESTABLISHED:
		r->connected = true;
		return RAW_CONNECTED;
	case RDMA_CM_EVENT_REJECTED:
		return RAW_REFUSED;
	default:
		return RAW_FAILED;
	}
}

bool raw_connected(const struct raw *r)
{
	return r->connected;
}

static void take_completions(struct raw *r)
{
	struct ibv_wc wc[16];
	int n;

	while ((n = ibv_poll_cq(r->cq, 16, wc)) > 0)
		for (int i = 0; i < n; i++) {
			r->failed |= wc[i].status != IBV_WC_SUCCESS;
			r->n_posted -= (wc[i].opcode & IBV_WC_RECV) == 0;
		}
}

bool raw_has_room(struct raw *r)
{
	take_completions(r);
	return r->n_posted < SENDS;
}

bool raw_failed(struct raw *r)
{
	take_completions(r);
	return r->failed;
}

static void post(struct raw *r, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	/* A queue pair that the other side has ended refuses requests, which is expected here. */
	if (ibv_post_send(r->id->qp, wr, &bad) != 0)
		r->failed = true;
	r->n_posted++;
}

void raw_send(struct raw *r, const void *data, uint32_t len)
{
	struct ibv_sge s = {(uintptr_t)r->memory, len, r->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s,
				 .num_sge = len > 0,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};

	must(len <= MEMORY_SIZE / 2, "length");
	memcpy(r->memory, data, len);
	post(r, &wr);
}

void raw_touch(struct raw *r, bool write, uint64_t addr, uint32_t key)
{
	struct ibv_sge s = {(uintptr_t)r->memory, 64, r->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s,
				 .num_sge = 1,
				 .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = addr, .rkey = key}};

	post(r, &wr);
}

uint32_t raw_key(const struct raw *r)
{
	return r->mr->rkey;
}

uint64_t raw_address(const struct raw *r)
{
	return (uintptr_t)r->memory;
}

bool raw_wait_failed(struct raw *r, int timeout_ms)
{
	int64_t until = now_ms() + timeout_ms;

	while (!raw_failed(r) && now_ms() < until)
		(void)poll(NULL, 0, 5);
	return r->failed;
}

bool raw_wait_disconnected(struct raw *r, int timeout_ms)
{
	int64_t until = now_ms() + timeout_ms;

	while (!r->closed && now_ms() < until) {
		int event = next_event(r, 20);
		r->closed =
			event == RDMA_CM_EVENT_DISCONNECTED || event == RDMA_CM_EVENT_TIMEWAIT_EXIT;
	}
	return r->closed;
}

bool raw_wait_closed(struct raw *r, int timeout_ms)
{
	int64_t until = now_ms() + timeout_ms;

	while (!r->closed && now_ms() < until) {
		int event = next_event(r, 20);
		r->closed = event == RDMA_CM_EVENT_DISCONNECTED ||
			    event == RDMA_CM_EVENT_TIMEWAIT_EXIT || raw_failed(r);
	}
	return r->closed;
}

void raw_destroy(struct raw *r)
{
	if (r->connected)
		(void)rdma_disconnect(r->id);
	rdma_destroy_qp(r->id);
	ibv_dereg_mr(r->mr);
	ibv_destroy_cq(r->cq);
	ibv_dealloc_pd(r->pd);
	rdma_destroy_id(r->id);
	rdma_destroy_event_channel(r->events);
	free(r);
}

uint32_t raw_first_hello(uint8_t *out)
{
	/* Versions 1..1, cluster zero, role, loop, name and nonce: as in auth.c. */
	uint8_t body[160] = {0};
	uint32_t n = 32;

	body[n] = body[n + 4] = 1;
	n += 8 + 16;
	body[n++] = 5; /* ROLE_TOOL */
	n += 4;
	body[n] = 6;
	n += 4;
	memcpy(body + n, "tester", 6);
	n += 6;
	body[n] = 32;
	n += 4 + 32;
	body[n] = 16;
	n += 8;
	struct frame_hdr h = {.type = FRAME_HELLO, .id = 1, .body_len = n};
	frame_encode(&h, NULL, body, out);
	memcpy(out + FRAME_HEADER_SIZE, body, n);
	return FRAME_HEADER_SIZE + n;
}

/* ---- on a link ---- */

static void post_on(struct verbs_link *k, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	verbs_flush(k->vl);
	if (k->qp != NULL)
		(void)ibv_post_send(k->qp, wr, &bad);
}

void raw_link_send(struct link *base, const void *frame, uint32_t len)
{
	struct verbs_link *k = verbs_link_of(base);
	struct raw_head head = {.kind = 1, .left = len};

	if (k->qp == NULL)
		return;
	uint32_t buf = verbs_tx_get(k->group);
	must(buf != VERBS_NO_BUF && len + sizeof(head) <= k->group->buf_size, "send buffer");
	uint8_t *to = verbs_buf(k->group, buf);
	memcpy(to, &head, sizeof(head));
	memcpy(to + sizeof(head), frame, len);
	struct ibv_sge s = {(uintptr_t)to, len + (uint32_t)sizeof(head), k->group->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1ull << 63 | UINT32_MAX,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND};
	post_on(k, &wr);
	/* They return, which the link would take for a fault of the peer. */
	if (k->credits > 0)
		k->credits--;
	/* Early enough for a test: the buffer is sent long before it is used again. */
	verbs_tx_put(k->group, buf);
}

void raw_link_touch(struct link *base, bool write, uint64_t addr, uint32_t key)
{
	struct verbs_link *k = verbs_link_of(base);
	struct ibv_sge s = {(uintptr_t)verbs_buf(k->group, 0), 64, k->group->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1ull << 63 | UINT32_MAX,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
				 .wr.rdma = {.remote_addr = addr, .rkey = key}};

	post_on(k, &wr);
}

uint32_t raw_link_key(struct link *base, const struct slot *s)
{
	struct verbs_link *k = verbs_link_of(base);
	const struct verbs_reg *reg = s->reg[k->dev->index];

	ASSERT(reg != NULL && reg->mr != NULL);
	return reg->mr->rkey;
}

bool raw_link_alive(struct link *base)
{
	const struct verbs_link *k = verbs_link_of(base);

	return k->qp != NULL && !k->eof;
}
