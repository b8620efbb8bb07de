/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of locks against a model with one entry for each byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/proto/file_locks.h"

#define BYTES  40u
#define OWNERS 3u

static uint64_t seed = 20261121;

static uint32_t draw(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

static struct file_lock any_lock(void)
{
	uint32_t a = draw(BYTES), b = draw(BYTES);

	return (struct file_lock){
		.owner = draw(OWNERS),
		.first = a < b ? a : b,
		.last = a < b ? b : a,
		.type = (uint8_t)draw(3),
	};
}

/* Type of the lock of each byte and owner; FILE_LOCK_NONE: none. */
typedef uint8_t model[OWNERS][BYTES];

static bool model_forbids(const uint8_t (*m)[BYTES], const struct file_lock *l)
{
	for (uint32_t o = 0; o < OWNERS; o++) {
		if (o == l->owner || l->type == FILE_LOCK_NONE)
			continue;
		for (uint64_t i = l->first; i <= l->last; i++)
			if (m[o][i] == FILE_LOCK_WRITE ||
			    (m[o][i] == FILE_LOCK_READ && l->type == FILE_LOCK_WRITE))
				return true;
	}
	return false;
}

static void compare(const struct file_locks *fl, const uint8_t (*m)[BYTES])
{
	model seen;
	uint32_t n = 0;

	memset(seen, FILE_LOCK_NONE, sizeof(seen));
	list_for_each (p, &fl->held) {
		const struct held_lock *h = list_entry(p, struct held_lock, link);

		for (uint64_t i = h->lock.first; i <= h->lock.last; i++) {
			assert_int_equal(seen[h->lock.owner][i], FILE_LOCK_NONE);
			seen[h->lock.owner][i] = h->lock.type;
		}
		/* Neighbours of one type are merged. */
		if (h->lock.last + 1 < BYTES)
			assert_true(m[h->lock.owner][h->lock.last + 1] != h->lock.type);
		n++;
	}
	assert_int_equal(n, fl->n);
	assert_memory_equal(seen, m, sizeof(seen));
}

static void as_every_byte_says(void **state)
{
	struct file_locks fl;
	uint32_t n_refused = 0;
	model m;

	(void)state;
	file_locks_init(&fl);
	memset(m, FILE_LOCK_NONE, sizeof(m));
	for (uint32_t i = 0; i < 200000; i++) {
		struct file_lock l = any_lock();

		assert_true(file_lock_valid(&l));
		assert_int_equal(file_locks_find(&fl, 1, &l) != NULL,
				 model_forbids((const uint8_t(*)[BYTES])m, &l));
		if (file_locks_find(&fl, 1, &l) != NULL) {
			n_refused++;
			continue;
		}
		assert_int_equal(file_locks_set(&fl, 1, 0, &l), 0);
		memset(&m[l.owner][l.first], l.type, (size_t)(l.last - l.first + 1));
		compare(&fl, (const uint8_t(*)[BYTES])m);
	}
	assert_true(n_refused > 10000);
	file_locks_fini(&fl);
}

static void to_the_end_of_the_world(void **state)
{
	struct file_lock all = {.owner = 1, .last = UINT64_MAX, .type = FILE_LOCK_WRITE};
	struct file_lock hole = {.owner = 1, .first = 5, .last = 6, .type = FILE_LOCK_NONE};
	struct file_lock want = {.owner = 2, .first = 4, .last = 6, .type = FILE_LOCK_READ};
	struct file_locks fl;

	(void)state;
	file_locks_init(&fl);
	assert_int_equal(file_locks_set(&fl, 1, 0, &all), 0);
	assert_int_equal(file_locks_set(&fl, 1, 0, &hole), 0);
	assert_int_equal(fl.n, 2);
	assert_non_null(file_locks_find(&fl, 1, &want));
	want.first = 5;
	assert_null(file_locks_find(&fl, 1, &want));
	want.last = UINT64_MAX;
	assert_non_null(file_locks_find(&fl, 1, &want));
	assert_int_equal(file_locks_set(&fl, 1, 0, &all), 0);
	assert_int_equal(fl.n, 1);
	/* The owner number of another session, or of another kind of lock, is another owner. */
	want = (struct file_lock){.owner = 1, .last = 1, .type = FILE_LOCK_READ};
	assert_null(file_locks_find(&fl, 1, &want));
	assert_non_null(file_locks_find(&fl, 2, &want));
	want.kind = FILE_LOCK_FLOCK;
	assert_null(file_locks_find(&fl, 2, &want));
	file_locks_fini(&fl);
}

/* In any order of locking and of later splits. */
static void the_one_that_begins_first(void **state)
{
	static const uint64_t starts[] = {30, 10, 20};
	struct file_lock want = {.owner = 2, .first = 0, .last = 99, .type = FILE_LOCK_WRITE};
	struct file_lock l = {.owner = 1, .type = FILE_LOCK_WRITE};
	struct file_locks fl;

	(void)state;
	file_locks_init(&fl);
	for (int i = 0; i < 3; i++) {
		l.first = starts[i];
		l.last = l.first + 4;
		assert_int_equal(file_locks_set(&fl, 1, 0, &l), 0);
	}
	assert_int_equal(file_locks_find(&fl, 1, &want)->lock.first, 10);
	l = (struct file_lock){.owner = 1, .first = 8, .last = 12, .type = FILE_LOCK_NONE};
	assert_int_equal(file_locks_set(&fl, 1, 0, &l), 0);
	assert_int_equal(file_locks_find(&fl, 1, &want)->lock.first, 13);
	want.first = 15;
	assert_int_equal(file_locks_find(&fl, 1, &want)->lock.first, 20);
	file_locks_fini(&fl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_every_byte_says),
		cmocka_unit_test(to_the_end_of_the_world),
		cmocka_unit_test(the_one_that_begins_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
