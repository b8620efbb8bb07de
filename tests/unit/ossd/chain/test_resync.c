/* SPDX-License-Identifier: Apache-2.0 */
/* A member that returns is filled until it is equal, whatever happens during the resync. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rpc/transport/transport_sim.h"
#include "ossd/chain/receive.h"
#include "ossd/chunk/store_record.h"
#include "tests/unit/ossd/chain/resync_rig.h"

#define LEN 20000u

static uint64_t compared(const struct rrig *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->n_nodes; i++)
		n += metric_get(&r->node[i].metrics.resync_compared);
	return n;
}

static void write_some(struct rrig *r, uint64_t first, uint64_t n, uint8_t value)
{
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(rrig_write(r, first + i, i % 3, value, LEN), 0);
}

static void fill(struct rrig *r, uint32_t node, const char *order, const char *states)
{
	rrig_set(r, order, states);
	assert_true(rrig_wait_synced(r, node, 60000));
}

/* ---- a new member, a brief absence, a surplus ---- */

static void absence(struct rrig *r, void *arg)
{
	uint64_t before;
	uint8_t value;

	(void)arg;
	rrig_set(r, "0", "S");
	write_some(r, 100, 150, 1);
	/* a new member: everything */
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_same(r, 0, 1), 150);
	assert_int_equal(rrig_read(r, 1, 100, 0, &value), 0);
	assert_int_equal(value, 1);
	/* away while some chunks are changed, made and removed: only these are compared */
	rrig_crash(r, 1);
	rrig_set(r, "01", "SO");
	write_some(r, 110, 5, 2);
	write_some(r, 900, 3, 3);
	assert_int_equal(rrig_remove(r, 120, 120), 0);
	rrig_start(r, 1);
	before = compared(r);
	fill(r, 1, "01", "SY");
	assert_in_range(compared(r) - before, 9, 30);
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_same(r, 0, 1), 157);
	/* away for longer than the log covers: all are compared, but only the changed ones are
	 * copied */
	rrig_crash(r, 1);
	rrig_set(r, "01", "SO");
	write_some(r, 100, 40, 4);
	rrig_start(r, 1);
	before = metric_get(&r->node[0].metrics.resync_copied);
	fill(r, 1, "01", "SY");
	assert_in_range(metric_get(&r->node[0].metrics.resync_copied) - before, 40, 60);
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_same(r, 0, 1), 158);
}

static void test_absence(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 2, 1);
	for (uint32_t i = 0; i < 2; i++)
		r.node[i].params.resync_log_max = 30;
	rrig_run(&r, absence, NULL);
	rrig_fini(&r);
}

/* ---- under writes, with kills ---- */

struct writer {
	struct rrig *r;
	bool stop;
	uint64_t n, n_failed;
	struct latch done;
	uint8_t last[64]; /* acknowledged value of each chunk; 0: not defined */
};

static void writer_fiber(void *arg)
{
	struct writer *w = arg;
	uint64_t x = w->r->seed;

	while (!w->stop) {
		uint64_t i = (x = hash_u64(x + 1)) % 64;
		uint8_t value = (uint8_t)(1 + (x >> 8) % 250);

		if (rrig_write(w->r, 500 + i, 0, value, 1 + (x >> 16) % RRIG_CS) == 0) {
			w->last[i] = value;
			w->n++;
		} else {
			w->n_failed++;
			w->last[i] = 0; /* old or new value */
		}
		(void)fiber_sleep_us((x >> 40) % 2000);
	}
	latch_done(&w->done);
}

static void kills(struct rrig *r, void *arg)
{
	struct writer w = {.r = r};
	uint64_t x = r->seed * 77;
	uint8_t value;

	(void)arg;
	latch_init(&w.done, 1);
	rrig_set(r, "0", "S");
	write_some(r, 1000, 60, 9);
	assert_int_equal(fiber_spawn("writer", writer_fiber, &w), 0);
	for (int round = 0; round < 6; round++) {
		/* node 1 returns, is killed in the middle, returns again */
		rrig_set(r, "01", "SY");
		(void)fiber_sleep_us((x = hash_u64(x)) % 60000);
		rrig_crash(r, 1);
		rrig_set(r, "01", "SO");
		(void)fiber_sleep_us((x = hash_u64(x)) % 20000);
		rrig_start(r, 1);
		fill(r, 1, "01", "SY");
		rrig_set(r, "01", "SS");
		(void)fiber_sleep_us((x = hash_u64(x)) % 50000);
		if (round % 2) {
			/* the source loses power; it is the only SYNC member */
			rrig_crash(r, 1);
			rrig_set(r, "01", "SO");
			(void)fiber_sleep_us((x = hash_u64(x)) % 30000);
			rrig_crash(r, 0);
			rrig_start(r, 0);
			rrig_set(r, "01", "SO");
		} else {
			rrig_crash(r, 1);
			rrig_set(r, "01", "SO");
		}
		rrig_start(r, 1);
	}
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	w.stop = true;
	latch_wait(&w.done);
	assert_true(w.n > 100);
	assert_true(rrig_same(r, 0, 1) >= 60);
	for (uint32_t node = 0; node < 2; node++)
		for (uint64_t i = 0; i < 64; i++) {
			if (!w.last[i])
				continue;
			assert_int_equal(rrig_read(r, node, 500 + i, 0, &value), 0);
			assert_int_equal(value, w.last[i]);
		}
}

static void test_kills(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct rrig r;

		rrig_init(&r, 2, seed);
		r.node[0].params.resync_log_max = r.node[1].params.resync_log_max =
			seed % 2 ? 65536 : 20;
		rrig_run(&r, kills, NULL);
		rrig_fini(&r);
	}
}

/* ---- two at once; a target that has left the chain frees its space ---- */

static void two_at_once(struct rrig *r, void *arg)
{
	(void)arg;
	rrig_set(r, "0", "S");
	write_some(r, 1, 80, 5);
	rrig_set(r, "012", "SYY");
	assert_true(rrig_wait_synced(r, 1, 60000));
	write_some(r, 1, 10, 6);
	(void)fiber_sleep_us(2000000);
	rrig_set(r, "012", "SSS");
	assert_int_equal(rrig_same(r, 0, 1), 80);
	assert_int_equal(rrig_same(r, 0, 2), 80);
	rrig_set(r, "02", "SS");
	(void)fiber_sleep_us(10000000);
	assert_int_equal(metric_get(&r->node[1].metrics.dropped), 80);
	assert_int_equal(space_used(&r->node[1].target->store->space), 0);
	assert_int_equal(rrig_same(r, 0, 2), 80);
}

static void test_two_at_once(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 3, 5);
	rrig_run(&r, two_at_once, NULL);
	rrig_fini(&r);
}

/* ---- replies of requests without a change, while members are filled ---- */

struct late_trim {
	struct rrig *r;
	int rc;
	bool ended;
};

static void late_trimmer(void *arg)
{
	struct late_trim *t = arg;

	t->rc = rrig_trim_as(t->r, 900, 100, 1);
	t->ended = true;
}

static bool has_answer(const struct rrig *r, uint32_t node)
{
	const struct replay *all = &r->node[node].target->store->replay;

	for (struct hmap_node *n = hmap_next(&all->map, NULL); n; n = hmap_next(&all->map, n)) {
		const struct replay_ent *e = container_of(n, struct replay_ent, node);

		if (e->key.chain == RRIG_CHAIN && e->key.session == 1 && e->seqs.last == 1)
			return true;
	}
	return false;
}

/* The tail has the reply and cannot reach the member that it has filled, which may be SYNC on
 * record. */
static void answered_meanwhile(struct rrig *r, void *arg)
{
	struct late_trim t = {.r = r};

	(void)arg;
	rrig_set(r, "01", "SS");
	write_some(r, 300, 10, 5);
	fill(r, 2, "012", "SSY");
	transport_sim_partition(r->net, r->node[1].name, r->node[2].name, true);
	assert_int_equal(fiber_spawn("late", late_trimmer, &t), 0);
	(void)fiber_sleep_us(8000000);
	assert_false(t.ended);
	transport_sim_partition(r->net, r->node[1].name, r->node[2].name, false);
	rrig_set(r, "012", "SSS");
	while (!t.ended)
		(void)fiber_sleep_us(1000);
	assert_int_equal(t.rc, 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(has_answer(r, i));
}

static void test_answered_meanwhile(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 3, 7);
	rrig_run(&r, answered_meanwhile, NULL);
	rrig_fini(&r);
}

/* The ANSWER is in flight to one member that is being filled while another one is filled, which is
 * not its destination. */
static void answered_beside(struct rrig *r, void *arg)
{
	struct late_trim t = {.r = r};

	(void)arg;
	rrig_set(r, "0", "S");
	write_some(r, 300, 10, 5);
	transport_sim_partition(r->net, r->node[0].name, r->node[2].name, true);
	fill(r, 1, "012", "SYY");
	transport_sim_partition(r->net, r->node[0].name, r->node[1].name, true);
	assert_int_equal(fiber_spawn("late", late_trimmer, &t), 0);
	/* One attempt waits for twelve seconds. */
	(void)fiber_sleep_us(14000000);
	assert_false(t.ended);
	transport_sim_partition(r->net, r->node[0].name, r->node[2].name, false);
	assert_true(rrig_wait_synced(r, 2, 8000));
	assert_false(t.ended);
	assert_true(has_answer(r, 2));
	transport_sim_partition(r->net, r->node[0].name, r->node[1].name, false);
	while (!t.ended)
		(void)fiber_sleep_us(1000);
	rrig_set(r, "012", "SSS");
	for (uint32_t i = 0; i < 3; i++)
		assert_true(has_answer(r, i));
}

static void test_answered_beside(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 3, 8);
	rrig_run(&r, answered_beside, NULL);
	rrig_fini(&r);
}

/* ---- reported as filled, so it may be SYNC on record ---- */

struct late_write {
	struct rrig *r;
	int rc;
	bool ended;
};

static void late_writer(void *arg)
{
	struct late_write *w = arg;

	w->rc = rrig_write(w->r, 300, 0, 7, LEN);
	w->ended = true;
}

static void reported(struct rrig *r, void *arg)
{
	struct late_write w = {.r = r};
	uint8_t value;

	(void)arg;
	rrig_set(r, "0", "S");
	write_some(r, 300, 10, 5);
	fill(r, 1, "01", "SY");
	/* After the report no write is acknowledged without that member. */
	transport_sim_partition(r->net, r->node[0].name, r->node[1].name, true);
	assert_int_equal(fiber_spawn("late", late_writer, &w), 0);
	(void)fiber_sleep_us(8000000);
	assert_false(w.ended);
	transport_sim_partition(r->net, r->node[0].name, r->node[1].name, false);
	rrig_set(r, "01", "SS");
	while (!w.ended)
		(void)fiber_sleep_us(1000);
	assert_int_equal(w.rc, 0);
	assert_int_equal(rrig_same(r, 0, 1), 10);
	assert_int_equal(rrig_read(r, 1, 300, 0, &value), 0);
	assert_int_equal(value, 7);
}

static void test_reported(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 2, 6);
	rrig_run(&r, reported, NULL);
	rrig_fini(&r);
}

/* ---- committed while the source lists its chunks ---- */

struct timed_write {
	struct rrig *r;
	uint64_t delay_us;
	uint8_t value;
	bool ended;
};

static void timed_writer(void *arg)
{
	struct timed_write *w = arg;

	(void)fiber_sleep_us(w->delay_us);
	assert_int_equal(rrig_write(w->r, 100, 0, w->value, LEN), 0);
	w->ended = true;
}

/* A write is pending at the source, which is not the head, when it begins to list its chunks. Its
 * list has the previous version, as the member has. The write is committed before the list is
 * complete. */
static void committed_meanwhile(struct rrig *r, void *arg)
{
	uint64_t x = r->seed;

	(void)arg;
	rrig_set(r, "012", "SSS");
	write_some(r, 100, 200, 1);
	for (uint32_t i = 0; i < 60; i++) {
		struct timed_write w = {.r = r, .value = (uint8_t)(2 + i)};

		rrig_set(r, "012", "SSO");
		assert_int_equal(rrig_write(r, 900, 0, w.value, LEN), 0); /* the log overflows */
		w.delay_us = (x = hash_u64(x)) % 8000;
		assert_int_equal(fiber_spawn("timed", timed_writer, &w), 0);
		(void)fiber_sleep_us(3000);
		fill(r, 2, "012", "SSY");
		while (!w.ended)
			(void)fiber_sleep_us(1000);
		rrig_set(r, "012", "SSS");
		assert_int_equal(rrig_same(r, 1, 2), 201);
	}
}

static void test_committed_meanwhile(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 3, 9);
	for (uint32_t i = 0; i < 3; i++)
		r.node[i].params.resync_log_max = 0;
	rrig_run(&r, committed_meanwhile, NULL);
	rrig_fini(&r);
}

/* ---- chunks that lose their rows ---- */

static void lose_row(struct rnode *n, void *arg)
{
	const struct chunk_key *k = arg;
	struct kv_batch *b = kv_batch_create();
	uint8_t row[CHUNK_KEY_SIZE];
	int rc;

	chunk_key_encode(ROW_CHUNK, k, row);
	kv_batch_delete(b, row, sizeof(row));
	rc = kv_commit(n->target->store->kv, b, true);
	ASSERT(rc == 0);
	kv_batch_destroy(b);
}

static struct chunk_key key_of(uint64_t ino, uint64_t idx)
{
	return (struct chunk_key){RRIG_CHAIN, {ino}, 1, idx};
}

static void lose(struct rrig *r, uint32_t node, uint64_t ino, uint64_t idx)
{
	struct chunk_key k = key_of(ino, idx);

	rrig_do(r, node, lose_row, &k);
	rrig_crash(r, node);
	rrig_start(r, node);
}

/* A member that returns without a chunk gets it, though no log names the chunk. */
static void lost_at_the_member(struct rrig *r, void *arg)
{
	(void)arg;
	rrig_set(r, "01", "SS");
	write_some(r, 100, 20, 5);
	(void)fiber_sleep_us(1000000);
	lose(r, 1, 105, 2);
	rrig_set(r, "01", "SO");
	write_some(r, 300, 3, 6);
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_same(r, 0, 1), 23);
	/* After it has been filled, its next resync uses the log. */
	rrig_crash(r, 1);
	rrig_set(r, "01", "SO");
	rrig_start(r, 1);
	r->seed = compared(r);
	fill(r, 1, "01", "SY");
	assert_in_range(compared(r) - r->seed, 0, 22);
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_same(r, 0, 1), 23);
}

/* The head has lost two chunks that the returning member has; one has changed since the member
 * left. The unchanged chunk is restored from the member, not removed there. The changed one is lost
 * at both, and no hole. */
static void lost_at_the_source(struct rrig *r, void *arg)
{
	uint8_t value;

	(void)arg;
	rrig_set(r, "01", "SS");
	write_some(r, 100, 20, 5);
	(void)fiber_sleep_us(1000000);
	rrig_crash(r, 1);
	rrig_set(r, "01", "SO");
	assert_int_equal(rrig_write(r, 108, 2, 9, LEN), 0);
	assert_int_equal(rrig_remove(r, 110, 110), 0);
	(void)fiber_sleep_us(1000000);
	lose(r, 0, 105, 2);
	rrig_set(r, "01", "SO");
	assert_int_equal(rrig_read(r, 0, 105, 2, &value), -LE_NOT_READY);
	/* The removal of the lost chunk's file fails, and the other files of the request are
	 * removed. */
	assert_int_equal(rrig_remove(r, 103, 106), -LE_NOT_READY);
	assert_int_equal(rrig_read(r, 0, 103, 0, &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(rrig_read(r, 0, 106, 0, &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(rrig_read(r, 0, 105, 2, &value), -LE_NOT_READY);
	assert_int_equal(rrig_read(r, 0, 104, 1, &value), 0);
	lose(r, 0, 108, 2);
	rrig_start(r, 1);
	fill(r, 1, "01", "SY");
	assert_int_equal(metric_get(&r->node[0].metrics.restored), 1);
	rrig_set(r, "01", "SS");
	for (uint32_t node = 0; node < 2; node++) {
		assert_int_equal(rrig_read(r, node, 105, 2, &value), 0);
		assert_int_equal(value, 5);
	}
	/* The member has the mark of the lost chunk too: no reader takes the chunk for a hole. */
	for (uint32_t node = 0; node < 2; node++)
		assert_int_equal(rrig_read(r, node, 108, 2, &value), -LE_CORRUPT);
	assert_int_equal(rrig_same(r, 0, 1), 16);
	/* The file can be removed. Then the chunk is not missed, also not after a start. */
	assert_int_equal(rrig_remove(r, 108, 108), 0);
	assert_int_equal(rrig_read(r, 0, 108, 2, &value), 0);
	assert_int_equal(value, 0);
	rrig_crash(r, 0);
	rrig_start(r, 0);
	rrig_set(r, "01", "SO");
	assert_int_equal(rrig_read(r, 0, 108, 2, &value), 0);
	assert_int_equal(value, 0);
}

/* A chunk that is lost at all members stays lost at members that are filled from them, and after
 * they have left. */
static void lost_everywhere(struct rrig *r, void *arg)
{
	uint8_t value;

	(void)arg;
	rrig_set(r, "0", "S");
	write_some(r, 200, 5, 4);
	lose(r, 0, 201, 1);
	rrig_set(r, "0", "S");
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	/* the member that lost it leaves; the filled one fills another, and starts again */
	rrig_crash(r, 0);
	rrig_set(r, "12", "SY");
	assert_true(rrig_wait_synced(r, 2, 60000));
	rrig_crash(r, 1);
	rrig_start(r, 1);
	rrig_set(r, "12", "SO");
	assert_int_equal(rrig_read(r, 1, 201, 1, &value), -LE_NOT_READY);
	fill(r, 2, "12", "SY");
	rrig_set(r, "12", "SS");
	for (uint32_t node = 1; node < 3; node++) {
		assert_int_equal(rrig_read(r, node, 201, 1, &value), -LE_CORRUPT);
		assert_int_equal(rrig_read(r, node, 200, 0, &value), 0);
		assert_int_equal(value, 4);
	}
	assert_int_equal(rrig_write(r, 201, 1, 7, 100), -LE_CORRUPT);
	assert_int_equal(rrig_same(r, 1, 2), 5);
	/* a truncation through the middle of it fails; one that takes all of it makes it a hole at
	 * all members */
	assert_int_equal(rrig_trim(r, 201, RRIG_CS + 5), -LE_CORRUPT);
	for (uint32_t node = 1; node < 3; node++)
		assert_int_equal(rrig_read(r, node, 201, 1, &value), -LE_CORRUPT);
	assert_int_equal(rrig_trim(r, 201, RRIG_CS), 0);
	assert_int_equal(rrig_same(r, 1, 2), 4);
	for (uint32_t node = 1; node < 3; node++) {
		assert_int_equal(rrig_read(r, node, 201, 1, &value), 0);
		assert_int_equal(value, 0);
	}
	rrig_crash(r, 2);
	rrig_start(r, 2);
	rrig_set(r, "12", "SO");
	fill(r, 2, "12", "SY");
	rrig_set(r, "21", "SS");
	assert_int_equal(rrig_write(r, 201, 1, 8, LEN), 0);
	assert_int_equal(rrig_same(r, 1, 2), 5);
}

/* A row is lost from the source's index while the source runs: the member is notified of a lost
 * chunk, not of a hole. */
static void vanished_at_the_source(struct rrig *r, void *arg)
{
	struct chunk_key k = key_of(201, 1);
	uint8_t value;

	(void)arg;
	rrig_set(r, "0", "S");
	write_some(r, 200, 5, 4);
	(void)fiber_sleep_us(1000000);
	rrig_crash(r, 0); /* so that no record is in memory */
	rrig_start(r, 0);
	rrig_set(r, "0", "S");
	rrig_do(r, 0, lose_row, &k);
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	for (uint32_t node = 2; node-- > 0;) {
		assert_int_equal(rrig_read(r, node, 201, 1, &value), -LE_CORRUPT);
		assert_int_equal(rrig_read(r, node, 200, 0, &value), 0);
		assert_int_equal(value, 4);
	}
	assert_int_equal(rrig_same(r, 0, 1), 5);
}

/* The head gets a write to a chunk that it has lost: it first copies the chunk from the other
 * member. */
static void lost_and_written(struct rrig *r, void *arg)
{
	uint8_t value;

	(void)arg;
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_write(r, 100, 0, 5, LEN), 0);
	(void)fiber_sleep_us(1000000);
	lose(r, 0, 100, 0);
	rrig_set(r, "01", "SS"); /* a metadata server would have it filled first */
	assert_int_equal(rrig_write(r, 100, 0, 6, 100), 0);
	assert_int_equal(rrig_same(r, 0, 1), 1);
	assert_int_equal(rrig_read(r, 0, 100, 0, &value), 0);
	assert_int_equal(value, 6);
	assert_int_equal(metric_get(&r->node[0].metrics.repaired), 1);
}

static void damage_block(struct rnode *n, void *arg)
{
	const struct chunk_key *k = arg;
	struct chunk_record *rec;
	char path[1100];
	int rc = chunk_store_record(n->target->store, k, &rec);

	ASSERT(rc == 0 && rec);
	snprintf(path, sizeof(path), "%s/data", n->params.data_dir);
	rc = sim_proc_corrupt(n->proc, path, (uint64_t)rec->blocks[0].unit * UNIT_SIZE,
			      rec->blocks[0].len);
	ASSERT(rc == 0);
	chunk_record_unref(&n->target->store->cache, rec);
}

/* The member has been filled and may be SYNC on record, without its notice. If it makes a version
 * from a damaged block, it first repairs the block from the other member. */
static void damaged_at_who_was_filled(struct rrig *r, void *arg)
{
	struct chunk_key k = key_of(100, 0);
	uint8_t value;

	(void)arg;
	rrig_set(r, "0", "S");
	write_some(r, 100, 1, 5);
	fill(r, 1, "01", "SY");
	rrig_do(r, 1, damage_block, &k);
	assert_int_equal(rrig_trim(r, 100, 5), 0);
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_read(r, 1, 100, 0, &value), 0);
	assert_int_equal(value, 5);
	assert_int_equal(rrig_same(r, 0, 1), 1);
	assert_int_equal(metric_get(&r->node[1].metrics.repaired), 1);
}

static void run_lost(void (*fn)(struct rrig *r, void *arg))
{
	struct rrig r;

	rrig_init(&r, 2, 11);
	rrig_run(&r, fn, NULL);
	rrig_fini(&r);
}

static void test_lost_at_the_member(void **state)
{
	(void)state;
	run_lost(lost_at_the_member);
}

static void test_lost_at_the_source(void **state)
{
	(void)state;
	run_lost(lost_at_the_source);
}

static void test_vanished_at_the_source(void **state)
{
	(void)state;
	run_lost(vanished_at_the_source);
}

static void test_lost_everywhere(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 3, 12);
	rrig_run(&r, lost_everywhere, NULL);
	rrig_fini(&r);
}

static void test_lost_and_written(void **state)
{
	(void)state;
	run_lost(lost_and_written);
}

static void test_damaged_at_who_was_filled(void **state)
{
	(void)state;
	run_lost(damaged_at_who_was_filled);
}

/* ---- chunks that a member fetches from another one ---- */

static const struct chunk_key fetched_key = {RRIG_CHAIN, {500}, 1, 0};

struct fetching {
	struct rnode *n;
	uint64_t version;
	int rc;
	struct slot **held;
	uint32_t n_held;
};

static void take_slots(struct rnode *n, void *arg)
{
	struct fetching *f = arg;
	struct chunk_store *s = n->target->store;
	struct chunk_record *rec;

	assert_int_equal(chunk_store_record(s, &fetched_key, &rec), 0);
	assert_non_null(rec);
	f->version = rec->version;
	chunk_record_unref(&s->cache, rec);
	f->held = calloc(slot_pool_total(s->read_pool) + 1, sizeof(struct slot *));
	assert_non_null(f->held);
	while ((f->held[f->n_held] = slot_try_get(s->read_pool)) != NULL)
		f->n_held++;
}

static void give_slots(struct rnode *n, void *arg)
{
	struct fetching *f = arg;

	(void)n;
	while (f->n_held)
		slot_unref(f->held[--f->n_held]);
	free(f->held);
}

static void fetch_fiber(void *arg)
{
	struct fetching *f = arg;
	struct maintenance *k = f->n->target->maintenance;
	struct part_at at = {&fetched_key, f->version, 0};
	struct fetched part;

	f->rc = fetch_part(k, chain_find(k->chains, RRIG_CHAIN), 1, &at, &part);
	if (f->rc == 0)
		fetch_free(k, &part);
}

static void begin_fetch(struct rnode *n, void *arg)
{
	struct fetching *f = arg;

	f->n = n;
	assert_int_equal(fiber_spawn("fetch", fetch_fiber, f), 0);
}

static void waits_for_a_slot(struct rrig *r, void *arg)
{
	struct fetching f = {.rc = 1};

	(void)arg;
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_write(r, fetched_key.ino.v, fetched_key.idx, 1, LEN), 0);
	rrig_do(r, 0, take_slots, &f);
	rrig_do(r, 1, begin_fetch, &f);
	(void)!fiber_sleep_us(100000);
	assert_int_equal(f.rc, 1);
	assert_int_equal(rrig_write(r, fetched_key.ino.v, fetched_key.idx, 2, LEN), 0);
	rrig_do(r, 0, give_slots, &f);
	while (f.rc == 1)
		(void)!fiber_sleep_us(1000);
	assert_int_equal(f.rc, -LE_STALE);
}

/* A record that was replaced during the wait is not sent: its blocks may have been reused. */
static void test_fetch_waits_for_a_slot(void **state)
{
	struct rrig r;

	(void)state;
	rrig_init(&r, 2, 20);
	rrig_run(&r, waits_for_a_slot, NULL);
	rrig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_absence),
		cmocka_unit_test(test_kills),
		cmocka_unit_test(test_two_at_once),
		cmocka_unit_test(test_answered_meanwhile),
		cmocka_unit_test(test_answered_beside),
		cmocka_unit_test(test_reported),
		cmocka_unit_test(test_committed_meanwhile),
		cmocka_unit_test(test_lost_at_the_member),
		cmocka_unit_test(test_lost_at_the_source),
		cmocka_unit_test(test_vanished_at_the_source),
		cmocka_unit_test(test_lost_everywhere),
		cmocka_unit_test(test_lost_and_written),
		cmocka_unit_test(test_damaged_at_who_was_filled),
		cmocka_unit_test(test_fetch_waits_for_a_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
