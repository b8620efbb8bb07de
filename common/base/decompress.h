/*
 * Streams that others have packed: gzip (RFC 1952) by zlib, Zstandard (RFC 8878) by libzstd, LZ4
 * frames (lz4_Frame_format.md) by liblz4. Several in a row are one, as with gzip(1). Owned by one
 * thread; pure but for its memory, which is bounded whatever the stream asks for: 32 KiB windows of
 * gzip, DECOMPRESS_WINDOW_LOG of Zstandard, 4 MiB blocks of LZ4.
 *
 * The stream is not trusted. How much comes out of it is up to the caller, who gives the room.
 */
#ifndef LEAT_BASE_DECOMPRESS_H
#define LEAT_BASE_DECOMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum decompress_kind {
	DECOMPRESS_GZIP,
	DECOMPRESS_ZSTD,
	DECOMPRESS_LZ4
};
#define DECOMPRESS_WINDOW_LOG 27 /* 128 MiB, what zstd(1) takes without --long */

struct decompress;

int decompress_create(enum decompress_kind kind, struct decompress **ret_d) CHECK_RESULT;
void decompress_destroy(struct decompress *d); /* NULL is fine */
/* Takes some of the *len bytes at in, makes at most *room at out, and says in both how many that
 * were: at least one unless one of the two was 0 or the other is needed. -LE_CORRUPT, with a sum
 * that does not match too; -LE_NOTSUP: it needs a larger window; -LE_NOMEM. After a failure it is
 * only destroyed. */
int decompress_some(struct decompress *d, const void *in, size_t *len, void *out,
		    size_t *room) CHECK_RESULT;
/* Nothing is under way: the input may end here. */
bool decompress_is_whole(const struct decompress *d);

#endif
