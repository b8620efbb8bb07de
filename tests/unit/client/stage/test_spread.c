/* SPDX-License-Identifier: Apache-2.0 */
/* Which node sends a chunk to which: no node sends it to more than a few, and no nodes wait in a
 * circle. */
#include "client/stage/fetch/spread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/lib/dies.h"

#define NODES 1000u

static bool anybody(void *arg, uint32_t who)
{
	(void)arg;
	(void)who;
	return true;
}

static bool not_this(void *arg, uint32_t who)
{
	return who != *(uint32_t *)arg;
}

static void test_a_tree(void **state)
{
	static uint32_t given[NODES], depth[NODES];
	uint32_t own = 0, deepest = 0;
	struct spread *s;
	(void)state;
	assert_int_equal(spread_create(&s), 0);
	for (uint32_t i = 0; i < NODES; i++) {
		uint32_t to = spread_refer(s, 7, i, anybody, NULL);
		if (to == SPREAD_SELF) {
			own++;
			continue;
		}
		/* To a node that requested it earlier, so that waiting ends. */
		assert_true(to < i);
		assert_true(++given[to] <= SPREAD_FAN);
		depth[i] = depth[to] + 1;
		deepest = depth[i] > deepest ? depth[i] : deepest;
	}
	assert_int_equal(own, SPREAD_FAN);
	assert_true(deepest <= 9);
	spread_destroy(s);
}

static void test_chunks_have_nothing_in_common(void **state)
{
	struct spread *s;
	(void)state;
	assert_int_equal(spread_create(&s), 0);
	for (uint64_t chunk = 0; chunk < 500; chunk++)
		assert_int_equal(spread_refer(s, chunk, 3, anybody, NULL), SPREAD_SELF);
	spread_destroy(s);
}

static void test_who_is_left_out_is_sent_nobody(void **state)
{
	uint32_t out = 0;
	struct spread *s;
	(void)state;
	assert_int_equal(spread_create(&s), 0);
	for (uint32_t i = 0; i < 100; i++)
		assert_true(spread_refer(s, 1, i, not_this, &out) != out);
	spread_destroy(s);
}

static void test_nobody_is_sent_to_itself(void **state)
{
	struct spread *s;
	(void)state;
	assert_int_equal(spread_create(&s), 0);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(spread_refer(s, 1, 5, anybody, NULL), SPREAD_SELF);
	spread_destroy(s);
}

/* What a node asks for again comes from this one: a later node may wait for it. And the others
 * are sent where they would have been sent without it. */
static void test_asking_again_takes_no_place(void **state)
{
	struct spread *s, *plain;
	(void)state;
	assert_int_equal(spread_create(&s), 0);
	assert_int_equal(spread_create(&plain), 0);
	for (uint32_t i = 0; i < NODES; i++) {
		assert_int_equal(spread_refer(s, 7, i, anybody, NULL),
				 spread_refer(plain, 7, i, anybody, NULL));
		assert_int_equal(spread_refer(s, 7, i, anybody, NULL), SPREAD_SELF);
		assert_int_equal(spread_refer(s, 7, i / 2, anybody, NULL), SPREAD_SELF);
	}
	spread_destroy(s);
	spread_destroy(plain);
}

static void refer_all(void *arg)
{
	struct spread *s;
	(void)arg;
	if (spread_create(&s) < 0)
		return;
	for (uint32_t i = 0; i < NODES; i++)
		spread_refer(s, 7, i, anybody, NULL);
}

static void test_too_many_nodes_for_one_holder_are_noticed(void **state)
{
	(void)state;
	assert_dies("spread_no_limit", refer_all, NULL, "t->sent <= SPREAD_FAN");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_tree),
		cmocka_unit_test(test_chunks_have_nothing_in_common),
		cmocka_unit_test(test_who_is_left_out_is_sent_nobody),
		cmocka_unit_test(test_nobody_is_sent_to_itself),
		cmocka_unit_test(test_asking_again_takes_no_place),
		cmocka_unit_test(test_too_many_nodes_for_one_holder_are_noticed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
