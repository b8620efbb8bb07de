/* Cutting at chunks and blocks, and verifying what was read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/stripe.h"
#include "common/base/checksum.h"

#define MIB   (1u << 20)
#define BLOCK (16u << 10)

static void cut_at_chunks(void **state)
{
	struct stripe_part p[8];
	uint64_t covered;

	(void)state;
	assert_int_equal(stripe_cut(MIB, 0, MIB, p, 8, &covered), 1);
	assert_int_equal(covered, MIB);
	assert_int_equal(stripe_cut(MIB, MIB - 1, 2, p, 8, &covered), 2);
	assert_int_equal(p[0].idx, 0);
	assert_int_equal(p[0].off, MIB - 1);
	assert_int_equal(p[0].len, 1);
	assert_int_equal(p[1].idx, 1);
	assert_int_equal(p[1].off, 0);
	assert_int_equal(p[1].at, 1);
	assert_int_equal(stripe_cut(64 << 10, 100, MIB, p, 8, &covered), 8);
	assert_int_equal(covered, 8 * (64 << 10) - 100);
	assert_int_equal(stripe_cut(MIB, 5, 0, p, 8, &covered), 0);
}

static void cut_far_out(void **state)
{
	struct stripe_part p[2];
	uint64_t covered, off = (uint64_t)INT64_MAX - 10;

	(void)state;
	assert_int_equal(stripe_cut(MIB, off, 10, p, 2, &covered), 1);
	assert_int_equal(p[0].idx, off / MIB);
	assert_int_equal(p[0].off, off % MIB);
}

/* Slots with known bytes. */
static void make_slots(struct slot *s, uint32_t n, uint32_t size, uint8_t *mem)
{
	for (uint32_t i = 0; i < n * size; i++)
		mem[i] = (uint8_t)(i * 7 + i / 251);
	for (uint32_t i = 0; i < n; i++)
		s[i] = (struct slot){.data = mem + (size_t)i * size, .size = size, .refs = 1};
}

static void pieces_at_block_boundaries(void **state)
{
	uint8_t *mem = malloc(MIB);
	uint8_t out[8 * PIECE_WIRE_SIZE];
	struct slot s[1];
	struct slot_vec v = {&s[0], 0, 3 * BLOCK};
	struct piece p;

	(void)state;
	make_slots(s, 1, MIB, mem);
	/* A tail of one block, two whole ones, the head of another. */
	assert_int_equal(pieces_cut(BLOCK, BLOCK / 2, 3 * BLOCK, &v, out), 4);
	piece_decode(out, &p);
	assert_int_equal(p.off, BLOCK / 2);
	assert_int_equal(p.len, BLOCK / 2);
	assert_int_equal(p.flags, PIECE_FRAGMENT);
	assert_true(p.sum == checksum64(mem, BLOCK / 2));
	piece_decode(out + PIECE_WIRE_SIZE, &p);
	assert_int_equal(p.off, BLOCK);
	assert_int_equal(p.len, BLOCK);
	assert_int_equal(p.flags, 0);
	piece_decode(out + 3 * PIECE_WIRE_SIZE, &p);
	assert_int_equal(p.off, 3 * BLOCK);
	assert_int_equal(p.len, BLOCK / 2);
	assert_int_equal(p.flags, PIECE_FRAGMENT);
	free(mem);
}

static void pieces_over_several_slots(void **state)
{
	uint8_t *mem = malloc(8 * 10000);
	uint8_t out[8 * PIECE_WIRE_SIZE];
	struct slot s[8];
	struct slot_vec v[8];
	struct piece p;

	(void)state;
	make_slots(s, 8, 10000, mem);
	for (int i = 0; i < 8; i++)
		v[i] = (struct slot_vec){&s[i], 0, 10000};
	assert_int_equal(pieces_cut(BLOCK, 0, 80000, v, out), 5);
	for (uint32_t i = 0; i < 4; i++) {
		piece_decode(out + (size_t)i * PIECE_WIRE_SIZE, &p);
		assert_true(p.sum == checksum64(mem + (size_t)i * BLOCK, BLOCK));
		assert_int_equal(p.flags, 0);
	}
	piece_decode(out + 4 * PIECE_WIRE_SIZE, &p);
	assert_int_equal(p.flags, PIECE_FRAGMENT);
	assert_int_equal(p.len, 80000 - 4 * BLOCK);
	free(mem);
}

static void verify(void **state)
{
	uint8_t *mem = malloc(MIB);
	uint8_t out[8 * PIECE_WIRE_SIZE];
	struct slot s[1];
	struct slot_vec v = {&s[0], 0, 2 * BLOCK};
	struct bytes pieces = bytes_of(out, 2 * PIECE_WIRE_SIZE);
	struct piece p;

	(void)state;
	make_slots(s, 1, MIB, mem);
	assert_int_equal(pieces_cut(BLOCK, 0, 2 * BLOCK, &v, out), 2);
	assert_int_equal(pieces_verify(pieces, 0, 2 * BLOCK, mem), 0);
	mem[BLOCK + 5] ^= 1;
	assert_int_equal(pieces_verify(pieces, 0, 2 * BLOCK, mem), -LE_CORRUPT_WIRE);
	mem[BLOCK + 5] ^= 1;
	/* Pieces that do not cover the bytes exactly. */
	assert_int_equal(pieces_verify(pieces, 0, 2 * BLOCK - 1, mem), -LE_BAD_MESSAGE);
	assert_int_equal(pieces_verify(pieces, 0, 3 * BLOCK, mem), -LE_BAD_MESSAGE);
	assert_int_equal(pieces_verify(pieces, BLOCK, 2 * BLOCK, mem), -LE_BAD_MESSAGE);
	pieces.len--;
	assert_int_equal(pieces_verify(pieces, 0, 2 * BLOCK, mem), -LE_BAD_MESSAGE);
	pieces.len++;
	/* Bytes of a hole are zeros whatever came. */
	p = (struct piece){.off = BLOCK, .len = BLOCK, .flags = PIECE_HOLE};
	piece_encode(&p, out + PIECE_WIRE_SIZE);
	assert_int_equal(pieces_verify(pieces, 0, 2 * BLOCK, mem), 0);
	for (uint32_t i = BLOCK; i < 2 * BLOCK; i++)
		assert_int_equal(mem[i], 0);
	assert_int_equal(pieces_verify(bytes_of(NULL, 0), 0, 0, mem), 0);
	free(mem);
}

static void slices(void **state)
{
	uint8_t *mem = malloc(300);
	struct slot s[3];
	struct slot_vec v[3], cut[3];

	(void)state;
	make_slots(s, 3, 100, mem);
	for (int i = 0; i < 3; i++)
		v[i] = (struct slot_vec){&s[i], 10, 50};
	assert_int_equal(vec_len(v, 3), 150);
	assert_int_equal(vec_slice(v, 3, 40, 80, cut, 3), 3);
	assert_int_equal(cut[0].off, 50);
	assert_int_equal(cut[0].len, 10);
	assert_int_equal(cut[1].len, 50);
	assert_int_equal(cut[2].len, 20);
	assert_int_equal(vec_slice(v, 3, 50, 50, cut, 3), 1);
	assert_ptr_equal(cut[0].slot, &s[1]);
	free(mem);
}

static void overlaps(void **state)
{
	(void)state;
	assert_true(range_overlaps(0, 10, 9, 1));
	assert_false(range_overlaps(0, 10, 10, 1));
	assert_false(range_overlaps(10, 1, 0, 10));
	assert_false(range_overlaps(5, 0, 0, 10));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_at_chunks),
		cmocka_unit_test(cut_far_out),
		cmocka_unit_test(pieces_at_block_boundaries),
		cmocka_unit_test(pieces_over_several_slots),
		cmocka_unit_test(verify),
		cmocka_unit_test(slices),
		cmocka_unit_test(overlaps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
