/* SPDX-License-Identifier: Apache-2.0 */
/* Which piece is evicted: compared with a slow implementation of the definition. */
#include "client/loader/source/belady.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/dies.h"

#define ITEMS 200u
#define STEPS 4000u

static struct belady_key key_of(uint32_t i)
{
	return (struct belady_key){.file = i % 7, .off = i, .len = 1 + i * 997 % 9000};
}

static void free_gone(struct list *gone, bool *held)
{
	struct list *l;
	while ((l = list_pop(gone))) {
		struct belady_entry *e = container_of(l, struct belady_entry, link);
		held[e->key.off] = false;
		free(e);
	}
}

static uint64_t next_after(const uint32_t *trace, uint32_t t)
{
	for (uint32_t k = t + 1; k < STEPS; k++) {
		if (trace[k] == trace[t])
			return k;
	}
	return UINT64_MAX;
}

/* The farthest next use among the cached pieces. */
static uint64_t farthest(const bool *held, const uint64_t *next)
{
	uint64_t far = 0;
	for (uint32_t i = 0; i < ITEMS; i++) {
		if (held[i] && next[i] > far)
			far = next[i];
	}
	return far;
}

static void test_the_farthest_goes(void **state)
{
	(void)state;
	uint32_t *trace = malloc(STEPS * sizeof(*trace));
	uint64_t next[ITEMS], hits = 0, x = 1;
	bool held[ITEMS] = {false};
	struct belady b;
	struct list gone;
	list_init(&gone);
	belady_init(&b, 300000);
	for (uint32_t t = 0; t < STEPS; t++) {
		x = hash_u64(x + t);
		trace[t] = (uint32_t)(x % ITEMS);
	}
	for (uint32_t t = 0; t < STEPS; t++) {
		uint32_t i = trace[t];
		struct belady_key k = key_of(i);
		struct belady_entry *e = belady_find(&b, &k);
		uint64_t when = next_after(trace, t);
		assert_int_equal(e != NULL, held[i]);
		next[i] = when;
		hits += e != NULL;
		if (e) {
			belady_move(&b, e, when);
			continue;
		}
		uint64_t far = farthest(held, next), used = b.used;
		bool fits = used + belady_cost(k.len) <= b.limit;
		e = belady_add(&b, &k, when, &gone);
		/* Cached if there was space, or if another piece is needed later than it. */
		if (when != UINT64_MAX && fits)
			assert_non_null(e);
		if (when == UINT64_MAX || (!fits && far <= when))
			assert_null(e);
		assert_true(list_empty(&gone) || !fits);
		free_gone(&gone, held);
		if (e) {
			held[i] = true;
			belady_ready(&b, e);
		}
		assert_true(b.used <= b.limit);
	}
	assert_true(hits > STEPS / 4);
	for (uint32_t i = 0; i < ITEMS; i++) {
		struct belady_key k = key_of(i);
		assert_int_equal(belady_find(&b, &k) != NULL, held[i]);
	}
	belady_fini(&b);
	free(trace);
}

static void test_what_is_being_written_stays(void **state)
{
	(void)state;
	struct belady b;
	struct list gone;
	struct belady_key one = {1, 100, 0}, two = {2, 100, 0};
	list_init(&gone);
	belady_init(&b, BELADY_UNIT);
	struct belady_entry *e = belady_add(&b, &one, 9, &gone);
	assert_non_null(e);
	assert_null(belady_add(&b, &two, 1, &gone));
	belady_ready(&b, e);
	struct belady_entry *f = belady_add(&b, &two, 1, &gone);
	assert_non_null(f);
	assert_ptr_equal(list_pop(&gone), &e->link);
	free(e);
	belady_remove(&b, f);
	free(f);
	assert_int_equal(b.used, 0);
	belady_fini(&b);
}

static void add_and_remove(void *arg)
{
	struct belady b;
	struct list gone;
	struct belady_key one = {1, 100, 0};
	(void)arg;
	list_init(&gone);
	belady_init(&b, BELADY_UNIT);
	struct belady_entry *e = belady_add(&b, &one, 9, &gone);
	belady_ready(&b, e);
	belady_remove(&b, e);
	free(e);
	belady_fini(&b);
}

static void test_a_piece_that_stays_counted_is_noticed(void **state)
{
	(void)state;
	add_and_remove(NULL);
	assert_dies("cache_keep_count", add_and_remove, NULL, "b->used == 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_farthest_goes),
		cmocka_unit_test(test_what_is_being_written_stays),
		cmocka_unit_test(test_a_piece_that_stays_counted_is_noticed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
