/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that all clients read, write, make shorter and longer at once, with every begin and end
 * recorded, so that linear.h can say whether it was possible: no zeros where at no moment of a read
 * there were any, nothing that was cut off, no end that never was. Direct and through what a client
 * buffers and fetches ahead; opened and closed again and again, so that leases come and go.
 */
#ifndef LEAT_TESTS_SIM_CUTS_H
#define LEAT_TESTS_SIM_CUTS_H

#include "tests/sim/cluster.h"

struct cuts;

struct cuts *cuts_create(struct cluster *c);
/* A client process has begun: what its predecessor had open is gone. In its first fiber. */
void cuts_client_start(struct cuts *s, uint32_t index, struct client *client);
/* A few operations at once. */
void cuts_use(struct cuts *s, uint32_t index);
/* Nothing but these, by several fibers of each client, on one file. Until *left is 0. */
void cuts_contend(struct cuts *s, uint32_t index, uint32_t *left);
/* Closes what is open. */
void cuts_client_end(struct cuts *s, uint32_t index);
/* By the last client: looks at everything once more, checks the histories, removes all. */
void cuts_verify(struct cuts *s, uint32_t index);

#endif
