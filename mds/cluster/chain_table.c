/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the members of new chains by a greedy algorithm. */
#include "mds/cluster/chain_table.h"

#include <stdlib.h>

#include "common/base/log.h"

/* The present chains of a class and the new ones. Arrays have the positions of c->targets. */
struct plan {
	struct cluster *c;
	uint32_t replicas, n; /* n: number of targets */
	uint32_t *heads, *members; /* heads: chains that the target should lead */
	uint16_t *pairs; /* n * n: chains that have both targets */
	uint16_t *led;   /* n * n: chains that have both targets and that the first one leads */
	struct chain **chains; /* new ones */
	uint32_t n_chains, cap;
};

bool target_usable(const struct target *t)
{
	return t->info.state == TARGET_UP &&
	       (t->info.flags & (TARGET_DRAINING | TARGET_REMOVED | TARGET_BAD)) == 0;
}

/* A target that reports no host counts as a separate host. */
bool targets_apart(const struct target *a, const struct target *b)
{
	return a != b && (a->info.host.len == 0 || !bytes_equal(a->info.host, b->info.host));
}

static bool same_rack(const struct target *a, const struct target *b)
{
	return a->info.rack.len > 0 && bytes_equal(a->info.rack, b->info.rack);
}

static void count(struct plan *p, const struct chain *ch)
{
	if ((ch->flags & CHAIN_LOST) != 0)
		return;
	for (uint32_t i = 0; i < ch->n_members; i++) {
		uint32_t a = ch->members[i].target - 1;

		p->members[a]++;
		p->heads[a] += ch->lead == a + 1;
		for (uint32_t k = 0; k < ch->n_members; k++) {
			uint32_t b = ch->members[k].target - 1;

			p->pairs[a * p->n + b] += i != k;
			p->led[a * p->n + b] += i != k && ch->lead == a + 1;
		}
	}
}

static void plan_fini(struct plan *p)
{
	free(p->heads);
	free(p->members);
	free(p->pairs);
	free(p->led);
	for (uint32_t i = 0; i < p->n_chains; i++)
		free(p->chains[i]);
	free(p->chains);
}

static int plan_init(struct plan *p, struct cluster *c, uint32_t replicas)
{
	const struct chain_class *cl = &c->classes[replicas];
	size_t n = c->n_targets;

	*p = (struct plan){.c = c, .replicas = replicas, .n = c->n_targets};
	p->heads = calloc(n + 1, sizeof(*p->heads));
	p->members = calloc(n + 1, sizeof(*p->members));
	p->pairs = calloc(n * n + 1, sizeof(*p->pairs));
	p->led = calloc(n * n + 1, sizeof(*p->led));
	if (p->heads == NULL || p->members == NULL || p->pairs == NULL || p->led == NULL) {
		plan_fini(p);
		return -LE_NOMEM;
	}
	for (uint32_t i = 0; i < cl->n; i++)
		count(p, cl->chains[i]);
	return 0;
}

/* The number of chains that the target should lead: one with each target that it may share a chain
 * with, at most chains_per_target. */
static uint32_t heads_wanted(const struct plan *p, uint32_t at)
{
	struct target *const *t = p->c->targets;
	uint32_t n = 0;

	if (!target_usable(t[at]))
		return 0;
	for (uint32_t i = 0; i < p->n; i++)
		n += target_usable(t[i]) && targets_apart(t[at], t[i]);
	return n < p->c->params->chains_per_target ? n : p->c->params->chains_per_target;
}

/* Rates a candidate; lower is better. The parts, by weight: members in the same rack, chains that
 * it shares with the members, load, distance from the head in the order of targets. */
static uint64_t score(const struct plan *p, const uint32_t *chosen, uint32_t n, uint32_t at)
{
	struct target *const *t = p->c->targets;
	uint64_t racks = 0, pairs = 0, led = p->led[chosen[0] * p->n + at];

	for (uint32_t i = 0; i < n; i++) {
		racks += same_rack(t[chosen[i]], t[at]);
		pairs += p->pairs[chosen[i] * p->n + at];
	}
	return racks << 56 | (pairs & 0xffff) << 40 | (led & 0xff) << 32 |
	       (uint64_t)(p->members[at] & 0xffffff) << 8 |
	       (at + p->n - chosen[0]) % p->n;
}

static bool choose(const struct plan *p, uint32_t *chosen, uint32_t n)
{
	struct target *const *t = p->c->targets;
	uint64_t best = UINT64_MAX;

	for (uint32_t i = 0; i < p->n; i++) {
		bool apart = target_usable(t[i]);
		uint64_t s;

		for (uint32_t k = 0; k < n; k++)
			apart = apart && targets_apart(t[chosen[k]], t[i]);
		if (!apart)
			continue;
		s = score(p, chosen, n, i);
		if (s < best) {
			best = s;
			chosen[n] = i;
		}
	}
	return best != UINT64_MAX;
}

static int add(struct plan *p, const uint32_t *chosen)
{
	struct chain *ch = calloc(1, sizeof(*ch));

	if (p->n_chains == p->cap) {
		uint32_t cap = p->cap != 0 ? p->cap * 2 : 64;
		struct chain **v = realloc(p->chains, cap * sizeof(struct chain *));

		if (v == NULL) {
			free(ch);
			return -LE_NOMEM;
		}
		p->chains = v;
		p->cap = cap;
	}
	if (ch == NULL)
		return -LE_NOMEM;
	*ch = (struct chain){.id = p->c->n_chains + p->n_chains + 1,
			     .epoch = 1,
			     .replicas = p->replicas,
			     .n_members = p->replicas,
			     .lead = chosen[0] + 1};
	for (uint32_t i = 0; i < p->replicas; i++)
		ch->members[i] = (struct chain_member){chosen[i] + 1, MEMBER_SYNC};
	count(p, ch);
	p->chains[p->n_chains++] = ch;
	return 0;
}

/* The target that leads the fewest chains, of those that should lead more. p->n: there is none. */
static uint32_t neediest(const struct plan *p, const uint32_t *wanted)
{
	uint32_t best = p->n;

	for (uint32_t i = 0; i < p->n; i++) {
		if (p->heads[i] >= wanted[i])
			continue;
		if (best == p->n || p->heads[i] < p->heads[best] ||
		    (p->heads[i] == p->heads[best] && p->members[i] < p->members[best]))
			best = i;
	}
	return best;
}

static int plan_make(struct plan *p)
{
	uint32_t *wanted = calloc(p->n + 1, sizeof(*wanted)), at;
	int rc = 0;

	if (wanted == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < p->n; i++)
		wanted[i] = heads_wanted(p, i);
	while (rc == 0 && (at = neediest(p, wanted)) < p->n) {
		uint32_t chosen[LEAT_REPLICAS_MAX] = {at}, n = 1;

		while (n < p->replicas && choose(p, chosen, n))
			n++;
		if (n == p->replicas)
			rc = add(p, chosen);
		else
			wanted[at] = 0;
	}
	free(wanted);
	return rc;
}

/* Makes the plan durable, then adds it to the map. */
static int plan_carry_out(struct plan *p)
{
	struct cluster *c = p->c;
	struct table_info table = {c->n_tables + 1, p->replicas,
				   c->classes[p->replicas].n + p->n_chains};

	TRY(cluster_reserve(c, p->replicas, p->n_chains));
	TRY(txn_begin(c->store));
	for (uint32_t i = 0; i < p->n_chains; i++)
		cluster_put_chain(c, p->chains[i]);
	cluster_put_table(c, &table);
	TRY(cluster_commit(c));
	for (uint32_t i = 0; i < p->n_chains; i++) {
		cluster_add_chain(c, p->chains[i]);
		cluster_chain_changed(c, p->chains[i]);
	}
	cluster_add_table(c, &table);
	log_info("%u chains of %u members, chain table version %u", table.n, table.replicas,
		 table.version);
	p->n_chains = 0; /* the cluster owns them now */
	waitq_wake_all(&c->changed);
	return 0;
}

static int build(struct cluster *c, uint32_t replicas)
{
	struct plan p;
	int rc;

	TRY(plan_init(&p, c, replicas));
	rc = plan_make(&p);
	if (rc == 0 && p.n_chains > 0)
		rc = plan_carry_out(&p);
	plan_fini(&p);
	return rc;
}

int chain_table_want(struct cluster *c, uint32_t replicas)
{
	int rc = 0;

	if (replicas < 1 || replicas > LEAT_REPLICAS_MAX)
		return -LE_INVAL;
	fmutex_lock(&c->lock);
	if (c->classes[replicas].table == 0 && replicas > 1)
		rc = build(c, replicas);
	if (rc == 0 && c->classes[replicas].table == 0)
		rc = replicas > 1 ? -LE_NODEV : -LE_NOT_READY;
	fmutex_unlock(&c->lock);
	return rc;
}

int chain_table_root(struct cluster *c, uint32_t *ret_replicas)
{
	const struct inode_rec *rec;
	int rc;

	/* A change of this record that is not durable yet needs no attention: the request that
	 * makes it has already called chain_table_want for its class. */
	while ((rc = inode_get(c->store, LEAT_ROOT_INO, VIEW_DURABLE, NULL, &rec)) == -LE_MISS)
		TRY(store_load(c->store));
	TRY(rc);
	*ret_replicas = rec->attr.layout.replicas > 1 ? rec->attr.layout.replicas : 1;
	return 0;
}

int chain_table_grow(struct cluster *c)
{
	uint32_t root = 0;
	int rc = chain_table_root(c, &root);

	/* The existing classes grow all the same. */
	if (rc < 0)
		log_warn("reading the number of copies of the root directory failed: %s",
			 status_text(rc));
	for (uint32_t k = 2; k <= LEAT_REPLICAS_MAX; k++)
		if (c->classes[k].table != 0 || k == root)
			TRY(build(c, k));
	return 0;
}

void chain_table_try_grow(struct cluster *c)
{
	int rc = chain_table_grow(c);

	if (rc < 0)
		log_warn("adding chains for a target that is in use again failed: %s",
			 status_text(rc));
}
