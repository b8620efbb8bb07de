/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged blocks are found, and replaced from other members, by reads and by scrubs. Members that
 * differ are made equal. A scrub continues after a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ossd/chain/repair.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"
#include "ossd/chunk/store_record.h"
#include "tests/lib/sealed.h"
#include "tests/unit/ossd/chain/resync_rig.h"

#define BS       16384u
#define N_CHUNKS 20u

/* Flips a bit in a block of the node's copy. */
static void damage(struct rrig *r, uint32_t node, uint64_t ino, uint32_t block)
{
	struct rnode *n = &r->node[node];
	struct chunk_key k = {RRIG_CHAIN, {ino}, 1, 0};
	struct chunk_record *rec;
	char path[64];

	assert_int_equal(chunk_store_record(n->target->store, &k, &rec), 0);
	assert_non_null(rec);
	snprintf(path, sizeof(path), "%s/data", n->params.data_dir);
	assert_int_equal(sim_proc_corrupt(n->proc, path,
					  (uint64_t)rec->blocks[block].unit * UNIT_SIZE,
					  rec->blocks[block].len),
			 0);
	chunk_record_unref(&n->target->store->cache, rec);
}

static uint64_t version_of(struct rrig *r, uint32_t node, uint64_t ino)
{
	struct chunk_store *s = r->node[node].target->store;
	struct chunk_key k = {RRIG_CHAIN, {ino}, 1, 0};
	struct chunk_record *rec;
	uint64_t version = 0;

	assert_int_equal(chunk_store_record(s, &k, &rec), 0);
	if (rec)
		version = rec->version;
	chunk_record_unref(&s->cache, rec);
	return version;
}

static void write_all(struct rrig *r)
{
	for (uint64_t i = 0; i < N_CHUNKS; i++)
		assert_int_equal(rrig_write(r, 100 + i, 0, (uint8_t)(1 + i), RRIG_CS), 0);
}

static struct oss_scrub_rep scrub(struct rrig *r, uint32_t node, bool start)
{
	struct oss_scrub_req req = {start ? SCRUB_START : SCRUB_STATUS};
	struct oss_scrub_rep rep = {0};

	for (int i = 0; i < 10000; i++) {
		struct rpc_call call = {.op = OP_oss_scrub,
					.req = &req,
					.rep = &rep,
					.target = r->node[node].id,
					.deadline_us = loop_deadline_ms(3000)};

		assert_int_equal(rpc_call(r->node[node].client, &call), 0);
		rpc_call_fini(&call);
		if (!rep.running && (i || !start))
			return rep;
		req.what = SCRUB_STATUS;
		(void)fiber_sleep_us(10000);
	}
	fail();
	return rep;
}

/* ---- reads ---- */

static void reads_repair(struct rrig *r, void *arg)
{
	struct ossd_metrics *m = &r->node[0].metrics;
	uint64_t version, before;
	uint8_t value;

	(void)arg;
	rrig_set(r, "01", "SS");
	write_all(r);
	version = version_of(r, 0, 103);
	damage(r, 0, 103, 0);
	damage(r, 0, 103, 2);
	assert_int_equal(rrig_read(r, 0, 103, 0, &value), 0);
	assert_int_equal(value, 4);
	assert_int_equal(metric_get(&m->repaired), 2);
	/* repaired in place, under the same version */
	before = metric_get(&m->corrupt);
	assert_int_equal(rrig_read(r, 0, 103, 0, &value), 0);
	assert_int_equal(metric_get(&m->corrupt), before);
	assert_int_equal(version_of(r, 0, 103), version);
	/* a member that is not the head repairs too */
	damage(r, 1, 104, 3);
	assert_int_equal(rrig_read(r, 1, 104, 0, &value), 0);
	assert_int_equal(value, 5);
	assert_int_equal(metric_get(&r->node[1].metrics.repaired), 1);
	/* a write that needs the old block */
	damage(r, 0, 105, 0);
	assert_int_equal(rrig_write(r, 105, 0, 77, 100), 0);
	assert_int_equal(rrig_read(r, 0, 105, 0, &value), 0);
	assert_int_equal(value, 77);
	/* damaged at both members: only reads of that block fail; a write that replaces it repairs
	 * it */
	damage(r, 0, 106, 1);
	damage(r, 1, 106, 1);
	assert_int_equal(rrig_read(r, 0, 106, 0, &value), -LE_CORRUPT);
	assert_int_equal(rrig_read(r, 1, 106, 0, &value), -LE_CORRUPT);
	assert_int_equal(rrig_read(r, 0, 107, 0, &value), 0);
	assert_int_equal(rrig_write(r, 106, 0, 78, RRIG_CS), 0);
	assert_int_equal(rrig_read(r, 0, 106, 0, &value), 0);
	assert_int_equal(value, 78);
	assert_int_equal(rrig_same(r, 0, 1), N_CHUNKS);
}

static void test_reads_repair(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 2, 3);
	rrig_run(&r, reads_repair, NULL);
	rrig_fini(&r);
}

/* ---- scrubs ---- */

static void lose(struct rnode *n, void *arg)
{
	assert_int_equal(chunk_copy_remove(n->target->store, arg, NULL, NULL), 1);
}

static void scrub_repairs(struct rrig *r, void *arg)
{
	struct oss_scrub_rep rep;
	struct chunk_key gone = {RRIG_CHAIN, {108}, 1, 0};
	uint64_t before;

	(void)arg;
	rrig_set(r, "01", "SS");
	write_all(r);
	rep = scrub(r, 0, true);
	assert_int_equal(rep.chunks, N_CHUNKS);
	assert_int_equal(rep.bytes, N_CHUNKS * RRIG_CS);
	assert_int_equal(rep.damaged + rep.differing, 0);
	for (uint64_t i = 0; i < 6; i++)
		damage(r, 1, 100 + i, (uint32_t)i % 4);
	damage(r, 0, 110, 2);
	damage(r, 1, 110, 2);
	rep = scrub(r, 1, true);
	assert_int_equal(rep.damaged, 7);
	assert_int_equal(rep.repaired, 6);
	assert_int_equal(rep.unrepaired, 1);
	rep = scrub(r, 1, true);
	assert_int_equal(rep.damaged, 1);
	/* the member loses a chunk: the head finds that and copies it there */
	(void)fiber_sleep_us(3000000);
	rrig_do(r, 1, lose, &gone);
	before = rrig_same(r, 0, 0);
	rep = scrub(r, 0, true);
	assert_int_equal(rep.differing, 1);
	assert_int_equal(rrig_same(r, 0, 1), before);
	rep = scrub(r, 0, true);
	assert_int_equal(rep.differing, 0);
	/* chunks that the head has lost, one of them the last, are copied from the member */
	rrig_do(r, 0, lose, &gone);
	gone.ino.v = 100 + N_CHUNKS - 1;
	rrig_do(r, 0, lose, &gone);
	rep = scrub(r, 0, true);
	assert_int_equal(rep.differing, 2);
	assert_int_equal(rrig_same(r, 0, 1), before);
	/* the head loses all */
	for (uint64_t i = 0; i < N_CHUNKS; i++) {
		gone.ino.v = 100 + i;
		rrig_do(r, 0, lose, &gone);
	}
	rep = scrub(r, 0, true);
	assert_int_equal(rep.differing, N_CHUNKS);
	assert_int_equal(rrig_same(r, 0, 1), before);
	/* one that is older than the last removal in the chain */
	assert_int_equal(rrig_remove(r, 100, 100), 0);
	(void)fiber_sleep_us(3000000);
	before = rrig_same(r, 0, 1);
	gone.ino.v = 107;
	rrig_do(r, 0, lose, &gone);
	rep = scrub(r, 0, true);
	assert_int_equal(rep.differing, 1);
	assert_int_equal(rrig_same(r, 0, 1), before);
	assert_true(version_of(r, 0, 107) > 0);
	assert_int_equal(rep.uncompared + rep.moved, 0);
	/* the reply counts what was not compared */
	rrig_crash(r, 1);
	rep = scrub(r, 0, true);
	assert_int_equal(rep.uncompared, before);
	rrig_set(r, "01", "SO");
	rep = scrub(r, 0, true);
	assert_int_equal(rep.uncompared, before);
	assert_int_equal(rep.moved, 0);
}

static void test_scrub_repairs(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 2, 4);
	rrig_run(&r, scrub_repairs, NULL);
	rrig_fini(&r);
}

static struct oss_scrub_rep ask_once(struct rrig *r, uint32_t node, uint8_t what)
{
	struct oss_scrub_req req = {what};
	struct oss_scrub_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_scrub,
				.req = &req,
				.rep = &rep,
				.target = r->node[node].id,
				.deadline_us = loop_deadline_ms(3000)};

	assert_int_equal(rpc_call(r->node[node].client, &call), 0);
	rpc_call_fini(&call);
	return rep;
}

static void goes_on(struct rrig *r, void *arg)
{
	struct oss_scrub_rep rep;

	(void)arg;
	rrig_set(r, "0", "S");
	for (uint64_t i = 0; i < 300; i++)
		assert_int_equal(rrig_write(r, 1000 + i, 0, 1, RRIG_CS), 0);
	rep = ask_once(r, 0, SCRUB_START);
	assert_true(rep.running);
	/* 300 chunks at 1 MiB/s take about 19 s */
	(void)fiber_sleep_us(12000000);
	rrig_crash(r, 0);
	rrig_start(r, 0);
	rrig_set(r, "0", "S");
	rep = scrub(r, 0, false);
	assert_int_equal(rep.running, 0);
	assert_true(rep.moved);                /* the chain has another epoch */
	assert_in_range(rep.chunks, 300, 400); /* not from the beginning; some are scrubbed twice */
	assert_true(metric_get(&r->node[0].metrics.scrubbed) < 550);
}

static void test_scrub_goes_on_after_a_restart(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 1, 5);
	r.node[0].params.scrub_rate_mib_s = 1;
	rrig_run(&r, goes_on, NULL);
	rrig_fini(&r);
}

/* A scrub is stopped in the middle of a page: it does not continue in place of the next one. */
static void begins_anew(struct rrig *r, void *arg)
{
	struct oss_scrub_rep rep;

	(void)arg;
	rrig_set(r, "0", "S");
	write_all(r);
	damage(r, 0, 100, 0);
	(void)ask_once(r, 0, SCRUB_START);
	/* scrubbing all chunks at 1 MiB/s takes more than a second */
	(void)fiber_sleep_us(500000);
	rep = ask_once(r, 0, SCRUB_STOP);
	assert_false(rep.running);
	assert_in_range(rep.chunks, 1, N_CHUNKS - 1);
	assert_int_equal(rep.damaged, 1);
	rep = ask_once(r, 0, SCRUB_START);
	assert_int_equal(rep.chunks, 0);
	rep = scrub(r, 0, false);
	assert_int_equal(rep.chunks, N_CHUNKS);
	assert_int_equal(rep.damaged, 1);
}

static void test_scrub_begins_anew(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 1, 7);
	r.node[0].params.scrub_rate_mib_s = 1;
	rrig_run(&r, begins_anew, NULL);
	rrig_fini(&r);
}

/* ---- chunks of several parts ---- */

#define PART (1u << 20)
#define LARGE (4 * PART)

static const struct chunk_key large = {RRIG_CHAIN, {5}, 1, 0};

/* One writer for each part. */
struct part_writer {
	struct rnode *n;
	uint32_t i, n_written;
	bool stop, ended;
	uint8_t pieces[(PART / LEAT_BLOCK_SIZE_MIN + 1) * PIECE_WIRE_SIZE];
};

static void write_part(struct part_writer *a)
{
	static uint8_t data[PART];
	struct slot_vec v = {.len = PART};
	struct chunk_write w = {.id = large,
				.chunk_size = LARGE,
				.off = a->i * PART,
				.len = PART,
				.session = 7,
				.pieces = bytes_of(a->pieces, 0),
				.bulk = &v,
				.n_bulk = 1};
	struct chunk_tx tx;

	assert_int_equal(slot_get(a->n->pool, NO_DEADLINE, &v.slot), 0);
	memset(data, (int)(a->i + 4 * ++a->n_written), PART);
	v.len = sealed_cut(LARGE, w.off, data, PART, false, v.slot->data, &w.pieces);
	assert_int_equal(chunk_write_begin(a->n->target->store, &w, &tx), 0);
	chunk_tx_join(&tx);
	assert_int_equal(chunk_tx_wait(&tx), 0);
	slot_unref(v.slot);
}

static void part_writer_main(void *arg)
{
	struct part_writer *a = arg;

	while (!a->stop)
		write_part(a);
	a->ended = true;
}

static void check_while_written(struct rnode *n, void *arg)
{
	static struct part_writer a[4];

	(void)arg;
	for (uint32_t i = 0; i < 4; i++) {
		a[i] = (struct part_writer){.n = n, .i = i};
		write_part(&a[i]);
		assert_int_equal(fiber_spawn("writer", part_writer_main, &a[i]), 0);
	}
	for (uint32_t i = 0; i < 50; i++) {
		struct repair r;

		assert_int_equal(repair_chunk(n->target->maintenance, &large, &r), 0);
		assert_int_equal(r.found, 0);
		assert_in_range(r.bytes, PART, LARGE);
	}
	for (uint32_t i = 0; i < 4; i++) {
		a[i].stop = true;
		while (!a[i].ended)
			(void)!fiber_sleep_us(1000);
		assert_true(a[i].n_written > 20);
	}
}

static void large_chunk(struct rrig *r, void *arg)
{
	(void)arg;
	rrig_set(r, "0", "S");
	rrig_do(r, 0, check_while_written, NULL);
}

/* While a scrub reads a large chunk part by part, the chunk is written: its old blocks may be
 * reused before all parts are read. */
static void test_a_large_chunk_that_is_written_is_not_damaged(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 1, 8);
	r.node[0].params.data_size = 16 << 20;
	rrig_run(&r, large_chunk, NULL);
	rrig_fini(&r);
}

/* ---- a damaged index ---- */

/* Puts an invalid row among those of chunks. */
static void put_garbage(struct rnode *n, void *arg)
{
	static const uint8_t row[] = {ROW_CHUNK, 0, 0, 0, RRIG_CHAIN, 255, 255};
	struct group_commit *g = &n->target->store->gc;

	(void)arg;
	kv_batch_put(group_commit_batch(g), row, sizeof(row), "x", 1);
	assert_int_equal(group_commit_wait(g, group_commit_join(g, NULL, false)), 0);
}

/* The scrub ends and reports the damage to the target, instead of starting again without end. */
static void meets_garbage(struct rrig *r, void *arg)
{
	(void)arg;
	rrig_set(r, "01", "SS");
	write_all(r);
	(void)scrub(r, 0, true);
	assert_false(r->node[0].target->maintenance->index_damaged);
	rrig_do(r, 0, put_garbage, NULL);
	(void)scrub(r, 0, true);
	assert_true(r->node[0].target->maintenance->index_damaged);
	/* the other member's report does not affect this target */
	(void)scrub(r, 1, true);
	assert_false(r->node[1].target->maintenance->index_damaged);
}

static void test_scrub_meets_a_damaged_index(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 2, 6);
	rrig_run(&r, meets_garbage, NULL);
	rrig_fini(&r);
}

/* ---- when a scrub is due ---- */

#define HOUR_US ((uint64_t)3600 * 1000000)
#define DAY_US  (24 * (int64_t)HOUR_US)

/* Returns how many chunks the target has scrubbed after that time. */
static uint64_t scrubbed_after(struct rrig *r, uint64_t us)
{
	(void)fiber_sleep_us(us);
	return metric_get(&r->node[0].metrics.scrubbed);
}

static void jump(struct rrig *r, int64_t days)
{
	sim_proc_set_wall(r->node[0].proc, days * DAY_US);
}

/* Due after an interval of an hour, whatever jumps the wall clock makes. */
static void first_is_due(struct rrig *r, void *arg)
{
	(void)arg;
	rrig_set(r, "0", "S");
	write_all(r);
	jump(r, 10);
	assert_int_equal(scrubbed_after(r, HOUR_US / 2), 0);
	jump(r, -10);
	assert_int_equal(scrubbed_after(r, HOUR_US / 2 + 60000000), N_CHUNKS);
	jump(r, 10);
	assert_int_equal(scrubbed_after(r, HOUR_US / 2), N_CHUNKS);
}

/* The target starts with a wall clock that is earlier than its last scrub. The next scrub is
 * neither immediate nor ten days late, and a restart does not restart the interval. */
static void started_behind(struct rrig *r, void *arg)
{
	uint64_t before = scrubbed_after(r, 0);

	(void)arg;
	for (uint32_t i = 0; i < 2; i++) {
		rrig_crash(r, 0);
		jump(r, -20);
		rrig_start(r, 0);
		rrig_set(r, "0", "S");
		assert_int_equal(scrubbed_after(r, HOUR_US / 4), before);
	}
	assert_int_equal(scrubbed_after(r, HOUR_US / 2 + 60000000), before + N_CHUNKS);
}

static void test_scrub_is_due_by_no_wall_clock(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 1, 8);
	r.node[0].params.scrub_interval_h = 1;
	rrig_run(&r, first_is_due, NULL);
	rrig_run(&r, started_behind, NULL);
	rrig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_repair),
		cmocka_unit_test(test_scrub_repairs),
		cmocka_unit_test(test_scrub_goes_on_after_a_restart),
		cmocka_unit_test(test_scrub_begins_anew),
		cmocka_unit_test(test_a_large_chunk_that_is_written_is_not_damaged),
		cmocka_unit_test(test_scrub_meets_a_damaged_index),
		cmocka_unit_test(test_scrub_is_due_by_no_wall_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
