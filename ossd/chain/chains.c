/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/chains.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "ossd/chain/commit.h"
#include "ossd/chain/downstream_space.h"
#include "ossd/chain/forward.h"

#define LOAD_STEP      1024u
#define CHAIN_INFO_MAX 256u /* encoded size with CHAIN_MEMBERS_MAX members */

/* ---- messages of the metadata server ---- */

/* Copies the members of info into c, which may be a temporary. Returns 0 or -LE_BAD_MESSAGE. */
static int take_members(struct chain *c, const struct chain_info *info, uint32_t own)
{
	int n = chain_members_get(info, c->members);

	TRY(n);
	if (n == 0 || info->id == 0)
		return -LE_BAD_MESSAGE;
	c->n_members = c->self = (uint32_t)n;
	c->n_sync = 0;
	for (uint32_t i = 0; i < c->n_members; i++) {
		c->n_sync += c->members[i].state == MEMBER_SYNC;
		if (c->members[i].target == own)
			c->self = i;
	}
	return 0;
}

static void put_chain(const struct chain_info *info, struct kv_batch *b)
{
	uint8_t key[CHAIN_KEY_SIZE], value[CHAIN_INFO_MAX];
	struct wire_w w;

	wire_w_init(&w, value, sizeof(value));
	wire_put_chain_info(&w, info);
	ASSERT(w.status == 0);
	chain_key_encode(ROW_CHAIN, info->id, key);
	kv_batch_put(b, key, sizeof(key), value, w.len);
}

/*
 * Call when all members are SYNC: no other member can have what is lost here. Recounts the cells
 * of the inventory that have lost their row, so that later losses are detected. Chunks that are
 * lost by name stay lost, and uncertain cells stay uncertain, at all members alike. Returns true
 * if rows were added to b.
 */
static bool trust(struct chains *cs, const struct chain *draft, const struct chain_info *info,
		  struct kv_batch *b)
{
	uint64_t more;

	if (draft->n_sync < draft->n_members)
		return false;
	more = inventory_trust_gone(&cs->store->inventory, info->id, b);
	if (more)
		log_error("chain %u: the inventory lacked %llu chunks and counts them again",
			  info->id, (unsigned long long)more);
	return more;
}

/* Stores the chain's new epoch durably, before it takes effect. */
static int store_chain(struct chains *cs, const struct chain *draft, const struct chain_info *info)
{
	struct group_commit *g = &cs->store->gc;
	struct kv_batch *b = group_commit_batch(g);

	TRY(chunk_store_status(cs->store));
	if (draft->self < draft->n_members) {
		struct log_adopt a = {.chain = info->id,
				      .epoch = info->epoch,
				      .others = draft->n_members > 1,
				      .sync = draft->self < draft->n_sync,
				      .all_sync = draft->n_sync == draft->n_members};

		put_chain(info, b);
		chain_log_adopt(cs->log, &a, b);
		(void)trust(cs, draft, info, b);
	} else {
		chain_log_forget(cs->log, info->id, b);
		/* The chunks that are still here will be removed. */
		inventory_trust(&cs->store->inventory, info->id, b);
	}
	return group_commit_wait(g, group_commit_join(g, NULL, false));
}

/* True if a SYNC member downstream may lack versions that this one has as durable downstream. A
 * member that was downstream in the previous epoch cannot: it was SYNC then, or has been filled
 * since. After a change of the order, a member that was upstream may be downstream now. */
static bool behind_may_lack(const struct chain *c, const struct chain *draft, uint32_t epoch)
{
	if (epoch != c->epoch + 1)
		return true;
	for (uint32_t i = draft->self + 1; i < draft->n_sync; i++) {
		uint32_t k = c->self + 1;

		while (k < c->n_members && c->members[k].target != draft->members[i].target)
			k++;
		if (k >= c->n_members || c->members[k].state == MEMBER_OUT)
			return true;
	}
	return false;
}

/* True if pending versions here may be missing at the head. If the head was upstream of this
 * member before, it has them. */
static bool head_may_lack(const struct chain *c, const struct chain *draft, uint32_t epoch)
{
	if (draft->self == 0 || draft->self == draft->n_members)
		return false;
	if (epoch != c->epoch + 1)
		return true;
	for (uint32_t i = 0; i < c->self && i < c->n_members; i++)
		if (c->members[i].target == draft->members[0].target)
			return false;
	return true;
}

static void act(struct chain *c, const struct chain *draft, uint32_t epoch)
{
	/* In the first epoch of a chain there was no previous head. */
	bool knew = chain_knows_leases(c) || (c->epoch == 0 && epoch == 1);
	uint64_t since_us = chain_led_alone(c) ? c->all->o.start_us : env_now_us(c->all->env);
	uint64_t whose = chain_own_leases(c);
	struct adoption how = {.was_head = c->epoch && chain_is_head(c),
			       .was_sync = c->epoch && chain_is_sync(c),
			       .behind_may_lack = behind_may_lack(c, draft, epoch),
			       .head_may_lack = head_may_lack(c, draft, epoch)};

	c->epoch = epoch;
	c->adopted_us = env_now_us(c->all->env);
	c->n_members = draft->n_members;
	c->n_sync = draft->n_sync;
	c->self = draft->self;
	memcpy(c->members, draft->members, sizeof(c->members));
	inventory_set_whole(&c->all->store->inventory, c->id, c->n_sync == c->n_members);
	if (c->self == c->n_members) {
		if (c->phase != CHAIN_DROPPED)
			chain_move(c, CHAIN_DROPPED);
	} else {
		chain_move(c, CHAIN_ADOPTED);
		chain_move(c, CHAIN_SERVING);
	}
	log_debug("chain %u: epoch %u, member %u of %u (%u in sync)", c->id, c->epoch, c->self + 1,
		  c->n_members, c->n_sync);
	c->filled |= !chain_is_sync(c);
	chain_leases_taken_over(c, knew, since_us, whose);
	versions_adopted(c, &how);
	if (c->self < c->n_members && c->members[c->self].state == MEMBER_SYNCING)
		replay_mark_unconfirmed(&c->all->store->replay, c->id);
	if (c->all->hooks.adopted)
		c->all->hooks.adopted(c);
}

/* The only member of a chain gets no new epoch at a start, so store_chain() is not called. */
static void trust_alone(struct chains *cs, const struct chain *c, const struct chain_info *info)
{
	struct group_commit *g = &cs->store->gc;

	if (!chain_led_alone(c) || chunk_store_status(cs->store) < 0)
		return;
	if (trust(cs, c, info, group_commit_batch(g)))
		(void)group_commit_join_lazy(g, NULL, false);
}

static int adopt_one(struct chains *cs, const struct chain_info *info)
{
	struct chain draft = {0}, *c;

	TRY(take_members(&draft, info, cs->target));
	c = chain_find(cs, info->id);
	/* Not a member, and no rows: there is nothing to leave. CHAIN_NONE: storing it has failed,
	 * or it has left with all its rows. */
	if ((!c || c->phase == CHAIN_NONE) && draft.self == draft.n_members)
		return 0;
	if (!c)
		c = chain_get(cs, info->id);
	if (!c)
		return -LE_NOMEM;
	if (info->epoch > c->epoch) {
		TRY(store_chain(cs, &draft, info));
		act(c, &draft, info->epoch);
	} else if (info->epoch == c->epoch && c->phase == CHAIN_ADOPTED) {
		trust_alone(cs, c, info);
		chain_leases_taken_over(c, chain_knows_leases(c),
				 chain_led_alone(c) ? cs->o.start_us : env_now_us(cs->env),
				 chain_own_leases(c));
		chain_move(c, CHAIN_SERVING);
		if (cs->hooks.adopted)
			cs->hooks.adopted(c);
	}
	return 0;
}

/* Leaves the chains that the metadata server does not list. */
static int drop_others(struct chains *cs, struct bytes chains, uint64_t asked_us)
{
	cs->not_named = false;
	for (struct chain *c = chain_next(cs, NULL); c; c = chain_next(cs, c)) {
		struct chain draft = {0};
		struct chain_info info;
		struct wire_r r;
		bool named = false;

		wire_r_init(&r, chains.data, chains.len);
		while (!wire_r_end(&r)) {
			wire_get_chain_info(&r, &info);
			named |= info.id == c->id;
		}
		if (named || c->phase == CHAIN_DROPPED || c->phase == CHAIN_NONE)
			continue;
		/* The chain was adopted after the list was requested. */
		cs->not_named |= c->adopted_us >= asked_us;
		if (c->adopted_us >= asked_us)
			continue;
		info = (struct chain_info){.id = c->id, .epoch = c->epoch};
		TRY(store_chain(cs, &draft, &info));
		act(c, &draft, c->epoch);
	}
	return 0;
}

int chains_adopt(struct chains *cs, struct bytes chains, uint64_t asked_us)
{
	struct wire_r r;
	int rc = 0;

	fmutex_lock(&cs->adopting);
	wire_r_init(&r, chains.data, chains.len);
	while (!wire_r_end(&r) && rc == 0) {
		struct chain_info info;

		wire_get_chain_info(&r, &info);
		rc = r.status < 0 ? r.status : adopt_one(cs, &info);
	}
	if (rc == 0)
		rc = r.status;
	if (rc == 0 && asked_us)
		rc = drop_others(cs, chains, asked_us);
	fmutex_unlock(&cs->adopting);
	return rc;
}

/* ---- start and end ---- */

struct load {
	struct chains *cs;
	uint8_t last[KV_KEY_MAX + 1];
	size_t last_len;
};

static int load_chain(struct chains *cs, uint32_t id, const void *value, size_t len)
{
	struct chain *c = chain_get(cs, id);
	struct chain_info info;
	struct wire_r r;

	if (!c)
		return -LE_NOMEM;
	wire_r_init(&r, value, len);
	wire_get_chain_info(&r, &info);
	if (r.status < 0 || info.id != id || take_members(c, &info, cs->target) < 0)
		return -LE_CORRUPT_STORE;
	c->epoch = info.epoch;
	inventory_set_whole(&cs->store->inventory, id, c->n_sync == c->n_members);
	if (c->self < c->n_members)
		chain_move(c, CHAIN_ADOPTED);
	return 0;
}

static int load_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	enum row_kind kind = *(const uint8_t *)key;
	struct chain *c;
	uint32_t id = 0;

	TRY(chain_key_decode(kind, key, key_len, &id));
	memcpy(l->last, key, key_len);
	l->last[key_len] = 0;
	l->last_len = key_len + 1;
	if (kind == ROW_CHAIN)
		return load_chain(l->cs, id, value, len);
	c = chain_get(l->cs, id);
	return c ? floor_value_decode(value, len, &c->floor) : -LE_NOMEM;
}

static int load_rows(struct chains *cs, enum row_kind kind)
{
	struct load l = {.cs = cs, .last = {(uint8_t)kind}, .last_len = 1};
	uint8_t end[1] = {(uint8_t)kind + 1u};
	bool more = true;

	while (more) {
		struct kv_range range = {l.last, l.last_len, end, sizeof(end), LOAD_STEP};

		TRY(kv_scan(cs->store->kv, NULL, &range, load_row, &l, &more));
	}
	return 0;
}

static void chains_free(struct chains *cs)
{
	struct list *l;

	while ((l = list_pop(&cs->peers)) != NULL) {
		struct chain_peer *p = list_entry(l, struct chain_peer, link);

		if (p->client)
			rpc_client_destroy(p->client);
		free(p);
	}
	for (struct chain *c = chain_next(cs, NULL), *next; c; c = next) {
		next = chain_next(cs, c);
		free(c->notes);
		free(c);
	}
	hmap_fini(&cs->by_id);
	if (cs->log)
		chain_log_close(cs->log);
	versions_free(cs);
	free(cs);
}

int chains_open(const struct chains_options *o, struct chains **ret_chains)
{
	struct chains *cs = calloc(1, sizeof(*cs));
	int rc;

	if (!cs)
		return -LE_NOMEM;
	cs->o = *o;
	cs->store = o->store;
	cs->env = o->store->env;
	cs->metrics = o->store->metrics;
	cs->target = o->store->super.target;
	cs->forward = forward_start;
	hmap_init(&cs->by_id, 64);
	list_init(&cs->peers);
	list_init(&cs->free_versions);
	fmutex_init(&cs->adopting);
	waitq_init(&cs->stop);
	latch_init(&cs->fibers, 0);
	rc = load_rows(cs, ROW_FLOOR);
	if (rc == 0)
		rc = load_rows(cs, ROW_CHAIN);
	if (rc == 0)
		rc = chain_log_open(cs->store, o->changed_max, &cs->log);
	if (rc == 0)
		rc = versions_start(cs);
	if (rc == 0)
		rc = downstream_space_start(cs);
	if (rc < 0) {
		cs->stopping = true;
		waitq_wake_all(&cs->stop);
		latch_wait(&cs->fibers);
		chains_free(cs);
		return rc;
	}
	*ret_chains = cs;
	return 0;
}

void chains_stop(struct chains *cs)
{
	cs->stopping = true;
	versions_stop(cs);
	waitq_wake_all(&cs->stop);
}

void chains_close(struct chains *cs)
{
	chains_stop(cs);
	latch_wait(&cs->fibers);
	versions_end(cs);
	chains_free(cs);
}
