/*
 * Intrusive hash map: nodes live in the caller's structs, buckets grow by
 * doubling. Not locked; owned by whoever owns the map.
 */
#ifndef LEAT_BASE_HMAP_H
#define LEAT_BASE_HMAP_H

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

/* Room for n_hint nodes; aborts only if even the first small table cannot be had. */
void hmap_init(struct hmap *m, uint64_t n_hint);
/* Frees the table, not the nodes. */
void hmap_fini(struct hmap *m);
/* Duplicates are the caller's affair. Never fails: without memory the table just stays dense. */
void hmap_insert(struct hmap *m, struct hmap_node *n, uint64_t hash);
void hmap_remove(struct hmap *m, struct hmap_node *n);
/* The first node with this hash, then the others: compare keys yourself. NULL at the end. */
struct hmap_node *hmap_find(const struct hmap *m, uint64_t hash);
struct hmap_node *hmap_find_next(const struct hmap_node *n);
/* Walk over all nodes in no order: pass NULL first. The map must not change, except that the
 * returned node may be removed after the next one has been fetched. */
struct hmap_node *hmap_next(const struct hmap *m, const struct hmap_node *n);

/* A well mixed 64-bit hash of an integer (splitmix64 finaliser). */
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

#endif
