/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/stage_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/catalog.h"
#include "client/dataset/index_build.h"

/* Finds the sample index of the job's data set in the catalog. -LE_NOENT: the source has no
 * name, the name has another content now, or the copy was unpacked and has other files. */
static int samples_of_alias(struct stage_job *job, char ret_dir[4096])
{
	char id[MANIFEST_ID_SIZE];
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	if (job->o.source[0] == '/' || job->made_of)
		return -LE_NOENT;
	TRY(catalog_find(io_source(&job->io), catalog, job->o.source, id, ret_dir));
	return strcmp(id, job->m->id) == 0 ? 0 : -LE_NOENT;
}

static void build_samples(struct stage_job *job)
{
	struct sample_index *x;
	struct detail ignored = {0};
	char dir[STORE_PATH_SIZE];
	struct files_entry *entries = calloc((size_t)job->m->n_files + 1, sizeof(*entries));
	if (!entries)
		return;
	for (uint32_t i = 0; i < job->m->n_files; i++)
		entries[i] = (struct files_entry){job->m->files[i].path, job->m->files[i].size};
	snprintf(dir, sizeof(dir), "%.4000s/data", job->store.dir);
	struct index_source from = {entries, job->m->n_files, job->o.format};
	if (index_build(job->io.local, dir, &from, &x, &ignored) == 0) {
		int rc = samples_store(job->io.local, job->store.dir, x);
		(void)rc;
		index_destroy(x);
	}
	free(entries);
}

/* Copies the sample index that the name has in the catalog. sound: the copy has an intact one
 * already. */
static int take_samples(struct stage_job *job, const char *named, bool sound)
{
	struct sample_index *x;
	struct vol *v = io_source(&job->io);
	int same = sound ? samples_compare(v, named, job->io.local, job->store.dir) : 0;
	if (same != 0)
		return same < 0 ? same : 0;
	int rc = samples_load(v, named, &x);
	if (rc == -LE_NOENT)
		build_samples(job);
	TRY(rc);
	rc = samples_store(job->io.local, job->store.dir, x);
	index_destroy(x);
	return rc;
}

/* The index is a help for the loader, which can do without it. But only the catalog knows the
 * samples of a name: if it cannot be read, no index is made. */
void stage_make_samples(struct stage_job *job)
{
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	struct sample_index *x;
	char named[4096];
	/* An index can only be made with all files present. */
	if (job->store.share)
		return;
	int rc = samples_of_alias(job, named);
	/* A user may stage a complete copy again because its index is damaged. */
	bool sound = samples_load(job->io.local, job->store.dir, &x) == 0;
	if (sound)
		index_destroy(x);
	if (rc == -LE_NOENT && !sound)
		build_samples(job);
	if (rc == 0)
		rc = take_samples(job, named, sound);
	else if (job->made_of)
		rc = 0; /* an unpacked copy has no name in the catalog */
	if (rc == 0)
		rc = samples_note_name(job->io.local, job->store.dir, catalog, job->o.source);
	(void)rc; /* a loader then reads the catalog */
}
