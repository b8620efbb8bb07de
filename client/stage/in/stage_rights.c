/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rights of a copy, as its source has them when it is staged: those of its files and folders,
 * and of the folders above, which a reader of the source has to search.
 */
#include "client/stage/in/stage_rights.h"

#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest_file.h"
#include "client/dataset/scan_list.h"
#include "client/stage/in/age.h"
#include "client/stage/in/source_rights.h"
#include "client/stage/in/unpack.h"
#include "client/stage/in/unpack_rights.h"
#include "client/stage/job/job.h"
#include "client/stage/store/inode_index.h"
#include "common/base/log.h"
#include "common/base/rate_limit.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* Readings of the source's rights. Two equal ones in a row cannot have combined rights of
 * different times. */
#define LOOKS_MAX 5

static int take(struct manifest *m, struct rights *to, const struct rights *from)
{
	struct rights r = *from;
	TRY(acl_pool_set(&m->acls, &r, from->acl, from->acl_len));
	*to = r;
	return 0;
}

int stage_rights_of_scan(struct manifest *m, const struct scan *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		int64_t k = manifest_find(m, s->files[i].path);
		if (k >= 0)
			TRY(take(m, &m->files[k].rights, &s->files[i].rights));
	}
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		int64_t k = manifest_find_dir(m, s->dirs[i].path);
		if (k >= 0)
			TRY(take(m, &m->dirs[k].rights, &s->dirs[i].rights));
	}
	return 0;
}

/* Loads what the existing copy grants, by its manifest, into job->had. Also sets m's rows to that,
 * unless the scan has just set them; reading the source then narrows the rows of changed files. */
static int take_granted(struct stage_job *job)
{
	struct detail *ignored = calloc(1, sizeof(*ignored));
	struct manifest *m = NULL, *to = job->m;
	if (!ignored)
		return -LE_NOMEM;
	int rc = manifest_load(job->io.local, job->store.dir, &m, ignored);
	free(ignored);
	/* A manifest that cannot be read is made again. */
	if (rc < 0 || strcmp(m->id, to->id) != 0 || m->n_files != to->n_files ||
	    m->n_dirs != to->n_dirs) {
		if (rc == 0)
			manifest_destroy(m);
		return rc == -LE_NOMEM ? rc : 0;
	}
	memcpy(job->had_name, m->name, sizeof(job->had_name));
	memcpy(job->had_version, m->version, sizeof(job->had_version));
	rc = rows_take(m, &job->had);
	for (uint32_t i = 0; i < m->n_files && rc == 0; i++)
		rc = take(to, &job->had.files[i], &m->files[i].rights);
	for (uint32_t i = 0; i < m->n_dirs && rc == 0; i++)
		rc = take(to, &job->had.dirs[i], &m->dirs[i].rights);
	for (uint32_t i = 0; i < m->n_files && rc == 0 && !job->rights_known; i++)
		to->files[i].rights = job->had.files[i];
	for (uint32_t i = 0; i < m->n_dirs && rc == 0 && !job->rights_known; i++)
		to->dirs[i].rights = job->had.dirs[i];
	manifest_destroy(m);
	return rc;
}

static int look_once(struct stage_job *job, struct manifest *of)
{
	const bool by_path = job->o.source[0] == '/' && !job->made_of;
	const struct source_look l = {.v = io_source(&job->io),
				      .source = by_path ? job->o.source : of->source,
				      .above_only = job->rights_known};
	struct rights *above = NULL;
	uint32_t n = 0;
	TRY(source_rights(&l, of, &above, &n));
	int rc = job->made_of ? unpack_rights(job->m, of) : 0;
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = take(job->m, &above[i], &above[i]);
	if (rc == 0)
		rc = grants_make(job->m, above, n, &job->grants);
	job->grants.stop = &job->stop;
	free(above);
	return rc;
}

int stage_take_rights(struct stage_job *job)
{
	struct manifest *of = job->made_of ? job->made_of : job->m;
	uint64_t sum = 0;
	TRY(take_granted(job));
	for (int i = 0; i < LOOKS_MAX; i++) {
		uint64_t before = sum;
		TRY(look_once(job, of));
		sum = grant_sum(job->m, &job->grants);
		if (job->rights_known || grant_is_so(&job->store, job->m, &job->grants) ||
		    (i > 0 && sum == before)) {
			job->rights_known = true;
			return 0;
		}
	}
	return detail_set(&job->d, -LE_AGAIN, of->source, UINT64_MAX,
			  "the rights of its files keep changing: try again");
}

/* The manifest beside the copy keeps its name and version. */
int stage_grant_ready(struct stage_job *job)
{
	struct manifest *m = job->m;
	char name[sizeof(m->name)], version[sizeof(m->version)];
	const struct regrant r = {.s = &job->store,
				  .m = m,
				  .had = job->had.files ? &job->had : NULL,
				  .origin = job->made_of};
	if (grant_is_so(&job->store, m, &job->grants))
		return 0;
	/* publish_inodes writes the index again, with the new stamps. */
	TRY(inode_index_withdraw(&job->store));
	memcpy(name, m->name, sizeof(name));
	memcpy(version, m->version, sizeof(version));
	if (job->had_name[0]) {
		memcpy(m->name, job->had_name, sizeof(name));
		memcpy(m->version, job->had_version, sizeof(version));
	}
	int rc = grant_again(&r, &job->grants);
	memcpy(m->name, name, sizeof(name));
	memcpy(m->version, version, sizeof(version));
	return rc;
}

/* ---- while the copy is made ---- */

static int pace(void *arg, uint32_t n)
{
	struct stage_job *job = stage_job_of(arg);
	uint64_t wait_us = rate_limit_charge(job->name_rate, n, loop_now_us());
	(void)fiber_sleep_unless(wait_us, &job->aged);
	return job->aged ? -LE_CANCELED : 0;
}

static void age_fiber(void *arg)
{
	struct stage_job *job = stage_job_of(arg);
	const struct age_options o = {.io = &job->io,
				      .s = &job->store,
				      .m = job->m,
				      .grants = &job->grants,
				      .pace = pace,
				      .arg = job,
				      .stop = &job->stop};
	while (!job->aged) {
		uint64_t us = job->age_us ? job->age_us : AGE_US;
		int rc = waitq_wait(&job->age_stop, loop_now_us() + us);
		if (!job->aged)
			rc = age_copy(&o);
		if (rc < 0 && rc != -LE_TIMEDOUT && rc != -LE_CANCELED)
			log_warn("%s: cannot read the rights of its source: %s", job->store.dir,
				 status_text(rc));
	}
	latch_done(&job->aging);
}

void stage_age_begin(struct stage_job *job)
{
	job->aged = 0;
	latch_init(&job->aging, 0);
	waitq_init(&job->age_stop);
	latch_add(&job->aging, 1);
	/* Without the fiber, the agent or the next job narrows the rights. */
	if (fiber_spawn("stage_age", age_fiber, job) < 0)
		latch_done(&job->aging);
}

void stage_age_end(struct stage_job *job)
{
	job->aged = 1;
	waitq_wake_all(&job->age_stop);
	latch_wait(&job->aging);
}
