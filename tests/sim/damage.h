/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks that damage their data, one at a time. When every chain is whole and no connection is cut,
 * one object server stops, and before it restarts, bits of blocks in its data file are flipped and
 * records of its index are spoilt. Until a scrub of that server, from the first chunk on, has found
 * nothing, only this server, the metadata server and clients have other faults: the good replica
 * elsewhere is the only one.
 *
 * At the end, when no client writes, whole chunks vanish from one server's index, and every server
 * is scrubbed, with crashes of this server and the metadata server in between, until no scrub finds
 * a difference.
 */
#ifndef LEAT_TESTS_SIM_DAMAGE_H
#define LEAT_TESTS_SIM_DAMAGE_H

#include "tests/sim/cluster.h"

struct damage;

/* Starts a process that orders scrubs. Without memory the run fails; returns NULL then. */
struct damage *damage_start(struct cluster *c);
/* Called when a fault is drawn. Returns true if it was used here, or no other fault may start
 * now. */
bool damage_draw(struct damage *d);
/* A window of damage is open or wanted: faults come faster, and no other server is to crash. */
bool damage_waits(const struct damage *d);
/* Repairs what is left. Returns true when everything has been scrubbed. For cluster_run. */
bool damage_over(void *arg);
/* Removes chunks, and lets scrubs restore them while servers crash. Every chain must be whole. */
void damage_lose_chunks(struct damage *d);

#endif
