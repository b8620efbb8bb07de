/*
 * What rpc promises, whatever carries it: the tests of suite.c run over each transport. A bed has a
 * server's place and a client's place; a test is a fiber in the client's. All on one thread.
 */
#ifndef LEAT_TEST_RPC_SUITE_H
#define LEAT_TEST_RPC_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/rpc/rpc.h"
#include "common/rt/env.h"

#define SLOT_SIZE (256u << 10)
#define SHORT_MS 2000

/* What the handlers of suite_bed.c saw. One thread, so plain variables. */
struct suite_seen {
	uint32_t running, most_running, canceled, served, opened, closed, connected, disconnected,
		callbacks;
	int refuse_open;
};
extern struct suite_seen suite_seen;

struct bed {
	struct transport *transport;
	const char *listen; /* address to listen on, port 0 */
	/* fn(arg) in a fiber where the server lives; waits until it has returned. */
	void (*at_server)(struct bed *b, void (*fn)(void *arg), void *arg);
	/* The server's process ends without a word. NULL: this transport cannot. */
	void (*crash_server)(struct bed *b);
	void (*partition)(struct bed *b, bool cut);
	struct rpc_server *server;
	char addrs[128];
	struct slot_pool *server_pool, *client_pool;
	struct rpc_key key;
	struct uuid cluster;
};

/* Runs test(bed) in a fiber of a fresh bed. */
typedef void suite_run(void (*test)(struct bed *b));
/* The suite, with the runner of a transport; returns the number of failed tests. */
int suite_main(const char *name, suite_run *run);

/* ---- suite_bed.c ---- */
struct rpc_server_options suite_server_options(struct bed *b);
void suite_server_start(struct bed *b, const struct rpc_server_options *opts);
void suite_server_stop(struct bed *b, uint32_t drain_ms);
struct rpc_client *suite_client(struct bed *b);
void suite_client_options(struct bed *b, struct rpc_client_options *o);
struct rpc_client *suite_client_of(const struct rpc_client_options *o);
/* The server sleeps nap_ms. */
int suite_nap(struct rpc_client *c, uint64_t nap_ms, uint64_t deadline_ms);
int suite_ping(struct rpc_client *c, uint32_t value, uint64_t deadline_ms);
void suite_fill(struct slot_vec *v, uint32_t n, uint32_t seed);
bool suite_is_pattern(const struct slot_vec *v, uint32_t n, uint32_t len, uint32_t seed);
/* The slots of len bytes; suite_slots_put gives them back. */
uint32_t suite_slots(struct slot_pool *p, uint32_t len, struct slot_vec *vec);
void suite_slots_put(struct slot_vec *vec, uint32_t n);
int suite_read(struct rpc_client *c, uint32_t len, uint32_t seed, struct slot_vec *vec, uint32_t n,
	       uint64_t deadline_ms);
int suite_write(struct rpc_client *c, uint32_t len, uint32_t seed, struct slot_vec *vec, uint32_t n,
		uint64_t deadline_ms);

#endif
