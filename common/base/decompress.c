/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/decompress.h"

#include <lz4frame.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "common/base/inflate.h"

struct decompress {
	enum decompress_kind kind;
	bool begun; /* a frame is incomplete */
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
		inflateEnd(&d->z); /* safe before inflateInit2 */
	ZSTD_freeDStream(d->zstd);
	LZ4F_freeDecompressionContext(d->lz4);
	free(d);
}

static int gzip_some(struct decompress *d, const void *in, size_t *len, void *out, size_t *space)
{
	uInt n = *len > ZLIB_STEP_MAX ? ZLIB_STEP_MAX : (uInt)*len;
	uInt m = *space > ZLIB_STEP_MAX ? ZLIB_STEP_MAX : (uInt)*space;
	/* The next one of several streams in a row. */
	if (!d->begun && n && inflateReset(&d->z) != Z_OK)
		return -LE_CORRUPT;
	d->begun |= n > 0;
	d->z.next_in = (Bytef *)(uintptr_t)in;
	d->z.avail_in = n;
	d->z.next_out = out;
	d->z.avail_out = m;
	int rc = inflate(&d->z, Z_NO_FLUSH);
	*len = n - d->z.avail_in;
	*space = m - d->z.avail_out;
	if (rc == Z_STREAM_END)
		d->begun = false;
	/* Z_BUF_ERROR: no progress, which the caller detects. */
	if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR)
		return 0;
	return rc == Z_MEM_ERROR ? -LE_NOMEM : -LE_CORRUPT;
}

static int zstd_some(struct decompress *d, const void *in, size_t *len, void *out, size_t *space)
{
	ZSTD_inBuffer from = {in, *len, 0};
	ZSTD_outBuffer to = {out, *space, 0};
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
	*space = to.pos;
	return 0;
}

static int lz4_some(struct decompress *d, const void *in, size_t *len, void *out, size_t *space)
{
	bool moves = *len || *space;
	size_t rc = LZ4F_decompress(d->lz4, out, space, in, len, NULL);
	if (LZ4F_isError(rc))
		return -LE_CORRUPT;
	if (moves && (*len || *space))
		d->begun = rc != 0;
	return 0;
}

int decompress_some(struct decompress *d, const void *in, size_t *len, void *out, size_t *space)
{
	if (d->kind == DECOMPRESS_GZIP)
		return gzip_some(d, in, len, out, space);
	return d->kind == DECOMPRESS_ZSTD ? zstd_some(d, in, len, out, space)
					  : lz4_some(d, in, len, out, space);
}

bool decompress_is_whole(const struct decompress *d)
{
	return !d->begun;
}
