/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Path of a commit: the fiber puts a request (on its stack) into the queue, wakes the thread if the
 * thread sleeps, and waits. The thread takes the whole queue (up to GROUP_BYTES_MAX), joins the
 * batches, writes them together, and posts one mail that completes all requests of the group on the
 * loop. While it writes, the next group collects: no timer, no configured delay.
 *
 * Waking a thread costs more than a quarter of a sync, so the thread polls the queue for SPIN_US
 * before it sleeps, but only if the last commit came within that time after the thread became idle:
 * when commits are rare nothing spins.
 */
#include "common/kv/kv_committer.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/rt/loop.h"

#define SPIN_US         50
#define GROUP_BYTES_MAX (4u << 20)

/* On the stack of the committing fiber. Owned by the thread from the queueing to the mail. */
struct request {
	struct mail mail; /* that of the first request completes the group */
	struct request *next;
	struct kv_batch *batch;
	bool sync;
	int status;
	struct latch done;
};

#define COMMITTER_MAGIC 0x4c4b5643u /* LKVC */

struct kv_committer {
	uint32_t magic;
	struct kv_committer_options opts;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct request *first, **last; /* guarded by lock */
	bool asleep, stop;             /* guarded by lock */
	uint64_t arrived_us;           /* of the first in the queue; guarded by lock */
	_Atomic uint32_t n_queued;     /* polled by the spinning thread */
	struct kv_batch *group;        /* from here on: owned by the thread */
	int failed;
	bool spin_pays;
	uint64_t rest_at_us; /* when to call `rest`; 0: not before the next write */
};

static uint64_t now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void on_group_done(struct mail *m)
{
	struct request *r = container_of(m, struct request, mail);
	while (r != NULL) {
		struct request *next = r->next;
		latch_done(&r->done);
		r = next;
	}
}

/* Takes the queued requests, in order, up to GROUP_BYTES_MAX. Called with the lock. */
static struct request *take_group(struct kv_committer *c)
{
	struct request *first = c->first, *r = first;
	size_t bytes = kv_batch_bytes(r->batch);
	uint32_t n = 1;
	while (r->next != NULL && bytes + kv_batch_bytes(r->next->batch) <= GROUP_BYTES_MAX) {
		r = r->next;
		bytes += kv_batch_bytes(r->batch);
		n++;
	}
	c->first = r->next;
	if (c->first == NULL)
		c->last = &c->first;
	r->next = NULL;
	uint32_t queued = atomic_fetch_sub_explicit(&c->n_queued, n, memory_order_relaxed);
	ASSERT(queued >= n && (queued == n) == (c->first == NULL));
	return first;
}

static void rest(struct kv_committer *c)
{
	c->rest_at_us = c->opts.rest(c->opts.arg) ? now_us() + c->opts.rest_us : 0;
}

/* Called with the lock, which is released meanwhile. May return before a commit is queued. */
static void sleep_until_called(struct kv_committer *c)
{
	struct timespec until = {(time_t)(c->rest_at_us / 1000000),
				 (long)(c->rest_at_us % 1000000) * 1000};
	c->asleep = true;
	if (c->rest_at_us == 0)
		pthread_cond_wait(&c->cond, &c->lock);
	else
		pthread_cond_timedwait(&c->cond, &c->lock, &until);
	c->asleep = false;
}

static struct request *wait_for_group(struct kv_committer *c)
{
	uint64_t idle_us = now_us();
	if (c->spin_pays) {
		while (atomic_load_explicit(&c->n_queued, memory_order_relaxed) == 0 &&
		       now_us() - idle_us < SPIN_US) {
			sched_yield();
		}
	}
	struct request *group = NULL;
	pthread_mutex_lock(&c->lock);
	while (c->first == NULL && !c->stop) {
		sleep_until_called(c);
		if (c->first == NULL && !c->stop && c->rest_at_us != 0 &&
		    now_us() >= c->rest_at_us) {
			pthread_mutex_unlock(&c->lock);
			rest(c);
			pthread_mutex_lock(&c->lock);
		}
	}
	if (c->first != NULL) {
		c->spin_pays = c->arrived_us < idle_us + SPIN_US;
		group = take_group(c);
	}
	pthread_mutex_unlock(&c->lock);
	return group;
}

static int write_group(struct kv_committer *c, struct request *group)
{
	bool sync = false;
	for (struct request *r = group; r != NULL; r = r->next)
		sync = sync || r->sync;
	if (group->next == NULL)
		return c->opts.write(c->opts.arg, group->batch, sync);
	kv_batch_clear(c->group);
	for (struct request *r = group; r != NULL; r = r->next)
		TRY(kv_batch_append(c->group, r->batch));
	return c->opts.write(c->opts.arg, c->group, sync);
}

static void *committer_thread(void *arg)
{
	struct kv_committer *c = CAST_OBJ(arg, struct kv_committer, COMMITTER_MAGIC);
	for (;;) {
		struct request *group = wait_for_group(c);
		if (group == NULL)
			return NULL;
		if (c->failed == 0) {
			int rc = write_group(c, group);
			c->failed = rc < 0 ? rc : 0;
		}
		if (c->opts.rest != NULL && c->failed == 0 && c->rest_at_us == 0)
			c->rest_at_us = now_us() + c->opts.rest_us;
		for (struct request *r = group; r != NULL; r = r->next)
			r->status = c->failed;
		loop_post(c->opts.loop, &group->mail);
		if (c->rest_at_us != 0 && now_us() >= c->rest_at_us)
			rest(c);
	}
}

int kv_committer_commit(struct kv_committer *c, struct kv_batch *b, bool sync)
{
	struct request r = {.mail.fn = on_group_done, .batch = b, .sync = sync};
	latch_init(&r.done, 1);
	pthread_mutex_lock(&c->lock);
	if (c->first == NULL)
		c->arrived_us = now_us();
	*c->last = &r;
	c->last = &r.next;
	atomic_fetch_add_explicit(&c->n_queued, 1, memory_order_relaxed);
	bool wake = c->asleep;
	c->asleep = false; /* one signal is enough */
	pthread_mutex_unlock(&c->lock);
	if (wake)
		pthread_cond_signal(&c->cond);
	latch_wait(&r.done);
	return r.status;
}

static int start_thread(struct kv_committer *c)
{
	sigset_t all, old;
	/* Signals are handled by the program's main thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&c->thread, NULL, committer_thread, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err != 0)
		return status_from_errno(err);
	pthread_setname_np(c->thread, "kv-commit");
	return 0;
}

int kv_committer_start(const struct kv_committer_options *opts, struct kv_committer **ret_committer)
{
	struct kv_committer *c = calloc(1, sizeof(*c));
	pthread_condattr_t clock;
	if (c == NULL)
		return -LE_NOMEM;
	c->magic = COMMITTER_MAGIC;
	c->opts = *opts;
	c->last = &c->first;
	c->group = kv_batch_create();
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&c->cond, &clock);
	pthread_condattr_destroy(&clock);
	int rc = c->group != NULL ? start_thread(c) : -LE_NOMEM;
	if (rc < 0) {
		kv_batch_destroy(c->group);
		free(c);
		return rc;
	}
	*ret_committer = c;
	return 0;
}

void kv_committer_stop(struct kv_committer *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	ASSERT(c->first == NULL && c->n_queued == 0);
	c->stop = true;
	pthread_mutex_unlock(&c->lock);
	pthread_cond_signal(&c->cond);
	pthread_join(c->thread, NULL);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->cond);
	kv_batch_destroy(c->group);
	free(c);
}
