/* SPDX-License-Identifier: Apache-2.0 */
/* The space that a head counts on at members downstream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/unit/ossd/chain/chain_rig.h"

/* A member that is silent has no more space than it said last; one that left does not count. */
static void silence(struct chain_rig *r)
{
	struct space *head = &r->m[0].target.store->space;
	uint64_t last;

	(void)!fiber_sleep_us(1500000);
	last = head->promise_max;
	assert_true(last > 0 && last < UINT64_MAX);
	crig_cut_off(r, 0, 1, true);
	(void)!fiber_sleep_us(5000000);
	assert_int_equal(head->promise_max, last);
	r->m[1].state = MEMBER_OUT;
	crig_members(r);
	(void)!fiber_sleep_us(3000000);
	assert_true(head->promise_max == UINT64_MAX);
}

static void test_silence(void **state)
{
	(void)state;
	chain_rig_run(77, 2, silence);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silence),
	};

	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
