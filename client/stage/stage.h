/* Staging in, as one job: from what the user asked for to READY. Parts of stage*.c share it. */
#ifndef LEAT_STAGE_STAGE_H
#define LEAT_STAGE_STAGE_H

#include <jansson.h>

#include "client/include/leat/leat_stage.h"
#include "client/stage/detail.h"
#include "client/stage/fetch.h"
#include "client/stage/grant.h"
#include "client/stage/io.h"
#include "client/stage/local_store.h"
#include "client/stage/share.h"
#include "client/stage/throttle.h"
#include "common/rt/fiber.h"

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
	bool rights_known; /* m's rights, or made_of's, are those of the source now */
	struct grants grants; /* after stage_take_rights */
	/* What the manifest beside the copy says of m's rows, and as which data set; or nothing. */
	struct rows had;
	char had_name[MANIFEST_NAME_MAX + 1], had_version[MANIFEST_NAME_MAX + 1];
	/* Between stage_age_begin and _end. */
	uint64_t age_us; /* between looks at the source's rights; 0: AGE_US */
	struct throttle *look_rate; /* names asked for, by the second; NULL: no limit */
	int aged; /* not 0: the end */
	struct waitq age_stop;
	struct latch aging;
	uint32_t said_by;
	uint64_t start_us, next_report_us;
	const char *phase;
	int rc;
	/* Why it shall end early: enum leat_stage_code, 0: it shall not. Set by the watch. */
	int stop;
	bool marked; /* ... because somebody has left a mark in the copy */
	const struct stage_job *outer; /* what shall end that one ends this one; NULL: none */
	int64_t old_mark_ns; /* which one was there before, for those who made it then */
	bool ending;
	struct fiber *watch;
	struct latch watches;
	uint64_t *plan; /* NULL: as the files lie */
	uint64_t n_plan, n_window;
	uint32_t reached; /* milestones that have been told */
	struct throttle own_throttle, *throttle;
	struct fetch *fetch;    /* while it runs */
	struct slot_pool *pool; /* NULL: one of its own */
	/* Other nodes (peers.h); NULL: none. began: the manifest and the store are known. */
	int (*began)(void *arg, struct stage_job *job);
	int (*from_peer)(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask ask);
	void *peer_arg;
	/* Unpacking (stage_unpack.c): read from here instead, below source_root; set aside so much
	 * more than the copy itself needs; what the copying is called. */
	struct vol *source_vol;
	const char *source_root, *copying;
	uint64_t extra_bytes;
	struct manifest *made_of; /* kept beside the copy; NULL: its own says where it is from */
	/* Of how many nodes that make the copy together this is which; n_nodes 0: not known. */
	uint32_t node, n_nodes;
	struct share *share; /* what each of them holds; NULL: everything */
	enum placement placement;
	uint64_t place_capacity; /* of PLACE_AUTO: the same for all nodes */
	uint32_t copies;         /* of PLACE_SPREAD */
	uint32_t turn;           /* where among the chunks it begins (fetch.h) */
	uint64_t source_us;      /* how long the source takes for a chunk, about */
};

/* Structs of the caller's version, which begin with their size. */
void struct_take(void *to, size_t size, const void *from);
void struct_give(void *to, const void *from, size_t size);

/* With the caller's options. */
int stage_job_create(const struct leat_stage_options *opts,
		     struct stage_job **ret_job) CHECK_RESULT;
void stage_job_destroy(struct stage_job *job);
/* Runs fn(arg) as a fiber unless the job has failed already, tells the result, frees the job.
 * Returns job->rc. */
int stage_job_run(struct stage_job *job, void (*fn)(void *arg), void *arg,
		  struct leat_stage_result *ret_result) CHECK_RESULT;
/* What has gone wrong, in the words of the result. */
void stage_job_tell(struct stage_job *job);
/* At most ten times a second, and always when the phase is new. */
void stage_report(struct stage_job *job, const char *phase, uint64_t bytes, uint64_t total,
		  uint64_t files);
void stage_fail(struct stage_job *job, int rc, int code);
/* It shall end: sets rc and code. */
bool stage_cancelled(struct stage_job *job);
void stage_reached(struct stage_job *job, enum leat_stage_milestone m);

/* Between the two job->stop is set when it shall end. Yields. */
void stage_watch_begin(struct stage_job *job);
void stage_watch_end(struct stage_job *job);

/* In a fiber. */
void stage_in_fiber(void *job);
void stage_plan_fiber(void *job);
void stage_out_fiber(void *job);
/* The source's manifest: by alias, by what was made of the same directory before, or anew. 0 or
 * sets rc and code. Yields. */
int stage_find_manifest(struct stage_job *job);
/* Makes the files of the data set o.source immutable. 0 or a status, with d. Yields. */
int stage_seal(struct stage_job *job) CHECK_RESULT;
/* stage_left.c: what a scan has left out, in the result: added to what is told there already. */
void stage_add_left(struct leat_stage_result *r, const struct scan *s);
/* The same for other machines: o["not_copied"], "hard_links" and "narrowed", as --json has them,
 * and the bits of `skip`. */
void stage_left_to_json(json_t *o, const struct leat_stage_result *r);
/* The same for the job's own source. */
void stage_tell_left(struct stage_job *job, const struct scan *s);
void stage_code_of_source(struct stage_job *job, int rc);
/* The copy of job->m, READY at the end, which is there at once if it was before. The store stays
 * locked until store_fini. 0 or sets rc and code. Yields. */
int stage_copy(struct stage_job *job) CHECK_RESULT;
/* ... in two steps. */
int stage_lock(struct stage_job *job) CHECK_RESULT;
int stage_copy_locked(struct stage_job *job) CHECK_RESULT;
/* r->files and r->bytes: what belongs to the copy. */
void stage_count(struct stage_job *job);
/* What was wrong, for a job that has failed and has not said so; what it leaves is noted, and the
 * store given back. Yields. */
void stage_finish(struct stage_job *job, int rc);
/* If it has failed because of what is not believed below a stage directory: says what that is. */
void stage_refused(struct stage_job *job);
/* stage_unpack.c: a copy in which every archive is a folder, made of one of the archives. 0 or sets
 * rc and code. Yields. */
int stage_unpack(struct stage_job *job) CHECK_RESULT;

/* stage_rights.c: of m's rows those that the scan has found get the rights that it has found. */
int stage_rights_of_scan(struct manifest *m, const struct scan *s) CHECK_RESULT;
/* What the copy of job->m shall grant, by the source as it is now: m's rows and job->grants.
 * Yields. */
int stage_take_rights(struct stage_job *job) CHECK_RESULT;
/* After it: a whole copy grants that. Yields. */
int stage_grant_ready(struct stage_job *job) CHECK_RESULT;
/* Between the two the copy, locked and granted by the job, is looked at again now and then. Both
 * yield. */
void stage_age_begin(struct stage_job *job);
void stage_age_end(struct stage_job *job);

/* stage_room.c: which file goes where, and the space for all of them. Sets rc and code. Yields. */
int stage_admit(struct stage_job *job) CHECK_RESULT;
/* In these directories (a NULL behind the last of more_dirs, which may be NULL), each file system
 * once. */
uint64_t stage_free_bytes(const char *to, const char *const *more_dirs);
/* stage_order.c: job->plan from o.order. 0 or sets rc and code. Yields. */
int stage_order(struct stage_job *job) CHECK_RESULT;

#endif
