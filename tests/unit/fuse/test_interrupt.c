/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that end early only when their program is killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fuse/kernel/interrupt.h"

static void test_only_sigkill_counts(void **state)
{
	(void)state;
	assert_false(interrupt_by_status("Name:\tx\nState:\tS\nSigPnd:\t0000000000000000\n"
				      "ShdPnd:\t0000000000000100\n"));
	/* SIGALRM, SIGTERM with a handler */
	assert_false(interrupt_by_status("Name:\tx\nSigPnd:\t0000000000006000\n"));
	assert_true(interrupt_by_status("Name:\tx\nSigPnd:\t0000000000000100\n"));
	assert_true(interrupt_by_status("Name:\tx\nSigPnd:\t0000000000006100\nShdPnd:\t0\n"));
}

static void test_who_is_gone_is_killed(void **state)
{
	(void)state;
	assert_true(interrupt_by_status(""));
	/* The name is the program's own. */
	assert_true(interrupt_by_status("Name:\tSigPnd:\t0\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_sigkill_counts),
		cmocka_unit_test(test_who_is_gone_is_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
