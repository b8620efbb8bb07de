/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/vol_local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/dataset/vol.h"
#include "client/dataset/vol_beneath.h"
#include "client/dataset/vol_fd.h"
#include "common/base/assert.h"
#include "common/rt/env.h"

struct local {
	struct vol vol;
	struct env *env;
};

struct local_file {
	struct vol_file file;
	struct env_file *f;
};

static struct env *env_of(struct vol *v)
{
	return container_of(v, struct local, vol)->env;
}

static struct env_file *file_of(struct vol_file *f)
{
	return container_of(f, struct local_file, file)->f;
}

static int local_stat(struct vol *v, const char *path, struct vol_stat *ret_st)
{
	struct stat st;
	TRY(env_stat(env_of(v), path, &st));
	vol_take_stat(&st, ret_st);
	return 0;
}

/* A system call that env does not have, on a worker. */
struct local_call {
	const char *path;
	char *buf;
	size_t size;
	int64_t done;
};

static void readlink_fn(void *arg)
{
	struct local_call *c = arg;
	c->done = readlink(c->path, c->buf, c->size);
	if (c->done < 0)
		c->done = status_from_errno(errno);
}

static int local_readlink(struct vol *v, const char *path, char *buf, size_t size)
{
	struct local_call c = {path, buf, size, 0};
	TRY(env_offload(env_of(v), readlink_fn, &c));
	if (c.done < 0)
		return (int)c.done;
	if ((size_t)c.done >= size)
		return -LE_NAMETOOLONG;
	buf[c.done] = 0;
	return 0;
}

struct acl_call {
	const char *path;
	const struct vol_stat *of;
	void *buf;
	size_t size;
	int64_t done;
};

static void acl_fn(void *arg)
{
	struct acl_call *c = arg;
	int fd = open(c->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	c->done = fd < 0 ? status_from_errno(errno) : vol_acl_of(fd, c->of, c->buf, c->size);
	if (fd >= 0)
		close(fd);
}

static int64_t local_acl(struct vol *v, const char *path, const struct vol_stat *of, void *buf,
			 size_t size)
{
	struct acl_call c = {path, of, buf, size, 0};
	TRY(env_offload(env_of(v), acl_fn, &c));
	return c.done;
}

struct listing {
	int (*each)(void *arg, const struct vol_entry *e);
	void *arg;
};

static int on_entry(void *arg, const struct env_dirent *e)
{
	struct listing *l = arg;
	struct vol_entry entry = {.name = e->name};
	entry.st.mode = e->is_dir ? S_IFDIR : 0;
	return l->each(l->arg, &entry);
}

static int local_list(struct vol *v, const char *path,
		      int (*each)(void *arg, const struct vol_entry *e), void *arg)
{
	struct listing l = {each, arg};
	return env_list(env_of(v), path, on_entry, &l);
}

struct open_call {
	const char *path;
	int flags, fd;
	mode_t mode;
};

static void open_fn(void *arg)
{
	struct open_call *c = arg;
	c->fd = vol_open_regular(c->path, c->flags, c->mode);
}

static int open_env_file(struct env *env, const char *path, int flags, mode_t mode,
			 struct env_file **ret_file)
{
	struct open_call c = {path, flags, -1, mode};
	/* Below .leat only the env of beneath.h may open files. */
	if (beneath_is_below(path))
		return env_file_open(env, path, flags, mode, ret_file);
	TRY(env_offload(env, open_fn, &c));
	return c.fd < 0 ? c.fd : env_file_take(env, c.fd, ret_file);
}

static int local_open(struct vol *v, const char *path, int flags, uint32_t mode,
		      struct vol_file **ret_file)
{
	struct local_file *f = calloc(1, sizeof(*f));
	if (!f)
		return -LE_NOMEM;
	int rc = open_env_file(env_of(v), path, flags, mode, &f->f);
	if (rc < 0) {
		free(f);
		return rc;
	}
	f->file.vol = v;
	*ret_file = &f->file;
	return 0;
}

static void local_close(struct vol_file *file)
{
	struct local_file *f = container_of(file, struct local_file, file);
	env_file_close(f->f);
	free(f);
}

static int local_file_stat(struct vol_file *f, struct vol_stat *ret_st)
{
	struct stat st;
	TRY(env_file_stat(file_of(f), &st));
	vol_take_stat(&st, ret_st);
	return 0;
}

static int64_t local_pread(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	uint64_t got = 0;
	while (got < len) {
		int64_t n =
			env_file_pread_some(file_of(f), (char *)buf + got, len - got, off + got);
		if (n < 0)
			return n;
		if (n == 0)
			break;
		got += (uint64_t)n;
	}
	return (int64_t)got;
}

static int64_t local_pread_now(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	return env_file_pread_now(file_of(f), buf, len, off);
}

struct data_call {
	int fd;
	uint64_t off, data, hole;
	int rc;
};

static void data_fn(void *arg)
{
	struct data_call *c = arg;
	c->rc = vol_seek_data(c->fd, c->off, &c->data, &c->hole);
}

int vol_env_data(struct env *env, const struct env_file *f, uint64_t off, uint64_t *ret_data,
		 uint64_t *ret_hole)
{
	struct data_call c = {.fd = env_file_fd(f), .off = off};
	if (c.fd < 0)
		return -LE_NOTSUP;
	TRY(env_offload(env, data_fn, &c));
	*ret_data = c.data;
	*ret_hole = c.hole;
	return c.rc;
}

static int local_data(struct vol_file *f, uint64_t off, uint64_t *ret_data, uint64_t *ret_hole)
{
	return vol_env_data(env_of(f->vol), file_of(f), off, ret_data, ret_hole);
}

static int local_pwrite(struct vol_file *f, const void *buf, uint64_t len, uint64_t off)
{
	return env_file_pwrite(file_of(f), buf, len, off);
}

static int local_sync(struct vol_file *f)
{
	return env_file_datasync(file_of(f));
}

static int local_sums(struct vol_file *f,
		      int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole),
		      void *arg)
{
	(void)f;
	(void)each;
	(void)arg;
	return -LE_NOTSUP;
}

static int local_mkdir(struct vol *v, const char *path, uint32_t mode)
{
	return env_mkdir(env_of(v), path, mode);
}

static int local_unlink(struct vol *v, const char *path)
{
	return env_unlink(env_of(v), path);
}

static int local_rmdir(struct vol *v, const char *path)
{
	return env_rmdir(env_of(v), path);
}

struct local_meta {
	const char *path, *target;
	const struct rights *r;
	int64_t mtime_ns;
	int rc;
};

static void symlink_fn(void *arg)
{
	struct local_meta *c = arg;
	c->rc = symlink(c->target, c->path) < 0 ? status_from_errno(errno) : 0;
}

static int local_symlink(struct vol *v, const char *target, const char *path)
{
	struct local_meta c = {.path = path, .target = target};
	TRY(env_offload(env_of(v), symlink_fn, &c));
	return c.rc;
}

/* Sets mode and access list. Leaves out the list if the file system does not support lists, r
 * has none, or `mode` removes rights of r. self: the path of the descriptor in /proc. */
static int set_acl(const char *self, const struct rights *r, uint32_t mode)
{
	static const char access[] = "system.posix_acl_access", dflt[] = "system.posix_acl_default";
	const struct rights bare = rights_without_acl(r);
	if ((removexattr(self, access) < 0 && errno != ENODATA && errno != ENOTSUP) ||
	    (removexattr(self, dflt) < 0 && errno != ENODATA && errno != ENOTSUP &&
	     errno != EACCES && errno != EPERM))
		return status_from_errno(errno);
	if (chmod(self, bare.mode & mode) < 0)
		return status_from_errno(errno);
	if (!r->acl_len || (r->mode & mode) != (r->mode & 07777) ||
	    setxattr(self, access, r->acl, r->acl_len, 0) == 0)
		return 0;
	return errno == ENOTSUP ? 0 : status_from_errno(errno);
}

/* fd: O_PATH. Does not use the name, which may lead to another file by now. */
static int set_meta(int fd, const struct rights *r, int64_t mtime_ns)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
					  {mtime_ns / 1000000000, mtime_ns % 1000000000}};
	uint32_t mode = 07777;
	struct stat st;
	char self[32];
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	if ((st.st_uid != r->uid || st.st_gid != r->gid) &&
	    fchownat(fd, "", r->uid, r->gid, AT_EMPTY_PATH) < 0) {
		if (errno != EPERM || geteuid() == 0)
			return status_from_errno(errno);
		mode = fchownat(fd, "", (uid_t)-1, r->gid, AT_EMPTY_PATH) < 0 ? 01707 : 01777;
	}
	if (!S_ISLNK(st.st_mode))
		TRY(set_acl(self, r, mode));
	return utimensat(fd, "", times, AT_EMPTY_PATH) < 0 ? status_from_errno(errno) : 0;
}

static void set_rights_fn(void *arg)
{
	struct local_meta *c = arg;
	int fd = open(c->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	c->rc = fd < 0 ? status_from_errno(errno) : set_meta(fd, c->r, c->mtime_ns);
	if (fd >= 0)
		close(fd);
}

static int local_set_rights(struct vol *v, const char *path, const struct rights *r,
			    int64_t mtime_ns)
{
	struct local_meta c = {.path = path, .r = r, .mtime_ns = mtime_ns};
	TRY(env_offload(env_of(v), set_rights_fn, &c));
	return c.rc;
}

static int local_rename(struct vol *v, const char *from, const char *to)
{
	return env_rename(env_of(v), from, to);
}

static int local_rename_new(struct vol *v, const char *from, const char *to)
{
	struct stat st;
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return status_from_errno(errno);
	/* The file system does not support RENAME_NOREPLACE, so the check and the rename are two
	 * steps. */
	int rc = env_stat(env_of(v), to, &st);
	if (rc != -LE_NOENT)
		return rc < 0 ? rc : -LE_EXIST;
	return env_rename(env_of(v), from, to);
}

static int local_exchange(struct vol *v, const char *a, const char *b)
{
	(void)v;
	if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) < 0)
		return status_from_errno(errno);
	return 0;
}

static int local_syncdir(struct vol *v, const char *path)
{
	return env_syncdir(env_of(v), path);
}

/* Not supported: the immutable flag of some file systems can be removed again. */
static int local_seal(struct vol *v, const char *path)
{
	(void)v;
	(void)path;
	return -LE_NOTSUP;
}

static int local_beneath(struct vol *v, const char *dir, struct vol **ret_vol)
{
	return vol_local_beneath(env_of(v), dir, ret_vol);
}

static void local_destroy(struct vol *v)
{
	free(container_of(v, struct local, vol));
}

static const struct vol_ops local_ops = {
	.stat = local_stat,
	.readlink = local_readlink,
	.acl = local_acl,
	.list = local_list,
	.open = local_open,
	.close = local_close,
	.file_stat = local_file_stat,
	.pread = local_pread,
	.pread_now = local_pread_now,
	.data = local_data,
	.pwrite = local_pwrite,
	.sync = local_sync,
	.sums = local_sums,
	.mkdir = local_mkdir,
	.unlink = local_unlink,
	.rmdir = local_rmdir,
	.rename = local_rename,
	.rename_new = local_rename_new,
	.exchange = local_exchange,
	.syncdir = local_syncdir,
	.seal = local_seal,
	.symlink = local_symlink,
	.set_rights = local_set_rights,
	.beneath = local_beneath,
	.destroy = local_destroy,
};

static int soft_sync(struct vol_file *f)
{
	(void)f;
	return 0;
}

static int soft_syncdir(struct vol *v, const char *path)
{
	(void)v;
	(void)path;
	return 0;
}

static const struct vol_ops soft_ops = {
	.stat = local_stat,
	.readlink = local_readlink,
	.acl = local_acl,
	.list = local_list,
	.open = local_open,
	.close = local_close,
	.file_stat = local_file_stat,
	.pread = local_pread,
	.pread_now = local_pread_now,
	.data = local_data,
	.pwrite = local_pwrite,
	.sync = soft_sync,
	.sums = local_sums,
	.mkdir = local_mkdir,
	.unlink = local_unlink,
	.rmdir = local_rmdir,
	.rename = local_rename,
	.rename_new = local_rename_new,
	.exchange = local_exchange,
	.syncdir = soft_syncdir,
	.seal = local_seal,
	.symlink = local_symlink,
	.set_rights = local_set_rights,
	.beneath = local_beneath,
	.destroy = local_destroy,
};

static int create(struct env *env, const struct vol_ops *ops, struct vol **ret_vol)
{
	struct local *l = calloc(1, sizeof(*l));
	if (!l)
		return -LE_NOMEM;
	l->vol.ops = ops;
	l->vol.origin = ORIGIN_LOCAL;
	l->env = env;
	*ret_vol = &l->vol;
	return 0;
}

int vol_local_create(struct env *env, struct vol **ret_vol)
{
	return create(env, &local_ops, ret_vol);
}

int vol_local_create_soft(struct env *env, struct vol **ret_vol)
{
	return create(env, &soft_ops, ret_vol);
}
