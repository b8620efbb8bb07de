/* SPDX-License-Identifier: Apache-2.0 */
/* The index of inodes beside a staged copy: what a mount finds, and hostile bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/stage/store/inode_index.h"
#include "common/rt/loop.h"

#define SAID_BY 77

static struct manifest *manifest_of(const char *const *paths, const uint64_t *inos, uint32_t n)
{
	struct manifest *m;

	assert_int_equal(manifest_create(&m), 0);
	for (uint32_t i = 0; i < n; i++) {
		struct vol_stat st = {.size = i * 10, .ino = inos[i], .ver = 100 + i, .mode = 0644};
		assert_int_equal(manifest_add(m, paths[i], &st, MANIFEST_BLOCK_DEFAULT), 0);
	}
	return m;
}

static const struct uuid cluster = {{1, 2, 3}};
static const char *const paths[] = {"a", "a/b", "b/c/d.tar", "z"};
static const uint64_t inos[] = {9, 3, 1000000007, 5};

static uint8_t *encoded(size_t *ret_len)
{
	struct manifest *m = manifest_of(paths, inos, 4);
	void *data;

	assert_int_equal(inode_index_encode(m, NULL, &cluster, SAID_BY, &data, ret_len), 0);
	manifest_destroy(m);
	return data;
}

static void finds_what_was_put_in(void **state)
{
	struct inode_index x;
	size_t len;
	uint8_t *data = encoded(&len);

	(void)state;
	assert_int_equal(inode_index_decode(data, len, &x), 0);
	assert_true(uuid_equal(&x.cluster, &cluster));
	assert_int_equal(x.said_by, SAID_BY);
	assert_int_equal(x.n, 4);
	for (int i = 0; i < 4; i++) {
		const struct inode_entry *e = inode_index_find(&x, inos[i]);
		assert_non_null(e);
		assert_string_equal(inode_index_path(&x, e), paths[i]);
		assert_int_equal(e->ver, 100 + i);
		assert_int_equal(e->size, i * 10);
	}
	assert_null(inode_index_find(&x, 0));
	assert_null(inode_index_find(&x, 4));
	assert_null(inode_index_find(&x, UINT64_MAX));
	free(data);
}

static void of_no_files(void **state)
{
	struct manifest *m = manifest_of(NULL, NULL, 0);
	struct inode_index x;
	void *data;
	size_t len;

	(void)state;
	assert_int_equal(inode_index_encode(m, NULL, &cluster, 0, &data, &len), 0);
	assert_int_equal(inode_index_decode(data, len, &x), 0);
	assert_null(inode_index_find(&x, 1));
	free(data);
	manifest_destroy(m);
}

static void every_wrong_byte_is_seen(void **state)
{
	struct inode_index x;
	size_t len;
	uint8_t *data = encoded(&len), *copy = malloc(len);

	(void)state;
	for (size_t i = 0; i < len; i++) {
		assert_int_equal(inode_index_decode(data, i, &x), -LE_CORRUPT);
		memcpy(copy, data, len);
		copy[i] ^= 0x10;
		/* Damage elsewhere shows in cluster and uid. */
		bool plain = (i >= 8 && i < 24) || (i >= 40 && i < 48);
		assert_int_equal(inode_index_decode(copy, len, &x), plain ? 0 : -LE_CORRUPT);
	}
	free(copy);
	free(data);
}

/* Hostile content with a good checksum: paths that lead out, entries out of order or bounds. */
static void hostile_content_is_refused(void **state)
{
	static const char *const bad[] = {"../x", "/etc", "a//b", "./x", ""};
	uint64_t one = 1;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct manifest *m = manifest_of(&paths[3], &one, 1);
		struct inode_index x;
		void *data;
		size_t len;

		free(m->files[0].path);
		m->files[0].path = strdup(bad[i]);
		assert_int_equal(inode_index_encode(m, NULL, &cluster, 0, &data, &len), 0);
		assert_int_equal(inode_index_decode(data, len, &x), -LE_CORRUPT);
		free(data);
		manifest_destroy(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_what_was_put_in),
		cmocka_unit_test(of_no_files),
		cmocka_unit_test(every_wrong_byte_is_seen),
		cmocka_unit_test(hostile_content_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
