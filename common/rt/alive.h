/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifies the service manager that a loop turns (common/base/notify.h): extends the start timeout
 * while the service starts, feeds the watchdog afterwards. A stuck loop sends nothing, and the
 * manager ends the service. Without a manager there is no cost.
 *
 * Owned by the loop that is current in alive_start.
 */
#ifndef LEAT_COMMON_RT_ALIVE_H
#define LEAT_COMMON_RT_ALIVE_H

#include "common/rt/loop.h"

struct alive {
	struct timer timer;
	bool (*others)(void *arg);
	void *arg;
};

/* Starts the notifications. others: returns whether everything else that must run does so; called
 * on this loop, outside of fibers, must not yield. NULL: there is nothing else. */
void alive_start(struct alive *a, bool (*others)(void *arg), void *arg);
/* Harmless on a zeroed struct that was never started. */
void alive_stop(struct alive *a);

#endif
