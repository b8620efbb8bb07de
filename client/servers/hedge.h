/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when a read is hedged: sent to a second member of its chain, because the first one is
 * late. Single reads (data/hedged_read.h) and batches of small reads (data/read_batch.c) follow the
 * same policy:
 *
 * Delay: three times the 99th percentile of recent requests, at least HEDGE_MIN_US, at most
 * params.hedge_ms. Single reads and batches have a histogram each. While requests take less than
 * hedge_ms, the percentile keeps the share of hedged requests below one in a hundred. No other
 * limit is set: if every member is slower than hedge_ms, every read is hedged.
 *
 * Second member: the one that replica_pick selects after the first member has failed. A chain with
 * one member in sync is not hedged, nor is a read that only the head can answer.
 *
 * Loser: its request is cancelled. The first request of a single read stays in flight until one of
 * the two has a good answer. A batch is cancelled when the delay has passed, because its data may
 * arrive directly in the caller's memory; then each part is read alone. A first member that has
 * lost is not preferred for HEDGE_SLOW_FACTOR times as long as the client has waited for it.
 *
 * No function yields.
 */
#ifndef LEAT_CLIENT_SERVERS_HEDGE_H
#define LEAT_CLIENT_SERVERS_HEDGE_H

#include <stdbool.h>
#include <stdint.h>

struct chain;
struct target;

#define HEDGE_MIN_US     10000u
#define LATENCY_STEP_US  500u
#define LATENCY_BUCKETS  128u
#define LATENCIES_HALVED 4096u /* at this many samples all buckets are halved */

#define HEDGE_SLOW_FACTOR 10u

/* A histogram with decay. */
struct latencies {
	uint32_t bucket[LATENCY_BUCKETS]; /* each LATENCY_STEP_US wide; the last one: longer */
	uint32_t n;
};

/* Adds one sample. */
void latencies_add(struct latencies *l, uint64_t us);
/* Returns an upper bound of the 99th percentile in microseconds; 0: no samples. */
uint64_t latencies_p99_us(const struct latencies *l);
/* Returns how many microseconds after the first request a read is sent to a second member; 0 if
 * hedge_ms is 0: never. */
uint64_t hedge_after_us(const struct latencies *l, uint32_t hedge_ms);
/* Returns true if the chain has a second member that can answer a read. */
bool hedge_possible(const struct chain *ch);
/* Called when the first member has lost after waited_us. Makes it less preferred for a time. */
void hedge_lost(struct target *first, uint64_t waited_us);

#endif
