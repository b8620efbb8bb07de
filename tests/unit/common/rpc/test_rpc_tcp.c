/* The suite over TCP on the loopback device, and what only TCP has. */
#include <stdlib.h>
#include <string.h>

#include "common/rpc/auth.h"
#include "common/rt/net.h"
#include "tests/unit/common/rpc/suite.h"

struct run {
	struct bed bed;
	struct loop *loop;
	void (*test)(struct bed *b);
};

static const char *listen_addr = "127.0.0.1:0";

static void at_server(struct bed *b, void (*fn)(void *arg), void *arg)
{
	(void)b;
	fn(arg);
}

static void main_fiber(void *arg)
{
	struct run *r = arg;
	struct bed *b = &r->bed;

	assert_int_equal(slot_pool_create(SLOT_SIZE, 80, &b->client_pool), 0);
	assert_int_equal(transport_tcp_create(&b->transport), 0);
	r->test(b);
	slot_pool_destroy(b->client_pool);
	transport_destroy(b->transport);
	loop_stop(r->loop);
}

static void run(void (*test)(struct bed *b))
{
	struct run r = { .bed = { .listen = listen_addr,
				  .at_server = at_server,
				  .key = { { 1, 2, 3 } },
				  .cluster = { { 7, 7 } } },
			 .test = test };
	struct env_real_options eo = { .n_workers = 1 };
	/* Room for the assertions' own buffers. */
	struct loop_options lo = { .name = "test", .stack_size = 256u << 10 };
	struct env *env;

	assert_int_equal(env_real_create(&eo, &env), 0);
	assert_int_equal(loop_create(env, &lo, &r.loop), 0);
	assert_int_equal(fiber_spawn_on(r.loop, "main", main_fiber, &r), 0);
	loop_run(r.loop);
	assert_int_equal(loop_n_fibers(r.loop), 0);
	loop_destroy(r.loop);
	env_real_destroy(env);
}

/* Bytes that are no frames at all. */
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
		/* Half of them begin well. */
		struct frame_hdr h = { .type = FRAME_HELLO, .id = 1, .body_len = 200 };
		if (i % 2 == 0)
			frame_encode(&h, NULL, junk + FRAME_HEADER_SIZE, junk);
		struct iovec iov = { junk, 1 + i * 2000 };
		assert_int_equal(net_connect(&addr, loop_deadline_ms(1000), &fd), 0);
		int rc = net_send_all(fd, &iov, 1, loop_deadline_ms(1000));
		assert_true(rc == 0 || rc == -LE_DISCONNECTED || rc == -LE_IO);
		assert_int_equal(suite_ping(c, i, 1000), 0);
		net_close(fd);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* A client that asks and does not read the answers holds up nobody but itself. */
static void slow_reader(struct bed *b)
{
	struct oss_read_req q = { .len = 8u << 20 };
	struct auth_self self = { .role = ROLE_TOOL, .name = "tester", .key = &b->key };
	struct slot_vec vec[RPC_BULK_VECS_MAX];
	struct auth_peer peer;
	struct link_rx rx;
	struct link *k;
	uint8_t body[200];
	struct wire_w w;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(
		b->transport->ops->connect(b->transport, b->addrs, loop_deadline_ms(1000), &k), 0);
	assert_int_equal(auth_client(k, &self, &peer), 0);
	wire_w_init(&w, body, sizeof(body));
	wire_put_oss_read_req(&w, &q);
	for (uint64_t i = 1; i <= 2; i++) {
		struct link_tx tx = { .hdr = { .type = FRAME_REQUEST, .id = i, .op = OP_oss_read },
				      .body = body,
				      .body_len = (uint32_t)w.len };
		assert_int_equal(k->ops->send(k, &tx, NO_DEADLINE), 0);
	}
	(void)fiber_sleep_us(50000);
	uint32_t n = suite_slots(b->client_pool, 1u << 20, vec);
	assert_int_equal(suite_read(c, 1u << 20, 5, vec, n, 1000), 0);
	suite_slots_put(vec, n);
	/* It reads one after all, whole, and leaves in the middle of the other. */
	n = suite_slots(b->client_pool, 8u << 20, vec);
	assert_int_equal(k->ops->recv(k, &rx), 0);
	assert_int_equal(rx.hdr.bulk_len, 8u << 20);
	assert_int_equal(k->ops->recv_bulk(k, &rx, vec, n), 0);
	assert_true(suite_is_pattern(vec, n, 8u << 20, 0));
	suite_slots_put(vec, n);
	k->ops->close(k);
	assert_int_equal(suite_ping(c, 1, 1000), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 1000);
}

static void test_slow_reader(void **state)
{
	(void)state;
	run(slow_reader);
}

static void ipv6(struct bed *b)
{
	struct rpc_client *c;

	suite_server_start(b, NULL);
	c = suite_client(b);
	assert_int_equal(strncmp(b->addrs, "[::1]:", 6), 0);
	assert_int_equal(suite_ping(c, 1, 1000), 0);
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
	listen_addr = "[::1]:0";
	run(ipv6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_slow_reader),
		cmocka_unit_test(test_ipv6),
	};
	int failed = suite_main("rpc over tcp", run);
	return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
