/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of file data, packed by LZ4 (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md).
 * On the wire and on disk a packed block occupies whole units of 4 KiB, so packing pays only if it
 * saves at least one. Pure functions, any thread.
 */
#ifndef LEAT_COMMON_BASE_COMPRESS_H
#define LEAT_COMMON_BASE_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define COMPRESS_UNIT 4096u

/* Returns the size of a packed block of stored_len bytes, in whole units. */
static inline uint32_t compress_space(uint32_t stored_len)
{
	return (stored_len + COMPRESS_UNIT - 1) / COMPRESS_UNIT * COMPRESS_UNIT;
}

/* Packs len bytes (whole units) into dst, which has space for len less one unit. Returns the number
 * of packed bytes; dst is padded with zeros to whole units. Returns 0 if packing does not pay: then
 * the content of dst is undefined. */
uint32_t compress_block(const void *src, uint32_t len, void *dst);
/* Unpacks the first len bytes of a packed block of stored_len bytes. src is not trusted: the
 * function never accesses memory beyond both buffers. Returns 0, or -LE_CORRUPT: it is no packed
 * block, or one of fewer bytes. The caller verifies the content by its checksum. */
int decompress_block(const void *src, uint32_t stored_len, void *dst, uint32_t len) CHECK_RESULT;

#endif
