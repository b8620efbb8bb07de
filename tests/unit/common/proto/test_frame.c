/* SPDX-License-Identifier: Apache-2.0 */
/* The frame's bytes are frozen; any damage is detected. */
#include "common/proto/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct frame_hdr sample = {
	.type = FRAME_REQUEST, .flags = 1, .op = 0x0110, .id = 0x1122334455667788, .session = 42,
	.slot = 3, .epoch = 7, .seq = 99, .status = -LE_NOENT, .body_len = 5, .bulk_len = 4096,
	.n_desc = 1, .credits = 256, .timeout_ms = 5000, .target = 17, .chain = 19,
};
static const struct frame_desc desc = { 0x0102030405060708, 4096, 0xaabbccdd };

/* Frozen: never change it; append a new one. */
static const char golden[] =
	"4c454154" "02" "01" "1001" "8877665544332211" "2a00000000000000" "03000000" "07000000"
	"6300000000000000" "feffffff" "05000000" "00100000" "0100" "0001" "88130000" "11000000"
	"13000000" "00000000";

static void hex(const uint8_t *p, size_t n, char *out)
{
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static void test_golden_bytes(void **state)
{
	uint8_t out[FRAME_HEADER_SIZE];
	char text[2 * FRAME_HEADER_SIZE + 1];
	(void)state;

	frame_encode(&sample, &desc, "hello", out);
	hex(out, sizeof(out), text);
	assert_memory_equal(text, golden, strlen(golden));
	assert_string_equal(text + strlen(golden), "5d01c4b1fe3f567c");
}

static void test_round_trip(void **state)
{
	uint8_t out[FRAME_HEADER_SIZE];
	struct frame_hdr h;
	(void)state;

	frame_encode(&sample, &desc, "hello", out);
	assert_int_equal(frame_decode(out, &h), 0);
	assert_int_equal(frame_check(out, &h, &desc, "hello"), 0);
	assert_true(h.type == sample.type && h.flags == 1 && h.op == sample.op &&
		    h.id == sample.id);
	assert_true(h.session == 42 && h.slot == 3 && h.epoch == 7 && h.seq == 99);
	assert_true(h.status == -LE_NOENT && h.body_len == 5 && h.bulk_len == 4096);
	assert_true(h.n_desc == 1 && h.credits == 256 && h.timeout_ms == 5000 && h.target == 17 &&
		    h.chain == 19);
	assert_int_equal(frame_check(out, &h, &desc, "hellO"), -LE_BAD_HASH);
}

static void test_every_flipped_bit_is_found(void **state)
{
	uint8_t out[FRAME_HEADER_SIZE];
	struct frame_hdr h;
	(void)state;

	frame_encode(&sample, &desc, "hello", out);
	for (unsigned bit = 0; bit < 8 * FRAME_HEADER_SIZE; bit++) {
		out[bit / 8] ^= (uint8_t)(1u << bit % 8);
		/* With other lengths, body and descriptors would be elsewhere: decode only. */
		if (frame_decode(out, &h) == 0 && h.body_len == 5 && h.n_desc == 1)
			assert_int_equal(frame_check(out, &h, &desc, "hello"), -LE_BAD_HASH);
		out[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void test_limits(void **state)
{
	uint8_t out[FRAME_HEADER_SIZE];
	struct frame_hdr h = { .type = FRAME_REPLY }, r;
	(void)state;

	frame_encode(&h, NULL, NULL, out);
	assert_int_equal(frame_decode(out, &r), 0);
	assert_int_equal(frame_check(out, &r, NULL, NULL), 0);
	memcpy(out + 44, "\1\0\4\0", 4); /* FRAME_BODY_MAX + 1 */
	assert_int_equal(frame_decode(out, &r), -LE_TOO_BIG);
	memcpy(out + 44, "\0\0\0\0\1\0\0\4", 8); /* FRAME_BULK_MAX + 1 */
	assert_int_equal(frame_decode(out, &r), -LE_TOO_BIG);
	frame_encode(&h, NULL, NULL, out);
	out[52] = FRAME_DESCS_MAX + 1;
	assert_int_equal(frame_decode(out, &r), -LE_BAD_FRAME);
	out[52] = 0;
	out[4] = 0;
	assert_int_equal(frame_decode(out, &r), -LE_BAD_FRAME);
	out[4] = FRAME_RELEASED + 1;
	assert_int_equal(frame_decode(out, &r), -LE_BAD_FRAME);
	out[4] = FRAME_REPLY;
	out[0] = 'l';
	assert_int_equal(frame_decode(out, &r), -LE_BAD_FRAME);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_bytes),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_every_flipped_bit_is_found),
		cmocka_unit_test(test_limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
