/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freeing the space of removed data. Removed data is queued in the store ('Q' rows). One fiber
 * sends batches of oss_remove to all chains of each layout, and deletes a row when all of its
 * chains have answered. If a chain is down the row stays and is tried again until the chain
 * answers. Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_SPACE_RECLAIM_H
#define LEAT_MDS_FILE_SPACE_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rt/fiber.h"

struct mds;

struct reclaim {
	struct waitq work;
	bool kicked, passing;
	uint64_t from;      /* rows before this one are deleted; scans begin here */
	uint64_t n_waiting; /* rows that the last pass did not delete */
};

/* Makes an empty state, in which the fiber begins with a pass. Does not yield. */
void space_reclaim_init(struct reclaim *r);
/* The body of the background fiber. Returns when the server stops. Yields. */
void space_reclaim_run(struct mds *m);
/* Wakes the fiber: rows were added. Does not yield. */
void space_reclaim_kick(struct mds *m);
/* The number of rows that the last pass left; at least 1 while a pass is due or in progress. 0:
 * the queue is empty. Does not yield. */
uint64_t space_reclaim_waiting(const struct reclaim *r);

#endif
