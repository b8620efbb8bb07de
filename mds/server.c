/*
 * Start and stop, and what runs in the background: the watch over targets, expiry of sessions, news
 * of the map to clients, removal of data, the figures.
 */
#include "mds/server.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/detect.h"
#include "mds/dispatch.h"
#include "mds/membership.h"
#include "mds/op.h"
#include "mds/recall.h"
#include "mds/targets.h"

#define TICK_MS          1000u
#define STORE_COMMITS_MS 4000u
#define DRAIN_MS         3000u
#define PROBE_MS         100u
#define PEERS_TOLD_MAX   16384u

/* ---- background fibers ---- */

struct background {
	struct mds *m;
	void (*fn)(struct mds *m);
};

static void background(void *arg)
{
	struct background b = *(struct background *)arg;

	free(arg);
	b.fn(b.m);
	latch_done(&b.m->fibers);
}

int mds_spawn(struct mds *m, const char *name, void (*fn)(struct mds *m))
{
	struct background *b = malloc(sizeof(*b));
	int rc;

	if (b == NULL)
		return -LE_NOMEM;
	*b = (struct background){m, fn};
	latch_add(&m->fibers, 1);
	rc = fiber_spawn(name, background, b);
	if (rc < 0) {
		latch_done(&m->fibers);
		free(b);
	}
	return rc;
}

int mds_sleep_ms(struct mds *m, uint64_t ms)
{
	uint64_t until_us = loop_deadline_ms(ms);
	int rc;

	if (m->stopping)
		return -LE_SHUTDOWN;
	rc = waitq_wait(&m->stop, until_us);
	if (m->stopping)
		return -LE_SHUTDOWN;
	/* Or has the request's own time come? */
	return rc == -LE_TIMEDOUT && until_us <= fiber_deadline() ? 0 : rc;
}

static void store_commits(struct mds *m)
{
	while (mds_sleep_ms(m, STORE_COMMITS_MS) == 0)
		cluster_store_commits(&m->cluster);
}

static void watch_targets(struct mds *m)
{
	detect_run(&m->cluster);
}

static struct session *find_expired(struct mds *m)
{
	uint64_t ttl_us = m->params.session_ttl_ms * 1000ull;

	list_for_each (n, &m->sessions.all) {
		struct session *se = list_entry(n, struct session, link);

		if (!se->ended && se->heard_us + ttl_us < loop_now_us())
			return se;
	}
	return NULL;
}

/* If this process stood still, nobody could be heard. */
static void forgive(struct mds *m, uint64_t lost_us)
{
	list_for_each (n, &m->sessions.all)
		list_entry(n, struct session, link)->heard_us += lost_us;
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

static void sample(struct mds *m)
{
	struct mds_metrics *mm = &m->metrics;
	uint64_t now = loop_now_us(), requests = metric_get(&mm->requests),
		 mutations = metric_get(&mm->mutations);
	double s = (double)(now - m->sampled.at_us) / 1e6;
	struct rpc_net_totals net = {0};
	uint64_t total, free, up = 0;

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
	cluster_space(&m->cluster, &total, &free);
	for (uint32_t i = 0; i < m->cluster.n_targets; i++)
		up += m->cluster.targets[i]->info.state == TARGET_UP;
	metric_set(&mm->capacity_bytes, total);
	metric_set(&mm->free_bytes, free);
	metric_set(&mm->targets, m->cluster.n_targets);
	metric_set(&mm->targets_up, up);
	metric_set(&mm->map_epoch, m->cluster.epoch);
	metric_set(&mm->sessions, m->sessions.n);
	metric_set(&mm->opens, m->opens.n_opens);
	metric_set(&mm->locks, m->locks.n);
	metric_set(&mm->lock_waits, m->locks.n_waits);
	metric_set(&mm->leases, m->leases.n);
	metric_set(&mm->inodes, m->store.counters.n_inodes);
}

static void figures(struct mds *m)
{
	do
		sample(m);
	while (mds_sleep_ms(m, TICK_MS) == 0);
}

/* ---- news of the map ---- */

struct tell {
	struct mds *m;
	struct rpc_peer *peer;
};

static void tell_peer(void *arg)
{
	struct tell *t = arg;
	struct cb_map_changed_req req = {t->m->cluster.epoch};
	struct cb_map_changed_rep rep;
	struct rpc_call call = {.op = OP_cb_map_changed,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(1000)};

	if (!t->peer->gone && rpc_callback(t->peer, &call) < 0)
		log_debug("%s was not told of the new map",
			  t->peer->name); /* it asks when it needs to */
	rpc_call_fini(&call);
	rpc_peer_unref(t->peer);
}

struct tells {
	struct mds *m;
	struct tell *list;
	uint32_t n, cap;
};

static void collect(void *arg, struct rpc_peer *p)
{
	struct tells *ts = arg;

	if (p->role == ROLE_OSSD || p->role == ROLE_MDS || p->gone || ts->n == PEERS_TOLD_MAX)
		return;
	if (ts->n == ts->cap) {
		uint32_t cap = ts->cap == 0 ? 64 : ts->cap * 2;
		struct tell *l = realloc(ts->list, cap * sizeof(*l));

		if (l == NULL)
			return;
		ts->list = l;
		ts->cap = cap;
	}
	rpc_peer_ref(p);
	ts->list[ts->n++] = (struct tell){ts->m, p};
}

static void tell_map(struct mds *m)
{
	uint32_t told = m->cluster.epoch;

	while (!m->stopping) {
		struct tells ts = {.m = m};

		if (told == m->cluster.epoch) {
			if (waitq_wait(&m->cluster.changed, NO_DEADLINE) < 0)
				break;
			continue;
		}
		told = m->cluster.epoch;
		rpc_server_each_peer(m->server, collect, &ts);
		fiber_parallel("tell-map", tell_peer, ts.list, sizeof(*ts.list), ts.n, 64);
		free(ts.list);
	}
}

/* ---- sessions end ---- */

/* A session may have had a million leases and opens: others are served in between, and what ends
 * with an open is done for many at once. */
#define DROP_AT_ONCE  1024u
#define IDLE_AT_ONCE  256u
#define IDLE_PARALLEL 64u

/* Of one that has not returned it is not known. */
static bool may_have_writers(const struct session *se)
{
	if (se->from_store)
		return true;
	list_for_each (n, &se->opens)
		if (list_entry(n, struct open, by_session)->n_write > 0)
			return true;
	return false;
}

struct idling {
	struct mds *m;
	struct ino ino;
	int status;
};

static void idle_one(void *arg)
{
	struct idling *i = arg;

	i->status = data_idle(i->m, i->ino);
}

/* It is out of the tables: nothing may be left behind, whatever fails. Opens that are not looked
 * after now are orphans, and unsettled, until the next start. */
static int drop_all(struct mds *m, struct session *se)
{
	struct idling is[IDLE_AT_ONCE];
	int rc = 0;

	locks_drop_session(&m->locks, se->id);
	while (leases_drop_some(&m->leases, se, DROP_AT_ONCE))
		fiber_yield();
	while (!list_empty(&se->opens)) {
		uint32_t n = 0;

		while (n < IDLE_AT_ONCE && !list_empty(&se->opens)) {
			struct open *o = list_entry(se->opens.next, struct open, by_session);

			is[n++] = (struct idling){m, o->file->ino, 0};
			open_drop_all(&m->opens, o);
		}
		if (rc == 0 && m->stopping)
			rc = -LE_SHUTDOWN;
		if (rc == 0)
			fiber_parallel("idle", idle_one, is, sizeof(is[0]), n, IDLE_PARALLEL);
		for (uint32_t i = 0; i < n && rc == 0; i++)
			rc = is[i].status;
	}
	return rc;
}

int session_end(struct mds *m, struct session *se)
{
	const uint64_t deadline = fiber_deadline();
	bool mine;
	int rc = 0;

	session_ref(se);
	/* However long whoever asked is willing to wait: half an end would be none. */
	fiber_set_deadline(NO_DEADLINE);
	fmutex_lock(&m->sessions.lock);
	/* Or somebody else is at it, and waits for what has to be waited for. */
	mine = !se->ended;
	if (mine)
		rc = session_remove(&m->sessions, se);
	fmutex_unlock(&m->sessions.lock);
	/* What a silent client may still have on its way to object servers is refused once they
	 * know. Before that nobody else gets what it had, even if this server is being stopped. */
	if (mine && rc == 0 && !se->closing && may_have_writers(se))
		targets_await_fence(&m->cluster, m->sessions.gen);
	if (mine && rc == 0) {
		rc = drop_all(m, se);
		if (se->from_store && session_returned(&m->sessions, se))
			recovery_session(m);
	}
	fiber_set_deadline(deadline);
	session_unref(se);
	return rc;
}

/* ---- rpc ---- */

static void peer_closed(void *arg, struct rpc_peer *p)
{
	struct mds *m = arg;

	if (p->role == ROLE_OSSD)
		detect_peer_gone(&m->cluster, p->id);
	if (p->user != NULL)
		session_detach(p->user, p);
	p->user = NULL;
}

static void request_served(void *arg, const struct rpc_req *r, int status, uint64_t us)
{
	struct mds *m = arg;

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
	struct mds *m = arg;

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
	TRY(txn_begin(s));
	s->cluster.incarnation++;
	txn_cluster(s);
	TRY(store_wait(s, txn_end(s)));
	m->intent_seq = m->removal_seq = s->cluster.incarnation << 32;
	return 0;
}

static void target_changed(void *arg, struct target *t)
{
	oss_target_changed(&((struct mds *)arg)->oss, t);
}

static int send_chains(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
		       uint64_t deadline_us)
{
	struct oss_chain_set_req req = {chains, targets};
	struct oss_chain_set_rep rep;

	return oss_call_target(&((struct mds *)arg)->oss, target, OP_oss_chain_set, &req, &rep,
			       deadline_us);
}

/* 0 only when every address refuses that can be used here, and there is one: then no process is
 * there that could. */
static int probe_target(void *arg, const struct target *t)
{
	struct mds *m = arg;
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
		/* Verbs, where this server has none. */
		if (rc == -LE_CONFIG)
			continue;
		if (rc != -LE_CONNREFUSED)
			return rc;
		refused = true;
	}
	return refused ? 0 : -LE_NODATA;
}

/* From now on: however long the start took, they could not be heard. */
static void sessions_may_return(struct mds *m)
{
	m->serving_us = env_now_us(m->env);
	list_for_each (n, &m->sessions.all)
		list_entry(n, struct session, link)->heard_us = m->serving_us;
}

static int start_parts(struct mds *m)
{
	TRY(new_incarnation(m));
	TRY(sessions_load(&m->sessions, &m->store, &m->params));
	TRY(cluster_load(&m->cluster, &m->store, &m->params));
	TRY(exports_load(&m->exports, &m->store));
	TRY(oss_init(&m->oss, &m->cluster, &m->params, m->transport, &m->key));
	m->cluster.target_changed = target_changed;
	m->cluster.send = send_chains;
	m->cluster.probe = probe_target;
	m->cluster.arg = m;
	for (uint32_t i = 0; i < m->cluster.n_targets; i++)
		oss_target_changed(&m->oss, m->cluster.targets[i]);
	/* Before anybody can ask: who waits for one takes what is not listed for ended. */
	TRY(conversions_start(m));
	TRY(recovery_start(m));
	/* Nothing yields between these two: no request comes first. */
	TRY(serve(m));
	sessions_may_return(m);
	TRY(membership_start(&m->cluster));
	TRY(mds_spawn(m, "watch-targets", watch_targets));
	TRY(mds_spawn(m, "store-commits", store_commits));
	TRY(mds_spawn(m, "expire", expire_sessions));
	TRY(mds_spawn(m, "tell-map", tell_map));
	TRY(mds_spawn(m, "reclaim", reclaim_run));
	TRY(mds_spawn(m, "linger", linger_run));
	TRY(mds_spawn(m, "tell-unlocked", locks_tell));
	TRY(mds_spawn(m, "ask-presumed", recall_presumed));
	return mds_spawn(m, "figures", figures);
}

static void init_parts(struct mds *m)
{
	/* So that stopping halfway finds everything empty. */
	waitq_init(&m->stop);
	waitq_init(&m->presumed_q);
	latch_init(&m->fibers, 0);
	open_files_init(&m->opens, m->params.opens_max);
	reclaim_init(&m->reclaim);
	locks_init(&m->locks, m->params.locks_max);
	leases_init(&m->leases, m->params.leases_max);
	linger_init(&m->linger);
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
	waitq_wake_all(&m->linger.work);
	waitq_wake_all(&m->locks.work);
	waitq_wake_all(&m->presumed_q);
	cluster_stop(&m->cluster);
	oss_stop(&m->oss);
	if (m->server != NULL)
		rpc_server_destroy(m->server, DRAIN_MS);
	latch_wait(&m->fibers);
	latch_wait(&m->cluster.tellers);
	if (m->store.running)
		store_stop(&m->store);
	fsck_fini(m);
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
