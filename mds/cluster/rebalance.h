/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving members of chains: away from targets that have long been absent, are drained or cannot
 * trust their store; and, on request, from full targets to empty ones. A new member is filled
 * before an old one leaves, so there are never fewer copies. Each step is a state of the chain
 * in the store, so a restarted server continues.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CLUSTER_REBALANCE_H
#define LEAT_MDS_CLUSTER_REBALANCE_H

#include "mds/cluster/membership.h"

/* Makes one step for each chain that needs one. At most replace_parallel chains have a new member
 * at a time. Returns 0, -LE_NOMEM or the error of the store. Yields. */
int rebalance_pass(struct cluster *c) CHECK_RESULT;
/* Adds moves that replace all members of these chains by other, empty ones. No target serves the
 * chains, and no file has data on them. Returns 0, -LE_NOMEM, or -LE_NODEV if there is no target
 * for one of them. The caller holds c->lock. Does not yield. */
int replace_all_members(struct moves *m, const uint32_t *chains, uint32_t n) CHECK_RESULT;
/* True if `leat target rebalance` was called in the last seconds. Does not yield. */
bool rebalance_is_on(const struct cluster *c);
/* The number of memberships still to move until the targets are even. Does not yield. */
uint32_t rebalance_left(struct cluster *c);
/* The number of chains, without lost ones, that the target is a member of. Does not yield. */
uint32_t target_chains(const struct cluster *c, uint32_t target);

#endif
