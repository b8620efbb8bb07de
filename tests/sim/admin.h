/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An administrator in the simulated cluster, while faults are on: drains targets and takes that
 * back, and asks for a rebalance. So members of chains move, in all states of everything else.
 */
#ifndef LEAT_TESTS_SIM_ADMIN_H
#define LEAT_TESTS_SIM_ADMIN_H

#include "tests/sim/cluster.h"

/* Starts its process. It ends soon after c->faults_on: then no target is drained any more, and
 * c->admin_done is set. */
void admin_start(struct cluster *c);

#endif
