/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls of leat_stage.h. Each runs as a fiber, on the loop of the instance or on a
 * new one. */

#include "client/include/leat/leat_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/stage/in/admission.h"
#include "client/stage/in/stage_in.h"
#include "client/stage/job/job.h"
#include "client/stage/out.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/store_leases.h"
#include "client/stage/verify.h"


/* ---- jobs ---- */

static void refuse(struct stage_job *job, const char *what)
{
	stage_fail(job, detail_set(&job->d, -LE_INVAL, NULL, UINT64_MAX, "%s", what),
		   LEAT_STAGE_USAGE);
}

static int run_job(const struct leat_stage_options *opts, void (*fn)(void *arg),
		   struct leat_stage_result *ret_result)
{
	struct stage_job *job;
	TRY(stage_job_create(opts, &job));
	if (!job->o.source || !job->o.source[0] || !job->o.to || job->o.to[0] != '/')
		refuse(job, "a source and an absolute local directory are needed");
	else if (job->o.lease && !store_name_ok(job->o.lease))
		stage_fail(job,
			   detail_set(&job->d, -LE_INVAL, job->o.lease, UINT64_MAX,
				      "the name of a lease has letters, digits, . _ and -"),
			   LEAT_STAGE_USAGE);
	return stage_job_run(job, fn, job, ret_result);
}

int leat_stage_in(const struct leat_stage_options *opts, struct leat_stage_result *ret_result)
{
	return run_job(opts, stage_in_fiber, ret_result);
}

int leat_stage_plan(const struct leat_stage_options *opts, struct leat_stage_result *ret_result)
{
	return run_job(opts, stage_plan_fiber, ret_result);
}

int leat_stage_out(const struct leat_stage_options *opts, struct leat_stage_result *ret_result)
{
	struct stage_job *job;
	TRY(stage_job_create(opts, &job));
	if (!job->o.source || job->o.source[0] != '/' || !job->o.source[1] || !job->o.to ||
	    job->o.to[0] != '/')
		refuse(job, "a local directory, and the absolute path that it shall have");
	return stage_job_run(job, stage_out_fiber, job, ret_result);
}

static void verify_fiber(void *arg)
{
	struct stage_job *job = stage_job_of(arg);
	/* copies_verify gets the copy's name, which is in the job's source. */
	copies_verify(job, job->o.source);
}

int leat_stage_verify(const struct leat_stage_options *opts, const char *what,
		      struct leat_stage_result *ret_result)
{
	struct stage_job *job;
	TRY(stage_job_create(opts, &job));
	job->o.source = what;
	job->o.fs = NULL;
	if (!what || !job->o.to || job->o.to[0] != '/')
		refuse(job, "a copy and an absolute local directory are needed");
	return stage_job_run(job, verify_fiber, job, ret_result);
}

/* ---- existing copies ---- */

struct call {
	struct stage_io io;
	const char *to, *what;
	int (*each)(void *arg, const struct leat_stage_copy *c);
	void *arg;
	struct leat_stage_copy *copy;
	int fd, rc;
};

static int call_run(struct call *c, void (*fn)(void *arg))
{
	TRY(io_init(&c->io, NULL, "leat-stage"));
	int rc = io_run(&c->io, fn, c);
	io_fini(&c->io);
	return rc < 0 ? rc : c->rc;
}

static void list_fiber(void *arg)
{
	struct call *c = arg;
	c->rc = copies_list(&c->io, c->to, c->each, c->arg);
}

int leat_stage_list(const char *to, int (*each)(void *arg, const struct leat_stage_copy *c),
		    void *arg)
{
	struct call c = {.to = to, .each = each, .arg = arg};
	return call_run(&c, list_fiber);
}

static void find_fiber(void *arg)
{
	struct call *c = arg;
	c->rc = copies_find(&c->io, c->to, c->what, c->copy);
}

static void evict_fiber(void *arg)
{
	struct call *c = arg;
	c->rc = copies_evict(&c->io, c->to, c->what);
}

static void lease_fiber(void *arg)
{
	struct call *c = arg;
	c->rc = copies_lease(&c->io, c->to, c->what, c->copy, &c->fd);
}

/* Runs fn with memory for a copy's description, and passes that to `use` on success. */
static int with_copy(const char *to, const char *what, void (*fn)(void *arg),
		     int (*use)(void *arg, const struct call *c), void *arg)
{
	struct call c = {.to = to, .what = what, .fd = -1};
	c.copy = calloc(1, sizeof(*c.copy));
	if (!c.copy)
		return -LE_NOMEM;
	int rc = call_run(&c, fn);
	if (rc == 0)
		rc = use(arg, &c);
	free(c.copy);
	return rc;
}

static int give_copy(void *arg, const struct call *c)
{
	struct_give(arg, c->copy, sizeof(*c->copy));
	return 0;
}

int leat_stage_status(const char *to, const char *what, struct leat_stage_copy *ret_copy)
{
	return with_copy(to, what, find_fiber, give_copy, ret_copy);
}

struct path_out {
	char *path;
	size_t size;
};

/* Returns whether this user may search the files' folder, by looking up a name that does not
 * exist. */
static bool may_use(const char *data)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	return snprintf(path, sizeof(path), "%s/.leat", data) < (int)sizeof(path) &&
	       beneath_stat(NULL, path, &st) != -LE_ACCES;
}

static int give_path(void *arg, const struct call *c)
{
	struct path_out *out = arg;
	if (c->copy->state != LEAT_COPY_READY && c->copy->state != LEAT_COPY_STALE)
		return -LE_AGAIN;
	if (strlen(c->copy->path) >= out->size)
		return -LE_RANGE;
	if (!may_use(c->copy->path))
		return -LE_ACCES;
	memcpy(out->path, c->copy->path, strlen(c->copy->path) + 1);
	return 0;
}

int leat_stage_path(const char *to, const char *what, char *ret_path, size_t size)
{
	struct path_out out = {ret_path, size};
	return with_copy(to, what, find_fiber, give_path, &out);
}

int leat_stage_evict(const char *to, const char *what)
{
	struct call c = {.to = to, .what = what};
	return call_run(&c, evict_fiber);
}

struct leat_stage_lease {
	int fd;
};

static int give_lease(void *arg, const struct call *c)
{
	struct leat_stage_lease *lease = malloc(sizeof(*lease));
	if (!lease) {
		close(c->fd);
		return -LE_NOMEM;
	}
	lease->fd = c->fd;
	*(struct leat_stage_lease **)arg = lease;
	return 0;
}

int leat_stage_lease(const char *to, const char *what, struct leat_stage_lease **ret_lease)
{
	return with_copy(to, what, lease_fiber, give_lease, ret_lease);
}

void leat_stage_release(struct leat_stage_lease *lease)
{
	if (!lease)
		return;
	close(lease->fd);
	free(lease);
}
