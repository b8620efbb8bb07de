/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notice to clients that wait for a file lock: cb_unlocked says that no lock was in the way,
 * so the client requests the lock again. A client that does not get the notice polls.
 */
#ifndef LEAT_MDS_SESSION_LOCK_NOTIFY_H
#define LEAT_MDS_SESSION_LOCK_NOTIFY_H

struct mds;

/* The body of the background fiber that sends the notices which lease/locks.h has queued. Returns
 * when the server stops. Yields. */
void locks_notify(struct mds *m);

#endif
