/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/dataset/scan_links.h"
#include "client/dataset/scan_list.h"
#include "client/dataset/vol.h"
#include "common/rt/fiber.h"

#define STATS_AT_ONCE 32u
#define PATH_SIZE     4096u

struct entry {
	struct walk *w;
	char *path; /* below the root */
	char *target;
	struct vol_stat st;
	struct rights rights;
	bool has_stat;
	int rc;
};

struct walk {
	struct vol *v;
	const char *root;
	struct scan *s;
	struct entry *entries; /* of the present directory */
	uint32_t n, cap;
	const char *prefix; /* of the present directory, below the root, with a slash at its end,
			     * or "" */
	char **dirs;        /* directories that are still to be walked */
	uint32_t n_dirs, cap_dirs;
};

static void full_path(const struct walk *w, const char *path, char *ret_full)
{
	/* It fits: collect() refuses longer paths. */
	if (path[0])
		snprintf(ret_full, PATH_SIZE, "%s/%s", strcmp(w->root, "/") ? w->root : "", path);
	else
		snprintf(ret_full, PATH_SIZE, "%s", w->root);
}

/* True for Leat's folder at the root of a namespace or of a stage directory, and for what an
 * unfinished stage-out has left. A user's file with a similar name is an ordinary file. */
static bool is_ours(const struct walk *w, const char *name)
{
	static const char out[] = ".leat-out-";
	size_t n = sizeof(out) - 1;
	if (strcmp(name, ".leat") == 0)
		return w->prefix[0] == 0;
	return strncmp(name, out, n) == 0 && strlen(name) == n + 16 &&
	       strspn(name + n, "0123456789abcdef") == 16;
}

static int collect(void *arg, const struct vol_entry *e)
{
	struct walk *w = arg;
	char path[PATH_SIZE];
	if (is_ours(w, e->name))
		return 0;
	int n = snprintf(path, sizeof(path), "%s%s", w->prefix, e->name);
	if (n < 0 || (size_t)n + strlen(w->root) + 2 > PATH_SIZE)
		return -LE_NAMETOOLONG;
	if (w->n == w->cap) {
		uint32_t cap = w->cap ? w->cap * 2 : 256;
		struct entry *more = realloc(w->entries, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		w->entries = more;
		w->cap = cap;
	}
	struct entry *x = &w->entries[w->n];
	*x = (struct entry){.w = w, .path = strdup(path), .st = e->st, .has_stat = e->has_stat};
	if (!x->path)
		return -LE_NOMEM;
	w->n++;
	return 0;
}

static int read_link(struct entry *x, const char *full)
{
	char target[PATH_SIZE];
	int rc = x->w->v->ops->readlink(x->w->v, full, target, sizeof(target));
	if (rc < 0)
		return rc == -LE_INVAL ? -LE_STALE : rc; /* another process has replaced the link */
	x->target = strdup(target);
	return x->target ? 0 : -LE_NOMEM;
}

static int look_at(struct entry *x, const char *full)
{
	if (!x->has_stat)
		TRY(vol_stat(x->w->v, full, &x->st));
	if (S_ISLNK(x->st.mode))
		return read_link(x, full);
	if (!S_ISREG(x->st.mode) && !S_ISDIR(x->st.mode))
		return 0;
	return vol_rights(x->w->v, full, &x->st, &x->w->s->acls, &x->rights);
}

/* Reads the attributes of an entry. If it is replaced between the calls, reads them once more. */
static void ask(void *arg)
{
	struct entry *x = arg;
	char full[PATH_SIZE];
	full_path(x->w, x->path, full);
	x->rc = look_at(x, full);
	if (x->rc != -LE_STALE)
		return;
	x->has_stat = false;
	x->rc = look_at(x, full);
}

static int push_dir(struct walk *w, char *path)
{
	if (w->n_dirs == w->cap_dirs) {
		uint32_t cap = w->cap_dirs ? w->cap_dirs * 2 : 64;
		char **more = realloc(w->dirs, cap * sizeof(*more));
		if (!more) {
			free(path);
			return -LE_NOMEM;
		}
		w->dirs = more;
		w->cap_dirs = cap;
	}
	w->dirs[w->n_dirs++] = path;
	return 0;
}

static int add_file(struct scan *s, struct entry *x)
{
	const struct scan_file f = {x->path, NULL, x->st, x->rights};
	TRY(scan_add_file(s, &f));
	x->path = NULL;
	return 0;
}

static int add_link(struct scan *s, struct entry *x)
{
	const struct scan_link l = {x->path, x->target, x->st};
	TRY(scan_add_link(s, &l));
	x->path = x->target = NULL;
	return 0;
}

static enum left_why special_kind(uint32_t mode)
{
	return S_ISSOCK(mode) ? LEFT_SOCKET : S_ISFIFO(mode) ? LEFT_PIPE : LEFT_DEVICE;
}

static int add_dir(struct scan *s, const struct entry *x)
{
	const struct scan_dir dir = {x->path, x->st, x->rights};
	return scan_add_dir(s, &dir);
}

static int sort_out(struct walk *w, struct scan *s, struct detail *d)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct entry *x = &w->entries[i];
		int rc = x->rc;
		if (rc < 0)
			return detail_set(d, rc, x->path, UINT64_MAX,
					  "cannot read its attributes: %s", status_text(rc));
		if (S_ISDIR(x->st.mode)) {
			TRY(add_dir(s, x));
			char *path = x->path;
			x->path = NULL;
			TRY(push_dir(w, path));
		} else if (S_ISREG(x->st.mode)) {
			TRY(add_file(s, x));
		} else if (S_ISLNK(x->st.mode)) {
			TRY(add_link(s, x));
		} else {
			TRY(scan_leave_out(s, special_kind(x->st.mode), x->path));
		}
	}
	return 0;
}

static int walk_dir(struct walk *w, const char *path, struct scan *s, struct detail *d)
{
	char full[PATH_SIZE], prefix[PATH_SIZE + 1];
	full_path(w, path, full);
	snprintf(prefix, sizeof(prefix), "%s%s", path, path[0] ? "/" : "");
	w->prefix = prefix;
	w->n = 0;
	int rc = w->v->ops->list(w->v, full, collect, w);
	if (rc < 0) {
		detail_set(d, rc, full, UINT64_MAX, "cannot list it: %s", status_text(rc));
	} else {
		if (w->n)
			fiber_parallel("scan", ask, w->entries, sizeof(*w->entries), w->n,
				       STATS_AT_ONCE);
		rc = sort_out(w, s, d);
	}
	for (uint32_t i = 0; i < w->n; i++) {
		free(w->entries[i].path);
		free(w->entries[i].target);
	}
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct scan_file *)a)->path, ((const struct scan_file *)b)->path);
}

static int by_link(const void *a, const void *b)
{
	return strcmp(((const struct scan_link *)a)->path, ((const struct scan_link *)b)->path);
}

/* Resolves the links to the directory, and opens the volumes through which entries are read. */
static int open_root(struct walk *w, const char *dir)
{
	struct scan *s = w->s;
	struct entry x = {.w = w, .path = ""};
	char real[PATH_SIZE];
	TRY(vol_real_path(w->v, dir, real));
	s->real = strdup(real);
	if (!s->real)
		return -LE_NOMEM;
	TRY(vol_beneath(w->v, real, &s->in));
	TRY(vol_beneath(w->v, "/", &s->top));
	w->v = s->in;
	w->root = s->real;
	TRY(vol_stat(w->v, real, &x.st));
	TRY(vol_rights(w->v, real, &x.st, &s->acls, &x.rights));
	return add_dir(s, &x);
}

static int walk_all(struct walk *w, const char *dir, struct detail *d)
{
	int rc = open_root(w, dir);
	if (rc < 0)
		return detail_set(d, rc, dir, UINT64_MAX, "cannot read its attributes: %s",
				  status_text(rc));
	rc = walk_dir(w, "", w->s, d);
	while (rc == 0 && w->n_dirs) {
		char *path = w->dirs[--w->n_dirs];
		rc = walk_dir(w, path, w->s, d);
		free(path);
	}
	while (w->n_dirs)
		free(w->dirs[--w->n_dirs]);
	return rc;
}

static int scan(struct vol *v, const char *dir, bool within, struct scan *ret_scan,
		struct detail *d)
{
	struct scan s = {.within = within};
	struct walk w = {.v = v, .s = &s};
	int rc = walk_all(&w, dir, d);
	free(w.dirs);
	free(w.entries);
	if (rc == 0) {
		if (s.n)
			qsort(s.files, s.n, sizeof(*s.files), by_path);
		if (s.n_links)
			qsort(s.links, s.n_links, sizeof(*s.links), by_link);
		scan_sort_dirs(&s);
		uint32_t before = s.n;
		rc = scan_settle_links(&s, s.dirs[0].st.dev);
		if (s.n > before)
			qsort(s.files, s.n, sizeof(*s.files), by_path);
		if (rc < 0)
			detail_set(d, rc, dir, UINT64_MAX, "cannot follow its links: %s",
				   status_text(rc));
	}
	if (rc < 0)
		scan_fini(&s);
	else
		*ret_scan = s;
	return rc;
}

int scan_tree(struct vol *v, const char *dir, struct scan *ret_scan, struct detail *d)
{
	return scan(v, dir, false, ret_scan, d);
}

int scan_tree_within(struct vol *v, const char *dir, struct scan *ret_scan, struct detail *d)
{
	return scan(v, dir, true, ret_scan, d);
}
