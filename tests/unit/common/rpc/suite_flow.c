/* SPDX-License-Identifier: Apache-2.0 */
/* Credits in both directions, callbacks beside calls, and clients that do not read. */
#include "tests/unit/common/rpc/suite.h"

#include "common/rpc/auth.h"

#define CALLBACK_WINDOW 64u

static int map_get(struct rpc_client *c, uint32_t epoch)
{
	struct mds_map_get_req q = {.have_epoch = epoch};
	struct mds_map_get_rep p;
	struct rpc_call call = {.op = OP_mds_map_get,
				.req = &q,
				.rep = &p,
				.deadline_us = loop_deadline_ms(5 * SHORT_MS)};
	int rc = rpc_call(c, &call);

	rpc_call_fini(&call);
	return rc;
}

static void caller_map(void *arg)
{
	struct suite_caller *a = arg;

	for (uint32_t k = 0; k < 10; k++)
		assert_int_equal(map_get(a->c, a->i), 0);
	latch_done(a->done);
}

static int answer_callback(void *arg, struct rpc_client *c, uint16_t op, const void *req, void *rep)
{
	(void)arg, (void)c, (void)req, (void)rep;
	assert_int_equal(op, OP_cb_map_changed);
	suite_seen.callbacks++;
	return 0;
}

/* Every call in the window waits for a callback. */
static void test_callbacks_saturated(struct bed *b)
{
	static struct suite_caller a[40];
	struct rpc_server_options o = suite_server_options(b);
	struct rpc_client_options co;
	struct latch done;

	o.in_flight_max = 4;
	suite_server_start(b, &o);
	suite_client_options(b, &co);
	co.callback = answer_callback;
	struct rpc_client *c = suite_client_of(&co);
	suite_spawn(a, 40, caller_map, &done, &(struct suite_caller){.c = c});
	latch_wait(&done);
	assert_int_equal(suite_seen.callbacks, 400);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

struct valve {
	bool shut;
	uint32_t waiting, most;
	struct waitq q;
};

static int hold_callback(void *arg, struct rpc_client *c, uint16_t op, const void *req, void *rep)
{
	struct valve *v = arg;

	(void)c, (void)op, (void)req, (void)rep;
	suite_seen.callbacks++;
	if (++v->waiting > v->most)
		v->most = v->waiting;
	while (v->shut)
		(void)!waitq_wait(&v->q, NO_DEADLINE);
	v->waiting--;
	return 0;
}

static void caller_map_once(void *arg)
{
	struct suite_caller *a = arg;

	a->rc = map_get(a->c, a->i);
	latch_done(a->done);
}

/* The client answers no callback: the server's window fills up, and is not exceeded. Calls of that
 * connection and of others continue. */
static void test_callback_credits(struct bed *b)
{
	static struct suite_caller a[100];
	struct valve v = {.shut = true};
	struct rpc_client_options co;
	struct latch done;

	waitq_init(&v.q);
	suite_server_start(b, NULL);
	suite_client_options(b, &co);
	co.callback = hold_callback;
	co.arg = &v;
	struct rpc_client *c = suite_client_of(&co), *other = suite_client(b);
	suite_spawn(a, 100, caller_map_once, &done, &(struct suite_caller){.c = c});
	suite_until(&v.waiting, CALLBACK_WINDOW);
	for (uint32_t i = 0; i < 50; i++) {
		assert_int_equal(suite_ping(c, i, SHORT_MS), 0);
		assert_int_equal(suite_ping(other, i, SHORT_MS), 0);
	}
	assert_int_equal(v.most, CALLBACK_WINDOW);
	v.shut = false;
	waitq_wake_all(&v.q);
	latch_wait(&done);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(a[i].rc, 0);
	assert_int_equal(suite_seen.callbacks, 100);
	rpc_client_destroy(c);
	rpc_client_destroy(other);
	suite_server_stop(b, 0);
}

static void caller_gate(void *arg)
{
	struct suite_caller *a = arg;
	struct slot_vec vec[8];
	uint32_t n = suite_slots(a->bed->client_pool, 5000, vec);

	a->rc = suite_read(a->c, 5000, a->i | SUITE_GATE, vec, n, 5 * SHORT_MS);
	suite_slots_put(vec, n);
	latch_done(a->done);
}

/* The server answers no request: it gets exactly as many as it granted credits. */
static void test_call_credits(struct bed *b)
{
	static struct suite_caller a[30];
	struct rpc_server_options o = suite_server_options(b);
	struct latch done;

	o.in_flight_max = 7;
	suite_server_start(b, &o);
	struct rpc_client *c = suite_client(b), *other = suite_client(b);
	suite_gate_shut();
	suite_spawn(a, 30, caller_gate, &done, &(struct suite_caller){.bed = b, .c = c});
	suite_until(&suite_seen.at_gate, 7);
	for (uint32_t i = 0; i < 50; i++)
		assert_int_equal(suite_ping(other, i, SHORT_MS), 0);
	assert_int_equal(suite_seen.most_at_gate, 7);
	suite_gate_open(b);
	latch_wait(&done);
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(a[i].rc, 0);
	rpc_client_destroy(c);
	rpc_client_destroy(other);
	suite_server_stop(b, 0);
}

/* ---- a client that sends requests and reads no replies ---- */

struct link *suite_deaf_client(struct bed *b, struct auth_peer *ret_peer)
{
	struct auth_self self = {.role = ROLE_TOOL, .name = "tester", .key = &b->key};
	struct link *k;

	assert_int_equal(
		b->transport->ops->connect(b->transport, b->addrs, loop_deadline_ms(SHORT_MS), &k),
		0);
	assert_int_equal(auth_client(k, &self, ret_peer), 0);
	return k;
}

int suite_deaf_ask(struct link *k, uint64_t id, uint16_t op, const struct wire_w *w,
		   const struct slot_vec *vec, uint32_t n)
{
	struct link_tx tx = {.hdr = {.type = FRAME_REQUEST, .id = id, .op = op},
			     .body = w->buf,
			     .body_len = (uint32_t)w->len,
			     .bulk_in = vec,
			     .n_bulk_in = n};

	return k->ops->send(k, &tx, loop_deadline_ms(50));
}

/* Requests far more data than the server has buffers and reads none: the server continues to serve
 * another client. */
static void test_deaf_bulk(struct bed *b)
{
	struct oss_read_req q = {.len = 1u << 20};
	struct slot_vec vec[8], space[8];
	struct auth_peer peer;
	struct rpc_server_options o = suite_server_options(b);
	uint8_t body[300];
	struct wire_w w;

	o.data_stall_ms = b->brief ? VAIN_MS / 4 : VAIN_MS;
	suite_server_start(b, &o);
	struct rpc_client *c = suite_client(b);
	struct link *k = suite_deaf_client(b, &peer);
	uint32_t n = suite_slots(b->client_pool, 1u << 20, vec);
	uint32_t n_room = suite_slots(b->client_pool, 1u << 20, space);
	wire_w_init(&w, body, sizeof(body));
	wire_put_oss_read_req(&w, &q);
	int rc = 0;
	for (uint64_t i = 1; i <= 60 && rc == 0; i++)
		rc = suite_deaf_ask(k, i, OP_oss_read, &w, space, n_room);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(suite_read(c, 1u << 20, i, vec, n, 5 * SHORT_MS), 0);
	k->ops->shutdown(k);
	k->ops->close(k);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	suite_slots_put(vec, n);
	suite_slots_put(space, n_room);
	rpc_client_destroy(c);
	suite_server_stop(b, 1000);
}

/* Large replies without data: the server keeps at most one for each credit, then it disconnects the
 * client. */
static void test_deaf_bodies(struct bed *b)
{
	struct rpc_server_options o = suite_server_options(b);
	struct mds_readlink_req q = {.ino = {200000}};
	struct auth_peer peer;
	uint8_t body[300];
	struct wire_w w;
	int rc = 0;

	o.in_flight_max = 16;
	suite_server_start(b, &o);
	struct rpc_client *c = suite_client(b);
	struct link *k = suite_deaf_client(b, &peer);
	assert_int_equal(peer.credits, 16);
	wire_w_init(&w, body, sizeof(body));
	wire_put_mds_readlink_req(&w, &q);
	for (uint64_t i = 1; i <= 4000 && rc == 0; i++) {
		rc = suite_deaf_ask(k, i, OP_mds_readlink, &w, NULL, 0);
		if (i % 100 == 0)
			assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	}
	if (!b->unbounded)
		suite_until(&suite_seen.closed, 1);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	k->ops->shutdown(k);
	k->ops->close(k);
	rpc_client_destroy(c);
	suite_server_stop(b, 1000);
}

const struct suite_test suite_flow_tests[] = {
	{"callbacks_saturated", test_callbacks_saturated},
	{"callback_credits", test_callback_credits},
	{"call_credits", test_call_credits},
	{"deaf_bulk", test_deaf_bulk},
	{"deaf_bodies", test_deaf_bodies},
	{NULL, NULL},
};
