/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/chunk_cache.h"

#include <stdlib.h>

#include "common/rt/loop.h"

#define CLASS_SINGLE RECORD_CLASSES /* from malloc, when the slabs have reached bytes_max */
#define SLAB_MIN     (64u << 10)

struct slab {
	struct slab *next;
	uint64_t pad;
};

/* ---- slabs ---- */

static void *take_free(void **head)
{
	void *p = *head;

	if (p)
		*head = *(void **)p;
	return p;
}

static void give_free(void **head, void *p)
{
	*(void **)p = *head;
	*head = p;
}

static void slab_add(struct chunk_cache *c, void **head, size_t size)
{
	size_t n = SLAB_MIN / size < 8 ? 8 : SLAB_MIN / size;
	struct slab *s = malloc(sizeof(*s) + n * size);

	if (!s)
		return;
	s->next = c->slabs;
	c->slabs = s;
	c->slab_bytes += n * size;
	for (size_t i = 0; i < n; i++)
		give_free(head, (char *)(s + 1) + i * size);
}

/* The number of blocks that occupy as much memory as these blocks and the gaps after them. */
static uint32_t record_space(uint32_t n_blocks, uint32_t n_gaps)
{
	const uint32_t per_block = sizeof(struct chunk_block) / sizeof(struct chunk_gap);

	return n_blocks + (n_gaps + per_block - 1) / per_block;
}

static uint32_t record_class(uint32_t space)
{
	return space <= 1 ? 0 : 32u - (uint32_t)__builtin_clz(space - 1);
}

static size_t record_bytes(const struct chunk_record *r)
{
	return r->size_class == CLASS_SINGLE ? chunk_record_size(r->n_blocks, r->n_gaps)
					     : chunk_record_size(1u << r->size_class, 0);
}

struct chunk_record *chunk_record_create(struct chunk_cache *c, uint32_t n_blocks, uint32_t n_gaps)
{
	uint32_t k = record_class(record_space(n_blocks, n_gaps));
	size_t size = chunk_record_size(1u << k, 0);
	struct chunk_record *r;

	ASSERT(n_blocks <= LEAT_BLOCKS_PER_CHUNK_MAX && n_gaps <= CHUNK_GAPS_MAX);
	if (!c->free_records[k] && c->slab_bytes < c->bytes_max)
		slab_add(c, &c->free_records[k], size);
	r = take_free(&c->free_records[k]);
	if (!r) {
		r = malloc(size);
		if (!r)
			return NULL;
		k = CLASS_SINGLE;
	}
	memset(r, 0, sizeof(*r));
	r->size_class = k;
	r->refs = 1;
	r->n_blocks = n_blocks;
	r->n_gaps = n_gaps;
	c->bytes += record_bytes(r);
	return r;
}

void chunk_record_unref(struct chunk_cache *c, struct chunk_record *r)
{
	if (!r)
		return;
	ASSERT(r->refs > 0);
	if (--r->refs)
		return;
	c->bytes -= record_bytes(r);
	if (r->size_class == CLASS_SINGLE)
		free(r);
	else
		give_free(&c->free_records[r->size_class], r);
}

/* ---- entries ---- */

void chunk_cache_init(struct chunk_cache *c, uint64_t bytes_max)
{
	*c = (struct chunk_cache){.bytes_max = bytes_max};
	hmap_init(&c->map, 1024);
	list_init(&c->lru);
	list_init(&c->none);
}

void chunk_cache_fini(struct chunk_cache *c)
{
	struct hmap_node *n = hmap_next(&c->map, NULL);

	while (n) {
		struct chunk_ent *e = container_of(n, struct chunk_ent, node);

		n = hmap_next(&c->map, n);
		chunk_record_unref(c, e->rec);
		if (e->n_pend)
			chunk_record_unref(c, e->pend);
	}
	hmap_fini(&c->map);
	while (c->slabs) {
		struct slab *s = c->slabs;

		c->slabs = s->next;
		free(s);
	}
}

static void evict(struct chunk_cache *c, struct chunk_ent *e)
{
	list_remove(&e->lru);
	list_remove(&e->none);
	hmap_remove(&c->map, &e->node);
	chunk_record_unref(c, e->rec);
	c->bytes -= sizeof(*e);
	give_free(&c->free_ents, e);
}

static void shrink(struct chunk_cache *c)
{
	uint64_t now_us = loop_now_us();

	while (!list_empty(&c->none)) {
		struct chunk_ent *e = list_entry(c->none.next, struct chunk_ent, none);

		if (now_us - e->idle_us < CHUNK_NONE_KEEP_US)
			break;
		evict(c, e);
	}
	while (c->bytes > c->bytes_max && !list_empty(&c->lru))
		evict(c, list_entry(c->lru.next, struct chunk_ent, lru));
}

struct chunk_ent *chunk_ent_find(struct chunk_cache *c, const struct chunk_key *id)
{
	struct hmap_node *n = hmap_find(&c->map, chunk_key_hash(id));

	for (; n; n = hmap_find_next(n)) {
		struct chunk_ent *e = container_of(n, struct chunk_ent, node);

		if (chunk_key_equal(&e->id, id)) {
			e->refs++;
			list_remove(&e->lru);
			list_remove(&e->none);
			return e;
		}
	}
	return NULL;
}

struct chunk_ent *chunk_ent_get(struct chunk_cache *c, const struct chunk_key *id)
{
	struct chunk_ent *e = chunk_ent_find(c, id);

	if (e)
		return e;
	shrink(c);
	if (!c->free_ents)
		slab_add(c, &c->free_ents, sizeof(*e));
	e = take_free(&c->free_ents);
	if (!e)
		return NULL;
	*e = (struct chunk_ent){.id = *id, .refs = 1};
	list_init(&e->lru);
	list_init(&e->none);
	list_init(&e->held);
	list_init(&e->in_flight);
	waitq_init(&e->moved);
	fmutex_init(&e->lock);
	hmap_insert(&c->map, &e->node, chunk_key_hash(id));
	c->bytes += sizeof(*e);
	return e;
}

void chunk_ent_put(struct chunk_cache *c, struct chunk_ent *e)
{
	ASSERT(e->refs > 0);
	if (--e->refs || e->n_pend)
		return;
	list_push(&c->lru, &e->lru);
	if (!e->rec && !e->lost) {
		e->idle_us = loop_now_us();
		list_push(&c->none, &e->none);
	}
	shrink(c);
}

void chunk_ent_set_pending(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec)
{
	if (e->n_pend)
		chunk_record_unref(c, e->pend);
	e->pend = rec;
	e->n_pend++;
}

void chunk_ent_revert(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec)
{
	ASSERT(e->n_pend > 0 && e->refs > 0);
	chunk_record_unref(c, e->pend);
	e->pend = rec;
	if (--e->n_pend == 0) {
		chunk_record_unref(c, rec);
		e->pend = NULL;
	}
}

void chunk_ent_committed(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec)
{
	ASSERT(e->n_pend > 0 && e->refs > 0);
	chunk_record_unref(c, e->rec);
	e->rec = rec;
	e->known = true;
	e->lost = false;
	if (--e->n_pend == 0) {
		chunk_record_unref(c, e->pend);
		e->pend = NULL;
	}
}

void chunk_ent_load(struct chunk_cache *c, struct chunk_ent *e, struct chunk_record *rec)
{
	if (e->known) {
		chunk_record_unref(c, rec);
		return;
	}
	e->rec = rec;
	e->known = true;
}

void chunk_cache_forget_none(struct chunk_cache *c, uint32_t chain)
{
	for (struct hmap_node *n = hmap_next(&c->map, NULL); n; n = hmap_next(&c->map, n)) {
		struct chunk_ent *e = container_of(n, struct chunk_ent, node);

		if (e->id.chain == chain && !e->rec && !e->lost && !e->n_pend)
			e->known = false;
	}
}
