/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a tree: files as they are listed, each directory when it is empty. If other programs
 * have added entries meanwhile, the directory is listed again, up to AGAIN_MAX times. A directory
 * that has lost its name meanwhile is left alone. A directory stays, without a further report, if
 * one of its entries could not be removed.
 */
#include "client/tree/remove.h"

#include <stdlib.h>
#include <sys/stat.h>

#define AGAIN_MAX 3u

int tree_find_root(struct walk *w, struct side *s, const char *path, struct wnode *top,
		   char *ret_name, struct tattr *ret_attr)
{
	int rc = s->ops->at(s, path, &top->src, ret_name);

	if (rc >= 0)
		rc = s->ops->look(&top->src, ret_name, ret_attr);
	if (rc < 0) {
		walk_failed(w, top, NULL, rc);
		tdir_close(&top->src);
	}
	return rc;
}

/* Gives the owner access to the directory. apply changes it only if it is still the inode that
 * look returned. A failure is not reported here: removing the entries will fail. */
static void open_up(struct wnode *n)
{
	const struct tmeta m = {.a = {.mode = (n->a.mode & 07777) | 0700}, .keep = LEAT_KEEP_MODE};
	struct tdir *up = &n->parent->src;
	int rc = up->side->ops->apply(up, n->name, &n->a, &m);

	(void)rc;
}

/* Opens the directory that has the name now: the listed one may have been moved out of the tree. */
static int enter(struct wfiber *f, struct wnode *n)
{
	const struct tree_keep *keep = f->w->arg;
	struct tdir *up = &n->parent->src;
	int rc = up->side->ops->look(up, n->name, &n->a);

	if (rc >= 0 && S_ISDIR(n->a.mode) && keep && keep->open_up && (n->a.mode & 0700) != 0700)
		open_up(n);
	if (rc >= 0)
		rc = S_ISDIR(n->a.mode) ? up->side->ops->open(up, n->name, &n->a, &n->src)
					: -LE_NOENT;
	return rc == -LE_NOENT ? 1 : rc;
}

static bool entry(struct wfiber *f, struct wnode *dir, const struct tent *e)
{
	(void)f, (void)dir, (void)e;
	return true;
}

static bool stays(struct walk *w, struct wnode *dir, const char *name, uint32_t mode)
{
	const struct tree_keep *keep = w->arg;
	bool is;
	char *path;

	if (!keep)
		return false;
	path = walk_path(w, dir, name, true);
	is = !path || keep->stays(keep->arg, path, mode);
	w->enomem |= !path;
	free(path);
	return is;
}

static void file(struct wfiber *f, struct wnode *dir, const struct tent *e)
{
	int rc;

	if (stays(f->w, dir, e->name, e->a.mode))
		return;
	rc = dir->src.side->ops->remove(&dir->src, e->name, false);
	if (rc < 0 && rc != -LE_NOENT)
		walk_failed(f->w, dir, e->name, rc);
	else
		walk_did(f->w, 1, 0, 0);
}

static bool leave(struct wfiber *f, struct wnode *n)
{
	struct tdir *up = &n->parent->src;
	int rc;

	if (n->failed || stays(f->w, n, NULL, n->a.mode))
		return false;
	rc = up->side->ops->remove(up, n->name, true);
	if (rc == -LE_NOTEMPTY && n->again++ < AGAIN_MAX) {
		n->src.cookie = 0; /* the end of a listing has closed a local stream */
		return true;
	}
	if (rc < 0 && rc != -LE_NOENT)
		walk_failed(f->w, n, NULL, rc);
	else
		walk_did(f->w, 0, 1, 0);
	return false;
}

int tree_remove(struct walk *w, struct side *s, const char *path, const struct tree_keep *keep)
{
	static const struct walk_ops ops = {
		.enter = enter, .entry = entry, .file = file, .leave = leave};
	char name[LEAT_NAME_MAX + 1];
	struct wnode top = {0};
	struct tattr a;

	w->ops = &ops;
	w->arg = (void *)(uintptr_t)keep;
	w->what = "cannot remove";
	if (tree_find_root(w, s, path, &top, name, &a) < 0)
		return 0;
	/* A path that ends in "." may name the contents for removal, but not the directory. */
	if (name[0] == '.' && !name[1] && !(keep && keep->stays(keep->arg, "", S_IFDIR))) {
		tdir_close(&top.src);
		return -LE_BUSY;
	}
	walk_run(w, &top, name, &a);
	return 0;
}
