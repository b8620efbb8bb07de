/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a chunk record, with a right checksum appended so that the decoder is reached: what
 * is accepted stays within its bounds and encodes to an equal record. */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "ossd/chunk/chunk_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_bounds(const struct chunk_record *r)
{
	ASSERT(r->n_blocks <= LEAT_BLOCKS_PER_CHUNK_MAX && r->end <= r->chunk_size);
	for (uint32_t i = 0; i < r->n_blocks; i++) {
		const struct chunk_block *b = &r->blocks[i];

		ASSERT(b->len <= r->block_size && b->stored_len <= r->block_size);
		ASSERT(!b->len || (uint64_t)i * r->block_size + b->len <= r->end);
	}
	ASSERT(r->n_gaps <= CHUNK_GAPS_MAX);
	for (uint32_t i = 0; i < r->n_gaps; i++)
		ASSERT(chunk_record_gaps(r)[i].end <= r->end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t one[(sizeof(struct chunk_record) + 256 * sizeof(struct chunk_block) +
			     CHUNK_GAPS_MAX * sizeof(struct chunk_gap)) /
				    8 +
			    1];
	static uint64_t two[sizeof(one) / 8];
	static const struct chunk_key id = {4, {1}, 2, 3};
	struct chunk_record *a = (struct chunk_record *)one, *b = (struct chunk_record *)two;
	uint8_t buf[CHUNK_RECORD_MAX], again[CHUNK_RECORD_MAX];
	uint64_t sum;

	if (size > CHUNK_RECORD_MAX - 8)
		return 0;
	memcpy(buf, data, size);
	sum = checksum64_seed(buf, size, chunk_key_hash(&id));
	memcpy(buf + size, &sum, 8); /* little-endian machines only, as libFuzzer's are */
	if (chunk_record_decode(&id, buf, size + 8, a, LEAT_BLOCKS_PER_CHUNK_MAX) < 0)
		return 0;
	check_bounds(a);
	size_t len = chunk_record_encode(&id, a, again);
	ASSERT(chunk_record_decode(&id, again, len, b, LEAT_BLOCKS_PER_CHUNK_MAX) == 0);
	ASSERT(chunk_record_sum(a) == chunk_record_sum(b));
	ASSERT(a->version == b->version && a->end == b->end && a->n_blocks == b->n_blocks);
	ASSERT(memcmp(a->blocks, b->blocks, a->n_blocks * sizeof(a->blocks[0])) == 0);
	ASSERT(a->n_gaps == b->n_gaps);
	ASSERT(memcmp(chunk_record_gaps(a), chunk_record_gaps(b),
		      a->n_gaps * sizeof(struct chunk_gap)) == 0);
	return 0;
}
