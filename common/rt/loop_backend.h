/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by loop.c and its backends (uring.c, sim/), which alone include this.
 */
#ifndef LEAT_COMMON_RT_LOOP_BACKEND_H
#define LEAT_COMMON_RT_LOOP_BACKEND_H

#include "common/rt/loop.h"

struct loop_backend {
	/* Called when nothing is ready: waits for I/O, mail or the time until_us. Reaps completions
	 * (which wake fibers). until_us == 0: only submits and reaps, does not wait. */
	void (*wait)(struct loop *l, uint64_t until_us);
	/* Any thread: makes wait return soon. */
	void (*kick)(struct loop *l);
	/* keep: what kick needs stays allocated, as mail may still arrive. */
	void (*destroy)(struct loop *l, bool keep);
	/* For loop_watch_start and _stop; NULL where there are no descriptors. */
	int (*watch)(struct loop *l, struct loop_watch *w, int fd);
	void (*unwatch)(struct loop *l, struct loop_watch *w);
};

/* Creates a loop, for env implementations; loop_backend_data returns backend_data. */
int loop_create_with(struct env *env, const struct loop_options *opts,
		     const struct loop_backend *backend, void *backend_data,
		     struct loop **ret_loop) CHECK_RESULT;
void *loop_backend_data(struct loop *l);

/*
 * One turn without waiting: mail, due timers, ready fibers until none is ready (at most
 * max_switches). Returns whether something ran. The simulator sets the current loop with
 * loop_enter/loop_leave around its own calls into a loop's state (completions).
 */
bool loop_turn(struct loop *l, uint32_t max_switches);
/* The earliest timer; NO_DEADLINE without any. 0 when mail or ready fibers are waiting. */
uint64_t loop_next_us(const struct loop *l);
/* Make l the current loop, and restore the one before. Calls nest. */
void loop_enter(struct loop *l);
void loop_leave(struct loop *l);
/* Drops all fibers, timers and mail without running them (a crash in the simulator), and frees the
 * loop. */
void loop_abandon(struct loop *l);
/* Sets the choice of the next ready fiber: the simulator shuffles. NULL: first in, first out. */
void loop_set_pick(struct loop *l, uint32_t (*pick)(void *arg, uint32_t n_ready), void *arg);

#endif
