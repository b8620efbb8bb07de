/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callbacks to a session that holds something another client needs: a lease or a lock. Shared by
 * recall, owner_notify and assumed_open.
 *
 * A session is *late* when its client has not contacted the server for a lease term, and
 * *silent* when it was late and did not answer a callback either. Lateness alone proves nothing,
 * because it may be this process that was paused. Owned by the loop.
 */
#ifndef LEAT_MDS_LEASE_HOLDER_H
#define LEAT_MDS_LEASE_HOLDER_H

#include "mds/mds.h"

#define HOLDER_ASK_MS   1000u /* deadline of one callback */
#define HOLDER_AGAIN_MS 20u   /* from one callback to the next */
#define HOLDER_PARALLEL 64u   /* callbacks sent concurrently */
#define HOLDERS_MAX     256u  /* holders collected for one round of callbacks */

/* A session and the inode of the callback. The argument of fibers that send callbacks. */
struct holder {
	struct mds *m;
	struct session *session;
	struct ino ino;
	uint8_t modes;   /* of the lease, to be recalled: LEASE_CACHING or LEASE_APPEND */
	uint64_t change; /* LEASE_APPEND: the newest change counter that reservations may have */
	int status; /* out: why the fiber stopped before it had an answer; 0 otherwise */
};

/* Sends one callback to the client of the session and waits for the reply. Returns 0, the error of
 * the client, -LE_DISCONNECTED, -LE_OVERLOAD if too many callbacks to the session are in flight, or
 * -LE_TIMEDOUT after HOLDER_ASK_MS. Yields. */
int holder_call(struct session *se, uint16_t op, const void *req, void *rep) CHECK_RESULT;
/* Sends cb_recall: 0 when the client has given these modes back and, for LEASE_CACHING, reported
 * its opens. Errors as holder_call. Yields. */
int holder_recall(const struct holder *a) CHECK_RESULT;
/* True if the client of the session has not contacted the server for a lease term. */
bool holder_is_late(const struct mds *m, const struct session *se);
/* True if the session is late and is marked as silent since its last contact. tries: callbacks
 * without an answer so far; the third one marks a late session as silent. */
bool holder_is_silent(const struct holder *a, uint32_t tries);
/* Evicts the session in the background, because its client does not release what it holds. The
 * caller polls for what it waits for, and need not wait for the end of the eviction. Does
 * nothing if a fiber is ending the session already, or without memory. Does not yield. */
void holder_end_session(const struct holder *a);

#endif
