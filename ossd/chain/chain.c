/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/chain.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/state_machine.h"
#include "ossd/chain/commit.h"

#define TELL_MS        500u
#define TOLD_MS        (3 * CHUNK_LEASE_MS / 2)

#define TO(phase) (1u << CHAIN_##phase)
STATE_MACHINE(chain_moves, "chain", N_CHAIN_PHASES,
	   .states = {"none", "adopted", "serving", "fenced", "dropped"},
	   .allowed = {
		   [CHAIN_NONE] = TO(ADOPTED),
		   [CHAIN_ADOPTED] = TO(ADOPTED) | TO(SERVING) | TO(DROPPED),
		   [CHAIN_SERVING] = TO(ADOPTED) | TO(FENCED) | TO(DROPPED),
		   [CHAIN_FENCED] = TO(ADOPTED) | TO(SERVING) | TO(DROPPED),
		   [CHAIN_DROPPED] = TO(ADOPTED),
	   })

void chain_move(struct chain *c, int to)
{
	c->phase = state_machine_move(&chain_moves, c->phase, to);
}

/* ---- the set ---- */

struct chain *chain_find(const struct chains *cs, uint32_t id)
{
	struct hmap_node *n = hmap_find_id(&cs->by_id, id);

	return n ? container_of(n, struct chain, node) : NULL;
}

struct chain *chain_next(const struct chains *cs, const struct chain *c)
{
	struct hmap_node *n = hmap_next(&cs->by_id, c ? &c->node : NULL);

	return n ? container_of(n, struct chain, node) : NULL;
}

struct chain *chain_get(struct chains *cs, uint32_t id)
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
	fmutex_init(&c->announcing);
	hmap_insert_id(&cs->by_id, &c->node, id);
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

/* ---- leases of chunks that others granted ---- */

bool chain_led_alone(const struct chain *c)
{
	return c->n_members == 1 && c->self == 0;
}

uint64_t chain_own_leases(const struct chain *c)
{
	uint64_t whose = c->all->store->leased_before;

	return chain_led_alone(c) && whose != LEASED_MANY ? whose : 0;
}

bool chain_knows_leases(const struct chain *c)
{
	if (chain_led_alone(c) && !c->all->store->leased_before)
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

void chain_leases_taken_over(struct chain *c, bool knew, uint64_t since_us, uint64_t whose)
{
	uint32_t ms = CHUNK_LEASE_MS + (chain_replicated(c) ? c->all->lease_ms : 0);

	if (chain_is_sync(c) && !knew)
		raise_leases(c, since_us + ms * 1000ull, whose);
	c->told_us = 0;
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
	return env_now_us(cs->env) < cs->lease_until_us || PLANTED_BUG(CHAIN_SKIP_LEASE);
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
	if (epoch != c->epoch && !PLANTED_BUG(CHAIN_SKIP_EPOCH))
		return -LE_STALE_EPOCH;
	if (c->members[c->self].state == MEMBER_OUT)
		return -LE_NO_TARGET;
	/* The metadata server has not confirmed since the start what this member is. The previous
	 * member gets no answers either: what is durable here need not be so downstream, and which
	 * versions are pending was lost with the previous process. */
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

	if (!p)
		return -LE_TARGET_DOWN;
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
	/* The peer's store is damaged, not this one: a peer with that status serves nothing. */
	return rc == -LE_CORRUPT_STORE ? -LE_NOT_READY : rc;
}

int chain_call(struct chain *c, uint32_t target, struct rpc_call *call)
{
	call->chain = c->id;
	call->epoch = c->epoch;
	return chains_call(c->all, target, call);
}

/* ---- leases of chunks ---- */

static int announce_leases(struct chain *c)
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

int chain_announce_leases(struct chain *c)
{
	uint64_t term_us = CHUNK_LEASE_MS * 1000ull;
	int rc = 0;

	if (c->n_sync < 2 || env_now_us(c->all->env) + term_us <= c->told_us)
		return 0;
	fmutex_lock(&c->announcing);
	if (env_now_us(c->all->env) + term_us > c->told_us)
		rc = announce_leases(c);
	fmutex_unlock(&c->announcing);
	return rc;
}

void chain_leases_announced(struct chain *c, uint32_t ms)
{
	raise_leases(c, env_now_us(c->all->env) + ms * 1000ull, 0);
}
