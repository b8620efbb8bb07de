/* SPDX-License-Identifier: Apache-2.0 */
/* The free map: counts, contiguity, growth, and a random run against an array of bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/hmap.h"
#include "ossd/chunk/extent_alloc.h"

#define UNITS 5000u

static void test_whole_area_can_be_had(void **state)
{
	struct extent_alloc a;
	uint64_t start, n = 0;

	(void)state;
	assert_int_equal(extent_alloc_init(&a, UNITS, UNITS), 0);
	assert_int_equal(extent_usable(&a), UNITS);
	while (n < UNITS) {
		uint32_t got = extent_get(&a, 256, 1, &start);

		assert_true(got > 0);
		n += got;
	}
	assert_int_equal(n, UNITS);
	assert_int_equal(extent_get(&a, 1, 1, &start), 0);
	assert_int_equal(a.free, 0);
	extent_put(&a, 100, 4);
	assert_int_equal(extent_get(&a, 8, 4, &start), 4);
	assert_int_equal(start, 100);
	extent_alloc_fini(&a);
}

static void test_small_ones_share_a_group(void **state)
{
	struct extent_alloc a;
	uint64_t one, two, big;

	(void)state;
	assert_int_equal(extent_alloc_init(&a, 64, 64), 0);
	assert_int_equal(extent_get(&a, 1, 1, &one), 1);
	assert_int_equal(extent_get(&a, 4, 4, &big), 4);
	assert_int_equal(extent_get(&a, 2, 2, &two), 2);
	assert_int_equal(one / 4, two / 4);
	assert_int_equal(big % 4, 0);
	assert_int_equal(extent_usable(&a), 64 - 8);
	extent_alloc_fini(&a);
}

static void test_growth(void **state)
{
	struct extent_alloc a;
	uint64_t start;

	(void)state;
	assert_int_equal(extent_alloc_init(&a, 1000, 10), 0);
	assert_int_equal(extent_get(&a, 16, 16, &start), 0);
	assert_int_equal(extent_get(&a, 16, 4, &start), 10);
	extent_alloc_grow(&a, 100);
	assert_int_equal(extent_get(&a, 16, 16, &start), 16);
	assert_int_equal(a.limit, 100);
	extent_alloc_grow(&a, 5000);
	assert_int_equal(a.limit, 1000);
	extent_alloc_fini(&a);
}

/* Nothing is in use: all of it is usable, wherever the file ends at present. */
static void test_growth_within_a_group(void **state)
{
	struct extent_alloc a;

	(void)state;
	for (uint64_t limit = 0; limit <= 12; limit++) {
		assert_int_equal(extent_alloc_init(&a, 1000, limit), 0);
		assert_int_equal(extent_usable(&a), 1000);
		extent_alloc_fini(&a);
	}
	assert_int_equal(extent_alloc_init(&a, 1000, 10), 0);
	assert_int_equal(extent_take(&a, 9, 1), 0);
	assert_int_equal(extent_usable(&a), 8 + 990);
	extent_put(&a, 9, 1);
	assert_int_equal(extent_usable(&a), 1000);
	extent_alloc_fini(&a);
	assert_int_equal(extent_alloc_init(&a, 10, 10), 0); /* never a whole group */
	assert_int_equal(extent_usable(&a), 8);
	extent_alloc_fini(&a);
}

static void test_overlap_is_found(void **state)
{
	struct extent_alloc a;

	(void)state;
	assert_int_equal(extent_alloc_init(&a, 1000, 500), 0);
	assert_int_equal(extent_take(&a, 10, 20), 0);
	assert_int_equal(extent_take(&a, 29, 1), -LE_CORRUPT_STORE);
	assert_int_equal(extent_take(&a, 30, 1), 0);
	assert_int_equal(extent_take(&a, 490, 11), -LE_CORRUPT_STORE);
	assert_int_equal(extent_take(&a, UINT64_MAX - 1, 4), -LE_CORRUPT_STORE);
	assert_int_equal(extent_take(&a, 700, 1), -LE_CORRUPT_STORE);
	extent_alloc_fini(&a);
}

struct held {
	uint64_t start;
	uint32_t n;
};

static uint64_t draw(uint64_t *seed, uint64_t n)
{
	*seed += 0x9e3779b97f4a7c15ULL;
	return hash_u64(*seed) % n;
}

static void test_random_against_model(void **state)
{
	static uint8_t used[UNITS];
	static struct held held[UNITS];
	struct extent_alloc a;
	uint64_t seed = 42, total = 0;
	uint32_t n_held = 0;

	(void)state;
	memset(used, 0, sizeof(used));
	assert_int_equal(extent_alloc_init(&a, UNITS, UNITS), 0);
	for (int step = 0; step < 200000; step++) {
		uint32_t want = (uint32_t)draw(&seed, 2) ? 1 + (uint32_t)draw(&seed, 4)
							 : 1 + (uint32_t)draw(&seed, 70);
		uint32_t min = 1 + (uint32_t)draw(&seed, want);
		uint64_t start;

		if (draw(&seed, 100) < 52) {
			uint32_t n = extent_get(&a, want, min, &start);

			if (!n)
				continue;
			assert_in_range(n, min, want);
			for (uint32_t i = 0; i < n; i++)
				assert_int_equal(used[start + i]++, 0);
			held[n_held++] = (struct held){start, n};
			total += n;
		} else if (n_held) {
			uint32_t k = (uint32_t)draw(&seed, n_held);

			memset(used + held[k].start, 0, held[k].n);
			extent_put(&a, held[k].start, held[k].n);
			total -= held[k].n;
			held[k] = held[--n_held];
		}
		assert_int_equal(a.free, UNITS - total);
		assert_true(extent_usable(&a) <= a.free);
	}
	extent_alloc_fini(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_area_can_be_had),
		cmocka_unit_test(test_small_ones_share_a_group),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_growth_within_a_group),
		cmocka_unit_test(test_overlap_is_found),
		cmocka_unit_test(test_random_against_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
