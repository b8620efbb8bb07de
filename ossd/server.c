/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One object server: starts and stops chunk store, RPC server and registration. Start: open the
 * store → listen → register in the background. Requests get -LE_NOT_READY until the MDS has
 * accepted the target. Stop: refuse new requests, finish those in flight → registration → store.
 */
#include "ossd/server.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rpc/addr.h"
#include "ossd/chain/chains.h"
#include "ossd/dispatch.h"
#include "ossd/registration.h"
#include "ossd/scrub/scrub.h"

#define DRAIN_MS 5000u

struct ossd {
	struct ossd_params p;
	struct ossd_metrics metrics;
	struct rpc_key key;
	struct target target;
	struct slot_pool *bulk_pool;
	struct rpc_server *server;
	struct registration reg;
	char addrs[CONFIG_STR_MAX];
};

static void served(void *arg, const struct rpc_req *r, int status, uint64_t us)
{
	struct target *t = CAST_OBJ(arg, struct target, TARGET_MAGIC);
	struct ossd_metrics *m = t->metrics;

	metric_add(&m->requests, 1);
	if (status == -LE_CORRUPT_STORE)
		registration_distrust(&container_of(t, struct ossd, target)->reg);
	if (status < 0)
		metric_add(&m->errors, 1);
	metric_hist_add(&m->request_us, us);
	if (r->peer->role == ROLE_CLIENT || r->peer->role == ROLE_AGENT)
		metric_add(&m->client_requests, 1);
	if (r->hdr.op == OP_oss_read || r->hdr.op == OP_oss_readv)
		metric_hist_add(&m->read_us, us);
	else if (r->hdr.op == OP_oss_write)
		metric_hist_add(&m->write_us, us);
}

static void closed(void *arg, struct rpc_peer *p)
{
	op_peer_session(CAST_OBJ(arg, struct target, TARGET_MAGIC), p, 0);
}

/* Replaces wildcard addresses, to which clients cannot connect, by the host's name. */
static void announce_addrs(struct ossd *s)
{
	char told[ADDR_LIST_SIZE], *save = NULL;
	size_t len = 0;

	rpc_server_announced(s->server, told, sizeof(told));
	for (char *a = strtok_r(told, " ", &save); a; a = strtok_r(NULL, " ", &save)) {
		const char *rest, *host = s->p.host[0] ? s->p.host : "localhost";
		enum addr_scheme scheme = addr_split(a, &rest);
		bool any = addr_is_wildcard(rest);

		if (len + 1 >= sizeof(s->addrs))
			break;
		len += (size_t)snprintf(s->addrs + len, sizeof(s->addrs) - len, "%s%s%s%s%s",
					len ? " " : "",
					any && scheme ? addr_scheme_name(scheme) : "",
					any && scheme ? ":" : "", any ? host : a,
					any ? strrchr(rest, ':') : "");
	}
}

static int listen_and_serve(struct ossd *s, const struct ossd_options *o)
{
	struct rpc_server_options so = {
		.transport = o->transport,
		.addrs = s->p.listen,
		.advertise = s->p.advertise,
		.name = s->p.host,
		.role = ROLE_OSSD,
		.cluster = s->target.store->super.cluster,
		.key = o->key,
		.bulk_pool = s->bulk_pool,
		.bulk_max = (uint32_t)s->p.bulk_max,
		.in_flight_max = s->p.in_flight_max,
		.requests_max = s->p.requests_max,
		.connections_max = s->p.connections_max,
		.slow_ms = s->p.slow_ms,
		.handlers = ossd_handlers,
		.n_handlers = n_ossd_handlers,
		.arg = &s->target,
		.closed = closed,
		.served = served,
	};

	TRY(rpc_server_create(&so, &s->server));
	announce_addrs(s);
	return 0;
}

static int add_pools(struct ossd *s, struct transport *t)
{
	TRY(slot_pool_create(OSSD_SLOT_SIZE, s->p.slots, &s->bulk_pool));
	/* oss_copy writes data to another chain from the slots into which it was read. */
	TRY(t->ops->add_pool(t, s->target.store->read_pool, POOL_REMOTE));
	TRY(t->ops->add_pool(t, s->target.store->small_pool, POOL_REMOTE));
	/* Writes are forwarded to the chain's other members from their slots. */
	TRY(t->ops->add_pool(t, s->bulk_pool, POOL_REMOTE));
	return t->ops->add_pool(t, s->target.store->merge_pool, POOL_REMOTE);
}

static void server_free(struct ossd *s)
{
	if (s->server)
		rpc_server_destroy(s->server, DRAIN_MS);
	if (s->target.scrub)
		scrub_close(s->target.scrub);
	if (s->target.maintenance)
		maintenance_stop(s->target.maintenance);
	if (s->target.chains)
		chains_close(s->target.chains);
	if (s->target.scrub)
		scrub_free(s->target.scrub);
	if (s->target.maintenance)
		maintenance_free(s->target.maintenance);
	if (s->target.store)
		chunk_store_close(s->target.store);
	if (s->bulk_pool)
		slot_pool_destroy(s->bulk_pool);
	grace_fini(&s->target.grace);
	chunk_leases_fini(&s->target.leases);
	fence_fini(&s->target.fence);
	free(s);
}

static int open_chains(struct ossd *s, struct transport *t)
{
	struct chains_options o = {
		.store = s->target.store,
		.transport = t,
		.key = &s->key,
		.name = s->p.host,
		.window_max = s->p.window_max,
		.changed_max = s->p.resync_log_max,
		.waiting_max = s->p.slots / 4,
		.kept_max = s->p.slots / 2,
		.kept_merged_max = s->p.merge_slots / 2,
		.start_us = s->target.start_us,
	};

	return chains_open(&o, &s->target.chains);
}

static int synced(void *arg, uint32_t chain, uint32_t epoch, uint32_t target)
{
	struct target *t = CAST_OBJ(arg, struct target, TARGET_MAGIC);

	return registration_synced(&container_of(t, struct ossd, target)->reg, chain, epoch,
				   target);
}

static int open_care(struct ossd *s, struct transport *t)
{
	struct maintenance_options o = {.chains = s->target.chains,
				 .transport = t,
				 .p = &s->p,
				 .metrics = &s->metrics,
				 .synced = synced,
				 .arg = &s->target};

	TRY(maintenance_start(&o, &s->target.maintenance));
	return scrub_open(s->target.maintenance, &s->target.scrub);
}

int ossd_start(const struct ossd_options *o, struct ossd **ret_ossd)
{
	struct ossd *s = calloc(1, sizeof(*s));
	struct registration_options ro = {
		.transport = o->transport, .key = &o->key, .mds_addrs = o->mds_addrs,
		.reports_unreachable = o->reports_unreachable};
	struct target *t;
	int rc;

	if (!s)
		return -LE_NOMEM;
	s->p = o->params;
	s->key = o->key;
	t = &s->target;
	*t = (struct target){.magic = TARGET_MAGIC,
			     .env = loop_env(loop_self()),
			     .p = &s->p,
			     .metrics = &s->metrics,
			     .addrs = s->addrs};
	t->start_us = env_now_us(t->env);
	cap_key_derive(&o->key, &t->cap_key);
	chunk_leases_init(&t->leases, t->env, &s->metrics.leases_run_out);
	rc = chunk_store_open(t->env, &s->p, &s->metrics, &t->store);
	if (rc < 0)
		goto out;
	t->id = t->store->super.target;
	t->incarnation = env_random_u64(t->env);
	fence_init(&t->fence, t->env, &t->store->writers);
	grace_init(&t->grace, t->store, s->p.requests_max / 2);
	rc = open_chains(s, o->transport);
	if (rc == 0)
		rc = open_care(s, o->transport);
	if (rc == 0)
		rc = add_pools(s, o->transport);
	if (rc == 0)
		rc = listen_and_serve(s, o);
	if (rc < 0)
		goto out;
	ro.addrs = s->addrs;
	ro.server = s->server;
	rc = registration_start(&s->reg, t, &ro);
	if (rc < 0)
		goto out;
	if (!s->p.sync)
		log_warn("target %u: sync=false: a crash of this machine loses data", t->id);
	*ret_ossd = s;
	return 0;
out:
	server_free(s);
	return rc;
}

void ossd_stop(struct ossd *s)
{
	s->reg.server = NULL;
	chains_stop(s->target.chains);
	scrub_close(s->target.scrub);
	rpc_server_destroy(s->server, DRAIN_MS);
	s->server = NULL;
	registration_stop(&s->reg);
	server_free(s);
}

const char *ossd_addrs(const struct ossd *s)
{
	return s->addrs;
}

bool ossd_ready(const struct ossd *s)
{
	return s->target.ready;
}

int ossd_away(const struct ossd *s)
{
	return rpc_client_unreachable(s->reg.client);
}

int ossd_failed(const struct ossd *s)
{
	return s->reg.failed ? s->reg.failed : chunk_store_status(s->target.store);
}

const struct ossd_metrics *ossd_metrics(const struct ossd *s)
{
	return &s->metrics;
}
