/* SPDX-License-Identifier: Apache-2.0 */
/* Inode numbers of 64 bits folded to 32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/hmap.h"
#include "fuse/kernel/ino32.h"

static void test_inode_numbers(void **state)
{
	(void)state;
	assert_int_equal(ino32_fold(1), 1);
	assert_int_equal(ino32_fold(UINT32_MAX), UINT32_MAX);
	assert_int_equal(ino32_fold(1ull << 32), 1);
	assert_int_equal(ino32_fold(5ull << 32 | 5), 1); /* never 0 */
	for (uint64_t i = 0; i < 100000; i++) {
		uint64_t folded = ino32_fold(hash_u64(i));

		assert_true(folded > 0 && folded <= UINT32_MAX);
	}
}

/* In the order of the cookies: the place of each entry is after that of the entry before it. */
static void test_places(void **state)
{
	const uint64_t last = INT64_MAX;

	(void)state;
	assert_int_equal(ino32_place(16), INO32_PLACE_MIN);
	assert_int_equal(ino32_place(last), INT32_MAX);
	assert_int_equal(ino32_before(INO32_PLACE_MIN), 0);
	for (uint64_t i = 0; i < 100000; i++) {
		uint64_t cookie = (hash_u64(i) >> 5 << 4) + 16, place = ino32_place(cookie);

		if (cookie > last)
			continue;
		assert_true(place >= INO32_PLACE_MIN && place <= INT32_MAX);
		assert_true(ino32_before(place) < cookie);
		assert_true(ino32_before(place) == 0 || ino32_place(ino32_before(place)) < place ||
			    place == INT32_MAX);
		assert_true(ino32_place(cookie + 1) >= place);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inode_numbers),
		cmocka_unit_test(test_places),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
