/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/fanout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/fetch/peers.h"
#include "client/stage/job/job.h"
#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/rt/loop.h"
#include "common/rt/sim/sim.h"
#include "tests/sim/fanout_disk.h"

#define JOB_SLOTS     32u
#define SERVE_SLOTS   32u
#define LATENCY_US    200u
#define CONNECT_US    3000000u
#define LIMIT_S       3600u

struct fanout_node {
	struct fanout_world *world;
	uint32_t index;
	char addr[32];
	bool dead, lying, slow, ready, ended;
	int cancel, rc, code;
	uint64_t link_us, up_us, down_us; /* when the link is free again */
	uint64_t end_us, n_given;
	struct fanout_disk disk;
	struct local_store store;
	struct stage_job job; /* for what the swarm queries */
	struct detail d;
	struct fetch *fetch;
	struct swarm *swarm;
	struct swarm_stats stats;
	struct slot_pool *pool, *serve_pool;
	struct vol source;
};

struct fanout_world {
	struct fanout_plan plan;
	struct sim *sim;
	struct manifest *m;
	char *members;
	struct fanout_node *nodes;
	uint32_t n_ended, n_ready;
	uint64_t begin_us, servers_us, n_read;
};

/* ---- time ---- */

static void sleep_until(uint64_t at_us)
{
	uint64_t now = loop_now_us();
	int rc = at_us > now ? fiber_sleep_us(at_us - now) : 0;
	(void)rc;
}

/* Queues work that takes this time after the work that is queued. Returns when it is done. */
static uint64_t queue(uint64_t *free_us, uint64_t now, uint64_t takes)
{
	*free_us = (*free_us > now ? *free_us : now) + takes;
	return *free_us;
}

static void transfer(struct fanout_node *from, struct fanout_node *to)
{
	uint64_t now = loop_now_us(), sent = queue(&from->up_us, now, from->link_us),
		 got = queue(&to->down_us, now, to->link_us);
	sleep_until(sent > got ? sent : got);
}

/* ---- the source ---- */

struct source_file {
	struct vol_file file;
	struct fanout_node *node;
	uint32_t chunk;
};

static int source_open(struct vol *v, const char *path, int flags, uint32_t mode,
		       struct vol_file **ret_file)
{
	struct source_file *f = calloc(1, sizeof(*f));
	(void)flags;
	(void)mode;
	if (!f)
		return -LE_NOMEM;
	f->file.vol = v;
	f->node = container_of(v, struct fanout_node, source);
	f->chunk = (uint32_t)strtoul(strrchr(path, '/') + 2, NULL, 10);
	*ret_file = &f->file;
	return 0;
}

static void source_close(struct vol_file *f)
{
	free(container_of(f, struct source_file, file));
}

static int64_t source_pread(struct vol_file *file, void *buf, uint64_t len, uint64_t off)
{
	struct source_file *f = container_of(file, struct source_file, file);
	struct fanout_node *n = f->node;
	struct fanout_world *w = n->world;
	uint64_t now = loop_now_us();
	uint8_t data[FANOUT_CHUNK];
	ASSERT(off == 0 && len == sizeof(data));
	uint64_t served = queue(&w->servers_us, now, w->plan.servers_us),
		 got = queue(&n->down_us, now, n->link_us);
	sleep_until((served > got ? served : got) + LATENCY_US);
	w->n_read++;
	fanout_fill(f->chunk, data);
	memcpy(buf, data, len);
	return (int64_t)len;
}

static int source_stat(struct vol *v, const char *path, struct vol_stat *ret_st)
{
	(void)v;
	(void)path;
	*ret_st = (struct vol_stat){.size = FANOUT_CHUNK};
	return 0;
}

static const struct vol_ops source_ops = {
	.stat = source_stat, .open = source_open, .close = source_close, .pread = source_pread};

/* ---- the net: a request is a fiber of its own, as in a server ---- */

struct request {
	struct fanout_node *from, *to;
	struct swarm_ask q;
	struct swarm_answer a;
	uint8_t data[FANOUT_CHUNK];
	uint32_t refs;
	bool done;
	int rc;
	struct waitq q_done;
};

static void request_put(struct request *r)
{
	if (--r->refs == 0)
		free(r);
}

static int serve_job(struct request *r)
{
	struct slot *s = NULL;
	TRY(swarm_serve(r->to->swarm, r->to->fetch, &r->q, r->to->serve_pool, &s, &r->a));
	if (!s)
		return 0;
	memcpy(r->data, s->data, sizeof(r->data));
	transfer(r->to, r->from);
	slot_unref(s);
	return 1;
}

static void serve_fiber(void *arg)
{
	struct request *r = arg;
	struct fanout_node *n = r->to;
	sleep_until(loop_now_us() + LATENCY_US);
	if (n->fetch && n->swarm) {
		r->rc = serve_job(r);
	} else if (n->ready && fanout_disk_read(&n->disk, (uint32_t)r->q.chunk, r->data)) {
		r->a.len = FANOUT_CHUNK;
		transfer(n, r->from);
		r->rc = 1;
	} else {
		r->rc = -LE_NOENT; /* as an agent that does not have the list yet */
	}
	if (r->rc > 0) {
		n->n_given++;
		r->data[r->q.chunk % FANOUT_CHUNK] ^= n->lying;
		r->rc = 0;
	}
	if (n->dead)
		r->rc = -LE_DISCONNECTED;
	r->done = true;
	waitq_wake_all(&r->q_done);
	request_put(r);
}

static struct fanout_node *node_of(struct fanout_world *w, const char *addr)
{
	return &w->nodes[strtoul(addr + 4, NULL, 10)];
}

static int sim_ask(void *net, struct swarm_peer *p, const struct swarm_ask *q, struct slot *s,
		   struct swarm_answer *ret_answer)
{
	struct fanout_node *self = net, *to = node_of(self->world, p->addr);
	uint64_t end = loop_deadline_ms(q->wait_ms + 2000),
		 connect_end = loop_now_us() + CONNECT_US;
	while (to->dead) {
		if (p->away || self->dead || loop_now_us() >= connect_end)
			return -LE_DISCONNECTED;
		sleep_until(loop_now_us() + 50000);
	}
	struct request *r = calloc(1, sizeof(*r));
	if (!r)
		return -LE_NOMEM;
	*r = (struct request){.from = self, .to = to, .q = *q, .refs = 2};
	waitq_init(&r->q_done);
	int rc = fiber_spawn("serve", serve_fiber, r);
	if (rc < 0) {
		free(r);
		return rc;
	}
	while (rc == 0 && !r->done)
		rc = to->dead ? -LE_DISCONNECTED : waitq_wait(&r->q_done, end);
	if (rc == 0)
		rc = r->rc;
	if (rc == 0) {
		*ret_answer = r->a;
		memcpy(s->data, r->data, sizeof(r->data));
	}
	request_put(r);
	return rc;
}

static void sim_leave(void *net, struct swarm_peer *p)
{
	(void)net;
	(void)p;
}

/* Returns the metadata server's list after the time that a request for it takes. */
static int sim_look(void *net, const char *id,
		    int (*each)(void *arg, const char *addr, size_t len, bool ready), void *arg)
{
	struct fanout_node *self = net;
	struct fanout_world *w = self->world;
	(void)id;
	sleep_until(loop_now_us() + 1000);
	for (uint32_t i = 0; i < w->plan.n_nodes; i++) {
		struct fanout_node *n = &w->nodes[i];
		if (!n->dead)
			TRY(each(arg, n->addr, strlen(n->addr), n->ready));
	}
	return 0;
}

static const struct swarm_net_ops sim_net = {sim_ask, sim_leave, sim_look, NULL};

/* ---- a node ---- */

static int from_peer(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask how)
{
	return swarm_get(((struct fanout_node *)arg)->swarm, chunk, s, how);
}

static void on_report(void *arg, const struct fetch_report *r)
{
	((struct fanout_node *)arg)->job.source_us = r->source_us;
}

static int node_begin(struct fanout_node *n)
{
	struct fanout_world *w = n->world;
	TRY(fanout_disk_init(&n->disk, w->plan.n_chunks));
	TRY(slot_pool_create(FANOUT_CHUNK, JOB_SLOTS, &n->pool));
	TRY(slot_pool_create(FANOUT_CHUNK, SERVE_SLOTS, &n->serve_pool));
	TRY(store_init(&n->store, &n->disk.env, "/node", w->m->id));
	TRY(store_load_bitmap(&n->store, w->m));
	n->job.m = w->m;
	struct swarm_options so = {.ops = &sim_net,
				   .net = n,
				   .manifest = w->m,
				   .source_us = &n->job.source_us,
				   .self = n->addr,
				   .members = w->members,
				   .self_member = n->index};
	TRY(swarm_create(&so, &n->swarm));
	n->source = (struct vol){&source_ops, ORIGIN_SERVER};
	struct fetch_options fo = {.store = &n->store,
				   .manifest = w->m,
				   .source = &n->source,
				   .source_dir = "/set",
				   .report = on_report,
				   .arg = n,
				   .cancel = &n->cancel,
				   .turn = swarm_turn(n->swarm),
				   .pool = n->pool,
				   .from_peer = from_peer};
	return fetch_create(&fo, &n->d, &n->fetch);
}

static void node_end(struct fanout_node *n)
{
	struct fetch *ft = n->fetch;
	n->fetch = NULL;
	if (n->rc == 0) {
		n->ready = true;
		n->world->n_ready++;
	}
	fetch_destroy(ft);
	if (n->swarm)
		swarm_stats(n->swarm, &n->stats);
	n->ended = true;
	n->end_us = loop_now_us();
	n->world->n_ended++;
}

static void node_fiber(void *arg)
{
	struct fanout_node *n = arg;
	struct fetch_report report = {0};
	sleep_until(loop_now_us() + 1 +
		    sim_random_below(n->world->sim, (uint64_t)n->world->plan.start_us *
							   n->world->plan.n_nodes));
	n->rc = node_begin(n);
	if (n->rc == 0)
		n->rc = fetch_run(n->fetch, &report, &n->code);
	node_end(n);
}

static void death_fiber(void *arg)
{
	struct fanout_node *n = arg;
	const struct fanout_plan *p = &n->world->plan;
	uint64_t alone_us = (uint64_t)p->n_chunks * p->link_us;
	sleep_until(loop_now_us() + sim_random_below(n->world->sim, alone_us));
	n->dead = true;
	n->cancel = 1;
}

/* ---- a run ---- */

static int make_manifest(struct fanout_world *w)
{
	uint8_t data[FANOUT_CHUNK];
	char name[16];
	TRY(manifest_create(&w->m));
	for (uint32_t i = 0; i < w->plan.n_chunks; i++) {
		struct vol_stat st = {.size = FANOUT_CHUNK, .mode = 0644};
		fanout_name(i, name);
		TRY(manifest_add(w->m, name, &st, MANIFEST_BLOCK_MIN));
		fanout_fill(i, data);
		w->m->sums[i] = checksum64(data, sizeof(data));
	}
	manifest_finish(w->m);
	return 0;
}

static int make_nodes(struct fanout_world *w)
{
	const struct fanout_plan *p = &w->plan;
	size_t len = 0;
	w->nodes = calloc(p->n_nodes, sizeof(*w->nodes));
	w->members = calloc(p->n_nodes, sizeof(w->nodes->addr));
	if (!w->nodes || !w->members)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < p->n_nodes; i++) {
		struct fanout_node *n = &w->nodes[i];
		n->world = w;
		n->index = i;
		snprintf(n->addr, sizeof(n->addr), "node%u:7460", i);
		len += (size_t)snprintf(w->members + len, p->n_nodes * sizeof(n->addr) - len, "%s ",
					n->addr);
		n->store.lock_fd = -1;
		n->slow = sim_chance_ppm(w->sim, p->slow_ppm);
		n->lying = !n->slow && sim_chance_ppm(w->sim, p->lying_ppm);
		n->link_us = (uint64_t)p->link_us * (n->slow ? p->slow_by : 1);
	}
	return 0;
}

static void start(struct loop *loop, void *arg)
{
	struct fanout_world *w = arg;
	(void)loop;
	w->begin_us = loop_now_us();
	for (uint32_t i = 0; i < w->plan.n_nodes; i++) {
		struct fanout_node *n = &w->nodes[i];
		bool dies = !n->slow && !n->lying && sim_chance_ppm(w->sim, w->plan.dead_ppm);
		int rc = fiber_spawn("node", node_fiber, n);
		if (rc == 0 && dies)
			rc = fiber_spawn("death", death_fiber, n);
		ASSERT(rc == 0);
	}
}

static bool all_ended(void *arg)
{
	struct fanout_world *w = arg;
	return w->n_ended == w->plan.n_nodes;
}

static void fail(struct fanout_result *r, const struct fanout_node *n, const char *what)
{
	if (!r->failed)
		snprintf(r->failure, sizeof(r->failure), "%s: %s (%s, %.100s)", n->addr, what,
			 status_text(n->rc), n->d.what);
	r->failed = true;
}

static void judge(struct fanout_world *w, struct fanout_result *r)
{
	uint64_t most = 0;
	for (uint32_t i = 0; i < w->plan.n_nodes; i++) {
		struct fanout_node *n = &w->nodes[i];
		double took = (double)(n->end_us - w->begin_us) / 1e6;
		r->n_dead += n->dead;
		r->n_lying += n->lying;
		r->n_slow += n->slow;
		r->n_ready += n->ready;
		if (n->dead)
			continue;
		if (n->rc < 0 || !fanout_disk_is_whole(&n->disk))
			fail(r, n, "its copy is not whole");
		r->dropped += n->stats.dropped;
		r->lied += n->stats.lied;
		r->seconds_all = took > r->seconds_all ? took : r->seconds_all;
		if (!n->slow && took > r->seconds)
			r->seconds = took;
		if (n->n_given > most)
			most = n->n_given;
	}
	r->amplification = (double)w->n_read / w->plan.n_chunks;
	r->busiest = (double)most / w->plan.n_chunks;
}

void fanout_run(const struct fanout_plan *p, struct fanout_result *ret)
{
	struct fanout_world w = {.plan = *p};
	struct sim_options so = {0};
	*ret = (struct fanout_result){0};
	log_set_level((enum log_level) - 1);
	int rc = sim_create(p->seed, &so, &w.sim);
	struct sim_proc *proc = rc == 0 ? sim_proc_create(w.sim, "nodes") : NULL;
	if (rc == 0)
		rc = proc ? make_manifest(&w) : -LE_NOMEM;
	if (rc == 0)
		rc = make_nodes(&w);
	if (rc == 0)
		rc = sim_proc_start(proc, start, &w);
	if (rc == 0)
		rc = sim_run(w.sim, all_ended, &w, sim_now_us(w.sim) + LIMIT_S * 1000000ULL);
	if (rc < 0) {
		snprintf(ret->failure, sizeof(ret->failure), "%u of %u nodes have ended: %s",
			 w.n_ended, p->n_nodes, status_text(rc));
		ret->failed = true;
		return;
	}
	judge(&w, ret);
}
