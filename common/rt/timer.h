/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: owned by the loop that is current when they are set. loop.h includes this.
 */
#ifndef LEAT_COMMON_RT_TIMER_H
#define LEAT_COMMON_RT_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct loop;

struct timer {
	void (*fn)(struct timer *t); /* runs outside of fibers: must not yield; may free t */
	uint64_t at_us;
	uint32_t heap_index; /* internal; UINT32_MAX: not set */
	struct loop *loop;
};

void timer_init(struct timer *t, void (*fn)(struct timer *t));
void timer_set(struct timer *t, uint64_t at_us); /* moves one that is set */
void timer_cancel(struct timer *t);
bool timer_is_set(const struct timer *t);

/* ---- for loop.c ---- */
int timer_loop_init(struct loop *l) CHECK_RESULT;
void timer_loop_fini(struct loop *l);
/* Runs the timers that are due at l->now_us. Returns how many. */
uint32_t timer_run_due(struct loop *l);

#endif
