/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request costs over TCP on the loopback device: round trips of an empty request (both ends
 * in one loop, in two threads that sleep, in two that spin), empty requests per second with 64
 * callers, 1 MiB reads and writes with their CPU time.
 *
 *   bench_rpc [seconds per measurement, default 1]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/rpc/rpc.h"
#include "common/rpc/transport/transport_tcp.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"

#define SLOT_SIZE (1u << 20)
#define CALLERS 64
#define SAMPLES_MAX 2000000u

struct bench {
	struct env *env;
	struct transport *transport;
	struct loop *server_loop, *client_loop;
	struct rpc_server *server;
	struct slot_pool *server_pool, *client_pool;
	struct rpc_client *client;
	char addrs[128];
	double seconds;
	uint64_t until_ns, n_done;
	bool write;
	struct latch done;
};

static uint32_t *samples_ns;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int on_ping(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in, (void)out;
	return 0;
}

static int on_read(struct rpc_req *r, const void *in, void *out)
{
	struct bench *b = r->arg;
	struct slot *s;

	(void)in, (void)out;
	TRY(slot_get(b->server_pool, NO_DEADLINE, &s));
	r->reply_bulk[0] = (struct slot_vec){ s, 0, SLOT_SIZE };
	r->n_reply_bulk = 1;
	return 0;
}

static const struct rpc_handler handlers[] = {
	{ OP_mds_ping, on_ping },
	{ OP_oss_read, on_read },
	{ OP_oss_write, on_ping },
};

static const struct rpc_key key = { { 1 } };

static void start_server(void *arg)
{
	struct bench *b = arg;
	struct rpc_server_options o = { .transport = b->transport,
					.addrs = "127.0.0.1:0",
					.role = ROLE_MDS,
					.key = key,
					.bulk_max = SLOT_SIZE,
					.handlers = handlers,
					.n_handlers = 3,
					.arg = b };

	ASSERT(slot_pool_create(SLOT_SIZE, 64, &b->server_pool) == 0);
	o.bulk_pool = b->server_pool;
	ASSERT(rpc_server_create(&o, &b->server) == 0);
	snprintf(b->addrs, sizeof(b->addrs), "%s", rpc_server_addrs(b->server));
}

static void stop_server(void *arg)
{
	struct bench *b = arg;

	rpc_server_destroy(b->server, 1000);
	slot_pool_destroy(b->server_pool);
}

static void ping(struct bench *b)
{
	struct mds_ping_req q = { 0 };
	struct mds_ping_rep p;
	struct rpc_call call = { .op = OP_mds_ping, .req = &q, .rep = &p };

	ASSERT(rpc_call(b->client, &call) == 0);
	rpc_call_fini(&call);
}

static void move(struct bench *b, struct slot *s)
{
	struct slot_vec v = { s, 0, SLOT_SIZE };
	struct oss_write_req wq = { .len = SLOT_SIZE };
	struct oss_write_rep wp;
	struct oss_read_req rq = { .len = SLOT_SIZE };
	struct oss_read_rep rp;
	struct rpc_call w = {
		.op = OP_oss_write, .req = &wq, .rep = &wp, .bulk_out = &v, .n_bulk_out = 1
	};
	struct rpc_call r = {
		.op = OP_oss_read, .req = &rq, .rep = &rp, .bulk_in = &v, .n_bulk_in = 1
	};
	struct rpc_call *call = b->write ? &w : &r;

	ASSERT(rpc_call(b->client, call) == 0);
	rpc_call_fini(call);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void round_trips(struct bench *b, const char *what)
{
	uint32_t n = 0;

	for (int i = 0; i < 100; i++)
		ping(b);
	uint64_t end = now_ns() + (uint64_t)(b->seconds * 1e9);
	for (uint64_t t = now_ns(); t < end && n < SAMPLES_MAX;) {
		ping(b);
		uint64_t after = now_ns();
		samples_ns[n++] = (uint32_t)(after - t);
		t = after;
	}
	qsort(samples_ns, n, sizeof(samples_ns[0]), by_value);
	printf("round trip, %-22s median %6.1f us   p99 %6.1f us   %u samples\n", what,
	       samples_ns[n / 2] / 1e3, samples_ns[n - 1 - n / 100] / 1e3, n);
}

static void ping_caller(void *arg)
{
	struct bench *b = arg;

	while (now_ns() < b->until_ns) {
		ping(b);
		b->n_done++;
	}
	latch_done(&b->done);
}

static void move_caller(void *arg)
{
	struct bench *b = arg;
	struct slot *s;

	ASSERT(slot_get(b->client_pool, NO_DEADLINE, &s) == 0);
	while (now_ns() < b->until_ns) {
		move(b, s);
		b->n_done++;
	}
	slot_unref(s);
	latch_done(&b->done);
}

static void together(struct bench *b, void (*fn)(void *), uint32_t callers, double *ret_rate,
		     double *ret_cpu)
{
	double cpu = cpu_s();
	uint64_t t = now_ns();

	b->n_done = 0;
	b->until_ns = t + (uint64_t)(b->seconds * 1e9);
	latch_init(&b->done, callers);
	for (uint32_t i = 0; i < callers; i++)
		ASSERT(fiber_spawn("caller", fn, b) == 0);
	latch_wait(&b->done);
	*ret_rate = (double)b->n_done / ((double)(now_ns() - t) / 1e9);
	*ret_cpu = (cpu_s() - cpu) / (double)b->n_done;
}

static void measure(struct bench *b, const char *what)
{
	double rate, cpu;

	round_trips(b, what);
	together(b, ping_caller, CALLERS, &rate, &cpu);
	printf("%d callers, %-22s %8.0f requests/s   %.2f us of CPU each\n", CALLERS, what, rate,
	       cpu * 1e6);
	for (int w = 0; w < 2; w++) {
		b->write = w == 1;
		together(b, move_caller, 8, &rate, &cpu);
		printf("%s 1 MiB, 8 at once, %-11s %5.2f GB/s   %.2f CPU-s per GB\n",
		       w ? "write" : "read ", what, rate * SLOT_SIZE / 1e9, cpu * 1e9 / SLOT_SIZE);
	}
}

struct part {
	struct bench *b;
	const char *what;
};

static void client_main(void *arg)
{
	struct part *p = arg;
	struct bench *b = p->b;
	struct rpc_client_options o = { .transport = b->transport, .role = ROLE_TOOL, .key = key };

	if (b->server_loop == b->client_loop)
		start_server(b);
	o.addrs = b->addrs;
	ASSERT(slot_pool_create(SLOT_SIZE, 16, &b->client_pool) == 0);
	ASSERT(rpc_client_create(&o, &b->client) == 0);
	measure(b, p->what);
	rpc_client_destroy(b->client);
	slot_pool_destroy(b->client_pool);
	if (b->server_loop == b->client_loop)
		stop_server(b);
	loop_stop(b->client_loop);
}

static void run(struct bench *b, const char *what, bool two, uint32_t spin_us)
{
	struct loop_options lo = { .name = "client", .spin_us = spin_us };
	struct part p = { b, what };

	ASSERT(transport_tcp_create(&b->transport) == 0);
	ASSERT(loop_create(b->env, &lo, &b->client_loop) == 0);
	b->server_loop = b->client_loop;
	if (two) {
		lo.name = "server";
		ASSERT(loop_create(b->env, &lo, &b->server_loop) == 0);
		ASSERT(loop_start_thread(b->server_loop) == 0);
		ASSERT(loop_call(b->server_loop, "start", start_server, b) == 0);
	}
	ASSERT(fiber_spawn_on(b->client_loop, "main", client_main, &p) == 0);
	loop_run(b->client_loop);
	if (two) {
		ASSERT(loop_call(b->server_loop, "stop", stop_server, b) == 0);
		loop_stop(b->server_loop);
		loop_join(b->server_loop);
		loop_destroy(b->server_loop);
	}
	loop_destroy(b->client_loop);
	transport_destroy(b->transport);
}

int main(int argc, char **argv)
{
	struct bench b = { .seconds = argc > 1 ? atof(argv[1]) : 1 };
	struct env_real_options eo = { .n_workers = 1 };
	struct utsname u;

	uname(&u);
	printf("rpc over TCP, loopback; %s %s\n", u.sysname, u.release);
	samples_ns = malloc(SAMPLES_MAX * sizeof(samples_ns[0]));
	ASSERT(samples_ns != NULL && env_real_create(&eo, &b.env) == 0);
	run(&b, "one thread", false, 0);
	run(&b, "two threads", true, 0);
	run(&b, "two threads, spin 50us", true, 50);
	env_real_destroy(b.env);
	free(samples_ns);
	return 0;
}
