/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/compress.h"

#include <lz4.h>
#include <limits.h>
#include <string.h>

/* 16 KiB, too large for the stack of a fiber. No fiber yields while it uses this. */
static _Thread_local LZ4_stream_t state;

uint32_t compress_block(const void *src, uint32_t len, void *dst)
{
	uint32_t max = len - COMPRESS_UNIT, n;

	if (len <= COMPRESS_UNIT || len % COMPRESS_UNIT != 0 || len > LZ4_MAX_INPUT_SIZE)
		return 0;
	n = (uint32_t)LZ4_compress_fast_extState(&state, src, dst, (int)len, (int)max, 1);
	if (n > 0)
		memset((uint8_t *)dst + n, 0, compress_space(n) - n);
	return n;
}

int decompress_block(const void *src, uint32_t stored_len, void *dst, uint32_t len)
{
	if (stored_len == 0 || stored_len > INT_MAX || len == 0 || len > INT_MAX)
		return -LE_CORRUPT;
	return LZ4_decompress_safe_partial(src, dst, (int)stored_len, (int)len, (int)len) ==
			       (int)len
		       ? 0
		       : -LE_CORRUPT;
}
