/* Slots and sequences of mutations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/seq_table.h"

static void each_taking_moves_on(void **state)
{
	struct seq_table t;
	uint32_t a, b, c;
	uint64_t seq;

	(void)state;
	assert_int_equal(seq_table_init(&t, 4, 0), 0);
	assert_int_equal(seq_take(&t, 0, &a, &seq), 0);
	assert_int_equal(a, 0);
	assert_int_equal(seq, 1);
	assert_int_equal(seq_take(&t, 0, &b, &seq), 0);
	assert_int_not_equal(a, b);
	/* The one given back last is taken first, with a new number. */
	seq_give(&t, a);
	assert_int_equal(seq_take(&t, 0, &c, &seq), 0);
	assert_int_equal(c, a);
	assert_int_equal(seq, 2);
	seq_table_fini(&t);
}

static void server_allows_fewer(void **state)
{
	struct seq_table t;
	uint32_t out[4], n = 0, slot;
	uint64_t seq;

	(void)state;
	assert_int_equal(seq_table_init(&t, 4, 0), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(seq_take(&t, 0, &out[i], &seq), 0);
	seq_table_limit(&t, 2);
	for (int i = 0; i < 4; i++)
		seq_give(&t, out[i]);
	while (t.n_free > 0) {
		assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
		assert_true(slot < 2);
		n++;
	}
	assert_int_equal(n, 2);
	/* More than before changes nothing. */
	seq_table_limit(&t, 4);
	assert_int_equal(t.n_free, 0);
	seq_table_fini(&t);
}

static void a_certain_slot(void **state)
{
	struct seq_table t;
	uint32_t slot;
	uint64_t seq;

	(void)state;
	assert_int_equal(seq_table_init(&t, 3, 1000), 0);
	assert_true(seq_take_slot(&t, 1));
	assert_false(seq_take_slot(&t, 1));
	assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 0);
	assert_int_equal(seq, 1001);
	assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 2);
	assert_int_equal(t.n_free, 0);
	seq_give(&t, 1);
	assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 1);
	assert_int_equal(seq, 1001);
	seq_table_fini(&t);
}

/* The server may still be busy with what a slot was given up over. */
static void a_doubted_slot_is_taken_last(void **state)
{
	struct seq_table t;
	uint32_t slot;
	uint64_t seq;

	(void)state;
	assert_int_equal(seq_table_init(&t, 3, 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
	seq_give(&t, 1);
	seq_doubt(&t, 0);
	seq_give(&t, 0);
	seq_give(&t, 2);
	assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 2);
	assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 1);
	assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 0);
	assert_int_equal(seq, 2);
	seq_give(&t, 1);
	seq_give(&t, 0); /* not doubted any more */
	assert_int_equal(seq_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 0);
	seq_table_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_doubted_slot_is_taken_last),
		cmocka_unit_test(each_taking_moves_on),
		cmocka_unit_test(server_allows_fewer),
		cmocka_unit_test(a_certain_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
