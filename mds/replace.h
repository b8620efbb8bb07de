/*
 * Members that move: away from targets that are absent for long, are drained or not to be trusted;
 * and, when somebody asks for it, from full targets to empty ones. A new member is filled before an
 * old one goes, so there are never fewer copies; every step is a state of the chain that is on
 * record, so nothing has to be remembered: whoever starts anew goes on.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_REPLACE_H
#define LEAT_MDS_REPLACE_H

#include "mds/cluster.h"

/* One step for every chain that needs one, at most replace_parallel with a new member at a time.
 * Yields. */
int replace_pass(struct cluster *c) CHECK_RESULT;
/* `leat target`: -LE_NO_TARGET, -LE_BUSY (remove: it is still a member), -LE_NODEV and
 * -LE_NOSPC (drain: the others cannot take what it holds), -LE_INVAL. Yields. */
int target_admin(struct cluster *c, const struct mds_target_admin_req *in,
		 struct mds_target_admin_rep *out) CHECK_RESULT;
bool rebalance_is_on(const struct cluster *c);
/* In how many chains it is. */
uint32_t target_chains(const struct cluster *c, uint32_t target);

#endif
