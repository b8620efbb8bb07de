/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/source_rights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/dataset/scan_links.h"
#include "common/rt/fiber.h"

#define PATH_SIZE    4096u
#define ASKS_AT_ONCE 32u

/* An entry of the present folder for which the manifest has a row. */
struct found {
	struct look *k;
	uint32_t row;
	bool is_dir, has_stat;
	struct vol_stat st;
	struct rights rights;
	int rc;
};

struct look {
	const struct source_look *o;
	struct manifest *m;
	struct vol *in, *top;  /* beneath the source, and beneath the root of the volume */
	char real[PATH_SIZE];  /* "" for "/" */
	uint8_t *files, *dirs; /* a bit for each row for which an entry was found */
	uint8_t *same;         /* ... for each folder that is the one of the row */
	uint8_t *kept;         /* ... for each folder that contains something of the manifest */
	struct rights *now;    /* rights of the folders that were found */
	const char *folder;    /* present folder, below the source */
	uint32_t at;           /* row of the present folder */
	struct found *found;
	uint32_t n, cap, n_names;
};

/* The status means that the file is missing or that this process may not access it. */
static bool is_gone(int rc)
{
	return rc == -LE_NOENT || rc == -LE_NOTDIR || rc == -LE_STALE || rc == -LE_LOOP ||
	       rc == -LE_ACCES || rc == -LE_PERM;
}

static int join(char ret_path[PATH_SIZE], const char *folder, const char *name)
{
	int n = snprintf(ret_path, PATH_SIZE, "%s%s%s", folder, folder[0] && name[0] ? "/" : "",
			 name);
	return n < 0 || n >= (int)PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

static int full_path(const struct look *k, const char *path, char ret_full[PATH_SIZE])
{
	int n = snprintf(ret_full, PATH_SIZE, "%s%s%s", k->real, path[0] || !k->real[0] ? "/" : "",
			 path);
	return n < 0 || n >= (int)PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

static struct rights owner_alone(const struct rights *r)
{
	return (struct rights){.mode = r->mode & 0500, .uid = r->uid, .gid = r->gid};
}

static int pace(const struct look *k, uint32_t n)
{
	return k->o->pace ? k->o->pace(k->o->arg, n) : 0;
}

/* ---- one folder ---- */

static int collect(void *arg, const struct vol_entry *e)
{
	struct look *k = arg;
	char path[PATH_SIZE];
	k->n_names++;
	/* No row has so long a path. */
	if (join(path, k->folder, e->name) < 0)
		return 0;
	int64_t file = manifest_find(k->m, path), dir = manifest_find_dir(k->m, path);
	/* The row stands for the target of a link; look_from handles it. */
	if (file >= 0 && k->m->files[file].from)
		return 0;
	if (file < 0 && dir < 0)
		return 0;
	if (k->n == k->cap) {
		uint32_t cap = k->cap ? k->cap * 2 : 64;
		struct found *more = realloc(k->found, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		k->found = more;
		k->cap = cap;
	}
	k->found[k->n++] = (struct found){.k = k,
					  .row = (uint32_t)(dir >= 0 ? dir : file),
					  .is_dir = dir >= 0,
					  .has_stat = e->has_stat,
					  .st = e->st};
	return 0;
}

static void ask(void *arg)
{
	struct found *x = arg;
	struct look *k = x->k;
	char full[PATH_SIZE];
	const char *path = x->is_dir ? k->m->dirs[x->row].path : k->m->files[x->row].path;
	x->rc = full_path(k, path, full);
	if (x->rc == 0 && !x->has_stat)
		x->rc = vol_stat(k->in, full, &x->st);
	if (x->rc == 0 && !(x->is_dir ? S_ISDIR(x->st.mode) : S_ISREG(x->st.mode)))
		x->rc = -LE_NOENT;
	if (x->rc == 0)
		x->rc = vol_rights(k->in, full, &x->st, &k->m->acls, &x->rights);
}

static void set(uint8_t *bits, uint32_t i)
{
	bits[i / 8] |= (uint8_t)(1u << (i % 8));
}

static bool has(const uint8_t *bits, uint32_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

/* Compares times of birth; 0: unknown, which equals any. */
static bool born_alike(int64_t a, int64_t b)
{
	return !a || !b || a == b;
}

static bool is_same(const struct manifest_file *f, const struct vol_stat *st)
{
	return st->ino == f->ino && born_alike(st->born_ns, f->born_ns) && st->size == f->size &&
	       st->mtime_ns == f->mtime_ns;
}

static void take_folder(struct look *k, uint32_t row, const struct vol_stat *st,
			const struct rights *now)
{
	const struct manifest_dir *d = &k->m->dirs[row];
	set(k->dirs, row);
	k->now[row] = *now;
	if (d->ino && st->ino == d->ino && born_alike(st->born_ns, d->born_ns))
		set(k->same, row);
}

static int take_file(struct look *k, uint32_t row, const struct vol_stat *st,
		     const struct rights *now)
{
	struct manifest_file *f = &k->m->files[row];
	struct rights gate;
	set(k->files, row);
	if (is_same(f, st)) {
		f->rights = *now;
		return 0;
	}
	TRY(rights_of_folder(now, &k->m->acls, &gate));
	return rights_conjunction(&f->rights, &gate, 1, &k->m->acls, &f->rights);
}

static int take_found(struct look *k)
{
	for (uint32_t i = 0; i < k->n; i++) {
		const struct found *x = &k->found[i];
		if (is_gone(x->rc))
			continue;
		TRY(x->rc);
		if (!x->is_dir) {
			TRY(take_file(k, x->row, &x->st, &x->rights));
			if (is_same(&k->m->files[x->row], &x->st))
				set(k->kept, k->at);
			continue;
		}
		take_folder(k, x->row, &x->st, &x->rights);
		if (has(k->same, x->row))
			set(k->kept, k->at);
	}
	return 0;
}

static int look_into(struct look *k, uint32_t row)
{
	char full[PATH_SIZE];
	k->at = row;
	k->folder = k->m->dirs[row].path;
	k->n = k->n_names = 0;
	TRY(full_path(k, k->folder, full));
	int rc = k->in->ops->list(k->in, full, collect, k);
	if (rc < 0)
		return is_gone(rc) ? 0 : rc;
	if (k->n)
		fiber_parallel("rights", ask, k->found, sizeof(*k->found), k->n, ASKS_AT_ONCE);
	TRY(take_found(k));
	return pace(k, 1 + k->n_names);
}

/* ---- all of them ---- */

static int look_from(struct look *k, uint32_t row)
{
	const struct manifest_file *f = &k->m->files[row];
	struct vol_stat st;
	struct rights now;
	int rc = vol_stat(k->top, f->from, &st);
	if (rc == 0 && !S_ISREG(st.mode))
		rc = -LE_NOENT;
	if (rc == 0)
		rc = scan_rights_of_other(k->top, k->real, f->from, &st, &k->m->acls, &now);
	if (rc < 0)
		return is_gone(rc) ? 0 : rc;
	TRY(take_file(k, row, &st, &now));
	return pace(k, 1);
}

static int look_at_rows(struct look *k)
{
	struct manifest *m = k->m;
	/* A folder comes before its content. A folder that was not found is not listed. */
	for (uint32_t i = 0; i < m->n_dirs; i++)
		if (has(k->dirs, i))
			TRY(look_into(k, i));
	for (uint32_t i = 0; i < m->n_files; i++)
		if (m->files[i].from)
			TRY(look_from(k, i));
	return 0;
}

/* Sets the rights of folders. A folder that is not the one of the row may belong to a user who
 * has moved the right one away. A folder without anything of the manifest may have been opened
 * by its owner for other names. Neither widens the rights of the row. */
static int take_folders(struct look *k)
{
	struct manifest *m = k->m;
	for (uint32_t i = 0; i < m->n_dirs; i++) {
		struct manifest_dir *d = &m->dirs[i];
		struct rights gate;
		if (!has(k->dirs, i))
			continue;
		if (has(k->same, i) && (has(k->kept, i) || !d->filled)) {
			d->rights = k->now[i];
			continue;
		}
		TRY(rights_of_folder(&k->now[i], &m->acls, &gate));
		TRY(rights_conjunction(&d->rights, &gate, 1, &m->acls, &d->rights));
	}
	return 0;
}

/* A status for which is_gone holds: the source cannot be found. */
static int look_at_all(struct look *k, struct rights **ret_above, uint32_t *ret_n)
{
	struct vol *v = k->o->v;
	struct vol_stat st;
	struct rights root;
	TRY(vol_real_path(v, k->o->source, k->real));
	TRY(vol_ancestors(v, k->real, &k->m->acls, ret_above, ret_n));
	if (k->o->above_only)
		return 0;
	TRY(vol_beneath(v, k->real, &k->in));
	TRY(vol_beneath(v, "/", &k->top));
	TRY(vol_stat(k->in, k->real, &st));
	TRY(vol_rights(k->in, k->real, &st, &k->m->acls, &root));
	if (strcmp(k->real, "/") == 0)
		k->real[0] = 0;
	take_folder(k, 0, &st, &root);
	TRY(look_at_rows(k));
	return take_folders(k);
}

/* Leaves rows for which nothing was found to their owner alone. */
static void close_rest(struct look *k)
{
	for (uint32_t i = 0; i < k->m->n_files; i++)
		if (!has(k->files, i))
			k->m->files[i].rights = owner_alone(&k->m->files[i].rights);
	for (uint32_t i = 0; i < k->m->n_dirs; i++)
		if (!has(k->dirs, i))
			k->m->dirs[i].rights = owner_alone(&k->m->dirs[i].rights);
}

int source_rights(const struct source_look *l, struct manifest *m, struct rights **ret_above,
		  uint32_t *ret_n)
{
	struct rights *above = NULL;
	uint32_t n = 0;
	struct look *k = calloc(1, sizeof(*k));
	if (!k)
		return -LE_NOMEM;
	k->o = l;
	k->m = m;
	k->files = calloc(1, (size_t)m->n_files / 8 + 1);
	k->dirs = calloc(1, (size_t)m->n_dirs / 8 + 1);
	k->same = calloc(1, (size_t)m->n_dirs / 8 + 1);
	k->kept = calloc(1, (size_t)m->n_dirs / 8 + 1);
	k->now = calloc((size_t)m->n_dirs + 1, sizeof(*k->now));
	int rc = k->files && k->dirs && k->same && k->kept && k->now ? look_at_all(k, &above, &n)
								     : -LE_NOMEM;
	if (is_gone(rc)) {
		free(above);
		above = NULL;
		n = 0;
		k->dirs[0] = 0;
		rc = 0;
	}
	if (rc == 0 && !(l->above_only && above))
		close_rest(k);
	if (rc == 0) {
		*ret_above = above;
		*ret_n = n;
	} else {
		free(above);
	}
	vol_destroy(k->in);
	vol_destroy(k->top);
	free(k->found);
	free(k->files);
	free(k->dirs);
	free(k->same);
	free(k->kept);
	free(k->now);
	free(k);
	return rc;
}
