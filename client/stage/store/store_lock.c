/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/stage/store/store_path.h"
#include "common/base/assert.h"

void store_lock_path(const struct local_store *s, char ret_path[STORE_PATH_SIZE])
{
	/* Fits: store_init has left space for it. */
	snprintf(ret_path, STORE_PATH_SIZE, "%.3900s.lock", s->dir);
}

int store_flock(const struct local_store *s, const char *path, int how)
{
	int fd = beneath_open(s->env, path, O_RDWR | O_CREAT, 0644);
	/* To take a lease, a process needs no right to write. */
	if ((fd == -LE_ACCES || fd == -LE_ROFS) && how == LOCK_SH)
		fd = beneath_open(s->env, path, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	if (flock(fd, how | LOCK_NB) < 0) {
		int rc = errno == EWOULDBLOCK ? -LE_BUSY : status_from_errno(errno);
		close(fd);
		return rc;
	}
	return fd;
}

/* False if the file was removed, by a process that held its lock, after this one opened it. A
 * lock on it then protects nothing. */
static bool still_there(const struct local_store *s, int fd, const char *path)
{
	struct stat a, b;
	return fstat(fd, &a) == 0 && beneath_stat(s->env, path, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

int store_try_lock(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	ASSERT(s->lock_fd < 0);
	store_lock_path(s, path);
	TRY(env_mkdirs(s->env, s->base, 0755));
	for (;;) {
		int fd = store_flock(s, path, LOCK_EX);
		if (fd < 0)
			return fd;
		if (still_there(s, fd, path)) {
			s->lock_fd = fd;
			return 0;
		}
		close(fd);
	}
}

bool store_is_locked(const struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	store_lock_path(s, path);
	int fd = beneath_open(s->env, path, O_RDONLY, 0);
	if (fd < 0)
		return false;
	bool locked = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	close(fd);
	return locked;
}

void store_unlock(struct local_store *s)
{
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->lock_fd = -1;
}

int store_lease(const struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	TRY(store_join(path, s->dir, "lease"));
	int fd = store_flock(s, path, LOCK_SH);
	if (fd >= 0 && !still_there(s, fd, path)) {
		close(fd);
		return -LE_NOENT;
	}
	return fd;
}

int store_lock_admission(const struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	TRY(store_join(path, s->base, "admission"));
	int fd = beneath_open(s->env, path, O_RDWR | O_CREAT, 0644);
	if (fd < 0)
		return fd;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	int rc = errno == EWOULDBLOCK ? -LE_BUSY : status_from_errno(errno);
	close(fd);
	return rc;
}
