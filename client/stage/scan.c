/* Walks a tree: one directory after the other, the files of each asked in parallel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/stage/vol.h"
#include "common/rt/fiber.h"

#define STATS_AT_ONCE 32u
#define PATH_SIZE     4096u

struct entry {
	struct walk *w;
	char *path; /* below the root */
	struct vol_stat st;
	struct rights rights;
	bool has_stat;
	int rc;
};

struct walk {
	struct vol *v;
	const char *root;
	struct scan *s;
	struct entry *entries; /* of the directory at hand */
	uint32_t n, cap;
	const char *prefix; /* below the root, with a slash at its end, or "" */
	char **dirs;        /* still to be walked */
	uint32_t n_dirs, cap_dirs;
};

static void full_path(const struct walk *w, const char *path, char *ret_full)
{
	/* Fits: collect() has refused longer ones. */
	if (path[0])
		snprintf(ret_full, PATH_SIZE, "%s/%s", strcmp(w->root, "/") ? w->root : "", path);
	else
		snprintf(ret_full, PATH_SIZE, "%s", w->root);
}

static int collect(void *arg, const struct vol_entry *e)
{
	struct walk *w = arg;
	char path[PATH_SIZE];
	if (strncmp(e->name, ".leat", 5) == 0)
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

static void ask(void *arg)
{
	struct entry *x = arg;
	char full[PATH_SIZE];
	full_path(x->w, x->path, full);
	if (!x->has_stat)
		x->rc = vol_stat(x->w->v, full, &x->st);
	if (x->rc == 0 && (S_ISREG(x->st.mode) || S_ISDIR(x->st.mode)))
		x->rc = vol_rights(x->w->v, full, &x->st, &x->w->s->acls, &x->rights);
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
	if (s->n == s->cap) {
		uint32_t cap = s->cap ? s->cap * 2 : 256;
		struct scan_file *more = realloc(s->files, cap * sizeof(*more));
		if (!more || cap > SCAN_FILES_MAX)
			return -LE_NOMEM;
		s->files = more;
		s->cap = cap;
	}
	s->files[s->n++] = (struct scan_file){x->path, x->st, x->rights};
	s->bytes += x->st.size;
	x->path = NULL;
	return 0;
}

static int add_dir(struct scan *s, const struct entry *x)
{
	if (s->n_dirs == s->cap_dirs) {
		uint32_t cap = s->cap_dirs ? s->cap_dirs * 2 : 64;
		struct scan_dir *more = realloc(s->dirs, cap * sizeof(*more));
		if (!more || cap > SCAN_FILES_MAX)
			return -LE_NOMEM;
		s->dirs = more;
		s->cap_dirs = cap;
	}
	char *path = strdup(x->path);
	if (!path)
		return -LE_NOMEM;
	s->dirs[s->n_dirs++] = (struct scan_dir){path, x->st, x->rights};
	return 0;
}

static int sort_out(struct walk *w, struct scan *s, struct detail *d)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct entry *x = &w->entries[i];
		int rc = x->rc;
		if (rc < 0)
			return detail_set(d, rc, x->path, UINT64_MAX, "cannot look at it: %s",
					  status_text(rc));
		if (S_ISDIR(x->st.mode)) {
			TRY(add_dir(s, x));
			char *path = x->path;
			x->path = NULL;
			TRY(push_dir(w, path));
		} else if (S_ISREG(x->st.mode)) {
			TRY(add_file(s, x));
		} else {
			s->n_skipped++;
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
	for (uint32_t i = 0; i < w->n; i++)
		free(w->entries[i].path);
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct scan_file *)a)->path, ((const struct scan_file *)b)->path);
}

static int by_dir(const void *a, const void *b)
{
	return strcmp(((const struct scan_dir *)a)->path, ((const struct scan_dir *)b)->path);
}

void scan_sort_dirs(struct scan *s)
{
	uint32_t n = 0;
	if (s->n_dirs)
		qsort(s->dirs, s->n_dirs, sizeof(*s->dirs), by_dir);
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		if (!n || strcmp(s->dirs[n - 1].path, s->dirs[i].path) != 0) {
			s->dirs[n++] = s->dirs[i];
			continue;
		}
		if (!rights_equal(&s->dirs[n - 1].rights, &s->dirs[i].rights))
			s->dirs[n - 1].rights = (struct rights){.mode = 0500};
		free(s->dirs[i].path);
	}
	s->n_dirs = n;
}

/* The directory itself, whatever link leads there. */
static int add_root(struct walk *w, struct detail *d)
{
	struct entry x = {.w = w, .path = ""};
	char real[PATH_SIZE];
	int rc = vol_real_path(w->v, w->root, real);
	if (rc == 0)
		rc = vol_stat(w->v, real, &x.st);
	if (rc == 0 && !S_ISDIR(x.st.mode))
		rc = -LE_NOTDIR;
	if (rc == 0)
		rc = vol_rights(w->v, real, &x.st, &w->s->acls, &x.rights);
	if (rc < 0)
		return detail_set(d, rc, w->root, UINT64_MAX, "cannot look at it: %s",
				  status_text(rc));
	return add_dir(w->s, &x);
}

int scan_tree(struct vol *v, const char *dir, struct scan *ret_scan, struct detail *d)
{
	struct scan s = {0};
	struct walk w = {.v = v, .root = dir, .s = &s};
	int rc = add_root(&w, d);
	if (rc == 0)
		rc = walk_dir(&w, "", &s, d);
	while (rc == 0 && w.n_dirs) {
		char *path = w.dirs[--w.n_dirs];
		rc = walk_dir(&w, path, &s, d);
		free(path);
	}
	while (w.n_dirs)
		free(w.dirs[--w.n_dirs]);
	free(w.dirs);
	free(w.entries);
	if (rc < 0) {
		scan_fini(&s);
		return rc;
	}
	if (s.n)
		qsort(s.files, s.n, sizeof(*s.files), by_path);
	scan_sort_dirs(&s);
	*ret_scan = s;
	return 0;
}

void scan_fini(struct scan *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		free(s->files[i].path);
	free(s->files);
	for (uint32_t i = 0; i < s->n_dirs; i++)
		free(s->dirs[i].path);
	free(s->dirs);
	acl_pool_fini(&s->acls);
	*s = (struct scan){0};
}
