/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: starts (listens, lists its copies), reports to the metadata server at intervals,
 * keeps the copies within the capacity, and stops (its jobs end and can be resumed).
 */
#include "client/stage/agent/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/leat_impl.h"
#include "client/ll.h"
#include "client/servers/mds_call.h"
#include "client/stage/agent/agent_age.h"
#include "client/stage/agent/agent_fiber.h"
#include "client/stage/agent/agent_jobs.h"
#include "client/stage/agent/agent_net.h"
#include "client/stage/agent/agent_serve.h"
#include "client/stage/fetch/peers_net.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/copies_gc.h"
#include "common/base/config.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/metrics_http.h"
#include "common/base/notify.h"
#include "common/base/rate_limit.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/wire.h"
#include "common/rpc/addr.h"
#include "common/rpc/rpc.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

/* Poll interval of the copies, without a known change. */
#define POLL_US      10000000u
#define GC_US        30000000u
#define TTL_REPORTS  10u
#define DRAIN_MS     2000u
#define REPORT_BYTES (200u << 10)

struct leat_agent {
	struct leat_fs *fs;
	struct agent *a;
};

/* ---- copies ---- */

static int note_copy(void *arg, const struct leat_stage_copy *c)
{
	struct agent *a = CAST_OBJ(arg, struct agent, AGENT_MAGIC);
	if (c->state != LEAT_COPY_READY && c->state != LEAT_COPY_STALE &&
	    c->state != LEAT_COPY_SHARED)
		return 0;
	if (a->n_copies == AGENT_COPIES_MAX)
		return 1;
	struct leat_stage_copy *more = realloc(a->copies, (a->n_copies + 1) * sizeof(*more));
	if (!more)
		return -LE_NOMEM;
	a->copies = more;
	a->copies[a->n_copies++] = *c;
	metric_add(&a->metrics.copies_bytes, c->bytes);
	return 0;
}

static void look(struct agent *a)
{
	a->look = false;
	a->polled_us = loop_now_us();
	a->n_copies = 0;
	metric_set(&a->metrics.copies_bytes, 0);
	for (uint32_t i = 0; i < a->n_dirs; i++) {
		int rc = copies_list(&a->io, a->dirs[i], note_copy, a);
		if (rc < 0)
			log_warn("cannot list the copies in %s: %s", a->dirs[i], status_text(rc));
	}
	metric_set(&a->metrics.copies, a->n_copies);
}

static void put_row(struct wire_w *w, const char *id, const char *name, int state, uint64_t bytes,
		    uint64_t done)
{
	struct residency_row row = {.id = bytes_str(id),
				    .name = bytes_str(name),
				    .state = (uint8_t)state,
				    .bytes = bytes,
				    .done = done};
	size_t before = w->len;
	wire_put_residency_row(w, &row);
	/* A row that does not fit is left out; it is reported once others are removed. */
	if (w->status < 0) {
		w->status = 0;
		w->len = before;
	}
}

static void put_running(struct agent *a, struct wire_w *w)
{
	list_for_each (pos, &a->jobs) {
		const struct agent_job *j = list_entry(pos, struct agent_job, link);
		/* Of several jobs for one copy, report the one that makes it. */
		if (!j->running || !j->job->m ||
		    agent_job_find(a, bytes_str(j->job->m->id), true) != j)
			continue;
		put_row(w, j->job->m->id, j->source[0] == '/' ? "" : j->source,
			j->reached >= LEAT_STAGE_STREAMABLE ? LEAT_COPY_STREAMABLE
							    : LEAT_COPY_STAGING,
			j->job->r->bytes, j->job->r->bytes_verified);
	}
}

static bool is_running(struct agent *a, const char *id)
{
	struct agent_job *j = agent_job_find(a, bytes_str(id), true);
	return j && j->running;
}

static void report(struct agent *a, uint32_t ttl_ms)
{
	uint8_t *buf = malloc(REPORT_BYTES);
	struct wire_w w;
	if (!buf)
		return;
	wire_w_init(&w, buf, REPORT_BYTES);
	if (ttl_ms)
		put_running(a, &w);
	for (uint32_t i = 0; i < a->n_copies && ttl_ms; i++) {
		const struct leat_stage_copy *c = &a->copies[i];
		char name[300] = "";
		if (c->name[0])
			snprintf(name, sizeof(name), "%s@%s", c->name, c->version);
		if (!is_running(a, c->id))
			put_row(&w, c->id, name, c->state, c->bytes, c->bytes_verified);
	}
	struct mds_residency_set_req req = {.node = bytes_str(a->node),
					    .addrs = bytes_str(a->addr),
					    .ttl_ms = ttl_ms,
					    .rows = bytes_of(buf, (uint32_t)w.len)};
	struct mds_residency_set_rep rep;
	struct rpc_call call;
	int rc = mds_call(a->fs->client, OP_mds_residency_set, &req, &rep, &call);
	rpc_call_fini(&call);
	if (rc == -LE_PERM && !a->untold)
		log_warn("this node's network has fewer rights (leat export): other nodes do not "
			 "learn of its copies");
	else if (rc < 0 && rc != -LE_PERM && !a->stopping)
		log_warn("cannot report the copies to the metadata server: %s", status_text(rc));
	a->untold = rc == -LE_PERM;
	free(buf);
}

static void report_fiber(void *arg)
{
	struct agent *a = CAST_OBJ(arg, struct agent, AGENT_MAGIC);
	struct agent_fiber self;
	agent_fiber_begin(a, &self);
	while (!a->stopping) {
		if (a->look || loop_now_us() >= a->polled_us + POLL_US)
			look(a);
		agent_net_sample(a);
		report(a, a->p.report_ms * TTL_REPORTS);
		int rc = waitq_wait(&a->stop, loop_now_us() + a->p.report_ms * 1000ULL);
		(void)rc;
	}
	agent_fiber_end(a, &self);
}

static void gc_fiber(void *arg)
{
	struct agent *a = CAST_OBJ(arg, struct agent, AGENT_MAGIC);
	uint64_t next_us = 0;
	struct agent_fiber self;
	agent_fiber_begin(a, &self);
	while (!a->stopping) {
		if (a->p.capacity && loop_now_us() >= next_us) {
			struct gc_options g = {.capacity = a->p.capacity, .more_dirs = a->dirs + 1};
			next_us = loop_now_us() + GC_US;
			int rc = copies_gc(&a->io, a->dirs[0], &g);
			if (rc < 0)
				log_warn("cannot free space in %s: %s", a->p.dirs, status_text(rc));
			metric_add(&a->metrics.evicted_bytes, g.bytes_removed);
			a->look |= g.bytes_removed > 0;
		}
		int rc = waitq_wait(&a->stop, loop_now_us() + 1000000);
		(void)rc;
	}
	agent_fiber_end(a, &self);
}

/* ---- metrics ---- */

#define ROW(...) METRIC_ROW(struct agent_metrics, __VA_ARGS__)
static const struct metric_desc metric_table[] = {AGENT_METRICS(ROW)};

static int render(void *arg, char **ret_text, size_t *ret_len)
{
	struct agent *a = CAST_OBJ(arg, struct agent, AGENT_MAGIC);
	return metrics_print(metric_table, (int)(sizeof(metric_table) / sizeof(metric_table[0])),
			     &a->metrics, "", ret_text, ret_len);
}

/* ---- start and stop ---- */

static int take_dirs(struct agent *a)
{
	char *rest = a->dirs_text, *dir;
	snprintf(a->dirs_text, sizeof(a->dirs_text), "%s", a->p.dirs);
	while ((dir = strsep(&rest, " ")) != NULL) {
		if (!*dir)
			continue;
		if (dir[0] != '/' || a->n_dirs == AGENT_DIRS_MAX - 1) {
			log_error("dirs: at most %u absolute paths", AGENT_DIRS_MAX - 1);
			return -LE_CONFIG;
		}
		a->dirs[a->n_dirs++] = dir;
		TRY(env_mkdirs(a->io.env, dir, 0755));
	}
	return a->n_dirs ? 0 : -LE_CONFIG;
}

static void take_names(struct agent *a)
{
	char host[100] = "localhost";
	if (gethostname(host, sizeof(host) - 1) < 0)
		host[0] = 0;
	snprintf(a->node, sizeof(a->node), "%.127s", a->p.node[0] ? a->p.node : host);
	if (a->p.advertise[0]) {
		snprintf(a->addr, sizeof(a->addr), "%.255s", a->p.advertise);
		return;
	}
	/* Prefer an address that needs no device: a peer that connects there learns of the
	 * others and moves. Replace a wildcard by the host name. */
	const char *addr = strstr(rpc_server_addrs(a->server), "tcp:"), *rest;
	char one[ADDR_TEXT_SIZE];
	snprintf(one, sizeof(one), "%.*s", (int)(ADDR_TEXT_SIZE - 1),
		 addr ? addr : rpc_server_addrs(a->server));
	one[strcspn(one, " ")] = 0;
	const char *scheme = addr_split(one, &rest) == ADDR_VERBS ? "verbs:" : "";
	const char *port = strrchr(rest, ':');
	if (addr_is_wildcard(rest) && port)
		snprintf(a->addr, sizeof(a->addr), "%s%s%s", scheme, host, port);
	else
		snprintf(a->addr, sizeof(a->addr), "%s%s", scheme, rest);
}

static int make_pools(struct agent *a)
{
	struct transport *t = a->fs->transport;
	TRY(slot_pool_create(MANIFEST_CHUNK, a->p.buffers, &a->jobs_pool));
	TRY(slot_pool_create(MANIFEST_CHUNK, a->p.buffers, &a->serve_pool));
	TRY(t->ops->add_pool(t, a->jobs_pool, POOL_REMOTE));
	return t->ops->add_pool(t, a->serve_pool, POOL_REMOTE);
}

static int serve(struct agent *a)
{
	struct rpc_server_options o = {.transport = a->fs->transport,
				       .addrs = a->p.listen,
				       /* Without advertise, which is one address: its peers must
					* learn of the devices too. */
				       .name = "agent",
				       .role = ROLE_AGENT,
				       .cluster = ll_cluster(a->fs->client),
				       .key = a->key,
				       .handlers = agent_handlers,
				       .n_handlers = n_agent_handlers,
				       .arg = a};
	return rpc_server_create(&o, &a->server);
}

/* Reports the state to the service manager of the agent's program; without one it does nothing. */
static bool notify_state(void *arg)
{
	const struct agent *a = CAST_OBJ(arg, struct agent, AGENT_MAGIC);
	int away = ll_unreachable(a->fs->client);

	if (away < 0)
		notify_status("serves at %s; the metadata server cannot be reached: %s", a->addr,
			      status_text(away));
	else
		notify_status("serves at %s", a->addr);
	return true;
}

static void stop(struct agent *a)
{
	uint64_t deadline_us = fiber_deadline();
	alive_stop(&a->alive);
	a->stopping = true;
	a->age_stop = 1;
	agent_jobs_end(a);
	waitq_wake_all(&a->stop);
	agent_fibers_await(a);
	if (a->server) {
		rpc_server_destroy(a->server, DRAIN_MS);
		fiber_set_deadline(loop_deadline_ms(AGENT_PATIENCE_MS));
		report(a, 0);
		fiber_set_deadline(deadline_us);
	}
	while (!list_empty(&a->jobs))
		agent_job_free(list_entry(a->jobs.next, struct agent_job, link));
	agent_served_drop(a, NULL);
	if (a->jobs_pool)
		slot_pool_destroy(a->jobs_pool);
	if (a->serve_pool)
		slot_pool_destroy(a->serve_pool);
	io_fini(&a->io);
	free(a->copies);
}

static int start(struct agent *a)
{
	a->key = a->fs->client->key;
	a->swarm_net =
		(struct swarm_rpc){.magic = SWARM_RPC_MAGIC, .fs = a->fs, .key = &a->key};
	rate_limit_set(&a->throttle, a->p.max_rate, RATE_LIMIT_BURST_US);
	rate_limit_set(&a->name_rate, a->p.rights_rate, RATE_LIMIT_BURST_US);
	list_init(&a->jobs);
	latch_init(&a->fibers, 0);
	list_init(&a->running);
	waitq_init(&a->stop);
	TRY(io_init(&a->io, a->fs, "agent"));
	a->last_job = env_random_u64(a->io.env) >> 1;
	TRY(take_dirs(a));
	TRY(make_pools(a));
	TRY(serve(a));
	take_names(a);
	a->look = true;
	TRY(agent_spawn(a, "agent_report", report_fiber, a));
	TRY(agent_spawn(a, "agent_age", agent_age_fiber, a));
	TRY(agent_spawn(a, "agent_gc", gc_fiber, a));
	alive_start(&a->alive, notify_state, a);
	return 0;
}

static int64_t start_fn(struct api_call *c)
{
	ll_report_unreachable(c->fs->client);
	return start(c->buf);
}

static int64_t stop_fn(struct api_call *c)
{
	stop(c->buf);
	return 0;
}

static int load_params(const char *conf, const char *const *sets, struct agent_params *p)
{
	struct config_section s = {"agent", agent_param_table, n_agent_params, p};
	enum log_level level;
	char err[CONFIG_ERR_SIZE] = "", name[64];
	int rc = config_load(conf, &s, 1, err, sizeof(err));
	for (; rc >= 0 && sets && *sets; sets++) {
		const char *eq = strchr(*sets, '=');
		if (!eq || (size_t)(eq - *sets) >= sizeof(name)) {
			snprintf(err, sizeof(err), "not name=value: %s", *sets);
			rc = -LE_CONFIG;
			break;
		}
		snprintf(name, sizeof(name), "%.*s", (int)(eq - *sets), *sets);
		rc = config_set(&s, name, eq + 1, err, sizeof(err));
	}
	if (rc >= 0)
		rc = log_level_parse(p->log_level, &level);
	if (rc < 0) {
		log_error("agent: %s", err[0] ? err : status_text(rc));
		return rc;
	}
	log_set_level(level);
	return 0;
}

int leat_agent_start(struct leat_fs *fs, const char *conf, const char *const *params,
		     struct leat_agent **ret_agent)
{
	struct leat_agent *la = calloc(1, sizeof(*la));
	struct agent *a = calloc(1, sizeof(*a));
	struct api_call c = {.fn = start_fn, .buf = a};
	int rc = la && a ? load_params(conf, params, &a->p) : -LE_NOMEM;
	if (rc < 0) {
		free(la);
		free(a);
		return rc;
	}
	a->magic = AGENT_MAGIC;
	a->fs = fs;
	*la = (struct leat_agent){fs, a};
	rc = (int)api_run(fs, &c);
	if (rc == 0)
		a->page = metrics_server_try(a->p.metrics, render, a);
	if (rc < 0)
		leat_agent_stop(la);
	else
		*ret_agent = la;
	return rc;
}

void leat_agent_stop(struct leat_agent *la)
{
	struct api_call c = {.fn = stop_fn, .buf = la->a};
	if (la->a->page)
		metrics_server_stop(la->a->page);
	api_run(la->fs, &c);
	explicit_bzero(&la->a->key, sizeof(la->a->key));
	free(la->a);
	free(la);
}

const char *leat_agent_addr(const struct leat_agent *la)
{
	return la->a->addr;
}
