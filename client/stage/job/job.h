/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One staging job: its options, its state and its result. stage in, stage out, verify, seal and
 * their parts run on a job; the agent and the public calls create it.
 *
 * A job fails once: the first stage_fail decides status and code, later ones change nothing.
 * job->d has the reason, the path and the offset.
 */
#ifndef LEAT_CLIENT_STAGE_JOB_JOB_H
#define LEAT_CLIENT_STAGE_JOB_JOB_H

#include "client/dataset/error_detail.h"
#include "client/dataset/io_context.h"
#include "client/include/leat/leat_stage.h"
#include "client/stage/fetch/fetch.h"
#include "client/stage/fetch/share.h"
#include "client/stage/store/grant.h"
#include "client/stage/store/local_store.h"
#include "common/base/assert.h"
#include "common/base/rate_limit.h"
#include "common/rt/fiber.h"

#define STAGE_JOB_MAGIC 0x4c534a42u /* LSJB */

/* Owned by the loop that it runs on, from stage_job_run on. */
struct stage_job {
	uint32_t magic;
	struct leat_stage_options o; /* as the caller's version has them, the rest zero */
	struct leat_stage_result *r; /* of this version's size */
	struct stage_io io;
	struct detail d;
	struct manifest *m;
	struct local_store store;
	bool store_open;
	bool inodes_known; /* m's inode numbers and versions are those of the source now ... */
	uint32_t said_by;  /* ... on the authority of this user */
	bool rights_known;    /* m's rights, or made_of's, are those of the source now */
	struct grants grants; /* after stage_take_rights */
	/* m's rights, name and version in the manifest that lies beside the copy; zero: none. */
	struct rows had;
	char had_name[MANIFEST_NAME_MAX + 1], had_version[MANIFEST_NAME_MAX + 1];
	/* Between stage_age_begin and _end. */
	uint64_t age_us;              /* poll interval of the source's rights; 0: AGE_US */
	struct rate_limit *name_rate; /* names looked up per second; NULL: no limit */
	int aged;                     /* not 0: the fiber is to end */
	struct waitq age_stop;
	struct latch aging;
	uint64_t start_us, next_report_us;
	const char *phase;
	int rc;
	/* Why the job is to end early: enum leat_stage_code, 0: it continues. Set by the watch. */
	int stop;
	bool marked;                   /* ... because of the mark "cancel" in the copy */
	const struct stage_job *outer; /* this job ends early when that one does; NULL: none */
	int64_t old_mark_ns;           /* a mark "cancel" from before the job, meant for another
					* one */
	bool ending;
	struct latch watches;
	uint64_t *plan; /* chunks in the order of the plan; NULL: ascending */
	uint64_t n_plan, n_window;
	uint32_t reached; /* the last milestone that was reported */
	struct rate_limit own_throttle, *throttle;
	struct fetch *fetch;    /* while it runs */
	struct slot_pool *pool; /* NULL: the fetch makes one */
	/* Other nodes (peers.h); NULL: none. began is called when manifest and store are ready. */
	int (*began)(void *arg, struct stage_job *job);
	int (*from_peer)(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask ask);
	void *peer_arg;
	/* Unpacking (stage_unpack.c): the volume that is read instead, below source_root; the
	 * space to reserve beyond the copy's; the name of the copying phase. */
	struct vol *source_vol;
	const char *source_root, *copying;
	uint64_t extra_bytes;
	struct manifest *made_of; /* manifest of the archives that the copy is unpacked from;
				   * NULL: none */
	/* This node's index among n_nodes that make the copy together; n_nodes 0: they are not
	 * named. */
	uint32_t node, n_nodes;
	struct share *share; /* which files each of them holds; NULL: all */
	enum placement placement;
	uint64_t place_capacity; /* of PLACE_AUTO: the same for all nodes */
	uint32_t copies;         /* of PLACE_SPREAD */
	uint32_t turn;           /* where among the chunks the fetch begins (fetch.h) */
	uint64_t source_us;      /* average time that the source takes for a chunk */
};

/* Copies a struct of the caller's version, which begins with its size, into one of `size` bytes of
 * this version. Members that the caller's version does not have become zero. */
void struct_take(void *to, size_t size, const void *from);
/* Copies a struct of this version into one of the caller's version, up to the caller's size,
 * which stays. */
void struct_give(void *to, const void *from, size_t size);

/* Returns the job that was passed through void *. */
static inline struct stage_job *stage_job_of(void *arg)
{
	return CAST_OBJ(arg, struct stage_job, STAGE_JOB_MAGIC);
}

/* Creates a job with the caller's options. -LE_NOMEM. The caller destroys it, or runs it with
 * stage_job_run. Does not yield. */
int stage_job_create(const struct leat_stage_options *opts,
		     struct stage_job **ret_job) CHECK_RESULT;
void stage_job_destroy(struct stage_job *job);
/* Runs fn(arg) as a fiber, unless the job has failed already, and waits for it. Then fills in
 * *ret_result (may be NULL) and frees the job. Returns the job's status. Not from a fiber. */
int stage_job_run(struct stage_job *job, void (*fn)(void *arg), void *arg,
		  struct leat_stage_result *ret_result) CHECK_RESULT;
/* Writes the failure of a job into its result: path, offset, message, code. Does nothing for a
 * job that has not failed. Does not yield. */
void stage_job_tell(struct stage_job *job);

/* Sets the job's status and enum leat_stage_code, unless it has failed before. */
void stage_fail(struct stage_job *job, int rc, int code);
/* stage_fail with the code that stands for a status of reading the source. */
void stage_code_of_source(struct stage_job *job, int rc);
/* Returns whether the job has failed or is to stop. If it is to stop, sets status and code. */
bool stage_cancelled(struct stage_job *job);
/* If the job has failed because a file below a stage directory is not trusted: puts that path
 * and the reason into job->d. */
void stage_refused(struct stage_job *job);

/* Reports progress to the caller: at most ten times a second, and each change of phase. Does not
 * yield. */
void stage_report(struct stage_job *job, const char *phase, uint64_t bytes, uint64_t total,
		  uint64_t files);
/* Reports milestone m to the caller, and those before it that have not been reported. */
void stage_reached(struct stage_job *job, enum leat_stage_milestone m);
/* Sets r->files and r->bytes to the totals of the copy: all files, or those of its share. */
void stage_count(struct stage_job *job);

/* Starts a fiber that sets job->stop when the caller cancels the job, a process marks its copy
 * with "cancel", or its time has run out. Does not yield. */
void stage_watch_begin(struct stage_job *job);
/* Ends that fiber. Yields. */
void stage_watch_end(struct stage_job *job);

#endif
