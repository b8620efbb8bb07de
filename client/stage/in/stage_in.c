/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/stage_in.h"

#include "client/dataset/beneath.h"
#include "client/stage/in/stage_copy.h"
#include "client/stage/in/stage_manifest.h"
#include "client/stage/in/stage_unpack.h"

/* The first ".leat" of a path determines which folders are trusted (beneath.h). */
static int refuse_below(struct stage_job *job, const char *to)
{
	if (!beneath_is_below(to))
		return 0;
	stage_fail(job,
		   detail_set(&job->d, -LE_INVAL, to, UINT64_MAX,
			      "copies are not kept in or below a folder .leat: name the directory "
			      "that it lies in, or another"),
		   LEAT_STAGE_USAGE);
	return job->rc;
}

static int run(struct stage_job *job)
{
	TRY(refuse_below(job, job->o.to));
	for (uint32_t i = 0; job->o.more_dirs && job->o.more_dirs[i]; i++)
		TRY(refuse_below(job, job->o.more_dirs[i]));
	TRY(env_mkdirs(job->io.env, job->o.to, 0755));
	rate_limit_set(&job->own_throttle, job->o.max_rate, RATE_LIMIT_BURST_US);
	if (!job->throttle)
		job->throttle = &job->own_throttle;
	TRY(stage_find_manifest(job));
	return job->o.unpack ? stage_unpack(job) : stage_copy(job);
}

void stage_in_fiber(void *arg)
{
	struct stage_job *job = stage_job_of(arg);
	job->start_us = env_now_us(job->io.env);
	stage_watch_begin(job);
	int rc = run(job);
	stage_watch_end(job);
	stage_finish(job, rc);
	job->r->elapsed_us = env_now_us(job->io.env) - job->start_us;
}
