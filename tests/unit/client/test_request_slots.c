/* SPDX-License-Identifier: Apache-2.0 */
/* Slots and sequences of mutations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/servers/request_slots.h"

static void each_taking_moves_on(void **state)
{
	struct request_slots t;
	uint32_t a, b, c;
	uint64_t seq;

	(void)state;
	assert_int_equal(request_slots_init(&t, 4, 0), 0);
	assert_int_equal(request_slot_take(&t, 0, &a, &seq), 0);
	assert_int_equal(a, 0);
	assert_int_equal(seq, 1);
	assert_int_equal(request_slot_take(&t, 0, &b, &seq), 0);
	assert_int_not_equal(a, b);
	/* The slot released last is taken first, with a new sequence. */
	request_slot_release(&t, a);
	assert_int_equal(request_slot_take(&t, 0, &c, &seq), 0);
	assert_int_equal(c, a);
	assert_int_equal(seq, 2);
	request_slots_fini(&t);
}

static void server_allows_fewer(void **state)
{
	struct request_slots t;
	uint32_t out[4], n = 0, slot;
	uint64_t seq;

	(void)state;
	assert_int_equal(request_slots_init(&t, 4, 0), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(request_slot_take(&t, 0, &out[i], &seq), 0);
	request_slots_limit(&t, 2);
	for (int i = 0; i < 4; i++)
		request_slot_release(&t, out[i]);
	while (t.n_free > 0) {
		assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
		assert_true(slot < 2);
		n++;
	}
	assert_int_equal(n, 2);
	/* A higher limit changes nothing. */
	request_slots_limit(&t, 4);
	assert_int_equal(t.n_free, 0);
	request_slots_fini(&t);
}

static void a_certain_slot(void **state)
{
	struct request_slots t;
	uint32_t slot;
	uint64_t seq;

	(void)state;
	assert_int_equal(request_slots_init(&t, 3, 1000), 0);
	assert_true(request_slot_take_one(&t, 1));
	assert_false(request_slot_take_one(&t, 1));
	assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 0);
	assert_int_equal(seq, 1001);
	assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 2);
	assert_int_equal(t.n_free, 0);
	request_slot_release(&t, 1);
	assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 1);
	assert_int_equal(seq, 1001);
	request_slots_fini(&t);
}

/* The server may still execute the abandoned request of a slot. */
static void a_doubted_slot_is_taken_last(void **state)
{
	struct request_slots t;
	uint32_t slot;
	uint64_t seq;

	(void)state;
	assert_int_equal(request_slots_init(&t, 3, 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
	request_slot_release(&t, 1);
	request_slot_mark_unknown(&t, 0);
	request_slot_release(&t, 0);
	request_slot_release(&t, 2);
	assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 2);
	assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 1);
	assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 0);
	assert_int_equal(seq, 2);
	request_slot_release(&t, 1);
	request_slot_release(&t, 0); /* its outcome is certain now */
	assert_int_equal(request_slot_take(&t, 0, &slot, &seq), 0);
	assert_int_equal(slot, 0);
	request_slots_fini(&t);
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
