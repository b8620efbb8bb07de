#include "client/route.h"

#include "common/base/hmap.h"
#include "common/proto/oss_proto.h"

bool route_any_member(uint16_t op)
{
	return op == OP_oss_read || op == OP_oss_sums;
}

static bool has_failed(const struct route *r, const struct target *t)
{
	for (uint32_t i = 0; i < r->n_asked; i++)
		if (r->asked[i].target == t)
			return true;
	return false;
}

/* The higher, the better; members of the same rank share the load. */
static uint32_t rank(const struct target *t, uint64_t now_us)
{
	uint32_t usable = !t->lost && t->state != TARGET_DOWN && now_us >= t->slow_until_us;

	return usable * 2 + t->near;
}

struct target *route_pick(const struct route *r, const struct chain *ch, uint64_t now_us)
{
	struct target *best = NULL;
	uint32_t best_rank = 0;
	uint64_t best_hash = 0;

	if (r->head)
		return ch->n_members > 0 ? ch->members[0].target : NULL;
	for (uint32_t i = 0; i < ch->n_members; i++) {
		struct target *t = ch->members[i].target;
		uint64_t h = hash_u64_2(r->spread, t->id);
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

void route_failed(struct route *r, bool bad)
{
	if (r->target == NULL)
		return;
	for (uint32_t i = 0; i < r->n_asked; i++) {
		if (r->asked[i].target == r->target) {
			r->asked[i].bad |= bad;
			return;
		}
	}
	/* More than there are members: the chain has changed over and over again. */
	if (r->n_asked == ROUTE_ASKED_MAX)
		route_again(r);
	if (r->n_asked == ROUTE_ASKED_MAX)
		r->n_asked = 0;
	r->asked[r->n_asked].target = r->target;
	r->asked[r->n_asked++].bad = bad;
}

void route_again(struct route *r)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n_asked; i++)
		if (r->asked[i].bad)
			r->asked[n++] = r->asked[i];
	r->n_asked = n;
}
