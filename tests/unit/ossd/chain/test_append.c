/* SPDX-License-Identifier: Apache-2.0 */
/* Appends are written at their append reservations, but never over bytes that another client has
 * written. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/checksum.h"
#include "tests/unit/ossd/chain/chain_rig.h"

static const struct chunk_id one = {{5}, 1, 0};
static uint64_t seq;

static int put(struct chain_rig *r, uint32_t off, uint32_t len, const void *data, uint32_t flags)
{
	struct crig_write w = {one, off, len, data, .session = 8, .seq = ++seq, .flags = flags};

	return crig_write(r, 0, &w, 20000);
}

static int place(struct chain_rig *r, uint32_t off, uint32_t len, const void *data)
{
	return put(r, off, len, data, WRITE_RESERVED);
}

static void same_everywhere(struct chain_rig *r, const uint8_t *want, uint32_t len)
{
	static uint8_t got[RIG_CS];

	for (uint32_t i = 0; i < r->n; i++) {
		assert_int_equal(crig_read_any(r, i, &one, got), len);
		assert_memory_equal(got, want, len);
	}
	crig_check_equal(r);
}

/* Parts of blocks. */
static void fragments(struct chain_rig *r)
{
	static uint8_t a[1000], b[1000], want[RIG_CS];
	uint8_t other;

	crig_fill(a, sizeof(a), 1);
	crig_fill(b, sizeof(b), 2);
	/* The later range is written first. */
	assert_int_equal(place(r, 3000, 1000, b), 0);
	assert_int_equal(place(r, 2000, 1000, a), 0);
	memcpy(want + 2000, a, 1000);
	memcpy(want + 3000, b, 1000);
	same_everywhere(r, want, 4000);
	/* A repetition, as by a session that follows one that has ended. */
	assert_int_equal(place(r, 2000, 1000, a), 0);
	/* Another client has changed one byte of the range since. */
	other = a[500] ^ 1;
	assert_int_equal(put(r, 2500, 1, &other, 0), 0);
	want[2500] = other;
	assert_int_equal(place(r, 2000, 1000, a), -LE_EXIST);
	assert_int_equal(place(r, 3900, 1000, b), -LE_EXIST);
	same_everywhere(r, want, 4000);
	assert_int_equal(place(r, 4000, 1000, a), 0);
	memcpy(want + 4000, a, 1000);
	same_everywhere(r, want, 5000);
}

/* Whole blocks, and the beginning of a last one. */
static void blocks(struct chain_rig *r)
{
	static uint8_t a[3 * RIG_BS], b[RIG_BS], want[RIG_CS];
	const uint32_t len = 2 * RIG_BS + 500;

	crig_fill(a, sizeof(a), 1);
	crig_fill(b, sizeof(b), 2);
	assert_int_equal(place(r, RIG_BS, len, a), 0);
	assert_int_equal(place(r, RIG_BS, len, a), 0);
	memcpy(want + RIG_BS, a, len);
	same_everywhere(r, want, RIG_BS + len);
	assert_int_equal(put(r, 2 * RIG_BS, RIG_BS, b, 0), 0);
	memcpy(want + 2 * RIG_BS, b, RIG_BS);
	assert_int_equal(place(r, RIG_BS, len, a), -LE_EXIST);
	assert_int_equal(place(r, 2 * RIG_BS, len, a), -LE_EXIST);
	/* Beyond the end of the data. */
	assert_int_equal(place(r, 3 * RIG_BS, RIG_BS, b), -LE_EXIST);
	same_everywhere(r, want, RIG_BS + len);
}

/* Written zeros count as data: in a part of a block, in whole blocks, over earlier data, and where
 * a hole was punched since. */
static void zeros(struct chain_rig *r)
{
	static const uint8_t zero[3 * RIG_BS];
	static uint8_t a[3 * RIG_BS], want[RIG_CS];
	uint32_t len = 2 * RIG_BS;

	memset(want, 0, sizeof(want));
	crig_fill(a, sizeof(a), 1);
	assert_int_equal(put(r, 1000, 1000, zero, 0), 0);
	assert_int_equal(place(r, 1000, 1000, a), -LE_EXIST);
	assert_int_equal(place(r, 1999, 1000, a), -LE_EXIST);
	assert_int_equal(place(r, 1000, 1000, zero), 0);
	same_everywhere(r, want, 2000);
	assert_int_equal(place(r, 500, 500, a), 0); /* no data was written before it */
	memcpy(want + 500, a, 500);
	assert_int_equal(put(r, 2 * RIG_BS, len, zero, 0), 0);
	assert_int_equal(place(r, 2 * RIG_BS, RIG_BS, a), -LE_EXIST);
	assert_int_equal(place(r, 3 * RIG_BS, len, a), -LE_EXIST);
	assert_int_equal(place(r, RIG_BS, len, a), -LE_EXIST);
	same_everywhere(r, want, 4 * RIG_BS);
	assert_int_equal(place(r, RIG_BS, RIG_BS, a), 0);
	memcpy(want + RIG_BS, a, RIG_BS);
	assert_int_equal(put(r, 4 * RIG_BS, RIG_BS, a, 0), 0);
	assert_int_equal(crig_punch(r, 0, &one, 4 * RIG_BS, RIG_BS, ++seq), 0);
	assert_int_equal(place(r, 4 * RIG_BS, RIG_BS, a), -LE_EXIST);
	same_everywhere(r, want, 5 * RIG_BS);
	/* Truncated bytes are free again. */
	assert_int_equal(crig_trim(r, 0, &one, 1500, ++seq, NULL), 0);
	assert_int_equal(place(r, 1499, 1000, a), -LE_EXIST);
	assert_int_equal(place(r, 1500, 1000, a), 0);
	memset(want + 1500, 0, sizeof(want) - 1500);
	memcpy(want + 1500, a, 1000);
	same_everywhere(r, want, 2500);
}

/* More gaps than a chunk record lists, made from the end to the beginning; the last ones can be
 * filled. */
static void many_gaps(struct chain_rig *r)
{
	static uint8_t a[100], want[RIG_CS];
	uint32_t n = CHUNK_GAPS_MAX + 2;

	crig_fill(a, sizeof(a), 1);
	for (uint32_t i = 1; i < 2 * n; i += 2) {
		assert_int_equal(place(r, i * 100, 100, a), 0);
		memcpy(want + i * 100, a, 100);
	}
	for (uint32_t i = 0; i < 2 * n; i += 2) {
		assert_int_equal(place(r, i * 100, 100, a), i < 4 ? -LE_EXIST : 0);
		memcpy(want + i * 100, a, i < 4 ? 0 : 100);
	}
	same_everywhere(r, want, 2 * n * 100);
}

/* The next head, and a restarted one, have the record of gaps too. */
static void next_head(struct chain_rig *r)
{
	static const uint8_t zero[1000];
	static uint8_t a[1000], want[RIG_CS];
	uint32_t head = r->n - 1;

	crig_fill(a, sizeof(a), 1);
	assert_int_equal(place(r, 3000, 1000, a), 0);
	assert_int_equal(put(r, 4000, 1000, zero, 0), 0);
	crig_wait_quiet(r);
	crig_crash(r, 0);
	if (head == 0)
		crig_restart(r, 0);
	else
		r->m[0].state = MEMBER_OUT;
	r->order[0] = head;
	r->order[head] = 0;
	crig_members(r);
	memcpy(want + 3000, a, 1000);
	memcpy(want + 2000, a, 1000);
	for (uint32_t i = 0; i < 2; i++) {
		struct crig_write w = {one,          4000 - 2000 * i,      1000, a, .session = 8,
				       .seq = ++seq, .flags = WRITE_RESERVED};

		assert_int_equal(crig_write(r, head, &w, 20000), i == 0 ? -LE_EXIST : 0);
	}
	assert_int_equal(crig_read_any(r, head, &one, want + RIG_CS / 2), 5000);
	assert_memory_equal(want, want + RIG_CS / 2, 5000);
}

/* The checksum multiplies by zero at these positions and adds the upper halves: moving an amount
 * from one to the other leaves the sum as it is. */
static void fill_with_sum(uint8_t block[RIG_BS], uint32_t upper)
{
	uint32_t words[] = {0x396cfeb8, upper}, second[] = {0x2c81017c, 100 - upper};

	crig_fill(block, RIG_BS, 3);
	memcpy(block, words, sizeof(words));
	memcpy(block + 64, second, sizeof(second));
}

static void same_sums(struct chain_rig *r)
{
	static uint8_t a[RIG_BS], b[RIG_BS], want[RIG_CS];

	fill_with_sum(a, 5);
	fill_with_sum(b, 6);
	assert_true(memcmp(a, b, RIG_BS) != 0 && checksum64(a, RIG_BS) == checksum64(b, RIG_BS));
	assert_int_equal(put(r, RIG_BS, RIG_BS, a, 0), 0);
	assert_int_equal(place(r, RIG_BS, RIG_BS, b), -LE_EXIST);
	assert_int_equal(place(r, RIG_BS, RIG_BS, a), 0);
	memcpy(want + RIG_BS, a, RIG_BS);
	same_everywhere(r, want, 2 * RIG_BS);
}

static void test_same_sums(void **state)
{
	(void)state;
	chain_rig_run(5, 1, same_sums);
	chain_rig_run(6, 2, same_sums);
}

static void test_fragments(void **state)
{
	(void)state;
	chain_rig_run(1, 1, fragments);
	chain_rig_run(2, 2, fragments);
}

static void test_blocks(void **state)
{
	(void)state;
	chain_rig_run(3, 1, blocks);
	chain_rig_run(4, 3, blocks);
}

static void test_zeros(void **state)
{
	(void)state;
	chain_rig_run(5, 1, zeros);
	chain_rig_run(6, 3, zeros);
}

static void test_many_gaps(void **state)
{
	(void)state;
	chain_rig_run(7, 2, many_gaps);
}

static void test_next_head(void **state)
{
	(void)state;
	chain_rig_run(8, 1, next_head);
	chain_rig_run(9, 2, next_head);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fragments), cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_same_sums), cmocka_unit_test(test_zeros),
		cmocka_unit_test(test_many_gaps), cmocka_unit_test(test_next_head),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
