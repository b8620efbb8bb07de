/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/archive_name.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/decompress.h"

int plain_kind(const char *path, size_t *ret_suffix)
{
	static const struct {
		const char *end;
		enum decompress_kind kind;
	} ends[] = {{".tar.gz", DECOMPRESS_GZIP},
		    {".tgz", DECOMPRESS_GZIP},
		    {".tar.zst", DECOMPRESS_ZSTD},
		    {".tzst", DECOMPRESS_ZSTD},
		    {".tar.lz4", DECOMPRESS_LZ4}};
	size_t len = strlen(path);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		size_t n = strlen(ends[i].end);
		if (len <= n || strcmp(path + len - n, ends[i].end) != 0)
			continue;
		/* A name is required before the suffix. */
		if (path[len - n - 1] != '/') {
			*ret_suffix = n;
			return (int)ends[i].kind;
		}
	}
	return -1;
}

static bool ends_with(const char *path, const char *end)
{
	size_t len = strlen(path), n = strlen(end);
	return len > n && strcmp(path + len - n, end) == 0;
}

size_t archive_suffix(const char *path)
{
	size_t len = strlen(path), n;
	if (plain_kind(path, &n) >= 0)
		return n;
	/* A name is required before the suffix. */
	return ends_with(path, ".tar") && path[len - 5] != '/' ? strlen(".tar") : 0;
}

bool archive_is_foreign(const char *path)
{
	static const char *const ends[] = {".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip", ".7z"};
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (ends_with(path, ends[i]))
			return true;
	return false;
}
