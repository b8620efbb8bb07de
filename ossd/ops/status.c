/* SPDX-License-Identifier: Apache-2.0 */
/* oss_status: one JSON object for `leat status`. */
#include <jansson.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/kv/kv.h"
#include "common/rpc/net_report.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"
#include "ossd/scrub/scrub.h"

#define RESYNC_SHOWN 64u /* members being filled */

static json_t *space_json(const struct chunk_store *s)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "capacity",
			 (json_int_t)space_total(&s->space), "used",
			 (json_int_t)space_used(&s->space), "free",
			 (json_int_t)space_usable(&s->space), "reserve",
			 (json_int_t)s->space.reserve, "granted", (json_int_t)s->space.granted,
			 "data_file", (json_int_t)s->data.size, "being_freed",
			 (json_int_t)(s->space.quarantined * UNIT_SIZE));
}

static json_t *cache_json(const struct target *t)
{
	const struct chunk_store *s = t->store;
	struct kv_stats ks;

	kv_stats(s->kv, &ks);
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "record_bytes", (json_int_t)s->cache.bytes,
			 "record_bytes_max", (json_int_t)s->cache.bytes_max, "hits",
			 (json_int_t)metric_get(&t->metrics->cache_hits), "misses",
			 (json_int_t)metric_get(&t->metrics->cache_misses), "index_bytes",
			 (json_int_t)ks.mem_bytes);
}

static json_t *counts_json(const struct ossd_metrics *m)
{
	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "reads",
		(json_int_t)metric_get(&m->reads), "read_bytes",
		(json_int_t)metric_get(&m->read_bytes), "writes",
		(json_int_t)metric_get(&m->writes), "write_bytes",
		(json_int_t)metric_get(&m->write_bytes), "merges",
		(json_int_t)metric_get(&m->merges), "copies", (json_int_t)metric_get(&m->copies),
		"replays", (json_int_t)metric_get(&m->replays), "errors",
		(json_int_t)metric_get(&m->errors), "corrupt", (json_int_t)metric_get(&m->corrupt),
		"repaired", (json_int_t)metric_get(&m->repaired), "data_syncs",
		(json_int_t)metric_get(&m->syncs));
}

static uint32_t own_epoch(const struct target *t)
{
	const struct chain *c = chain_find(t->chains, t->chain);

	return c ? c->epoch : 0;
}

static json_t *resync_json(const struct target *t)
{
	struct resync_progress p[RESYNC_SHOWN];
	json_t *rows = json_array();
	uint32_t n = t->maintenance ? resync_progress(t->maintenance->resync, p, RESYNC_SHOWN) : 0;

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(
			rows,
			json_pack("{s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "chain",
				  (json_int_t)p[i].chain, "target", (json_int_t)p[i].target,
				  "epoch", (json_int_t)p[i].epoch, "phase",
				  resync_phase_name(p[i].phase), "by_log", (int)p[i].logged,
				  "compared", (json_int_t)p[i].compared, "copied",
				  (json_int_t)p[i].copied, "removed", (json_int_t)p[i].removed,
				  "bytes", (json_int_t)p[i].bytes, "left", (json_int_t)p[i].left));
	return rows;
}

static json_t *scrub_json(const struct target *t)
{
	static const struct scrub_row none;
	const struct scrub_row *s = t->scrub ? scrub_state(t->scrub) : &none;

	return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "running",
			 (int)s->running, "chunks", (json_int_t)s->chunks, "bytes",
			 (json_int_t)s->bytes, "damaged", (json_int_t)s->damaged, "repaired",
			 (json_int_t)s->repaired, "unrepaired", (json_int_t)s->unrepaired,
			 "differing", (json_int_t)s->differing, "uncompared",
			 (json_int_t)s->uncompared, "moved", (int)s->moved);
}

static json_t *status_json(const struct target *t)
{
	const struct chunk_store *s = t->store;
	uint64_t commits = metric_get(&t->metrics->commits);
	uint64_t ops = metric_get(&t->metrics->commit_ops);
	char uuid[UUID_TEXT_SIZE];

	uuid_format(&s->super.uuid, uuid);
	return json_pack("{s:s, s:I, s:I, s:I, s:b, s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:f, s:f, "
			 "s:o, s:o, s:o, s:o, s:o, s:s}",
			 "role", "ossd", "target", (json_int_t)t->id, "chain", (json_int_t)t->chain,
			 "epoch", (json_int_t)own_epoch(t), "ready", (int)t->ready, "uuid", uuid,
			 "durability", t->p->sync ? "sync" : "none", "direct_io",
			 (int)env_file_is_direct(s->data.f), "failed",
			 (int)(chunk_store_status(s) < 0), "commits", (json_int_t)s->commits,
			 "group_commits", (json_int_t)commits, "group_commit_ops", (json_int_t)ops,
			 "ops_per_commit", commits ? (double)ops / (double)commits : 0.0,
			 "uptime_s", (double)(env_now_us(t->env) - t->start_us) / 1e6, "space",
			 space_json(s), "cache", cache_json(t), "totals", counts_json(t->metrics),
			 "resync", resync_json(t), "scrub", scrub_json(t), "metrics",
			 t->p->metrics);
}

static json_t *memory_of(const struct target *t)
{
	const struct chunk_store *s = t->store;
	const struct ossd_params *p = t->p;
	uint64_t records = s->cache.slab_bytes > s->cache.bytes ? s->cache.slab_bytes
								: s->cache.bytes;
	struct kv_stats ks;

	kv_stats(s->kv, &ks);
	const struct memory_part parts[] = {
		{"chunk records", records + (s->cache.map.mask + 1) * sizeof(void *),
		 p->cache_size},
		{"blocks of the index", ks.cache_bytes, p->kv_cache_size},
		{"write buffers of the index", ks.buffer_bytes, KV_WRITE_BUFFERS * p->kv_write_buffer_size},
		{"kept answers", s->replay.map.n * sizeof(struct replay_ent),
		 p->replay_rows_max * sizeof(struct replay_ent)},
		{"map of free space", s->space.alloc.n_words * (8 + 8.0 / 64), 0},
		{"ledger of chunks", inventory_bytes(&s->inventory), 0},
	};

	return memory_json(parts, ARRAY_SIZE(parts));
}

static void add_net(void *arg, const struct rpc_net *n)
{
	net_report_add(arg, NULL, n);
}

/* Reports the clients' connections, as many as fit into NET_REPORT_SIZE. */
static json_t *net_json(struct rpc_server *s)
{
	char *text = malloc(NET_REPORT_SIZE);
	struct net_report r;
	json_t *j;

	if (!text)
		return json_null();
	net_report_begin(&r, text, NET_REPORT_SIZE, rpc_server_transport(s), 0);
	rpc_server_net(s, add_net, &r);
	j = json_loadb(text, net_report_end(&r), 0, NULL);
	free(text);
	return j ? j : json_null();
}

int op_status(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_status_req *req = in;
	struct oss_status_rep *rep = out;
	json_t *j = status_json(op_target(r));
	int no_net = j ? json_object_set_new(j, "net", net_json(r->server)) : -1;
	if (no_net == 0 && (req->flags & STATUS_MEMORY))
		json_object_set_new(j, "memory", memory_of(op_target(r)));
	char *text = no_net == 0 ? json_dumps(j, JSON_COMPACT) : NULL;
	size_t len = text ? strlen(text) : 0;
	void *buf = text ? rpc_req_alloc(r, len) : NULL;

	if (buf) {
		memcpy(buf, text, len);
		rep->json = bytes_of(buf, (uint32_t)len);
	}
	free(text);
	json_decref(j);
	return buf ? 0 : -LE_NOMEM;
}
