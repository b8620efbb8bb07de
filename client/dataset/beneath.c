/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/assert.h"

#define BASE "/.leat"

struct beneath {
	struct env env;
	struct env *inner;
	struct beneath_why why;
};

enum what {
	DO_OPEN,
	DO_STAT,
	DO_MKDIR,
	DO_UNLINK,
	DO_RMDIR,
	DO_RENAME,
	DO_SYNCDIR,
	DO_LIST,
	DO_FOLDER,
	DO_SYMLINK
};

/* One call, executed on a worker or by the caller. */
struct op {
	enum what what;
	const char *path, *to; /* to: the new path of a rename; the target of a link */
	int flags;
	mode_t mode;
	int fd; /* in: folder for a rename, in which `to` is a name, or -1: `to` is a path; out:
		 * the file */
	/* results */
	int rc;
	struct stat st;
	/* of a list: for each entry a byte that says whether it is a folder, and its name with
	 * NUL */
	char *names;
	size_t names_len, names_space;
	/* of -LE_FOREIGN: the refused path, as the start of another path, and the reason */
	const char *bad;
	size_t bad_len;
	char why[200];
};

static const struct env_ops beneath_ops;

/* ---- what is trusted ---- */

bool beneath_is_ours(const struct stat *st)
{
	return (st->st_uid == geteuid() || st->st_uid == 0) &&
	       (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int open_below(int dirfd, const char *path, int flags, mode_t mode, uint64_t more_resolve)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
			       .mode = flags & O_CREAT ? mode : 0,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					  RESOLVE_NO_MAGICLINKS | more_resolve};
	long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	return fd < 0 ? status_from_errno(errno) : (int)fd;
}

/* Sets the mode of a new file whatever the umask is. Returns fd, or closes it on failure. */
static int made_as(int fd, mode_t mode)
{
	struct stat st;
	if (fstat(fd, &st) == 0 && ((st.st_mode & 0777) == mode ||
				    fchmod(fd, (st.st_mode & 07000) | mode) == 0))
		return fd;
	int rc = status_from_errno(errno);
	close(fd);
	return rc;
}

/* Like open_below, but a new file that other users may read gets exactly this mode. An existing
 * file keeps its mode, which may be narrower by intent. */
static int open_or_make(int dirfd, const char *path, int flags, mode_t mode, uint64_t more_resolve)
{
	int fd = -LE_EXIST;
	if (!(flags & O_CREAT) || !(mode & 077))
		return open_below(dirfd, path, flags, mode, more_resolve);
	/* Two attempts: another process may remove the file between the calls. */
	for (int go = 0; go < 2 && fd == -LE_EXIST; go++) {
		fd = flags & O_EXCL ? -LE_NOENT
				    : open_below(dirfd, path, flags & ~O_CREAT, 0, more_resolve);
		if (fd != -LE_NOENT)
			return fd;
		fd = open_below(dirfd, path, flags | O_EXCL, mode, more_resolve);
		if (fd >= 0)
			return made_as(fd, mode);
	}
	return fd;
}

int beneath_openat(int dirfd, const char *path, int flags, uint64_t more_resolve)
{
	return open_or_make(dirfd, path, flags, 0644, more_resolve);
}

__attribute__((format(printf, 4, 5))) static int refuse(struct op *o, const char *bad, size_t len,
							const char *fmt, ...)
{
	va_list ap;
	o->bad = bad;
	o->bad_len = len;
	va_start(ap, fmt);
	vsnprintf(o->why, sizeof(o->why), fmt, ap);
	va_end(ap);
	return -LE_FOREIGN;
}

/* Refuses an untrusted owner or mode of an entry of a copy; 0: it is trusted. any_owner: for
 * entries below data/. */
static int check(struct op *o, const struct stat *st, const char *path, size_t len, bool any_owner)
{
	if (!any_owner && st->st_uid != geteuid() && st->st_uid != 0)
		return refuse(o, path, len,
			      "it belongs to user %u and is not believed: remove it, or name a "
			      "directory where only user %u can make one",
			      st->st_uid, geteuid());
	if (!any_owner && (st->st_mode & (S_IWGRP | S_IWOTH)))
		return refuse(o, path, len,
			      "others may write to it (mode %04o), so it is not believed: see what "
			      "is in it, then remove it, or chmod go-w",
			      st->st_mode & 07777);
	return 0;
}

static int is_link(struct op *o, const char *path, size_t len)
{
	return refuse(o, path, len,
		      "it is a symbolic link, and no link is followed below .leat: remove it");
}

/* Never unmounts: the mount belongs to the administrator. */
static int is_mounted(struct op *o, const char *path, size_t len)
{
	return refuse(
		o, path, len,
		"something is mounted there, or on a folder above it in the copy, and no mount "
		"is crossed below .leat: unmount it");
}

/* ---- paths ---- */

/* Finds "/.leat", followed by a slash or the end. */
static const char *base_of(const char *path)
{
	for (const char *at = path; (at = strstr(at, BASE)) != NULL; at++)
		if (at[strlen(BASE)] == '/' || at[strlen(BASE)] == 0)
			return at;
	return NULL;
}

bool beneath_is_below(const char *path)
{
	return base_of(path) != NULL;
}

/* True if path is DIR/.leat/ID/data or below it (deep: only below it). */
static bool is_data(const char *path, bool deep)
{
	const char *at = base_of(path);
	at = at ? strchr(at + 1, '/') : NULL;
	at = at ? strchr(at + 1, '/') : NULL;
	return at && strncmp(at, "/data", 5) == 0 && (at[5] == '/' || (!deep && at[5] == 0));
}

static bool is_name(const char *s)
{
	return s[0] && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* Replaces *fd by the folder `name` in it. The path of that folder ends at path + len. */
static int enter(struct op *o, int *fd, const char *path, size_t at, size_t len)
{
	char name[256];
	struct stat st;
	if (len - at >= sizeof(name))
		return -LE_NAMETOOLONG;
	memcpy(name, path + at, len - at);
	name[len - at] = 0;
	if (!is_name(name))
		return -LE_INVAL;
	int next = openat(*fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (next < 0)
		return status_from_errno(errno);
	close(*fd);
	*fd = next;
	if (fstat(next, &st) < 0)
		return status_from_errno(errno);
	if (S_ISLNK(st.st_mode))
		return is_link(o, path, len);
	if (!S_ISDIR(st.st_mode))
		return refuse(o, path, len, "it is no folder: remove it");
	return check(o, &st, path, len, false);
}

/* Replaces *fd by a folder of a copy's data, which may have any owner but may not be a link. */
static int enter_data(struct op *o, int *fd, const char *path, size_t at, size_t len)
{
	char *below = strndup(path + at, len - at);
	if (!below)
		return -LE_NOMEM;
	int next = beneath_openat(*fd, below, O_PATH | O_DIRECTORY, RESOLVE_NO_XDEV);
	free(below);
	if (next == -LE_LOOP)
		return is_link(o, path, len);
	if (next == -LE_XDEV)
		return is_mounted(o, path, len);
	if (next == -LE_NOTDIR)
		return refuse(o, path, len, "it is no folder: remove it");
	if (next < 0)
		return next;
	close(*fd);
	*fd = next;
	return 0;
}

/* Opens the folder that holds the last component of path, which is .leat or below it. Returns a
 * descriptor. */
static int open_parent(struct op *o, const char *path, const char **ret_leaf)
{
	const char *base = base_of(path), *last = strrchr(path, '/');
	char *dir = strndup(path, base == path ? 1 : (size_t)(base - path));
	if (!dir)
		return -LE_NOMEM;
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), rc = 0;
	if (fd < 0)
		rc = status_from_errno(errno);
	free(dir);
	for (const char *at = base; rc == 0 && at < last;) {
		const char *end = strchr(at + 1, '/');
		bool data = at != base && end - at == 5 && is_data(path, true) &&
			    memcmp(at, "/data", 5) == 0;
		if (data)
			end = last;
		size_t from = (size_t)(at + 1 - path), to = (size_t)(end - path);
		rc = data ? enter_data(o, &fd, path, from, to) : enter(o, &fd, path, from, to);
		at = end;
	}
	if (rc < 0 && fd >= 0)
		close(fd);
	*ret_leaf = last + 1;
	return rc < 0 ? rc : fd;
}

/* ---- the calls, each in an open folder ---- */

/* Opens the entry itself, not through a link; in a copy's data not across a mount either. */
static int open_leaf(const struct op *o, int dir, const char *leaf, int flags)
{
	if (is_data(o->path, false) && !(flags & O_CREAT))
		return beneath_openat(dir, leaf, flags, RESOLVE_NO_XDEV);
	return open_or_make(dir, leaf, flags, o->mode, 0);
}

static int check_file(struct op *o, int fd)
{
	size_t len = strlen(o->path);
	struct stat st;
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	if (!S_ISREG(st.st_mode))
		return refuse(o, o->path, len, "it is no regular file: remove it");
	if (st.st_nlink > 1)
		return refuse(o, o->path, len,
			      "it has a second name (a hard link), through which another user may "
			      "write to it: remove it");
	TRY(check(o, &st, o->path, len, is_data(o->path, true)));
	/* Truncates only now: O_TRUNC would have truncated before the checks. */
	if ((o->flags & O_TRUNC) && st.st_size > 0 && ftruncate(fd, 0) < 0)
		return status_from_errno(errno);
	return 0;
}

static int open_file(struct op *o, int dir, const char *leaf)
{
	/* Does not block on a pipe. */
	int flags = (o->flags & ~(O_TRUNC | O_DIRECT)) | O_NONBLOCK | O_NOCTTY;
	int fd = open_leaf(o, dir, leaf, flags);
	if (fd == -LE_LOOP)
		return is_link(o, o->path, strlen(o->path));
	if (fd == -LE_XDEV)
		return is_mounted(o, o->path, strlen(o->path));
	if (fd == -LE_NXIO || fd == -LE_ISDIR)
		return refuse(o, o->path, strlen(o->path), "it is no regular file: remove it");
	if (fd < 0)
		return fd;
	int rc = check_file(o, fd);
	int keep = o->flags & O_APPEND;
	if (rc == 0 && fcntl(fd, F_SETFL, keep | (o->flags & O_DIRECT)) < 0 &&
	    fcntl(fd, F_SETFL, keep) < 0)
		rc = status_from_errno(errno);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	o->fd = fd;
	return 0;
}

/* Sets the mode of a new folder whatever the umask is. */
static int set_mode(int dir, const char *leaf, mode_t mode)
{
	int fd = open_below(dir, leaf, O_RDONLY | O_DIRECTORY, 0, 0);
	if (fd >= 0)
		fd = made_as(fd, mode);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Makes a folder. An existing one must be trusted: then -LE_EXIST. */
static int make_folder(struct op *o, int dir, const char *leaf)
{
	struct stat st;
	size_t len = strlen(o->path);
	if (mkdirat(dir, leaf, o->mode) == 0)
		return o->mode & 077 ? set_mode(dir, leaf, o->mode) : 0;
	if (errno != EEXIST)
		return status_from_errno(errno);
	if (fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return status_from_errno(errno);
	if (S_ISLNK(st.st_mode))
		return is_link(o, o->path, len);
	if (!S_ISDIR(st.st_mode))
		return refuse(o, o->path, len, "it is no folder: remove it");
	TRY(check(o, &st, o->path, len, is_data(o->path, false)));
	return -LE_EXIST;
}

static int add_name(struct op *o, const char *name, bool is_dir)
{
	size_t len = strlen(name) + 1;
	if (o->names_space - o->names_len < len + 1) {
		size_t space = o->names_space * 2 + 4096;
		char *names = realloc(o->names, space);
		if (!names)
			return -LE_NOMEM;
		o->names = names;
		o->names_space = space;
	}
	o->names[o->names_len] = (char)is_dir;
	memcpy(o->names + o->names_len + 1, name, len);
	o->names_len += len + 1;
	return 0;
}

static int read_names(struct op *o, DIR *d)
{
	for (;;) {
		struct stat st;
		errno = 0;
		struct dirent *e = readdir(d);
		if (!e)
			return errno ? status_from_errno(errno) : 0;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		bool is_dir = e->d_type == DT_DIR;
		if (e->d_type == DT_UNKNOWN &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			is_dir = S_ISDIR(st.st_mode);
		TRY(add_name(o, e->d_name, is_dir));
	}
}

/* Opens a folder, to list or sync it. */
static int open_folder(struct op *o, int dir, const char *leaf)
{
	struct stat st;
	int fd = open_leaf(o, dir, leaf, O_RDONLY | O_DIRECTORY);
	if (fd == -LE_XDEV)
		return is_mounted(o, o->path, strlen(o->path));
	/* A link also fails with -LE_NOTDIR. */
	if (fd == -LE_LOOP || fd == -LE_NOTDIR)
		return fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)
			       ? is_link(o, o->path, strlen(o->path))
			       : fd;
	if (fd < 0)
		return fd;
	int rc = fstat(fd, &st) < 0
			 ? status_from_errno(errno)
			 : check(o, &st, o->path, strlen(o->path), is_data(o->path, false));
	if (rc < 0) {
		close(fd);
		return rc;
	}
	return fd;
}

static int list_or_sync(struct op *o, int dir, const char *leaf)
{
	int fd = open_folder(o, dir, leaf), rc = 0;
	if (fd < 0)
		return fd;
	if (o->what == DO_SYNCDIR) {
		rc = fsync(fd) < 0 ? status_from_errno(errno) : 0;
		close(fd);
		return rc;
	}
	DIR *d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -LE_NOMEM;
	}
	rc = read_names(o, d);
	closedir(d);
	return rc;
}

static int rename_to(struct op *o, int dir, const char *leaf)
{
	const char *to = o->to;
	int fd = o->fd >= 0 ? o->fd : open_parent(o, o->to, &to);
	if (fd < 0)
		return fd;
	int rc = !is_name(to)                      ? -LE_INVAL
		 : renameat(dir, leaf, fd, to) < 0 ? status_from_errno(errno)
						   : 0;
	if (fd != o->fd)
		close(fd);
	return rc;
}

static int run_in(struct op *o, int dir, const char *leaf)
{
	int n = 0;
	switch (o->what) {
	case DO_OPEN:
		return open_file(o, dir, leaf);
	case DO_MKDIR:
		return make_folder(o, dir, leaf);
	case DO_RENAME:
		return rename_to(o, dir, leaf);
	case DO_SYNCDIR:
	case DO_LIST:
		return list_or_sync(o, dir, leaf);
	case DO_FOLDER:
		o->fd = open_folder(o, dir, leaf);
		return o->fd < 0 ? o->fd : 0;
	case DO_STAT:
		n = fstatat(dir, leaf, &o->st, AT_SYMLINK_NOFOLLOW);
		break;
	case DO_UNLINK:
		n = unlinkat(dir, leaf, 0);
		break;
	case DO_RMDIR:
		n = unlinkat(dir, leaf, AT_REMOVEDIR);
		break;
	case DO_SYMLINK:
		n = symlinkat(o->to, dir, leaf);
		break;
	}
	/* The kernel refuses to rename or remove a mount point. */
	if (n < 0 && errno == EBUSY && is_data(o->path, true))
		return is_mounted(o, o->path, strlen(o->path));
	return n < 0 ? status_from_errno(errno) : 0;
}

static void work(void *arg)
{
	struct op *o = arg;
	const char *leaf;
	int dir = open_parent(o, o->path, &leaf);
	if (dir < 0) {
		o->rc = dir;
		return;
	}
	o->rc = is_name(leaf) ? run_in(o, dir, leaf) : -LE_INVAL;
	close(dir);
}

/* ---- reasons ---- */

static struct beneath *beneath_of(struct env *env)
{
	return env && env->ops == &beneath_ops ? container_of(env, struct beneath, env) : NULL;
}

static void note(struct beneath *b, const struct op *o)
{
	if (!b || o->rc != -LE_FOREIGN)
		return;
	snprintf(b->why.path, sizeof(b->why.path), "%.*s", (int)o->bad_len, o->bad);
	snprintf(b->why.what, sizeof(b->why.what), "%s", o->why);
}

bool beneath_why(struct env *env, struct beneath_why *ret_why)
{
	struct beneath *b = beneath_of(env);
	if (!b || !b->why.what[0])
		return false;
	*ret_why = b->why;
	b->why.what[0] = 0;
	return true;
}

/* ---- calls that block ---- */

static int in_place(struct env *env, struct op *o)
{
	if (!base_of(o->path))
		return -LE_INVAL;
	work(o);
	note(beneath_of(env), o);
	return o->rc;
}

int beneath_open(struct env *env, const char *path, int flags, mode_t mode)
{
	struct op o = {.what = DO_OPEN, .path = path, .flags = flags, .mode = mode};
	int rc = in_place(env, &o);
	return rc < 0 ? rc : o.fd;
}

int beneath_stat(struct env *env, const char *path, struct stat *ret_st)
{
	struct op o = {.what = DO_STAT, .path = path};
	TRY(in_place(env, &o));
	*ret_st = o.st;
	return 0;
}

int beneath_open_dir(struct env *env, const char *path)
{
	struct op o = {.what = DO_FOLDER, .path = path};
	TRY(in_place(env, &o));
	return o.fd;
}

int beneath_refuse(struct env *env, const char *path, const char *why)
{
	struct op o = {.path = path};
	o.rc = refuse(&o, path, strlen(path), "%s", why);
	note(beneath_of(env), &o);
	return o.rc;
}

int beneath_rename_into(struct env *env, const char *from, int dirfd, const char *name)
{
	struct op o = {.what = DO_RENAME, .path = from, .to = name, .fd = dirfd};
	return in_place(env, &o);
}

int beneath_rename(struct env *env, const char *from, const char *to)
{
	struct op o = {.what = DO_RENAME, .path = from, .to = to, .fd = -1};
	return base_of(to) ? in_place(env, &o) : -LE_INVAL;
}

int beneath_unlink(struct env *env, const char *path)
{
	struct op o = {.what = DO_UNLINK, .path = path};
	return in_place(env, &o);
}

int beneath_free(struct env *env, const char *path, uint64_t *ret_bytes, dev_t *ret_dev)
{
	struct statvfs fs;
	struct stat st;
	int fd = base_of(path) ? beneath_open_dir(env, path) : open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return base_of(path) ? fd : status_from_errno(errno);
	int rc = fstat(fd, &st) < 0 || fstatvfs(fd, &fs) < 0 ? status_from_errno(errno) : 0;
	close(fd);
	if (rc == 0) {
		*ret_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
		*ret_dev = st.st_dev;
	}
	return rc;
}

int beneath_symlink(struct env *env, const char *target, const char *path)
{
	struct op o = {.what = DO_SYMLINK, .path = path, .to = target};
	return in_place(env, &o);
}

/* ---- the env ---- */

static int on_worker(struct env *env, struct op *o)
{
	struct beneath *b = beneath_of(env);
	TRY(env_offload(b->inner, work, o));
	note(b, o);
	return o->rc;
}

static struct env *inner_of(struct env *env)
{
	return beneath_of(env)->inner;
}

/* Marks contain no names of files, so every user may read them. All other files stay private
 * until grant.h sets their rights. */
static mode_t mode_of(const char *path, mode_t mode)
{
	const char *leaf = strrchr(path, '/') + 1;
	bool mark = strncmp(leaf, "READY", 5) == 0 || strncmp(leaf, "SHARE", 5) == 0;
	return mark || strstr(path, "/.leat/sources/") ? mode : mode & 0600;
}

static int b_file_open(struct env *env, const char *path, int flags, mode_t mode,
		       struct env_file **ret_file)
{
	struct op o = {.what = DO_OPEN, .path = path, .flags = flags, .mode = mode_of(path, mode)};
	if (!base_of(path))
		return inner_of(env)->ops->file_open(inner_of(env), path, flags, mode, ret_file);
	TRY(on_worker(env, &o));
	return env_file_take(inner_of(env), o.fd, ret_file);
}

static int b_file_take(struct env *env, int fd, struct env_file **ret_file)
{
	return env_file_take(inner_of(env), fd, ret_file);
}

static int b_stat(struct env *env, const char *path, struct stat *ret_st)
{
	struct op o = {.what = DO_STAT, .path = path};
	if (!base_of(path))
		return inner_of(env)->ops->path_stat(inner_of(env), path, ret_st);
	TRY(on_worker(env, &o));
	*ret_st = o.st;
	return 0;
}

static int b_mkdir(struct env *env, const char *path, mode_t mode)
{
	struct op o = {.what = DO_MKDIR, .path = path, .mode = mode};
	return base_of(path) ? on_worker(env, &o)
			     : inner_of(env)->ops->path_mkdir(inner_of(env), path, mode);
}

static int b_unlink(struct env *env, const char *path)
{
	struct op o = {.what = DO_UNLINK, .path = path};
	return base_of(path) ? on_worker(env, &o)
			     : inner_of(env)->ops->path_unlink(inner_of(env), path);
}

static int b_rmdir(struct env *env, const char *path)
{
	struct op o = {.what = DO_RMDIR, .path = path};
	return base_of(path) ? on_worker(env, &o)
			     : inner_of(env)->ops->path_rmdir(inner_of(env), path);
}

static int b_rename(struct env *env, const char *from, const char *to)
{
	struct op o = {.what = DO_RENAME, .path = from, .to = to, .fd = -1};
	bool here = base_of(from) != NULL, there = base_of(to) != NULL;
	/* Nothing is moved into or out of .leat. */
	if (here != there)
		return -LE_INVAL;
	return here ? on_worker(env, &o) : inner_of(env)->ops->path_rename(inner_of(env), from, to);
}

static int b_syncdir(struct env *env, const char *path)
{
	struct op o = {.what = DO_SYNCDIR, .path = path};
	return base_of(path) ? on_worker(env, &o)
			     : inner_of(env)->ops->path_syncdir(inner_of(env), path);
}

static int b_list(struct env *env, const char *path,
		  int (*each)(void *arg, const struct env_dirent *e), void *arg)
{
	struct op o = {.what = DO_LIST, .path = path};
	if (!base_of(path))
		return inner_of(env)->ops->path_list(inner_of(env), path, each, arg);
	int rc = on_worker(env, &o);
	for (size_t at = 0; rc == 0 && at < o.names_len; at += strlen(o.names + at + 1) + 2) {
		struct env_dirent e = {.name = o.names + at + 1, .is_dir = o.names[at]};
		rc = each(arg, &e);
	}
	free(o.names);
	return rc;
}

static int b_loop_create(struct env *env, const struct loop_options *opts, struct loop **ret_loop)
{
	return inner_of(env)->ops->loop_create(inner_of(env), opts, ret_loop);
}

static uint64_t b_now_us(struct env *env)
{
	return env_now_us(inner_of(env));
}

static int64_t b_wall_ns(struct env *env)
{
	return env_wall_ns(inner_of(env));
}

static void b_random(struct env *env, void *buf, size_t len)
{
	env_random(inner_of(env), buf, len);
}

static int b_offload(struct env *env, void (*fn)(void *arg), void *arg)
{
	return env_offload(inner_of(env), fn, arg);
}

/* Open files belong to the inner env. */
static const struct env_ops beneath_ops = {
	.loop_create = b_loop_create,
	.now_us = b_now_us,
	.wall_ns = b_wall_ns,
	.random = b_random,
	.file_open = b_file_open,
	.file_take = b_file_take,
	.path_stat = b_stat,
	.path_mkdir = b_mkdir,
	.path_unlink = b_unlink,
	.path_rmdir = b_rmdir,
	.path_rename = b_rename,
	.path_syncdir = b_syncdir,
	.path_list = b_list,
	.offload = b_offload,
};

int beneath_create(struct env *inner, struct env **ret_env)
{
	struct beneath *b = calloc(1, sizeof(*b));
	if (!b)
		return -LE_NOMEM;
	b->env.ops = &beneath_ops;
	b->inner = inner;
	*ret_env = &b->env;
	return 0;
}

void beneath_destroy(struct env *env)
{
	struct beneath *b = env ? beneath_of(env) : NULL;
	free(b);
}
