/* The copies below a directory: listing, finding one by what the user calls it, verifying,
 * evicting. In fibers; everything yields. */
#ifndef LEAT_STAGE_COPIES_H
#define LEAT_STAGE_COPIES_H

#include "client/include/leat/leat_stage.h"
#include "client/stage/io.h"
#include "client/stage/stage.h"

/* In the order of their ids. */
int copies_list(struct stage_io *io, const char *to,
		int (*each)(void *arg, const struct leat_stage_copy *c), void *arg) CHECK_RESULT;
/* The ids alone of what lies there. */
int copies_each_id(struct stage_io *io, const char *to, int (*each)(void *arg, const char *id),
		   void *arg) CHECK_RESULT;
/* copies_list but for this id, and those alone of which `wanted`, told id, name, version and
 * source, wants to know more. What cannot be read is told without being asked for. */
int copies_list_those(struct stage_io *io, const char *to, const char *but,
		      bool (*wanted)(void *arg, const struct leat_stage_copy *c),
		      int (*each)(void *arg, const struct leat_stage_copy *c),
		      void *arg) CHECK_RESULT;
/* So many characters of an id stand for it. */
#define COPIES_ID_MIN 6u
/* what: see leat_stage.h. -LE_NOENT, -LE_EXIST (several), -LE_INVAL. */
int copies_find(struct stage_io *io, const char *to, const char *what,
		struct leat_stage_copy *ret_copy) CHECK_RESULT;
/* What a source directory is noted as (store_note_source). */
#define COPIES_DIR_KEY_SIZE 32u
void copies_dir_key(const char *dir, char ret_key[COPIES_DIR_KEY_SIZE]);
enum copies_mark_what {
	MARK_PIN,
	MARK_UNPIN,
	MARK_CANCEL,
	MARK_LEASE,
	MARK_RELEASE
};
struct copies_mark {
	const char *job;
	uint64_t ttl_s;
};
/* -LE_NOENT: no such copy, nobody who makes it, no such lease. */
int copies_mark(struct stage_io *io, const char *to, const char *what, enum copies_mark_what how,
		const struct copies_mark *mark) CHECK_RESULT;
int copies_release_all(struct stage_io *io, const char *to, const char *job) CHECK_RESULT;
/*
 * Makes room (copies_gc.c) among the copies of `to` and of more_dirs (a NULL behind the last; may
 * be NULL): see leat_stage_gc. bytes_missing: so much more has to go than is free now. lack: if not
 * 0, of use are only copies with files in these directories, bit 0 being `to`, bit k more_dirs[k -
 * 1]. keep: the id of a copy that stays whatever it is; may be NULL.
 */
struct gc_options {
	const char *const *more_dirs;
	uint64_t bytes_missing, capacity;
	uint32_t lack;
	const char *keep;
	bool dry_run;
	void (*each)(void *arg, const struct leat_stage_copy *c);
	void *arg;
	uint64_t bytes_removed; /* results */
	uint32_t n_removed;
};
int copies_gc(struct stage_io *io, const char *to, struct gc_options *g) CHECK_RESULT;
int copies_evict(struct stage_io *io, const char *to, const char *what) CHECK_RESULT;
/* The one that this store is, with its places, locked by the caller. */
int copies_evict_locked(struct local_store *s) CHECK_RESULT;
/* A READY copy, kept from being evicted. ret_fd holds the lease until it is closed. -LE_AGAIN: not
 * ready. */
int copies_lease(struct stage_io *io, const char *to, const char *what,
		 struct leat_stage_copy *ret_copy, int *ret_fd) CHECK_RESULT;
/* Sets job->rc and r->code. */
void copies_verify(struct stage_job *job, const char *what);

#endif
