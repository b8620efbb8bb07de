#include "common/base/decompress.h"

#include <lz4frame.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define STEP_MAX (1u << 30) /* zlib counts in 32 bits */

struct decompress {
	enum decompress_kind kind;
	bool begun; /* a frame is under way */
	z_stream z;
	ZSTD_DStream *zstd;
	LZ4F_dctx *lz4;
};

static int open_kind(struct decompress *d)
{
	switch (d->kind) {
	case DECOMPRESS_GZIP:
		/* 16: the header and trailer of gzip, with its CRC. */
		return inflateInit2(&d->z, 16 + MAX_WBITS) == Z_OK ? 0 : -LE_NOMEM;
	case DECOMPRESS_ZSTD:
		d->zstd = ZSTD_createDStream();
		if (!d->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax,
								    DECOMPRESS_WINDOW_LOG)))
			return -LE_NOMEM;
		return 0;
	case DECOMPRESS_LZ4:
		return LZ4F_isError(LZ4F_createDecompressionContext(&d->lz4, LZ4F_VERSION))
			       ? -LE_NOMEM
			       : 0;
	}
	return -LE_INVAL;
}

int decompress_create(enum decompress_kind kind, struct decompress **ret_d)
{
	struct decompress *d = calloc(1, sizeof(*d));
	if (!d)
		return -LE_NOMEM;
	d->kind = kind;
	int rc = open_kind(d);
	if (rc < 0)
		decompress_destroy(d);
	else
		*ret_d = d;
	return rc;
}

void decompress_destroy(struct decompress *d)
{
	if (!d)
		return;
	if (d->kind == DECOMPRESS_GZIP)
		inflateEnd(&d->z); /* fine if it has not begun */
	ZSTD_freeDStream(d->zstd);
	LZ4F_freeDecompressionContext(d->lz4);
	free(d);
}

static int gzip_some(struct decompress *d, const void *in, size_t *len, void *out, size_t *room)
{
	uInt n = *len > STEP_MAX ? STEP_MAX : (uInt)*len;
	uInt m = *room > STEP_MAX ? STEP_MAX : (uInt)*room;
	/* The next of several in a row. */
	if (!d->begun && n && inflateReset(&d->z) != Z_OK)
		return -LE_CORRUPT;
	d->begun |= n > 0;
	d->z.next_in = (Bytef *)(uintptr_t)in;
	d->z.avail_in = n;
	d->z.next_out = out;
	d->z.avail_out = m;
	int rc = inflate(&d->z, Z_NO_FLUSH);
	*len = n - d->z.avail_in;
	*room = m - d->z.avail_out;
	if (rc == Z_STREAM_END)
		d->begun = false;
	/* Z_BUF_ERROR: nothing could move, which the caller sees. */
	if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR)
		return 0;
	return rc == Z_MEM_ERROR ? -LE_NOMEM : -LE_CORRUPT;
}

static int zstd_some(struct decompress *d, const void *in, size_t *len, void *out, size_t *room)
{
	ZSTD_inBuffer from = {in, *len, 0};
	ZSTD_outBuffer to = {out, *room, 0};
	size_t rc = ZSTD_decompressStream(d->zstd, &to, &from);
	if (ZSTD_isError(rc)) {
		ZSTD_ErrorCode why = ZSTD_getErrorCode(rc);
		return why == ZSTD_error_memory_allocation                ? -LE_NOMEM
		       : why == ZSTD_error_frameParameter_windowTooLarge ||
				 why == ZSTD_error_dictionary_wrong ||
				 why == ZSTD_error_frameParameter_unsupported
			       ? -LE_NOTSUP
			       : -LE_CORRUPT;
	}
	if (from.pos || to.pos)
		d->begun = rc != 0;
	*len = from.pos;
	*room = to.pos;
	return 0;
}

static int lz4_some(struct decompress *d, const void *in, size_t *len, void *out, size_t *room)
{
	bool moves = *len || *room;
	size_t rc = LZ4F_decompress(d->lz4, out, room, in, len, NULL);
	if (LZ4F_isError(rc))
		return -LE_CORRUPT;
	if (moves && (*len || *room))
		d->begun = rc != 0;
	return 0;
}

int decompress_some(struct decompress *d, const void *in, size_t *len, void *out, size_t *room)
{
	if (d->kind == DECOMPRESS_GZIP)
		return gzip_some(d, in, len, out, room);
	return d->kind == DECOMPRESS_ZSTD ? zstd_some(d, in, len, out, room)
					  : lz4_some(d, in, len, out, room);
}

bool decompress_is_whole(const struct decompress *d)
{
	return !d->begun;
}
