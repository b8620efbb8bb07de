/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/rpc/auth.h"
#include "common/rpc/transport/transport_mux.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"

#define STATUS_WIDTH      32 /* concurrent requests to object servers */
#define TARGET_TIMEOUT_MS 2000

const char *target_service_name(uint32_t flags)
{
	if (flags & TARGET_REMOVED)
		return "removed";
	if (flags & TARGET_BAD)
		return "bad";
	return flags & TARGET_DRAINING ? "draining" : "in use";
}

const char *target_state_name(uint32_t state)
{
	static const char *const names[] = {"new", "up", "down"};

	return state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

int cluster_call(struct cluster *c, uint16_t op, const void *req, void *rep, struct rpc_call *call)
{
	*call = (struct rpc_call){.op = op, .req = req, .rep = rep, .deadline_us = c->deadline_us};
	return rpc_call(c->mds, call);
}

/* Copies a text; bytes that would spoil a terminal or a JSON text become question marks. */
static void copy_text(char *to, size_t size, struct bytes from)
{
	const char *data = from.data;
	size_t n = from.len < size - 1 ? from.len : size - 1;

	for (size_t i = 0; i < n; i++)
		to[i] = data[i] >= ' ' && data[i] <= '~' ? data[i] : '?';
	to[n] = '\0';
}

static int add_target(struct cluster *c, const struct target_info *info)
{
	struct target_view *v = realloc(c->targets, (c->n_targets + 1) * sizeof(*v));

	if (!v)
		return -LE_NOMEM;
	c->targets = v;
	v += c->n_targets++;
	*v = (struct target_view){.id = info->id,
				  .state = info->state,
				  .loop = info->loop,
				  .epoch = info->epoch,
				  .flags = info->flags,
				  .capacity = info->capacity,
				  .used = info->used,
				  .free = info->free,
				  .uuid = info->uuid,
				  .cluster = c};
	copy_text(v->addrs, sizeof(v->addrs), info->addrs);
	copy_text(v->host, sizeof(v->host), info->host);
	if (info->state == TARGET_UP)
		c->n_targets_up++;
	c->capacity += info->capacity;
	c->used += info->used;
	c->free += info->free;
	return 0;
}

static int parse_map(struct cluster *c, const struct mds_map_get_rep *rep, uint32_t flags)
{
	struct wire_r r;

	c->epoch = rep->epoch;
	c->uuid = rep->cluster;
	wire_r_init(&r, rep->targets.data, rep->targets.len);
	while (!wire_r_end(&r)) {
		struct target_info info = {0};

		wire_get_target_info(&r, &info);
		if (r.status < 0 || c->n_targets == TARGETS_MAX)
			return -LE_BAD_MESSAGE;
		if ((info.flags & TARGET_REMOVED) == 0 || (flags & FETCH_REMOVED) != 0)
			TRY(add_target(c, &info));
	}
	TRY(r.status);
	wire_r_init(&r, rep->chains.data, rep->chains.len);
	while (!wire_r_end(&r)) {
		struct chain_info info = {0};

		wire_get_chain_info(&r, &info);
		c->n_chains += r.status == 0;
	}
	return r.status;
}

static json_t *parse_json(struct bytes text)
{
	json_t *v = json_loadb(text.len ? text.data : "", text.len, JSON_REJECT_DUPLICATES, NULL);

	if (v && !json_is_object(v)) {
		json_decref(v);
		v = NULL;
	}
	return v;
}

static int ask_target(struct cluster *c, struct target_view *v, struct rpc_client *rpc)
{
	struct oss_status_req req = {.flags = c->status_flags};
	struct oss_status_rep rep;
	struct rpc_call call = {.op = OP_oss_status, .req = &req, .rep = &rep, .target = v->id};
	uint64_t deadline_us = loop_deadline_ms(TARGET_TIMEOUT_MS);
	int status;

	memset(&rep, 0, sizeof(rep));
	call.deadline_us = deadline_us < c->deadline_us ? deadline_us : c->deadline_us;
	status = rpc_call(rpc, &call);
	if (status == 0) {
		v->status = parse_json(rep.json);
		status = v->status ? 0 : -LE_BAD_MESSAGE;
	}
	rpc_call_fini(&call);
	return status;
}

int cluster_target_open(struct cluster *c, const struct target_view *v,
			struct rpc_client **ret_rpc)
{
	struct rpc_client_options opts = {
		.transport = c->transport,
		.addrs = v->addrs,
		.name = "leat",
		.role = ROLE_TOOL,
		.cluster = c->uuid,
		.key = c->key,
		.loop = v->loop,
	};

	return rpc_client_create(&opts, ret_rpc);
}

int cluster_target_call(struct cluster *c, const struct target_view *v, uint16_t op,
			const void *req, void *rep)
{
	struct rpc_call call = {.op = op,
				.req = req,
				.rep = rep,
				.target = v->id,
				.deadline_us = loop_deadline_ms(TARGET_TIMEOUT_MS)};
	struct rpc_client *rpc;
	int rc;

	if (v->state != TARGET_UP || !v->addrs[0])
		return -LE_TARGET_DOWN;
	TRY(cluster_target_open(c, v, &rpc));
	rc = rpc_call(rpc, &call);
	rpc_call_fini(&call);
	rpc_client_destroy(rpc);
	return rc;
}

static void fetch_target(void *arg)
{
	struct target_view *v = arg;
	struct cluster *c = v->cluster;
	struct rpc_client *rpc;

	if (v->state != TARGET_UP || !v->addrs[0])
		return;
	v->error = cluster_target_open(c, v, &rpc);
	if (v->error < 0)
		return;
	v->error = ask_target(c, v, rpc);
	rpc_client_destroy(rpc);
}

int cluster_fetch_mds(struct cluster *c)
{
	struct mds_status_req req = {.flags = c->status_flags};
	struct mds_status_rep rep;
	struct rpc_call call;
	int status;

	memset(&rep, 0, sizeof(rep));
	status = cluster_call(c, OP_mds_status, &req, &rep, &call);
	if (status == 0) {
		json_decref(c->mds_status);
		c->mds_status = parse_json(rep.json);
		if (!c->mds_status)
			status = -LE_BAD_MESSAGE;
	}
	rpc_call_fini(&call);
	return status;
}

/* Fetches a page of the map. A change between two pages may be visible in part: the map is only
 * printed. */
static int fetch_page(struct cluster *c, uint32_t flags, uint32_t from, uint32_t *ret_next)
{
	struct mds_map_get_req req = {.from = from};
	struct mds_map_get_rep rep = {0};
	struct rpc_call call;
	int status = cluster_call(c, OP_mds_map_get, &req, &rep, &call);

	if (status == 0 && rep.next != 0 && rep.next <= from)
		status = -LE_BAD_MESSAGE;
	if (status == 0)
		status = parse_map(c, &rep, flags);
	*ret_next = rep.next;
	rpc_call_fini(&call);
	return status;
}

int cluster_fetch(struct cluster *c, uint32_t flags)
{
	struct rpc_client_stats stats;
	uint32_t next = 0;

	do
		TRY(fetch_page(c, flags, next, &next));
	while (next != 0);
	rpc_client_stats(c->mds, &stats);
	snprintf(c->mds_addr, sizeof(c->mds_addr), "%s",
		 strchr(stats.peer, ' ') ? strchr(stats.peer, ' ') + 1 : stats.peer);
	if (flags & FETCH_MDS_STATUS)
		TRY(cluster_fetch_mds(c));
	if ((flags & FETCH_TARGET_STATUS) && c->n_targets)
		fiber_parallel("target_status", fetch_target, c->targets, sizeof(*c->targets),
			       c->n_targets, STATUS_WIDTH);
	return 0;
}

struct run {
	struct cluster cluster;
	struct loop *loop;
	uint32_t timeout_ms;
	int (*fn)(struct cluster *c, void *arg);
	void *arg;
	int status;
};

static void run_fiber(void *arg)
{
	struct run *r = arg;
	struct cluster *c = &r->cluster;
	struct rpc_client_options opts = {
		.transport = c->transport,
		.addrs = c->tool->cluster.mds,
		.name = "leat",
		.role = ROLE_TOOL,
		.key = c->key,
		.hosts_known = true,
	};

	c->deadline_us = loop_deadline_ms(r->timeout_ms);
	r->status = rpc_client_create(&opts, &c->mds);
	if (r->status == 0) {
		r->status = r->fn(c, r->arg);
		rpc_client_destroy(c->mds);
	}
	loop_stop(r->loop);
}

static int explain(const struct tool *t, int status)
{
	return tool_error(t, status == -LE_TIMEDOUT ? EXIT_UNREACHABLE : exit_of_status(status),
			  tool_server_hint(t, status), "metadata server at %s: %s", t->cluster.mds,
			  status_text(status));
}

static int prepare(struct run *r, struct env **ret_env)
{
	struct env_real_options eo = {.n_workers = 1};
	struct loop_options lo = {.name = "leat"};

	TRY(env_real_create(&eo, ret_env));
	TRY(transport_mux_create(r->cluster.tool->cluster.transport, &r->cluster.transport));
	TRY(loop_create(*ret_env, &lo, &r->loop));
	return fiber_spawn_on(r->loop, "tool", run_fiber, r);
}

static void release(struct cluster *c)
{
	for (uint32_t i = 0; i < c->n_targets; i++)
		json_decref(c->targets[i].status);
	free(c->targets);
	json_decref(c->mds_status);
}

int cluster_run(struct tool *t, uint32_t timeout_ms, int (*fn)(struct cluster *c, void *arg),
		void *arg)
{
	struct run r = {.cluster.tool = t, .timeout_ms = timeout_ms, .fn = fn, .arg = arg};
	struct env *env = NULL;
	struct rpc_key_problem problem;
	int status = rpc_key_check(t->cluster.key_file, &r.cluster.key, &problem);

	if (status < 0)
		return tool_error(t, exit_of_status(status), problem.hint, "%s", problem.text);
	status = prepare(&r, &env);
	if (status < 0) {
		status = tool_error(t, exit_of_status(status), NULL, "cannot start: %s",
				    status_text(status));
	} else {
		loop_run(r.loop);
		status = r.status < 0 ? explain(t, r.status) : EXIT_OK;
	}
	release(&r.cluster);
	if (r.loop)
		loop_destroy(r.loop);
	if (r.cluster.transport)
		transport_destroy(r.cluster.transport);
	if (env)
		env_real_destroy(env);
	return status;
}
