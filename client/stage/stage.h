/* Staging in, as one job: from what the user asked for to READY. Parts of stage*.c share it. */
#ifndef LEAT_STAGE_STAGE_H
#define LEAT_STAGE_STAGE_H

#include "client/include/leat/leat_stage.h"
#include "client/stage/detail.h"
#include "client/stage/io.h"
#include "client/stage/local_store.h"

/* Owned by the loop it runs on, after stage_job_init. */
struct stage_job {
	struct leat_stage_options o; /* as the caller's version has them, the rest zero */
	struct leat_stage_result *r; /* of this version's size */
	struct stage_io io;
	struct detail d;
	struct manifest *m;
	struct local_store store;
	bool store_open;
	/* m's inode numbers and versions are those of the source now, as this user says */
	bool inodes_known;
	uint32_t said_by;
	uint64_t start_us, next_report_us;
	const char *phase;
	int rc;
};

/* With the caller's options. */
int stage_job_create(const struct leat_stage_options *opts,
		     struct stage_job **ret_job) CHECK_RESULT;
/* Runs fn(arg) as a fiber unless the job has failed already, tells the result, frees the job.
 * Returns job->rc. */
int stage_job_run(struct stage_job *job, void (*fn)(void *arg), void *arg,
		  struct leat_stage_result *ret_result) CHECK_RESULT;
/* At most ten times a second, and always when the phase is new. */
void stage_report(struct stage_job *job, const char *phase, uint64_t bytes, uint64_t total,
		  uint64_t files);
void stage_fail(struct stage_job *job, int rc, int code);

/* In a fiber. */
void stage_in_fiber(void *job);
/* The source's manifest: by alias, by what was made of the same directory before, or anew. 0 or
 * sets rc and code. Yields. */
int stage_find_manifest(struct stage_job *job);
void stage_code_of_source(struct stage_job *job, int rc);

#endif
