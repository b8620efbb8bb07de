/*
 * The sessions that change chunks here: a row each, durable before its first change. So a server
 * that was not ended in order knows whose changes may have gone with it, though somebody has seen
 * them: those of sessions that have not said since that they have repeated what was under way. Whom
 * nobody waits for any more is late: its row says so until it has said that, or has ended, whatever
 * becomes of the server meanwhile.
 *
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_WRITERS_H
#define LEAT_OSSD_WRITERS_H

#include "common/base/hmap.h"
#include "ossd/chunk/group_commit.h"

/* What the session has not repeated yet. */
enum writer_owes {
	OWES_NOTHING,
	OWES_UNSEEN, /* changes that were not accepted */
	OWES_SEEN,   /* such as were, too */
};

enum writer_late {
	NOT_LATE,
	LATE,       /* since this start of the server */
	LATE_BEFORE /* since an earlier one */
};

struct writing_session {
	struct hmap_node node;
	uint64_t session;
	uint64_t group;        /* of its row; 0: it was there at the start */
	uint64_t last_us;      /* last change; 0: none since the start */
	uint32_t n_busy;       /* changes of it under way */
	enum writer_owes owes; /* and it is awaited */
	enum writer_late late;
};

struct writers {
	struct hmap map;
	uint32_t n_awaited, n_late;
	uint32_t n_seen; /* of those awaited: who may have to repeat what was accepted */
};

void writers_init(struct writers *w);
void writers_fini(struct writers *w);
/* A row of the index, at start: it is awaited, or late. -LE_CORRUPT_STORE, -LE_NOMEM */
int writers_load(struct writers *w, const void *key, size_t key_len, size_t value_len) CHECK_RESULT;
/* Durable when it returns 0. Yields only for a session that is new, or nearly. -LE_NOMEM, -LE_IO */
int writers_know(struct writers *w, struct group_commit *g, uint64_t session) CHECK_RESULT;
/* The same around a change of the session; NULL, and no end, if it fails. */
int writers_begin(struct writers *w, struct group_commit *g, uint64_t session,
		  struct writing_session **ret_session) CHECK_RESULT;
void writers_end(struct writing_session *s);
/* Has a session that is meant (which) changes under way? */
bool writers_any_busy(const struct writers *w, bool (*which)(void *arg, uint64_t session),
		      void *arg);
bool writers_awaits(const struct writers *w, uint64_t session);
enum writer_late writers_late(const struct writers *w, uint64_t session);
/* May some of what it had accepted have gone with a server, and not have been repeated? */
bool writers_lost(const struct writers *w, uint64_t session);
/* No more than that has to be repeated. Returns the group after which it is not late any more,
 * however the server ends; 0: it was not. Does not yield. */
uint64_t writers_returned(struct writers *w, struct group_commit *g, uint64_t session,
			  enum writer_owes owes);
/* The server was ended in order: nobody is awaited. */
void writers_all_returned(struct writers *w);
/* Who is awaited still is late. Returns the group after which it is, however the server ends. Does
 * not yield. */
uint64_t writers_all_late(struct writers *w, struct group_commit *g);
/* Forgets those that are not alive and have changed nothing since before_us: up to max deletions go
 * into the batch; returns how many. */
uint32_t writers_expire(struct writers *w, struct kv_batch *b, uint64_t before_us, uint32_t max,
			bool (*alive)(void *arg, uint64_t session), void *arg);

#endif
