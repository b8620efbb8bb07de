#include "common/base/inflate.h"

#include <zlib.h>

#define STEP_MAX (1u << 30) /* zlib counts in 32 bits */

static uInt step(uint64_t left)
{
	return left > STEP_MAX ? STEP_MAX : (uInt)left;
}

int inflate_raw(const void *packed, uint64_t len, void *ret_raw, uint64_t raw_len)
{
	z_stream z = {.next_in = (Bytef *)packed, .next_out = ret_raw};
	int rc;

	if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
		return -LE_NOMEM;
	do {
		uInt in = step(len), out = step(raw_len);

		z.avail_in = in;
		z.avail_out = out;
		rc = inflate(&z, Z_NO_FLUSH);
		len -= in - z.avail_in;
		raw_len -= out - z.avail_out;
		/* Z_BUF_ERROR ends it too: nothing moves any more. */
	} while (rc == Z_OK);
	inflateEnd(&z);
	return rc == Z_STREAM_END && len == 0 && raw_len == 0 ? 0 : -LE_CORRUPT;
}

uint32_t crc32_zip(const void *data, size_t len)
{
	return (uint32_t)crc32_z(0, data, len);
}
