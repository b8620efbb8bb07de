/*
 * Fibers: stackful coroutines of one loop. A request runs as a fiber; its code reads top
 * to bottom and gives way wherever it would block. A fiber never changes its loop.
 *
 * Everything here is called on the loop's own thread, and what may yield says so.
 * Between two yielding calls a fiber runs undisturbed by other fibers of its loop: that
 * is the lock of everything a loop owns.
 */
#ifndef LEAT_RT_FIBER_H
#define LEAT_RT_FIBER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/status.h"

struct fiber;
struct loop;

#define NO_DEADLINE UINT64_MAX

/*
 * Starts a fiber on the *current* loop; it first runs when the caller yields. name must
 * live as long as the program (a literal). -LE_NOMEM, or -LE_OVERLOAD when the loop has
 * fibers_max of them. (From another thread: loop_post, loop_call.)
 */
int fiber_spawn(const char *name, void (*fn)(void *arg), void *arg) CHECK_RESULT;
/* The same on a loop that is not running yet, or from a loop's mail handler. */
int fiber_spawn_on(struct loop *l, const char *name, void (*fn)(void *arg), void *arg) CHECK_RESULT;

/* NULL outside of fibers (mail handlers, timer functions, other threads). */
struct fiber *fiber_self(void);
const char *fiber_name(const struct fiber *f);

/* Yield: let the others run, come back in the same turn of the loop. */
void fiber_yield(void);
/* Yield until fiber_wake. A wake that comes first is kept (one deep). */
void fiber_park(void);
/* Like fiber_park; -LE_TIMEDOUT at the deadline (monotonic us), -LE_INTR after fiber_interrupt. */
int fiber_park_until(uint64_t deadline_us) CHECK_RESULT;
/* Same loop only. */
void fiber_wake(struct fiber *f);
int fiber_sleep_us(uint64_t us); /* 0 or -LE_INTR; yields */
/* The next or present fiber_park_until (and what is built on it: waitq, sleep, rpc) returns
 * -LE_INTR, once. File I/O is not interrupted. */
void fiber_interrupt(struct fiber *f);
/* Not the present wait alone, but what the fiber is for is to end: what it runs by fiber_parallel
 * is interrupted too, and what of that has not begun. */
void fiber_interrupt_all(struct fiber *f);
/* Takes an interruption back that the present fiber has not seen yet: was there one? */
bool fiber_interrupt_clear(void);
/* The deadline that requests made on behalf of this fiber inherit; NO_DEADLINE by default. */
uint64_t fiber_deadline(void);
void fiber_set_deadline(uint64_t deadline_us);
/* Whatever the fiber keeps for those that it calls; NULL at first, and outside of fibers. */
void *fiber_local(void);
void fiber_set_local(void *local);

/* ---- built on park and wake; owned by one loop ---- */

/* First come, first woken. */
struct waitq {
	struct list waiters;
};
void waitq_init(struct waitq *q);
/* 0 woken, -LE_TIMEDOUT, -LE_INTR. Yields. Re-check your condition after it. */
int waitq_wait(struct waitq *q, uint64_t deadline_us) CHECK_RESULT;
void waitq_wake_one(struct waitq *q);
void waitq_wake_all(struct waitq *q);
static inline bool waitq_empty(const struct waitq *q)
{
	return list_empty(&q->waiters);
}

/*
 * For what there may be too little of (slots, credits): in the order of coming, also before those
 * who come when there is some again. (A waitq would let these take it ahead of the fiber that was
 * woken, again and again.)
 */
struct turnq {
	struct list waiters;
};
void turnq_init(struct turnq *q);
/* Until nobody is before the caller and enough(arg), which must not yield; looked at when woken and
 * every look_us besides (NO_DEADLINE: not). 0: the caller takes its part before it yields, and
 * wakes the queue if the next one need not wait either; -LE_TIMEDOUT, -LE_INTR. Yields if it has to
 * wait. */
int turnq_wait(struct turnq *q, bool (*enough)(void *arg), void *arg, uint64_t look_us,
	       uint64_t deadline_us) CHECK_RESULT;
/* There is more: whose turn it is may look. */
void turnq_wake(struct turnq *q);

/* Fair: handed over to the first waiter. */
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
void latch_add(struct latch *l, uint32_t n);
void latch_done(struct latch *l);
void latch_wait(struct latch *l); /* yields */

/* Runs fn(args + i * size) for i in 0..n-1 as up to width fibers at once (the first in the
 * caller's); returns when all have ended. Falls back to the caller's own fiber when no other
 * can be had. Yields. */
void fiber_parallel(const char *name, void (*fn)(void *arg), void *args, size_t size, uint32_t n,
		    uint32_t width);

#endif
