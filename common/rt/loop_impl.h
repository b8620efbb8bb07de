/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The internals of loops and fibers, for the .c files of this folder and sim/, which alone include
 * this.
 */
#ifndef LEAT_COMMON_RT_LOOP_IMPL_H
#define LEAT_COMMON_RT_LOOP_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/loop_backend.h"

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define RT_VALGRIND 1
/* Marks memory that the kernel wrote, which valgrind does not notice. */
#define rt_mark_defined(ptr, len) ((void)VALGRIND_MAKE_MEM_DEFINED(ptr, len))
#else
#define rt_mark_defined(ptr, len) ((void)0)
#endif

/* gdb_fibers.py uses these numbers. */
enum fiber_state {
	FIBER_FREE,  /* in the pool */
	FIBER_READY, /* in the loop's ready list */
	FIBER_RUNNING,
	FIBER_PARKED,  /* in fiber_park: fiber_wake ends it */
	/* in fiber_block: fiber_unblock ends it, fiber_wake is remembered for later */
	FIBER_BLOCKED,
};

#define FIBER_MAGIC 0x46494252u /* FIBR */
#define LOOP_MAGIC  0x4c4f4f50u /* LOOP */

/* Located at the upper end of its own stack. Owned by its loop. */
struct fiber {
	uint32_t magic;
	enum fiber_state state;
	bool wake_kept;     /* a wake without a park: the next park returns immediately */
	bool woken;         /* readied by a wake and not run since: further wakes have no effect */
	bool interrupted;   /* interrupted but not yet notified */
	bool interruptible; /* of the present wait */
	bool warm;          /* in the pool, with its stack pages still allocated */
	int wait_status;    /* what the present wait returns */
	void *sp;           /* stack pointer that fiber_switch saved */
	struct loop *loop;
	const char *name;
	void (*fn)(void *arg);
	void *arg;
	struct list link; /* of the ready list or the pool */
	struct list all;  /* of loop->fibers while not free */
	uint64_t deadline_us;
	struct parallel *parallel; /* the innermost fiber_parallel that it runs, or NULL */
	void *local;
	struct timer timer; /* of the present wait */
	uint8_t *stack;     /* lowest usable byte */
	size_t stack_size;  /* up to this struct */
	void *san;          /* ASan: fake stack; TSan: context */
	unsigned valgrind_id;
};

/* A mapping of several stacks; a loop's slabs are chained. */
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

/* Owned by the thread that runs it, except for members marked otherwise. */
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
	atomic_bool asleep;             /* mail must kick the loop */
	atomic_bool stop;               /* any thread */
	atomic_uint n_posting;          /* threads inside of loop_post, loop_stop */
	pthread_t thread;
	bool thread_started;
	pthread_mutex_t call_lock; /* protects the next two */
	bool calls_closed;
	struct list calls;
	struct list link; /* of loop.c's list of all loops, for gdb */
};

/* The loop that runs on this thread. */
extern _Thread_local struct loop *loop_current;

/* ---- fiber_switch.S ---- */
/* Saves the callee-saved registers on the stack and the stack pointer in *ret_sp, continues at
 * sp. */
void fiber_switch(void **ret_sp, void *sp);
/* Entry of a new stack: calls fiber_main with the contents of the initial frame. */
void fiber_trampoline(void);

#endif
