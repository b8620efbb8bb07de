#include "client/stage/throttle.h"

#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define BURST_US 250000u

void throttle_take(struct throttle *t, uint64_t len)
{
	if (!t || t->rate == 0)
		return;
	uint64_t now = loop_now_us();
	if (t->free_us + BURST_US < now)
		t->free_us = now - BURST_US;
	t->free_us += (uint64_t)((__uint128_t)len * 1000000 / t->rate);
	if (t->free_us <= now)
		return;
	/* An interruption only makes this one a little early. */
	int rc = fiber_sleep_us(t->free_us - now);
	(void)rc;
}
