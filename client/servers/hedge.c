/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/hedge.h"

#include "client/servers/cluster_map.h"
#include "client/servers/target.h"
#include "common/rt/loop.h"

void latencies_add(struct latencies *l, uint64_t us)
{
	uint64_t i = us / LATENCY_STEP_US;

	l->bucket[i < LATENCY_BUCKETS ? i : LATENCY_BUCKETS - 1]++;
	if (++l->n < LATENCIES_HALVED)
		return;
	l->n = 0;
	for (uint32_t b = 0; b < LATENCY_BUCKETS; b++) {
		l->bucket[b] /= 2;
		l->n += l->bucket[b];
	}
}

uint64_t latencies_p99_us(const struct latencies *l)
{
	uint32_t beyond = 0;

	for (uint32_t b = LATENCY_BUCKETS; b-- > 0;) {
		beyond += l->bucket[b];
		if (beyond > l->n / 100)
			return (uint64_t)(b + 1) * LATENCY_STEP_US;
	}
	return 0;
}

uint64_t hedge_after_us(const struct latencies *l, uint32_t hedge_ms)
{
	uint64_t us = 3 * latencies_p99_us(l), max = (uint64_t)hedge_ms * 1000;

	if (us < HEDGE_MIN_US)
		us = HEDGE_MIN_US;
	return us < max ? us : max;
}

bool hedge_possible(const struct chain *ch)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ch->n_members; i++)
		n += ch->members[i].sync;
	return n > 1;
}

void hedge_lost(struct target *first, uint64_t waited_us)
{
	first->slow_until_us = loop_now_us() + HEDGE_SLOW_FACTOR * waited_us;
}
