/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/inflate.h"

#include <string.h>
#include <zlib.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

static uInt step(uint64_t left)
{
	return left > ZLIB_STEP_MAX ? ZLIB_STEP_MAX : (uInt)left;
}

int inflate_raw(const void *packed, uint64_t len, void *ret_raw, uint64_t raw_len)
{
	z_stream z = {.next_in = (Bytef *)packed, .next_out = ret_raw};
	int rc;

	if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
		return -LE_NOMEM;
	do {
		uInt in = step(len), out = step(raw_len);

		z.avail_in = in;
		z.avail_out = out;
		rc = inflate(&z, Z_NO_FLUSH);
		len -= in - z.avail_in;
		raw_len -= out - z.avail_out;
		/* Z_BUF_ERROR ends it too: no further progress is possible. */
	} while (rc == Z_OK);
	inflateEnd(&z);
	return rc == Z_STREAM_END && len == 0 && raw_len == 0 ? 0 : -LE_CORRUPT;
}

#ifdef __x86_64__
/*
 * By carry-less multiplication, at least three times as fast as zlib's tables: V. Gopal et al.,
 * "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), with
 * its constants for this polynomial, bits reflected. Four words of 128 bits are carried over the
 * next 64 bytes each, and folded into one at the end. Its 16 bytes have the same remainder as all
 * bytes folded into them, and zlib sums them and the tail.
 */
#define FOLD_MIN 128u

__attribute__((target("pclmul,sse4.1"))) static __m128i fold(__m128i x, __m128i by, __m128i next)
{
	__m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);

	return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static __m128i words_at(const uint8_t *p)
{
	return _mm_loadu_si128((const __m128i *)p);
}

__attribute__((target("pclmul,sse4.1"))) static uint32_t crc32_folded(const uint8_t *p, size_t len)
{
	const __m128i over_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
	const __m128i over_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
	__m128i a = _mm_xor_si128(words_at(p), _mm_cvtsi32_si128(-1));
	__m128i b = words_at(p + 16), c = words_at(p + 32), d = words_at(p + 48);
	uint8_t left[16];

	for (p += 64, len -= 64; len >= 64; p += 64, len -= 64) {
		a = fold(a, over_64, words_at(p));
		b = fold(b, over_64, words_at(p + 16));
		c = fold(c, over_64, words_at(p + 32));
		d = fold(d, over_64, words_at(p + 48));
	}
	a = fold(fold(fold(a, over_16, b), over_16, c), over_16, d);
	for (; len >= 16; p += 16, len -= 16)
		a = fold(a, over_16, words_at(p));
	memcpy(left, &a, sizeof(left));
	/* zlib inverts the start value: this is a sum of 0. */
	uLong sum = crc32_z(0xffffffff, left, sizeof(left));
	return (uint32_t)crc32_z(sum, p, len);
}
#endif

uint32_t crc32_zip(const void *data, size_t len)
{
#ifdef __x86_64__
	if (len >= FOLD_MIN && __builtin_cpu_supports("pclmul"))
		return crc32_folded(data, len);
#endif
	return (uint32_t)crc32_z(0, data, len);
}
