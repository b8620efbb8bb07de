/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads' opens were refused, and what they have looked up since. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fuse/ops/estale_retry.h"

static void test_only_what_was_found_after_a_refusal(void **state)
{
	struct estale_retry r = {0};

	(void)state;
	estale_retry_found(&r, 7, 100);
	assert_false(estale_retry_take(&r, 7, 100)); /* no open was refused */
	estale_retry_add(&r, 7, 99);
	assert_false(estale_retry_take(&r, 7, 100)); /* not looked up again */
	estale_retry_add(&r, 7, 99);
	estale_retry_found(&r, 7, 1); /* the folders of the path */
	estale_retry_found(&r, 7, 100);
	assert_false(estale_retry_take(&r, 8, 100));
	assert_true(estale_retry_take(&r, 7, 100));
	assert_false(estale_retry_take(&r, 7, 100)); /* good for one open */
	estale_retry_add(&r, 7, 99);
	estale_retry_found(&r, 7, 100);
	assert_false(estale_retry_take(&r, 7, 101));
}

/* /proc/self/fd/N of a file that has lost its name: there is no name to look up. */
static void test_the_same_without_a_lookup(void **state)
{
	struct estale_retry r = {0};

	(void)state;
	estale_retry_add(&r, 7, 99);
	assert_true(estale_retry_take(&r, 7, 99));
	assert_false(estale_retry_take(&r, 7, 99));
	estale_retry_add(&r, 7, 99);
	estale_retry_found(&r, 7, 100); /* by a name that is now another file's */
	assert_false(estale_retry_take(&r, 7, 99));
}

static void test_a_name_that_is_gone_ends_it(void **state)
{
	struct estale_retry r = {0};

	(void)state;
	estale_retry_add(&r, 7, 99);
	estale_retry_found(&r, 7, 0);
	estale_retry_found(&r, 7, 100);
	assert_false(estale_retry_take(&r, 7, 100));
}

static void test_neighbours_do_not_displace_each_other(void **state)
{
	struct estale_retry r = {0};

	(void)state;
	estale_retry_add(&r, 0, 99);
	estale_retry_found(&r, 0, 100);
	assert_false(estale_retry_take(&r, 0, 100));
	for (pid_t t = 1; t <= 2 * (pid_t)ESTALE_RETRIES_MAX; t++) {
		estale_retry_add(&r, t, 99);
		estale_retry_add(&r, t, 99);
		estale_retry_found(&r, t, 100);
	}
	for (pid_t t = 1; t <= 2 * (pid_t)ESTALE_RETRIES_MAX; t++)
		assert_int_equal(estale_retry_take(&r, t, 100), t > (pid_t)ESTALE_RETRIES_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_what_was_found_after_a_refusal),
		cmocka_unit_test(test_the_same_without_a_lookup),
		cmocka_unit_test(test_a_name_that_is_gone_ends_it),
		cmocka_unit_test(test_neighbours_do_not_displace_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
