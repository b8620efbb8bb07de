/* What `leat status` shows, as JSON. */
#include <jansson.h>
#include <stdlib.h>

#include "common/rt/loop.h"
#include "mds/membership.h"
#include "mds/op.h"
#include "mds/replace.h"

#define LISTED_MAX 64u
#define NET_SIZE   (48u << 10)

static const char *state_name(uint32_t state)
{
	switch (state) {
	case TARGET_UP:
		return "up";
	case TARGET_DOWN:
		return "down";
	default:
		return "new";
	}
}

static json_t *targets(const struct cluster *c)
{
	json_t *a = json_array();

	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target *t = c->targets[i];
		char uuid[UUID_TEXT_SIZE];

		uuid_format(&t->info.uuid, uuid);
		json_array_append_new(
			a, json_pack("{s:i,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:i,s:i,s:i}", "id",
				     (int)t->info.id, "state", state_name(t->info.state), "uuid",
				     uuid, "addrs", t->addrs, "host", t->host, "capacity",
				     (json_int_t)t->info.capacity, "used", (json_int_t)t->info.used,
				     "free", (json_int_t)t->info.free, "commits",
				     (json_int_t)t->commits, "chain", (int)t->chain, "flags",
				     (int)t->info.flags, "chains",
				     (int)target_chains(c, t->info.id)));
	}
	return a;
}

static json_t *chains(const struct cluster *c)
{
	struct chain_health h;

	membership_health(c, &h);
	return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:b}", "n", (int)c->n_chains, "whole",
			 (int)h.whole, "degraded", (int)h.degraded, "down", (int)h.down, "syncing",
			 (int)h.syncing, "moving", (int)h.moving, "rebalancing",
			 rebalance_is_on(c));
}

static json_t *sessions(const struct sessions *ss)
{
	json_t *a = json_array();

	list_for_each (n, &ss->all) {
		const struct session *se = list_entry(n, struct session, link);

		if (json_array_size(a) >= LISTED_MAX)
			break;
		json_array_append_new(
			a, json_pack("{s:I,s:s,s:b,s:I,s:b}", "id", (json_int_t)se->id, "name",
				     se->name, "connected", se->peer != NULL, "idle_ms",
				     (json_int_t)((loop_now_us() - se->heard_us) / 1000),
				     "to_reclaim", se->from_store));
	}
	return a;
}

static json_t *recovery(const struct mds *m)
{
	return json_pack("{s:s,s:i,s:i,s:i}", "state",
			 m->recovery.sessions_back ? "done" : "waiting for sessions",
			 "sessions_missing", (int)m->sessions.n_from_store, "orphans",
			 (int)m->recovery.n_orphans, "intents", (int)m->recovery.n_intents);
}

static json_t *store_info(struct store *s)
{
	struct kv_stats ks;

	kv_stats(s->kv, &ks);
	return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:s}", "durability",
			 s->opt.sync ? "sync" : "none", "batches", (json_int_t)s->durable_no,
			 "commits", (json_int_t)ks.commits, "syncs", (json_int_t)ks.syncs,
			 "cache_bytes", (json_int_t)s->mem, "kv_bytes", (json_int_t)ks.mem_bytes,
			 "state", s->failed == 0 ? "ok" : "failed");
}

static void add_conversion(void *arg, const struct conversion_view *v)
{
	json_array_append_new(
		arg, json_pack("{s:I,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:s}", "inode",
			       (json_int_t)v->root.v, "replicas", (int)v->replicas, "walks",
			       (json_int_t)v->n_walks, "seen", (json_int_t)v->n_seen, "converted",
			       (json_int_t)v->n_converted, "bytes", (json_int_t)v->bytes, "waiting",
			       (json_int_t)v->n_waiting, "failed", (json_int_t)v->n_failed, "error",
			       v->error < 0 ? status_text(v->error) : ""));
}

static json_t *conversions(const struct mds *m)
{
	json_t *a = json_array();

	conversions_each(m, add_conversion, a);
	return a;
}

/* Those that have ended since the server started, the newest last. */
static json_t *conversions_ended(const struct conversions *cv)
{
	json_t *a = json_array();

	for (uint32_t i = 0; i < cv->n_ends; i++) {
		const struct conversion_end *e = &cv->ends[i];
		const char *outcome = e->status == 0           ? "complete"
				      : e->status == -LE_STALE ? "removed"
							       : "stopped";

		json_array_append_new(a, json_pack("{s:I,s:i,s:s}", "inode", (json_int_t)e->root.v,
						   "replicas", (int)e->replicas, "outcome",
						   outcome));
	}
	return a;
}

static json_t *status_json(struct mds *m)
{
	struct mds_metrics *mm = &m->metrics;
	char uuid[UUID_TEXT_SIZE];

	uuid_format(&m->store.cluster.cluster, uuid);
	return json_pack(
		"{s:s,s:s,s:I,s:I,s:i,s:i,s:I,s:i,s:I,s:i,s:I,s:I,s:f,s:f,s:i,s:o,s:o,s:o,s:o,s:o,"
		"s:o,s:o}",
		"program", "leat-mds", "cluster", uuid, "incarnation",
		(json_int_t)m->store.cluster.incarnation, "uptime_s",
		(json_int_t)((loop_now_us() - m->start_us) / 1000000), "map_epoch",
		(int)m->cluster.epoch, "table", (int)m->cluster.n_tables, "inodes",
		(json_int_t)m->store.counters.n_inodes, "n_sessions", (int)m->sessions.n, "opens",
		(json_int_t)m->opens.n_opens, "locks", (int)m->locks.n, "requests",
		(json_int_t)metric_get(&mm->requests),
		"mutations", (json_int_t)metric_get(&mm->mutations), "requests_per_s",
		m->requests_s, "mutations_per_s", m->mutations_s, "removals_waiting",
		(int)reclaim_waiting(&m->reclaim), "store", store_info(&m->store), "recovery",
		recovery(m), "targets", targets(&m->cluster), "chains", chains(&m->cluster),
		"sessions", sessions(&m->sessions), "conversions", conversions(m),
		"conversions_ended", conversions_ended(&m->conversions));
}

static void add_net(void *arg, const struct rpc_net *n)
{
	net_report_add(arg, NULL, n);
}

/* The connections to object servers and from clients, as many as NET_SIZE has room for. */
static json_t *net_json(struct mds *m)
{
	char *text = malloc(NET_SIZE);
	struct net_report r;
	json_t *j;

	if (text == NULL)
		return json_null();
	net_report_begin(&r, text, NET_SIZE, m->transport, 0);
	oss_net(&m->oss, &r);
	rpc_server_net(m->server, add_net, &r);
	j = json_loadb(text, net_report_end(&r), 0, NULL);
	free(text);
	return j != NULL ? j : json_null();
}

int mds_status(struct op *op, const void *vin, void *vout)
{
	struct mds_status_rep *out = vout;
	size_t len;
	json_t *j;
	char *buf;

	(void)vin;
	/* What it works on ends now without being done: the next one knows how it stands. */
	if (op->m->stopping)
		return -LE_SHUTDOWN;
	j = status_json(op->m);
	if (j == NULL || json_object_set_new(j, "net", net_json(op->m)) < 0) {
		json_decref(j);
		return -LE_NOMEM;
	}
	len = json_dumpb(j, NULL, 0, JSON_COMPACT);
	buf = op_alloc(op, len + 1);
	if (buf != NULL)
		json_dumpb(j, buf, len, JSON_COMPACT);
	json_decref(j);
	if (buf == NULL)
		return -LE_NOMEM;
	out->json = bytes_of(buf, (uint32_t)len);
	return 0;
}
