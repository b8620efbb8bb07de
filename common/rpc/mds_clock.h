/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata server's clock, as an object server or a client estimates it. Capabilities expire by
 * it, and writes are stamped with it where this machine's clock differs. Each reply to a
 * registration, a heartbeat, a session open or a ping updates the estimate. In between it advances
 * with this machine's monotonic clock, so setting the wall clock here does not change it.
 *
 * Owned by the loop of the target or the client. Nothing yields.
 */
#ifndef LEAT_COMMON_RPC_MDS_CLOCK_H
#define LEAT_COMMON_RPC_MDS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clocks.h"
#include "common/rt/env.h"

struct mds_clock {
	int64_t base_ns;   /* MDS clock minus the monotonic clock */
	int64_t ahead_us;  /* this machine's wall clock minus the MDS clock */
	uint32_t bound_us; /* maximum error of both; 0: no reply has arrived yet */
	struct clock_watch watch;
};

/* Updates the estimate from a reply that has just arrived: it carried now_ns, and its request was
 * sent at sent_us (env_now_us). */
void mds_clock_observe(struct mds_clock *k, struct env *env, int64_t now_ns, uint64_t sent_us);
/* Like mds_clock_observe, but also logs, with the prefix given ("target 3"), when the two clocks
 * drift apart, when the difference changes considerably, and when they agree again. */
void mds_clock_observe_by(struct mds_clock *k, struct env *env, const char *who, int64_t now_ns,
			uint64_t sent_us);
/* The estimated time in ns. 0 before the first reply: no request is served then, and no capability
 * counts as expired. */
int64_t mds_clock_now_ns(const struct mds_clock *k, struct env *env);
/* The time stamp for data written now: this machine's wall clock, which advances evenly, unless it
 * differs from the metadata server's by more than CLOCKS_APART_US and the error bound. */
int64_t mds_clock_stamp_ns(const struct mds_clock *k, struct env *env);

#endif
