/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop, independent of its backend: mail, timers, fibers, and when to spin or sleep.
 *
 * Sleep and mail: the loop sets `asleep` and then checks the mailbox; a sender pushes and then
 * checks `asleep`. The later of the two observes the other (both are sequentially consistent), so
 * no mail is missed, and mail to a busy loop costs the sender no system call.
 */
#include "common/rt/loop.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/rt/env.h"
#include "common/rt/fiber_impl.h"
#include "common/rt/loop_impl.h"

#define DRAIN_MS 5000
#define TURN_SWITCHES 256 /* so that I/O is submitted and reaped between */
#define SPIN_HOLE_US 20   /* a longer gap in a spin: another thread had this core */

_Thread_local struct loop *loop_current;

/* For gdb_fibers.py; owned by loops_lock. */
static pthread_mutex_t loops_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list loops_all = { &loops_all, &loops_all };
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* Lets a child of fork() make loops, whatever the other threads were doing at the fork. Its list
 * keeps its parent's loops, which stay as unused memory. */
static void lock_loops(void)
{
	pthread_mutex_lock(&loops_lock);
}

static void unlock_loops(void)
{
	pthread_mutex_unlock(&loops_lock);
}

static void set_fork_handlers(void)
{
	pthread_atfork(lock_loops, unlock_loops, unlock_loops);
}

/* A loop_call in progress: on the caller's stack, in loop->calls, protected by call_lock. */
struct call {
	struct mail mail;
	struct list link;
	struct loop *loop;
	const char *name;
	void (*fn)(void *arg);
	void *arg;
	int status;
	bool done;
	pthread_cond_t cond;
};

/* ---- life ---- */

int loop_create(struct env *env, const struct loop_options *opts, struct loop **ret_loop)
{
	return env->ops->loop_create(env, opts, ret_loop);
}

/* With one processor a spin would take it from the thread that the loop waits for. */
static uint32_t spin_us(const struct loop_options *opts)
{
	return sysconf(_SC_NPROCESSORS_ONLN) > 1 ? opts->spin_us : 0;
}

int loop_create_with(struct env *env, const struct loop_options *opts,
		     const struct loop_backend *backend, void *backend_data,
		     struct loop **ret_loop)
{
	struct loop *l = calloc(1, sizeof(*l));
	int rc;

	if (l == NULL)
		return -LE_NOMEM;
	l->magic = LOOP_MAGIC;
	l->env = env;
	l->backend = backend;
	l->backend_data = backend_data;
	strncpy(l->name, opts->name ? opts->name : "loop", sizeof(l->name) - 1);
	l->spin_us = l->spin_now_us = spin_us(opts);
	l->drain_ms = opts->drain_ms ? opts->drain_ms : DRAIN_MS;
	l->ring_entries = opts->ring_entries ? opts->ring_entries : 1024;
	rc = timer_loop_init(l);
	if (rc < 0) {
		free(l);
		return rc;
	}
	fiber_loop_init(l, opts->fibers_max, opts->stack_size);
	list_init(&l->pollers);
	atomic_init(&l->mailbox, NULL);
	atomic_init(&l->asleep, true);
	atomic_init(&l->stop, false);
	pthread_mutex_init(&l->call_lock, NULL);
	list_init(&l->calls);
	l->now_us = env_now_us(env);
	pthread_once(&fork_once, set_fork_handlers);
	pthread_mutex_lock(&loops_lock);
	list_push(&loops_all, &l->link);
	pthread_mutex_unlock(&loops_lock);
	*ret_loop = l;
	return 0;
}

static void loop_free(struct loop *l)
{
	pthread_mutex_lock(&loops_lock);
	list_remove(&l->link);
	pthread_mutex_unlock(&loops_lock);
	fiber_loop_fini(l);
	timer_loop_fini(l);
	pthread_mutex_destroy(&l->call_lock);
	l->magic = 0;
	free(l);
}

/* Warns about a stack that was nearly used up, before one overflows. */
static void report_stacks(const struct loop *l)
{
	size_t deepest = fiber_deepest(l);

	if (deepest > l->stack_size / 4 * 3)
		log_warn("loop %s: a fiber used %zu of its %zu bytes of stack", l->name, deepest,
			 l->stack_size);
	else
		log_debug("loop %s: stacks used up to %zu of %zu bytes", l->name, deepest,
			  l->stack_size);
}

static void end_pollers(struct loop *l)
{
	struct list *n;

	loop_enter(l);
	while ((n = list_pop(&l->pollers)) != NULL) {
		struct loop_poller *p = container_of(n, struct loop_poller, link);

		list_init(&p->link);
		p->gone(p);
	}
	loop_leave(l);
}

void loop_destroy(struct loop *l)
{
	bool parked = l->n_fibers > 0;

	ASSERT(loop_current != l && !l->thread_started);
	end_pollers(l);
	while (atomic_load(&l->n_posting) > 0)
		sched_yield();
	list_for_each(n, &l->fibers)
		log_warn("loop %s ends with fiber %s waiting", l->name,
			 container_of(n, struct fiber, all)->name);
	report_stacks(l);
	if (l->backend->destroy != NULL)
		l->backend->destroy(l, parked);
	/* The kernel may still write to the stacks of operations in flight, and a worker post the
	 * end of a job: everything stays allocated. */
	if (parked)
		fiber_loop_keep(l);
	else
		loop_free(l);
}

void loop_abandon(struct loop *l)
{
	ASSERT(l->current == NULL);
	if (l->backend->destroy != NULL)
		l->backend->destroy(l, false);
	loop_free(l);
}

void *loop_backend_data(struct loop *l)
{
	return l->backend_data;
}

void loop_set_pick(struct loop *l, uint32_t (*pick)(void *arg, uint32_t n_ready), void *arg)
{
	l->pick = pick;
	l->pick_arg = arg;
}

struct loop *loop_self(void)
{
	return loop_current;
}

struct env *loop_env(struct loop *l)
{
	return l->env;
}

uint32_t loop_n_fibers(const struct loop *l)
{
	return l->n_fibers;
}

uint64_t loop_now_us(void)
{
	struct timespec ts;

	if (loop_current != NULL)
		return loop_current->now_us;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t loop_deadline_ms(uint64_t ms)
{
	uint64_t now = loop_now_us();

	return ms < (NO_DEADLINE - now) / 1000 ? now + ms * 1000 : NO_DEADLINE;
}

/* ---- mail ---- */

void loop_post(struct loop *to, struct mail *m)
{
	struct mail *head;

	/* This mail may end the loop's last wait; loop_destroy waits until this function has
	 * returned. */
	atomic_fetch_add(&to->n_posting, 1);
	head = atomic_load_explicit(&to->mailbox, memory_order_relaxed);
	do
		m->next = head;
	while (!atomic_compare_exchange_weak(&to->mailbox, &head, m));
	/* If the box was not empty, the sender of its first mail has kicked the loop. */
	if (head == NULL && atomic_load(&to->asleep))
		to->backend->kick(to);
	atomic_fetch_sub(&to->n_posting, 1);
}

static bool take_mail(struct loop *l)
{
	struct mail *m, *in_order = NULL;

	if (atomic_load_explicit(&l->mailbox, memory_order_relaxed) == NULL)
		return false;
	m = atomic_exchange(&l->mailbox, NULL);
	while (m != NULL) {
		struct mail *next = m->next;

		m->next = in_order;
		in_order = m;
		m = next;
	}
	while (in_order != NULL) {
		m = in_order;
		in_order = m->next;
		m->fn(m);
	}
	return true;
}

/* ---- pollers and watches ---- */

void loop_poller_add(struct loop_poller *p)
{
	list_push(&loop_current->pollers, &p->link);
}

void loop_poller_remove(struct loop_poller *p)
{
	list_remove(&p->link);
	list_init(&p->link);
}

static void poll_all(struct loop *l)
{
	list_for_each_safe(n, &l->pollers) {
		struct loop_poller *p = container_of(n, struct loop_poller, link);

		p->poll(p);
	}
}

/* Arms all pollers. True if one has events pending. */
static bool arm_all(struct loop *l)
{
	bool work = false;

	list_for_each_safe(n, &l->pollers) {
		struct loop_poller *p = container_of(n, struct loop_poller, link);

		work |= p->arm(p);
	}
	return work;
}

int loop_watch_start(struct loop_watch *w, int fd)
{
	ASSERT(loop_current->backend->watch != NULL);
	return loop_current->backend->watch(loop_current, w, fd);
}

void loop_watch_stop(struct loop_watch *w)
{
	if (w->internal != NULL)
		loop_current->backend->unwatch(loop_current, w);
}

/* ---- turns ---- */

void loop_enter(struct loop *l)
{
	if (loop_current == l) {
		l->enter_depth++;
	} else {
		l->outer = loop_current;
		loop_current = l;
	}
	l->now_us = env_now_us(l->env);
}

void loop_leave(struct loop *l)
{
	ASSERT(loop_current == l);
	if (l->enter_depth > 0)
		l->enter_depth--;
	else
		loop_current = l->outer;
}

/* Runs one turn at time now_us; the caller has entered the loop. */
static bool turn(struct loop *l, uint32_t max_switches)
{
	bool ran;

	ASSERT(l->current == NULL);
	ran = take_mail(l);
	ran |= timer_run_due(l) > 0;
	ran |= fiber_run_ready(l, max_switches) > 0;
	poll_all(l);
	return ran;
}

bool loop_turn(struct loop *l, uint32_t max_switches)
{
	bool ran;

	loop_enter(l);
	ran = turn(l, max_switches);
	loop_leave(l);
	return ran;
}

uint64_t loop_next_us(const struct loop *l)
{
	if (l->n_ready > 0 || atomic_load_explicit(&l->mailbox, memory_order_relaxed) != NULL)
		return 0;
	return l->n_timers > 0 ? l->heap[0].at_us : NO_DEADLINE;
}

/* True if the next turn has something to do. */
static bool loop_has_work(struct loop *l, bool stop_seen)
{
	return loop_next_us(l) <= l->now_us || (!stop_seen && loop_stopping(l));
}


/* Polls for work without sleeping; true if some arrived. A spin without result halves the next
 * one. */
static bool loop_spin(struct loop *l, bool stop_seen)
{
	uint64_t end = l->now_us + l->spin_now_us;
	uint64_t last;

	if (l->spin_now_us == 0)
		return false;
	do {
		sched_yield(); /* threads that are ready on this processor run first */
		l->backend->wait(l, 0);
		poll_all(l);
		last = l->now_us;
		l->now_us = env_now_us(l->env);
		if (loop_has_work(l, stop_seen)) {
			l->spin_now_us = l->spin_us;
			return true;
		}
	} while (l->now_us < end && l->now_us - last < SPIN_HOLE_US);
	l->spin_now_us /= 2;
	return false;
}

/* Called when nothing is ready: spins, then sleeps until I/O, mail or the time until_us. now_us is
 * current on return, so that a turn costs one reading of the clock (a system call in some virtual
 * machines). */
static void loop_idle(struct loop *l, bool stop_seen, uint64_t until_us)
{
	uint64_t before;

	if (loop_spin(l, stop_seen))
		return;
	if (arm_all(l)) {
		l->spin_now_us = l->spin_us;
		l->now_us = env_now_us(l->env);
		return;
	}
	before = l->now_us;
	atomic_store(&l->asleep, true);
	if (atomic_load(&l->mailbox) == NULL && (stop_seen || !loop_stopping(l)))
		l->backend->wait(l, until_us);
	else
		l->backend->wait(l, 0);
	atomic_store(&l->asleep, false);
	l->now_us = env_now_us(l->env);
	if (l->now_us - before < l->spin_us)
		l->spin_now_us = l->spin_us; /* a spin would have succeeded */
}

/* Refuses further calls, and ends those in progress with -LE_SHUTDOWN: no fiber will complete
 * them. */
static void close_calls(struct loop *l)
{
	pthread_mutex_lock(&l->call_lock);
	l->calls_closed = true;
	pthread_mutex_unlock(&l->call_lock);
	loop_enter(l);
	take_mail(l); /* a call in the mailbox observes that the loop is stopping */
	loop_leave(l);
	pthread_mutex_lock(&l->call_lock);
	for (struct list *n = list_pop(&l->calls); n != NULL; n = list_pop(&l->calls)) {
		struct call *c = container_of(n, struct call, link);

		c->status = -LE_SHUTDOWN;
		c->done = true;
		pthread_cond_signal(&c->cond);
	}
	pthread_mutex_unlock(&l->call_lock);
}

void loop_run(struct loop *l)
{
	uint64_t drain_end = NO_DEADLINE;

	ASSERT(loop_current == NULL && l->backend->wait != NULL);
	loop_enter(l); /* also for completions, which wait reaps */
	atomic_store(&l->asleep, false);
	for (;;) {
		uint64_t until;

		turn(l, TURN_SWITCHES);
		if (drain_end == NO_DEADLINE && loop_stopping(l))
			drain_end = loop_deadline_ms(l->drain_ms);
		if (drain_end != NO_DEADLINE && (l->n_fibers == 0 || l->now_us >= drain_end))
			break;
		until = loop_next_us(l);
		if (until <= l->now_us || (drain_end == NO_DEADLINE && loop_stopping(l))) {
			l->backend->wait(l, 0);
			l->now_us = env_now_us(l->env);
		} else {
			loop_idle(l, drain_end != NO_DEADLINE,
				  until < drain_end ? until : drain_end);
		}
	}
	atomic_store(&l->asleep, true);
	close_calls(l);
	loop_leave(l);
}

static void *loop_thread(void *arg)
{
	struct loop *l = arg;

	pthread_setname_np(pthread_self(), l->name);
	loop_run(l);
	return NULL;
}

int loop_start_thread(struct loop *l)
{
	sigset_t all, old;
	int err;

	ASSERT(!l->thread_started);
	/* Signals are handled by the program's own thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&l->thread, NULL, loop_thread, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err != 0)
		return status_from_errno(err);
	l->thread_started = true;
	return 0;
}

void loop_join(struct loop *l)
{
	if (!l->thread_started)
		return;
	pthread_join(l->thread, NULL);
	l->thread_started = false;
}

void loop_stop(struct loop *l)
{
	atomic_fetch_add(&l->n_posting, 1);
	atomic_store(&l->stop, true);
	if (atomic_load(&l->asleep))
		l->backend->kick(l);
	atomic_fetch_sub(&l->n_posting, 1);
}

bool loop_stopping(const struct loop *l)
{
	return atomic_load(&l->stop);
}

/* ---- calls from other threads ---- */

static void call_end(struct call *c, int status)
{
	struct loop *l = c->loop;

	pthread_mutex_lock(&l->call_lock);
	list_remove(&c->link);
	c->status = status;
	c->done = true;
	pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&l->call_lock);
}

static void call_fiber(void *arg)
{
	struct call *c = arg;

	c->fn(c->arg);
	call_end(c, 0);
}

static void call_mail(struct mail *m)
{
	struct call *c = container_of(m, struct call, mail);
	int rc = -LE_SHUTDOWN;

	if (!loop_stopping(c->loop))
		rc = fiber_spawn_on(c->loop, c->name, call_fiber, c);
	if (rc < 0)
		call_end(c, rc);
}

int loop_call(struct loop *to, const char *name, void (*fn)(void *arg), void *arg)
{
	struct call c = { .mail = { .fn = call_mail }, .loop = to, .name = name, .fn = fn,
			  .arg = arg };

	ASSERT(loop_current == NULL);
	pthread_cond_init(&c.cond, NULL);
	list_init(&c.link);
	pthread_mutex_lock(&to->call_lock);
	if (to->calls_closed || loop_stopping(to)) {
		c.status = -LE_SHUTDOWN;
	} else {
		list_push(&to->calls, &c.link);
		loop_post(to, &c.mail);
		while (!c.done)
			pthread_cond_wait(&c.cond, &to->call_lock);
	}
	pthread_mutex_unlock(&to->call_lock);
	pthread_cond_destroy(&c.cond);
	return c.status;
}
