/* SPDX-License-Identifier: Apache-2.0 */
/* An agent's staging jobs. Equal requests share one job; other requests for the same source
 * start another job, which waits for the copy's lock. Ended jobs stay listed for a time. */
#include "client/stage/agent/agent_jobs.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/leat_impl.h"
#include "client/stage/agent/agent.h"
#include "client/stage/agent/agent_fiber.h"
#include "client/stage/agent/agent_net.h"
#include "client/stage/fetch/peers_net.h"
#include "client/stage/in/stage_in.h"
#include "client/stage/job/left_out.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/store_leases.h"
#include "client/stage/store/store_ready.h"
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/names.h"

/* ---- searching ---- */

static bool is_text(const char *s, struct bytes b)
{
	return strlen(s) == b.len && memcmp(s, b.data, b.len) == 0;
}

static const char *id_of(const struct agent_job *j)
{
	if (!j->running)
		return j->r.id;
	return j->job && j->job->m ? j->job->m->id : "";
}

/* Running jobs precede ended ones; of several jobs for one copy, the one that makes it comes
 * first. */
static int rank_of(const struct agent_job *j, bool by_id)
{
	return !j->running ? 0 : by_id && j->job->fetch ? 2 : 1;
}

struct agent_job *agent_job_find(struct agent *a, struct bytes what, bool by_id)
{
	struct agent_job *best = NULL;
	list_for_each (pos, &a->jobs) {
		struct agent_job *j = list_entry(pos, struct agent_job, link);
		/* Later jobs are newer. */
		if (is_text(by_id ? id_of(j) : j->source, what) &&
		    (!best || rank_of(j, by_id) >= rank_of(best, by_id)))
			best = j;
	}
	return best;
}

struct agent_job *agent_job_numbered(struct agent *a, uint64_t number, struct bytes what)
{
	if (!number)
		return agent_job_find(a, what, false);
	list_for_each (pos, &a->jobs) {
		struct agent_job *j = list_entry(pos, struct agent_job, link);
		if (j->number == number)
			return j;
	}
	return NULL;
}

static bool same_text(const char *s, struct bytes b)
{
	return is_text(s ? s : "", b);
}

static bool same_dirs(const struct agent_job *j, struct bytes to)
{
	bool more = !to.len && j->a->n_dirs > 1;
	return is_text(j->to, to.len ? to : bytes_str(j->a->dirs[0])) &&
	       (j->more[0] != NULL) == more;
}

/* The node's share depends on the members and on the capacity of each. */
static bool same_place(const struct agent_job *j, const struct peer_stage_req *req)
{
	return j->placement == (enum placement)req->placement &&
	       (j->placement == PLACE_ALL ||
		(j->copies == req->copies && j->self == req->self && j->capacity == req->capacity &&
		 same_text(j->members, req->members)));
}

/* Returns a running job with the same options; NULL: none. */
static struct agent_job *job_like(struct agent *a, const struct peer_stage_req *req)
{
	struct agent_job *like = NULL;
	list_for_each (pos, &a->jobs) {
		struct agent_job *j = list_entry(pos, struct agent_job, link);
		if (j->running && !j->cancel && is_text(j->source, req->what) &&
		    j->flags == req->flags && j->window == req->window &&
		    same_text(j->catalog, req->catalog) && same_text(j->order, req->order) &&
		    same_dirs(j, req->to) && same_place(j, req))
			like = j;
	}
	return like;
}

void agent_job_free(struct agent_job *j)
{
	ASSERT(!j->running && !j->job && !j->swarm && j->a->n_jobs > 0);
	list_remove(&j->link);
	j->a->n_jobs--;
	j->magic = 0;
	free(j->source);
	free(j->to);
	free(j->catalog);
	free(j->order);
	free(j->lease);
	free(j->members);
	free(j);
}

/* ---- running ---- */

static struct agent_job *job_of(void *arg)
{
	return CAST_OBJ(arg, struct agent_job, AGENT_JOB_MAGIC);
}

static int on_began(void *arg, struct stage_job *job)
{
	struct agent_job *j = job_of(arg);
	struct swarm_options o = {.ops = &swarm_net_rpc,
				  .net = &j->a->swarm_net,
				  .manifest = job->m,
				  .source_us = &job->source_us,
				  .self = j->a->addr,
				  .members = j->members,
				  .self_member = j->self,
				  /* A node with the whole copy waits for no member. */
				  .expect = store_is_ready(&job->store) ? 0 : j->expect,
				  .stop = &job->stop,
				  .share = job->share};
	/* Report the job immediately to other nodes. */
	waitq_wake_all(&j->a->stop);
	TRY(swarm_create(&o, &j->swarm));
	job->turn = swarm_turn(j->swarm);
	return 0;
}

static int from_swarm(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask how)
{
	struct agent_job *j = job_of(arg);
	return swarm_get(j->swarm, chunk, s, how);
}

static void on_reached(void *arg, enum leat_stage_milestone m)
{
	struct agent_job *j = job_of(arg);
	j->reached = m;
}

static void account(struct agent *a, const struct agent_job *j)
{
	ASSERT(a->n_running > 0);
	a->n_running--;
	metric_set(&a->metrics.jobs, a->n_running);
	metric_add(j->r.code ? &a->metrics.failed : &a->metrics.done, 1);
	metric_add(&a->metrics.source_bytes, j->r.bytes_source);
	metric_add(&a->metrics.peer_bytes, j->r.bytes_peers);
	metric_add(&a->metrics.dropped, j->swarm_stats.dropped);
	metric_add(&a->metrics.lied, j->swarm_stats.lied);
	if (j->r.code)
		log_warn("staging %s: %s: %s", j->source, leat_stage_code_text(j->r.code),
			 j->r.message);
	else
		log_info("staging %s: %s, %llu bytes, %llu from the servers, %llu from nodes",
			 j->source, j->shared ? "SHARED" : "READY", (unsigned long long)j->r.bytes,
			 (unsigned long long)j->r.bytes_source,
			 (unsigned long long)j->r.bytes_peers);
}

static void job_fiber(void *arg)
{
	struct agent_job *j = job_of(arg);
	struct agent *a = j->a;
	struct stage_job *job = j->job;
	struct agent_fiber self;
	agent_fiber_begin(a, &self);
	stage_in_fiber(job);
	if (j->swarm)
		swarm_stats(j->swarm, &j->swarm_stats);
	swarm_destroy(j->swarm);
	j->swarm = NULL;
	stage_job_tell(job);
	j->r = *job->r;
	j->shared = job->share != NULL;
	j->running = false;
	j->job = NULL;
	io_fini(&job->io);
	stage_job_destroy(job);
	account(a, j);
	a->look = true;
	waitq_wake_all(&a->stop);
	agent_fiber_end(a, &self);
}

static char *text_of(struct bytes b)
{
	return b.len ? strndup(b.data, b.len) : NULL;
}

/* Chooses among the agent's directories only. */
static int choose_dirs(struct agent_job *j, struct bytes to)
{
	struct agent *a = j->a;
	uint32_t first = 0, n = 0;
	while (to.len && first < a->n_dirs && !is_text(a->dirs[first], to))
		first++;
	if (first == a->n_dirs)
		return -LE_INVAL;
	j->to = strdup(a->dirs[first]);
	/* A named directory is used alone; otherwise all are used. */
	for (uint32_t i = 1; !to.len && i < a->n_dirs; i++)
		j->more[n++] = a->dirs[i];
	return j->to ? 0 : -LE_NOMEM;
}

static int take_request(struct agent_job *j, const struct peer_stage_req *req)
{
	j->source = text_of(req->what);
	j->catalog = text_of(req->catalog);
	j->order = text_of(req->order);
	j->lease = text_of(req->lease);
	j->members = text_of(req->members);
	j->self = req->self;
	j->expect = req->expect;
	j->placement = (enum placement)req->placement;
	j->copies = req->copies;
	j->capacity = req->capacity;
	j->window = req->window;
	j->flags = req->flags;
	j->asked = 1;
	if (req->placement > PLACE_AUTO || ((req->flags & PEER_UNPACK) && req->placement))
		return -LE_INVAL;
	if (!j->source)
		return -LE_INVAL;
	TRY(choose_dirs(j, req->to));
	j->o = (struct leat_stage_options){
		.size = sizeof(j->o),
		.fs = j->a->fs,
		.source = j->source,
		.catalog = j->catalog,
		.to = j->to,
		.more_dirs = j->more[0] ? j->more : NULL,
		.capacity = req->capacity ? req->capacity : j->a->p.capacity,
		.timeout_ms = req->timeout_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)req->timeout_ms,
		.readback = (req->flags & PEER_READBACK) != 0,
		.unpack = (req->flags & PEER_UNPACK) != 0,
		.evict = (req->flags & PEER_MAKE_ROOM) != 0 || j->a->p.capacity != 0,
		.cancel = &j->cancel,
		.order = j->order,
		.first_window = req->window,
		.max_rate = req->max_rate,
		.reached = on_reached,
		.arg = j,
		.lease = j->lease,
		.ttl_s = req->ttl_s,
	};
	return j->lease && !store_name_ok(j->lease) ? -LE_INVAL : 0;
}

static int begin(struct agent_job *j)
{
	struct agent *a = j->a;
	TRY(stage_job_create(&j->o, &j->job));
	int rc = io_init(&j->job->io, a->fs, "agent");
	if (rc == 0) {
		j->job->pool = a->jobs_pool;
		j->job->throttle = j->o.max_rate ? NULL : &a->throttle;
		j->job->age_us = a->p.rights_ms * 1000ULL;
		j->job->name_rate = &a->name_rate;
		j->job->began = on_began;
		j->job->from_peer = from_swarm;
		j->job->peer_arg = j;
		j->job->placement = j->placement;
		j->job->copies = j->copies;
		j->job->place_capacity = j->capacity;
		j->job->node = j->members ? j->self : 0;
		j->job->n_nodes = swarm_count(j->members);
		j->running = true;
		rc = agent_spawn(a, "agent_job", job_fiber, j);
		if (rc < 0)
			io_fini(&j->job->io);
	}
	if (rc < 0) {
		j->running = false;
		stage_job_destroy(j->job);
		j->job = NULL;
	}
	return rc;
}

static void forget_old(struct agent *a)
{
	for (struct list *pos = a->jobs.next; pos != &a->jobs && a->n_jobs >= AGENT_JOBS_KEPT;) {
		struct agent_job *j = list_entry(pos, struct agent_job, link);
		pos = pos->next;
		if (!j->running)
			agent_job_free(j);
	}
}

/* Takes the lease of a further request for the copy of a running job. -LE_NOENT: the copy does
 * not exist yet. Yields. */
static int lease_too(struct agent_job *j, const struct peer_stage_req *req)
{
	char name[LEASE_NAME_MAX + 1] = "", id[MANIFEST_ID_SIZE], to[STORE_PATH_SIZE];
	struct copies_mark m = {name, req->ttl_s};
	struct stage_io *io = &j->a->io;
	if (req->lease.len == 0 || (same_text(j->lease, req->lease) && j->o.ttl_s == req->ttl_s))
		return 0;
	/* A copy unpacked from archives has another id, which is unknown yet. */
	if (j->o.unpack || req->lease.len > LEASE_NAME_MAX || !id_of(j)[0])
		return -LE_NOENT;
	memcpy(name, req->lease.data, req->lease.len);
	snprintf(id, sizeof(id), "%s", id_of(j));
	snprintf(to, sizeof(to), "%s", j->to);
	return copies_mark(io, to, id, MARK_LEASE, &m);
}

int agent_job_start(struct agent *a, const struct peer_stage_req *req, char *message, size_t size,
		    uint64_t *ret_number)
{
	struct agent_job *j = job_like(a, req);
	uint64_t number = j ? j->number : 0;
	if (j && lease_too(j, req) == 0) {
		j = agent_job_numbered(a, number, req->what);
		/* The job may have ended meanwhile; then the caller reads its result. */
		if (j && !j->cancel) {
			j->asked++;
			*ret_number = number;
			return LEAT_STAGE_DONE;
		}
	}
	if (a->stopping || a->n_running >= a->p.jobs_max) {
		snprintf(message, size, "this agent has %u jobs already", a->n_running);
		return LEAT_STAGE_AGENT;
	}
	forget_old(a);
	j = calloc(1, sizeof(*j));
	if (!j)
		return LEAT_STAGE_INTERNAL;
	j->magic = AGENT_JOB_MAGIC;
	j->a = a;
	j->number = ++a->last_job;
	list_push(&a->jobs, &j->link);
	a->n_jobs++;
	int rc = take_request(j, req);
	if (rc == 0)
		rc = begin(j);
	if (rc < 0) {
		snprintf(message, size, "cannot begin: %s", status_text(rc));
		agent_job_free(j);
		return rc == -LE_INVAL ? LEAT_STAGE_USAGE : LEAT_STAGE_INTERNAL;
	}
	a->n_running++;
	metric_add(&a->metrics.started, 1);
	metric_set(&a->metrics.jobs, a->n_running);
	*ret_number = j->number;
	return LEAT_STAGE_DONE;
}

void agent_jobs_end(struct agent *a)
{
	list_for_each (pos, &a->jobs)
		list_entry(pos, struct agent_job, link)->cancel = 1;
}

/* ---- reporting ---- */

static const char *state_word(const struct agent_job *j)
{
	if (!j->running)
		return j->r.code == 0                      ? (j->shared ? "SHARED" : "READY")
		       : j->r.code == LEAT_STAGE_CANCELLED ? "CANCELLED"
							   : "FAILED";
	if (j->reached >= LEAT_STAGE_STREAMABLE)
		return "STREAMABLE";
	return j->reached >= LEAT_STAGE_RESERVED ? "STAGING" : "PLANNED";
}

char *agent_job_json(const struct agent_job *j)
{
	const struct leat_stage_result *r = j->running ? j->job->r : &j->r;
	struct swarm_stats st = j->swarm_stats;
	if (j->swarm)
		swarm_stats(j->swarm, &st);
	json_t *o = json_pack(
		"{s:s,s:o,s:s,s:b,s:i,s:o,s:s,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:i,s:i,s:i}", "node",
		j->a->node, "what", text_json(j->source), "state", state_word(j), "running",
		j->running, "code", j->running ? 0 : r->code, "message",
		text_json(j->running ? "" : r->message), "id", id_of(j), "path",
		text_json(r->path), "files", (json_int_t)r->files, "bytes_total",
		(json_int_t)r->bytes, "bytes", (json_int_t)r->bytes_verified, "source",
		(json_int_t)r->bytes_source, "peers", (json_int_t)r->bytes_peers, "missing",
		(json_int_t)r->bytes_missing, "reached", (int)j->reached, "members",
		(int)st.members, "dropped", (int)st.dropped, "lied", (int)st.lied);
	if (o)
		stage_left_to_json(o, r);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

char *agent_json(struct agent *a)
{
	json_t *jobs = json_array(), *dirs = json_array();
	list_for_each (pos, &a->jobs) {
		const struct agent_job *j = list_entry(pos, struct agent_job, link);
		json_array_append_new(
			jobs, json_pack("{s:o,s:s}", "what", text_json(j->source), "state",
					state_word(j)));
	}
	for (uint32_t i = 0; i < a->n_dirs; i++)
		json_array_append_new(dirs, text_json(a->dirs[i]));
	json_t *o = json_pack("{s:s,s:s,s:o,s:i,s:o}", "node", a->node, "addr", a->addr, "dirs",
			      dirs, "copies", (int)a->n_copies, "jobs", jobs);
	char *net = agent_net(a);
	if (o && net)
		json_object_set_new(o, "net", json_loads(net, 0, NULL));
	free(net);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}
