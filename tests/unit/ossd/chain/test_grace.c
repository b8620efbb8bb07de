/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grace period of a server that crashed: it serves no other request before its clients have
 * repeated what it lost, in an order that agrees with earlier reads. A late client overwrites
 * nothing that others have read or written since.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/planted_bug.h"
#include "common/rpc/transport/transport_sim.h"
#include "tests/unit/ossd/chain/chain_rig.h"

#define GRACE_MS 4000u

static const struct chunk_id one = {{5}, 1, 0}, two = {{6}, 1, 0};

struct async {
	struct chain_rig *r;
	struct crig_write w;
	int rc;
	int64_t n;
	int byte; /* first byte that was read */
	bool done;
};

static int64_t read_block(struct chain_rig *r, int *ret_byte)
{
	static uint8_t got[RIG_BS];
	int64_t n = crig_read(r, 0, &one, got, RIG_BS);

	*ret_byte = got[0];
	return n;
}

static void write_main(void *arg)
{
	struct async *a = arg;

	a->rc = crig_write(a->r, 0, &a->w, 20000);
	a->done = true;
}

static void read_main(void *arg)
{
	struct async *a = arg;

	a->n = read_block(a->r, &a->byte);
	a->done = true;
}

static void start(struct async *a, void (*fn)(void *arg))
{
	a->done = false;
	assert_int_equal(fiber_spawn("async", fn, a), 0);
}

static void wait_done(struct async *a)
{
	while (!a->done)
		(void)!fiber_sleep_us(1000);
}

static bool is_done_after(struct async *a, uint64_t ms)
{
	(void)!fiber_sleep_us(ms * 1000);
	return a->done;
}

/* One byte value in all of block 0 of the chunk. */
static struct crig_write block(const struct chunk_id *chunk, int byte, uint64_t session,
			       uint64_t seq)
{
	static uint8_t data[256][RIG_BS];

	memset(data[byte], byte, RIG_BS);
	return (struct crig_write){*chunk, 0, RIG_BS, data[byte], .session = session, .seq = seq};
}

static int write_block(struct chain_rig *r, const struct chunk_id *chunk, int byte,
		       uint64_t session, uint64_t seq)
{
	struct crig_write w = block(chunk, byte, session, seq);

	return crig_write(r, 0, &w, 20000);
}

static int say(struct chain_rig *r, uint64_t session, enum replay_stage done)
{
	struct oss_replay_done_req req = {.done = (uint8_t)done};
	struct oss_replay_done_rep rep;
	struct rpc_call call = {.op = OP_oss_replay_done,
				.req = &req,
				.rep = &rep,
				.session = session,
				.target = 1,
				.deadline_us = loop_deadline_ms(1000)};
	int rc = rpc_call(r->m[0].client, &call);

	rpc_call_fini(&call);
	return rc;
}

static int say_done(struct chain_rig *r, uint64_t session)
{
	return say(r, session, DONE_ALL);
}

/* Returns whether the server has lost changes that it had accepted from the session. */
static bool is_lost(struct chain_rig *r, uint64_t session)
{
	struct oss_sync_req req = {.ino = {0}};
	struct oss_sync_rep rep;
	struct rpc_call call = {.op = OP_oss_sync,
				.req = &req,
				.rep = &rep,
				.session = session,
				.target = 1,
				.chain = RIG_CHAIN,
				.epoch = r->epoch,
				.deadline_us = loop_deadline_ms(1000)};

	assert_int_equal(rpc_call(r->m[0].client, &call), 0);
	rpc_call_fini(&call);
	return rep.lost;
}

static int repeat(struct chain_rig *r, struct crig_write w, bool seen)
{
	w.again = true;
	w.seen = seen;
	return crig_write(r, 0, &w, 20000);
}

static void crash_and_return(struct chain_rig *r)
{
	crig_crash(r, 0);
	(void)!fiber_sleep_us(300000); /* the connections end */
	crig_restart(r, 0);
	crig_tell(r, 0);
}

/* Sessions 8 and 9 have written. The last write of session 8 was accepted and read, and is lost. */
static void lose_one(struct chain_rig *r)
{
	struct async lost = {.r = r, .w = block(&one, 'B', 8, 2)};
	int byte;

	assert_int_equal(write_block(r, &one, 'A', 8, 1), 0);
	assert_int_equal(write_block(r, &two, 'X', 9, 1), 0);
	lost.w.flags = WRITE_LAZY;
	start(&lost, write_main);
	while (!lost.w.accepted)
		(void)!fiber_sleep_us(10);
	assert_false(lost.done);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, 'B');
	crig_crash(r, 0);
	wait_done(&lost);
	assert_true(lost.rc < 0);
	crig_restart(r, 0);
	crig_tell(r, 0);
}

static void repeats_first(struct chain_rig *r)
{
	struct async look = {.r = r};

	lose_one(r);
	start(&look, read_main);
	assert_false(is_done_after(&look, 300));
	/* Data of other sessions is refused, so that it takes no slots. An awaited session may only
	 * repeat. */
	assert_int_equal(write_block(r, &two, 'Z', 12, 1), -LE_NOT_READY);
	assert_int_equal(write_block(r, &one, 'C', 9, 2), -LE_NOT_READY);
	assert_int_equal(say_done(r, 9), 0);
	assert_false(is_done_after(&look, 300));
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), true), 0);
	assert_false(is_done_after(&look, 300));
	assert_int_equal(say_done(r, 8), 0);
	assert_true(is_done_after(&look, 100));
	assert_int_equal(look.n, RIG_BS);
	assert_int_equal(look.byte, 'B');
	assert_int_equal(write_block(r, &two, 'Z', 12, 1), 0);
}

static void run(void (*fn)(struct chain_rig *r), uint32_t n, uint32_t grace_ms)
{
	struct chain_rig *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->grace_ms = grace_ms;
	chain_rig_run_on(r, 1, n, fn);
	free(r);
}

static void test_repeats_first(void **state)
{
	(void)state;
	run(repeats_first, 1, GRACE_MS);
}

/* With the planted bug: a reader gets the state before the lost write. */
static void goes_back(struct chain_rig *r)
{
	int byte;

	lose_one(r);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, 'A');
}

static void test_planted(void **state)
{
	(void)state;
	planted_bugs_[PLANTED_BUG_OSS_NO_GRACE] = true;
	run(goes_back, 1, GRACE_MS);
	planted_bugs_[PLANTED_BUG_OSS_NO_GRACE] = false;
}

/* One of the awaited sessions never returns. */
static void bounded(struct chain_rig *r)
{
	struct async look = {.r = r};
	uint64_t began;

	lose_one(r);
	began = loop_now_us();
	assert_int_equal(say_done(r, 9), 0);
	start(&look, read_main);
	wait_done(&look);
	assert_int_equal(look.n, RIG_BS);
	assert_in_range(loop_now_us() - began, (GRACE_MS - 500) * 1000, (GRACE_MS + 500) * 1000);
	/* The grace period is not repeated. */
	assert_int_equal(write_block(r, &one, 'C', 9, 2), 0);
}

static void test_bounded(void **state)
{
	(void)state;
	run(bounded, 1, GRACE_MS);
}

/* A session is awaited even if its first change is the lost one. */
static void first_change(struct chain_rig *r)
{
	struct async lost = {.r = r, .w = block(&one, 'B', 8, 1)}, look = {.r = r};

	lost.w.flags = WRITE_LAZY;
	start(&lost, write_main);
	while (!lost.w.accepted)
		(void)!fiber_sleep_us(10);
	crig_crash(r, 0);
	wait_done(&lost);
	crig_restart(r, 0);
	crig_tell(r, 0);
	start(&look, read_main);
	assert_false(is_done_after(&look, 300));
	assert_int_equal(repeat(r, block(&one, 'B', 8, 1), true), 0);
	assert_int_equal(say_done(r, 8), 0);
	wait_done(&look);
	assert_int_equal(look.byte, 'B');
}

static void test_first_change(void **state)
{
	(void)state;
	run(first_change, 1, GRACE_MS);
}

/*
 * A second session writes after the first write was accepted, waits for that to be durable, and is
 * lost with it. In whatever order the sessions repeat, the later write remains.
 */
static void later_stays(struct chain_rig *r)
{
	struct async later = {.r = r, .w = block(&one, 'C', 9, 2)};
	struct async lost = {.r = r, .w = block(&one, 'B', 8, 2)};
	int byte;

	assert_int_equal(write_block(r, &one, 'A', 8, 1), 0);
	assert_int_equal(write_block(r, &two, 'X', 9, 1), 0);
	lost.w.flags = later.w.flags = WRITE_LAZY;
	start(&lost, write_main);
	while (!lost.w.accepted)
		(void)!fiber_sleep_us(10);
	start(&later, write_main);
	(void)!fiber_sleep_us(500);
	assert_false(lost.done || later.done || later.w.accepted);
	crig_crash(r, 0);
	wait_done(&lost);
	wait_done(&later);
	crig_restart(r, 0);
	crig_tell(r, 0);
	if (PLANTED_BUG(OSS_UNORDERED)) {
		assert_int_equal(repeat(r, later.w, false), 0);
	} else {
		assert_int_equal(say(r, 9, DONE_SEEN), 0);
		assert_int_equal(repeat(r, later.w, false), -LE_NOT_READY);
	}
	assert_int_equal(repeat(r, lost.w, true), 0);
	assert_int_equal(say(r, 8, DONE_ALL), 0);
	assert_int_equal(repeat(r, later.w, false), 0);
	assert_int_equal(say(r, 9, DONE_ALL), 0);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, PLANTED_BUG(OSS_UNORDERED) ? 'B' : 'C');
}

static void test_later_stays(void **state)
{
	(void)state;
	run(later_stays, 1, GRACE_MS);
	planted_bugs_[PLANTED_BUG_OSS_UNORDERED] = true;
	run(later_stays, 1, GRACE_MS);
	planted_bugs_[PLANTED_BUG_OSS_UNORDERED] = false;
}

/* Session 8 does not return before the end of the grace period. */
static void be_late(struct chain_rig *r)
{
	lose_one(r);
	assert_true(is_lost(r, 8));
	assert_int_equal(say_done(r, 9), 0);
	assert_false(is_lost(r, 9));
	(void)!fiber_sleep_us((GRACE_MS + 500) * 1000);
	/* The first request of another session ends the grace period. */
	while (write_block(r, &(const struct chunk_id){{7}, 1, 0}, 'W', 12, 1) == -LE_NOT_READY)
		(void)!fiber_sleep_us(1000);
	assert_true(is_lost(r, 8));
	assert_false(is_lost(r, 12));
}

/* No other session has used the chunk: session 8 loses nothing. */
static void late_alone(struct chain_rig *r)
{
	int byte;

	be_late(r);
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), true), 0);
	assert_int_equal(say_done(r, 8), 0);
	assert_false(is_lost(r, 8));
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, 'B');
}

/* A later write of another session is newer. */
static void late_writer(struct chain_rig *r)
{
	int byte;

	be_late(r);
	assert_int_equal(write_block(r, &one, 'C', 9, 2), 0);
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), true),
			 PLANTED_BUG(OSS_LATE) ? 0 : -LE_LATE);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, PLANTED_BUG(OSS_LATE) ? 'B' : 'C');
	/* New writes of the session are executed, and so are later repetitions of those. */
	assert_int_equal(say_done(r, 8), 0);
	assert_int_equal(repeat(r, block(&one, 'D', 8, 3), false), 0);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, 'D');
}

/* What others have read must not be replaced by an older change. */
static void late_reader(struct chain_rig *r)
{
	int byte;

	be_late(r);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, 'A');
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), true), -LE_LATE);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, 'A');
	/* A change that was not accepted is executed: it orders after those reads. */
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), false), 0);
}

/* The metadata server has removed the file since. */
static void late_removed(struct chain_rig *r)
{
	int byte;

	be_late(r);
	assert_int_equal(crig_remove(r, 0, one.ino, 1), 0);
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), true), -LE_LATE);
	assert_int_equal(read_block(r, &byte), 0);
}

/* The server crashes again: the late session is still late, and the record of what others have done
 * before is lost. A change that was durable before the first crash is answered as ever. */
static void late_again(struct chain_rig *r)
{
	int byte;

	be_late(r);
	assert_int_equal(write_block(r, &one, 'C', 9, 2), 0);
	crash_and_return(r);
	assert_true(is_lost(r, 8));
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), true), -LE_LATE);
	assert_int_equal(say_done(r, 9), 0);
	assert_int_equal(say_done(r, 12), 0);
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), true), -LE_LATE);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(byte, 'C');
	/* After its report that it has repeated everything, the session is like others. */
	assert_int_equal(say_done(r, 8), 0);
	assert_false(is_lost(r, 8));
	assert_int_equal(write_block(r, &two, 'E', 8, 3), 0);
	crash_and_return(r);
	assert_int_equal(repeat(r, block(&two, 'E', 8, 3), true), 0);
	assert_int_equal(repeat(r, block(&two, 'F', 8, 4), true), 0);
}

static void test_late(void **state)
{
	(void)state;
	run(late_alone, 1, GRACE_MS);
	run(late_writer, 1, GRACE_MS);
	run(late_reader, 1, GRACE_MS);
	run(late_removed, 1, GRACE_MS);
	run(late_again, 1, GRACE_MS);
	planted_bugs_[PLANTED_BUG_OSS_LATE] = true;
	run(late_writer, 1, GRACE_MS);
	planted_bugs_[PLANTED_BUG_OSS_LATE] = false;
}

/* In a replicated chain no reader gets a change that was not accepted. An accepted one may have
 * been read at a member that is not the head. */
static void late_replicated(struct chain_rig *r)
{
	int byte;

	assert_int_equal(write_block(r, &one, 'A', 8, 1), 0);
	crig_crash(r, 0);
	crig_crash(r, 1);
	crig_restart(r, 0);
	crig_restart(r, 1);
	crig_tell(r, 0);
	crig_tell(r, 1);
	(void)!fiber_sleep_us((GRACE_MS + 500) * 1000);
	assert_int_equal(read_block(r, &byte), RIG_BS);
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), true), -LE_LATE);
	assert_int_equal(repeat(r, block(&one, 'B', 8, 2), false), 0);
}

static void test_late_replicated(void **state)
{
	(void)state;
	run(late_replicated, 2, GRACE_MS);
}

/* Two sessions write the same bytes one after the other: a crash never loses both. */
static void one_by_one(struct chain_rig *r)
{
	struct async a = {.r = r, .w = block(&one, 'A', 8, 2)};
	struct async b = {.r = r, .w = block(&one, 'B', 9, 2)};

	assert_int_equal(write_block(r, &two, 'X', 8, 1), 0);
	assert_int_equal(write_block(r, &two, 'Y', 9, 1), 0);
	a.w.flags = b.w.flags = WRITE_LAZY;
	start(&a, write_main);
	while (!a.w.accepted)
		(void)!fiber_sleep_us(10);
	start(&b, write_main);
	while (!b.w.accepted && !b.done)
		(void)!fiber_sleep_us(10);
	assert_true(a.done);
	wait_done(&b);
	assert_int_equal(a.rc, 0);
	assert_int_equal(b.rc, 0);
}

static void test_one_by_one(void **state)
{
	(void)state;
	run(one_by_one, 1, 0);
	run(one_by_one, 2, 0);
}

/*
 * The second member has been notified that the third one is away; the head has not. A reply that is
 * durable downstream holds for the second member's new epoch, not for the head's: if the head
 * committed the change in its old epoch, the log of what the third member lacks would not have it.
 */
static void old_epoch(struct chain_rig *r)
{
	struct async a = {.r = r, .w = block(&one, 'A', 8, 1)};
	struct chunk_key k = {RIG_CHAIN, one.ino, one.gen, one.idx};

	assert_int_equal(write_block(r, &two, 'X', 8, 1), 0);
	a.w.seq = 2;
	transport_sim_partition(r->transport, r->m[1].name, r->m[2].name, true);
	start(&a, write_main);
	(void)!fiber_sleep_us(50000);
	r->m[2].state = MEMBER_OUT;
	r->epoch++;
	crig_tell(r, 1);
	assert_false(is_done_after(&a, 500));
	crig_tell(r, 0);
	wait_done(&a);
	assert_true(chain_log_changed(r->m[0].target.chains->log, &k));
}

static void test_old_epoch(void **state)
{
	(void)state;
	run(old_epoch, 3, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_repeats_first), cmocka_unit_test(test_planted),
		cmocka_unit_test(test_bounded),       cmocka_unit_test(test_first_change),
		cmocka_unit_test(test_one_by_one),    cmocka_unit_test(test_old_epoch),
		cmocka_unit_test(test_later_stays),   cmocka_unit_test(test_late),
		cmocka_unit_test(test_late_replicated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
