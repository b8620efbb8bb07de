/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/unpack_rights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/in/archive_name.h"
#include "common/rt/fiber.h"

#define PATH_SIZE   4096u
#define YIELD_EVERY 1024u

struct folder {
	char *path; /* the folder that an archive becomes */
	const struct rights *archive;
};

struct folders {
	struct folder *all;
	uint32_t n;
};

static int by_folder(const void *a, const void *b)
{
	return strcmp(((const struct folder *)a)->path, ((const struct folder *)b)->path);
}

static void folders_fini(struct folders *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		free(t->all[i].path);
	free(t->all);
}

static int folders_init(struct folders *t, const struct manifest *m)
{
	*t = (struct folders){.all = calloc((size_t)m->n_files + 1, sizeof(*t->all))};
	if (!t->all)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < m->n_files; i++) {
		size_t suffix = archive_suffix(m->files[i].path);
		if (!suffix)
			continue;
		struct folder *f = &t->all[t->n];
		f->path = strndup(m->files[i].path, strlen(m->files[i].path) - suffix);
		f->archive = &m->files[i].rights;
		if (!f->path)
			return -LE_NOMEM;
		t->n++;
	}
	if (t->n)
		qsort(t->all, t->n, sizeof(*t->all), by_folder);
	return 0;
}

static int take_rights(struct acl_pool *pool, const struct rights *from, struct rights *to)
{
	struct rights r = *from;
	TRY(acl_pool_set(pool, &r, from->acl, from->acl_len));
	*to = r;
	return 0;
}

/* The rights that a file or a folder gets from its archives. */
struct member {
	const struct folders *t;
	struct acl_pool *pool;
	bool is_dir, found;
	struct rights rights;
};

/* Adds the rights of all archives that become the folder path, such as a.tar and a.tar.gz. */
static int take_archives(struct member *x, const char *path)
{
	const struct folders *t = x->t;
	const struct folder key = {.path = (char *)(uintptr_t)path};
	const struct folder *f = t->n ? bsearch(&key, t->all, t->n, sizeof(key), by_folder) : NULL;
	while (f && f > t->all && by_folder(f - 1, &key) == 0)
		f--;
	for (; f && f < t->all + t->n && by_folder(f, &key) == 0; f++) {
		struct rights gate;
		TRY(rights_of_folder(f->archive, x->pool, &gate));
		if (x->found)
			TRY(rights_conjunction(&x->rights, &gate, 1, x->pool, &x->rights));
		else if (x->is_dir)
			x->rights = gate;
		else
			TRY(take_rights(x->pool, f->archive, &x->rights));
		x->found = true;
	}
	return 0;
}

/* Sets *r to the rights of a member. own: its rights in the data set, for a folder of it that
 * archives also fill; NULL: only archives have made it. Without any, the owner alone has access. */
static int rights_of_member(struct member *x, const char *path, const struct rights *own,
			    struct rights *r)
{
	char folder[PATH_SIZE];
	x->found = own != NULL;
	x->rights = (struct rights){.mode = r->mode & 0500, .uid = r->uid, .gid = r->gid};
	if (own)
		TRY(take_rights(x->pool, own, &x->rights));
	for (const char *end = path; (end = strchr(end, '/')) != NULL; end++) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(end - path), path);
		TRY(take_archives(x, folder));
	}
	if (x->is_dir)
		TRY(take_archives(x, path));
	*r = x->rights;
	return 0;
}

static int rights_by(struct manifest *made, const struct manifest *archives,
		     const struct folders *t)
{
	struct member file = {.t = t, .pool = &made->acls};
	struct member dir = {.t = t, .pool = &made->acls, .is_dir = true};
	for (uint32_t i = 0; i < made->n_files; i++) {
		struct manifest_file *f = &made->files[i];
		int64_t k = manifest_find(archives, f->path);
		if (i % YIELD_EVERY == 0)
			fiber_yield();
		/* The volume has no archives, so a file with an archive's name is a member of
		 * another archive. */
		TRY(k >= 0 && !archive_suffix(f->path)
			    ? take_rights(&made->acls, &archives->files[k].rights, &f->rights)
			    : rights_of_member(&file, f->path, NULL, &f->rights));
	}
	for (uint32_t i = 0; i < made->n_dirs; i++) {
		struct manifest_dir *d = &made->dirs[i];
		int64_t k = manifest_find_dir(archives, d->path);
		TRY(rights_of_member(&dir, d->path, k >= 0 ? &archives->dirs[k].rights : NULL,
				     &d->rights));
	}
	return 0;
}

int unpack_rights(struct manifest *made, const struct manifest *archives)
{
	struct folders t;
	int rc = folders_init(&t, archives);
	if (rc == 0)
		rc = rights_by(made, archives, &t);
	folders_fini(&t);
	return rc;
}
