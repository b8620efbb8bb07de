/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rate of so many units (bytes, names) a second, with a burst. Arithmetic only: the caller reads
 * the clock and waits. Owned by one loop; its fibers share the rate.
 */
#ifndef LEAT_COMMON_BASE_RATE_LIMIT_H
#define LEAT_COMMON_BASE_RATE_LIMIT_H

#include <stdint.h>

#define RATE_LIMIT_BURST_US 250000u /* the burst for limits that need no specific one */

/* All zeros: no limit. */
struct rate_limit {
	uint64_t rate;          /* units a second; 0: no limit */
	uint64_t burst_us;      /* an unused limit saves up at most the units of that time */
	uint64_t paid_until_us; /* the time by which all that was charged is within the rate */
};

/* Sets rate and burst. Units charged before still count. */
void rate_limit_set(struct rate_limit *r, uint64_t rate, uint64_t burst_us);
/* Charges n units at now_us. Returns for how many microseconds the caller has to wait to stay
 * within the rate, 0 for none; later callers wait for these units too. NULL: no limit. */
uint64_t rate_limit_charge(struct rate_limit *r, uint64_t n, uint64_t now_us);

#endif
