/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define CASTAGNOLI 0x82f63b78u /* reflected */

static uint32_t table[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = c & 1 ? c >> 1 ^ CASTAGNOLI : c >> 1;
		table[i] = c;
	}
}

static uint32_t crc32c_table(const uint8_t *p, size_t len, uint32_t c)
{
	pthread_once(&once, make_table);
	while (len-- > 0)
		c = table[(c ^ *p++) & 255] ^ c >> 8;
	return c;
}

#ifdef __x86_64__
/*
 * The instruction takes three cycles, and another can begin in each. So three parts of the data are
 * summed in parallel. A part contributes to the sum of the whole its sum carried over the bytes
 * after it, as over zeros. That is a linear function of 32 bits: four look-ups, one for each byte.
 */
#define LONG_PART  2048u
#define SHORT_PART 256u

static uint32_t over_long[4][256], over_short[4][256];
static pthread_once_t parts_once = PTHREAD_ONCE_INIT;

__attribute__((target("sse4.2"))) static uint32_t over_zeros(uint32_t c, size_t len)
{
	uint64_t wide = c;

	for (; len >= 8; len -= 8)
		wide = __builtin_ia32_crc32di(wide, 0);
	return (uint32_t)wide;
}

static void make_carry(uint32_t carry[4][256], size_t len)
{
	for (uint32_t k = 0; k < 4; k++) {
		for (uint32_t v = 1; v < 256; v++) {
			uint32_t low = v & (v - 1);

			carry[k][v] = low ? carry[k][low] ^ carry[k][v ^ low]
					  : over_zeros(v << 8 * k, len);
		}
	}
}

static void make_parts(void)
{
	make_carry(over_long, LONG_PART);
	make_carry(over_short, SHORT_PART);
}

static uint32_t carry_over(uint32_t carry[4][256], uint32_t c)
{
	return carry[0][c & 255] ^ carry[1][c >> 8 & 255] ^ carry[2][c >> 16 & 255] ^
	       carry[3][c >> 24];
}

static uint64_t word_at(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, 8);
	return word;
}

/* Sums three parts of len bytes; len is a multiple of 8. */
__attribute__((target("sse4.2"))) static uint32_t three_parts(const uint8_t *p, size_t len,
								uint32_t c,
								uint32_t carry[4][256])
{
	uint64_t x = c, y = 0, z = 0;

	for (const uint8_t *end = p + len; p < end; p += 8) {
		x = __builtin_ia32_crc32di(x, word_at(p));
		y = __builtin_ia32_crc32di(y, word_at(p + len));
		z = __builtin_ia32_crc32di(z, word_at(p + 2 * len));
	}
	return carry_over(carry, carry_over(carry, (uint32_t)x) ^ (uint32_t)y) ^ (uint32_t)z;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(const uint8_t *p, size_t len,
							       uint32_t c)
{
	uint64_t wide;

	if (len >= 3 * SHORT_PART)
		pthread_once(&parts_once, make_parts);
	for (; len >= 3 * LONG_PART; p += 3 * LONG_PART, len -= 3 * LONG_PART)
		c = three_parts(p, LONG_PART, c, over_long);
	for (; len >= 3 * SHORT_PART; p += 3 * SHORT_PART, len -= 3 * SHORT_PART)
		c = three_parts(p, SHORT_PART, c, over_short);
	for (wide = c; len >= 8; p += 8, len -= 8)
		wide = __builtin_ia32_crc32di(wide, word_at(p));
	c = (uint32_t)wide;
	while (len-- > 0)
		c = __builtin_ia32_crc32qi(c, *p++);
	return c;
}
#endif

uint32_t crc32c_more(uint32_t crc, const void *data, size_t len)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2"))
		return ~crc32c_sse(data, len, ~crc);
#endif
	return ~crc32c_table(data, len, ~crc);
}

uint32_t crc32c(const void *data, size_t len)
{
	return crc32c_more(0, data, len);
}
