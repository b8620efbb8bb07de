/*
 * The insides of loops and fibers, shared by fiber.c, loop.c, timer.c and the code in this
 * folder that makes a fiber wait (uring.c, env_real.c, net.c, slot.c, sim.c). Nobody else
 * includes this.
 */
#ifndef LEAT_RT_LOOP_IMPL_H
#define LEAT_RT_LOOP_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/loop_backend.h"

#if defined(__SANITIZE_ADDRESS__)
#define RT_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define RT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RT_ASAN 1
#elif __has_feature(thread_sanitizer)
#define RT_TSAN 1
#endif
#endif

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define RT_VALGRIND 1
/* The kernel wrote here, which valgrind did not see. */
#define rt_mark_defined(ptr, len) ((void)VALGRIND_MAKE_MEM_DEFINED(ptr, len))
#else
#define rt_mark_defined(ptr, len) ((void)0)
#endif

/* gdb_fibers.py knows these numbers. */
enum fiber_state {
	FIBER_FREE,  /* in the pool */
	FIBER_READY, /* in the loop's ready list */
	FIBER_RUNNING,
	FIBER_PARKED,  /* in fiber_park: fiber_wake ends it */
	FIBER_BLOCKED, /* in fiber_block: fiber_unblock ends it, fiber_wake is kept for later */
};

#define FIBER_MAGIC 0x46494252u /* FIBR */
#define LOOP_MAGIC  0x4c4f4f50u /* LOOP */

/* Lies at the upper end of its own stack. Owned by its loop. */
struct fiber {
	uint32_t magic;
	enum fiber_state state;
	bool wake_kept;     /* a wake without a park: the next park returns at once */
	bool woken;         /* readied by a wake and has not run since: more wakes add nothing */
	bool interrupted;   /* not delivered yet */
	bool interruptible; /* of the present wait */
	bool warm;          /* in the pool with its stack pages */
	int wait_status;    /* what the present wait returns */
	void *sp;           /* where fiber_switch saved its registers */
	struct loop *loop;
	const char *name;
	void (*fn)(void *arg);
	void *arg;
	struct list link; /* of the ready list or the pool */
	struct list all;  /* of loop->fibers while not free */
	uint64_t deadline_us;
	struct parallel *parallel; /* the innermost that it is in, or NULL */
	void *local;
	struct timer timer; /* of the present wait */
	uint8_t *stack;     /* lowest usable byte */
	size_t stack_size;  /* up to this struct */
	void *san;          /* ASan: fake stack; TSan: context */
	unsigned valgrind_id;
};

/* A mapping of several stacks; struct slabs are chained from the loop. */
struct stack_slab {
	struct stack_slab *next;
	uint8_t *base;
	size_t len;
	uint32_t n, n_used; /* stacks in it, stacks handed out */
};

struct timer_slot {
	uint64_t at_us;
	struct timer *timer;
};

/* Owned by the thread that runs it, except for the members that say otherwise. */
struct loop {
	uint32_t magic;
	struct env *env;
	const struct loop_backend *backend;
	void *backend_data;
	char name[16];
	uint64_t now_us; /* cached: see loop_turn, loop_enter */
	struct loop *outer;
	uint32_t enter_depth;

	/* fiber.c */
	struct fiber *current;
	void *sched_sp;
	struct list ready, fibers, pool; /* pool: most recently used first, cold ones at the end */
	uint32_t n_ready, n_fibers, n_warm, fibers_max;
	size_t stack_size;
	struct stack_slab *slabs;
	void *sched_san;
	const void *sched_stack;
	size_t sched_stack_size;

	/* timer.c: a 4-ary heap */
	struct timer_slot *heap;
	uint32_t n_timers, timers_max;

	/* loop.c */
	struct list pollers;
	uint32_t (*pick)(void *arg, uint32_t n_ready);
	void *pick_arg;
	uint32_t spin_us, spin_now_us, drain_ms, ring_entries;
	_Atomic(struct mail *) mailbox; /* any thread pushes; newest first */
	atomic_bool asleep;             /* mail needs a kick */
	atomic_bool stop;               /* any thread */
	atomic_uint n_posting;          /* threads inside of loop_post, loop_stop */
	pthread_t thread;
	bool thread_started;
	pthread_mutex_t call_lock; /* guards the next two */
	bool calls_closed;
	struct list calls;
	struct list link; /* of loop.c's list of all loops, for gdb */
};

/* The loop whose code runs on this thread. */
extern _Thread_local struct loop *loop_current;

/*
 * How code of this folder makes the current fiber wait for a condition of its own: set the
 * condition and call fiber_unblock elsewhere, and loop around fiber_block here. Kept apart
 * from park and wake, so that a fiber_wake meant for the fiber's user is not lost in here.
 * 0, or (at the deadline) -LE_TIMEDOUT, or (if interruptible) -LE_INTR. Whichever
 * comes first decides; a fiber that was unblocked returns 0 whatever happens before it runs.
 */
int fiber_block(uint64_t deadline_us, bool interruptible) CHECK_RESULT;
/* Same loop only; nothing if the fiber is not in fiber_block. */
void fiber_unblock(struct fiber *f);
static inline void fiber_block_forever(void)
{
	int rc = fiber_block(NO_DEADLINE, false);

	(void)rc;
}

/* ---- fiber.c for loop.c ---- */
void fiber_loop_init(struct loop *l, uint32_t fibers_max, uint32_t stack_size);
void fiber_loop_fini(struct loop *l); /* unmaps all stacks */
void fiber_loop_keep(struct loop *l); /* or they stay for good */
/* About how many bytes of its stack the hungriest fiber has ever used (0 under sanitizers). */
size_t fiber_deepest(const struct loop *l);
/* Runs ready fibers until none is ready or max have run: how many. */
uint32_t fiber_run_ready(struct loop *l, uint32_t max);

/* ---- timer.c for loop.c ---- */
int timer_loop_init(struct loop *l) CHECK_RESULT;
void timer_loop_fini(struct loop *l);
/* Runs the timers that are due at l->now_us: how many. */
uint32_t timer_run_due(struct loop *l);

/* ---- fiber_switch.S ---- */
/* Saves the callee-saved registers on the stack and the stack pointer in *ret_sp, goes on at sp. */
void fiber_switch(void **ret_sp, void *sp);
/* Where a new stack starts: calls fiber_main with what the initial frame holds. */
void fiber_trampoline(void);

#endif
