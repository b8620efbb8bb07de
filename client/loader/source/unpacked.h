/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed files, unpacked into memory as a whole: a packed stream cannot be read from the middle. Up
 * to a limit of bytes, the files that were read last stay in memory. A fiber that needs another
 * file waits for space, and a file that was dropped is unpacked again. So an order is fast if it
 * uses few shards at a time.
 *
 * With a manifest the packed bytes are verified (checked.h). The unpacked bytes must be as many as
 * the sample index says. Each data set has one, shared by its loops. A lock guards it and is held
 * briefly; a fiber that waits for another loop polls every millisecond.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_UNPACKED_H
#define LEAT_CLIENT_LOADER_SOURCE_UNPACKED_H

#include "client/loader/source/dataset.h"

#define UNPACK_BYTES_DEFAULT ((uint64_t)1 << 30)

struct unpacked;

/* limit 0: UNPACK_BYTES_DEFAULT. *ret_unpacked is NULL if no file of the index is packed.
 * -LE_FBIG, with d: a file has more unpacked bytes than limit. -LE_NOMEM. Does not yield. */
int unpacked_create(const struct sample_index *x, uint64_t limit, struct unpacked **ret_unpacked,
		    struct detail *d) CHECK_RESULT;
void unpacked_destroy(struct unpacked *u); /* NULL is fine; no read is in flight */

/* A range of the unpacked bytes of a file, within the size in the index. */
struct unpacked_range {
	uint32_t file; /* of from->x */
	uint64_t off, len;
};
/* Reads the range into `to`; unpacks the file first if necessary. from: the data set that the
 * file belongs to; via: the data set that reads, which is from or a mixture. On failure d has
 * the reason. Yields. */
int unpacked_read(struct leat_dataset *from, const struct leat_dataset *via,
		  const struct unpacked_range *r, uint8_t *to, struct detail *d) CHECK_RESULT;

#endif
