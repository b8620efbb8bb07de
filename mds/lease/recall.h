/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recalls of leases. A lease is recalled before something changes that its client may have
 * cached; a write lease also before another client reads. A critical section declares what it
 * changes or reads (lease_check.h). If other sessions have leases on that, the section is left,
 * the leases are recalled, and the section is run again while no new lease is given.
 *
 * A holder answers when neither the client nor its kernel caches the inode any longer and, for a
 * write lease, when every client can read all that it wrote. For LEASE_APPEND it answers when it
 * writes to none of its reservations. The leases of a holder that is silent for client_lease_ms
 * have expired at its client, so a read lease needs no answer then. If it is a write lease or
 * LEASE_APPEND, or the holder has a lock that another client requests, the server evicts its
 * session, and the object servers refuse what it still sends. A holder that is in
 * contact but does not answer is evicted once requests have waited for its lease for
 * session_ttl_ms in total. The total starts again after session_ttl_ms without such a request.
 *
 * Under a lease a client opens files for reading without a request. When the lease is recalled,
 * the client first reports which files it has open (client/ops/delegated_open.h). The server
 * assumes that a silent client has the file open (assumed_open.h).
 *
 * A request may wait for a recall, because a client answers a recall without waiting for
 * requests of its own (client/ops/recall.h).
 */
#ifndef LEAT_MDS_LEASE_RECALL_H
#define LEAT_MDS_LEASE_RECALL_H

#include "mds/op.h"

/* Recalls the leases of op->recall, those for which the section returned -LE_LEASED, and blocks new
 * caching leases on the inodes until op_unblock. After a restart ends the sessions that have not
 * returned and may have such a lease. Returns 0, -LE_OVERLOAD, -LE_NOMEM, -LE_SHUTDOWN, or
 * -LE_TIMEDOUT at the deadline of the request. Yields. */
int op_recall(struct op *op) CHECK_RESULT;
/* Allows new leases again on the inodes that op_recall has blocked. Does not yield. */
void op_unblock(struct op *op);
/* Called when a session that has not returned after a restart may have what the request needs.
 * Does nothing until the leases from before the restart have expired; then like
 * recall_end_missing. Yields. */
int recall_missing(const struct op *op) CHECK_RESULT;
/* After a restart: ends the sessions that have not returned and are not about to, as soon as
 * clients have had a lease term to return in. The server does not have a record of which of them
 * has what is needed. Sleeps HOLDER_AGAIN_MS if there is none to end; the caller calls this in a
 * loop. Returns 0, -LE_SHUTDOWN, -LE_TIMEDOUT, or the error of session_end. Yields. */
int recall_end_missing(const struct op *op) CHECK_RESULT;
/* Called when the session has a lock on the file that another client requests. If the session is
 * late, a background fiber probes its client, and evicts the session if there is no answer. Does
 * not yield. */
void recall_silent(struct mds *m, struct session *se, struct ino ino);

#endif
