/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads stat what they list, and which do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fuse/ops/readdirplus_policy.h"

#define DIR 5u

/* Lists n entries. Returns how many come without attributes. */
static uint32_t list(struct readdirplus_policy *l, pid_t thread, uint32_t n)
{
	uint32_t bare = 0;

	for (uint32_t i = 0; i < n; i++)
		bare += !readdirplus_wanted(l, thread, DIR) || readdirplus_probe(l, thread);
	return bare;
}

static void test_who_looks_gets_attributes(void **state)
{
	struct readdirplus_policy l = {0};

	(void)state;
	for (int i = 0; i < 100; i++) {
		assert_int_equal(list(&l, 7, 10000), 10000 / READDIRPLUS_PROBE);
		readdirplus_lookup(&l, 7, DIR);
	}
}

static void test_who_does_not_look_gets_names(void **state)
{
	const uint32_t until = READDIRPLUS_PROBE * READDIRPLUS_PROBES;
	struct readdirplus_policy l = {0};

	(void)state;
	assert_int_equal(list(&l, 7, until), READDIRPLUS_PROBES);
	assert_int_equal(list(&l, 7, 1000000), 1000000);
	assert_int_equal(list(&l, 8, 1000), 1000 / READDIRPLUS_PROBE); /* another thread */
	assert_int_equal(readdirplus_lookup(&l, 8, DIR), LOOK_OTHER);
	assert_false(readdirplus_wanted(&l, 7, DIR));
	assert_int_equal(readdirplus_lookup(&l, 7, DIR), LOOK_FIRST);
	assert_int_equal(readdirplus_lookup(&l, 7, DIR), LOOK_NEXT);
	assert_int_equal(readdirplus_lookup(&l, 7, DIR + 1), LOOK_OTHER);
	assert_int_equal(readdirplus_lookup(&l, 8, DIR), LOOK_OTHER);
	assert_true(readdirplus_wanted(&l, 7, DIR));
	assert_int_equal(list(&l, 7, until), READDIRPLUS_PROBES);
}

static void test_who_never_listed_is_not_remembered(void **state)
{
	struct readdirplus_policy l = {0};

	(void)state;
	readdirplus_lookup(&l, 7, DIR);
	assert_false(readdirplus_probe(&l, 7));
	assert_int_equal(l.n, 0);
}

static void test_the_oldest_is_forgotten(void **state)
{
	struct readdirplus_policy l = {0};

	(void)state;
	list(&l, 1, READDIRPLUS_PROBE * READDIRPLUS_PROBES);
	assert_false(readdirplus_wanted(&l, 1, DIR));
	for (pid_t thread = 2; thread <= (pid_t)READDIRPLUS_THREADS_MAX + 1; thread++)
		assert_true(readdirplus_wanted(&l, thread, DIR));
	assert_int_equal(l.n, READDIRPLUS_THREADS_MAX);
	assert_true(readdirplus_wanted(&l, 1, DIR));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_looks_gets_attributes),
		cmocka_unit_test(test_who_does_not_look_gets_names),
		cmocka_unit_test(test_who_never_listed_is_not_remembered),
		cmocka_unit_test(test_the_oldest_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
