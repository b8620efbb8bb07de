/* Registration and heartbeats; see targets.h. */
#include "mds/targets.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/chain_table.h"
#include "mds/detect.h"
#include "mds/membership.h"

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

static void tell(struct cluster *c, struct target *t)
{
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
		*ch = (struct chain){c->n_chains + 1, 1, 1, 1, {{id, MEMBER_SYNC}}, id};
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
	t->heard_us = loop_now_us();
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
		/* Of the process that we have heard already it is an older message, overtaken by
		 * a newer one; it asks again. */
		if (in->incarnation != t->incarnation)
			log_error("target %u: its store went back in time (commit %llu, was %llu): "
				  "refused",
				  t->info.id, (unsigned long long)in->commits,
				  (unsigned long long)t->commits);
		return -LE_STORE_OLD;
	}
	/* Nothing may fail once it is durable. */
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
	t->heard_us = loop_now_us();
	t->dead = t->gone = false;
	t->restarted |= restarted;
	/* A process that begins takes no changes before it knows the present set. */
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
		log_error("target %u was removed: refused (`leat target add` takes it back)",
			  t->info.id);
		return -LE_REMOVED;
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
	tell(c, t);
	detect_kick(c);
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

/* Does it refuse who is not in that set, or may it not act any more? */
static bool is_fenced(const struct cluster *c, const struct target *t, uint64_t gen)
{
	uint64_t fence_us = (c->params->client_lease_ms + (uint64_t)c->params->lease_margin_ms) *
			    1000;

	return t->sessions_gen >= gen || t->gone || (t->info.flags & TARGET_REMOVED) != 0 ||
	       loop_now_us() > t->heard_us + fence_us;
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
		log_warn("target %u: still carries out what a session that has ended had begun",
			 c->targets[i]->info.id);
		late_us = NO_DEADLINE;
	}
}

/* Does it read for nobody whose session has ended before that set? */
static bool refuses_reads(const struct cluster *c, const struct target *t, uint64_t gen)
{
	uint64_t silent_us = (t->read_ms + (uint64_t)c->params->lease_margin_ms) * 1000;

	if (t->gone || (t->info.flags & TARGET_REMOVED) != 0)
		return true;
	return t->read_ms > 0 &&
	       (t->sessions_gen >= gen || loop_now_us() > t->heard_us + silent_us);
}

static bool counts_as_up(const struct target *t)
{
	return t->info.state == TARGET_UP && !t->dead;
}

/* Who is up says so with his next heartbeat, or is down soon. */
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
			break; /* who has asked waits no longer */
	}
}

struct unheard {
	struct cluster *c;
	struct target *t;
	bool gone;
};

/* Of one that is down already nobody has asked whether its process is gone. */
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

void target_goes_by(struct cluster *c, uint32_t target, uint32_t said_ms, uint32_t told_ms)
{
	struct target *t = cluster_target(c, target);

	/* What it hears now may be the last thing that it hears. */
	t->read_ms = told_ms > 0 ? said_ms : 0;
	if (t->read_ms > 0)
		waitq_wake_all(&c->fenced);
}

/* It was silent, and is there again: the same process. */
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
	tell(c, t);
	detect_kick(c);
	return 0;
}

int target_heartbeat(struct cluster *c, const struct mds_target_heartbeat_req *in,
		      struct mds_target_heartbeat_rep *out)
{
	struct target *t = cluster_target(c, in->target);
	int rc = 0;

	if (t == NULL || !uuid_equal(&t->info.uuid, &in->uuid) || t->incarnation != in->incarnation)
		return -LE_NO_TARGET;
	/* Of one and the same process: fewer commits mean an older message, overtaken. */
	if (in->commits > t->commits)
		t->commits = in->commits;
	t->info.capacity = in->capacity;
	t->info.used = in->used;
	t->info.free = in->free;
	t->heard_us = loop_now_us();
	t->gone = false; /* who refused a connection was only busy */
	if (in->sessions_gen > t->sessions_gen) {
		t->sessions_gen = in->sessions_gen;
		waitq_wake_all(&c->fenced);
	}
	/* Whoever has been judged gets no lease before it is told what it is now. */
	if (t->info.state != TARGET_UP || t->dead) {
		fmutex_lock(&c->lock);
		if (t->info.state != TARGET_UP)
			rc = set_up(c, t);
		t->dead = rc < 0 && t->dead;
		fmutex_unlock(&c->lock);
	}
	TRY(rc);
	if (t->restarted)
		return -LE_NO_TARGET; /* its registration is not answered yet */
	out->epoch = cluster_chain_epoch(c, t);
	out->map_epoch = c->epoch;
	out->lease_ms = c->params->lease_ms;
	out->fence_ms = c->params->client_lease_ms;
	out->chains_epoch = t->chains_epoch;
	return 0;
}
