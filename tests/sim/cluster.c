/* SPDX-License-Identifier: Apache-2.0 */
/* Building, breaking and healing the simulated cluster. See cluster.h. */
#include "tests/sim/cluster.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/kv/kv.h"
#include "common/kv/kv_sim.h"
#include "common/rpc/transport/transport_sim.h"
#include "mds/check.h"
#include "mds/format.h"
#include "ossd/check.h"
#include "ossd/format.h"
#include "tests/sim/admin.h"
#include "tests/sim/damage.h"
#include "tests/sim/peek.h"
#include "tests/sim/stores.h"

static const struct transport_sim_options calm = {.delay_us_max = 300};

static void crash_fenced(void *arg)
{
	struct node *n = arg;

	if (!n->running)
		return;
	n->cluster->count.fenced++;
	cluster_crash(n);
	cluster_start_client(n->cluster, (uint32_t)(n - n->cluster->client));
}

void cluster_end_fenced(struct cluster *c)
{
	struct ll_stats st;

	for (uint32_t i = 0; i <= CLIENTS_MAX; i++) {
		struct node *n = &c->client[i];

		if (!n->running || n->loop != loop_self())
			continue;
		ll_stats(n->client, &st);
		/* A client also counts as crashed if it got the error that a server has lost its
		 * writes, and that it repeated them too late: what it has not synced is undefined,
		 * as after a crash. */
		if (st.session == n->session && (st.late_writes == 0 || c->plan.late))
			return;
		if (sim_after(c->sim, 1, NULL, crash_fenced, n) < 0)
			return;
		for (;;)
			(void)!fiber_sleep_us(1000000);
	}
}

void cluster_fail(struct cluster *c, const char *fmt, ...)
{
	va_list ap;

	if (c->failed)
		return;
	if (loop_self() != NULL)
		cluster_end_fenced(c);
	c->failed = true;
	va_start(ap, fmt);
	vsnprintf(c->failure, sizeof(c->failure), fmt, ap);
	va_end(ap);
}

/* ---- parameters small enough that chunks, caches and tables are all exercised ---- */

static void mds_params_of(struct node *n, struct mds_params *p)
{
	struct config_section s = {"mds", mds_param_table, n_mds_params, p};

	config_defaults(&s, 1);
	snprintf(p->data_dir, sizeof(p->data_dir), "%s", n->dir);
	snprintf(p->listen, sizeof(p->listen), "%s", n->addr);
	p->metrics[0] = '\0';
	p->default_chunk_size = 64 << 10;
	p->cache_mib = 1;
	if (n->cluster->plan.replicas > 1)
		p->heads_after_ms = 1500;
	/* So that the damaged member becomes head again, and requests reach the damage before a
	 * scrub. */
	if (n->cluster->plan.damaged)
		p->heads_after_ms = 300;
	if (n->cluster->plan.contended) {
		p->heads_after_ms = 600;
		p->chains_per_target = 1;
	}
	if (n->cluster->plan.move_members)
		p->replace_after_ms = 4000;
	/* Not much longer than most network cuts last: some clients are fenced. */
	p->client_lease_ms = 4000;
}

static void ossd_params_of(struct node *n, struct ossd_params *p)
{
	struct config_section s = {"ossd", ossd_param_table, n_ossd_params, p};

	config_defaults(&s, 1);
	snprintf(p->data_dir, sizeof(p->data_dir), "%s", n->dir);
	snprintf(p->listen, sizeof(p->listen), "%s", n->addr);
	snprintf(p->host, sizeof(p->host), "%s", n->name);
	p->metrics[0] = '\0';
	p->data_size = 24 << 20;
	p->grow_step = 4 << 20;
	p->zero_ahead = 1 << 20;
	p->slots = p->read_slots = 16;
	p->small_slots = 64;
	/* A row that a test removes must be read from the disk, not from the cache. */
	p->cache_size = n->cluster->plan.damage ? 2 << 10 : 1 << 20;
	/* So that many writes are repeated after the grace period. */
	if (n->cluster->plan.late)
		p->grace_ms = 1000;
	if (n->cluster->plan.log_max)
		p->resync_log_max = n->cluster->plan.log_max;
}

static void client_params_of(const struct cluster *c, struct client_params *p)
{
	struct config_section s = {"client", client_param_table, n_client_params, p};

	config_defaults(&s, 1);
	p->request_timeout_ms = 3600000; /* nothing fails: servers always return */
	p->mount_timeout_ms = 3600000;
	p->slot_memory = 32 << 20;
	if (c->plan.few_kept)
		p->inodes_max = p->names_max = 4;
}

/* ---- servers ---- */

static void mds_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct mds_options o = {.transport = n->cluster->transport, .key = n->cluster->key};
	int status = 0;

	n->loop = loop;
	mds_params_of(n, &o.params);
	if (!n->formatted)
		status = mds_format(loop_env(loop), &o.params, NULL);
	n->formatted = true;
	if (status == 0)
		status = mds_start(&o, &n->mds);
	if (status < 0)
		cluster_fail(n->cluster, "mds does not start: %s", status_name(status));
	n->running = true;
}

static void ossd_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct ossd_options o = {.transport = n->cluster->transport,
				 .key = n->cluster->key,
				 .mds_addrs = n->cluster->mds.addr};
	int status = 0;

	n->loop = loop;
	ossd_params_of(n, &o.params);
	if (!n->formatted)
		status = ossd_format(loop_env(loop), &o.params, false);
	n->formatted = true;
	if (status == 0)
		status = ossd_start(&o, &n->ossd);
	if (status < 0)
		cluster_fail(n->cluster, "%s does not start: %s", n->name, status_name(status));
	n->running = true;
}

static void node_init(struct cluster *c, struct node *n, const char *name)
{
	n->cluster = c;
	snprintf(n->name, sizeof(n->name), "%s", name);
	snprintf(n->dir, sizeof(n->dir), "/%s", name);
	snprintf(n->addr, sizeof(n->addr), "%s:1", name);
	n->proc = sim_proc_create(c->sim, n->name);
	n->formatted = false;
}

static void node_start(struct node *n)
{
	n->want_up = true;
	n->running = false;
	n->mds = NULL;
	n->ossd = NULL;
	n->kv = NULL;
	int status = sim_proc_start(n->proc, n == &n->cluster->mds ? mds_main : ossd_main, n);
	if (status < 0)
		cluster_fail(n->cluster, "%s: %s", n->name, status_name(status));
}

void cluster_restart(struct node *n)
{
	cluster_crash(n);
	node_start(n);
}

void cluster_crash(struct node *n)
{
	n->want_up = n->running = false;
	sim_proc_crash(n->proc);
}

static bool servers_up(void *arg)
{
	struct cluster *c = arg;

	if (!c->mds.running)
		return false;
	for (int i = 0; i < N_OSSD; i++)
		if (!c->ossd[i].running || !ossd_ready(c->ossd[i].ossd))
			return false;
	return true;
}

static bool chains_whole(void *arg)
{
	struct cluster *c = arg;

	return c->mds.running && c->mds.mds != NULL && peek_all_sync(c->mds.mds);
}

/* One for each process: stores have no pointer to their cluster. */
static struct cluster *simulated;

static int open_kv(struct env *env, const char *path, const struct kv_options *o,
		   struct kv **ret_kv)
{
	TRY(kv_sim_open(env, path, o, ret_kv));
	for (int i = 0; i < N_OSSD; i++) {
		struct node *n = &simulated->ossd[i];
		size_t len = strlen(n->dir);

		if (strncmp(path, n->dir, len) == 0 && path[len] == '/')
			n->kv = *ret_kv;
	}
	return 0;
}

int cluster_start(struct cluster *c, const struct plan *plan)
{
	struct sim_options so = {.kv_open = open_kv,
				 .disk_us_max = plan->slow_disks ? 15000 : 0};
	char name[16];

	memset(c, 0, sizeof(*c));
	simulated = c;
	c->plan = *plan;
	TRY(sim_create(plan->seed, &so, &c->sim));
	TRY(transport_sim_create(c->sim, &calm, &c->transport));
	memset(&c->key, 7, sizeof(c->key));
	node_init(c, &c->mds, "mds");
	node_start(&c->mds);
	for (int i = 0; i < N_OSSD; i++) {
		snprintf(name, sizeof(name), "ossd%d", i + 1);
		node_init(c, &c->ossd[i], name);
		node_start(&c->ossd[i]);
	}
	node_init(c, &c->admin, "admin");
	for (uint32_t i = 0; i <= CLIENTS_MAX; i++) {
		snprintf(name, sizeof(name), "client%u", i);
		node_init(c, &c->client[i], name);
	}
	cluster_run(c, servers_up, c, 60);
	return c->failed ? -LE_IO : 0;
}

/* ---- clients ---- */

static void client_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct cluster *c = n->cluster;
	struct client_options o = {.transport = c->transport,
				   .key = c->key,
				   .mds_addrs = c->mds.addr,
				   .name = n->name};
	struct client *client;

	n->loop = loop;
	client_params_of(c, &o.params);
	int status = client_create(&o, &client);
	if (status < 0) {
		cluster_fail(c, "%s cannot mount: %s", n->name, status_name(status));
		return;
	}
	struct ll_stats st;
	ll_stats(client, &st);
	n->client = client;
	n->session = st.session;
	n->running = true;
	c->client_main(c, (uint32_t)(n - c->client), client);
}

void cluster_start_client(struct cluster *c, uint32_t index)
{
	struct node *n = &c->client[index];

	n->want_up = true;
	n->running = false;
	int status = sim_proc_start(n->proc, client_main, n);
	if (status < 0)
		cluster_fail(c, "%s: %s", n->name, status_name(status));
}

/* ---- faults ---- */

static void restart_node(void *arg)
{
	struct node *n = arg;

	struct cluster *c = n->cluster;

	/* After faults have ended, cluster_heal has started the server. */
	if ((c->faults_on || c->back_by_itself) && !c->failed && !n->want_up && !n->gone)
		node_start(n);
}

/* With several replicas some servers stay down so long that their members are replaced. */
static uint64_t away_us(struct cluster *c)
{
	bool longer = c->plan.replicas > 1 && sim_random_below(c->sim, 4) == 0;

	return 1 + sim_random_below(c->sim, longer ? 12000000 : 3000000);
}

void cluster_crash_for(struct node *n, uint64_t for_us)
{
	struct cluster *c = n->cluster;

	if (!n->running)
		return;
	c->count.server_crashes++;
	cluster_crash(n);
	if (sim_after(c->sim, for_us, NULL, restart_node, n) < 0)
		cluster_fail(c, "no memory");
}

static void crash_server(struct cluster *c)
{
	uint64_t i = sim_random_below(c->sim, N_OSSD + 1);

	cluster_crash_for(i == N_OSSD ? &c->mds : &c->ossd[i], away_us(c));
}

void cluster_cut_power(struct cluster *c)
{
	bool mds_too = sim_random_below(c->sim, 2);

	c->count.power_cuts++;
	for (int i = 0; i < N_OSSD; i++)
		cluster_crash_for(&c->ossd[i], away_us(c));
	if (mds_too)
		cluster_crash_for(&c->mds, away_us(c));
}

struct cut {
	struct cluster *cluster;
	const char *a, *b;
};

static void heal_cut(void *arg)
{
	struct cut *cut = arg;

	transport_sim_partition(cut->cluster->transport, cut->a, cut->b, false);
	cut->cluster->n_cuts--;
	free(cut);
}

/* Servers first. */
static struct node *node_at(struct cluster *c, uint64_t i)
{
	if (i < N_OSSD)
		return &c->ossd[i];
	return i == N_OSSD ? &c->mds : &c->client[i - N_OSSD - 1];
}

static void cut_pair(struct cluster *c, const struct node *a, const struct node *b, uint64_t for_us)
{
	struct cut *cut = malloc(sizeof(*cut));

	if (cut == NULL)
		return;
	*cut = (struct cut){c, a->name, b->name};
	transport_sim_partition(c->transport, cut->a, cut->b, true);
	c->n_cuts++;
	if (sim_after(c->sim, for_us, NULL, heal_cut, cut) < 0)
		cluster_fail(c, "no memory");
}

void cluster_cut_from(struct node *n, uint64_t i, uint64_t for_us)
{
	struct cluster *c = n->cluster;
	struct node *other = node_at(c, i);

	if (other == n)
		return;
	c->count.partitions++;
	cut_pair(c, n, other, for_us);
}

static void cut_network(struct cluster *c)
{
	/* Without replicas object servers have no requests for each other. */
	uint64_t first = c->plan.replicas > 1 ? 0 : N_OSSD;
	uint64_t i = sim_random_below(c->sim, N_OSSD + 1);
	uint64_t j = first + sim_random_below(c->sim, N_OSSD + 1 + c->plan.n_clients - first);

	if (i == j)
		return;
	c->count.partitions++;
	cut_pair(c, node_at(c, i), node_at(c, j), 1 + sim_random_below(c->sim, 5000000));
}

/* Cuts a server off from every other node. It looks like a server that has stopped. */
static void isolate(struct cluster *c)
{
	uint64_t i = sim_random_below(c->sim, N_OSSD + 1);
	uint64_t for_us = 1 + sim_random_below(c->sim, 8000000);

	c->count.isolations++;
	for (uint64_t j = 0; j < N_OSSD + 1 + c->plan.n_clients; j++)
		if (j != i)
			cut_pair(c, node_at(c, i), node_at(c, j), for_us);
}

static void crash_client(struct cluster *c)
{
	struct node *n = &c->client[sim_random_below(c->sim, c->plan.n_clients)];

	if (!n->running)
		return;
	c->count.client_crashes++;
	cluster_crash(n);
	cluster_start_client(c, (uint32_t)(n - c->client));
}

static void draw_rare_fault(struct cluster *c)
{
	if (sim_random_below(c->sim, 3) == 0 && c->plan.crash_servers)
		cluster_cut_power(c);
	else if (c->plan.cut_network)
		isolate(c);
}

/* Splits the network into two parts: each has clients and members, one has the metadata server. */
static void split(struct cluster *c)
{
	uint64_t side = sim_random(c->sim), for_us = 1 + sim_random_below(c->sim, 4000000);

	c->count.partitions++;
	for (uint64_t i = 0; i < N_OSSD + 1 + c->plan.n_clients; i++)
		for (uint64_t j = 0; j < i; j++)
			if ((side >> i & 1) != (side >> j & 1))
				cut_pair(c, node_at(c, i), node_at(c, j), for_us);
}

/* Leaves one member and one client connected only to each other, for longer than a lease: the
 * client must not read data that lacks what other clients write meanwhile. */
static void strand(struct cluster *c, uint64_t member, uint64_t client)
{
	uint64_t for_us = 2000000 + sim_random_below(c->sim, 2500000);

	c->count.partitions++;
	for (uint64_t j = 0; j < N_OSSD + 1 + c->plan.n_clients; j++) {
		if (j != member && j != client) {
			cut_pair(c, node_at(c, member), node_at(c, j), for_us);
			cut_pair(c, node_at(c, client), node_at(c, j), for_us);
		}
	}
}

static void draw_contended_fault(struct cluster *c)
{
	uint64_t kind = sim_random_below(c->sim, 12);
	struct node *n = &c->ossd[sim_random_below(c->sim, N_OSSD)];
	uint64_t client = N_OSSD + 1 + sim_random_below(c->sim, c->plan.n_clients);

	if (kind < 3 && c->plan.crash_servers) {
		cluster_crash_for(n, away_us(c));
	} else if (kind == 3 && c->plan.crash_servers) {
		cluster_cut_power(c);
	} else if (kind < 6 && c->plan.cut_network) {
		split(c);
	} else if (kind < 9 && c->plan.cut_network) {
		c->count.partitions++;
		cut_pair(c, n, node_at(c, client), 1 + sim_random_below(c->sim, 1500000));
	} else if (kind == 9 && c->plan.cut_network) {
		c->count.partitions++;
		cut_pair(c, n, &c->mds, 1 + sim_random_below(c->sim, 4000000));
	} else if (kind == 10 && c->plan.crash_clients) {
		crash_client(c);
	} else if (kind == 11 && c->plan.cut_network) {
		strand(c, (uint64_t)(n - c->ossd), client);
	}
}

static void draw_names_fault(struct cluster *c)
{
	uint64_t kind = sim_random_below(c->sim, 10);
	uint64_t client = N_OSSD + 1 + sim_random_below(c->sim, c->plan.n_clients);

	if (kind < 5 && c->plan.crash_servers)
		cluster_crash_for(&c->mds, 1 + sim_random_below(c->sim, 1000000));
	else if (kind < 8 && c->plan.cut_network)
		cluster_cut_from(&c->mds, client, 1 + sim_random_below(c->sim, 1500000));
	else if (kind == 8 && c->plan.crash_clients)
		crash_client(c);
}

/* Mostly crashes a server, and cuts off a client until the server serves others: what the client
 * wrote last was accepted, and is not durable. */
static void draw_late_fault(struct cluster *c)
{
	uint64_t kind = sim_random_below(c->sim, 10);
	struct node *n = &c->ossd[sim_random_below(c->sim, N_OSSD)];
	uint64_t client = N_OSSD + 1 + sim_random_below(c->sim, c->plan.n_clients);

	if (kind < 5) {
		if (c->plan.cut_network)
			cluster_cut_from(n, client, 1200000 + sim_random_below(c->sim, 1500000));
		cluster_crash_for(n, 1 + sim_random_below(c->sim, 300000));
	} else if (kind == 5 && c->plan.crash_clients) {
		crash_client(c);
	} else if (kind < 8 && c->plan.cut_network) {
		cluster_cut_from(n, client, 1 + sim_random_below(c->sim, 1500000));
	} else if (c->plan.crash_servers) {
		cluster_crash_for(n, away_us(c));
	}
}

/* Mostly the metadata server crashes: a removal of lost targets has to continue after its
 * restart. */
static void draw_lose_fault(struct cluster *c)
{
	struct node *n = &c->ossd[sim_random_below(c->sim, N_OSSD)];

	if (sim_random_below(c->sim, 3) > 0)
		cluster_crash_for(&c->mds, 1 + sim_random_below(c->sim, 600000));
	else if (c->plan.crash_servers)
		cluster_crash_for(n, 1 + sim_random_below(c->sim, 1500000));
}

static void draw_any_fault(struct cluster *c)
{
	uint64_t kind = sim_random_below(c->sim, 10);

	if (kind < 5 && c->plan.crash_servers)
		crash_server(c);
	else if (kind < 8 && c->plan.cut_network)
		cut_network(c);
	else if (kind == 8 && c->plan.crash_clients)
		crash_client(c);
	else if (kind == 9 && c->plan.replicas > 1)
		draw_rare_fault(c);
}

static void set_clock(struct cluster *c, struct node *n)
{
	static const int64_t s[] = {0, 1, 3600, 10 * 86400, 11 * 365 * 86400};
	int64_t ahead_us = s[sim_random_below(c->sim, ARRAY_SIZE(s))] * 1000000;

	sim_proc_set_wall(n->proc, sim_random_below(c->sim, 2) ? ahead_us : -ahead_us);
}

static void draw_clock(struct cluster *c)
{
	if (c->plan.clocks && sim_random_below(c->sim, 3) == 0)
		set_clock(c, node_at(c, sim_random_below(c->sim, N_OSSD + 1 + c->plan.n_clients)));
}

static void draw_fault(void *arg)
{
	struct cluster *c = arg;

	if (!c->faults_on || c->failed)
		return;
	draw_clock(c);
	if (c->damage != NULL && damage_draw(c->damage))
		;
	else if (c->plan.lose)
		draw_lose_fault(c);
	else if (c->plan.names)
		draw_names_fault(c);
	else if (c->plan.late)
		draw_late_fault(c);
	else if (c->plan.contended && (!c->plan.cuts || sim_random_below(c->sim, 2)))
		draw_contended_fault(c);
	else
		draw_any_fault(c);
	uint64_t most = c->damage != NULL && damage_waits(c->damage) ? 200000 : 1500000;

	if (sim_after(c->sim, 1 + sim_random_below(c->sim, most), NULL, draw_fault, c) < 0)
		cluster_fail(c, "no memory");
}

void cluster_start_faults(struct cluster *c)
{
	struct transport_sim_options wild = {
		.delay_us_max = 2000,
		.lose_ppm = 3000,
		.double_ppm = 5000,
		.reorder_ppm = 20000,
		.break_ppm = 500,
		.corrupt_ppm = 500,
	};

	c->faults_on = true;
	c->admin_done = !c->plan.move_members;
	if (c->plan.move_members)
		admin_start(c);
	if (c->plan.late_copies) {
		wild.double_ppm = 50000;
		wild.double_late_us_max = 30000;
	}
	/* So that replies of executed changes are missing when another member becomes head. */
	if (c->plan.contended)
		wild.lose_ppm = 10000;
	if (c->plan.damage_frames)
		transport_sim_set_options(c->transport, &wild);
	if (c->plan.damage)
		damage_start(c);
	draw_fault(c);
}

static bool nobody_orders(void *arg)
{
	const struct cluster *c = arg;

	return c->admin_done;
}

void cluster_heal(struct cluster *c)
{
	c->faults_on = false;
	transport_sim_set_options(c->transport, &calm);
	for (int i = 0; i <= N_OSSD; i++) {
		struct node *a = node_at(c, (uint64_t)i);

		for (uint64_t j = 0; j < N_OSSD + 1 + c->plan.n_clients; j++)
			transport_sim_partition(c->transport, a->name, node_at(c, j)->name, false);
		if (!a->want_up)
			node_start(a);
	}
	cluster_run(c, servers_up, c, 120);
	if (!c->failed)
		cluster_run(c, nobody_orders, c, 120);
	if (!c->failed && c->damage != NULL)
		cluster_run(c, damage_over, c->damage, 300);
	if (!c->failed && c->plan.replicas > 1)
		cluster_run(c, chains_whole, c, 300);
	if (!c->failed && c->damage != NULL)
		damage_lose_chunks(c->damage);
}

struct until {
	struct cluster *cluster;
	bool (*fn)(void *arg);
	void *arg;
};

static bool until_or_failed(void *arg)
{
	struct until *u = arg;

	return u->cluster->failed || u->fn(u->arg);
}

void cluster_run(struct cluster *c, bool (*until)(void *arg), void *arg, uint64_t limit_s)
{
	struct until u = {c, until, arg};
	int status = sim_run(c->sim, until_or_failed, &u, sim_now_us(c->sim) + limit_s * 1000000);

	if (status < 0)
		cluster_fail(c, "stuck: not done after %llu virtual seconds (%s)",
			     (unsigned long long)limit_s, status_name(status));
	c->count.events = sim_events(c->sim);
	c->count.virtual_ms = sim_now_us(c->sim) / 1000;
}

/* ---- offline checks ---- */

static void check_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct cluster *c = n->cluster;
	uint64_t problems = 0;
	char *text = NULL;
	size_t len;
	FILE *report = open_memstream(&text, &len);
	int status;

	if (n == &c->mds) {
		struct mds_params p;
		mds_params_of(n, &p);
		status = mds_check(loop_env(loop), &p, false, report, &problems);
	} else {
		struct ossd_params p;
		ossd_params_of(n, &p);
		status = ossd_check(loop_env(loop), &p, true, report, &problems);
	}
	fclose(report);
	if (status < 0)
		cluster_fail(c, "check of %s: %s", n->name, status_name(status));
	else if (problems)
		cluster_fail(c, "check of %s finds %llu problems: %.300s", n->name,
			     (unsigned long long)problems, text);
	free(text);
	if (n != &c->mds && c->stores != NULL)
		status = stores_read(c->stores, (uint32_t)(n - c->ossd), loop_env(loop));
	if (status < 0)
		cluster_fail(c, "index of %s: %s", n->name, status_name(status));
	n->running = true;
}

static bool all_checked(void *arg)
{
	struct cluster *c = arg;

	if (!c->mds.running)
		return false;
	for (int i = 0; i < N_OSSD; i++)
		if (!c->ossd[i].running)
			return false;
	return true;
}

void cluster_check_stores(struct cluster *c)
{
	for (int i = 0; i <= N_OSSD; i++) {
		struct node *n = i == N_OSSD ? &c->mds : &c->ossd[i];
		cluster_crash(n);
		if (sim_proc_start(n->proc, check_main, n) < 0)
			cluster_fail(c, "cannot start the check of %s", n->name);
	}
	cluster_run(c, all_checked, c, 600);
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

void cluster_compare_stores(struct cluster *c)
{
	int status;

	/* What no reply has reported may still be in flight: lazy rows, notices. */
	status = sim_run(c->sim, never, NULL, sim_now_us(c->sim) + 3000000);
	if (status != -LE_TIMEDOUT)
		cluster_fail(c, "nothing happens any more");
	cluster_run(c, chains_whole, c, 60);
	if (c->failed)
		return;
	c->stores = stores_create(c);
	if (c->stores == NULL)
		return;
	stores_note_chains(c->stores);
	cluster_check_stores(c);
	if (!c->failed)
		stores_compare(c->stores);
	stores_destroy(c->stores);
	c->stores = NULL;
	for (int i = 0; i <= N_OSSD && !c->failed; i++) {
		cluster_crash(node_at(c, (uint64_t)i));
		node_start(node_at(c, (uint64_t)i));
	}
	cluster_run(c, servers_up, c, 120);
}

/* ---- for debugging: chunks that should have been removed from the disks ---- */

static int print_chunk(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	const uint8_t *k = key;
	struct node *n = arg;

	(void)value;
	printf("  %s:", n->name);
	for (size_t i = 0; i < key_len; i++)
		printf(i == 1 || i == 9 || i == 13 ? " %02x" : "%02x", k[i]);
	printf(" (%zu bytes)\n", len);
	return 0;
}

static void dump_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct kv_options o = {.create = false};
	char path[64];
	struct kv *kv;
	bool more;

	snprintf(path, sizeof(path), "%s/index", n->dir);
	struct kv_range range = {"K", 1, "L", 1, 1000};
	if (kv_open(loop_env(loop), path, &o, &kv) == 0 &&
	    kv_scan(kv, NULL, &range, print_chunk, n, &more) < 0)
		printf("  %s: cannot be read\n", n->name);
	n->running = true;
}

void cluster_dump_chunks(struct cluster *c)
{
	for (int i = 0; i < N_OSSD; i++) {
		cluster_crash(&c->ossd[i]);
		if (sim_proc_start(c->ossd[i].proc, dump_main, &c->ossd[i]) < 0)
			return;
	}
	c->mds.running = true;
	c->failed = false;
	cluster_run(c, all_checked, c, 10);
	c->failed = true;
}
