/* SPDX-License-Identifier: Apache-2.0 */
/* Which sessions an object server serves: those that are alive; and it executes changes only for a
 * limited time after the last report from the metadata server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/ossd/chain/chain_rig.h"

#define FENCE_MS 3000u
#define READ_MS  1000u

static const struct chunk_id one = {{5}, 1, 0};

static void live(struct fence *f, uint64_t gen, uint64_t a, uint64_t b, uint64_t newest)
{
	uint64_t *ids = calloc(2, sizeof(*ids));

	assert_non_null(ids);
	ids[0] = a;
	ids[1] = b;
	fence_set(f, gen, ids, 2, newest);
}

static struct crig_write write_of(uint64_t session, uint64_t seq)
{
	static uint8_t data[RIG_BS];

	return (struct crig_write){one, 0, RIG_BS, data, .session = session, .seq = seq};
}

static int write_once(struct chain_rig *r, uint64_t session, uint64_t seq)
{
	struct crig_write w = write_of(session, seq);

	return crig_write(r, 0, &w, 1000);
}

struct async {
	struct chain_rig *r;
	struct crig_write w;
	int rc;
	bool done;
};

static void write_main(void *arg)
{
	struct async *a = arg;

	a->rc = crig_write(a->r, 0, &a->w, 1000);
	a->done = true;
}

/* Every member refuses sessions that have ended, and no others, however old the last report is. */
static void reads(struct chain_rig *r)
{
	static uint8_t buf[RIG_BS];

	assert_int_equal(write_once(r, 8, 1), 0);
	crig_wait_quiet(r);
	for (uint32_t i = 0; i < r->n; i++) {
		struct fence *f = &r->m[i].target.fence;

		/* Without a report of live sessions, no session counts as ended. */
		f->open = false;
		assert_int_equal(crig_read_as(r, i, 9, &one, buf, RIG_BS), RIG_BS);
		live(f, 5, 12, 8, 12);
		fence_update(f, loop_now_us(), FENCE_MS, 0);
		assert_int_equal(crig_read_as(r, i, 8, &one, buf, RIG_BS), RIG_BS);
		assert_int_equal(crig_read_as(r, i, 13, &one, buf, RIG_BS), RIG_BS);
		assert_int_equal(crig_read_as(r, i, 9, &one, buf, RIG_BS), -LE_SESSION_GONE);
		assert_int_equal(crig_read_as(r, i, 11, &one, buf, RIG_BS), -LE_SESSION_GONE);
		live(f, 6, 12, 13, 13);
		assert_int_equal(crig_read_as(r, i, 8, &one, buf, RIG_BS), -LE_SESSION_GONE);
	}
	(void)!fiber_sleep_us(2 * FENCE_MS * 1000);
	for (uint32_t i = 0; i < r->n; i++) {
		assert_int_equal(crig_read_as(r, i, 12, &one, buf, RIG_BS), RIG_BS);
		assert_int_equal(crig_read_as(r, i, 8, &one, buf, RIG_BS), -LE_SESSION_GONE);
	}
}

static void test_reads(void **state)
{
	(void)state;
	chain_rig_run(1, 1, reads);
	chain_rig_run(1, 3, reads);
}

/* Where exports may take rights from sessions, nothing is read when the last report is older than
 * READ_MS. */
static void reads_with_rights(struct chain_rig *r)
{
	static uint8_t buf[RIG_BS];

	assert_int_equal(write_once(r, 8, 1), 0);
	crig_wait_quiet(r);
	for (uint32_t i = 0; i < r->n; i++) {
		struct fence *f = &r->m[i].target.fence;
		uint64_t now = loop_now_us();

		f->open = false;
		/* The target has registered, and has no report of live sessions yet. */
		fence_reads_for(f, READ_MS);
		assert_int_equal(crig_read_as(r, i, 8, &one, buf, RIG_BS), -LE_NO_LEASE);
		live(f, 5, 12, 8, 12);
		fence_update(f, now, FENCE_MS, READ_MS);
		assert_int_equal(crig_read_as(r, i, 8, &one, buf, RIG_BS), RIG_BS);
		assert_int_equal(crig_read_as(r, i, 9, &one, buf, RIG_BS), -LE_SESSION_GONE);
		/* A reply from before the export existed, which a later one has overtaken. */
		fence_update(f, now - 1, FENCE_MS, 0);
		(void)!fiber_sleep_us(READ_MS * 1000);
		assert_int_equal(crig_read_as(r, i, 8, &one, buf, RIG_BS), -LE_NO_LEASE);
		assert_int_equal(crig_read_as(r, i, 9, &one, buf, RIG_BS), -LE_SESSION_GONE);
		fence_update(f, loop_now_us(), FENCE_MS, READ_MS);
		assert_int_equal(crig_read_as(r, i, 8, &one, buf, RIG_BS), RIG_BS);
	}
}

static void test_reads_with_rights(void **state)
{
	(void)state;
	chain_rig_run(1, 1, reads_with_rights);
	chain_rig_run(1, 3, reads_with_rights);
}

static void fenced(struct chain_rig *r)
{
	struct fence *f = &r->m[0].target.fence;
	struct async slow = {.r = r, .w = write_of(8, 3)};

	f->open = false;
	/* Without a report of live sessions, changes are refused. */
	assert_int_equal(write_once(r, 8, 1), -LE_NO_LEASE);
	live(f, 5, 12, 8, 12);
	fence_update(f, loop_now_us(), FENCE_MS, 0);
	assert_int_equal(write_once(r, 8, 1), 0);
	assert_int_equal(write_once(r, 9, 1), -LE_SESSION_GONE);
	assert_int_equal(write_once(r, 13, 1), 0); /* newer than the list */
	/* A reply that was overtaken does not revive a session. */
	live(f, 4, 8, 9, 12);
	assert_int_equal(write_once(r, 9, 1), -LE_SESSION_GONE);
	assert_int_equal(fence_applied(f), 5);

	/* A change that was admitted before is executed, and the fence waits for it. */
	slow.w.flags = WRITE_LAZY;
	assert_int_equal(fiber_spawn("async", write_main, &slow), 0);
	while (!slow.w.accepted)
		(void)!fiber_sleep_us(10);
	live(f, 6, 12, 13, 13);
	assert_false(slow.done);
	assert_int_equal(fence_applied(f), 0);
	assert_int_equal(write_once(r, 8, 4), -LE_SESSION_GONE);
	while (!slow.done)
		(void)!fiber_sleep_us(1000);
	assert_int_equal(slow.rc, 0);
	assert_int_equal(fence_applied(f), 6);

	assert_int_equal(write_once(r, 12, 1), 0);
	(void)!fiber_sleep_us(FENCE_MS * 1000);
	assert_int_equal(write_once(r, 12, 2), -LE_NO_LEASE);
	fence_update(f, loop_now_us(), FENCE_MS, 0);
	assert_int_equal(write_once(r, 12, 2), 0);
}

static void test_fenced(void **state)
{
	(void)state;
	chain_rig_run(1, 1, fenced);
	chain_rig_run(1, 2, fenced);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fenced),
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_reads_with_rights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
