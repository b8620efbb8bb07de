/* SPDX-License-Identifier: Apache-2.0 */
/* See give_up.h. */
#include "mds/file/give_up.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "mds/background.h"
#include "mds/cluster/failure_detector.h"
#include "mds/cluster/rebalance.h"
#include "mds/file/lost_files.h"
#include "mds/mds.h"

#define TRIES    10u /* chains may change during one */
#define PAUSE_MS 200u

/* What happens to each chain, by id - 1. */
struct plan {
	uint32_t n;     /* chains in the cluster then */
	bool *lost;     /* all its complete members are among the targets */
	bool *hit;      /* and a file has data on it */
	uint32_t *anew; /* ids of chains that restart empty */
};

static void plan_fini(struct plan *p)
{
	free(p->lost);
	free(p->hit);
	free(p->anew);
}

static int plan_init(struct plan *p, const struct cluster *c)
{
	*p = (struct plan){.n = c->n_chains};
	p->lost = calloc(p->n + 1, sizeof(*p->lost));
	p->hit = calloc(p->n + 1, sizeof(*p->hit));
	p->anew = calloc(p->n + 1, sizeof(*p->anew));
	if (p->lost != NULL && p->hit != NULL && p->anew != NULL)
		return 0;
	plan_fini(p);
	return -LE_NOMEM;
}

/* True if all complete members of the chain are among the targets, also if it is CHAIN_LOST
 * already, because the previous incarnation stopped after step 3. */
static bool loses_all(const struct cluster *c, const struct chain *ch)
{
	if ((ch->flags & CHAIN_LOST) == 0)
		return cluster_chain_closed(c, ch);
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (!cluster_target(c, ch->members[i].target)->leaving)
			return false;
	return true;
}

/* Decodes packed ids, which must ascend. Returns 0, -LE_INVAL or -LE_NO_TARGET. */
static int give_up_targets(const struct mds *m, struct bytes in, uint32_t ids[GIVE_UP_MAX],
			   uint32_t *ret_n)
{
	uint32_t n = 0;
	struct wire_r r;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		if (n == GIVE_UP_MAX)
			return -LE_INVAL;
		wire_get_u32(&r, &ids[n]);
		if (r.status < 0 || (n > 0 && ids[n] <= ids[n - 1]))
			return -LE_INVAL;
		if (cluster_target(&m->cluster, ids[n]) == NULL)
			return -LE_NO_TARGET;
		n++;
	}
	*ret_n = n;
	return n > 0 ? 0 : -LE_INVAL;
}

/* ---- the intent ---- */

static void set_leaving(struct mds *m, bool leaving)
{
	for (uint32_t i = 0; i < m->give_up.n; i++)
		cluster_target(&m->cluster, m->give_up.targets[i])->leaving = leaving;
}

static bool any_is_up(const struct mds *m)
{
	for (uint32_t i = 0; i < m->give_up.n; i++)
		if (cluster_target(&m->cluster, m->give_up.targets[i])->info.state == TARGET_UP)
			return true;
	return false;
}

/* Step 1. The caller holds c->lock. Returns 0, -LE_BUSY if a target is up, or an error of the
 * store. */
static int put_intent(struct mds *m)
{
	const struct give_up *g = &m->give_up;
	struct give_up_rec rec = {.accept = g->accept};
	uint8_t buf[4 * GIVE_UP_MAX];
	struct wire_w w;
	int rc;

	wire_w_init(&w, buf, sizeof(buf));
	for (uint32_t i = 0; i < g->n; i++)
		wire_put_u32(&w, &g->targets[i]);
	rec.targets = bytes_of(buf, (uint32_t)w.len);
	TRY(txn_begin(&m->store));
	/* txn_begin may have waited. From here on no target can register. */
	if (any_is_up(m))
		return -LE_BUSY;
	/* Before the intent is durable: inodes that were placed until now become durable no
	 * later than the intent, so the search finds them. */
	set_leaving(m, true);
	TXN_PUT(&m->store, key_cluster('l', 0), give_up_rec, &rec);
	rc = cluster_commit(&m->cluster);
	if (rc < 0)
		set_leaving(m, false);
	return rc;
}

static int withdraw(struct mds *m)
{
	int rc;

	fmutex_lock(&m->cluster.lock);
	rc = txn_begin(&m->store);
	if (rc == 0) {
		txn_delete(&m->store, key_cluster('l', 0));
		rc = cluster_commit(&m->cluster);
	}
	if (rc == 0)
		set_leaving(m, false);
	fmutex_unlock(&m->cluster.lock);
	return rc;
}

/* ---- steps 3 and 4; callers hold c->lock ---- */

static void leave(const struct cluster *c, const struct chain *ch, struct chain *next)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (cluster_target(c, ch->members[i].target)->leaving)
			member_move(next, ch->members[i].target, MEMBER_NONE);
	if (cluster_target(c, next->lead)->leaving)
		next->lead = next->members[0].target;
}

/* The row keeps the members that were complete. */
static void lose(const struct chain *ch, struct chain *next)
{
	next->n_members = 0;
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].state == MEMBER_SYNC)
			next->members[next->n_members++] =
				(struct chain_member){ch->members[i].target, MEMBER_OUT};
	next->flags |= CHAIN_LOST;
}

static bool has_leaving(const struct cluster *c, const struct chain *ch)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (cluster_target(c, ch->members[i].target)->leaving)
			return true;
	return false;
}

/* Step 3. Returns -LE_AGAIN if other chains would be lost than the search has covered. */
static int move_chains(struct mds *m, struct plan *p)
{
	struct cluster *c = &m->cluster;
	struct moves moves = {.c = c};
	uint32_t n_anew = 0;

	for (uint32_t i = 0; i < c->n_chains; i++)
		if (loses_all(c, c->chains[i]) != (i < p->n && p->lost[i]))
			return -LE_AGAIN;
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];
		struct chain *next;

		if ((ch->flags & CHAIN_LOST) != 0 || !has_leaving(c, ch))
			continue;
		if (i < p->n && p->lost[i] && (!p->hit[i] || PLANTED_BUG(MDS_LOSE_ZEROS))) {
			p->anew[n_anew++] = ch->id;
			continue;
		}
		next = moves_chain(&moves, ch);
		if (next != NULL && p->lost[i])
			lose(ch, next);
		else if (next != NULL)
			leave(c, ch, next);
	}
	if (moves.status == 0)
		moves.status = replace_all_members(&moves, p->anew, n_anew);
	return moves_commit(&moves);
}

static int remove_targets(struct mds *m)
{
	const struct give_up *g = &m->give_up;
	struct cluster *c = &m->cluster;

	TRY(txn_begin(&m->store));
	for (uint32_t i = 0; i < g->n; i++) {
		struct target *t = cluster_target(c, g->targets[i]);
		struct target_info info = t->info;

		info.flags = TARGET_REMOVED | TARGET_GIVEN_UP;
		cluster_put_target(c, t, &info);
	}
	txn_delete(&m->store, key_cluster('l', 0));
	TRY(cluster_commit(c));
	for (uint32_t i = 0; i < g->n; i++) {
		struct target *t = cluster_target(c, g->targets[i]);

		t->info.flags = TARGET_REMOVED | TARGET_GIVEN_UP;
		t->leaving = false;
		log_warn("target %u: removed, given up as lost", t->info.id);
	}
	waitq_wake_all(&c->changed);
	waitq_wake_all(&c->fenced);
	return 0;
}

int give_up_uncut(struct mds *m, uint32_t chain)
{
	struct cluster *c = &m->cluster;
	struct moves moves = {.c = c};
	const struct chain *ch;
	struct chain *next;
	int rc = 0;

	fmutex_lock(&c->lock);
	ch = cluster_chain(c, chain);
	if ((ch->flags & CHAIN_LOST) == 0) {
		rc = -LE_AGAIN; /* it was recovered meanwhile */
	} else if ((ch->flags & CHAIN_UNCUT) == 0) {
		next = moves_chain(&moves, ch);
		if (next != NULL)
			next->flags |= CHAIN_UNCUT;
		rc = moves_commit(&moves);
	}
	fmutex_unlock(&c->lock);
	return rc;
}

/* ---- the fiber ---- */

static bool find_chains(struct mds *m, struct plan *p)
{
	struct cluster *c = &m->cluster;
	bool any = false;

	for (uint32_t i = 0; i < p->n; i++)
		any |= p->lost[i] = loses_all(c, c->chains[i]);
	/* Conversions that are copying begin again: a copy on one of these chains may be lost. */
	c->n_given_up += any;
	return any;
}

/* For LOSE_NO_COPY: returns -LE_GIVEN_UP if files have data on chains that the targets are
 * members of. */
static int find_copies(struct mds *m, struct plan *p)
{
	const struct cluster *c = &m->cluster;
	struct give_up *g = &m->give_up;
	bool any = false;
	int rc;

	for (uint32_t i = 0; i < p->n; i++)
		any |= p->lost[i] = has_leaving(c, c->chains[i]);
	if (!any)
		return 0;
	rc = lost_files_find(m, p->lost, p->hit, &g->files);
	memset(p->hit, 0, p->n * sizeof(*p->hit));
	return rc == 0 && g->files.n > 0 ? -LE_GIVEN_UP : rc;
}

static int try_once(struct mds *m, struct plan *p)
{
	struct give_up *g = &m->give_up;
	struct cluster *c = &m->cluster;
	int rc = 0;

	if (g->accept == LOSE_NO_COPY)
		rc = find_copies(m, p);
	if (rc == 0 && find_chains(m, p))
		rc = lost_files_find(m, p->lost, p->hit, &g->files);
	else if (rc == 0)
		lost_files_fini(&g->files);
	if (rc == 0 && g->files.n > 0 && g->accept != LOSE_ANY_DATA)
		rc = -LE_GIVEN_UP;
	if (rc < 0)
		return rc;
	fmutex_lock(&c->lock);
	rc = m->stopping ? -LE_CANCELED : move_chains(m, p);
	fmutex_unlock(&c->lock);
	/* From here on clients cannot write to the lost chains. */
	if (rc == 0)
		rc = lost_files_extend(m, &g->files);
	if (rc < 0)
		return rc;
	fmutex_lock(&c->lock);
	rc = m->stopping ? -LE_CANCELED : remove_targets(m);
	fmutex_unlock(&c->lock);
	return rc;
}

static int carry_out(struct mds *m)
{
	int rc = -LE_AGAIN;

	for (uint32_t i = 0; rc == -LE_AGAIN && i < TRIES; i++) {
		struct plan p;

		if (i > 0)
			TRY(mds_sleep_ms(m, PAUSE_MS));
		TRY(plan_init(&p, &m->cluster));
		rc = try_once(m, &p);
		plan_fini(&p);
	}
	return rc;
}

static void run(struct mds *m)
{
	struct give_up *g = &m->give_up;
	int rc = carry_out(m), end;

	/* The next incarnation continues the durable intent. */
	if (m->stopping)
		return;
	if (rc == 0) {
		if (g->files.n > 0)
			log_warn("%llu files have lost data with the targets that were given up",
				 (unsigned long long)g->files.n);
		g->state = LOSE_DONE;
		failure_detector_kick(&m->cluster);
		return;
	}
	end = withdraw(m);
	g->state = rc == -LE_GIVEN_UP && end == 0 ? LOSE_REFUSED : LOSE_FAILED;
	g->status = end < 0 ? end : rc;
	if (g->state == LOSE_REFUSED)
		log_warn("%llu files would lose data if the targets were given up: the targets "
			 "stay in "
			 "the cluster",
			 (unsigned long long)g->files.n);
	else
		log_error("giving up targets as lost failed: %s; they stay in the cluster",
			  status_text(g->status));
}

int give_up_load(struct mds *m)
{
	struct give_up *g = &m->give_up;
	struct key k = key_cluster('l', 0);
	struct give_up_rec rec;
	struct kv_value v;
	struct wire_r r;
	int rc;

	g->id = m->store.cluster.incarnation << 20;
	rc = kv_get(m->store.kv, k.b, k.len, &v);
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_give_up_rec(&r, &rec);
	g->accept = rec.accept;
	rc = r.status < 0 ? -LE_CORRUPT_STORE : give_up_targets(m, rec.targets, g->targets, &g->n);
	kv_value_fini(&v);
	if (rc < 0)
		return -LE_CORRUPT_STORE;
	set_leaving(m, true);
	g->state = LOSE_RUNNING;
	return 0;
}

int give_up_go_on(struct mds *m)
{
	return m->give_up.state == LOSE_RUNNING ? mds_spawn(m, "give-up", run) : 0;
}

void give_up_fini(struct mds *m)
{
	lost_files_fini(&m->give_up.files);
}

/* ---- requests ---- */

static bool are_same(const struct give_up *g, const uint32_t *ids, uint32_t n)
{
	return g->n == n && memcmp(g->targets, ids, n * sizeof(*ids)) == 0;
}

/* Returns how many of the targets have been given up already: none or all. -LE_NO_TARGET if
 * some, or if one was removed; -LE_BUSY if one is up. */
static int judge(const struct cluster *c, const uint32_t *ids, uint32_t n)
{
	uint32_t n_gone = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct target_info *t = &cluster_target(c, ids[i])->info;

		if ((t->flags & TARGET_GIVEN_UP) != 0)
			n_gone++;
		else if ((t->flags & TARGET_REMOVED) != 0)
			return -LE_NO_TARGET;
		else if (t->state == TARGET_UP)
			return -LE_BUSY;
	}
	if (n_gone > 0 && n_gone < n)
		return -LE_NO_TARGET;
	return (int)n_gone;
}

/* The caller holds c->lock. */
static int begin(struct mds *m, const uint32_t *ids, uint32_t n, uint8_t accept)
{
	struct give_up *g = &m->give_up;
	bool same = are_same(g, ids, n);
	int rc;

	if (g->state == LOSE_RUNNING)
		return same && g->accept == accept ? 0 : -LE_BUSY;
	rc = judge(&m->cluster, ids, n);
	if (rc < 0)
		return rc;
	/* A repeated request gets the result, if this process still has it. */
	if (rc > 0 && same && g->state == LOSE_DONE)
		return 0;
	lost_files_fini(&g->files);
	g->id++;
	g->n = n;
	g->accept = accept;
	g->status = 0;
	g->state = rc > 0 ? LOSE_DONE : LOSE_NONE;
	memcpy(g->targets, ids, n * sizeof(*ids));
	if (rc > 0)
		return 0;
	TRY(put_intent(m));
	for (uint32_t i = 0; i < n; i++)
		log_info("target %u is being given up as lost", ids[i]);
	g->state = LOSE_RUNNING;
	rc = mds_spawn(m, "give-up", run);
	if (rc < 0)
		log_error("giving up targets could not begin: %s; the next start continues it",
			  status_text(rc));
	return rc;
}

static int start(struct mds *m, const struct mds_target_lose_req *in)
{
	uint32_t ids[GIVE_UP_MAX], n;
	int rc;

	if (in->accept > LOSE_NO_COPY)
		return -LE_INVAL;
	TRY(give_up_targets(m, in->targets, ids, &n));
	fmutex_lock(&m->cluster.lock);
	rc = begin(m, ids, n, in->accept);
	fmutex_unlock(&m->cluster.lock);
	return rc;
}

int give_up_asked(struct mds *m, const struct mds_target_lose_req *in, struct bytes buf,
		  struct mds_target_lose_rep *out)
{
	struct give_up *g = &m->give_up;
	uint32_t len = 0;

	if (in->what == LOSE_NAME) {
		struct ino ino = {in->from};
		struct lost_files one = {.listed = &ino, .n_listed = 1};

		(void)lost_files_encode(m, &one, 0, 1, buf, &len);
		out->files = bytes_of(buf.data, len);
		return 0;
	}
	if (in->what == LOSE_START)
		TRY(start(m, in));
	else if (in->what != LOSE_SURVEY)
		return -LE_INVAL;
	else if (in->id != g->id || g->state == LOSE_NONE)
		return -LE_STALE;
	*out = (struct mds_target_lose_rep){
		.id = g->id,
		.state = (uint8_t)g->state,
		.status = g->status,
		.n_seen = g->files.n_seen,
		.n_inodes = g->files.n_inodes,
		.n_files = g->files.n,
	};
	/* While the search runs the list grows. */
	if (g->state == LOSE_REFUSED || g->state == LOSE_DONE)
		out->next = lost_files_encode(m, &g->files, in->from, in->max, buf, &len);
	/* Encoding yields: another call may have begun, and the names may belong to that. */
	if (out->id != g->id)
		return -LE_STALE;
	out->files = bytes_of(buf.data, len);
	return 0;
}
