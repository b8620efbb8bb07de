/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Determines which sessions may still read or change chunks. The rights of a session end with it:
 * its requests are refused on every connection. It may have had exclusive use of a file that
 * another session has now, so none of its changes may be in flight either. The metadata server
 * sends the set of live sessions. It grants the rights of an ended session to others only after
 * every target has confirmed that it refuses the session and has no change of it in flight.
 *
 * For a target that does not reply, the metadata server waits fence_ms. Therefore a target that
 * has had no reply from the metadata server for fence_ms accepts no changes. Reads by sessions
 * that were live then continue, so that clients can read while the metadata server is down. But if
 * some network has restricted rights (read_ms is set), reads stop after read_ms: the session may
 * have ended because its rights were withdrawn.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_OPS_FENCE_H
#define LEAT_OSSD_OPS_FENCE_H

#include "ossd/chunk/writer_sessions.h"

struct fence {
	struct env *env;
	const struct writer_sessions *writers;
	bool open;       /* admit every session; for tests without a metadata server */
	uint64_t *live;  /* sorted; from malloc */
	size_t n;
	uint64_t newest; /* highest session number when the set was made */
	uint64_t gen;
	uint64_t contact_us; /* send time of the newest request that the metadata server has
	                    * answered */
	uint32_t fence_ms, read_ms; /* as sent with that reply */
};

void fence_init(struct fence *f, struct env *env, const struct writer_sessions *w);
void fence_fini(struct fence *f);
/* Sets the live sessions: `live`, and all above `newest`. Ignored if gen is older than the present
 * set, as replies may overtake each other. Takes over live. */
void fence_set(struct fence *f, uint64_t gen, uint64_t *live, size_t n, uint64_t newest);
/* Call when the metadata server has answered the request sent at sent_us, and the present set of
 * sessions is its newest. Ignored if a later request was answered before. */
void fence_update(struct fence *f, uint64_t sent_us, uint32_t fence_ms, uint32_t read_ms);
/* Sets read_ms, before the set of live sessions has arrived. */
void fence_reads_for(struct fence *f, uint32_t read_ms);
/* True if the session is live according to the present set. */
bool fence_has_session(const struct fence *f, uint64_t session);
/* Admits a request of any kind. Returns 0, -LE_SESSION_GONE (the session has ended) or
 * -LE_NO_LEASE. Does not yield. */
int fence_admit_any(const struct fence *f, uint64_t session) CHECK_RESULT;
/* Admits a request that changes data. Returns 0, -LE_SESSION_GONE or -LE_NO_LEASE. Does not
 * yield. */
int fence_admit(const struct fence *f, uint64_t session) CHECK_RESULT;
/* Returns the generation of the present set; 0: a change of an ended session is still in flight. */
uint64_t fence_applied(const struct fence *f);

#endif
