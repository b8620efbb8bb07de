/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges: an added range joins those it touches, a removed one splits, and the number is
 * limited. */
#include "common/proto/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/lib/dies.h"

#define UNITS 200u

static void check(const struct ranges *rs, const bool *in)
{
	uint8_t buf[RANGES_SIZE];
	struct ranges again;
	uint64_t n = 0;

	for (uint32_t i = 0; i < UNITS; i++) {
		assert_int_equal(ranges_within(rs, i, i + 1), in[i]);
		n += in[i];
	}
	assert_int_equal(ranges_bytes(rs), n);
	assert_int_equal(ranges_get(ranges_put(rs, buf), &again), 0);
	assert_int_equal(again.n, rs->n);
	assert_memory_equal(again.r, rs->r, rs->n * sizeof(rs->r[0]));
	for (uint32_t i = 1; i < rs->n; i++)
		assert_true(rs->r[i - 1].end < rs->r[i].off);
}

/* So few ranges that none is dropped. */
static void test_as_a_set(void **state)
{
	(void)state;
	srand(1);
	for (int round = 0; round < 200; round++) {
		struct ranges rs = {0};
		bool in[UNITS] = {false};

		for (int step = 0; step < 30; step++) {
			uint32_t off = (uint32_t)rand() % UNITS;
			uint32_t end = (uint32_t)rand() % (UNITS + 1);
			bool add = rand() % 3 != 0;

			(add ? ranges_add : ranges_remove)(&rs, off, end);
			for (uint32_t i = off; i < end; i++)
				in[i] = add;
			check(&rs, in);
		}
	}
}

static void test_too_many(void **state)
{
	struct ranges rs = {0};
	(void)state;

	for (uint64_t i = 0; i < RANGES_MAX; i++)
		ranges_add(&rs, i * 100, i * 100 + (i == 7 ? 3 : 50));
	assert_int_equal(rs.n, RANGES_MAX);
	ranges_add(&rs, 1000000, 1000010);
	assert_int_equal(rs.n, RANGES_MAX);
	assert_int_equal(ranges_within(&rs, 700, 800), 0);
	assert_int_equal(ranges_within(&rs, 1000000, 1000010), 10);
	ranges_remove(&rs, 10, 11);
	assert_int_equal(rs.n, RANGES_MAX);
	assert_int_equal(ranges_within(&rs, 0, 100), 39);
	ranges_remove(&rs, 0, UINT64_MAX);
	assert_int_equal(rs.n, 0);
}

static void test_bad_bytes(void **state)
{
	uint64_t overlap[] = {0, 10, 5, 20}, empty[] = {5, 5}, many[2 * (RANGES_MAX + 1)] = {0};
	struct ranges rs = {.n = 3};
	(void)state;

	assert_int_equal(ranges_get(bytes_of(overlap, sizeof(overlap)), &rs), -LE_BAD_MESSAGE);
	assert_int_equal(ranges_get(bytes_of(empty, sizeof(empty)), &rs), -LE_BAD_MESSAGE);
	assert_int_equal(ranges_get(bytes_of(empty, 15), &rs), -LE_BAD_MESSAGE);
	assert_int_equal(ranges_get(bytes_of(many, sizeof(many)), &rs), -LE_BAD_MESSAGE);
	assert_int_equal(rs.n, 3);
	assert_int_equal(ranges_get(bytes_of(NULL, 0), &rs), 0);
	assert_int_equal(rs.n, 0);
}

static void add_overlapping(void *arg)
{
	struct ranges rs = {0};

	(void)arg;
	ranges_add(&rs, 10, 20);
	ranges_add(&rs, 15, 30);
}

static void test_ranges_that_overlap_are_noticed(void **state)
{
	(void)state;
	assert_dies("ranges_overlap", add_overlapping, NULL, "r[i - 1].end <= r[i].off");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_a_set),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_bad_bytes),
		cmocka_unit_test(test_ranges_that_overlap_are_noticed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
