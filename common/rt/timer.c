/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of a loop: a 4-ary heap of (time, timer) pairs. The array has a large reserved range of
 * address space, of which only the used part is touched, so that setting a timer needs no malloc
 * and cannot fail.
 */
#include "common/rt/timer.h"

#include <sys/mman.h>

#include "common/rt/loop.h"
#include "common/rt/loop_impl.h"

#define NOT_SET UINT32_MAX
#define TIMERS_RESERVED (1u << 20) /* 16 MiB of address space */

int timer_loop_init(struct loop *l)
{
	void *p = mmap(NULL, TIMERS_RESERVED * sizeof(*l->heap), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -LE_NOMEM;
	madvise(p, TIMERS_RESERVED * sizeof(*l->heap), MADV_NOHUGEPAGE);
	l->heap = p;
	l->timers_max = TIMERS_RESERVED;
	return 0;
}

void timer_loop_fini(struct loop *l)
{
	munmap(l->heap, (size_t)l->timers_max * sizeof(*l->heap));
}

static void heap_grow(struct loop *l)
{
	size_t len = (size_t)l->timers_max * sizeof(*l->heap);
	void *p = mremap(l->heap, len, len * 2, MREMAP_MAYMOVE);

	if (p == MAP_FAILED)
		PANIC("no address space for %u timers", l->timers_max * 2);
	l->heap = p;
	l->timers_max *= 2;
}

static void place(struct loop *l, uint32_t i, struct timer_slot s)
{
	l->heap[i] = s;
	s.timer->heap_index = i;
}

static void sift_up(struct loop *l, uint32_t i, struct timer_slot s)
{
	while (i > 0) {
		uint32_t parent = (i - 1) / 4;

		if (l->heap[parent].at_us <= s.at_us)
			break;
		place(l, i, l->heap[parent]);
		i = parent;
	}
	place(l, i, s);
}

static void sift_down(struct loop *l, uint32_t i, struct timer_slot s)
{
	for (;;) {
		uint32_t first = 4 * i + 1;
		uint32_t best = first;

		if (first >= l->n_timers)
			break;
		for (uint32_t c = first + 1; c < first + 4 && c < l->n_timers; c++)
			if (l->heap[c].at_us < l->heap[best].at_us)
				best = c;
		if (l->heap[best].at_us >= s.at_us)
			break;
		place(l, i, l->heap[best]);
		i = best;
	}
	place(l, i, s);
}

void timer_init(struct timer *t, void (*fn)(struct timer *t))
{
	*t = (struct timer){ .fn = fn, .heap_index = NOT_SET };
}

bool timer_is_set(const struct timer *t)
{
	return t->heap_index != NOT_SET;
}

void timer_set(struct timer *t, uint64_t at_us)
{
	struct loop *l = loop_current;

	ASSERT(l != NULL);
	timer_cancel(t);
	t->loop = l;
	t->at_us = at_us;
	if (l->n_timers == l->timers_max)
		heap_grow(l);
	sift_up(l, l->n_timers++, (struct timer_slot){ at_us, t });
}

void timer_cancel(struct timer *t)
{
	uint32_t i = t->heap_index;
	struct loop *l = t->loop;
	struct timer_slot last;

	if (i == NOT_SET)
		return;
	ASSERT(l == loop_current && i < l->n_timers && l->heap[i].timer == t);
	t->heap_index = NOT_SET;
	last = l->heap[--l->n_timers];
	if (i == l->n_timers)
		return;
	if (i > 0 && last.at_us < l->heap[(i - 1) / 4].at_us)
		sift_up(l, i, last);
	else
		sift_down(l, i, last);
}

uint32_t timer_run_due(struct loop *l)
{
	uint32_t n = 0;
	/* bounds the loop if a timer sets itself to a time in the past */
	uint32_t max = l->n_timers;

	while (n < max && l->n_timers > 0 && l->heap[0].at_us <= l->now_us) {
		struct timer *t = l->heap[0].timer;

		timer_cancel(t);
		t->fn(t);
		n++;
	}
	return n;
}
