/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/stage_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/catalog.h"
#include "client/dataset/manifest_file.h"
#include "client/dataset/manifest_make.h"
#include "client/dataset/scan.h"
#include "client/dataset/scan_list.h"
#include "client/leat_impl.h"
#include "client/stage/in/stage_rights.h"
#include "client/stage/job/left_out.h"
#include "client/stage/store/store_sources.h"

#define SAID_TRIES 4

static void on_sums(void *arg, uint64_t bytes)
{
	struct stage_job *job = stage_job_of(arg);
	stage_report(job, "checksum", bytes, job->r->bytes, 0);
}

/* Paths and inode numbers of another cluster denote other files here. */
static int refuse_foreign(struct stage_job *job, const char *dir)
{
	char theirs[UUID_TEXT_SIZE], ours[UUID_TEXT_SIZE] = "no cluster";
	struct uuid here = io_cluster(&job->io);
	if (uuid_is_zero(&job->m->cluster) || uuid_equal(&job->m->cluster, &here))
		return 0;
	uuid_format(&job->m->cluster, theirs);
	if (!uuid_is_zero(&here))
		uuid_format(&here, ours);
	return detail_set(&job->d, -LE_WRONG_CLUSTER, dir, UINT64_MAX,
			  "the manifest is of another cluster, %s, and this is %s: make one here "
			  "with `leat dataset create`",
			  theirs, ours);
}

static int stat_manifest(struct vol *v, const char *dir, struct vol_stat *ret_st)
{
	char path[4096];
	if (snprintf(path, sizeof(path), "%s/manifest", dir) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	return vol_stat(v, path, ret_st);
}

/* Loads a manifest and its owner, since its claims about inodes are as good as their author.
 * Another manifest may be renamed to that path meanwhile, and must not pass for one of this
 * owner. */
static int load_said(struct stage_job *job, struct vol *v, const char *dir)
{
	struct vol_stat before, after;
	for (int tries = 0; tries < SAID_TRIES; tries++) {
		int rc = stat_manifest(v, dir, &before);
		manifest_destroy(job->m);
		job->m = NULL;
		/* Reading it gives a better error text than a failed stat. */
		TRY(manifest_load(v, dir, &job->m, &job->d));
		if (rc == 0)
			rc = stat_manifest(v, dir, &after);
		TRY(rc);
		if (before.ino == after.ino && before.ver == after.ver && before.uid == after.uid) {
			job->said_by = before.uid;
			job->inodes_known = true;
			return 0;
		}
		/* The version of a file that was just written may change once more, so try
		 * again. */
	}
	return detail_set(&job->d, -LE_STALE, dir, UINT64_MAX,
			  "its manifest was exchanged while it was read");
}

static int manifest_of_alias(struct stage_job *job)
{
	char id[MANIFEST_ID_SIZE], dir[4096];
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	struct vol *v = io_source(&job->io);
	int rc = catalog_find(v, catalog, job->o.source, id, dir);
	if (rc < 0)
		return detail_set(&job->d, rc, job->o.source, UINT64_MAX,
				  "there is no such data set");
	TRY(load_said(job, v, dir));
	return refuse_foreign(job, dir);
}

/* Loads the manifest of the copy that is noted for key, or with `which` "/from" that of the
 * archives it was unpacked from. */
static bool manifest_beside(struct stage_job *job, const char *key, const char *which,
			    char ret_id[MANIFEST_ID_SIZE])
{
	struct detail *ignored = calloc(1, sizeof(*ignored));
	char dir[STORE_PATH_SIZE];
	bool found = ignored && store_recall_source(job->io.env, job->o.to, key, ret_id) == 0;
	int n = found ? snprintf(dir, sizeof(dir), "%s/.leat/%s%s", job->o.to, ret_id, which) : 0;
	found = found && n < (int)sizeof(dir) &&
		manifest_load(job->io.local, dir, &job->m, ignored) == 0;
	free(ignored);
	return found;
}

/* Loads the manifest that was made when the source directory had the present key
 * (manifest_scan_key). */
static bool manifest_of_before(struct stage_job *job, const char *key)
{
	char id[MANIFEST_ID_SIZE] = "", unpacked[16 + MANIFEST_ID_SIZE];
	if (!job->o.to)
		return false;
	if (manifest_beside(job, key, "", id))
		return true;
	snprintf(unpacked, sizeof(unpacked), "unpacked-%s", id);
	return job->o.unpack && id[0] && manifest_beside(job, unpacked, "/from", id);
}

/* Replaces the inodes in the manifest: an earlier run may have made it of other inodes with the
 * same content. */
static void take_inodes(struct stage_job *job, const struct scan *s)
{
	bool same = job->m->n_files == s->n;
	for (uint32_t i = 0; same && i < s->n; i++) {
		struct manifest_file *f = &job->m->files[i];
		same = strcmp(f->path, s->files[i].path) == 0 && f->size == s->files[i].st.size;
		if (same) {
			f->ino = s->files[i].st.ino;
			f->born_ns = s->files[i].st.born_ns;
			f->ver = s->files[i].st.ver;
		}
	}
	job->inodes_known = same;
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		int64_t k = manifest_find_dir(job->m, s->dirs[i].path);
		if (k >= 0) {
			job->m->dirs[k].ino = s->dirs[i].st.ino;
			job->m->dirs[k].born_ns = s->dirs[i].st.born_ns;
		}
	}
	/* An earlier run may have staged another directory with the same content. */
	snprintf(job->m->source, sizeof(job->m->source), "%s", job->o.source);
	job->m->cluster = io_cluster(&job->io);
	job->said_by = job->io.fs ? job->io.fs->cred.uid : 0;
}

static int manifest_of_dir(struct stage_job *job)
{
	struct vol *v = io_source(&job->io);
	struct scan scan;
	char key[MANIFEST_ID_SIZE];
	stage_report(job, "scan", 0, 0, 0);
	TRY(scan_tree(v, job->o.source, &scan, &job->d));
	stage_report_left(job, &scan);
	job->r->bytes = scan.bytes;
	job->r->files = scan.n;
	manifest_scan_key(job->o.source, &scan, key);
	int rc = 0;
	if (!manifest_of_before(job, key)) {
		struct progress p = {on_sums, job, &job->stop};
		rc = manifest_make_from(v, job->o.source, &scan, &job->m, &p, &job->d);
		if (rc == 0 && job->o.to)
			rc = store_note_source(job->io.env, job->o.to, key, job->m->id);
	}
	if (rc == 0)
		take_inodes(job, &scan);
	if (rc == 0)
		rc = stage_rights_of_scan(job->m, &scan);
	job->rights_known = rc == 0;
	scan_fini(&scan);
	return rc;
}

int stage_find_manifest(struct stage_job *job)
{
	int rc = job->o.source[0] == '/' ? manifest_of_dir(job) : manifest_of_alias(job);
	if (rc < 0) {
		stage_code_of_source(job, rc);
		return rc;
	}
	memcpy(job->r->id, job->m->id, sizeof(job->r->id));
	job->r->files = job->m->n_files;
	job->r->bytes = job->m->bytes;
	return 0;
}
