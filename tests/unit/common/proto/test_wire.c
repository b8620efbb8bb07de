/* SPDX-License-Identifier: Apache-2.0 */
/* Cursors: round trips, the append-only rule, truncated and hostile bytes. */
#include "common/proto/wire.h"

#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "common/proto/types.h"

static void test_ints_round_trip(void **state)
{
	uint8_t buf[64];
	struct wire_w w;
	struct wire_r r;
	(void)state;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, &(uint8_t){ 0xfe });
	wire_put_u16(&w, &(uint16_t){ 0x1234 });
	wire_put_u32(&w, &(uint32_t){ 0xdeadbeef });
	wire_put_u64(&w, &(uint64_t){ UINT64_MAX - 1 });
	wire_put_i32(&w, &(int32_t){ INT32_MIN });
	wire_put_i64(&w, &(int64_t){ -2 });
	assert_int_equal(w.status, 0);
	assert_int_equal(w.len, 1 + 2 + 4 + 8 + 4 + 8);
	assert_memory_equal(buf, "\xfe\x34\x12\xef\xbe\xad\xde", 7);

	uint8_t a;
	uint16_t b;
	uint32_t c;
	uint64_t d;
	int32_t e;
	int64_t f;
	wire_r_init(&r, buf, w.len);
	wire_get_u8(&r, &a);
	wire_get_u16(&r, &b);
	wire_get_u32(&r, &c);
	wire_get_u64(&r, &d);
	wire_get_i32(&r, &e);
	wire_get_i64(&r, &f);
	assert_int_equal(a, 0xfe);
	assert_int_equal(b, 0x1234);
	assert_int_equal(c, 0xdeadbeef);
	assert_true(d == UINT64_MAX - 1 && e == INT32_MIN && f == -2);
	assert_true(wire_r_end(&r));
	assert_int_equal(r.status, 0);
}

static void test_missing_field_is_zero_partial_is_error(void **state)
{
	struct wire_r r;
	uint32_t v = 7;
	struct bytes b;
	(void)state;

	wire_r_init(&r, "", 0);
	wire_get_u32(&r, &v);
	wire_get_bytes(&r, &b);
	assert_int_equal(v, 0);
	assert_int_equal(b.len, 0);
	assert_non_null(b.data);
	assert_int_equal(r.status, 0);

	wire_r_init(&r, "\1\2\3", 3);
	wire_get_u32(&r, &v);
	assert_int_equal(r.status, -LE_BAD_MESSAGE);
	uint8_t u8 = 9;
	wire_get_u8(&r, &u8); /* sticky */
	assert_int_equal(u8, 0);

	wire_r_init(&r, NULL, 0);
	wire_get_u32(&r, &v);
	assert_int_equal(r.status, 0);
}

static void test_bytes_longer_than_the_rest(void **state)
{
	struct wire_r r;
	struct bytes b;
	(void)state;

	wire_r_init(&r, "\xff\xff\xff\xff" "abc", 7);
	wire_get_bytes(&r, &b);
	assert_int_equal(r.status, -LE_BAD_MESSAGE);
	assert_int_equal(b.len, 0);
	wire_r_init(&r, "\x04\0\0\0" "abc", 7);
	wire_get_bytes(&r, &b);
	assert_int_equal(r.status, -LE_BAD_MESSAGE);
	wire_r_init(&r, "\x01\0\0\0", 4); /* a length without its bytes */
	wire_get_bytes(&r, &b);
	assert_int_equal(r.status, -LE_BAD_MESSAGE);
	wire_r_init(&r, "\x03\0\0\0" "abc", 7);
	wire_get_bytes(&r, &b);
	assert_int_equal(r.status, 0);
	assert_true(bytes_equal(b, bytes_str("abc")));
}

static void test_writer_full_is_sticky(void **state)
{
	uint8_t buf[6];
	struct wire_w w;
	(void)state;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u32(&w, &(uint32_t){ 1 });
	wire_put_u32(&w, &(uint32_t){ 2 });
	assert_int_equal(w.status, -LE_TOO_BIG);
	wire_put_u8(&w, &(uint8_t){ 2 });
	assert_int_equal(w.len, 4);
}

/* The two sides may have different numbers of fields of a nested struct. */
static void test_nested_struct_grows(void **state)
{
	struct wire_r r;
	struct chunk_id id = { .gen = 9, .idx = 9 };
	uint8_t u8;
	(void)state;

	/* Older sender: only the first field. */
	wire_r_init(&r, "\x08\0" "\5\0\0\0\0\0\0\0" "\x2a", 11);
	wire_get_chunk_id(&r, &id);
	wire_get_u8(&r, &u8);
	assert_int_equal(id.ino.v, 5);
	assert_int_equal(id.gen, 0);
	assert_int_equal(id.idx, 0);
	assert_int_equal(u8, 0x2a);
	/* Newer sender: three more bytes. */
	wire_r_init(&r, "\x17\0" "\5\0\0\0\0\0\0\0" "\6\0\0\0" "\7\0\0\0\0\0\0\0" "xyz" "\x2a", 26);
	wire_get_chunk_id(&r, &id);
	wire_get_u8(&r, &u8);
	assert_int_equal(r.status, 0);
	assert_int_equal(id.gen, 6);
	assert_int_equal(id.idx, 7);
	assert_int_equal(u8, 0x2a);
	/* Longer than the rest, and a field that is truncated. */
	wire_r_init(&r, "\x14\0\5", 3);
	wire_get_chunk_id(&r, &id);
	assert_int_equal(r.status, -LE_BAD_MESSAGE);
	assert_int_equal(id.ino.v, 0);
	wire_r_init(&r, "\x03\0" "abc" "\x2a", 6);
	wire_get_chunk_id(&r, &id);
	assert_int_equal(r.status, -LE_BAD_MESSAGE);
}

static void test_nested_struct_too_long(void **state)
{
	static uint8_t buf[100000], groups[70000];
	struct cred cred = { .groups = bytes_of(groups, sizeof(groups)) };
	struct wire_w w;
	(void)state;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_cred(&w, &cred);
	assert_int_equal(w.status, -LE_TOO_BIG);
}

static void test_piece_golden(void **state)
{
	uint8_t out[PIECE_WIRE_SIZE];
	struct piece p = { 0x4000, 0x2000, 0x1234, PIECE_LZ4, 0x1122334455667788,
			   0xaabbccddeeff0102 }, q;
	(void)state;

	piece_encode(&p, out);
	assert_memory_equal(
		out,
		"\0\x40\0\0\0\x20\0\0\x34\x12\0\0\4\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11"
		"\x02\x01\xff\xee\xdd\xcc\xbb\xaa",
		PIECE_WIRE_SIZE);
	piece_decode(out, &q);
	assert_memory_equal(&p, &q, sizeof(p));
}

static void test_print_escapes(void **state)
{
	char *text = NULL;
	size_t len;
	(void)state;

	FILE *f = open_memstream(&text, &len);
	struct bytes b = bytes_of("a\n\"\xff", 4);
	wire_print_bytes(f, &b);
	fclose(f);
	assert_string_equal(text, "\"a\\x0a\\x22\\xff\"");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ints_round_trip),
		cmocka_unit_test(test_missing_field_is_zero_partial_is_error),
		cmocka_unit_test(test_bytes_longer_than_the_rest),
		cmocka_unit_test(test_writer_full_is_sticky),
		cmocka_unit_test(test_nested_struct_grows),
		cmocka_unit_test(test_nested_struct_too_long),
		cmocka_unit_test(test_piece_golden),
		cmocka_unit_test(test_print_escapes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
