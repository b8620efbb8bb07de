/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of two and three members over the simulated network: all members are equal, whatever
 * fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/rpc/transport/transport_sim.h"
#include "tests/unit/ossd/chain/chain_rig.h"

static const struct chunk_id one = {{5}, 1, 0};

/* ---- without failures ---- */

static void write_and_read(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_CS, data, .session = 8, .seq = 1};

	crig_fill(data, RIG_CS, 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	assert_true(w.accepted);
	/* A fragment across the boundary of two blocks: merged at the head, whole blocks
	 * downstream. */
	crig_fill(data + RIG_BS - 100, 300, 2);
	w = (struct crig_write){one,          RIG_BS - 100, 300, data + RIG_BS - 100,
				.session = 8, .seq = 2};
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	for (uint32_t i = 0; i < r->n; i++) {
		assert_int_equal(crig_read_any(r, i, &one, got), RIG_CS);
		assert_memory_equal(got, data, RIG_CS);
		if (i) {
			assert_int_equal(crig_write(r, i, &w, 20000), -LE_NOT_HEAD);
			assert_int_equal(metric_get(&r->m[i].metrics.applies), 2);
			assert_int_equal(metric_get(&r->m[i].metrics.merges), 0);
			assert_int_equal(metric_get(&r->m[i].metrics.copies), 0);
		}
	}
	assert_int_equal(metric_get(&r->m[0].metrics.forward_reads), 0);
	/* A WRITE_ON_BASE write is executed only on the version that it names, and once. */
	for (uint64_t base = 1; base <= 3; base++) {
		w.flags = WRITE_ON_BASE;
		w.base = base;
		w.seq++;
		assert_int_equal(crig_write(r, 0, &w, 20000), base == 1 ? -LE_STALE : 0);
	}
	w.seq++;
	assert_int_equal(crig_write(r, 0, &w, 20000), -LE_STALE);
	crig_check_equal(r);
}

static void test_write_and_read(void **state)
{
	(void)state;
	chain_rig_run(3, 1, write_and_read);
	chain_rig_run(1, 2, write_and_read);
	chain_rig_run(2, 3, write_and_read);
}

/* ---- trim and remove ---- */

static void trim_and_remove(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_CS, data, .session = 8, .seq = 1};
	struct chunk_id two = {{5}, 1, 1};

	crig_fill(data, RIG_CS, 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	w.chunk = two;
	w.seq++;
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	assert_int_equal(crig_trim(r, 0, &one, 20000, 1, NULL), 0);
	for (uint32_t i = 0; i < r->n; i++) {
		assert_int_equal(crig_read_any(r, i, &one, got), 20000);
		assert_memory_equal(got, data, 20000);
	}
	crig_check_equal(r);
	assert_int_equal(crig_remove(r, 0, one.ino, 1), 0);
	crig_check_equal(r);
	for (uint32_t i = 0; i < r->n; i++)
		assert_int_equal(crig_read_any(r, i, &one, got), 0);
	/* A new chunk gets a version that was never used. */
	w = (struct crig_write){one, 0, 100, data, .session = 8, .seq = 3};
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	crig_check_equal(r);
	assert_int_equal(crig_read_any(r, r->n - 1, &one, got), 100);
}

static void test_trim_and_remove(void **state)
{
	(void)state;
	chain_rig_run(3, 2, trim_and_remove);
	chain_rig_run(4, 3, trim_and_remove);
}

/* ---- ANSWERs of requests without a change ---- */

struct trimmer {
	struct chain_rig *r;
	uint64_t seq;
	int rc;
	bool ended;
};

static void trim_fiber(void *arg)
{
	struct trimmer *t = arg;

	t->rc = crig_trim(t->r, 0, &one, 100, t->seq, NULL);
	t->ended = true;
}

static void trim_again_at_last(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 2};
	uint64_t replays;

	for (uint32_t i = 0; i < 2; i++) {
		crig_crash(r, i);
		r->m[i].state = MEMBER_OUT;
		r->order[i + 1] = i;
	}
	r->order[0] = 2;
	crig_members(r);
	crig_fill(data, RIG_BS, 2);
	assert_int_equal(crig_write(r, 2, &w, 20000), 0);
	replays = metric_get(&r->m[2].metrics.replays);
	assert_int_equal(crig_trim(r, 2, &one, 100, 1, NULL), 0);
	assert_int_equal(metric_get(&r->m[2].metrics.replays), replays + 1);
	assert_int_equal(crig_read_any(r, 2, &one, got), RIG_BS);
	assert_memory_equal(got, data, RIG_BS);
}

/* Every member has the reply before the client gets it, also one that the previous member cannot
 * reach. */
static void answered_by_all(struct chain_rig *r)
{
	static uint8_t data[100];
	struct crig_write w = {one, 0, sizeof(data), data, .session = 8, .seq = 1};
	struct trimmer t = {.r = r, .seq = 1};

	crig_fill(data, sizeof(data), 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	crig_wait_quiet(r);
	crig_cut_off(r, 1, 2, true);
	assert_int_equal(fiber_spawn("trim", trim_fiber, &t), 0);
	(void)!fiber_sleep_us(6000000);
	assert_false(t.ended);
	crig_cut_off(r, 1, 2, false);
	while (!t.ended)
		(void)!fiber_sleep_us(1000);
	assert_int_equal(t.rc, 0);
	crig_wait_quiet(r);
	trim_again_at_last(r);
}

static void test_answered_by_all(void **state)
{
	(void)state;
	for (uint64_t seed = 20; seed < 24; seed++)
		chain_rig_run(seed, 3, answered_by_all);
}

/* The next epoch begins with another head while the ANSWER is in flight: no request waits for
 * it. */
static void answered_in_next_epoch(struct chain_rig *r)
{
	static uint8_t data[100];
	struct crig_write w = {one, 0, sizeof(data), data, .session = 8, .seq = 1};
	struct trimmer t = {.r = r, .seq = 1};

	crig_fill(data, sizeof(data), 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	crig_wait_quiet(r);
	crig_cut_off(r, 1, 2, true);
	assert_int_equal(fiber_spawn("trim", trim_fiber, &t), 0);
	(void)!fiber_sleep_us(2000000);
	assert_false(t.ended);
	r->order[0] = 2;
	r->order[2] = 0;
	crig_members(r);
	crig_cut_off(r, 1, 2, false);
	crig_wait_quiet(r);
	while (!t.ended)
		(void)!fiber_sleep_us(1000);
	assert_int_not_equal(t.rc, 0);
	assert_int_equal(crig_trim(r, 2, &one, 100, 1, NULL), 0);
	crig_check_equal(r);
}

static void test_answered_in_next_epoch(void **state)
{
	(void)state;
	for (uint64_t seed = 30; seed < 34; seed++)
		chain_rig_run(seed, 3, answered_in_next_epoch);
}

/* A late frame of an earlier ANSWER does not replace a later one. */
static void answered_before(struct chain_rig *r)
{
	struct oss_forward_req late = {.kind = FORWARD_ANSWER,
				       .session = 1,
				       .slot = 78,
				       .seq = 1,
				       .op = OP_oss_trim};
	uint8_t answer[REPLAY_REPLY_MAX] = {0};
	uint64_t replays;

	late.answer = bytes_of(answer, 17);
	for (uint64_t no = 1; no <= 2; no++)
		assert_int_equal(crig_trim(r, 0, &one, 100, no, NULL), 0);
	crig_wait_quiet(r);
	assert_int_equal(crig_say(r, 1, &late), 0);
	crig_crash(r, 0);
	r->m[0].state = MEMBER_OUT;
	r->order[0] = 1;
	r->order[1] = 0;
	crig_members(r);
	replays = metric_get(&r->m[1].metrics.replays);
	assert_int_equal(crig_trim(r, 1, &one, 100, 2, NULL), 0);
	assert_int_equal(metric_get(&r->m[1].metrics.replays), replays + 1);
}

static void test_answered_before(void **state)
{
	(void)state;
	chain_rig_run(40, 2, answered_before);
}

/* ---- many writers ---- */

static void many_writers(struct chain_rig *r)
{
	static uint8_t model[RIG_CS], got[RIG_CS];
	struct crig_writer like = {
		.r = r, .chunk = one, .n = 60, .model = model, .timeout_ms = 20000};

	memset(model, 0, sizeof(model));
	crig_write_many(&like);
	crig_check_equal(r);
	for (uint32_t i = 0; i < r->n; i++) {
		int64_t n = crig_read_any(r, i, &one, got);

		assert_true(n > 59 * 1024);
		assert_memory_equal(got, model, (size_t)n);
	}
}

static void test_many_writers(void **state)
{
	(void)state;
	for (uint64_t seed = 10; seed < 14; seed++)
		chain_rig_run(seed, 2 + seed % 2, many_writers);
}

/* ---- epochs and leases ---- */

static void epochs(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};

	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	r->epoch--;
	assert_int_equal(crig_read(r, 1, &one, got, RIG_CS), -LE_STALE_EPOCH);
	r->epoch += 2;
	assert_int_equal(crig_read(r, 1, &one, got, RIG_CS), -LE_STALE_EPOCH);
	r->epoch--;
	assert_int_equal(crig_read_any(r, 1, &one, got), RIG_BS);
	/* Without renewed leases all members refuse requests; they serve again when the leases are
	 * renewed. */
	r->lease_ms = 0;
	(void)!fiber_sleep_us(1200000);
	assert_int_equal(crig_read(r, 0, &one, got, RIG_CS), -LE_NO_LEASE);
	assert_int_equal(crig_read(r, 1, &one, got, RIG_CS), -LE_NO_LEASE);
	w.seq++;
	assert_int_equal(crig_write(r, 0, &w, 20000), -LE_NO_LEASE);
	r->lease_ms = 1000;
	(void)!fiber_sleep_us(100000);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	/* The adopted epoch is durable. */
	crig_crash(r, 1);
	crig_restart(r, 1);
	assert_int_equal(crig_read(r, 1, &one, got, RIG_CS), -LE_NOT_READY);
	assert_int_equal(chain_find(r->m[1].target.chains, RIG_CHAIN)->epoch, r->epoch);
}

static void test_epochs_and_leases(void **state)
{
	(void)state;
	chain_rig_run(20, 2, epochs);
}

/* ---- a slow member ---- */

static void window(struct chain_rig *r)
{
	static uint8_t data[8][1024], got[RIG_CS];
	struct crig_async a[8];
	const struct chain *c = chain_find(r->m[0].target.chains, RIG_CHAIN);

	crig_cut_off(r, 0, 1, true);
	for (uint32_t i = 0; i < 8; i++) {
		crig_fill(data[i], 1024, i);
		a[i] = (struct crig_async){
			.r = r,
			.w = {one, i * 1024, 1024, data[i], .session = 50 + i, .seq = 1},
			.timeout_ms = 20000};
		crig_start(&a[i]);
		(void)!fiber_sleep_us(20000);
	}
	(void)!fiber_sleep_us(300000);
	assert_int_equal(c->n_pending, 4); /* window_max */
	for (uint32_t i = 0; i < 8; i++) {
		assert_false(a[i].ended);
		assert_false(a[i].w.accepted);
	}
	crig_cut_off(r, 0, 1, false);
	for (uint32_t i = 0; i < 8; i++) {
		crig_wait(&a[i]);
		assert_int_equal(a[i].rc, 0);
	}
	crig_check_equal(r);
	assert_int_equal(crig_read_any(r, r->n - 1, &one, got), 8 * 1024);
	assert_memory_equal(got, data, 8 * 1024);
}

static void test_window(void **state)
{
	(void)state;
	chain_rig_run(30, 2, window);
	chain_rig_run(31, 3, window);
}

/* Of a pending version the head lets the reader wait; other members send the reader to the head. */
struct read_async {
	struct chain_rig *r;
	int64_t n;
	bool ended;
	uint8_t got[RIG_CS];
};

static void read_main(void *arg)
{
	struct read_async *a = arg;

	a->n = crig_read(a->r, 0, &one, a->got, RIG_CS);
	a->ended = true;
}

static void pending(struct chain_rig *r)
{
	static uint8_t data[2 * RIG_BS], got[RIG_CS];
	static struct read_async ra;
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};
	struct crig_async a = {.r = r,
			  .w = {one, 0, 2 * RIG_BS, data, .session = 9, .seq = 1},
			  .timeout_ms = 20000};

	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	crig_wait_quiet(r);
	crig_cut_off(r, 1, 2, true);
	crig_fill(data, sizeof(data), 4);
	crig_start(&a);
	(void)!fiber_sleep_us(100000);
	ra = (struct read_async){.r = r};
	assert_int_equal(fiber_spawn("read", read_main, &ra), 0);
	(void)!fiber_sleep_us(100000);
	assert_false(ra.ended);
	assert_int_equal(crig_read(r, 1, &one, got, RIG_CS), -LE_PENDING);
	/* The pending version has not reached it, and no reader has got that version yet. */
	assert_int_equal(crig_read(r, 2, &one, got, RIG_CS), RIG_BS);
	crig_cut_off(r, 1, 2, false);
	crig_wait(&a);
	while (!ra.ended)
		(void)!fiber_sleep_us(1000);
	assert_int_equal(ra.n, 2 * RIG_BS);
	assert_memory_equal(ra.got, data, 2 * RIG_BS);
	crig_check_equal(r);
}

static void test_pending(void **state)
{
	(void)state;
	chain_rig_run(35, 3, pending);
}

/* ---- failures ---- */

/* The member downstream is away: the head continues alone, and the pending write is answered. */
static void lost_follower(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_async a = {
		.r = r, .w = {one, 0, RIG_CS, data, .session = 8, .seq = 1}, .timeout_ms = 20000};

	crig_fill(data, RIG_CS, 1);
	crig_crash(r, 1);
	crig_start(&a);
	(void)!fiber_sleep_us(300000);
	assert_false(a.ended);
	r->m[1].state = MEMBER_OUT;
	if (r->n == 3) {
		r->order[1] = 2;
		r->order[2] = 1;
	}
	crig_members(r);
	crig_wait(&a);
	/* A repetition with the new map gets the recorded reply. */
	if (a.rc == -LE_STALE_EPOCH)
		assert_int_equal(crig_write(r, 0, &a.w, 20000), 0);
	else
		assert_int_equal(a.rc, 0);
	assert_int_equal(crig_read_any(r, 0, &one, got), RIG_CS);
	assert_memory_equal(got, data, RIG_CS);
	crig_check_equal(r);
}

static void test_lost_follower(void **state)
{
	(void)state;
	chain_rig_run(40, 2, lost_follower);
	chain_rig_run(41, 3, lost_follower);
}

/* The head crashes with a version that the others hold: the next head commits it, with its
 * reply. */
static void lost_head(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_async a = {
		.r = r, .w = {one, 0, RIG_CS, data, .session = 8, .seq = 1}, .timeout_ms = 1000};
	uint64_t writes;

	crig_fill(data, RIG_CS, 1);
	crig_start(&a);
	while (metric_get(&r->m[1].metrics.applies) == 0)
		(void)!fiber_sleep_us(100);
	crig_crash(r, 0);
	r->m[0].state = MEMBER_OUT;
	r->order[r->n - 1] = 0;
	for (uint32_t i = 0; i + 1 < r->n; i++)
		r->order[i] = i + 1;
	crig_members(r);
	crig_wait(&a);
	writes = metric_get(&r->m[1].metrics.writes);
	assert_int_equal(crig_write(r, 1, &a.w, 20000), 0);
	assert_int_equal(metric_get(&r->m[1].metrics.writes), writes); /* not executed again */
	assert_int_equal(metric_get(&r->m[1].metrics.replays), 1);
	assert_int_equal(crig_read_any(r, 1, &one, got), RIG_CS);
	assert_memory_equal(got, data, RIG_CS);
	crig_fill(data, RIG_BS, 3);
	a.w = (struct crig_write){one, 0, RIG_BS, data, .session = 8, .seq = 2};
	assert_int_equal(crig_write(r, 1, &a.w, 20000), 0);
	crig_check_equal(r);
}

static void test_lost_head(void **state)
{
	(void)state;
	for (uint64_t seed = 50; seed < 60; seed++)
		chain_rig_run(seed, 2 + seed % 2, lost_head);
}

/* A head grants at most the space that the members downstream have reserved for it. */
static void reserves(struct chain_rig *r)
{
	struct space *head = &r->m[0].target.store->space;
	struct space *last = &r->m[r->n - 1].target.store->space;
	uint64_t session = SESSION_CHAIN | 1;

	(void)!fiber_sleep_us(1500000);
	assert_true(space_grant_held(last, session) > 0);
	assert_true(head->promise_max <= space_grant_held(last, session));
	assert_int_equal(last->promised, 0); /* what a member holds is no promise to a client */
	last->reserve = last->alloc.n_units * UNIT_SIZE - (1 << 20);
	assert_true(space_grant(head, 5, 16 << 20, 0) <= head->promise_max);
	assert_true(head->granted <= head->promise_max);
	assert_true(space_grant(head, 6, 64 << 20, 0) <= head->promise_max);
	assert_true(head->granted <= head->promise_max);
}

static void test_reserves(void **state)
{
	(void)state;
	chain_rig_run(75, 2, reserves);
	chain_rig_run(76, 3, reserves);
}

/* Only a follower of the crashed head holds the version, and the new head does not: it is
 * dropped. */
static void orphan(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};
	struct crig_async a = {
		.r = r, .w = {one, 0, RIG_BS, data, .session = 9, .seq = 1}, .timeout_ms = 500};
	const struct chain *c = chain_find(r->m[2].target.chains, RIG_CHAIN);

	crig_fill(data, RIG_CS, 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	crig_wait_quiet(r);
	/* In this epoch the third member is downstream of the head. Then the second one leads,
	 * which was not notified. (A metadata server would not do that: it stands for any lost
	 * message.) */
	r->order[1] = 2;
	r->order[2] = 1;
	crig_members(r);
	crig_cut_off(r, 2, 1, true);
	crig_start(&a);
	while (c->n_pending == 0)
		(void)!fiber_sleep_us(100);
	crig_crash(r, 0);
	r->m[0].state = MEMBER_OUT;
	r->order[0] = 1;
	r->order[1] = 2;
	r->order[2] = 0;
	crig_members(r);
	crig_cut_off(r, 2, 1, false);
	crig_wait(&a);
	assert_int_equal(c->n_pending, 1);
	for (int i = 0; i < 300 && c->n_pending; i++)
		(void)!fiber_sleep_us(10000);
	assert_int_equal(c->n_pending, 0);
	assert_true(metric_get(&r->m[2].metrics.versions_taken_back) > 0);
	crig_check_equal(r);
	assert_int_equal(crig_write(r, 1, &a.w, 20000), 0);
	crig_check_equal(r);
	assert_int_equal(crig_read_any(r, 2, &one, got), RIG_BS);
}

static void test_orphan(void **state)
{
	(void)state;
	chain_rig_run(80, 3, orphan);
}

/* Bad frames and links: each write is executed once, and all members are equal. */
static void bad_network(struct chain_rig *r)
{
	struct transport_sim_options bad = {.delay_us_max = 2000,
					    .lose_ppm = 2000,
					    .double_ppm = 50000,
					    .double_late_us_max = 30000,
					    .reorder_ppm = 20000,
					    .break_ppm = 2000};
	struct transport_sim_options good = {0};
	static uint8_t data[1024], got[RIG_CS], model[RIG_CS];

	memset(model, 0, sizeof(model));
	transport_sim_set_options(r->transport, &bad);
	for (uint32_t k = 0; k < 100; k++) {
		struct crig_write w = {one, k % 37 * 1024, 1024, data, .session = 8, .seq = k + 1};
		int rc;

		crig_fill(data, sizeof(data), k);
		memcpy(model + w.off, data, sizeof(data));
		do {
			rc = crig_write(r, 0, &w, 500);
		} while (rc < 0);
	}
	transport_sim_set_options(r->transport, &good);
	crig_check_equal(r);
	for (uint32_t i = 0; i < r->n; i++) {
		assert_int_equal(crig_read_any(r, i, &one, got), 37 * 1024);
		assert_memory_equal(got, model, 37 * 1024);
	}
}

static void test_bad_network(void **state)
{
	(void)state;
	for (uint64_t seed = 90; seed < 96; seed++)
		chain_rig_run(seed, 2 + seed % 2, bad_network);
}

/* A removal was committed, and a head that has not been notified of that sends it again: the member
 * takes it for history, though it has no record of the chunk. If the chunk is still in flight, the
 * member waits for it. */
static void removed_before(struct chain_rig *r)
{
	static uint8_t data[RIG_BS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};
	struct oss_forward_req req = {.kind = FORWARD_REMOVE, .chunk = one, .version = 2};

	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	assert_int_equal(crig_remove(r, 0, one.ino, 1), 0);
	crig_wait_quiet(r);
	crig_members(r); /* another epoch */
	req.base = req.committed = 1;
	assert_int_equal(crig_say(r, 1, &req), 0);
	req.committed = 0; /* the chunk is still in flight */
	assert_int_equal(crig_say(r, 1, &req), -LE_TIMEDOUT);
}

static void test_removed_before(void **state)
{
	(void)state;
	chain_rig_run(139, 2, removed_before);
}

/* All members lose power during writes. Each may become the head: it has all acknowledged
 * writes. */
static void power_loss(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_async a[4];
	uint32_t leader = (uint32_t)sim_random_below(r->sim, r->n);

	for (uint32_t i = 0; i < 4; i++) {
		crig_fill(data + i * RIG_BS, RIG_BS, i);
		a[i] = (struct crig_async){.r = r,
				      .w = {one, i * RIG_BS, RIG_BS, data + i * RIG_BS,
					    .session = 60 + i, .seq = 1},
				      .timeout_ms = 3000};
		crig_start(&a[i]);
		(void)!fiber_sleep_us(sim_random_below(r->sim, 1500));
	}
	for (uint32_t i = 0; i < r->n; i++)
		crig_crash(r, i);
	for (uint32_t i = 0; i < 4; i++)
		crig_wait(&a[i]);
	crig_restart(r, leader);
	for (uint32_t i = 0; i < r->n; i++)
		r->m[i].state = i == leader ? MEMBER_SYNC : MEMBER_OUT;
	r->order[0] = leader;
	r->order[leader] = 0;
	crig_members(r);
	(void)!fiber_sleep_us(100000);
	for (uint32_t i = 0; i < 4; i++) {
		if (a[i].rc == 0) {
			assert_true(crig_read_any(r, leader, &one, got) >= (i + 1) * RIG_BS);
			assert_memory_equal(got + i * RIG_BS, data + i * RIG_BS, RIG_BS);
		}
		assert_int_equal(crig_write(r, leader, &a[i].w, 20000), 0);
	}
	assert_int_equal(crig_read_any(r, leader, &one, got), 4 * RIG_BS);
	assert_memory_equal(got, data, 4 * RIG_BS);
}

static void test_power_loss(void **state)
{
	(void)state;
	for (uint64_t seed = 100; seed < 120; seed++)
		chain_rig_run(seed, 2 + seed % 2, power_loss);
}

/* The tail becomes the head. What is durable at the old tail counts as durable at all members only
 * after the other member has confirmed it. */
static void turned_round(struct chain_rig *r)
{
	static uint8_t data[RIG_CS];
	struct crig_async a = {
		.r = r, .w = {one, 0, RIG_BS, data, .session = 8, .seq = 1}, .timeout_ms = 20000};
	const struct chain *c = chain_find(r->m[1].target.chains, RIG_CHAIN);

	crig_fill(data, RIG_CS, 1);
	crig_start(&a);
	while (c->n_pending == 0)
		(void)!fiber_sleep_us(10);
	crig_cut_off(r, 0, 1, true);
	r->order[0] = 1;
	r->order[1] = 0;
	crig_members(r);
	(void)!fiber_sleep_us(200000);
	assert_int_equal(c->n_pending, 1);
	crig_cut_off(r, 0, 1, false);
	crig_wait(&a);
	crig_wait_quiet(r);
	crig_check_equal(r);
}

static void test_turned_round(void **state)
{
	(void)state;
	chain_rig_run(130, 2, turned_round);
}

/* The head becomes the second member, with a version that the new head does not have. It must not
 * forward that: the third member would take the new head's version of that number for a
 * repetition. */
static void overtaken(struct chain_rig *r)
{
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_async a = {
		.r = r, .w = {one, 0, RIG_BS, data, .session = 8, .seq = 1}, .timeout_ms = 400};
	struct crig_write w = {one, 0, 2 * RIG_BS, data, .session = 9, .seq = 1};
	const struct chain *third = chain_find(r->m[2].target.chains, RIG_CHAIN);

	crig_cut_off(r, 0, 1, true);
	crig_fill(data, RIG_CS, 1);
	crig_start(&a);
	(void)!fiber_sleep_us(100000);
	r->order[0] = 1;
	r->order[1] = 0;
	crig_members(r);
	(void)!fiber_sleep_us(200000);
	assert_int_equal(third->n_pending, 0);
	crig_cut_off(r, 0, 1, false);
	assert_int_equal(crig_write(r, 1, &w, 20000), 0);
	crig_wait(&a);
	crig_wait_quiet(r);
	crig_check_equal(r);
	assert_int_equal(crig_read_any(r, 2, &one, got), 2 * RIG_BS);
	assert_memory_equal(got, data, 2 * RIG_BS);
}

static void test_overtaken(void **state)
{
	(void)state;
	chain_rig_run(132, 3, overtaken);
}

/* Like `overtaken`, with two members. The previous head queries the new one about its version.
 * Before the reply that there is no version of that number, a version of that number arrives. */
static void answered_late(struct chain_rig *r)
{
	struct transport_sim_options slow = {.delay_us_max = 200000}, good = {0};
	static uint8_t data[RIG_CS], got[RIG_CS];
	struct crig_async a = {
		.r = r, .w = {one, 0, RIG_BS, data, .session = 8, .seq = 1}, .timeout_ms = 400};
	struct crig_write w = {one, 0, 2 * RIG_BS, data, .session = 9, .seq = 1};

	crig_cut_off(r, 0, 1, true);
	crig_fill(data, RIG_CS, 1);
	crig_start(&a);
	(void)!fiber_sleep_us(100000);
	r->order[0] = 1;
	r->order[1] = 0;
	crig_members(r);
	crig_cut_off(r, 0, 1, false);
	transport_sim_set_options(r->transport, &slow);
	(void)!fiber_sleep_us(sim_random_below(r->sim, 3000000));
	assert_int_equal(crig_write(r, 1, &w, 20000), 0);
	transport_sim_set_options(r->transport, &good);
	crig_wait(&a);
	crig_check_equal(r);
	for (uint32_t i = 0; i < r->n; i++) {
		assert_int_equal(crig_read_any(r, i, &one, got), 2 * RIG_BS);
		assert_memory_equal(got, data, 2 * RIG_BS);
	}
}

static void test_answered_late(void **state)
{
	(void)state;
	for (uint64_t seed = 200; seed < 1200; seed++)
		chain_rig_run(seed, 2, answered_late);
}

/* Two versions of each head, and the new head's second one arrives before its first: the member
 * must wait for the first one, though it has a version of that number. */
static void overtaken_twice(struct chain_rig *r)
{
	struct transport_sim_options bad = {.delay_us_max = 2000, .reorder_ppm = 500000};
	struct transport_sim_options good = {0};
	static uint8_t data[4 * RIG_BS], got[RIG_CS];
	struct crig_async a[4];

	crig_cut_off(r, 0, 1, true);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t off = i % 2 * RIG_BS;

		if (i == 2) {
			r->order[0] = 1;
			r->order[1] = 0;
			crig_members(r);
		}
		crig_fill(data + i * RIG_BS, RIG_BS, i + 1);
		a[i] = (struct crig_async){
			.r = r,
			.at = i / 2,
			.w = {one, off, RIG_BS, data + i * RIG_BS, .session = 8 + i, .seq = 1},
			.timeout_ms = i < 2 ? 200 : 20000};
		crig_start(&a[i]);
		(void)!fiber_sleep_us(100000);
	}
	transport_sim_set_options(r->transport, &bad);
	crig_cut_off(r, 0, 1, false);
	for (uint32_t i = 0; i < 4; i++)
		crig_wait(&a[i]);
	transport_sim_set_options(r->transport, &good);
	assert_int_equal(a[2].rc, 0);
	assert_int_equal(a[3].rc, 0);
	crig_check_equal(r);
	assert_int_equal(crig_read_any(r, 0, &one, got), 2 * RIG_BS);
	assert_memory_equal(got, data + 2 * RIG_BS, 2 * RIG_BS);
}

static void test_overtaken_twice(void **state)
{
	(void)state;
	for (uint64_t seed = 160; seed < 180; seed++)
		chain_rig_run(seed, 2 + seed % 2, overtaken_twice);
}

/* A member that is OUT has a version of its own: the chunk stays logged, so that it is compared. */
static int count_key(void *arg, const struct chunk_key *k)
{
	(void)k;
	++*(uint32_t *)arg;
	return 0;
}

static void kept_back(struct chain_rig *r)
{
	static uint8_t data[RIG_CS];
	struct crig_async a = {
		.r = r, .w = {one, 0, RIG_BS, data, .session = 8, .seq = 1}, .timeout_ms = 500};
	struct chain_log *log = r->m[0].target.chains->log;
	uint32_t n = 0;

	crig_cut_off(r, 0, 1, true);
	crig_fill(data, RIG_CS, 1);
	crig_start(&a);
	crig_wait(&a);
	assert_true(a.rc < 0);
	r->m[0].state = MEMBER_OUT;
	r->order[0] = 1;
	r->order[1] = 0;
	crig_members(r);
	(void)!fiber_sleep_us(10000000);
	assert_int_equal(chain_log_each_pending(log, RIG_CHAIN, count_key, &n), 0);
	assert_int_equal(n, 1);
}

static void test_kept_back(void **state)
{
	(void)state;
	chain_rig_run(131, 2, kept_back);
}

/* The second member restarts before it gets its state. It has on disk what the head sends again,
 * but has no record that the third member lacks it: it must not answer that the third member has
 * it. */
static void reborn(struct chain_rig *r)
{
	static uint8_t data[2 * RIG_BS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};
	struct crig_async a = {.r = r,
			  .w = {one, 0, 2 * RIG_BS, data, .session = 9, .seq = 1},
			  .timeout_ms = 20000};

	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	crig_wait_quiet(r);
	crig_cut_off(r, 1, 2, true);
	crig_fill(data, sizeof(data), 4);
	crig_start(&a);
	(void)!fiber_sleep_us(100000);
	crig_crash(r, 1);
	crig_restart(r, 1);
	(void)!fiber_sleep_us(1000000);
	assert_false(a.ended);
	assert_int_equal(crig_read(r, 2, &one, got, RIG_CS), RIG_BS);
	r->m[1].state = MEMBER_OUT;
	r->order[1] = 2;
	r->order[2] = 1;
	crig_members(r);
	crig_wait(&a);
	if (a.rc == -LE_STALE_EPOCH)
		assert_int_equal(crig_write(r, 0, &a.w, 20000), 0);
	else
		assert_int_equal(a.rc, 0);
	assert_int_equal(crig_read_any(r, 2, &one, got), 2 * RIG_BS);
	assert_memory_equal(got, data, 2 * RIG_BS);
}

static void test_reborn(void **state)
{
	(void)state;
	chain_rig_run(133, 3, reborn);
}

/* ---- a disk that fails ---- */

static int64_t refuse_write(struct env_file *f, const struct iovec *iov, int n_iov, uint64_t off)
{
	(void)f, (void)iov, (void)n_iov, (void)off;
	return -LE_IO;
}

static int refuse_sync(struct env_file *f)
{
	(void)f;
	return -LE_IO;
}

static void break_disk(struct chain_rig *r, uint32_t i, bool syncs_only)
{
	static struct env_ops ops;
	struct env *env = r->m[i].target.env;

	ops = *env->ops;
	if (syncs_only)
		ops.file_datasync = refuse_sync;
	else
		ops.file_pwritev = refuse_write;
	env->ops = &ops;
}

/* The program ends, and the others continue without it. */
static void leaves(struct chain_rig *r, uint32_t i)
{
	assert_int_equal(chunk_store_status(r->m[i].target.store), -LE_IO);
	crig_crash(r, i);
	r->m[i].state = MEMBER_OUT;
	for (uint32_t k = i; k + 1 < r->n; k++) {
		r->order[k] = r->order[k + 1];
		r->order[k + 1] = i;
	}
	crig_members(r);
}

/* The member's own disk fails, and it leaves. The writer waits until then. */
static void broken_member(struct chain_rig *r)
{
	static uint8_t data[RIG_BS], got[RIG_CS];
	struct crig_async a = {
		.r = r, .w = {one, 0, RIG_BS, data, .session = 8, .seq = 1}, .timeout_ms = 20000};

	crig_fill(data, RIG_BS, 1);
	break_disk(r, 1, false);
	crig_start(&a);
	(void)!fiber_sleep_us(1000000);
	assert_false(a.ended);
	leaves(r, 1);
	crig_wait(&a);
	assert_int_equal(a.rc, 0);
	assert_int_equal(crig_read_any(r, 0, &one, got), RIG_BS);
	assert_memory_equal(got, data, RIG_BS);
}

/* The writer must repeat: the other member has everything acknowledged, and becomes the head. */
static void broken_head(struct chain_rig *r, bool syncs_only)
{
	static uint8_t data[RIG_BS], got[RIG_CS];
	struct crig_write w = {one, 0, RIG_BS, data, .session = 8, .seq = 1};

	crig_fill(data, RIG_BS, 1);
	assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	crig_wait_quiet(r);
	break_disk(r, 0, syncs_only);
	crig_fill(data, RIG_BS, 2);
	w.seq = 2;
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(crig_write(r, 0, &w, 20000), -LE_SHUTDOWN);
	assert_int_equal(crig_trim(r, 0, &one, 10, 1, NULL), -LE_SHUTDOWN);
	leaves(r, 0);
	assert_int_equal(crig_write(r, 1, &w, 20000), 0);
	assert_int_equal(crig_read_any(r, 1, &one, got), RIG_BS);
	assert_memory_equal(got, data, RIG_BS);
}

static void head_without_writes(struct chain_rig *r)
{
	broken_head(r, false);
}

static void head_without_syncs(struct chain_rig *r)
{
	broken_head(r, true);
}

static void test_broken_disk(void **state)
{
	(void)state;
	chain_rig_run(140, 2, broken_member);
	chain_rig_run(141, 3, broken_member);
	chain_rig_run(142, 2, head_without_writes);
	chain_rig_run(143, 2, head_without_syncs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_read),  cmocka_unit_test(test_trim_and_remove),
		cmocka_unit_test(test_answered_by_all), cmocka_unit_test(test_answered_before),
		cmocka_unit_test(test_answered_in_next_epoch),
		cmocka_unit_test(test_many_writers),    cmocka_unit_test(test_epochs_and_leases),
		cmocka_unit_test(test_window),          cmocka_unit_test(test_lost_follower),
		cmocka_unit_test(test_lost_head),       cmocka_unit_test(test_pending),
		cmocka_unit_test(test_power_loss),      cmocka_unit_test(test_reserves),
		cmocka_unit_test(test_orphan),          cmocka_unit_test(test_bad_network),
		cmocka_unit_test(test_turned_round),    cmocka_unit_test(test_kept_back),
		cmocka_unit_test(test_overtaken),       cmocka_unit_test(test_overtaken_twice),
		cmocka_unit_test(test_reborn),          cmocka_unit_test(test_removed_before),
		cmocka_unit_test(test_answered_late),   cmocka_unit_test(test_broken_disk),
	};

	log_set_level(getenv("LOGD") ? LOG_DEBUG : LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
