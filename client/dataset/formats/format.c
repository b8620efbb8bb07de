/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/formats/format.h"

#include <unistd.h>

int format_damaged(struct format_fault *f, uint64_t off, const char *what)
{
	*f = (struct format_fault){off, what};
	return -LE_CORRUPT;
}

int format_read(const struct format_input *in, void *buf, size_t len, uint64_t off,
		struct format_fault *ret_fault)
{
	if (off > in->size || len > in->size - off)
		return format_damaged(ret_fault, off, "truncated");
	for (size_t got = 0; got < len;) {
		int64_t n = in->read(in->arg, (uint8_t *)buf + got, len - got, off + got);

		if (n < 0)
			return (int)n;
		if (n == 0 || (uint64_t)n > len - got)
			return format_damaged(ret_fault, off + got, "truncated");
		got += (uint64_t)n;
	}
	return 0;
}
