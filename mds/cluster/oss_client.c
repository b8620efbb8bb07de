/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to object servers, request slots and sequence numbers. */
#include "mds/cluster/oss_client.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/session/session.h"

/* Caller-owned slots have numbers above all those that slots_of() gives to a chain. */
#define NUMBERED_SLOTS 65536u

struct oss_target {
	uint32_t id, loop;
	char *addrs;               /* of the present connection */
	struct rpc_client *client; /* NULL: being replaced */
};

/* The slots of one chain, independent of which target is its head. */
struct oss_slots {
	const struct oss *o;
	struct turnq turn;
	uint32_t n_free;
	struct {
		uint64_t seq;
		bool busy;
	} slot[];
};

int oss_init(struct oss *o, struct cluster *c, const struct mds_params *p, struct transport *t,
	     const struct rpc_key *key)
{
	*o = (struct oss){.cluster = c,
			  .params = p,
			  .transport = t,
			  .key = *key,
			  .incarnation = c->store->cluster.incarnation};
	o->targets = calloc(p->targets_max, sizeof(struct oss_target *));
	return o->targets == NULL ? -LE_NOMEM : 0;
}

static void peer_free(struct oss_target *t)
{
	free(t->addrs);
	free(t);
}

void oss_stop(struct oss *o)
{
	o->stopping = true;
	for (uint32_t i = 0; i < o->n_chains; i++)
		if (o->chains[i] != NULL)
			turnq_wake(&o->chains[i]->turn);
	for (uint32_t i = 0; i < o->n_targets; i++) {
		struct oss_target *t = o->targets[i];

		if (t == NULL)
			continue;
		if (t->client != NULL) {
			struct rpc_client *c = t->client;

			t->client = NULL;
			rpc_client_destroy(c);
		}
	}
}

void oss_fini(struct oss *o)
{
	for (uint32_t i = 0; i < o->n_targets; i++)
		if (o->targets[i] != NULL)
			peer_free(o->targets[i]);
	free(o->targets);
	for (uint32_t i = 0; i < o->n_chains; i++)
		free(o->chains[i]);
	free(o->chains);
}

static void destroy_client(void *arg)
{
	rpc_client_destroy(arg);
}

void oss_target_changed(struct oss *o, struct target *tg)
{
	uint32_t id = tg->info.id;
	struct oss_target *t;

	if (o->stopping || tg->info.state != TARGET_UP || id > o->params->targets_max)
		return;
	t = o->targets[id - 1];
	if (t == NULL)
		t = o->targets[id - 1] = calloc(1, sizeof(*t));
	if (t == NULL)
		return;
	t->id = id;
	if (id > o->n_targets)
		o->n_targets = id;
	if (t->client != NULL && t->loop == tg->info.loop && strcmp(t->addrs, tg->addrs) == 0)
		return;
	if (t->client != NULL && fiber_spawn("oss-old", destroy_client, t->client) < 0)
		return; /* the next registration tries again */
	t->client = NULL;
	free(t->addrs);
	t->addrs = strdup(tg->addrs);
	t->loop = tg->info.loop;
	if (t->addrs == NULL)
		return;
	struct rpc_client_options ro = {
		.transport = o->transport,
		.addrs = t->addrs,
		.name = "mds",
		.role = ROLE_MDS,
		.cluster = o->cluster->store->cluster.cluster,
		.key = o->key,
		.loop = t->loop,
	};
	int rc = rpc_client_create(&ro, &t->client);

	if (rc < 0) {
		t->client = NULL;
		log_error("target %u: creating a connection failed: %s", id, status_text(rc));
	}
}

static struct oss_slots *slots_of(struct oss *o, uint32_t chain)
{
	uint32_t n_slots = o->params->oss_in_flight;
	struct oss_slots *ss;

	if (chain > o->n_chains) {
		uint32_t n = chain * 2;
		struct oss_slots **p = realloc(o->chains, n * sizeof(struct oss_slots *));

		if (p == NULL)
			return NULL;
		memset(p + o->n_chains, 0, (n - o->n_chains) * sizeof(struct oss_slots *));
		o->chains = p;
		o->n_chains = n;
	}
	if (o->chains[chain - 1] != NULL)
		return o->chains[chain - 1];
	ss = calloc(1, sizeof(*ss) + n_slots * sizeof(ss->slot[0]));
	if (ss == NULL)
		return NULL;
	turnq_init(&ss->turn);
	ss->o = o;
	ss->n_free = n_slots;
	for (uint32_t i = 0; i < n_slots; i++)
		ss->slot[i].seq = o->incarnation << 32;
	return o->chains[chain - 1] = ss;
}

static bool is_free(void *arg)
{
	const struct oss_slots *ss = arg;

	return ss->n_free > 0 || ss->o->stopping;
}

static int slot_take(struct oss_slots *ss, uint64_t deadline_us, uint32_t *ret_slot)
{
	uint32_t i = 0;
	int rc = turnq_wait(&ss->turn, is_free, ss, NO_DEADLINE, deadline_us);

	if (rc == 0 && ss->o->stopping)
		rc = -LE_SHUTDOWN;
	if (rc == 0) {
		while (ss->slot[i].busy)
			i++;
		ss->slot[i].busy = true;
		ss->n_free--;
		*ret_slot = i;
	}
	if (is_free(ss))
		turnq_wake(&ss->turn);
	return rc;
}

static void slot_give(struct oss_slots *ss, uint32_t slot)
{
	ss->slot[slot].busy = false;
	ss->n_free++;
	turnq_wake(&ss->turn);
}

static struct oss_target *find(const struct oss *o, uint32_t target)
{
	return target >= 1 && target <= o->n_targets ? o->targets[target - 1] : NULL;
}

static int attempt(struct oss *o, const struct oss_target *t, struct rpc_call *call,
		   size_t rep_size, uint64_t deadline_us)
{
	uint64_t own = loop_deadline_ms(o->params->oss_timeout_ms);
	int rc;

	call->session = SESSION_MDS;
	call->target = t->id;
	call->deadline_us = own < deadline_us ? own : deadline_us;
	memset(call->rep, 0, rep_size);
	rc = rpc_call(t->client, call);
	rpc_call_fini(call);
	call->body = NULL;
	return rc;
}

static bool is_lost(const struct oss *o, uint32_t chain)
{
	const struct chain *ch = cluster_chain(o->cluster, chain);

	return ch != NULL && (ch->flags & CHAIN_LOST) != 0;
}

/* NULL: the chain has no head, or there is no connection to it. */
static const struct oss_target *head_of(const struct oss *o, uint32_t chain)
{
	const struct chain *ch = cluster_chain(o->cluster, chain);
	const struct target *head = ch != NULL ? cluster_chain_head(o->cluster, ch) : NULL;
	const struct oss_target *t = head != NULL ? find(o, head->info.id) : NULL;

	return t != NULL && t->client != NULL ? t : NULL;
}

static int call_head(struct oss *o, uint32_t chain, struct rpc_call *call, size_t rep_size,
		     uint64_t deadline_us)
{
	const struct oss_target *t = head_of(o, chain);

	if (t == NULL)
		return -LE_DISCONNECTED;
	call->chain = chain;
	call->epoch = cluster_chain(o->cluster, chain)->epoch;
	return attempt(o, t, call, rep_size, deadline_us);
}

/* Repeats the request, with pauses, until it succeeds, fails for good or the deadline passes. */
static int call_until(struct oss *o, uint32_t chain, struct oss_number *no, struct rpc_call *call,
		      uint64_t deadline_us)
{
	size_t rep_size = msg_find(call->op)->rep_size;
	uint64_t wait_us = 2000;

	for (;;) {
		int rc = o->stopping          ? -LE_SHUTDOWN
			 : is_lost(o, chain) ? -LE_GIVEN_UP
					     : call_head(o, chain, call, rep_size, deadline_us);

		if (rc < 0 && no != NULL)
			no->again = true;
		if (rc >= 0 || o->stopping || status_retry(rc) == RETRY_NEVER)
			return rc;
		if (loop_now_us() + wait_us >= deadline_us)
			return -LE_TARGET_DOWN;
		if (fiber_sleep_us(wait_us) < 0)
			return rc;
		wait_us = wait_us * 2 > 500000 ? 500000 : wait_us * 2;
	}
}

/* Takes one of the chain's slots for the request. no: the caller's slot and number; NULL: the slot
 * taken, and its next number. */
static int call_written(struct oss *o, uint32_t chain, struct oss_number *no,
			struct rpc_call *call, uint64_t deadline_us)
{
	struct oss_slots *ss = slots_of(o, chain);
	uint32_t slot = 0;
	int rc;

	if (ss == NULL)
		return -LE_NOMEM;
	TRY(slot_take(ss, deadline_us, &slot));
	call->slot = no != NULL ? NUMBERED_SLOTS + no->slot : slot;
	call->seq = no != NULL ? no->seq : ++ss->slot[slot].seq;
	rc = call_until(o, chain, no, call, deadline_us);
	slot_give(ss, slot);
	return rc;
}

static int call_chain(struct oss *o, uint32_t chain, struct oss_number *no,
		      struct rpc_call *call, uint64_t deadline_us)
{
	const struct msg_desc *desc = msg_find(call->op);

	if (cluster_chain(o->cluster, chain) == NULL)
		return -LE_TARGET_DOWN;
	if (is_lost(o, chain))
		return -LE_GIVEN_UP;
	/* After the deadline of the request that this call serves, each attempt would fail. */
	if (fiber_deadline() < deadline_us)
		deadline_us = fiber_deadline();
	return desc->kind == MSG_WRITE ? call_written(o, chain, no, call, deadline_us)
				       : call_until(o, chain, NULL, call, deadline_us);
}

int oss_call(struct oss *o, uint32_t chain, uint16_t op, const void *req, void *rep,
	     uint64_t deadline_us)
{
	struct rpc_call call = {.op = op, .req = req, .rep = rep};

	return call_chain(o, chain, NULL, &call, deadline_us);
}

int oss_call_numbered(struct oss *o, struct oss_number *no, uint16_t op, const void *req, void *rep,
		      uint64_t deadline_us)
{
	struct rpc_call call = {.op = op, .req = req, .rep = rep};

	ASSERT(msg_find(op)->kind == MSG_WRITE);
	return call_chain(o, no->chain, no, &call, deadline_us);
}

bool oss_ready(const struct oss *o, uint32_t chain)
{
	const struct oss_target *t = head_of(o, chain);

	return t != NULL && rpc_client_connected(t->client);
}

int oss_call_once(struct oss *o, uint32_t chain, uint16_t op, const void *req, void *rep,
		  uint64_t deadline_us)
{
	struct rpc_call call = {.op = op, .req = req, .rep = rep, .flags = RPC_CALL_NO_WAIT};
	const struct msg_desc *desc = msg_find(op);

	ASSERT(desc->kind != MSG_WRITE);
	if (o->stopping)
		return -LE_SHUTDOWN;
	return call_head(o, chain, &call, desc->rep_size, deadline_us);
}

int oss_call_target(struct oss *o, uint32_t target, uint16_t op, const void *req, void *rep,
		    uint64_t deadline_us)
{
	const struct oss_target *t = find(o, target);
	struct rpc_call call = {.op = op, .req = req, .rep = rep, .flags = RPC_CALL_NO_WAIT};

	if (o->stopping)
		return -LE_SHUTDOWN;
	if (t == NULL || t->client == NULL)
		return -LE_TARGET_DOWN;
	return attempt(o, t, &call, msg_find(op)->rep_size, deadline_us);
}

void oss_totals(const struct oss *o, struct rpc_net_totals *totals)
{
	for (uint32_t i = 0; i < o->n_targets; i++)
		if (o->targets[i] != NULL && o->targets[i]->client != NULL)
			rpc_client_totals(o->targets[i]->client, totals);
}

struct adding {
	struct net_report *r;
	char to[32];
};

static void add_net(void *arg, const struct rpc_net *n)
{
	struct adding *a = arg;

	net_report_add(a->r, a->to, n);
}

void oss_net(const struct oss *o, struct net_report *r)
{
	for (uint32_t i = 0; i < o->n_targets; i++) {
		struct adding a = {.r = r};

		if (o->targets[i] == NULL || o->targets[i]->client == NULL)
			continue;
		snprintf(a.to, sizeof(a.to), "target %u", o->targets[i]->id);
		rpc_client_net(o->targets[i]->client, add_net, &a);
	}
}
