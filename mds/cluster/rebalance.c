/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/cluster/rebalance.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/cluster/chain_table.h"
#include "mds/cluster/membership.h"

#define TARGETS_BOUND 256u
/* A rebalance lasts for this long after its last request: it ends when `leat target rebalance`
 * stops repeating the request. */
#define REBALANCE_US 5000000u

/* One pass: by class and target, the number of chains that the target is a member of, and that it
 * should lead. */
struct pass {
	struct cluster *c;
	struct moves moves;
	uint32_t members[LEAT_REPLICAS_MAX + 1][TARGETS_BOUND];
	uint32_t leads[LEAT_REPLICAS_MAX + 1][TARGETS_BOUND];
	uint32_t n_filling; /* chains with one member more than their class has, which is being
			     * filled */
	bool returning;     /* other chains have a member that has returned and is being filled */
};

uint32_t target_chains(const struct cluster *c, uint32_t target)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_chains; i++)
		for (uint32_t k = 0; k < c->chains[i]->n_members; k++)
			n += c->chains[i]->members[k].target == target &&
			     (c->chains[i]->flags & CHAIN_LOST) == 0;
	return n;
}

static void pass_init(struct pass *p, struct cluster *c)
{
	*p = (struct pass){.c = c, .moves = {.c = c}};
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];
		bool filling = false;

		if ((ch->flags & CHAIN_LOST) != 0)
			continue;
		p->leads[ch->replicas][ch->lead - 1]++;
		for (uint32_t k = 0; k < ch->n_members; k++) {
			p->members[ch->replicas][ch->members[k].target - 1]++;
			filling |= ch->members[k].state == MEMBER_SYNCING;
		}
		/* A member that returned may stay unfilled for long, which is no reason to delay
		 * other moves. */
		p->n_filling += filling && ch->n_members > ch->replicas;
		p->returning |= filling && ch->n_members <= ch->replicas;
	}
}

static bool is_lost(const struct pass *p, const struct target *t)
{
	uint64_t after_us = p->c->params->replace_after_ms * (uint64_t)1000;

	return t->info.state != TARGET_UP && t->down_ns != 0 &&
	       target_away_us(t, p->c->store->env, after_us) > after_us;
}

/* True if the state of the target allows it to stay a member. */
static bool is_good(const struct pass *p, const struct target *t)
{
	return (t->info.flags & (TARGET_DRAINING | TARGET_REMOVED | TARGET_BAD)) == 0 &&
	       !is_lost(p, t);
}

/* The least loaded target that may join the chain: not a member, on another host than the members
 * that stay, and with free space. 0: there is none. */
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

/* Gives `next` empty members for a chain that starts again without data: as many as there are
 * targets, up to its number of copies. The present members are excluded, because they may hold data
 * that must not become visible again. Returns the number of members. */
static uint32_t fresh_members(struct pass *p, const struct chain *ch, struct chain *next)
{
	const uint32_t never = UINT32_MAX >> 5;
	uint32_t *load = p->members[ch->replicas], was[CHAIN_MEMBERS_MAX];

	for (uint32_t i = 0; i < ch->n_members; i++) {
		was[i] = load[ch->members[i].target - 1];
		load[ch->members[i].target - 1] = never;
	}
	next->n_members = 0;
	while (next->n_members < ch->replicas) {
		uint32_t id = candidate(p, next, 0);

		if (id == 0 || load[id - 1] == never)
			break;
		next->members[next->n_members++] = (struct chain_member){id, MEMBER_SYNC};
		load[id - 1]++;
	}
	for (uint32_t i = 0; i < ch->n_members; i++)
		load[ch->members[i].target - 1] = was[i];
	return next->n_members;
}

int replace_all_members(struct moves *m, const uint32_t *chains, uint32_t n)
{
	struct pass *p = malloc(sizeof(*p));
	int rc = 0;

	if (p == NULL)
		return -LE_NOMEM;
	pass_init(p, m->c);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		const struct chain *ch = cluster_chain(m->c, chains[i]);
		struct chain *next = moves_chain(m, ch);

		if (next == NULL)
			rc = -LE_NOMEM;
		else if (fresh_members(p, ch, next) == 0)
			rc = -LE_NODEV;
		else
			next->lead = next->members[0].target;
	}
	free(p);
	return rc;
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

/* Makes that member the head which leads the fewest chains. */
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

/* The member to remove, if enough complete members remain without it: first a member that may not
 * stay, then one that is not complete, then the one in most chains. 0: none. */
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
	/* Only one step for each chain; the next pass makes the next one. */
	if (n_whole < ch->replicas || ch->n_members <= ch->replicas)
		return;
	gone = surplus(p, ch, n_whole);
	if (gone != 0)
		drop_member(p, ch, gone);
}

/* ---- rebalancing ---- */

struct loads {
	uint32_t most, least, n, sum; /* most, least: target ids; n: number of usable targets */
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

/* Adds the least loaded target to a chain of the most loaded one, which surplus() removes when the
 * new member is filled. */
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
		p->members[replicas][l.most - 1]--; /* counted ahead */
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
	/* Hosts, racks and space may prevent further moves. */
	p->c->rebalance_idle = p->moves.n == n_before && p->n_filling == 0 && !p->returning;
}

/* For each target the memberships above the mean, rounded up, plus the moves in flight. */
uint32_t rebalance_left(struct cluster *c)
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

int rebalance_pass(struct cluster *c)
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
