/* SPDX-License-Identifier: Apache-2.0 */
/* A bed on a real loop: server and client in one thread, over any transport. */
#include <string.h>

#include "common/rt/env_real.h"
#include "tests/unit/common/rpc/suite.h"

struct run {
	struct bed bed;
	const struct suite_real *how;
	struct loop *loop;
	void (*test)(struct bed *b);
};

static void at_server(struct bed *b, void (*fn)(void *arg), void *arg)
{
	(void)b;
	fn(arg);
}

static void main_fiber(void *arg)
{
	struct run *r = arg;
	struct bed *b = &r->bed;

	assert_int_equal(r->how->create(&b->transport), 0);
	b->client_pool = suite_pool(b, b->n_slots, POOL_REMOTE);
	r->test(b);
	slot_pool_destroy(b->client_pool);
	transport_destroy(b->transport);
	loop_stop(r->loop);
}

void suite_real_run(const struct suite_real *how, void (*test)(struct bed *b))
{
	struct run r = {.bed = {.listen = how->listen,
				.at_server = at_server,
				.program = how->program,
				.scale = how->scale,
				.brief = how->brief,
				.lazy_sends = how->lazy_sends,
				.slot_size = how->slot_size > 0 ? how->slot_size : SLOT_SIZE,
				.n_slots = 80,
				.key = {{1, 2, 3}},
				.cluster = {{7, 7}}},
			.how = how,
			.test = test};
	struct env_real_options eo = {.n_workers = 1};
	/* for the buffers of assertions */
	struct loop_options lo = {.name = "test", .stack_size = 256u << 10};
	struct env *env;

	assert_int_equal(env_real_create(&eo, &env), 0);
	assert_int_equal(loop_create(env, &lo, &r.loop), 0);
	assert_int_equal(fiber_spawn_on(r.loop, "main", main_fiber, &r), 0);
	loop_run(r.loop);
	assert_int_equal(loop_n_fibers(r.loop), 0);
	loop_destroy(r.loop);
	env_real_destroy(env);
}
