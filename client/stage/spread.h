/*
 * Who hands a chunk on to whom. The node that reads it from the source gives it to the first
 * SPREAD_FAN that ask; who asks later is sent to one of those who have it or are getting it, and
 * each of these is sent as many. So every chunk goes down a tree that grows as the askers come:
 * none gives it to more than a few, the quick are near the root, and the way is as long as the
 * logarithm of the nodes. Nobody waits in a circle: each waits for one who asked before. Owned by
 * one loop.
 */
#ifndef LEAT_STAGE_SPREAD_H
#define LEAT_STAGE_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define SPREAD_FAN  2u
#define SPREAD_SELF UINT32_MAX

struct spread;

int spread_create(struct spread **ret_spread) CHECK_RESULT;
void spread_destroy(struct spread *s); /* NULL is fine */
/* `who` (any number but SPREAD_SELF) asks for the chunk: who shall give it? usable: who can be sent
 * somebody now. SPREAD_SELF: the one asked. */
uint32_t spread_refer(struct spread *s, uint64_t chunk, uint32_t who,
		      bool (*usable)(void *arg, uint32_t who), void *arg);

#endif
