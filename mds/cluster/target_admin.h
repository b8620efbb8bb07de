/* SPDX-License-Identifier: Apache-2.0 */
/* `leat target`: drain, remove, add, recover and rebalance. Owned by the loop. */
#ifndef LEAT_MDS_CLUSTER_TARGET_ADMIN_H
#define LEAT_MDS_CLUSTER_TARGET_ADMIN_H

#include "mds/cluster/cluster.h"

/*
 * Executes the request. Sets out->left to the number of chains that the target is still a member
 * of, or (rebalance) to the number of memberships still to move. Returns 0 or
 *   -LE_NO_TARGET  there is no such target, or it was removed
 *   -LE_LEAVING    it is being given up
 *   -LE_REMOVED    it was given up
 *   -LE_BUSY       remove: it is still a member of a chain
 *   -LE_NODEV      drain: the other targets are on too few hosts
 *   -LE_NOSPC      drain: the other targets have too little space for what it holds
 *   -LE_EXIST      recover: it was not given up
 *   -LE_STALE      recover: it holds bytes that were truncated meanwhile
 *   -LE_INVAL      an unknown request
 * or the error of the store. Yields.
 */
int target_admin(struct cluster *c, const struct mds_target_admin_req *in,
		 struct mds_target_admin_rep *out) CHECK_RESULT;

#endif
