/* SPDX-License-Identifier: Apache-2.0 */
/* Slot pools: references, order of reuse, fairness to waiting fibers. */
#include "tests/unit/common/rt/rt_test.h"

#include <string.h>

#include "common/rt/slot.h"

static void test_try_get(void **state)
{
	struct slot_pool *p = NULL;
	struct slot *s[4], *again;
	uint64_t len;
	void *base;

	(void)state;
	assert_int_equal(slot_pool_create(5000, 4, &p), 0);
	assert_int_equal(slot_pool_size(p), 5000);
	assert_int_equal(slot_pool_total(p), 4);
	slot_pool_memory(p, &base, &len);
	for (int i = 0; i < 4; i++) {
		s[i] = slot_try_get(p);
		assert_non_null(s[i]);
		assert_int_equal((uintptr_t)s[i]->data % 4096, 0);
		assert_true(s[i]->data >= (uint8_t *)base);
		assert_true(s[i]->data + 5000 <= (uint8_t *)base + len);
		memset(s[i]->data, i, 5000);
	}
	assert_null(slot_try_get(p));
	assert_int_equal(slot_pool_free(p), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(s[i]->data[4999], i);
	slot_ref(s[2]);
	slot_unref(s[2]);
	assert_int_equal(slot_pool_free(p), 0);
	slot_unref(s[0]);
	slot_unref(s[2]);
	slot_unref(NULL);
	again = slot_try_get(p);
	assert_ptr_equal(again, s[2]); /* the one freed last */
	slot_unref(again);
	slot_unref(s[1]);
	slot_unref(s[3]);
	assert_int_equal(slot_pool_free(p), 4);
	slot_pool_destroy(p);
}

struct taker {
	struct slot_pool *pool;
	int number, *turn, status;
	uint64_t deadline;
	struct slot *slot;
	struct fiber *fiber;
};

static void take(void *arg)
{
	struct taker *t = arg;

	t->fiber = fiber_self();
	t->status = slot_get(t->pool, t->deadline, &t->slot);
	if (t->status == 0)
		t->number = ++*t->turn;
	t->fiber = NULL;
}

static void fair_main(void *arg)
{
	struct slot_pool *p = arg;
	struct slot *held = slot_try_get(p);
	struct taker t[4];
	int turn = 0;

	for (int i = 0; i < 4; i++) {
		t[i] = (struct taker){ .pool = p, .turn = &turn, .deadline = NO_DEADLINE };
		if (i == 1)
			t[i].deadline = loop_now_us() + 1000;
		assert_int_equal(fiber_spawn("take", take, &t[i]), 0);
	}
	assert_int_equal(fiber_sleep_us(3000), 0);
	assert_int_equal(t[1].status, -LE_TIMEDOUT);
	slot_unref(held);
	assert_null(slot_try_get(p)); /* it belongs to the first waiter */
	fiber_yield();
	assert_int_equal(t[0].number, 1);
	fiber_interrupt(t[2].fiber);
	fiber_yield();
	assert_int_equal(t[2].status, -LE_INTR);
	slot_unref(t[0].slot);
	fiber_yield();
	assert_int_equal(t[3].number, 2);
	slot_unref(t[3].slot);
	assert_int_equal(slot_pool_free(p), 1);
}

static void test_first_come_first_served(void **state)
{
	struct slot_pool *p = NULL;

	(void)state;
	assert_int_equal(slot_pool_create(4096, 1, &p), 0);
	rt_run(fair_main, p);
	slot_pool_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_try_get),
		cmocka_unit_test(test_first_come_first_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
