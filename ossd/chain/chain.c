#include "ossd/chain/chain.h"

#include <stdlib.h>

#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/moves.h"
#include "ossd/chain/commit.h"
#include "ossd/chain/reserve.h"

#define LOAD_STEP      1024u
#define CHAIN_INFO_MAX 256u /* encoded, with CHAIN_MEMBERS_MAX members */
#define TELL_MS        500u
#define TOLD_MS        (3 * CHUNK_LEASE_MS / 2)

#define TO(phase) (1u << CHAIN_##phase)
MOVE_TABLE(chain_moves, "chain", N_CHAIN_PHASES,
	   .states = {"none", "adopted", "serving", "fenced", "dropped"},
	   .allowed = {
		   [CHAIN_NONE] = TO(ADOPTED),
		   [CHAIN_ADOPTED] = TO(ADOPTED) | TO(SERVING) | TO(DROPPED),
		   [CHAIN_SERVING] = TO(ADOPTED) | TO(FENCED) | TO(DROPPED),
		   [CHAIN_FENCED] = TO(ADOPTED) | TO(SERVING) | TO(DROPPED),
		   [CHAIN_DROPPED] = TO(ADOPTED),
	   })

static void chain_move(struct chain *c, int to)
{
	c->phase = move_take(&chain_moves, c->phase, to);
}

/* ---- the set ---- */

struct chain *chain_find(const struct chains *cs, uint32_t id)
{
	struct hmap_node *n = hmap_find(&cs->by_id, hash_u64(id));

	for (; n; n = hmap_find_next(n)) {
		struct chain *c = container_of(n, struct chain, node);

		if (c->id == id)
			return c;
	}
	return NULL;
}

struct chain *chain_next(const struct chains *cs, const struct chain *c)
{
	struct hmap_node *n = hmap_next(&cs->by_id, c ? &c->node : NULL);

	return n ? container_of(n, struct chain, node) : NULL;
}

static struct chain *chain_get(struct chains *cs, uint32_t id)
{
	struct chain *c = chain_find(cs, id);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->notes = calloc(CHAIN_NOTES_MAX, sizeof(*c->notes));
	if (!c->notes) {
		free(c);
		return NULL;
	}
	c->all = cs;
	c->id = id;
	list_init(&c->pending);
	waitq_init(&c->settled);
	fmutex_init(&c->telling);
	hmap_insert(&cs->by_id, &c->node, hash_u64(id));
	return c;
}

enum member_state chain_state_of(const struct chain *c, uint32_t target)
{
	for (uint32_t i = 0; i < c->n_members; i++)
		if (c->members[i].target == target)
			return c->members[i].state;
	return MEMBER_OUT;
}

int chain_outcome(const struct chain *c, int rc)
{
	if (rc < 0 && chunk_store_status(c->all->store) < 0 && chain_others_sync(c) > 0)
		return -LE_SHUTDOWN;
	return rc;
}

/* ---- what the metadata server says ---- */

/* The members of info into c (which may be a mere draft): -LE_BAD_MESSAGE. */
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
	uint8_t key[CHAIN_ROW_SIZE], value[CHAIN_INFO_MAX];
	struct wire_w w;

	wire_w_init(&w, value, sizeof(value));
	wire_put_chain_info(&w, info);
	ASSERT(w.status == 0);
	chain_row_encode(ROW_CHAIN, info->id, key);
	kv_batch_put(b, key, sizeof(key), value, w.len);
}

/*
 * Who has filled all others has asked them all, and who has none cannot ask: it counts again where
 * the index had lost its counts, so that what is lost later is missed. What is lost stays so, for
 * nobody had it, and what is in doubt the others doubt, too.
 */
static bool trust(struct chains *cs, const struct chain *draft, const struct chain_info *info,
		  struct kv_batch *b)
{
	uint64_t more;

	if (draft->n_sync < draft->n_members)
		return false;
	more = ledger_trust_gone(&cs->store->ledger, info->id, b);
	if (more)
		log_error("chain %u: %llu chunks that the index here had not counted are counted",
			  info->id, (unsigned long long)more);
	return more;
}

/* Durable before it is acted on. */
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
		/* What is still there is to be removed. */
		ledger_trust(&cs->store->ledger, info->id, b);
	}
	return group_commit_wait(g, group_commit_join(g, NULL, false));
}

/* May a SYNC member behind lack what this one knows to be durable behind it? Not if it was behind
 * it in the epoch before, for it was SYNC then, or has been filled since. But after a change of
 * the order who was before this one is behind it now. */
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

/* May there be pending versions here that the head does not have? Not if it was before this
 * member. */
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

/* Nobody else can have led it, whatever is heard next. */
static bool led_alone(const struct chain *c)
{
	return c->n_members == 1 && c->self == 0;
}

/* The only session that a former process here has given some; 0: it does not know. */
static uint64_t own_leases(const struct chain *c)
{
	uint64_t whose = c->all->store->leased_before;

	return led_alone(c) && whose != LEASED_MANY ? whose : 0;
}

/* Of leases of chunks that were given until now, whether there may be any. */
static bool knows_leases(const struct chain *c)
{
	if (led_alone(c) && !c->all->store->leased_before)
		return true;
	return chain_is_sync(c) && (c->phase == CHAIN_SERVING || c->phase == CHAIN_FENCED);
}

static void raise_leases(struct chain *c, uint64_t until_us, uint64_t whose)
{
	bool none = c->leases_us <= env_now_us(c->all->env);

	c->leases_of = none || whose == c->leases_of ? whose : 0;
	if (until_us > c->leases_us)
		c->leases_us = until_us;
}

/* Leases of chunks that were given by who was head before. Who was in sync has been told. To who is
 * in sync from now on the head may not speak yet, until it hears that; since_us: before that a
 * former process, or another member, may have led. */
static void take_leases_over(struct chain *c, bool knew, uint64_t since_us, uint64_t whose)
{
	uint32_t ms = CHUNK_LEASE_MS + (chain_replicated(c) ? c->all->lease_ms : 0);

	if (chain_is_sync(c) && !knew)
		raise_leases(c, since_us + ms * 1000ull, whose);
	c->told_us = 0;
}

static void act(struct chain *c, const struct chain *draft, uint32_t epoch)
{
	/* In the first epoch of all nobody was anything before. */
	bool knew = knows_leases(c) || (c->epoch == 0 && epoch == 1);
	uint64_t since_us = led_alone(c) ? c->all->o.start_us : env_now_us(c->all->env);
	uint64_t whose = own_leases(c);
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
	ledger_set_whole(&c->all->store->ledger, c->id, c->n_sync == c->n_members);
	if (c->self == c->n_members) {
		if (c->phase != CHAIN_DROPPED)
			chain_move(c, CHAIN_DROPPED);
	} else {
		chain_move(c, CHAIN_ADOPTED);
		chain_move(c, CHAIN_SERVING);
	}
	log_info("chain %u: epoch %u, member %u of %u (%u in sync)", c->id, c->epoch, c->self + 1,
		 c->n_members, c->n_sync);
	c->filled |= !chain_is_sync(c);
	take_leases_over(c, knew, since_us, whose);
	versions_adopted(c, &how);
	if (c->self < c->n_members && c->members[c->self].state == MEMBER_SYNCING)
		replay_doubt(&c->all->store->replay, c->id);
	if (c->all->hooks.adopted)
		c->all->hooks.adopted(c);
}

/* Whoever is the only member gets no new epoch at a start, so nothing is stored then. */
static void trust_alone(struct chains *cs, const struct chain *c, const struct chain_info *info)
{
	struct group_commit *g = &cs->store->gc;

	if (!led_alone(c) || chunk_store_status(cs->store) < 0)
		return;
	if (trust(cs, c, info, group_commit_batch(g)))
		(void)group_commit_join_lazy(g, NULL, false);
}

static int adopt_one(struct chains *cs, const struct chain_info *info)
{
	struct chain draft = {0}, *c;

	TRY(take_members(&draft, info, cs->target));
	c = chain_find(cs, info->id);
	/* Neither known nor a member: there is nothing to leave. What is NONE could not be stored,
	 * or has left with all its rows. */
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
		take_leases_over(c, knows_leases(c),
				 led_alone(c) ? cs->o.start_us : env_now_us(cs->env),
				 own_leases(c));
		chain_move(c, CHAIN_SERVING);
		if (cs->hooks.adopted)
			cs->hooks.adopted(c);
	}
	return 0;
}

/* Those that the metadata server does not name any more. */
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
		/* It may have become a member since, and heard of that first. */
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

/* ---- lease ---- */

void chains_lease(struct chains *cs, uint64_t sent_us, uint32_t lease_ms)
{
	uint64_t until = sent_us + lease_ms * 1000ull;

	cs->lease_ms = lease_ms;
	if (until <= cs->lease_until_us)
		return;
	cs->lease_until_us = until;
	for (struct chain *c = chain_next(cs, NULL); c && chains_leased(cs); c = chain_next(cs, c))
		if (c->phase == CHAIN_FENCED)
			chain_move(c, CHAIN_SERVING);
}

bool chains_leased(const struct chains *cs)
{
	return env_now_us(cs->env) < cs->lease_until_us || FAULT(CHAIN_SKIP_LEASE);
}

int chains_held(const struct chains *cs, void **ret_data, uint32_t *ret_len)
{
	size_t size = cs->by_id.n * 8;
	struct wire_w w;
	void *buf = malloc(size + 1);

	if (!buf)
		return -LE_NOMEM;
	wire_w_init(&w, buf, size);
	for (const struct chain *c = chain_next(cs, NULL); c; c = chain_next(cs, c)) {
		if (c->phase == CHAIN_NONE || c->phase == CHAIN_DROPPED)
			continue;
		wire_put_u32(&w, &c->id);
		wire_put_u32(&w, &c->epoch);
	}
	*ret_data = buf;
	*ret_len = (uint32_t)w.len;
	return 0;
}

int chain_admit(struct chains *cs, uint32_t id, uint32_t epoch, enum chain_need need,
		struct chain **ret_chain)
{
	struct chain *c = chain_find(cs, id);

	if (!c || c->phase == CHAIN_NONE || c->phase == CHAIN_DROPPED)
		return -LE_NO_TARGET;
	if (epoch != c->epoch && !FAULT(CHAIN_SKIP_EPOCH))
		return -LE_STALE_EPOCH;
	if (c->members[c->self].state == MEMBER_OUT)
		return -LE_NO_TARGET;
	/* Nobody has told since the start what this member is. The one before it hears nothing
	 * either: what is durable here need not be so behind, and what is pending is forgotten. */
	if (c->phase == CHAIN_ADOPTED)
		return -LE_NOT_READY;
	if (need != CHAIN_MEMBER) {
		if (chain_replicated(c) && !chains_leased(cs)) {
			if (c->phase == CHAIN_SERVING)
				chain_move(c, CHAIN_FENCED);
			return -LE_NO_LEASE;
		}
		if (!chain_is_sync(c))
			return -LE_NO_TARGET;
		if (need == CHAIN_HEAD && !chain_is_head(c))
			return -LE_NOT_HEAD;
	}
	*ret_chain = c;
	return 0;
}

/* ---- the other members ---- */

static struct chain_peer *peer_find(const struct chains *cs, uint32_t target)
{
	list_for_each(l, &cs->peers) {
		struct chain_peer *p = list_entry(l, struct chain_peer, link);

		if (p->target == target)
			return p;
	}
	return NULL;
}

static int set_addrs(struct chains *cs, uint32_t target, struct bytes addrs)
{
	struct chain_peer *p = peer_find(cs, target);
	struct rpc_client *old;

	if (addrs.len == 0)
		return 0;
	if (addrs.len >= CONFIG_STR_MAX)
		return -LE_BAD_MESSAGE;
	if (p && strlen(p->addrs) == addrs.len && memcmp(p->addrs, addrs.data, addrs.len) == 0)
		return 0;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return -LE_NOMEM;
		p->target = target;
		list_push(&cs->peers, &p->link);
	}
	memcpy(p->addrs, addrs.data, addrs.len);
	p->addrs[addrs.len] = '\0';
	old = p->client;
	p->client = NULL;
	if (old)
		rpc_client_destroy(old);
	return 0;
}

int chains_addrs(struct chains *cs, struct bytes targets)
{
	struct wire_r r;

	wire_r_init(&r, targets.data, targets.len);
	while (!wire_r_end(&r)) {
		struct target_info t;

		wire_get_target_info(&r, &t);
		TRY(r.status);
		TRY(set_addrs(cs, t.id, t.addrs));
	}
	return r.status;
}

static int peer_client(struct chains *cs, uint32_t target, struct rpc_client **ret_client)
{
	struct chain_peer *p = peer_find(cs, target);

	if (!p) {
		if (cs->o.want_addrs)
			cs->o.want_addrs(cs->o.arg);
		return -LE_TARGET_DOWN;
	}
	if (!p->client) {
		struct rpc_client_options o = {
			.transport = cs->o.transport,
			.addrs = p->addrs,
			.name = cs->o.name,
			.role = ROLE_OSSD,
			.cluster = cs->store->super.cluster,
			.key = *cs->o.key,
			.backoff_max_ms = 50,
		};

		TRY(rpc_client_create(&o, &p->client));
	}
	*ret_client = p->client;
	return 0;
}

int chains_call(struct chains *cs, uint32_t target, struct rpc_call *call)
{
	struct rpc_client *client;
	int rc;

	if (cs->stopping)
		return -LE_SHUTDOWN;
	TRY(peer_client(cs, target, &client));
	call->target = target;
	rc = rpc_call(client, call);
	/* Its store, not this one's: who answers so serves nothing any more. */
	return rc == -LE_CORRUPT_STORE ? -LE_NOT_READY : rc;
}

int chain_call(struct chain *c, uint32_t target, struct rpc_call *call)
{
	call->chain = c->id;
	call->epoch = c->epoch;
	return chains_call(c->all, target, call);
}

/* ---- leases of chunks ---- */

static int tell_leases(struct chain *c)
{
	struct oss_commit_req req = {.leases_ms = TOLD_MS};
	uint64_t until_us = env_now_us(c->all->env) + TOLD_MS * 1000ull;
	uint32_t epoch = c->epoch;

	for (uint32_t i = 0; i < c->n_sync && c->epoch == epoch; i++) {
		struct oss_commit_rep rep;
		struct rpc_call call = {.op = OP_oss_commit,
					.req = &req,
					.rep = &rep,
					.deadline_us = loop_deadline_ms(TELL_MS)};
		int rc = i != c->self ? chain_call(c, c->members[i].target, &call) : 0;

		rpc_call_fini(&call);
		if (rc < 0)
			return -LE_NOT_READY;
	}
	if (c->epoch != epoch)
		return -LE_STALE_EPOCH;
	c->told_us = until_us;
	return 0;
}

int chain_tell_leases(struct chain *c)
{
	uint64_t term_us = CHUNK_LEASE_MS * 1000ull;
	int rc = 0;

	if (c->n_sync < 2 || env_now_us(c->all->env) + term_us <= c->told_us)
		return 0;
	fmutex_lock(&c->telling);
	if (env_now_us(c->all->env) + term_us > c->told_us)
		rc = tell_leases(c);
	fmutex_unlock(&c->telling);
	return rc;
}

void chain_leases_told(struct chain *c, uint32_t ms)
{
	raise_leases(c, env_now_us(c->all->env) + ms * 1000ull, 0);
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
	ledger_set_whole(&cs->store->ledger, id, c->n_sync == c->n_members);
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

	TRY(chain_row_decode(kind, key, key_len, &id));
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
		rc = reserves_start(cs);
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
