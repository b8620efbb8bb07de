/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of new files: the layout of a new inode, from the default of its directory and the
 * state of the cluster. Owned by the loop. */
#ifndef LEAT_MDS_CLUSTER_PLACEMENT_H
#define LEAT_MDS_CLUSTER_PLACEMENT_H

#include "mds/cluster/cluster.h"
#include "mds/params.h"

/* Chooses the layout of a new inode. dir: the default of its directory. Returns 0; -LE_NOT_READY
 * while there are no chains that new files may use; -LE_FEW_HOSTS while there are targets, but no
 * chains of that many copies. Does not yield, allocates nothing. */
int placement_choose(struct cluster *c, const struct mds_params *p, const struct layout *dir,
		     struct ino ino, struct layout *ret_layout) CHECK_RESULT;
/* Checks a layout that a user requests, in which zero members mean the default. Returns 0 or
 * -LE_INVAL. Does not yield. */
int placement_check(const struct layout *l) CHECK_RESULT;

#endif
