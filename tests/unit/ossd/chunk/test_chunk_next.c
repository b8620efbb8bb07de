/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_next never skips a chunk that exists or may be lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "ossd/chunk/chunk_next.h"
#include "tests/unit/ossd/chunk/store_rig.h"

#define CS    65536u
#define CHAIN 5u
#define MANY  60u

static uint64_t next_of(struct rig *r, const struct chunk_key *from, uint64_t last)
{
	uint64_t idx;

	assert_int_equal(chunk_next(r->store, from, last, &idx), 0);
	return idx;
}

static void write_one(struct rig *r, const struct chunk_key *k)
{
	static const char text[100] = "chunk";

	assert_int_equal(rig_write(r, k, CS, 0, text, sizeof(text), 0), 0);
}

static void delete_rows(struct rig *r, const struct chunk_key *k, bool name_too)
{
	struct kv_batch *b = kv_batch_create();
	uint8_t row[CHUNK_KEY_SIZE];

	chunk_key_encode(ROW_CHUNK, k, row);
	kv_batch_delete(b, row, sizeof(row));
	chunk_key_encode(ROW_NAME, k, row);
	if (name_too)
		kv_batch_delete(b, row, sizeof(row));
	assert_int_equal(kv_commit(r->store->kv, b, true), 0);
	kv_batch_destroy(b);
}

/* ---- existing chunks ---- */

static uint64_t place(uint32_t i)
{
	return (uint64_t)i * i * i * 1000003u;
}

/* It returns no chunk of another generation, file or chain. */
static void whole_file(struct rig *r, void *arg)
{
	struct chunk_key k = {CHAIN, {7}, 2, 0}, other;

	(void)arg;
	for (uint32_t i = 0; i < MANY; i++) {
		k.idx = place(i);
		write_one(r, &k);
		other = (struct chunk_key){CHAIN - i % 2, {7 + i % 3}, 1 + i % 2, place(i) + 5};
		if (other.chain != CHAIN || other.ino.v != 7 || other.gen != 2)
			write_one(r, &other);
	}
	for (uint32_t i = 0; i < MANY; i++) {
		uint64_t before = i == 0 ? 0 : place(i - 1) + 1;

		for (uint32_t step = 0; step < 3; step++) {
			k.idx = step == 0   ? before
				: step == 1 ? before + (place(i) - before) / 2
					    : place(i);
			assert_true(next_of(r, &k, place(MANY)) == place(i));
			assert_true(next_of(r, &k, place(i)) == place(i));
			if (k.idx < place(i))
				assert_true(next_of(r, &k, place(i) - 1) == CHUNK_NONE);
		}
	}
	k.idx = place(MANY - 1) + 1;
	assert_true(next_of(r, &k, UINT64_MAX - 1) == CHUNK_NONE);
}

static void test_finds_the_first(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 1);
	rig_run(&r, whole_file, NULL);
	rig_fini(&r);
}

static void bad_ranges(struct rig *r, void *arg)
{
	struct chunk_key k = {CHAIN, {7}, 1, 3};
	uint64_t idx;

	(void)arg;
	assert_int_equal(chunk_next(r->store, &k, 2, &idx), -LE_INVAL);
	assert_int_equal(chunk_next(r->store, &k, UINT64_MAX, &idx), -LE_INVAL);
}

static void test_refuses_ranges_that_are_none(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 2);
	rig_run(&r, bad_ranges, NULL);
	rig_fini(&r);
}

/* ---- chunks that have joined a group ---- */

static void look_before_it_is_durable(void *arg, const struct chunk_key *id)
{
	const struct chunk_key from = {id->chain, id->ino, id->gen, 0};
	struct rig *r = arg;

	assert_true(next_of(r, &from, 1u << 20) == id->idx);
}

static void write_and_look(struct rig *r, void *arg)
{
	const struct chunk_key k = {CHAIN, {7}, 1, 4711};

	(void)arg;
	r->joined = look_before_it_is_durable;
	r->joined_arg = r;
	write_one(r, &k);
}

/* A client may have read the chunk already, though it is not durable yet. */
static void test_what_has_joined_is_there(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 3);
	rig_run(&r, write_and_look, NULL);
	rig_fini(&r);
}

/* ---- lost chunks ---- */

static const struct chunk_key LOST = {CHAIN, {11}, 1, 1000};

static void write_lost(struct rig *r, void *arg)
{
	(void)arg;
	write_one(r, &LOST);
}

static void lose_row(struct rig *r, void *arg)
{
	(void)arg;
	delete_rows(r, &LOST, false);
}

static void lost_is_next(struct rig *r, void *arg)
{
	const struct chunk_key from = {CHAIN, {11}, 1, 1};
	char buf[10];

	(void)arg;
	assert_true(next_of(r, &from, 1u << 30) == LOST.idx);
	assert_int_equal(rig_read(r, &LOST, 0, buf, sizeof(buf), true), -LE_CORRUPT);
}

static void vanish_and_look(struct rig *r, void *arg)
{
	lose_row(r, arg);
	lost_is_next(r, arg);
}

/* The row is lost while the store is in use, or before its start. */
static void test_a_lost_chunk_is_there(void **state)
{
	struct rig r;

	(void)state;
	for (uint32_t in_use = 0; in_use < 2; in_use++) {
		rig_init(&r, 4 + in_use);
		rig_run(&r, write_lost, NULL);
		if (in_use) {
			/* the record is not in memory: the store was just opened */
			rig_run(&r, vanish_and_look, NULL);
		} else {
			rig_run(&r, lose_row, NULL);
			rig_run(&r, lost_is_next, NULL);
		}
		rig_fini(&r);
	}
}

/* Loses so many that some cell lacks three. */
static void lose_many_without_names(struct rig *r, void *arg)
{
	struct chunk_key k = LOST;

	(void)arg;
	for (k.idx = 1000; k.idx < 1100; k.idx++)
		write_one(r, &k);
	for (k.idx = 1000; k.idx < 1100; k.idx++)
		delete_rows(r, &k, true);
}

static void each_doubt_is_met(struct rig *r, void *arg)
{
	struct chunk_key k = LOST;
	uint32_t n_met = 0;

	(void)arg;
	for (k.idx = 0; k.idx < 3000; k.idx++) {
		uint64_t next = next_of(r, &k, 3000);
		char buf[10];

		for (; k.idx < next && k.idx < 3000; k.idx++)
			assert_int_equal(rig_read(r, &k, 0, buf, sizeof(buf), true), 0);
		n_met += k.idx < 3000 && rig_read(r, &k, 0, buf, 10, true) == -LE_CORRUPT;
	}
	assert_in_range(n_met, 100, 2000);
}

static void test_doubts_are_there(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 6);
	rig_run(&r, lose_many_without_names, NULL);
	rig_run(&r, each_doubt_is_met, NULL);
	rig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds_the_first),
		cmocka_unit_test(test_refuses_ranges_that_are_none),
		cmocka_unit_test(test_what_has_joined_is_there),
		cmocka_unit_test(test_a_lost_chunk_is_there),
		cmocka_unit_test(test_doubts_are_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
