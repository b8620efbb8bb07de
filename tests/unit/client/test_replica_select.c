/* SPDX-License-Identifier: Apache-2.0 */
/* Which member of a chain gets a request, and when a second one does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/servers/cluster_map.h"
#include "client/servers/hedge.h"
#include "client/servers/replica_select.h"
#include "client/servers/target.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"

#define N 3

struct bed {
	struct target t[N];
	struct chain ch;
};

static void make(struct bed *b)
{
	*b = (struct bed){.ch = {.id = 7, .epoch = 3, .n_members = N}};
	for (uint32_t i = 0; i < N; i++) {
		b->t[i] = (struct target){.id = 10 + i, .state = TARGET_UP, .up = true};
		b->ch.members[i] = (struct map_member){&b->t[i], true};
	}
}

static void what_changes_goes_to_the_head(void **state)
{
	struct replica_route r = {.head = true};
	struct bed b;

	(void)state;
	make(&b);
	assert_false(replica_any_member(OP_oss_write));
	assert_false(replica_any_member(OP_oss_stat));
	assert_true(replica_any_member(OP_oss_read));
	for (uint64_t s = 0; s < 100; s++) {
		r.hash = s;
		assert_ptr_equal(replica_pick(&r, &b.ch, 0), &b.t[0]);
	}
	/* Only the head can answer, however often it fails. */
	r.target = &b.t[0];
	replica_failed(&r, true);
	assert_ptr_equal(replica_pick(&r, &b.ch, 0), &b.t[0]);
}

static void reads_spread_over_members_in_sync(void **state)
{
	uint32_t n[N] = {0};
	struct bed b;

	(void)state;
	make(&b);
	b.ch.members[2].sync = false;
	for (uint64_t s = 0; s < 1000; s++) {
		struct replica_route r = {.hash = s};
		struct target *t = replica_pick(&r, &b.ch, 0);

		assert_ptr_equal(t, replica_pick(&r, &b.ch, 0));
		n[t - b.t]++;
	}
	assert_true(n[0] > 300 && n[1] > 300);
	assert_int_equal(n[2], 0);
}

static void near_before_far_and_quick_before_near(void **state)
{
	struct replica_route r = {.hash = 1};
	struct bed b;

	(void)state;
	make(&b);
	b.t[1].near = true;
	for (r.hash = 0; r.hash < 50; r.hash++)
		assert_ptr_equal(replica_pick(&r, &b.ch, 0), &b.t[1]);
	b.t[1].slow_until_us = 1000;
	assert_ptr_not_equal(replica_pick(&r, &b.ch, 999), &b.t[1]);
	assert_ptr_equal(replica_pick(&r, &b.ch, 1000), &b.t[1]);
	b.t[1].lost = true;
	assert_ptr_not_equal(replica_pick(&r, &b.ch, 1000), &b.t[1]);
	/* They are selected nevertheless if there is no other. */
	b.ch.members[0].sync = b.ch.members[2].sync = false;
	assert_ptr_equal(replica_pick(&r, &b.ch, 0), &b.t[1]);
}

static void each_member_once_in_a_round(void **state)
{
	struct replica_route r = {.hash = 5};
	uint32_t seen = 0;
	struct bed b;

	(void)state;
	make(&b);
	for (uint32_t i = 0; i < N; i++) {
		r.target = replica_pick(&r, &b.ch, 0);
		assert_non_null(r.target);
		seen |= 1u << (r.target - b.t);
		replica_failed(&r, i == 0);
	}
	assert_int_equal(seen, 7);
	assert_null(replica_pick(&r, &b.ch, 0));
	/* The next round excludes the one with the damaged replica. */
	replica_retry_failed(&r);
	assert_int_equal(r.n_tried, 1);
	for (uint32_t i = 1; i < N; i++) {
		r.target = replica_pick(&r, &b.ch, 0);
		assert_non_null(r.target);
		assert_ptr_not_equal(r.target, r.tried[0].target);
		replica_failed(&r, true);
	}
	replica_retry_failed(&r);
	assert_null(replica_pick(&r, &b.ch, 0));
}

static void a_chain_that_never_rests_does_not_overflow(void **state)
{
	struct replica_route r = {.hash = 5};
	struct target t[4 * REPLICA_TRIED_MAX] = {{.id = 0}};

	(void)state;
	for (uint32_t i = 0; i < 4 * REPLICA_TRIED_MAX; i++) {
		r.target = &t[i];
		replica_failed(&r, i % 2);
		assert_in_range(r.n_tried, 1, REPLICA_TRIED_MAX);
	}
}

static void hedge_follows_the_slowest_hundredth(void **state)
{
	struct latencies l = {.n = 0};

	(void)state;
	assert_int_equal(hedge_after_us(&l, 0), 0);
	/* No samples: the shortest delay. */
	assert_int_equal(hedge_after_us(&l, 50), HEDGE_MIN_US);
	for (int i = 0; i < 1000; i++)
		latencies_add(&l, 400);
	assert_int_equal(latencies_p99_us(&l), LATENCY_STEP_US);
	assert_int_equal(hedge_after_us(&l, 50), HEDGE_MIN_US);
	for (int i = 0; i < 30; i++)
		latencies_add(&l, 8000);
	assert_int_equal(latencies_p99_us(&l), 8000 + LATENCY_STEP_US);
	assert_int_equal(hedge_after_us(&l, 50), 3 * (8000 + LATENCY_STEP_US));
	for (int i = 0; i < 300; i++)
		latencies_add(&l, 10000000);
	assert_int_equal(hedge_after_us(&l, 50), 50000);
	assert_int_equal(hedge_after_us(&l, 5), 5000);
	/* Old samples decay. */
	for (int i = 0; i < 200000; i++)
		latencies_add(&l, 400);
	assert_int_equal(hedge_after_us(&l, 50), HEDGE_MIN_US);
	assert_true(l.n < LATENCIES_HALVED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_changes_goes_to_the_head),
		cmocka_unit_test(reads_spread_over_members_in_sync),
		cmocka_unit_test(near_before_far_and_quick_before_near),
		cmocka_unit_test(each_member_once_in_a_round),
		cmocka_unit_test(a_chain_that_never_rests_does_not_overflow),
		cmocka_unit_test(hedge_follows_the_slowest_hundredth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
