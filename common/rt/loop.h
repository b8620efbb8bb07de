/*
 * A loop: one OS thread with one io_uring, timers, a mailbox and fibers. State belongs to
 * a loop, not to a lock; loops talk by mailbox.
 *
 * One turn of a loop: take the mail, run due timers, run every ready fiber once, submit and
 * reap I/O in one system call. With nothing ready it spins for spin_us (adaptive: less when
 * spinning did not pay), then sleeps in io_uring_enter.
 */
#ifndef LEAT_RT_LOOP_H
#define LEAT_RT_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/status.h"
#include "common/rt/fiber.h"

struct env;

struct loop_options {
	const char *name;     /* thread name, at most 15 bytes */
	uint32_t fibers_max;  /* 0: 65536 */
	uint32_t stack_size;  /* bytes, 0: 64 KiB; a guard page is added. Under sanitizers × 4 */
	uint32_t spin_us;     /* longest busy wait before sleeping; 0 or one processor: none */
	uint32_t ring_entries; /* 0: 1024 */
	uint32_t drain_ms;    /* how long loop_run waits for fibers after loop_stop, 0: 5000 */
};

/* Made through the env, so that a simulated env makes simulated loops (env_loop_create). */
int loop_create(struct env *env, const struct loop_options *opts, struct loop **ret_loop)
	CHECK_RESULT;
/* The loop must not be running. All fibers should have ended: where one still waits, its stack and
 * the loop stay in memory, for whatever comes to it from the kernel or a worker. */
void loop_destroy(struct loop *l);

/* Runs on the calling thread until loop_stop, and until all fibers have ended or drain_ms has
 * passed since. Real loops only: simulated ones are stepped by sim_step. */
void loop_run(struct loop *l);
/* On a thread of its own; loop_join waits for it. */
int loop_start_thread(struct loop *l) CHECK_RESULT;
void loop_join(struct loop *l);
/* Any thread, and signal handlers. Wakes interruptible waits of no fiber by itself: users stop
 * their fibers. loop_stopping tells them. */
void loop_stop(struct loop *l);
bool loop_stopping(const struct loop *l);

struct loop *loop_self(void);
struct env *loop_env(struct loop *l);
/* Of the current loop. Monotonic microseconds; cached per turn: cheap. */
uint64_t loop_now_us(void);
/* now + ms, saturating */
uint64_t loop_deadline_ms(uint64_t ms);
uint32_t loop_n_fibers(const struct loop *l);

/* ---- mailbox: from any thread to a loop ---- */
struct mail {
	struct mail *next;
	void (*fn)(struct mail *m); /* runs on the loop, outside of fibers: must not yield */
};
void loop_post(struct loop *to, struct mail *m);

/* Runs fn(arg) as a fiber on the loop and waits for its end. From a thread that is no loop.
 * -LE_SHUTDOWN when the loop is stopping. */
int loop_call(struct loop *to, const char *name, void (*fn)(void *arg), void *arg) CHECK_RESULT;

/* ---- timers: owned by the loop that is current when they are set ---- */
struct timer {
	void (*fn)(struct timer *t); /* runs outside of fibers: must not yield; may free t */
	uint64_t at_us;
	uint32_t heap_index; /* internal; UINT32_MAX: not set */
	struct loop *loop;
};
void timer_init(struct timer *t, void (*fn)(struct timer *t));
void timer_set(struct timer *t, uint64_t at_us); /* also moves one that is set */
void timer_cancel(struct timer *t);
bool timer_is_set(const struct timer *t);

/* ---- pollers: what a loop looks at by itself (completion queues) ---- */
/* Of the current loop; all three run outside of fibers and must not yield. */
struct loop_poller {
	/* At the end of every turn and while the loop spins: hands out what has collected in the
	 * turn, takes what has come. */
	void (*poll)(struct loop_poller *p);
	/* The loop is about to sleep: sees to it that what comes from now on wakes it (by a watch).
	 * True when something has come already. */
	bool (*arm)(struct loop_poller *p);
	/* The loop is being destroyed; the poller has been removed. */
	void (*gone)(struct loop_poller *p);
	struct list link;
};
void loop_poller_add(struct loop_poller *p);
void loop_poller_remove(struct loop_poller *p); /* harmless when it is not there */

/* ---- watches: descriptors that the loop waits for without a fiber; real loops only ---- */
struct loop_watch {
	/* fd is readable; outside of fibers, must not yield, may stop the watch. Called again until
	 * everything has been read. */
	void (*fn)(struct loop_watch *w);
	/* fn reads everything by itself: called when more has come, not for what was left. The loop
	 * then need not ask the kernel anew each time. */
	bool drains;
	void *internal; /* NULL: stopped */
};
/* On the current loop. -LE_NOMEM */
int loop_watch_start(struct loop_watch *w, int fd) CHECK_RESULT;
/* On the same loop; fn is not called any more. fd may be closed. */
void loop_watch_stop(struct loop_watch *w);

/* gdb: `source common/rt/gdb_fibers.py`, then `fibers` lists the parked ones with backtraces. */

#endif
