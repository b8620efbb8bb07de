/* SPDX-License-Identifier: Apache-2.0 */
/* How an object server derives the metadata server's clock, while its own clock jumps. */
#include "common/rpc/mds_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/rt/sim/sim.h"

#define S    1000000ll
#define DAY  (86400 * S)
#define TRIP 2000u

static const int64_t offsets_us[] = {S / 2, -S, 3600 * S, -3600 * S, 10 * DAY, -10 * DAY,
				     3650 * DAY, -4018 * DAY};
static struct sim_proc *proc;
static bool done;

static void near(int64_t a_ns, int64_t b_ns)
{
	assert_in_range(a_ns - b_ns + TRIP * 1000, 0, 2 * TRIP * 1000);
}

/* The metadata server's clock is that of the simulation. */
static void hear(struct env *env, struct mds_clock *k, int64_t ahead_us)
{
	uint64_t sent_us = env_now_us(env);
	int64_t now_ns;

	(void)!fiber_sleep_us(TRIP / 4);
	now_ns = env_wall_ns(env) - ahead_us * 1000;
	(void)!fiber_sleep_us(TRIP - TRIP / 4);
	mds_clock_observe(k, env, now_ns, sent_us);
}

static void clock_main(struct loop *l, void *arg)
{
	struct env *env = loop_env(l);
	struct mds_clock k = {0};
	(void)arg;

	assert_int_equal(mds_clock_now_ns(&k, env), 0);
	assert_int_equal(mds_clock_stamp_ns(&k, env), env_wall_ns(env));
	for (size_t i = 0; i < sizeof(offsets_us) / sizeof(offsets_us[0]); i++) {
		int64_t ahead_us = offsets_us[i];
		bool apart = ahead_us > S + TRIP || ahead_us < -S - TRIP;
		int64_t true_ns;

		sim_proc_set_wall(proc, ahead_us);
		hear(env, &k, ahead_us);
		assert_in_range(k.ahead_us - ahead_us + TRIP, 0, 2 * TRIP);
		assert_in_range(k.bound_us, TRIP / 2, TRIP / 2 + 1);
		/* It stays until the next reply. */
		(void)!fiber_sleep_us(3600 * S);
		true_ns = env_wall_ns(env) - ahead_us * 1000;
		near(mds_clock_now_ns(&k, env), true_ns);
		near(mds_clock_stamp_ns(&k, env), apart ? true_ns : env_wall_ns(env));
		sim_proc_set_wall(proc, ahead_us - 20 * DAY);
		near(mds_clock_now_ns(&k, env), true_ns);
		near(mds_clock_stamp_ns(&k, env), true_ns);
	}
	/* The metadata server's clock jumps, and the object server follows. It ignores impossible
	 * times. */
	mds_clock_observe(&k, env, 1420070400000000000ll, env_now_us(env));
	near(mds_clock_now_ns(&k, env), 1420070400000000000ll);
	mds_clock_observe(&k, env, INT64_MAX, env_now_us(env));
	mds_clock_observe(&k, env, INT64_MIN, env_now_us(env));
	near(mds_clock_now_ns(&k, env), 1420070400000000000ll);
	done = true;
}

static bool is_done(void *arg)
{
	return *(bool *)arg;
}

static void it_is_followed(void **state)
{
	struct sim_options so = {0};
	struct sim *s;
	(void)state;

	assert_int_equal(sim_create(1, &so, &s), 0);
	proc = sim_proc_create(s, "ossd");
	assert_int_equal(sim_proc_start(proc, clock_main, NULL), 0);
	assert_int_equal(sim_run(s, is_done, &done, UINT64_MAX), 0);
	sim_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_followed)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
