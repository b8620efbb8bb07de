/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all clients do to the same files and names at once, with every begin and end recorded, so
 * that linear.h can say whether it was possible: reads and writes of cells in shared files, direct
 * and several at a time; names created, removed, renamed, linked and looked up; one attribute.
 *
 * All values ever written are different. Nothing here assumes who wins.
 */
#ifndef LEAT_TESTS_SIM_SHARED_H
#define LEAT_TESTS_SIM_SHARED_H

#include "tests/sim/cluster.h"

struct shared;

struct shared *shared_create(struct cluster *c);
/* A client process has begun: what its predecessor had open is gone. In its first fiber. */
void shared_client_start(struct shared *s, uint32_t index, struct client *client);
/* One operation or a few at once. */
void shared_data(struct shared *s, uint32_t index);
void shared_names(struct shared *s, uint32_t index);
/* Contended seeds: nothing but reads and writes of four cells, two in each of two chunks, by
 * several fibers of each client, so that whatever goes wrong meets somebody. Until *left is 0. */
void shared_contend(struct shared *s, uint32_t index, uint32_t *left);
/* The same through caches, with an fsync now and then: what was written since the last one may be
 * lost with a server, but only together with an error of the next one. */
void shared_contend_late(struct shared *s, uint32_t index, uint32_t *left);
/* The same with names: all clients create, remove, rename, link and look up four names. */
void shared_contend_names(struct shared *s, uint32_t index, uint32_t *left);
/* Closes what is open. */
void shared_client_end(struct shared *s, uint32_t index);
/* By the last client: looks at everything once more, checks the histories, removes all. */
void shared_verify(struct shared *s, uint32_t index);

#endif
