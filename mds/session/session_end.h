/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a session: closed by its client, expired, or evicted because its client did not
 * release what another client needs. Owned by the loop.
 */
#ifndef LEAT_MDS_SESSION_SESSION_END_H
#define LEAT_MDS_SESSION_SESSION_END_H

#include "common/base/status.h"

struct mds;
struct session;

/*
 * Ends the session: removes it and its replay rows durably, and drops its locks, leases and
 * opens. If the session may have writers and its client has not closed it, the locks, leases and
 * opens are dropped only after the object servers refuse its requests. Calls hooks.inode_idle
 * for each inode that was open, and hooks.session_back if it was the last session from before a
 * restart. Ignores the deadline of the calling fiber. If another fiber is ending the session,
 * returns without waiting for the rest.
 *
 * Returns 0, -LE_SHUTDOWN when the server stops, or the error of the store. Yields.
 */
int session_end(struct mds *m, struct session *se) CHECK_RESULT;

#endif
