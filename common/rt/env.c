/* SPDX-License-Identifier: Apache-2.0 */
/* Common to every env: complete transfers over single calls, whole files. */
#include "common/rt/env.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/rt/env_backend.h"

#define IOV_WINDOW 64 /* iovecs per call */
#define PATH_TEXT_MAX 4096

uint64_t env_random_u64(struct env *env)
{
	uint64_t v;

	env_random(env, &v, sizeof(v));
	return v;
}

/* ---- files ---- */

/*
 * This code interrupts no file I/O, but some file systems (tmpfs and Btrfs in fallocate, FUSE, NFS)
 * return EINTR when anything is pending for the thread, which may be the ring's own work. The call
 * has done nothing and is repeated.
 */
#define UNTIL_DONE(rc, call) \
	do \
		(rc) = (call); \
	while ((rc) == -LE_INTR)

int env_file_open(struct env *env, const char *path, int flags, mode_t mode,
		  struct env_file **ret_file)
{
	int rc;

	UNTIL_DONE(rc, env->ops->file_open(env, path, flags | O_CLOEXEC, mode, ret_file));
	return rc;
}

int env_file_take(struct env *env, int fd, struct env_file **ret_file)
{
	if (env->ops->file_take == NULL) {
		close(fd);
		return -LE_NOSYS;
	}
	return env->ops->file_take(env, fd, ret_file);
}

int env_file_fd(const struct env_file *f)
{
	return f->env->ops->file_fd != NULL ? f->env->ops->file_fd(f) : -LE_NOSYS;
}

bool env_file_is_direct(const struct env_file *f)
{
	return f->direct;
}

void env_file_close(struct env_file *f)
{
	if (f != NULL)
		f->env->ops->file_close(f);
}

/* A position in a list of iovecs. */
struct iov_cursor {
	const struct iovec *iov;
	int n;
	size_t done; /* bytes of iov[0] */
};

static int cursor_window(const struct iov_cursor *c, struct iovec window[IOV_WINDOW])
{
	int n = 0;

	for (int i = 0; i < c->n && n < IOV_WINDOW; i++) {
		size_t skip = i == 0 ? c->done : 0;

		if (c->iov[i].iov_len == skip)
			continue;
		window[n].iov_base = (char *)c->iov[i].iov_base + skip;
		window[n++].iov_len = c->iov[i].iov_len - skip;
	}
	return n;
}

static void cursor_advance(struct iov_cursor *c, size_t len)
{
	while (c->n > 0 && len >= c->iov->iov_len - c->done) {
		len -= c->iov->iov_len - c->done;
		c->done = 0;
		c->iov++;
		c->n--;
	}
	c->done += len;
}

static int move_all(struct env_file *f, const struct iovec *iov, int n_iov, uint64_t off,
		    bool write)
{
	const struct env_ops *ops = f->env->ops;
	struct iov_cursor c = { .iov = iov, .n = n_iov };
	struct iovec window[IOV_WINDOW];

	for (;;) {
		int n = cursor_window(&c, window);
		int64_t moved;

		if (n == 0)
			return 0;
		if (write)
			UNTIL_DONE(moved, ops->file_pwritev(f, window, n, off));
		else
			UNTIL_DONE(moved, ops->file_preadv(f, window, n, off));
		if (moved < 0)
			return (int)moved;
		if (moved == 0)
			return write ? -LE_IO : -LE_NODATA;
		cursor_advance(&c, (size_t)moved);
		off += (uint64_t)moved;
	}
}

int env_file_pread(struct env_file *f, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len };

	return move_all(f, &iov, 1, off, false);
}

int env_file_pwrite(struct env_file *f, const void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };

	return move_all(f, &iov, 1, off, true);
}

int env_file_preadv(struct env_file *f, const struct iovec *iov, int n_iov, uint64_t off)
{
	return move_all(f, iov, n_iov, off, false);
}

int env_file_pwritev(struct env_file *f, const struct iovec *iov, int n_iov, uint64_t off)
{
	return move_all(f, iov, n_iov, off, true);
}

int64_t env_file_pread_some(struct env_file *f, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len };
	int64_t n;

	UNTIL_DONE(n, f->env->ops->file_preadv(f, &iov, 1, off));
	return n;
}

int64_t env_file_pread_now(struct env_file *f, void *buf, size_t len, uint64_t off)
{
	const struct env_ops *ops = f->env->ops;

	return ops->file_pread_now != NULL ? ops->file_pread_now(f, buf, len, off) : -LE_AGAIN;
}

int env_file_datasync(struct env_file *f)
{
	int rc;

	UNTIL_DONE(rc, f->env->ops->file_datasync(f));
	return rc;
}

int env_file_fallocate(struct env_file *f, int mode, uint64_t off, uint64_t len)
{
	int rc;

	UNTIL_DONE(rc, f->env->ops->file_fallocate(f, mode, off, len));
	return rc;
}

int env_file_truncate(struct env_file *f, uint64_t size)
{
	return f->env->ops->file_truncate(f, size);
}

int env_file_stat(struct env_file *f, struct stat *ret_st)
{
	return f->env->ops->file_stat(f, ret_st);
}

/* ---- paths ---- */

int env_stat(struct env *env, const char *path, struct stat *ret_st)
{
	return env->ops->path_stat(env, path, ret_st);
}

int env_mkdir(struct env *env, const char *path, mode_t mode)
{
	return env->ops->path_mkdir(env, path, mode);
}

/* Makes the name of path durable. Shortens path, which must be the caller's own copy. */
static int sync_parent(struct env *env, char *path)
{
	char *slash;

	for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
		path[len - 1] = '\0';
	slash = strrchr(path, '/');
	if (slash == NULL)
		return env_syncdir(env, ".");
	slash[slash == path ? 1 : 0] = '\0';
	return env_syncdir(env, path);
}

/* Returns 0 if path is a directory, or a symbolic link to one; -LE_NOTDIR: another file; or why it
 * cannot be examined. */
static int check_dir(struct env *env, const char *path)
{
	char inside[PATH_TEXT_MAX];
	struct stat st;
	int rc = env_stat(env, path, &st);

	if (rc == 0 && S_ISLNK(st.st_mode)) {
		if (snprintf(inside, sizeof(inside), "%s/.", path) >= (int)sizeof(inside))
			return -LE_NAMETOOLONG;
		rc = env_stat(env, inside, &st);
	}
	return rc == 0 && !S_ISDIR(st.st_mode) ? -LE_NOTDIR : rc;
}

/* Makes one directory, and its name durable; an existing one is fine. */
static int mkdir_synced(struct env *env, const char *path, size_t len, mode_t mode)
{
	char part[PATH_TEXT_MAX];
	int rc;

	memcpy(part, path, len);
	part[len] = '\0';
	rc = env_mkdir(env, part, mode);
	if (rc == -LE_EXIST)
		return check_dir(env, part) == -LE_NOTDIR ? -LE_NOTDIR : 0;
	TRY(rc);
	rc = sync_parent(env, part);
	/* A parent that this process may write but not read cannot be opened for the sync. */
	return rc == -LE_ACCES ? 0 : rc;
}

int env_mkdirs(struct env *env, const char *path, mode_t mode)
{
	size_t len = strlen(path);
	int rc;

	if (len >= PATH_TEXT_MAX)
		return -LE_NAMETOOLONG;
	rc = mkdir_synced(env, path, len, mode);
	if (rc != -LE_NOENT)
		return rc;
	for (size_t i = 1; i <= len; i++)
		if (path[i] == '/' || path[i] == '\0')
			TRY(mkdir_synced(env, path, i, mode));
	return 0;
}

int env_find_parent(struct env *env, const char *path, char *ret_parent, size_t size)
{
	char parent[PATH_TEXT_MAX];
	size_t len = strlen(path);
	int rc;

	if (len >= sizeof(parent))
		return -LE_NAMETOOLONG;
	memcpy(parent, path, len + 1);
	while (len > 0 && parent[len - 1] == '/')
		len--;
	while (len > 0 && parent[len - 1] != '/')
		len--;
	while (len > 1 && parent[len - 1] == '/')
		len--;
	parent[len] = '\0';
	if (len == 0)
		memcpy(parent, path[0] == '/' ? "/" : ".", 2);
	rc = check_dir(env, parent);
	if (rc < 0)
		snprintf(ret_parent, size, "%s", parent);
	return rc;
}

int env_unlink(struct env *env, const char *path)
{
	return env->ops->path_unlink(env, path);
}

int env_rmdir(struct env *env, const char *path)
{
	return env->ops->path_rmdir(env, path);
}

int env_rename(struct env *env, const char *from, const char *to)
{
	return env->ops->path_rename(env, from, to);
}

int env_syncdir(struct env *env, const char *path)
{
	return env->ops->path_syncdir(env, path);
}

int env_list(struct env *env, const char *path, int (*each)(void *arg, const struct env_dirent *e),
	     void *arg)
{
	return env->ops->path_list(env, path, each, arg);
}

int env_offload(struct env *env, void (*fn)(void *arg), void *arg)
{
	return env->ops->offload(env, fn, arg);
}

/* ---- whole files ---- */

int env_read_file(struct env *env, const char *path, size_t max, char **ret_data, size_t *ret_len)
{
	struct env_file *f;
	struct stat st;
	char *data = NULL;
	size_t len;
	int rc;

	TRY(env_file_open(env, path, O_RDONLY, 0, &f));
	rc = env_file_stat(f, &st);
	if (rc < 0)
		goto out;
	rc = -LE_FBIG;
	if ((uint64_t)st.st_size > max)
		goto out;
	len = (size_t)st.st_size;
	rc = -LE_NOMEM;
	data = malloc(len + 1);
	if (data == NULL)
		goto out;
	rc = env_file_pread(f, data, len, 0);
	if (rc < 0)
		goto out;
	data[len] = '\0';
	*ret_data = data;
	*ret_len = len;
	data = NULL;
out:
	free(data);
	env_file_close(f);
	return rc;
}

static int write_synced(struct env *env, const char *path, const void *data, size_t len,
			mode_t mode)
{
	struct env_file *f;
	int rc;

	TRY(env_file_open(env, path, O_WRONLY | O_CREAT | O_EXCL, mode, &f));
	rc = env_file_pwrite(f, data, len, 0);
	if (rc == 0)
		rc = env_file_datasync(f);
	env_file_close(f);
	return rc;
}

int env_write_file(struct env *env, const char *path, const void *data, size_t len, mode_t mode)
{
	char tmp[PATH_TEXT_MAX];
	int n = snprintf(tmp, sizeof(tmp), "%s.%016llx.tmp", path,
			 (unsigned long long)env_random_u64(env));
	int rc, ignored;

	if (n < 0 || (size_t)n >= sizeof(tmp))
		return -LE_NAMETOOLONG;
	rc = write_synced(env, tmp, data, len, mode);
	if (rc == 0)
		rc = env_rename(env, tmp, path);
	if (rc == 0)
		return sync_parent(env, tmp); /* tmp is in the same directory */
	ignored = env_unlink(env, tmp);
	(void)ignored;
	return rc;
}
