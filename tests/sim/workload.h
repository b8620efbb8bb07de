/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that do random things, each in a directory of its own, and some in shared files, and
 * predict every result exactly. What a client crash leaves undefined (the operation in flight, data
 * not yet synced) is adopted as found; everything else must match to the byte.
 */
#ifndef LEAT_TESTS_SIM_WORKLOAD_H
#define LEAT_TESTS_SIM_WORKLOAD_H

#include "tests/sim/cluster.h"

struct workload;

struct workload *workload_create(struct cluster *c);
/* Like cluster.client_main: runs the operations of client index; the last client verifies. */
void workload_client(struct cluster *c, uint32_t index, struct client *client);
/* Returns true when all working clients have done their operations. */
bool workload_done(void *arg);
/* Returns true when the verifying client has compared everything, removed everything, and checked
 * that the space was freed. */
bool workload_verified(void *arg);
extern struct workload *workload_now; /* of this process: one run per process */

#endif
