/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation at the metadata server, repeated until it has an answer. Owned by the client's
 * loop.
 */
#ifndef LEAT_CLIENT_SERVERS_MDS_CALL_H
#define LEAT_CLIENT_SERVERS_MDS_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct client;
struct rpc_call;

/*
 * Executes one operation at the MDS, within client_deadline. rep is zeroed first. Its bytes fields
 * point into call, for which the caller calls rpc_call_fini, after an error too. A mutation takes a
 * (slot, seq) of the session. Returns the reply's status; -LE_IO if there was no answer in time, or
 * if the session was lost and the outcome of a mutation is unknown; -LE_INTR. Yields.
 */
int mds_call(struct client *c, uint16_t op, const void *req, void *rep,
	     struct rpc_call *call) CHECK_RESULT;
/* Like mds_call, but an interrupt is deferred until the reply has arrived. For requests that change
 * a count at the MDS (open, close). Yields. */
int mds_call_uninterruptible(struct client *c, uint16_t op, const void *req, void *rep,
			     struct rpc_call *call) CHECK_RESULT;
/* Like mds_call, but repeats the request as long as the session and the client exist. For requests
 * that end something that the MDS counts, sent by a background fiber. *n_late is incremented while
 * the request exceeds the usual time limit. Yields. */
int mds_call_lasting(struct client *c, uint16_t op, const void *req, void *rep,
		     struct rpc_call *call, uint32_t *n_late) CHECK_RESULT;
/* Like mds_call_uninterruptible, but uses a reserved request slot. For calls that a recall handler
 * depends on. Returns 0 without an answer as soon as *done is true: the set-up of a new session has
 * then done the work of the request. Yields. */
int mds_call_priority(struct client *c, uint16_t op, const void *req, void *rep,
		      struct rpc_call *call, const bool *done) CHECK_RESULT;

#endif
