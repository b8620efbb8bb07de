/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed blocks in the chunk store: beside raw ones, read and changed in parts, truncated,
 * punched, damaged, and from hostile writers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/checksum.h"
#include "common/base/log.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"
#include "ossd/chunk/store_record.h"
#include "tests/lib/sealed.h"
#include "tests/unit/ossd/chunk/store_rig.h"

#define CS (256u << 10)
#define BS 16384u

static const struct chunk_key ID = {1, {5}, 1, 0};
static uint8_t want[CS], got[CS];

static void run_fresh(void (*fn)(struct rig *r, void *arg))
{
	struct rig r;

	memset(want, 0, sizeof(want));
	rig_init(&r, 1);
	r.pack = true;
	rig_run(&r, fn, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

static void put(struct rig *r, uint32_t off, uint32_t len)
{
	assert_int_equal(rig_write(r, &ID, CS, off, want + off, len, 0), 0);
}

static void see(struct rig *r, uint32_t off, uint32_t len)
{
	for (int verify = 0; verify < 2; verify++) {
		assert_int_equal(rig_read(r, &ID, off, got, len, verify), len);
		assert_memory_equal(got, want + off, len);
	}
}

static struct chunk_record *record(struct rig *r)
{
	struct chunk_record *rec;

	assert_int_equal(chunk_store_record(r->store, &ID, &rec), 0);
	chunk_record_unref(&r->store->cache, rec); /* the cache has it */
	return rec;
}

static uint32_t units(struct rig *r, uint32_t block)
{
	return block_units(&record(r)->blocks[block]);
}

static bool packed(struct rig *r, uint32_t block)
{
	return record(r)->blocks[block].flags == BLOCK_LZ4;
}

/* Blocks 0, 1, 4.. of words, 2 of noise, 3 a hole. */
static void mixed(struct rig *r, void *arg)
{
	(void)arg;
	fill_words(want, CS, 1);
	fill_noise(want + 2 * BS, BS, 2);
	memset(want + 3 * BS, 0, BS);
	put(r, 0, 3 * BS);
	put(r, 4 * BS, CS - 4 * BS);
	assert_true(packed(r, 0) && packed(r, 1) && packed(r, 4));
	assert_false(packed(r, 2));
	assert_int_equal(units(r, 2), 4);
	assert_true(units(r, 0) < 4);
	assert_true(chunk_record_used(record(r)) < CS / 4 * 3);
	see(r, 0, CS);
	assert_int_equal(metric_get(&r->metrics.unpacks), 0);
	see(r, BS, 3 * BS);
	see(r, 100, CS - 200);
	see(r, BS - 1, 2);
	see(r, 4 * BS + 5, 100);
	see(r, BS / 2, 3 * BS);
	assert_int_not_equal(metric_get(&r->metrics.unpacks), 0);
}

static void test_mixed(void **state)
{
	(void)state;
	run_fresh(mixed);
}

static void parts(struct rig *r, void *arg)
{
	uint64_t used;

	(void)arg;
	fill_words(want, CS, 1);
	put(r, 0, CS);
	used = chunk_record_used(record(r));
	/* Words into words: the block is compressed again. */
	fill_words(want + 100, 300, 2);
	put(r, 100, 300);
	assert_true(packed(r, 0));
	/* Across a boundary. */
	fill_words(want + 2 * BS - 50, 100, 3);
	put(r, 2 * BS - 50, 100);
	assert_true(packed(r, 1) && packed(r, 2));
	assert_int_equal(chunk_record_used(record(r)), used);
	/* Noise: the block grows, and is stored raw when compression saves no unit. */
	fill_noise(want + 5 * BS + 10, BS - 20, 4);
	put(r, 5 * BS + 10, BS - 20);
	assert_false(packed(r, 5));
	fill_noise(want + 6 * BS, BS / 2, 4);
	put(r, 6 * BS, BS / 2);
	assert_true(packed(r, 6) && units(r, 6) == 3);
	see(r, 0, CS);
	/* A raw block is overwritten by words, piece by piece. */
	fill_words(want + 5 * BS, BS, 5);
	for (uint32_t i = 0; i < 8; i++)
		put(r, 5 * BS + i * (BS / 8), BS / 8);
	assert_true(packed(r, 5));
	see(r, 0, CS);
}

static void test_parts_are_merged(void **state)
{
	(void)state;
	run_fresh(parts);
}

/* A writer that syncs after every few bytes gets its full blocks compressed too. */
static void appends(struct rig *r, void *arg)
{
	(void)arg;
	fill_words(want, 3 * BS, 1);
	for (uint32_t at = 0; at < 3 * BS; at += 3000)
		put(r, at, 3 * BS - at < 3000 ? 3 * BS - at : 3000);
	assert_true(packed(r, 0) && packed(r, 1) && packed(r, 2));
	see(r, 0, 3 * BS);
	/* A file that is not to be compressed gets raw blocks; its compressed ones stay
	 * compressed. */
	r->pack = false;
	fill_words(want + 3 * BS, BS, 2);
	put(r, 3 * BS, BS);
	assert_false(packed(r, 3));
	fill_words(want + 10, 10, 3);
	fill_words(want + 3 * BS + 10, 10, 3);
	put(r, 10, 10);
	put(r, 3 * BS + 10, 10);
	assert_true(packed(r, 0));
	assert_false(packed(r, 3));
	see(r, 0, 4 * BS);
}

static void test_appends(void **state)
{
	(void)state;
	run_fresh(appends);
}

static void trim(struct rig *r, uint32_t end)
{
	struct chunk_tx tx;

	assert_int_equal(chunk_trim_begin(r->store, &ID, end, &tx), 0);
	assert_true(tx.changes);
	chunk_tx_join(&tx);
	assert_int_equal(chunk_tx_wait(&tx), 0);
	memset(want + end, 0, CS - end);
}

static void punch(struct rig *r, uint32_t off, uint32_t len)
{
	struct chunk_tx tx;

	assert_int_equal(chunk_punch_begin(r->store, &ID, off, len, &tx), 0);
	assert_true(tx.changes);
	chunk_tx_join(&tx);
	assert_int_equal(chunk_tx_wait(&tx), 0);
	memset(want + off, 0, len);
}

static void cuts(struct rig *r, void *arg)
{
	(void)arg;
	fill_words(want, CS, 1);
	put(r, 0, CS);
	/* The middle of a block: it keeps its extent; bytes after the new end are not readable. */
	trim(r, 7 * BS + 1000);
	assert_true(packed(r, 7));
	assert_int_equal(record(r)->blocks[7].len, 1000);
	see(r, 0, 7 * BS + 1000);
	trim(r, 7 * BS + 1);
	see(r, 6 * BS, BS + 1);
}

static void after_cuts(struct rig *r, void *arg)
{
	(void)arg;
	see(r, 0, 7 * BS + 1);
	/* A write after the end does not make the old bytes readable again. */
	fill_words(want + 7 * BS + 5000, 10, 9);
	put(r, 7 * BS + 5000, 10);
	see(r, 0, 7 * BS + 5010);
	fill_words(want + 9 * BS, BS, 9);
	put(r, 9 * BS, BS);
	see(r, 0, 10 * BS);
	/* Punches the middle, the end, the beginning, and all of a block. */
	punch(r, 100, 5000);
	assert_true(packed(r, 0));
	punch(r, BS + 3000, BS);
	assert_int_equal(record(r)->blocks[1].len, 3000);
	punch(r, 3 * BS - 10, 2 * BS);
	punch(r, 5 * BS, BS);
	assert_int_equal(record(r)->blocks[5].len, 0);
	see(r, 0, 10 * BS);
	see(r, 50, 5 * BS);
	trim(r, 9 * BS + 77);
	fill_noise(want + 9 * BS, BS, 3);
	put(r, 9 * BS, BS);
	see(r, 0, 10 * BS);
}

/* With a start in between, so that the records are read from disk. */
static void test_cuts_and_punches(void **state)
{
	struct rig r;

	(void)state;
	memset(want, 0, sizeof(want));
	rig_init(&r, 2);
	r.pack = true;
	rig_run(&r, cuts, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_run(&r, after_cuts, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

/* ---- damage ---- */

static void write_one(struct rig *r, void *arg)
{
	(void)arg;
	fill_words(want, 2 * BS, 1);
	put(r, 0, 2 * BS);
	assert_true(packed(r, 0));
	assert_int_equal(record(r)->blocks[0].unit, 0);
}

static void read_damaged(struct rig *r, void *arg)
{
	(void)arg;
	assert_int_equal(rig_read(r, &ID, 0, got, BS, true), -LE_CORRUPT);
	assert_int_equal(rig_read(r, &ID, 5, got, 10, false), -LE_CORRUPT);
	assert_int_equal(rig_write(r, &ID, CS, 5, want, 10, 0), -LE_CORRUPT);
	assert_int_equal(rig_read(r, &ID, BS, got, BS, true), BS);
	/* A write of the whole block repairs it. */
	put(r, 0, BS);
	see(r, 0, 2 * BS);
}

static void test_damage_is_found(void **state)
{
	struct rig r;

	(void)state;
	memset(want, 0, sizeof(want));
	rig_init(&r, 3);
	r.pack = true;
	rig_run(&r, write_one, NULL);
	assert_int_equal(sim_proc_corrupt(r.proc, RIG_DIR "/data", 0, 1000), 0);
	assert_int_equal(rig_check(&r, true), 1);
	rig_run(&r, read_damaged, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

/* ---- hostile writers ---- */

static int write_piece(struct rig *r, const struct piece *p, uint32_t bulk_len, uint8_t value)
{
	uint8_t pieces[PIECE_WIRE_SIZE];
	struct slot_vec v = {.len = bulk_len};
	struct chunk_write w = {.id = ID,
				.chunk_size = CS,
				.off = p->off,
				.len = p->len,
				.bulk = &v,
				.n_bulk = 1,
				.pieces = bytes_of(pieces, sizeof(pieces))};
	struct chunk_tx tx;
	int rc;

	assert_int_equal(slot_get(r->pool, NO_DEADLINE, &v.slot), 0);
	memset(v.slot->data, value, bulk_len);
	piece_encode(p, pieces);
	rc = chunk_write_begin(r->store, &w, &tx);
	if (rc == 0) {
		chunk_tx_join(&tx);
		rc = chunk_tx_wait(&tx);
	}
	slot_unref(v.slot);
	return rc;
}

static void hostile(struct rig *r, void *arg)
{
	uint8_t garbage[5000];
	struct piece good = {0, BS, 5000, PIECE_LZ4, 1, 0}, p;

	(void)arg;
	memset(garbage, 0xfe, sizeof(garbage));
	good.stored_sum = checksum64(garbage, sizeof(garbage));
	p = good;
	p.stored_len = 0;
	assert_int_equal(write_piece(r, &p, 0, 0xfe), -LE_INVAL);
	p.stored_len = BS - UNIT_SIZE + 1; /* saves nothing */
	assert_int_equal(write_piece(r, &p, BS, 0xfe), -LE_INVAL);
	p.stored_len = UINT32_MAX;
	assert_int_equal(write_piece(r, &p, 8192, 0xfe), -LE_INVAL);
	assert_int_equal(write_piece(r, &p, 0, 0xfe), -LE_INVAL);
	p = good;
	p.off = 4096;
	assert_int_equal(write_piece(r, &p, 8192, 0xfe), -LE_INVAL);
	p = good;
	p.len = BS - 1;
	assert_int_equal(write_piece(r, &p, 8192, 0xfe), -LE_INVAL);
	p.len = 2 * BS;
	assert_int_equal(write_piece(r, &p, 8192, 0xfe), -LE_INVAL);
	p = good;
	p.flags |= PIECE_FRAGMENT;
	assert_int_equal(write_piece(r, &p, 8192, 0xfe), -LE_INVAL);
	p.flags = PIECE_LZ4 | PIECE_HOLE;
	assert_int_equal(write_piece(r, &p, 8192, 0xfe), -LE_INVAL);
	/* bulk_len differs from the length that the piece states. */
	assert_int_equal(write_piece(r, &good, 5000, 0xfe), -LE_INVAL);
	assert_int_equal(write_piece(r, &good, 4096, 0xfe), -LE_INVAL);
	assert_int_equal(write_piece(r, &good, 12288, 0xfe), -LE_INVAL);
	assert_int_equal(write_piece(r, &good, 8192, 0xfd), -LE_CORRUPT_WIRE);
	/* A writer that seals garbage with the right sum affects only its own file: reads, and
	 * writes of parts of the block, fail. */
	assert_int_equal(write_piece(r, &good, 8192, 0xfe), 0);
	assert_int_equal(rig_read(r, &ID, 1, got, 10, false), -LE_CORRUPT);
	assert_int_equal(rig_write(r, &ID, CS, 1, want, 10, 0), -LE_CORRUPT);
	put(r, 0, BS);
	see(r, 0, BS);
}

static void test_hostile(void **state)
{
	(void)state;
	run_fresh(hostile);
}

/* The largest blocks: 256 KiB, in chunks of 64 MiB. */
static void large_blocks(struct rig *r, void *arg)
{
	uint32_t cs = LEAT_CHUNK_SIZE_MAX, bs = LEAT_BLOCK_SIZE_MAX, len = 3 * bs;
	uint8_t *data = calloc(1, len), *back = malloc(len);

	(void)arg;
	fill_words(data, len, 1);
	fill_noise(data + bs, bs, 1);
	for (uint32_t off = 0; off < len; off += bs)
		assert_int_equal(rig_write(r, &ID, cs, off, data + off, bs, 0), 0);
	fill_words(data + bs - 1000, 2000, 2);
	assert_int_equal(rig_write(r, &ID, cs, bs - 1000, data + bs - 1000, 2000, 100), 0);
	fill_words(data + 1000, 2 * bs, 3);
	assert_int_equal(rig_write(r, &ID, cs, 1000, data + 1000, 2 * bs, 0), 0);
	assert_int_equal(rig_read(r, &ID, 0, back, len, false), len);
	assert_memory_equal(back, data, len);
	assert_int_equal(rig_read(r, &ID, 777, back, 2 * bs, true), 2 * bs);
	assert_memory_equal(back, data + 777, 2 * bs);
	assert_true(chunk_record_used(record(r)) < len * 2 / 3);
	free(data);
	free(back);
}

static void test_large_blocks(void **state)
{
	(void)state;
	run_fresh(large_blocks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixed),           cmocka_unit_test(test_parts_are_merged),
		cmocka_unit_test(test_appends),         cmocka_unit_test(test_cuts_and_punches),
		cmocka_unit_test(test_damage_is_found), cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_large_blocks),
	};

	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
