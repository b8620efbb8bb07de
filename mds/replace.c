/* See replace.h. */
#include "mds/replace.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/chain_table.h"
#include "mds/detect.h"
#include "mds/membership.h"

#define TARGETS_BOUND 256u
/* A rebalance goes on so long after it was last asked for: who gives up asking ends it. */
#define REBALANCE_US 5000000u

/* One pass: how many chains of each class everybody is in, is to lead. */
struct pass {
	struct cluster *c;
	struct moves moves;
	uint32_t members[LEAT_REPLICAS_MAX + 1][TARGETS_BOUND];
	uint32_t leads[LEAT_REPLICAS_MAX + 1][TARGETS_BOUND];
	uint32_t n_filling; /* chains with one member more than they shall have, which is filled */
	bool returning;     /* others are: they have a member that is back */
	int64_t now_ns;
};

uint32_t target_chains(const struct cluster *c, uint32_t target)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_chains; i++)
		for (uint32_t k = 0; k < c->chains[i]->n_members; k++)
			n += c->chains[i]->members[k].target == target;
	return n;
}

static void pass_init(struct pass *p, struct cluster *c)
{
	*p = (struct pass){.c = c, .moves = {.c = c}, .now_ns = env_wall_ns(c->store->env)};
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];
		bool filling = false;

		p->leads[ch->replicas][ch->lead - 1]++;
		for (uint32_t k = 0; k < ch->n_members; k++) {
			p->members[ch->replicas][ch->members[k].target - 1]++;
			filling |= ch->members[k].state == MEMBER_SYNCING;
		}
		/* What keeps a member that is back from being filled is no reason to wait. */
		p->n_filling += filling && ch->n_members > ch->replicas;
		p->returning |= filling && ch->n_members <= ch->replicas;
	}
}

static bool is_lost(const struct pass *p, const struct target *t)
{
	return t->info.state != TARGET_UP && t->down_ns != 0 &&
	       p->now_ns - t->down_ns > p->c->params->replace_after_ms * (int64_t)1000000;
}

/* May stay a member as far as its target goes. */
static bool is_good(const struct pass *p, const struct target *t)
{
	return (t->info.flags & (TARGET_DRAINING | TARGET_REMOVED | TARGET_BAD)) == 0 &&
	       !is_lost(p, t);
}

/* Not a member, apart from those that stay, with room; the least loaded one. 0: there is none. */
static uint32_t candidate(const struct pass *p, const struct chain *ch, uint32_t leaving)
{
	const struct cluster *c = p->c;
	uint32_t best = 0, best_score = UINT32_MAX;

	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target *t = c->targets[i];
		uint32_t score = p->members[ch->replicas][i] << 4;
		bool fits =
			target_usable(t) && !t->restarted && t->info.free > t->info.capacity / 20;

		for (uint32_t k = 0; k < ch->n_members; k++) {
			const struct target *m = cluster_target(c, ch->members[k].target);
			bool stays = m->info.id != leaving && is_good(p, m);

			fits = fits && m != t && (!stays || targets_apart(m, t));
			score += stays && m->info.rack.len > 0 &&
						 bytes_equal(m->info.rack, t->info.rack)
					 ? 1u << 24
					 : 0;
		}
		if (fits && score < best_score) {
			best = i + 1;
			best_score = score;
		}
	}
	return best;
}

static void add_member(struct pass *p, const struct chain *ch, uint32_t target)
{
	struct chain *next;

	if (target == 0 || ch->n_members == CHAIN_MEMBERS_MAX ||
	    p->n_filling >= p->c->params->replace_parallel)
		return;
	next = moves_chain(&p->moves, ch);
	if (next == NULL)
		return;
	member_move(next, target, MEMBER_SYNCING);
	p->members[ch->replicas][target - 1]++;
	p->n_filling++;
}

/* Whoever leads least of those that stay. */
static void choose_lead(struct pass *p, struct chain *next)
{
	uint32_t *leads = p->leads[next->replicas], best = 0;

	for (uint32_t k = 1; k < next->n_members; k++)
		if (leads[next->members[k].target - 1] < leads[next->members[best].target - 1])
			best = k;
	leads[next->lead - 1]--;
	next->lead = next->members[best].target;
	leads[next->lead - 1]++;
}

static void drop_member(struct pass *p, const struct chain *ch, uint32_t target)
{
	struct chain *next = moves_chain(&p->moves, ch);

	if (next == NULL)
		return;
	member_move(next, target, MEMBER_NONE);
	p->members[ch->replicas][target - 1]--;
	if (next->lead == target)
		choose_lead(p, next);
}

/* Who goes, when there are enough complete members without it: first those that may not stay, then
 * the one with most to do. 0: nobody. */
static uint32_t surplus(const struct pass *p, const struct chain *ch, uint32_t n_whole)
{
	uint32_t best = 0, best_load = 0;

	for (uint32_t k = 0; k < ch->n_members; k++) {
		uint32_t id = ch->members[k].target, load = p->members[ch->replicas][id - 1] + 1;
		bool good = is_good(p, cluster_target(p->c, id));
		bool sync = ch->members[k].state == MEMBER_SYNC;

		if (!good)
			load += 1u << 30;
		else if (!sync)
			load += 1u << 20;
		if ((!good || !sync || n_whole > ch->replicas) && load > best_load) {
			best = id;
			best_load = load;
		}
	}
	return best;
}

static void step(struct pass *p, const struct chain *ch)
{
	uint32_t n_good = 0, n_whole = 0, gone;
	const struct target *head = cluster_chain_head(p->c, ch);

	if (head == NULL || head->info.state != TARGET_UP || head->dead || head->restarted)
		return;
	for (uint32_t k = 0; k < ch->n_members; k++) {
		const struct target *t = cluster_target(p->c, ch->members[k].target);

		n_good += is_good(p, t);
		n_whole += is_good(p, t) && target_usable(t) && ch->members[k].state == MEMBER_SYNC;
	}
	if (n_good < ch->replicas) {
		add_member(p, ch, candidate(p, ch, 0));
		return;
	}
	/* One at a time; the next pass looks at the rest. */
	if (n_whole < ch->replicas || ch->n_members <= ch->replicas)
		return;
	gone = surplus(p, ch, n_whole);
	if (gone != 0)
		drop_member(p, ch, gone);
}

/* ---- rebalancing ---- */

struct loads {
	uint32_t most, least, n, sum; /* targets by id; n: usable ones */
};

static void loads_of(const struct pass *p, const uint32_t *v, struct loads *ret_l)
{
	*ret_l = (struct loads){0};
	for (uint32_t i = 0; i < p->c->n_targets; i++) {
		if (!target_usable(p->c->targets[i]))
			continue;
		ret_l->n++;
		ret_l->sum += v[i];
		if (ret_l->most == 0 || v[i] > v[ret_l->most - 1])
			ret_l->most = i + 1;
		if (ret_l->least == 0 || v[i] < v[ret_l->least - 1])
			ret_l->least = i + 1;
	}
}

static bool has(const struct chain *ch, uint32_t target)
{
	for (uint32_t k = 0; k < ch->n_members; k++)
		if (ch->members[k].target == target)
			return true;
	return false;
}

static bool is_whole(const struct pass *p, const struct chain *ch)
{
	for (uint32_t k = 0; k < ch->n_members; k++)
		if (ch->members[k].state != MEMBER_SYNC ||
		    !target_usable(cluster_target(p->c, ch->members[k].target)))
			return false;
	return ch->n_members == ch->replicas;
}

/* The least loaded target joins a chain of the most loaded one, which leaves it when the other is
 * filled (surplus). */
static bool shift_member(struct pass *p, const struct chain_class *cl, uint32_t replicas)
{
	struct loads l;

	loads_of(p, p->members[replicas], &l);
	if (l.n < 2 || p->members[replicas][l.most - 1] < p->members[replicas][l.least - 1] + 2)
		return false;
	for (uint32_t i = 0; i < cl->n; i++) {
		const struct chain *ch = cl->chains[i];

		if (!is_whole(p, ch) || !has(ch, l.most) || has(ch, l.least) ||
		    candidate(p, ch, l.most) != l.least || p->moves.status < 0)
			continue;
		if (p->n_filling >= p->c->params->replace_parallel)
			return false;
		add_member(p, ch, l.least);
		p->members[replicas][l.most - 1]--; /* soon */
		return true;
	}
	return false;
}

static bool shift_lead(struct pass *p, const struct chain_class *cl, uint32_t replicas)
{
	uint32_t *leads = p->leads[replicas];

	for (uint32_t i = 0; i < cl->n; i++) {
		const struct chain *ch = cl->chains[i];

		for (uint32_t k = 0; is_whole(p, ch) && k < ch->n_members; k++) {
			struct chain *next;

			if (leads[ch->lead - 1] < leads[ch->members[k].target - 1] + 2)
				continue;
			next = moves_chain(&p->moves, ch);
			if (next == NULL || next->lead != ch->lead)
				break;
			choose_lead(p, next);
			return true;
		}
	}
	return false;
}

static void rebalance(struct pass *p)
{
	uint32_t n_before = p->moves.n;

	for (uint32_t r = 1; r <= LEAT_REPLICAS_MAX; r++) {
		const struct chain_class *cl = &p->c->classes[r];

		while (shift_member(p, cl, r))
			;
		for (uint32_t i = 0; i < cl->n && shift_lead(p, cl, r); i++)
			;
	}
	/* Hosts, racks and space may not allow more. */
	p->c->rebalance_idle = p->moves.n == n_before && p->n_filling == 0 && !p->returning;
}

/* Memberships that are to move yet, what everybody has beyond the mean, rounded up, and those that
 * are under way. */
static uint32_t imbalance(struct cluster *c)
{
	struct pass *p = malloc(sizeof(*p));
	uint32_t left = 0;

	if (p == NULL)
		return 1;
	pass_init(p, c);
	for (uint32_t r = 1; r <= LEAT_REPLICAS_MAX && !c->rebalance_idle; r++) {
		uint32_t more = 0;
		struct loads l;

		loads_of(p, p->members[r], &l);
		if (l.n < 2 || p->members[r][l.most - 1] < p->members[r][l.least - 1] + 2)
			continue;
		for (uint32_t i = 0; i < c->n_targets; i++) {
			uint32_t mean = (l.sum + l.n - 1) / l.n;

			if (target_usable(c->targets[i]) && p->members[r][i] > mean)
				more += p->members[r][i] - mean;
		}
		left += more > 0 ? more : 1;
	}
	for (uint32_t i = 0; i < c->n_chains; i++)
		left += c->chains[i]->n_members > c->chains[i]->replicas;
	free(p);
	return left;
}

bool rebalance_is_on(const struct cluster *c)
{
	return c->rebalance_us != 0 && loop_now_us() < c->rebalance_us + REBALANCE_US;
}

int replace_pass(struct cluster *c)
{
	struct pass *p = malloc(sizeof(*p));
	int rc;

	if (p == NULL)
		return -LE_NOMEM;
	fmutex_lock(&c->lock);
	pass_init(p, c);
	for (uint32_t i = 0; i < c->n_chains; i++)
		step(p, c->chains[i]);
	if (rebalance_is_on(c))
		rebalance(p);
	rc = moves_commit(&p->moves);
	fmutex_unlock(&c->lock);
	free(p);
	return rc;
}

/* ---- leat target ---- */

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

/* Could the target leave? Its chains need members on enough other hosts, and room there. */
static int can_leave(const struct cluster *c, const struct target *t)
{
	uint64_t room = 0;
	uint32_t need = 0, hosts = 0;

	for (uint32_t i = 0; i < c->n_chains; i++)
		for (uint32_t k = 0; k < c->chains[i]->n_members; k++)
			if (c->chains[i]->members[k].target == t->info.id &&
			    c->chains[i]->replicas > need)
				need = c->chains[i]->replicas;
	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target *o = c->targets[i];
		bool other = o != t && target_usable(o);

		room += other && o->info.free > o->info.capacity / 20
				? o->info.free - o->info.capacity / 20
				: 0;
		/* The first of each host. */
		for (uint32_t k = 0; other && k < i; k++)
			other = c->targets[k] == t || !target_usable(c->targets[k]) ||
				targets_apart(c->targets[k], o);
		hosts += other;
	}
	if (hosts < need)
		return -LE_NODEV;
	return room < t->info.used ? -LE_NOSPC : 0;
}

static int admin(struct cluster *c, uint32_t what, struct target *t)
{
	uint32_t flags = t->info.flags;

	switch (what) {
	case TARGET_ADMIN_DRAIN:
		if ((flags & TARGET_REMOVED) != 0)
			return -LE_NO_TARGET;
		if ((flags & TARGET_DRAINING) == 0)
			TRY(can_leave(c, t));
		return set_flags(c, t, flags | TARGET_DRAINING);
	case TARGET_ADMIN_UNDRAIN:
		return set_flags(c, t, flags & ~(uint32_t)TARGET_DRAINING);
	case TARGET_ADMIN_REMOVE:
		if (target_chains(c, t->info.id) != 0)
			return -LE_BUSY;
		return set_flags(c, t, flags | TARGET_REMOVED);
	case TARGET_ADMIN_ADD:
		return set_flags(c, t, 0);
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
		out->left = imbalance(c);
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
	log_info("target %u: flags %u, in %u chains", in->target, t->info.flags, out->left);
	detect_kick(c);
	return 0;
}
