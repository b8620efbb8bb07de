/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtime itself costs: switches, spawns, mail, loopback, file reads. One line per
 * measurement; times of round trips as median and p99. Optional argument: only the
 * measurements whose name contains it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/rt/env.h"
#include "common/rt/env_real.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/net.h"

#define N_SWITCHES 2000000
#define N_TRIPS 20000
#define MIB (1u << 20)
#define STREAM_MIB 2048
#define N_READS 100000
#define READ_DEPTH 64
#define FILE_BLOCKS 16384 /* 64 MiB */

static struct env *env;
static const char *only = "";

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "bench_rt: %s: %s\n", what, status_text(rc));
	exit(1);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void print_trips(const char *name, uint32_t *ns, uint32_t n)
{
	qsort(ns, n, sizeof(*ns), compare);
	printf("%-36s median %7.1f us   p99 %7.1f us\n", name, ns[n / 2] / 1e3,
	       ns[n - n / 100] / 1e3);
}

/* ---- running ---- */

struct run {
	void (*fn)(void *arg);
	void *arg;
};

static void run_fiber(void *arg)
{
	struct run *r = arg;

	r->fn(r->arg);
	loop_stop(loop_self());
}

static void run(const char *name, void (*fn)(void *arg), void *arg, uint32_t spin_us)
{
	struct loop_options opts = { .name = "bench", .spin_us = spin_us };
	struct run r = { fn, arg };
	struct loop *l;

	if (strstr(name, only) == NULL)
		return;
	must(loop_create(env, &opts, &l), "loop");
	must(fiber_spawn_on(l, "bench", run_fiber, &r), "fiber");
	loop_run(l);
	loop_destroy(l);
}

static struct loop *peer_start(uint32_t spin_us)
{
	struct loop_options opts = { .name = "bench-peer", .spin_us = spin_us };
	struct loop *l;

	must(loop_create(env, &opts, &l), "loop");
	must(loop_start_thread(l), "thread");
	return l;
}

static void peer_stop(struct loop *l)
{
	loop_stop(l);
	loop_join(l);
	loop_destroy(l);
}

/* ---- fibers ---- */

static void yields(void *arg)
{
	(void)arg;
	for (int i = 0; i < N_SWITCHES; i++)
		fiber_yield();
}

static void bench_switch(void *arg)
{
	uint64_t start;

	(void)arg;
	must(fiber_spawn("other", yields, NULL), "fiber");
	fiber_yield();
	start = now_ns();
	yields(NULL);
	/* Each yield switches to the scheduler and from it to the next fiber. */
	printf("%-36s %7.1f ns\n", "yield to the next fiber",
	       (double)(now_ns() - start) / N_SWITCHES / 2);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void bench_spawn(void *arg)
{
	uint64_t start = now_ns();

	(void)arg;
	for (int i = 0; i < N_SWITCHES; i++) {
		must(fiber_spawn("nothing", nothing, NULL), "fiber");
		if (i % 16 == 15)
			fiber_yield();
	}
	printf("%-36s %7.1f ns\n", "spawn, run and end of a fiber",
	       (double)(now_ns() - start) / N_SWITCHES);
}

static void parked(void *arg)
{
	int *n = arg;

	++*n;
	fiber_park();
}

static void bench_memory(void *arg)
{
	struct rusage a, b;
	uint64_t start;
	int n = 0;

	(void)arg;
	getrusage(RUSAGE_SELF, &a);
	start = now_ns();
	for (int i = 0; i < 50000; i++)
		must(fiber_spawn("parked", parked, &n), "fiber");
	while (n < 50000)
		fiber_yield();
	getrusage(RUSAGE_SELF, &b);
	printf("%-36s %7.1f KiB each, %.1f us to make\n", "50000 parked fibers",
	       (double)(b.ru_maxrss - a.ru_maxrss) / 50000,
	       (double)(now_ns() - start) / 1e3 / 50000);
	fflush(stdout);
	_exit(0); /* the last measurement: its fibers are never woken */
}

/* ---- mail ---- */

struct ping {
	struct mail mail;
	struct loop *home, *away;
	struct fiber *fiber;
	const char *name;
};

static void ping_home(struct mail *m)
{
	fiber_wake(((struct ping *)m)->fiber);
}

static void ping_away(struct mail *m)
{
	m->fn = ping_home;
	loop_post(((struct ping *)m)->home, m);
}

static void bench_mail(void *arg)
{
	struct ping *p = arg;
	uint32_t *ns = malloc(N_TRIPS * sizeof(*ns));

	p->home = loop_self();
	p->fiber = fiber_self();
	for (int i = 0; i < N_TRIPS; i++) {
		uint64_t start = now_ns();

		p->mail.fn = ping_away;
		loop_post(p->away, &p->mail);
		fiber_park();
		ns[i] = (uint32_t)(now_ns() - start);
	}
	print_trips(p->name, ns, N_TRIPS);
	free(ns);
}

static void mail(const char *name, uint32_t spin_us)
{
	struct ping p = { .away = peer_start(spin_us), .name = name };

	run(name, bench_mail, &p, spin_us);
	peer_stop(p.away);
}

/* ---- loopback ---- */

struct tcp {
	const char *name;
	int listen_fd;
	struct net_addr addr;
	struct run server;
	struct mail start;
};

static void tcp_start(struct mail *m)
{
	struct tcp *t = (struct tcp *)((char *)m - offsetof(struct tcp, start));

	must(fiber_spawn_on(loop_self(), "server", t->server.fn, t), "fiber");
}

static void echo_server(void *arg)
{
	struct tcp *t = arg;
	char buf[4096];
	int64_t n;
	int fd;

	must(net_accept(t->listen_fd, &fd, NULL), "accept");
	while ((n = net_recv(fd, buf, sizeof(buf), NO_DEADLINE)) > 0) {
		struct iovec iov = { buf, (size_t)n };

		must(net_send_all(fd, &iov, 1, NO_DEADLINE), "send");
	}
	net_close(fd);
}

static void bench_echo(void *arg)
{
	struct tcp *t = arg;
	uint32_t *ns = malloc(N_TRIPS * sizeof(*ns));
	char buf[128] = "";
	int fd;

	must(net_connect(&t->addr, NO_DEADLINE, &fd), "connect");
	for (int i = 0; i < N_TRIPS; i++) {
		struct iovec out = { buf, sizeof(buf) }, in = out;
		uint64_t start = now_ns();

		must(net_send_all(fd, &out, 1, NO_DEADLINE), "send");
		must(net_recv_all(fd, &in, 1, NO_DEADLINE), "recv");
		ns[i] = (uint32_t)(now_ns() - start);
	}
	net_close(fd);
	print_trips(t->name, ns, N_TRIPS);
	free(ns);
}

static void stream_server(void *arg)
{
	struct tcp *t = arg;
	char *buf = malloc(MIB);
	int fd;

	must(net_accept(t->listen_fd, &fd, NULL), "accept");
	for (int i = 0; i < STREAM_MIB; i++) {
		struct iovec iov = { buf, MIB };

		must(net_recv_all(fd, &iov, 1, NO_DEADLINE), "recv");
	}
	must(net_send_all(fd, &(struct iovec){ buf, 1 }, 1, NO_DEADLINE), "send");
	net_close(fd);
	free(buf);
}

static double cpu_s(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
	       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

static void bench_stream(void *arg)
{
	struct tcp *t = arg;
	char *buf = malloc(MIB), end;
	struct iovec last = { &end, 1 };
	uint64_t start;
	double cpu, gb = (double)STREAM_MIB * MIB / 1e9;
	int fd;

	memset(buf, 1, MIB);
	must(net_connect(&t->addr, NO_DEADLINE, &fd), "connect");
	cpu = cpu_s();
	start = now_ns();
	for (int i = 0; i < STREAM_MIB; i++) {
		struct iovec iov = { buf, MIB };

		must(net_send_all(fd, &iov, 1, NO_DEADLINE), "send");
	}
	must(net_recv_all(fd, &last, 1, NO_DEADLINE), "recv");
	printf("%-36s %7.2f GB/s, %.2f CPU-s per GB\n", t->name,
	       gb / ((double)(now_ns() - start) / 1e9), (cpu_s() - cpu) / gb);
	net_close(fd);
	free(buf);
}

static void tcp(const char *name, void (*server)(void *), void (*client)(void *), uint32_t spin_us)
{
	struct tcp t = { .name = name, .server = { .fn = server }, .start = { .fn = tcp_start } };
	struct loop *peer;

	if (strstr(name, only) == NULL)
		return;
	must(net_addr_parse("127.0.0.1:0", &t.addr), "address");
	must(net_listen(&t.addr, 4, &t.listen_fd, &t.addr), "listen");
	peer = peer_start(spin_us);
	loop_post(peer, &t.start);
	run(name, client, &t, spin_us);
	peer_stop(peer);
	net_close(t.listen_fd);
}

/* ---- files ---- */

struct reads {
	const char *name;
	int flags;
	struct env_file *f;
	uint32_t left;
};

static void read_blocks(void *arg)
{
	struct reads *r = *(struct reads **)arg;
	void *buf;

	if (posix_memalign(&buf, 4096, 4096) != 0)
		abort();
	while (r->left > 0) {
		uint64_t block = (uint64_t)--r->left * 7919 % FILE_BLOCKS;

		must(env_file_pread(r->f, buf, 4096, block * 4096), "read");
	}
	free(buf);
}

static void bench_reads(void *arg)
{
	struct reads *r = arg, *same[READ_DEPTH];
	const char path[] = "bench_rt.tmp";
	void *block;
	uint64_t start;

	if (posix_memalign(&block, 4096, MIB) != 0)
		abort();
	memset(block, 3, MIB);
	must(env_file_open(env, path, O_RDWR | O_CREAT | r->flags, 0600, &r->f), path);
	for (uint32_t i = 0; i < FILE_BLOCKS * 4096ull / MIB; i++)
		must(env_file_pwrite(r->f, block, MIB, (uint64_t)i * MIB), "write");
	must(env_file_datasync(r->f), "sync");
	for (int i = 0; i < READ_DEPTH; i++)
		same[i] = r;
	r->left = N_READS;
	start = now_ns();
	fiber_parallel("read", read_blocks, same, sizeof(same[0]), READ_DEPTH, READ_DEPTH);
	printf("%-36s %7.0f k/s%s\n", r->name, N_READS / ((double)(now_ns() - start) / 1e9) / 1e3,
	       (r->flags & O_DIRECT) && !env_file_is_direct(r->f) ? " (O_DIRECT refused)" : "");
	env_file_close(r->f);
	must(env_unlink(env, path), "unlink");
	free(block);
}

static void jobs(void *arg)
{
	uint32_t *ns = malloc(N_TRIPS * sizeof(*ns));

	(void)arg;
	for (int i = 0; i < N_TRIPS; i++) {
		uint64_t start = now_ns();

		must(env_offload(env, nothing, NULL), "offload");
		ns[i] = (uint32_t)(now_ns() - start);
	}
	print_trips("offload to a worker and back", ns, N_TRIPS);
	free(ns);
}

int main(int argc, char **argv)
{
	struct reads direct = { .name = "4 KiB reads, direct, 64 deep", .flags = O_DIRECT };
	struct reads cached = { .name = "4 KiB reads, cached, 64 deep" };

	if (argc > 1)
		only = argv[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	must(env_real_create(NULL, &env), "env");
	run("yield", bench_switch, NULL, 0);
	run("spawn", bench_spawn, NULL, 0);
	mail("mail to a loop and back, sleeping", 0);
	mail("mail to a loop and back, spinning", 100);
	tcp("echo of 128 B, sleeping", echo_server, bench_echo, 0);
	tcp("echo of 128 B, spinning", echo_server, bench_echo, 100);
	tcp("stream of 1 MiB sends, sleeping", stream_server, bench_stream, 0);
	tcp("stream of 1 MiB sends, spinning", stream_server, bench_stream, 100);
	run(direct.name, bench_reads, &direct, 0);
	run(cached.name, bench_reads, &cached, 0);
	run("offload", jobs, NULL, 100);
	run("parked fibers", bench_memory, NULL, 0);
	env_real_destroy(env);
	return 0;
}
