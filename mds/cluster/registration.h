/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registration and heartbeats of targets. A target registers after a start and whenever it connects
 * again. Its heartbeats are answered with its lease and the changes of its chains.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CLUSTER_REGISTRATION_H
#define LEAT_MDS_CLUSTER_REGISTRATION_H

#include "mds/cluster/cluster.h"

/* Registers a target. Returns 0; -LE_WRONG_CLUSTER; -LE_STORE_OLD; -LE_OVERLOAD (targets_max);
 * -LE_REMOVED; -LE_LEAVING; -LE_INVAL; -LE_NOT_READY while its state in its chains is not decided;
 * or the error of the store. Yields. */
int target_register(struct cluster *c, const struct mds_target_register_req *in,
		    struct mds_target_register_rep *out) CHECK_RESULT;
/* Handles a heartbeat. Returns 0; -LE_NO_TARGET if the target has to register first; or the error
 * of the store. Yields if the target was down. */
int target_heartbeat(struct cluster *c, const struct mds_target_heartbeat_req *in,
		     struct mds_target_heartbeat_rep *out) CHECK_RESULT;
/* Waits until no request of a session outside the session list `gen` can take effect on any target.
 * Yields. */
void targets_await_fence(struct cluster *c, uint64_t gen);
/* Waits until each target that is up refuses reads of sessions outside the session list `gen`, even
 * while it is cut off; at most the time needed to find a target down. ids (an array of
 * targets_max), *ret_n: the targets for which this is not certain. A target that is down and has
 * not confirmed the list may serve such reads, unless its process has ended. Returns 0 or
 * -LE_NOMEM. Yields. */
int targets_await_reads(struct cluster *c, uint64_t gen, uint32_t *ids,
			uint32_t *ret_n) CHECK_RESULT;
/* Notes after which silence the target refuses reads. said_ms: the limit that it reports, 0: none;
 * ordered_ms: the limit that this reply sets, 0: none. Does not yield. */
void target_goes_by(struct cluster *c, uint32_t target, uint32_t said_ms, uint32_t ordered_ms);

#endif
