/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index's record of a chunk: version, end, mtime; for each block its extent, its length and
 * the xxh3 of its plain bytes; and the gaps (chunk_gaps.h). In memory a record is immutable once
 * committed, reference counted, and owned by the store's loop.
 *
 * On disk, little-endian, format 3:
 *
 *    u8 format (3)  u8 flags (0, 1: lost)  u16 n_blocks  u32 end  u32 chunk_size  u32 block_size
 *    u32 used_units  u64 version  i64 mtime_ns  u64 content sum  u32 n_gaps
 *    then the gaps: u32 off, u32 end; then the blocks, each begun by a byte:
 *      0  hole:   u8 count - 1                              (1 to 256 blocks)
 *      1  next:   u64 sum                                   (whole, adjacent to the one before)
 *      2  whole:  u32 unit, u64 sum
 *      3  short:  u32 unit, u32 len, u64 sum                (plain length below block_size)
 *      4  sealed: u32 unit, u32 len, u32 stored_len, u8 flags, u64 sum, u64 stored_sum
 *                 (LZ4; len is less than what was packed if the block was truncated since)
 *    u64 xxh3 of all that, seeded by the chunk's id, so that a record under a wrong key is found
 *
 * The record of a lost chunk only records that the chunk existed: the other fields are 0 and no
 * blocks follow. chunk_record_decode and chunk_record_summary reject it like a damaged record.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_RECORD_H
#define LEAT_OSSD_CHUNK_CHUNK_RECORD_H

#include "common/proto/types.h"
#include "ossd/chunk/chunk_gaps.h"
#include "ossd/chunk/extent_alloc.h"
#include "ossd/chunk/keys.h"

#define CHUNK_RECORD_FORMAT 3u
#define CHUNK_RECORD_MAX    (48u + CHUNK_GAPS_ENC_MAX + LEAT_BLOCKS_PER_CHUNK_MAX * 30u + 8u)
#define CHUNK_LOST_SIZE     56u

enum chunk_block_flags {
	BLOCK_LZ4 = 1 /* as compress_block returned it */
};

struct chunk_block {
	uint64_t sum;        /* xxh3 of the plain bytes */
	uint64_t stored_sum; /* xxh3 of the stored bytes; equal to sum unless compressed */
	uint32_t unit;       /* first 4 KiB unit of the data file */
	uint32_t len;        /* plain bytes; 0: a hole */
	uint32_t stored_len; /* bytes on disk, without padding to whole units */
	uint32_t flags;
};

struct chunk_record {
	uint64_t version;
	int64_t mtime_ns;
	uint32_t end; /* offset after the last byte that was written */
	uint32_t chunk_size, block_size;
	uint32_t n_blocks; /* later blocks are holes */
	uint32_t n_gaps;   /* in memory after the blocks: chunk_record_gaps */
	uint32_t refs;     /* held in the cache and by users */
	uint32_t size_class;
	struct chunk_block blocks[];
};

/* The fixed part, sufficient for stat and list. */
struct chunk_summary_info {
	uint64_t version, used, sum;
	int64_t mtime_ns;
	uint32_t end, chunk_size, block_size, n_blocks, n_gaps;
};

static inline uint32_t block_units(const struct chunk_block *b)
{
	return (b->stored_len + UNIT_SIZE - 1) / UNIT_SIZE;
}
/* The block's length in the bulk of a message (struct piece). */
static inline uint32_t block_space(const struct chunk_block *b)
{
	return b->flags & BLOCK_LZ4 ? block_units(b) * UNIT_SIZE : b->len;
}
static inline struct piece block_piece(const struct chunk_block *b, uint32_t off)
{
	if (b->flags & BLOCK_LZ4)
		return (struct piece){off, b->len, b->stored_len, PIECE_LZ4, b->sum, b->stored_sum};
	return (struct piece){off, b->len, b->len, 0, b->sum, 0};
}
static inline size_t chunk_record_size(uint32_t n_blocks, uint32_t n_gaps)
{
	return sizeof(struct chunk_record) + n_blocks * sizeof(struct chunk_block) +
	       n_gaps * sizeof(struct chunk_gap);
}
/* The n_gaps gaps, in the memory after the blocks. */
static inline struct chunk_gap *chunk_record_gaps(const struct chunk_record *r)
{
	return (struct chunk_gap *)(uintptr_t)(r->blocks + r->n_blocks);
}
/* True if buf (whole units) matches the stored checksum of the block. */
bool chunk_block_good(const struct chunk_block *b, const void *buf);
uint64_t chunk_record_used(const struct chunk_record *r); /* bytes on disk */
/* The content sum: of end, mtime, and length and checksum of every block. Positions of blocks,
 * holes after the last block and gaps are not included. */
uint64_t chunk_record_sum(const struct chunk_record *r);

/* True if chunks of this size can be stored: 64 KiB to 64 MiB, blocks of whole units. */
bool chunk_size_valid(uint32_t chunk_size);
/* Encodes into out, CHUNK_RECORD_MAX bytes. Returns the length. */
size_t chunk_record_encode(const struct chunk_key *id, const struct chunk_record *r, uint8_t *out);
/* chunk_record_encode_lost encodes the record of a lost chunk. */
void chunk_record_encode_lost(const struct chunk_key *id, uint8_t out[CHUNK_LOST_SIZE]);
/* True if data is the record of a lost chunk. */
bool chunk_record_is_lost(const struct chunk_key *id, const void *data, size_t len);
/* Decodes a record and checks checksum and every bound. r must have space for n_blocks_max blocks
 * and all gaps: call chunk_record_summary first for both numbers, or allocate CHUNK_GAPS_MAX.
 * Returns 0 or -LE_CORRUPT_STORE. */
int chunk_record_decode(const struct chunk_key *id, const void *data, size_t len,
			struct chunk_record *r, uint32_t n_blocks_max) CHECK_RESULT;
/* Fills in the fixed part from a record in memory. */
void chunk_record_info(const struct chunk_record *r, struct chunk_summary_info *ret_info);
/* Decodes the fixed part; checks checksum and header only. Returns 0 or -LE_CORRUPT_STORE. */
int chunk_record_summary(const struct chunk_key *id, const void *data, size_t len,
			 struct chunk_summary_info *ret_info) CHECK_RESULT;

#endif
