/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/cluster/registration.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/cluster/chain_table.h"
#include "mds/cluster/failure_detector.h"
#include "mds/cluster/membership.h"

#define ADDRS_MAX  1023u
#define HOST_MAX   255u
#define RACK_MAX   255u

static struct target *target_find(const struct cluster *c, const struct uuid *uuid)
{
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (uuid_equal(&c->targets[i]->info.uuid, uuid))
			return c->targets[i];
	return NULL;
}

static void notification(struct cluster *c, struct target *t)
{
	NO_YIELD();

	if (t != NULL && c->target_changed != NULL)
		c->target_changed(c->arg, t);
	waitq_wake_all(&c->changed);
}

static struct target *target_make(const struct mds_target_register_req *in, uint32_t id)
{
	struct target *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->info = (struct target_info){.id = id,
				       .state = TARGET_UP,
				       .uuid = in->uuid,
				       .loop = in->loop,
				       .capacity = in->capacity,
				       .used = in->used,
				       .free = in->free,
				       .epoch = 1};
	t->commits = t->commits_stored = in->commits;
	t->incarnation = t->judged = in->incarnation;
	if (target_set_text(t, in->addrs, in->host, in->rack) < 0) {
		free(t);
		return NULL;
	}
	return t;
}

static int register_new(struct cluster *c, const struct mds_target_register_req *in,
			struct target **ret_t)
{
	struct table_info table = {c->n_tables + 1, 1, c->classes[1].n + 1};
	uint32_t id = c->n_targets + 1;
	struct chain *ch;
	struct target *t;
	int rc;

	if (c->n_targets >= c->params->targets_max)
		return -LE_OVERLOAD;
	TRY(cluster_reserve(c, 1, 1));
	t = target_make(in, id);
	ch = calloc(1, sizeof(*ch));
	rc = t == NULL || ch == NULL ? -LE_NOMEM : txn_begin(c->store);
	if (rc == 0) {
		*ch = (struct chain){c->n_chains + 1, 1, 1, 1, {{id, MEMBER_SYNC}}, id, 0};
		t->chain = ch->id;
		cluster_put_target(c, t, &t->info);
		cluster_put_chain(c, ch);
		cluster_put_table(c, &table);
		rc = cluster_commit(c);
	}
	if (rc < 0) {
		target_free(t);
		free(ch);
		return rc;
	}
	t->last_contact_us = loop_now_us();
	t->chains_epoch = c->epoch;
	c->targets[c->n_targets++] = t;
	cluster_add_chain(c, ch);
	cluster_add_table(c, &table);
	log_info("target %u registered at %s, chain table version %u", id, t->addrs,
		 table.version);
	*ret_t = t;
	return 0;
}

static int again_durable(struct cluster *c, struct target *t, const struct target_info *info,
			 const struct mds_target_register_req *in)
{
	bool moved = !bytes_equal(t->info.addrs, in->addrs) || t->info.loop != in->loop;

	TRY(txn_begin(c->store));
	t->commits = in->commits;
	t->incarnation = in->incarnation;
	t->down_ns = 0;
	cluster_put_target(c, t, info);
	if (moved || t->info.state != TARGET_UP)
		return cluster_commit(c);
	return store_wait(c->store, txn_end(c->store));
}

static void swap_text(char **a, char **b)
{
	char *was = *a;

	*a = *b;
	*b = was;
}

static int register_again(struct cluster *c, struct target *t,
			  const struct mds_target_register_req *in)
{
	bool restarted = in->incarnation != t->incarnation;
	struct target_info info = t->info;
	struct target *fresh;
	int rc;

	if (in->commits < t->commits) {
		/* From the same process it is an older message that a newer one has overtaken; the
		 * target sends it again. */
		if (in->incarnation != t->incarnation)
			log_error("target %u: its store went back in time (commit %llu, was %llu): "
				  "refused",
				  t->info.id, (unsigned long long)in->commits,
				  (unsigned long long)t->commits);
		return -LE_STORE_OLD;
	}
	/* Allocates first: after the commit nothing may fail. */
	fresh = target_make(in, t->info.id);
	if (fresh == NULL)
		return -LE_NOMEM;
	info.addrs = fresh->info.addrs;
	info.host = fresh->info.host;
	info.rack = fresh->info.rack;
	info.loop = in->loop;
	info.state = TARGET_UP;
	info.capacity = in->capacity;
	info.used = in->used;
	info.free = in->free;
	rc = again_durable(c, t, &info, in);
	if (rc == 0) {
		t->info = info;
		swap_text(&t->addrs, &fresh->addrs);
		swap_text(&t->host, &fresh->host);
		swap_text(&t->rack, &fresh->rack);
	}
	target_free(fresh);
	TRY(rc);
	t->commits_stored = t->commits;
	t->last_contact_us = loop_now_us();
	t->dead = t->gone = false;
	t->restarted |= restarted;
	/* A new process takes no changes before it has the present session list. */
	if (restarted)
		t->sessions_gen = 0;
	log_info("target %u is back at %s", t->info.id, t->addrs);
	return 0;
}

static int register_locked(struct cluster *c, const struct mds_target_register_req *in,
			   struct target **ret_t)
{
	struct target *t = target_find(c, &in->uuid);
	const struct uuid *ours = &c->store->cluster.cluster;

	if (uuid_is_zero(&in->uuid) || in->addrs.len == 0 || in->addrs.len > ADDRS_MAX ||
	    in->host.len > HOST_MAX || in->rack.len > RACK_MAX)
		return -LE_INVAL;
	if (!uuid_is_zero(&in->cluster) && !uuid_equal(&in->cluster, ours))
		return -LE_WRONG_CLUSTER;
	if (in->target != 0 && (t == NULL || t->info.id != in->target)) {
		log_error("target %u at %.*s is not known here under its uuid: refused", in->target,
			  (int)in->addrs.len, (const char *)in->addrs.data);
		return -LE_WRONG_CLUSTER;
	}
	if (t != NULL && (t->info.flags & TARGET_REMOVED) != 0) {
		log_error("target %u was removed: refused (%s)", t->info.id,
			  (t->info.flags & TARGET_GIVEN_UP) != 0
				  ? "given up as lost; `leat target recover` takes it back with "
				    "what only it has, formatted anew it joins under another "
				    "number"
				  : "`leat target add` takes it back");
		return -LE_REMOVED;
	}
	if (t != NULL && t->leaving) {
		log_warn("target %u is being given up as lost: it may not come back now",
			 t->info.id);
		return -LE_LEAVING;
	}
	if (t == NULL)
		TRY(register_new(c, in, &t));
	else
		TRY(register_again(c, t, in));
	*ret_t = t;
	return 0;
}

int target_register(struct cluster *c, const struct mds_target_register_req *in,
		     struct mds_target_register_rep *out)
{
	struct target *t = NULL;
	int rc;

	fmutex_lock(&c->lock);
	rc = register_locked(c, in, &t);
	if (rc == 0)
		rc = chain_table_grow(c);
	fmutex_unlock(&c->lock);
	TRY(rc);
	notification(c, t);
	failure_detector_kick(c);
	TRY(membership_settle(c, t));
	*out = (struct mds_target_register_rep){
		.target = t->info.id,
		.chain = t->chain,
		.epoch = cluster_chain_epoch(c, t),
		.map_epoch = c->epoch,
		.heartbeat_ms = c->params->heartbeat_ms,
		.lease_ms = c->params->lease_ms,
		.chains_epoch = t->chains_epoch,
		.fence_ms = c->params->client_lease_ms,
	};
	return 0;
}

/* True if the target refuses sessions that are not in that session list, or can no longer act. */
static bool is_fenced(const struct cluster *c, const struct target *t, uint64_t gen)
{
	uint64_t fence_us = (c->params->client_lease_ms + (uint64_t)c->params->lease_margin_ms) *
			    1000;

	return t->sessions_gen >= gen || t->gone || (t->info.flags & TARGET_REMOVED) != 0 ||
	       loop_now_us() > t->last_contact_us + fence_us;
}

void targets_await_fence(struct cluster *c, uint64_t gen)
{
	uint64_t late_us = loop_deadline_ms(2ull * c->params->client_lease_ms);
	uint32_t i = 0;

	while (i < c->n_targets) {
		if (is_fenced(c, c->targets[i], gen)) {
			i++;
			continue;
		}
		(void)!waitq_wait(&c->fenced, loop_deadline_ms(c->params->heartbeat_ms));
		if (loop_now_us() < late_us)
			continue;
		log_warn("target %u: still executes requests of a session that has ended",
			 c->targets[i]->info.id);
		late_us = NO_DEADLINE;
	}
}

/* True if the target refuses reads of sessions that had ended before that session list. */
static bool refuses_reads(const struct cluster *c, const struct target *t, uint64_t gen)
{
	uint64_t silent_us = (t->read_ms + (uint64_t)c->params->lease_margin_ms) * 1000;

	if (t->gone || (t->info.flags & TARGET_REMOVED) != 0)
		return true;
	return t->read_ms > 0 &&
	       (t->sessions_gen >= gen || loop_now_us() > t->last_contact_us + silent_us);
}

static bool counts_as_up(const struct target *t)
{
	return t->info.state == TARGET_UP && !t->dead;
}

/* Waits for each target that is up: its next heartbeat confirms the list, or it is soon marked
 * down. */
static void await_reads(struct cluster *c, uint64_t gen)
{
	uint64_t end_us = loop_deadline_ms(2ull * (c->params->lease_ms + c->params->heartbeat_ms +
						   c->params->lease_margin_ms));
	uint32_t i = 0;

	while (i < c->n_targets && loop_now_us() < end_us) {
		const struct target *t = c->targets[i];
		uint64_t look_us = loop_deadline_ms(c->params->heartbeat_ms);

		if (!counts_as_up(t) || refuses_reads(c, t, gen))
			i++;
		else if (waitq_wait(&c->fenced, look_us) < 0 && loop_now_us() < look_us)
			break; /* the fiber was interrupted */
	}
}

struct unheard {
	struct cluster *c;
	struct target *t;
	bool gone;
};

/* The failure detector has not probed the process of a target that was already down. */
static void look_for_it(void *arg)
{
	struct unheard *u = arg;

	u->gone = !counts_as_up(u->t) && u->c->probe(u->c->arg, u->t) == 0;
}

int targets_await_reads(struct cluster *c, uint64_t gen, uint32_t *ids, uint32_t *ret_n)
{
	struct unheard *all = calloc(c->params->targets_max, sizeof(*all));
	uint32_t n = 0;

	if (all == NULL)
		return -LE_NOMEM;
	await_reads(c, gen);
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (!refuses_reads(c, c->targets[i], gen))
			all[n++] = (struct unheard){.c = c, .t = c->targets[i]};
	fiber_parallel("probe", look_for_it, all, sizeof(*all), n, 32);
	*ret_n = 0;
	for (uint32_t i = 0; i < n; i++)
		if (!all[i].gone && !refuses_reads(c, all[i].t, gen))
			ids[(*ret_n)++] = all[i].t->info.id;
	free(all);
	return 0;
}

void target_goes_by(struct cluster *c, uint32_t target, uint32_t said_ms, uint32_t ordered_ms)
{
	struct target *t = cluster_target(c, target);

	/* The target may receive nothing after this reply, so it counts from now. */
	t->read_ms = ordered_ms > 0 ? said_ms : 0;
	if (t->read_ms > 0)
		waitq_wake_all(&c->fenced);
}

/* Marks a target up that was silent and is back with the same process. */
static int set_up(struct cluster *c, struct target *t)
{
	struct target_info info = t->info;

	info.state = TARGET_UP;
	TRY(txn_begin(c->store));
	t->down_ns = 0;
	cluster_put_target(c, t, &info);
	TRY(cluster_commit(c));
	t->commits_stored = t->commits;
	t->info.state = TARGET_UP;
	t->dead = false;
	log_info("target %u is up, map epoch %u", info.id, c->epoch);
	/* Targets that registered while it was away found one host fewer. */
	chain_table_try_grow(c);
	notification(c, t);
	failure_detector_kick(c);
	return 0;
}

static void note_clock(const struct cluster *c, struct target *t,
		       const struct mds_target_heartbeat_req *in)
{
	enum clock_news news = clock_seen_update(&t->clock, in->ahead_us, in->bound_us);
	char ahead[CLOCK_AHEAD_TEXT], its[CLOCK_TIME_TEXT], ours[CLOCK_TIME_TEXT];

	if (news == CLOCKS_AGREE)
		log_info("target %u: its clock agrees with this server's again", t->info.id);
	else if (news != CLOCKS_NO_NEWS)
		log_warn("target %u: its clock is %s this server's: there it is %s, here %s; set "
			 "the wrong one, and see that both are kept right (NTP)",
			 t->info.id, clock_format_ahead(in->ahead_us, ahead),
			 clock_format_time(in->wall_ns, its),
			 clock_format_time(env_wall_ns(c->store->env), ours));
}

/* Such a target receives the reason when it registers. */
static bool is_given_up(const struct target *t)
{
	return t->leaving || (t->info.flags & TARGET_GIVEN_UP) != 0;
}

int target_heartbeat(struct cluster *c, const struct mds_target_heartbeat_req *in,
		      struct mds_target_heartbeat_rep *out)
{
	struct target *t = cluster_target(c, in->target);
	int rc = 0;

	if (t == NULL || !uuid_equal(&t->info.uuid, &in->uuid) || t->incarnation != in->incarnation)
		return -LE_NO_TARGET;
	if (is_given_up(t))
		return -LE_NO_TARGET;
	/* From the same process, fewer commits mean an older message that a newer one has
	 * overtaken. */
	if (in->commits > t->commits)
		t->commits = in->commits;
	t->info.capacity = in->capacity;
	t->info.used = in->used;
	t->info.free = in->free;
	t->last_contact_us = loop_now_us();
	t->gone = false; /* it refused a probe, but was only busy */
	note_clock(c, t, in);
	if (in->sessions_gen > t->sessions_gen) {
		t->sessions_gen = in->sessions_gen;
		waitq_wake_all(&c->fenced);
	}
	/* A target that was marked dead gets no lease before its state in its chains is decided. */
	if (t->info.state != TARGET_UP || t->dead) {
		fmutex_lock(&c->lock);
		/* The state may have changed during the wait for the lock. */
		if (is_given_up(t))
			rc = -LE_NO_TARGET;
		else if (t->info.state != TARGET_UP)
			rc = set_up(c, t);
		t->dead = rc < 0 && t->dead;
		fmutex_unlock(&c->lock);
	}
	TRY(rc);
	if (t->restarted)
		return -LE_NO_TARGET; /* its registration has not been answered yet */
	out->epoch = cluster_chain_epoch(c, t);
	out->map_epoch = c->epoch;
	out->lease_ms = c->params->lease_ms;
	out->fence_ms = c->params->client_lease_ms;
	out->chains_epoch = t->chains_epoch;
	return 0;
}
