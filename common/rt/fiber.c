/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: stacks, switching, and the primitives of waiting.
 *
 * Stacks come from slabs of address space with a guard below each, and are not unmapped before the
 * loop ends. A fiber that ends stays on its stack in a loop of fiber_main, waiting for the next
 * function. So spawning one is two list operations, and the annotations for sanitizers (whose
 * contexts cost memory or leave traces on the stack) are made once per stack. The pool is last in,
 * first out; beyond WARM_MAX free stacks, the pages of a stack are returned to the kernel when its
 * fiber ends.
 *
 * The scheduler runs on the stack of the thread that turns the loop; every switch is from it to a
 * fiber or back.
 */
#include "common/rt/fiber.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/rt/fiber_impl.h"
#include "common/rt/loop_impl.h"

#ifdef RT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#define STACK_FACTOR 4
#elif defined(RT_TSAN)
#include <sanitizer/tsan_interface.h>
#define STACK_FACTOR 4
#else
#define STACK_FACTOR 1
#endif

#define STACKS_PER_SLAB 32
#define WARM_MAX        256  /* free stacks that keep their pages */
#define DEEPEST_SLABS   8    /* that fiber_deepest checks: the oldest are used most */
#define COLD_KEEP       8192 /* upper end of a free stack: fiber_main is still on it */
/* Large enough that a frame with a buffer of a path or two cannot skip it and reach the next
 * stack. */
#define GUARD (32u << 10)
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13: a guard that costs no mapping */
#endif

#define STOP_POLL_US 500000u /* poll interval for the flag that ends a sleep */

/* ---- stacks ---- */

/* Rounds len up to whole pages. */
static size_t page_up(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (len + page - 1) / page * page;
}

void fiber_loop_init(struct loop *l, uint32_t fibers_max, uint32_t stack_size)
{
	size_t size = (stack_size ? stack_size : 64u << 10) * (size_t)STACK_FACTOR;

	if (size < 16u << 10)
		size = 16u << 10;
	list_init(&l->ready);
	list_init(&l->fibers);
	list_init(&l->pool);
	l->fibers_max = fibers_max ? fibers_max : 65536;
	l->stack_size = page_up(size);
}

static size_t stack_stride(const struct loop *l)
{
	return page_up(GUARD) + l->stack_size;
}

/* The struct is at the upper end, shifted a little from stack to stack: at equal offsets the tops
 * would share cache sets. */
static struct fiber *stack_fiber(const struct loop *l, struct stack_slab *s, uint32_t i)
{
	uint8_t *end = s->base + (i + 1) * stack_stride(l);

	return (struct fiber *)(end - (i % 8) * 128 - (sizeof(struct fiber) + 63) / 64 * 64);
}

static struct stack_slab *slab_create(struct loop *l)
{
	size_t stride = stack_stride(l);
	size_t len = stride * STACKS_PER_SLAB + sizeof(struct stack_slab);
	struct stack_slab *s;
	uint8_t *base = mmap(NULL, len, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	if (base == MAP_FAILED)
		return NULL;
	/* A huge page would hold many unused stacks. */
	madvise(base, len, MADV_NOHUGEPAGE);
	s = (struct stack_slab *)(base + stride * STACKS_PER_SLAB);
	*s = (struct stack_slab){.base = base, .len = len, .n = STACKS_PER_SLAB};
#ifdef RT_ASAN
	__lsan_register_root_region(base, len);
#endif
	s->next = l->slabs;
	l->slabs = s;
	return s;
}

static void slab_destroy(struct loop *l, struct stack_slab *s)
{
	for (uint32_t i = 0; i < s->n_used; i++) {
		struct fiber *f = stack_fiber(l, s, i);

#ifdef RT_TSAN
		__tsan_destroy_fiber(f->san);
#endif
#ifdef RT_VALGRIND
		VALGRIND_STACK_DEREGISTER(f->valgrind_id);
#endif
		f->magic = 0;
	}
#ifdef RT_ASAN
	__lsan_unregister_root_region(s->base, s->len);
	ASAN_UNPOISON_MEMORY_REGION(s->base, s->len);
#endif
	munmap(s->base, s->len);
}

size_t fiber_deepest(const struct loop *l)
{
	size_t deepest = 0;

#if !defined(RT_ASAN) && !defined(RT_TSAN)
	uint32_t n_slabs = 0;

#ifdef RT_VALGRIND
	if (RUNNING_ON_VALGRIND)
		return 0; /* it reports such reads as errors */
#endif
	for (struct stack_slab *s = l->slabs; s != NULL; s = s->next)
		n_slabs++;
	for (struct stack_slab *s = l->slabs; s != NULL; s = s->next, n_slabs--) {
		for (uint32_t i = 0; i < s->n_used && n_slabs <= DEEPEST_SLABS; i++) {
			struct fiber *f = stack_fiber(l, s, i);
			const uint64_t *end = (const uint64_t *)f, *p = (const uint64_t *)f->stack;

			/* New pages are zeros: the lowest non-zero byte was written. */
			while (p < end && *p == 0)
				p++;
			if ((size_t)((const uint8_t *)end - (const uint8_t *)p) > deepest)
				deepest = (size_t)((const uint8_t *)end - (const uint8_t *)p);
		}
	}
#else
	(void)l;
#endif
	return deepest;
}

void fiber_loop_fini(struct loop *l)
{
	while (l->slabs != NULL) {
		struct stack_slab *s = l->slabs;

		l->slabs = s->next;
		slab_destroy(l, s);
	}
}

void fiber_loop_keep(struct loop *l)
{
	(void)l;
#ifdef RT_ASAN
	/* At the end of the program LSan would read the guards inside a registered region. */
	for (struct stack_slab *s = l->slabs; s != NULL; s = s->next) {
		__lsan_unregister_root_region(s->base, s->len);
		for (uint32_t i = 0; i < s->n_used; i++)
			__lsan_register_root_region(stack_fiber(l, s, i)->stack, l->stack_size);
	}
#endif
}

/* ---- switching ---- */

#if defined(RT_ASAN) || defined(RT_TSAN)
_Thread_local uint32_t no_yield_depth;
#endif

/* Switches from the scheduler to f, until f yields. */
static void switch_to(struct loop *l, struct fiber *f)
{
	l->current = f;
	f->state = FIBER_RUNNING;
	f->woken = false;
#ifdef RT_ASAN
	void *fake;

	__sanitizer_start_switch_fiber(&fake, f->stack, f->stack_size);
	fiber_switch(&l->sched_sp, f->sp);
	__sanitizer_finish_switch_fiber(fake, NULL, NULL);
#else
#ifdef RT_TSAN
	__tsan_switch_to_fiber(f->san, 0);
#endif
	fiber_switch(&l->sched_sp, f->sp);
#endif
	l->current = NULL;
}

/* Switches from f to the scheduler, until f is run again. */
static void switch_away(struct fiber *f)
{
	struct loop *l = f->loop;

	NO_YIELD_CHECK();
#ifdef RT_ASAN
	__sanitizer_start_switch_fiber(&f->san, l->sched_stack, l->sched_stack_size);
	fiber_switch(&f->sp, l->sched_sp);
	__sanitizer_finish_switch_fiber(f->san, &l->sched_stack, &l->sched_stack_size);
#else
#ifdef RT_TSAN
	__tsan_switch_to_fiber(l->sched_san, 0);
#endif
	fiber_switch(&f->sp, l->sched_sp);
#endif
}

static void make_ready(struct fiber *f)
{
	f->state = FIBER_READY;
	list_push(&f->loop->ready, &f->link);
	f->loop->n_ready++;
}

/* Returns the fiber to the pool. Still runs on the stack, and may drop its pages. */
static void fiber_retire(struct fiber *f)
{
	struct loop *l = f->loop;

	ASSERT(!timer_is_set(&f->timer));
	ASSERT(l->n_fibers > 0);
	list_remove(&f->all);
	l->n_fibers--;
	f->state = FIBER_FREE;
	f->name = "";
	f->warm = l->n_warm < WARM_MAX;
	if (f->warm) {
		l->n_warm++;
		list_push_front(&l->pool, &f->link);
		return;
	}
	/* Drop the pages of a deep call: they are rarely needed again. */
	if (l->stack_size > page_up(COLD_KEEP))
		madvise(f->stack, l->stack_size - page_up(COLD_KEEP), MADV_DONTNEED);
	list_push(&l->pool, &f->link);
}

static void __attribute__((noreturn)) fiber_main(struct fiber *f)
{
#ifdef RT_ASAN
	__sanitizer_finish_switch_fiber(NULL, &f->loop->sched_stack, &f->loop->sched_stack_size);
#endif
	for (;;) {
		f->fn(f->arg);
		fiber_retire(f);
		switch_away(f);
	}
}

/* The frame from which fiber_switch enters fiber_trampoline. */
static void fiber_init_frame(struct fiber *f)
{
	void **sp = (void **)((uintptr_t)(f->stack + f->stack_size) & ~(uintptr_t)15);

#if defined(__x86_64__)
	sp -= 9; /* r15 r14 r13 r12 rbx rbp return, and two so that the rest is 16-byte aligned */
	memset(sp, 0, 9 * sizeof(*sp));
	sp[2] = (void *)fiber_main;
	sp[3] = f;
	sp[6] = (void *)fiber_trampoline;
#else
	sp -= 20; /* x19 x20 .. x29 x30, d8 .. d15 */
	memset(sp, 0, 20 * sizeof(*sp));
	sp[0] = f;
	sp[1] = (void *)fiber_main;
	sp[11] = (void *)fiber_trampoline;
#endif
	f->sp = sp;
}

static void fiber_timed_out(struct timer *t);

static struct fiber *fiber_create(struct loop *l)
{
	struct stack_slab *s = l->slabs;
	uint8_t *lowest;
	struct fiber *f;

	if (s == NULL || s->n_used == s->n)
		s = slab_create(l);
	if (s == NULL)
		return NULL;
	lowest = s->base + s->n_used * stack_stride(l);
	if (madvise(lowest, page_up(GUARD), MADV_GUARD_INSTALL) < 0 &&
	    mprotect(lowest, page_up(GUARD), PROT_NONE) < 0)
		return NULL;
	f = stack_fiber(l, s, s->n_used++);
	*f = (struct fiber){.magic = FIBER_MAGIC, .loop = l, .stack = lowest + page_up(GUARD)};
	f->stack_size = (size_t)((uint8_t *)f - f->stack);
	timer_init(&f->timer, fiber_timed_out);
	list_init(&f->link);
	list_init(&f->all);
	fiber_init_frame(f);
#ifdef RT_TSAN
	f->san = __tsan_create_fiber(0);
#endif
#ifdef RT_VALGRIND
	f->valgrind_id = VALGRIND_STACK_REGISTER(f->stack, f->stack + f->stack_size);
#endif
	return f;
}

int fiber_spawn_on(struct loop *l, const char *name, void (*fn)(void *arg), void *arg)
{
	struct fiber *f;

	if (l->n_fibers >= l->fibers_max)
		return -LE_OVERLOAD;
	if (list_empty(&l->pool)) {
		f = fiber_create(l);
		if (f == NULL)
			return -LE_NOMEM;
	} else {
		f = container_of(list_pop(&l->pool), struct fiber, link);
		l->n_warm -= f->warm;
	}
	f->name = name;
	f->fn = fn;
	f->arg = arg;
	f->wake_kept = f->woken = f->interrupted = f->warm = false;
	f->deadline_us = NO_DEADLINE;
	f->local = NULL;
	f->parallel = NULL;
	l->n_fibers++;
	list_push(&l->fibers, &f->all);
	make_ready(f);
	return 0;
}

int fiber_spawn(const char *name, void (*fn)(void *arg), void *arg)
{
	ASSERT(loop_current != NULL);
	return fiber_spawn_on(loop_current, name, fn, arg);
}

static struct fiber *pick_ready(struct loop *l)
{
	struct list *n = l->ready.next;

	if (l->pick != NULL && l->n_ready > 1)
		for (uint32_t i = l->pick(l->pick_arg, l->n_ready); i > 0; i--)
			n = n->next;
	ASSERT(n != &l->ready);
	list_remove(n);
	l->n_ready--;
	return container_of(n, struct fiber, link);
}

uint32_t fiber_run_ready(struct loop *l, uint32_t max)
{
	uint32_t n = 0;

#ifdef RT_TSAN
	l->sched_san = __tsan_get_current_fiber();
#endif
	for (; l->n_ready > 0 && n < max; n++)
		switch_to(l, pick_ready(l));
	return n;
}

/* ---- waiting ---- */

static struct fiber *self_checked(void)
{
	struct fiber *f = fiber_self();

	ASSERT(f != NULL && f->magic == FIBER_MAGIC);
	return f;
}

struct fiber *fiber_self(void)
{
	return loop_current != NULL ? loop_current->current : NULL;
}

const char *fiber_name(const struct fiber *f)
{
	return f->name;
}

/* Ends the present wait of f. */
static void wait_end(struct fiber *f, int status)
{
	timer_cancel(&f->timer);
	f->wait_status = status;
	make_ready(f);
}

static void fiber_timed_out(struct timer *t)
{
	wait_end(container_of(t, struct fiber, timer), -LE_TIMEDOUT);
}

static int wait_in(struct fiber *f, enum fiber_state state, uint64_t deadline_us,
		   bool interruptible)
{
	if (interruptible && f->interrupted) {
		f->interrupted = false;
		return -LE_INTR;
	}
	if (deadline_us != NO_DEADLINE) {
		if (deadline_us <= f->loop->now_us)
			return -LE_TIMEDOUT;
		timer_set(&f->timer, deadline_us);
	}
	f->interruptible = interruptible;
	f->state = state;
	switch_away(f);
	return f->wait_status;
}

void fiber_yield(void)
{
	struct fiber *f = self_checked();

	make_ready(f);
	switch_away(f);
}

void fiber_park(void)
{
	struct fiber *f = self_checked();
	int rc = 0;

	if (!f->wake_kept)
		rc = wait_in(f, FIBER_PARKED, NO_DEADLINE, false);
	f->wake_kept = false;
	ASSERT(rc == 0);
}

int fiber_park_until(uint64_t deadline_us)
{
	struct fiber *f = self_checked();

	if (f->wake_kept) {
		f->wake_kept = false;
		return 0;
	}
	return wait_in(f, FIBER_PARKED, deadline_us, true);
}

void fiber_wake(struct fiber *f)
{
	ASSERT(f->magic == FIBER_MAGIC && f->loop == loop_current && f->state != FIBER_FREE);
	if (f->state == FIBER_PARKED) {
		wait_end(f, 0);
		f->woken = true;
	} else if (!f->woken) {
		f->wake_kept = true;
	}
}

int fiber_block(uint64_t deadline_us, bool interruptible)
{
	return wait_in(self_checked(), FIBER_BLOCKED, deadline_us, interruptible);
}

void fiber_unblock(struct fiber *f)
{
	ASSERT(f->magic == FIBER_MAGIC && f->loop == loop_current);
	if (f->state == FIBER_BLOCKED)
		wait_end(f, 0);
}

int fiber_sleep_us(uint64_t us)
{
	uint64_t now = loop_current->now_us;
	int rc;

	if (us == 0)
		fiber_yield();
	rc = fiber_block(us < NO_DEADLINE - now ? now + us : NO_DEADLINE, true);
	return rc == -LE_TIMEDOUT ? 0 : rc;
}

int fiber_sleep_unless(uint64_t us, const volatile int *stop)
{
	uint64_t now;

	if (us == 0)
		return 0;
	now = loop_current->now_us;
	for (const uint64_t until = us < NO_DEADLINE - now ? now + us : NO_DEADLINE;
	     now < until && !(stop && *stop); now = loop_current->now_us)
		TRY(fiber_sleep_us(until - now < STOP_POLL_US ? until - now : STOP_POLL_US));
	return 0;
}

void fiber_interrupt(struct fiber *f)
{
	ASSERT(f->magic == FIBER_MAGIC && f->loop == loop_current);
	if ((f->state == FIBER_PARKED || f->state == FIBER_BLOCKED) && f->interruptible)
		wait_end(f, -LE_INTR);
	else
		f->interrupted = true;
}

bool fiber_interrupt_clear(void)
{
	struct fiber *f = self_checked();
	bool was = f->interrupted;

	f->interrupted = false;
	return was;
}

uint64_t fiber_deadline(void)
{
	struct fiber *f = fiber_self();

	return f != NULL ? f->deadline_us : NO_DEADLINE;
}

void fiber_set_deadline(uint64_t deadline_us)
{
	self_checked()->deadline_us = deadline_us;
}

void *fiber_local(void)
{
	const struct fiber *f = fiber_self();

	return f != NULL ? f->local : NULL;
}

void fiber_set_local(void *local)
{
	self_checked()->local = local;
}

/* ---- waitq, turnq, fmutex, latch ---- */

struct waiter {
	struct list link; /* out of the queue: woken */
	struct fiber *fiber;
};

void waitq_init(struct waitq *q)
{
	list_init(&q->waiters);
}

static int waitq_block(struct waitq *q, uint64_t deadline_us, bool interruptible)
{
	struct waiter w = {.fiber = self_checked()};
	int rc;

	list_push(&q->waiters, &w.link);
	rc = fiber_block(deadline_us, interruptible);
	list_remove(&w.link);
	return rc;
}

int waitq_wait(struct waitq *q, uint64_t deadline_us)
{
	return waitq_block(q, deadline_us, true);
}

void waitq_wake_one(struct waitq *q)
{
	/* Skip a fiber that was interrupted or timed out just now and has not run since. */
	for (struct list *n = list_pop(&q->waiters); n != NULL; n = list_pop(&q->waiters)) {
		struct fiber *f = container_of(n, struct waiter, link)->fiber;

		if (f->state == FIBER_BLOCKED) {
			fiber_unblock(f);
			return;
		}
	}
}

void waitq_wake_all(struct waitq *q)
{
	for (struct list *n = list_pop(&q->waiters); n != NULL; n = list_pop(&q->waiters))
		fiber_unblock(container_of(n, struct waiter, link)->fiber);
}

void turnq_init(struct turnq *q)
{
	list_init(&q->waiters);
}

static bool has_enough(bool (*enough)(void *arg), void *arg)
{
	NO_YIELD();

	return enough(arg);
}

int turnq_wait(struct turnq *q, bool (*enough)(void *arg), void *arg, uint64_t poll_us,
	       uint64_t deadline_us)
{
	struct waiter w;
	int rc = 0;

	if (list_empty(&q->waiters) && has_enough(enough, arg))
		return 0;
	w.fiber = self_checked();
	list_push(&q->waiters, &w.link);
	while (rc == 0 && (q->waiters.next != &w.link || !has_enough(enough, arg))) {
		uint64_t now = loop_current->now_us;
		uint64_t look = poll_us < NO_DEADLINE - now ? now + poll_us : NO_DEADLINE;

		rc = fiber_block(look < deadline_us ? look : deadline_us, true);
		if (rc == -LE_TIMEDOUT && look < deadline_us)
			rc = 0;
	}
	list_remove(&w.link);
	/* If this fiber was woken as well, the next one takes its place. */
	if (rc < 0)
		turnq_wake(q);
	return rc;
}

void turnq_wake(struct turnq *q)
{
	if (!list_empty(&q->waiters))
		fiber_unblock(container_of(q->waiters.next, struct waiter, link)->fiber);
}

void fmutex_init(struct fmutex *m)
{
	m->held = false;
	waitq_init(&m->q);
}

void fmutex_lock(struct fmutex *m)
{
	int rc = 0;

	if (!m->held)
		m->held = true;
	else
		rc = waitq_block(&m->q, NO_DEADLINE, false);
	ASSERT(rc == 0);
}

void fmutex_unlock(struct fmutex *m)
{
	ASSERT(m->held);
	if (waitq_empty(&m->q))
		m->held = false;
	else
		waitq_wake_one(&m->q); /* the first waiter holds it now */
}

void latch_init(struct latch *l, uint32_t n)
{
	l->n = n;
	waitq_init(&l->q);
}

void latch_add(struct latch *l, uint32_t n)
{
	l->n += n;
}

void latch_done(struct latch *l)
{
	ASSERT(l->n > 0);
	if (--l->n == 0)
		waitq_wake_all(&l->q);
}

void latch_wait(struct latch *l)
{
	while (l->n > 0) {
		int rc = waitq_block(&l->q, NO_DEADLINE, false);

		ASSERT(rc == 0);
	}
}

/* ---- parallel ---- */

struct parallel {
	void (*fn)(void *arg);
	uint8_t *args;
	size_t size;
	uint32_t n, next;
	uint64_t deadline_us;
	struct latch helpers;
	struct list running;    /* struct helper */
	struct parallel *outer; /* the fiber_parallel that this one is a part of */
	bool interrupted;
};

struct helper {
	struct list link;
	struct fiber *fiber;
};

static void parallel_work(struct parallel *p)
{
	while (p->next < p->n) {
		self_checked()->interrupted |= p->interrupted;
		p->fn(p->args + p->size * p->next++);
	}
}

static void parallel_helper(void *arg)
{
	struct parallel *p = arg;
	struct helper h = {.fiber = self_checked()};

	h.fiber->parallel = p;
	list_push(&p->running, &h.link);
	fiber_set_deadline(p->deadline_us);
	parallel_work(p);
	list_remove(&h.link);
	latch_done(&p->helpers);
}

void fiber_interrupt_all(struct fiber *f)
{
	for (struct parallel *p = f->parallel; p != NULL && !p->interrupted; p = p->outer) {
		p->interrupted = true;
		list_for_each (n, &p->running)
			fiber_interrupt_all(list_entry(n, struct helper, link)->fiber);
	}
	fiber_interrupt(f);
}

void fiber_parallel(const char *name, void (*fn)(void *arg), void *args, size_t size, uint32_t n,
		    uint32_t width)
{
	struct parallel p = {
		.fn = fn, .args = args, .size = size, .n = n, .deadline_us = fiber_deadline()};

	latch_init(&p.helpers, 0);
	list_init(&p.running);
	p.outer = self_checked()->parallel;
	p.interrupted = p.outer != NULL && p.outer->interrupted;
	self_checked()->parallel = &p;
	for (uint32_t i = 1; i < width && i < n; i++) {
		if (fiber_spawn(name, parallel_helper, &p) < 0)
			break;
		latch_add(&p.helpers, 1);
	}
	parallel_work(&p);
	latch_wait(&p.helpers);
	self_checked()->parallel = p.outer;
}
