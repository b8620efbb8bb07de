/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/verify.h"

#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest_file.h"
#include "client/stage/fetch/fetch_verify.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_ready.h"

static void on_verify(void *arg, const struct fetch_report *f)
{
	struct stage_job *job = stage_job_of(arg);
	job->r->bytes_verified = f->bytes_verified;
	stage_report(job, "verify", f->bytes_verified, job->r->bytes, f->files);
}

static int verify_locked(struct stage_job *job)
{
	struct fetch_options fo = {.store = &job->store,
				   .manifest = job->m,
				   .report = on_verify,
				   .arg = job,
				   .cancel = job->o.cancel};
	struct fetch_report report = {0};
	uint64_t n_bad = 0;
	int code = LEAT_STAGE_INTERNAL;
	bool ready = store_is_ready(&job->store);
	if (!ready) {
		TRY(store_load_share(&job->store, job->m->n_files));
		ready = job->store.share && store_is_shared(&job->store);
		stage_count(job);
	}
	TRY(store_load_bitmap(&job->store, job->m));
	int rc = fetch_verify(&fo, &report, &n_bad, &code, &job->d);
	job->r->bytes_verified = report.bytes_verified;
	if (rc == 0 && n_bad) {
		/* First remove READY, then save the cleared bits, then report the damage. */
		rc = store_clear_ready(&job->store);
		if (rc == 0)
			rc = store_save_bitmap(&job->store);
		if (rc == 0)
			rc = -LE_CORRUPT;
	} else if (rc == 0 && !ready) {
		code = LEAT_STAGE_PARTIAL;
		rc = detail_set(&job->d, -LE_AGAIN, job->store.dir, UINT64_MAX,
				"the copy was never finished: leat stage in does");
	}
	if (rc < 0)
		stage_fail(job, rc, code);
	return rc;
}

static int verify(struct stage_job *job, const char *what)
{
	struct leat_stage_copy *c = malloc(sizeof(*c));
	if (!c)
		return -LE_NOMEM;
	int rc = copies_open(&job->io, job->o.to, what, c, &job->store);
	if (rc == 0) {
		memcpy(job->r->id, c->id, sizeof(job->r->id));
		memcpy(job->r->path, c->path, sizeof(job->r->path));
	} else {
		stage_fail(job,
			   detail_set(&job->d, rc, what, UINT64_MAX, "no such copy: %s",
				      status_text(rc)),
			   rc == -LE_NOENT ? LEAT_STAGE_NOT_READY : LEAT_STAGE_USAGE);
	}
	free(c);
	TRY(rc);
	job->store_open = true;
	rc = store_try_lock(&job->store);
	if (rc < 0) {
		stage_fail(job,
			   detail_set(&job->d, rc, job->store.dir, UINT64_MAX,
				      "another process makes or verifies it: try again when that "
				      "has ended"),
			   LEAT_STAGE_NOT_READY);
		return rc;
	}
	rc = manifest_load(job->io.local, job->store.dir, &job->m, &job->d);
	if (rc < 0) {
		stage_fail(job, rc, LEAT_STAGE_LOCAL_CORRUPT);
		return rc;
	}
	job->r->files = job->m->n_files;
	job->r->bytes = job->m->bytes;
	return verify_locked(job);
}

void copies_verify(struct stage_job *job, const char *what)
{
	job->start_us = env_now_us(job->io.env);
	int rc = verify(job, what);
	if (rc < 0) {
		detail_set(&job->d, rc, job->o.to, UINT64_MAX, "%s", status_text(rc));
		stage_fail(job, rc, LEAT_STAGE_INTERNAL);
	}
	stage_refused(job);
	if (job->store_open)
		store_fini(&job->store);
	job->r->elapsed_us = env_now_us(job->io.env) - job->start_us;
}
