/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram of read latencies, and the delay after which a read is hedged. Pure functions.
 */
#ifndef LEAT_CLIENT_SERVERS_LATENCY_H
#define LEAT_CLIENT_SERVERS_LATENCY_H

#include <stdint.h>

#define HEDGE_MIN_US     10000u
#define LATENCY_STEP_US  500u
#define LATENCY_BUCKETS  128u
#define LATENCIES_HALVED 4096u /* at this many samples all buckets are halved */

/* A histogram with decay. */
struct latencies {
	uint32_t bucket[LATENCY_BUCKETS]; /* each LATENCY_STEP_US wide; the last one: longer */
	uint32_t n;
};

/* Adds one sample. */
void latencies_add(struct latencies *l, uint64_t us);
/* Returns an upper bound of the 99th percentile in microseconds; 0: no samples. */
uint64_t latencies_p99_us(const struct latencies *l);
/* Returns how many microseconds after the first request a read is sent to a second member: three
 * times the 99th percentile, at least HEDGE_MIN_US, at most hedge_ms. */
uint64_t hedge_after_us(const struct latencies *l, uint32_t hedge_ms);

#endif
