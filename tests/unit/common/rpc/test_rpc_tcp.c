/* The suite over TCP on the loopback device, and what only TCP has. */
#include <stdlib.h>
#include <string.h>

#include "common/rpc/auth.h"
#include "common/rt/net.h"
#include "tests/unit/common/rpc/suite.h"

static struct suite_real how = {
	.create = transport_tcp_create, .listen = "127.0.0.1:0", .scale = 1};

static void run(void (*test)(struct bed *b))
{
	suite_real_run(&how, test);
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

/* A client that asks and does not read the answers holds up nobody but itself. */
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
	/* It reads one after all, whole, and leaves in the middle of the other. */
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

/* Takes its answers one by one, so that the last wait for much longer than the server waits for who
 * takes nothing: it gets them all. (Over verbs data comes without the reader.) */
static void steady_reader(struct bed *b)
{
	const uint32_t n_asked = 40;
	struct oss_read_req q = {.len = 1u << 20};
	struct slot_vec room[8];
	struct auth_peer peer;
	struct link_rx rx;
	struct rpc_server_options o = suite_server_options(b);
	uint8_t body[300];
	struct wire_w w;

	o.data_stall_ms = VAIN_MS;
	suite_server_start(b, &o);
	struct link *k = suite_deaf_client(b, &peer);
	uint32_t n_room = suite_slots(b->client_pool, 1u << 20, room);
	wire_w_init(&w, body, sizeof(body));
	wire_put_oss_read_req(&w, &q);
	for (uint64_t i = 1; i <= n_asked; i++)
		assert_int_equal(suite_deaf_ask(k, i, OP_oss_read, &w, room, n_room), 0);
	for (uint32_t i = 0; i < n_asked; i++) {
		assert_int_equal(fiber_sleep_us(o.data_stall_ms * 3000ull / n_asked), 0);
		assert_int_equal(k->ops->recv(k, &rx), 0);
		assert_int_equal(rx.hdr.status, 0);
		assert_int_equal(rx.hdr.bulk_len, 1u << 20);
		assert_int_equal(k->ops->recv_bulk(k, &rx, room, n_room), 0);
	}
	k->ops->shutdown(k);
	k->ops->close(k);
	suite_slots_put(room, n_room);
	suite_server_stop(b, 1000);
}

static void test_steady_reader(void **state)
{
	(void)state;
	run(steady_reader);
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
		cmocka_unit_test(test_ipv6),
	};

	if (rc >= 0)
		return rc;
	how.program = argv[0];
	int failed = suite_main("rpc over tcp", run);
	return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
