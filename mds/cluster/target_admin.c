/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/cluster/target_admin.h"

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/cluster/chain_table.h"
#include "mds/cluster/failure_detector.h"
#include "mds/cluster/membership.h"
#include "mds/cluster/rebalance.h"

static int set_flags(struct cluster *c, struct target *t, uint32_t flags)
{
	struct target_info info = t->info;

	if (info.flags == flags)
		return 0;
	info.flags = flags;
	TRY(txn_begin(c->store));
	cluster_put_target(c, t, &info);
	TRY(cluster_commit(c));
	t->info.flags = flags;
	waitq_wake_all(&c->changed);
	return 0;
}

/* Checks that the target can leave: the other targets must have enough hosts for its chains, and
 * space for its data. */
static int can_leave(const struct cluster *c, const struct target *t)
{
	uint64_t space = 0;
	uint32_t need = 0, hosts = 0;

	for (uint32_t i = 0; i < c->n_chains; i++)
		for (uint32_t k = 0; k < c->chains[i]->n_members; k++)
			if (c->chains[i]->members[k].target == t->info.id &&
			    c->chains[i]->replicas > need)
				need = c->chains[i]->replicas;
	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target *o = c->targets[i];
		bool other = o != t && target_usable(o);

		space += other && o->info.free > o->info.capacity / 20
				? o->info.free - o->info.capacity / 20
				: 0;
		/* Counts one target for each host. */
		for (uint32_t k = 0; other && k < i; k++)
			other = c->targets[k] == t || !target_usable(c->targets[k]) ||
				targets_apart(c->targets[k], o);
		hosts += other;
	}
	if (hosts < need)
		return -LE_NODEV;
	return space < t->info.used ? -LE_NOSPC : 0;
}

/* True if the target was complete when the chain was given up. */
static bool lost_with(const struct chain *ch, uint32_t target)
{
	if ((ch->flags & CHAIN_LOST) == 0)
		return false;
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].target == target)
			return true;
	return false;
}

/* One transaction: a target that returned before it is in its chains again would delete what it has
 * of them. */
static int recover(struct cluster *c, struct target *t)
{
	struct moves moves = {.c = c, .target = t, .flags = 0};

	for (uint32_t i = 0; i < c->n_chains; i++) {
		struct chain *next;

		if (!lost_with(c->chains[i], t->info.id))
			continue;
		if ((c->chains[i]->flags & CHAIN_UNCUT) != 0) {
			moves.status = -LE_STALE;
			break;
		}
		next = moves_chain(&moves, c->chains[i]);
		if (next == NULL)
			break;
		/* Each member that was complete has all acknowledged data, and nothing has been
		 * written since. */
		next->n_members = 1;
		next->members[0] = (struct chain_member){t->info.id, MEMBER_SYNC};
		next->lead = t->info.id;
		next->flags &= ~(uint32_t)CHAIN_LOST;
	}
	/* Its time to return begins now. */
	target_went_away(t, env_wall_ns(c->store->env), c->store->env);
	return moves_commit(&moves);
}

static int admin(struct cluster *c, uint32_t what, struct target *t)
{
	uint32_t flags = t->info.flags;

	if (t->leaving)
		return -LE_LEAVING;
	if (what == TARGET_ADMIN_RECOVER)
		return (flags & TARGET_GIVEN_UP) != 0 ? recover(c, t) : -LE_EXIST;
	/* After its return it would delete what it holds, and lost chains still name it. */
	if ((flags & TARGET_GIVEN_UP) != 0)
		return -LE_REMOVED;
	switch (what) {
	case TARGET_ADMIN_DRAIN:
		if ((flags & TARGET_REMOVED) != 0)
			return -LE_NO_TARGET;
		if ((flags & TARGET_DRAINING) == 0)
			TRY(can_leave(c, t));
		return set_flags(c, t, flags | TARGET_DRAINING);
	case TARGET_ADMIN_UNDRAIN:
		TRY(set_flags(c, t, flags & ~(uint32_t)TARGET_DRAINING));
		chain_table_try_grow(c);
		return 0;
	case TARGET_ADMIN_REMOVE:
		if (target_chains(c, t->info.id) != 0)
			return -LE_BUSY;
		return set_flags(c, t, flags | TARGET_REMOVED);
	case TARGET_ADMIN_ADD:
		TRY(set_flags(c, t, 0));
		chain_table_try_grow(c);
		return 0;
	default:
		return -LE_INVAL;
	}
}

int target_admin(struct cluster *c, const struct mds_target_admin_req *in,
		 struct mds_target_admin_rep *out)
{
	struct target *t = cluster_target(c, in->target);
	uint32_t was;
	int rc;

	if (in->what == TARGET_ADMIN_REBALANCE) {
		if (!rebalance_is_on(c))
			c->rebalance_idle = false;
		c->rebalance_us = loop_now_us();
		out->left = rebalance_left(c);
		return 0;
	}
	if (t == NULL)
		return -LE_NO_TARGET;
	fmutex_lock(&c->lock);
	was = t->info.flags;
	rc = admin(c, in->what, t);
	fmutex_unlock(&c->lock);
	if (rc < 0)
		return rc;
	out->left = target_chains(c, in->target);
	if (t->info.flags == was)
		return 0;
	log_info("target %u: %s, in %u chains", in->target,
		 (t->info.flags & TARGET_REMOVED) != 0    ? "removed"
		 : (t->info.flags & TARGET_DRAINING) != 0 ? "draining"
							  : "in use",
		 out->left);
	failure_detector_kick(c);
	return 0;
}
