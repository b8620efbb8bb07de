/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets that are lost for good (`leat target remove --lost`): clients write, sync and read cells
 * of files in one, two and three replicas, while an administrator kills one or two object servers
 * and removes their targets, with and without accepting that data is lost. See README.md.
 */
#ifndef LEAT_TESTS_SIM_LOSE_H
#define LEAT_TESTS_SIM_LOSE_H

#include "tests/sim/cluster.h"

/* Runs a whole plan with `lose`: from the first client to the checks of the stores. */
void lose_run(struct cluster *c);

#endif
