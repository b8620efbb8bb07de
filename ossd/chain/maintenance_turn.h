/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits background work of a target (resync, scrub, removal): to a rate of bytes, and while
 * clients are served to one piece of work at a time and a share of the time. Owned by the target's
 * loop.
 */
#ifndef LEAT_OSSD_CHAIN_MAINTENANCE_TURN_H
#define LEAT_OSSD_CHAIN_MAINTENANCE_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/rate_limit.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "ossd/metrics.h"

struct maintenance_turns {
	struct env *env;
	struct ossd_metrics *metrics; /* client_requests shows whether clients are served */
	struct rate_limit rate;       /* bytes */
	uint32_t share;               /* percent of the time */
	uint64_t seen, seen_us; /* number of client requests; when it last changed */
	struct fmutex alone;
};

/* One piece of work, from begin to end. */
struct maintenance_turn {
	uint64_t begin_us;
	bool alone;
};

/* Initializes the limits. rate_mib_s 0: no limit. share: percent of the time while clients are
 * served; 0 counts as 1. */
void maintenance_turns_init(struct maintenance_turns *ts, struct env *env, struct ossd_metrics *m,
			    uint32_t rate_mib_s, uint32_t share);
/* Begins a piece of work. While clients are served it waits until no other piece runs. Yields. */
void maintenance_turn_begin(struct maintenance_turns *ts, struct maintenance_turn *t);
/* Ends the piece of work, which has moved that many bytes: sleeps until bytes and time are within
 * rate and share. The caller must not hold a chunk or lock that a client may need. Yields. */
void maintenance_turn_end(struct maintenance_turns *ts, struct maintenance_turn *t, uint64_t bytes);

#endif
