/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/maintenance_turn.h"

#define BUSY_US      100000u /* clients count as served if a request was so recent */
#define BURST_US     50000u
#define PAUSE_MAX_US 2000000u

void maintenance_turns_init(struct maintenance_turns *ts, struct env *env, struct ossd_metrics *m,
			    uint32_t rate_mib_s, uint32_t share)
{
	*ts = (struct maintenance_turns){.env = env, .metrics = m, .share = share ? share : 1};
	rate_limit_set(&ts->rate, (uint64_t)rate_mib_s << 20, BURST_US);
	fmutex_init(&ts->alone);
}

static bool clients_are_served(struct maintenance_turns *ts)
{
	uint64_t n = metric_get(&ts->metrics->client_requests), now = env_now_us(ts->env);

	if (n != ts->seen) {
		ts->seen = n;
		ts->seen_us = now;
	}
	return ts->seen_us && now - ts->seen_us < BUSY_US;
}

void maintenance_turn_begin(struct maintenance_turns *ts, struct maintenance_turn *t)
{
	t->alone = clients_are_served(ts);
	if (t->alone)
		fmutex_lock(&ts->alone);
	t->begin_us = env_now_us(ts->env);
}

void maintenance_turn_end(struct maintenance_turns *ts, struct maintenance_turn *t, uint64_t bytes)
{
	uint64_t now = env_now_us(ts->env), pause = rate_limit_charge(&ts->rate, bytes, now);
	uint64_t rest = 0;

	if (t->alone)
		rest = (now - t->begin_us) * (100 - ts->share) / ts->share;
	if (rest > PAUSE_MAX_US)
		rest = PAUSE_MAX_US;
	if (rest > pause)
		pause = rest;
	if (pause)
		(void)fiber_sleep_us(pause);
	if (t->alone)
		fmutex_unlock(&ts->alone);
}
