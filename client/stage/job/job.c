/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/beneath.h"
#include "client/stage/store/store_marks.h"

#define WATCH_US 100000u /* poll interval of cancellation and timeout */

void struct_take(void *to, size_t size, const void *from)
{
	size_t theirs;
	memcpy(&theirs, from, sizeof(theirs));
	memset(to, 0, size);
	memcpy(to, from, theirs < size ? theirs : size);
}

void struct_give(void *to, const void *from, size_t size)
{
	size_t theirs;
	memcpy(&theirs, to, sizeof(theirs));
	memcpy(to, from, theirs < size ? theirs : size);
	memcpy(to, &theirs, sizeof(theirs));
}

int stage_job_create(const struct leat_stage_options *opts, struct stage_job **ret_job)
{
	struct stage_job *job = calloc(1, sizeof(*job));
	if (!job)
		return -LE_NOMEM;
	job->r = calloc(1, sizeof(*job->r));
	if (!job->r) {
		free(job);
		return -LE_NOMEM;
	}
	job->magic = STAGE_JOB_MAGIC;
	struct_take(&job->o, sizeof(job->o), opts);
	job->store.lock_fd = -1;
	job->r->fail_offset = UINT64_MAX;
	*ret_job = job;
	return 0;
}

void stage_job_tell(struct stage_job *job)
{
	struct leat_stage_result *r = job->r;
	const struct detail *d = &job->d;
	if (job->rc == 0)
		return;
	if (r->code == LEAT_STAGE_DONE)
		r->code = LEAT_STAGE_INTERNAL;
	memcpy(r->fail_path, d->path, sizeof(r->fail_path));
	r->fail_offset = d->off;
	const char *what = d->what[0] ? d->what : status_text(job->rc);
	if (d->path[0] && d->off != UINT64_MAX)
		snprintf(r->message, sizeof(r->message), "%.200s at offset %llu: %s", d->path,
			 (unsigned long long)d->off, what);
	else if (d->path[0])
		snprintf(r->message, sizeof(r->message), "%.230s: %s", d->path, what);
	else
		snprintf(r->message, sizeof(r->message), "%s", what);
}

void stage_job_destroy(struct stage_job *job)
{
	ASSERT(!job->fetch);
	job->magic = 0;
	manifest_destroy(job->m);
	share_destroy(job->share);
	rows_fini(&job->had);
	free(job->plan);
	free(job->r);
	free(job);
}

void stage_fail(struct stage_job *job, int rc, int code)
{
	if (job->rc == 0) {
		job->rc = rc;
		job->r->code = code;
	}
}

int stage_job_run(struct stage_job *job, void (*fn)(void *arg), void *arg,
		  struct leat_stage_result *ret_result)
{
	int rc = job->rc;
	if (rc == 0)
		rc = io_init(&job->io, job->o.fs, "leat-stage");
	if (rc == 0) {
		rc = io_run(&job->io, fn, arg);
		io_fini(&job->io);
	}
	if (rc < 0)
		stage_fail(job, rc, LEAT_STAGE_INTERNAL);
	stage_job_tell(job);
	rc = job->rc;
	if (ret_result)
		struct_give(ret_result, job->r, sizeof(*job->r));
	stage_job_destroy(job);
	return rc;
}

void stage_code_of_source(struct stage_job *job, int rc)
{
	int code = LEAT_STAGE_INTERNAL;
	if (rc == -LE_NOENT || rc == -LE_STALE || rc == -LE_NOTDIR || rc == -LE_WRONG_CLUSTER)
		code = LEAT_STAGE_SOURCE_GONE;
	else if (rc == -LE_CORRUPT)
		code = LEAT_STAGE_SOURCE_CORRUPT;
	else if (rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_FOREIGN || rc == -LE_ROFS)
		code = LEAT_STAGE_PERMISSION;
	else if (rc == -LE_NOSPC || rc == -LE_DQUOT)
		code = LEAT_STAGE_NO_CAPACITY;
	else if (rc == -LE_CANCELED)
		code = LEAT_STAGE_CANCELLED;
	else if (rc == -LE_INVAL || rc == -LE_NAMETOOLONG)
		code = LEAT_STAGE_USAGE;
	stage_fail(job, rc, code);
}

void stage_refused(struct stage_job *job)
{
	struct beneath_why *why = job->rc == -LE_FOREIGN ? malloc(sizeof(*why)) : NULL;
	if (why && beneath_why(job->io.env, why)) {
		job->d.rc = 0;
		detail_set(&job->d, -LE_FOREIGN, why->path, UINT64_MAX, "%s", why->what);
		job->r->code = LEAT_STAGE_PERMISSION;
	}
	free(why);
}

static void look_at_callers(struct stage_job *job)
{
	const struct stage_job *outer = job->outer;
	if (outer && outer->stop) {
		job->stop = outer->stop;
		job->marked = outer->marked;
	} else if (job->o.cancel && *job->o.cancel) {
		job->stop = LEAT_STAGE_CANCELLED;
	}
}

void stage_report(struct stage_job *job, const char *phase, uint64_t bytes, uint64_t total,
		  uint64_t files)
{
	uint64_t now = env_now_us(job->io.env);
	/* Observes a cancellation sooner than the watch fiber. */
	if (!job->stop)
		look_at_callers(job);
	if (!job->o.progress || (phase == job->phase && now < job->next_report_us && bytes < total))
		return;
	job->phase = phase;
	job->next_report_us = now + 100000;
	struct leat_stage_progress p = {.size = sizeof(p),
					.phase = phase,
					.bytes = bytes,
					.bytes_total = total,
					.bytes_moved = job->r->bytes_moved,
					.files = files,
					.files_total = job->r->files,
					.elapsed_us = now - job->start_us,
					.bytes_source = job->r->bytes_source,
					.bytes_peers = job->r->bytes_peers};
	job->o.progress(job->o.arg, &p);
}

bool stage_cancelled(struct stage_job *job)
{
	if (job->stop)
		stage_fail(job, job->stop == LEAT_STAGE_TIMEOUT ? -LE_TIMEDOUT : -LE_CANCELED,
			   job->stop);
	return job->rc != 0;
}

void stage_reached(struct stage_job *job, enum leat_stage_milestone m)
{
	/* A loader of the members cannot begin with the archives. */
	if (job->o.unpack && m > LEAT_STAGE_RESERVED)
		m = LEAT_STAGE_RESERVED;
	for (uint32_t i = job->reached + 1; i <= (uint32_t)m; i++)
		if (job->o.reached)
			job->o.reached(job->o.arg, (enum leat_stage_milestone)i);
	if ((uint32_t)m > job->reached)
		job->reached = m;
}

void stage_count(struct stage_job *job)
{
	job->r->files = job->r->bytes = 0;
	for (uint32_t i = 0; i < job->m->n_files; i++) {
		if (store_has_file(&job->store, i)) {
			job->r->files++;
			job->r->bytes += job->m->files[i].size;
		}
	}
}

/* ---- stopping a job ---- */

/* Returns whether "cancel" was set since the job began. An older mark was meant for another job,
 * and is removed when the copy begins. */
static bool marked_anew(const struct stage_job *job)
{
	int64_t ns = job->store_open ? store_mark_ns(&job->store, "cancel") : 0;
	return ns != 0 && ns != job->old_mark_ns;
}

static void watch_fiber(void *arg)
{
	struct stage_job *job = stage_job_of(arg);
	while (!job->ending) {
		look_at_callers(job);
		if (job->stop)
			break;
		if (marked_anew(job)) {
			job->stop = LEAT_STAGE_CANCELLED;
			job->marked = true;
		} else if (job->o.timeout_ms && env_now_us(job->io.env) - job->start_us >=
							(uint64_t)job->o.timeout_ms * 1000) {
			job->stop = LEAT_STAGE_TIMEOUT;
		}
		if (job->stop)
			break;
		int rc = fiber_sleep_us(WATCH_US);
		(void)rc;
	}
	latch_done(&job->watches);
}

void stage_watch_begin(struct stage_job *job)
{
	latch_init(&job->watches, 0);
	latch_add(&job->watches, 1);
	/* Without the watch, the job misses its timeout and the mark "cancel". */
	if (fiber_spawn("stage_watch", watch_fiber, job) < 0)
		latch_done(&job->watches);
}

void stage_watch_end(struct stage_job *job)
{
	job->ending = true;
	latch_wait(&job->watches);
}
