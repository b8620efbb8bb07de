/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `leat status`, as JSON. */
#include <jansson.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/kv/kv.h"
#include "common/rpc/net_report.h"
#include "common/rt/loop.h"
#include "mds/cluster/chain_table.h"
#include "mds/cluster/membership.h"
#include "mds/cluster/rebalance.h"
#include "mds/file/space_reclaim.h"
#include "mds/ops/ops.h"

#define LISTED_MAX        64u
#define CLOCKS_LISTED_MAX 8u

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

/* Clocks are compared by targets and clients that send heartbeats or pings, while they do. */
static void add_clock(json_t *to, const struct clock_seen *k, bool there)
{
	if (!there || k->bound_us == 0)
		return;
	json_object_set_new(to, "clock_ahead_ms", json_integer(k->ahead_us / 1000));
	json_object_set_new(to, "clock_bound_ms", json_integer(k->bound_us / 1000 + 1));
	json_object_set_new(to, "clock_apart", json_boolean(k->watch.apart));
}

static json_t *targets(const struct cluster *c)
{
	json_t *a = json_array();

	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target *t = c->targets[i];
		char uuid[UUID_TEXT_SIZE];

		if ((t->info.flags & TARGET_REMOVED) != 0)
			continue;
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
		add_clock(json_array_get(a, json_array_size(a) - 1), &t->clock,
			  t->info.state == TARGET_UP);
	}
	return a;
}

static json_t *chains(const struct cluster *c)
{
	struct chain_health h;

	membership_health(c, &h);
	return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:b}", "n", (int)(c->n_chains - h.lost),
			 "whole", (int)h.whole, "degraded", (int)h.degraded, "down", (int)h.down,
			 "syncing", (int)h.syncing, "moving", (int)h.moving, "lost", (int)h.lost,
			 "rebalancing", rebalance_is_on(c));
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
				     (json_int_t)((loop_now_us() - se->last_contact_us) / 1000),
				     "to_reclaim", se->from_store));
	}
	return a;
}

/* The clocks of all connected clients: how many were compared, are ahead or behind, and some of the
 * latter two. */
static json_t *client_clocks(const struct sessions *ss)
{
	json_t *apart = json_array();
	int n = 0, ahead = 0, behind = 0;

	list_for_each (l, &ss->all) {
		const struct session *se = list_entry(l, struct session, link);
		const struct clock_seen *k = &se->clock;
		json_t *one;

		if (se->peer == NULL || k->bound_us == 0)
			continue;
		n++;
		ahead += k->watch.apart && k->ahead_us > 0;
		behind += k->watch.apart && k->ahead_us < 0;
		if (!k->watch.apart || json_array_size(apart) >= CLOCKS_LISTED_MAX)
			continue;
		one = json_pack("{s:I,s:s}", "id", (json_int_t)se->id, "name", se->name);
		add_clock(one, k, true);
		json_array_append_new(apart, one);
	}
	return json_pack("{s:i,s:i,s:i,s:o}", "compared", n, "ahead", ahead, "behind", behind,
			 "apart", apart);
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
	return json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:b,s:I,s:I,s:s}", "durability",
			 s->opt.sync ? "sync" : "none", "batches", (json_int_t)s->durable_no,
			 "commits", (json_int_t)ks.commits, "syncs", (json_int_t)ks.syncs,
			 "disk_free", (json_int_t)ks.disk_free, "disk_size",
			 (json_int_t)ks.disk_size, "short_of_room", s->short_of_space,
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

/* Conversions that have ended since the server started, the newest last. */
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

/* The number of copies that the root directory gives to new files, and whether there are chains for
 * it. */
static json_t *new_files(const struct cluster *c, uint32_t replicas)
{
	return json_pack("{s:i,s:b}", "replicas", (int)replicas, "possible",
			 c->classes[replicas].table != 0);
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
		(int)space_reclaim_waiting(&m->reclaim), "store", store_info(&m->store), "recovery",
		recovery(m), "targets", targets(&m->cluster), "chains", chains(&m->cluster),
		"sessions", sessions(&m->sessions), "conversions", conversions(m),
		"conversions_ended", conversions_ended(&m->conversions));
}

#define MIB (1ULL << 20)

static uint64_t sessions_bytes(const struct sessions *ss)
{
	uint64_t sum = 0;

	list_for_each (n, &ss->all) {
		const struct session *se = list_entry(n, struct session, link);

		sum += sizeof(*se) + se->n_slots * sizeof(*se->slots);
		for (uint32_t i = 0; i < se->n_slots; i++)
			sum += se->slots[i].reply_cap;
	}
	return sum;
}

static json_t *memory(const struct mds *m)
{
	const struct mds_params *p = &m->params;
	const struct open_files *of = &m->opens;
	struct kv_stats ks;

	kv_stats(m->store.kv, &ks);
	const struct memory_part parts[] = {
		{"inodes and names", store_bytes(&m->store), p->cache_mib * MIB},
		{"blocks of the store", ks.cache_bytes, p->kv_cache_mib * MIB},
		{"write buffers of the store", ks.buffer_bytes,
		 KV_WRITE_BUFFERS * p->kv_write_buffer_mib * MIB},
		{"sessions and kept answers", sessions_bytes(&m->sessions), 0},
		{"open files", of->n * sizeof(struct open_file) + of->opens.n * sizeof(struct open),
		 p->opens_max * (sizeof(struct open_file) + sizeof(struct open))},
		{"leases", m->leases.n * sizeof(struct lease) +
			   m->leases.map.n * sizeof(struct lease_file),
		 p->leases_max * (sizeof(struct lease) + sizeof(struct lease_file))},
		{"copies on nodes", m->residency.bytes, RESIDENCY_BYTES_MAX},
	};

	return memory_json(parts, ARRAY_SIZE(parts));
}

static void add_net(void *arg, const struct rpc_net *n)
{
	net_report_add(arg, NULL, n);
}

/* The connections to object servers and from clients, as many as fit into NET_REPORT_SIZE. */
static json_t *net_json(struct mds *m)
{
	char *text = malloc(NET_REPORT_SIZE);
	struct net_report r;
	json_t *j;

	if (text == NULL)
		return json_null();
	net_report_begin(&r, text, NET_REPORT_SIZE, m->transport, 0);
	oss_net(&m->oss, &r);
	rpc_server_net(m->server, add_net, &r);
	j = json_loadb(text, net_report_end(&r), 0, NULL);
	free(text);
	return j != NULL ? j : json_null();
}

int mds_status(struct op *op, const void *vin, void *vout)
{
	const struct mds_status_req *in = vin;
	struct mds_status_rep *out = vout;
	uint32_t replicas;
	size_t len;
	int root;
	json_t *j;
	char *buf;

	/* Operations in progress end unfinished now; the next server process reports their
	 * state. */
	if (op->m->stopping)
		return -LE_SHUTDOWN;
	root = chain_table_root(&op->m->cluster, &replicas);
	j = status_json(op->m);
	if (j != NULL && root == 0)
		json_object_set_new(j, "new_files", new_files(&op->m->cluster, replicas));
	if (j == NULL || json_object_set_new(j, "net", net_json(op->m)) < 0 ||
	    json_object_set_new(j, "client_clocks", client_clocks(&op->m->sessions)) < 0) {
		json_decref(j);
		return -LE_NOMEM;
	}
	if ((in->flags & STATUS_MEMORY) != 0)
		json_object_set_new(j, "memory", memory(op->m));
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
