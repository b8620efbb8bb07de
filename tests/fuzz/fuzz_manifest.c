/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a manifest with its checksums: no crash, and what is accepted encodes to equal
 * bytes. */
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest.h"
#include "client/dataset/manifest_file.h"
#include "common/base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first two bytes are the size of the file of checksums; the rest is the manifest. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t magic = 0x314d55535441454cULL;
	struct manifest *m = NULL, *again = NULL;
	uint8_t sums[8 + 1024];
	char *text;
	size_t len;

	if (size < 2)
		return 0;
	size_t n = (size_t)(data[0] | data[1] << 8) % 1024 / 8 * 8;
	data += 2;
	size -= 2;
	if (n > size)
		n = size / 8 * 8;
	memcpy(sums, &magic, 8);
	memcpy(sums + 8, data, n);
	if (manifest_decode((const char *)data + n, size - n, sums, 8 + n, &m, NULL) < 0)
		return 0;
	ASSERT(manifest_encode(m, &text, &len) == 0);
	ASSERT(manifest_decode(text, len, sums, 8 + n, &again, NULL) == 0);
	ASSERT(strcmp(m->id, again->id) == 0);
	free(text);
	manifest_destroy(m);
	manifest_destroy(again);
	return 0;
}
