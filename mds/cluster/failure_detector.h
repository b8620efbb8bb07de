/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks targets down. A target is dead immediately if its connection has ended and nothing listens
 * at its addresses; otherwise when it has been silent for its lease and a margin. While this server
 * starts, or after it was paused, silence does not count: it could not receive heartbeats.
 *
 * Owned by the loop: one fiber.
 */
#ifndef LEAT_MDS_CLUSTER_FAILURE_DETECTOR_H
#define LEAT_MDS_CLUSTER_FAILURE_DETECTOR_H

#include "mds/cluster/cluster.h"

/* The body of the detector's fiber. Returns soon after c->stopping is set. Yields. */
void failure_detector_run(struct cluster *c);
/* Wakes the fiber, because a target may have died or returned. Does not yield. */
void failure_detector_kick(struct cluster *c);
/* Notes that the connection `peer` has ended. Does not yield. */
void failure_detector_peer_gone(struct cluster *c, uint64_t peer);
/* Checks all targets once, then reconciles and rebalances their chains. due_us: when the poll was
 * due; if it is late, this server was paused. Yields. */
void failure_detector_poll(struct cluster *c, uint64_t due_us);

#endif
