/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sessions that change chunks here. Each has a row that becomes durable before the session's
 * first change. So a server that restarts after a crash has a list of all sessions that may have
 * lost accepted changes. It awaits each until the session has reported that it has repeated its
 * requests in flight. When the server stops waiting for a session, the session is late: its row
 * records that until the session has reported or ended, also over further restarts.
 *
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_WRITER_SESSIONS_H
#define LEAT_OSSD_CHUNK_WRITER_SESSIONS_H

#include "common/base/hmap.h"
#include "ossd/chunk/group_commit.h"

/* What the session may still have to repeat. */
enum writer_owes {
	OWES_NOTHING,
	OWES_UNSEEN, /* changes that were not accepted */
	OWES_SEEN,   /* also changes that were accepted */
};

enum writer_late {
	NOT_LATE,
	LATE,       /* since this start of the server */
	LATE_BEFORE /* since an earlier start */
};

struct writing_session {
	struct hmap_node node;
	uint64_t session;
	uint64_t group;        /* the group commit of its row; 0: loaded at the start */
	uint64_t last_us;      /* last change; 0: none since the start */
	uint32_t n_busy;       /* changes of the session in flight */
	enum writer_owes owes; /* not OWES_NOTHING: the session is awaited */
	enum writer_late late;
};

struct writer_sessions {
	struct hmap map;
	uint32_t n_awaited, n_late;
	uint32_t n_seen; /* awaited sessions that may have to repeat accepted changes */
};

void writer_sessions_init(struct writer_sessions *w);
void writer_sessions_fini(struct writer_sessions *w);
/* Loads a row of the index at the start: the session is awaited, or late. Returns 0,
 * -LE_CORRUPT_STORE or -LE_NOMEM. */
int writer_sessions_load(struct writer_sessions *w, const void *key, size_t key_len,
			 size_t value_len) CHECK_RESULT;
/* Makes the row of the session durable. Yields only if it is not durable yet. Returns 0, -LE_NOMEM
 * or -LE_IO. */
int writer_sessions_know(struct writer_sessions *w, struct group_commit *g,
			 uint64_t session) CHECK_RESULT;
/* Call before a change of the session, and writer_sessions_end after it unless this fails. Makes
 * the session's row durable like writer_sessions_know. */
int writer_sessions_begin(struct writer_sessions *w, struct group_commit *g, uint64_t session,
		  struct writing_session **ret_session) CHECK_RESULT;
void writer_sessions_end(struct writing_session *s);
/* True if a session for which which() returns true has changes in flight. */
bool writer_sessions_any_busy(const struct writer_sessions *w,
			      bool (*which)(void *arg, uint64_t session), void *arg);
/* True if the server waits until the session has repeated its requests. */
bool writer_sessions_awaits(const struct writer_sessions *w, uint64_t session);
enum writer_late writer_sessions_late(const struct writer_sessions *w, uint64_t session);
/* True if accepted changes of the session may have been lost in a crash and not been repeated. */
bool writer_sessions_lost(const struct writer_sessions *w, uint64_t session);
/* The session has reported that it has at most `owes` left to repeat. Returns the group commit
 * after which it is durable that the session is not late; 0: it was not late. Does not yield. */
uint64_t writer_sessions_returned(struct writer_sessions *w, struct group_commit *g,
				  uint64_t session, enum writer_owes owes);
/* The previous process was closed in order: no session is awaited. */
void writer_sessions_all_returned(struct writer_sessions *w);
/* Makes all sessions late that are still awaited. Returns the group commit after which that is
 * durable. Does not yield. */
uint64_t writer_sessions_all_late(struct writer_sessions *w, struct group_commit *g);
/* Removes sessions that are not alive and have changed nothing since before_us: adds up to max
 * deletions to the batch, and returns their number. */
uint32_t writer_sessions_expire(struct writer_sessions *w, struct kv_batch *b, uint64_t before_us,
				uint32_t max, bool (*alive)(void *arg, uint64_t session),
				void *arg);

#endif
