#include "ossd/chain/pace.h"

#define BUSY_US      100000u /* clients were served that recently */
#define BURST_US     50000u
#define PAUSE_MAX_US 2000000u

void pace_init(struct pace *p, struct env *env, struct ossd_metrics *m, uint32_t rate_mib_s,
	       uint32_t share)
{
	*p = (struct pace){.env = env,
			   .metrics = m,
			   .rate = (uint64_t)rate_mib_s << 20,
			   .share = share ? share : 1};
	fmutex_init(&p->alone);
}

static bool clients_are_served(struct pace *p)
{
	uint64_t n = metric_get(&p->metrics->client_requests), now = env_now_us(p->env);

	if (n != p->seen) {
		p->seen = n;
		p->seen_us = now;
	}
	return p->seen_us && now - p->seen_us < BUSY_US;
}

void pace_begin(struct pace *p, struct pace_work *w)
{
	w->alone = clients_are_served(p);
	if (w->alone)
		fmutex_lock(&p->alone);
	w->begin_us = env_now_us(p->env);
}

static uint64_t pay(struct pace *p, uint64_t bytes, uint64_t now)
{
	if (!p->rate)
		return 0;
	if (p->next_us + BURST_US < now)
		p->next_us = now - BURST_US;
	p->next_us += bytes * 1000000 / p->rate;
	return p->next_us > now ? p->next_us - now : 0;
}

void pace_end(struct pace *p, struct pace_work *w, uint64_t bytes)
{
	uint64_t now = env_now_us(p->env), pause = pay(p, bytes, now), rest = 0;

	if (w->alone)
		rest = (now - w->begin_us) * (100 - p->share) / p->share;
	if (rest > PAUSE_MAX_US)
		rest = PAUSE_MAX_US;
	if (rest > pause)
		pause = rest;
	if (pause)
		(void)fiber_sleep_us(pause);
	if (w->alone)
		fmutex_unlock(&p->alone);
}
