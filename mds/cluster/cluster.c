/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/cluster/cluster.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"


struct target *cluster_target(const struct cluster *c, uint32_t id)
{
	return id >= 1 && id <= c->n_targets ? c->targets[id - 1] : NULL;
}

struct chain *cluster_chain(const struct cluster *c, uint32_t id)
{
	return id >= 1 && id <= c->n_chains ? c->chains[id - 1] : NULL;
}

const struct table_info *cluster_table(const struct cluster *c, uint32_t version)
{
	return version >= 1 && version <= c->n_tables ? &c->tables[version - 1] : NULL;
}

uint32_t cluster_layout_width(const struct cluster *c, const struct layout *l)
{
	const struct table_info *t = cluster_table(c, l->table);

	if (t == NULL || t->replicas != l->replicas)
		return 0;
	return l->width < t->n ? l->width : t->n;
}

struct chain *cluster_layout_chain(const struct cluster *c, const struct layout *l, uint64_t idx)
{
	if (cluster_layout_width(c, l) == 0)
		return NULL;
	return c->classes[l->replicas]
		.chains[layout_chain_index(l, c->tables[l->table - 1].n, idx)];
}

bool cluster_layout_lost(const struct cluster *c, const struct layout *l)
{
	uint32_t width = cluster_layout_width(c, l);

	for (uint32_t i = 0; i < width; i++)
		if ((cluster_layout_chain(c, l, i)->flags & CHAIN_LOST) != 0)
			return true;
	return false;
}

bool cluster_chain_closed(const struct cluster *c, const struct chain *ch)
{
	uint32_t n_sync = 0, n_leaving = 0;

	for (uint32_t i = 0; i < ch->n_members && ch->members[i].state == MEMBER_SYNC; i++) {
		n_sync++;
		n_leaving += cluster_target(c, ch->members[i].target)->leaving;
	}
	return (ch->flags & CHAIN_LOST) != 0 || (n_sync > 0 && n_leaving == n_sync);
}

struct target *cluster_chain_head(const struct cluster *c, const struct chain *ch)
{
	if (ch->n_members == 0 || ch->members[0].state != MEMBER_SYNC)
		return NULL;
	return cluster_target(c, ch->members[0].target);
}

uint32_t cluster_chain_epoch(const struct cluster *c, const struct target *t)
{
	const struct chain *ch = cluster_chain(c, t->chain);

	return ch != NULL ? ch->epoch : 0;
}

/* Grows an array to a capacity of n + more elements. */
static int grow(void *array, uint32_t *cap, uint32_t n, uint32_t more, size_t size)
{
	uint32_t want = *cap != 0 ? *cap : 64;
	void *p;

	if (n + more <= *cap)
		return 0;
	while (want < n + more)
		want *= 2;
	p = realloc(*(void **)array, want * size);
	if (p == NULL)
		return -LE_NOMEM;
	*(void **)array = p;
	*cap = want;
	return 0;
}

int cluster_reserve(struct cluster *c, uint32_t replicas, uint32_t n)
{
	struct chain_class *cl = &c->classes[replicas];

	TRY(grow(&c->chains, &c->cap_chains, c->n_chains, n, sizeof(*c->chains)));
	TRY(grow(&cl->chains, &cl->cap, cl->n, n, sizeof(*cl->chains)));
	return grow(&c->tables, &c->cap_tables, c->n_tables, 1, sizeof(*c->tables));
}

void cluster_add_chain(struct cluster *c, struct chain *ch)
{
	struct chain_class *cl = &c->classes[ch->replicas];

	ASSERT(ch->id == c->n_chains + 1 && c->n_chains < c->cap_chains && cl->n < cl->cap);
	c->chains[c->n_chains++] = ch;
	cl->chains[cl->n++] = ch;
}

void cluster_add_table(struct cluster *c, const struct table_info *t)
{
	ASSERT(t->version == c->n_tables + 1 && c->n_tables < c->cap_tables);
	c->tables[c->n_tables++] = *t;
	c->classes[t->replicas].table = t->version;
}

void target_free(struct target *t)
{
	if (t == NULL)
		return;
	free(t->addrs);
	free(t->host);
	free(t->rack);
	free(t);
}

static char *text_of(struct bytes b)
{
	return strndup(b.len > 0 ? b.data : "", b.len);
}

int target_set_text(struct target *t, struct bytes addrs, struct bytes host,
			   struct bytes rack)
{
	char *a = text_of(addrs), *h = text_of(host), *r = text_of(rack);

	if (a == NULL || h == NULL || r == NULL) {
		free(a);
		free(h);
		free(r);
		return -LE_NOMEM;
	}
	free(t->addrs);
	free(t->host);
	free(t->rack);
	t->addrs = a;
	t->host = h;
	t->rack = r;
	t->info.addrs = bytes_str(a);
	t->info.host = bytes_str(h);
	t->info.rack = bytes_str(r);
	return 0;
}

/* ---- start ---- */

struct load {
	struct cluster *c;
	int status;
};

void target_went_away(struct target *t, int64_t down_ns, struct env *env)
{
	int64_t now_ns = env_wall_ns(env);

	t->down_ns = down_ns;
	t->down_us = env_now_us(env);
	t->waited_us = down_ns > 0 && down_ns < now_ns ? (uint64_t)(now_ns - down_ns) / 1000 : 0;
}

uint64_t target_away_us(const struct target *t, struct env *env, uint64_t after_us)
{
	uint64_t before_us = t->waited_us < after_us / 2 ? t->waited_us : after_us / 2;

	return before_us + (env_now_us(env) - t->down_us);
}

static int load_target(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	struct cluster *c = l->c;
	struct target_rec rec;
	struct target *t;
	struct wire_r r;

	(void)key;
	wire_r_init(&r, value, len);
	wire_get_target_rec(&r, &rec);
	l->status = -LE_CORRUPT_STORE;
	if (key_len != 6 || r.status < 0 || rec.info.id != c->n_targets + 1 ||
	    c->n_targets >= c->params->targets_max)
		return 1;
	t = calloc(1, sizeof(*t));
	l->status = -LE_NOMEM;
	if (t == NULL)
		return 1;
	t->info = rec.info;
	t->commits = t->commits_stored = rec.commits;
	t->chain = rec.chain;
	target_went_away(t, rec.down_ns, c->store->env);
	t->incarnation = t->judged = rec.incarnation;
	t->chains_epoch = c->epoch;
	t->last_contact_us = loop_now_us();
	if (target_set_text(t, rec.info.addrs, rec.info.host, rec.info.rack) < 0) {
		free(t);
		return 1;
	}
	c->targets[c->n_targets++] = t;
	l->status = 0;
	return 0;
}

static int chain_of_record(const struct cluster *c, const void *value, size_t len,
			   struct chain *ret_ch)
{
	struct chain_info rec;
	struct wire_r r;
	int n;

	wire_r_init(&r, value, len);
	wire_get_chain_info(&r, &rec);
	if (r.status < 0 || rec.id != c->n_chains + 1 || rec.replicas < 1 ||
	    rec.replicas > LEAT_REPLICAS_MAX)
		return -LE_CORRUPT_STORE;
	*ret_ch = (struct chain){.id = rec.id,
				 .epoch = rec.epoch,
				 .replicas = rec.replicas,
				 .lead = rec.lead,
				 .flags = rec.flags};
	n = chain_members_get(&rec, ret_ch->members);
	if (n < 0)
		return -LE_CORRUPT_STORE;
	ret_ch->n_members = (uint32_t)n;
	for (int i = 0; i < n; i++)
		if (cluster_target(c, ret_ch->members[i].target) == NULL)
			return -LE_CORRUPT_STORE;
	return 0;
}

static int load_chain(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	struct chain *ch = malloc(sizeof(*ch));

	(void)key;
	l->status = ch == NULL ? -LE_NOMEM : 0;
	if (l->status == 0)
		l->status = key_len == 6 ? chain_of_record(l->c, value, len, ch)
					 : -LE_CORRUPT_STORE;
	if (l->status == 0)
		l->status = cluster_reserve(l->c, ch->replicas, 1);
	if (l->status < 0) {
		free(ch);
		return 1;
	}
	cluster_add_chain(l->c, ch);
	return 0;
}

static int load_table(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	struct table_info rec;
	struct wire_r r;

	(void)key;
	wire_r_init(&r, value, len);
	wire_get_table_info(&r, &rec);
	l->status = -LE_CORRUPT_STORE;
	if (key_len != 6 || r.status < 0 || rec.version != l->c->n_tables + 1 ||
	    rec.replicas < 1 || rec.replicas > LEAT_REPLICAS_MAX || rec.n == 0 ||
	    rec.n > l->c->classes[rec.replicas].n)
		return 1;
	l->status = cluster_reserve(l->c, rec.replicas, 1);
	if (l->status < 0)
		return 1;
	cluster_add_table(l->c, &rec);
	return 0;
}

static int load_kind(struct cluster *c, char kind,
		     int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				 size_t len))
{
	const uint8_t begin[2] = {'C', (uint8_t)kind}, end[2] = {'C', (uint8_t)(kind + 1)};
	struct kv_range range = {begin, 2, end, 2, UINT32_MAX};
	struct load l = {c, 0};
	bool more;

	TRY(kv_scan(c->store->kv, NULL, &range, each, &l, &more));
	return l.status;
}

int cluster_load(struct cluster *c, struct store *s, const struct mds_params *p)
{
	int rc;

	*c = (struct cluster){.store = s, .params = p, .epoch = s->cluster.map_epoch};
	c->rotor = (uint32_t)env_random_u64(s->env);
	fmutex_init(&c->lock);
	waitq_init(&c->changed);
	waitq_init(&c->settled);
	waitq_init(&c->fenced);
	waitq_init(&c->work);
	latch_init(&c->tellers, 0);
	c->quiet_us = loop_now_us();
	c->targets = calloc(p->targets_max, sizeof(struct target *));
	if (c->targets == NULL)
		return -LE_NOMEM;
	rc = load_kind(c, 't', load_target);
	if (rc == 0)
		rc = load_kind(c, 'c', load_chain);
	if (rc == 0)
		rc = load_kind(c, 'v', load_table);
	if (rc < 0)
		log_error("reading the cluster map from the store failed: %s", status_text(rc));
	return rc;
}

void cluster_fini(struct cluster *c)
{
	for (uint32_t i = 0; i < c->n_targets; i++)
		target_free(c->targets[i]);
	free(c->targets);
	for (uint32_t i = 0; i < c->n_chains; i++)
		free(c->chains[i]);
	free(c->chains);
	for (uint32_t k = 0; k <= LEAT_REPLICAS_MAX; k++)
		free(c->classes[k].chains);
	free(c->tables);
}

/* ---- changes; the caller holds c->lock ---- */

void cluster_put_target(struct cluster *c, const struct target *t, const struct target_info *info)
{
	struct target_rec rec = {*info, t->commits, t->chain, t->down_ns,
				 t->judged};

	TXN_PUT(c->store, key_cluster('t', info->id), target_rec, &rec);
}

struct chain_info chain_info_of(const struct chain *ch, uint8_t buf[CHAIN_MEMBERS_BUF])
{
	struct chain_info info = {.id = ch->id,
				  .epoch = ch->epoch,
				  .replicas = ch->replicas,
				  .lead = ch->lead,
				  .flags = ch->flags};

	chain_members_put(ch->members, ch->n_members, buf, &info);
	return info;
}

void cluster_put_chain(struct cluster *c, const struct chain *ch)
{
	uint8_t buf[CHAIN_MEMBERS_BUF];
	struct chain_info info = chain_info_of(ch, buf);

	TXN_PUT(c->store, key_cluster('c', ch->id), chain_info, &info);
}

void cluster_put_table(struct cluster *c, const struct table_info *t)
{
	TXN_PUT(c->store, key_cluster('v', t->version), table_info, t);
}

void cluster_chain_changed(struct cluster *c, const struct chain *ch)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		c->targets[ch->members[i].target - 1]->chains_epoch = c->epoch;
}

int cluster_commit(struct cluster *c)
{
	struct store *s = c->store;

	ASSERT(c->lock.held && s->cluster.map_epoch >= c->epoch);
	s->cluster.map_epoch++;
	txn_cluster(s);
	TRY(store_wait(s, txn_end(s)));
	c->epoch = s->cluster.map_epoch;
	c->rebalance_idle = false;
	return 0;
}

void cluster_store_commits(struct cluster *c)
{
	int rc = 0;

	fmutex_lock(&c->lock);
	for (uint32_t i = 0; rc == 0 && i < c->n_targets; i++) {
		struct target *t = c->targets[i];

		if (t->commits <= t->commits_stored)
			continue;
		rc = txn_begin(c->store);
		if (rc < 0)
			break;
		cluster_put_target(c, t, &t->info);
		t->commits_stored = t->commits;
		rc = store_wait(c->store, txn_end(c->store));
	}
	fmutex_unlock(&c->lock);
}

void cluster_stop(struct cluster *c)
{
	c->stopping = true;
	waitq_wake_all(&c->changed);
	waitq_wake_all(&c->settled);
	waitq_wake_all(&c->work);
}

void cluster_space(const struct cluster *c, uint64_t *ret_total, uint64_t *ret_free)
{
	*ret_total = *ret_free = 0;
	for (uint32_t i = 0; i < c->n_targets; i++) {
		if ((c->targets[i]->info.flags & TARGET_REMOVED) != 0)
			continue;
		*ret_total += c->targets[i]->info.capacity;
		*ret_free += c->targets[i]->info.free;
	}
}
