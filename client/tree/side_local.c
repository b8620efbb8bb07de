/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A side that is the local file system, or a mount. Each call is one job for a worker thread, which
 * may block; the loop does not. Every open starts from a directory's descriptor (O_PATH) and does
 * not follow links.
 */
#include "client/tree/side_local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/include/leat/leat_tree.h"
#include "client/tree/side.h"
#include "common/base/assert.h"
#include "common/rt/env.h"

#define NS 1000000000
/* Space for "/proc/self/fd/N/NAME". */
#define FD_PATH (LEAT_NAME_MAX + 40)

struct local_side {
	struct side side;
	struct env *env;
};

/* One job: the arguments of all calls. */
struct job {
	int (*fn)(struct job *j);
	struct local_side *l;
	struct tdir *d, *ret_dir;
	const char *name, *name2;
	const struct tattr *a;
	struct tattr *ret_attr;
	const struct tent *e;
	struct tent *ents;
	struct tfile *f;
	struct tmeta *m;
	const struct tmeta *cm;
	const struct tlink *link;
	char *buf;
	const void *data;
	size_t len;
	uint64_t off;
	uint32_t mode, n;
	int whence;
	bool flag;
	int64_t got;
	int rc;
};

static void job_fn(void *arg)
{
	struct job *j = arg;

	j->rc = j->fn(j);
}

static int run(struct side *s, struct job *j)
{
	j->l = container_of(s, struct local_side, side);
	TRY(env_offload(j->l->env, job_fn, j));
	return j->rc;
}

static int fail(void)
{
	return status_from_errno(errno);
}

static int done(int rc)
{
	return rc < 0 ? fail() : 0;
}

static void take_stat(const struct stat *st, struct tattr *ret_a)
{
	*ret_a = (struct tattr){
		.ino = st->st_ino,
		.dev = st->st_dev,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.rdev = st->st_rdev,
		.atime_ns = st->st_atim.tv_sec * (int64_t)NS + st->st_atim.tv_nsec,
		.mtime_ns = st->st_mtim.tv_sec * (int64_t)NS + st->st_mtim.tv_nsec,
	};
}

/* ---- names ---- */

static int at_job(struct job *j)
{
	size_t len = strlen(j->name);
	char *dir;
	const char *slash, *last;
	int fd;

	while (len > 1 && j->name[len - 1] == '/')
		len--;
	dir = strndup(j->name, len);
	if (!dir)
		return -LE_NOMEM;
	slash = strrchr(dir, '/');
	last = slash && slash[1] ? slash + 1 : ".";
	if (!slash || strlen(last) > LEAT_NAME_MAX) {
		free(dir);
		return slash ? -LE_NAMETOOLONG : -LE_INVAL;
	}
	memcpy(j->buf, last, strlen(last) + 1);
	dir[slash - dir + 1] = '\0';
	fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	free(dir);
	if (fd < 0)
		return fail();
	*j->ret_dir = (struct tdir){.side = &j->l->side, .fd = fd};
	return 0;
}

static int local_at(struct side *s, const char *path, struct tdir *ret_dir, char *ret_name)
{
	struct job j = {.fn = at_job, .name = path, .ret_dir = ret_dir, .buf = ret_name};

	return run(s, &j);
}

static int look_job(struct job *j)
{
	struct stat st;

	if (fstatat(j->d->fd, j->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return fail();
	take_stat(&st, j->ret_attr);
	return 0;
}

static int local_look(struct tdir *d, const char *name, struct tattr *ret_attr)
{
	struct job j = {.fn = look_job, .d = d, .name = name, .ret_attr = ret_attr};

	return run(d->side, &j);
}

static int open_job(struct job *j)
{
	int fd = openat(j->d->fd, j->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return fail();
	*j->ret_dir = (struct tdir){.side = j->d->side, .fd = fd};
	return 0;
}

static int local_open(struct tdir *d, const char *name, const struct tattr *a, struct tdir *ret_dir)
{
	struct job j = {.fn = open_job, .d = d, .name = name, .ret_dir = ret_dir};

	(void)a;
	return run(d->side, &j);
}

/* Needs no worker: a close that writes nothing does not block. */
static void local_close(struct tdir *d)
{
	if (d->stream)
		closedir(d->stream);
	close(d->fd);
	d->stream = NULL;
}

static int stat_entry(struct job *j, const struct dirent *de, struct tent *e)
{
	struct stat st;

	if (j->flag || de->d_type == DT_UNKNOWN) {
		if (fstatat(j->d->fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return fail();
		take_stat(&st, &e->a);
		return 0;
	}
	e->a = (struct tattr){.ino = de->d_ino, .mode = (uint32_t)DTTOIF(de->d_type)};
	return 0;
}

static int begin_stream(struct tdir *d)
{
	int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return fail();
	d->stream = fdopendir(fd);
	if (!d->stream) {
		close(fd);
		return -LE_NOMEM;
	}
	return 0;
}

static int list_job(struct job *j)
{
	struct dirent *de = NULL;

	if (!j->d->stream)
		TRY(begin_stream(j->d));
	while (j->n < SIDE_LIST_MAX) {
		struct tent *e = &j->ents[j->n];

		errno = 0;
		de = readdir(j->d->stream);
		if (!de)
			break;
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		snprintf(e->name, sizeof(e->name), "%s", de->d_name);
		e->rc = stat_entry(j, de, e);
		if (e->rc == -LE_NOENT)
			continue; /* removed meanwhile */
		j->n++;
	}
	if (de)
		return 0;
	if (errno)
		return fail();
	j->got = 1;
	closedir(j->d->stream);
	j->d->stream = NULL;
	return 0;
}

static int local_list(struct tdir *d, bool attrs, struct tent *ents, uint32_t *ret_n, bool *ret_eof)
{
	struct job j = {.fn = list_job, .d = d, .flag = attrs, .ents = ents};

	TRY(run(d->side, &j));
	*ret_n = j.n;
	*ret_eof = j.got != 0;
	return 0;
}

static int remove_job(struct job *j)
{
	return done(unlinkat(j->d->fd, j->name, j->flag ? AT_REMOVEDIR : 0));
}

static int local_remove(struct tdir *d, const char *name, bool dir)
{
	struct job j = {.fn = remove_job, .d = d, .name = name, .flag = dir};

	return run(d->side, &j);
}

static int mkdir_job(struct job *j)
{
	return done(mkdirat(j->d->fd, j->name, j->mode));
}

static int local_mkdir(struct tdir *d, const char *name, uint32_t mode)
{
	struct job j = {.fn = mkdir_job, .d = d, .name = name, .mode = mode};

	return run(d->side, &j);
}

static int symlink_job(struct job *j)
{
	TRY(done(symlinkat(j->name2, j->d->fd, j->name)));
	return look_job(j);
}

static int local_symlink(struct tdir *d, const char *name, const char *target,
			 struct tattr *ret_made)
{
	struct job j = {.fn = symlink_job, .d = d, .name = name, .name2 = target};

	j.ret_attr = ret_made;
	return run(d->side, &j);
}

static int readlink_job(struct job *j)
{
	ssize_t n = readlinkat(j->d->fd, j->name, j->buf, j->len);

	if (n < 0)
		return fail();
	if ((size_t)n == j->len)
		return -LE_NAMETOOLONG;
	j->buf[n] = '\0';
	return 0;
}

static int local_readlink(struct tdir *d, const char *name, const struct tattr *a, char *buf,
			  size_t size)
{
	struct job j = {.fn = readlink_job, .d = d, .name = name, .buf = buf, .len = size};

	(void)a;
	return run(d->side, &j);
}

static int mknod_job(struct job *j)
{
	TRY(done(mknodat(j->d->fd, j->name, j->mode, j->off)));
	return look_job(j);
}

static int local_mknod(struct tdir *d, const char *name, uint32_t mode, uint64_t rdev,
		       struct tattr *ret_made)
{
	struct job j = {.fn = mknod_job, .d = d, .name = name, .mode = mode, .off = rdev};

	j.ret_attr = ret_made;
	return run(d->side, &j);
}

/* Another program may have replaced directories on the path: openat2 follows no link, and the
 * inode must be the one that was made there. */
static int link_job(struct job *j)
{
	const struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	int fd = (int)syscall(SYS_openat2, j->link->top->fd, j->link->path, &how, sizeof(how));
	char self[FD_PATH];
	struct stat st;
	int rc;

	if (fd < 0)
		return fail();
	rc = done(fstat(fd, &st));
	if (rc == 0 && (st.st_ino != j->link->ino || st.st_dev != j->link->dev))
		rc = -LE_STALE;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (rc == 0)
		rc = done(linkat(AT_FDCWD, self, j->d->fd, j->name, AT_SYMLINK_FOLLOW));
	close(fd);
	return rc;
}

static int local_link(struct tdir *d, const char *name, const struct tlink *l)
{
	struct job j = {.fn = link_job, .d = d, .name = name, .link = l};

	return run(d->side, &j);
}

static int rename_job(struct job *j)
{
	struct stat st;

	if (renameat2(j->d->fd, j->name, j->d->fd, j->name2, j->mode) == 0)
		return 0;
	if (errno != EINVAL || !(j->mode & RENAME_NOREPLACE))
		return fail();
	/* The file system does not support RENAME_NOREPLACE, so the check and the rename are two
	 * steps. */
	if (fstatat(j->d->fd, j->name2, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -LE_EXIST;
	if (errno != ENOENT)
		return fail();
	return done(renameat(j->d->fd, j->name, j->d->fd, j->name2));
}

static int local_rename(struct tdir *d, const char *from, const char *to, unsigned flags)
{
	struct job j = {.fn = rename_job, .d = d, .name = from, .name2 = to, .mode = flags};

	return run(d->side, &j);
}

/* ---- extended attributes and other metadata ---- */

/* What attribute calls address: an open file; a descriptor's entry in /proc, which is followed;
 * or the path of a symbolic link, which is not. */
struct xat {
	int fd; /* -1: path */
	const char *path;
	bool follow;
};

static ssize_t x_list(const struct xat *x, char *buf, size_t size)
{
	if (x->fd >= 0)
		return flistxattr(x->fd, buf, size);
	return x->follow ? listxattr(x->path, buf, size) : llistxattr(x->path, buf, size);
}

static ssize_t x_get(const struct xat *x, const char *name, void *buf, size_t size)
{
	if (x->fd >= 0)
		return fgetxattr(x->fd, name, buf, size);
	return x->follow ? getxattr(x->path, name, buf, size) : lgetxattr(x->path, name, buf, size);
}

static int x_set(const struct xat *x, const char *name, struct bytes v)
{
	if (x->fd >= 0)
		return fsetxattr(x->fd, name, v.data, v.len, 0);
	return x->follow ? setxattr(x->path, name, v.data, v.len, 0)
			 : lsetxattr(x->path, name, v.data, v.len, 0);
}

static int get_xattrs(const struct xat *x, struct tmeta *m)
{
	char *names = malloc(LEAT_XATTR_VALUE_MAX * 2);
	ssize_t n, len;
	int rc = 0;

	if (!names)
		return -LE_NOMEM;
	char *value = names + LEAT_XATTR_VALUE_MAX;
	n = x_list(x, names, LEAT_XATTR_VALUE_MAX);
	if (n < 0 && errno != ENOTSUP)
		rc = fail();
	for (char *p = names; rc == 0 && p < names + n; p += strlen(p) + 1) {
		len = x_get(x, p, value, LEAT_XATTR_VALUE_MAX);
		if (len >= 0)
			rc = tmeta_add(m, p, value, (uint32_t)len);
		else if (errno != ENODATA && !tmeta_cannot(fail()))
			rc = fail();
	}
	free(names);
	return rc;
}

static int set_xattrs(const struct xat *x, const struct tmeta *m, bool lists)
{
	const char *name;
	struct bytes v;
	size_t at = 0;

	while (tmeta_next(m, &at, &name, &v)) {
		if (tmeta_is_acl(name) != lists)
			continue;
		if (x_set(x, name, v) < 0 && !tmeta_cannot(fail()))
			return fail();
	}
	return 0;
}

static int drop_lists(const struct xat *x, const struct tmeta *m)
{
	const char *name;

	for (size_t i = 0; (name = tmeta_no_acl(m, i)) != NULL; i++) {
		int rc = x->fd >= 0 ? fremovexattr(x->fd, name) : removexattr(x->path, name);
		if (rc < 0 && errno != ENODATA && !tmeta_cannot(fail()))
			return fail();
	}
	return 0;
}

/* fd: an open file, or O_PATH; link: the path if it is a symbolic link. The order is that of
 * side_leat.c. */
static int set_meta(int fd, bool opened, const char *link, const struct tmeta *m)
{
	const struct timespec times[2] = {{m->a.atime_ns / NS, m->a.atime_ns % NS},
					  {m->a.mtime_ns / NS, m->a.mtime_ns % NS}};
	uint32_t mode = m->a.mode & 07777;
	char self[FD_PATH];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	struct xat x = {opened ? fd : -1, link ? link : self, !link};
	if ((m->keep & LEAT_KEEP_OWNER) &&
	    fchownat(fd, "", m->a.uid, m->a.gid, AT_EMPTY_PATH) < 0) {
		if (errno != EPERM || geteuid() == 0)
			return fail();
		mode &= fchownat(fd, "", (uid_t)-1, m->a.gid, AT_EMPTY_PATH) < 0 ? 01777u : 03777u;
	}
	TRY(drop_lists(&x, m));
	TRY(set_xattrs(&x, m, false));
	if ((m->keep & LEAT_KEEP_MODE) && !S_ISLNK(m->a.mode) && chmod(self, mode) < 0)
		return fail();
	if ((m->keep & LEAT_KEEP_TIMES) &&
	    (opened ? futimens(fd, times) : utimensat(fd, "", times, AT_EMPTY_PATH)) < 0)
		return fail();
	return set_xattrs(&x, m, true);
}

static void fd_path(const struct tdir *d, const char *name, char path[FD_PATH])
{
	snprintf(path, FD_PATH, "/proc/self/fd/%d/%s", d->fd, name);
}

static int xattrs_job(struct job *j)
{
	struct xat x = {.fd = -1};
	char path[FD_PATH];

	/* "/proc/.../." would need the right to search the directory. */
	x.follow = strcmp(j->name, ".") == 0;
	if (x.follow)
		snprintf(path, sizeof(path), "/proc/self/fd/%d", j->d->fd);
	else
		fd_path(j->d, j->name, path);
	x.path = path;
	return get_xattrs(&x, j->m);
}

static int local_xattrs(struct tdir *d, const char *name, const struct tattr *a, struct tmeta *m)
{
	struct job j = {.fn = xattrs_job, .d = d, .name = name, .m = m};

	return a->plain ? 0 : run(d->side, &j);
}

static int apply_job(struct job *j)
{
	bool self = strcmp(j->name, ".") == 0;
	int fd = self ? j->d->fd : openat(j->d->fd, j->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char path[FD_PATH];
	struct stat st;
	int rc;

	if (fd < 0)
		return fail();
	fd_path(j->d, j->name, path);
	rc = fstat(fd, &st) < 0 ? fail() : 0;
	if (rc == 0 && j->a != NULL && (st.st_ino != j->a->ino || st.st_dev != j->a->dev))
		rc = -LE_STALE; /* another program has replaced it */
	if (rc == 0)
		rc = set_meta(fd, false, S_ISLNK(st.st_mode) ? path : NULL, j->cm);
	if (!self)
		close(fd);
	return rc;
}

static int local_apply(struct tdir *d, const char *name, const struct tattr *made,
		       const struct tmeta *m)
{
	struct job j = {.fn = apply_job, .d = d, .name = name, .a = made, .cm = m};

	return run(d->side, &j);
}

/* ---- files ---- */

static int64_t read_all(int fd, char *buf, size_t len, uint64_t off)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = pread(fd, buf + got, len - got, (off_t)(off + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail();
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (int64_t)got;
}

static int write_all(int fd, const char *buf, size_t len, uint64_t off)
{
	for (size_t done_len = 0; done_len < len;) {
		ssize_t n = pwrite(fd, buf + done_len, len - done_len, (off_t)(off + done_len));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail();
		done_len += (size_t)n;
	}
	return 0;
}

static int load_job(struct job *j)
{
	int fd = openat(j->d->fd, j->e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int64_t n = 0;
	int rc = 0;

	if (fd < 0)
		return fail();
	/* The listed file may have been replaced by a pipe. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		rc = -LE_STALE;
	if (rc == 0 && j->len > 0) {
		n = read_all(fd, j->buf, j->len, 0);
		rc = n < 0 ? (int)n : 0;
	}
	if (rc == 0 && (j->m->keep & LEAT_KEEP_XATTRS))
		rc = get_xattrs(&(struct xat){.fd = fd}, j->m);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	j->got = n;
	take_stat(&st, &j->m->a);
	*j->f = (struct tfile){
		.side = j->d->side, .fd = fd, .ino = st.st_ino, .dev = st.st_dev};
	return 0;
}

static int local_load(struct tdir *d, const struct tent *e, struct tfile *ret_file, void *buf,
		      size_t *len, struct tmeta *m)
{
	struct job j = {.fn = load_job, .d = d, .e = e, .f = ret_file, .buf = buf, .m = m};

	j.len = *len;
	TRY(run(d->side, &j));
	*len = (size_t)j.got;
	return 0;
}

static int pread_job(struct job *j)
{
	j->got = read_all(j->f->fd, j->buf, j->len, j->off);
	return j->got < 0 ? (int)j->got : 0;
}

static int64_t local_pread(struct tfile *f, void *buf, size_t len, uint64_t off)
{
	struct job j = {.fn = pread_job, .f = f, .buf = buf, .len = len, .off = off};

	TRY(run(f->side, &j));
	return j.got;
}

static int seek_job(struct job *j)
{
	j->got = lseek(j->f->fd, (off_t)j->off, j->whence);
	return j->got < 0 ? fail() : 0;
}

static int64_t local_seek(struct tfile *f, uint64_t off, int whence)
{
	struct job j = {.fn = seek_job, .f = f, .off = off, .whence = whence};

	TRY(run(f->side, &j));
	return j.got;
}

static int store_job(struct job *j)
{
	int fd = openat(j->d->fd, j->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			j->mode);
	struct stat st;
	int rc;

	if (fd < 0)
		return fail();
	rc = done(fstat(fd, &st));
	if (rc == 0)
		rc = write_all(fd, j->data, j->len, 0);
	if (rc < 0) {
		close(fd);
		unlinkat(j->d->fd, j->name, 0);
		return rc;
	}
	*j->f = (struct tfile){
		.side = j->d->side, .fd = fd, .ino = st.st_ino, .dev = st.st_dev};
	return 0;
}

static int local_store(struct tdir *d, const char *name, uint32_t mode, const void *buf, size_t len,
		       struct tfile *ret_file)
{
	struct job j = {.fn = store_job, .d = d, .name = name, .f = ret_file};

	j.mode = mode;
	j.data = buf;
	j.len = len;
	return run(d->side, &j);
}

static int pwrite_job(struct job *j)
{
	return write_all(j->f->fd, j->data, j->len, j->off);
}

static int local_pwrite(struct tfile *f, const void *buf, size_t len, uint64_t off)
{
	struct job j = {.fn = pwrite_job, .f = f, .data = buf, .len = len, .off = off};

	return run(f->side, &j);
}

static int finish_job(struct job *j)
{
	int rc = 0;

	if (j->off != UINT64_MAX && ftruncate(j->f->fd, (off_t)j->off) < 0)
		rc = fail();
	if (rc == 0)
		rc = set_meta(j->f->fd, true, NULL, j->cm);
	if (close(j->f->fd) < 0 && rc == 0)
		rc = fail();
	return rc;
}

static int local_finish(struct tfile *f, uint64_t size, const struct tmeta *m)
{
	struct job j = {.fn = finish_job, .f = f, .off = size, .cm = m};
	int rc = run(f->side, &j);

	f->side = NULL;
	return rc;
}

static void local_drop(struct tfile *f)
{
	close(f->fd);
}

static void local_destroy(struct side *s)
{
	free(container_of(s, struct local_side, side));
}

static const struct side_ops local_ops = {
	.at = local_at,
	.look = local_look,
	.open = local_open,
	.close = local_close,
	.list = local_list,
	.remove = local_remove,
	.mkdir = local_mkdir,
	.symlink = local_symlink,
	.readlink = local_readlink,
	.mknod = local_mknod,
	.link = local_link,
	.rename = local_rename,
	.load = local_load,
	.pread = local_pread,
	.seek = local_seek,
	.store = local_store,
	.pwrite = local_pwrite,
	.finish = local_finish,
	.drop = local_drop,
	.xattrs = local_xattrs,
	.apply = local_apply,
	.destroy = local_destroy,
};

int side_local_create(struct env *env, uint32_t umask, struct side **ret_side)
{
	struct local_side *l = calloc(1, sizeof(*l));

	if (!l)
		return -LE_NOMEM;
	l->side = (struct side){
		.ops = &local_ops,
		.umask = umask,
		.root = geteuid() == 0,
		.local = true,
	};
	l->env = env;
	*ret_side = &l->side;
	return 0;
}
