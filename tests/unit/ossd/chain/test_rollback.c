/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions that a member downstream cannot store are aborted at every member, while other versions
 * are made and other members lead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/planted_bug.h"
#include "common/rpc/transport/transport_sim.h"
#include "tests/unit/ossd/chain/chain_rig.h"

static const struct chunk_id one = {{5}, 1, 0};

static void have_space(struct chain_rig *r, uint32_t i, bool yes)
{
	struct space *s = &r->m[i].target.store->space;

	s->frozen = !yes;
	s->reserve = yes ? 1 << 20 : 1ull << 40;
}

/* The last member has no space: the version is aborted at every member, and so are the versions
 * built on it. */
static void no_space(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};
	struct crig_async a[3];
	uint32_t n_failed = 0;

	crig_fill(data, RIG_CS, 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	/* No free space on the last member's disk. */
	have_space(r, r->n - 1, false);
	for (uint32_t i = 0; i < 3; i++) {
		a[i] = (struct crig_async){
			.r = r,
			.w = {one, (i + 1) * RIG_BS, RIG_BS, data, .session = 60 + i, .seq = 1},
			.timeout_ms = 20000};
		crig_start(&a[i]);
	}
	for (uint32_t i = 0; i < 3; i++) {
		crig_wait(&a[i]);
		n_failed += a[i].rc == -LE_NOSPC;
		assert_true(a[i].rc == -LE_NOSPC || a[i].rc == -LE_ABORTED);
	}
	assert_true(n_failed > 0);
	assert_int_equal(crig_read_any(r, 0, &one, got), RIG_BS);
	crig_check_equal(r);
	have_space(r, r->n - 1, true);
	/* Repeats each request under its number: it was not executed. */
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(crig_write(r, 0, &a[i].w, 20000), 0);
	crig_check_equal(r);
	for (uint32_t i = 0; i < r->n; i++)
		assert_int_equal(crig_read_any(r, i, &one, got), 4 * RIG_BS);
}

static void test_no_space(void **state)
{
	(void)state;
	chain_rig_run(70, 2, no_space);
	chain_rig_run(71, 3, no_space);
}

/* The head aborts what a member has refused, and the second member becomes the head before the
 * abort is durable. The abort of a previous head has no effect: the next head may have the version,
 * or give its number to another write. */
static uint32_t n_overtaken;

static void no_space_then_no_head(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_async a;
	uint64_t seq = 0;

	crig_fill(data, RIG_CS, 1);
	planted_bugs_[PLANTED_BUG_CHAIN_REFUSE] = true;
	do {
		a = (struct crig_async){.r = r,
				   .w = {one, 0, RIG_BS, data, .session = 9, .seq = ++seq},
				   .timeout_ms = 20000};
		crig_start(&a);
		while (!a.ended && metric_get(&r->m[0].metrics.versions_taken_back) == 0)
			(void)!fiber_sleep_us(20);
	} while (a.ended);
	r->order[0] = 1;
	r->order[1] = 0;
	crig_members(r);
	crig_wait(&a);
	/* The client must repeat the request at the new head, or the version was aborted everywhere
	 * before. */
	assert_true(a.rc == -LE_STALE_EPOCH || a.rc == -LE_NOSPC);
	n_overtaken += a.rc == -LE_STALE_EPOCH;
	planted_bugs_[PLANTED_BUG_CHAIN_REFUSE] = false;
	(void)!fiber_sleep_us(500000);
	a.w.len = 2 * RIG_BS;
	a.w.seq++;
	assert_int_equal(crig_write(r, 1, &a.w, 20000), 0);
	crig_check_equal(r);
	for (uint32_t i = 0; i < r->n; i++) {
		assert_int_equal(crig_read_any(r, i, &one, got), 2 * RIG_BS);
		assert_memory_equal(got, data, 2 * RIG_BS);
	}
}

static void test_no_space_then_no_head(void **state)
{
	(void)state;
	for (uint64_t seed = 160; seed < 170; seed++) {
		struct chain_rig r = {.disk_us = 50000};

		chain_rig_run_on(&r, seed, 3, no_space_then_no_head);
	}
	assert_true(n_overtaken > 0);
}

/* Sends member i an ABORT of the versions after base, up to `version`. */
static int say_abort(struct chain_rig *r, uint32_t i, uint64_t base, uint64_t version)
{
	struct oss_forward_req req = {.kind = FORWARD_ABORT,
				      .chunk = one,
				      .version = version,
				      .base = base,
				      .upto = version};

	return crig_say(r, i, &req);
}

/* The first two members have version 3, and it is in flight to the last one, when ABORTs of earlier
 * and later versions arrive: version 3 is neither aborted nor lost. */
static void late_abort(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};
	struct crig_async a = {.r = r,
			  .w = {one, 0, 2 * RIG_BS, data, .session = 9, .seq = 1},
			  .timeout_ms = 20000};
	const struct chain *c = chain_find(r->m[1].target.chains, RIG_CHAIN);

	crig_fill(data, RIG_CS, 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	w.seq++;
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	crig_wait_quiet(r);
	crig_cut_off(r, 1, 2, true);
	crig_start(&a);
	while (c->n_pending == 0)
		(void)!fiber_sleep_us(100);
	assert_int_equal(say_abort(r, 2, 3, 4), -LE_TIMEDOUT); /* waits for version 3 */
	assert_int_equal(say_abort(r, 1, 1, 2), -LE_TIMEDOUT); /* cannot reach the last member */
	assert_int_equal(c->n_pending, 1);
	crig_cut_off(r, 1, 2, false);
	crig_wait(&a);
	assert_int_equal(a.rc, 0);
	crig_check_equal(r);
	assert_int_equal(crig_read_any(r, 2, &one, got), 2 * RIG_BS);
	assert_memory_equal(got, data, 2 * RIG_BS);
}

static void test_late_abort(void **state)
{
	(void)state;
	chain_rig_run(138, 3, late_abort);
}

/* Versions are aborted while others are made: an ABORT that arrives late must not abort versions
 * that were made since. */
static void refusals(struct chain_rig *r)
{
	struct transport_sim_options bad = {.delay_us_max = 2000,
					    .lose_ppm = 2000,
					    .double_ppm = 50000,
					    .double_late_us_max = 30000,
					    .reorder_ppm = 100000};
	struct transport_sim_options good = {0};
	static uint8_t model[RIG_CS], got[RIG_CS];
	struct crig_writer like = {.r = r,
				   .chunk = one,
				   .n = 60,
				   .model = model,
				   .again = true,
				   .timeout_ms = 500};

	memset(model, 0, sizeof(model));
	planted_bugs_[PLANTED_BUG_CHAIN_REFUSE] = true;
	transport_sim_set_options(r->transport, &bad);
	crig_write_many(&like);
	transport_sim_set_options(r->transport, &good);
	planted_bugs_[PLANTED_BUG_CHAIN_REFUSE] = false;
	assert_true(metric_get(&r->m[0].metrics.versions_taken_back) > 0);
	crig_check_equal(r);
	for (uint32_t i = 0; i < r->n; i++) {
		int64_t n = crig_read_any(r, i, &one, got);

		assert_true(n > 59 * 1024);
		assert_memory_equal(got, model, (size_t)n);
	}
}

static void test_refusals(void **state)
{
	(void)state;
	for (uint64_t seed = 140; seed < 152; seed++)
		chain_rig_run(seed, 2 + seed % 2, refusals);
}

/* The ANSWER of a trim is in flight downstream when its head stops being the head. Its versions
 * were committed before, and no member sends the ANSWER again: the version ends, and so does the
 * request. */
static int64_t trimmed;

static void trim_fiber(void *arg)
{
	struct chain_rig *r = arg;

	trimmed = crig_trim(r, 0, &one, 100, 1, NULL);
}

static void answer_of_a_former_head(struct chain_rig *r)
{
	static uint8_t data[RIG_CS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};
	const struct chain *c = chain_find(r->m[0].target.chains, RIG_CHAIN);

	crig_fill(data, RIG_CS, 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	assert_int_equal(crig_trim(r, 0, &one, 100, 0, NULL), 0);
	crig_wait_quiet(r);
	/* The trim changes nothing, so that only the ANSWER is forwarded. */
	trimmed = 1;
	crig_cut_off(r, 0, 1, true);
	assert_int_equal(fiber_spawn("trim", trim_fiber, r), 0);
	while (c->n_pending == 0)
		(void)!fiber_sleep_us(100);
	r->order[0] = 1;
	r->order[1] = 0;
	crig_members(r);
	crig_cut_off(r, 0, 1, false);
	(void)!fiber_sleep_us(2000000);
	assert_int_equal(trimmed, -LE_STALE_EPOCH);
	assert_int_equal(c->n_pending, 0);
	assert_int_equal(crig_trim(r, 1, &one, 100, 1, NULL), 0);
	crig_check_equal(r);
}

static void test_answer_of_a_former_head(void **state)
{
	(void)state;
	chain_rig_run(170, 3, answer_of_a_former_head);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_space),
		cmocka_unit_test(test_no_space_then_no_head),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_late_abort),
		cmocka_unit_test(test_answer_of_a_former_head),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
