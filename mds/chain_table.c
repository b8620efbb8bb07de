/* Greedy choice of members; see chain_table.h. */
#include "mds/chain_table.h"

#include <stdlib.h>

#include "common/base/log.h"

/* What there is of a class, and what is added: positions are those of c->targets. */
struct plan {
	struct cluster *c;
	uint32_t replicas, n; /* n: targets */
	uint32_t *heads, *members; /* heads: chains that it is to lead */
	uint16_t *pairs; /* n * n: chains with both */
	uint16_t *led;   /* n * n: chains with both that the first one leads */
	struct chain **chains; /* new ones */
	uint32_t n_chains, cap;
};

bool target_usable(const struct target *t)
{
	return t->info.state == TARGET_UP &&
	       (t->info.flags & (TARGET_DRAINING | TARGET_REMOVED | TARGET_BAD)) == 0;
}

/* Who tells no host is a host of its own. */
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

/* How many chains the target should lead: one with each that it may be together with. */
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

/* Less is better: racks shared, times together, load; then whoever is next in the circle. */
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

/* The target that is shortest of chains to lead; p->n: none is. */
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

/* Durable, then known. */
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
	p->n_chains = 0; /* they are the cluster's now */
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

int chain_table_grow(struct cluster *c)
{
	for (uint32_t k = 2; k <= LEAT_REPLICAS_MAX; k++)
		if (c->classes[k].table != 0)
			TRY(build(c, k));
	return 0;
}
