/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: stackful coroutines of one loop. A request runs as a fiber; its code reads top to bottom
 * and yields wherever it would block. A fiber never changes its loop.
 *
 * Everything here is called on the loop's own thread, and functions that may yield say so. Between
 * two yielding calls a fiber runs undisturbed by other fibers of its loop: this replaces locks for
 * everything that a loop owns.
 */
#ifndef LEAT_COMMON_RT_FIBER_H
#define LEAT_COMMON_RT_FIBER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/status.h"
#include "common/rt/no_yield.h"

struct fiber;
struct loop;

#define NO_DEADLINE UINT64_MAX

/*
 * Starts a fiber on the *current* loop; it first runs when the caller yields. name must
 * live as long as the program (a literal). -LE_NOMEM, or -LE_OVERLOAD when the loop has
 * fibers_max of them. (From another thread: loop_post, loop_call.)
 */
int fiber_spawn(const char *name, void (*fn)(void *arg), void *arg) CHECK_RESULT;
/* Like fiber_spawn, on a loop that is not running yet, or from a loop's mail handler. */
int fiber_spawn_on(struct loop *l, const char *name, void (*fn)(void *arg), void *arg) CHECK_RESULT;

/* NULL outside of fibers (mail handlers, timer functions, other threads). */
struct fiber *fiber_self(void);
const char *fiber_name(const struct fiber *f);

/* Yields to the other ready fibers; normally continues in the same turn of the loop. */
void fiber_yield(void);
/* Yields until fiber_wake. If fiber_wake came first, returns immediately (one wake is
 * remembered). */
void fiber_park(void);
/* Like fiber_park; -LE_TIMEDOUT at the deadline (monotonic us), -LE_INTR after fiber_interrupt. */
int fiber_park_until(uint64_t deadline_us) CHECK_RESULT;
/* Ends the fiber's park, or its next one. Same loop only. */
void fiber_wake(struct fiber *f);
int fiber_sleep_us(uint64_t us); /* 0 or -LE_INTR; yields */
/* Like fiber_sleep_us, but ends at most half a second after *stop becomes non-zero (NULL: only the
 * time ends it). 0 or -LE_INTR; yields, unless us is 0 or *stop is set. */
int fiber_sleep_unless(uint64_t us, const volatile int *stop);
/* Makes the present or next fiber_park_until (and what is built on it: waitq, sleep, rpc) return
 * -LE_INTR, once. File I/O is not interrupted. */
void fiber_interrupt(struct fiber *f);
/* Interrupts the whole task of the fiber: not only its present wait, but also everything that it
 * runs or has still to run by fiber_parallel. */
void fiber_interrupt_all(struct fiber *f);
/* Withdraws an interrupt that the current fiber has not received yet. True if there was one. */
bool fiber_interrupt_clear(void);
/* The deadline that requests made on behalf of this fiber inherit; NO_DEADLINE by default. */
uint64_t fiber_deadline(void);
void fiber_set_deadline(uint64_t deadline_us);
/* A pointer that the fiber provides for the functions that it calls; NULL initially, and outside of
 * fibers. */
void *fiber_local(void);
void fiber_set_local(void *local);

/* ---- built on park and wake; owned by one loop ---- */

/* Wakes in order of arrival. */
struct waitq {
	struct list waiters;
};
void waitq_init(struct waitq *q);
/* Waits for a wake. 0 woken, -LE_TIMEDOUT, -LE_INTR. Yields. Check your condition again after
 * it. */
int waitq_wait(struct waitq *q, uint64_t deadline_us) CHECK_RESULT;
void waitq_wake_one(struct waitq *q);
void waitq_wake_all(struct waitq *q);
static inline bool waitq_empty(const struct waitq *q)
{
	return list_empty(&q->waiters);
}

/*
 * A queue for a scarce resource (slots, credits). Fibers are served in order of arrival, even
 * before a fiber that arrives when the resource is available again. (With a waitq such a fiber
 * could overtake the woken one, repeatedly.)
 */
struct turnq {
	struct list waiters;
};
void turnq_init(struct turnq *q);
/* Waits until the caller is first in the queue and enough(arg) is true. enough must not yield; it
 * is called when the queue is woken, and every poll_us (NO_DEADLINE: only when woken). 0: the
 * caller must take its share before it yields, and wake the queue if enough is left for the next
 * fiber; -LE_TIMEDOUT, -LE_INTR. Yields if it has to wait. */
int turnq_wait(struct turnq *q, bool (*enough)(void *arg), void *arg, uint64_t poll_us,
	       uint64_t deadline_us) CHECK_RESULT;
/* More is available: the first fiber of the queue calls enough again. */
void turnq_wake(struct turnq *q);

/* Fair: unlock hands it to the first waiter. */
struct fmutex {
	bool held;
	struct waitq q;
};
void fmutex_init(struct fmutex *m);
void fmutex_lock(struct fmutex *m); /* yields if held */
void fmutex_unlock(struct fmutex *m);

/* Counts outstanding children; wait returns when the count is 0. */
struct latch {
	uint32_t n;
	struct waitq q;
};
void latch_init(struct latch *l, uint32_t n);
/* Adds children; latch_done counts one off. */
void latch_add(struct latch *l, uint32_t n);
void latch_done(struct latch *l);
void latch_wait(struct latch *l); /* yields */

/* Runs fn(args + i * size) for i in 0..n-1, by up to width fibers concurrently (the caller's is one
 * of them); returns when all calls have. If no fiber can be spawned, the caller's runs them all.
 * Yields. */
void fiber_parallel(const char *name, void (*fn)(void *arg), void *args, size_t size, uint32_t n,
		    uint32_t width);

#endif
