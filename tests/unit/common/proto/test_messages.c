/* SPDX-License-Identifier: Apache-2.0 */
/* Every message: round trip, every truncation, random bytes; some frozen bytes. */
#include "common/proto/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static uint64_t rng = 88172645463325252ull;
static uint64_t next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	return rng ^= rng << 17;
}

static void hex(const uint8_t *p, size_t n, char *out)
{
	out[0] = 0;
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static void test_table(void **state)
{
	uint32_t n;
	const struct msg_desc *t = msg_table(&n);
	(void)state;

	assert_true(n > 40);
	for (uint32_t i = 0; i < n; i++) {
		assert_ptr_equal(msg_find(t[i].op), &t[i]);
		assert_true(t[i].req_size <= MSG_STRUCT_MAX && t[i].rep_size <= MSG_STRUCT_MAX);
	}
	assert_null(msg_find(0));
	assert_null(msg_find(0xffff));
	assert_string_equal(msg_find(OP_mds_lookup)->name, "mds_lookup");
	assert_int_equal(msg_find(OP_mds_create)->kind, MSG_WRITE);
	assert_int_equal(msg_find(OP_oss_read)->kind, MSG_READ);
	assert_int_equal(OP_cb_map_changed, 0x0181);
}

#define GOLDEN(msg, value, text) \
	do { \
		uint8_t buf_[1024]; \
		char got_[2049]; \
		struct wire_w w_; \
		struct msg m_ = value; \
		wire_w_init(&w_, buf_, sizeof(buf_)); \
		wire_put_##msg(&w_, &m_); \
		assert_int_equal(w_.status, 0); \
		hex(buf_, w_.len, got_); \
		assert_string_equal(got_, text); \
	} while (0)
#define V(...) { __VA_ARGS__ }

/* Frozen: released programs send these bytes. Fields are only appended. */
static void test_golden_bytes(void **state)
{
	(void)state;
	GOLDEN(mds_lookup_req,
	       V(.cred = { 1000, 100, 1, bytes_of("\x0a\0\0\0", 4), 022 }, .parent = { 1 },
		 .name = bytes_str("abc")),
	       "1800" "e8030000" "64000000" "01000000" "04000000" "0a000000" "12000000"
	       "0100000000000000" "03000000" "616263");
	GOLDEN(mds_ping_req, V(.map_epoch = 0x01020304, .ahead_us = -2, .bound_us = 7),
	       "04030201" "feffffffffffffff" "07000000");
	GOLDEN(mds_removexattr_rep, V(), "");
	GOLDEN(mds_export_set_rep, V(.n = 3, .target = 2, .unheard = bytes_of("\x05\0\0\0", 4)),
	       "03000000" "02000000" "04000000" "05000000");
	GOLDEN(mds_peer_rights_req, V(.addr = bytes_str("10.1.2.3:7")),
	       "0a000000" "31302e312e322e333a37");
	GOLDEN(mds_peer_rights_rep, V(.less = PEER_READS_LESS | PEER_WRITES_LESS), "03000000");
	GOLDEN(mds_append_req,
	       V(.ino = { 2 }, .len = 3, .size = 4, .had_end = 5, .had_truncations = 6,
		 .had_there = 7, .had_lost = 1),
	       "0200000000000000" "0300000000000000" "0400000000000000" "0500000000000000"
	       "06000000" "07" "01");
	GOLDEN(mds_fsck_page_req,
	       V(.snapshot = 7, .kind = FSCK_ENTRIES, .from = bytes_of("D\0", 2), .max = 5),
	       "0700000000000000" "02000000" "02000000" "4400" "05000000");
	GOLDEN(oss_read_req,
	       V(.cap = { { 2 }, 3, CAP_READ, 4, 5, -6, 7, 8 }, .chunk = { { 2 }, 3, 9 }, .off = 10,
		 .len = 11, .flags = READ_VERIFY),
	       "3400" "0200000000000000" "03000000" "01000000" "04000000" "0500000000000000"
	       "faffffffffffffff" "0700000000000000" "0800000000000000"
	       "1400" "0200000000000000" "03000000" "0900000000000000"
	       "0a000000" "0b000000" "01000000" "0000000000000000");
	GOLDEN(oss_readv_req, V(.caps = bytes_of("ab", 2), .parts = bytes_of("cde", 3)),
	       "02000000" "6162" "03000000" "636465");
	GOLDEN(readv_part, V(.cap = 1, .idx = 2, .off = 3, .len = 4),
	       "1400" "01000000" "0200000000000000" "03000000" "04000000");
	GOLDEN(readv_result, V(.status = -1, .sent = 2, .n_pieces = 3),
	       "0c00" "ffffffff" "02000000" "03000000");
	GOLDEN(mds_getattr_rep,
	       V(.attr = { .ino = { 1 },
			   .mode = 040755,
			   .nlink = 2,
			   .size = 3,
			   .mtime_ns = -1,
			   .layout = { .width = 4, .chunk_size = 1 << 20 },
			   .project = 9 }),
	       "8200"
	       "0100000000000000"
	       "ed410000"
	       "02000000"
	       "00000000"
	       "00000000"
	       "00000000"
	       "00000000"
	       "0300000000000000"
	       "0000000000000000"
	       "0000000000000000"
	       "ffffffffffffffff"
	       "0000000000000000"
	       "0000000000000000"
	       "0000000000000000"
	       "1800"
	       "00000000"
	       "04000000"
	       "00000000"
	       "00001000"
	       "00"
	       "00"
	       "00"
	       "00"
	       "00000000"
	       "09000000"
	       "00000000"
	       "0000000000000000"
	       "00000000");
}

static void round_trip(void (*put)(struct wire_w *, const void *),
		       void (*get)(struct wire_r *, void *), void (*print)(FILE *, const void *))
{
	static uint8_t junk[600], one[8192], two[8192];
	uint64_t m[MSG_STRUCT_MAX / 8 + 1], again[MSG_STRUCT_MAX / 8 + 1];
	struct wire_w w;
	struct wire_r r;
	FILE *out = fopen("/dev/null", "w");

	for (int i = 0; i < 400; i++) {
		size_t len = next_random() % sizeof(junk);
		/* Small bytes make plausible lengths. */
		for (size_t k = 0; k < len; k++)
			junk[k] = (uint8_t)(next_random() % (i % 2 ? 256 : 3));
		wire_r_init(&r, junk, len);
		get(&r, m);
		print(out, m);
		wire_w_init(&w, one, sizeof(one));
		put(&w, m);
		assert_int_equal(w.status, 0);
		size_t n = w.len;
		wire_r_init(&r, one, n);
		get(&r, again);
		assert_int_equal(r.status, 0);
		wire_w_init(&w, two, sizeof(two));
		put(&w, again);
		assert_int_equal(w.len, n);
		assert_memory_equal(one, two, n);
		/* Truncated anywhere: no read beyond the end (a copy on the heap, for ASan). */
		for (size_t cut = 0; cut < n && i < 3; cut++) {
			uint8_t *copy = malloc(cut + 1);
			memcpy(copy, one, cut);
			wire_r_init(&r, copy, cut);
			get(&r, again);
			assert_true(r.status == 0 || r.status == -LE_BAD_MESSAGE);
			free(copy);
		}
	}
	fclose(out);
}

static void test_round_trip_of_all(void **state)
{
	uint32_t n;
	const struct msg_desc *t = msg_table(&n);
	(void)state;

	for (uint32_t i = 0; i < n; i++) {
		round_trip(t[i].put_req, t[i].get_req, t[i].print_req);
		round_trip(t[i].put_rep, t[i].get_rep, t[i].print_rep);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_golden_bytes),
		cmocka_unit_test(test_round_trip_of_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
