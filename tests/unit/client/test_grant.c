/* SPDX-License-Identifier: Apache-2.0 */
/* Write-back against a target's space grant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/data/space_grant.h"
#include "client/servers/target.h"

#define BLOCK (16u << 10)

static void need_is_whole_blocks(void **state)
{
	(void)state;
	assert_int_equal(grant_need(BLOCK, 0, 1), BLOCK);
	assert_int_equal(grant_need(BLOCK, BLOCK - 1, 2), 2 * BLOCK);
	assert_int_equal(grant_need(BLOCK, BLOCK, BLOCK), BLOCK);
	assert_int_equal(grant_need(BLOCK, 5, 4 * BLOCK), 5 * BLOCK);
}

static void reserve_within_grant(void **state)
{
	struct target t = {.grant = 4 * BLOCK};

	(void)state;
	assert_true(grant_reserve(&t, 3 * BLOCK));
	assert_false(grant_reserve(&t, 2 * BLOCK));
	assert_true(grant_reserve(&t, BLOCK));
	/* The server has withdrawn the grant: nothing more can be reserved until all is
	 * released. */
	t.grant = 0;
	grant_release(&t, 4 * BLOCK);
	assert_int_equal(t.reserved, 0);
	assert_false(grant_reserve(&t, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(need_is_whole_blocks),
		cmocka_unit_test(reserve_within_grant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
