/* SPDX-License-Identifier: Apache-2.0 */
/* The suite over TCP on the loopback device, and tests for TCP only. */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "common/rpc/auth.h"
#include "common/rpc/transport/transport.h"
#include "common/rpc/transport/transport_tcp.h"
#include "common/rt/net.h"
#include "tests/unit/common/rpc/suite.h"

static struct suite_real how = {
	.create = transport_tcp_create, .listen = "127.0.0.1:0", .scale = 1};

static void run(void (*test)(struct bed *b))
{
	suite_real_run(&how, test);
}

/* Bytes that are not frames. */
static void garbage(struct bed *b)
{
	struct net_addr addr;
	static uint8_t junk[40000];

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(net_addr_parse(b->addrs, &addr), 0);
	for (uint32_t i = 0; i < 20; i++) {
		int fd;
		for (size_t k = 0; k < sizeof(junk); k++)
			junk[k] = (uint8_t)(k * 31 * i + i);
		/* half of them have a valid header */
		struct frame_hdr h = {.type = FRAME_HELLO, .id = 1, .body_len = 200};
		if (i % 2 == 0)
			frame_encode(&h, NULL, junk + FRAME_HEADER_SIZE, junk);
		struct iovec iov = {junk, 1 + i * 2000};
		assert_int_equal(net_connect(&addr, loop_deadline_ms(SHORT_MS), &fd), 0);
		int rc = net_send_all(fd, &iov, 1, loop_deadline_ms(SHORT_MS));
		assert_true(rc == 0 || rc == -LE_DISCONNECTED || rc == -LE_IO);
		assert_int_equal(suite_ping(c, i, SHORT_MS), 0);
		net_close(fd);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* A client that sends requests and does not read the replies delays no other client. */
static void slow_reader(struct bed *b)
{
	struct oss_read_req q = {.len = 8u << 20};
	struct slot_vec vec[RPC_BULK_VECS_MAX];
	struct auth_peer peer;
	struct link_rx rx;
	uint8_t body[200];
	struct wire_w w;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	struct link *k = suite_deaf_client(b, &peer);
	wire_w_init(&w, body, sizeof(body));
	wire_put_oss_read_req(&w, &q);
	for (uint64_t i = 1; i <= 2; i++)
		assert_int_equal(suite_deaf_ask(k, i, OP_oss_read, &w, NULL, 0), 0);
	(void)fiber_sleep_us(50000);
	uint32_t n = suite_slots(b->client_pool, 1u << 20, vec);
	assert_int_equal(suite_read(c, 1u << 20, 5, vec, n, SHORT_MS), 0);
	suite_slots_put(vec, n);
	/* It reads one reply completely, and leaves in the middle of the other. */
	n = suite_slots(b->client_pool, 8u << 20, vec);
	assert_int_equal(k->ops->recv(k, &rx), 0);
	assert_int_equal(rx.hdr.bulk_len, 8u << 20);
	assert_int_equal(k->ops->recv_bulk(k, &rx, vec, n), 0);
	assert_true(suite_is_pattern(vec, n, 8u << 20, 0));
	suite_slots_put(vec, n);
	k->ops->close(k);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 1000);
}

static void test_slow_reader(void **state)
{
	(void)state;
	run(slow_reader);
}

/* A client reads its replies one by one, so that the last ones wait for longer than data_stall_ms:
 * it gets all. (With verbs, data arrives without a reader.) */
static void steady_reader(struct bed *b)
{
	const uint32_t n_asked = 40;
	struct oss_read_req q = {.len = 1u << 20};
	struct slot_vec space[8];
	struct auth_peer peer;
	struct link_rx rx;
	struct rpc_server_options o = suite_server_options(b);
	uint8_t body[300];
	struct wire_w w;

	o.data_stall_ms = VAIN_MS;
	suite_server_start(b, &o);
	struct link *k = suite_deaf_client(b, &peer);
	uint32_t n_room = suite_slots(b->client_pool, 1u << 20, space);
	wire_w_init(&w, body, sizeof(body));
	wire_put_oss_read_req(&w, &q);
	for (uint64_t i = 1; i <= n_asked; i++)
		assert_int_equal(suite_deaf_ask(k, i, OP_oss_read, &w, space, n_room), 0);
	for (uint32_t i = 0; i < n_asked; i++) {
		assert_int_equal(fiber_sleep_us(o.data_stall_ms * 3000ull / n_asked), 0);
		assert_int_equal(k->ops->recv(k, &rx), 0);
		assert_int_equal(rx.hdr.status, 0);
		assert_int_equal(rx.hdr.bulk_len, 1u << 20);
		assert_int_equal(k->ops->recv_bulk(k, &rx, space, n_room), 0);
	}
	k->ops->shutdown(k);
	k->ops->close(k);
	suite_slots_put(space, n_room);
	suite_server_stop(b, 1000);
}

static void test_steady_reader(void **state)
{
	(void)state;
	run(steady_reader);
}

static uint32_t n_steps;

/* Returns step 0 again and again: in later steps, a frame that the network has doubled. */
static int recv_doubled(struct link *k, struct link_rx *ret_rx)
{
	(void)k;
	if (n_steps++ == 1000)
		return -LE_DISCONNECTED;
	ret_rx->hdr = (struct frame_hdr){.type = FRAME_HELLO};
	return 0;
}

/* A stranger's handshake without progress must not occupy the loop. */
static void doubled_for_ever(struct bed *b)
{
	static const struct transport_ops ops = {.name = "doubles", .recv = recv_doubled};
	struct auth_self self = {.role = ROLE_MDS, .name = "server", .key = &b->key};
	struct link k = {.ops = &ops};
	struct auth_peer peer;
	struct auth_state st;

	n_steps = 0;
	assert_int_equal(auth_server(&k, &self, &st, &peer), -LE_BAD_MESSAGE);
	assert_in_range(n_steps, 2, 20);
}

static void test_doubled_for_ever(void **state)
{
	(void)state;
	run(doubled_for_ever);
}

static void note_turn(void *arg)
{
	*(bool *)arg = true;
}

/* A hundred frames have arrived when the first one is read: the other fibers of the loop run before
 * the last one is read. */
static void others_have_turns(struct bed *b)
{
	const struct frame_hdr h = {.type = FRAME_HELLO, .body_len = 1000};
	const struct transport_ops *ops = b->transport->ops;
	const int space = 200 << 10;
	uint8_t frame[FRAME_HEADER_SIZE + 1000] = {0};
	char addr[ADDR_TEXT_SIZE];
	bool had_turn = false;
	struct listener *ls;
	struct net_addr at;
	struct link *k;
	int fd;

	assert_int_equal(ops->listen(b->transport, loop_self(), b->listen, &ls, addr), 0);
	assert_int_equal(net_addr_parse(addr, &at), 0);
	assert_int_equal(net_connect(&at, loop_deadline_ms(SHORT_MS), &fd), 0);
	assert_int_equal(ops->accept(ls, &k), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &space, sizeof(space)), 0);
	frame_encode(&h, NULL, frame + FRAME_HEADER_SIZE, frame);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(send(fd, frame, sizeof(frame), MSG_DONTWAIT), sizeof(frame));
	assert_int_equal(fiber_spawn("turn", note_turn, &had_turn), 0);
	for (uint32_t i = 0; i < 100; i++) {
		struct link_rx rx;

		assert_int_equal(k->ops->recv(k, &rx), 0);
	}
	assert_true(had_turn);
	net_close(fd);
	k->ops->shutdown(k);
	k->ops->close(k);
	ops->listener_close(ls);
}

static void test_others_have_turns(void **state)
{
	(void)state;
	run(others_have_turns);
}

/* A name server that does not answer while it is held. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t let_go;
	bool held;
	int status; /* result for "lost.test" */
	uint32_t n_asked, n_in;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER, .let_go = PTHREAD_COND_INITIALIZER};

typedef int ask_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* Replaces libc's: for "slow.test" it waits while the server above is held; for "lost.test" it
 * returns names.status. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **res)
{
	ask_fn *ask = (ask_fn *)dlsym(RTLD_NEXT, "getaddrinfo");
	struct timespec limit;
	int rc = 0;

	if (strcmp(node, "lost.test") == 0 && (hints->ai_flags & AI_NUMERICHOST) == 0) {
		pthread_mutex_lock(&names.lock);
		rc = names.status;
		names.n_asked++;
		pthread_mutex_unlock(&names.lock);
		return rc == 0 ? ask("127.0.0.1", service, hints, res) : rc;
	}
	if (strcmp(node, "slow.test") != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0)
		return ask(node, service, hints, res);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 10;
	pthread_mutex_lock(&names.lock);
	names.n_asked++;
	names.n_in++;
	while (names.held && rc == 0)
		rc = pthread_cond_timedwait(&names.let_go, &names.lock, &limit);
	names.n_in--;
	pthread_mutex_unlock(&names.lock);
	return rc == 0 ? ask("127.0.0.1", service, hints, res) : EAI_AGAIN;
}

static void names_hold(bool held)
{
	pthread_mutex_lock(&names.lock);
	names.held = held;
	pthread_cond_broadcast(&names.let_go);
	pthread_mutex_unlock(&names.lock);
}

static void names_count(uint32_t *ret_asked, uint32_t *ret_in)
{
	pthread_mutex_lock(&names.lock);
	*ret_asked = names.n_asked;
	*ret_in = names.n_in;
	pthread_mutex_unlock(&names.lock);
}

/* A slow lookup occupies no worker and does not delay the end of its client. Its result is used in
 * the end. */
static void slow_name(struct bed *b)
{
	uint32_t n_asked, n_in;
	struct rpc_client_options o;
	bool worked = false;
	char addr[64];

	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	snprintf(addr, sizeof(addr), "slow.test%s", strrchr(b->addrs, ':'));
	o.addrs = addr;
	o.connect_timeout_ms = 20;
	names_hold(true);
	struct rpc_client *c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, 300), -LE_NO_NAMES);
	assert_int_equal(env_offload(loop_env(loop_self()), note_turn, &worked), 0);
	assert_true(worked);
	rpc_client_destroy(c);
	names_count(&n_asked, &n_in);
	assert_int_equal(n_asked, 1);
	assert_int_equal(n_in, 1);
	names_hold(false);
	while (n_in > 0) {
		(void)fiber_sleep_us(1000);
		names_count(&n_asked, &n_in);
	}
	o.connect_timeout_ms = 0;
	names_hold(true);
	c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	names_count(&n_asked, &n_in);
	assert_int_equal(n_asked, 1);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
	names_hold(false);
}

static void test_slow_name(void **state)
{
	(void)state;
	run(slow_name);
}

static void names_say(int status)
{
	pthread_mutex_lock(&names.lock);
	names.status = status;
	names.n_asked = 0;
	pthread_mutex_unlock(&names.lock);
}

/* With hosts_known an unknown host fails immediately, unless the client was connected before.
 * Without it, or if no name server answers, the client tries until the name exists. */
static void lost_name(struct bed *b)
{
	uint32_t n_asked, n_in;
	struct rpc_client_options o;
	char addr[64];

	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	snprintf(addr, sizeof(addr), "lost.test%s", strrchr(b->addrs, ':'));
	o.addrs = addr;
	o.backoff_max_ms = 20;
	for (int known = 0; known < 2; known++) {
		o.hosts_known = known;
		names_say(EAI_NONAME);
		struct rpc_client *c = suite_client_of(&o);
		uint64_t from_us = loop_now_us();
		assert_int_equal(suite_ping(c, 1, 200), -LE_NO_HOST);
		assert_int_equal(loop_now_us() - from_us < 200000, known);
		names_count(&n_asked, &n_in);
		assert_int_equal(n_asked < 3, known);
		names_say(EAI_AGAIN);
		(void)fiber_sleep_us(50000);
		from_us = loop_now_us();
		assert_int_equal(suite_ping(c, 1, 200), -LE_NO_NAMES);
		assert_true(loop_now_us() - from_us >= 200000);
		names_say(0);
		assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
		/* The client was connected: it does not fail immediately. */
		names_say(EAI_NONAME);
		suite_server_stop(b, 0);
		(void)fiber_sleep_us(50000);
		from_us = loop_now_us();
		assert_int_equal(suite_ping(c, 1, 200), -LE_NO_HOST);
		assert_true(loop_now_us() - from_us >= 200000);
		rpc_client_destroy(c);
		suite_server_start(b, NULL);
		snprintf(addr, sizeof(addr), "lost.test%s", strrchr(b->addrs, ':'));
	}
	suite_server_stop(b, 0);
}

static void test_lost_name(void **state)
{
	(void)state;
	run(lost_name);
}

static void ipv6(struct bed *b)
{
	struct rpc_client *c;

	suite_server_start(b, NULL);
	c = suite_client(b);
	assert_int_equal(strncmp(b->addrs, "[::1]:", 6), 0);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static void test_garbage(void **state)
{
	(void)state;
	run(garbage);
}

static void test_ipv6(void **state)
{
	(void)state;
	how.listen = "[::1]:0";
	run(ipv6);
}

int main(int argc, char **argv)
{
	int rc = suite_peer_main(argc, argv, &how);

	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_slow_reader),
		cmocka_unit_test(test_steady_reader),
		cmocka_unit_test(test_doubled_for_ever),
		cmocka_unit_test(test_others_have_turns),
		cmocka_unit_test(test_slow_name),
		cmocka_unit_test(test_lost_name),
		cmocka_unit_test(test_ipv6),
	};

	if (rc >= 0)
		return rc;
	how.program = argv[0];
	int failed = suite_main("rpc over tcp", run);
	return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
