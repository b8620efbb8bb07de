/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/replica_select.h"

#include <stddef.h>

#include "client/client.h"
#include "client/servers/cluster_map.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"

uint64_t replica_hash(const struct client *c, struct ino ino, uint64_t idx)
{
	return hash_u64_2(hash_u64_2(ino.v, idx), c->replica_hash_seed);
}

bool replica_any_member(uint16_t op)
{
	return op == OP_oss_read || op == OP_oss_sums;
}

static bool has_failed(const struct replica_route *r, const struct target *t)
{
	for (uint32_t i = 0; i < r->n_tried; i++)
		if (r->tried[i].target == t)
			return true;
	return false;
}

/* Returns the preference of a target; higher is better. Equal ones share the load. */
static uint32_t rank(const struct target *t, uint64_t now_us)
{
	uint32_t usable = !t->lost && t->state != TARGET_DOWN && now_us >= t->slow_until_us;

	return usable * 2 + t->near;
}

struct target *replica_pick(const struct replica_route *r, const struct chain *ch, uint64_t now_us)
{
	struct target *best = NULL;
	uint32_t best_rank = 0;
	uint64_t best_hash = 0;

	if (r->head)
		return ch->n_members > 0 ? ch->members[0].target : NULL;
	for (uint32_t i = 0; i < ch->n_members; i++) {
		struct target *t = ch->members[i].target;
		uint64_t h = hash_u64_2(r->hash, t->id);
		uint32_t k = rank(t, now_us);

		if (!ch->members[i].sync || has_failed(r, t))
			continue;
		if (best == NULL || k > best_rank || (k == best_rank && h > best_hash)) {
			best = t;
			best_rank = k;
			best_hash = h;
		}
	}
	return best;
}

void replica_failed(struct replica_route *r, bool bad)
{
	if (r->target == NULL)
		return;
	for (uint32_t i = 0; i < r->n_tried; i++) {
		if (r->tried[i].target == r->target) {
			r->tried[i].bad |= bad;
			return;
		}
	}
	/* More failures than members: the chain has changed several times. */
	if (r->n_tried == REPLICA_TRIED_MAX)
		replica_retry_failed(r);
	if (r->n_tried == REPLICA_TRIED_MAX)
		r->n_tried = 0;
	ASSERT(r->n_tried < REPLICA_TRIED_MAX);
	r->tried[r->n_tried].target = r->target;
	r->tried[r->n_tried++].bad = bad;
}

void replica_retry_failed(struct replica_route *r)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n_tried; i++)
		if (r->tried[i].bad)
			r->tried[n++] = r->tried[i];
	r->n_tried = n;
}
