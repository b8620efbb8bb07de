/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All kinds of waits concurrently, with random interrupts and deadlines: nothing may be lost
 * (bytes, slots, tokens, the mutex), and no fiber may wait without end.
 */
#include "tests/unit/common/rt/rt_test.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/rt/net.h"
#include "common/rt/slot.h"

#define N_EACH 6
#define N_ROUNDS 150
#define N_PAIRS 3
#define STREAM_LEN 60000u
#define N_SLOTS 3
#define N_FIBERS (3 * N_EACH + 2 * N_PAIRS + 2)

static struct {
	struct fiber *victims[N_FIBERS];
	uint32_t n_victims;
	struct latch left;
	struct slot_pool *pool;
	struct fmutex mutex;
	bool inside;
	struct waitq tokens_q;
	uint32_t n_tokens, n_taken, n_interrupts;
	int fds[N_PAIRS][2];
	uint64_t rng;
} st;

static uint32_t below(uint32_t n)
{
	st.rng = st.rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(st.rng >> 33) % n;
}

static uint64_t soon(void)
{
	return loop_now_us() + below(200);
}

/* Sleeps; may be interrupted. */
static void rest(void)
{
	(void)!fiber_sleep_us(below(60));
}

static void be_victim(void)
{
	st.victims[st.n_victims++] = fiber_self();
}

static void end_victim(void)
{
	for (uint32_t i = 0; i < st.n_victims; i++)
		if (st.victims[i] == fiber_self())
			st.victims[i] = st.victims[--st.n_victims];
	latch_done(&st.left);
}

static void slots_fiber(void *arg)
{
	(void)arg;
	be_victim();
	for (int i = 0; i < N_ROUNDS; i++) {
		struct slot *s = NULL;
		int rc = slot_get(st.pool, below(2) ? soon() : NO_DEADLINE, &s);

		ASSERT(rc == 0 || rc == -LE_TIMEDOUT || rc == -LE_INTR);
		if (rc < 0)
			continue;
		ASSERT(s->refs == 1 && s->data[0] == 0);
		s->data[0] = 1;
		rest();
		s->data[0] = 0;
		slot_unref(s);
	}
	end_victim();
}

static void mutex_fiber(void *arg)
{
	(void)arg;
	be_victim();
	for (int i = 0; i < N_ROUNDS; i++) {
		fmutex_lock(&st.mutex);
		ASSERT(!st.inside);
		st.inside = true;
		rest();
		st.inside = false;
		fmutex_unlock(&st.mutex);
	}
	end_victim();
}

static void token_fiber(void *arg)
{
	(void)arg;
	be_victim();
	for (int i = 0; i < N_ROUNDS;) {
		int rc = 0;

		if (st.n_tokens == 0)
			rc = waitq_wait(&st.tokens_q, below(2) ? soon() : NO_DEADLINE);
		ASSERT(rc == 0 || rc == -LE_TIMEDOUT || rc == -LE_INTR);
		if (st.n_tokens == 0)
			continue;
		st.n_tokens--;
		st.n_taken++;
		i++;
	}
	end_victim();
}

/* One wake for each token: a lost wake would leave a fiber waiting. */
static void mint_fiber(void *arg)
{
	(void)arg;
	for (int i = 0; i < N_EACH * N_ROUNDS; i++) {
		st.n_tokens++;
		waitq_wake_one(&st.tokens_q);
		if (below(4) == 0)
			(void)!fiber_sleep_us(below(40));
	}
	latch_done(&st.left);
}

static uint8_t byte_at(uint32_t i)
{
	return (uint8_t)(i * 31 + (i >> 8));
}

static void send_fiber(void *arg)
{
	int fd = *(int *)arg;
	uint8_t buf[700];

	for (uint32_t at = 0; at < STREAM_LEN;) {
		uint32_t n = 1 + below(sizeof(buf));
		struct iovec iov[2];

		n = n < STREAM_LEN - at ? n : STREAM_LEN - at;
		for (uint32_t i = 0; i < n; i++)
			buf[i] = byte_at(at + i);
		iov[0] = (struct iovec){ buf, n / 2 };
		iov[1] = (struct iovec){ buf + n / 2, n - n / 2 };
		ASSERT(net_send_all(fd, iov, 2, NO_DEADLINE) == 0);
		at += n;
		if (below(3) == 0)
			(void)!fiber_sleep_us(below(30));
	}
	net_shutdown(fd);
	latch_done(&st.left);
}

static void receive_fiber(void *arg)
{
	int fd = *(int *)arg;
	uint32_t at = 0;
	int64_t n = 1;

	be_victim();
	while (n != 0) {
		uint8_t buf[500];

		if (below(4) == 0) {
			int events = net_poll(fd, POLLIN, soon());

			ASSERT(events > 0 || events == -LE_TIMEDOUT || events == -LE_INTR);
		}
		n = net_recv(fd, buf, 1 + below(sizeof(buf)), below(2) ? soon() : NO_DEADLINE);
		ASSERT(n >= 0 || n == -LE_TIMEDOUT || n == -LE_INTR);
		for (int64_t i = 0; i < n; i++)
			ASSERT(buf[i] == byte_at(at++));
	}
	ASSERT(at == STREAM_LEN);
	end_victim();
}

static void interrupt_fiber(void *arg)
{
	(void)arg;
	while (st.n_victims > 0) {
		fiber_interrupt(st.victims[below(st.n_victims)]);
		st.n_interrupts++;
		rest();
	}
	latch_done(&st.left);
}

static void start(const char *name, void (*fn)(void *arg), void *arg)
{
	ASSERT(fiber_spawn(name, fn, arg) == 0);
	latch_add(&st.left, 1);
}

static void storm_main(void *arg)
{
	(void)arg;
	latch_init(&st.left, 0);
	fmutex_init(&st.mutex);
	waitq_init(&st.tokens_q);
	ASSERT(slot_pool_create(4096, N_SLOTS, &st.pool) == 0);
	for (int i = 0; i < N_EACH; i++) {
		start("slots", slots_fiber, NULL);
		start("mutex", mutex_fiber, NULL);
		start("tokens", token_fiber, NULL);
	}
	for (int i = 0; i < N_PAIRS; i++) {
		ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, st.fds[i]) == 0);
		start("send", send_fiber, &st.fds[i][0]);
		start("receive", receive_fiber, &st.fds[i][1]);
	}
	start("mint", mint_fiber, NULL);
	fiber_yield();
	start("interrupt", interrupt_fiber, NULL);
	latch_wait(&st.left);
	ASSERT(st.n_taken == N_EACH * N_ROUNDS && st.n_tokens == 0 && waitq_empty(&st.tokens_q));
	ASSERT(slot_pool_free(st.pool) == N_SLOTS);
	slot_pool_destroy(st.pool);
	for (int i = 0; i < N_PAIRS; i++) {
		net_close(st.fds[i][0]);
		net_close(st.fds[i][1]);
	}
}

static void storm(uint32_t spin_us, uint32_t ring_entries)
{
	struct loop_options opts = { .name = "storm", .spin_us = spin_us,
				     .ring_entries = ring_entries };

	memset(&st, 0, sizeof(st));
	st.rng = spin_us + 1;
	rt_run_opts(storm_main, NULL, &opts);
	assert_true(st.n_interrupts > 100);
}

static void test_nothing_is_lost(void **state)
{
	(void)state;
	alarm(60); /* a lost wakeup shows as a hang */
	storm(0, 0);
}

static void test_nothing_is_lost_while_spinning_on_a_small_ring(void **state)
{
	(void)state;
	alarm(60);
	storm(50, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_lost),
		cmocka_unit_test(test_nothing_is_lost_while_spinning_on_a_small_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
