/* SPDX-License-Identifier: Apache-2.0 */
/* The CRCs of foreign formats: published values, and every length compared with the bitwise
 * definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/crc32c.h"
#include "common/base/inflate.h"

#define ZIP        0xedb88320u /* reflected */
#define CASTAGNOLI 0x82f63b78u
#define LONGEST    20000u

static uint8_t data[LONGEST + 64];

/* Adds one byte; c is the inner state, before the final inversion. */
static uint32_t add_byte(uint32_t polynomial, uint32_t c, uint8_t byte)
{
	c ^= byte;
	for (int bit = 0; bit < 8; bit++)
		c = c & 1 ? c >> 1 ^ polynomial : c >> 1;
	return c;
}

static void known_values(void **state)
{
	(void)state;
	assert_int_equal(crc32c("123456789", 9), 0xe3069283);
	assert_int_equal(crc32_zip("123456789", 9), 0xcbf43926);
	assert_int_equal(crc32c("", 0), 0);
	assert_int_equal(crc32_zip("", 0), 0);
}

/* From an odd address too: the data's first byte moves. */
static void every_length(void **state)
{
	(void)state;
	for (uint32_t shift = 0; shift < 17; shift += 16) {
		uint32_t zip = UINT32_MAX, castagnoli = UINT32_MAX;

		for (uint32_t n = 0; n < LONGEST; n++) {
			/* all short lengths; of the long ones those around the ends of blocks */
			if (n < 3000 || n % 64 < 3 || n % 6144 < 3) {
				assert_int_equal(crc32_zip(data + shift, n), ~zip);
				assert_int_equal(crc32c(data + shift, n), ~castagnoli);
			}
			zip = add_byte(ZIP, zip, data[shift + n]);
			castagnoli = add_byte(CASTAGNOLI, castagnoli, data[shift + n]);
		}
	}
}

/* A CRC that is computed in parts, of any lengths, is equal. */
static void in_parts(void **state)
{
	uint32_t whole = crc32c(data, LONGEST);

	(void)state;
	for (uint32_t first = 0; first < 7000; first += 61) {
		uint32_t crc = crc32c(data, first), at = first;

		for (uint32_t len = 1; at < LONGEST; at += len, len = len * 3 + 1) {
			len = len < LONGEST - at ? len : LONGEST - at;
			crc = crc32c_more(crc, data + at, len);
		}
		assert_int_equal(crc, whole);
		assert_int_equal(crc32c_more(crc, data, 0), whole);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_values),
		cmocka_unit_test(every_length),
		cmocka_unit_test(in_parts),
	};

	for (uint32_t i = 0, x = 7; i < sizeof(data); i++) {
		x = x * 1664525 + 1013904223;
		data[i] = (uint8_t)(x >> 24);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
