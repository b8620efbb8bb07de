/* Any bytes as a packed block: what comes out keeps within the room given. The first two bytes say
 * how much that is. What was packed comes back. */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/compress.h"

#define PLAIN_MAX (256u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void there_and_back(const uint8_t *data, uint32_t len)
{
	uint8_t *packed = malloc(len - COMPRESS_UNIT), *plain = malloc(len);
	uint32_t n;

	ASSERT(packed && plain);
	n = compress_block(data, len, packed);
	if (n) {
		ASSERT(n <= len - COMPRESS_UNIT);
		ASSERT(decompress_block(packed, n, plain, len) == 0);
		ASSERT(memcmp(plain, data, len) == 0);
	}
	free(packed);
	free(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t len;
	uint8_t *out;

	if (size < 3 || size > PLAIN_MAX)
		return 0;
	len = 1 + (data[0] | (uint32_t)data[1] << 8) * 4;
	out = malloc(len); /* exactly, so that the sanitizer sees what goes beyond */
	ASSERT(out);
	(void)!decompress_block(data + 2, (uint32_t)size - 2, out, len);
	free(out);
	if (size >= 2 * COMPRESS_UNIT)
		there_and_back(data, (uint32_t)size / COMPRESS_UNIT * COMPRESS_UNIT);
	return 0;
}
