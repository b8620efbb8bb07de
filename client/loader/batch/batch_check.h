/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the bytes of a batch with the manifest, and notes which bytes cannot be read. */
#ifndef LEAT_CLIENT_LOADER_BATCH_BATCH_CHECK_H
#define LEAT_CLIENT_LOADER_BATCH_BATCH_CHECK_H

#include "client/loader/batch/batch.h"

/* Bytes of a file that were read for a piece, or for several pieces that follow each other. */
struct batch_bytes {
	const struct piece_io *p; /* the first piece */
	uint64_t end;             /* end of the last piece, in the file */
	uint8_t *mem;
	uint64_t base; /* offset of mem[0] in the file */
};
/* Compares the blocks that end in (from, to] of the file and begin at or after base with the
 * manifest, and replaces wrong ones. False: some could not be replaced, which is noted in the
 * batch. Yields. */
bool batch_check(struct leat_batch *b, const struct batch_bytes *c, uint64_t from, uint64_t to);
/* Reads bytes of the piece's file from another source (mend.h) to `to`. False: no source has
 * them. Yields. */
bool batch_mend(struct leat_batch *b, const struct piece_io *p, uint64_t off, uint64_t len,
		uint8_t *to);
/* Returns the manifest's entry for the piece's file; NULL: there is no manifest. */
const struct manifest_file *batch_manifest_file(const struct leat_batch *b,
						const struct piece_io *p);
/* True if the checksum that came with the bytes of this block of the piece's file equals that of
 * the manifest. */
bool batch_sum_is_right(const struct leat_batch *b, const struct piece_io *p,
			const struct block_sums *sums, uint64_t block);
/* True if batch_sum_is_right holds for all blocks that the piece touches. */
bool batch_sums_are_right(const struct leat_batch *b, const struct piece_io *p,
			  const struct block_sums *sums);

/* Notes that bytes [off, off + len) of the piece's file cannot be read, and that their part of
 * the slot is bad. The first failure of a batch sets b->d, with `what` as its message. */
void batch_fail(struct leat_batch *b, const struct piece_io *p, int rc, uint64_t off, uint64_t len,
		const char *what);
/* Calls batch_fail with a message for rc. */
void batch_fail_read(struct leat_batch *b, const struct piece_io *p, int rc, uint64_t off,
		     uint64_t len);
/* Notes that these bytes of the slot are bad. */
void batch_add_bad(struct leat_batch *b, uint64_t dst, uint64_t len);
/* True if one of these bytes of the slot is bad. */
bool batch_is_bad(const struct leat_batch *b, uint64_t off, uint64_t len);

#endif
