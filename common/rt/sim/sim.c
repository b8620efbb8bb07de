/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator: processes, their loops, and the steps that drive them. Everything runs on one
 * thread; every decision is drawn from one generator, in an order that depends only on the seed (no
 * addresses, no real time), so that a run can be repeated exactly.
 *
 * A step: all loops with something ready or due are turned, one fiber at a time and in drawn order,
 * until nothing is ready; then time advances to the next event or timer.
 */
#include "common/rt/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/rt/loop_backend.h"
#include "common/rt/loop_impl.h"
#include "common/rt/sim/sim_disk.h"
#include "common/rt/sim/sim_impl.h"

#define START_US      1000000                /* not 0, which means "none" to some code */
#define START_WALL_NS 1767225600000000000ULL /* 2026-01-01 */
#define ROUNDS_MAX    2000                   /* then a fiber is busy-waiting: let time pass */

struct sim_loop {
	struct list link;
	struct loop *loop;
	struct sim *sim;
};

struct crash_hook {
	struct list link;
	void (*fn)(void *arg, struct sim_proc *p);
	void *arg;
};

struct durable_entry {
	struct list link;
	struct sim_durable *durable;
	char name[];
};

/* ---- env functions other than files ---- */

static struct sim *sim_from(struct env *env)
{
	return sim_env_of(env)->proc->sim;
}

static void backend_kick(struct loop *l)
{
	(void)l; /* no loop sleeps: sim_step checks every loop */
}

static void backend_destroy(struct loop *l, bool keep)
{
	struct sim_loop *sl = loop_backend_data(l);

	(void)keep; /* there are no other threads */
	sim_purge_events(sl->sim, NULL, l);
	list_remove(&sl->link);
	free(sl);
}

static const struct loop_backend sim_backend = {.kick = backend_kick, .destroy = backend_destroy};

static uint32_t pick_fiber(void *arg, uint32_t n_ready)
{
	struct sim *s = arg;
	uint32_t i = (uint32_t)sim_random_below(s, n_ready);
	sim_trace(s, i);
	return i;
}

static int env_loop_create(struct env *env, const struct loop_options *opts, struct loop **ret_loop)
{
	struct sim_env *e = sim_env_of(env);
	struct sim_loop *sl = calloc(1, sizeof(*sl));
	if (sl == NULL)
		return -LE_NOMEM;
	sl->sim = e->proc->sim;
	int rc = loop_create_with(env, opts, &sim_backend, sl, &sl->loop);
	if (rc < 0) {
		free(sl);
		return rc;
	}
	list_push(&e->proc->loops, &sl->link);
	loop_set_pick(sl->loop, pick_fiber, e->proc->sim);
	*ret_loop = sl->loop;
	return 0;
}

static uint64_t env_now(struct env *env)
{
	return sim_from(env)->now_us;
}

static int64_t env_wall(struct env *env)
{
	struct sim *s = sim_from(env);
	int64_t ahead_us = sim_env_of(env)->proc->wall_ahead_us;

	return (int64_t)(s->opts.start_wall_ns + (s->now_us - START_US) * 1000) + ahead_us * 1000;
}

static void env_random_bytes(struct env *env, void *buf, size_t len)
{
	uint8_t *p = buf;
	while (len > 0) {
		uint64_t r = sim_random(sim_from(env));
		size_t n = len < sizeof(r) ? len : sizeof(r);
		memcpy(p, &r, n);
		p += n;
		len -= n;
	}
}

static int env_kv_open(struct env *env, const char *path, const struct kv_options *opts,
		       struct kv **ret_kv)
{
	struct sim *s = sim_from(env);
	if (s->opts.kv_open == NULL)
		return -LE_NOTSUP;
	return s->opts.kv_open(env, path, opts, ret_kv);
}

static int env_offload_work(struct env *env, void (*fn)(void *arg), void *arg)
{
	return sim_wait_random(env, sim_from(env)->opts.worker_us_max, fn, arg);
}

static const struct env_ops *sim_ops(void)
{
	static struct env_ops ops;
	ops = (struct env_ops){
		.loop_create = env_loop_create,
		.now_us = env_now,
		.wall_ns = env_wall,
		.random = env_random_bytes,
		.offload = env_offload_work,
		.kv_open = env_kv_open,
	};
	sim_disk_ops(&ops);
	return &ops;
}

/* ---- processes ---- */

static int new_incarnation(struct sim_proc *p)
{
	struct sim_env *e = calloc(1, sizeof(*e));
	if (e == NULL)
		return -LE_NOMEM;
	e->env.ops = sim_ops();
	e->magic = SIM_ENV_MAGIC;
	e->proc = p;
	e->incarnation = ++p->incarnation;
	list_init(&e->files);
	list_push(&p->envs, &e->link);
	p->env = e;
	return 0;
}

struct sim_proc *sim_proc_create(struct sim *s, const char *name)
{
	struct sim_proc *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return NULL;
	p->sim = s;
	p->index = s->n_procs++;
	p->name = strdup(name);
	p->disk = sim_disk_create(s);
	list_init(&p->envs);
	list_init(&p->loops);
	list_init(&p->durables);
	/* A simulator without memory has nothing to prove. */
	ASSERT(p->name != NULL && p->disk != NULL && new_incarnation(p) == 0);
	list_push(&s->procs, &p->link);
	return p;
}

struct env *sim_proc_env(struct sim_proc *p)
{
	return &p->env->env;
}

const char *sim_proc_name(const struct sim_proc *p)
{
	return p->name;
}

bool sim_proc_alive(const struct sim_proc *p)
{
	return p->alive;
}

uint32_t sim_proc_incarnation(const struct sim_proc *p)
{
	return p->incarnation;
}

struct sim_proc *sim_proc_of_env(struct env *env)
{
	return sim_env_of(env)->proc;
}

struct sim *sim_of_env(struct env *env)
{
	return env->ops->now_us == env_now ? sim_from(env) : NULL;
}

struct start {
	void (*fn)(struct loop *loop, void *arg);
	void *arg;
};

static void start_fiber(void *arg)
{
	struct start st = *(struct start *)arg;
	free(arg);
	st.fn(loop_self(), st.arg);
}

int sim_proc_start(struct sim_proc *p, void (*fn)(struct loop *loop, void *arg), void *arg)
{
	struct loop_options opts = {.name = p->name};
	struct loop *l;
	struct start *st = malloc(sizeof(*st));
	if (st == NULL)
		return -LE_NOMEM;
	*st = (struct start){.fn = fn, .arg = arg};
	int rc = loop_create(&p->env->env, &opts, &l);
	if (rc == 0) {
		rc = fiber_spawn_on(l, "main", start_fiber, st);
		if (rc < 0)
			loop_destroy(l);
	}
	if (rc < 0) {
		free(st);
		return rc;
	}
	p->alive = true;
	sim_trace(p->sim, p->index);
	return 0;
}

static void abandon_loops(struct sim_proc *p)
{
	while (!list_empty(&p->loops))
		loop_abandon(list_entry(p->loops.next, struct sim_loop, link)->loop);
	sim_purge_events(p->sim, p, NULL);
}

static void crash_now(struct sim_proc *p)
{
	struct sim *s = p->sim;
	sim_trace(s, 0xdead0000u + p->index);
	abandon_loops(p);
	p->alive = false;
	p->crash_pending = false;
	sim_disk_crash(p->disk);
	list_for_each (n, &p->durables) {
		struct sim_durable *d = list_entry(n, struct durable_entry, link)->durable;
		if (d->crash != NULL)
			d->crash(d);
	}
	sim_disk_free_files(p->env);
	ASSERT(new_incarnation(p) == 0);
	list_for_each (n, &s->hooks) {
		struct crash_hook *h = list_entry(n, struct crash_hook, link);
		h->fn(h->arg, p);
	}
}

void sim_proc_crash(struct sim_proc *p)
{
	for (struct loop *l = loop_self(); l != NULL; l = l->outer) {
		if (l->env == &p->env->env) {
			p->crash_pending = true;
			return;
		}
	}
	crash_now(p);
}

void sim_proc_disk_full(struct sim_proc *p, bool full)
{
	sim_disk_set_full(p->disk, full);
}

void sim_proc_set_wall(struct sim_proc *p, int64_t ahead_us)
{
	p->wall_ahead_us = ahead_us;
}

int sim_proc_corrupt(struct sim_proc *p, const char *path, uint64_t off, uint64_t len)
{
	return sim_disk_corrupt(p->disk, path, off, len);
}

void sim_on_crash(struct sim *s, void (*fn)(void *arg, struct sim_proc *p), void *arg)
{
	struct crash_hook *h = malloc(sizeof(*h));
	ASSERT(h != NULL);
	h->fn = fn;
	h->arg = arg;
	list_push(&s->hooks, &h->link);
}

int sim_durable_put(struct sim_proc *p, const char *name, struct sim_durable *d)
{
	size_t len = strlen(name) + 1;
	struct durable_entry *e = malloc(sizeof(*e) + len);
	if (e == NULL)
		return -LE_NOMEM;
	e->durable = d;
	memcpy(e->name, name, len);
	list_push(&p->durables, &e->link);
	return 0;
}

struct sim_durable *sim_durable_find(struct sim_proc *p, const char *name)
{
	list_for_each (n, &p->durables) {
		struct durable_entry *e = list_entry(n, struct durable_entry, link);
		if (strcmp(e->name, name) == 0)
			return e->durable;
	}
	return NULL;
}

/* ---- steps ---- */

/* Returns the i-th loop with something to do now, or NULL; ret_n: how many there are. */
static struct sim_loop *ready_loop(struct sim *s, uint64_t i, uint64_t *ret_n)
{
	struct sim_loop *found = NULL;
	uint64_t n = 0;
	list_for_each (pn, &s->procs) {
		struct sim_proc *p = list_entry(pn, struct sim_proc, link);
		list_for_each (ln, &p->loops) {
			struct sim_loop *sl = list_entry(ln, struct sim_loop, link);
			if (loop_next_us(sl->loop) <= s->now_us && n++ == i)
				found = sl;
		}
	}
	*ret_n = n;
	return found;
}

static void run_pending_crashes(struct sim *s)
{
	list_for_each (n, &s->procs) {
		struct sim_proc *p = list_entry(n, struct sim_proc, link);
		if (p->crash_pending)
			crash_now(p);
	}
}

/* Returns whether anything ran. */
static bool run_ready(struct sim *s)
{
	for (uint32_t rounds = 0; rounds < ROUNDS_MAX; rounds++) {
		uint64_t n;
		struct sim_loop *sl = ready_loop(s, 0, &n);
		if (n == 0)
			return rounds > 0;
		uint64_t i = n > 1 ? sim_random_below(s, n) : 0;
		if (i > 0)
			sl = ready_loop(s, i, &n);
		sim_trace(s, i);
		/* One fiber only: if it crashes its own process, no other fiber of the process may
		 * run. */
		loop_turn(sl->loop, 1);
		run_pending_crashes(s);
	}
	s->now_us++;
	return true;
}

static uint64_t next_time(const struct sim *s)
{
	uint64_t next = s->n_queued > 0 ? s->events[0].at_us : NO_DEADLINE;
	list_for_each (pn, &s->procs) {
		struct sim_proc *p = list_entry(pn, struct sim_proc, link);
		list_for_each (ln, &p->loops) {
			uint64_t at = loop_next_us(list_entry(ln, struct sim_loop, link)->loop);
			next = at < next ? at : next;
		}
	}
	return next;
}

bool sim_step(struct sim *s)
{
	run_ready(s);
	uint64_t next = next_time(s);
	if (next == NO_DEADLINE)
		return false;
	if (next > s->now_us)
		s->now_us = next;
	if (s->n_queued > 0 && s->events[0].at_us <= s->now_us) {
		sim_run_event(s);
	} else {
		s->n_events++;
		sim_trace(s, s->now_us);
	}
	run_pending_crashes(s);
	run_ready(s);
	return true;
}

int sim_run(struct sim *s, bool (*until)(void *arg), void *arg, uint64_t limit_us)
{
	while (until == NULL || !until(arg)) {
		if (s->now_us > limit_us)
			return -LE_TIMEDOUT;
		if (run_ready(s))
			continue;
		uint64_t next = next_time(s);
		if (next == NO_DEADLINE)
			return -LE_NODATA;
		if (next > limit_us) {
			s->now_us = limit_us;
			return -LE_TIMEDOUT;
		}
		sim_step(s);
	}
	return 0;
}

int sim_create(uint64_t seed, const struct sim_options *opts, struct sim **ret_sim)
{
	struct sim *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -LE_NOMEM;
	if (opts != NULL)
		s->opts = *opts;
	if (s->opts.disk_us_max == 0)
		s->opts.disk_us_max = 500;
	if (s->opts.worker_us_max == 0)
		s->opts.worker_us_max = 300;
	if (s->opts.start_wall_ns == 0)
		s->opts.start_wall_ns = START_WALL_NS;
	s->rng = hash_u64(seed + 1);
	s->now_us = START_US;
	list_init(&s->procs);
	list_init(&s->hooks);
	*ret_sim = s;
	return 0;
}

static void proc_destroy(struct sim_proc *p)
{
	abandon_loops(p);
	for (struct list *n = list_pop(&p->durables); n != NULL; n = list_pop(&p->durables)) {
		struct durable_entry *e = list_entry(n, struct durable_entry, link);
		e->durable->destroy(e->durable);
		free(e);
	}
	for (struct list *n = list_pop(&p->envs); n != NULL; n = list_pop(&p->envs)) {
		struct sim_env *e = list_entry(n, struct sim_env, link);
		sim_disk_free_files(e);
		free(e);
	}
	sim_disk_destroy(p->disk);
	free(p->name);
	free(p);
}

void sim_destroy(struct sim *s)
{
	for (struct list *n = list_pop(&s->procs); n != NULL; n = list_pop(&s->procs))
		proc_destroy(list_entry(n, struct sim_proc, link));
	for (struct list *n = list_pop(&s->hooks); n != NULL; n = list_pop(&s->hooks))
		free(list_entry(n, struct crash_hook, link));
	free(s->events);
	free(s);
}
