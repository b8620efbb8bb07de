/* Connections to object servers, their slots and numbers; see oss_client.h. */
#include "mds/oss_client.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/session/session.h"

struct oss_target {
	uint32_t id, loop;
	char *addrs;               /* of the present connection */
	struct rpc_client *client; /* NULL: being replaced */
	uint64_t *seq;             /* per slot */
	bool *busy;
	struct waitq free_slot;
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

static void target_free(struct oss_target *t)
{
	free(t->addrs);
	free(t->seq);
	free(t->busy);
	free(t);
}

void oss_stop(struct oss *o)
{
	o->stopping = true;
	for (uint32_t i = 0; i < o->n_targets; i++) {
		struct oss_target *t = o->targets[i];

		if (t == NULL)
			continue;
		waitq_wake_all(&t->free_slot);
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
			target_free(o->targets[i]);
	free(o->targets);
}

static struct oss_target *target_make(struct oss *o, uint32_t id)
{
	uint32_t n = o->params->oss_in_flight;
	struct oss_target *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->id = id;
	t->seq = calloc(n, sizeof(*t->seq));
	t->busy = calloc(n, sizeof(*t->busy));
	waitq_init(&t->free_slot);
	if (t->seq == NULL || t->busy == NULL) {
		target_free(t);
		return NULL;
	}
	for (uint32_t i = 0; i < n; i++)
		t->seq[i] = o->incarnation << 32;
	return t;
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
		t = o->targets[id - 1] = target_make(o, id);
	if (t == NULL)
		return;
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
		log_error("target %u: %s", id, status_text(rc));
	}
}

static int slot_take(struct oss *o, struct oss_target *t, uint64_t deadline_us, uint32_t *ret_slot)
{
	for (;;) {
		if (o->stopping)
			return -LE_SHUTDOWN;
		for (uint32_t i = 0; i < o->params->oss_in_flight; i++) {
			if (!t->busy[i]) {
				t->busy[i] = true;
				*ret_slot = i;
				return 0;
			}
		}
		TRY(waitq_wait(&t->free_slot, deadline_us));
	}
}

static int call_once(struct oss *o, struct oss_target *t, struct rpc_call *call, size_t rep_size,
		     void *rep, uint64_t deadline_us)
{
	uint64_t own = loop_deadline_ms(o->params->oss_timeout_ms);
	struct target *tg = cluster_target(o->cluster, t->id);
	int rc;

	if (t->client == NULL || tg == NULL)
		return -LE_DISCONNECTED;
	call->deadline_us = own < deadline_us ? own : deadline_us;
	call->epoch = cluster_chain_epoch(o->cluster, tg);
	call->rep = rep;
	memset(rep, 0, rep_size);
	rc = rpc_call(t->client, call);
	rpc_call_fini(call);
	call->body = NULL;
	return rc;
}

int oss_call(struct oss *o, uint32_t target, uint16_t op, const void *req, void *rep,
	     uint64_t deadline_us)
{
	struct oss_target *t =
		target >= 1 && target <= o->n_targets ? o->targets[target - 1] : NULL;
	const struct msg_desc *desc = msg_find(op);
	struct rpc_call call = {.op = op, .req = req, .session = SESSION_MDS, .target = target};
	uint64_t wait_us = 2000;
	int rc;

	if (t == NULL)
		return -LE_TARGET_DOWN;
	if (desc->kind == MSG_WRITE) {
		TRY(slot_take(o, t, deadline_us, &call.slot));
		call.seq = ++t->seq[call.slot];
	}
	for (;;) {
		rc = o->stopping ? -LE_SHUTDOWN
				 : call_once(o, t, &call, desc->rep_size, rep, deadline_us);
		if (rc >= 0 || o->stopping || status_retry(rc) == RETRY_NEVER)
			break;
		if (loop_now_us() + wait_us >= deadline_us) {
			rc = -LE_TARGET_DOWN;
			break;
		}
		if (fiber_sleep_us(wait_us) < 0)
			break;
		wait_us = wait_us * 2 > 500000 ? 500000 : wait_us * 2;
	}
	if (desc->kind == MSG_WRITE) {
		t->busy[call.slot] = false;
		waitq_wake_one(&t->free_slot);
	}
	return rc;
}
