/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and stop of a server, and the background fibers that have no module: expiry of sessions,
 * notices of a new cluster map to clients, free space of the disk, metrics.
 */
#include "mds/server.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/cluster/failure_detector.h"
#include "mds/cluster/membership.h"
#include "mds/cluster/registration.h"
#include "mds/dispatch.h"
#include "mds/file/give_up.h"
#include "mds/file/idle.h"
#include "mds/file/orphan_delay.h"
#include "mds/file/settle.h"
#include "mds/file/space_reclaim.h"
#include "mds/fsck_snapshot.h"
#include "mds/lease/assumed_open.h"
#include "mds/mds.h"
#include "mds/recovery.h"
#include "mds/session/lock_notify.h"
#include "mds/session/session_end.h"

#define TICK_MS          1000u
#define STORE_COMMITS_MS 4000u
#define DRAIN_MS         3000u
#define PROBE_MS         100u
#define PEERS_TOLD_MAX   16384u

/* ---- background fibers ---- */

static void store_commits(struct mds *m)
{
	while (mds_sleep_ms(m, STORE_COMMITS_MS) == 0)
		cluster_store_commits(&m->cluster);
}

static void watch_targets(struct mds *m)
{
	failure_detector_run(&m->cluster);
}

static struct session *find_expired(struct mds *m)
{
	uint64_t ttl_us = m->params.session_ttl_ms * 1000ull;

	list_for_each (n, &m->sessions.all) {
		struct session *se = list_entry(n, struct session, link);

		if (!se->ended && se->last_contact_us + ttl_us < loop_now_us())
			return se;
	}
	return NULL;
}

/* After a pause of this process, in which no client could contact it: adds the pause to the last
 * contact of all sessions. */
static void forgive(struct mds *m, uint64_t lost_us)
{
	list_for_each (n, &m->sessions.all)
		list_entry(n, struct session, link)->last_contact_us += lost_us;
	m->serving_us += lost_us;
}

static void expire_sessions(struct mds *m)
{
	uint64_t last_us = loop_now_us();

	while (mds_sleep_ms(m, TICK_MS) == 0) {
		uint64_t late_us = loop_now_us() - last_us - TICK_MS * 1000;
		struct session *se;

		if (late_us > TICK_MS * 1000 && late_us < UINT64_MAX / 2)
			forgive(m, late_us);
		last_us = loop_now_us();
		fsck_expire(m);
		data_settle_owed(m);
		while (!m->stopping && (se = find_expired(m)) != NULL) {
			log_warn("session %llu of %s expired", (unsigned long long)se->id,
				 se->name);
			if (session_end(m, se) < 0)
				break;
		}
	}
}

/* Refuses new files while some space is left for removals, and for RocksDB, which uses more
 * space for a while before a removal frees any. */
static void check_disk(struct mds *m)
{
	struct store *s = &m->store;
	struct kv_stats ks;
	uint64_t reserve;

	kv_stats(s->kv, &ks);
	reserve = m->params.reserve < ks.disk_size / 8 ? m->params.reserve : ks.disk_size / 8;
	metric_set(&m->metrics.disk_free_bytes, ks.disk_free);
	if (!s->short_of_space && ks.disk_free < reserve) {
		s->short_of_space = true;
		log_error("%s: %llu MiB are left on its disk, %llu are kept for removals: nothing "
			  "can be created (ENOSPC) until there is room. Remove files of the file "
			  "system, or what else lies on that disk",
			  m->params.data_dir, (unsigned long long)(ks.disk_free >> 20),
			  (unsigned long long)(reserve >> 20));
	} else if (s->short_of_space && ks.disk_free >= reserve + reserve / 8) {
		s->short_of_space = false;
		log_info("%s: there is room on its disk again", m->params.data_dir);
	}
}

static void sample(struct mds *m)
{
	struct chain_health h;
	struct mds_metrics *mm = &m->metrics;
	uint64_t now = loop_now_us(), requests = metric_get(&mm->requests),
		 mutations = metric_get(&mm->mutations);
	double s = (double)(now - m->sampled.at_us) / 1e6;
	struct rpc_net_totals net = {0};
	uint64_t total, free, n_targets = 0, up = 0, apart = 0;

	if (s > 0) {
		m->requests_s = (double)(requests - m->sampled.requests) / s;
		m->mutations_s = (double)(mutations - m->sampled.mutations) / s;
	}
	m->sampled.at_us = now;
	m->sampled.requests = requests;
	m->sampled.mutations = mutations;
	rpc_server_totals(m->server, &net);
	oss_totals(&m->oss, &net);
	NET_METRICS_SET(mm, &net);
	check_disk(m);
	cluster_space(&m->cluster, &total, &free);
	for (uint32_t i = 0; i < m->cluster.n_targets; i++) {
		const struct target_info *t = &m->cluster.targets[i]->info;

		if ((t->flags & TARGET_REMOVED) != 0)
			continue;
		n_targets++;
		up += t->state == TARGET_UP;
		apart += t->state == TARGET_UP && m->cluster.targets[i]->clock.watch.apart;
	}
	metric_set(&mm->capacity_bytes, total);
	metric_set(&mm->free_bytes, free);
	metric_set(&mm->targets, n_targets);
	metric_set(&mm->targets_up, up);
	metric_set(&mm->clocks_apart, apart);
	membership_health(&m->cluster, &h);
	metric_set(&mm->chains_degraded, h.degraded);
	metric_set(&mm->chains_down, h.down);
	metric_set(&mm->chains_lost, h.lost);
	metric_set(&mm->map_epoch, m->cluster.epoch);
	metric_set(&mm->sessions, m->sessions.n);
	metric_set(&mm->opens, m->opens.n_opens);
	metric_set(&mm->locks, m->locks.n);
	metric_set(&mm->lock_waits, m->locks.n_waits);
	metric_set(&mm->leases, m->leases.n);
	metric_set(&mm->inodes, m->store.counters.n_inodes);
}

static void stats_run(struct mds *m)
{
	do
		sample(m);
	while (mds_sleep_ms(m, TICK_MS) == 0);
}

/* ---- notices of a new map ---- */

struct notification {
	struct mds *m;
	struct rpc_peer *peer;
};

static void notify_peer(void *arg)
{
	struct notification *t = arg;
	struct cb_map_changed_req req = {t->m->cluster.epoch};
	struct cb_map_changed_rep rep;
	struct rpc_call call = {.op = OP_cb_map_changed,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(1000)};

	if (!t->peer->gone && rpc_callback(t->peer, &call) < 0)
		log_debug("%s could not be notified of the new map",
			  t->peer->name); /* it requests the map when it needs it */
	rpc_call_fini(&call);
	rpc_peer_unref(t->peer);
}

struct notifications {
	struct mds *m;
	struct notification *list;
	uint32_t n, cap;
};

static void collect(void *arg, struct rpc_peer *p)
{
	struct notifications *ts = arg;

	if (p->role == ROLE_OSSD || p->role == ROLE_MDS || p->gone || ts->n == PEERS_TOLD_MAX)
		return;
	if (ts->n == ts->cap) {
		uint32_t cap = ts->cap == 0 ? 64 : ts->cap * 2;
		struct notification *l = realloc(ts->list, cap * sizeof(*l));

		if (l == NULL)
			return;
		ts->list = l;
		ts->cap = cap;
	}
	rpc_peer_ref(p);
	ts->list[ts->n++] = (struct notification){ts->m, p};
}

static void notify_map(struct mds *m)
{
	uint32_t told = m->cluster.epoch;

	while (!m->stopping) {
		struct notifications ts = {.m = m};

		if (told == m->cluster.epoch) {
			if (waitq_wait(&m->cluster.changed, NO_DEADLINE) < 0)
				break;
			continue;
		}
		told = m->cluster.epoch;
		rpc_server_each_peer(m->server, collect, &ts);
		fiber_parallel("notify-map", notify_peer, ts.list, sizeof(*ts.list), ts.n, 64);
		free(ts.list);
	}
}

/* ---- rpc ---- */

static void peer_closed(void *arg, struct rpc_peer *p)
{
	struct mds *m = CAST_OBJ(arg, struct mds, MDS_MAGIC);

	if (p->role == ROLE_OSSD)
		failure_detector_peer_gone(&m->cluster, p->id);
	if (p->user != NULL)
		session_detach(session_of(p), p);
	p->user = NULL;
}

static void request_served(void *arg, const struct rpc_req *r, int status, uint64_t us)
{
	struct mds *m = CAST_OBJ(arg, struct mds, MDS_MAGIC);

	(void)r;
	metric_add(&m->metrics.requests, 1);
	if (status < 0)
		metric_add(&m->metrics.errors, 1);
	metric_hist_add(&m->metrics.request_us, us);
}

static int serve(struct mds *m)
{
	struct rpc_server_options ro = {
		.transport = m->transport,
		.addrs = m->params.listen,
		.name = "mds",
		.role = ROLE_MDS,
		.cluster = m->store.cluster.cluster,
		.key = m->key,
		.requests_max = m->params.requests_max,
		.connections_max = m->params.connections_max,
		.slow_ms = m->params.slow_ms,
		.arg = m,
		.closed = peer_closed,
		.served = request_served,
	};

	ro.handlers = dispatch_handlers(&ro.n_handlers);
	return rpc_server_create(&ro, &m->server);
}

/* ---- start ---- */

static void store_failed(void *arg, int status)
{
	struct mds *m = CAST_OBJ(arg, struct mds, MDS_MAGIC);

	if (m->failed != NULL)
		m->failed(m->failed_arg, status);
}

static int open_store(struct mds *m)
{
	struct store_options so = {
		.sync = m->params.sync,
		.cache_bytes = (uint64_t)m->params.cache_mib << 20,
		.kv_cache_bytes = (uint64_t)m->params.kv_cache_mib << 20,
		.kv_write_buffer_bytes = (uint64_t)m->params.kv_write_buffer_mib << 20,
		.kv_threads = m->params.kv_threads,
		.batch_ops_max = m->params.batch_ops_max,
		.lazy_us = m->params.lazy_us,
		.batch_bytes_max = m->params.batch_bytes_max,
		.metrics = &m->metrics,
		.failed = store_failed,
		.arg = m,
	};
	char path[CONFIG_STR_MAX + 16];

	snprintf(path, sizeof(path), "%s/store", m->params.data_dir);
	so.path = path;
	TRY(store_open(m->env, &so, &m->store));
	m->store.quotas.grace_ns = m->params.quota_grace_s * 1000000000ll;
	return 0;
}

/* The incarnation is durable before anything is done under it. */
static int new_incarnation(struct mds *m)
{
	struct store *s = &m->store;

	TRY(store_run(s));
	check_disk(m);
	TRY(txn_begin(s));
	s->cluster.incarnation++;
	txn_cluster(s);
	TRY(store_wait(s, txn_end(s)));
	m->intent_seq = m->removal_seq = s->cluster.incarnation << 32;
	return 0;
}

static void target_changed(void *arg, struct target *t)
{
	oss_target_changed(&CAST_OBJ(arg, struct mds, MDS_MAGIC)->oss, t);
}

static int send_chains(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
		       uint64_t deadline_us)
{
	struct oss_chain_set_req req = {chains, targets};
	struct oss_chain_set_rep rep;

	return oss_call_target(&CAST_OBJ(arg, struct mds, MDS_MAGIC)->oss, target,
			       OP_oss_chain_set, &req, &rep, deadline_us);
}

/* Returns 0 if no process listens on the target's addresses: at least one of them can be used
 * from this server, and each of those refuses the connection. */
static int probe_target(void *arg, const struct target *t)
{
	struct mds *m = CAST_OBJ(arg, struct mds, MDS_MAGIC);
	char addrs[1024], *save = NULL;
	bool refused = false;

	snprintf(addrs, sizeof(addrs), "%s", t->addrs);
	for (char *a = strtok_r(addrs, " ", &save); a != NULL; a = strtok_r(NULL, " ", &save)) {
		struct link *k;
		int rc =
			m->transport->ops->connect(m->transport, a, loop_deadline_ms(PROBE_MS), &k);

		if (rc == 0) {
			k->ops->shutdown(k);
			k->ops->close(k);
			return -LE_EXIST;
		}
		/* An address for verbs, which this server does not have. */
		if (rc == -LE_CONFIG)
			continue;
		if (rc != -LE_CONNREFUSED)
			return rc;
		refused = true;
	}
	return refused ? 0 : -LE_NODATA;
}

/* The time to live of sessions starts now: during the start clients could not contact the
 * server. */
static void sessions_may_return(struct mds *m)
{
	m->serving_us = env_now_us(m->env);
	list_for_each (n, &m->sessions.all)
		list_entry(n, struct session, link)->last_contact_us = m->serving_us;
}

static int start_parts(struct mds *m)
{
	TRY(new_incarnation(m));
	TRY(sessions_load(&m->sessions, &m->store, &m->params));
	TRY(cluster_load(&m->cluster, &m->store, &m->params));
	TRY(exports_load(&m->exports, &m->store));
	TRY(give_up_load(m));
	TRY(oss_init(&m->oss, &m->cluster, &m->params, m->transport, &m->key));
	m->cluster.target_changed = target_changed;
	m->cluster.send = send_chains;
	m->cluster.probe = probe_target;
	m->cluster.arg = m;
	for (uint32_t i = 0; i < m->cluster.n_targets; i++)
		oss_target_changed(&m->oss, m->cluster.targets[i]);
	/* Before requests are served: a tool that waits for a conversion takes it as ended when
	 * it is not listed. */
	TRY(conversions_start(m));
	TRY(recovery_start(m));
	/* Nothing yields between these two, so no request precedes sessions_may_return. */
	TRY(serve(m));
	sessions_may_return(m);
	TRY(membership_start(&m->cluster));
	TRY(mds_spawn(m, "watch-targets", watch_targets));
	TRY(mds_spawn(m, "store-commits", store_commits));
	TRY(mds_spawn(m, "expire", expire_sessions));
	TRY(mds_spawn(m, "notify-map", notify_map));
	TRY(mds_spawn(m, "reclaim", space_reclaim_run));
	TRY(mds_spawn(m, "orphan-delay", orphan_delay_run));
	TRY(mds_spawn(m, "notify-unlocked", locks_notify));
	TRY(mds_spawn(m, "query-opens", assumed_opens_query));
	TRY(give_up_go_on(m));
	return mds_spawn(m, "stats", stats_run);
}

static void init_parts(struct mds *m)
{
	/* If the start fails halfway, mds_stop finds everything empty. */
	waitq_init(&m->stop);
	waitq_init(&m->assumed_q);
	latch_init(&m->fibers, 0);
	open_files_init(&m->opens, m->params.opens_max);
	space_reclaim_init(&m->reclaim);
	locks_init(&m->locks, m->params.locks_max);
	leases_init(&m->leases, m->params.leases_max);
	orphan_delay_init(&m->orphan_delay);
	conversions_init(&m->conversions);
	residency_init(&m->residency);
	waitq_init(&m->cluster.changed);
	waitq_init(&m->cluster.settled);
	waitq_init(&m->cluster.work);
	latch_init(&m->cluster.tellers, 0);
	sessions_init(&m->sessions);
}

int mds_start(const struct mds_options *o, struct mds **ret_mds)
{
	struct mds *m = calloc(1, sizeof(*m));
	int rc;

	if (m == NULL)
		return -LE_NOMEM;
	m->magic = MDS_MAGIC;
	m->env = loop_env(loop_self());
	m->params = o->params;
	m->transport = o->transport;
	m->key = o->key;
	m->failed = o->failed;
	m->failed_arg = o->arg;
	m->start_us = loop_now_us();
	m->serving_us = UINT64_MAX;
	m->hooks = (struct mds_hooks){.inode_idle = data_idle, .session_back = recovery_session};
	cap_key_derive(&o->key, &m->cap_key);
	rc = open_store(m);
	if (rc < 0) {
		free(m);
		return rc;
	}
	init_parts(m);
	rc = start_parts(m);
	if (rc < 0) {
		mds_stop(m);
		return rc;
	}
	log_info("incarnation %llu, %llu inodes, %u sessions, %u targets%s",
		 (unsigned long long)m->store.cluster.incarnation,
		 (unsigned long long)m->store.counters.n_inodes, m->sessions.n,
		 m->cluster.n_targets, m->params.sync ? "" : ", durability none");
	*ret_mds = m;
	return 0;
}

void mds_stop(struct mds *m)
{
	m->stopping = true;
	waitq_wake_all(&m->stop);
	waitq_wake_all(&m->reclaim.work);
	waitq_wake_all(&m->orphan_delay.work);
	waitq_wake_all(&m->locks.work);
	waitq_wake_all(&m->assumed_q);
	cluster_stop(&m->cluster);
	oss_stop(&m->oss);
	if (m->server != NULL)
		rpc_server_destroy(m->server, DRAIN_MS);
	latch_wait(&m->fibers);
	latch_wait(&m->cluster.tellers);
	if (m->store.running)
		store_stop(&m->store);
	fsck_fini(m);
	give_up_fini(m);
	recovery_fini(m);
	locks_fini(&m->locks);
	residency_fini(&m->residency);
	leases_fini(&m->leases);
	open_files_fini(&m->opens);
	sessions_fini(&m->sessions);
	cluster_fini(&m->cluster);
	oss_fini(&m->oss);
	store_close(&m->store);
	m->magic = 0;
	free(m);
}

const char *mds_addrs(const struct mds *m)
{
	return rpc_server_addrs(m->server);
}

const struct mds_metrics *mds_metrics_of(const struct mds *m)
{
	return &m->metrics;
}
