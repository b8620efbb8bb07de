/* SPDX-License-Identifier: Apache-2.0 */
/* Streams from other compressors, in pieces of all sizes, damaged, truncated, and concatenated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lz4frame.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "common/base/decompress.h"

#define SIZE 300000u

static uint8_t plain[SIZE], packed[2 * SIZE + 4096], got[SIZE + 1];

static void fill(void)
{
	uint64_t seed = 7;
	for (size_t i = 0; i < SIZE; i++) {
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		plain[i] = i % 5000 < 2500 ? (uint8_t)(seed >> 60) : (uint8_t)(seed >> 33);
	}
}

static size_t pack_gzip(uint8_t *to, size_t space, const void *from, size_t len)
{
	z_stream z = {.next_in = (Bytef *)(uintptr_t)from,
		      .avail_in = (uInt)len,
		      .next_out = to,
		      .avail_out = (uInt)space};
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return space - z.avail_out;
}

static size_t pack(enum decompress_kind kind, uint8_t *to, size_t space, const void *from,
		   size_t len)
{
	static const LZ4F_preferences_t with_sum = {
		.frameInfo = {.contentChecksumFlag = LZ4F_contentChecksumEnabled}};
	if (kind == DECOMPRESS_GZIP)
		return pack_gzip(to, space, from, len);
	if (kind == DECOMPRESS_LZ4)
		return LZ4F_compressFrame(to, space, from, len, &with_sum);
	ZSTD_CCtx *c = ZSTD_createCCtx();
	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
	size_t n = ZSTD_compress2(c, to, space, from, len);
	ZSTD_freeCCtx(c);
	return n;
}

/* Decompresses all of it, with `in` bytes of input and `out` bytes of space at a time. Returns the
 * number of bytes in got; -1: the stream was incomplete; or a status. */
static int64_t unpack(enum decompress_kind kind, size_t len, size_t in, size_t out)
{
	struct decompress *d;
	size_t at = 0, n = 0;
	int rc = decompress_create(kind, &d);
	assert_int_equal(rc, 0);
	for (;;) {
		size_t take = len - at < in ? len - at : in, space = SIZE + 1 - n;
		if (space > out)
			space = out;
		size_t offered = take;
		rc = decompress_some(d, packed + at, &take, got + n, &space);
		if (rc < 0)
			break;
		assert_true(take <= offered && n + space <= SIZE + 1);
		at += take;
		n += space;
		if (!take && !space)
			break;
	}
	int64_t ret = rc < 0 ? rc : at == len && decompress_is_whole(d) ? (int64_t)n : -1;
	decompress_destroy(d);
	return ret;
}

static void what_was_packed_comes_out(void **state)
{
	static const size_t steps[][2] = {{SIZE * 2, SIZE + 1}, {1, SIZE}, {4096, 7}, {100, 65536}};
	(void)state;
	for (int kind = DECOMPRESS_GZIP; kind <= DECOMPRESS_LZ4; kind++) {
		size_t a = pack(kind, packed, sizeof(packed), plain, SIZE / 2);
		size_t b = pack(kind, packed + a, sizeof(packed) - a, plain + SIZE / 2, SIZE / 2);
		for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
			memset(got, 0, sizeof(got));
			/* Two concatenated streams are one. */
			assert_int_equal(unpack(kind, a + b, steps[i][0], steps[i][1]), SIZE);
			assert_memory_equal(got, plain, SIZE);
		}
		assert_int_equal(unpack(kind, a, 5000, 5000), SIZE / 2);
	}
}

static void damage_is_found(void **state)
{
	(void)state;
	for (int kind = DECOMPRESS_GZIP; kind <= DECOMPRESS_LZ4; kind++) {
		size_t n = pack(kind, packed, sizeof(packed), plain, SIZE);
		for (size_t cut = 1; cut < n; cut += n / 50)
			assert_int_equal(unpack(kind, cut, 4096, 4096), -1);
		for (size_t at = 20; at < n; at += n / 100) {
			packed[at] ^= 16;
			int64_t rc = unpack(kind, n, 4096, 65536);
			assert_true(rc < 0);
			packed[at] ^= 16;
		}
		memset(packed + n, 'x', 100);
		assert_int_equal(unpack(kind, n + 100, 4096, 65536), -LE_CORRUPT);
	}
}

/* A header that requests 2 GiB of memory. */
static void a_window_that_is_too_large(void **state)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	(void)state;
	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 31);
	ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
	ZSTD_outBuffer to = {packed, sizeof(packed), 0};
	ZSTD_inBuffer from = {plain, SIZE, 0};
	size_t rc = ZSTD_compressStream2(c, &to, &from, ZSTD_e_continue);
	while (!ZSTD_isError(rc) && rc != 0)
		rc = ZSTD_compressStream2(c, &to, &from, ZSTD_e_end);
	ZSTD_freeCCtx(c);
	assert_false(ZSTD_isError(rc));
	assert_int_equal(unpack(DECOMPRESS_ZSTD, to.pos, 65536, 65536), -LE_NOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_packed_comes_out),
		cmocka_unit_test(damage_is_found),
		cmocka_unit_test(a_window_that_is_too_large),
	};
	fill();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
