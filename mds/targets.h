/*
 * What targets say of themselves: they register, after a start and whenever they connect again, and
 * send heartbeats, for which they get their lease and news of their chains.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_TARGETS_H
#define LEAT_MDS_TARGETS_H

#include "mds/cluster.h"

/* -LE_WRONG_CLUSTER, -LE_STORE_OLD, -LE_OVERLOAD (targets_max), -LE_INVAL; -LE_NOT_READY: it is not
 * decided yet what it is in its chains. Yields. */
int target_register(struct cluster *c, const struct mds_target_register_req *in,
		    struct mds_target_register_rep *out) CHECK_RESULT;
/* -LE_NO_TARGET: not known, register first. Yields when the target was down. */
int target_heartbeat(struct cluster *c, const struct mds_target_heartbeat_req *in,
		     struct mds_target_heartbeat_rep *out) CHECK_RESULT;
/* Until nothing comes into effect any more of sessions that are not in that set. Yields. */
void targets_await_fence(struct cluster *c, uint64_t gen);

#endif
