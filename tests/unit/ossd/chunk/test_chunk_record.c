/* SPDX-License-Identifier: Apache-2.0 */
/* The record on disk: golden bytes, round trips, and damaged or impossible contents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "ossd/check.h"
#include "ossd/chunk/chunk_record.h"
#include "tests/unit/ossd/chunk/store_rig.h"

#define BS 16384u

static const struct chunk_key ID = {0x0a0b0c0d, {0x1122334455667788}, 9, 3};

static struct chunk_record *record(uint32_t n_blocks)
{
	struct chunk_record *r =
		calloc(1, chunk_record_size(LEAT_BLOCKS_PER_CHUNK_MAX, CHUNK_GAPS_MAX));

	ASSERT(r);
	r->version = 5;
	r->mtime_ns = 1700000000123456789;
	r->chunk_size = 1 << 20;
	r->block_size = BS;
	r->n_blocks = n_blocks;
	r->end = n_blocks * BS;
	return r;
}

static void set_block(struct chunk_record *r, uint32_t i, uint32_t unit, uint32_t len)
{
	r->blocks[i] = (struct chunk_block){.sum = 0x1000 + i,
					    .stored_sum = 0x1000 + i,
					    .unit = unit,
					    .len = len,
					    .stored_len = len};
}

static struct chunk_record *sample(void)
{
	struct chunk_record *r = record(6);

	set_block(r, 0, 100, BS);
	set_block(r, 1, 104, BS);
	set_block(r, 4, 7, BS);
	set_block(r, 5, 3, 100);
	r->end = 5 * BS + 100;
	r->n_gaps = 1;
	chunk_record_gaps(r)[0] = (struct chunk_gap){5 * BS - 32, 5 * BS - 16};
	return r;
}

static void test_golden_bytes(void **state)
{
	static const uint8_t golden[] = {
		0x03, 0x00, 0x06, 0x00, 0x64, 0x40, 0x01, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x40,
		0x00, 0x00, 0x0d, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x15, 0xcd, 0x85, 0x3d, 0xfe, 0x9c, 0x97, 0x17, 0x14, 0x53, 0x30, 0xe8, 0xf5, 0x28,
		0x61, 0xbf, 0x01, 0x00, 0x00, 0x00, 0xe0, 0x3f, 0x01, 0x00, 0xf0, 0x3f, 0x01, 0x00,
		0x02, 0x64, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x01, 0x01, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x07,
		0x00, 0x00, 0x00, 0x04, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x03, 0x00,
		0x00, 0x00, 0x64, 0x00, 0x00, 0x00, 0x05, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	};
	uint8_t buf[CHUNK_RECORD_MAX], key[CHUNK_KEY_SIZE];
	static const uint8_t golden_key[CHUNK_KEY_SIZE] = {
		'K', 0x0a, 0x0b, 0x0c, 0x0d, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
		0,   0,    0,    9,    0,    0,    0,    0,    0,    0,    0,    3,
	};
	struct chunk_record *r = sample();
	struct chunk_key id;

	(void)state;
	assert_int_equal(chunk_record_encode(&ID, r, buf), sizeof(golden) + 8);
	assert_memory_equal(buf, golden, sizeof(golden));
	chunk_key_encode(ROW_CHUNK, &ID, key);
	assert_memory_equal(key, golden_key, sizeof(key));
	assert_int_equal(chunk_key_decode(ROW_CHUNK, key, sizeof(key), &id), 0);
	assert_int_equal(id.chain, ID.chain);
	assert_int_equal(id.ino.v, ID.ino.v);
	assert_int_equal(id.gen, 9);
	assert_int_equal(id.idx, 3);
	assert_int_equal(chunk_key_decode(ROW_CHUNK, key, sizeof(key) - 1, &id), -LE_CORRUPT_STORE);
	free(r);
}

static void assert_same(const struct chunk_record *a, const struct chunk_record *b)
{
	assert_int_equal(a->version, b->version);
	assert_int_equal(a->mtime_ns, b->mtime_ns);
	assert_int_equal(a->end, b->end);
	assert_int_equal(a->chunk_size, b->chunk_size);
	assert_int_equal(a->block_size, b->block_size);
	assert_int_equal(a->n_blocks, b->n_blocks);
	assert_memory_equal(a->blocks, b->blocks, a->n_blocks * sizeof(a->blocks[0]));
	assert_int_equal(a->n_gaps, b->n_gaps);
	assert_memory_equal(chunk_record_gaps(a), chunk_record_gaps(b),
			    a->n_gaps * sizeof(struct chunk_gap));
}

static void test_round_trips(void **state)
{
	struct chunk_record *out = record(0);
	uint8_t buf[CHUNK_RECORD_MAX];
	uint64_t seed = 1;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct chunk_record *r = record(hash_u64(seed++) % 65);
		size_t len;

		r->n_gaps = r->n_blocks > 1 ? hash_u64(seed++) % (CHUNK_GAPS_MAX + 1) : 0;
		for (uint32_t i = 0; i < r->n_gaps; i++)
			chunk_record_gaps(r)[i] = (struct chunk_gap){i * 500, i * 500 + 499};

		for (uint32_t i = 0; i < r->n_blocks; i++) {
			uint64_t x = hash_u64(seed++);

			if (x % 4 == 0)
				continue;
			set_block(r, i, (uint32_t)(x >> 32), x % 4 == 1 ? 1 + (x >> 8) % BS : BS);
			if (x % 4 == 2 && i && r->blocks[i - 1].len)
				r->blocks[i].unit =
					r->blocks[i - 1].unit + block_units(&r->blocks[i - 1]);
			if (x % 32 == 31) {
				r->blocks[i].flags = BLOCK_LZ4;
				r->blocks[i].stored_len = 1 + (x >> 9) % (BS - COMPRESS_UNIT);
				r->blocks[i].stored_sum = x;
			}
		}
		len = chunk_record_encode(&ID, r, buf);
		assert_int_equal(chunk_record_decode(&ID, buf, len, out, r->n_blocks), 0);
		assert_same(r, out);
		if (r->n_blocks)
			assert_int_equal(chunk_record_decode(&ID, buf, len, out, r->n_blocks - 1),
					 -LE_CORRUPT_STORE);
		free(r);
	}
	free(out);
}

static void test_any_damage_is_found(void **state)
{
	struct chunk_record *r = sample(), *out = record(0);
	struct chunk_key other = ID;
	uint8_t buf[CHUNK_RECORD_MAX];
	size_t len = chunk_record_encode(&ID, r, buf);

	(void)state;
	for (size_t i = 0; i < len * 8; i++) {
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
		assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), -LE_CORRUPT_STORE);
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
	for (size_t n = 0; n < len; n++)
		assert_int_equal(chunk_record_decode(&ID, buf, n, out, 256), -LE_CORRUPT_STORE);
	other.idx++;
	assert_int_equal(chunk_record_decode(&other, buf, len, out, 256), -LE_CORRUPT_STORE);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), 0);
	free(r);
	free(out);
}

/* Records that are well-formed and have a right sum, with impossible contents. */
static void test_impossible_contents_are_refused(void **state)
{
	struct chunk_record *r = sample(), *out = record(0);
	uint8_t buf[CHUNK_RECORD_MAX];
	size_t len;

	(void)state;
	r->end = 5 * BS + 99; /* a block after the end */
	len = chunk_record_encode(&ID, r, buf);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), -LE_CORRUPT_STORE);
	r->end = 4 * BS; /* more blocks than the end allows */
	len = chunk_record_encode(&ID, r, buf);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), -LE_CORRUPT_STORE);
	r->end = (1 << 20) + 1;
	len = chunk_record_encode(&ID, r, buf);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), -LE_CORRUPT_STORE);
	r->end = 5 * BS + 100;
	r->n_gaps = 2; /* they touch */
	chunk_record_gaps(r)[1] = (struct chunk_gap){5 * BS - 16, 5 * BS - 8};
	len = chunk_record_encode(&ID, r, buf);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), -LE_CORRUPT_STORE);
	/* after the end */
	chunk_record_gaps(r)[1] = (struct chunk_gap){5 * BS + 16, 5 * BS + 101};
	len = chunk_record_encode(&ID, r, buf);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), -LE_CORRUPT_STORE);
	chunk_record_gaps(r)[1].off = chunk_record_gaps(r)[1].end = 5 * BS + 16; /* empty */
	len = chunk_record_encode(&ID, r, buf);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), -LE_CORRUPT_STORE);
	chunk_record_gaps(r)[1].end++;
	len = chunk_record_encode(&ID, r, buf);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), 0);
	r->chunk_size = 1000;
	len = chunk_record_encode(&ID, r, buf);
	assert_int_equal(chunk_record_decode(&ID, buf, len, out, 256), -LE_CORRUPT_STORE);
	free(r);
	free(out);
}

/* Equal contents have equal sums, wherever the blocks are on disk. */
static void test_content_sum(void **state)
{
	struct chunk_record *r = sample();
	uint64_t sum = chunk_record_sum(r);

	(void)state;
	assert_true(sum == 0xbf6128f5e8305314);
	r->version++;
	r->blocks[0].unit = 900;
	memset(&r->blocks[6], 0, 2 * sizeof(r->blocks[0]));
	r->n_blocks = 8; /* holes after the last block */
	assert_true(chunk_record_sum(r) == sum);
	r->end++;
	assert_true(chunk_record_sum(r) != sum);
	r->end--;
	r->mtime_ns++;
	assert_true(chunk_record_sum(r) != sum);
	r->mtime_ns--;
	r->blocks[5].len++;
	assert_true(chunk_record_sum(r) != sum);
	r->blocks[5].len--;
	r->blocks[4].sum ^= 1;
	assert_true(chunk_record_sum(r) != sum);
	r->blocks[4].sum ^= 1;
	r->blocks[7] = r->blocks[5];
	assert_true(chunk_record_sum(r) != sum);
	free(r);
}

/* ---- the format of the store ---- */

static void write_earlier_format(struct rig *r, void *arg)
{
	struct uuid cluster = {{7, 7}};

	(void)arg;
	r->store->super.format = STORE_FORMAT - 1;
	assert_int_equal(chunk_store_set_owner(r->store, &cluster, 1), 0);
}

static void look_at_store(struct loop *loop, void *arg)
{
	struct rig *r = arg;
	struct chunk_store *s;
	uint64_t problems;

	assert_int_equal(chunk_store_open(loop_env(loop), &r->params, &r->metrics, &s),
			 -LE_STORE_FORMAT);
	assert_int_equal(ossd_check(loop_env(loop), &r->params, false, stderr, &problems),
			 -LE_STORE_FORMAT);
	r->done = true;
}

static bool has_looked(void *arg)
{
	return ((struct rig *)arg)->done;
}

/* A store of another release: opening and checking both fail, and log its format and what to do. */
static void test_earlier_format(void **state)
{
	static struct rig r;
	FILE *out = tmpfile();
	int before = dup(2);
	char said[8192], format[64];
	const char *at;

	(void)state;
	rig_init(&r, 1);
	rig_run(&r, write_earlier_format, NULL);
	assert_true(out != NULL && before >= 0 && dup2(fileno(out), 2) == 2);
	r.done = false;
	assert_int_equal(sim_proc_start(r.proc, look_at_store, &r), 0);
	assert_int_equal(sim_run(r.sim, has_looked, &r, sim_now_us(r.sim) + 60000000), 0);
	dup2(before, 2);
	close(before);
	rewind(out);
	said[fread(said, 1, sizeof(said) - 1, out)] = '\0';
	fclose(out);
	snprintf(format, sizeof(format), "format %u, this one knows %u", STORE_FORMAT - 1,
		 STORE_FORMAT);
	at = said;
	for (uint32_t i = 0; i < 2; i++) {
		at = strstr(at, format);
		assert_non_null(at);
		at = strstr(at, "leat-ossd format");
		assert_non_null(at);
	}
	sim_proc_crash(r.proc);
	rig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_bytes),
		cmocka_unit_test(test_content_sum),
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_any_damage_is_found),
		cmocka_unit_test(test_impossible_contents_are_refused),
		cmocka_unit_test(test_earlier_format),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
