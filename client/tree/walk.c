/* SPDX-License-Identifier: Apache-2.0 */
#include "client/tree/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/assert.h"
#include "common/rt/loop.h"

#define WIDTH_DEFAULT 64u
#define WIDTH_MAX     1024u
#define PROGRESS_US   100000u

struct witem {
	struct list link;
	struct wnode *node;
	uint32_t n; /* 0: list the node */
	struct tent ents[];
};

bool walk_cancelled(const struct walk *w)
{
	return w->enomem || (w->o.cancel && *w->o.cancel != 0);
}

void walk_did(struct walk *w, uint64_t files, uint64_t dirs, uint64_t bytes)
{
	w->r.files += files;
	w->r.dirs += dirs;
	w->r.bytes += bytes;
	if (!w->o.progress || loop_now_us() < w->shown_us + PROGRESS_US)
		return;
	w->shown_us = loop_now_us();
	struct leat_tree_progress p = {
		.size = sizeof(p),
		.files = w->r.files,
		.dirs = w->r.dirs,
		.bytes = w->r.bytes,
		.failed = w->r.failed,
	};
	w->o.progress(w->o.arg, &p);
}

/* The root and the directory above it add no name to the path. */
static size_t put_names(const struct wnode *n, char *buf, size_t space)
{
	const struct wnode *up[2] = {n, NULL};
	size_t len = 0;

	for (; up[0] && up[0]->parent && up[0]->depth > 0; up[0] = up[0]->parent)
		len += strlen(up[0]->name) + 1;
	if (!buf)
		return len;
	for (size_t at = len; n && n->parent && n->depth > 0; n = n->parent) {
		size_t l = strlen(n->name);

		at -= l;
		if (at + l <= space)
			memcpy(buf + at, n->name, l);
		buf[--at] = '/';
	}
	return len;
}

char *walk_path(const struct walk *w, const struct wnode *dir, const char *name, bool below)
{
	/* In the directory above the root, `name` is the root itself. */
	bool is_root = !dir->parent;
	size_t head = below ? 0 : strlen(w->path), mid = put_names(dir, NULL, 0);
	size_t tail = name && !is_root ? strlen(name) + 1 : 0;
	char *path = malloc(head + mid + tail + 2);

	if (!path)
		return NULL;
	memcpy(path, w->path, head);
	if (head > 0 && mid + tail > 0 && path[head - 1] == '/')
		head--;
	put_names(dir, path + head, mid);
	if (tail > 0) {
		path[head + mid] = '/';
		memcpy(path + head + mid + 1, name, tail - 1);
	}
	path[head + mid + tail] = '\0';
	if (below && mid + tail > 0)
		memmove(path, path + 1, mid + tail);
	return path;
}

void walk_failed(struct walk *w, struct wnode *dir, const char *name, int rc)
{
	char *path;

	dir->failed = true;
	w->r.failed++;
	if (!w->o.failed)
		return;
	path = walk_path(w, dir, name, false);
	w->o.failed(w->o.arg, w->what, path ? path : w->path, rc);
	free(path);
}

uint8_t *wfiber_buf(struct wfiber *f)
{
	if (!f->buf)
		f->buf = malloc(WALK_BUF);
	return f->buf;
}

/* ---- the stack ---- */

static struct witem *make_item(struct walk *w, struct wnode *node, uint32_t space)
{
	struct witem *it = malloc(sizeof(*it) + space * sizeof(it->ents[0]));

	if (!it) {
		w->enomem = true; /* the walk ends */
		return NULL;
	}
	it->node = node;
	it->n = 0;
	return it;
}

static void push(struct walk *w, struct witem *it)
{
	it->node->pending++;
	list_push_front(&w->items, &it->link);
	waitq_wake_one(&w->q);
}

static void push_listing(struct walk *w, struct wnode *n)
{
	struct witem *it = make_item(w, n, 0);

	if (it)
		push(w, it);
}

static struct wnode *make_node(struct wnode *parent, const char *name, const struct tattr *a)
{
	size_t len = strlen(name) + 1;
	struct wnode *n = calloc(1, sizeof(*n) + len);

	if (!n)
		return NULL;
	n->parent = parent;
	n->depth = parent->parent ? parent->depth + 1 : 0;
	n->a = *a;
	memcpy(n->name, name, len);
	parent->pending++;
	return n;
}

static void node_close(struct wnode *n)
{
	ASSERT(n->pending <= 1); /* 1 while leave() ran */
	tdir_close(&n->src);
	tdir_close(&n->dst);
	free(n);
}

/* Ends one item of the node. After the last item the node is left and closed, and so on upwards. */
static void node_done(struct wfiber *f, struct wnode *n)
{
	struct walk *w = f->w;

	ASSERT(n->pending > 0);
	while (n && --n->pending == 0) {
		struct wnode *parent = n->parent;

		if (parent && n->entered && !walk_cancelled(w) && w->ops->leave) {
			/* No other fiber ends the node while leave() yields. */
			n->pending = 1;
			if (w->ops->leave(f, n)) {
				push_listing(w, n);
				continue;
			}
		}
		if (!parent)
			return;
		parent->failed |= n->failed;
		node_close(n);
		n = parent;
		ASSERT(n->pending > 0);
	}
}

static void push_dir(struct walk *w, struct wnode *parent, const char *name, const struct tattr *a)
{
	struct wnode *n = make_node(parent, name, a);

	if (!n) {
		w->enomem = true;
		return;
	}
	push_listing(w, n);
	if (w->enomem && n->pending == 0) {
		parent->pending--;
		node_close(n);
	}
}

/* ---- one directory ---- */

static bool name_is_good(const char *name)
{
	return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Pushes bunches first and directories on top, so that the walk descends before it does files
 * and all fibers find work. */
static void sort_out(struct wfiber *f, struct wnode *n, uint32_t n_ents)
{
	struct walk *w = f->w;
	struct witem *bunch = NULL;
	bool is_dir[SIDE_LIST_MAX];

	for (uint32_t i = 0; i < n_ents; i++) {
		const struct tent *e = &f->batch[i];

		is_dir[i] = false;
		if (!name_is_good(e->name)) {
			walk_failed(w, n, NULL, -LE_BAD_MESSAGE);
			continue;
		}
		if (e->rc < 0) {
			walk_failed(w, n, e->name, e->rc);
			continue;
		}
		if (!w->ops->entry(f, n, e))
			continue;
		is_dir[i] = S_ISDIR(e->a.mode);
		if (is_dir[i])
			continue;
		if (!bunch)
			bunch = make_item(w, n, WALK_BUNCH);
		if (!bunch)
			return;
		ASSERT(bunch->n < WALK_BUNCH);
		bunch->ents[bunch->n++] = *e;
		if (bunch->n == WALK_BUNCH) {
			push(w, bunch);
			bunch = NULL;
		}
	}
	if (bunch)
		push(w, bunch);
	for (uint32_t i = 0; i < n_ents; i++)
		if (is_dir[i])
			push_dir(w, n, f->batch[i].name, &f->batch[i].a);
}

static void list_node(struct wfiber *f, struct wnode *n)
{
	struct walk *w = f->w;
	uint32_t n_ents = 0;
	bool eof = true;
	int rc = 0;

	if (!f->batch)
		f->batch = malloc(SIDE_LIST_MAX * sizeof(*f->batch));
	if (!f->batch)
		w->enomem = true;
	if (!f->batch || walk_cancelled(w))
		return;
	if (!n->entered)
		rc = w->ops->enter(f, n);
	if (rc < 0) {
		/* n->entered stays false, so leave() is not called. */
		walk_failed(w, n, NULL, rc);
		return;
	}
	if (rc > 0)
		return;
	n->entered = true;
	rc = n->src.side->ops->list(&n->src, w->ops->attrs, f->batch, &n_ents, &eof);
	if (rc < 0) {
		walk_failed(w, n, NULL, rc);
		return;
	}
	if (!eof)
		push_listing(w, n);
	sort_out(f, n, n_ents);
}

static void do_item(struct wfiber *f, struct witem *it)
{
	struct walk *w = f->w;

	if (it->n == 0)
		list_node(f, it->node);
	for (uint32_t i = 0; i < it->n && !walk_cancelled(w); i++)
		w->ops->file(f, it->node, &it->ents[i]);
	node_done(f, it->node);
	free(it);
}

static void walk_fiber(void *arg)
{
	struct wfiber *f = arg;
	struct walk *w = f->w;

	for (;;) {
		if (!list_empty(&w->items)) {
			struct witem *it = list_entry(list_pop(&w->items), struct witem, link);

			w->n_active++;
			do_item(f, it);
			w->n_active--;
			/* do_item may not wait at all; then this fiber would starve other
			 * fibers. */
			fiber_yield();
			continue;
		}
		if (w->n_active == 0)
			break;
		if (waitq_wait(&w->q, NO_DEADLINE) < 0)
			continue;
	}
	waitq_wake_all(&w->q);
	free(f->batch);
	free(f->buf);
	free(f->m.xattrs);
}

void walk_run(struct walk *w, struct wnode *top, const char *name, const struct tattr *a)
{
	uint32_t width = w->o.width ? w->o.width : WIDTH_DEFAULT;
	struct wfiber *fibers;
	struct wfiber one = {.w = w};

	if (width > WIDTH_MAX)
		width = WIDTH_MAX;
	list_init(&w->items);
	waitq_init(&w->q);
	top->pending = 1;
	if (S_ISDIR(a->mode)) {
		push_dir(w, top, name, a);
	} else {
		struct witem *it = make_item(w, top, 1);

		if (it) {
			it->ents[0].a = *a;
			it->ents[0].rc = 0;
			snprintf(it->ents[0].name, sizeof(it->ents[0].name), "%s", name);
			it->n = 1;
			push(w, it);
		}
		width = 1;
	}
	fibers = calloc(width, sizeof(*fibers));
	for (uint32_t i = 0; fibers && i < width; i++)
		fibers[i].w = w;
	if (fibers)
		fiber_parallel("tree", walk_fiber, fibers, sizeof(*fibers), width, width);
	else
		walk_fiber(&one);
	free(fibers);
	ASSERT(list_empty(&w->items) && w->n_active == 0 && top->pending == 1);
	tdir_close(&top->src);
	tdir_close(&top->dst);
}
