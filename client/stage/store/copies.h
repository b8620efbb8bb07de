/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copies below a directory: listing, finding one by its name, marking, leasing, evicting. `to`
 * is the stage directory. Everything runs in fibers and yields.
 */
#ifndef LEAT_CLIENT_STAGE_STORE_COPIES_H
#define LEAT_CLIENT_STAGE_STORE_COPIES_H

#include "client/dataset/io_context.h"
#include "client/include/leat/leat_stage.h"
#include "client/stage/store/local_store.h"

/* Calls each for every copy, in the order of their ids; non-zero ends the list and is returned. */
int copies_list(struct stage_io *io, const char *to,
		int (*each)(void *arg, const struct leat_stage_copy *c), void *arg) CHECK_RESULT;
/* Calls each with the id of every copy, without reading the copies. */
int copies_each_id(struct stage_io *io, const char *to, int (*each)(void *arg, const char *id),
		   void *arg) CHECK_RESULT;
/* Like copies_list(), but without the copy `but`, and only for copies for which `wanted` returns
 * true. `wanted` gets id, name, version and source. A copy without a readable manifest is passed
 * to each directly. */
int copies_list_those(struct stage_io *io, const char *to, const char *but,
		      bool (*wanted)(void *arg, const struct leat_stage_copy *c),
		      int (*each)(void *arg, const struct leat_stage_copy *c),
		      void *arg) CHECK_RESULT;

/* The least number of characters of an id that may stand for it. */
#define COPIES_ID_MIN 6u
/* Finds the copy that `what` names: see leat_stage.h. -LE_NOENT; -LE_EXIST: several; -LE_INVAL. */
int copies_find(struct stage_io *io, const char *to, const char *what,
		struct leat_stage_copy *ret_copy) CHECK_RESULT;
/* Like copies_find(), and opens the store of that copy, with its places. The caller ends it with
 * store_fini. */
int copies_open(struct stage_io *io, const char *to, const char *what,
		struct leat_stage_copy *ret_copy, struct local_store *ret_store) CHECK_RESULT;

/* The key under which a source directory is noted (store_note_source). Does not yield. */
#define COPIES_DIR_KEY_SIZE 32u
void copies_dir_key(const char *dir, char ret_key[COPIES_DIR_KEY_SIZE]);

enum copies_mark_what {
	MARK_PIN,
	MARK_UNPIN,
	MARK_CANCEL,
	MARK_LEASE,
	MARK_RELEASE
};
/* For MARK_LEASE and MARK_RELEASE. */
struct copies_mark {
	const char *job;
	uint64_t ttl_s;
};
/* Sets or removes a mark or a job's lease of the copy that `what` names. -LE_NOENT: no such copy,
 * no such lease, or for MARK_CANCEL no process that makes it. */
int copies_mark(struct stage_io *io, const char *to, const char *what, enum copies_mark_what how,
		const struct copies_mark *mark) CHECK_RESULT;
/* Releases all leases of a job. -LE_NOENT: it has none; -LE_INVAL: not a name. */
int copies_release_all(struct stage_io *io, const char *to, const char *job) CHECK_RESULT;
/* Leases a READY copy to this process: it is not evicted until *ret_fd is closed. -LE_AGAIN: it is
 * not READY. */
int copies_lease(struct stage_io *io, const char *to, const char *what,
		 struct leat_stage_copy *ret_copy, int *ret_fd) CHECK_RESULT;

/* Removes the copy that `what` names. -LE_BUSY: it is leased, pinned or locked. */
int copies_evict(struct stage_io *io, const char *to, const char *what) CHECK_RESULT;
/* Removes the copy of this store, which the caller has locked, with its places loaded. */
int copies_evict_locked(struct local_store *s) CHECK_RESULT;

#endif
