/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls of leat.h with a path: the walk along it, attributes, names, layouts.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "client/include/leat/leat.h"
#include "client/leat_impl.h"
#include "client/ll.h"
#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"

#define WALK_DEPTH_MAX (LEAT_PATH_MAX / 2)
#define WALK_LINKS_MAX 40

/* The walk of one path. On the heap: it is too large for a fiber's stack. */
struct walk {
	struct leat_fs *fs;
	struct ino dirs[WALK_DEPTH_MAX]; /* from the root to the present directory */
	uint32_t depth;
	uint32_t n_links;
	char rest[2 * LEAT_PATH_MAX]; /* path still to walk */
	char name[LEAT_NAME_MAX + 1]; /* present component */
};

/* Moves the next component from rest to name. Returns 1; 0 at the end; or -LE_NAMETOOLONG.
 * *ret_dir: a slash follows. */
static int next_name(struct walk *w, bool *ret_dir)
{
	const char *p = w->rest + strspn(w->rest, "/");
	size_t len = strcspn(p, "/");

	if (len == 0)
		return 0;
	if (len > LEAT_NAME_MAX)
		return -LE_NAMETOOLONG;
	memcpy(w->name, p, len);
	w->name[len] = '\0';
	*ret_dir = p[len] == '/';
	memmove(w->rest, p + len, strlen(p + len) + 1);
	return 1;
}

static bool at_end(const struct walk *w)
{
	return w->rest[strspn(w->rest, "/")] == '\0';
}

/* Puts the target of a symbolic link before the rest of the path. Yields. */
static int enter_link(struct walk *w, struct ino link)
{
	char *target = malloc(LEAT_SYMLINK_MAX + 1);
	size_t len, rest = strlen(w->rest);
	int rc;

	if (target == NULL)
		return -LE_NOMEM;
	rc = ++w->n_links > WALK_LINKS_MAX ? -LE_LOOP : 0;
	if (rc >= 0)
		rc = ll_readlink(w->fs->client, &w->fs->cred, link, target, LEAT_SYMLINK_MAX + 1);
	if (rc >= 0) {
		len = strlen(target);
		if (len + rest + 1 > sizeof(w->rest)) {
			rc = -LE_NAMETOOLONG;
		} else {
			memmove(w->rest + len, w->rest, rest + 1);
			memcpy(w->rest, target, len);
			if (target[0] == '/')
				w->depth = 1;
		}
	}
	free(target);
	return rc;
}

static int enter_dir(struct walk *w, struct ino ino)
{
	if (w->depth == WALK_DEPTH_MAX)
		return -LE_NAMETOOLONG;
	w->dirs[w->depth++] = ino;
	return 0;
}

/* Handles "." and "..". Returns true if the name was one of them. */
static bool step_dots(struct walk *w)
{
	if (strcmp(w->name, ".") == 0)
		return true;
	if (strcmp(w->name, "..") != 0)
		return false;
	if (w->depth > 1)
		w->depth--;
	return true;
}

static int walk_begin(struct leat_fs *fs, const char *path, struct walk **ret_walk)
{
	struct walk *w;

	if (path == NULL || path[0] == '\0')
		return -LE_NOENT;
	if (strlen(path) >= LEAT_PATH_MAX)
		return -LE_NAMETOOLONG;
	w = malloc(sizeof(*w));
	if (w == NULL)
		return -LE_NOMEM;
	w->fs = fs;
	w->dirs[0] = LEAT_ROOT_INO;
	w->depth = 1;
	w->n_links = 0;
	memcpy(w->rest, path, strlen(path) + 1);
	*ret_walk = w;
	return 0;
}

/* Walks to the end of the path. Returns the attributes found there. Yields. */
static int walk_all(struct walk *w, bool follow, struct attr *ret_attr)
{
	struct leat_fs *fs = w->fs;
	bool slash = false, have = false;
	int rc;

	while ((rc = next_name(w, &slash)) > 0) {
		have = false;
		if (step_dots(w))
			continue;
		TRY(ll_lookup(fs->client, &fs->cred, w->dirs[w->depth - 1], bytes_str(w->name),
			      ret_attr));
		if (S_ISLNK(ret_attr->mode) && (!at_end(w) || slash || follow)) {
			TRY(enter_link(w, ret_attr->ino));
			continue;
		}
		have = true;
		if (S_ISDIR(ret_attr->mode))
			TRY(enter_dir(w, ret_attr->ino));
		else if (!at_end(w) || slash)
			return -LE_NOTDIR;
	}
	TRY(rc);
	if (have)
		return 0;
	return ll_getattr(fs->client, &fs->cred, w->dirs[w->depth - 1], ret_attr);
}

int path_find(struct leat_fs *fs, const char *path, bool follow, struct attr *ret_attr)
{
	struct attr attr;
	struct walk *w;
	int rc;

	TRY(walk_begin(fs, path, &w));
	rc = walk_all(w, follow, &attr);
	free(w);
	if (rc >= 0)
		*ret_attr = attr;
	return rc;
}

/* If the last component is a symbolic link, puts its target in its place. Yields. */
static int follow_last(struct walk *w, bool *ret_link)
{
	struct leat_fs *fs = w->fs;
	struct attr attr;
	int rc = ll_lookup(fs->client, &fs->cred, w->dirs[w->depth - 1], bytes_str(w->name), &attr);

	*ret_link = rc == 0 && S_ISLNK(attr.mode);
	if (*ret_link)
		rc = enter_link(w, attr.ino);
	return rc == -LE_NOENT ? 0 : rc;
}

/* Walks to the directory of the last component. Yields. */
static int walk_parent(struct walk *w, bool follow, char *ret_name)
{
	struct leat_fs *fs = w->fs;
	bool slash = false, link = false;
	struct attr attr;
	int rc;

	while ((rc = next_name(w, &slash)) > 0) {
		bool dots = step_dots(w);

		if (at_end(w)) {
			if (dots)
				return -LE_BUSY;
			if (follow)
				TRY(follow_last(w, &link));
			if (link)
				continue;
			memcpy(ret_name, w->name, sizeof(w->name));
			return 0;
		}
		if (dots)
			continue;
		TRY(ll_lookup(fs->client, &fs->cred, w->dirs[w->depth - 1], bytes_str(w->name),
			      &attr));
		if (S_ISLNK(attr.mode))
			TRY(enter_link(w, attr.ino));
		else if (S_ISDIR(attr.mode))
			TRY(enter_dir(w, attr.ino));
		else
			return -LE_NOTDIR;
	}
	return rc < 0 ? rc : -LE_BUSY;
}

static int find_parent(struct leat_fs *fs, const char *path, bool follow, struct ino *ret_parent,
		       char *ret_name)
{
	struct walk *w;
	int rc;

	TRY(walk_begin(fs, path, &w));
	rc = walk_parent(w, follow, ret_name);
	if (rc >= 0)
		*ret_parent = w->dirs[w->depth - 1];
	free(w);
	return rc;
}

int path_parent(struct leat_fs *fs, const char *path, struct ino *ret_parent, char *ret_name)
{
	return find_parent(fs, path, false, ret_parent, ret_name);
}

int path_target(struct leat_fs *fs, const char *path, struct ino *ret_parent, char *ret_name)
{
	return find_parent(fs, path, true, ret_parent, ret_name);
}

static struct timespec time_from_ns(int64_t ns)
{
	int64_t s = ns / 1000000000, rest = ns % 1000000000;

	if (rest < 0) {
		s--;
		rest += 1000000000;
	}
	return (struct timespec){s, rest};
}

void stat_from_attr(const struct attr *a, struct leat_stat *ret_st)
{
	*ret_st = (struct leat_stat){
		.ino = a->ino.v,
		.size = a->size,
		.blocks = a->blocks,
		.mode = a->mode,
		.nlink = a->nlink,
		.uid = a->uid,
		.gid = a->gid,
		.rdev = a->rdev,
		.flags = a->flags & ATTR_SEALED ? LEAT_STAT_SEALED : 0,
		.atime = time_from_ns(a->atime_ns),
		.mtime = time_from_ns(a->mtime_ns),
		.ctime = time_from_ns(a->ctime_ns),
		.btime = time_from_ns(a->btime_ns),
		.change = a->change,
	};
}

static int64_t stat_fn(struct api_call *a)
{
	struct attr attr;

	TRY(path_find(a->fs, a->path, a->flags != 0, &attr));
	stat_from_attr(&attr, a->buf);
	return 0;
}

int leat_stat(struct leat_fs *fs, const char *path, struct leat_stat *ret_st)
{
	struct api_call a = {.fn = stat_fn, .path = path, .buf = ret_st, .flags = 1};

	return (int)api_run(fs, &a);
}

int leat_lstat(struct leat_fs *fs, const char *path, struct leat_stat *ret_st)
{
	struct api_call a = {.fn = stat_fn, .path = path, .buf = ret_st};

	return (int)api_run(fs, &a);
}

/* in: struct attr with the new values, mode: the mask, flags: whether to follow. */
static int64_t setattr_fn(struct api_call *a)
{
	struct attr attr;

	TRY(path_find(a->fs, a->path, a->flags != 0, &attr));
	return ll_setattr(a->fs->client, &a->fs->cred, attr.ino, NULL, a->mode, a->in, NULL);
}

static int setattr(struct leat_fs *fs, const char *path, bool follow, uint32_t mask,
		   const struct attr *attr)
{
	struct api_call a = {
		.fn = setattr_fn, .path = path, .flags = follow, .mode = mask, .in = attr};

	return (int)api_run(fs, &a);
}

int leat_truncate(struct leat_fs *fs, const char *path, uint64_t size)
{
	struct attr attr = {.size = size};

	return setattr(fs, path, true, SET_SIZE, &attr);
}

int leat_chmod(struct leat_fs *fs, const char *path, mode_t mode)
{
	struct attr attr = {.mode = mode & 07777};

	return setattr(fs, path, true, SET_MODE, &attr);
}

static int set_owner(struct leat_fs *fs, const char *path, bool follow, uid_t uid, gid_t gid)
{
	struct attr attr = {.uid = uid, .gid = gid};
	uint32_t mask = (uid != (uid_t)-1 ? SET_UID : 0) | (gid != (gid_t)-1 ? SET_GID : 0);

	return setattr(fs, path, follow, mask, &attr);
}

int leat_chown(struct leat_fs *fs, const char *path, uid_t uid, gid_t gid)
{
	return set_owner(fs, path, true, uid, gid);
}

int leat_lchown(struct leat_fs *fs, const char *path, uid_t uid, gid_t gid)
{
	return set_owner(fs, path, false, uid, gid);
}

static int set_times(struct leat_fs *fs, const char *path, bool follow,
		     const struct timespec times[2])
{
	const struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
	struct attr attr = {0};
	uint32_t mask = 0;

	if (times == NULL)
		times = now;
	if (times[0].tv_nsec == UTIME_NOW)
		mask |= SET_ATIME_NOW;
	else if (times[0].tv_nsec != UTIME_OMIT)
		mask |= SET_ATIME;
	if (times[1].tv_nsec == UTIME_NOW)
		mask |= SET_MTIME_NOW;
	else if (times[1].tv_nsec != UTIME_OMIT)
		mask |= SET_MTIME;
	attr.atime_ns = times[0].tv_sec * 1000000000 + times[0].tv_nsec;
	attr.mtime_ns = times[1].tv_sec * 1000000000 + times[1].tv_nsec;
	return mask != 0 ? setattr(fs, path, follow, mask, &attr) : 0;
}

int leat_utimens(struct leat_fs *fs, const char *path, const struct timespec times[2])
{
	return set_times(fs, path, true, times);
}

int leat_lutimens(struct leat_fs *fs, const char *path, const struct timespec times[2])
{
	return set_times(fs, path, false, times);
}

static int64_t access_fn(struct api_call *a)
{
	struct attr attr;

	TRY(path_find(a->fs, a->path, true, &attr));
	return a->mode != F_OK ? ll_access(a->fs->client, &a->fs->cred, attr.ino, a->mode) : 0;
}

int leat_access(struct leat_fs *fs, const char *path, int mask)
{
	struct api_call a = {.fn = access_fn, .path = path, .mode = (uint32_t)mask};

	return (int)api_run(fs, &a);
}

static int64_t mkdir_fn(struct api_call *a)
{
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;
	int rc = path_parent(a->fs, a->path, &parent, name);

	TRY(rc == -LE_BUSY ? -LE_EXIST : rc);
	return ll_mkdir(a->fs->client, &a->fs->cred, parent, bytes_str(name), a->mode, NULL);
}

int leat_mkdir(struct leat_fs *fs, const char *path, mode_t mode)
{
	struct api_call a = {.fn = mkdir_fn, .path = path, .mode = mode & 07777 & ~fs->umask};

	return (int)api_run(fs, &a);
}

static int64_t mknod_fn(struct api_call *a)
{
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;

	TRY(path_parent(a->fs, a->path, &parent, name));
	return ll_mknod(a->fs->client, &a->fs->cred, parent, bytes_str(name), a->mode,
			(uint32_t)a->a, NULL);
}

int leat_mknod(struct leat_fs *fs, const char *path, mode_t mode, dev_t dev)
{
	struct api_call a = {.fn = mknod_fn, .path = path, .mode = mode & ~fs->umask, .a = dev};

	return (int)api_run(fs, &a);
}

static int64_t remove_fn(struct api_call *a)
{
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;

	TRY(path_parent(a->fs, a->path, &parent, name));
	if (a->flags != 0)
		return ll_rmdir(a->fs->client, &a->fs->cred, parent, bytes_str(name));
	return ll_unlink(a->fs->client, &a->fs->cred, parent, bytes_str(name));
}

int leat_rmdir(struct leat_fs *fs, const char *path)
{
	struct api_call a = {.fn = remove_fn, .path = path, .flags = 1};

	return (int)api_run(fs, &a);
}

int leat_unlink(struct leat_fs *fs, const char *path)
{
	struct api_call a = {.fn = remove_fn, .path = path};

	return (int)api_run(fs, &a);
}

static int64_t rename_fn(struct api_call *a)
{
	char from[LEAT_NAME_MAX + 1], to[LEAT_NAME_MAX + 1];
	struct ino from_dir, to_dir;

	TRY(path_parent(a->fs, a->path, &from_dir, from));
	TRY(path_parent(a->fs, a->path2, &to_dir, to));
	return ll_rename(a->fs->client, &a->fs->cred, from_dir, bytes_str(from), to_dir,
			 bytes_str(to), a->flags);
}

int leat_rename(struct leat_fs *fs, const char *from, const char *to, unsigned flags)
{
	struct api_call a = {.fn = rename_fn, .path = from, .path2 = to, .flags = flags};

	return (int)api_run(fs, &a);
}

static int64_t link_fn(struct api_call *a)
{
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;
	struct attr attr;

	TRY(path_find(a->fs, a->path, false, &attr));
	TRY(path_parent(a->fs, a->path2, &parent, name));
	return ll_link(a->fs->client, &a->fs->cred, attr.ino, parent, bytes_str(name), NULL);
}

int leat_link(struct leat_fs *fs, const char *from, const char *to)
{
	struct api_call a = {.fn = link_fn, .path = from, .path2 = to};

	return (int)api_run(fs, &a);
}

static int64_t symlink_fn(struct api_call *a)
{
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;

	TRY(path_parent(a->fs, a->path, &parent, name));
	return ll_symlink(a->fs->client, &a->fs->cred, parent, bytes_str(name), bytes_str(a->path2),
			  NULL);
}

int leat_symlink(struct leat_fs *fs, const char *target, const char *path)
{
	struct api_call a = {.fn = symlink_fn, .path = path, .path2 = target};

	return (int)api_run(fs, &a);
}

static int64_t readlink_fn(struct api_call *a)
{
	struct attr attr;

	TRY(path_find(a->fs, a->path, false, &attr));
	if (!S_ISLNK(attr.mode))
		return -LE_INVAL;
	TRY(ll_readlink(a->fs->client, &a->fs->cred, attr.ino, a->buf, a->a));
	return (int64_t)strlen(a->buf);
}

int64_t leat_readlink(struct leat_fs *fs, const char *path, char *buf, size_t size)
{
	struct api_call a = {.fn = readlink_fn, .path = path, .buf = buf, .a = size};

	return api_run(fs, &a);
}

static int64_t getxattr_fn(struct api_call *a)
{
	struct attr attr;

	TRY(path_find(a->fs, a->path, true, &attr));
	if (a->path2 == NULL)
		return ll_listxattr(a->fs->client, &a->fs->cred, attr.ino, a->buf, a->a);
	return ll_getxattr(a->fs->client, &a->fs->cred, attr.ino, bytes_str(a->path2), a->buf,
			   a->a);
}

int64_t leat_getxattr(struct leat_fs *fs, const char *path, const char *name, void *buf,
		      size_t size)
{
	struct api_call a = {.fn = getxattr_fn, .path = path, .path2 = name, .buf = buf, .a = size};

	return api_run(fs, &a);
}

int64_t leat_listxattr(struct leat_fs *fs, const char *path, char *buf, size_t size)
{
	struct api_call a = {.fn = getxattr_fn, .path = path, .buf = buf, .a = size};

	return api_run(fs, &a);
}

static int64_t setxattr_fn(struct api_call *a)
{
	struct attr attr;

	TRY(path_find(a->fs, a->path, true, &attr));
	if (a->in == NULL)
		return ll_removexattr(a->fs->client, &a->fs->cred, attr.ino, bytes_str(a->path2));
	return ll_setxattr(a->fs->client, &a->fs->cred, attr.ino, bytes_str(a->path2),
			   bytes_of(a->in, (uint32_t)a->a), a->flags);
}

int leat_setxattr(struct leat_fs *fs, const char *path, const char *name, const void *value,
		  size_t size, int flags)
{
	struct api_call a = {
		.fn = setxattr_fn,
		.path = path,
		.path2 = name,
		.in = value != NULL ? value : "",
		.a = size,
		.flags = (uint32_t)flags,
	};

	return size <= LEAT_XATTR_VALUE_MAX ? (int)api_run(fs, &a) : -LE_2BIG;
}

int leat_removexattr(struct leat_fs *fs, const char *path, const char *name)
{
	struct api_call a = {.fn = setxattr_fn, .path = path, .path2 = name};

	return (int)api_run(fs, &a);
}

static int64_t layout_get_fn(struct api_call *a)
{
	struct leat_layout *l = a->buf;
	struct attr attr;

	TRY(path_find(a->fs, a->path, true, &attr));
	*l = (struct leat_layout){
		.size = sizeof(*l),
		.stripe_count = attr.layout.width,
		.chunk_size = attr.layout.chunk_size,
		.storage_class = attr.layout.storage_class,
		.replicas = attr.layout.replicas,
		.compression = attr.layout.compression,
		.inherited = (attr.layout.flags & LAYOUT_F_INHERITED) != 0,
		.table = attr.layout.table,
		.seed = attr.layout.seed,
	};
	return 0;
}

int leat_layout_get(struct leat_fs *fs, const char *path, struct leat_layout *ret_layout)
{
	struct api_call a = {.fn = layout_get_fn, .path = path, .buf = ret_layout};

	return (int)api_run(fs, &a);
}

static int64_t layout_set_fn(struct api_call *a)
{
	const struct leat_layout *l = a->in;
	struct layout layout = {
		.width = l->stripe_count,
		.chunk_size = l->chunk_size,
		.storage_class = (uint8_t)l->storage_class,
		.replicas = (uint8_t)l->replicas,
		.compression = (uint8_t)l->compression,
	};
	struct attr attr;

	TRY(path_find(a->fs, a->path, true, &attr));
	return ll_layout_set(a->fs->client, &a->fs->cred, attr.ino, &layout, NULL);
}

int leat_layout_set(struct leat_fs *fs, const char *path, const struct leat_layout *layout)
{
	struct api_call a = {.fn = layout_set_fn, .path = path, .in = layout};

	if (layout->size < sizeof(*layout))
		return -LE_INVAL;
	return (int)api_run(fs, &a);
}
