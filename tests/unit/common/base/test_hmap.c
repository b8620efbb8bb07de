/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map, list and checksum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/checksum.h"
#include "common/base/hmap.h"
#include "common/base/list.h"

struct thing {
	struct hmap_node node;
	uint64_t key;
};

static struct thing *find(const struct hmap *m, uint64_t hash, uint64_t key)
{
	for (struct hmap_node *n = hmap_find(m, hash); n != NULL; n = hmap_find_next(n)) {
		struct thing *t = container_of(n, struct thing, node);
		if (t->key == key)
			return t;
	}
	return NULL;
}

static void insert_find_remove(void **state)
{
	enum {
		N = 10000
	};
	struct thing *t = calloc(N, sizeof(*t));
	struct hmap m;
	(void)state;
	hmap_init(&m, 0);
	for (uint64_t i = 0; i < N; i++) {
		t[i].key = i;
		hmap_insert_id(&m, &t[i].node, i);
	}
	assert_int_equal(m.n, N);
	assert_true(m.mask + 1 >= N);
	for (uint64_t i = 0; i < N; i++)
		assert_ptr_equal(hmap_find_id(&m, i), &t[i].node);
	assert_null(hmap_find_id(&m, N));
	for (uint64_t i = 0; i < N; i += 2)
		hmap_remove(&m, &t[i].node);
	uint64_t n = 0;
	for (struct hmap_node *at = hmap_next(&m, NULL), *next; at != NULL; at = next) {
		next = hmap_next(&m, at);
		assert_true(container_of(at, struct thing, node)->key % 2 == 1);
		hmap_remove(&m, at);
		n++;
	}
	assert_int_equal(n, N / 2);
	assert_int_equal(m.n, 0);
	hmap_fini(&m);
	free(t);
}

static void equal_hashes(void **state)
{
	struct thing t[5];
	struct hmap m;
	(void)state;
	hmap_init(&m, 100);
	for (uint64_t i = 0; i < 5; i++) {
		t[i].key = i;
		hmap_insert(&m, &t[i].node, 42);
	}
	for (uint64_t i = 0; i < 5; i++)
		assert_ptr_equal(find(&m, 42, i), &t[i]);
	hmap_remove(&m, &t[2].node);
	assert_null(find(&m, 42, 2));
	assert_ptr_equal(find(&m, 42, 3), &t[3]);
	hmap_fini(&m);
}

static void lists(void **state)
{
	struct list a, b, n[4];
	(void)state;
	list_init(&a);
	list_init(&b);
	list_push(&a, &n[0]);
	list_push(&a, &n[1]);
	list_push_front(&b, &n[2]);
	list_push_front(&b, &n[3]);
	list_splice(&a, &b);
	assert_true(list_empty(&b));
	static const int expect[] = {0, 1, 3, 2};
	for (int i = 0; i < 4; i++)
		assert_ptr_equal(list_pop(&a), &n[expect[i]]);
	assert_null(list_pop(&a));
	list_remove(&n[0]);
}

static void checksums(void **state)
{
	(void)state;
	/* Test vectors of XXH3 64: they must never change, because the sums are on disk and on the
	 * wire. */
	assert_true(checksum64("", 0) == 0x2d06800538d394c2ULL);
	uint8_t data[1000];
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	struct iovec iov[4] = {{data, 1}, {data + 1, 0}, {data + 1, 500}, {data + 501, 499}};
	assert_true(checksum64_iov(iov, 4) == checksum64(data, sizeof(data)));
	assert_true(checksum64_iov(iov, 1) == checksum64(data, 1));
	assert_true(checksum64_iov(NULL, 0) == checksum64("", 0));
	assert_true(checksum64_seed(data, 1000, 0) == checksum64(data, 1000));
	assert_true(checksum64_seed(data, 1000, 1) != checksum64(data, 1000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(insert_find_remove),
		cmocka_unit_test(equal_hashes),
		cmocka_unit_test(lists),
		cmocka_unit_test(checksums),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
