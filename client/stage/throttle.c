#include "client/stage/throttle.h"

#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define BURST_US 250000u
#define LOOK_US  500000u

void throttle_take(struct throttle *t, uint64_t len, const volatile int *stop)
{
	if (!t || t->rate == 0)
		return;
	uint64_t now = loop_now_us();
	if (t->free_us + BURST_US < now)
		t->free_us = now - BURST_US;
	t->free_us += (uint64_t)((__uint128_t)len * 1000000 / t->rate);
	/* Those who come meanwhile are behind this one. An interruption only makes it a little
	 * early. */
	for (const uint64_t until = t->free_us; now < until && !(stop && *stop);
	     now = loop_now_us()) {
		if (fiber_sleep_us(until - now < LOOK_US ? until - now : LOOK_US) < 0)
			return;
	}
}
