/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/registration.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "ossd/chain/chains.h"
#include "ossd/chain/maintenance.h"

#define CALL_MS     5000u
#define LAST_MS     500u
#define EXPIRE_STEP 1024u

static uint64_t earlier(uint64_t now, uint64_t ms)
{
	return now > ms * 1000 ? now - ms * 1000 : 0;
}

/* ---- sessions ---- */

static bool is_alive(void *arg, uint64_t session)
{
	return session == 1 || fence_has_session(arg, session);
}

/* Deletes rows of sessions that have ended. Rows used since asked_us, when the list was requested,
 * may belong to a newer session: they stay. */
static int expire_rows(struct target *t, uint64_t asked_us)
{
	struct chunk_store *s = t->store;
	uint32_t n;

	do {
		struct kv_batch *b = group_commit_batch(&s->gc);

		TRY(chunk_store_status(s));
		n = replay_expire(&s->replay, b, asked_us, EXPIRE_STEP, is_alive, &t->fence);
		n += writer_sessions_expire(&s->writers, b, asked_us, EXPIRE_STEP - n, is_alive,
					    &t->fence);
		if (n)
			TRY(group_commit_wait(&s->gc, group_commit_join(&s->gc, NULL, false)));
	} while (n == EXPIRE_STEP);
	return 0;
}

static int take_sessions(struct fence *f, const struct mds_session_list_rep *rep)
{
	size_t n = rep->sessions.len / sizeof(uint64_t);
	uint64_t *ids = calloc(n + 1, sizeof(*ids));
	struct wire_r w;

	if (!ids)
		return -LE_NOMEM;
	wire_r_init(&w, rep->sessions.data, rep->sessions.len);
	for (size_t i = 0; i < n; i++)
		wire_get_u64(&w, &ids[i]);
	fence_set(f, rep->gen, ids, n, rep->newest);
	return 0;
}

/* Fetches the set of live sessions. contact_us: send time of the request that was answered with the
 * news of another set. */
static int learn_sessions(struct registration *g, struct rpc_client *c, uint16_t flags,
			  uint64_t contact_us)
{
	struct target *t = g->t;
	struct mds_session_list_req req = {0};
	struct mds_session_list_rep rep = {0};
	struct rpc_call call = {.op = OP_mds_session_list,
				.flags = flags,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	uint64_t asked_us = env_now_us(t->env);
	int rc = rpc_call(c, &call);

	if (rc == 0)
		rc = take_sessions(&t->fence, &rep);
	if (rc == 0) {
		fence_update(&t->fence, contact_us, g->fence_ms, g->read_ms);
		rc = expire_rows(t, asked_us);
		grace_check_end(&t->grace);
	}
	rpc_call_fini(&call);
	return rc;
}

/* ---- register ---- */

static bool hopeless(int rc)
{
	return rc == -LE_STORE_OLD || rc == -LE_WRONG_CLUSTER || rc == -LE_REMOVED;
}

/* Logs each kind of failure once. */
static void report(struct registration *g, int rc)
{
	if (hopeless(rc) && !g->failed) {
		log_error("target %u: the metadata server refuses this store: %s", g->t->id,
			  status_text(rc));
		g->failed = rc;
	} else if (rc == -LE_PERM && rc != g->last_logged) {
		log_error("target %u: the metadata server restricts this machine's network as one "
			  "of clients: add a separate row for the servers (leat export add)",
			  g->t->id);
	} else if (rc < 0 && rc != g->last_logged && rc != -LE_SHUTDOWN && rc != -LE_INTR) {
		log_warn("target %u: metadata server: %s", g->t->id, status_text(rc));
	}
	g->last_logged = rc;
}

/* Requests overtake each other: a commit counter lower than one that the MDS has received is proof
 * of an old store only if it is still the present counter. */
static int judge(const struct registration *g, int rc, uint64_t commits)
{
	return rc == -LE_STORE_OLD && g->t->store->commits != commits ? -LE_AGAIN : rc;
}

static void clock_heard(struct target *t, int64_t now_ns, uint64_t sent_us)
{
	struct mds_clock *k = &t->store->clock;
	char who[32];

	snprintf(who, sizeof(who), "target %u", t->id);
	mds_clock_observe_by(k, t->env, who, now_ns, sent_us);
	if (k->bound_us != 0)
		metric_set(&t->metrics->clock_apart_ms,
			   (uint64_t)(k->ahead_us < 0 ? -k->ahead_us : k->ahead_us) / 1000);
}

/* A metadata server that sends no chains means the target's single-member chain. */
static int adopt_own(struct target *t, uint32_t epoch)
{
	struct chain_member own = {t->id, MEMBER_SYNC};
	struct chain_info info = {.id = t->chain, .epoch = epoch, .replicas = 1};
	uint8_t members[CHAIN_MEMBERS_BUF], buf[64];
	const struct chain *c = chain_find(t->chains, t->chain);
	struct wire_w w;

	if (c && c->phase == CHAIN_SERVING && c->epoch == epoch)
		return 0;
	chain_members_put(&own, 1, members, &info);
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_chain_info(&w, &info);
	ASSERT(w.status == 0);
	return chains_adopt(t->chains, bytes_of(buf, (uint32_t)w.len), 0);
}

/* Adopts chains, which are all that this target is a member of, as requested at asked_us. */
static int members_known(struct target *t, struct bytes chains, uint64_t asked_us)
{
	TRY(chains_adopt(t->chains, chains, asked_us));
	if (t->maintenance)
		maintenance_members_known(t->maintenance);
	return 0;
}

static int accepted(struct registration *g, struct rpc_client *c,
		    const struct mds_target_register_rep *rep, uint64_t sent_us)
{
	struct target *t = g->t;
	struct store_super *super = &t->store->super;
	const struct uuid *cluster = rpc_client_cluster(c);

	if (super->target != rep->target || !uuid_equal(&super->cluster, cluster))
		TRY(chunk_store_set_owner(t->store, cluster, rep->target));
	t->id = rep->target;
	t->chains->target = rep->target;
	t->chain = rep->chain;
	TRY(chains_addrs(t->chains, rep->targets));
	/* If the metadata server uses chains, an empty list means that the target was replaced in
	 * all of them. */
	if (rep->chains.len || rep->chains_epoch)
		TRY(members_known(t, rep->chains, sent_us));
	else
		TRY(adopt_own(t, rep->epoch));
	g->chains_epoch = t->chains->not_named ? 0 : rep->chains_epoch;
	g->lease_ms = rep->lease_ms;
	if (rep->heartbeat_ms)
		g->heartbeat_ms = rep->heartbeat_ms;
	g->fence_ms = rep->fence_ms;
	g->read_ms = rep->read_ms;
	fence_reads_for(&t->fence, g->read_ms);
	chains_lease(t->chains, sent_us, g->lease_ms);
	if (!t->ready)
		log_info("target %u serves at %s", t->id, g->addrs);
	t->ready = !g->distrust;
	grace_begin(&t->grace, t->p->grace_ms);
	metric_set(&t->metrics->registered, 1);
	return 0;
}

static int register_once(struct registration *g, struct rpc_client *c, uint16_t flags)
{
	struct target *t = g->t;
	struct chunk_store *s = t->store;
	struct mds_target_register_rep rep = {0};
	struct mds_target_register_req req = {
		.cluster = s->super.cluster,
		.uuid = s->super.uuid,
		.target = s->super.target,
		.commits = s->commits,
		.addrs = bytes_str(g->addrs),
		.host = bytes_str(t->p->host),
		.capacity = space_total(&s->space),
		.used = space_used(&s->space),
		.free = space_usable(&s->space),
		.incarnation = g->t->incarnation,
	};
	struct rpc_call call = {.op = OP_mds_target_register,
				.flags = flags,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	uint64_t sent_us = env_now_us(t->env);
	void *held;
	int rc;

	TRY(chains_held(t->chains, &held, &req.holds.len));
	req.holds.data = held;
	rc = rpc_call(c, &call);
	if (rc == 0) {
		clock_heard(t, rep.now_ns, sent_us);
		rc = accepted(g, c, &rep, sent_us);
	}
	rpc_call_fini(&call);
	free(held);
	if (rc == 0 && g->fence_ms)
		rc = learn_sessions(g, c, flags, sent_us);
	return judge(g, rc, req.commits);
}

static int register_target(struct registration *g, struct rpc_client *c, uint16_t flags)
{
	int rc;

	do {
		rc = register_once(g, c, flags);
	} while (rc == -LE_AGAIN);
	report(g, rc);
	return rc;
}

static int connected(void *arg, struct rpc_client *c)
{
	struct registration *g = CAST_OBJ(arg, struct registration, REGISTRATION_MAGIC);
	int rc = register_target(g, c, RPC_CALL_SETUP);

	/* Keep the connection if reconnecting immediately would not help. */
	g->again = rc < 0;
	return rc < 0 && !hopeless(rc) ? rc : 0;
}

/* ---- heartbeat ---- */

/* Processes the reply to a heartbeat that was sent with that chains_epoch. A reply with the same
 * epoch contains no chains, because nothing has changed. The connection may have registered since,
 * and received a later epoch. */
static int heard(struct registration *g, const struct mds_target_heartbeat_rep *rep,
		 uint64_t sent_us, uint64_t asked)
{
	struct target *t = g->t;

	TRY(chains_addrs(t->chains, rep->targets));
	if (rep->chains.len || (rep->chains_epoch && rep->chains_epoch != asked))
		TRY(members_known(t, rep->chains, sent_us));
	else if (rep->chains_epoch == 0)
		TRY(adopt_own(t, rep->epoch));
	g->chains_epoch = t->chains->not_named ? 0 : rep->chains_epoch;
	if (rep->lease_ms)
		g->lease_ms = rep->lease_ms;
	chains_lease(t->chains, sent_us, g->lease_ms);
	g->fence_ms = rep->fence_ms;
	g->read_ms = rep->read_ms;
	if (rep->sessions_gen == t->fence.gen)
		fence_update(&t->fence, sent_us, g->fence_ms, g->read_ms);
	return 0;
}

/* Tries each address that an address of the configuration expands to, and counts them in *n. True
 * if all refuse the connection. */
static bool all_refuse(struct registration *g, const char *addr, uint32_t *n)
{
	struct transport *t = g->transport;
	char list[CONFIG_STR_MAX], *save = NULL;

	snprintf(list, sizeof(list), "%s", addr);
	if (t->ops->expand && t->ops->expand(t, addr, ADDR_CONNECT, list, sizeof(list)) < 0)
		return false;
	for (char *a = strtok_r(list, " ", &save); a; a = strtok_r(NULL, " ", &save)) {
		struct link *k = NULL;
		int rc = t->ops->connect(t, a, loop_deadline_ms(g->lease_ms / 4), &k);

		if (rc == 0)
			k->ops->close(k);
		if (rc != -LE_CONNREFUSED)
			return false;
		(*n)++;
	}
	return true;
}

/* True if every address of the metadata server refuses the connection: then no such process runs.
 * One that starts now waits for a lease before it declares any target dead. What the previous one
 * may have decided is handled by may_go_on(). */
static bool nobody_listens(struct registration *g)
{
	char addrs[CONFIG_STR_MAX], *save = NULL;
	uint32_t n = 0;

	snprintf(addrs, sizeof(addrs), "%s", g->mds_addrs);
	for (char *a = strtok_r(addrs, " ,\t", &save); a; a = strtok_r(NULL, " ,\t", &save))
		if (!all_refuse(g, a, &n))
			return false;
	return n > 0;
}

/* True if no metadata server runs that could end the lease this target still has. If the lease has
 * expired, the metadata server may have declared this target dead before it died itself: other
 * members may have continued without this one, which cannot learn of that. */
static bool may_go_on(struct registration *g)
{
	return chains_leased(g->t->chains) && nobody_listens(g) && chains_leased(g->t->chains);
}

static struct mds_target_heartbeat_req heartbeat_req(const struct registration *g)
{
	const struct chunk_store *s = g->t->store;

	return (struct mds_target_heartbeat_req){
		.target = g->t->id,
		.uuid = s->super.uuid,
		.commits = s->commits,
		.capacity = space_total(&s->space),
		.used = space_used(&s->space),
		.free = space_usable(&s->space),
		.incarnation = g->t->incarnation,
		.chains_epoch = g->chains_epoch,
		.sessions_gen = fence_applied(&g->t->fence),
		.read_ms = g->t->fence.read_ms,
		.wall_ns = env_wall_ns(g->t->env),
		.ahead_us = s->clock.ahead_us,
		.bound_us = s->clock.bound_us,
	};
}

/* Sends a heartbeat at *ret_sent_us. Returns 1 if there is another set of sessions, or another
 * read_ms. */
static int heartbeat(struct registration *g, uint64_t *ret_sent_us)
{
	struct target *t = g->t;
	struct mds_target_heartbeat_req req = heartbeat_req(g);
	struct mds_target_heartbeat_rep rep = {0};
	struct rpc_call call = {.op = OP_mds_target_heartbeat,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	uint64_t sent_us = *ret_sent_us = env_now_us(t->env);
	bool news = false;
	int rc;

	if (g->lease_ms) {
		/* The next heartbeat must be sent before the lease expires, even if this one
		 * fails. */
		call.flags = RPC_CALL_NO_WAIT;
		call.deadline_us = loop_deadline_ms(g->lease_ms / 2);
	}
	rc = rpc_call(g->client, &call);
	if (rc == -LE_NO_TARGET && req.target == 0)
		rc = 0; /* sent before there was a number; the connection has registered since */
	else if (rc == 0) {
		clock_heard(t, rep.now_ns, sent_us);
		rc = heard(g, &rep, sent_us, req.chains_epoch);
		news = rep.sessions_gen != t->fence.gen || req.read_ms != rep.read_ms;
	} else if (g->lease_ms && rc != -LE_TIMEDOUT && may_go_on(g)) {
		chains_lease(t->chains, sent_us, g->lease_ms);
		fence_update(&t->fence, sent_us, g->fence_ms, g->read_ms);
	}
	rpc_call_fini(&call);
	return rc == 0 && news ? 1 : judge(g, rc, req.commits);
}

/* Reports that the index is damaged. If that fails, the metadata server detects the end of the
 * process. */
static void report_distrust(struct registration *g)
{
	struct mds_target_bad_req req = {.target = g->t->id,
					 .uuid = g->t->store->super.uuid,
					 .incarnation = g->t->incarnation};
	struct mds_target_bad_rep rep;
	struct rpc_call call = {.op = OP_mds_target_bad,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	int rc = rpc_call(g->client, &call);

	rpc_call_fini(&call);
	if (rc < 0)
		report(g, rc);
	g->failed = -LE_CORRUPT_STORE;
}

static void beat(struct registration *g)
{
	uint64_t sent_us;
	int rc = g->again && g->t->ready ? register_target(g, g->client, 0)
					 : heartbeat(g, &sent_us);

	/* Confirm the new set immediately: the metadata server may wait for it. */
	if (rc == 1) {
		rc = learn_sessions(g, g->client, 0, sent_us);
		if (rc == 0)
			rc = heartbeat(g, &sent_us);
		rc = rc == 1 ? 0 : rc;
	}

	if (g->again && rc == 0)
		g->again = false;
	/* The metadata server has no record of this target: register again. */
	if (rc < 0 && status_retry(rc) != RETRY_CONN && status_retry(rc) != RETRY_SAME)
		g->again = true;
	if (g->t->ready || hopeless(rc))
		report(g, rc);
}

static void net_stats(struct registration *g)
{
	struct rpc_net_totals net = {0};

	if (!g->server)
		return;
	rpc_server_totals(g->server, &net);
	rpc_client_totals(g->client, &net);
	NET_METRICS_SET(g->t->metrics, &net);
}

static void heartbeat_fiber(void *arg)
{
	struct registration *g = CAST_OBJ(arg, struct registration, REGISTRATION_MAGIC);
	struct target *t = g->t;

	g->fiber = fiber_self();
	while (!g->stopping) {
		if (t->maintenance && t->maintenance->index_damaged)
			registration_distrust(g);
		if (g->distrust && !g->failed)
			report_distrust(g);
		beat(g);
		space_expire(&t->store->space, earlier(env_now_us(t->env), t->p->grant_ttl_ms));
		chunk_store_gauges(t->store);
		net_stats(g);
		if (g->stopping)
			break;
		if (fiber_sleep_us((uint64_t)g->heartbeat_ms * 1000) < 0)
			break;
	}
	g->fiber = NULL;
	latch_done(&g->running);
}

int registration_start(struct registration *g, struct target *t,
		       const struct registration_options *o)
{
	struct rpc_client_options co = {
		.transport = o->transport,
		.addrs = o->mds_addrs,
		.name = t->p->host,
		.role = ROLE_OSSD,
		.cluster = t->store->super.cluster,
		.key = *o->key,
		.arg = g,
		.connected = connected,
	};
	int rc;

	*g = (struct registration){.magic = REGISTRATION_MAGIC,
				   .t = t,
				   .server = o->server,
				   .heartbeat_ms = t->p->heartbeat_ms};
	snprintf(g->addrs, sizeof(g->addrs), "%s", o->addrs);
	snprintf(g->mds_addrs, sizeof(g->mds_addrs), "%s", o->mds_addrs);
	g->transport = o->transport;
	latch_init(&g->running, 0);
	TRY(rpc_client_create(&co, &g->client));
	if (o->reports_unreachable)
		rpc_client_report_unreachable(g->client, "the metadata server");
	latch_add(&g->running, 1);
	rc = fiber_spawn("heartbeat", heartbeat_fiber, g);
	if (rc < 0) {
		latch_done(&g->running);
		rpc_client_destroy(g->client);
	}
	return rc;
}

void registration_distrust(struct registration *g)
{
	if (g->distrust)
		return;
	g->distrust = true;
	g->t->ready = false;
	log_error("target %u: its index is damaged: it stops serving; see leat-ossd(8), DAMAGE",
		  g->t->id);
}

int registration_synced(struct registration *g, uint32_t chain, uint32_t epoch, uint32_t target)
{
	struct mds_chain_synced_req req = {chain, epoch, target};
	struct mds_chain_synced_rep rep = {0};
	struct rpc_call call = {.op = OP_mds_chain_synced,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	int rc = g->client ? rpc_call(g->client, &call) : -LE_NOT_READY;

	rpc_call_fini(&call);
	return rc;
}

/* Sends the final commit counter, so that an older copy of the store is detected. */
static void last_heartbeat(struct registration *g)
{
	struct mds_target_heartbeat_req req = heartbeat_req(g);
	struct mds_target_heartbeat_rep rep = {0};
	struct rpc_call call = {.op = OP_mds_target_heartbeat,
				.flags = RPC_CALL_NO_WAIT,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(LAST_MS)};
	int rc = rpc_call(g->client, &call);

	if (rc < 0)
		log_info("target %u: the last heartbeat: %s", g->t->id, status_text(rc));
	rpc_call_fini(&call);
}

void registration_stop(struct registration *g)
{
	g->stopping = true;
	if (g->fiber)
		fiber_interrupt(g->fiber);
	latch_wait(&g->running);
	if (g->t->ready && !g->again && !g->failed)
		last_heartbeat(g);
	rpc_client_destroy(g->client);
}
