/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of chunks: writes by other sessions, and truncations, are accepted and answered when the
 * reader has released its lease or the lease has expired. In chains of one member and of three. A
 * new head waits until the leases that the previous head gave have expired.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/planted_bug.h"
#include "tests/unit/ossd/chain/chain_rig.h"

#define READER 7u
#define WRITER 8u
#define LEN    1000u
#define LEASE  5u
#define MANY   20u

static const struct chunk_id chunk = {{10}, 1, 0}, other = {{10}, 1, 4}, /* of the same file */
			     anew = {{10}, 2, 0}; /* of the same file, in another generation */

static struct rpc_call call_of(struct chain_rig *r, uint32_t i, uint16_t op, const void *req,
			       void *rep)
{
	return (struct rpc_call){.op = op,
				 .req = req,
				 .rep = rep,
				 .session = READER,
				 .target = i + 1,
				 .chain = RIG_CHAIN,
				 .epoch = r->epoch,
				 .deadline_us = loop_deadline_ms(20000)};
}

/* Returns the first byte, or a status. */
static int read_leased(struct chain_rig *r, uint32_t i, uint64_t lease)
{
	struct oss_read_req req = {.chunk = chunk, .len = LEN, .lease = lease};
	struct oss_read_rep rep;
	struct rpc_call call = call_of(r, i, OP_oss_read, &req, &rep);
	struct slot_vec v = {.len = LEN};
	int rc;

	assert_int_equal(slot_get(r->pool, NO_DEADLINE, &v.slot), 0);
	call.bulk_in = &v;
	call.n_bulk_in = 1;
	rc = rpc_call(r->m[i].client, &call);
	if (rc == 0)
		rc = v.slot->data[0];
	rpc_call_fini(&call);
	slot_unref(v.slot);
	return rc;
}

static void give_back_of(struct chain_rig *r, const struct chunk_id *c, uint64_t lease)
{
	struct oss_release_req req = {.chunk = *c, .lease = lease};
	struct oss_release_rep rep;
	struct rpc_call call = call_of(r, r->order[0], OP_oss_release, &req, &rep);

	assert_int_equal(rpc_call(r->m[r->order[0]].client, &call), 0);
	rpc_call_fini(&call);
}

static void give_back(struct chain_rig *r, uint64_t lease)
{
	give_back_of(r, &chunk, lease);
}

struct writing {
	struct chain_rig *r;
	struct crig_write w;
	uint8_t data[LEN];
	uint64_t us; /* duration of the write */
	bool ended;
};

static void write_fiber(void *arg)
{
	struct writing *wr = arg;
	uint64_t from = loop_now_us();

	assert_int_equal(crig_write(wr->r, wr->r->order[0], &wr->w, 20000), 0);
	wr->us = loop_now_us() - from;
	wr->ended = true;
}

static void write_begin(struct chain_rig *r, struct writing *wr, const struct chunk_id *c,
			uint64_t session, uint8_t value)
{
	static uint64_t seq;

	*wr = (struct writing){.r = r};
	memset(wr->data, value, LEN);
	wr->w = (struct crig_write){
		.chunk = *c, .len = LEN, .data = wr->data, .session = session, .seq = ++seq};
	assert_int_equal(fiber_spawn("write", write_fiber, wr), 0);
}

static void write_end(struct writing *wr)
{
	while (!wr->ended)
		assert_int_equal(fiber_sleep_us(1000), 0);
}

static void write_now(struct chain_rig *r, const struct chunk_id *c, uint64_t session,
		      uint8_t value)
{
	struct writing wr;

	write_begin(r, &wr, c, session, value);
	write_end(&wr);
	assert_true(wr.us < CHUNK_LEASE_MS * 1000u / 2);
}

static void waits_for_the_reader(struct chain_rig *r)
{
	struct writing wr;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	write_begin(r, &wr, &chunk, WRITER, 2);
	assert_int_equal(fiber_sleep_us(500000), 0);
	assert_false(wr.ended || wr.w.accepted);
	/* Another reader now reads the new data, and delays no writer. */
	assert_int_equal(read_leased(r, r->order[0], LEASE + 1), 2);
	give_back(r, LEASE);
	write_end(&wr);
	assert_true(wr.us >= 500000 && wr.us < 1000000);
	give_back(r, LEASE + 1);
}

static void others_do_not_wait(struct chain_rig *r)
{
	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	write_now(r, &other, WRITER, 2);                     /* another chunk */
	write_now(r, &chunk, READER, 2);                     /* the session's own kernel has it */
	assert_int_equal(read_leased(r, r->order[0], 0), 2); /* takes no lease */
	give_back(r, LEASE);
	write_now(r, &chunk, WRITER, 3);
}

static void ends_by_itself(struct chain_rig *r)
{
	struct writing wr;

	write_now(r, &chunk, WRITER, 1);
	/* Requested twice, as after a lost reply. */
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	write_begin(r, &wr, &chunk, WRITER, 2);
	write_end(&wr);
	assert_true(wr.us > CHUNK_LEASE_MS * 900u && wr.us < CHUNK_LEASE_MS * 1200u);
}

static int sync_readers(struct chain_rig *r, uint64_t session, uint64_t ino)
{
	struct oss_sync_req req = {.ino = {ino}};
	struct oss_sync_rep rep;
	struct rpc_call call = call_of(r, r->order[0], OP_oss_sync, &req, &rep);
	int rc;

	call.session = session;
	rc = rpc_call(r->m[r->order[0]].client, &call);
	rpc_call_fini(&call);
	return rc;
}

static void release_later(void *arg)
{
	assert_int_equal(fiber_sleep_us(500000), 0);
	give_back(arg, LEASE);
}

/* The reply reports that there are leases: the client then waits until they have ended. */
static void cuts_do_not_wait(struct chain_rig *r)
{
	uint8_t shown = 2;
	uint64_t from;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	from = loop_now_us();
	assert_int_equal(crig_trim(r, r->order[0], &chunk, 10, 1, &shown), 0);
	assert_true(loop_now_us() - from < 400000);
	assert_int_equal(shown, 1);
	assert_int_equal(fiber_spawn("release", release_later, r), 0);
	assert_int_equal(sync_readers(r, WRITER, chunk.ino.v), 0);
	assert_true(loop_now_us() - from >= 500000);
	assert_int_equal(crig_trim(r, r->order[0], &chunk, 5, 2, &shown), 0);
	assert_int_equal(shown, 0);
}

static void only_the_head_gives_them(struct chain_rig *r)
{
	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, r->order[1], LEASE), -LE_NOT_HEAD);
	write_now(r, &chunk, WRITER, 2);
}

static void there_is_an_end_of_them(struct chain_rig *r)
{
	const struct chunk_key key = chunk_key_of(RIG_CHAIN, &chunk);
	struct chunk_leases *l = &r->m[r->order[0]].target.leases;
	uint64_t serial;

	write_now(r, &chunk, WRITER, 1);
	for (uint32_t k = 0; k < CHUNK_LEASES_SESSION_MAX; k++)
		assert_int_equal(chunk_lease_take(l, &key, READER, LEASE + k, &serial), 0);
	assert_int_equal(read_leased(r, r->order[0], 1), -LE_OVERLOAD);
	/* Other sessions are not affected until all leases are in use. */
	for (uint32_t k = CHUNK_LEASES_SESSION_MAX; k < CHUNK_LEASES_MAX; k++)
		assert_int_equal(chunk_lease_take(l, &key, 100 + k % 4, k, &serial), 0);
	assert_int_equal(chunk_lease_take(l, &key, 200, 1, &serial), -LE_OVERLOAD);
	assert_int_equal(fiber_sleep_us(CHUNK_LEASE_MS * 1000u), 0);
	assert_int_equal(read_leased(r, r->order[0], 1), 1);
}

/* The file was truncated to zero and is written again. The reader releases its lease under the new
 * generation. */
static void another_generation_waits_too(struct chain_rig *r)
{
	struct writing wr;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	write_begin(r, &wr, &anew, WRITER, 2);
	assert_int_equal(fiber_sleep_us(500000), 0);
	assert_false(wr.ended || wr.w.accepted);
	give_back_of(r, &anew, LEASE);
	write_end(&wr);
	assert_true(wr.us < 1000000);
}

/* A read was repeated, and then the first attempt failed. */
static void who_fails_ends_its_own(struct chain_rig *r)
{
	const struct chunk_key key = chunk_key_of(RIG_CHAIN, &chunk);
	struct chunk_leases *l = &r->m[r->order[0]].target.leases;
	struct writing wr;
	uint64_t serial;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(chunk_lease_take(l, &key, READER, LEASE, &serial), 0);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	chunk_lease_drop(l, serial);
	write_begin(r, &wr, &chunk, WRITER, 2);
	assert_int_equal(fiber_sleep_us(500000), 0);
	assert_false(wr.ended || wr.w.accepted);
	give_back(r, LEASE);
	write_end(&wr);
}

/* More writes than there are buffers. */
static void who_waits_holds_no_buffer(struct chain_rig *r)
{
	struct writing wr[MANY];

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	for (uint32_t k = 0; k < MANY; k++) {
		write_begin(r, &wr[k], &chunk, WRITER + 1 + k, 2);
		assert_int_equal(fiber_sleep_us(10000), 0);
	}
	assert_false(wr[0].ended);
	write_now(r, &other, WRITER, 3);
	give_back(r, LEASE);
	for (uint32_t k = 0; k < MANY; k++)
		write_end(&wr[k]);
}

/* Writes of pages do not wait: two kernels that each wait for the other's page would wait
 * forever. */
static void pages_do_not_wait(struct chain_rig *r)
{
	uint8_t data[LEN] = {2};
	struct crig_write w = {.chunk = chunk,
			       .len = LEN,
			       .data = data,
			       .session = WRITER,
			       .seq = 1000,
			       .flags = WRITE_PAGES};
	uint64_t from;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	from = loop_now_us();
	assert_int_equal(crig_write(r, r->order[0], &w, 20000), 0);
	assert_int_equal(sync_readers(r, WRITER, 0), 0);
	assert_int_equal(sync_readers(r, WRITER, chunk.ino.v + 1), 0);
	assert_int_equal(sync_readers(r, READER, chunk.ino.v), 0); /* its kernel has the data */
	assert_true(loop_now_us() - from < 400000);
	/* A session that must be sure that its data is visible sends oss_sync. */
	assert_int_equal(fiber_spawn("release", release_later, r), 0);
	assert_int_equal(sync_readers(r, WRITER, chunk.ino.v), 0);
	assert_in_range(loop_now_us() - from, 500000, 1000000);
}

static void reclaim(struct chain_rig *r, uint64_t below)
{
	struct oss_replay_done_req req = {.done = DONE_ALL, .leases = below};
	struct oss_replay_done_rep rep;
	struct rpc_call call = call_of(r, r->order[0], OP_oss_replay_done, &req, &rep);

	assert_int_equal(rpc_call(r->m[r->order[0]].client, &call), 0);
	rpc_call_fini(&call);
}

/* A process that takes a session over ends the leases of the previous process, and none of its
 * own. */
static void successor_ends_them(struct chain_rig *r)
{
	struct writing wr;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE), 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE + 1), 1);
	assert_int_equal(read_leased(r, r->order[0], LEASE + 2), 1);
	write_begin(r, &wr, &chunk, WRITER, 2);
	assert_int_equal(fiber_sleep_us(100000), 0);
	reclaim(r, LEASE + 2);
	assert_int_equal(fiber_sleep_us(100000), 0);
	assert_false(wr.ended);
	reclaim(r, 0);
	assert_int_equal(fiber_sleep_us(100000), 0);
	assert_false(wr.ended);
	reclaim(r, LEASE + 3);
	write_end(&wr);
	assert_true(wr.us < 500000);
}

/* ---- a new head ---- */

static void lead(struct chain_rig *r, uint32_t head)
{
	for (uint32_t k = 0; k < r->n; k++)
		r->order[k] = (head + k) % r->n;
	crig_members(r);
}

static uint64_t write_us(struct chain_rig *r, const struct chunk_id *c, uint64_t session,
			 uint32_t flags)
{
	struct writing wr;

	write_begin(r, &wr, c, session, 9);
	wr.w.flags = flags;
	write_end(&wr);
	return wr.us;
}

/* Writes wait for the rest of the term of leases that may exist. Requests that need no lease to end
 * do not wait. */
static void holds_answers(struct chain_rig *r, uint64_t from_us)
{
	const uint64_t term_us = CHUNK_LEASE_MS * 1000u;
	uint8_t shown = 0;

	assert_true(write_us(r, &other, WRITER, WRITE_ALONE) < 100000);
	assert_true(write_us(r, &other, WRITER, WRITE_PAGES) < 100000);
	assert_int_equal(crig_trim(r, r->order[0], &other, 100, 10 * r->epoch, &shown), 0);
	assert_int_equal(shown, 1);
	assert_int_equal(sync_readers(r, WRITER, 0), 0);
	assert_true(loop_now_us() < from_us + term_us);
	assert_true(write_us(r, &chunk, WRITER, 0) > 0);
	assert_in_range(loop_now_us(), from_us + term_us, from_us + term_us * 7 / 4);
	assert_true(write_us(r, &chunk, WRITER, 0) < 100000);
	assert_int_equal(crig_trim(r, r->order[0], &other, 10, 10 * r->epoch + 1, &shown), 0);
	assert_int_equal(shown, 0);
}

static void restarts(struct chain_rig *r)
{
	uint64_t from;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, 0, LEASE), 1);
	crig_crash(r, 0);
	from = loop_now_us();
	crig_restart(r, 0);
	crig_tell(r, 0);
	/* A write by the only session that reads under leases. */
	assert_true(write_us(r, &chunk, READER, 0) < 100000);
	holds_answers(r, from);
}

/* A write was executed and waits for leases: its repetition waits too, at the next head or in the
 * next process. */
static void repeated(struct chain_rig *r)
{
	uint8_t data[LEN];
	struct crig_async a = {.r = r,
			       .w = {.chunk = chunk,
				     .len = LEN,
				     .data = data,
				     .session = WRITER,
				     .seq = 1ull << 32},
			       .timeout_ms = 300};
	uint64_t from;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, 0, LEASE), 1);
	memset(data, 2, LEN);
	crig_start(&a);
	crig_wait(&a);
	assert_int_equal(a.rc, -LE_TIMEDOUT);
	crig_crash(r, 0);
	from = loop_now_us();
	if (r->n == 1) {
		crig_restart(r, 0);
		assert_int_equal(fiber_sleep_us(200000), 0); /* the connection is new */
		crig_tell(r, 0);
	} else {
		r->m[0].state = MEMBER_OUT;
		r->order[2] = 0;
		r->order[0] = 1;
		r->order[1] = 2;
		crig_members(r);
	}
	a.w.again = true;
	assert_int_equal(crig_write(r, r->order[0], &a.w, 20000), 0);
	assert_true(loop_now_us() >= from + (CHUNK_LEASE_MS - 500) * 1000u);
	assert_int_equal(metric_get(&r->m[r->order[0]].metrics.replays), 1);
}

/* Before the crash no session had a lease either. */
static void restarts_unleased(struct chain_rig *r)
{
	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, 0, 0), 1);
	crig_crash(r, 0);
	crig_restart(r, 0);
	crig_tell(r, 0);
	write_now(r, &chunk, WRITER, 2);
}

static void takes_over(struct chain_rig *r)
{
	uint64_t from;

	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, 0, LEASE), 1);
	from = loop_now_us();
	lead(r, 1);
	holds_answers(r, from);
	/* The first head leads again, and a lease of the second head exists. */
	assert_int_equal(read_leased(r, 1, LEASE + 1), 9);
	from = loop_now_us();
	lead(r, 0);
	holds_answers(r, from);
}

static void nobody_reads_pages(struct chain_rig *r)
{
	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, 0, 0), 1);
	lead(r, 1);
	write_now(r, &chunk, WRITER, 2);
}

/* A member that was not SYNC until now was not notified of leases. */
static void was_away(struct chain_rig *r)
{
	uint64_t from;

	r->m[1].state = MEMBER_SYNCING;
	r->order[1] = 2;
	r->order[2] = 1;
	crig_members(r);
	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, 0, LEASE), 1);
	from = loop_now_us();
	r->m[1].state = MEMBER_SYNC;
	lead(r, 1);
	assert_true(write_us(r, &chunk, WRITER, 0) > 0);
	assert_true(loop_now_us() >= from + CHUNK_LEASE_MS * 1000u);
}

/* The planted bug that the tests above must detect. */
static void forgets(struct chain_rig *r)
{
	write_now(r, &chunk, WRITER, 1);
	assert_int_equal(read_leased(r, 0, LEASE), 1);
	lead(r, 1);
	assert_true(planted_bug_enable("oss_new_head"));
	write_now(r, &chunk, WRITER, 2);
	planted_bugs_[PLANTED_BUG_OSS_NEW_HEAD] = false;
}

/* A lease is given only after every possible next head has been notified. */
static void tells_first(struct chain_rig *r)
{
	write_now(r, &chunk, WRITER, 1);
	crig_crash(r, 2);
	assert_int_equal(read_leased(r, 0, LEASE), -LE_NOT_READY);
	assert_int_equal(read_leased(r, 0, 0), 1);
	r->m[2].state = MEMBER_OUT;
	crig_members(r);
	assert_int_equal(read_leased(r, 0, LEASE), 1);
	give_back(r, LEASE);
}

static void test_successor_ends_them(void **state)
{
	(void)state;
	chain_rig_run(18, 1, successor_ends_them);
	chain_rig_run(19, 3, successor_ends_them);
}

static void test_restarts(void **state)
{
	(void)state;
	chain_rig_run(20, 1, restarts);
	chain_rig_run(27, 1, restarts_unleased);
}

static void test_repeated(void **state)
{
	(void)state;
	chain_rig_run(28, 1, repeated);
	chain_rig_run(29, 3, repeated);
}

static void test_takes_over(void **state)
{
	(void)state;
	chain_rig_run(21, 2, takes_over);
	chain_rig_run(22, 3, takes_over);
}

static void test_nobody_reads_pages(void **state)
{
	(void)state;
	chain_rig_run(23, 3, nobody_reads_pages);
}

static void test_was_away(void **state)
{
	(void)state;
	chain_rig_run(24, 3, was_away);
}

static void test_forgets(void **state)
{
	(void)state;
	chain_rig_run(25, 3, forgets);
}

static void test_tells_first(void **state)
{
	(void)state;
	chain_rig_run(26, 3, tells_first);
}

static void test_waits_for_the_reader(void **state)
{
	(void)state;
	chain_rig_run(1, 1, waits_for_the_reader);
	chain_rig_run(2, 3, waits_for_the_reader);
}

static void test_others_do_not_wait(void **state)
{
	(void)state;
	chain_rig_run(3, 1, others_do_not_wait);
	chain_rig_run(4, 3, others_do_not_wait);
}

static void test_ends_by_itself(void **state)
{
	(void)state;
	chain_rig_run(5, 1, ends_by_itself);
	chain_rig_run(6, 3, ends_by_itself);
}

static void test_cuts_do_not_wait(void **state)
{
	(void)state;
	chain_rig_run(7, 1, cuts_do_not_wait);
	chain_rig_run(8, 3, cuts_do_not_wait);
}

static void test_only_the_head_gives_them(void **state)
{
	(void)state;
	chain_rig_run(9, 3, only_the_head_gives_them);
}

static void test_there_is_an_end_of_them(void **state)
{
	(void)state;
	chain_rig_run(10, 1, there_is_an_end_of_them);
}

static void test_another_generation_waits_too(void **state)
{
	(void)state;
	chain_rig_run(11, 1, another_generation_waits_too);
	chain_rig_run(12, 3, another_generation_waits_too);
}

static void test_who_fails_ends_its_own(void **state)
{
	(void)state;
	chain_rig_run(13, 1, who_fails_ends_its_own);
}

static void test_who_waits_holds_no_buffer(void **state)
{
	(void)state;
	chain_rig_run(14, 1, who_waits_holds_no_buffer);
	chain_rig_run(15, 3, who_waits_holds_no_buffer);
}

static void test_pages_do_not_wait(void **state)
{
	(void)state;
	chain_rig_run(16, 1, pages_do_not_wait);
	chain_rig_run(17, 3, pages_do_not_wait);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits_for_the_reader),
		cmocka_unit_test(test_others_do_not_wait),
		cmocka_unit_test(test_ends_by_itself),
		cmocka_unit_test(test_cuts_do_not_wait),
		cmocka_unit_test(test_only_the_head_gives_them),
		cmocka_unit_test(test_there_is_an_end_of_them),
		cmocka_unit_test(test_another_generation_waits_too),
		cmocka_unit_test(test_who_fails_ends_its_own),
		cmocka_unit_test(test_who_waits_holds_no_buffer),
		cmocka_unit_test(test_pages_do_not_wait),
		cmocka_unit_test(test_successor_ends_them),
		cmocka_unit_test(test_restarts),
		cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_takes_over),
		cmocka_unit_test(test_nobody_reads_pages),
		cmocka_unit_test(test_was_away),
		cmocka_unit_test(test_forgets),
		cmocka_unit_test(test_tells_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
