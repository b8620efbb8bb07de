/* SPDX-License-Identifier: Apache-2.0 */
/* A loop for each test: rt_run(fn, arg) runs fn as a fiber and returns when all fibers have
 * ended. */
#ifndef LEAT_TESTS_UNIT_COMMON_RT_RT_TEST_H
#define LEAT_TESTS_UNIT_COMMON_RT_RT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/rt/env.h"
#include "common/rt/env_real.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

struct rt_main {
	void (*fn)(void *arg);
	void *arg;
};

static inline void rt_main_fiber(void *arg)
{
	struct rt_main *m = arg;

	m->fn(m->arg);
	loop_stop(loop_self());
}

static inline struct env *rt_env(void)
{
	struct env_real_options opts = { .n_workers = 2 };
	struct env *env = NULL;

	assert_int_equal(env_real_create(&opts, &env), 0);
	return env;
}

static inline void rt_run_opts(void (*fn)(void *arg), void *arg, const struct loop_options *opts)
{
	struct rt_main m = { fn, arg };
	struct env *env = rt_env();
	struct loop *l = NULL;

	assert_int_equal(loop_create(env, opts, &l), 0);
	assert_int_equal(fiber_spawn_on(l, "main", rt_main_fiber, &m), 0);
	loop_run(l);
	assert_int_equal(loop_n_fibers(l), 0);
	loop_destroy(l);
	env_real_destroy(env);
}

static inline void rt_run(void (*fn)(void *arg), void *arg)
{
	struct loop_options opts = { .name = "test" };

	rt_run_opts(fn, arg, &opts);
}

/* Starts a loop on its own thread. */
static inline struct loop *rt_start(struct env *env, uint32_t spin_us)
{
	struct loop_options opts = { .name = "test-peer", .spin_us = spin_us };
	struct loop *l = NULL;

	assert_int_equal(loop_create(env, &opts, &l), 0);
	assert_int_equal(loop_start_thread(l), 0);
	return l;
}

static inline void rt_stop(struct loop *l)
{
	loop_stop(l);
	loop_join(l);
	loop_destroy(l);
}

#endif
