/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slot pools: one shared mapping, divided into slots; free slots are used last in, first out. If a
 * fiber waits, a freed slot is handed to the first waiter without entering the free list, so that
 * no later caller can take it.
 */
#include "common/rt/slot.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/rt/fiber_impl.h"
#include "common/rt/loop_impl.h"

#define HUGE_PAGE (2ull << 20)

struct slot_waiter {
	struct list link;
	struct fiber *fiber;
	struct slot *slot; /* NULL: still waiting */
};

struct slot_pool {
	uint8_t *base;
	uint64_t map_len, stride;
	uint32_t size, n_total, n_free;
	struct list free, waiters, hooks;
	struct slot slots[];
};

static uint8_t *map_memory(uint64_t len, uint64_t *ret_map_len)
{
	uint64_t huge_len = (len + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	void *p = MAP_FAILED;

	/* Fails immediately where none are reserved: then the kernel chooses the page size. */
	if (len >= HUGE_PAGE)
		p = mmap(NULL, huge_len, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (p != MAP_FAILED) {
		*ret_map_len = huge_len;
		return p;
	}
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, len, MADV_HUGEPAGE);
	*ret_map_len = len;
	return p;
}

int slot_pool_create(uint32_t size, uint32_t n_max, struct slot_pool **ret_pool)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t stride = (size + page - 1) / page * page;
	struct slot_pool *p;

	if (size == 0 || n_max == 0)
		return -LE_INVAL;
	p = calloc(1, sizeof(*p) + n_max * sizeof(p->slots[0]));
	if (p == NULL)
		return -LE_NOMEM;
	p->base = map_memory(stride * n_max, &p->map_len);
	if (p->base == NULL) {
		free(p);
		return -LE_NOMEM;
	}
	p->size = size;
	p->stride = stride;
	p->n_total = p->n_free = n_max;
	list_init(&p->free);
	list_init(&p->waiters);
	list_init(&p->hooks);
	for (uint32_t i = 0; i < n_max; i++) {
		struct slot *s = &p->slots[i];

		*s = (struct slot){ .data = p->base + i * stride, .size = size, .pool = p };
		list_push(&p->free, &s->link);
	}
	*ret_pool = p;
	return 0;
}

void slot_pool_destroy(struct slot_pool *p)
{
	struct list *n;

	if (p == NULL)
		return;
	ASSERT(p->n_free == p->n_total && list_empty(&p->waiters));
	while ((n = list_pop(&p->hooks)) != NULL) {
		struct slot_pool_hook *h = container_of(n, struct slot_pool_hook, link);

		list_init(&h->link);
		h->gone(h);
	}
	munmap(p->base, p->map_len);
	free(p);
}

struct slot *slot_try_get(struct slot_pool *p)
{
	struct list *n = list_pop(&p->free);
	struct slot *s;

	if (n == NULL)
		return NULL;
	s = container_of(n, struct slot, link);
	p->n_free--;
	s->refs = 1;
	return s;
}

int slot_get(struct slot_pool *p, uint64_t deadline_us, struct slot **ret_slot)
{
	struct slot_waiter w = { .fiber = fiber_self() };
	struct slot *s = slot_try_get(p);
	int rc = 0;

	if (s != NULL) {
		*ret_slot = s;
		return 0;
	}
	ASSERT(w.fiber != NULL);
	list_push(&p->waiters, &w.link);
	while (rc == 0 && w.slot == NULL)
		rc = fiber_block(deadline_us, true);
	list_remove(&w.link);
	if (w.slot == NULL)
		return rc;
	/* The slot was handed over just after the wait had ended: take it, and deliver the
	 * interrupt later. */
	if (rc == -LE_INTR)
		fiber_interrupt(w.fiber);
	*ret_slot = w.slot;
	return 0;
}

void slot_unref(struct slot *s)
{
	struct slot_pool *p;
	struct list *n;

	if (s == NULL)
		return;
	ASSERT(s->refs > 0);
	if (--s->refs > 0)
		return;
	p = s->pool;
	n = list_pop(&p->waiters);
	if (n != NULL) {
		struct slot_waiter *w = container_of(n, struct slot_waiter, link);

		list_init(&s->link);
		s->refs = 1;
		w->slot = s;
		fiber_unblock(w->fiber);
		return;
	}
	ASSERT(p->n_free < p->n_total);
	list_push_front(&p->free, &s->link);
	p->n_free++;
}

uint32_t slot_pool_free(const struct slot_pool *p)
{
	return p->n_free;
}

uint32_t slot_pool_size(const struct slot_pool *p)
{
	return p->size;
}

uint64_t slot_pool_stride(const struct slot_pool *p)
{
	return p->stride;
}

uint32_t slot_pool_total(const struct slot_pool *p)
{
	return p->n_total;
}

struct slot *slot_pool_at(struct slot_pool *p, uint32_t i)
{
	ASSERT(i < p->n_total);
	return &p->slots[i];
}

void slot_pool_hook_add(struct slot_pool *p, struct slot_pool_hook *h)
{
	list_push(&p->hooks, &h->link);
}

void slot_pool_hook_remove(struct slot_pool_hook *h)
{
	list_remove(&h->link);
	list_init(&h->link);
}

void slot_pool_memory(const struct slot_pool *p, void **ret_base, uint64_t *ret_len)
{
	*ret_base = p->base;
	*ret_len = p->map_len;
}
