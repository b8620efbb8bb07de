/* SPDX-License-Identifier: Apache-2.0 */
/* Which node holds which file. */
#include "client/stage/fetch/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILES 500u

static struct manifest *make(uint32_t n, uint64_t (*size)(uint32_t i))
{
	struct manifest *m;
	assert_int_equal(manifest_create(&m), 0);
	for (uint32_t i = 0; i < n; i++) {
		char path[32];
		struct vol_stat st = {.size = size(i), .mode = 0644};
		snprintf(path, sizeof(path), "f%06u", i);
		assert_int_equal(manifest_add(m, path, &st, MANIFEST_BLOCK_DEFAULT), 0);
	}
	return m;
}

static uint64_t same(uint32_t i)
{
	(void)i;
	return 100000;
}

static uint64_t unequal(uint32_t i)
{
	return i % 7 ? (uint64_t)i * 1000 : 0;
}

static void check(uint64_t (*size)(uint32_t i), enum placement how, uint32_t copies,
		  uint32_t n_nodes)
{
	struct manifest *m = make(FILES, size);
	struct share *s;
	uint64_t *bytes = calloc(n_nodes, sizeof(*bytes)), largest = 0;
	assert_int_equal(share_make(m, how, copies, n_nodes, 0, &s), 0);
	assert_non_null(s);
	for (uint32_t i = 0; i < FILES; i++) {
		uint32_t holders = 0;
		for (uint32_t k = 0; k < n_nodes; k++) {
			holders += share_has(s, i, k);
			bytes[k] += share_has(s, i, k) ? m->files[i].size : 0;
		}
		assert_int_equal(holders, copies);
		if (m->files[i].size > largest)
			largest = m->files[i].size;
	}
	for (uint32_t k = 0; k < n_nodes; k++) {
		uint64_t fair = m->bytes * copies / n_nodes, give = copies * (largest + FILES);
		assert_true(bytes[k] <= fair + give && bytes[k] + give >= fair);
	}
	free(bytes);
	share_destroy(s);
	manifest_destroy(m);
}

static void test_each_file_has_its_copies(void **state)
{
	(void)state;
	for (uint32_t n = 2; n <= 9; n++) {
		for (uint32_t k = 1; k < n; k++) {
			check(same, PLACE_SPREAD, k, n);
			check(unequal, PLACE_SPREAD, k, n);
		}
		check(same, PLACE_PARTITION, 1, n);
		check(unequal, PLACE_PARTITION, 1, n);
	}
	check(same, PLACE_SPREAD, 1, 1000);
}

static void test_a_partition_is_runs_of_files(void **state)
{
	struct manifest *m = make(FILES, unequal);
	struct share *s;
	(void)state;
	assert_int_equal(share_make(m, PLACE_PARTITION, 0, 5, 0, &s), 0);
	for (uint32_t i = 1; i < FILES; i++)
		assert_true(s->first[i] >= s->first[i - 1]);
	share_destroy(s);
	manifest_destroy(m);
}

static void test_all_have_all(void **state)
{
	struct manifest *m = make(10, same);
	struct share *s = (struct share *)m;
	(void)state;
	assert_int_equal(share_make(m, PLACE_ALL, 1, 4, 0, &s), 0);
	assert_null(s);
	assert_int_equal(share_make(m, PLACE_SPREAD, 4, 4, 0, &s), 0);
	assert_null(s);
	assert_int_equal(share_make(m, PLACE_PARTITION, 1, 1, 0, &s), 0);
	assert_null(s);
	assert_true(share_has(NULL, 3, 2));
	manifest_destroy(m);
}

static void test_auto_is_as_wide_as_it_can_be(void **state)
{
	struct manifest *m = make(100, same); /* 10 MB */
	struct share *s;
	(void)state;
	assert_int_equal(share_make(m, PLACE_AUTO, 0, 8, 0, &s), 0);
	assert_null(s);
	assert_int_equal(share_make(m, PLACE_AUTO, 0, 8, 10000000, &s), 0);
	assert_null(s);
	assert_int_equal(share_make(m, PLACE_AUTO, 0, 8, 5000000, &s), 0);
	assert_int_equal(s->copies, 4);
	share_destroy(s);
	assert_int_equal(share_make(m, PLACE_AUTO, 0, 8, 1000000, &s), -LE_NOSPC);
	manifest_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_file_has_its_copies),
		cmocka_unit_test(test_a_partition_is_runs_of_files),
		cmocka_unit_test(test_all_have_all),
		cmocka_unit_test(test_auto_is_as_wide_as_it_can_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
