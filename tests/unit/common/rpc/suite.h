/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rpc guarantees over every transport: the tests of suite*.c run over each. A bed has a
 * server's side and a client's side; a test is a fiber on the client's side. All on one thread,
 * except where a test kills a child process (suite_kill.c).
 */
#ifndef LEAT_TESTS_UNIT_COMMON_RPC_SUITE_H
#define LEAT_TESTS_UNIT_COMMON_RPC_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/rpc/rpc.h"
#include "common/rt/env.h"

#define SLOT_SIZE (256u << 10)
/* A time in ms or us, multiplied by the slowness of the machine. */
#define SLOWLY(t) ((t) * (uint64_t)suite_slowness)
/* For calls that are answered immediately, on the busiest machine: no test waits that long. */
#define SHORT_MS SLOWLY(30000)
/* The longest time that tests wait for a call without an answer. */
#define VAIN_MS SLOWLY(1000)
/* A nap until the gate is opened. */
#define NAP_AT_GATE UINT32_MAX
extern uint32_t suite_slowness; /* default 1 */
/* Flags in the seed of a read: its handler waits at the gate; it fills its slots in odd pieces. */
#define SUITE_GATE 0x80000000u
#define SUITE_ODD 0x40000000u

/* Records of the handlers of suite_bed.c. One thread, so plain variables. */
struct suite_seen {
	uint32_t running, most_running, canceled, served, opened, closed, connected, disconnected,
		callbacks;
	int refuse_open;
	uint32_t writes, wrong_data; /* writes with other data than their request states */
	uint32_t at_gate, most_at_gate;
	bool gate_shut;              /* requests with SUITE_GATE wait for suite_gate_open */
};
extern struct suite_seen suite_seen;

struct auth_peer;

struct bed {
	struct transport *transport;
	const char *listen; /* address to listen on, port 0 */
	/* Runs fn(arg) in a fiber of the server, and waits until it has returned. */
	void (*at_server)(struct bed *b, void (*fn)(void *arg), void *arg);
	/* Ends the server's process without a goodbye. NULL: not possible with this transport. */
	void (*crash_server)(struct bed *b);
	void (*partition)(struct bed *b, bool cut);
	/* Starts this program again as "PROGRAM suite-peer ARGS": a process that tests may kill.
	 * NULL: no processes. See suite_kill.c. */
	const char *program;
	bool unbounded; /* frames that are not read block no sender (sim) */
	bool lazy_sends;        /* the device sends memory as it is at reception (siw) */
	uint32_t scale;         /* 1: quick; n: n times the work */
	bool brief;             /* for slow machines: less data, fewer steps */
	struct rpc_server *server;
	char addrs[128];
	struct slot_pool *server_pool, *client_pool;
	uint32_t slot_size, n_slots; /* of both pools */
	struct rpc_key key;
	struct uuid cluster;
};

/* Runs test(bed) in a fiber, with a new bed. */
typedef void suite_run(void (*test)(struct bed *b));
/* Runs the suite with the runner of a transport; returns the number of failed tests. */
int suite_main(const char *name, suite_run *run);

struct suite_test {
	const char *name;
	void (*fn)(struct bed *b);
};
/* By subject; each list ends with a NULL. */
extern const struct suite_test suite_basic_tests[], suite_bulk_tests[], suite_flow_tests[],
	suite_late_tests[], suite_load_tests[], suite_kill_tests[];

/* ---- suite_real.c: a bed on a real loop ---- */
struct suite_real {
	int (*create)(struct transport **ret_transport);
	const char *listen;
	const char *program; /* argv[0] if main calls suite_peer_main; or NULL */
	uint32_t scale;
	uint32_t slot_size; /* 0: SLOT_SIZE */
	bool brief, lazy_sends;
};
void suite_real_run(const struct suite_real *how, void (*test)(struct bed *b));

/* ---- suite_kill.c ---- */
/* For main: if argv names a peer, runs it and returns its exit status. Otherwise returns -1. */
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
/* Starts n fibers of fn, each with a copy of `like`; latch_wait(done) waits for them. */
void suite_spawn(struct suite_caller *a, uint32_t n, void (*fn)(void *), struct latch *done,
		 const struct suite_caller *like);
/* Waits until *n is at least value; fails the test after a minute. */
void suite_until(const uint32_t *n, uint32_t value);
void suite_gate_shut(void);
void suite_gate_open(struct bed *b);
/* Opens the gate somewhat later, in a fiber. */
void suite_gate_open_soon(struct bed *b);
/* Makes a link without a client. suite_deaf_ask sends a request on it; no reader takes the
 * reply. */
struct link *suite_deaf_client(struct bed *b, struct auth_peer *ret_peer);
int suite_deaf_ask(struct link *k, uint64_t id, uint16_t op, const struct wire_w *w,
		   const struct slot_vec *vec, uint32_t n);
/* Makes a pool with the bed's slot size, registered with its transport. */
struct slot_pool *suite_pool(struct bed *b, uint32_t n_slots, enum pool_use use);
uint64_t suite_random(uint64_t *state);
struct rpc_server_options suite_server_options(struct bed *b);
void suite_server_start(struct bed *b, const struct rpc_server_options *opts);
void suite_server_stop(struct bed *b, uint32_t drain_ms);
struct rpc_client *suite_client(struct bed *b);
void suite_client_options(struct bed *b, struct rpc_client_options *o);
struct rpc_client *suite_client_of(const struct rpc_client_options *o);
/* The server's handler sleeps for nap_ms. */
int suite_nap(struct rpc_client *c, uint64_t nap_ms, uint64_t deadline_ms);
int suite_ping(struct rpc_client *c, uint32_t value, uint64_t deadline_ms);
/* Sends pings that get no answer. Returns their status as soon as that equals `status`, after
 * VAIN_MS any status. */
int suite_ping_in_vain(struct rpc_client *c, int status);
void suite_fill(struct slot_vec *v, uint32_t n, uint32_t seed);
bool suite_is_pattern(const struct slot_vec *v, uint32_t n, uint32_t len, uint32_t seed);
/* Takes slots for len bytes; suite_slots_put returns them. */
uint32_t suite_slots(struct slot_pool *p, uint32_t len, struct slot_vec *vec);
void suite_slots_put(struct slot_vec *vec, uint32_t n);
/* len bytes in pieces of odd lengths at odd offsets, at most n_max, each in a slot of its own. */
uint32_t suite_slots_odd(struct slot_pool *p, uint32_t len, uint32_t seed, struct slot_vec *vec,
			 uint32_t n_max);
int suite_body(struct rpc_client *c, uint32_t len, uint64_t deadline_ms);
int suite_read(struct rpc_client *c, uint32_t len, uint32_t seed, struct slot_vec *vec, uint32_t n,
	       uint64_t deadline_ms);
int suite_write(struct rpc_client *c, uint32_t len, uint32_t seed, struct slot_vec *vec, uint32_t n,
		uint64_t deadline_ms);

#endif
