/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An administrator in the simulated cluster, while faults are on: drains targets, cancels drains,
 * and orders rebalances. So members of chains move while the rest of the cluster is in any state.
 */
#ifndef LEAT_TESTS_SIM_ADMIN_H
#define LEAT_TESTS_SIM_ADMIN_H

#include "tests/sim/cluster.h"

/* Starts the administrator's process. The process ends soon after faults_on is cleared: then no
 * target is drained, and c->admin_done is set. */
void admin_start(struct cluster *c);

#endif
