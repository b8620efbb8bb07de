/* SPDX-License-Identifier: Apache-2.0 */
/* Several chunks of one cell of the inventory are lost together with their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/kv/kv.h"
#include "tests/unit/ossd/chain/resync_rig.h"

#define LEN 20000u

static void fill(struct rrig *r, uint32_t node, const char *order, const char *states)
{
	rrig_set(r, order, states);
	assert_true(rrig_wait_synced(r, node, 60000));
}

#define N_OF_CELL 3u

static struct chunk_key key_of(uint64_t ino, uint64_t idx)
{
	return (struct chunk_key){RRIG_CHAIN, {ino}, 1, idx};
}

static uint32_t cell_of(uint64_t ino)
{
	struct chunk_key k = key_of(ino, 0);
	struct kv_batch *b = kv_batch_create();
	struct chunk_inventory l;
	uint32_t i = 0;

	inventory_init(&l);
	assert_int_equal(inventory_need(&l, k.chain), 0);
	inventory_add(&l, &k, b);
	while (!container_of(hmap_next(&l.chains, NULL), struct inventory_chain, node)
			->cells[i]
			.kept.n)
		i++;
	inventory_fini(&l);
	kv_batch_destroy(b);
	return i;
}

/* Picks files that have their first chunks in one cell. */
static void pick_of_a_cell(uint64_t ino[N_OF_CELL + 1])
{
	ino[0] = 100;
	for (uint32_t i = 1; i <= N_OF_CELL; i++)
		for (ino[i] = ino[i - 1] + 1; cell_of(ino[i]) != cell_of(ino[0]);)
			ino[i]++;
}

static void lose_with_names(struct rnode *n, void *arg)
{
	const uint64_t *ino = arg;
	struct kv_batch *b = kv_batch_create();
	int rc;

	for (uint32_t i = 0; i < N_OF_CELL; i++) {
		struct chunk_key k = key_of(ino[i], 0);
		uint8_t row[CHUNK_KEY_SIZE];

		chunk_key_encode(ROW_CHUNK, &k, row);
		kv_batch_delete(b, row, sizeof(row));
		chunk_key_encode(ROW_NAME, &k, row);
		kv_batch_delete(b, row, sizeof(row));
	}
	rc = kv_commit(n->target->store->kv, b, true);
	ASSERT(rc == 0);
	kv_batch_destroy(b);
}

static void no_doubt(struct rnode *n, void *arg)
{
	(void)arg;
	assert_false(inventory_is_uncertain(&n->target->store->inventory, RRIG_CHAIN));
}

/* No member has the chunks: the member that lost them, the member that is filled from it and the
 * member filled from that one return an error, and none reads zeros. Files that are made later are
 * whole. */
static void doubt_everywhere(struct rrig *r, void *arg)
{
	uint64_t ino[N_OF_CELL + 1], later = 100000;
	uint8_t value;

	(void)arg;
	pick_of_a_cell(ino);
	rrig_set(r, "0", "S");
	for (uint32_t i = 0; i < N_OF_CELL; i++)
		assert_int_equal(rrig_write(r, ino[i], 0, 4, LEN), 0);
	rrig_do(r, 0, lose_with_names, ino);
	rrig_crash(r, 0);
	rrig_start(r, 0);
	rrig_set(r, "0", "S");
	assert_int_equal(rrig_read(r, 0, ino[0], 0, &value), -LE_CORRUPT);
	rrig_set(r, "01", "SO");
	assert_int_equal(rrig_read(r, 0, ino[0], 0, &value), -LE_NOT_READY);
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	rrig_crash(r, 0);
	rrig_set(r, "12", "SY");
	assert_true(rrig_wait_synced(r, 2, 60000));
	rrig_crash(r, 1);
	rrig_start(r, 1);
	rrig_set(r, "12", "SS");
	while (cell_of(later) != cell_of(ino[0]))
		later++;
	assert_int_equal(rrig_write(r, later, 0, 5, LEN), 0);
	for (uint32_t node = 1; node < 3; node++) {
		for (uint32_t i = 0; i < N_OF_CELL; i++)
			assert_int_equal(rrig_read(r, node, ino[i], 0, &value), -LE_CORRUPT);
		assert_int_equal(rrig_read(r, node, later, 0, &value), 0);
		assert_int_equal(value, 5);
	}
	assert_int_equal(rrig_same(r, 1, 2), 1);
	assert_int_equal(rrig_remove(r, ino[0], ino[0]), 0);
}

/* The member that returns has the chunks: afterwards no cell is uncertain at either member. */
static void doubt_ends(struct rrig *r, void *arg)
{
	uint64_t ino[N_OF_CELL + 1];
	uint8_t value;

	(void)arg;
	pick_of_a_cell(ino);
	rrig_set(r, "01", "SS");
	for (uint32_t i = 0; i < N_OF_CELL; i++)
		assert_int_equal(rrig_write(r, ino[i], 0, 4, LEN), 0);
	(void)fiber_sleep_us(1000000);
	rrig_crash(r, 1);
	rrig_set(r, "01", "SO");
	rrig_do(r, 0, lose_with_names, ino);
	rrig_crash(r, 0);
	rrig_start(r, 0);
	rrig_set(r, "01", "SO");
	assert_int_equal(rrig_read(r, 0, ino[1], 0, &value), -LE_NOT_READY);
	rrig_start(r, 1);
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_same(r, 0, 1), N_OF_CELL);
	for (uint32_t node = 0; node < 2; node++) {
		assert_int_equal(rrig_read(r, node, ino[2], 0, &value), 0);
		assert_int_equal(value, 4);
		rrig_do(r, node, no_doubt, NULL);
	}
}

/* The chunks were written while the member was away: its copies are older, and are dropped. Neither
 * member answers that a chunk does not exist, though the second one has just removed it. */
static void doubt_of_a_removed_one(struct rrig *r, void *arg)
{
	uint64_t ino[N_OF_CELL + 1];
	uint8_t value;

	(void)arg;
	pick_of_a_cell(ino);
	rrig_set(r, "01", "SS");
	for (uint32_t i = 0; i < N_OF_CELL; i++)
		assert_int_equal(rrig_write(r, ino[i], 0, 4, LEN), 0);
	(void)fiber_sleep_us(1000000);
	rrig_crash(r, 1);
	rrig_set(r, "01", "SO");
	for (uint32_t i = 0; i < N_OF_CELL; i++)
		assert_int_equal(rrig_write(r, ino[i], 0, 5, LEN), 0);
	(void)fiber_sleep_us(1000000);
	rrig_do(r, 0, lose_with_names, ino);
	rrig_crash(r, 0);
	rrig_start(r, 0);
	rrig_set(r, "01", "SO");
	rrig_start(r, 1);
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	assert_int_equal(rrig_same(r, 0, 1), 0);
	for (uint32_t node = 2; node-- > 0;)
		for (uint32_t i = 0; i < N_OF_CELL; i++)
			assert_int_equal(rrig_read(r, node, ino[i], 0, &value), -LE_CORRUPT);
}

/* ---- a chunk is written during the query whether it exists ---- */

struct reading {
	struct rrig *r;
	uint64_t ino;
	bool done;
};

static void read_fiber(void *arg)
{
	struct reading *g = arg;
	uint8_t value;

	(void)!rrig_read(g->r, 1, g->ino, 0, &value);
	g->done = true;
}

static void forget_none(struct rnode *n, void *arg)
{
	(void)arg;
	chunk_cache_forget_none(&n->target->store->cache, RRIG_CHAIN);
}

/* The head has recorded that the chunk does not exist. The other member has no such record and
 * queries the head. The reply arrives after a client's write of the chunk was acknowledged: the
 * chunk stays. */
static void written_meanwhile(struct rrig *r, void *arg)
{
	uint64_t ino[N_OF_CELL + 1], x;
	uint8_t value;

	(void)arg;
	pick_of_a_cell(ino);
	x = ino[N_OF_CELL];
	rrig_set(r, "0", "S");
	for (uint32_t i = 0; i <= N_OF_CELL; i++)
		assert_int_equal(rrig_write(r, ino[i], 0, 4, LEN), 0);
	(void)fiber_sleep_us(1000000);
	rrig_do(r, 0, lose_with_names, ino);
	rrig_crash(r, 0);
	rrig_start(r, 0);
	rrig_set(r, "0", "S");
	fill(r, 1, "01", "SY");
	rrig_set(r, "01", "SS");
	for (uint32_t i = 0; i < 150; i++) {
		struct reading g = {.r = r, .ino = x};

		assert_int_equal(rrig_remove(r, x, x), 0);
		(void)fiber_sleep_us(1000000);
		rrig_do(r, 1, forget_none, NULL);
		assert_int_equal(fiber_spawn("read", read_fiber, &g), 0);
		(void)fiber_sleep_us(i * 4);
		assert_int_equal(rrig_write(r, x, 0, 6, LEN), 0);
		while (!g.done)
			(void)fiber_sleep_us(1000);
		(void)fiber_sleep_us(1000000);
		assert_int_equal(rrig_read(r, 1, x, 0, &value), 0);
		assert_int_equal(value, 6);
	}
	assert_int_equal(rrig_same(r, 0, 1), 1);
}

/* ---- the row of the cell ---- */

static void lose_cell(struct rnode *n, void *arg)
{
	struct kv_batch *b = kv_batch_create();
	uint8_t row[INVENTORY_KEY_SIZE];
	int rc;

	inventory_key_encode(RRIG_CHAIN, (uint8_t)cell_of(*(const uint64_t *)arg), row);
	kv_batch_delete(b, row, sizeof(row));
	rc = kv_commit(n->target->store->kv, b, true);
	ASSERT(rc == 0);
	kv_batch_destroy(b);
}

/* The only member loses the row of the cell: it counts the cell again at its start, in the same
 * epoch, and so detects chunks that are lost later. Another uncertain cell stays uncertain. */
static void counted_anew(struct rrig *r, void *arg)
{
	uint64_t ino[N_OF_CELL + 1], other = 100;
	uint8_t value;

	(void)arg;
	pick_of_a_cell(ino);
	while (cell_of(other) == cell_of(ino[0]))
		other++;
	rrig_set(r, "0", "S");
	assert_int_equal(rrig_write(r, other, 0, 4, LEN), 0);
	for (uint32_t i = 0; i <= N_OF_CELL; i++)
		assert_int_equal(rrig_write(r, ino[i], 0, 4, LEN), 0);
	(void)fiber_sleep_us(1000000);
	rrig_do(r, 0, lose_cell, ino);
	for (uint32_t i = 0; i < 2; i++) {
		rrig_crash(r, 0);
		rrig_start(r, 0);
		(void)fiber_sleep_us(1000000);
		assert_int_equal(rrig_read(r, 0, ino[0], 0, &value), 0);
		assert_int_equal(value, 4);
	}
	rrig_do(r, 0, lose_with_names, ino);
	for (uint32_t i = 0; i < 2; i++) {
		rrig_crash(r, 0);
		rrig_start(r, 0);
		rrig_do(r, 0, lose_cell, &other);
		(void)fiber_sleep_us(1000000);
		for (uint32_t k = 0; k < N_OF_CELL; k++)
			assert_int_equal(rrig_read(r, 0, ino[k], 0, &value), -LE_CORRUPT);
	}
}

static void run(uint32_t n_nodes, uint64_t seed, void (*fn)(struct rrig *r, void *arg))
{
	struct rrig r;

	rrig_init(&r, n_nodes, seed);
	rrig_run(&r, fn, NULL);
	rrig_fini(&r);
}

static void test_doubt_everywhere(void **state)
{
	(void)state;
	run(3, 31, doubt_everywhere);
}

static void test_doubt_ends(void **state)
{
	(void)state;
	run(2, 11, doubt_ends);
}

static void test_doubt_of_a_removed_one(void **state)
{
	(void)state;
	run(2, 11, doubt_of_a_removed_one);
}

static void test_written_meanwhile(void **state)
{
	(void)state;
	run(2, 13, written_meanwhile);
}

static void test_counted_anew(void **state)
{
	(void)state;
	run(1, 14, counted_anew);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_doubt_everywhere),
		cmocka_unit_test(test_doubt_ends),
		cmocka_unit_test(test_doubt_of_a_removed_one),
		cmocka_unit_test(test_written_meanwhile),
		cmocka_unit_test(test_counted_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
