/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing a data set: its files can never change again, so all clients may cache them for ever.
 *   1. Import the checksums of all its files, and compare them with the manifest. If they differ,
 *      nothing is sealed.
 *   2. Seal each file. One that is open for writing fails with -LE_BUSY. Files before it stay
 *      sealed, and the same command continues.
 *   3. Import the checksums again, to exclude a write between 1 and 2. Then set the mark.
 */
#include "client/stage/seal.h"

#include <stdlib.h>
#include <string.h>

#include "client/dataset/catalog.h"
#include "client/dataset/manifest_make.h"
#include "client/dataset/scan_list.h"
#include "client/stage/in/stage_manifest.h"
#include "client/stage/job/job.h"
#include "common/rt/fiber.h"

#define WIDTH 16u

struct sealing {
	struct stage_job *job;
	struct vol *v;
	struct scan scan; /* the manifest's files as they are now */
	void (*each)(struct sealing *s, uint32_t i, const char *path);
	uint32_t next;
	int rc;
};

static void seal_fail(struct sealing *s, int rc, const char *path, const char *what)
{
	if (s->rc)
		return;
	s->rc = detail_set(&s->job->d, rc, path, UINT64_MAX, "%s: %s", what, status_text(rc));
}

static void look_at(struct sealing *s, uint32_t i, const char *path)
{
	int rc = vol_stat(s->v, path, &s->scan.files[i].st);
	if (rc < 0)
		seal_fail(s, rc, path, "cannot look at it");
}

static void seal_one(struct sealing *s, uint32_t i, const char *path)
{
	(void)i;
	int rc = s->v->ops->seal(s->v, path);
	if (rc < 0)
		seal_fail(s, rc, path,
			  rc == -LE_BUSY ? "it is open for writing" : "cannot seal it");
}

static void walk_fiber(void *arg)
{
	struct sealing *s = *(struct sealing **)arg;
	const struct manifest *m = s->job->m;
	char *path = malloc(4096);
	if (!path)
		seal_fail(s, -LE_NOMEM, m->source, "no memory");
	while (s->next < m->n_files && s->rc == 0) {
		uint32_t i = s->next++;
		if (s->job->o.cancel && *s->job->o.cancel)
			s->rc = -LE_CANCELED;
		int rc = manifest_source_path(m, &m->files[i], path);
		if (rc < 0)
			seal_fail(s, rc, m->files[i].path, "its path");
		else
			s->each(s, i, path);
	}
	free(path);
}

static int walk(struct sealing *s, void (*each)(struct sealing *s, uint32_t i, const char *path))
{
	struct sealing *all[WIDTH];
	for (uint32_t i = 0; i < WIDTH; i++)
		all[i] = s;
	s->each = each;
	s->next = 0;
	fiber_parallel("seal", walk_fiber, all, sizeof(all[0]), WIDTH, WIDTH);
	return s->rc;
}

/* Compares the files with the manifest. -LE_STALE: they have changed. */
static int compare(struct sealing *s)
{
	struct manifest *now;
	const struct manifest *m = s->job->m;
	TRY(walk(s, look_at));
	TRY(manifest_make_from(s->v, m->source, &s->scan, &now, NULL, &s->job->d));
	bool same = strcmp(now->id, m->id) == 0;
	manifest_destroy(now);
	if (same)
		return 0;
	return detail_set(&s->job->d, -LE_STALE, m->source, UINT64_MAX,
			  "its files have changed since the data set was made: make a new "
			  "version (leat dataset create)");
}

static int seal_all(struct sealing *s)
{
	const struct manifest *m = s->job->m;
	s->scan.files = calloc((size_t)m->n_files + 1, sizeof(*s->scan.files));
	s->scan.dirs = calloc((size_t)m->n_dirs + 1, sizeof(*s->scan.dirs));
	s->scan.links = calloc((size_t)m->n_links + 1, sizeof(*s->scan.links));
	if (!s->scan.files || !s->scan.dirs || !s->scan.links)
		return -LE_NOMEM;
	/* Paths are borrowed, so scan_fini must not be called. */
	for (uint32_t i = 0; i < m->n_files; i++) {
		s->scan.files[i].path = m->files[i].path;
		s->scan.files[i].from = m->files[i].from;
	}
	for (uint32_t i = 0; i < m->n_dirs; i++)
		s->scan.dirs[i].path = m->dirs[i].path;
	for (uint32_t i = 0; i < m->n_links; i++) {
		s->scan.links[i].path = m->links[i].path;
		s->scan.links[i].target = m->links[i].target;
	}
	s->scan.n = m->n_files;
	s->scan.n_dirs = m->n_dirs;
	s->scan.n_links = m->n_links;
	TRY(compare(s));
	TRY(walk(s, seal_one));
	return compare(s);
}

int stage_seal(struct stage_job *job)
{
	struct sealing s = {.job = job, .v = io_source(&job->io)};
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	char id[MANIFEST_ID_SIZE], dir[4096];
	TRY(stage_find_manifest(job));
	int rc = seal_all(&s);
	free(s.scan.files);
	free(s.scan.dirs);
	free(s.scan.links);
	TRY(rc);
	TRY(catalog_find(s.v, catalog, job->o.source, id, dir));
	/* The name may have been removed and given to another data set. */
	return strcmp(id, job->m->id) == 0 ? catalog_mark_sealed(s.v, dir) : -LE_STALE;
}
