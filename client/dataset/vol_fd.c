/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/vol_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>
#include <unistd.h>

static int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void vol_take_stat(const struct stat *from, struct vol_stat *to)
{
	*to = (struct vol_stat){.size = (uint64_t)from->st_size,
				.mtime_ns = ns_of(from->st_mtim),
				.ino = from->st_ino & INT64_MAX,
				.ver = (uint64_t)ns_of(from->st_ctim),
				.mode = from->st_mode,
				.uid = from->st_uid,
				.gid = from->st_gid,
				.dev = from->st_dev,
				.nlink = (uint32_t)from->st_nlink,
				/* A link has no access list. */
				.plain = S_ISLNK(from->st_mode)};
}

int64_t vol_acl_of(int fd, const struct vol_stat *of, void *buf, size_t size)
{
	char self[40];
	struct stat st;
	struct vol_stat now;
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	vol_take_stat(&st, &now);
	if (now.ino != of->ino || now.dev != of->dev)
		return -LE_STALE;
	/* An O_PATH descriptor permits no other way. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	ssize_t n = getxattr(self, "system.posix_acl_access", buf, size);
	if (n < 0)
		return errno == ENODATA || errno == ENOTSUP ? 0 : status_from_errno(errno);
	return n;
}

int vol_seek_data(int fd, uint64_t off, uint64_t *ret_data, uint64_t *ret_hole)
{
	off_t data = lseek(fd, (off_t)off, SEEK_DATA), hole = data;
	if (data >= 0)
		hole = lseek(fd, data, SEEK_HOLE);
	else if (errno == ENXIO)
		hole = data = lseek(fd, 0, SEEK_END);
	if (data < 0 || hole < 0)
		return errno == EINVAL ? -LE_NOTSUP : status_from_errno(errno);
	*ret_data = (uint64_t)data;
	*ret_hole = (uint64_t)hole;
	return 0;
}

static int is_regular(int fd)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	if (S_ISDIR(st.st_mode))
		return -LE_ISDIR;
	return S_ISREG(st.st_mode) ? 0 : -LE_STALE;
}

/* Checks the type before it opens: opening alone has effects on some devices. */
static int open_looked_at(const char *path, int flags)
{
	char self[40];
	int look = open(path, O_PATH | O_CLOEXEC);
	if (look < 0)
		return status_from_errno(errno);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", look);
	int fd = is_regular(look);
	if (fd == 0) {
		fd = open(self, flags);
		fd = fd < 0 ? status_from_errno(errno) : fd;
	}
	close(look);
	return fd;
}

int vol_open_regular(const char *path, int flags, mode_t mode)
{
	const int direct = flags & O_DIRECT;
	int fd;
	flags = (flags & ~O_DIRECT) | O_CLOEXEC | O_NOCTTY;
	if (flags & O_CREAT) {
		fd = open(path, flags | O_NONBLOCK, mode);
		fd = fd < 0 ? status_from_errno(errno) : fd;
	} else {
		fd = open_looked_at(path, flags);
	}
	if (fd < 0)
		return fd;
	int rc = is_regular(fd);
	/* Without O_DIRECT if the file system does not support it. */
	if (rc == 0 && fcntl(fd, F_SETFL, direct | (flags & O_APPEND)) < 0 &&
	    fcntl(fd, F_SETFL, flags & O_APPEND) < 0)
		rc = status_from_errno(errno);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}
