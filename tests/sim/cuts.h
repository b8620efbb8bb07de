/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that all clients read, write, truncate and extend concurrently. The begin and end of each
 * operation is recorded, and linear.h checks that the history was possible: no zeros unless the
 * file had them at some moment of the read, no truncated data, no end of file that the file never
 * had. Clients read and write directly, and through coalescing and prefetch; they open and close
 * again and again, so that leases change hands.
 */
#ifndef LEAT_TESTS_SIM_CUTS_H
#define LEAT_TESTS_SIM_CUTS_H

#include "tests/sim/cluster.h"

struct cuts;

struct cuts *cuts_create(struct cluster *c);
/* Begins a client process: forgets what its predecessor had open. Called in its first fiber. */
void cuts_client_start(struct cuts *s, uint32_t index, struct client *client);
/* Runs a few operations concurrently. */
void cuts_use(struct cuts *s, uint32_t index);
/* Runs only these operations, by several fibers of each client, on one file, until *left is 0. */
void cuts_contend(struct cuts *s, uint32_t index, uint32_t *left);
/* Closes the open files. */
void cuts_client_end(struct cuts *s, uint32_t index);
/* Called by the last client: reads everything once more, checks the histories, removes all
 * files. */
void cuts_verify(struct cuts *s, uint32_t index);

#endif
