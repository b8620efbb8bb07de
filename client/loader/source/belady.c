/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/belady.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/planted_bug.h"

#define TRAILER 32u /* what cache.c appends to the bytes of each file */

void belady_init(struct belady *b, uint64_t limit)
{
	*b = (struct belady){.limit = limit};
	hmap_init(&b->map, 1024);
}

void belady_fini(struct belady *b)
{
	/* No piece is being written, so the heap has all entries. */
	ASSERT(b->map.n == b->n);
	for (size_t i = 0; i < b->n; i++) {
		b->used -= belady_cost(b->heap[i]->key.len);
		free(b->heap[i]);
	}
	ASSERT(b->used == 0);
	free(b->heap);
	hmap_fini(&b->map);
	*b = (struct belady){0};
}

uint64_t belady_cost(uint32_t len)
{
	return ((uint64_t)len + TRAILER + BELADY_UNIT - 1) / BELADY_UNIT * BELADY_UNIT;
}

static uint64_t hash(const struct belady_key *k)
{
	return hash_u64_2(hash_u64_2(k->file, k->len), k->off);
}

struct belady_entry *belady_find(const struct belady *b, const struct belady_key *k)
{
	struct hmap_node *n = hmap_find(&b->map, hash(k));
	for (; n; n = hmap_find_next(n)) {
		struct belady_entry *e = container_of(n, struct belady_entry, node);
		if (e->key.file == k->file && e->key.off == k->off && e->key.len == k->len)
			return e;
	}
	return NULL;
}

/* ---- the heap ---- */

static void set(struct belady *b, size_t at, struct belady_entry *e)
{
	b->heap[at] = e;
	e->at = at;
}

static void sift_up(struct belady *b, size_t at, struct belady_entry *e)
{
	while (at > 0 && b->heap[(at - 1) / 2]->next < e->next) {
		set(b, at, b->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	set(b, at, e);
}

static void sift_down(struct belady *b, size_t at, struct belady_entry *e)
{
	for (;;) {
		size_t child = 2 * at + 1;
		if (child >= b->n)
			break;
		if (child + 1 < b->n && b->heap[child + 1]->next > b->heap[child]->next)
			child++;
		if (b->heap[child]->next <= e->next)
			break;
		set(b, at, b->heap[child]);
		at = child;
	}
	set(b, at, e);
}

static void settle(struct belady *b, size_t at, struct belady_entry *e)
{
	if (at > 0 && b->heap[(at - 1) / 2]->next < e->next)
		sift_up(b, at, e);
	else
		sift_down(b, at, e);
}

void belady_move(struct belady *b, struct belady_entry *e, uint64_t next)
{
	ASSERT(e->ready && e->at < b->n && b->heap[e->at] == e);
	e->next = next;
	settle(b, e->at, e);
}

void belady_ready(struct belady *b, struct belady_entry *e)
{
	ASSERT(!e->ready && b->n < b->cap);
	e->ready = true;
	b->n++;
	sift_up(b, b->n - 1, e);
}

void belady_remove(struct belady *b, struct belady_entry *e)
{
	uint64_t cost = belady_cost(e->key.len);
	ASSERT(b->used >= cost);
	hmap_remove(&b->map, &e->node);
	b->used -= PLANTED_BUG(CACHE_KEEP_COUNT) ? 0 : cost;
	if (!e->ready)
		return;
	ASSERT(e->at < b->n && b->heap[e->at] == e);
	struct belady_entry *last = b->heap[--b->n];
	if (last != e)
		settle(b, e->at, last);
}

/* ---- space ---- */

static bool grow(struct belady *b)
{
	/* Also reserves space for entries that are not ready yet. */
	if (b->map.n < b->cap)
		return true;
	size_t cap = b->cap ? b->cap * 2 : 256;
	struct belady_entry **more = realloc(b->heap, cap * sizeof(*more));
	if (!more)
		return false;
	b->heap = more;
	b->cap = cap;
	return true;
}

struct belady_entry *belady_add(struct belady *b, const struct belady_key *k, uint64_t next,
				struct list *ret_gone)
{
	uint64_t cost = belady_cost(k->len);
	if (next == UINT64_MAX || cost > b->limit || b->map.n >= BELADY_ENTRIES_MAX || !grow(b))
		return NULL;
	while (b->used + cost > b->limit) {
		if (b->n == 0 || b->heap[0]->next <= next)
			return NULL;
		struct belady_entry *out = b->heap[0];
		belady_remove(b, out);
		list_push(ret_gone, &out->link);
	}
	struct belady_entry *e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->key = *k;
	e->next = next;
	list_init(&e->link);
	hmap_insert(&b->map, &e->node, hash(k));
	b->used += cost;
	return e;
}
