/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chained buckets, a power of two of them. The table is doubled when there are more nodes than
 * buckets, and never shrunk, because a map that was large is likely to be large again.
 */
#include "common/base/hmap.h"

#include <stdlib.h>

#define BUCKETS_MIN 16

void hmap_init(struct hmap *m, uint64_t n_hint)
{
	uint64_t n = BUCKETS_MIN;
	while (n < n_hint && n < (1ULL << 40))
		n *= 2;
	m->buckets = calloc(n, sizeof(*m->buckets));
	if (m->buckets == NULL) {
		n = BUCKETS_MIN;
		m->buckets = calloc(n, sizeof(*m->buckets));
		if (m->buckets == NULL)
			PANIC("no memory for an empty hash table");
	}
	m->mask = n - 1;
	m->n = 0;
}

void hmap_fini(struct hmap *m)
{
	free(m->buckets);
	m->buckets = NULL;
	m->mask = 0;
	m->n = 0;
}

static void grow(struct hmap *m)
{
	uint64_t n = (m->mask + 1) * 2;
	struct hmap_node **buckets = calloc(n, sizeof(*buckets));
	if (buckets == NULL)
		return;
	for (uint64_t i = 0; i <= m->mask; i++) {
		struct hmap_node *node = m->buckets[i];
		while (node != NULL) {
			struct hmap_node *next = node->next;
			node->next = buckets[node->hash & (n - 1)];
			buckets[node->hash & (n - 1)] = node;
			node = next;
		}
	}
	free(m->buckets);
	m->buckets = buckets;
	m->mask = n - 1;
}

void hmap_insert(struct hmap *m, struct hmap_node *n, uint64_t hash)
{
	if (m->n > m->mask)
		grow(m);
	n->hash = hash;
	n->next = m->buckets[hash & m->mask];
	m->buckets[hash & m->mask] = n;
	m->n++;
}

void hmap_remove(struct hmap *m, struct hmap_node *n)
{
	struct hmap_node **at = &m->buckets[n->hash & m->mask];
	while (*at != n) {
		ASSERT(*at != NULL);
		at = &(*at)->next;
	}
	ASSERT(m->n > 0);
	*at = n->next;
	n->next = NULL;
	m->n--;
}

static struct hmap_node *first_with(struct hmap_node *n, uint64_t hash)
{
	while (n != NULL && n->hash != hash)
		n = n->next;
	return n;
}

struct hmap_node *hmap_find(const struct hmap *m, uint64_t hash)
{
	return first_with(m->buckets[hash & m->mask], hash);
}

struct hmap_node *hmap_find_next(const struct hmap_node *n)
{
	return first_with(n->next, n->hash);
}

struct hmap_node *hmap_next(const struct hmap *m, const struct hmap_node *n)
{
	uint64_t i = 0;
	if (n != NULL) {
		if (n->next != NULL)
			return n->next;
		i = (n->hash & m->mask) + 1;
	}
	for (; i <= m->mask; i++) {
		if (m->buckets[i] != NULL)
			return m->buckets[i];
	}
	return NULL;
}
