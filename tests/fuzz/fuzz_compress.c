/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed blocks from outside. The first byte selects what the others are: a packed block, or
 * changes of a good block, which is unpacked into space of exactly the requested size; pieces and
 * bulk of a reply to a read; data that is packed and must unpack to equal bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "client/layout/block_pieces.h"
#include "client/layout/block_sums.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/compress.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "tests/lib/sealed.h"

#define BLOCK     LEAT_BLOCK_SIZE_MIN
#define INPUT_MAX (256u << 10)
#define PIECES    8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *must(size_t size)
{
	void *p = malloc(size);

	ASSERT(p);
	return p;
}

static void unpack(const uint8_t *packed, uint32_t size, uint32_t len)
{
	uint8_t *out = must(len), *in = must(size);

	memcpy(in, packed, size);
	(void)!decompress_block(in, size, out, len);
	free(in);
	free(out);
}

static void any_block(const uint8_t *data, uint32_t size)
{
	if (size > 2)
		unpack(data + 2, size - 2, 1 + (data[0] | (uint32_t)data[1] << 8) % BLOCK);
}

/* Triples: position (16 bits), new byte. */
static void damaged_block(const uint8_t *data, uint32_t size)
{
	uint8_t *plain = must(BLOCK), *packed = must(BLOCK);
	uint32_t n;

	fill_words(plain, BLOCK, size ? data[0] : 0);
	n = compress_block(plain, BLOCK, packed);
	ASSERT(n);
	for (uint32_t i = 0; i + 3 <= size; i += 3)
		packed[(data[i] | (uint32_t)data[i + 1] << 8) % n] ^= data[i + 2];
	unpack(packed, n, BLOCK);
	unpack(packed, n - n / 4, BLOCK - 1);
	free(packed);
	free(plain);
}

/* Corrects checksums, so that the code after them is reached. */
static void set_sums(struct piece *p, const uint8_t *bulk, uint32_t bulk_len, uint32_t *pos)
{
	uint32_t space;

	if (p->len > BLOCK || p->stored_len > BLOCK)
		return;
	space = piece_space(p);
	if (*pos > bulk_len || space > bulk_len - *pos)
		return;
	if (p->flags & PIECE_LZ4)
		p->stored_sum = checksum64(bulk + *pos, p->stored_len);
	else
		p->sum = checksum64(bulk + *pos, p->len);
	*pos += space;
}

static void reply(const uint8_t *data, uint32_t size)
{
	uint32_t n = size ? data[0] % PIECES : 0, pos = 0, len = 0, bulk_len,
		 space = PIECES * BLOCK;
	uint8_t *pieces = must(PIECES * PIECE_WIRE_SIZE), *mem = must(space),
		*scratch = must(BLOCK);
	uint64_t sum[PIECES] = {0};
	struct block_sums sums = {.block = BLOCK, .n = PIECES, .sum = sum};
	struct pieces_in in = {
		.pieces = bytes_of(pieces, n * PIECE_WIRE_SIZE),
		.block_size = BLOCK,
		.space = space,
		.data = mem,
		.scratch = scratch,
		.sums = &sums,
	};

	if (size < 1 + n * PIECE_WIRE_SIZE)
		goto out;
	data += 1;
	bulk_len = size - 1 - n * PIECE_WIRE_SIZE;
	bulk_len = bulk_len < space ? bulk_len : space;
	memcpy(mem, data + n * PIECE_WIRE_SIZE, bulk_len);
	for (uint32_t i = 0; i < n; i++) {
		struct piece p;

		piece_decode(data + i * PIECE_WIRE_SIZE, &p);
		set_sums(&p, mem, bulk_len, &pos);
		piece_encode(&p, pieces + i * PIECE_WIRE_SIZE);
	}
	in.bulk_len = bulk_len;
	if (pieces_open(&in, &len) == 0)
		ASSERT(len <= space);
out:
	free(pieces);
	free(mem);
	free(scratch);
}

static void there_and_back(const uint8_t *data, uint32_t size)
{
	uint32_t len = size / COMPRESS_UNIT * COMPRESS_UNIT, n;
	uint8_t *packed, *plain;

	if (len < 2 * COMPRESS_UNIT)
		return;
	packed = must(len - COMPRESS_UNIT);
	plain = must(len);
	n = compress_block(data, len, packed);
	if (n) {
		ASSERT(n <= len - COMPRESS_UNIT);
		ASSERT(decompress_block(packed, n, plain, len) == 0);
		ASSERT(memcmp(plain, data, len) == 0);
	}
	free(packed);
	free(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const kinds[])(const uint8_t *data, uint32_t size) = {
		any_block, damaged_block, reply, there_and_back};

	if (size > 0 && size <= INPUT_MAX)
		kinds[data[0] % 4](data + 1, (uint32_t)size - 1);
	return 0;
}
