/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a packed stream, in pieces of any size: no crash, no byte beyond the input or
 * output, and it always ends. */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/decompress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OUT_MAX (4u << 20) /* of one input: the caller must limit bombs */

/* The first byte selects the kind, the next two the sizes of input and output pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct decompress *d;
	if (size < 3 || decompress_create((enum decompress_kind)(data[0] % 3), &d) < 0)
		return 0;
	size_t in = 1 + data[1] * 64u, out = 1 + data[2] * 64u, made = 0;
	data += 3;
	size -= 3;
	uint8_t *space = malloc(out);
	for (bool moves = space != NULL; moves && made < OUT_MAX;) {
		size_t take = size < in ? size : in, n = out;
		/* A copy of exactly that size: the sanitizer detects a read after its end. */
		uint8_t *piece = malloc(take ? take : 1);
		if (!piece)
			break;
		memcpy(piece, data, take);
		size_t offered = take;
		int rc = decompress_some(d, piece, &take, space, &n);
		free(piece);
		if (rc < 0)
			break;
		ASSERT(take <= offered && n <= out);
		data += take;
		size -= take;
		made += n;
		moves = take || n;
	}
	(void)decompress_is_whole(d);
	decompress_destroy(d);
	free(space);
	return 0;
}
