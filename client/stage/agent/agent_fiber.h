/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers of an agent. Stopping the agent waits for them. */
#ifndef LEAT_CLIENT_STAGE_AGENT_AGENT_FIBER_H
#define LEAT_CLIENT_STAGE_AGENT_AGENT_FIBER_H

#include "client/stage/agent/agent.h"

/* How long a stopping agent waits for fibers before it interrupts them. */
#define AGENT_PATIENCE_MS 1000u

/* On the stack of the fiber. */
struct agent_fiber {
	struct list link;
	struct fiber *fiber;
};
/* Spawns a fiber; fn calls agent_fiber_begin first and agent_fiber_end last. Does not yield. */
int agent_spawn(struct agent *a, const char *name, void (*fn)(void *arg), void *arg) CHECK_RESULT;
void agent_fiber_begin(struct agent *a, struct agent_fiber *f);
void agent_fiber_end(struct agent *a, struct agent_fiber *f);
/* Waits until all of them have ended; after AGENT_PATIENCE_MS it interrupts those that still run.
 * Yields. */
void agent_fibers_await(struct agent *a);

#endif
