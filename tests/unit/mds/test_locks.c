/* SPDX-License-Identifier: Apache-2.0 */
/* Locks: which owner gets one, which waits, which is notified, which would wait without end;
 * sessions that end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mds/lease/locks.h"

static const struct ino one = {1}, two = {2};

static struct file_lock lock(uint64_t owner, uint64_t first, uint64_t last, uint8_t type)
{
	return (struct file_lock){.owner = owner, .first = first, .last = last, .type = type};
}

static int set(struct locks *ls, struct ino ino, uint64_t session, struct file_lock l, bool wait)
{
	return locks_set(ls, ino, session, &l, wait);
}

static uint32_t notified_sessions(struct locks *ls, uint64_t *ret_session)
{
	uint64_t session;
	uint32_t n = 0;
	struct ino ino;

	while (locks_next(ls, &session, &ino)) {
		*ret_session = session;
		n++;
	}
	return n;
}

static void who_waits_is_told(void **state)
{
	uint64_t session = 0;
	struct locks ls;

	(void)state;
	locks_init(&ls, 100);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, 9, FILE_LOCK_WRITE), false), 0);
	assert_int_equal(set(&ls, one, 2, lock(7, 5, 5, FILE_LOCK_READ), false), -LE_LOCKED);
	assert_int_equal(ls.n_waits, 0);
	assert_int_equal(set(&ls, one, 2, lock(7, 5, 5, FILE_LOCK_READ), true), -LE_LOCKED);
	assert_int_equal(set(&ls, one, 3, lock(7, 0, 0, FILE_LOCK_WRITE), true), -LE_LOCKED);
	/* A repeated request adds no wait. */
	assert_int_equal(set(&ls, one, 3, lock(7, 0, 0, FILE_LOCK_WRITE), true), -LE_LOCKED);
	assert_int_equal(ls.n_waits, 2);
	assert_int_equal(notified_sessions(&ls, &session), 0);
	assert_int_equal(set(&ls, one, 1, lock(7, 4, 9, FILE_LOCK_NONE), false), 0);
	assert_int_equal(notified_sessions(&ls, &session), 1);
	assert_int_equal(session, 2);
	assert_int_equal(set(&ls, one, 2, lock(7, 5, 5, FILE_LOCK_READ), true), 0);
	assert_int_equal(ls.n_waits, 1);
	/* A session that is taken over has to request again what it waits for; it keeps its
	 * locks. */
	locks_drop_waits(&ls, 2);
	assert_int_equal(ls.n_waits, 1);
	locks_drop_waits(&ls, 3);
	assert_int_equal(ls.n_waits, 0);
	assert_int_equal(ls.n, 2);
	assert_int_equal(set(&ls, one, 3, lock(7, 0, 0, FILE_LOCK_WRITE), true), -LE_LOCKED);
	/* A session that ends releases its locks and its waits. */
	locks_drop_session(&ls, 1);
	assert_int_equal(notified_sessions(&ls, &session), 1);
	assert_int_equal(session, 3);
	locks_drop_session(&ls, 3);
	locks_drop_session(&ls, 2);
	assert_int_equal(ls.n, 0);
	assert_int_equal(ls.n_waits, 0);
	locks_fini(&ls);
}

static void canceled(void **state)
{
	struct file_lock w = lock(7, 0, 0, FILE_LOCK_READ);
	uint64_t session = 0;
	struct locks ls;

	(void)state;
	locks_init(&ls, 100);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, 9, FILE_LOCK_WRITE), false), 0);
	assert_int_equal(set(&ls, one, 2, w, true), -LE_LOCKED);
	locks_cancel(&ls, one, 2, &w);
	assert_int_equal(ls.n_waits, 0);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, 9, FILE_LOCK_NONE), false), 0);
	assert_int_equal(notified_sessions(&ls, &session), 0);
	locks_fini(&ls);
}

/* Two files, three processes on two mounts: the wait that would close the circle is refused. */
static void circle(void **state)
{
	struct locks ls;

	(void)state;
	locks_init(&ls, 100);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, 0, FILE_LOCK_WRITE), false), 0);
	assert_int_equal(set(&ls, two, 2, lock(7, 0, 0, FILE_LOCK_WRITE), false), 0);
	assert_int_equal(set(&ls, two, 1, lock(8, 9, 9, FILE_LOCK_WRITE), false), 0);
	assert_int_equal(set(&ls, two, 1, lock(7, 0, 0, FILE_LOCK_READ), true), -LE_LOCKED);
	assert_int_equal(set(&ls, two, 2, lock(7, 9, 9, FILE_LOCK_READ), true), -LE_LOCKED);
	assert_int_equal(set(&ls, one, 1, lock(8, 0, 0, FILE_LOCK_READ), true), -LE_DEADLK);
	/* Without waiting, the lock is in use; flock has no deadlock detection. */
	assert_int_equal(set(&ls, one, 1, lock(8, 0, 0, FILE_LOCK_READ), false), -LE_LOCKED);
	assert_int_equal(ls.n_waits, 2);
	locks_fini(&ls);
}

static void bounded(void **state)
{
	struct locks ls;

	(void)state;
	locks_init(&ls, 4);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(set(&ls, one, 1, lock(7, 10 * i, 10 * i, FILE_LOCK_WRITE), false),
				 0);
	assert_int_equal(set(&ls, two, 1, lock(7, 0, 0, FILE_LOCK_WRITE), false), -LE_NOLCK);
	/* A release always succeeds. */
	assert_int_equal(set(&ls, one, 1, lock(7, 0, 99, FILE_LOCK_NONE), false), 0);
	assert_int_equal(set(&ls, two, 1, lock(7, 0, 0, FILE_LOCK_WRITE), false), 0);
	locks_fini(&ls);
}

/* The locks and waits of one file are limited, because each request walks over them. */
static void bounded_per_file(void **state)
{
	struct locks ls;
	uint64_t n = 0;
	int rc = 0;

	(void)state;
	locks_init(&ls, 1 << 20);
	while (rc == 0 && n < 100000) {
		rc = set(&ls, one, 1, lock(7, 2 * n, 2 * n, FILE_LOCK_WRITE), false);
		n += rc == 0;
	}
	assert_int_equal(rc, -LE_NOLCK);
	assert_int_equal(set(&ls, two, 1, lock(7, 0, 0, FILE_LOCK_WRITE), false), 0);
	n = 0;
	while (n < 100000 &&
	       set(&ls, two, 2 + n, lock(7, 0, 0, FILE_LOCK_READ), true) == -LE_LOCKED)
		n++;
	assert_int_equal(ls.n_waits, n);
	assert_true(n < 100000);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, UINT64_MAX, FILE_LOCK_NONE), false), 0);
	assert_int_equal(ls.n, 1);
	locks_fini(&ls);
}

/* Splitting a lock by releases is limited too; a release of a whole lock always succeeds. */
static void giving_back_is_bounded(void **state)
{
	struct locks ls;
	uint64_t n = 0;
	int rc = 0;

	(void)state;
	locks_init(&ls, 1 << 20);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, UINT64_MAX, FILE_LOCK_WRITE), false), 0);
	while (rc == 0 && n < 100000) {
		rc = set(&ls, one, 1, lock(7, 2 * n + 1, 2 * n + 1, FILE_LOCK_NONE), false);
		n += rc == 0;
	}
	assert_int_equal(rc, -LE_NOLCK);
	assert_int_equal(ls.n, n + 1);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, 0, FILE_LOCK_NONE), false), 0);
	assert_int_equal(set(&ls, one, 1, lock(7, 2 * n + 1, 2 * n + 1, FILE_LOCK_NONE), false), 0);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, UINT64_MAX, FILE_LOCK_NONE), false), 0);
	assert_int_equal(ls.n, 0);
	locks_fini(&ls);
	locks_init(&ls, 2);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, 9, FILE_LOCK_WRITE), false), 0);
	assert_int_equal(set(&ls, one, 1, lock(7, 5, 5, FILE_LOCK_NONE), false), 0);
	assert_int_equal(set(&ls, one, 1, lock(7, 2, 2, FILE_LOCK_NONE), false), -LE_NOLCK);
	assert_int_equal(set(&ls, one, 1, lock(7, 0, 4, FILE_LOCK_NONE), false), 0);
	assert_int_equal(ls.n, 1);
	locks_fini(&ls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_waits_is_told),
		cmocka_unit_test(canceled),
		cmocka_unit_test(circle),
		cmocka_unit_test(bounded),
		cmocka_unit_test(bounded_per_file),
		cmocka_unit_test(giving_back_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
