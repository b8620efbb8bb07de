/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting at chunks and blocks, and verifying what was read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/layout/block_pieces.h"
#include "client/layout/block_sums.h"
#include "client/layout/slot_vec.h"
#include "client/layout/stripe.h"
#include "common/base/checksum.h"
#include "common/base/compress.h"
#include "common/base/hmap.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rt/slot.h"
#include "tests/lib/sealed.h"

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

/* Makes slots over mem, which gets a fixed pattern. */
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
	/* The tail of one block, two whole ones, the head of another. */
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

static int open_pieces(struct bytes pieces, uint32_t off, uint32_t space, uint32_t bulk_len,
		       uint8_t *mem, uint32_t *ret_len)
{
	static uint8_t scratch[BLOCK];
	struct pieces_in in = {pieces, BLOCK, off, space, bulk_len, mem, scratch, NULL, 0};

	return pieces_open(&in, ret_len);
}

/* The offset of the first byte that is not stored. */
static void holes(void **state)
{
	uint8_t mem[2 * BLOCK] = {0}, out[2 * PIECE_WIRE_SIZE];
	struct slot s = {.data = mem, .size = sizeof(mem), .refs = 1};
	struct slot_vec v = {&s, 0, BLOCK};
	struct piece hole = {.off = BLOCK, .len = 1000, .flags = PIECE_HOLE};
	struct pieces_in in = {.block_size = BLOCK, .space = 2 * BLOCK};

	(void)state;
	assert_int_equal(pieces_hole(&in, 0), 0);
	assert_int_equal(pieces_cut(BLOCK, 0, BLOCK, &v, out), 1);
	in.pieces = bytes_of(out, PIECE_WIRE_SIZE);
	assert_int_equal(pieces_hole(&in, BLOCK), BLOCK);
	piece_encode(&hole, out + PIECE_WIRE_SIZE);
	in.pieces = bytes_of(out, sizeof(out));
	assert_int_equal(pieces_hole(&in, BLOCK + 1000), BLOCK);
}

/* ---- checksums of blocks ---- */

#define CHUNK_AT (3u * BLOCK) /* in the file */
#define N_SUMS   4u

/* A fragment of the chunk's block 0, all of block 1, a part of block 2 and a hole after it; the
 * sums are of the file's blocks from 3 on. */
static struct block_sums open_with_sums(uint32_t block, uint64_t *sum, uint32_t n,
					const struct piece *pieces)
{
	static uint8_t scratch[BLOCK], mem[4 * BLOCK];
	static uint8_t out[8 * PIECE_WIRE_SIZE];
	struct block_sums s = {block, N_SUMS, 3, sum};
	struct pieces_in in = {.pieces = bytes_of(out, n * PIECE_WIRE_SIZE),
			       .block_size = BLOCK,
			       .off = pieces[0].off,
			       .space = 4 * BLOCK - pieces[0].off,
			       .data = mem,
			       .scratch = scratch,
			       .sums = &s,
			       .chunk_at = CHUNK_AT};
	uint32_t len = 0;

	for (uint32_t i = 0; i < n; i++) {
		piece_encode(&pieces[i], out + (size_t)i * PIECE_WIRE_SIZE);
		in.bulk_len += pieces[i].len;
	}
	for (uint32_t i = 0; i < sizeof(mem); i++)
		mem[i] = (uint8_t)(i * 7 + i / 251);
	block_sums_clear(&s, CHUNK_AT + in.off, in.space);
	assert_int_equal(pieces_open(&in, &len), 0);
	return s;
}

static uint64_t sum_at(uint32_t at, uint32_t len)
{
	uint8_t mem[2 * BLOCK];

	for (uint32_t i = 0; i < len; i++)
		mem[i] = (uint8_t)((at + i) * 7 + (at + i) / 251);
	return checksum64(mem, len);
}

static void sums_of_blocks(void **state)
{
	uint64_t sum[N_SUMS] = {0}, first = sum_at(0, 100), second = sum_at(100, BLOCK);
	const struct piece pieces[] = {
		{BLOCK - 100, 100, 100, PIECE_FRAGMENT, first, 77},
		{BLOCK, BLOCK, BLOCK, 0, second, 0},
		{2 * BLOCK, 50, 50, PIECE_FRAGMENT, sum_at(100 + BLOCK, 50), 78},
		{2 * BLOCK + 50, 10, 10, PIECE_FRAGMENT, sum_at(150 + BLOCK, 10), 78},
	};
	const struct piece hole = {2 * BLOCK, 60, 0, PIECE_HOLE, 0, 0};
	struct piece apart[4], odd[2];
	struct block_sums s = open_with_sums(BLOCK, sum, 4, pieces);

	(void)state;
	/* The block's checksum, not the fragment's; bytes beyond the end belong to no block. */
	assert_true(block_sums_match(&s, 3, 77));
	assert_false(block_sums_match(&s, 3, first));
	assert_true(block_sums_match(&s, 4, second));
	assert_false(block_sums_match(&s, 4, second + 1));
	assert_false(block_sums_match(&s, 5, 78)); /* zeros follow there */
	assert_false(block_sums_match(&s, 6, 0));
	assert_false(block_sums_match(&s, 2, 77));
	assert_false(block_sums_match(&s, 7, 77));
	/* Two parts of one block with different checksums. */
	memcpy(apart, pieces, sizeof(apart));
	apart[0].len = apart[0].stored_len = 40;
	apart[0].sum = sum_at(0, 40);
	apart[1] = (struct piece){BLOCK - 60, 60, 60, PIECE_FRAGMENT, sum_at(40, 60), 79};
	s = open_with_sums(BLOCK, sum, 2, apart);
	assert_false(block_sums_match(&s, 3, 77) || block_sums_match(&s, 3, 79));
	apart[1].stored_sum = 77;
	s = open_with_sums(BLOCK, sum, 2, apart);
	assert_true(block_sums_match(&s, 3, 77));
	/* A hole, and a hole after data. */
	s = open_with_sums(BLOCK, sum, 1, &hole);
	assert_false(block_sums_match(&s, 5, 0));
	/* Pieces that are no block: not at the start of one, or longer. */
	odd[0] = (struct piece){BLOCK - 100, 100, 100, 0, first, 0};
	odd[1] = (struct piece){BLOCK, 2 * BLOCK, 2 * BLOCK, 0, sum_at(100, 2 * BLOCK), 0};
	s = open_with_sums(BLOCK, sum, 2, odd);
	assert_false(block_sums_match(&s, 3, first));
	assert_false(block_sums_match(&s, 4, odd[1].sum) || block_sums_match(&s, 5, odd[1].sum));
	/* A reader with another block size. */
	s = open_with_sums(2 * BLOCK, sum, 4, pieces);
	for (uint64_t i = 0; i < 8; i++)
		assert_false(block_sums_match(&s, i, 77) || block_sums_match(&s, i, second));
}

/* Copying the checksums of prefetched data. */
static void sums_are_copied(void **state)
{
	uint64_t have[] = {11, 12, 13, 14}, got[3] = {0};
	const struct block_sums from = {BLOCK, 4, 8, have};
	struct block_sums s = {BLOCK, 3, 9, got};

	(void)state;
	block_sums_clear(&s, 9 * BLOCK, 3 * BLOCK);
	block_sums_copy(&s, &from, 9 * BLOCK + 5, 2 * BLOCK - 5);
	assert_true(block_sums_match(&s, 9, 12) && block_sums_match(&s, 10, 13));
	assert_false(block_sums_match(&s, 11, 14));
	/* The rest of block 10 from another source, and more than is recorded. */
	block_sums_note(&s, BLOCK, 10 * BLOCK + 5, 10, 13);
	assert_true(block_sums_match(&s, 10, 13));
	block_sums_note(&s, BLOCK, 10 * BLOCK + 15, 10, 99);
	assert_false(block_sums_match(&s, 10, 13) || block_sums_match(&s, 10, 99));
	block_sums_copy(&s, &from, 11 * BLOCK, 5 * BLOCK);
	assert_true(block_sums_match(&s, 11, 14));
	/* NULL: not wanted. */
	block_sums_clear(NULL, 0, BLOCK);
	block_sums_note(NULL, BLOCK, 0, BLOCK, 1);
	block_sums_copy(NULL, &from, 8 * BLOCK, BLOCK);
}

static void verify(void **state)
{
	uint8_t *mem = malloc(MIB);
	uint8_t out[8 * PIECE_WIRE_SIZE];
	struct slot s[1];
	struct slot_vec v = {&s[0], 0, 2 * BLOCK};
	struct bytes pieces = bytes_of(out, 2 * PIECE_WIRE_SIZE);
	uint32_t two = 2 * BLOCK, len = 0;
	struct piece p;

	(void)state;
	make_slots(s, 1, MIB, mem);
	assert_int_equal(pieces_cut(BLOCK, 0, two, &v, out), 2);
	assert_int_equal(open_pieces(pieces, 0, two, two, mem, &len), 0);
	assert_int_equal(len, two);
	mem[BLOCK + 5] ^= 1;
	assert_int_equal(open_pieces(pieces, 0, two, two, mem, &len), -LE_CORRUPT_WIRE);
	mem[BLOCK + 5] ^= 1;
	/* More space than data is no error; pieces that do not cover the bytes are. */
	assert_int_equal(open_pieces(pieces, 0, 3 * BLOCK, two, mem, &len), 0);
	assert_int_equal(len, two);
	assert_int_equal(open_pieces(pieces, 0, two - 1, two, mem, &len), -LE_BAD_MESSAGE);
	assert_int_equal(open_pieces(pieces, 0, two, two - 1, mem, &len), -LE_BAD_MESSAGE);
	assert_int_equal(open_pieces(pieces, 0, two, two + 1, mem, &len), -LE_BAD_MESSAGE);
	assert_int_equal(open_pieces(pieces, BLOCK, two, two, mem, &len), -LE_BAD_MESSAGE);
	pieces.len--;
	assert_int_equal(open_pieces(pieces, 0, two, two, mem, &len), -LE_BAD_MESSAGE);
	pieces.len++;
	/* A hole becomes zeros, whatever was received. */
	p = (struct piece){.off = BLOCK, .len = BLOCK, .flags = PIECE_HOLE};
	piece_encode(&p, out + PIECE_WIRE_SIZE);
	assert_int_equal(open_pieces(pieces, 0, two, two, mem, &len), 0);
	for (uint32_t i = BLOCK; i < 2 * BLOCK; i++)
		assert_int_equal(mem[i], 0);
	assert_int_equal(open_pieces(bytes_of(NULL, 0), 0, 0, 0, mem, &len), 0);
	assert_int_equal(len, 0);
	free(mem);
}

/* ---- compressed ---- */

#define N_BLOCKS 9u
#define FIRST    (BLOCK - 1000u) /* offset in the chunk where the data starts: 1000 bytes before a
				  * block */

struct sealed {
	uint8_t plain[N_BLOCKS * BLOCK], bulk[N_BLOCKS * BLOCK];
	uint8_t out[(N_BLOCKS + 1) * PIECE_WIRE_SIZE], scratch[BLOCK];
	struct bytes pieces;
	uint32_t bulk_len, n_packed;
};

/* A fragment, blocks of words, noise, words, …, a fragment; in slots of odd sizes. */
static struct sealed *seal(bool noise_only)
{
	struct sealed *x = calloc(1, sizeof(*x));
	struct pieces_out o = {BLOCK, FIRST, sizeof(x->plain), x->bulk, x->out, x->scratch};
	struct slot s = {.data = x->plain, .size = sizeof(x->plain), .refs = 1};
	struct slot_vec v[40];
	uint32_t n = 0;

	for (uint32_t at = 0, len; at < sizeof(x->plain); at += len, n++) {
		len = n % 5 == 0 ? 3 * BLOCK : 1 + n * 977 % 7000;
		len = len < sizeof(x->plain) - at ? len : (uint32_t)sizeof(x->plain) - at;
		assert_in_range(n, 0, 39);
		v[n] = (struct slot_vec){&s, at, len};
	}
	fill_words(x->plain, sizeof(x->plain), 1);
	for (uint32_t i = 0; i < N_BLOCKS; i++)
		if (noise_only || i % 3 == 1)
			fill_noise(x->plain + (size_t)i * BLOCK, BLOCK, i);
	x->bulk_len = pieces_seal(&o, v, &x->n_packed);
	x->pieces = bytes_of(x->out, sizeof(x->out));
	return x;
}

static int open_sealed(struct sealed *x, bool compare)
{
	uint8_t *mem = malloc(sizeof(x->plain)), *scratch = malloc(BLOCK);
	struct pieces_in in = {x->pieces, BLOCK, FIRST, sizeof(x->plain), x->bulk_len, mem,
			       scratch,   NULL,  0};
	uint32_t len = 0;
	int rc;

	memcpy(mem, x->bulk, x->bulk_len);
	rc = pieces_open(&in, &len);
	if (rc == 0 && compare) {
		assert_int_equal(len, sizeof(x->plain));
		assert_memory_equal(mem, x->plain, sizeof(x->plain));
	}
	free(mem);
	free(scratch);
	return rc;
}

static void sealed_and_opened(void **state)
{
	struct sealed *x = seal(false);

	(void)state;
	assert_in_range(x->n_packed, 2, N_BLOCKS - 1);
	assert_true(x->bulk_len <= sizeof(x->plain) - x->n_packed * COMPRESS_UNIT);
	assert_int_equal(open_sealed(x, true), 0);
	free(x);
	x = seal(true);
	assert_int_equal(x->n_packed, 0);
	assert_int_equal(x->bulk_len, sizeof(x->plain));
	assert_int_equal(open_sealed(x, true), 0);
	free(x);
}

static struct piece packed_piece(struct sealed *x, uint8_t **ret_at)
{
	struct piece p;
	uint32_t i = 0;

	do {
		assert_in_range(i, 0, N_BLOCKS);
		piece_decode(x->out + (size_t)i * PIECE_WIRE_SIZE, &p);
		*ret_at = x->out + (size_t)i++ * PIECE_WIRE_SIZE;
	} while (!(p.flags & PIECE_LZ4));
	return p;
}

/* Any piece of a reply may be wrong, and any byte of it. */
static void hostile_replies(void **state)
{
	struct sealed *x = seal(false);
	uint8_t *at;
	struct piece good = packed_piece(x, &at), p;
	uint64_t seed = 1;

	(void)state;
	p = good;
	p.stored_len = UINT32_MAX;
	piece_encode(&p, at);
	assert_int_equal(open_sealed(x, true), -LE_BAD_MESSAGE);
	p.stored_len = 0;
	piece_encode(&p, at);
	assert_int_equal(open_sealed(x, true), -LE_BAD_MESSAGE);
	p = good;
	p.flags |= PIECE_HOLE;
	piece_encode(&p, at);
	assert_int_equal(open_sealed(x, true), -LE_BAD_MESSAGE);
	p = good;
	p.sum ^= 1; /* the decompressed bytes differ from the original */
	piece_encode(&p, at);
	assert_int_equal(open_sealed(x, true), -LE_CORRUPT_WIRE);
	piece_encode(&good, at);
	for (int i = 0; i < 3000; i++) {
		uint8_t *byte = x->out + hash_u64(seed++) % sizeof(x->out), old = *byte;

		*byte ^= (uint8_t)(1 + hash_u64(seed++) % 255);
		(void)!open_sealed(x, false); /* a change to "a hole" cannot be detected */
		*byte = old;
		byte = x->bulk + hash_u64(seed++) % x->bulk_len;
		old = *byte;
		*byte ^= (uint8_t)(1 + hash_u64(seed++) % 255);
		(void)!open_sealed(x, true); /* padding may be anything */
		*byte = old;
	}
	assert_int_equal(open_sealed(x, true), 0);
	free(x);
}

static void whole_blocks(void **state)
{
	(void)state;
	assert_true(pieces_whole(BLOCK, 0, BLOCK));
	assert_false(pieces_whole(BLOCK, 0, BLOCK - 1));
	assert_false(pieces_whole(BLOCK, 1, BLOCK));
	assert_false(pieces_whole(BLOCK, 1, 2 * BLOCK - 2));
	assert_true(pieces_whole(BLOCK, 1, 2 * BLOCK - 1));
	assert_false(pieces_whole(BLOCK, 5, 3));
}

static void slices(void **state)
{
	uint8_t *mem = malloc(300);
	struct slot s[3];
	struct slot_vec v[3], truncated[3];

	(void)state;
	make_slots(s, 3, 100, mem);
	for (int i = 0; i < 3; i++)
		v[i] = (struct slot_vec){&s[i], 10, 50};
	assert_int_equal(vec_len(v, 3), 150);
	assert_int_equal(vec_slice(v, 3, 40, 80, truncated, 3), 3);
	assert_int_equal(truncated[0].off, 50);
	assert_int_equal(truncated[0].len, 10);
	assert_int_equal(truncated[1].len, 50);
	assert_int_equal(truncated[2].len, 20);
	assert_int_equal(vec_slice(v, 3, 50, 50, truncated, 3), 1);
	assert_ptr_equal(truncated[0].slot, &s[1]);
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
		cmocka_unit_test(sums_of_blocks),
		cmocka_unit_test(sums_are_copied),
		cmocka_unit_test(cut_at_chunks),
		cmocka_unit_test(cut_far_out),
		cmocka_unit_test(pieces_at_block_boundaries),
		cmocka_unit_test(pieces_over_several_slots),
		cmocka_unit_test(holes),
		cmocka_unit_test(verify),
		cmocka_unit_test(sealed_and_opened),
		cmocka_unit_test(hostile_replies),
		cmocka_unit_test(whole_blocks),
		cmocka_unit_test(slices),
		cmocka_unit_test(overlaps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
