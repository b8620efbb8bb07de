/*
 * Building chains of the classes 2 and 3: which targets become members of one chain.
 *
 * Members of a chain are of different hosts, and of different racks where that can be had. In a
 * small cluster every target leads one chain with every other; in a large one chains_per_target of
 * them, with partners chosen so that all pairs are about equally frequent: what a lost target
 * served is spread over all its peers. A class is built when it is first asked for and grows with
 * each target that registers; chains that exist keep their number and place for ever.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CHAIN_TABLE_H
#define LEAT_MDS_CHAIN_TABLE_H

#include "mds/cluster.h"

/* The class exists when this returns 0. -LE_NODEV: there are not that many hosts. Yields. */
int chain_table_want(struct cluster *c, uint32_t replicas) CHECK_RESULT;
/* More chains in the classes that exist, for targets that have few. Under c->lock. Yields. */
int chain_table_grow(struct cluster *c) CHECK_RESULT;
/* May new members be put there? */
bool target_usable(const struct target *t);
/* May a and b be members of one chain? */
bool targets_apart(const struct target *a, const struct target *b);

#endif
