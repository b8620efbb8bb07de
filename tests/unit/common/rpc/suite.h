/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rpc promises, whatever carries it: the tests of suite*.c run over each transport. A bed
 * has a server's place and a client's place; a test is a fiber in the client's. All on one thread,
 * except where a test kills a process (suite_kill.c): that is a child.
 */
#ifndef LEAT_TEST_RPC_SUITE_H
#define LEAT_TEST_RPC_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/rpc/rpc.h"
#include "common/rt/env.h"

#define SLOT_SIZE (256u << 10)
/* Times that are long enough here, in ms or us, times how slow the machine may be. */
#define SLOWLY(t) ((t) * (uint64_t)suite_slowness)
/* For what is answered at once, on the busiest machine: no test waits so long. */
#define SHORT_MS SLOWLY(30000)
/* The longest that tests wait for what will not be answered. */
#define VAIN_MS SLOWLY(1000)
/* A nap that lasts while the gate is shut. */
#define NAP_AT_GATE UINT32_MAX
extern uint32_t suite_slowness; /* 1 */
/* In the seed of a read: its handler waits at the gate; its slots are filled in odd pieces. */
#define SUITE_GATE 0x80000000u
#define SUITE_ODD 0x40000000u

/* What the handlers of suite_bed.c saw. One thread, so plain variables. */
struct suite_seen {
	uint32_t running, most_running, canceled, served, opened, closed, connected, disconnected,
		callbacks;
	int refuse_open;
	uint32_t writes, wrong_data; /* data of writes that was not what its request says */
	uint32_t at_gate, most_at_gate;
	bool gate_shut;              /* requests with SUITE_GATE wait for suite_gate_open */
};
extern struct suite_seen suite_seen;

struct auth_peer;

struct bed {
	struct transport *transport;
	const char *listen; /* address to listen on, port 0 */
	/* fn(arg) in a fiber where the server lives; waits until it has returned. */
	void (*at_server)(struct bed *b, void (*fn)(void *arg), void *arg);
	/* The server's process ends without a word. NULL: this transport cannot. */
	void (*crash_server)(struct bed *b);
	void (*partition)(struct bed *b, bool cut);
	/* Starts this program again as "PROGRAM suite-peer ARGS": a process that may be killed;
	 * NULL where there are no processes. See suite_kill.c. */
	const char *program;
	bool unbounded; /* frames that nobody reads hold up nobody (sim) */
	bool lazy_sends;        /* the device sends what lies in memory when it is received (siw) */
	uint32_t scale;         /* 1: quick; more: so much more work */
	bool brief;             /* a machine so slow that quick is long: less data, fewer steps */
	struct rpc_server *server;
	char addrs[128];
	struct slot_pool *server_pool, *client_pool;
	uint32_t slot_size, n_slots; /* of both pools */
	struct rpc_key key;
	struct uuid cluster;
};

/* Runs test(bed) in a fiber of a fresh bed. */
typedef void suite_run(void (*test)(struct bed *b));
/* The suite, with the runner of a transport; returns the number of failed tests. */
int suite_main(const char *name, suite_run *run);

struct suite_test {
	const char *name;
	void (*fn)(struct bed *b);
};
/* By subject; each ends with a NULL. */
extern const struct suite_test suite_basic_tests[], suite_bulk_tests[], suite_flow_tests[],
	suite_late_tests[], suite_load_tests[], suite_kill_tests[];

/* ---- suite_real.c: a bed on a real loop ---- */
struct suite_real {
	int (*create)(struct transport **ret_transport);
	const char *listen;
	const char *program; /* argv[0] where main calls suite_peer_main; or NULL */
	uint32_t scale;
	uint32_t slot_size; /* 0: SLOT_SIZE */
	bool brief, lazy_sends;
};
void suite_real_run(const struct suite_real *how, void (*test)(struct bed *b));

/* ---- suite_kill.c ---- */
/* For main: when argv says so, be a process that a test has started; returns its exit status,
 * or -1: not so. */
int suite_peer_main(int argc, char **argv, const struct suite_real *how);

/* ---- suite_bed.c ---- */
struct suite_caller {
	struct bed *bed;
	struct rpc_client *c;
	struct latch *done;
	uint32_t i;
	uint64_t nap_ms, deadline_ms;
	struct fiber *fiber;
	int rc;
};
/* n fibers of fn, each with a copy of `like`; latch_wait(done) waits for them. */
void suite_spawn(struct suite_caller *a, uint32_t n, void (*fn)(void *), struct latch *done,
		 const struct suite_caller *like);
/* Waits until *n is value (more: at least so much); fails the test after a minute. */
void suite_until(const uint32_t *n, uint32_t value);
void suite_gate_shut(void);
void suite_gate_open(struct bed *b);
/* Somewhat later, by itself. */
void suite_gate_open_soon(struct bed *b);
/* A link with no client on it, and a request on it, whose answer nobody takes. */
struct link *suite_deaf_client(struct bed *b, struct auth_peer *ret_peer);
int suite_deaf_ask(struct link *k, uint64_t id, uint16_t op, const struct wire_w *w,
		   const struct slot_vec *vec, uint32_t n);
/* Of the bed's slot size, registered with its transport. */
struct slot_pool *suite_pool(struct bed *b, uint32_t n_slots, enum pool_use use);
uint64_t suite_random(uint64_t *state);
struct rpc_server_options suite_server_options(struct bed *b);
void suite_server_start(struct bed *b, const struct rpc_server_options *opts);
void suite_server_stop(struct bed *b, uint32_t drain_ms);
struct rpc_client *suite_client(struct bed *b);
void suite_client_options(struct bed *b, struct rpc_client_options *o);
struct rpc_client *suite_client_of(const struct rpc_client_options *o);
/* The server sleeps nap_ms. */
int suite_nap(struct rpc_client *c, uint64_t nap_ms, uint64_t deadline_ms);
int suite_ping(struct rpc_client *c, uint32_t value, uint64_t deadline_ms);
/* Of a ping that nobody answers: what its caller is told, as soon as that is status; after VAIN_MS
 * whatever it is. */
int suite_ping_in_vain(struct rpc_client *c, int status);
void suite_fill(struct slot_vec *v, uint32_t n, uint32_t seed);
bool suite_is_pattern(const struct slot_vec *v, uint32_t n, uint32_t len, uint32_t seed);
/* The slots of len bytes; suite_slots_put gives them back. */
uint32_t suite_slots(struct slot_pool *p, uint32_t len, struct slot_vec *vec);
void suite_slots_put(struct slot_vec *vec, uint32_t n);
/* len bytes as pieces of odd lengths at odd offsets, at most n_max, each in a slot of its own. */
uint32_t suite_slots_odd(struct slot_pool *p, uint32_t len, uint32_t seed, struct slot_vec *vec,
			 uint32_t n_max);
int suite_body(struct rpc_client *c, uint32_t len, uint64_t deadline_ms);
int suite_read(struct rpc_client *c, uint32_t len, uint32_t seed, struct slot_vec *vec, uint32_t n,
	       uint64_t deadline_ms);
int suite_write(struct rpc_client *c, uint32_t len, uint32_t seed, struct slot_vec *vec, uint32_t n,
		uint64_t deadline_ms);

#endif
