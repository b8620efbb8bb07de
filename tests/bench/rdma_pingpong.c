/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best that the verbs of this machine allow to a program that sleeps between messages: round
 * trips of 64 bytes between two processes, by SEND and a completion channel, without any layer
 * above. The reference for the round trip of an rpc.
 *
 *   rdma_pingpong ADDRESS [ROUND TRIPS, default 3000 [loop]]
 *
 * Prints one line: the median, the 99th percentile, the count. Each side waits for the completion
 * of its receive and of its send, as long as it must: poll until empty, arm, poll again, block.
 *
 * With `loop` it blocks like a program that waits for other events too: in an io_uring that polls
 * the channel, with a time limit; then it reads the event and the clock. An rpc over an event loop
 * cannot use fewer system calls.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_SIZE 64
#define RECEIVES     4
#define CONNECT_MS   5000
#define WARM_UP      100u

struct end {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t memory[2 * MESSAGE_SIZE]; /* received message, sent message */
	uint32_t n_received, n_sent;
	bool loop;
	struct io_uring ring;
	uint64_t now_ns; /* of a loop, when it woke */
};

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "rdma_pingpong: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct rdma_cm_id *expect(struct end *e, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *event;

	must(rdma_get_cm_event(e->events, &event) == 0, "rdma_get_cm_event");
	if (event->event != want) {
		fprintf(stderr, "rdma_pingpong: %s instead of %s\n", rdma_event_str(event->event),
			rdma_event_str(want));
		exit(1);
	}
	struct rdma_cm_id *id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

static void post_receive(struct end *e)
{
	struct ibv_sge piece = {(uintptr_t)e->memory, MESSAGE_SIZE, e->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;

	must(ibv_post_recv(e->id->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void post_send(struct end *e)
{
	struct ibv_sge piece = {(uintptr_t)e->memory + MESSAGE_SIZE, MESSAGE_SIZE, e->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &piece,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	must(ibv_post_send(e->id->qp, &wr, &bad) == 0, "ibv_post_send");
}

static void poll_channel(struct end *e)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&e->ring);

	must(sqe != NULL, "io_uring_get_sqe");
	io_uring_prep_poll_multishot(sqe, e->channel->fd, POLLIN);
}

static void make_ring(struct end *e)
{
	unsigned flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;

	must(io_uring_queue_init(8, &e->ring, flags) == 0, "io_uring_queue_init");
	fcntl(e->channel->fd, F_SETFL, fcntl(e->channel->fd, F_GETFL) | O_NONBLOCK);
	poll_channel(e);
}

static void prepare(struct end *e)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = RECEIVES,
						.max_recv_wr = RECEIVES,
						.max_send_sge = 1,
						.max_recv_sge = 1}};

	e->pd = ibv_alloc_pd(e->id->verbs);
	must(e->pd != NULL, "ibv_alloc_pd");
	e->channel = ibv_create_comp_channel(e->id->verbs);
	must(e->channel != NULL, "ibv_create_comp_channel");
	e->cq = ibv_create_cq(e->id->verbs, 4 * RECEIVES, NULL, e->channel, 0);
	must(e->cq != NULL, "ibv_create_cq");
	attr.send_cq = attr.recv_cq = e->cq;
	must(rdma_create_qp(e->id, e->pd, &attr) == 0, "rdma_create_qp");
	e->mr = ibv_reg_mr(e->pd, e->memory, sizeof(e->memory), IBV_ACCESS_LOCAL_WRITE);
	must(e->mr != NULL, "ibv_reg_mr");
	for (int i = 0; i < RECEIVES; i++)
		post_receive(e);
	if (e->loop)
		make_ring(e);
}

static bool take_completions(struct end *e)
{
	struct ibv_wc wc[2 * RECEIVES];
	int n = ibv_poll_cq(e->cq, 2 * RECEIVES, wc);

	must(n >= 0, "ibv_poll_cq");
	for (int i = 0; i < n; i++) {
		must(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
		if (wc[i].opcode == IBV_WC_RECV)
			e->n_received++;
		else
			e->n_sent++;
	}
	return n > 0;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void sleep_in_ring(struct end *e)
{
	struct __kernel_timespec limit = {.tv_sec = 1};
	struct io_uring_cqe *cqe;

	(void)io_uring_submit_and_wait_timeout(&e->ring, &cqe, 1, &limit, NULL);
	while (io_uring_peek_cqe(&e->ring, &cqe) == 0) {
		if ((cqe->flags & IORING_CQE_F_MORE) == 0)
			poll_channel(e);
		io_uring_cqe_seen(&e->ring, cqe);
	}
	e->now_ns = now_ns();
}

static void wait_for(struct end *e, uint32_t *count)
{
	while (*count == 0) {
		struct ibv_cq *cq;
		void *context;

		if (take_completions(e))
			continue;
		must(ibv_req_notify_cq(e->cq, 0) == 0, "ibv_req_notify_cq");
		if (take_completions(e))
			continue;
		if (e->loop)
			sleep_in_ring(e);
		if (ibv_get_cq_event(e->channel, &cq, &context) == 0)
			ibv_ack_cq_events(cq, 1);
		else
			must(e->loop && errno == EAGAIN, "ibv_get_cq_event");
	}
	--*count;
}

static void serve(struct end *e)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};

	e->id = expect(e, RDMA_CM_EVENT_CONNECT_REQUEST);
	prepare(e);
	must(rdma_accept(e->id, &param) == 0, "rdma_accept");
	expect(e, RDMA_CM_EVENT_ESTABLISHED);
	for (;;) {
		wait_for(e, &e->n_received);
		post_receive(e);
		post_send(e);
		wait_for(e, &e->n_sent);
	}
}

static void reach(struct end *e, struct sockaddr *addr)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};

	must(rdma_resolve_addr(e->id, NULL, addr, CONNECT_MS) == 0, "rdma_resolve_addr");
	expect(e, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(e->id, CONNECT_MS) == 0, "rdma_resolve_route");
	expect(e, RDMA_CM_EVENT_ROUTE_RESOLVED);
	prepare(e);
	must(rdma_connect(e->id, &param) == 0, "rdma_connect");
	expect(e, RDMA_CM_EVENT_ESTABLISHED);
}

static uint32_t round_trip_ns(struct end *e)
{
	uint64_t t = e->loop ? e->now_ns : now_ns();

	post_send(e);
	wait_for(e, &e->n_sent);
	wait_for(e, &e->n_received);
	post_receive(e);
	if (!e->loop || e->now_ns == t) /* the reply had already arrived */
		e->now_ns = now_ns();
	return (uint32_t)(e->now_ns - t);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void measure(struct end *e, uint32_t n)
{
	uint32_t *ns = calloc(n, sizeof(*ns));

	must(ns != NULL, "calloc");
	for (uint32_t i = 0; i < WARM_UP; i++)
		(void)round_trip_ns(e);
	for (uint32_t i = 0; i < n; i++)
		ns[i] = round_trip_ns(e);
	qsort(ns, n, sizeof(*ns), by_value);
	printf("pingpong median %.1f us p99 %.1f us n %u\n", ns[n / 2] / 1e3,
	       ns[n - 1 - n / 100] / 1e3, n);
	free(ns);
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	uint32_t n = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 3000;
	static struct end e;
	int to_parent[2];

	e.loop = argc > 3 && strcmp(argv[3], "loop") == 0;
	if (argc < 2 || inet_pton(AF_INET, argv[1], &addr.sin_addr) != 1 || n == 0) {
		fprintf(stderr, "usage: rdma_pingpong ADDRESS [ROUND TRIPS [loop]]\n");
		return 2;
	}
	must(pipe(to_parent) == 0, "pipe");
	pid_t pid = fork();
	must(pid >= 0, "fork");
	e.events = rdma_create_event_channel();
	must(e.events != NULL, "rdma_create_event_channel");
	must(rdma_create_id(e.events, &e.id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	if (pid == 0) {
		must(rdma_bind_addr(e.id, (struct sockaddr *)&addr) == 0, "rdma_bind_addr");
		must(rdma_listen(e.id, 1) == 0, "rdma_listen");
		uint16_t port = rdma_get_src_port(e.id);
		must(write(to_parent[1], &port, sizeof(port)) == sizeof(port), "write");
		serve(&e);
	}
	must(read(to_parent[0], &addr.sin_port, sizeof(addr.sin_port)) == sizeof(addr.sin_port),
	     "read");
	reach(&e, (struct sockaddr *)&addr);
	measure(&e, n);
	/* The child waits for a message that does not come, and ignores the end of the
	 * connection. */
	kill(pid, SIGKILL);
	must(waitpid(pid, NULL, 0) == pid, "waitpid");
	return 0;
}
