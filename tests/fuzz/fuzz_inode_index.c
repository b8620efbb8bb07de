/* SPDX-License-Identifier: Apache-2.0 */
/* The index of inodes beside a staged copy: any bytes, with a corrected checksum. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/store/inode_index.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"

#define HEAD 56u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct inode_index x;
	uint8_t *copy = malloc(size + 1);

	ASSERT(copy);
	memcpy(copy, data, size);
	if (size >= HEAD) {
		uint64_t sum = checksum64(copy + HEAD, size - HEAD);
		memcpy(copy + HEAD - 8, &sum, 8);
	}
	if (inode_index_decode(copy, size, &x) == 0)
		for (uint64_t i = 0; i < x.n; i++) {
			const struct inode_entry *e = inode_index_find(&x, x.entries[i].ino);
			ASSERT(e && manifest_path_is_safe(inode_index_path(&x, e)));
		}
	free(copy);
	return 0;
}
