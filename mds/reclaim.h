/*
 * Space comes back: the queue of removed data ('Q' rows) is worked off by one fiber, which sends
 * batched oss_remove to every chain of each file's layout and deletes a row when all have
 * answered. Rows one of whose chains is down stay, and are tried again for ever.
 */
#ifndef LEAT_MDS_RECLAIM_H
#define LEAT_MDS_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rt/fiber.h"

struct mds;

struct reclaim {
	struct waitq work;
	bool kicked, passing;
	uint64_t from;      /* rows before this one are gone: spares the scan their tombstones */
	uint64_t n_waiting; /* rows of the last pass that stayed */
};

void reclaim_init(struct reclaim *r);
/* The fiber's body. */
void reclaim_run(struct mds *m);
/* Rows were added. */
void reclaim_kick(struct mds *m);
/* 0: nothing is queued. Otherwise as many as are known to wait, while they are looked at: one at
 * least. */
uint64_t reclaim_waiting(const struct reclaim *r);

#endif
