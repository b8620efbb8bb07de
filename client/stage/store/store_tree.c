/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes or checks the directories and links of a copy, in one job of a worker thread. Resolves
 * names by descriptors from the data folder on, so that no link in the copy leads elsewhere.
 */
#include "client/stage/store/store_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "common/rt/env.h"

#define NS 1000000000

struct tree {
	struct local_store *s;
	const struct manifest *m;
	bool make;        /* else only check */
	int root;         /* the data folder */
	int dir;          /* the directory of the last name; -1: none */
	bool news;        /* new names in dir that are not synced */
	char path[4096];  /* of dir, below the data folder */
	const char *what; /* the path that failed */
	int rc;
};

static int open_dir(int at, const char *path)
{
	const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	return (int)syscall(SYS_openat2, at, *path ? path : ".", &how, sizeof(how));
}

static int leave(struct tree *t)
{
	int rc = 0;
	if (t->dir >= 0 && t->news && fsync(t->dir) < 0)
		rc = status_from_errno(errno);
	if (t->dir >= 0)
		close(t->dir);
	t->dir = -1;
	t->news = false;
	return rc;
}

/* Makes t->dir the directory that holds path. */
static int enter(struct tree *t, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	*ret_name = slash ? slash + 1 : path;
	if (t->dir >= 0 && strlen(t->path) == len && memcmp(t->path, path, len) == 0)
		return 0;
	TRY(leave(t));
	memcpy(t->path, path, len);
	t->path[len] = 0;
	t->dir = open_dir(t->root, t->path);
	return t->dir < 0 ? status_from_errno(errno) : 0;
}

static int do_dir(struct tree *t, const struct manifest_dir *d)
{
	struct stat st;
	const char *name;
	if (!*d->path)
		return 0;
	TRY(enter(t, d->path, &name));
	if (t->make && mkdirat(t->dir, name, 0700) == 0)
		t->news = true;
	else if (t->make && errno != EEXIST)
		return status_from_errno(errno);
	if (fstatat(t->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return status_from_errno(errno);
	return S_ISDIR(st.st_mode) ? 0 : -LE_EXIST;
}

/* Opens the link itself and checks its target. By descriptor, because the owner of the folder
 * may replace the link at any moment. */
static int open_link(struct tree *t, const char *name, const char *target)
{
	char now[4096];
	struct stat st;
	int fd = openat(t->dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return status_from_errno(errno);
	int rc = fstat(fd, &st) < 0 ? status_from_errno(errno) : 0;
	if (rc == 0 && !S_ISLNK(st.st_mode))
		rc = -LE_EXIST;
	ssize_t n = rc == 0 ? readlinkat(fd, "", now, sizeof(now)) : 0;
	if (n < 0)
		rc = status_from_errno(errno);
	else if (rc == 0 && ((size_t)n != strlen(target) || memcmp(now, target, (size_t)n) != 0))
		rc = -LE_STALE;
	if (rc < 0)
		close(fd);
	return rc < 0 ? rc : fd;
}

static int make_link(struct tree *t, const char *name, const char *target)
{
	if (symlinkat(target, t->dir, name) < 0)
		return status_from_errno(errno);
	t->news = true;
	return open_link(t, name, target);
}

static int do_link(struct tree *t, const struct manifest_link *l)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
					  {l->mtime_ns / NS, l->mtime_ns % NS}};
	const char *name;
	TRY(enter(t, l->path, &name));
	int fd = open_link(t, name, l->target), rc = 0;
	if (fd == -LE_STALE && t->make)
		fd = unlinkat(t->dir, name, 0) < 0 ? status_from_errno(errno) : -LE_NOENT;
	if (fd == -LE_NOENT && t->make)
		fd = make_link(t, name, l->target);
	if (fd < 0)
		return fd;
	if (t->make && geteuid() == 0 && fchownat(fd, "", l->uid, l->gid, AT_EMPTY_PATH) < 0)
		rc = status_from_errno(errno);
	if (t->make && rc == 0 && utimensat(fd, "", times, AT_EMPTY_PATH) < 0)
		rc = status_from_errno(errno);
	close(fd);
	return rc;
}

static int set_time(struct tree *t, const struct manifest_dir *d)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
					  {d->mtime_ns / NS, d->mtime_ns % NS}};
	const char *name;
	int fd = t->root;
	if (*d->path) {
		TRY(enter(t, d->path, &name));
		fd = openat(t->dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return status_from_errno(errno);
	}
	int rc = utimensat(fd, "", times, AT_EMPTY_PATH) < 0 ? status_from_errno(errno) : 0;
	if (fd != t->root)
		close(fd);
	return rc;
}

static int do_all(struct tree *t)
{
	const struct manifest *m = t->m;
	int rc = 0;
	for (uint32_t i = 0; i < m->n_dirs && rc == 0; i++) {
		t->what = m->dirs[i].path;
		rc = do_dir(t, &m->dirs[i]);
	}
	for (uint32_t i = 0; i < m->n_links && rc == 0; i++) {
		t->what = m->links[i].path;
		rc = do_link(t, &m->links[i]);
	}
	for (uint32_t i = 0; t->make && i < m->n_dirs && rc == 0; i++) {
		t->what = m->dirs[i].path;
		rc = set_time(t, &m->dirs[i]);
	}
	t->what = "data";
	return rc == 0 ? leave(t) : rc;
}

static void tree_fn(void *arg)
{
	struct tree *t = arg;
	char data[STORE_PATH_SIZE];
	t->what = "data";
	int n = snprintf(data, sizeof(data), "%.4000s/data", t->s->dir);
	t->root = n < (int)sizeof(data) ? beneath_open_dir(NULL, data) : -LE_NAMETOOLONG;
	t->rc = t->root < 0 ? t->root : do_all(t);
	if (t->dir >= 0)
		close(t->dir);
	if (t->root >= 0)
		close(t->root);
}

static int run(struct local_store *s, const struct manifest *m, bool make, struct detail *d)
{
	struct tree *t = calloc(1, sizeof(*t));
	if (!t)
		return -LE_NOMEM;
	*t = (struct tree){.s = s, .m = m, .make = make, .root = -1, .dir = -1};
	int rc = env_offload(s->env, tree_fn, t);
	if (rc == 0)
		rc = t->rc;
	if (rc < 0)
		detail_set(d, rc, t->what && *t->what ? t->what : s->dir, UINT64_MAX,
			   "cannot make it in the copy: %s", status_text(rc));
	free(t);
	return rc;
}

int store_tree_make(struct local_store *s, const struct manifest *m, struct detail *d)
{
	return run(s, m, true, d);
}

bool store_tree_is_whole(struct local_store *s, const struct manifest *m)
{
	return run(s, m, false, NULL) == 0;
}
