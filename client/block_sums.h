/*
 * What a read learns of the blocks that it touches: the checksum that the object servers have of
 * each whole one, also where a part of it was asked for. All that was read of a block was cut out
 * of bytes with that checksum: of a whole block the client has compared it itself, of a part the
 * server has before it cut the part out (common/proto/oss_proto.h). Who knows which checksums the
 * blocks should have, by a manifest, needs not look at the bytes again.
 *
 * The rest of such a block is as a server has it. What this client has written there lately may be
 * missing: only what it has written to the bytes that are read is sent to the server first.
 *
 * Belongs to whoever reads. NULL in the place of a struct block_sums: nobody wants to know.
 */
#ifndef LEAT_CLIENT_BLOCK_SUMS_H
#define LEAT_CLIENT_BLOCK_SUMS_H

#include <stdbool.h>
#include <stdint.h>

struct block_sums {
	uint32_t block; /* their size: of a file with blocks of another size nothing is known */
	uint32_t n;     /* room in sum */
	uint64_t first; /* which block of the file sum[0] is of; others than these are left out */
	uint64_t *sum;
};

/* Before [off, off + len) of the file is read: nothing is known of its blocks. */
void block_sums_clear(struct block_sums *s, uint64_t off, uint64_t len);
/* Bytes [off, off + len) of the file, which has such blocks, were read, and are of a block with
 * that checksum. 0: they are of none, or of several. What was read of one block in several parts is
 * known only where all of them say the same. */
void block_sums_note(struct block_sums *s, uint32_t block, uint64_t off, uint64_t len,
		     uint64_t sum);
/* The same, as `from` says it. */
void block_sums_copy(struct block_sums *s, const struct block_sums *from, uint64_t off,
		     uint64_t len);
/* Is all that was read of that block of the file known to be of bytes with that checksum? */
bool block_sums_match(const struct block_sums *s, uint64_t block, uint64_t sum);

#endif
