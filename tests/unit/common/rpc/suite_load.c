/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of random kinds and sizes, from several clients concurrently. */
#include "tests/unit/common/rpc/suite.h"

#define CLIENTS   5u
#define FIBERS    6u
#define LOAD_MS   60000
#define LOAD_UNIT 3000u /* requests at scale 1; the long run scales them to 10^5 */

/* Mostly small sizes: their logarithm is uniform. */
static uint32_t random_size(uint64_t *rng, uint32_t bits)
{
	uint32_t up_to = 1u << (suite_random(rng) % (bits + 1));

	return (uint32_t)(suite_random(rng) % (up_to + 1u));
}

static void one_request(struct suite_caller *a, uint64_t *rng)
{
	struct slot_vec vec[8];
	uint32_t len, n, seed = (uint32_t)(suite_random(rng) & 0xffff);

	switch (suite_random(rng) % 8) {
	case 0:
	case 1:
		assert_int_equal(suite_ping(a->c, seed, LOAD_MS), 0);
		break;
	case 2:
		assert_int_equal(suite_body(a->c, random_size(rng, 17), LOAD_MS), 0);
		break;
	case 3:
		assert_int_equal(suite_nap(a->c, 0, LOAD_MS), 0);
		break;
	default:
		len = random_size(rng, 20);
		n = len > a->bed->slot_size / 2
			    ? suite_slots(a->bed->client_pool, len, vec)
			    : suite_slots_odd(a->bed->client_pool, len, seed, vec, 2);
		if (seed % 2 == 0) {
			suite_fill(vec, n, seed);
			assert_int_equal(suite_write(a->c, len, seed, vec, n, LOAD_MS), 0);
		} else {
			assert_int_equal(suite_read(a->c, len, seed, vec, n, LOAD_MS), 0);
		}
		suite_slots_put(vec, n);
	}
}

static void caller_load(void *arg)
{
	struct suite_caller *a = arg;
	uint64_t rng = 77777 + a->i;

	uint32_t n = LOAD_UNIT * a->bed->scale / (CLIENTS * FIBERS) / (a->bed->brief ? 3 : 1);

	for (uint32_t k = 0; k < n; k++)
		one_request(a, &rng);
	latch_done(a->done);
}

static void test_load(struct bed *b)
{
	static struct suite_caller a[CLIENTS * FIBERS];
	struct rpc_client *c[CLIENTS];
	struct latch done;

	struct slot_pool *usual = b->client_pool;
	uint32_t n_slots = b->n_slots;

	/* The pools have slots for all concurrent requests: none waits while it holds some. */
	b->n_slots = CLIENTS * FIBERS * 4;
	b->client_pool = suite_pool(b, b->n_slots, POOL_REMOTE);
	suite_server_start(b, NULL);
	latch_init(&done, CLIENTS * FIBERS);
	for (uint32_t i = 0; i < CLIENTS * FIBERS; i++) {
		if (i < CLIENTS)
			c[i] = suite_client(b);
		a[i] = (struct suite_caller){.bed = b, .c = c[i % CLIENTS], .done = &done, .i = i};
		assert_int_equal(fiber_spawn("caller", caller_load, &a[i]), 0);
	}
	latch_wait(&done);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct rpc_client_stats st;
		rpc_client_stats(c[i], &st);
		assert_int_equal(st.connects, 1);
		assert_int_equal(st.calls, st.replies);
		rpc_client_destroy(c[i]);
	}
	assert_int_equal(suite_seen.wrong_data, 0);
	assert_int_equal(slot_pool_free(b->client_pool), slot_pool_total(b->client_pool));
	suite_server_stop(b, 1000);
	slot_pool_destroy(b->client_pool);
	b->client_pool = usual;
	b->n_slots = n_slots;
}

const struct suite_test suite_load_tests[] = {
	{"load", test_load},
	{NULL, NULL},
};
