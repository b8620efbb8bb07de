/* SPDX-License-Identifier: Apache-2.0 */
/* A volume that is a Leat namespace: in fibers of the instance's loop, with its rights. */
#include "client/dataset/vol_leat.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/vol.h"
#include "client/leat_impl.h"
#include "common/base/assert.h"
#include "common/proto/mds_proto.h"

struct remote {
	struct vol vol;
	struct leat_fs *fs;
	/* For vol_beneath: the directory and its path; root.v 0: not beneath a directory. */
	struct ino root;
	char dir[4096];
};

struct remote_file {
	struct vol_file file;
	struct ll_file *ll;
};

static struct leat_fs *fs_of(struct vol *v)
{
	return container_of(v, struct remote, vol)->fs;
}

static struct ll_file *ll_of(struct vol_file *f)
{
	return container_of(f, struct remote_file, file)->ll;
}

static void take_attr(const struct attr *a, struct vol_stat *ret_st)
{
	*ret_st = (struct vol_stat){.size = a->size,
				    .mtime_ns = a->mtime_ns,
				    .ino = a->ino.v,
				    .ver = a->change,
				    .mode = a->mode,
				    .uid = a->uid,
				    .gid = a->gid,
				    .nlink = a->nlink,
				    .plain = (a->flags & ATTR_PLAIN) != 0,
				    .block = chunk_block_size(a->layout.chunk_size)};
}

/* Finds path from r->root on, by components that are no links, except perhaps the last. */
static int find_beneath(struct remote *r, const char *path, struct attr *ret_attr)
{
	struct leat_fs *fs = r->fs;
	size_t n = strcmp(r->dir, "/") ? strlen(r->dir) : 0;
	struct attr a = {.ino = r->root, .mode = S_IFDIR};
	if (strncmp(path, r->dir, n) != 0 || (path[n] && path[n] != '/'))
		return -LE_INVAL;
	if (!path[n + strspn(path + n, "/")])
		TRY(ll_getattr(fs->client, &fs->cred, r->root, &a));
	for (path += n + strspn(path + n, "/"); *path; path += strspn(path, "/")) {
		size_t len = strcspn(path, "/");
		if (S_ISLNK(a.mode))
			return -LE_LOOP;
		if (len > LEAT_NAME_MAX)
			return -LE_NAMETOOLONG;
		TRY(ll_lookup(fs->client, &fs->cred, a.ino, bytes_of(path, (uint32_t)len), &a));
		path += len;
	}
	*ret_attr = a;
	return 0;
}

/* follow: a link at the end is followed, except in a vol_beneath volume. */
static int find(struct vol *v, const char *path, bool follow, struct attr *ret_attr)
{
	struct remote *r = container_of(v, struct remote, vol);
	if (!r->root.v)
		return path_find(r->fs, path, follow, ret_attr);
	TRY(find_beneath(r, path, ret_attr));
	return follow && S_ISLNK(ret_attr->mode) ? -LE_LOOP : 0;
}

static int remote_stat(struct vol *v, const char *path, struct vol_stat *ret_st)
{
	struct leat_fs *fs = fs_of(v);
	struct attr a;
	TRY(find(v, path, false, &a));
	if (a.flags & ATTR_UNSETTLED)
		TRY(ll_getattr(fs->client, &fs->cred, a.ino, &a));
	take_attr(&a, ret_st);
	return 0;
}

static int remote_readlink(struct vol *v, const char *path, char *buf, size_t size)
{
	struct leat_fs *fs = fs_of(v);
	char target[LEAT_SYMLINK_MAX + 1];
	struct attr a;
	TRY(find(v, path, false, &a));
	TRY(ll_readlink(fs->client, &fs->cred, a.ino, target, sizeof(target)));
	if (strlen(target) >= size)
		return -LE_NAMETOOLONG;
	memcpy(buf, target, strlen(target) + 1);
	return 0;
}

static int64_t remote_acl(struct vol *v, const char *path, const struct vol_stat *of, void *buf,
			  size_t size)
{
	struct leat_fs *fs = fs_of(v);
	struct attr a;
	TRY(find(v, path, false, &a));
	if (a.ino.v != of->ino)
		return -LE_STALE;
	if (a.flags & ATTR_PLAIN)
		return 0;
	int64_t n = ll_getxattr(fs->client, &fs->cred, a.ino, bytes_str("system.posix_acl_access"),
				buf, size);
	return n == -LE_NODATA ? 0 : n;
}

struct listing {
	int (*each)(void *arg, const struct vol_entry *e);
	void *arg;
	uint64_t cookie;
	int rc;
};

static int on_entry(void *arg, const struct ll_dirent *e)
{
	struct listing *l = arg;
	char name[LEAT_NAME_MAX + 1];
	struct vol_entry entry = {.name = name, .has_stat = !(e->attr.flags & ATTR_UNSETTLED)};
	memcpy(name, e->name.data, e->name.len);
	name[e->name.len] = 0;
	take_attr(&e->attr, &entry.st);
	l->cookie = e->cookie;
	l->rc = l->each(l->arg, &entry);
	return l->rc != 0;
}

static int remote_list(struct vol *v, const char *path,
		       int (*each)(void *arg, const struct vol_entry *e), void *arg)
{
	struct leat_fs *fs = fs_of(v);
	struct listing l = {each, arg, 0, 0};
	struct attr dir;
	bool eof = false;
	TRY(find(v, path, true, &dir));
	while (!eof && l.rc == 0)
		TRY(ll_readdir(fs->client, &fs->cred, dir.ino, l.cookie, true, on_entry, &l, &eof));
	return l.rc;
}

static int open_ll(struct vol *v, const char *path, int flags, uint32_t mode,
		   struct ll_file **ret_ll)
{
	struct leat_fs *fs = fs_of(v);
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;
	struct attr a;
	bool changed;
	int rc = flags & O_EXCL ? -LE_NOENT : find(v, path, true, &a);
	if (rc == -LE_NOENT && (flags & O_CREAT)) {
		TRY(path_parent(fs, path, &parent, name));
		return ll_create(fs->client, &fs->cred, parent,
				 bytes_of(name, (uint32_t)strlen(name)), mode, (uint32_t)flags,
				 ret_ll, &a);
	}
	TRY(rc);
	return ll_open(fs->client, &fs->cred, a.ino, (uint32_t)(flags & ~O_CREAT) | OPEN_ORPHAN,
		       ret_ll, &a, &changed);
}

static int remote_open(struct vol *v, const char *path, int flags, uint32_t mode,
		       struct vol_file **ret_file)
{
	struct remote_file *f = calloc(1, sizeof(*f));
	if (!f)
		return -LE_NOMEM;
	int rc = open_ll(v, path, flags, mode, &f->ll);
	if (rc < 0) {
		free(f);
		return rc;
	}
	f->file.vol = v;
	*ret_file = &f->file;
	return 0;
}

static void remote_close(struct vol_file *file)
{
	struct remote_file *f = container_of(file, struct remote_file, file);
	ll_release(f->ll);
	free(f);
}

static int remote_file_stat(struct vol_file *f, struct vol_stat *ret_st)
{
	struct leat_fs *fs = fs_of(f->vol);
	struct attr a;
	TRY(ll_getattr(fs->client, &fs->cred, ll_file_ino(ll_of(f)), &a));
	take_attr(&a, ret_st);
	return 0;
}

static int64_t remote_pread(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	return ll_pread(ll_of(f), buf, len, off);
}

static void remote_pread_batch(struct vol *v, struct vol_read *reads, uint32_t n)
{
	struct ll_part one, *parts = n == 1 ? &one : malloc(n * sizeof(*parts));

	for (uint32_t i = 0; i < n; i++) {
		if (!parts) {
			reads[i].done = -LE_NOMEM;
			continue;
		}
		parts[i] = (struct ll_part){
			ll_of(reads[i].file), reads[i].buf, reads[i].off, reads[i].len, 0,
			reads[i].sums};
	}
	if (parts)
		ll_pread_batch(fs_of(v)->client, parts, n);
	for (uint32_t i = 0; parts && i < n; i++)
		reads[i].done = parts[i].done;
	if (parts != &one)
		free(parts);
}

static int remote_pwrite(struct vol_file *f, const void *buf, uint64_t len, uint64_t off)
{
	int64_t n = ll_pwrite(ll_of(f), buf, len, off);
	return n < 0 ? (int)n : (uint64_t)n == len ? 0 : -LE_IO;
}

static int remote_sync(struct vol_file *f)
{
	return ll_fsync(ll_of(f), false);
}

static int remote_sums(struct vol_file *f,
		       int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole),
		       void *arg)
{
	return ll_sums(ll_of(f), each, arg);
}

static int remote_mkdir(struct vol *v, const char *path, uint32_t mode)
{
	struct leat_fs *fs = fs_of(v);
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;
	TRY(path_parent(fs, path, &parent, name));
	return ll_mkdir(fs->client, &fs->cred, parent, bytes_of(name, (uint32_t)strlen(name)), mode,
			NULL);
}

static int remote_unlink(struct vol *v, const char *path)
{
	struct leat_fs *fs = fs_of(v);
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;
	TRY(path_parent(fs, path, &parent, name));
	return ll_unlink(fs->client, &fs->cred, parent, bytes_of(name, (uint32_t)strlen(name)));
}

static int remote_rmdir(struct vol *v, const char *path)
{
	struct leat_fs *fs = fs_of(v);
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;
	TRY(path_parent(fs, path, &parent, name));
	return ll_rmdir(fs->client, &fs->cred, parent, bytes_of(name, (uint32_t)strlen(name)));
}

static int rename_by(struct vol *v, const char *from, const char *to, uint32_t flags)
{
	struct leat_fs *fs = fs_of(v);
	char a[LEAT_NAME_MAX + 1], b[LEAT_NAME_MAX + 1];
	struct ino dir_a, dir_b;
	TRY(path_parent(fs, from, &dir_a, a));
	TRY(path_parent(fs, to, &dir_b, b));
	return ll_rename(fs->client, &fs->cred, dir_a, bytes_of(a, (uint32_t)strlen(a)), dir_b,
			 bytes_of(b, (uint32_t)strlen(b)), flags);
}

static int remote_rename(struct vol *v, const char *from, const char *to)
{
	return rename_by(v, from, to, 0);
}

static int remote_rename_new(struct vol *v, const char *from, const char *to)
{
	return rename_by(v, from, to, RENAME_NOREPLACE);
}

static int remote_exchange(struct vol *v, const char *a, const char *b)
{
	return rename_by(v, a, b, RENAME_EXCHANGE);
}

/* Every acknowledged operation on names is durable already. */
static int remote_syncdir(struct vol *v, const char *path)
{
	(void)v;
	(void)path;
	return 0;
}

static int remote_seal(struct vol *v, const char *path)
{
	struct leat_fs *fs = fs_of(v);
	struct attr a, set = {.flags = ATTR_SEALED};
	TRY(path_find(fs, path, false, &a));
	if (a.flags & ATTR_SEALED)
		return 0;
	return ll_setattr(fs->client, &fs->cred, a.ino, NULL, SET_SEALED, &set, NULL);
}

static int remote_symlink(struct vol *v, const char *target, const char *path)
{
	struct leat_fs *fs = fs_of(v);
	char name[LEAT_NAME_MAX + 1];
	struct ino parent;
	TRY(path_parent(fs, path, &parent, name));
	return ll_symlink(fs->client, &fs->cred, parent, bytes_of(name, (uint32_t)strlen(name)),
			  bytes_str(target), NULL);
}

static int set_acl(struct leat_fs *fs, struct ino ino, const struct rights *r)
{
	static const char *const lists[] = {"system.posix_acl_access", "system.posix_acl_default"};
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		int rc = ll_removexattr(fs->client, &fs->cred, ino, bytes_str(lists[i]));
		if (rc < 0 && rc != -LE_NODATA && rc != -LE_NOTSUP)
			return rc;
	}
	return r->acl_len ? ll_setxattr(fs->client, &fs->cred, ino, bytes_str(lists[0]),
					bytes_of(r->acl, r->acl_len), 0)
			  : 0;
}

static int set_owner(struct leat_fs *fs, const struct attr *a, const struct rights *r,
		     uint32_t *ret_mode)
{
	const struct attr set = {.uid = r->uid, .gid = r->gid};
	*ret_mode = 07777;
	if (a->uid == r->uid && a->gid == r->gid)
		return 0;
	int rc = ll_setattr(fs->client, &fs->cred, a->ino, NULL, SET_UID | SET_GID, &set, NULL);
	if (rc != -LE_PERM || fs->cred.uid == 0)
		return rc;
	rc = ll_setattr(fs->client, &fs->cred, a->ino, NULL, SET_GID, &set, NULL);
	*ret_mode = rc < 0 ? 01707 : 01777;
	return rc == -LE_PERM ? 0 : rc;
}

static int remote_set_rights(struct vol *v, const char *path, const struct rights *r,
			     int64_t mtime_ns)
{
	struct leat_fs *fs = fs_of(v);
	const struct rights bare = rights_without_acl(r);
	struct attr a, set = {.mtime_ns = mtime_ns};
	uint32_t mode;
	TRY(path_find(fs, path, false, &a));
	TRY(set_owner(fs, &a, r, &mode));
	bool link = S_ISLNK(a.mode), restart = (r->mode & mode) == (r->mode & 07777);
	if (!link && !((a.flags & ATTR_PLAIN) && !r->acl_len))
		TRY(set_acl(fs, a.ino, restart ? r : &bare));
	set.mode = (r->acl_len && restart ? r->mode : bare.mode) & mode;
	return ll_setattr(fs->client, &fs->cred, a.ino, NULL, SET_MTIME | (link ? 0 : SET_MODE),
			  &set, NULL);
}

static void remote_destroy(struct vol *v)
{
	free(container_of(v, struct remote, vol));
}

static int remote_beneath(struct vol *v, const char *dir, struct vol **ret_vol);

static const struct vol_ops remote_ops = {
	.stat = remote_stat,
	.readlink = remote_readlink,
	.acl = remote_acl,
	.list = remote_list,
	.open = remote_open,
	.close = remote_close,
	.file_stat = remote_file_stat,
	.pread = remote_pread,
	.pread_batch = remote_pread_batch,
	.pwrite = remote_pwrite,
	.sync = remote_sync,
	.sums = remote_sums,
	.mkdir = remote_mkdir,
	.unlink = remote_unlink,
	.rmdir = remote_rmdir,
	.rename = remote_rename,
	.rename_new = remote_rename_new,
	.exchange = remote_exchange,
	.syncdir = remote_syncdir,
	.seal = remote_seal,
	.symlink = remote_symlink,
	.set_rights = remote_set_rights,
	.beneath = remote_beneath,
	.destroy = remote_destroy,
};

static int create(struct leat_fs *fs, struct remote **ret_remote)
{
	struct remote *r = calloc(1, sizeof(*r));
	if (!r)
		return -LE_NOMEM;
	r->vol.ops = &remote_ops;
	r->vol.origin = ORIGIN_SERVER;
	r->fs = fs;
	*ret_remote = r;
	return 0;
}

static int remote_beneath(struct vol *v, const char *dir, struct vol **ret_vol)
{
	struct remote *r;
	struct attr a;
	if (strlen(dir) >= sizeof(r->dir))
		return -LE_NAMETOOLONG;
	TRY(find(v, dir, false, &a));
	if (!S_ISDIR(a.mode))
		return -LE_NOTDIR;
	TRY(create(fs_of(v), &r));
	memcpy(r->dir, dir, strlen(dir) + 1);
	r->root = a.ino;
	*ret_vol = &r->vol;
	return 0;
}

int vol_leat_create(struct leat_fs *fs, struct vol **ret_vol)
{
	struct remote *r;
	TRY(create(fs, &r));
	*ret_vol = &r->vol;
	return 0;
}
