/* SPDX-License-Identifier: Apache-2.0 */
/* What the cache of chunks evicts, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/ossd/chunk/store_rig.h"

#define CS (256u << 10)

/* The cache evicts records of chunks that do not exist, some time after their last use; it keeps
 * others. */
static void none_are_forgotten(struct rig *r, void *arg)
{
	struct chunk_key id = {1, {5}, 1, 0};
	static uint8_t data[100];

	(void)arg;
	assert_int_equal(rig_write(r, &id, CS, 0, data, sizeof(data), 0), 0);
	for (id.idx = 1; id.idx < 100; id.idx++)
		assert_int_equal(rig_read(r, &id, 0, data, sizeof(data), false), 0);
	assert_int_equal(r->store->cache.map.n, 100);
	assert_int_equal(fiber_sleep_us(CHUNK_NONE_KEEP_US / 2), 0);
	assert_int_equal(rig_read(r, &id, 0, data, sizeof(data), false), 0);
	assert_int_equal(r->store->cache.map.n, 101);
	assert_int_equal(fiber_sleep_us(CHUNK_NONE_KEEP_US / 2 + 1000), 0);
	id.idx = 0;
	assert_int_equal(rig_read(r, &id, 0, data, sizeof(data), false), sizeof(data));
	assert_int_equal(r->store->cache.map.n, 2); /* id, and the one used last */
}

static void test_none_are_forgotten(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 1);
	rig_run(&r, none_are_forgotten, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_are_forgotten),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
