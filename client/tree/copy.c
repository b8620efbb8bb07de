/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying a tree. A directory is made when it is entered, accessible for its owner only. It gets
 * its mode, owner, times and attributes when all in it is done, because making entries changes its
 * times.
 *
 * Several names of one inode (LEAT_KEEP_LINKS): the first fiber that finds one copies it; the
 * others wait and make links. If the copy fails, the next fiber tries.
 */

#include "client/tree/copy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/tree/copy_file.h"
#include "client/tree/remove.h"

struct linked {
	struct hmap_node node;
	uint64_t dev, ino; /* of the source */
	bool busy, done;
	struct tlink to; /* its copy */
	char *to_path;   /* below the directory of the root */
	struct waitq q;
};

/* Returns the name of the copy of an entry: only the root may get another name. */
static const char *name_of(const struct copying *cp, const struct wnode *dir, const char *name)
{
	return dir->parent ? name : cp->to_name;
}

/* ---- directories ---- */

static int enter(struct wfiber *f, struct wnode *n)
{
	struct copying *cp = f->w->arg;
	struct wnode *up = n->parent;
	const struct side_ops *to = cp->c->to->ops;
	const char *name = name_of(cp, up, n->name);
	uint32_t mode = cp->c->keep & LEAT_KEEP_MODE ? 0700 : (n->a.mode & 0777) | 0700;
	struct tattr a;
	int rc;

	/* Prevents an endless copy of a directory into itself. */
	if (cp->same && n->depth > 0 && n->a.ino == cp->to_ino &&
	    (n->a.dev == cp->to_dev || n->a.dev == 0))
		return -LE_INVAL;
	TRY(up->src.side->ops->open(&up->src, n->name, &n->a, &n->src));
	rc = to->mkdir(&up->dst, name, mode);
	if (rc < 0 && rc != -LE_EXIST)
		return rc;
	n->made = rc == 0;
	TRY(to->look(&up->dst, name, &a));
	if (!S_ISDIR(a.mode))
		return -LE_NOTDIR;
	if (n->depth == 0) {
		if (cp->same && a.ino == n->a.ino && a.dev == n->a.dev)
			return -LE_INVAL;
		cp->to_ino = a.ino;
		cp->to_dev = a.dev;
	}
	return to->open(&up->dst, name, &a, &n->dst);
}

static int keep_dir(struct wfiber *f, struct wnode *n)
{
	struct copying *cp = f->w->arg;

	f->m.a = n->a;
	f->m.len = 0;
	f->m.keep = cp->c->keep;
	if (!(cp->c->keep & LEAT_KEEP_MODE) && n->made && (n->a.mode & 0700) != 0700) {
		f->m.keep |= LEAT_KEEP_MODE;
		f->m.a.mode = n->a.mode & 0777 & ~cp->c->to->umask;
	}
	if (!(f->m.keep & LEAT_KEEP_ALL & ~(unsigned)LEAT_KEEP_LINKS))
		return 0;
	if (!n->made && (f->m.keep & LEAT_TREE_NEW_ONLY))
		return 0;
	if (f->m.keep & LEAT_KEEP_XATTRS)
		TRY(n->src.side->ops->xattrs(&n->src, ".", &n->a, &f->m));
	return n->dst.side->ops->apply(&n->dst, ".", NULL, &f->m);
}

static bool leave(struct wfiber *f, struct wnode *n)
{
	int rc = keep_dir(f, n);

	if (rc < 0)
		walk_failed(f->w, n, NULL, rc);
	else
		walk_did(f->w, 0, 1, 0);
	return false;
}

static bool entry(struct wfiber *f, struct wnode *dir, const struct tent *e)
{
	(void)f, (void)dir, (void)e;
	return true;
}

/* ---- entries that are neither file nor directory ---- */

/* What to make, under its name or under a temporary name if the name exists. */
struct special {
	const struct tent *e;
	const char *target;       /* symbolic link */
	const struct tlink *hard; /* another name of an inode */
	uint32_t mode;
};

static int make_at(struct tdir *d, const char *name, const struct special *s,
		   struct tattr *ret_made)
{
	const struct side_ops *ops = d->side->ops;

	if (s->hard)
		return ops->link(d, name, s->hard);
	if (s->target)
		return ops->symlink(d, name, s->target, ret_made);
	return ops->mknod(d, name, s->mode, s->e->a.rdev, ret_made);
}

/* ret_link: gets ino and dev of a new inode; unused for hard links. */
static int make_special(struct wfiber *f, struct tdir *d, const char *name, const struct special *s,
			struct tlink *ret_link)
{
	struct copying *cp = f->w->arg;
	const struct side_ops *ops = d->side->ops;
	char temp[TEMP_NAME_MAX];
	const char *made = name;
	struct tattr a;
	int rc = make_at(d, name, s, &a);

	if (rc == -LE_EXIST) {
		rc = copy_may_replace(cp, d, name, &s->e->a);
		if (rc != 0)
			return rc;
		made = temp;
		copy_temp_name(name, temp);
		rc = make_at(d, temp, s, &a);
	}
	TRY(rc);
	if (!s->hard) {
		ret_link->ino = a.ino;
		ret_link->dev = a.dev;
		rc = ops->apply(d, made, &a, &f->m);
	}
	if (rc == 0 && made == temp)
		rc = copy_rename(cp, d, temp, name);
	/* Renaming one name of an inode to another of its names keeps both. */
	if (rc < 0 || (made == temp && (rc != 0 || s->hard))) {
		int gone = ops->remove(d, made, false);

		if (gone < 0 && gone != -LE_NOENT)
			return gone;
	}
	return rc;
}

static int copy_special(struct wfiber *f, struct wnode *dir, const struct tent *e, const char *name,
			struct tlink *ret_link)
{
	struct copying *cp = f->w->arg;
	struct special s = {.e = e};
	char *target = NULL;
	int rc = 0;

	f->m.a = e->a;
	f->m.len = 0;
	f->m.keep = cp->c->keep;
	s.mode = (e->a.mode & S_IFMT) | (cp->c->keep & LEAT_KEEP_MODE ? 0600 : e->a.mode & 0777);
	if (S_ISLNK(e->a.mode)) {
		target = malloc(LEAT_SYMLINK_MAX + 1);
		if (!target)
			return -LE_NOMEM;
		rc = dir->src.side->ops->readlink(&dir->src, e->name, &e->a, target,
						  LEAT_SYMLINK_MAX + 1);
		s.target = target;
	}
	if (rc >= 0 && (f->m.keep & LEAT_KEEP_XATTRS))
		rc = dir->src.side->ops->xattrs(&dir->src, e->name, &e->a, &f->m);
	if (rc >= 0)
		rc = make_special(f, &dir->dst, name, &s, ret_link);
	free(target);
	return rc;
}

/* ---- several names ---- */

static struct linked *find_linked(struct copying *cp, const struct tattr *a)
{
	uint64_t hash = hash_u64_2(a->dev, a->ino);
	struct linked *l;

	for (struct hmap_node *n = hmap_find(&cp->links, hash); n; n = hmap_find_next(n)) {
		l = container_of(n, struct linked, node);
		if (l->dev == a->dev && l->ino == a->ino)
			return l;
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->dev = a->dev;
	l->ino = a->ino;
	waitq_init(&l->q);
	hmap_insert(&cp->links, &l->node, hash);
	return l;
}

static int copy_one(struct wfiber *f, struct wnode *dir, const struct tent *e, const char *name,
		    struct tlink *ret_link)
{
	if (S_ISREG(e->a.mode))
		return copy_file(f, dir, e, name, ret_link);
	return copy_special(f, dir, e, name, ret_link);
}

/* Returns the path of a copy, below the directory that contains the root's copy. */
static char *path_of(struct wfiber *f, struct wnode *dir, const char *name)
{
	struct copying *cp = f->w->arg;
	char *rest = walk_path(f->w, dir, name, true), *path = NULL;
	size_t head = strlen(cp->to_name);

	if (rest)
		path = malloc(head + strlen(rest) + 2);
	if (path) {
		memcpy(path, cp->to_name, head);
		path[head] = '/';
		memcpy(path + head + 1, rest, strlen(rest) + 1);
	}
	free(rest);
	return path;
}

static int copy_linked(struct wfiber *f, struct wnode *dir, const struct tent *e, const char *name)
{
	struct copying *cp = f->w->arg;
	struct linked *l = find_linked(cp, &e->a);
	int rc;

	if (!l)
		return -LE_NOMEM;
	while (l->busy)
		if (waitq_wait(&l->q, NO_DEADLINE) < 0)
			continue;
	if (l->done) {
		struct special s = {.e = e, .hard = &l->to};

		return make_special(f, &dir->dst, name, &s, NULL);
	}
	l->busy = true;
	rc = copy_one(f, dir, e, name, &l->to);
	/* If another inode has replaced the source, the copy is not one of l. */
	if (rc == 0 && f->m.a.ino == l->ino && f->m.a.dev == l->dev) {
		l->to_path = path_of(f, dir, name);
		l->to.top = cp->top;
		l->to.path = l->to_path;
		l->done = l->to_path != NULL;
	}
	l->busy = false;
	waitq_wake_all(&l->q);
	return rc;
}

static void file(struct wfiber *f, struct wnode *dir, const struct tent *e)
{
	struct copying *cp = f->w->arg;
	const char *name = name_of(cp, dir, e->name);
	struct tlink unused;
	int rc;

	/* If the root is a file, the tree has no other name of it. */
	if ((cp->c->keep & LEAT_KEEP_LINKS) && e->a.nlink > 1 && dir->parent)
		rc = copy_linked(f, dir, e, name);
	else
		rc = copy_one(f, dir, e, name, &unused);
	if (rc == 0)
		walk_did(f->w, 1, 0, 0);
	else if (rc < 0 && !(rc == -LE_INTR && walk_cancelled(f->w)))
		walk_failed(f->w, dir, e->name, rc);
}

static void fini(struct copying *cp)
{
	struct hmap_node *n = hmap_next(&cp->links, NULL), *next;

	for (; n; n = next) {
		struct linked *l = container_of(n, struct linked, node);

		next = hmap_next(&cp->links, n);
		free(l->to_path);
		free(l);
	}
	hmap_fini(&cp->links);
}

int tree_copy(struct walk *w, const struct tree_copy *c)
{
	static const struct walk_ops ops = {
		.attrs = true, .enter = enter, .entry = entry, .file = file, .leave = leave};
	struct copying cp = {.c = c, .same = c->from->local == c->to->local};
	char name[LEAT_NAME_MAX + 1];
	struct wnode top = {0};
	struct tattr a;
	int rc;

	w->ops = &ops;
	w->arg = &cp;
	w->what = "cannot copy";
	if (tree_find_root(w, c->from, c->path, &top, name, &a) < 0)
		return 0;
	rc = c->to->ops->at(c->to, c->to_path, &top.dst, cp.to_name);
	if (rc < 0 || strcmp(cp.to_name, ".") == 0) {
		tdir_close(&top.src);
		tdir_close(&top.dst);
		return rc < 0 ? rc : -LE_EXIST;
	}
	cp.top = &top.dst;
	hmap_init(&cp.links, 64);
	walk_run(w, &top, name, &a);
	fini(&cp);
	return 0;
}
