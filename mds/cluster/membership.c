/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each change is decided, made durable, and sent to the targets. A crash before it is sent does no
 * harm: targets register again with the restarted server, which then sends them their chains.
 */
#include "mds/cluster/membership.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/state_machine.h"
#include "common/rt/loop.h"
#include "mds/cluster/chain_table.h"
#include "mds/cluster/cluster_map.h"

#define ASK_MS        200u  /* for a reply that decides which member leads */
#define TELL_MS       1000u /* for one attempt to send chains */
#define SETTLE_MS     4000u /* a target that registers waits at most this long */
#define TARGETS_BOUND 256u
#define TELL_CHAINS   256u /* in one message */

/* SYNCING to SYNCING: the fill starts again. */
STATE_MACHINE(member_moves, "member", 4, .states = {"out", "syncing", "sync", "none"},
	   .allowed = {
		   [MEMBER_OUT] = 1u << MEMBER_SYNCING | 1u << MEMBER_NONE,
		   [MEMBER_SYNCING] = 1u << MEMBER_OUT | 1u << MEMBER_SYNC | 1u << MEMBER_NONE |
				      1u << MEMBER_SYNCING,
		   [MEMBER_SYNC] = 1u << MEMBER_OUT | 1u << MEMBER_SYNCING | 1u << MEMBER_NONE,
		   [MEMBER_NONE] = 1u << MEMBER_SYNCING,
	   });

/* ---- sets of moves ---- */

struct chain *moves_chain(struct moves *m, const struct chain *ch)
{
	for (uint32_t i = m->n; i-- > 0;)
		if (m->next[i].id == ch->id)
			return &m->next[i];
	if (m->n == m->cap) {
		uint32_t cap = m->cap != 0 ? m->cap * 2 : 32;
		struct chain *v = realloc(m->next, cap * sizeof(*v));

		if (v == NULL) {
			m->status = -LE_NOMEM;
			return NULL;
		}
		m->next = v;
		m->cap = cap;
	}
	m->next[m->n] = *ch;
	m->next[m->n].epoch += !PLANTED_BUG(CHAIN_KEEP_EPOCH);
	return &m->next[m->n++];
}

/* Puts SYNC members first, then SYNCING, then OUT; keeps the order within each state. */
static void sort_members(struct chain *ch)
{
	for (uint32_t i = 1; i < ch->n_members; i++) {
		struct chain_member m = ch->members[i];
		uint32_t k = i;

		for (; k > 0 && ch->members[k - 1].state < m.state; k--)
			ch->members[k] = ch->members[k - 1];
		ch->members[k] = m;
	}
}

void member_move(struct chain *next, uint32_t target, int state)
{
	uint32_t i = 0;
	int from;

	while (i < next->n_members && next->members[i].target != target)
		i++;
	from = i < next->n_members ? (int)next->members[i].state : MEMBER_NONE;
	state = state_machine_move(&member_moves, from, state);
	if (from == MEMBER_NONE) {
		ASSERT(next->n_members < CHAIN_MEMBERS_MAX);
		next->members[next->n_members++] =
			(struct chain_member){target, (enum member_state)state};
	} else if (state == MEMBER_NONE) {
		next->n_members--;
		memmove(&next->members[i], &next->members[i + 1],
			(next->n_members - i) * sizeof(next->members[0]));
	} else {
		next->members[i].state = (enum member_state)state;
	}
	sort_members(next);
}

static int state_in(const struct chain *ch, uint32_t target)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].target == target)
			return (int)ch->members[i].state;
	return MEMBER_NONE;
}

/* ---- sending chains to targets ---- */

struct notification {
	struct cluster *c;
	uint32_t n;
	struct chain *was; /* n of them: the chains before the change */
	bool unknown;      /* their members before are unknown (a restart): any target may have
			    * served */
	uint64_t
		stopped_by_us; /* time when the lease of a silent target has expired, so that it no
				* longer serves */
	uint8_t first[TARGETS_BOUND], then[TARGETS_BOUND]; /* targets to notify, by id - 1 */
};

struct notify_one {
	struct notification *notification;
	uint32_t target;
	bool stop;
};

/* True if the target is to be sent the chain. In the stop phase: only chains in which it lost the
 * right to serve. It may not receive other chains before the targets that lost that right in them
 * have stopped. */
static bool concerns(const struct notify_one *one, const struct chain *was)
{
	int is = state_in(cluster_chain(one->notification->c, was->id), one->target);
	int before = state_in(was, one->target);

	if (one->stop)
		return is != MEMBER_SYNC && (one->notification->unknown || before == MEMBER_SYNC);
	return is != MEMBER_NONE || before != MEMBER_NONE;
}

/* Encodes the present values of the next chains that concern the target into one message. Returns
 * 1, 0 if there are none left, or -LE_NOMEM. */
static int notify_encode(const struct notify_one *one, uint32_t *from, struct bytes *ret_chains,
		       struct bytes *ret_targets)
{
	const struct notification *tl = one->notification;
	struct chain *v[TELL_CHAINS];
	uint32_t n = 0;

	for (; *from < tl->n && n < TELL_CHAINS; ++*from)
		if (concerns(one, &tl->was[*from]))
			v[n++] = cluster_chain(tl->c, tl->was[*from].id);
	if (n == 0)
		return 0;
	TRY(cluster_chains_encode(tl->c, v, n, ret_chains, ret_targets));
	return 1;
}

/* True if the target can and must still be notified. A target that is down receives its chains when
 * it returns. */
static bool may_hear(const struct notify_one *one, const struct target *t)
{
	if (one->notification->c->stopping || t->info.state != TARGET_UP || t->dead)
		return false;
	/* A process that has restarted does not serve yet. */
	return !one->stop || (!t->restarted && loop_now_us() < one->notification->stopped_by_us);
}

static void notify_target(void *arg)
{
	const struct notify_one *one = arg;
	struct cluster *c = one->notification->c;
	const struct target *t = cluster_target(c, one->target);
	uint64_t wait_us = 10000;
	uint32_t done = 0;

	while (done < one->notification->n && may_hear(one, t)) {
		uint64_t deadline_us = loop_deadline_ms(TELL_MS);
		struct bytes chains, targets;
		uint32_t next = done;
		int rc = notify_encode(one, &next, &chains, &targets);

		if (one->stop && deadline_us > one->notification->stopped_by_us)
			deadline_us = one->notification->stopped_by_us;
		if (rc > 0) {
			rc = c->send(c->arg, one->target, chains, targets, deadline_us);
			free((void *)(uintptr_t)chains.data);
		}
		if (rc >= 0 || rc == -LE_UNKNOWN_OP) {
			done = next;
			continue;
		}
		log_debug("target %u: sending its chains failed: %s", one->target, status_name(rc));
		if (one->stop && c->probe(c->arg, t) == 0)
			return;
		if (fiber_sleep_us(wait_us) < 0)
			return;
		wait_us = wait_us * 2 > 200000 ? 200000 : wait_us * 2;
	}
}

static void notify_some(struct notification *tl, const uint8_t whom[TARGETS_BOUND], bool stop)
{
	struct notify_one ones[TARGETS_BOUND];
	uint32_t n = 0;

	for (uint32_t i = 0; i < TARGETS_BOUND; i++)
		if (whom[i])
			ones[n++] = (struct notify_one){tl, i + 1, stop};
	fiber_parallel("notify-chains", notify_target, ones, sizeof(ones[0]), n, 64);
}

static void notify_end(struct notification *tl)
{
	latch_done(&tl->c->tellers);
	free(tl->was);
	free(tl);
}

/* Notifies first the targets that must stop. No target is sent any change while another one has yet
 * to stop, whichever change that belongs to. */
static void notify_fiber(void *arg)
{
	struct notification *tl = arg;
	struct cluster *c = tl->c;

	notify_some(tl, tl->first, true);
	ASSERT(c->n_stopping > 0);
	if (--c->n_stopping == 0)
		waitq_wake_all(&c->settled);
	while (c->n_stopping > 0 && !c->stopping) {
		int rc = waitq_wait(&c->settled, loop_deadline_ms(TELL_MS));

		if (rc < 0 && rc != -LE_TIMEDOUT)
			break;
	}
	if (c->n_stopping == 0)
		notify_some(tl, tl->then, false);
	waitq_wake_all(&c->changed); /* now notify the clients */
	notify_end(tl);
}

/* A live target that lost the right to serve must stop before the other members continue without
 * it. One that has restarted does not serve yet. */
static void notify_whom(struct notification *tl, const struct chain *was, const struct chain *now)
{
	for (uint32_t i = 0; i < was->n_members; i++) {
		uint32_t id = was->members[i].target;
		const struct target *t = cluster_target(tl->c, id);
		bool lost =
			was->members[i].state == MEMBER_SYNC && state_in(now, id) != MEMBER_SYNC;

		if (lost && t->info.state == TARGET_UP && !t->dead && !t->restarted)
			tl->first[id - 1] = 1;
		tl->then[id - 1] = 1;
	}
	for (uint32_t i = 0; i < now->n_members; i++)
		tl->then[now->members[i].target - 1] = 1;
}

static uint64_t lease_us(const struct cluster *c)
{
	return (c->params->lease_ms + (uint64_t)c->params->lease_margin_ms) * 1000;
}

/* Takes over `was`, the chains before the change. Returns NULL without memory: targets then receive
 * their chains with heartbeats. */
static struct notification *notify_create(struct cluster *c, struct chain *was, uint32_t n)
{
	struct notification *tl = calloc(1, sizeof(*tl));

	if (tl == NULL) {
		free(was);
		waitq_wake_all(&c->changed);
		return NULL;
	}
	*tl = (struct notification){
		.c = c, .n = n, .was = was, .stopped_by_us = loop_now_us() + lease_us(c)};
	return tl;
}

static void notify_start(struct notification *tl)
{
	struct cluster *c = tl->c;

	latch_add(&c->tellers, 1);
	c->n_stopping++;
	if (fiber_spawn("notify-chains", notify_fiber, tl) < 0) {
		c->n_stopping--;
		notify_end(tl);
		waitq_wake_all(&c->changed);
	}
}

static void notify_moves(struct cluster *c, struct chain *was, uint32_t n)
{
	struct notification *tl = notify_create(c, was, n);

	if (tl == NULL)
		return;
	for (uint32_t i = 0; i < n; i++)
		notify_whom(tl, &was[i], cluster_chain(c, was[i].id));
	notify_start(tl);
}

/* Counts the leases of all targets from now. Until this server listened, a target extended its
 * lease when all addresses of the metadata server refused the connection (ossd/chain/README.md), so
 * its lease may begin only now. This reads the clock: the loop's time is older, because resolving
 * addresses may have taken long. */
static void leases_begin(struct cluster *c)
{
	uint64_t now = env_now_us(c->store->env);

	c->detect_from_us = now + lease_us(c);
	for (uint32_t i = 0; i < c->n_targets; i++)
		c->targets[i]->last_contact_us = now;
}

int membership_start(struct cluster *c)
{
	struct chain *was = calloc(c->n_chains + 1, sizeof(*was));
	struct notification *tl;
	uint32_t n = 0;

	if (was == NULL)
		return -LE_NOMEM;
	/* All chains, except those that have always had the same single member. */
	for (uint32_t i = 0; i < c->n_chains; i++)
		if (c->chains[i]->n_members > 1 || c->chains[i]->epoch > 1)
			was[n++] = *c->chains[i];
	tl = notify_create(c, was, n);
	if (tl == NULL)
		return -LE_NOMEM;
	tl->unknown = true;
	leases_begin(c);
	tl->stopped_by_us = c->detect_from_us;
	for (uint32_t i = 0; i < c->n_targets; i++)
		tl->first[i] = n > 0;
	notify_start(tl);
	return 0;
}

bool membership_may_notify(const struct cluster *c)
{
	return c->n_stopping == 0;
}

/* ---- making changes durable ---- */

static const char *member_text(const struct chain *ch, char buf[128])
{
	static const char *const marks[] = {"-", "~", ""};
	int at = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < ch->n_members && at < 100; i++)
		at += snprintf(buf + at, 128 - (size_t)at, " %s%u", marks[ch->members[i].state],
			       ch->members[i].target);
	return buf;
}

/* Puts targets into the open batch that are dead but not yet stored as down, and restarted ones
 * that now have a decided state. Until this is durable, the store has the previous incarnation. */
static uint32_t put_decided(struct cluster *c, bool *ret_died)
{
	uint32_t n = 0;

	*ret_died = false;
	for (uint32_t i = 0; i < c->n_targets; i++) {
		struct target *t = c->targets[i];
		struct target_info info = t->info;

		bool died = t->dead && t->info.state == TARGET_UP;

		if (!died && !t->settling)
			continue;
		if (died) {
			target_went_away(t, env_wall_ns(c->store->env), c->store->env);
			info.state = TARGET_DOWN;
			*ret_died = true;
		}
		if (t->settling)
			t->judged = t->incarnation;
		cluster_put_target(c, t, &info);
		n++;
	}
	return n;
}

/* Marks dead targets down that are stored as down. A target that died during the commit is not
 * stored yet; the next commit stores it. */
static void dead_are_down(struct cluster *c)
{
	for (uint32_t i = 0; i < c->n_targets; i++) {
		struct target *t = c->targets[i];

		if (!t->dead || t->down_ns == 0 || t->info.state != TARGET_UP)
			continue;
		t->info.state = TARGET_DOWN;
		log_warn("target %u is down, map epoch %u", t->info.id, c->epoch);
	}
}

static int moves_durable(struct moves *m)
{
	struct cluster *c = m->c;
	uint32_t n_decided;
	bool died;

	TRY(m->status);
	TRY(txn_begin(c->store));
	n_decided = put_decided(c, &died);
	for (uint32_t i = 0; i < m->n; i++)
		cluster_put_chain(c, &m->next[i]);
	if (m->target != NULL) {
		struct target_info info = m->target->info;

		info.flags = m->flags;
		cluster_put_target(c, m->target, &info);
	}
	if (n_decided == 0 && m->n == 0 && m->target == NULL) {
		(void)txn_end(c->store);
		return 0;
	}
	/* A restarted process that keeps its state changes nothing in the map. */
	if (m->n == 0 && !died && m->target == NULL)
		return store_wait(c->store, txn_end(c->store));
	TRY(cluster_commit(c));
	dead_are_down(c);
	return 1;
}

int moves_commit(struct moves *m)
{
	struct cluster *c = m->c;
	char a[128], b[128];
	int rc = moves_durable(m);

	if (rc <= 0) {
		free(m->next);
		*m = (struct moves){.c = c};
		return rc;
	}
	for (uint32_t i = 0; i < m->n; i++) {
		struct chain *ch = cluster_chain(c, m->next[i].id), was = *ch;

		ASSERT(m->next[i].epoch == was.epoch + 1);
		*ch = m->next[i];
		m->next[i] = was;
		cluster_chain_changed(c, &was);
		cluster_chain_changed(c, ch);
		log_debug("chain %u: epoch %u,%s (was%s)", ch->id, ch->epoch, member_text(ch, a),
			  member_text(&was, b));
	}
	if (m->target != NULL) {
		m->target->info.flags = m->flags;
		waitq_wake_all(&c->changed);
	}
	if (m->n > 0)
		c->quiet_us = loop_now_us();
	notify_moves(c, m->next, m->n);
	*m = (struct moves){.c = c};
	return 0;
}

/* ---- deciding ---- */

static bool is_up(const struct target *t)
{
	return t->info.state == TARGET_UP && !t->dead;
}

/* True if the target served until now and still does. */
static bool is_well(const struct target *t)
{
	return is_up(t) && !t->restarted;
}

struct ask {
	struct cluster *c;
	uint32_t target;
	bool alive;
};

static void ask_one(void *arg)
{
	struct ask *a = arg;
	struct bytes none = {NULL, 0};
	int rc = a->c->send(a->c->arg, a->target, none, none, loop_deadline_ms(ASK_MS));

	/* Any reply proves that the target is alive. */
	a->alive = rc >= 0 || (status_retry(rc) != RETRY_CONN && rc != -LE_TIMEDOUT &&
			       rc != -LE_TARGET_DOWN && rc != -LE_INTR);
}

/* Tests whether the healthy SYNC members are alive of chains with a member that is down or has
 * restarted: one of them is to lead. */
static void ask_alive(struct cluster *c, bool ret_alive[TARGETS_BOUND])
{
	bool wanted[TARGETS_BOUND] = {false};
	struct ask asks[TARGETS_BOUND];
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];
		bool trouble = false;

		for (uint32_t k = 0; k < ch->n_members; k++)
			trouble |= ch->members[k].state == MEMBER_SYNC &&
				   !is_well(cluster_target(c, ch->members[k].target));
		for (uint32_t k = 0; trouble && k < ch->n_members; k++)
			if (ch->members[k].state == MEMBER_SYNC &&
			    is_well(cluster_target(c, ch->members[k].target)))
				wanted[ch->members[k].target - 1] = true;
	}
	memset(ret_alive, 0, TARGETS_BOUND * sizeof(bool));
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (wanted[i])
			asks[n++] = (struct ask){c, i + 1, false};
	fiber_parallel("probe-alive", ask_one, asks, sizeof(asks[0]), n, 64);
	for (uint32_t i = 0; i < n; i++)
		ret_alive[asks[i].target - 1] = asks[i].alive;
}

struct decision {
	struct moves moves;
	bool alive[TARGETS_BOUND];
	bool waits[TARGETS_BOUND]; /* the state of this restarted target cannot be decided yet */
};

/* The id of the SYNC member that is to lead. 0: none now; *ret_wait: one may still reply. */
static uint32_t leader_of(const struct decision *j, const struct chain *ch, bool *ret_wait)
{
	uint32_t back = 0;

	*ret_wait = false;
	for (uint32_t i = 0; i < ch->n_members && ch->members[i].state == MEMBER_SYNC; i++) {
		uint32_t id = ch->members[i].target;
		const struct target *t = cluster_target(j->moves.c, id);

		if (is_well(t) && j->alive[id - 1])
			return id;
		if (is_well(t))
			*ret_wait = true;
		else if (is_up(t) && back == 0)
			back = id;
	}
	return *ret_wait ? 0 : back;
}

static bool has_trouble(const struct cluster *c, const struct chain *ch)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].state == MEMBER_SYNC &&
		    !is_well(cluster_target(c, ch->members[i].target)))
			return true;
	return false;
}

/* Planted bug for tests: the first member that returns leads with stale data. */
static bool lead_stale(struct decision *j, const struct chain *ch)
{
	struct chain *next;

	for (uint32_t i = 0; i < ch->n_members; i++) {
		uint32_t id = ch->members[i].target;

		if (ch->members[i].state != MEMBER_OUT || !is_up(cluster_target(j->moves.c, id)))
			continue;
		next = moves_chain(&j->moves, ch);
		for (uint32_t k = 0; next != NULL && k < ch->n_members; k++)
			if (ch->members[k].state == MEMBER_SYNC)
				member_move(next, ch->members[k].target, MEMBER_OUT);
		/* Not member_move(): its table forbids exactly this. */
		for (uint32_t k = 0; next != NULL && k < next->n_members; k++)
			if (next->members[k].target == id)
				next->members[k].state = MEMBER_SYNC;
		if (next != NULL)
			sort_members(next);
		return true;
	}
	return false;
}

/* Decides on SYNC members that are down or have restarted. Returns true if the chain has a
 * leader. */
static bool decide_sync(struct decision *j, const struct chain *ch)
{
	struct cluster *c = j->moves.c;
	uint32_t leader;
	bool wait;

	if (!has_trouble(c, ch))
		return true;
	leader = leader_of(j, ch, &wait);
	if (PLANTED_BUG(CHAIN_STALE_LEADER) && leader == 0 && !wait && lead_stale(j, ch))
		return false; /* the other members return later */
	for (uint32_t i = 0; i < ch->n_members && ch->members[i].state == MEMBER_SYNC; i++) {
		uint32_t id = ch->members[i].target;
		const struct target *t = cluster_target(c, id);
		struct chain *next;

		if (leader == 0 && t->restarted)
			j->waits[id - 1] = true;
		if (leader == 0 || id == leader || is_well(t))
			continue;
		next = moves_chain(&j->moves, ch);
		if (next != NULL)
			member_move(next, id, is_up(t) ? MEMBER_SYNCING : MEMBER_OUT);
	}
	return leader != 0;
}

/* Decides on the other members. A restarted target is filled from the start again, once, so not
 * before its state in all its chains can be decided. A leader that has restarted leads in a new
 * epoch, because the members downstream may have received requests that it has lost. */
static void decide_others(struct decision *j, const struct chain *ch, bool leads)
{
	struct cluster *c = j->moves.c;

	for (uint32_t i = 0; i < ch->n_members; i++) {
		uint32_t id = ch->members[i].target;
		const struct target *t = cluster_target(c, id);
		enum member_state is = ch->members[i].state;
		struct chain *next = NULL;
		int to = -1;

		if (is == MEMBER_SYNC && t->restarted && leads && !j->waits[id - 1])
			(void)moves_chain(&j->moves, ch);
		else if (is == MEMBER_SYNCING && !is_up(t))
			to = MEMBER_OUT;
		else if (is == MEMBER_SYNCING && t->restarted && !j->waits[id - 1])
			to = MEMBER_SYNCING;
		else if (is == MEMBER_OUT && is_up(t) && leads && (t->info.flags & TARGET_BAD) == 0)
			to = MEMBER_SYNCING;
		if (to >= 0)
			next = moves_chain(&j->moves, ch);
		if (next != NULL)
			member_move(next, id, to);
	}
}

static void check_all(struct decision *j, bool *leads)
{
	struct cluster *c = j->moves.c;

	for (uint32_t i = 0; i < c->n_chains; i++)
		leads[i] = c->chains[i]->n_members > 1 && decide_sync(j, c->chains[i]);
	for (uint32_t i = 0; i < c->n_chains; i++)
		if (c->chains[i]->n_members > 1 && (c->chains[i]->flags & CHAIN_LOST) == 0)
			decide_others(j, c->chains[i], leads[i]);
	for (uint32_t i = 0; i < c->n_targets; i++)
		c->targets[i]->settling = c->targets[i]->restarted && !j->waits[i];
}

/* Ends the wait of restarted targets once their states, and that these are decided, are durable. */
static void settle_restarted(struct cluster *c, bool decided)
{
	bool any = false;

	for (uint32_t i = 0; i < c->n_targets; i++) {
		struct target *t = c->targets[i];

		any |= t->settling && decided;
		if (t->settling && decided)
			t->restarted = false;
		t->settling = false;
	}
	if (any)
		waitq_wake_all(&c->settled);
}

int membership_reconcile(struct cluster *c)
{
	struct decision *j = calloc(1, sizeof(*j));
	bool *leads = NULL;
	int rc;

	if (j == NULL)
		return -LE_NOMEM;
	j->moves.c = c;
	fmutex_lock(&c->lock);
	leads = calloc(c->n_chains + 1, sizeof(*leads));
	if (leads != NULL) {
		ask_alive(c, j->alive);
		check_all(j, leads);
		rc = moves_commit(&j->moves);
		settle_restarted(c, rc == 0);
	} else {
		rc = -LE_NOMEM;
	}
	fmutex_unlock(&c->lock);
	free(leads);
	free(j);
	return rc;
}

int membership_settle(struct cluster *c, struct target *t)
{
	uint64_t until = loop_deadline_ms(SETTLE_MS);

	while (t->restarted || !membership_may_notify(c)) {
		int rc = t->restarted ? membership_reconcile(c) : 0;

		if (rc == 0 && (t->restarted || !membership_may_notify(c)))
			rc = waitq_wait(&c->settled, loop_deadline_ms(c->params->heartbeat_ms));
		if (rc < 0 && rc != -LE_TIMEDOUT)
			return rc;
		if (c->stopping || loop_now_us() > until)
			return -LE_NOT_READY;
	}
	return 0;
}

static int synced(struct cluster *c, const struct mds_chain_synced_req *in,
		  struct mds_chain_synced_rep *out)
{
	struct chain *ch = cluster_chain(c, in->chain), *next;
	struct moves m = {.c = c};
	int state;

	if (ch == NULL)
		return -LE_INVAL;
	state = state_in(ch, in->target);
	out->epoch = ch->epoch;
	/* The reply to the first message may have been lost. */
	if (state == MEMBER_SYNC)
		return 0;
	if (ch->epoch != in->epoch)
		return -LE_STALE_EPOCH;
	if (state != MEMBER_SYNCING || !is_well(cluster_target(c, in->target)))
		return -LE_INVAL;
	next = moves_chain(&m, ch);
	if (next != NULL)
		member_move(next, in->target, MEMBER_SYNC);
	TRY(moves_commit(&m));
	out->epoch = ch->epoch;
	return 0;
}

int membership_synced(struct cluster *c, const struct mds_chain_synced_req *in,
		      struct mds_chain_synced_rep *out)
{
	int rc;

	fmutex_lock(&c->lock);
	rc = synced(c, in, out);
	fmutex_unlock(&c->lock);
	return rc;
}

/* ---- the lead ---- */

static bool is_whole(const struct cluster *c, const struct chain *ch)
{
	if (ch->n_members != ch->replicas)
		return false;
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].state != MEMBER_SYNC ||
		    !is_well(cluster_target(c, ch->members[i].target)))
			return false;
	return true;
}

static void lead_back(struct moves *m, const struct chain *ch)
{
	struct chain *next;

	if (ch->n_members < 2 || ch->members[0].target == ch->lead || !is_whole(m->c, ch) ||
	    state_in(ch, ch->lead) != MEMBER_SYNC)
		return;
	next = moves_chain(m, ch);
	for (uint32_t k = 1; next != NULL && k < ch->n_members; k++) {
		if (ch->members[k].target != ch->lead)
			continue;
		next->members[0] = ch->members[k];
		next->members[k] = ch->members[0];
	}
}

int membership_even_heads(struct cluster *c)
{
	struct moves m = {.c = c};
	int rc;

	fmutex_lock(&c->lock);
	for (uint32_t i = 0; i < c->n_chains; i++)
		lead_back(&m, c->chains[i]);
	rc = moves_commit(&m);
	fmutex_unlock(&c->lock);
	return rc;
}

int membership_bad(struct cluster *c, struct target *t)
{
	struct moves m = {.c = c, .target = t};
	int rc;

	fmutex_lock(&c->lock);
	m.flags = t->info.flags | TARGET_BAD;
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];
		int state = state_in(ch, t->info.id);
		bool last = state == MEMBER_SYNC &&
			    (ch->n_members == 1 || ch->members[1].state != MEMBER_SYNC);
		struct chain *next;

		if (state == MEMBER_NONE || state == MEMBER_OUT || last)
			continue;
		next = moves_chain(&m, ch);
		if (next != NULL)
			member_move(next, t->info.id, MEMBER_OUT);
	}
	rc = moves_commit(&m);
	fmutex_unlock(&c->lock);
	return rc;
}

void membership_health(const struct cluster *c, struct chain_health *ret_h)
{
	*ret_h = (struct chain_health){0};
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];
		uint32_t well = 0;
		bool syncing = false, moving = ch->n_members > ch->replicas;

		if ((ch->flags & CHAIN_LOST) != 0) {
			ret_h->lost++;
			continue;
		}
		for (uint32_t k = 0; k < ch->n_members; k++) {
			well += ch->members[k].state == MEMBER_SYNC &&
				is_up(cluster_target(c, ch->members[k].target));
			syncing |= ch->members[k].state == MEMBER_SYNCING;
			moving |= (cluster_target(c, ch->members[k].target)->info.flags &
				   TARGET_DRAINING) != 0;
		}
		ret_h->whole += well >= ch->replicas;
		ret_h->down += well == 0;
		ret_h->degraded += well > 0 && well < ch->replicas;
		ret_h->syncing += syncing;
		ret_h->moving += moving;
	}
}
