/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_ballast.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/log.h"

/* A disk with less free space counts as full: an open makes some files of a few KiB. An open may
 * need more, to write the data of the log once more: then it fails, and is tried again without the
 * ballast. */
#define FULL_BYTES (4ULL << 20)
#define SHARE_MAX  16u /* of the disk */
#define ROOM       8u  /* so many times its size must be free before it is made */

static bool disk_of(const char *folder, uint64_t *ret_free, uint64_t *ret_size)
{
	struct statvfs v;

	if (statvfs(folder, &v) < 0)
		return false;
	*ret_free = (uint64_t)v.f_bavail * v.f_frsize;
	*ret_size = (uint64_t)v.f_blocks * v.f_frsize;
	return true;
}

static bool path_in(const char *folder, char path[PATH_MAX])
{
	return snprintf(path, PATH_MAX, "%s/ballast", folder) < PATH_MAX;
}

bool kv_ballast_drop(const char *folder)
{
	char path[PATH_MAX];

	if (!path_in(folder, path) || unlink(path) < 0)
		return false;
	log_warn("kv %s: its disk is full: removed the ballast file to free space", folder);
	return true;
}

void kv_ballast_drop_if_full(const char *folder)
{
	uint64_t free, size;

	if (disk_of(folder, &free, &size) && free < FULL_BYTES)
		kv_ballast_drop(folder);
}

/* A process that was killed while it made the ballast has left an empty file, which does not
 * count. */
static bool is_there(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_blocks > 0;
}

void kv_ballast_keep(const char *folder, uint64_t bytes)
{
	uint64_t free, size;
	char path[PATH_MAX];
	int fd;

	if (!path_in(folder, path) || is_there(path) || !disk_of(folder, &free, &size))
		return;
	bytes = bytes < size / SHARE_MAX ? bytes : size / SHARE_MAX;
	if (free / ROOM < bytes)
		return;
	fd = open(path, O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	/* Not posix_fallocate, which writes the whole file if the file system cannot reserve. */
	if (fallocate(fd, 0, 0, (off_t)bytes) < 0)
		unlink(path);
	close(fd);
}
