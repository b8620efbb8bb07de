/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads chunks of a file into slot memory, concurrently, and verifies the checksums. Owned by the
 * client's loop.
 */
#ifndef LEAT_CLIENT_DATA_FETCH_H
#define LEAT_CLIENT_DATA_FETCH_H

#include <stdint.h>

#include "common/base/status.h"

struct block_sums;
struct inode_io;
struct ll_chunk_leases;
struct slot_vec;

/* Reads to->len bytes at file offset off into `to`. Holes, and bytes beyond the end of a chunk's
 * data, become zeros. leases: takes chunk leases; NULL: none. sums: records the blocks' checksums;
 * NULL: not wanted. Returns 0 or the error; -LE_CORRUPT if every member's replica is damaged.
 * Yields. */
int fetch_range(struct inode_io *d, uint64_t off, const struct slot_vec *to,
	     struct ll_chunk_leases *leases, struct block_sums *sums) CHECK_RESULT;

#endif
