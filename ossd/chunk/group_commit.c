/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/group_commit.h"

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/rt/loop.h"
#include "ossd/metrics.h"

static void wait_on(struct waitq *q)
{
	int rc = waitq_wait(q, NO_DEADLINE);

	(void)rc; /* the caller checks its condition again */
}

static void group_open(struct group_commit *g)
{
	struct list *l = list_pop(&g->free);

	ASSERT(l);
	g->open = list_entry(l, struct commit_group, link);
	g->open->number = g->next_number++;
	g->open->n = 0;
	g->open->data = false;
	g->open->urgent = false;
	kv_batch_clear(g->open->batch);
}

void group_commit_fail(struct group_commit *g, int rc, const char *what)
{
	if (g->status < 0)
		return;
	g->status = rc;
	metric_set(&g->o.metrics->failed, 1);
	log_error("op=commit: %s failed, the store takes no more writes: %s", what,
		  status_text(rc));
}

static bool must_sync(const struct group_commit *g)
{
	return g->o.sync && !PLANTED_BUG(OSS_EARLY_ACK);
}

static void sync_data(struct group_commit *g)
{
	uint64_t start = env_now_us(g->o.env);
	int rc = env_file_datasync(g->o.data);

	metric_add(&g->o.metrics->syncs, 1);
	metric_hist_add(&g->o.metrics->sync_us, env_now_us(g->o.env) - start);
	if (rc < 0)
		group_commit_fail(g, rc, "sync of the data file");
}

/* Waits until the open group should be committed. False: stopping, and it is empty. */
static bool wait_ripe(struct group_commit *g)
{
	for (;;) {
		const struct commit_group *c = g->open;
		uint64_t deadline = c->n == 0 ? NO_DEADLINE : c->since_us + LAZY_US;
		int rc;

		if (g->stopping || (c->n > 0 && (c->urgent || c->n >= LAZY_OPS)))
			return c->n > 0;
		rc = waitq_wait(&g->work, deadline);
		if (rc == -LE_TIMEDOUT)
			return true;
	}
}

/* Stage one: closes the open group and syncs its data. */
static void sync_fiber(void *arg)
{
	struct group_commit *g = arg;

	for (;;) {
		if (!wait_ripe(g))
			break;
		while (list_empty(&g->free))
			wait_on(&g->space);
		struct commit_group *c = g->open;
		group_open(g);
		if (c->data && must_sync(g) && g->status == 0)
			sync_data(g);
		list_push(&g->synced, &c->link);
		waitq_wake_one(&g->synced_work);
	}
	g->sync_ended = true;
	waitq_wake_all(&g->synced_work);
	latch_done(&g->fibers);
}

static void end_group(struct group_commit *g, struct commit_group *c)
{
	NO_YIELD();

	ASSERT(c->number == g->done + 1 && c->number < g->open->number);
	if (g->status == 0) {
		list_for_each_safe (l, &c->members) {
			struct commit_member *m = list_entry(l, struct commit_member, link);

			list_remove(l);
			m->committed(m);
		}
		g->durable = c->number;
		metric_add(&g->o.metrics->commits, 1);
		metric_add(&g->o.metrics->commit_ops, c->n);
		g->o.after(g->o.arg);
	}
	for (struct list *l; (l = list_pop(&c->members)) != NULL;) {
		struct commit_member *m = list_entry(l, struct commit_member, link);

		if (m->failed)
			m->failed(m);
	}
	g->done = c->number;
	waitq_wake_all(&c->waiters);
	list_push(&g->free, &c->link);
	waitq_wake_one(&g->space);
}

/* Stage two: commits the index, in order. */
static void commit_fiber(void *arg)
{
	struct group_commit *g = arg;

	for (;;) {
		while (list_empty(&g->synced) && !g->sync_ended)
			wait_on(&g->synced_work);
		struct list *l = list_pop(&g->synced);
		if (!l)
			break;
		struct commit_group *c = list_entry(l, struct commit_group, link);
		if (g->status == 0) {
			uint64_t start = env_now_us(g->o.env);

			g->o.before(g->o.arg, c->batch);
			int rc = kv_commit(g->o.kv, c->batch, must_sync(g));
			metric_hist_add(&g->o.metrics->commit_us, env_now_us(g->o.env) - start);
			if (rc < 0)
				group_commit_fail(g, rc, "commit of the index");
		}
		end_group(g, c);
	}
	latch_done(&g->fibers);
}

static void groups_fini(struct group_commit *g)
{
	for (uint32_t i = 0; i < COMMIT_GROUPS; i++)
		kv_batch_destroy(g->groups[i].batch);
}

static int groups_init(struct group_commit *g)
{
	for (uint32_t i = 0; i < COMMIT_GROUPS; i++) {
		struct commit_group *c = &g->groups[i];

		list_init(&c->members);
		waitq_init(&c->waiters);
		list_push(&g->free, &c->link);
		c->batch = kv_batch_create();
		if (!c->batch)
			return -LE_NOMEM;
	}
	return 0;
}

int group_commit_start(struct group_commit *g, const struct group_commit_options *o)
{
	int rc;

	*g = (struct group_commit){.o = *o, .loop = loop_self(), .next_number = 1};
	list_init(&g->free);
	list_init(&g->synced);
	waitq_init(&g->work);
	waitq_init(&g->synced_work);
	waitq_init(&g->space);
	latch_init(&g->fibers, 0);
	rc = groups_init(g);
	if (rc < 0)
		goto out;
	group_open(g);
	latch_add(&g->fibers, 1);
	rc = fiber_spawn("data-sync", sync_fiber, g);
	if (rc < 0) {
		latch_done(&g->fibers);
		goto out;
	}
	latch_add(&g->fibers, 1);
	rc = fiber_spawn("index-commit", commit_fiber, g);
	if (rc < 0) {
		latch_done(&g->fibers);
		group_commit_stop(g);
		return rc;
	}
	return 0;
out:
	groups_fini(g);
	return rc;
}

void group_commit_stop(struct group_commit *g)
{
	g->stopping = true;
	waitq_wake_all(&g->work);
	latch_wait(&g->fibers);
	groups_fini(g);
}

struct kv_batch *group_commit_batch(struct group_commit *g)
{
	return g->open->batch;
}

uint64_t group_commit_join_lazy(struct group_commit *g, struct commit_member *m, bool data)
{
	struct commit_group *c = g->open;

	ASSERT(g->loop == loop_self());
	if (m)
		list_push(&c->members, &m->link);
	if (c->n++ == 0)
		c->since_us = loop_now_us();
	c->data |= data;
	/* The first member starts the timer, the last one allowed ends the wait. */
	if (c->n == 1 || c->n == LAZY_OPS)
		waitq_wake_one(&g->work);
	return c->number;
}

uint64_t group_commit_join(struct group_commit *g, struct commit_member *m, bool data)
{
	uint64_t number = group_commit_join_lazy(g, m, data);

	group_commit_expedite(g);
	return number;
}

void group_commit_expedite(struct group_commit *g)
{
	if (g->open->n == 0 || g->open->urgent)
		return;
	g->open->urgent = true;
	waitq_wake_one(&g->work);
}

int group_commit_wait(struct group_commit *g, uint64_t number)
{
	while (g->done < number) {
		struct commit_group *c = NULL;

		for (uint32_t i = 0; i < COMMIT_GROUPS; i++)
			if (g->groups[i].number == number)
				c = &g->groups[i];
		ASSERT(c);
		wait_on(&c->waiters);
	}
	return number <= g->durable ? 0 : g->status;
}

int group_commit_barrier(struct group_commit *g)
{
	uint64_t last = g->next_number - (g->open->n ? 1 : 2);

	group_commit_expedite(g);
	return g->done < last ? group_commit_wait(g, last) : 0;
}
