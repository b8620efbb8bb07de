/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request costs over verbs (or tcp), between two processes: the round trip of an empty one,
 * one after the other, and 1 MiB of data from and to a server that keeps none of it.
 *
 *   rdma_rpc ADDRESS [verbs|tcp [SECONDS per measurement, default 2 [SPIN us, default 0
 *            [null|read|write: that only]]]]
 *
 * Prints lines: "rpc WHAT median X us p99 Y us n N" and "rpc WHAT X MB/s".
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/rpc.h"
#include "common/rpc/transport/transport_tcp.h"
#include "common/rpc/verbs/transport_verbs.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"

#define SLOT_SIZE   (1u << 20)
#define AT_ONCE     8u
#define SAMPLES_MAX 1000000u
#define WARM_UP     200u

struct bench {
	const char *address;
	double seconds;
	uint32_t spin_us;
	const char *only;
	bool tcp, write;
	int to_client; /* the server's address is sent through a pipe */
	struct env *env;
	struct loop *loop;
	struct transport *transport;
	struct rpc_server *server;
	struct rpc_client *client;
	struct slot_pool *pool, *sink;
	uint64_t until_ns, n_done;
	struct latch done;
	char addrs[128];
};

static const struct rpc_key key = {{1}};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- the server ---- */

static int on_nothing(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in, (void)out;
	return 0;
}

static int on_read(struct rpc_req *r, const void *in, void *out)
{
	struct bench *b = r->arg;
	struct slot *s;

	(void)in, (void)out;
	TRY(slot_get(b->pool, NO_DEADLINE, &s));
	r->reply_bulk[0] = (struct slot_vec){s, 0, SLOT_SIZE};
	r->n_reply_bulk = 1;
	return 0;
}

static void serve(void *arg)
{
	static const struct rpc_handler handlers[] = {
		{OP_mds_ping, on_nothing},
		{OP_oss_read, on_read},
		{OP_oss_write, on_nothing},
	};
	struct bench *b = arg;
	struct rpc_server_options o = {.transport = b->transport,
				       .addrs = b->addrs,
				       .role = ROLE_MDS,
				       .key = key,
				       .bulk_max = SLOT_SIZE,
				       .handlers = handlers,
				       .n_handlers = 3,
				       .arg = b};

	ASSERT(slot_pool_create(SLOT_SIZE, 2 * AT_ONCE, &b->pool) == 0);
	ASSERT(slot_pool_create(SLOT_SIZE, 2 * AT_ONCE, &b->sink) == 0);
	ASSERT(b->transport->ops->add_pool(b->transport, b->pool, POOL_SOURCE) == 0);
	o.bulk_pool = b->sink;
	ASSERT(rpc_server_create(&o, &b->server) == 0);
	ASSERT(write(b->to_client, rpc_server_addrs(b->server),
		     strlen(rpc_server_addrs(b->server)) + 1) > 0);
	for (;;)
		(void)fiber_sleep_us(1000000);
}

/* ---- the client ---- */

static void ping(struct bench *b)
{
	struct mds_ping_req q = {0};
	struct mds_ping_rep p;
	struct rpc_call call = {.op = OP_mds_ping, .req = &q, .rep = &p};

	ASSERT(rpc_call(b->client, &call) == 0);
	rpc_call_fini(&call);
}

static void move(struct bench *b, struct slot *s)
{
	struct slot_vec v = {s, 0, SLOT_SIZE};
	struct oss_write_req wq = {.len = SLOT_SIZE};
	struct oss_write_rep wp;
	struct oss_read_req rq = {.len = SLOT_SIZE};
	struct oss_read_rep rp;
	struct rpc_call w = {
		.op = OP_oss_write, .req = &wq, .rep = &wp, .bulk_out = &v, .n_bulk_out = 1};
	struct rpc_call r = {
		.op = OP_oss_read, .req = &rq, .rep = &rp, .bulk_in = &v, .n_bulk_in = 1};
	struct rpc_call *call = b->write ? &w : &r;

	ASSERT(rpc_call(b->client, call) == 0);
	rpc_call_fini(call);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void round_trips(struct bench *b)
{
	uint32_t *ns = malloc(SAMPLES_MAX * sizeof(*ns)), n = 0;

	ASSERT(ns != NULL);
	for (uint32_t i = 0; i < WARM_UP; i++)
		ping(b);
	/* The loop's own time, from one wake-up to the next: reading another clock would add to the
	 * result. */
	uint64_t end = loop_now_us() + (uint64_t)(b->seconds * 1e6);
	for (uint64_t t = loop_now_us(); t < end && n < SAMPLES_MAX;) {
		ping(b);
		uint64_t after = loop_now_us();
		ns[n++] = (uint32_t)(after - t) * 1000;
		t = after;
	}
	qsort(ns, n, sizeof(*ns), by_value);
	printf("rpc null median %.1f us p99 %.1f us n %u\n", ns[n / 2] / 1e3,
	       ns[n - 1 - n / 100] / 1e3, n);
	free(ns);
}

static void move_caller(void *arg)
{
	struct bench *b = arg;
	struct slot *s;

	ASSERT(slot_get(b->pool, NO_DEADLINE, &s) == 0);
	while (now_ns() < b->until_ns) {
		move(b, s);
		b->n_done++;
	}
	slot_unref(s);
	latch_done(&b->done);
}

static void stream(struct bench *b, bool writing)
{
	uint64_t t = now_ns();

	b->write = writing;
	b->n_done = 0;
	b->until_ns = t + (uint64_t)(b->seconds * 1e9);
	latch_init(&b->done, AT_ONCE);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		ASSERT(fiber_spawn("caller", move_caller, b) == 0);
	latch_wait(&b->done);
	printf("rpc %s %.1f MB/s\n", writing ? "write" : "read",
	       (double)b->n_done * SLOT_SIZE / ((double)(now_ns() - t) / 1e3));
}

static bool wants(const struct bench *b, const char *what)
{
	return b->only == NULL || strcmp(b->only, what) == 0;
}

static void ask(void *arg)
{
	struct bench *b = arg;
	struct rpc_client_options o = {
		.transport = b->transport, .addrs = b->addrs, .role = ROLE_TOOL, .key = key};

	ASSERT(slot_pool_create(SLOT_SIZE, AT_ONCE, &b->pool) == 0);
	ASSERT(b->transport->ops->add_pool(b->transport, b->pool, POOL_REMOTE) == 0);
	ASSERT(rpc_client_create(&o, &b->client) == 0);
	if (wants(b, "null"))
		round_trips(b);
	if (wants(b, "read"))
		stream(b, false);
	if (wants(b, "write"))
		stream(b, true);
	rpc_client_destroy(b->client);
	slot_pool_destroy(b->pool);
	loop_stop(b->loop);
}

static void run(struct bench *b, void (*fn)(void *arg))
{
	struct env_real_options eo = {.n_workers = 1};
	struct loop_options lo = {.name = "bench", .spin_us = b->spin_us};

	ASSERT(env_real_create(&eo, &b->env) == 0);
	ASSERT((b->tcp ? transport_tcp_create(&b->transport)
		       : transport_verbs_create(NULL, &b->transport)) == 0);
	ASSERT(loop_create(b->env, &lo, &b->loop) == 0);
	ASSERT(fiber_spawn_on(b->loop, "main", fn, b) == 0);
	loop_run(b->loop);
	loop_destroy(b->loop);
	transport_destroy(b->transport);
	env_real_destroy(b->env);
}

int main(int argc, char **argv)
{
	struct bench b = {.seconds = argc > 3 ? atof(argv[3]) : 2,
			  .spin_us = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0,
			  .tcp = argc > 2 && strcmp(argv[2], "tcp") == 0,
			  .only = argc > 5 ? argv[5] : NULL};
	int fd[2];

	if (argc < 2) {
		fprintf(stderr, "usage: rdma_rpc ADDRESS [verbs|tcp [SECONDS [SPIN [WHAT]]]]\n");
		return 2;
	}
	log_init("rdma_rpc", LOG_ERROR);
	ASSERT(pipe(fd) == 0);
	pid_t pid = fork();
	ASSERT(pid >= 0);
	if (pid == 0) {
		b.to_client = fd[1];
		snprintf(b.addrs, sizeof(b.addrs), "%s:0", argv[1]);
		run(&b, serve);
		return 0;
	}
	close(fd[1]);
	if (read(fd[0], b.addrs, sizeof(b.addrs)) <= 0)
		return 1;
	run(&b, ask);
	kill(pid, SIGKILL);
	return waitpid(pid, NULL, 0) == pid ? 0 : 1;
}
