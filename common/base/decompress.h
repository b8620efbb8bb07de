/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks streams of other programs: gzip (RFC 1952) by zlib, Zstandard (RFC 8878) by libzstd, LZ4
 * frames (lz4_Frame_format.md) by liblz4. Several in a row are one stream, as with gzip(1). Owned
 * by one thread. It has no effects but on its memory, which is bounded for any stream: 32 KiB
 * windows of gzip, DECOMPRESS_WINDOW_LOG of Zstandard, 4 MiB blocks of LZ4.
 *
 * The stream is not trusted. The caller limits the output by the space that it provides.
 */
#ifndef LEAT_COMMON_BASE_DECOMPRESS_H
#define LEAT_COMMON_BASE_DECOMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum decompress_kind {
	DECOMPRESS_GZIP,
	DECOMPRESS_ZSTD,
	DECOMPRESS_LZ4
};
#define DECOMPRESS_WINDOW_LOG 27 /* 128 MiB, the limit of zstd(1) without --long */

struct decompress;

int decompress_create(enum decompress_kind kind, struct decompress **ret_d) CHECK_RESULT;
void decompress_destroy(struct decompress *d); /* NULL is fine */
/* Consumes at most *len bytes at in, writes at most *room bytes at out, and returns both numbers
 * there. It makes progress, unless a buffer is empty or the other one is needed first. Returns 0;
 * -LE_CORRUPT, also for a checksum that does not match; -LE_NOTSUP: the stream needs a larger
 * window; -LE_NOMEM. After a failure only decompress_destroy may follow. */
int decompress_some(struct decompress *d, const void *in, size_t *len, void *out,
		    size_t *space) CHECK_RESULT;
/* Returns whether the input may end here: no frame is incomplete. */
bool decompress_is_whole(const struct decompress *d);

#endif
