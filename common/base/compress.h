/*
 * Blocks of file data, packed by LZ4 (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md).
 * A packed block travels and lies on disk in whole units of 4 KiB, so packing pays only where it
 * saves at least one. Pure functions, from any thread.
 */
#ifndef LEAT_BASE_COMPRESS_H
#define LEAT_BASE_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define COMPRESS_UNIT 4096u

/* What a packed block of stored_len bytes takes up. */
static inline uint32_t compress_room(uint32_t stored_len)
{
	return (stored_len + COMPRESS_UNIT - 1) / COMPRESS_UNIT * COMPRESS_UNIT;
}

/* Packs len bytes (whole units) into dst, which has room for len less one unit: how many bytes they
 * have become, padded with zeros to whole units. 0: it does not pay, and what dst holds is no
 * matter. */
uint32_t compress_block(const void *src, uint32_t len, void *dst);
/* The first len bytes of what was packed into stored_len, which may be anything: never reads or
 * writes beyond the two. -LE_CORRUPT: it is no packed block, or one of fewer bytes. Whether the
 * bytes are right, their checksum tells. */
int decompress_block(const void *src, uint32_t stored_len, void *dst, uint32_t len) CHECK_RESULT;

#endif
