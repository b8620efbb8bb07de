/* SPDX-License-Identifier: Apache-2.0 */
/* How long a caller waits to keep to a rate, and how much an unused limit saves up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/rate_limit.h"

#define START_US 10000000u

static void test_no_limit(void **state)
{
	struct rate_limit r = {0};

	(void)state;
	assert_int_equal(rate_limit_charge(NULL, UINT64_MAX, START_US), 0);
	assert_int_equal(rate_limit_charge(&r, UINT64_MAX, START_US), 0);
	assert_int_equal(r.paid_until_us, 0);
}

static void test_waits_add_up(void **state)
{
	struct rate_limit r = {0};

	(void)state;
	rate_limit_set(&r, 1000, 0);
	assert_int_equal(rate_limit_charge(&r, 100, START_US), 100000);
	assert_int_equal(rate_limit_charge(&r, 50, START_US), 150000);
	assert_int_equal(rate_limit_charge(&r, 0, START_US + 100000), 50000);
	assert_int_equal(rate_limit_charge(&r, 1, START_US + 150000), 1000);
}

static void test_an_unused_limit_saves_a_burst(void **state)
{
	struct rate_limit r = {0};

	(void)state;
	rate_limit_set(&r, 1000, RATE_LIMIT_BURST_US);
	assert_int_equal(rate_limit_charge(&r, 250, START_US), 0);
	assert_int_equal(rate_limit_charge(&r, 1, START_US), 1000);
	/* the burst does not grow, however long the limit was unused */
	assert_int_equal(rate_limit_charge(&r, 250, 1000 * (uint64_t)START_US), 0);
	assert_int_equal(rate_limit_charge(&r, 1, 1000 * (uint64_t)START_US), 1000);
}

static void test_a_new_rate_keeps_what_was_charged(void **state)
{
	struct rate_limit r = {0};

	(void)state;
	rate_limit_set(&r, 1000, 0);
	assert_int_equal(rate_limit_charge(&r, 1000, START_US), 1000000);
	rate_limit_set(&r, 1000000, 0);
	assert_int_equal(rate_limit_charge(&r, 1000000, START_US), 2000000);
}

static void test_large_amounts_do_not_overflow(void **state)
{
	struct rate_limit r = {0};

	(void)state;
	rate_limit_set(&r, 1ULL << 40, 0);
	assert_int_equal(rate_limit_charge(&r, 1ULL << 50, START_US), 1024000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_limit),
		cmocka_unit_test(test_waits_add_up),
		cmocka_unit_test(test_an_unused_limit_saves_a_burst),
		cmocka_unit_test(test_a_new_rate_keeps_what_was_charged),
		cmocka_unit_test(test_large_amounts_do_not_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
