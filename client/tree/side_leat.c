/* SPDX-License-Identifier: Apache-2.0 */
/* A side that is a Leat namespace: fibers of the instance's loop, with its rights. */
#include "client/tree/side_leat.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/leat/leat_tree.h"
#include "client/leat_impl.h"
#include "client/tree/side.h"
#include "common/base/assert.h"
#include "common/proto/mds_proto.h"

struct leat_side {
	struct side side;
	struct leat_fs *fs;
	struct client *c;
	struct cred cred; /* with the umask, which the servers apply */
};

static struct leat_side *of(struct side *s)
{
	return container_of(s, struct leat_side, side);
}

static void take_attr(const struct attr *a, struct tattr *ret_a)
{
	*ret_a = (struct tattr){
		.ino = a->ino.v,
		.size = a->size,
		.blocks = a->blocks,
		.mode = a->mode,
		.nlink = a->nlink,
		.uid = a->uid,
		.gid = a->gid,
		.rdev = a->rdev,
		.atime_ns = a->atime_ns,
		.mtime_ns = a->mtime_ns,
		.plain = (a->flags & ATTR_PLAIN) != 0,
	};
}

/* ---- names ---- */

static int leat_at(struct side *s, const char *path, struct tdir *ret_dir, char *ret_name)
{
	struct leat_side *l = of(s);
	struct ino parent = LEAT_ROOT_INO;
	int rc = path_parent(l->fs, path, &parent, ret_name);

	if (rc == -LE_BUSY && path[strspn(path, "/")] == '\0') {
		memcpy(ret_name, ".", 2);
		rc = 0;
	}
	TRY(rc);
	*ret_dir = (struct tdir){.side = s, .ino = parent};
	return 0;
}

static int leat_look(struct tdir *d, const char *name, struct tattr *ret_attr)
{
	struct leat_side *l = of(d->side);
	struct attr a;

	if (strcmp(name, ".") == 0) {
		TRY(ll_getattr(l->c, &l->cred, d->ino, &a));
	} else {
		TRY(ll_lookup(l->c, &l->cred, d->ino, bytes_str(name), &a));
		if (a.flags & ATTR_UNSETTLED)
			TRY(ll_getattr(l->c, &l->cred, a.ino, &a));
	}
	take_attr(&a, ret_attr);
	return 0;
}

static int leat_open_dir(struct tdir *d, const char *name, const struct tattr *a,
			 struct tdir *ret_dir)
{
	(void)name;
	if (!S_ISDIR(a->mode))
		return -LE_NOTDIR;
	*ret_dir = (struct tdir){.side = d->side, .ino = {a->ino}};
	return 0;
}

static void leat_close_dir(struct tdir *d)
{
	(void)d;
}

struct listing {
	struct tdir *d;
	struct tent *ents;
	bool *unsettled;
	uint32_t n;
};

static int on_entry(void *arg, const struct ll_dirent *e)
{
	struct listing *l = arg;
	struct tent *to = &l->ents[l->n];

	if (l->n == SIDE_LIST_MAX)
		return 1;
	/* An impossible name becomes "", which the walk reports. */
	size_t len = e->name.len < sizeof(to->name) ? e->name.len : 0;
	memcpy(to->name, e->name.data, len);
	to->name[len] = '\0';
	take_attr(&e->attr, &to->a);
	l->unsettled[l->n++] = (e->attr.flags & ATTR_UNSETTLED) != 0;
	l->d->cookie = e->cookie;
	return 0;
}

static int leat_list(struct tdir *d, bool attrs, struct tent *ents, uint32_t *ret_n, bool *ret_eof)
{
	struct leat_side *l = of(d->side);
	bool unsettled[SIDE_LIST_MAX];
	struct listing li = {d, ents, unsettled, 0};
	uint32_t n = 0;

	TRY(ll_readdir(l->c, &l->cred, d->ino, d->cookie, attrs, on_entry, &li, ret_eof));
	for (uint32_t i = 0; i < li.n; i++) {
		ents[i].rc = 0;
		if (attrs && unsettled[i]) {
			struct attr a;
			int rc = ll_getattr(l->c, &l->cred, (struct ino){ents[i].a.ino}, &a);

			if (rc == -LE_STALE || rc == -LE_NOENT)
				continue; /* removed meanwhile */
			ents[i].rc = rc;
			if (rc >= 0)
				take_attr(&a, &ents[i].a);
		}
		if (n != i)
			ents[n] = ents[i];
		n++;
	}
	*ret_n = n;
	return 0;
}

static int leat_remove(struct tdir *d, const char *name, bool dir)
{
	struct leat_side *l = of(d->side);

	if (dir)
		return ll_rmdir(l->c, &l->cred, d->ino, bytes_str(name));
	return ll_unlink(l->c, &l->cred, d->ino, bytes_str(name));
}

static int leat_make_dir(struct tdir *d, const char *name, uint32_t mode)
{
	struct leat_side *l = of(d->side);

	return ll_mkdir(l->c, &l->cred, d->ino, bytes_str(name), mode, NULL);
}

static int leat_make_link(struct tdir *d, const char *name, const char *target,
			  struct tattr *ret_made)
{
	struct leat_side *l = of(d->side);
	struct attr a;

	TRY(ll_symlink(l->c, &l->cred, d->ino, bytes_str(name), bytes_str(target), &a));
	take_attr(&a, ret_made);
	return 0;
}

static int leat_read_link(struct tdir *d, const char *name, const struct tattr *a, char *buf,
			  size_t size)
{
	struct leat_side *l = of(d->side);

	(void)name;
	return ll_readlink(l->c, &l->cred, (struct ino){a->ino}, buf, size);
}

static int leat_make_node(struct tdir *d, const char *name, uint32_t mode, uint64_t rdev,
			  struct tattr *ret_made)
{
	struct leat_side *l = of(d->side);
	struct attr a;

	if (rdev > UINT32_MAX)
		return -LE_OVERFLOW;
	TRY(ll_mknod(l->c, &l->cred, d->ino, bytes_str(name), mode, (uint32_t)rdev, &a));
	take_attr(&a, ret_made);
	return 0;
}

static int leat_hard_link(struct tdir *d, const char *name, const struct tlink *to)
{
	struct leat_side *l = of(d->side);

	return ll_link(l->c, &l->cred, (struct ino){to->ino}, d->ino, bytes_str(name), NULL);
}

static int leat_move(struct tdir *d, const char *from, const char *to, unsigned flags)
{
	struct leat_side *l = of(d->side);

	return ll_rename(l->c, &l->cred, d->ino, bytes_str(from), d->ino, bytes_str(to), flags);
}

/* ---- extended attributes and other metadata ---- */

static int get_one(struct leat_side *l, struct ino ino, const char *name, char *value,
		   struct tmeta *m)
{
	int64_t n = ll_getxattr(l->c, &l->cred, ino, bytes_str(name), value, LEAT_XATTR_VALUE_MAX);

	if (n == -LE_NODATA || (n < 0 && tmeta_cannot((int)n)))
		return 0; /* removed meanwhile, or not permitted */
	TRY((int)n);
	return tmeta_add(m, name, value, (uint32_t)n);
}

static int get_xattrs(struct leat_side *l, struct ino ino, struct tmeta *m)
{
	char *names = malloc(LEAT_XATTR_NAMES_MAX + LEAT_XATTR_VALUE_MAX);
	int64_t n = -LE_NOMEM;
	int rc = 0;

	if (names)
		n = ll_listxattr(l->c, &l->cred, ino, names, LEAT_XATTR_NAMES_MAX);
	for (int64_t at = 0; rc >= 0 && at < n; at += (int64_t)strlen(names + at) + 1)
		rc = get_one(l, ino, names + at, names + LEAT_XATTR_NAMES_MAX, m);
	free(names);
	return n < 0 ? (int)n : rc;
}

static int set_xattrs(struct leat_side *l, struct ino ino, const struct tmeta *m, bool lists)
{
	const char *name;
	struct bytes v;
	size_t at = 0;

	while (tmeta_next(m, &at, &name, &v)) {
		if (tmeta_is_acl(name) != lists)
			continue;
		int rc = ll_setxattr(l->c, &l->cred, ino, bytes_str(name), v, 0);
		if (rc < 0 && !tmeta_cannot(rc))
			return rc;
	}
	return 0;
}

static int drop_lists(struct leat_side *l, struct ino ino, const struct tmeta *m)
{
	const char *name;

	for (size_t i = 0; (name = tmeta_no_acl(m, i)) != NULL; i++) {
		int rc = ll_removexattr(l->c, &l->cred, ino, bytes_str(name));
		if (rc < 0 && rc != -LE_NODATA && !tmeta_cannot(rc))
			return rc;
	}
	return 0;
}

static int set_attr(struct leat_side *l, struct ino ino, struct ll_file *f, uint32_t mask,
		    const struct attr *a)
{
	return mask ? ll_setattr(l->c, &l->cred, ino, f, mask, a, NULL) : 0;
}

/* Sets owner and group. Only a user that the servers treat as root may change the owner. */
static int set_owner(struct leat_side *l, struct ino ino, struct ll_file *f, struct attr *a)
{
	int rc = set_attr(l, ino, f, SET_UID | SET_GID, a);

	if (rc != -LE_PERM)
		return rc;
	/* Sets only the group, if that is permitted. Drops set-user-ID and, if the group could
	 * not be set, set-group-ID: they were meant for the other owner. */
	rc = set_attr(l, ino, f, SET_GID, a);
	a->mode &= rc < 0 ? 01777u : 03777u;
	return rc == -LE_PERM ? 0 : rc;
}

/* Sets the owner first, which clears set-ID bits and capabilities; then attributes, which may
 * need rights that the mode does not give; then mode and times; access lists last. If neither
 * source nor copy has extended attributes, one request sets all. */
static int apply(struct leat_side *l, const struct tfile *to, uint64_t size, const struct tmeta *m)
{
	struct ino ino = {to->ino};
	struct ll_file *f = to->ll;
	struct attr a = {
		.mode = m->a.mode & 07777,
		.uid = m->a.uid,
		.gid = m->a.gid,
		.atime_ns = m->a.atime_ns,
		.mtime_ns = m->a.mtime_ns,
		.size = size,
	};
	uint32_t owner = m->keep & LEAT_KEEP_OWNER ? SET_UID | SET_GID : 0;
	uint32_t rest = m->keep & LEAT_KEEP_TIMES ? SET_ATIME | SET_MTIME : 0;
	int rc;

	if ((m->keep & LEAT_KEEP_MODE) && !S_ISLNK(m->a.mode))
		rest |= SET_MODE;
	if (size != UINT64_MAX)
		TRY(set_attr(l, ino, f, SET_SIZE, &a));
	if (!to->plain)
		TRY(drop_lists(l, ino, m));
	if (owner && l->cred.uid == 0 && m->len == 0) {
		rc = set_attr(l, ino, f, owner | rest, &a);
		if (rc != -LE_PERM) /* -LE_PERM: the servers squash this root */
			return rc;
	}
	if (owner)
		TRY(set_owner(l, ino, f, &a));
	TRY(set_xattrs(l, ino, m, false));
	TRY(set_attr(l, ino, f, rest, &a));
	return set_xattrs(l, ino, m, true);
}

static int leat_xattrs(struct tdir *d, const char *name, const struct tattr *a, struct tmeta *m)
{
	(void)name;
	return a->plain ? 0 : get_xattrs(of(d->side), (struct ino){a->ino}, m);
}

static int leat_apply(struct tdir *d, const char *name, const struct tattr *made,
		      const struct tmeta *m)
{
	struct leat_side *l = of(d->side);
	struct tfile to = {.ino = d->ino.v};
	struct attr a;

	(void)name;
	if (made) {
		to.ino = made->ino;
		to.plain = made->plain;
	} else if (tmeta_no_acl(m, 0)) {
		TRY(ll_getattr(l->c, &l->cred, d->ino, &a));
		to.plain = (a.flags & ATTR_PLAIN) != 0;
	}
	return apply(l, &to, UINT64_MAX, m);
}

/* ---- files ---- */

static int leat_load(struct tdir *d, const struct tent *e, struct tfile *ret_file, void *buf,
		     size_t *len, struct tmeta *m)
{
	struct leat_side *l = of(d->side);
	struct ino ino = {e->a.ino};
	struct ll_file *ll;
	struct attr a;
	bool changed;
	int64_t n = 0;
	int rc;

	TRY(ll_open(l->c, &l->cred, ino, O_RDONLY | OPEN_ORPHAN, &ll, &a, &changed));
	rc = S_ISREG(a.mode) ? 0 : -LE_STALE;
	if (rc == 0 && (a.flags & ATTR_UNSETTLED))
		rc = ll_getattr(l->c, &l->cred, ino, &a);
	if (rc == 0 && *len > 0) {
		n = ll_pread(ll, buf, *len, 0);
		rc = n < 0 ? (int)n : 0;
	}
	if (rc == 0 && (m->keep & LEAT_KEEP_XATTRS) && !(a.flags & ATTR_PLAIN))
		rc = get_xattrs(l, ino, m);
	if (rc < 0) {
		ll_release(ll);
		return rc;
	}
	*len = (size_t)n;
	take_attr(&a, &m->a);
	*ret_file = (struct tfile){.side = d->side, .ll = ll, .ino = ino.v};
	return 0;
}

static int64_t leat_read_at(struct tfile *f, void *buf, size_t len, uint64_t off)
{
	return ll_pread(f->ll, buf, len, off);
}

static int64_t leat_seek_in(struct tfile *f, uint64_t off, int whence)
{
	return ll_seek(f->ll, off, whence);
}

static int leat_write_at(struct tfile *f, const void *buf, size_t len, uint64_t off)
{
	int64_t n = ll_pwrite(f->ll, buf, len, off);

	return n < 0 ? (int)n : (size_t)n == len ? 0 : -LE_IO;
}

static int leat_store(struct tdir *d, const char *name, uint32_t mode, const void *buf, size_t len,
		      struct tfile *ret_file)
{
	struct leat_side *l = of(d->side);
	struct tfile f = {.side = d->side};
	struct attr a;
	int rc;

	TRY(ll_create(l->c, &l->cred, d->ino, bytes_str(name), mode, O_RDWR | O_CREAT | O_EXCL,
		      &f.ll, &a));
	f.ino = a.ino.v;
	f.plain = (a.flags & ATTR_PLAIN) != 0;
	rc = len > 0 ? leat_write_at(&f, buf, len, 0) : 0;
	if (rc < 0) {
		ll_release(f.ll);
		int gone = leat_remove(d, name, false);
		return gone < 0 && gone != -LE_NOENT ? gone : rc;
	}
	*ret_file = f;
	return 0;
}

static int64_t leat_copy(struct tfile *from, uint64_t off, struct tfile *to, uint64_t len)
{
	return ll_copy(from->ll, off, to->ll, off, len);
}

static int leat_finish(struct tfile *f, uint64_t size, const struct tmeta *m)
{
	int rc = ll_flush(f->ll);

	if (rc >= 0)
		rc = apply(of(f->side), f, size, m);
	ll_release(f->ll);
	f->side = NULL;
	return rc;
}

static void leat_drop(struct tfile *f)
{
	ll_release(f->ll);
}

static void leat_destroy(struct side *s)
{
	free(of(s));
}

static const struct side_ops leat_ops = {
	.at = leat_at,
	.look = leat_look,
	.open = leat_open_dir,
	.close = leat_close_dir,
	.list = leat_list,
	.remove = leat_remove,
	.mkdir = leat_make_dir,
	.symlink = leat_make_link,
	.readlink = leat_read_link,
	.mknod = leat_make_node,
	.link = leat_hard_link,
	.rename = leat_move,
	.load = leat_load,
	.pread = leat_read_at,
	.seek = leat_seek_in,
	.store = leat_store,
	.pwrite = leat_write_at,
	.copy = leat_copy,
	.finish = leat_finish,
	.drop = leat_drop,
	.xattrs = leat_xattrs,
	.apply = leat_apply,
	.destroy = leat_destroy,
};

int side_leat_create(struct leat_fs *fs, struct side **ret_side)
{
	struct leat_side *l = calloc(1, sizeof(*l));

	if (!l)
		return -LE_NOMEM;
	l->side = (struct side){
		.ops = &leat_ops,
		.umask = fs->umask,
		.root = fs->cred.uid == 0,
	};
	l->fs = fs;
	l->c = fs->client;
	l->cred = fs->cred;
	l->cred.umask = fs->umask;
	*ret_side = &l->side;
	return 0;
}
