/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the disks of the object servers when the cluster is at rest. Of a chain whose members
 * are all in sync, every member has the same chunks, each with the same version, content sum and
 * time, and the same replies to the metadata server.
 */
#ifndef LEAT_TESTS_SIM_STORES_H
#define LEAT_TESTS_SIM_STORES_H

#include "common/rt/env.h"
#include "tests/sim/cluster.h"

struct stores;

struct stores *stores_create(struct cluster *c);
void stores_destroy(struct stores *s);
/* While the metadata server runs: records the members of each chain, if all are in sync. */
void stores_note_chains(struct stores *s);
/* In a fiber of the node, whose server is down: reads its index. Returns 0 or a status. */
int stores_read(struct stores *s, uint32_t node, struct env *env) CHECK_RESULT;
/* Fails the run where members differ. */
void stores_compare(struct stores *s);

#endif
