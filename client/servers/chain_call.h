/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operation at a replication chain: selects the member, and repeats the request until it has an
 * answer. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_SERVERS_CHAIN_CALL_H
#define LEAT_CLIENT_SERVERS_CHAIN_CALL_H

#include <stdint.h>

#include "common/base/status.h"

struct client;
struct layout;
struct replica_route;
struct rpc_call;

/*
 * Executes one operation at a member of the chain of chunk idx of the layout. Yields.
 *
 * replica_route (replica_select.h) records which members were tried. The caller zeroes it, or
 * passes that of an earlier call for the same chunk. The caller fills in op, req, rep and bulk of
 * call, and calls rpc_call_fini afterwards. A mutation keeps its (slot, seq) of the chain, even if
 * another member answers. If an accepted mutation has to be repeated, call->accepted runs again
 * with ret_accepted false.
 *
 * Returns the status of the reply, or:
 *   -LE_BAD_CAP, -LE_CAP_EXPIRED  the capability must be renewed, and replica_route has no hook
 *   -LE_SESSION_GONE              the call's session has ended
 *   -LE_CORRUPT                   every member's replica of the data is damaged
 *   -LE_GIVEN_UP                  the administrator has declared the chain's data lost
 *   -LE_IO                        no answer in time; -LE_INTR: the fiber was interrupted
 */
int oss_call(struct client *c, const struct layout *l, uint64_t idx, struct rpc_call *call,
	     struct replica_route *replica_route) CHECK_RESULT;

#endif
