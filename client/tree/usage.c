/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds up the contents of a tree by listing it. Each directory adds its sum to its parent when it
 * is done. Inodes with several names are stored (40 bytes each), so that each counts only where it
 * is found first.
 */
#include "client/tree/usage.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "client/tree/remove.h"
#include "common/base/hmap.h"

#define SECTOR 512u

struct usage {
	const struct tree_usage *u;
	struct hmap seen;
};

struct linked {
	struct hmap_node node;
	uint64_t dev, ino;
};

/* Returns false if a name of the inode was counted before. */
static bool first_name(struct walk *w, struct usage *u, const struct tattr *a)
{
	uint64_t hash = hash_u64_2(a->dev, a->ino);
	struct hmap_node *n = hmap_find(&u->seen, hash);
	struct linked *l;

	for (; n; n = hmap_find_next(n)) {
		l = container_of(n, struct linked, node);
		if (l->dev == a->dev && l->ino == a->ino)
			return false;
	}
	l = malloc(sizeof(*l));
	if (!l) {
		w->enomem = true;
		return false;
	}
	l->dev = a->dev;
	l->ino = a->ino;
	hmap_insert(&u->seen, &l->node, hash);
	return true;
}

static void count(struct wnode *n, const struct tattr *a)
{
	n->disk += a->blocks * SECTOR;
	n->apparent += a->size;
	n->inodes++;
}

static int enter(struct wfiber *f, struct wnode *n)
{
	struct tdir *up = &n->parent->src;

	(void)f;
	count(n, &n->a);
	return up->side->ops->open(up, n->name, &n->a, &n->src);
}

static bool entry(struct wfiber *f, struct wnode *dir, const struct tent *e)
{
	if (S_ISDIR(e->a.mode))
		return true;
	if (e->a.nlink < 2 || first_name(f->w, f->w->arg, &e->a))
		count(dir, &e->a);
	walk_did(f->w, 1, 0, 0);
	return false;
}

static void tell(struct walk *w, const struct wnode *n)
{
	const struct usage *u = w->arg;
	char *path = walk_path(w, n, NULL, false);
	struct leat_tree_sum sum = {
		.size = sizeof(sum),
		.disk = n->disk,
		.apparent = n->apparent,
		.inodes = n->inodes,
	};

	if (!path) {
		w->enomem = true;
		return;
	}
	u->u->each(u->u->arg, path, n->depth, &sum);
	free(path);
}

static bool leave(struct wfiber *f, struct wnode *n)
{
	struct walk *w = f->w;
	struct usage *u = w->arg;

	walk_did(w, 0, 1, 0);
	if (n->depth <= u->u->max_depth)
		tell(w, n);
	n->parent->disk += n->disk;
	n->parent->apparent += n->apparent;
	n->parent->inodes += n->inodes;
	return false;
}

static void fini(struct usage *u)
{
	struct hmap_node *n = hmap_next(&u->seen, NULL), *next;

	for (; n; n = next) {
		next = hmap_next(&u->seen, n);
		free(container_of(n, struct linked, node));
	}
	hmap_fini(&u->seen);
}

int tree_usage(struct walk *w, struct side *s, const char *path, const struct tree_usage *opts)
{
	static const struct walk_ops ops = {
		.attrs = true, .enter = enter, .entry = entry, .leave = leave};
	struct usage u = {.u = opts};
	char name[LEAT_NAME_MAX + 1];
	struct wnode top = {0};
	struct tattr a;

	w->ops = &ops;
	w->arg = &u;
	w->what = "cannot read";
	if (tree_find_root(w, s, path, &top, name, &a) < 0)
		return 0;
	hmap_init(&u.seen, 64);
	if (S_ISDIR(a.mode)) {
		walk_run(w, &top, name, &a);
	} else {
		count(&top, &a);
		walk_did(w, 1, 0, 0);
		tell(w, &top);
		tdir_close(&top.src);
	}
	fini(&u);
	return 0;
}
