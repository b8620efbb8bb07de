/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksums of the blocks that a read touches, as the object servers store them: one for each
 * whole block, even where only a part of the block was read. The client has verified the checksum
 * of a block that it read whole. For a part of a block the server has, before it extracted the part
 * (common/proto/oss_proto.h). So all bytes that were read of a block belong to its checksum, and a
 * reader with a manifest can compare checksums instead of bytes.
 *
 * The checksum of a partly read block covers the rest of the block as the server stores it. Recent
 * writes of this client may be missing there, because the client flushes only the range that it
 * reads.
 *
 * The reader owns the struct. Functions that accept NULL for it then do nothing.
 */
#ifndef LEAT_CLIENT_LAYOUT_BLOCK_SUMS_H
#define LEAT_CLIENT_LAYOUT_BLOCK_SUMS_H

#include <stdbool.h>
#include <stdint.h>

/* Checksums of consecutive blocks of a file. */
struct block_sums {
	uint32_t block; /* block size in bytes; other block sizes are not recorded */
	uint32_t n;     /* capacity of sum, in entries */
	uint64_t first; /* block number of sum[0]; blocks outside the array are ignored */
	uint64_t *sum;
};

/* Marks all blocks that [off, off + len) of the file touches as not read. Call it before a read. s
 * may be NULL. */
void block_sums_clear(struct block_sums *s, uint64_t off, uint64_t len);
/* Records that bytes [off, off + len) of the file were read from a block with that checksum. block
 * is the file's block size. sum 0: the bytes belong to no block, or to several. If one block was
 * read in several parts with different checksums, it has none afterwards. s may be NULL. */
void block_sums_note(struct block_sums *s, uint32_t block, uint64_t off, uint64_t len,
		     uint64_t sum);
/* Records for bytes [off, off + len) of the file the checksums that `from` has. s may be NULL. */
void block_sums_copy(struct block_sums *s, const struct block_sums *from, uint64_t off,
		     uint64_t len);
/* Returns true if all bytes that were read of that block belong to a block with checksum sum. */
bool block_sums_match(const struct block_sums *s, uint64_t block, uint64_t sum);

#endif
