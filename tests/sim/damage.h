/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks that damage what they hold, one at a time: when every chain is whole and nothing is cut,
 * one object server goes down, and before it is started again blocks of its data file have flipped
 * bits and records of its index are spoilt. Until a
 * scrub of that server, from the first chunk on, has found nothing any more, only this server, the
 * metadata server and clients meet other faults: what is good elsewhere is the only good copy.
 *
 * At the end, when nobody writes: whole chunks vanish from one server's index, and every server is
 * scrubbed, with crashes of this one and the metadata server in between, until nobody finds a
 * difference.
 */
#ifndef LEAT_TESTS_SIM_DAMAGE_H
#define LEAT_TESTS_SIM_DAMAGE_H

#include "tests/sim/cluster.h"

struct damage;

/* A process of its own that orders scrubs. NULL, with the run failed, without memory. */
struct damage *damage_start(struct cluster *c);
/* When a fault is drawn. True: that was it, or no other one may come now. */
bool damage_draw(struct damage *d);
/* It has begun, or wants to: faults come faster, and no other server is to crash. */
bool damage_waits(const struct damage *d);
/* Heals what is left: true when everything has been scrubbed. For cluster_run. */
bool damage_over(void *arg);
/* Chunks vanish, scrubs bring them back, servers crash meanwhile. Every chain is whole. */
void damage_lose_chunks(struct damage *d);

#endif
