/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/fetch/spread.h"

#include <stdlib.h>

#include "common/base/hmap.h"
#include "common/base/planted_bug.h"

/* The referrals for one chunk. */
struct tree {
	struct hmap_node node;
	uint64_t chunk;
	uint32_t own;              /* nodes that this node serves itself */
	uint32_t *holders;         /* nodes in the order of their first requests */
	uint32_t n, cap, at, sent; /* `sent` nodes were referred to holders[at]; those before it
				    * have SPREAD_FAN */
};

struct spread {
	struct hmap trees;
};

int spread_create(struct spread **ret_spread)
{
	struct spread *s = calloc(1, sizeof(*s));
	if (!s)
		return -LE_NOMEM;
	hmap_init(&s->trees, 64);
	*ret_spread = s;
	return 0;
}

void spread_destroy(struct spread *s)
{
	struct hmap_node *n, *next;
	if (!s)
		return;
	for (n = hmap_next(&s->trees, NULL); n; n = next) {
		struct tree *t = container_of(n, struct tree, node);
		next = hmap_next(&s->trees, n);
		free(t->holders);
		free(t);
	}
	hmap_fini(&s->trees);
	free(s);
}

static struct tree *tree_get(struct spread *s, uint64_t chunk)
{
	uint64_t hash = hash_u64(chunk);
	for (struct hmap_node *n = hmap_find(&s->trees, hash); n; n = hmap_find_next(n)) {
		struct tree *t = container_of(n, struct tree, node);
		if (t->chunk == chunk)
			return t;
	}
	struct tree *t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->chunk = chunk;
	hmap_insert(&s->trees, &t->node, hash);
	return t;
}

/* Searches from the newest on. The list is at most as long as the nodes are many, and repeated
 * requests are rare. */
static bool is_holder(const struct tree *t, uint32_t who)
{
	for (uint32_t i = t->n; i > 0; i--)
		if (t->holders[i - 1] == who)
			return true;
	return false;
}

static bool add_holder(struct tree *t, uint32_t who)
{
	if (t->n == t->cap) {
		uint32_t cap = t->cap ? t->cap * 2 : 8;
		uint32_t *more = realloc(t->holders, cap * sizeof(*more));
		if (!more)
			return false;
		t->holders = more;
		t->cap = cap;
	}
	t->holders[t->n++] = who;
	return true;
}

uint32_t spread_refer(struct spread *s, uint64_t chunk, uint32_t who,
		      bool (*usable)(void *arg, uint32_t who), void *arg)
{
	struct tree *t = tree_get(s, chunk);
	uint32_t to = SPREAD_SELF;
	/* The first request of a node took its place. A later node may wait for this one. */
	if (!t || is_holder(t, who))
		return SPREAD_SELF;
	while (t->own >= SPREAD_FAN && t->at < t->n) {
		to = t->holders[t->at];
		if ((t->sent < SPREAD_FAN || PLANTED_BUG(SPREAD_NO_LIMIT)) && usable(arg, to))
			break;
		t->at++;
		t->sent = 0;
		to = SPREAD_SELF;
	}
	/* From here on, later nodes can be referred to this one. */
	if (!add_holder(t, who))
		return SPREAD_SELF;
	if (to == SPREAD_SELF)
		t->own++;
	else
		t->sent++;
	ASSERT(t->at <= t->n && t->sent <= SPREAD_FAN);
	return to;
}
