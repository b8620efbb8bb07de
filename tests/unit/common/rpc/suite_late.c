/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that the caller gives up. When rpc_call has returned, its buffers belong to the caller
 * again: nothing that arrives later may write to them or read from them. Each test gives a call up,
 * reuses the buffers immediately, lets the server finish, and checks the buffers.
 */
#include "tests/unit/common/rpc/suite.h"

#define LEN     (1u << 20)
#define MID_LEN (8u << 20)
#define OLD     11u
#define NEW     500u

static struct rpc_call read_call(const struct oss_read_req *q, struct oss_read_rep *p,
				 const struct slot_vec *vec, uint32_t n)
{
	return (struct rpc_call){
		.op = OP_oss_read, .req = q, .rep = p, .bulk_in = vec, .n_bulk_in = n};
}

/* Waits until the server has served n_served requests and everything that it sent has arrived. */
static void settle(struct bed *b, struct rpc_client *c, uint32_t n_served)
{
	suite_until(&suite_seen.served, n_served);
	assert_int_equal(suite_ping(c, 1, 10 * SHORT_MS), 0);
	(void)b;
}

/* The server holds the reply until the caller has given up and reused the buffers. */
static void test_late_read(struct bed *b)
{
	struct slot_vec vec[8];

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	/* connecting takes time, and is not under test */
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	for (uint32_t round = 0; round < 5; round++) {
		uint32_t n = suite_slots_odd(b->client_pool, LEN, round, vec, 8);
		uint32_t served = suite_seen.served;
		suite_gate_shut();
		assert_int_equal(suite_read(c, LEN, OLD | SUITE_GATE, vec, n, SLOWLY(10)),
				 -LE_TIMEDOUT);
		suite_until(&suite_seen.at_gate, 1);
		suite_fill(vec, n, NEW + round);
		suite_gate_open(b);
		settle(b, c, served + 1);
		assert_true(suite_is_pattern(vec, n, LEN, NEW + round));
		suite_slots_put(vec, n);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 1000);
}

/* The next read uses the slots of the first one when the server sends the first reply. */
static void test_late_read_into_next(struct bed *b)
{
	struct slot_vec vec[8];

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	/* connecting takes time, and is not under test */
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	for (uint32_t round = 0; round < 5; round++) {
		uint32_t n = suite_slots(b->client_pool, LEN, vec);
		uint32_t served = suite_seen.served;
		suite_gate_shut();
		assert_int_equal(suite_read(c, LEN, OLD | SUITE_GATE, vec, n, SLOWLY(10)),
				 -LE_TIMEDOUT);
		suite_until(&suite_seen.at_gate, 1);
		/* the pool returns the last freed slots first */
		suite_slots_put(vec, n);
		n = suite_slots(b->client_pool, LEN, vec);
		assert_int_equal(suite_read(c, LEN, NEW + round, vec, n, 10 * SHORT_MS), 0);
		suite_gate_open(b);
		settle(b, c, served + 2);
		assert_true(suite_is_pattern(vec, n, LEN, NEW + round));
		suite_slots_put(vec, n);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 1000);
}

static struct slot_vec held[RPC_BULK_VECS_MAX * 2];
static uint32_t n_held;

static void hold_slots(void *arg)
{
	struct slot *s;

	for (n_held = 0; (s = slot_try_get(((struct bed *)arg)->server_pool)) != NULL; n_held++)
		held[n_held] = (struct slot_vec){s, 0, 0};
}

static void give_slots(void *arg)
{
	(void)arg;
	suite_slots_put(held, n_held);
}

/* The server has no slots for the data until the caller has given up and overwritten it: the
 * handler gets the original data or nothing. */
static void test_late_write(struct bed *b)
{
	struct slot_vec vec[8];

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	/* connecting takes time, and is not under test */
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	for (uint32_t round = 0; round < 5; round++) {
		uint32_t n = suite_slots_odd(b->client_pool, LEN, round, vec, 8);
		assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
		suite_fill(vec, n, OLD);
		b->at_server(b, hold_slots, b);
		assert_int_equal(suite_write(c, LEN, OLD, vec, n, SLOWLY(10)), -LE_TIMEDOUT);
		suite_fill(vec, n, NEW + round);
		b->at_server(b, give_slots, NULL);
		assert_int_equal(suite_ping(c, 1, 10 * SHORT_MS), 0);
		assert_int_equal(suite_write(c, LEN, NEW + round, vec, n, 10 * SHORT_MS), 0);
		assert_int_equal(suite_seen.wrong_data, 0);
		suite_slots_put(vec, n);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 1000);
}

/* ---- in the middle of a transfer ---- */

struct middle {
	struct bed *b;
	struct rpc_client *c;
	struct slot_vec vec[RPC_BULK_VECS_MAX];
	uint32_t n, len, n_given_up, n_done;
	struct fiber *fiber; /* in a call that may be interrupted */
};

static int middle_read(struct middle *m, uint64_t deadline_us)
{
	struct oss_read_req q = {.len = m->len, .flags = OLD};
	struct oss_read_rep p;
	struct rpc_call call = read_call(&q, &p, m->vec, m->n);

	call.deadline_us = deadline_us;
	int rc = rpc_call(m->c, &call);
	rpc_call_fini(&call);
	return rc;
}

static int middle_write(struct middle *m, uint64_t deadline_us)
{
	struct oss_write_req q = {.len = m->len, .flags = OLD};
	struct oss_write_rep p;
	struct rpc_call call = {.op = OP_oss_write,
				.req = &q,
				.rep = &p,
				.bulk_out = m->vec,
				.n_bulk_out = m->n,
				.deadline_us = deadline_us};

	suite_fill(m->vec, m->n, OLD);
	int rc = rpc_call(m->c, &call);
	rpc_call_fini(&call);
	return rc;
}

static void interrupter(void *arg)
{
	struct suite_caller *a = arg;

	(void)fiber_sleep_us(a->nap_ms); /* here: microseconds */
	if (a->fiber != NULL)
		fiber_interrupt(a->fiber);
	latch_done(a->done);
}

/* One call that ends after us, by its deadline or by an interrupt. */
static void give_up_after(struct middle *m, int (*fn)(struct middle *, uint64_t), uint64_t us,
			  bool interrupt)
{
	struct rpc_client_stats st;
	struct suite_caller other;
	struct latch done;
	int rc;

	if (interrupt) {
		suite_spawn(&other, 1, interrupter, &done,
			    &(struct suite_caller){.nap_ms = us, .fiber = fiber_self()});
		rc = fn(m, loop_deadline_ms(20 * SHORT_MS));
		other.fiber = NULL;
	} else {
		rc = fn(m, loop_now_us() + us);
	}
	suite_fill(m->vec, m->n, NEW);
	assert_true(rc == 0 || rc == (interrupt ? -LE_INTR : -LE_TIMEDOUT) ||
		    rc == -LE_DISCONNECTED);
	if (interrupt) {
		latch_wait(&done);
		/* a late interrupt would affect the next call */
		(void)!fiber_sleep_us(0);
	}
	if (rc == 0)
		m->n_done++;
	else
		m->n_given_up++;
	assert_int_equal(suite_ping(m->c, 1, 10 * SHORT_MS), 0);
	while (suite_seen.running > 0)
		(void)fiber_sleep_us(100);
	assert_int_equal(suite_ping(m->c, 1, 10 * SHORT_MS), 0);
	assert_true(suite_is_pattern(m->vec, m->n, m->len, NEW));
	rpc_client_stats(m->c, &st);
	/* Where the device sends from the caller's pages, a READ that was answered just before its
	 * connection broke may return later content. */
	if (!m->b->lazy_sends)
		assert_int_equal(suite_seen.wrong_data, 0);
	else
		assert_true(suite_seen.wrong_data <= st.disconnects);
}

/* At any time of a transfer, in steps of the time that a complete one takes. */
static void give_up_everywhere(struct bed *b, int (*fn)(struct middle *, uint64_t), bool interrupt)
{
	struct middle m = {.b = b, .len = b->brief ? MID_LEN / 4 : MID_LEN};
	uint32_t steps = 12 * b->scale;
	uint64_t whole_us = UINT64_MAX;

	suite_server_start(b, NULL);
	m.c = suite_client(b);
	m.n = suite_slots_odd(b->client_pool, m.len, 5, m.vec, RPC_BULK_VECS_MAX);
	/* The shortest of some: one that was delayed would make the steps too long. */
	for (int i = 0; i < (b->brief ? 4 : 8); i++) {
		uint64_t t = loop_now_us(), us;

		assert_int_equal(fn(&m, loop_deadline_ms(20 * SHORT_MS)), 0);
		fiber_yield();
		us = loop_now_us() - t + 1;
		whole_us = us < whole_us ? us : whole_us;
	}
	for (uint32_t i = 1; i <= steps; i++)
		give_up_after(&m, fn, whole_us * i / steps + 1, interrupt);
	/* The machine was busier during the measurement than afterwards: use shorter times. */
	for (uint64_t us = whole_us / steps; m.n_given_up == 0 && us > 0; us /= 2)
		give_up_after(&m, fn, us / 2, interrupt);
	assert_true(m.n_given_up > 0);
	suite_slots_put(m.vec, m.n);
	rpc_client_destroy(m.c);
	assert_int_equal(slot_pool_free(b->client_pool), slot_pool_total(b->client_pool));
	suite_server_stop(b, 1000);
}

static void test_timeout_in_read(struct bed *b)
{
	give_up_everywhere(b, middle_read, false);
}

static void test_timeout_in_write(struct bed *b)
{
	give_up_everywhere(b, middle_write, false);
}

static void test_interrupt_in_read(struct bed *b)
{
	give_up_everywhere(b, middle_read, true);
}

static void test_interrupt_in_write(struct bed *b)
{
	give_up_everywhere(b, middle_write, true);
}

const struct suite_test suite_late_tests[] = {
	{"late_read", test_late_read},
	{"late_read_into_next", test_late_read_into_next},
	{"late_write", test_late_write},
	{"timeout_in_read", test_timeout_in_read},
	{"timeout_in_write", test_timeout_in_write},
	{"interrupt_in_read", test_interrupt_in_read},
	{"interrupt_in_write", test_interrupt_in_write},
	{NULL, NULL},
};
