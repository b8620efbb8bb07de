/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: order, park and wake, interruption, waitq, fmutex, parallel, reuse of stacks. */
#include "common/rt/env_real.h"
#include "tests/unit/common/rt/rt_test.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/rt/loop_impl.h"

struct trace {
	char text[256];
	struct fiber *fiber;
	struct waitq q;
	struct fmutex m;
	struct latch latch;
	int status, n;
	uint64_t deadline;
};

static void note(struct trace *t, const char *s)
{
	strncat(t->text, s, sizeof(t->text) - strlen(t->text) - 1);
}

static void spawn(const char *name, void (*fn)(void *), void *arg)
{
	assert_int_equal(fiber_spawn(name, fn, arg), 0);
}

static void yielder(void *arg)
{
	struct trace *t = arg;

	note(t, fiber_name(fiber_self()));
	fiber_yield();
	note(t, fiber_name(fiber_self()));
}

static void order_main(void *arg)
{
	struct trace *t = arg;

	spawn("a", yielder, t);
	spawn("b", yielder, t);
	note(t, "m");
	fiber_yield();
	note(t, "m");
	fiber_yield();
	note(t, "m");
}

static void test_order_is_first_in_first_out(void **state)
{
	struct trace t = { .text = "" };

	(void)state;
	rt_run(order_main, &t);
	assert_string_equal(t.text, "mabmabm");
}

static void parker(void *arg)
{
	struct trace *t = arg;

	t->fiber = fiber_self();
	fiber_park();
	note(t, "1");
	fiber_park();
	note(t, "2");
	t->fiber = NULL;
}

static void park_main(void *arg)
{
	struct trace *t = arg;

	spawn("p", parker, t);
	fiber_yield();
	fiber_wake(t->fiber);
	fiber_wake(t->fiber); /* it has not run since: no second wake */
	fiber_yield();
	assert_string_equal(t->text, "1");
	fiber_yield();
	assert_string_equal(t->text, "1");
	fiber_wake(t->fiber);
	fiber_yield();
	assert_string_equal(t->text, "12");
	/* An early wake is kept; a second one is not. */
	fiber_wake(fiber_self());
	fiber_wake(fiber_self());
	fiber_park();
	assert_int_equal(fiber_park_until(loop_now_us() + 1000), -LE_TIMEDOUT);
	assert_int_equal(fiber_park_until(loop_now_us()), -LE_TIMEDOUT);
	/* A wake for the fiber's own park is not lost in another wait. */
	fiber_wake(fiber_self());
	assert_int_equal(fiber_sleep_us(1000), 0);
	assert_int_equal(fiber_park_until(loop_now_us() + 1000), 0);
}

static void test_park_and_wake(void **state)
{
	struct trace t = { .text = "" };

	(void)state;
	rt_run(park_main, &t);
}

static void sleeper(void *arg)
{
	struct trace *t = arg;

	t->status = fiber_sleep_us(60 * 1000000);
	t->n++;
	if (fiber_sleep_us(100) == 0)
		t->n++;
}

static void interrupt_main(void *arg)
{
	struct trace *t = arg;

	t->fiber = NULL;
	spawn("s", sleeper, t);
	fiber_yield();
	/* sleeper stores no handle: interrupt this fiber instead, before it sleeps. */
	fiber_interrupt(fiber_self());
	assert_int_equal(fiber_sleep_us(1000), -LE_INTR);
	assert_int_equal(fiber_sleep_us(1000), 0);
}

static void interrupted(void *arg)
{
	struct trace *t = arg;

	t->fiber = fiber_self();
	sleeper(t);
}

static void interrupt_other_main(void *arg)
{
	struct trace *t = arg;

	spawn("s", interrupted, t);
	fiber_yield();
	fiber_interrupt(t->fiber);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_int_equal(t->status, -LE_INTR);
	assert_int_equal(t->n, 2);
}

static void test_interrupt(void **state)
{
	struct trace t = { .text = "" };

	(void)state;
	rt_run(interrupt_other_main, &t);
}

static void stopper(void *arg)
{
	int *stop = arg;

	assert_int_equal(fiber_sleep_us(1000), 0);
	*stop = 1;
}

static void unless_main(void *arg)
{
	struct trace *t = arg;
	uint64_t begin = loop_now_us();
	int stop = 0;

	assert_int_equal(fiber_sleep_unless(0, NULL), 0);
	assert_int_equal(fiber_sleep_unless(2000, &stop), 0);
	assert_true(loop_now_us() - begin >= 2000);
	begin = loop_now_us();
	spawn("stopper", stopper, &stop);
	assert_int_equal(fiber_sleep_unless(60 * 1000000, &stop), 0);
	assert_true(loop_now_us() - begin < 10 * 1000000);
	assert_int_equal(fiber_sleep_unless(60 * 1000000, &stop), 0);
	/* for ever */
	stop = 0;
	begin = loop_now_us();
	spawn("stopper", stopper, &stop);
	assert_int_equal(fiber_sleep_unless(UINT64_MAX, &stop), 0);
	assert_true(stop == 1);
	assert_true(loop_now_us() - begin >= 1000);
	fiber_interrupt(fiber_self());
	t->status = fiber_sleep_unless(60 * 1000000, NULL);
}

static void test_a_sleep_ends_with_a_flag(void **state)
{
	struct trace t = { .text = "" };

	(void)state;
	rt_run(unless_main, &t);
	assert_int_equal(t.status, -LE_INTR);
}

static void test_fibers_that_outlive_the_drain_are_left(void **state)
{
	struct trace t = { .text = "" };
	struct loop_options opts = { .name = "test", .drain_ms = 20 };
	struct rt_main m = { interrupt_main, &t };
	struct env *env = rt_env();
	struct loop *l = NULL;

	(void)state;
	assert_int_equal(loop_create(env, &opts, &l), 0);
	assert_int_equal(fiber_spawn_on(l, "main", rt_main_fiber, &m), 0);
	loop_run(l);
	assert_int_equal(loop_n_fibers(l), 1);
	loop_abandon(l);
	env_real_destroy(env);
}

static void waiter(void *arg)
{
	struct trace *t = arg;
	int rc = waitq_wait(&t->q, t->deadline);

	note(t, rc == 0 ? fiber_name(fiber_self()) : rc == -LE_TIMEDOUT ? "T" : "I");
}

static void waitq_main(void *arg)
{
	struct trace *t = arg;

	waitq_init(&t->q);
	t->deadline = NO_DEADLINE;
	spawn("a", waiter, t);
	spawn("b", waiter, t);
	spawn("c", waiter, t);
	spawn("d", waiter, t);
	fiber_yield();
	waitq_wake_one(&t->q);
	fiber_yield();
	assert_string_equal(t->text, "a");
	waitq_wake_all(&t->q);
	assert_true(waitq_empty(&t->q));
	fiber_yield();
	assert_string_equal(t->text, "abcd");
	t->deadline = loop_now_us() + 2000;
	spawn("e", waiter, t);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_string_equal(t->text, "abcdT");
	assert_true(waitq_empty(&t->q));
}

static void test_waitq(void **state)
{
	struct trace t = { .text = "" };

	(void)state;
	rt_run(waitq_main, &t);
}

static void locker(void *arg)
{
	struct trace *t = arg;

	fmutex_lock(&t->m);
	assert_int_equal(++t->n, 1);
	fiber_yield();
	note(t, fiber_name(fiber_self()));
	t->n--;
	fmutex_unlock(&t->m);
	latch_done(&t->latch);
}

static void mutex_main(void *arg)
{
	struct trace *t = arg;

	fmutex_init(&t->m);
	latch_init(&t->latch, 4);
	spawn("a", locker, t);
	spawn("b", locker, t);
	spawn("c", locker, t);
	latch_add(&t->latch, 1);
	spawn("d", locker, t);
	latch_done(&t->latch);
	latch_wait(&t->latch);
	assert_string_equal(t->text, "abcd");
	assert_false(t->m.held);
}

/* Two tokens, for eight fibers that take one again as soon as they have returned one. */
struct turns {
	struct turnq q;
	int n_free, taken[8], status;
	bool ended;
	struct latch done;
};

static bool has_one(void *arg)
{
	const struct turns *t = arg;

	return t->n_free > 0;
}

static int one_turn(struct turns *t, uint64_t deadline_us)
{
	int rc = turnq_wait(&t->q, has_one, t, NO_DEADLINE, deadline_us);

	if (rc < 0)
		return rc;
	t->n_free--;
	if (t->n_free > 0)
		turnq_wake(&t->q);
	fiber_yield();
	t->n_free++;
	turnq_wake(&t->q);
	return 0;
}

static void turn_taker(void *arg)
{
	struct turns *t = arg;
	int me = fiber_name(fiber_self())[0] - 'a';

	while (!t->ended) {
		assert_int_equal(one_turn(t, NO_DEADLINE), 0);
		t->taken[me]++;
	}
	latch_done(&t->done);
}

static void impatient(void *arg)
{
	struct turns *t = arg;

	t->status = one_turn(t, loop_now_us() + 2000);
	latch_done(&t->done);
}

static void turns_main(void *arg)
{
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	struct turns *t = arg;

	turnq_init(&t->q);
	latch_init(&t->done, 8);
	t->n_free = 2;
	for (int i = 0; i < 8; i++)
		spawn(names[i], turn_taker, t);
	for (int i = 0; i < 1000; i++)
		fiber_yield();
	t->ended = true;
	latch_wait(&t->done);
	/* The first in the queue times out; the next one gets what was returned meanwhile. */
	latch_init(&t->done, 2);
	t->n_free = 0;
	spawn("first", impatient, t);
	spawn("a", turn_taker, t);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_int_equal(t->status, -LE_TIMEDOUT);
	t->n_free = 1;
	turnq_wake(&t->q);
	latch_wait(&t->done);
}

static void test_turns_are_fair(void **state)
{
	struct turns t = { .status = 1 };

	(void)state;
	rt_run(turns_main, &t);
	for (int i = 0; i < 8; i++)
		assert_in_range(t.taken[i], t.taken[0] - 3, t.taken[0] + 3);
	assert_true(t.taken[0] > 50);
	assert_int_equal(t.n_free, 1);
}

static void test_mutex_is_fair(void **state)
{
	struct trace t = { .text = "" };

	(void)state;
	rt_run(mutex_main, &t);
}

struct item {
	int *running, *most;
	bool done;
};

static void work(void *arg)
{
	struct item *i = arg;

	if (++*i->running > *i->most)
		*i->most = *i->running;
	assert_int_equal(fiber_deadline(), 12345);
	assert_int_equal(fiber_sleep_us(300), 0);
	--*i->running;
	i->done = true;
}

static void parallel_main(void *arg)
{
	struct item items[20];
	int running = 0, most = 0;

	(void)arg;
	for (int i = 0; i < 20; i++)
		items[i] = (struct item){ &running, &most, false };
	fiber_set_deadline(12345);
	fiber_parallel("work", work, items, sizeof(items[0]), 20, 5);
	for (int i = 0; i < 20; i++)
		assert_true(items[i].done);
	assert_int_equal(most, 5);
	assert_int_equal(loop_n_fibers(loop_self()), 1);
}

/* Interrupting the caller interrupts the waiting fibers, also those that have not begun, but not
 * later ones. */
struct sleeps {
	uint32_t n, interrupted;
	struct fiber *caller;
};

static void sleep_long(void *arg)
{
	struct sleeps **s = arg;

	(*s)->n++;
	(*s)->interrupted += fiber_sleep_us(60000000) == -LE_INTR;
}

static void sleep_inside(void *arg)
{
	struct sleeps **s = arg, *two[] = {*s, *s};

	fiber_parallel("inside", sleep_long, two, sizeof(two[0]), 2, 2);
}

static void interrupted_main(void *arg)
{
	struct sleeps *s = arg, *all[] = {s, s, s, s, s};

	s->caller = fiber_self();
	fiber_parallel("sleep", sleep_inside, all, sizeof(all[0]), 5, 3);
	(void)fiber_interrupt_clear();
	assert_int_equal(fiber_sleep_us(1000), 0);
}

static void interrupting_main(void *arg)
{
	struct sleeps s = {0};

	(void)arg;
	spawn("caller", interrupted_main, &s);
	fiber_sleep_us(1000);
	assert_int_equal(s.n, 6);
	fiber_interrupt_all(s.caller);
	fiber_sleep_us(5000);
	assert_int_equal(s.n, 10);
	assert_int_equal(s.interrupted, 10);
}

static void test_parallel_interrupted(void **state)
{
	(void)state;
	rt_run(interrupting_main, NULL);
}

static void test_parallel(void **state)
{
	(void)state;
	rt_run(parallel_main, NULL);
}

/* Uses much of the stack. */
static uint32_t dig(uint32_t depth)
{
	volatile uint8_t pad[512];

	memset((void *)(uintptr_t)pad, (int)depth, sizeof(pad));
	return depth == 0 ? pad[3] : dig(depth - 1) + pad[7] - (uint8_t)depth;
}

static void digger(void *arg)
{
	uint32_t *n = arg;

	assert_int_equal(dig(40), 0);
	fiber_yield();
	++*n;
}

static void many_main(void *arg)
{
	uint32_t n = 0;

	(void)arg;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 1000; i++)
			spawn("digger", digger, &n);
		while (loop_n_fibers(loop_self()) > 1)
			fiber_yield();
	}
	assert_int_equal(n, 3000);
}

static void test_stacks_are_reused(void **state)
{
	(void)state;
	rt_run(many_main, NULL);
}

static void limit_main(void *arg)
{
	uint32_t n = 0;

	(void)arg;
	for (int i = 0; i < 9; i++)
		spawn("digger", digger, &n);
	assert_int_equal(fiber_spawn("one more", digger, &n), -LE_OVERLOAD);
	while (loop_n_fibers(loop_self()) > 1)
		fiber_yield();
	assert_int_equal(n, 9);
}

static void test_number_of_fibers_is_bounded(void **state)
{
	struct loop_options opts = { .name = "test", .fibers_max = 10 };

	(void)state;
	rt_run_opts(limit_main, NULL, &opts);
}

/* Writes just below a stack that is above another one. */
static void write_below(void *arg)
{
	struct fiber *f = fiber_self();
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	signal(SIGSEGV, SIG_DFL);
	f->stack[-*(int *)arg] = 1;
	_exit(0);
}

static void below_main(void *arg)
{
	spawn("below", write_below, arg);
	fiber_park();
}

static void test_a_large_frame_does_not_reach_the_next_stack(void **state)
{
	static int distances[] = { 1, 4096, 9000, 21000, 32768 };

	(void)state;
	for (size_t i = 0; i < sizeof(distances) / sizeof(distances[0]); i++) {
		int status = 0;
		pid_t pid = fork();

		if (pid == 0)
			rt_run(below_main, &distances[i]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		/* sanitizers report it themselves and exit */
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_is_first_in_first_out),
		cmocka_unit_test(test_park_and_wake),
		cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_a_sleep_ends_with_a_flag),
		cmocka_unit_test(test_fibers_that_outlive_the_drain_are_left),
		cmocka_unit_test(test_waitq),
		cmocka_unit_test(test_turns_are_fair),
		cmocka_unit_test(test_mutex_is_fair),
		cmocka_unit_test(test_parallel),
		cmocka_unit_test(test_parallel_interrupted),
		cmocka_unit_test(test_stacks_are_reused),
		cmocka_unit_test(test_number_of_fibers_is_bounded),
		cmocka_unit_test(test_a_large_frame_does_not_reach_the_next_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
