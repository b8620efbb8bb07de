/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop: one OS thread with one io_uring, timers, a mailbox and fibers. State belongs to a loop
 * and needs no lock; loops communicate by mailbox.
 *
 * One turn of a loop: take the mail, run due timers, run ready fibers (bounded), submit and reap
 * I/O in one system call. With nothing ready it spins for spin_us (adaptive: less after a spin
 * without result), then sleeps in io_uring_enter.
 */
#ifndef LEAT_COMMON_RT_LOOP_H
#define LEAT_COMMON_RT_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/status.h"
#include "common/rt/fiber.h"
#include "common/rt/timer.h"

struct env;

struct loop_options {
	const char *name;     /* thread name, at most 15 bytes */
	uint32_t fibers_max;  /* 0: 65536 */
	/* bytes, 0: 64 KiB; ×4 under sanitizers. A guard of 32 KiB is added */
	uint32_t stack_size;
	uint32_t spin_us;     /* longest busy wait before sleeping; with 0 or one processor: none */
	uint32_t ring_entries; /* 0: 1024 */
	uint32_t drain_ms;    /* how long loop_run waits for fibers after loop_stop, 0: 5000 */
};

/* Creates a loop through the env, so that a simulated env makes simulated loops. */
int loop_create(struct env *env, const struct loop_options *opts, struct loop **ret_loop)
	CHECK_RESULT;
/* The loop must not be running. All fibers should have ended; otherwise the stacks and the loop
 * stay allocated, because the kernel or a worker may still access them. */
void loop_destroy(struct loop *l);

/* Runs the loop on the calling thread until loop_stop, and then until all fibers have ended or
 * drain_ms has passed. Real loops only: sim_step drives simulated ones. */
void loop_run(struct loop *l);
/* Runs the loop on a new thread; loop_join waits for its end. */
int loop_start_thread(struct loop *l) CHECK_RESULT;
void loop_join(struct loop *l);
/* Any thread, and signal handlers. Interrupts no fiber by itself: users stop their fibers, which
 * can check loop_stopping. */
void loop_stop(struct loop *l);
bool loop_stopping(const struct loop *l);

/* The current loop; NULL outside of loops. */
struct loop *loop_self(void);
struct env *loop_env(struct loop *l);
/* Monotonic microseconds, cached once per turn of the current loop; outside of loops read from the
 * clock. */
uint64_t loop_now_us(void);
/* now + ms, saturating */
uint64_t loop_deadline_ms(uint64_t ms);
uint32_t loop_n_fibers(const struct loop *l);

/* ---- mailbox: from any thread to a loop ---- */
struct mail {
	struct mail *next;
	void (*fn)(struct mail *m); /* runs on the loop, outside of fibers: must not yield */
};
/* Posts mail from any thread. *m must stay valid until fn has begun. Mail is handled in the
 * order of arrival. */
void loop_post(struct loop *to, struct mail *m);

/* Runs fn(arg) as a fiber on the loop and waits for its end. Only from a thread that runs no loop.
 * -LE_SHUTDOWN: the loop is stopping; else as fiber_spawn. */
int loop_call(struct loop *to, const char *name, void (*fn)(void *arg), void *arg) CHECK_RESULT;

/* ---- pollers: event sources that a loop polls without descriptors (completion queues) ---- */
/* Belongs to the current loop; all three run outside of fibers and must not yield. */
struct loop_poller {
	/* Called at the end of every turn and while the loop spins: submits the work collected in
	 * the turn, handles events. */
	void (*poll)(struct loop_poller *p);
	/* Called before the loop sleeps: ensures that later events wake it (by a watch). True if
	 * events were pending already. */
	bool (*arm)(struct loop_poller *p);
	/* The loop is being destroyed; the poller has been removed. */
	void (*gone)(struct loop_poller *p);
	struct list link;
};
void loop_poller_add(struct loop_poller *p);
void loop_poller_remove(struct loop_poller *p); /* harmless if it was not added */

/* ---- watches: descriptors that the loop waits for without a fiber; real loops only ---- */
struct loop_watch {
	/* Called when fd is readable; outside of fibers, must not yield, may stop the watch. Called
	 * again while unread data is left. */
	void (*fn)(struct loop_watch *w);
	/* If fn always reads everything: it is called for new data only, not for unread data. Saves
	 * the loop a new poll request each time. */
	bool drains;
	void *internal; /* NULL: stopped */
};
/* On the current loop. -LE_NOMEM */
int loop_watch_start(struct loop_watch *w, int fd) CHECK_RESULT;
/* On the same loop; fn is not called any longer. fd may be closed. */
void loop_watch_stop(struct loop_watch *w);

/* gdb: `source common/rt/gdb_fibers.py`, then `fibers` lists the parked ones with backtraces. */

#endif
