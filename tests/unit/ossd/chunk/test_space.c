/* SPDX-License-Identifier: Apache-2.0 */
/* Grants: what limits those of clients, and those of other targets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ossd/chunk/space.h"

#define GRANT_MAX (4u << 20)
#define N_UNITS   ((1ull << 30) / UNIT_SIZE)

static void start(struct space *s)
{
	assert_int_equal(space_init(s, N_UNITS, N_UNITS, 1 << 20, GRANT_MAX), 0);
}

/* Two targets, each a member of a chain that the other leads: what one keeps for the other must not
 * depend on what the other keeps for it, and clients of both get what is kept. */
static void test_members_of_each_other(void **state)
{
	enum { A_AT_B = 1, B_AT_A, CLIENT };
	struct space a, b;

	(void)state;
	start(&a);
	start(&b);
	for (int i = 0; i < 10; i++) {
		b.promise_max = space_grant_member(&a, B_AT_A, GRANT_MAX, 0);
		a.promise_max = space_grant_member(&b, A_AT_B, GRANT_MAX, 0);
		assert_int_equal(a.promise_max, GRANT_MAX);
		assert_int_equal(b.promise_max, GRANT_MAX);
		assert_int_equal(space_grant(&a, CLIENT, GRANT_MAX / 2, 0), GRANT_MAX / 2);
		assert_int_equal(space_grant(&b, CLIENT, GRANT_MAX / 2, 0), GRANT_MAX / 2);
	}
	space_fini(&a);
	space_fini(&b);
}

/* All clients together get no more than the other members keep, whatever a member holds here. */
static void test_clients_share_the_limit(void **state)
{
	struct space s;

	(void)state;
	start(&s);
	s.promise_max = GRANT_MAX;
	assert_int_equal(space_grant_member(&s, 1, GRANT_MAX, 0), GRANT_MAX);
	assert_int_equal(space_grant(&s, 2, GRANT_MAX - UNIT_SIZE, 0), GRANT_MAX - UNIT_SIZE);
	assert_int_equal(space_grant(&s, 3, GRANT_MAX, 0), UNIT_SIZE);
	assert_int_equal(space_grant(&s, 4, GRANT_MAX, 0), 0);
	assert_int_equal(s.promised, GRANT_MAX);
	assert_int_equal(s.granted, 2 * GRANT_MAX);
	/* a write uses the grant, and an ended session returns its own */
	assert_int_equal(space_admit(&s, 3, UNIT_SIZE, 1, 1), 0);
	assert_int_equal(space_grant(&s, 4, GRANT_MAX, 0), UNIT_SIZE);
	space_expire(&s, 1);
	assert_int_equal(s.promised, 0);
	assert_int_equal(s.granted, 0);
	space_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members_of_each_other),
		cmocka_unit_test(test_clients_share_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
