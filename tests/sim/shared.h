/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all clients do to common files and names concurrently. Every begin and end is recorded, so
 * that linear.h can check that the history was possible: reads and writes of cells in shared files,
 * direct and several at a time; names created, removed, renamed, linked and looked up; one
 * attribute.
 *
 * All values ever written are different. No check assumes which client wins.
 */
#ifndef LEAT_TESTS_SIM_SHARED_H
#define LEAT_TESTS_SIM_SHARED_H

#include "tests/sim/cluster.h"

struct shared;

struct shared *shared_create(struct cluster *c);
/* Begins a client process: forgets what its predecessor had open. Called in its first fiber. */
void shared_client_start(struct shared *s, uint32_t index, struct client *client);
/* Runs one operation or a few concurrently. */
void shared_data(struct shared *s, uint32_t index);
void shared_names(struct shared *s, uint32_t index);
/* Contended seeds: only reads and writes of four cells, two in each of two chunks, by several
 * fibers of each client, so that a wrong value is read by some client. Runs until *left is 0. */
void shared_contend(struct shared *s, uint32_t index, uint32_t *left);
/* Like shared_contend, through caches, with an fsync now and then: what was written since the last
 * fsync may be lost with a server, but only together with an error of the next one. */
void shared_contend_late(struct shared *s, uint32_t index, uint32_t *left);
/* Like shared_contend, with names: all clients create, remove, rename, link and look up four
 * names. */
void shared_contend_names(struct shared *s, uint32_t index, uint32_t *left);
/* Closes the open files. */
void shared_client_end(struct shared *s, uint32_t index);
/* Called by the last client: reads everything once more, checks the histories, removes all
 * files. */
void shared_verify(struct shared *s, uint32_t index);

#endif
