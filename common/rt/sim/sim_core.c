/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rt/sim/sim_core.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/rt/fiber_impl.h"
#include "common/rt/loop_backend.h"
#include "common/rt/loop_impl.h"
#include "common/rt/sim/sim_impl.h"

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
	/* Draws nothing for an event that never happens, so that switching such a fault on leaves
	 * the other draws as they were. */
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

void sim_purge_events(struct sim *s, const struct sim_proc *p, const struct loop *l)
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

void sim_run_event(struct sim *s)
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

/* ---- waiting ---- */

struct sim_env *sim_env_of(struct env *env)
{
	return CAST_OBJ(container_of(env, struct sim_env, env), struct sim_env, SIM_ENV_MAGIC);
}

/* A fiber that waits for an event; on its stack. fn runs before the fiber continues. */
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

int sim_wait_random(struct env *env, uint64_t max_us, void (*fn)(void *arg), void *arg)
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
	struct sim *s = sim_env_of(env)->proc->sim;
	TRY(sim_wait_random(env, max_us, NULL, NULL));
	return sim_chance_ppm(s, s->opts.disk_error_ppm) ? -LE_IO : 0;
}
