/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node hands a chunk on to which. The node that reads it from the source gives it to the
 * first SPREAD_FAN nodes that request it. A later one is referred to a node that has the chunk
 * or is getting it; SPREAD_FAN nodes are referred to each. So a chunk travels down a tree that
 * grows with the requests: no node sends it to more than SPREAD_FAN, quick nodes are near the
 * root, and the depth is the logarithm of the number of nodes. Waiting cannot form a circle:
 * each node waits for one that requested earlier. Owned by one loop.
 */
#ifndef LEAT_CLIENT_STAGE_FETCH_SPREAD_H
#define LEAT_CLIENT_STAGE_FETCH_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define SPREAD_FAN  2u
#define SPREAD_SELF UINT32_MAX

struct spread;

/* -LE_NOMEM. Nothing here yields. */
int spread_create(struct spread **ret_spread) CHECK_RESULT;
void spread_destroy(struct spread *s); /* NULL is fine */
/* Handles a request of node `who` (any number but SPREAD_SELF) for the chunk. Returns the node
 * to request it from: SPREAD_SELF for this one, also for a request that the node repeats. usable:
 * returns whether nodes can be referred to a node now. */
uint32_t spread_refer(struct spread *s, uint64_t chunk, uint32_t who,
		      bool (*usable)(void *arg, uint32_t who), void *arg);

#endif
