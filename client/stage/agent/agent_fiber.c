/* SPDX-License-Identifier: Apache-2.0 */

#include "client/stage/agent/agent_fiber.h"

#include "common/base/list.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define PAUSE_US 50000u

int agent_spawn(struct agent *a, const char *name, void (*fn)(void *arg), void *arg)
{
	latch_add(&a->fibers, 1);
	int rc = fiber_spawn(name, fn, arg);
	if (rc < 0)
		latch_done(&a->fibers);
	return rc;
}

void agent_fiber_begin(struct agent *a, struct agent_fiber *f)
{
	f->fiber = fiber_self();
	list_push(&a->running, &f->link);
}

void agent_fiber_end(struct agent *a, struct agent_fiber *f)
{
	list_remove(&f->link);
	latch_done(&a->fibers);
}

/* A fiber that waits for unreachable servers would otherwise wait for request_timeout_ms. */
void agent_fibers_await(struct agent *a)
{
	uint64_t patient_us = loop_deadline_ms(AGENT_PATIENCE_MS);
	while (a->fibers.n > 0) {
		if (loop_now_us() >= patient_us)
			list_for_each (pos, &a->running)
				fiber_interrupt_all(
					list_entry(pos, struct agent_fiber, link)->fiber);
		int rc = fiber_sleep_us(PAUSE_US);
		(void)rc;
	}
}
