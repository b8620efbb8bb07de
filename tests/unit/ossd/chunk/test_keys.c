/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of the index: golden bytes, round trips, their order, and invalid keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/hmap.h"
#include "ossd/chunk/keys.h"

static const struct chunk_key KEY = {0x01020304, {0x1122334455667788}, 9, 3};

static void test_golden_keys(void **state)
{
	static const uint8_t pending[CHUNK_KEY_SIZE] = {
		'P', 1, 2, 3, 4, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
		0,   0, 0, 9, 0, 0,    0,    0,    0,    0,    0,    3,
	};
	static const uint8_t replay[REPLAY_KEY_SIZE] = {
		'R', 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 5,
	};
	static const uint8_t floor_key[CHAIN_KEY_SIZE] = {'F', 0, 0, 1, 2};
	struct replay_key rk = {.chain = 7, .slot = 5, .session = 256};
	uint8_t row[CHUNK_KEY_SIZE], r[REPLAY_KEY_SIZE], f[CHAIN_KEY_SIZE];

	(void)state;
	chunk_key_encode(ROW_PENDING, &KEY, row);
	assert_memory_equal(row, pending, sizeof(row));
	replay_key_encode(&rk, r);
	assert_memory_equal(r, replay, sizeof(r));
	chain_key_encode(ROW_FLOOR, 258, f);
	assert_memory_equal(f, floor_key, sizeof(f));
}

static void test_round_trips(void **state)
{
	struct replay_key rk = {.chain = 7, .slot = 0xfffffffe, .session = 1ULL << 63}, rk2;
	uint8_t row[CHUNK_KEY_SIZE], r[REPLAY_KEY_SIZE], c[CHAIN_KEY_SIZE];
	struct chunk_key k;
	uint32_t chain;

	(void)state;
	chunk_key_encode(ROW_CHANGED, &KEY, row);
	assert_int_equal(chunk_key_decode(ROW_CHANGED, row, sizeof(row), &k), 0);
	assert_true(chunk_key_equal(&k, &KEY));
	assert_int_equal(chunk_key_decode(ROW_PENDING, row, sizeof(row), &k), -LE_CORRUPT_STORE);
	assert_int_equal(chunk_key_decode(ROW_CHANGED, row, sizeof(row) - 1, &k),
			 -LE_CORRUPT_STORE);
	replay_key_encode(&rk, r);
	assert_int_equal(replay_key_decode(r, sizeof(r), &rk2), 0);
	assert_true(rk.chain == rk2.chain && rk.slot == rk2.slot && rk.session == rk2.session);
	assert_int_equal(replay_key_decode(r, sizeof(r) - 4, &rk2), -LE_CORRUPT_STORE);
	chain_key_encode(ROW_LOG, UINT32_MAX, c);
	assert_int_equal(chain_key_decode(ROW_LOG, c, sizeof(c), &chain), 0);
	assert_true(chain == UINT32_MAX);
	assert_int_equal(chain_key_decode(ROW_FLOOR, c, sizeof(c), &chain), -LE_CORRUPT_STORE);
}

/* Walks over a chain or a file are ranges of rows. */
static void test_rows_lie_in_the_order_of_chunks(void **state)
{
	struct chunk_key a = {0}, b;
	uint8_t ra[CHUNK_KEY_SIZE], rb[CHUNK_KEY_SIZE];

	(void)state;
	for (uint64_t i = 1; i < 4000; i++) {
		uint64_t x = hash_u64(i);

		b = (struct chunk_key){x % 3, {x >> 8 & 0x103}, x >> 16 & 1, x >> 24 & 0x1ff};
		chunk_key_encode(ROW_CHUNK, &a, ra);
		chunk_key_encode(ROW_CHUNK, &b, rb);
		int c = memcmp(ra, rb, sizeof(ra)), want = chunk_key_compare(&a, &b);

		assert_true((c < 0) == (want < 0) && (c == 0) == (want == 0));
		assert_true((c == 0) == chunk_key_equal(&a, &b));
		a = b;
	}
}

static void test_values(void **state)
{
	uint8_t log[EPOCH_VALUE_SIZE], version[FLOOR_VALUE_SIZE];
	uint32_t epoch;
	uint64_t v;

	(void)state;
	epoch_value_encode(77, log);
	assert_int_equal(epoch_value_decode(log, sizeof(log), &epoch), 0);
	assert_int_equal(epoch, 77);
	assert_int_equal(epoch_value_decode(log, 3, &epoch), -LE_CORRUPT_STORE);
	floor_value_encode(1ULL << 40, version);
	assert_int_equal(floor_value_decode(version, sizeof(version), &v), 0);
	assert_true(v == 1ULL << 40);
	assert_int_equal(floor_value_decode(version, 4, &v), -LE_CORRUPT_STORE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_keys),
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_rows_lie_in_the_order_of_chunks),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
