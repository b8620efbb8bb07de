/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookup of host names on separate threads: a lookup cannot be interrupted, and while no name
 * server answers it takes many seconds. On an env's workers it would delay the store.
 *
 *    net_resolve → a lookup in the list → a thread runs getaddrinfo → mail to all waiters
 *
 * Calls for a name that is being looked up wait for that answer. A caller that gives up leaves
 * the lookup running: an answer without a waiter is kept for KEPT_US, so that a name server that is
 * slower than every caller's deadline serves the next attempt. Failures are not kept: the next call
 * starts a new lookup.
 *
 * Threads are created when a lookup is queued and end when none is left. Nothing here belongs to a
 * loop or an env: both may end meanwhile. `lock` protects all static variables, and the members
 * marked so.
 */
#include "common/rt/resolve.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/fiber_impl.h"
#include "common/rt/loop_impl.h"

#define THREADS_MAX 8u /* other names wait only while so many lookups are without an answer */
#define KEPT_US 30000000u

enum lookup_state {
	LOOKUP_QUEUED,
	LOOKUP_RUNNING, /* a thread works on it: only that thread frees it */
	LOOKUP_DONE,    /* its answer is kept */
};

struct lookup {
	struct list link; /* of lookups */
	enum lookup_state state;
	struct list waiters;
	struct net_addr addr; /* valid when done */
	uint64_t done_us;
	char text[];
};

/* On the stack of the fiber that waits. */
struct waiter {
	struct list link;   /* protected by lock */
	bool told;          /* protected by lock: the mail is posted, the next two are valid */
	int status;
	struct net_addr addr;
	struct mail mail;
	struct loop *loop;
	struct fiber *fiber;
	bool done; /* owned by the loop */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list lookups = {&lookups, &lookups};
static uint32_t n_threads;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* A child of fork() has none of the threads: it starts with an empty list, and never frees its
 * parent's lookups. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	list_init(&lookups);
	n_threads = 0;
	pthread_mutex_unlock(&lock);
}

static void set_fork_handlers(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- the threads ---- */

static struct lookup *next_queued(void)
{
	list_for_each(n, &lookups) {
		struct lookup *k = container_of(n, struct lookup, link);

		if (k->state == LOOKUP_QUEUED)
			return k;
	}
	return NULL;
}

static void forget(struct lookup *k)
{
	list_remove(&k->link);
	free(k);
}

static void ended(struct lookup *k, int status)
{
	bool keep = status == 0 && list_empty(&k->waiters);
	struct list *n;

	while ((n = list_pop(&k->waiters)) != NULL) {
		struct waiter *w = container_of(n, struct waiter, link);

		w->told = true;
		w->status = status;
		w->addr = k->addr;
		loop_post(w->loop, &w->mail);
	}
	k->state = LOOKUP_DONE;
	k->done_us = loop_now_us();
	if (!keep)
		forget(k);
}

static void *resolver(void *arg)
{
	struct lookup *k;

	(void)arg;
	pthread_setname_np(pthread_self(), "leat-resolver");
	pthread_mutex_lock(&lock);
	while ((k = next_queued()) != NULL) {
		k->state = LOOKUP_RUNNING;
		pthread_mutex_unlock(&lock);
		int rc = net_addr_parse(k->text, &k->addr);
		pthread_mutex_lock(&lock);
		ended(k, rc);
	}
	n_threads--;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Starts a thread, up to THREADS_MAX. An error only if there is none at all. */
static int thread_start(void)
{
	sigset_t all, old;
	pthread_t thread;

	if (n_threads == THREADS_MAX)
		return 0;
	/* Signals are handled by the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&thread, NULL, resolver, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err != 0)
		return n_threads > 0 ? 0 : status_from_errno(err);
	pthread_detach(thread);
	n_threads++;
	return 0;
}

/* ---- callers ---- */

/* Finds the lookup of a name, in progress or done; frees answers that are older than KEPT_US. */
static struct lookup *find(const char *text)
{
	struct lookup *found = NULL;

	list_for_each_safe(n, &lookups) {
		struct lookup *k = container_of(n, struct lookup, link);

		if (k->state == LOOKUP_DONE && k->done_us + KEPT_US < loop_now_us())
			forget(k);
		else if (strcmp(k->text, text) == 0)
			found = k;
	}
	return found;
}

static int find_or_start(const char *text, struct lookup **ret_k)
{
	struct lookup *k = find(text);

	if (k == NULL) {
		size_t size = strlen(text) + 1;

		k = malloc(sizeof(*k) + size);
		if (k == NULL)
			return -LE_NOMEM;
		*k = (struct lookup){ .state = LOOKUP_QUEUED };
		memcpy(k->text, text, size);
		list_init(&k->waiters);
		list_push(&lookups, &k->link);
		int rc = thread_start();
		if (rc < 0) {
			forget(k);
			return rc;
		}
	}
	*ret_k = k;
	return 0;
}

static void answered(struct mail *m)
{
	struct waiter *w = container_of(m, struct waiter, mail);

	w->done = true;
	fiber_unblock(w->fiber);
}

/* Waits for the answer. 0: w has it. */
static int wait_answer(struct waiter *w, uint64_t deadline_us)
{
	int rc = 0;

	while (rc == 0 && !w->done)
		rc = fiber_block(deadline_us, true);
	if (w->done)
		return 0;
	pthread_mutex_lock(&lock);
	bool told = w->told;
	list_remove(&w->link);
	pthread_mutex_unlock(&lock);
	if (!told)
		return rc;
	/* The answer came first: its mail must arrive before this stack frame ends. */
	while (!w->done)
		fiber_block_forever();
	if (rc == -LE_INTR)
		fiber_interrupt(w->fiber);
	return 0;
}

int net_resolve(const char *text, uint64_t deadline_us, struct net_addr *ret_addr)
{
	struct waiter w = { .mail = { .fn = answered }, .loop = loop_current };
	struct lookup *k = NULL;
	bool known = false;

	int rc = net_addr_numeric(text, ret_addr);
	if (rc != -LE_NO_HOST)
		return rc;
	w.fiber = fiber_self();
	ASSERT(w.fiber != NULL);
	list_init(&w.link);
	pthread_once(&fork_once, set_fork_handlers);
	pthread_mutex_lock(&lock);
	rc = find_or_start(text, &k);
	if (rc == 0 && k->state == LOOKUP_DONE) {
		known = true;
		*ret_addr = k->addr;
	} else if (rc == 0) {
		list_push(&k->waiters, &w.link);
	}
	pthread_mutex_unlock(&lock);
	if (rc < 0 || known)
		return rc;
	rc = wait_answer(&w, deadline_us);
	if (rc < 0)
		return rc == -LE_TIMEDOUT ? -LE_NO_NAMES : rc;
	TRY(w.status);
	*ret_addr = w.addr;
	return 0;
}
