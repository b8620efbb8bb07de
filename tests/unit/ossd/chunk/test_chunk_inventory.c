/* SPDX-License-Identifier: Apache-2.0 */
/* The inventory: it names a lost chunk where a cell lacks one, and keeps that over restarts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ossd/chunk/chunk_copy.h"
#include "ossd/chunk/chunk_files.h"
#include "ossd/chunk/chunk_inventory.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/store_record.h"
#include "tests/unit/ossd/chunk/store_rig.h"

#define CHAIN 5u

static struct chunk_key key(uint64_t ino)
{
	return (struct chunk_key){CHAIN, {ino}, 1, ino % 7};
}

/* Loads the cells of `before` and finds the rows of all chunks but the n_gone lost ones, as at a
 * start. Returns the number of lost chunks. */
static uint64_t start_without(struct chunk_inventory *l, const struct chunk_inventory *before,
			      uint64_t n, const uint64_t *gone, uint32_t n_gone)
{
	const struct inventory_chain *c =
		container_of(hmap_next(&before->chains, NULL), struct inventory_chain, node);
	struct kv_batch *b = kv_batch_create();
	uint64_t lost;

	inventory_init(l);
	l->began = true;
	assert_int_equal(inventory_need(l, CHAIN), 0);
	for (uint32_t i = 0; i < INVENTORY_CELLS; i++) {
		struct inventory_chain *to =
			container_of(hmap_next(&l->chains, NULL), struct inventory_chain, node);

		to->cells[i] = c->cells[i];
		to->cells[i].lost = c->cells[i].kept;
		to->cells[i].noted_n = c->cells[i].lost.n;
		to->cells[i].noted_hash = c->cells[i].lost.hash;
	}
	for (uint64_t i = 1; i <= n; i++) {
		struct chunk_key k = key(i);
		bool is_gone = false;

		for (uint32_t g = 0; g < n_gone; g++)
			is_gone |= gone[g] == i;
		if (!is_gone)
			assert_int_equal(inventory_found(l, &k), 0);
	}
	lost = inventory_loaded(l, b);
	inventory_begin_uncertain(l, b);
	kv_batch_destroy(b);
	return lost;
}

static void fill(struct chunk_inventory *l, struct kv_batch *b, uint64_t n)
{
	inventory_init(l);
	assert_int_equal(inventory_loaded(l, b), 0);
	assert_int_equal(inventory_need(l, CHAIN), 0);
	for (uint64_t i = 1; i <= n + 20; i++) {
		struct chunk_key k = key(i);

		inventory_add(l, &k, b);
	}
	for (uint64_t i = n + 1; i <= n + 20; i++) {
		struct chunk_key k = key(i);

		inventory_remove(l, &k, b);
	}
}

static uint32_t cell_of(const struct chunk_key *k)
{
	struct kv_batch *b = kv_batch_create();
	struct chunk_inventory l;
	uint32_t i = 0;

	inventory_init(&l);
	assert_int_equal(inventory_need(&l, k->chain), 0);
	inventory_add(&l, k, b);
	while (!container_of(hmap_next(&l.chains, NULL), struct inventory_chain, node)
			->cells[i]
			.kept.n)
		i++;
	inventory_fini(&l);
	kv_batch_destroy(b);
	return i;
}

static enum inventory_answer has(const struct chunk_inventory *l, uint64_t ino)
{
	struct chunk_key k = key(ino);

	return inventory_has(l, &k);
}

static void test_one_is_known_by_name(void **state)
{
	struct kv_batch *b = kv_batch_create();
	struct chunk_key first = {CHAIN, {37}, 1, 0}, last = {CHAIN, {37}, 1, UINT64_MAX}, k;
	const uint64_t gone[] = {37};
	struct chunk_inventory before, l;

	(void)state;
	fill(&before, b, 300);
	assert_int_equal(start_without(&l, &before, 300, gone, 0), 0);
	assert_false(inventory_is_uncertain(&l, CHAIN));
	inventory_fini(&l);
	assert_int_equal(start_without(&l, &before, 300, gone, 1), 1);
	assert_true(inventory_is_uncertain(&l, CHAIN));
	for (uint64_t i = 1; i < 2000; i++)
		assert_int_equal(has(&l, i), i == 37 ? INVENTORY_LOST : INVENTORY_NONE);
	assert_int_equal(inventory_range(&l, &first, &last, &k), INVENTORY_LOST);
	assert_int_equal(k.ino.v, 37);
	first.ino.v = last.ino.v = 38;
	assert_int_equal(inventory_range(&l, &first, &last, &k), INVENTORY_NONE);
	/* other chunks are added and removed */
	for (uint64_t i = 1000; i < 1400; i++) {
		k = key(i);
		inventory_add(&l, &k, b);
	}
	assert_int_equal(has(&l, 37), INVENTORY_LOST);
	k = key(37);
	inventory_add(&l, &k, b); /* it is restored */
	assert_false(inventory_is_uncertain(&l, CHAIN));
	inventory_remove(&l, &k, b);
	for (uint64_t i = 1000; i < 1400; i++) {
		k = key(i);
		inventory_remove(&l, &k, b);
	}
	inventory_fini(&before);
	/* it was removed, and is not missed */
	assert_int_equal(start_without(&before, &l, 300, gone, 1), 0);
	inventory_fini(&before);
	inventory_fini(&l);
	kv_batch_destroy(b);
}

/* So many are lost that cells lack several: where a cell lacks two, each name can be tested; where
 * it lacks more, only names above any that it had are certain not to be lost. */
static void test_many_leave_doubt(void **state)
{
	struct kv_batch *b = kv_batch_create();
	uint32_t n_lost = 0, n_unsure = 0, of_cell[INVENTORY_CELLS] = {0};
	struct chunk_inventory before, l;
	uint64_t gone[200], top[INVENTORY_CELLS] = {0};

	(void)state;
	fill(&before, b, 1000);
	for (uint64_t i = 1; i <= 1020; i++) {
		struct chunk_key k = key(i);

		top[cell_of(&k)] = i;
	}
	for (uint32_t i = 0; i < 200; i++) {
		struct chunk_key k = key(gone[i] = 3 + 5 * i);

		of_cell[cell_of(&k)]++;
	}
	assert_int_equal(start_without(&l, &before, 1000, gone, 200), 200);
	for (uint32_t i = 0; i < 200; i++) {
		struct chunk_key k = key(gone[i]);
		enum inventory_answer answer = has(&l, gone[i]);

		assert_int_equal(answer,
				 of_cell[cell_of(&k)] > 2 ? INVENTORY_UNSURE : INVENTORY_LOST);
		n_lost += answer == INVENTORY_LOST;
		n_unsure += answer == INVENTORY_UNSURE;
	}
	assert_true(n_lost > 50 && n_unsure > 50);
	for (uint64_t i = 1; i < 1500; i++) {
		struct chunk_key k = {CHAIN, {i}, 1, 100};
		bool uncertain = i <= top[cell_of(&k)] && of_cell[cell_of(&k)] > 2;

		assert_int_equal(inventory_has(&l, &k),
				 uncertain ? INVENTORY_UNSURE : INVENTORY_NONE);
	}
	/* No member has them: the cells stay uncertain. */
	inventory_set_whole(&l, CHAIN, true);
	assert_int_equal(inventory_trust_gone(&l, CHAIN, b), 0);
	for (uint32_t i = 0; i < 200; i++)
		assert_int_not_equal(has(&l, gone[i]), INVENTORY_NONE);
	inventory_fini(&before);
	assert_int_equal(start_without(&before, &l, 1000, gone, 200), 200);
	for (uint32_t i = 0; i < 200; i++)
		assert_int_not_equal(has(&before, gone[i]), INVENTORY_NONE);
	inventory_trust(&l, CHAIN, b);
	assert_false(inventory_is_uncertain(&l, CHAIN));
	inventory_fini(&before);
	assert_int_equal(start_without(&before, &l, 1000, gone, 200), 0);
	inventory_fini(&before);
	inventory_fini(&l);
	kv_batch_destroy(b);
}

/* n chunks of one cell, the first of which is `first`. */
static void pick_of_a_cell(uint64_t first, uint64_t *ret_ino, uint32_t n)
{
	struct chunk_key k = key(first);
	uint32_t cell = cell_of(&k), found = 1;

	ret_ino[0] = first;
	for (uint64_t i = first + 1; found < n; i++) {
		k = key(i);
		if (cell_of(&k) == cell)
			ret_ino[found++] = i;
	}
}

static void test_two_in_a_cell_come_back(void **state)
{
	struct kv_batch *b = kv_batch_create();
	struct chunk_inventory before, l;
	uint64_t gone[3];

	(void)state;
	pick_of_a_cell(1, gone, 3);
	fill(&before, b, 1000);
	assert_true(gone[2] <= 1000);
	assert_int_equal(start_without(&l, &before, 1000, gone, 2), 2);
	assert_int_equal(has(&l, gone[2] + 2000), INVENTORY_NONE);
	for (uint32_t i = 0; i < 2; i++) {
		struct chunk_key k = key(gone[i]);

		assert_int_equal(has(&l, gone[i]), INVENTORY_LOST);
		inventory_add(&l, &k, b);
		assert_int_equal(has(&l, gone[i]), INVENTORY_NONE);
	}
	assert_false(inventory_is_uncertain(&l, CHAIN));
	inventory_fini(&before);
	inventory_fini(&l);
	kv_batch_destroy(b);
}

/* An uncertain cell becomes certain when all lost chunks are restored, in any order, with starts in
 * between. If a chunk that was never lost is restored too, the cell stays uncertain. */
static void test_doubts_end(void **state)
{
	struct kv_batch *b = kv_batch_create();
	struct chunk_inventory before, l;
	uint64_t gone[6];

	(void)state;
	pick_of_a_cell(1, gone, 6);
	for (uint32_t strange = 0; strange < 2; strange++) {
		fill(&before, b, 1000);
		assert_true(gone[4] <= 1000);
		assert_int_equal(start_without(&l, &before, 1000, gone, 5), 5);
		for (uint32_t i = 0; i < 5; i++) {
			struct chunk_key k = key(gone[i]);

			assert_int_equal(has(&l, gone[i]),
					 strange || i < 3 ? INVENTORY_UNSURE : INVENTORY_LOST);
			if (strange && i == 2)
				k.idx = 1000;
			while (cell_of(&k) !=
			       cell_of(&(struct chunk_key){CHAIN, {gone[0]}, 1, gone[0] % 7}))
				k.idx++;
			inventory_add(&l, &k, b);
			if (strange)
				continue;
			inventory_fini(&before);
			before = l;
			(void)start_without(&l, &before, 1000, gone + i + 1, 4 - i);
		}
		/* One chunk too many was restored, so one counts as missing: any name of the cell
		 * may be it. */
		if (strange)
			assert_int_equal(has(&l, gone[2]), INVENTORY_UNSURE);
		assert_int_equal(inventory_is_uncertain(&l, CHAIN), strange);
		inventory_fini(&before);
		inventory_fini(&l);
	}
	kv_batch_destroy(b);
}

/* A filled member takes over the uncertain cells of its source. Invalid messages change nothing. */
static void test_doubts_travel(void **state)
{
	struct kv_batch *b = kv_batch_create();
	uint8_t buf[INVENTORY_UNCERTAIN_MAX], bad[INVENTORY_UNCERTAIN_MAX];
	struct chunk_inventory before, l, other;
	uint64_t gone[3];
	uint32_t len;

	(void)state;
	pick_of_a_cell(1, gone, 3);
	fill(&before, b, 1000);
	assert_int_equal(start_without(&l, &before, 1000, gone, 3), 3);
	len = inventory_put_uncertain(&l, CHAIN, buf);
	assert_int_equal(len, INVENTORY_UNCERTAIN_SIZE);
	inventory_init(&other);
	assert_int_equal(inventory_take_uncertain(&other, CHAIN, bytes_of(buf, len), b), 0);
	assert_int_equal(has(&other, gone[1]), INVENTORY_UNSURE);
	for (uint32_t n = 1; n < len; n++)
		assert_int_equal(inventory_take_uncertain(&other, CHAIN, bytes_of(buf, n), b),
				 -LE_BAD_MESSAGE);
	memcpy(bad, buf, len);
	bad[0] = INVENTORY_CELLS;
	assert_int_equal(inventory_take_uncertain(&other, CHAIN, bytes_of(bad, len), b),
			 -LE_BAD_MESSAGE);
	memcpy(bad, buf, len);
	memcpy(bad + len, buf, len); /* one cell twice */
	assert_int_equal(inventory_take_uncertain(&other, CHAIN, bytes_of(bad, 2 * len), b),
			 -LE_BAD_MESSAGE);
	assert_int_equal(has(&other, gone[1]), INVENTORY_UNSURE);
	/* filled again, from a source without uncertain cells */
	assert_int_equal(inventory_take_uncertain(&other, CHAIN, bytes_of(buf, 0), b), 0);
	assert_false(inventory_is_uncertain(&other, CHAIN));
	inventory_fini(&other);
	inventory_fini(&before);
	inventory_fini(&l);
	kv_batch_destroy(b);
}

/* ---- in a store ---- */

static const struct chunk_key LOST = {CHAIN, {11}, 1, 2}, KEPT = {CHAIN, {11}, 1, 3};

static void write_one(struct rig *r, void *key)
{
	static const char text[5000] = "chunk";

	assert_int_equal(rig_write(r, key, 65536, 0, text, sizeof(text), 0), 0);
}

static void write_two(struct rig *r, void *arg)
{
	struct chunk_key lost = LOST, kept = KEPT;

	(void)arg;
	write_one(r, &lost);
	write_one(r, &kept);
}

static void delete_row(struct rig *r, void *arg)
{
	struct chunk_key key = arg ? *(struct chunk_key *)arg : LOST;
	struct kv_batch *b = kv_batch_create();
	uint8_t row[CHUNK_KEY_SIZE];

	chunk_key_encode(ROW_CHUNK, &key, row);
	kv_batch_delete(b, row, sizeof(row));
	assert_int_equal(kv_commit(r->store->kv, b, true), 0);
	kv_batch_destroy(b);
}

static void delete_two(struct rig *r, void *other)
{
	delete_row(r, NULL);
	delete_row(r, other);
}

static void meet_the_loss(struct rig *r, void *arg)
{
	struct chunk_key file = LOST, hole = LOST;
	struct chunk_stat st;
	char buf[5000];
	uint64_t n;

	(void)arg;
	hole.idx = 100;
	assert_int_equal(metric_get(&r->metrics.lost), 1);
	assert_int_equal(rig_read(r, &KEPT, 0, buf, sizeof(buf), true), sizeof(buf));
	assert_int_equal(rig_read(r, &hole, 0, buf, sizeof(buf), true), 0);
	assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), -LE_CORRUPT);
	assert_int_equal(rig_write(r, &LOST, 65536, 100, buf, 100, 0), -LE_CORRUPT);
	assert_int_equal(chunk_stat(r->store, &file, 65536, NULL, &st), -LE_CORRUPT);
	assert_int_equal(st.damaged.idx, LOST.idx);
	/* No other member has it, and the file is removed: then the chunk is not lost. */
	assert_int_equal(chunk_remove_file(r->store, NULL, &file, &n), 0);
	assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), 0);
	assert_int_equal(chunk_stat(r->store, &file, 65536, NULL, &st), 0);
}

static void forget_inventory(struct rig *r, void *arg)
{
	static const uint8_t begin = ROW_INVENTORY, end = ROW_INVENTORY + 1;
	static const uint8_t names = ROW_NAME, names_end = ROW_NAME + 1;
	struct kv_batch *b = kv_batch_create();

	write_two(r, arg);
	kv_batch_delete_range(b, &begin, 1, &end, 1);
	kv_batch_delete_range(b, &names, 1, &names_end, 1);
	kv_batch_delete(b, INVENTORY_BEGAN_KEY, INVENTORY_BEGAN_KEY_SIZE);
	assert_int_equal(kv_commit(r->store->kv, b, true), 0);
	kv_batch_destroy(b);
}

static void nothing(struct rig *r, void *arg)
{
	(void)arg;
	assert_int_equal(metric_get(&r->metrics.lost), 0);
}

static void test_lost_row(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 3);
	rig_run(&r, write_two, NULL);
	rig_run(&r, nothing, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_run(&r, delete_row, NULL);
	assert_int_equal(rig_check(&r, true), 1);
	rig_run(&r, meet_the_loss, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	/* Without the row that marks a store with an inventory, the start counts the present chunks
	 * as all there were, and logs that. */
	rig_run(&r, forget_inventory, NULL);
	assert_int_equal(rig_check(&r, true), 1);
	rig_run(&r, nothing, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_run(&r, delete_row, NULL);
	assert_int_equal(rig_check(&r, true), 1);
	rig_fini(&r);
}

/* ---- two of one cell are lost, at different times ---- */

static struct chunk_key other_of_cell(const struct chunk_key *k)
{
	struct chunk_key other = *k;
	uint32_t cell = cell_of(k);

	do
		other.ino.v++;
	while (cell_of(&other) != cell);
	return other;
}

static void both_are_lost(struct rig *r, void *arg)
{
	const struct chunk_key *other = arg;
	char buf[100];

	assert_int_equal(metric_get(&r->metrics.lost), 2);
	assert_true(inventory_is_uncertain(&r->store->inventory, CHAIN));
	assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), -LE_CORRUPT);
	assert_int_equal(rig_read(r, other, 0, buf, sizeof(buf), true), -LE_CORRUPT);
	assert_int_equal(chunk_store_lost(r->store, &LOST), INVENTORY_LOST);
	assert_int_equal(chunk_store_lost(r->store, other), INVENTORY_LOST);
	assert_int_equal(chunk_store_lost(r->store, &KEPT), INVENTORY_NONE);
}

static void cut_one(struct rig *r, void *arg)
{
	struct chunk_key file = LOST;
	char buf[100];
	uint64_t n;

	(void)arg;
	/* through the middle of it: the remaining bytes are unknown */
	assert_int_equal(chunk_trim_file(r->store, NULL, &file, 65536, 2 * 65536 + 5, &n),
			 -LE_CORRUPT);
	assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), -LE_CORRUPT);
	assert_int_equal(chunk_trim_file(r->store, NULL, &file, 65536, 2 * 65536, &n), 0);
	assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), 0);
	write_one(r, &file);
	assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), sizeof(buf));
}

static void punch_one(struct rig *r, void *arg)
{
	struct chunk_punch p = {*(struct chunk_key *)arg, 65536, 2 * 65536, 65536};
	char buf[100];
	uint64_t n;

	p.off = p.file.idx * p.chunk_size;
	p.len--;
	assert_int_equal(chunk_punch_file(r->store, NULL, &p, &n), -LE_CORRUPT);
	p.len++;
	assert_int_equal(chunk_punch_file(r->store, NULL, &p, &n), 0);
	assert_int_equal(rig_read(r, arg, 0, buf, sizeof(buf), true), 0);
	assert_false(inventory_is_uncertain(&r->store->inventory, CHAIN));
}

/* A chunk that is lost by name stays lost when another one is lost, until it is truncated away or
 * punched. */
static void test_lost_stays_lost(void **state)
{
	struct chunk_key other = other_of_cell(&LOST);
	struct rig r;

	(void)state;
	rig_init(&r, 4);
	rig_run(&r, write_two, NULL);
	rig_run(&r, write_one, &other);
	rig_run(&r, delete_row, NULL);
	rig_run(&r, delete_row, &other); /* the first one is marked as lost by then */
	for (uint32_t i = 0; i < 2; i++)
		rig_run(&r, both_are_lost, &other);
	assert_int_equal(rig_check(&r, true), 2);
	rig_run(&r, cut_one, NULL);
	assert_int_equal(rig_check(&r, true), 1);
	rig_run(&r, punch_one, &other);
	assert_int_equal(rig_check(&r, true), 0);
	rig_run(&r, nothing, NULL);
	rig_fini(&r);
}

/* ---- names ---- */

static void hole_in_that_cell(struct rig *r, void *arg)
{
	struct chunk_key *hole = arg;
	char buf[100];

	assert_int_equal(metric_get(&r->metrics.lost), 2);
	assert_int_equal(rig_read(r, hole, 0, buf, sizeof(buf), true), 0);
	assert_int_equal(chunk_store_lost(r->store, hole), INVENTORY_NONE);
	write_one(r, hole);
	assert_int_equal(rig_read(r, hole, 0, buf, sizeof(buf), true), sizeof(buf));
}

/* Two of one cell are lost together: their names identify them, and another name of the cell is a
 * hole. */
static void test_two_of_a_cell_have_names(void **state)
{
	struct chunk_key other = other_of_cell(&LOST), hole = other_of_cell(&other);
	struct rig r;

	(void)state;
	rig_init(&r, 5);
	rig_run(&r, write_two, NULL);
	rig_run(&r, write_one, &other);
	assert_int_equal(rig_check(&r, true), 0);
	rig_run(&r, delete_two, &other);
	assert_int_equal(rig_check(&r, true), 2);
	rig_run(&r, hole_in_that_cell, &hole);
	rig_run(&r, both_are_lost, &other);
	assert_int_equal(rig_check(&r, true), 2);
	rig_run(&r, cut_one, NULL);
	rig_run(&r, punch_one, &other);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

/* ---- the names are lost too ---- */

static void delete_name(struct rig *r, const struct chunk_key *k)
{
	struct kv_batch *b = kv_batch_create();
	uint8_t row[CHUNK_KEY_SIZE];

	chunk_key_encode(ROW_NAME, k, row);
	kv_batch_delete(b, row, sizeof(row));
	assert_int_equal(kv_commit(r->store->kv, b, true), 0);
	kv_batch_destroy(b);
}

struct of_cell {
	struct chunk_key k[4]; /* of one cell, by ascending inode number */
	uint32_t n_gone;
};

static void write_and_lose(struct rig *r, void *arg)
{
	struct of_cell *o = arg;
	struct chunk_key kept = KEPT;

	write_one(r, &kept);
	for (uint32_t i = 0; i < o->n_gone; i++)
		write_one(r, &o->k[i]);
	for (uint32_t i = 0; i < o->n_gone; i++) {
		delete_row(r, &o->k[i]);
		delete_name(r, &o->k[i]);
	}
}

/* A lost chunk never reads as zeros. A chunk that is certainly not lost reads as a hole. */
static void lost_without_names(struct rig *r, void *arg)
{
	struct of_cell *o = arg;
	struct chunk_key hole = o->k[0], file = o->k[0];
	bool uncertain = o->n_gone > 2;
	struct chunk_stat st;
	char buf[5000];

	for (uint32_t i = 0; i < o->n_gone; i++) {
		assert_int_equal(rig_read(r, &o->k[i], 0, buf, sizeof(buf), true), -LE_CORRUPT);
		assert_int_equal(rig_write(r, &o->k[i], 65536, 0, buf, 100, 0), -LE_CORRUPT);
	}
	/* a hole of an old file in that cell, and one in another cell */
	do
		hole.idx++;
	while (cell_of(&hole) != cell_of(&o->k[0]));
	assert_int_equal(rig_read(r, &hole, 0, buf, sizeof(buf), true),
			 uncertain ? -LE_CORRUPT : 0);
	hole.idx++;
	assert_int_not_equal(cell_of(&hole), cell_of(&o->k[0]));
	assert_int_equal(rig_read(r, &hole, 0, buf, sizeof(buf), true), 0);
	assert_int_equal(rig_read(r, &KEPT, 0, buf, sizeof(buf), true), sizeof(buf));
	inventory_set_whole(&r->store->inventory, CHAIN, false); /* as if a member were away */
	assert_int_equal(chunk_stat(r->store, &file, 65536, NULL, &st), -LE_NOT_READY);
	inventory_set_whole(&r->store->inventory, CHAIN, true);
	assert_int_equal(chunk_stat(r->store, &file, 65536, NULL, &st), -LE_CORRUPT);
	assert_true(st.uncertain);
}

/* A file made later is certain, and so are its holes, also after another start. */
static void later_file(struct rig *r, void *arg)
{
	struct of_cell *o = arg;
	struct chunk_key *file = &o->k[3], hole = *file;
	struct chunk_stat st;
	char buf[5000];

	write_one(r, file);
	assert_int_equal(rig_read(r, file, 0, buf, sizeof(buf), true), sizeof(buf));
	do
		hole.idx++;
	while (cell_of(&hole) != cell_of(file));
	assert_int_equal(rig_read(r, &hole, 0, buf, sizeof(buf), true), 0);
	assert_int_equal(chunk_stat(r->store, file, 65536, NULL, &st), 0);
}

static void remove_old(struct rig *r, void *arg)
{
	struct of_cell *o = arg;
	struct chunk_key file = KEPT;
	char buf[5000];
	uint64_t n;

	inventory_set_whole(&r->store->inventory, CHAIN, true);
	file.idx = 0;
	assert_int_equal(chunk_remove_file(r->store, NULL, &file, &n), 0);
	assert_int_equal(rig_read(r, &o->k[1], 0, buf, sizeof(buf), true), -LE_CORRUPT);
}

/* Two or three chunks of one cell are lost with their names: none is ever read as zeros. */
static void test_several_of_a_cell_without_names(void **state)
{
	(void)state;
	for (uint32_t n = 2; n < 4; n++) {
		struct of_cell o = {.k = {LOST}, .n_gone = n};
		struct rig r;

		for (uint32_t i = 1; i < 4; i++)
			o.k[i] = other_of_cell(&o.k[i - 1]);
		rig_init(&r, 10 + n);
		rig_run(&r, write_and_lose, &o);
		assert_int_equal(rig_check(&r, true), n);
		for (uint32_t i = 0; i < 2; i++) {
			rig_run(&r, lost_without_names, &o);
			rig_run(&r, later_file, &o);
		}
		rig_run(&r, remove_old, &o);
		assert_int_equal(rig_check(&r, true), n);
		rig_fini(&r);
	}
}

/* Restores the chunk, as if it were copied from another member. */
static void come_back(struct rig *r, const struct chunk_key *k)
{
	struct chunk_store *s = r->store;
	struct chunk_record *as = chunk_record_create(&s->cache, 0, 0);
	struct chunk_tx tx;

	assert_non_null(as);
	as->version = 1;
	as->chunk_size = 65536;
	as->block_size = chunk_block_size(65536);
	assert_int_equal(chunk_copy_begin(s, k, as, &tx), 0);
	chunk_tx_join(&tx);
	assert_int_equal(chunk_tx_wait(&tx), 0);
	chunk_record_unref(&s->cache, as);
}

/* Another member has answered that the chunk does not exist. When the others are restored, the
 * inventory names it as lost. The first removal fails and does not wait without end; the next one
 * removes the lost chunk. */
static void none_and_named(struct rig *r, void *arg)
{
	struct of_cell *o = arg;
	struct chunk_key file = o->k[0];
	char buf[100];
	uint64_t n;

	inventory_set_whole(&r->store->inventory, CHAIN, true);
	assert_int_equal(chunk_copy_remove(r->store, &file, NULL, NULL), 1);
	come_back(r, &o->k[1]);
	come_back(r, &o->k[2]);
	assert_int_equal(rig_read(r, &file, 0, buf, sizeof(buf), true), 0);
	assert_int_equal(chunk_trim_file(r->store, NULL, &file, 65536, 65536, &n), -LE_CORRUPT);
	assert_int_equal(chunk_trim_file(r->store, NULL, &file, 65536, 65536, &n), 0);
	assert_int_equal(n, 2); /* and KEPT */
	assert_int_equal(rig_read(r, &file, 0, buf, sizeof(buf), true), 0);
}

static void test_none_and_named(void **state)
{
	struct of_cell o = {.k = {LOST}, .n_gone = 3};
	struct rig r;

	(void)state;
	for (uint32_t i = 1; i < 4; i++)
		o.k[i] = other_of_cell(&o.k[i - 1]);
	rig_init(&r, 14);
	rig_run(&r, write_and_lose, &o);
	rig_run(&r, none_and_named, &o);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

static void without_names(struct rig *r, void *arg)
{
	static const uint8_t names = ROW_NAME, names_end = ROW_NAME + 1;
	struct kv_batch *b = kv_batch_create();

	(void)arg;
	kv_batch_delete_range(b, &names, 1, &names_end, 1);
	kv_batch_put(b, INVENTORY_BEGAN_KEY, INVENTORY_BEGAN_KEY_SIZE, "", 0);
	assert_int_equal(kv_commit(r->store->kv, b, true), 0);
	kv_batch_destroy(b);
}

static void test_an_older_store_gets_names(void **state)
{
	struct chunk_key other = other_of_cell(&LOST);
	struct rig r;

	(void)state;
	rig_init(&r, 6);
	rig_run(&r, write_two, NULL);
	rig_run(&r, write_one, &other);
	rig_run(&r, without_names, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_run(&r, nothing, NULL);
	rig_run(&r, delete_two, &other);
	rig_run(&r, both_are_lost, &other);
	assert_int_equal(rig_check(&r, true), 2);
	rig_fini(&r);
}

/* ---- while the store is in use ---- */

static void vanish_and_read(struct rig *r, void *arg)
{
	struct chunk_key hole = LOST;
	char buf[5000];

	(void)arg;
	hole.idx = 100;
	delete_row(r, NULL);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), -LE_CORRUPT);
		assert_int_equal(rig_write(r, &LOST, 65536, 100, buf, 100, 0), -LE_CORRUPT);
		assert_int_equal(chunk_store_lost(r->store, &LOST), INVENTORY_LOST);
	}
	assert_true(inventory_is_uncertain(&r->store->inventory, CHAIN));
	assert_int_equal(rig_read(r, &hole, 0, buf, sizeof(buf), true), 0);
	assert_int_equal(rig_read(r, &KEPT, 0, buf, sizeof(buf), true), sizeof(buf));
	assert_int_equal(metric_get(&r->metrics.lost), 1);
}

static void vanish_and_stat(struct rig *r, void *arg)
{
	struct chunk_key file = LOST;
	struct chunk_stat st;

	(void)arg;
	delete_row(r, NULL);
	assert_int_equal(chunk_stat(r->store, &file, 65536, NULL, &st), -LE_CORRUPT);
	assert_int_equal(st.damaged.idx, LOST.idx);
}

static void vanish_and_cut(struct rig *r, void *arg)
{
	struct chunk_key file = LOST;
	uint64_t n;

	(void)arg;
	delete_row(r, NULL); /* the truncation removes nothing */
	assert_int_equal(chunk_trim_file(r->store, NULL, &file, 65536, 2 * 65536 + 5, &n),
			 -LE_CORRUPT);
}

static void vanish_and_remove(struct rig *r, void *arg)
{
	struct chunk_key file = LOST;
	char buf[100];
	uint64_t n;

	(void)arg;
	delete_row(r, NULL);
	assert_int_equal(chunk_remove_file(r->store, NULL, &file, &n), 0);
	assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), 0);
	assert_false(inventory_is_uncertain(&r->store->inventory, CHAIN));
}

/* The record is still in memory. */
static void vanish_unnoticed(struct rig *r, void *arg)
{
	struct chunk_key file = LOST;
	struct chunk_stat st;
	char buf[5000];
	uint64_t n;

	(void)arg;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), sizeof(buf));
		delete_row(r, NULL);
		if (i == 0)
			assert_int_equal(chunk_stat(r->store, &file, 65536, NULL, &st), 0);
		else
			assert_int_equal(chunk_trim_file(r->store, NULL, &file, 65536,
							 2 * 65536 + 5, &n),
					 0);
		assert_true(i || (st.n_chunks == 2 && st.size == 3 * 65536 + sizeof(buf)));
		assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true),
				 i ? 5 : sizeof(buf));
	}
	assert_int_equal(metric_get(&r->metrics.lost), 0);
}

static void test_vanished_while_in_use(void **state)
{
	static void (*const how[])(struct rig *r, void *arg) = {vanish_and_read, vanish_and_stat,
								vanish_and_cut};
	struct rig r;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(how); i++) {
		rig_init(&r, 7);
		rig_run(&r, write_two, NULL);
		rig_run(&r, how[i], NULL);
		assert_int_equal(rig_check(&r, true), 1);
		rig_run(&r, meet_the_loss, NULL);
		assert_int_equal(rig_check(&r, true), 0);
		rig_run(&r, nothing, NULL);
		rig_fini(&r);
	}
	rig_init(&r, 8);
	rig_run(&r, write_two, NULL);
	rig_run(&r, vanish_unnoticed, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_run(&r, write_two, NULL);
	rig_run(&r, vanish_and_remove, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_run(&r, nothing, NULL);
	rig_fini(&r);
}

#define N_FILES 40u

static void write_many(struct rig *r, void *arg)
{
	char data[50] = {0};

	(void)arg;
	for (uint64_t ino = 1; ino <= N_FILES; ino++) {
		struct chunk_key k = key(ino);

		assert_int_equal(rig_write(r, &k, 65536, 0, data, sizeof(data), 0), 0);
	}
}

/* Every third file has lost its row, every fifth its name; the records are in memory (read) or
 * not. */
static void vanish_and_remove_many(struct rig *r, void *arg)
{
	struct chunk_key files[N_FILES];
	struct kv_batch *b = kv_batch_create();
	bool *read = arg;
	char buf[50];
	uint64_t n;

	for (uint64_t ino = 1; ino <= N_FILES; ino++) {
		struct chunk_key k = key(ino);
		uint8_t row[CHUNK_KEY_SIZE];

		if (*read)
			assert_int_equal(rig_read(r, &k, 0, buf, sizeof(buf), true), sizeof(buf));
		files[ino - 1] = k;
		files[ino - 1].idx = 0;
		if (ino % 15 == 0 || (ino % 3 && ino % 5))
			continue;
		chunk_key_encode(ino % 3 == 0 ? ROW_CHUNK : ROW_NAME, &k, row);
		kv_batch_delete(b, row, sizeof(row));
	}
	assert_int_equal(kv_commit(r->store->kv, b, true), 0);
	kv_batch_destroy(b);
	assert_int_equal(chunk_remove_files(r->store, NULL, files, N_FILES, &n), 0);
	assert_int_equal(n, N_FILES);
	assert_false(inventory_is_uncertain(&r->store->inventory, CHAIN));
	assert_int_equal(chunk_remove_files(r->store, NULL, files, N_FILES, &n), 0);
	assert_int_equal(n, 0);
}

static void test_many_with_vanished_rows_are_removed(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		bool read = i;
		struct rig r;

		rig_init(&r, 9);
		rig_run(&r, write_many, NULL);
		rig_run(&r, vanish_and_remove_many, &read);
		assert_int_equal(rig_check(&r, true), 0);
		rig_run(&r, nothing, NULL);
		rig_fini(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_is_known_by_name),
		cmocka_unit_test(test_many_leave_doubt),
		cmocka_unit_test(test_two_in_a_cell_come_back),
		cmocka_unit_test(test_doubts_end),
		cmocka_unit_test(test_doubts_travel),
		cmocka_unit_test(test_lost_row),
		cmocka_unit_test(test_lost_stays_lost),
		cmocka_unit_test(test_two_of_a_cell_have_names),
		cmocka_unit_test(test_several_of_a_cell_without_names),
		cmocka_unit_test(test_none_and_named),
		cmocka_unit_test(test_an_older_store_gets_names),
		cmocka_unit_test(test_vanished_while_in_use),
		cmocka_unit_test(test_many_with_vanished_rows_are_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
