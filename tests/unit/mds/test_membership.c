/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs, failures and returns, with simulated targets, under the simulator's clock. */
#include "mds/cluster/chain_table.h"
#include "mds/cluster/failure_detector.h"
#include "mds/cluster/membership.h"
#include "tests/unit/mds/target_rig.h"

#define N FX_TARGETS

/* ---- one after the other ---- */

static void death_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *ch = tg_chain(c, 1, 2);
	struct mds_chain_synced_req q = {ch->id, 1, 1};
	struct mds_chain_synced_rep p;
	uint32_t heads = 0;

	tg_die(c, 1);
	tg_look(c);
	for (uint32_t i = 0; i < c->classes[2].n; i++) {
		const struct chain *each = c->classes[2].chains[i];

		if (!tg_has(each, 1)) {
			assert_int_equal(each->epoch, 1);
			continue;
		}
		assert_int_equal(each->epoch, 2);
		assert_int_equal(each->members[1].target, 1);
		assert_int_equal(each->members[1].state, MEMBER_OUT);
		assert_int_equal(tg.epoch[each->members[0].target - 1][each->id], 2);
	}
	assert_int_equal(c->targets[0]->info.state, TARGET_DOWN);
	assert_int_not_equal(c->targets[0]->down_ns, 0);
	tg_look(c);
	assert_int_equal(ch->epoch, 2); /* no further change */

	assert_int_equal(tg_come_back(f, 1), 0);
	tg_look(c);
	assert_int_equal(ch->epoch, 3);
	assert_int_equal(tg_state(ch, 1), MEMBER_SYNCING);
	assert_int_equal(tg.epoch[0][ch->id], 3);
	q.epoch = 2;
	assert_int_equal(membership_synced(c, &q, &p), -LE_STALE_EPOCH);
	q.epoch = 3;
	q.target = 2;
	assert_int_equal(membership_synced(c, &q, &p), 0); /* it is SYNC already */
	assert_int_equal(tg_sync_all(c, 1), 0);
	q.target = 1;
	assert_int_equal(membership_synced(c, &q, &p), 0); /* as after a lost reply */
	assert_int_equal(tg_state(ch, 1), MEMBER_SYNC);
	assert_int_equal(ch->members[1].target, 1); /* not the head immediately */

	assert_int_equal(membership_even_heads(c), 0);
	for (uint32_t i = 0; i < c->classes[2].n; i++)
		heads += c->classes[2].chains[i]->members[0].target == 1;
	assert_int_equal(heads, N - 1);
}

/* Members fail together: the first one that returns becomes the head, and no member is set OUT
 * without need. */
static void together_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *both = tg_chain(c, 1, 2), *one = tg_chain(c, 2, 3);
	struct chain_health h;

	tg_die(c, 1);
	tg_die(c, 2);
	tg_look(c);
	assert_int_equal(both->epoch, 1);
	assert_int_equal(tg_state(both, 1), MEMBER_SYNC);
	assert_int_equal(tg_state(both, 2), MEMBER_SYNC);
	assert_int_equal(tg_state(one, 2), MEMBER_OUT);
	membership_health(c, &h);
	assert_int_equal(h.down, 2 + 2); /* both shared chains, both single ones */
	assert_int_equal(h.degraded, 4);
	assert_int_equal(tg_come_back(f, 2), 0);
	assert_int_equal(both->members[0].target, 2);
	assert_int_equal(tg_state(both, 1), MEMBER_OUT);
	assert_int_equal(both->epoch, 2);
	assert_int_equal(tg_come_back(f, 1), 0);
	tg_look(c);
	assert_int_equal(tg_state(both, 1), MEMBER_SYNCING);
	assert_int_equal(tg_state(both, 2), MEMBER_SYNC);
}

/* One member is set OUT, then the last one fails: the chain waits for the last one, because the
 * other is incomplete. */
static void last_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *ch = tg_chain(c, 1, 2);

	tg_die(c, 1);
	tg_look(c);
	tg_die(c, 2);
	tg_look(c);
	assert_int_equal(tg_state(ch, 2), MEMBER_SYNC);
	assert_int_equal(tg_come_back(f, 1), 0);
	tg_look(c);
	assert_int_equal(tg_state(ch, 1), MEMBER_OUT);
	assert_int_equal(ch->epoch, 2);
	assert_int_equal(tg_come_back(f, 2), 0);
	tg_look(c);
	assert_int_equal(ch->members[0].target, 2);
	assert_int_equal(tg_state(ch, 1), MEMBER_SYNCING);
}

/* A target restarts before it counts as down: it is not SYNC while another member is. */
static void restart_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *ch = tg_chain(c, 1, 2);

	assert_int_equal(tg_come_back(f, 1), 0);
	assert_int_equal(ch->members[0].target, 2);
	assert_int_equal(tg_state(ch, 1), MEMBER_SYNCING);
	assert_int_equal(ch->epoch, 2);
	assert_int_equal(tg_enroll(f, 0), 0); /* only a new connection */
	assert_int_equal(ch->epoch, 2);
	assert_int_equal(tg_sync_all(c, 1), 0);
	/* The other member does not answer and is not certainly dead: the registration fails, and
	 * the target gets no chains and serves nothing. */
	tg.lose[1] = true;
	assert_int_equal(tg_come_back(f, 1), -LE_NOT_READY);
	assert_int_equal(ch->epoch, 3);
	assert_int_equal(tg_state(ch, 1), MEMBER_SYNC);
	assert_int_equal(tg_state(ch, 2), MEMBER_SYNC);
	tg_die(c, 2);
	tg_look(c);
	assert_int_equal(tg_enroll(f, 0), 0);
	assert_int_equal(ch->members[0].target, 1);
	assert_int_equal(tg_state(ch, 2), MEMBER_OUT);
}

/* The only SYNC member restarts before it counts as down. Its pending versions may differ from
 * those that the SYNCING member has, so the chain continues in another epoch. */
static void lone_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *ch = tg_chain(c, 1, 2);
	uint32_t epoch;

	assert_int_equal(tg_come_back(f, 1), 0);
	assert_int_equal(tg_state(ch, 1), MEMBER_SYNCING);
	epoch = ch->epoch;
	assert_int_equal(tg_come_back(f, 2), 0);
	assert_int_equal(ch->members[0].target, 2);
	assert_int_equal(tg_state(ch, 2), MEMBER_SYNC);
	assert_int_equal(tg_state(ch, 1), MEMBER_SYNCING);
	assert_int_equal(ch->epoch, epoch + 1);
	tg_look(c);
	assert_int_equal(ch->epoch, epoch + 1);
}

/* The metadata server fails between a registration and its decision: the next server still has to
 * decide. */
static void undecided_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	uint64_t judged = c->targets[0]->judged;

	tg.lose[1] = tg.lose[2] = true;
	assert_int_equal(tg_come_back(f, 1), -LE_NOT_READY);
	assert_int_equal(c->targets[0]->judged, judged);
	assert_true(c->targets[0]->restarted);
	memset(tg.lose, 0, sizeof(tg.lose));
	assert_int_equal(tg_enroll(f, 0), 0);
	assert_int_equal(c->targets[0]->judged, tg.process[0]);
	assert_int_equal(c->targets[0]->judged, c->targets[0]->incarnation);
}

/* Two targets wait for the answer of a third one: they do not wake each other without end. */
struct enrolling {
	struct fx *f;
	uint32_t target;
	int rc;
};

static void enroll_fiber(void *arg)
{
	struct enrolling *e = arg;

	e->rc = tg_come_back(e->f, e->target);
}

static void waiting_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *both = tg_chain(c, 1, 2);
	struct enrolling e[2] = {{f, 1, 0}, {f, 2, 0}};
	uint32_t sent = tg.n_sent;

	tg.lose[2] = true;
	fiber_parallel("enroll", enroll_fiber, e, sizeof(e[0]), 2, 2);
	assert_int_equal(e[0].rc, -LE_NOT_READY);
	assert_int_equal(e[1].rc, -LE_NOT_READY);
	assert_in_range(both->epoch, 1, 4);
	assert_in_range(tg.n_sent - sent, 1, 400);
}

/* ---- by the clock ---- */

static void silence_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *ch = tg_chain(c, 1, 2);

	c->params = &f->m->params;
	f->m->params.lease_ms = 1000;
	f->m->params.lease_margin_ms = 500;
	c->detect_from_us = 0;
	for (int i = 0; i < 14; i++) {
		assert_int_equal(tg_beat(f, 1) + tg_beat(f, 2), 0);
		assert_int_equal(fiber_sleep_us(100000), 0);
	}
	assert_int_equal(c->targets[0]->info.state, TARGET_UP);
	tg.alive[0] = false;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(tg_beat(f, 1) + tg_beat(f, 2), 0);
		assert_int_equal(fiber_sleep_us(100000), 0);
	}
	assert_int_equal(c->targets[0]->info.state, TARGET_DOWN);
	assert_int_equal(tg_state(ch, 1), MEMBER_OUT);
	/* A heartbeat of the same process arrives: it is notified, then filled. */
	tg.alive[0] = true;
	assert_int_equal(tg_beat(f, 0), 0);
	assert_int_equal(fiber_sleep_us(20000), 0);
	assert_int_equal(tg_state(ch, 1), MEMBER_SYNCING);
	assert_int_equal(tg.epoch[0][ch->id], ch->epoch);
	/* The metadata server itself stood still: it has no evidence against the targets. */
	failure_detector_poll(c, loop_now_us() - 1000000);
	for (uint32_t i = 0; i < N; i++)
		c->targets[i]->last_contact_us = 0;
	failure_detector_poll(c, loop_now_us());
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(c->targets[i]->info.state, TARGET_UP);
	assert_int_equal(fiber_sleep_us(1400000), 0);
	assert_int_equal(c->targets[1]->info.state, TARGET_UP);
	assert_int_equal(fiber_sleep_us(500000), 0);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(c->targets[i]->info.state, TARGET_DOWN);
}

/* ---- whether a target's process runs ---- */

static const struct transport_ops *net_ops;

/* As on a server without verbs. */
static int connect_some(struct transport *t, const char *addr, uint64_t deadline_us,
			struct link **ret_link)
{
	if (strncmp(addr, "verbs:", 6) == 0)
		return -LE_CONFIG;
	return net_ops->connect(t, addr, deadline_us, ret_link);
}

static int probe(struct fx *f, const char *addrs)
{
	char text[128];
	struct target t = {.addrs = text};

	snprintf(text, sizeof(text), "%s", addrs);
	return f->m->cluster.probe(f->m, &t);
}

static void probe_body(struct fx *f)
{
	struct transport_ops ops = *f->net->ops;

	net_ops = f->net->ops;
	ops.connect = connect_some;
	f->net->ops = &ops;
	assert_int_equal(probe(f, f->oss_addr[0]), -LE_EXIST);
	assert_int_equal(probe(f, "oss:1"), 0);
	/* An address that this server cannot use is no evidence, and does not affect other
	 * addresses. */
	assert_int_equal(probe(f, "verbs:oss:1 oss:1"), 0);
	assert_int_equal(probe(f, "oss:1 verbs:oss:1"), 0);
	assert_int_equal(probe(f, "verbs:oss:1"), -LE_NODATA);
	assert_int_equal(probe(f, "verbs:oss:1 oss:9000"), -LE_EXIST);
	f->net->ops = net_ops;
}

/* ---- a slow start ---- */

#define LISTENS_LATE_US 3000000u

static uint64_t listened_us;

/* As with slow name lookups. */
static int listen_late(struct transport *t, struct loop *l, const char *addr,
		       struct listener **ret_listener, char *ret_addr)
{
	assert_int_equal(fiber_sleep_us(LISTENS_LATE_US), 0);
	listened_us = loop_now_us();
	return net_ops->listen(t, l, addr, ret_listener, ret_addr);
}

/* Targets may have leases from just before the server listens. Before those have expired no target
 * counts as silent, or as stopped. */
static void late_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);

	assert_true(c->detect_from_us >= listened_us + 600500 * 1000ull);
	f->m->params.lease_ms = 1000;
	f->m->params.lease_margin_ms = 500;
	c->detect_from_us = UINT64_MAX;
	assert_int_equal(fiber_sleep_us(LISTENS_LATE_US), 0);
	c->detect_from_us = 0;
	assert_int_equal(membership_start(c), 0);
	tg_look(c);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(c->targets[i]->info.state, TARGET_UP);
}

static void test_listens_late(void **state)
{
	struct fx *f = fx_create(1);
	struct transport_ops ops = *f->net->ops;

	(void)state;
	net_ops = f->net->ops;
	ops.listen = listen_late;
	f->net->ops = &ops;
	fx_run(f, late_body);
	f->net->ops = net_ops;
	fx_destroy(f);
}

/* ---- the metadata server crashes between any two steps ---- */

static uint32_t seed;

static void work_body(struct fx *f)
{
	struct cluster *c = tg_cluster(f);

	c->detect_from_us = UINT64_MAX;
	if (tg.n_sent == 0)
		assert_int_equal(chain_table_want(c, 2), 0);
	for (uint32_t i = 0; i < N; i++) {
		c->targets[i]->ended = !tg.alive[i];
		if (tg.alive[i] && tg_enroll(f, i) < 0)
			c->targets[i]->restarted = true;
	}
	for (uint32_t step = 0; step < 20; step++) {
		uint32_t t = (uint32_t)sim_random_below(f->sim, N) + 1;

		if (tg.alive[t - 1] && sim_random_below(f->sim, 3) == 0) {
			tg_die(c, t);
			failure_detector_kick(c);
		} else if (!tg.alive[t - 1]) {
			int rc = tg_come_back(f, t);

			assert_true(rc == 0 || rc == -LE_NOT_READY);
		} else if (tg_sync_all(c, t) < 0) {
			continue;
		}
		tg.lose[t - 1] = sim_random_below(f->sim, 4) == 0;
		fiber_sleep_us(sim_random_below(f->sim, 2000));
		for (uint32_t i = 0; i < c->n_chains; i++)
			assert_int_equal(c->chains[i]->members[0].state, MEMBER_SYNC);
	}
}

struct until {
	uint64_t us;
	struct fx *f;
};

static bool until_done(void *arg)
{
	struct until *u = arg;

	return sim_now_us(u->f->sim) >= u->us;
}

static void all_up_body(struct fx *f)
{
	struct cluster *c = tg_cluster(f);

	memset(tg.lose, 0, sizeof(tg.lose));
	for (uint32_t i = 0; i < N; i++)
		c->targets[i]->ended = !tg.alive[i];
	tg_look(c);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(tg.alive[i] ? tg_enroll(f, i) : tg_come_back(f, i + 1), 0);
	for (uint32_t i = 0; i < 3; i++) {
		tg_look(c);
		for (uint32_t t = 1; t <= N; t++)
			assert_int_equal(tg_sync_all(c, t), 0);
	}
	assert_int_equal(c->classes[2].n, N * (N - 1)); /* no additional chains */
	for (uint32_t i = 0; i < c->classes[2].n; i++)
		for (uint32_t k = 0; k < 2; k++)
			assert_int_equal(c->classes[2].chains[i]->members[k].state, MEMBER_SYNC);
}

static void test_crashes(void **state)
{
	(void)state;
	for (seed = 1; seed <= 30; seed++) {
		struct fx *f = fx_create_to_crash(seed);

		memset(&tg, 0, sizeof(tg));
		for (uint32_t i = 0; i < N; i++)
			tg.alive[i] = true;
		for (uint32_t round = 0; round < 6; round++) {
			struct until u = {
				sim_now_us(f->sim) + 5000 + sim_random_below(f->sim, 40000), f};

			fx_start(f, work_body);
			assert_int_equal(sim_run(f->sim, until_done, &u, UINT64_MAX), 0);
			fx_crash(f); /* at any step: epochs that were sent must not go back */
		}
		fx_run(f, all_up_body);
		assert_int_equal(fx_check(f, false), 0);
		fx_destroy(f);
	}
}

/* A member that may not continue cannot be notified. Until its lease has expired no target is
 * notified of the new epoch, in any way, and the member gets no new lease. */
static void held_back(struct fx *f, const struct chain *ch, uint32_t before)
{
	for (int i = 0; i < 14; i++) {
		for (uint32_t t = 0; t < N; t++)
			assert_int_equal(tg_beat(f, t), -LE_NOT_READY);
		assert_int_equal(tg.epoch[0][ch->id], before);
		assert_int_equal(tg.epoch[1][ch->id], before);
		assert_int_equal(fiber_sleep_us(100000), 0);
	}
	assert_int_equal(fiber_sleep_us(200000), 0);
	for (uint32_t t = 0; t < N; t++)
		assert_int_equal(tg_beat(f, t), 0);
	assert_int_equal(tg.epoch[0][ch->id], ch->epoch);
	assert_int_equal(tg.epoch[1][ch->id], ch->epoch);
}

static void stops_first_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *ch = tg_chain(c, 1, 2);
	struct moves m = {.c = c};
	uint32_t epoch = ch->epoch, map_epoch;

	f->m->params.lease_ms = 1000;
	f->m->params.lease_margin_ms = 500;
	for (uint32_t t = 0; t < N; t++)
		assert_int_equal(tg_beat(f, t), 0);
	tg.lose[0] = true;
	map_epoch = c->epoch;
	assert_int_equal(membership_bad(c, c->targets[0]), 0);
	assert_true(c->targets[0]->info.flags & TARGET_BAD);
	/* One transaction: no crash leaves a bad target that is still SYNC. */
	assert_int_equal(c->epoch, map_epoch + 1);
	assert_int_equal(tg_state(ch, 1), MEMBER_OUT);
	assert_int_equal(ch->epoch, epoch + 1);
	/* A later change does not overtake it. */
	fmutex_lock(&c->lock);
	assert_non_null(moves_chain(&m, ch));
	assert_int_equal(moves_commit(&m), 0);
	fmutex_unlock(&c->lock);
	held_back(f, ch, epoch);
	/* The next server has no record which targets were notified. */
	epoch = ch->epoch;
	assert_int_equal(membership_start(c), 0);
	held_back(f, ch, epoch);
	/* Targets that answer, and targets with an ended process, delay nothing. */
	tg.lose[0] = false;
	assert_int_equal(membership_start(c), 0);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_int_equal(tg_beat(f, 1), 0);
	tg.alive[0] = false;
	assert_int_equal(membership_start(c), 0);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_int_equal(tg_beat(f, 1), 0);
}

static void move_member(struct cluster *c, struct chain *ch, uint32_t target, int state)
{
	struct moves m = {.c = c};
	struct chain *next;

	fmutex_lock(&c->lock);
	next = moves_chain(&m, ch);
	assert_non_null(next);
	member_move(next, target, state);
	assert_int_equal(moves_commit(&m), 0);
	fmutex_unlock(&c->lock);
	assert_int_equal(fiber_sleep_us(5000), 0); /* it is notified */
}

/* A chain of one member has moved, and the server fails before it has notified the previous member.
 * The next server notifies it. */
static void stops_lone_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct chain *ch = cluster_chain(c, c->targets[0]->chain);

	move_member(c, ch, 2, MEMBER_SYNCING);
	move_member(c, ch, 2, MEMBER_SYNC);
	move_member(c, ch, 1, MEMBER_NONE);
	assert_int_equal(ch->n_members, 1);
	tg.epoch[0][ch->id] = ch->epoch - 1;
	assert_int_equal(membership_start(c), 0);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_int_equal(tg.epoch[0][ch->id], ch->epoch);
}

TEST(test_stops_first, stops_first_body)
TEST(test_stops_lone, stops_lone_body)
TEST(test_death_and_return, death_body)
TEST(test_fail_together, together_body)
TEST(test_last_member_stays, last_body)
TEST(test_restart_unnoticed, restart_body)
TEST(test_lone_restart, lone_body)
TEST(test_undecided, undecided_body)
TEST(test_waiting, waiting_body)
TEST(test_silence, silence_body)
TEST(test_probe, probe_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_death_and_return),
		cmocka_unit_test(test_fail_together),
		cmocka_unit_test(test_last_member_stays),
		cmocka_unit_test(test_restart_unnoticed),
		cmocka_unit_test(test_lone_restart),
		cmocka_unit_test(test_undecided),
		cmocka_unit_test(test_waiting),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_listens_late),
		cmocka_unit_test(test_crashes),
		cmocka_unit_test(test_stops_first),
		cmocka_unit_test(test_stops_lone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
