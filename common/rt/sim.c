/*
 * The simulator's core: virtual time, events, processes and their loops. Everything runs on one
 * thread; every decision is drawn from one generator, in an order that depends on nothing but
 * the seed (no addresses, no real time), so that a run can be repeated exactly.
 *
 * A step: all loops that have something ready or due are turned, one fiber at a time and in drawn
 * order, until nothing is ready; then time jumps to the next event or timer.
 */
#include "common/rt/sim.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/rt/loop_backend.h"
#include "common/rt/loop_impl.h"
#include "common/rt/sim_impl.h"

#define START_US      1000000                /* not 0: that means "none" to some */
#define START_WALL_NS 1767225600000000000ULL /* 2026-01-01 */
#define ROUNDS_MAX    2000                   /* then a fiber is busy waiting: let time pass */

struct sim_event {
	uint64_t at_us, tie, seq;
	struct sim_proc *proc; /* NULL: nobody's */
	uint32_t incarnation;
	struct loop *loop; /* in whose context fn runs; NULL: in none */
	void (*fn)(void *arg);
	void *arg;
};

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

struct sim {
	struct sim_options opts;
	uint64_t rng, now_us, seq, n_events, trace;
	uint32_t n_procs;
	struct sim_event *events; /* a binary heap */
	uint32_t n_queued, queue_size;
	struct list procs, hooks;
};

/* ---- randomness and trace ---- */

uint64_t sim_random(struct sim *s)
{
	s->rng += 0x9e3779b97f4a7c15ULL;
	return hash_u64(s->rng);
}

uint64_t sim_random_below(struct sim *s, uint64_t n)
{
	ASSERT(n > 0);
	return (uint64_t)(((unsigned __int128)sim_random(s) * n) >> 64);
}

bool sim_chance_ppm(struct sim *s, uint32_t ppm)
{
	/* No draw for what never happens: switching a fault on changes no other decision's meaning.
	 */
	return ppm > 0 && sim_random_below(s, 1000000) < ppm;
}

void sim_trace(struct sim *s, uint64_t what)
{
	s->trace = hash_u64_2(s->trace, what);
}

uint64_t sim_trace_hash(const struct sim *s)
{
	return s->trace;
}

uint64_t sim_now_us(const struct sim *s)
{
	return s->now_us;
}

uint64_t sim_events(const struct sim *s)
{
	return s->n_events;
}

uint64_t sim_disk_us_max(const struct sim *s)
{
	return s->opts.disk_us_max;
}

uint64_t sim_worker_us_max(const struct sim *s)
{
	return s->opts.worker_us_max;
}

/* ---- event queue ---- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
	if (a->at_us != b->at_us)
		return a->at_us < b->at_us;
	return a->tie != b->tie ? a->tie < b->tie : a->seq < b->seq;
}

static void sift_up(struct sim *s, uint32_t i)
{
	struct sim_event e = s->events[i];
	while (i > 0 && earlier(&e, &s->events[(i - 1) / 2])) {
		s->events[i] = s->events[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	s->events[i] = e;
}

static void sift_down(struct sim *s, uint32_t i)
{
	struct sim_event e = s->events[i];
	for (;;) {
		uint32_t child = 2 * i + 1;
		if (child >= s->n_queued)
			break;
		if (child + 1 < s->n_queued && earlier(&s->events[child + 1], &s->events[child]))
			child++;
		if (!earlier(&s->events[child], &e))
			break;
		s->events[i] = s->events[child];
		i = child;
	}
	s->events[i] = e;
}

static int push_event(struct sim *s, struct sim_event e)
{
	if (s->n_queued == s->queue_size) {
		uint32_t size = s->queue_size != 0 ? s->queue_size * 2 : 256;
		struct sim_event *events = realloc(s->events, size * sizeof(*events));
		if (events == NULL)
			return -LE_NOMEM;
		s->events = events;
		s->queue_size = size;
	}
	e.tie = sim_random(s);
	e.seq = s->seq++;
	s->events[s->n_queued++] = e;
	sift_up(s, s->n_queued - 1);
	return 0;
}

static struct sim_event pop_event(struct sim *s)
{
	struct sim_event e = s->events[0];
	s->events[0] = s->events[--s->n_queued];
	if (s->n_queued > 0)
		sift_down(s, 0);
	return e;
}

/* Drops the events of a loop, or of a process (loop NULL). */
static void purge_events(struct sim *s, const struct sim_proc *p, const struct loop *l)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->n_queued; i++) {
		struct sim_event *e = &s->events[i];
		if (l != NULL ? e->loop != l : e->proc != p)
			s->events[n++] = *e;
	}
	s->n_queued = n;
	for (uint32_t i = n / 2; i-- > 0;)
		sift_down(s, i);
}

static void run_event(struct sim *s)
{
	struct sim_event e = pop_event(s);
	s->n_events++;
	sim_trace(s, e.at_us);
	sim_trace(s, e.tie);
	if (e.loop == NULL) {
		e.fn(e.arg);
		return;
	}
	loop_enter(e.loop);
	e.fn(e.arg);
	loop_leave(e.loop);
}

int sim_after(struct sim *s, uint64_t delay_us, struct loop *loop, void (*fn)(void *arg), void *arg)
{
	struct sim_event e = {.at_us = s->now_us + delay_us, .loop = loop, .fn = fn, .arg = arg};
	if (loop != NULL)
		e.proc = sim_env_of(loop_env(loop))->proc;
	return push_event(s, e);
}

/* ---- what a simulated env offers besides files ---- */

struct sim_env *sim_env_of(struct env *env)
{
	return CAST_OBJ(container_of(env, struct sim_env, env), struct sim_env, SIM_ENV_MAGIC);
}

static struct sim *sim_from(struct env *env)
{
	return sim_env_of(env)->proc->sim;
}

static void backend_kick(struct loop *l)
{
	(void)l; /* nobody sleeps: sim_step looks at every loop */
}

static void backend_destroy(struct loop *l, bool keep)
{
	struct sim_loop *sl = loop_backend_data(l);

	(void)keep; /* there are no other threads */
	purge_events(sl->sim, NULL, l);
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
	return (int64_t)(s->opts.start_wall_ns + (s->now_us - START_US) * 1000);
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

/* A fiber that waits for an event; on its stack. fn: to be run before it goes on. */
struct sim_wait {
	struct fiber *fiber;
	struct loop *loop;
	bool done;
	void (*fn)(void *arg);
	void *arg;
};

static void on_wait_over(void *arg)
{
	struct sim_wait *w = arg;
	if (w->fn != NULL)
		w->fn(w->arg);
	w->done = true;
	loop_enter(w->loop);
	fiber_unblock(w->fiber);
	loop_leave(w->loop);
}

static int wait_random(struct env *env, uint64_t max_us, void (*fn)(void *arg), void *arg)
{
	struct sim_proc *p = sim_env_of(env)->proc;
	struct sim_wait w = {.fiber = fiber_self(), .loop = loop_self(), .fn = fn, .arg = arg};
	ASSERT(w.fiber != NULL);
	while (p->crash_pending)
		fiber_block_forever();
	struct sim_event e = {.at_us = p->sim->now_us + 1 + sim_random_below(p->sim, max_us),
			      .proc = p,
			      .fn = on_wait_over,
			      .arg = &w};
	TRY(push_event(p->sim, e));
	while (!w.done)
		fiber_block_forever();
	return 0;
}

int sim_disk_wait(struct env *env, uint64_t max_us)
{
	struct sim *s = sim_from(env);
	TRY(wait_random(env, max_us, NULL, NULL));
	return sim_chance_ppm(s, s->opts.disk_error_ppm) ? -LE_IO : 0;
}

static int env_offload_work(struct env *env, void (*fn)(void *arg), void *arg)
{
	return wait_random(env, sim_from(env)->opts.worker_us_max, fn, arg);
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
	purge_events(p->sim, p, NULL);
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

/* The i-th loop with something to do now; NULL when there are not that many. ret_n: how many. */
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

/* Whether anything ran. */
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
		/* One fiber, so that one whose process is to crash does not come back. */
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
		run_event(s);
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
