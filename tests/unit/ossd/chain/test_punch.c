/* SPDX-License-Identifier: Apache-2.0 */
/* A hole over many chunks is punched once in each chunk, whichever member is the head and whatever
 * crashes: before the repetition, other clients have read its zeros and written there. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/ossd/chain/chain_rig.h"

#define CHUNKS 48u
#define KEPT   50u /* length of the data to keep in the first and in the last chunk */
#define LEN    RIG_BS

static uint64_t seq;
static uint8_t before[LEN], after[100];
static int punched;

static struct chunk_id chunk(uint32_t idx)
{
	return (struct chunk_id){{5}, 1, idx};
}

static void put(struct chain_rig *r, uint32_t i, uint32_t idx, uint32_t off, uint32_t len,
		const void *data)
{
	struct crig_write w = {chunk(idx), off, len, data, .session = 8, .seq = ++seq};

	assert_int_equal(crig_write(r, i, &w, 20000), 0);
}

static int punch(struct chain_rig *r, uint32_t i, uint64_t no)
{
	const struct chunk_id file = chunk(0);

	return crig_punch(r, i, &file, KEPT, (uint64_t)CHUNKS * RIG_CS - 2 * KEPT - RIG_CS + LEN,
			  no);
}

static void punch_fiber(void *arg)
{
	punched = punch(arg, 0, 1);
}

/* Returns whether the middle of the chunk reads as zeros. */
static bool is_hole(struct chain_rig *r, uint32_t i, uint32_t idx)
{
	static uint8_t got[RIG_CS], zeros[LEN];
	struct chunk_id id = chunk(idx);
	int64_t n;

	memset(got, 0, LEN);
	n = crig_read_any(r, i, &id, got);
	assert_true(n >= 0);
	return memcmp(got + KEPT, zeros, LEN - 2 * KEPT) == 0;
}

/* The first attempt punched some chunks and then failed. Writes to the punched chunks again at
 * member i, and repeats the request. */
static void written_between(struct chain_rig *r, uint32_t i)
{
	bool again[CHUNKS];
	uint32_t n = 0;

	for (uint32_t k = 0; k < CHUNKS; k++) {
		again[k] = is_hole(r, i, k);
		n += again[k];
		if (again[k])
			put(r, i, k, 2 * KEPT, sizeof(after), after);
	}
	assert_in_range(n, 1, CHUNKS - 1);
	for (uint32_t times = 0; times < 2; times++) {
		assert_int_equal(punch(r, i, 1), 0);
		for (uint32_t k = 0; k < CHUNKS; k++) {
			static uint8_t got[RIG_CS];
			struct chunk_id id = chunk(k);

			assert_int_equal(is_hole(r, i, k), !again[k]);
			if (!again[k])
				continue;
			assert_true(crig_read_any(r, i, &id, got) > 0);
			assert_memory_equal(got + 2 * KEPT, after, sizeof(after));
		}
	}
	/* A new request punches all chunks. */
	assert_int_equal(punch(r, i, 2), 0);
	for (uint32_t k = 0; k < CHUNKS; k++)
		assert_true(is_hole(r, i, k));
	assert_int_equal(punch(r, i, 1), -LE_STALE_SEQ);
}

static void begin(struct chain_rig *r)
{
	crig_fill(before, sizeof(before), 1);
	crig_fill(after, sizeof(after), 2);
	for (uint32_t k = 0; k < CHUNKS; k++)
		put(r, 0, k, 0, LEN, before);
	crig_wait_quiet(r);
	assert_int_equal(fiber_spawn("punch", punch_fiber, r), 0);
}

static void head_dies(struct chain_rig *r)
{
	uint64_t applies;

	begin(r);
	applies = metric_get(&r->m[1].metrics.applies);
	while (metric_get(&r->m[1].metrics.applies) < applies + 20)
		(void)!fiber_sleep_us(20);
	crig_crash(r, 0);
	r->m[0].state = MEMBER_OUT;
	for (uint32_t i = 0; i + 1 < r->n; i++)
		r->order[i] = i + 1;
	r->order[r->n - 1] = 0;
	crig_members(r);
	(void)!fiber_sleep_us(2000000);
	written_between(r, 1);
}

static void lead_moves(struct chain_rig *r)
{
	uint64_t applies;

	begin(r);
	applies = metric_get(&r->m[1].metrics.applies);
	while (metric_get(&r->m[1].metrics.applies) < applies + 20)
		(void)!fiber_sleep_us(20);
	r->order[0] = 1;
	r->order[1] = 0;
	crig_members(r);
	(void)!fiber_sleep_us(2000000);
	written_between(r, 1);
	crig_check_equal(r);
}

static void server_restarts(struct chain_rig *r)
{
	begin(r);
	while (metric_get(&r->m[0].metrics.trims) < 25)
		(void)!fiber_sleep_us(20);
	crig_crash(r, 0);
	crig_restart(r, 0);
	(void)!fiber_sleep_us(1000000);
	crig_tell(r, 0);
	written_between(r, 0);
}

static void test_head_dies(void **state)
{
	(void)state;
	for (uint64_t seed = 10; seed < 12; seed++)
		chain_rig_run(seed, 2 + seed % 2, head_dies);
}

static void test_lead_moves(void **state)
{
	(void)state;
	for (uint64_t seed = 20; seed < 22; seed++)
		chain_rig_run(seed, 2 + seed % 2, lead_moves);
}

static void test_server_restarts(void **state)
{
	(void)state;
	for (uint64_t seed = 30; seed < 32; seed++)
		chain_rig_run(seed, 1, server_restarts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head_dies),
		cmocka_unit_test(test_lead_moves),
		cmocka_unit_test(test_server_restarts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
