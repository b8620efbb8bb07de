/* SPDX-License-Identifier: Apache-2.0 */
/* Each request of a slot is executed once, and an older one never. */
#include "common/rpc/replay_seq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_verdicts(void **state)
{
	struct replay_seq q;

	(void)state;
	replay_seq_init(&q);
	assert_int_equal(replay_seq_check(&q, 5), REPLAY_EXECUTE);
	replay_seq_begin(&q, 5);
	assert_int_equal(replay_seq_check(&q, 4), -LE_STALE_SEQ);
	assert_int_equal(replay_seq_check(&q, 5), REPLAY_WAIT);
	assert_int_equal(replay_seq_check(&q, 6), REPLAY_WAIT);
	replay_seq_end(&q, true);
	assert_int_equal(replay_seq_check(&q, 4), -LE_STALE_SEQ);
	assert_int_equal(replay_seq_check(&q, 5), REPLAY_ANSWER);
	assert_int_equal(replay_seq_check(&q, 6), REPLAY_EXECUTE);
}

/* A request that failed without a reply may be repeated, and the previous reply stays. */
static void test_failed(void **state)
{
	struct replay_seq q;

	(void)state;
	replay_seq_init(&q);
	replay_seq_begin(&q, 1);
	replay_seq_end(&q, true);
	replay_seq_begin(&q, 2);
	replay_seq_end(&q, false);
	assert_int_equal(replay_seq_check(&q, 1), REPLAY_ANSWER);
	assert_int_equal(replay_seq_check(&q, 2), REPLAY_EXECUTE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_failed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
