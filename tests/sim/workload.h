/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that do random things, each in a directory of its own plus some in shared files, and know
 * exactly what must come out. What a client crash leaves open (the operation under way, data
 * not yet synced) is adopted as found; everything else must match to the byte.
 */
#ifndef LEAT_TESTS_SIM_WORKLOAD_H
#define LEAT_TESTS_SIM_WORKLOAD_H

#include "tests/sim/cluster.h"

struct workload;

struct workload *workload_create(struct cluster *c);
/* As cluster.client_main: runs the operations of client index; the last client verifies. */
void workload_client(struct cluster *c, uint32_t index, struct client *client);
/* All working clients have done their operations. */
bool workload_done(void *arg);
/* The verifying client has compared everything, removed everything and seen the space come back. */
bool workload_verified(void *arg);
extern struct workload *workload_now; /* of this process: one run per process */

#endif
