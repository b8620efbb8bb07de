/* SPDX-License-Identifier: Apache-2.0 */
/* Compression of blocks: when it saves space, round trips, and hostile bytes, which must have no
 * effect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/compress.h"

#define BLOCK (16u << 10)

static uint64_t next(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static void fill_text(uint8_t *p, uint32_t len, uint64_t seed)
{
	static const char *const words[] = {"parallel ", "file ", "system ",
					    "chunk ",    "of ",   "the "};

	for (uint32_t at = 0; at < len;) {
		const char *w = words[next(&seed) % 6];
		uint32_t n = (uint32_t)strlen(w);

		n = n < len - at ? n : len - at;
		memcpy(p + at, w, n);
		at += n;
	}
}

static void fill_random(uint8_t *p, uint32_t len, uint64_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)next(&seed);
}

/* Buffers of exactly the promised size, so that a sanitizer finds accesses beyond them. */
static void there_and_back(void **state)
{
	uint8_t *plain = malloc(BLOCK), *packed = malloc(BLOCK - COMPRESS_UNIT);
	uint32_t n;

	(void)state;
	fill_text(plain, BLOCK, 5);
	n = compress_block(plain, BLOCK, packed);
	assert_in_range(n, 1, BLOCK - COMPRESS_UNIT);
	for (uint32_t i = n; i < compress_space(n); i++)
		assert_int_equal(packed[i], 0);
	for (uint32_t len = BLOCK; len > 0; len = len * 2 / 3) {
		uint8_t *got = malloc(len), *exact = malloc(n);

		memcpy(exact, packed, n);
		assert_int_equal(decompress_block(exact, n, got, len), 0);
		assert_memory_equal(got, plain, len);
		free(got);
		free(exact);
	}
	free(plain);
	free(packed);
}

static void pays_only_for_a_unit(void **state)
{
	uint8_t *plain = malloc(BLOCK), *packed = malloc(BLOCK - COMPRESS_UNIT);

	(void)state;
	fill_random(plain, BLOCK, 5);
	assert_int_equal(compress_block(plain, BLOCK, packed), 0);
	/* Less than a unit saved counts as nothing saved. */
	memset(plain, 0, COMPRESS_UNIT / 2);
	assert_int_equal(compress_block(plain, BLOCK, packed), 0);
	memset(plain, 0, 2 * COMPRESS_UNIT);
	assert_in_range(compress_block(plain, BLOCK, packed), 1, BLOCK - COMPRESS_UNIT);
	assert_int_equal(compress_block(plain, COMPRESS_UNIT, packed), 0);
	free(plain);
	free(packed);
}

static void more_than_there_is(void **state)
{
	uint8_t *plain = calloc(1, BLOCK), *packed = malloc(BLOCK), *got = malloc(2 * BLOCK);
	uint32_t n = compress_block(plain, BLOCK, packed);

	(void)state;
	assert_int_not_equal(n, 0);
	assert_int_equal(decompress_block(packed, n, got, BLOCK + 1), -LE_CORRUPT);
	assert_int_equal(decompress_block(packed, n - 8, got, BLOCK), -LE_CORRUPT);
	assert_int_equal(decompress_block(packed, 0, got, BLOCK), -LE_CORRUPT);
	assert_int_equal(decompress_block(packed, n, got, 0), -LE_CORRUPT);
	free(plain);
	free(packed);
	free(got);
}

/* Damaged and invented input never accesses memory beyond its bounds (for the sanitizers). */
static void hostile(void **state)
{
	uint8_t *plain = malloc(BLOCK), *packed = malloc(BLOCK), *got = malloc(BLOCK);
	uint64_t seed = 77;
	uint32_t n, refused = 0;

	(void)state;
	fill_text(plain, BLOCK, 9);
	n = compress_block(plain, BLOCK, packed);
	for (uint32_t round = 0; round < 4000; round++) {
		uint32_t len = 1 + (uint32_t)(next(&seed) % n);
		uint8_t *bad = malloc(len);

		if (round % 2)
			fill_random(bad, len, seed);
		else
			memcpy(bad, packed, len);
		bad[next(&seed) % len] ^= (uint8_t)(1 + next(&seed) % 255);
		refused += decompress_block(bad, len, got, BLOCK) < 0;
		free(bad);
	}
	assert_in_range(refused, 2000, 4000);
	free(plain);
	free(packed);
	free(got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(pays_only_for_a_unit),
		cmocka_unit_test(more_than_there_is),
		cmocka_unit_test(hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
