/* Cutting at chunks and blocks, and verifying what was read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/stripe.h"
#include "common/base/checksum.h"
#include "common/base/hmap.h"
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

static int open_pieces(struct bytes pieces, uint32_t off, uint32_t room, uint32_t bulk_len,
		       uint8_t *mem, uint32_t *ret_len)
{
	static uint8_t scratch[BLOCK];
	struct pieces_in in = {pieces, BLOCK, off, room, bulk_len, mem, scratch};

	return pieces_open(&in, ret_len);
}

/* Where the first byte lies that nobody has stored. */
static void holes(void **state)
{
	uint8_t mem[2 * BLOCK] = {0}, out[2 * PIECE_WIRE_SIZE];
	struct slot s = {.data = mem, .size = sizeof(mem), .refs = 1};
	struct slot_vec v = {&s, 0, BLOCK};
	struct piece hole = {.off = BLOCK, .len = 1000, .flags = PIECE_HOLE};
	struct pieces_in in = {.block_size = BLOCK, .room = 2 * BLOCK};

	(void)state;
	assert_int_equal(pieces_hole(&in, 0), 0);
	assert_int_equal(pieces_cut(BLOCK, 0, BLOCK, &v, out), 1);
	in.pieces = bytes_of(out, PIECE_WIRE_SIZE);
	assert_int_equal(pieces_hole(&in, BLOCK), BLOCK);
	piece_encode(&hole, out + PIECE_WIRE_SIZE);
	in.pieces = bytes_of(out, sizeof(out));
	assert_int_equal(pieces_hole(&in, BLOCK + 1000), BLOCK);
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
	/* More room than there is data is no matter; pieces that do not cover the bytes are. */
	assert_int_equal(open_pieces(pieces, 0, 3 * BLOCK, two, mem, &len), 0);
	assert_int_equal(len, two);
	assert_int_equal(open_pieces(pieces, 0, two - 1, two, mem, &len), -LE_BAD_MESSAGE);
	assert_int_equal(open_pieces(pieces, 0, two, two - 1, mem, &len), -LE_BAD_MESSAGE);
	assert_int_equal(open_pieces(pieces, 0, two, two + 1, mem, &len), -LE_BAD_MESSAGE);
	assert_int_equal(open_pieces(pieces, BLOCK, two, two, mem, &len), -LE_BAD_MESSAGE);
	pieces.len--;
	assert_int_equal(open_pieces(pieces, 0, two, two, mem, &len), -LE_BAD_MESSAGE);
	pieces.len++;
	/* Bytes of a hole are zeros whatever came. */
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
#define FIRST    (BLOCK - 1000u) /* the data begins so far in a chunk: 1000 bytes before a block */

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
	struct pieces_in in = {x->pieces,   BLOCK, FIRST,  sizeof(x->plain),
			       x->bulk_len, mem,   scratch};
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

/* Any piece of a reply may be a lie, and any byte of it. */
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
	p.sum ^= 1; /* the bytes that come out are others than were sealed */
	piece_encode(&p, at);
	assert_int_equal(open_sealed(x, true), -LE_CORRUPT_WIRE);
	piece_encode(&good, at);
	for (int i = 0; i < 3000; i++) {
		uint8_t *byte = x->out + hash_u64(seed++) % sizeof(x->out), old = *byte;

		*byte ^= (uint8_t)(1 + hash_u64(seed++) % 255);
		(void)!open_sealed(x, false); /* "a hole", say: who would know better? */
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
