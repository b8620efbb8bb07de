/* SPDX-License-Identifier: Apache-2.0 */
/* Members move: targets are drained, or are away for too long and replaced; and the effect of a
 * wall clock that jumps. With simulated targets. */
#include "mds/cluster/failure_detector.h"
#include "mds/cluster/membership.h"
#include "mds/cluster/rebalance.h"
#include "mds/cluster/registration.h"
#include "mds/cluster/target_admin.h"
#include "tests/unit/mds/target_rig.h"

#define N FX_TARGETS

static uint32_t add_spare(struct fx *f)
{
	struct mds_target_register_req q = {.uuid = {{100, N}},
					    .commits = 1,
					    .addrs = bytes_str("spare:1"),
					    .capacity = 1 << 30,
					    .free = 1 << 29};
	struct mds_target_register_rep p;

	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_target_register, &q, &p), 0);
	return p.target;
}

static int send_any(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
		    uint64_t deadline_us)
{
	if (target <= N)
		return tg_send(arg, target, chains, targets, deadline_us);
	return 0;
}

/* Reports every SYNCING member as filled. */
static void fill_all(struct cluster *c)
{
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];

		for (uint32_t k = 0; k < ch->n_members; k++) {
			struct mds_chain_synced_req q = {ch->id, ch->epoch, ch->members[k].target};
			struct mds_chain_synced_rep p;

			if (ch->members[k].state == MEMBER_SYNCING)
				assert_int_equal(membership_synced(c, &q, &p), 0);
		}
	}
}

/* Targets that were away for replace_after_ms are replaced. */
static void replace_lost(struct fx *f)
{
	struct cluster *c = &f->m->cluster;

	f->m->params.replace_after_ms = 1000;
	assert_int_equal(fiber_sleep_us(1500000), 0);
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(rebalance_pass(c), 0);
		fill_all(c);
	}
}

static void never_fewer(const struct cluster *c, uint32_t dead)
{
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];
		uint32_t sync = 0;

		for (uint32_t k = 0; k < ch->n_members; k++)
			sync += ch->members[k].state == MEMBER_SYNC &&
				ch->members[k].target != dead;
		assert_true(sync + (dead != 0) >= ch->replicas);
	}
}

static uint32_t admin(struct cluster *c, uint32_t what, uint32_t target, int want)
{
	struct mds_target_admin_req q = {what, target};
	struct mds_target_admin_rep p = {0};

	assert_int_equal(target_admin(c, &q, &p), want);
	return p.left;
}

static void move_until_done(struct cluster *c, uint32_t target, uint32_t dead)
{
	for (uint32_t i = 0; target_chains(c, target) > 0 && i < 50; i++) {
		assert_int_equal(rebalance_pass(c), 0);
		never_fewer(c, dead);
		fill_all(c);
		never_fewer(c, dead);
	}
	assert_int_equal(target_chains(c, target), 0);
}

static void drain_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	uint32_t spare, load[N + 1];

	c->send = send_any;
	spare = add_spare(f);
	c->detect_from_us = UINT64_MAX;
	f->m->params.replace_parallel = 2;
	assert_int_equal(admin(c, TARGET_ADMIN_REMOVE, 1, -LE_BUSY), 0);
	assert_true(admin(c, TARGET_ADMIN_DRAIN, 1, 0) > 0);
	assert_int_equal(rebalance_pass(c), 0);
	assert_int_equal(admin(c, TARGET_ADMIN_UNDRAIN, 1, 0), target_chains(c, 1));
	for (uint32_t i = 0; i < 5; i++) { /* moves in progress end, and nothing is lost */
		fill_all(c);
		assert_int_equal(rebalance_pass(c), 0);
		never_fewer(c, 0);
	}
	admin(c, TARGET_ADMIN_DRAIN, 1, 0);
	move_until_done(c, 1, 0);
	assert_int_equal(admin(c, TARGET_ADMIN_REMOVE, 1, 0), 0);
	assert_int_equal(tg_enroll(f, 0), -LE_REMOVED);
	admin(c, TARGET_ADMIN_ADD, 1, 0);
	assert_int_equal(tg_enroll(f, 0), 0);
	/* The target is empty: members of other targets move to it. */
	for (uint32_t i = 0; admin(c, TARGET_ADMIN_REBALANCE, 0, 0) > 0 && i < 100; i++) {
		assert_int_equal(rebalance_pass(c), 0);
		never_fewer(c, 0);
		fill_all(c);
	}
	assert_int_equal(admin(c, TARGET_ADMIN_REBALANCE, 0, 0), 0);
	for (uint32_t i = 0; i <= N; i++)
		load[i] = target_chains(c, i + 1);
	for (uint32_t i = 0; i <= N; i++)
		assert_in_range(load[i], load[spare - 1] - 2, load[spare - 1] + 2);
}

static void absent_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	uint32_t spare;

	c->send = send_any;
	spare = add_spare(f);
	tg_die(c, 1);
	tg_look(c);
	c->detect_from_us = UINT64_MAX;
	assert_int_equal(rebalance_pass(c), 0);
	assert_int_equal(target_chains(c, 1), 1 + 2 * N); /* not yet */
	replace_lost(f);
	/* All but its chain of class 1, which has no other replica. */
	assert_int_equal(target_chains(c, 1), 1);
	assert_true(target_chains(c, spare) > N);
	for (uint32_t i = 0; i < c->classes[2].n; i++) {
		assert_int_equal(c->classes[2].chains[i]->n_members, 2);
		assert_int_not_equal(c->classes[2].chains[i]->lead, 1);
	}
}

/* Members that returned and cannot be filled, for example without space, do not prevent other
 * replacements. */
static void unfilled_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	uint32_t more = 0;

	c->send = send_any;
	add_spare(f);
	c->detect_from_us = UINT64_MAX;
	f->m->params.replace_parallel = 1;
	assert_int_equal(tg_come_back(f, 2), 0);
	assert_int_equal(tg_state(tg_chain(c, 2, 3), 2), MEMBER_SYNCING);
	admin(c, TARGET_ADMIN_DRAIN, 1, 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(rebalance_pass(c), 0);
	for (uint32_t i = 0; i < c->n_chains; i++)
		more += c->chains[i]->n_members > c->chains[i]->replicas;
	assert_int_equal(more, 1); /* one at a time */
}

struct meanwhile {
	struct cluster *c;
	bool dies;
};

static void meanwhile_one(void *arg)
{
	struct meanwhile *a = arg;
	struct cluster *c = a->c;
	struct moves m = {.c = c};

	if (a->dies) {
		assert_true(c->lock.held);
		tg_die(c, 1);
		c->targets[0]->dead = true;
		return;
	}
	fmutex_lock(&c->lock);
	assert_non_null(moves_chain(&m, tg_chain(c, 2, 3)));
	assert_int_equal(moves_commit(&m), 0);
	fmutex_unlock(&c->lock);
}

/* A target counts as down while another change is being made durable: the time is recorded
 * nevertheless, so that it is replaced. */
static void meanwhile_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);
	struct meanwhile both[2] = {{c, false}, {c, true}};

	c->send = send_any;
	add_spare(f);
	fiber_parallel("meanwhile", meanwhile_one, both, sizeof(both[0]), 2, 2);
	tg_look(c);
	assert_int_equal(c->targets[0]->info.state, TARGET_DOWN);
	assert_int_not_equal(c->targets[0]->down_ns, 0);
	c->detect_from_us = UINT64_MAX;
	replace_lost(f);
	assert_int_equal(target_chains(c, 1), 1);
}

/* ---- the wall clock jumps ---- */

#define DAY_US (86400 * (int64_t)1000000)

static void pass_and_sleep(struct cluster *c, uint32_t ms)
{
	assert_int_equal(rebalance_pass(c), 0);
	fill_all(c);
	fx_sleep_ms(ms);
}

static uint32_t n_chains_before;

/* The clock jumps a day ahead: nothing is replaced early. It jumps ten days back: the replacement
 * happens. */
static void jump_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);

	c->send = send_any;
	add_spare(f);
	f->m->params.replace_after_ms = 1000;
	tg_die(c, 1);
	tg_look(c);
	assert_int_equal(c->targets[0]->info.state, TARGET_DOWN);
	c->detect_from_us = UINT64_MAX;
	n_chains_before = target_chains(c, 1);
	assert_true(n_chains_before > 1);
	sim_proc_set_wall(f->mds_proc, DAY_US);
	for (int i = 0; i < 4; i++)
		pass_and_sleep(c, 200);
	assert_int_equal(target_chains(c, 1), n_chains_before);
	sim_proc_set_wall(f->mds_proc, -10 * DAY_US);
	fx_sleep_ms(300);
	for (int i = 0; i < 20; i++)
		pass_and_sleep(c, 1);
	assert_int_equal(target_chains(c, 1), 1);
}

static void test_the_wall_clock_jumps(void **state)
{
	struct fx *f = fx_create(1);

	(void)state;
	fx_run(f, jump_body);
	fx_destroy(f);
}

static void down_body(struct fx *f)
{
	struct cluster *c = tg_begin(f);

	tg_die(c, 1);
	tg_look(c);
	assert_int_equal(c->targets[0]->info.state, TARGET_DOWN);
	c->detect_from_us = UINT64_MAX;
}

static int64_t started_ahead_us;

/* How much of the time before the start counts as time away. */
static void restarted_body(struct fx *f)
{
	struct cluster *c = tg_cluster(f);
	struct env *env = c->store->env;
	const struct target *t = c->targets[0];
	uint64_t us;

	c->detect_from_us = UINT64_MAX;
	assert_int_equal(t->info.state, TARGET_DOWN);
	us = target_away_us(t, env, 600000000);
	if (started_ahead_us > 0) {
		assert_true(us >= 300000000 && us < 310000000);
	} else {
		assert_true(us < 10000000);
	}
	fx_sleep_ms(500000);
	assert_true(target_away_us(t, env, 600000000) >= us + 500000000);
}

static void test_started_with_a_wrong_clock(void **state)
{
	static const int64_t ahead[] = {DAY_US, -10 * DAY_US};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct fx *f = fx_create_to_crash(1);

		started_ahead_us = ahead[i];
		fx_run(f, down_body);
		fx_crash(f);
		f->no_targets = true; /* the target that is away stays away */
		sim_proc_set_wall(f->mds_proc, ahead[i]);
		fx_run(f, restarted_body);
		fx_destroy(f);
	}
}

TEST(test_drain, drain_body)
TEST(test_absent, absent_body)
TEST(test_unfilled, unfilled_body)
TEST(test_judged_meanwhile, meanwhile_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_unfilled),
		cmocka_unit_test(test_judged_meanwhile),
		cmocka_unit_test(test_the_wall_clock_jumps),
		cmocka_unit_test(test_started_with_a_wrong_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
