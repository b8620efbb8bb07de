/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets over loopback: echo, deadlines, interruption, shutdown. */
#include "tests/unit/common/rt/rt_test.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/rt/net.h"

#define BIG (3u << 20)

struct peer {
	struct net_addr addr;
	int listen_fd, fd;
	struct fiber *fiber;
	int64_t status;
	bool ended;
};

static void test_addresses(void **state)
{
	struct net_addr a;
	char text[NET_ADDR_TEXT_SIZE];

	(void)state;
	assert_int_equal(net_addr_parse("127.0.0.1:7440", &a), 0);
	net_addr_format(&a, text);
	assert_string_equal(text, "127.0.0.1:7440");
	assert_int_equal(net_addr_parse("[::1]:5", &a), 0);
	net_addr_format(&a, text);
	assert_string_equal(text, "[::1]:5");
	assert_int_equal(net_addr_parse("127.0.0.1", &a), -LE_INVAL);
	assert_int_equal(net_addr_parse(":5", &a), -LE_INVAL);
	assert_int_equal(net_addr_parse("127.0.0.1:", &a), -LE_INVAL);
	assert_int_equal(net_addr_parse("127.0.0.1:70000", &a), -LE_INVAL);
	assert_int_equal(net_addr_parse("127.0.0.1:5x", &a), -LE_INVAL);
	assert_int_equal(net_addr_numeric("localhost:5", &a), -LE_NO_HOST);
}

static void echo(void *arg)
{
	struct peer *p = arg;
	uint8_t *buf = malloc(65536);
	struct net_addr from;

	p->status = net_accept(p->listen_fd, &p->fd, &from);
	while (p->status == 0) {
		int64_t n = net_recv(p->fd, buf, 65536, NO_DEADLINE);
		struct iovec iov = { buf, (size_t)n };

		p->status = n < 0 ? n : n == 0 ? 1 : net_send_all(p->fd, &iov, 1, NO_DEADLINE);
	}
	net_close(p->fd);
	free(buf);
	p->ended = true;
}

static int open_pair(struct peer *p, void (*fn)(void *))
{
	struct net_addr any;
	int fd = -1;

	assert_int_equal(net_addr_parse("127.0.0.1:0", &any), 0);
	assert_int_equal(net_listen(&any, 16, &p->listen_fd, &p->addr), 0);
	assert_int_equal(fiber_spawn("peer", fn, p), 0);
	assert_int_equal(net_connect(&p->addr, loop_deadline_ms(60000), &fd), 0);
	return fd;
}

static void wait_for_end(struct peer *p)
{
	while (!p->ended)
		assert_int_equal(fiber_sleep_us(100), 0);
	net_close(p->listen_fd);
}

struct sender {
	int fd;
	uint8_t *data;
	int status;
};

static void send_big(void *arg)
{
	struct sender *s = arg;
	struct iovec iov[3] = { { s->data, 1000 },
				{ s->data + 1000, 0 },
				{ s->data + 1000, BIG - 1000 } };

	s->status = net_send_all(s->fd, iov, 3, loop_deadline_ms(60000));
}

static void echo_main(void *arg)
{
	struct peer p = { .fd = -1 };
	int fd = open_pair(&p, echo);
	uint8_t *out = malloc(BIG), *in = calloc(1, BIG);
	struct sender s = { fd, out, -1 };
	struct iovec iov[2] = { { in, BIG / 2 }, { in + BIG / 2, BIG - BIG / 2 } };

	(void)arg;
	for (uint32_t i = 0; i < BIG; i++)
		out[i] = (uint8_t)(i * 31 + (i >> 12));
	assert_int_equal(fiber_spawn("send", send_big, &s), 0);
	assert_int_equal(net_recv_all(fd, iov, 2, loop_deadline_ms(60000)), 0);
	assert_int_equal(s.status, 0);
	assert_memory_equal(in, out, BIG);
	net_close(fd);
	wait_for_end(&p);
	assert_int_equal(p.status, 1);
	free(out);
	free(in);
}

static void test_echo(void **state)
{
	struct loop_options opts = { .name = "test", .spin_us = 50 };

	(void)state;
	rt_run(echo_main, NULL);
	rt_run_opts(echo_main, NULL, &opts);
}

/* Accepts the connection and neither reads nor writes. */
static void mute(void *arg)
{
	struct peer *p = arg;

	p->fiber = fiber_self();
	p->status = net_accept(p->listen_fd, &p->fd, NULL);
	fiber_park();
	net_close(p->fd);
	p->ended = true;
}

static void deadline_main(void *arg)
{
	struct peer p = { .fd = -1 };
	int fd = open_pair(&p, mute);
	uint8_t *buf = malloc(32u << 20);
	struct iovec iov = { buf, 10 };

	(void)arg;
	assert_int_equal(net_recv(fd, buf, 10, loop_now_us() + 2000), -LE_TIMEDOUT);
	assert_int_equal(net_recv(fd, buf, 10, 0), -LE_TIMEDOUT);
	assert_int_equal(net_recv_all(fd, &iov, 1, loop_now_us() + 2000), -LE_TIMEDOUT);
	assert_int_equal(net_poll(fd, POLLIN, loop_now_us() + 2000), -LE_TIMEDOUT);
	assert_int_equal(net_poll(fd, POLLOUT, NO_DEADLINE), POLLOUT);
	memset(buf, 1, 32u << 20);
	iov = (struct iovec){ buf, 32u << 20 };
	assert_int_equal(net_send_all(fd, &iov, 1, loop_now_us() + 20000), -LE_TIMEDOUT);
	fiber_wake(p.fiber);
	wait_for_end(&p);
	iov = (struct iovec){ buf, 10 };
	assert_int_equal(net_recv_all(fd, &iov, 1, NO_DEADLINE), -LE_DISCONNECTED);
	net_close(fd);
	free(buf);
}

static void test_deadlines(void **state)
{
	(void)state;
	rt_run(deadline_main, NULL);
}

struct receiver {
	int fd, status;
	bool poll;
	struct fiber *fiber;
	uint8_t buf[64];
};

static void receive(void *arg)
{
	struct receiver *r = arg;
	struct iovec iov = { r->buf, sizeof(r->buf) };

	r->fiber = fiber_self();
	if (r->poll)
		r->status = net_poll(r->fd, POLLIN, NO_DEADLINE);
	else
		r->status = net_recv_all(r->fd, &iov, 1, NO_DEADLINE);
	r->fiber = NULL;
}

static void interrupt_main(void *arg)
{
	struct peer p = { .fd = -1 };
	int fd = open_pair(&p, mute);
	struct receiver r = { .fd = fd, .status = 1 };
	struct iovec iov = { "late", 4 };
	int other = -1;

	(void)arg;
	for (int round = 0; round < 2; round++) {
		r.poll = round == 1;
		assert_int_equal(fiber_spawn("receive", receive, &r), 0);
		assert_int_equal(fiber_sleep_us(1000), 0);
		fiber_interrupt(r.fiber);
		while (r.fiber != NULL)
			fiber_yield();
		assert_int_equal(r.status, -LE_INTR);
	}
	/* The cancelled operation does not consume later data. */
	assert_int_equal(net_send_all(p.fd, &iov, 1, NO_DEADLINE), 0);
	assert_int_equal(net_recv(fd, r.buf, 64, loop_deadline_ms(60000)), 4);
	/* net_shutdown wakes as well. */
	r.poll = false;
	assert_int_equal(fiber_spawn("receive", receive, &r), 0);
	assert_int_equal(fiber_sleep_us(1000), 0);
	net_shutdown(fd);
	while (r.fiber != NULL)
		assert_int_equal(fiber_sleep_us(100), 0);
	assert_int_equal(r.status, -LE_DISCONNECTED);
	net_close(fd);
	fiber_wake(p.fiber);
	wait_for_end(&p);
	assert_int_equal(net_connect(&p.addr, NO_DEADLINE, &other), -LE_CONNREFUSED);
}

static void test_interrupt_and_shutdown(void **state)
{
	(void)state;
	rt_run(interrupt_main, NULL);
}

static void accepter(void *arg)
{
	struct peer *p = arg;

	p->fiber = fiber_self();
	p->status = net_accept(p->listen_fd, &p->fd, NULL);
	p->ended = true;
}

static void accept_main(void *arg)
{
	struct peer p = { .fd = -1 };
	struct net_addr any;

	(void)arg;
	assert_int_equal(net_addr_parse("[::1]:0", &any), 0);
	for (int round = 0; round < 2; round++) {
		/* without IPv6 there is nothing to test */
		if (net_listen(&any, 4, &p.listen_fd, NULL) < 0)
			return;
		p.ended = false;
		assert_int_equal(fiber_spawn("accept", accepter, &p), 0);
		assert_int_equal(fiber_sleep_us(500), 0);
		if (round == 0)
			fiber_interrupt(p.fiber);
		else
			net_shutdown(p.listen_fd);
		wait_for_end(&p);
		assert_true(round == 0 ? p.status == -LE_INTR : p.status < 0);
	}
}

static void test_an_accept_can_be_ended(void **state)
{
	(void)state;
	rt_run(accept_main, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_interrupt_and_shutdown),
		cmocka_unit_test(test_an_accept_can_be_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
