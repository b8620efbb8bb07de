/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/vol_beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/dataset/vol.h"
#include "client/dataset/vol_fd.h"
#include "common/base/assert.h"
#include "common/rt/env.h"

struct beneath {
	struct vol vol;
	struct env *env;
	int fd;
	char dir[4096]; /* prefix of the callers' paths */
};

struct open_file {
	struct vol_file file;
	int fd;
};

/* One job: the arguments of all calls. */
struct call {
	int (*fn)(struct call *c);
	struct beneath *b;
	const char *rel; /* path below the directory */
	int fd;
	struct statx st;
	const struct vol_stat *acl_of;
	char *buf;
	size_t size, len;
	uint64_t off;
	int rc;
};

static struct beneath *of(struct vol *v)
{
	return container_of(v, struct beneath, vol);
}

static int fd_of(struct vol_file *f)
{
	return container_of(f, struct open_file, file)->fd;
}

static int fail(void)
{
	return status_from_errno(errno);
}

static void call_fn(void *arg)
{
	struct call *c = arg;
	c->rc = c->fn(c);
}

static int run(struct vol *v, struct call *c)
{
	c->b = of(v);
	TRY(env_offload(c->b->env, call_fn, c));
	return c->rc;
}

static int rel_of(struct vol *v, const char *path, const char **ret_rel)
{
	const char *dir = of(v)->dir;
	size_t n = strcmp(dir, "/") ? strlen(dir) : 0;
	if (strncmp(path, dir, n) != 0 || (path[n] && path[n] != '/'))
		return -LE_INVAL;
	while (path[n] == '/')
		n++;
	*ret_rel = path[n] ? path + n : ".";
	return 0;
}

static int open_rel(const struct call *c, int flags)
{
	const struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	return (int)syscall(SYS_openat2, c->b->fd, c->rel, &how, sizeof(how));
}

static int look_at(struct call *c, int fd)
{
	return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &c->st) < 0 ? fail()
											 : 0;
}

static int64_t ns_of(const struct statx_timestamp *t)
{
	return t->tv_sec * 1000000000 + t->tv_nsec;
}

static void take_stat(const struct statx *from, struct vol_stat *ret_st)
{
	*ret_st = (struct vol_stat){
		.size = from->stx_size,
		.mtime_ns = ns_of(&from->stx_mtime),
		.ino = from->stx_ino & INT64_MAX,
		.ver = (uint64_t)ns_of(&from->stx_ctime),
		.mode = from->stx_mode,
		.uid = from->stx_uid,
		.gid = from->stx_gid,
		.nlink = from->stx_nlink,
		.dev = makedev(from->stx_dev_major, from->stx_dev_minor),
		.plain = S_ISLNK(from->stx_mode), /* a link has no access list */
		.born_ns = from->stx_mask & STATX_BTIME ? ns_of(&from->stx_btime) : 0};
}

static int stat_fn(struct call *c)
{
	int fd = open_rel(c, O_PATH | O_NOFOLLOW);
	if (fd < 0)
		return fail();
	int rc = look_at(c, fd);
	close(fd);
	return rc;
}

static int beneath_stat(struct vol *v, const char *path, struct vol_stat *ret_st)
{
	struct call c = {.fn = stat_fn};
	TRY(rel_of(v, path, &c.rel));
	TRY(run(v, &c));
	take_stat(&c.st, ret_st);
	return 0;
}

static int readlink_fn(struct call *c)
{
	int fd = open_rel(c, O_PATH | O_NOFOLLOW);
	if (fd < 0)
		return fail();
	ssize_t n = readlinkat(fd, "", c->buf, c->size);
	int rc = n < 0 ? fail() : 0;
	close(fd);
	c->len = n < 0 ? 0 : (size_t)n;
	return rc;
}

static int beneath_readlink(struct vol *v, const char *path, char *buf, size_t size)
{
	struct call c = {.fn = readlink_fn, .buf = buf, .size = size};
	TRY(rel_of(v, path, &c.rel));
	TRY(run(v, &c));
	if (c.len >= size)
		return -LE_NAMETOOLONG;
	buf[c.len] = 0;
	return 0;
}

static int acl_fn(struct call *c)
{
	int fd = open_rel(c, O_PATH | O_NOFOLLOW);
	if (fd < 0)
		return fail();
	int64_t n = vol_acl_of(fd, c->acl_of, c->buf, c->size);
	close(fd);
	c->len = n < 0 ? 0 : (size_t)n;
	return n < 0 ? (int)n : 0;
}

static int64_t beneath_acl(struct vol *v, const char *path, const struct vol_stat *of, void *buf,
			   size_t size)
{
	struct call c = {.fn = acl_fn, .acl_of = of, .buf = buf, .size = size};
	TRY(rel_of(v, path, &c.rel));
	TRY(run(v, &c));
	return (int64_t)c.len;
}

/* Appends to c->buf: a byte that says whether the entry is a directory, the name, NUL. */
static int add_name(struct call *c, const struct dirent *de)
{
	size_t n = strlen(de->d_name) + 1;
	if (c->len + n + 1 > c->size) {
		size_t size = c->size * 2 + 4096;
		char *more = realloc(c->buf, size);
		if (!more)
			return -LE_NOMEM;
		c->buf = more;
		c->size = size;
	}
	c->buf[c->len++] = de->d_type == DT_DIR;
	memcpy(c->buf + c->len, de->d_name, n);
	c->len += n;
	return 0;
}

static int list_fn(struct call *c)
{
	int fd = open_rel(c, O_RDONLY | O_DIRECTORY), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		rc = fail();
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (rc == 0) {
		errno = 0;
		const struct dirent *de = readdir(dir);
		if (!de) {
			rc = errno ? fail() : 0;
			break;
		}
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			rc = add_name(c, de);
	}
	closedir(dir);
	return rc;
}

static int beneath_list(struct vol *v, const char *path,
			int (*each)(void *arg, const struct vol_entry *e), void *arg)
{
	struct call c = {.fn = list_fn};
	TRY(rel_of(v, path, &c.rel));
	int rc = run(v, &c);
	for (size_t at = 0; rc == 0 && at < c.len; at += strlen(c.buf + at) + 1) {
		struct vol_entry e = {.st.mode = c.buf[at] ? S_IFDIR : 0};
		e.name = c.buf + ++at;
		rc = each(arg, &e);
	}
	free(c.buf);
	return rc;
}

/* The listed file may have been replaced by a pipe. */
static int open_fn(struct call *c)
{
	c->fd = open_rel(c, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (c->fd < 0)
		return fail();
	if (look_at(c, c->fd) == 0 && S_ISREG(c->st.stx_mode))
		return 0;
	close(c->fd);
	return -LE_STALE;
}

static int beneath_open(struct vol *v, const char *path, int flags, uint32_t mode,
			struct vol_file **ret_file)
{
	struct call c = {.fn = open_fn};
	(void)mode;
	if ((flags & O_ACCMODE) != O_RDONLY)
		return -LE_ROFS;
	TRY(rel_of(v, path, &c.rel));
	struct open_file *f = calloc(1, sizeof(*f));
	if (!f)
		return -LE_NOMEM;
	int rc = run(v, &c);
	if (rc < 0) {
		free(f);
		return rc;
	}
	f->file.vol = v;
	f->fd = c.fd;
	*ret_file = &f->file;
	return 0;
}

static void beneath_close(struct vol_file *file)
{
	close(fd_of(file));
	free(container_of(file, struct open_file, file));
}

static int fstat_fn(struct call *c)
{
	return look_at(c, c->fd);
}

static int beneath_file_stat(struct vol_file *f, struct vol_stat *ret_st)
{
	struct call c = {.fn = fstat_fn, .fd = fd_of(f)};
	TRY(run(f->vol, &c));
	take_stat(&c.st, ret_st);
	return 0;
}

static int pread_fn(struct call *c)
{
	while (c->len < c->size) {
		ssize_t n = pread(c->fd, c->buf + c->len, c->size - c->len,
				  (off_t)(c->off + c->len));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail();
		if (n == 0)
			break;
		c->len += (size_t)n;
	}
	return 0;
}

static int64_t beneath_pread(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	struct call c = {.fn = pread_fn, .fd = fd_of(f), .buf = buf, .size = len, .off = off};
	TRY(run(f->vol, &c));
	return (int64_t)c.len;
}

static int data_fn(struct call *c)
{
	uint64_t data, hole;
	TRY(vol_seek_data(c->fd, c->off, &data, &hole));
	c->off = data;
	c->size = hole;
	return 0;
}

static int beneath_data(struct vol_file *f, uint64_t off, uint64_t *ret_data, uint64_t *ret_hole)
{
	struct call c = {.fn = data_fn, .fd = fd_of(f), .off = off};
	TRY(run(f->vol, &c));
	*ret_data = c.off;
	*ret_hole = c.size;
	return 0;
}

static int beneath_sums(struct vol_file *f,
			int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole),
			void *arg)
{
	(void)f;
	(void)each;
	(void)arg;
	return -LE_NOTSUP;
}

static void beneath_destroy(struct vol *v)
{
	close(of(v)->fd);
	free(of(v));
}

static const struct vol_ops beneath_ops = {
	.stat = beneath_stat,
	.readlink = beneath_readlink,
	.acl = beneath_acl,
	.list = beneath_list,
	.open = beneath_open,
	.close = beneath_close,
	.file_stat = beneath_file_stat,
	.pread = beneath_pread,
	.data = beneath_data,
	.sums = beneath_sums,
	.destroy = beneath_destroy,
};

/* Opens a directory by a path without links; -1 and errno on failure. */
static int open_real(const char *dir)
{
	const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
				     .resolve = RESOLVE_NO_SYMLINKS};
	return (int)syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof(how));
}

int vol_local_beneath(struct env *env, const char *dir, struct vol **ret_vol)
{
	struct beneath *b = calloc(1, sizeof(*b));
	if (!b)
		return -LE_NOMEM;
	int n = snprintf(b->dir, sizeof(b->dir), "%s", dir);
	b->fd = open_real(dir);
	if (n >= (int)sizeof(b->dir) || b->fd < 0) {
		int rc = b->fd < 0 ? fail() : -LE_NAMETOOLONG;
		if (b->fd >= 0)
			close(b->fd);
		free(b);
		return rc;
	}
	b->vol = (struct vol){&beneath_ops, ORIGIN_LOCAL};
	b->env = env;
	*ret_vol = &b->vol;
	return 0;
}

/* Opens the directory `name` in fd, which is made if necessary. Closes fd. */
static int make_in(int fd, const char *name)
{
	int next = mkdirat(fd, name, 0755) < 0 && errno != EEXIST ? -1 : 0;
	if (next == 0)
		next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int rc = next < 0 ? fail() : next;
	close(fd);
	return rc;
}

int vol_open_made(struct vol *v, const char *dir, uint32_t uid)
{
	char have[4096], real[4096], *rest;
	size_t len = strlen(dir);
	int rc;
	if (len >= sizeof(have))
		return -LE_NAMETOOLONG;
	memcpy(have, dir, len + 1);
	/* Finds the part of the path that exists. */
	while ((rc = vol_trusted_path(v, have, uid, real)) == -LE_NOENT && len > 1) {
		while (len > 1 && have[len - 1] != '/')
			len--;
		while (len > 1 && have[len - 1] == '/')
			len--;
		have[len] = 0;
	}
	TRY(rc);
	int fd = open_real(real);
	if (fd < 0)
		return fail();
	memcpy(have, dir, strlen(dir) + 1);
	for (char *name = strtok_r(have + len, "/", &rest); name && fd >= 0;
	     name = strtok_r(NULL, "/", &rest))
		fd = strcmp(name, ".") == 0 ? fd : make_in(fd, name);
	return fd;
}
