/* SPDX-License-Identifier: Apache-2.0 */
/* Loops: timers, mail under load, two loops, calls from threads, and the end of a loop. */
#include "common/rt/env_real.h"
#include "tests/unit/common/rt/rt_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/rt/loop_backend.h"

/* ---- timers ---- */

#define N_TIMERS 500

struct ticks {
	struct timer timers[N_TIMERS];
	uint64_t last_us;
	uint32_t fired;
	bool in_order;
	uint32_t again;
};

static struct ticks *ticks; /* of the running test: a timer has no argument */

static void tick(struct timer *t)
{
	ticks->in_order &= t->at_us >= ticks->last_us;
	ticks->last_us = t->at_us;
	ticks->fired++;
}

static void timers_main(void *arg)
{
	uint64_t now = loop_now_us();
	uint32_t cancelled = 0;

	(void)arg;
	for (uint32_t i = 0; i < N_TIMERS; i++) {
		timer_init(&ticks->timers[i], tick);
		timer_set(&ticks->timers[i], now + 100 + (i * 7919) % 5000);
	}
	for (uint32_t i = 0; i < N_TIMERS; i += 3) {
		timer_cancel(&ticks->timers[i]);
		timer_cancel(&ticks->timers[i]);
		assert_false(timer_is_set(&ticks->timers[i]));
		cancelled++;
	}
	for (uint32_t i = 1; i < N_TIMERS; i += 3) /* move */
		timer_set(&ticks->timers[i], now + 100 + (i * 104729) % 5000);
	assert_int_equal(fiber_sleep_us(10000), 0);
	assert_true(ticks->in_order);
	assert_int_equal(ticks->fired, N_TIMERS - cancelled);
}

static void test_timers_fire_in_order(void **state)
{
	(void)state;
	ticks = calloc(1, sizeof(*ticks));
	ticks->in_order = true;
	rt_run(timers_main, NULL);
	free(ticks);
}

static void tick_again(struct timer *t)
{
	if (++ticks->again < 50)
		timer_set(t, 0);
}

static void past_main(void *arg)
{
	(void)arg;
	timer_init(&ticks->timers[0], tick_again);
	timer_set(&ticks->timers[0], 0);
	while (ticks->again < 50)
		fiber_yield();
}

static void test_a_timer_may_set_itself_to_the_past(void **state)
{
	(void)state;
	ticks = calloc(1, sizeof(*ticks));
	rt_run(past_main, NULL);
	free(ticks);
}

static void sleep_main(void *arg)
{
	struct timespec a, b;
	int64_t us;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &a);
	assert_int_equal(fiber_sleep_us(3000), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	us = (b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000;
	assert_true(us >= 2500);
	assert_true(loop_deadline_ms(UINT64_MAX) == NO_DEADLINE);
	assert_true(loop_deadline_ms(5) == loop_now_us() + 5000);
}

static void test_sleep_lasts(void **state)
{
	struct loop_options opts = { .name = "test", .spin_us = 100 };

	(void)state;
	rt_run(sleep_main, NULL);
	rt_run_opts(sleep_main, NULL, &opts);
}

/* ---- mail ---- */

#define N_POSTERS 4
#define N_LETTERS 5000

struct letter {
	struct mail mail;
	uint32_t from, number;
};

struct post {
	struct loop *to;
	uint32_t from;
	struct letter *letters;
};

static struct {
	uint32_t next[N_POSTERS];
	uint32_t n;
	bool in_order;
	struct fiber *reader;
} box;

static void got_letter(struct mail *m)
{
	struct letter *t = (struct letter *)m;

	box.in_order &= box.next[t->from]++ == t->number;
	if (++box.n == N_POSTERS * N_LETTERS)
		fiber_wake(box.reader);
}

static void *poster(void *arg)
{
	struct post *p = arg;
	struct timespec ts = { .tv_nsec = 20000 };

	for (uint32_t i = 0; i < N_LETTERS; i++) {
		p->letters[i] = (struct letter){ { .fn = got_letter }, p->from, i };
		loop_post(p->to, &p->letters[i].mail);
		if (i % 100 == 0) /* let the loop fall asleep now and then */
			nanosleep(&ts, NULL);
	}
	return NULL;
}

static void mail_main(void *arg)
{
	struct post posts[N_POSTERS];
	pthread_t threads[N_POSTERS];

	(void)arg;
	box.n = 0;
	box.in_order = true;
	box.reader = fiber_self();
	for (uint32_t i = 0; i < N_POSTERS; i++) {
		box.next[i] = 0;
		posts[i] = (struct post){ loop_self(), i, NULL };
		posts[i].letters = calloc(N_LETTERS, sizeof(struct letter));
		assert_int_equal(pthread_create(&threads[i], NULL, poster, &posts[i]), 0);
	}
	fiber_park();
	for (uint32_t i = 0; i < N_POSTERS; i++) {
		pthread_join(threads[i], NULL);
		free(posts[i].letters);
	}
	assert_true(box.in_order);
	assert_int_equal(box.n, N_POSTERS * N_LETTERS);
}

static void test_mail_of_many_threads_arrives_in_order(void **state)
{
	struct loop_options opts = { .name = "test", .spin_us = 50 };

	(void)state;
	rt_run(mail_main, NULL);
	rt_run_opts(mail_main, NULL, &opts);
}

/* ---- ping-pong of two loops ---- */

struct pong {
	struct mail mail;
	struct loop *home, *away;
	struct fiber *fiber;
	bool back;
};

static void pong_home(struct mail *m)
{
	struct pong *p = (struct pong *)m;

	p->back = true;
	fiber_wake(p->fiber);
}

static void pong_away(struct mail *m)
{
	struct pong *p = (struct pong *)m;

	assert_ptr_equal(loop_self(), p->away);
	assert_null(fiber_self());
	m->fn = pong_home;
	loop_post(p->home, m);
}

static void pong_main(void *arg)
{
	struct pong p = { .home = loop_self(), .away = arg, .fiber = fiber_self() };

	for (int i = 0; i < 500; i++) {
		p.back = false;
		p.mail.fn = pong_away;
		loop_post(p.away, &p.mail);
		while (!p.back)
			fiber_park();
	}
}

static void test_two_loops_answer_each_other(void **state)
{
	struct env *env = rt_env();
	struct loop *l = rt_start(env, 0);

	(void)state;
	rt_run(pong_main, l);
	rt_stop(l);
	env_real_destroy(env);
}

/* ---- loop_call ---- */

struct call_arg {
	struct env *env;
	int n;
};

static void called(void *arg)
{
	struct call_arg *a = arg;

	assert_ptr_equal(loop_env(loop_self()), a->env);
	assert_string_equal(fiber_name(fiber_self()), "called");
	if (fiber_sleep_us(200) == 0)
		a->n++;
}

static void *caller(void *arg)
{
	struct loop *l = arg;
	struct call_arg a = { loop_env(l), 0 };

	for (int i = 0; i < 50; i++)
		assert_int_equal(loop_call(l, "called", called, &a), 0);
	assert_int_equal(a.n, 50);
	return NULL;
}

static void test_calls_from_threads(void **state)
{
	struct env *env = rt_env();
	struct loop *l = rt_start(env, 0);
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, caller, l), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	loop_stop(l);
	loop_join(l);
	assert_int_equal(loop_call(l, "called", called, NULL), -LE_SHUTDOWN);
	loop_destroy(l);
	env_real_destroy(env);
}

static void waits_for_ever(void *arg)
{
	(void)arg;
	fiber_park();
}

static void *late_caller(void *arg)
{
	assert_int_equal(loop_call(arg, "late", waits_for_ever, NULL), -LE_SHUTDOWN);
	return NULL;
}

static void test_a_call_ends_when_its_loop_does(void **state)
{
	struct loop_options opts = { .name = "test", .drain_ms = 20 };
	struct env *env = rt_env();
	struct timespec ts = { .tv_nsec = 5000000 };
	struct loop *l = NULL;
	pthread_t thread;

	(void)state;
	assert_int_equal(loop_create(env, &opts, &l), 0);
	assert_int_equal(loop_start_thread(l), 0);
	assert_int_equal(pthread_create(&thread, NULL, late_caller, l), 0);
	nanosleep(&ts, NULL);
	loop_stop(l);
	pthread_join(thread, NULL);
	loop_join(l);
	loop_abandon(l);
	env_real_destroy(env);
}

/* ---- the end of a loop ---- */

struct job {
	int fds[2]; /* of a pipe */
	bool begun;
};

static void job_work(void *arg)
{
	struct job *j = arg;
	char c;

	assert_int_equal(read(j->fds[0], &c, 1), 1);
}

static void job_main(void *arg)
{
	struct job *j = arg;

	j->begun = true;
	(void)!env_offload(loop_env(loop_self()), job_work, j);
	fail(); /* the loop has ended */
}

/* A worker finishes after its loop has ended, without waiting for the fiber. */
static void test_a_worker_outlives_its_loop(void **state)
{
	struct loop_options opts = { .name = "test", .drain_ms = 50 };
	struct env *env = rt_env();
	struct job job = { .begun = false };
	struct loop *l = NULL;

	(void)state;
	assert_int_equal(pipe(job.fds), 0);
	assert_int_equal(loop_create(env, &opts, &l), 0);
	assert_int_equal(fiber_spawn_on(l, "job", job_main, &job), 0);
	loop_stop(l);
	loop_run(l);
	assert_true(job.begun);
	assert_int_equal(loop_n_fibers(l), 1);
	loop_destroy(l);
	assert_int_equal(write(job.fds[1], "x", 1), 1);
	env_real_destroy(env);
	close(job.fds[0]);
	close(job.fds[1]);
}

/* ---- watches ---- */

struct watched {
	struct loop_watch watch;
	struct fiber *fiber;
	int fd;
	uint32_t n_calls;
	uint64_t n_events;
	bool leave, stop;
};

static void event_came(struct loop_watch *watch)
{
	struct watched *w = container_of(watch, struct watched, watch);
	uint64_t n;

	w->n_calls++;
	if (w->leave) {
		w->leave = false; /* unread: called again, unless the watch drains */
		return;
	}
	if (read(w->fd, &n, sizeof(n)) == sizeof(n))
		w->n_events += n;
	if (w->stop)
		loop_watch_stop(watch);
	fiber_wake(w->fiber);
}

static void one_event(struct watched *w)
{
	uint64_t one = 1, before = w->n_events;

	assert_int_equal(write(w->fd, &one, sizeof(one)), sizeof(one));
	while (w->n_events == before)
		fiber_park();
	assert_int_equal(w->n_events, before + 1);
}

static void watch_main(void *arg)
{
	struct watched w = { .watch = { .fn = event_came, .drains = *(bool *)arg },
			     .fiber = fiber_self(),
			     .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };

	assert_true(w.fd >= 0);
	assert_int_equal(loop_watch_start(&w.watch, w.fd), 0);
	for (int i = 0; i < 1000; i++)
		one_event(&w);
	/* A poll that stays armed may report an event that was read with the previous one. */
	assert_true(w.n_calls >= 1000);
	if (!w.watch.drains) {
		w.leave = true;
		one_event(&w);
		assert_false(w.leave);
	}
	/* An event from before the watch is reported. The watch is stopped in its callback, then
	 * from outside. */
	w.stop = true;
	one_event(&w);
	assert_null(w.watch.internal);
	uint32_t n_calls = w.n_calls;
	uint64_t one = 1;
	assert_int_equal(write(w.fd, &one, sizeof(one)), sizeof(one));
	assert_int_equal(fiber_sleep_us(2000), 0);
	assert_int_equal(w.n_calls, n_calls);
	w.stop = false;
	assert_int_equal(loop_watch_start(&w.watch, w.fd), 0);
	while (w.n_calls == n_calls)
		fiber_park();
	loop_watch_stop(&w.watch);
	n_calls = w.n_calls;
	assert_int_equal(write(w.fd, &one, sizeof(one)), sizeof(one));
	assert_int_equal(fiber_sleep_us(2000), 0);
	assert_int_equal(w.n_calls, n_calls);
	close(w.fd);
}

static void test_watches_tell_of_every_event(void **state)
{
	bool drains = false;

	(void)state;
	rt_run(watch_main, &drains);
	drains = true;
	rt_run(watch_main, &drains);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timers_fire_in_order),
		cmocka_unit_test(test_a_timer_may_set_itself_to_the_past),
		cmocka_unit_test(test_sleep_lasts),
		cmocka_unit_test(test_mail_of_many_threads_arrives_in_order),
		cmocka_unit_test(test_two_loops_answer_each_other),
		cmocka_unit_test(test_calls_from_threads),
		cmocka_unit_test(test_a_call_ends_when_its_loop_does),
		cmocka_unit_test(test_a_worker_outlives_its_loop),
		cmocka_unit_test(test_watches_tell_of_every_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
