/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fiber functions for loops and files of this folder, which alone include this.
 */
#ifndef LEAT_COMMON_RT_FIBER_IMPL_H
#define LEAT_COMMON_RT_FIBER_IMPL_H

#include "common/rt/loop_impl.h"

/*
 * Makes the current fiber wait for a condition of this folder's code: the other side sets the
 * condition and calls fiber_unblock, this side repeats fiber_block until the condition holds.
 * Separate from park and wake, so that a fiber_wake meant for the fiber's user is not consumed
 * here. 0, or (at the deadline) -LE_TIMEDOUT, or (if interruptible) -LE_INTR, whichever comes
 * first; once unblocked, a fiber returns 0 whatever happens before it runs.
 */
int fiber_block(uint64_t deadline_us, bool interruptible) CHECK_RESULT;
/* Same loop only; without effect if the fiber is not in fiber_block. */
void fiber_unblock(struct fiber *f);

static inline void fiber_block_forever(void)
{
	int rc = fiber_block(NO_DEADLINE, false);

	(void)rc;
}

/* ---- fiber.c for loop.c ---- */
void fiber_loop_init(struct loop *l, uint32_t fibers_max, uint32_t stack_size);
void fiber_loop_fini(struct loop *l); /* unmaps all stacks */
void fiber_loop_keep(struct loop *l); /* prepares stacks to stay mapped for ever */
/* The largest stack use of any fiber so far, in bytes, approximately (0 under sanitizers). */
size_t fiber_deepest(const struct loop *l);
/* Runs ready fibers until none is ready or max have run. Returns how many ran. */
uint32_t fiber_run_ready(struct loop *l, uint32_t max);

#endif
