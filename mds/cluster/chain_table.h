/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building chains of the classes 2 and 3: which targets become members of one chain.
 *
 * The members of a chain are on different hosts, and in different racks where possible. In a small
 * cluster each target leads one chain with each other target. In a large one it leads
 * chains_per_target chains, with partners chosen so that all pairs are about equally frequent: the
 * load of a lost target spreads over all its peers. A class is built when it is first needed, or
 * when there are enough hosts for it and the root directory gives new files that many copies
 * (`leat-mds format` can set that before there is a target). It grows with each target that
 * registers, returns, or is put into use again. Existing chains keep their number and their place
 * in the table for ever.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CLUSTER_CHAIN_TABLE_H
#define LEAT_MDS_CLUSTER_CHAIN_TABLE_H

#include "mds/cluster/cluster.h"

/* Builds the class if it does not exist. Returns 0, -LE_NODEV (too few hosts), -LE_NOT_READY (class
 * 1: no target has registered), -LE_INVAL, -LE_NOMEM or the error of the store. Yields. */
int chain_table_want(struct cluster *c, uint32_t replicas) CHECK_RESULT;
/* Reads the number of copies that the root directory gives to new files; 1 if it sets none. Returns
 * 0 or the error of the store. Yields if the record has to be loaded. */
int chain_table_root(struct cluster *c, uint32_t *ret_replicas) CHECK_RESULT;
/* Adds chains for targets that lead too few, in the existing classes and in that of the root
 * directory. The caller holds c->lock. Returns 0, -LE_NOMEM or the error of the store. Yields. */
int chain_table_grow(struct cluster *c) CHECK_RESULT;
/* Like chain_table_grow, but only logs a failure: for a target that is in use in any case. */
void chain_table_try_grow(struct cluster *c);
/* True if the target may become a member of further chains. Does not yield. */
bool target_usable(const struct target *t);
/* True if a and b may be members of one chain: they differ and are on different hosts. */
bool targets_apart(const struct target *a, const struct target *b);

#endif
