/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive hash map: nodes are members of the caller's structs; the number of buckets is doubled
 * as it fills. Not locked; owned by the owner of the map.
 */
#ifndef LEAT_COMMON_BASE_HMAP_H
#define LEAT_COMMON_BASE_HMAP_H

#include <stdint.h>

#include "common/base/assert.h"
#include "common/base/status.h"

struct hmap_node {
	struct hmap_node *next;
	uint64_t hash;
};

struct hmap {
	struct hmap_node **buckets;
	uint64_t mask; /* number of buckets - 1 */
	uint64_t n;
};

/* Makes a table for n_hint nodes. Aborts only if there is no memory for even the smallest table. */
void hmap_init(struct hmap *m, uint64_t n_hint);
/* Frees the table, not the nodes. */
void hmap_fini(struct hmap *m);
/* Inserts a node, also beside an equal one. Never fails: without memory for a larger table, buckets
 * just get longer. */
void hmap_insert(struct hmap *m, struct hmap_node *n, uint64_t hash);
void hmap_remove(struct hmap *m, struct hmap_node *n);
/* Returns the first node with this hash; hmap_find_next returns the others, NULL at the end. The
 * caller compares keys. */
struct hmap_node *hmap_find(const struct hmap *m, uint64_t hash);
struct hmap_node *hmap_find_next(const struct hmap_node *n);
/* Returns the first node (n NULL), or the one after n, in no order. During a walk the map must not
 * change, but a node may be removed after the next one has been fetched. */
struct hmap_node *hmap_next(const struct hmap *m, const struct hmap_node *n);

/* Returns a well mixed 64-bit hash of an integer (splitmix64 finaliser). */
static inline uint64_t hash_u64(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static inline uint64_t hash_u64_2(uint64_t a, uint64_t b)
{
	return hash_u64(hash_u64(a) + 0x9e3779b97f4a7c15ULL + b);
}

/* For maps with integer keys. hash_u64 is one-to-one, so a node with the hash of an id has that id,
 * and no comparison is needed. */
static inline void hmap_insert_id(struct hmap *m, struct hmap_node *n, uint64_t id)
{
	hmap_insert(m, n, hash_u64(id));
}

/* Returns the node that was last inserted under that id, or NULL. */
static inline struct hmap_node *hmap_find_id(const struct hmap *m, uint64_t id)
{
	return hmap_find(m, hash_u64(id));
}

#endif
