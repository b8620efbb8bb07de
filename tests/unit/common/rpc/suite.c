/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of the suite; suite.h describes what they run on. */
#include "tests/unit/common/rpc/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/rpc/auth.h"

static uint64_t rng;
static uint64_t next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	return rng ^= rng << 17;
}

static uint8_t req_bytes[8192], rep_bytes[8192];
static size_t req_len, rep_len;

static void random_message(void (*get)(struct wire_r *, void *),
			   void (*put)(struct wire_w *, const void *), uint64_t *m, uint8_t *to,
			   size_t *len)
{
	static uint8_t junk[2][1024];
	static int turn;
	struct wire_r r;
	struct wire_w w;

	/* the message points into it during the call */
	uint8_t *from = junk[turn++ % 2];
	for (size_t i = 0; i < sizeof(junk[0]); i++)
		from[i] = (uint8_t)(next_random() % 7 == 0 ? next_random() % 4 : 0);
	wire_r_init(&r, from, 1 + next_random() % (sizeof(junk[0]) - 1));
	get(&r, m);
	wire_w_init(&w, to, 8192);
	put(&w, m);
	assert_int_equal(w.status, 0);
	*len = w.len;
}

/* Compares the request with what the client sent; replies with random fields. */
static int on_any(struct rpc_req *r, const void *in, void *out)
{
	static uint64_t again[MSG_STRUCT_MAX / 8];
	uint8_t bytes[8192];
	struct wire_w w;

	wire_w_init(&w, bytes, sizeof(bytes));
	r->desc->put_req(&w, in);
	assert_int_equal(w.len, req_len);
	assert_memory_equal(bytes, req_bytes, req_len);
	assert_true(r->hdr.session == 5 && r->hdr.seq == 6 && r->hdr.slot == 7 &&
		    r->hdr.epoch == 8 && r->hdr.target == 9);
	random_message(r->desc->get_rep, r->desc->put_rep, again, rep_bytes, &rep_len);
	memcpy(out, again, r->desc->rep_size);
	return 0;
}

static void test_all_messages(struct bed *b)
{
	struct rpc_server_options o = suite_server_options(b);
	static struct rpc_handler all[256];
	uint64_t req[MSG_STRUCT_MAX / 8], rep[MSG_STRUCT_MAX / 8];
	uint8_t bytes[8192];
	uint32_t n;
	const struct msg_desc *d = msg_table(&n);

	for (uint32_t i = 0; i < n; i++)
		all[i] = (struct rpc_handler){ d[i].op, on_any };
	o.handlers = all;
	o.n_handlers = n;
	suite_server_start(b, &o);
	struct rpc_client *c = suite_client(b);
	for (uint32_t i = 0; i < n; i++) {
		struct wire_w w;
		random_message(d[i].get_req, d[i].put_req, req, req_bytes, &req_len);
		struct rpc_call call = { .op = d[i].op,
					 .req = req,
					 .rep = rep,
					 .session = 5,
					 .seq = 6,
					 .slot = 7,
					 .epoch = 8,
					 .target = 9 };
		assert_int_equal(rpc_call(c, &call), 0);
		wire_w_init(&w, bytes, sizeof(bytes));
		d[i].put_rep(&w, rep);
		assert_int_equal(w.len, rep_len);
		assert_memory_equal(bytes, rep_bytes, rep_len);
		rpc_call_fini(&call);
	}
	assert_true(uuid_equal(rpc_client_cluster(c), &b->cluster));
	struct rpc_client_stats st;
	rpc_client_stats(c, &st);
	assert_int_equal(st.calls, n);
	assert_int_equal(st.replies, n);
	assert_int_equal(st.in_flight, 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static void test_statuses(struct bed *b)
{
	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	struct mds_statfs_req q;
	struct mds_statfs_rep p;
	struct rpc_call call = { .op = OP_mds_statfs, .req = &q, .rep = &p };

	assert_int_equal(rpc_call(c, &call), -LE_NOSPC);
	rpc_call_fini(&call);
	struct mds_lookup_req lq = { .name = bytes_str("x") };
	struct mds_lookup_rep lp;
	call = (struct rpc_call){ .op = OP_mds_lookup, .req = &lq, .rep = &lp };
	assert_int_equal(rpc_call(c, &call), -LE_UNKNOWN_OP); /* no handler here */
	call.op = 0x3ff;
	assert_int_equal(rpc_call(c, &call), -LE_UNKNOWN_OP);
	/* Small bodies, larger than the receive buffer, larger than allowed. */
	static const uint64_t sizes[] = { 0, 1, 8000, 8192, 20000, FRAME_BODY_MAX - 4 };
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct mds_readlink_req rq = { .ino = { sizes[i] } };
		struct mds_readlink_rep rp;
		call = (struct rpc_call){ .op = OP_mds_readlink, .req = &rq, .rep = &rp };
		assert_int_equal(rpc_call(c, &call), 0);
		assert_int_equal(rp.target.len, sizes[i]);
		for (uint32_t k = 0; k < rp.target.len; k++)
			assert_int_equal(((const char *)rp.target.data)[k], 'x');
		rpc_call_fini(&call);
	}
	struct mds_readlink_req rq = { .ino = { FRAME_BODY_MAX } };
	struct mds_readlink_rep rp;
	call = (struct rpc_call){ .op = OP_mds_readlink, .req = &rq, .rep = &rp };
	assert_int_equal(rpc_call(c, &call), -LE_TOO_BIG);
	rq.ino.v = RPC_ARENA_MAX + 1;
	assert_int_equal(rpc_call(c, &call), -LE_NOMEM);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static void test_bulk(struct bed *b)
{
	static const uint32_t sizes[] = { 0, 1, 511, 4096, 16383, 65537, SLOT_SIZE, SLOT_SIZE + 1,
					  (1u << 20) - 3, 8u << 20, (8u << 20) - 1 };
	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	struct slot_vec vec[RPC_BULK_VECS_MAX];

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t n = suite_slots(b->client_pool, sizes[i], vec);
		suite_fill(vec, n, i);
		assert_int_equal(suite_write(c, sizes[i], i, vec, n, SHORT_MS), 0);
		assert_int_equal(suite_read(c, sizes[i], 100 + i, vec, n, SHORT_MS), 0);
		suite_slots_put(vec, n);
	}
	/* The reply is larger than the slots: the data is discarded, and the connection
	 * continues. */
	uint32_t n = suite_slots(b->client_pool, 100, vec);
	vec[0].len = 100;
	assert_int_equal(suite_read(c, 101, 1, vec, n, SHORT_MS), -LE_BAD_MESSAGE);
	assert_int_equal(suite_read(c, 100000, 1, vec, 0, SHORT_MS), -LE_BAD_MESSAGE);
	assert_int_equal(suite_read(c, 100, 1, vec, n, SHORT_MS), 0);
	suite_slots_put(vec, n);
	/* Larger than the server accepts. */
	n = suite_slots(b->client_pool, 0, vec);
	struct slot *s;
	assert_int_equal(slot_get(b->client_pool, NO_DEADLINE, &s), 0);
	for (n = 0; n < RPC_BULK_VECS_MAX; n++)
		vec[n] = (struct slot_vec){ s, 0, SLOT_SIZE };
	vec[n - 1].len = 0;
	assert_int_equal(suite_write(c, 63 * SLOT_SIZE, 0, vec, n, SHORT_MS), -LE_CORRUPT_WIRE);
	struct slot_vec more[128];
	for (n = 0; n < 66; n++)
		more[n] = (struct slot_vec){ s, 0, SLOT_SIZE };
	assert_int_equal(suite_write(c, 66 * SLOT_SIZE, 0, more, n, SHORT_MS), -LE_TOO_BIG);
	slot_unref(s);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	assert_int_equal(slot_pool_free(b->client_pool), slot_pool_total(b->client_pool));
	suite_server_stop(b, 0);
}

static void caller_mixed(void *arg)
{
	struct suite_caller *a = arg;
	struct slot_vec vec[8];

	for (uint32_t k = 0; k < 10; k++) {
		uint32_t len = (a->i * 7919 + k * 104729) % 60000;
		assert_int_equal(suite_ping(a->c, a->i, SHORT_MS), 0);
		if (a->i % 4 == 0) {
			uint32_t n = suite_slots(a->bed->client_pool, len, vec);
			suite_fill(vec, n, k);
			assert_int_equal(suite_write(a->c, len, k, vec, n, SHORT_MS), 0);
			assert_int_equal(suite_read(a->c, len, k + 1, vec, n, SHORT_MS), 0);
			suite_slots_put(vec, n);
		}
	}
	latch_done(a->done);
}

static void caller_nap(void *arg)
{
	struct suite_caller *a = arg;

	a->fiber = fiber_self();
	a->rc = suite_nap(a->c, a->nap_ms, a->deadline_ms);
	a->fiber = NULL;
	latch_done(a->done);
}

static void test_many_callers(struct bed *b)
{
	static struct suite_caller a[300];
	struct latch done;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	suite_spawn(a, 300, caller_mixed, &done, &(struct suite_caller){ .bed = b, .c = c });
	latch_wait(&done);
	/* The last request ends after its reply was sent. */
	suite_until(&suite_seen.served, 300 * 10 + 75 * 20);
	assert_int_equal(suite_seen.served, 300 * 10 + 75 * 20);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static void test_timeout(struct bed *b)
{
	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);

	/* connecting takes time */
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	suite_gate_shut();
	assert_int_equal(suite_nap(c, NAP_AT_GATE, SLOWLY(10)), -LE_TIMEDOUT);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	assert_int_equal(suite_seen.running, 1);
	suite_gate_open(b);
	suite_until(&suite_seen.canceled, 1);
	suite_until(&suite_seen.served, 3);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	/* The late reply was discarded, and its place in the window is free. */
	struct rpc_client_stats st;
	rpc_client_stats(c, &st);
	assert_int_equal(st.timeouts, 1);
	assert_int_equal(st.replies, 4);
	assert_int_equal(st.connects, 1);
	/* The deadline of the fiber applies too. */
	suite_gate_shut();
	fiber_set_deadline(loop_deadline_ms(SLOWLY(10)));
	assert_int_equal(suite_nap(c, NAP_AT_GATE, SHORT_MS), -LE_TIMEDOUT);
	fiber_set_deadline(NO_DEADLINE);
	suite_gate_open(b);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* Late data is not written to buffers that another call uses. */
static void test_late_data(struct bed *b)
{
	struct slot_vec vec[8];

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	uint32_t n = suite_slots(b->client_pool, 1u << 20, vec);
	struct oss_read_req q = { .len = 1u << 20, .flags = 3 | SUITE_GATE };
	struct oss_read_rep p;
	struct rpc_call call = { .op = OP_oss_read,
				 .req = &q,
				 .rep = &p,
				 .bulk_in = vec,
				 .n_bulk_in = n,
				 .deadline_us = loop_deadline_ms(SLOWLY(10)) };

	suite_fill(vec, n, 9);
	suite_gate_shut();
	assert_int_equal(rpc_call(c, &call), -LE_TIMEDOUT);
	rpc_call_fini(&call);
	suite_gate_open(b);
	suite_until(&suite_seen.served, 2);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	assert_true(suite_is_pattern(vec, n, 1u << 20, 9));
	assert_int_equal(suite_read(c, 1u << 20, 4, vec, n, SHORT_MS), 0);
	suite_slots_put(vec, n);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static void test_interrupt(struct bed *b)
{
	static struct suite_caller a[1];
	struct latch done;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	suite_gate_shut();
	suite_spawn(a, 1, caller_nap, &done,
		      &(struct suite_caller){
		      	.c = c, .nap_ms = NAP_AT_GATE, .deadline_ms = SHORT_MS });
	suite_until(&suite_seen.running, 1);
	fiber_interrupt(a[0].fiber);
	latch_wait(&done);
	assert_int_equal(a[0].rc, -LE_INTR);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	suite_gate_open(b);
	suite_until(&suite_seen.canceled, 1);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static int hook_connected(void *arg, struct rpc_client *c)
{
	struct mds_session_open_req q = { .slots = 1 };
	struct mds_session_open_rep p;
	struct rpc_call call = { .op = OP_mds_session_open,
				 .flags = RPC_CALL_SETUP,
				 .req = &q,
				 .rep = &p,
				 .deadline_us = loop_deadline_ms(SHORT_MS) };

	(void)arg;
	int rc = rpc_call(c, &call);
	rpc_call_fini(&call);
	if (rc == 0) {
		assert_int_equal(p.session, 17);
		assert_false(rpc_client_connected(c));
		suite_seen.connected++;
	}
	return rc;
}

static void hook_disconnected(void *arg, struct rpc_client *c, int why)
{
	(void)arg, (void)c;
	assert_true(why < 0);
	suite_seen.disconnected++;
}

static void kill_one(void *arg, struct rpc_peer *p)
{
	(void)arg;
	rpc_peer_kill(p);
}

static void kill_peers(void *arg)
{
	struct bed *b = arg;

	rpc_server_each_peer(b->server, kill_one, NULL);
}

static void test_broken_connection(struct bed *b)
{
	static struct suite_caller a[20];
	struct rpc_client_options o;
	struct latch done;

	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	o.connected = hook_connected;
	o.disconnected = hook_disconnected;
	struct rpc_client *c = suite_client_of(&o);
	for (uint32_t round = 1; round <= 3; round++) {
		assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
		assert_true(rpc_client_connected(c));
		suite_gate_shut();
		suite_spawn(a, 20, caller_nap, &done,
			      &(struct suite_caller){
				      .c = c, .nap_ms = NAP_AT_GATE, .deadline_ms = SHORT_MS });
		suite_until(&suite_seen.running, 20);
		b->at_server(b, kill_peers, b);
		latch_wait(&done);
		suite_gate_open(b);
		for (int i = 0; i < 20; i++)
			assert_int_equal(a[i].rc, -LE_DISCONNECTED);
		/* The client reconnects by itself. */
		assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
		assert_int_equal(suite_seen.connected, round + 1);
		assert_int_equal(suite_seen.disconnected, round);
		suite_until(&suite_seen.canceled, 20 * round);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 100);
	assert_int_equal(suite_seen.opened, 4);
	assert_int_equal(suite_seen.closed, 4);
}

static void test_credits(struct bed *b)
{
	static struct suite_caller a[40];
	struct rpc_server_options o = suite_server_options(b);
	struct latch done;

	o.in_flight_max = 4;
	suite_server_start(b, &o);
	struct rpc_client *c = suite_client(b);
	suite_spawn(a, 40, caller_nap, &done,
		      &(struct suite_caller){ .c = c, .nap_ms = 2, .deadline_ms = SHORT_MS });
	latch_wait(&done);
	for (int i = 0; i < 40; i++)
		assert_int_equal(a[i].rc, 0);
	/* A handler returns shortly before its place in the window is free. */
	assert_int_equal(suite_seen.most_running, 4);
	/* Waiting for a place has the deadline of the call. */
	suite_spawn(a, 6, caller_nap, &done,
		      &(struct suite_caller){ .c = c, .nap_ms = SLOWLY(50), .deadline_ms = 20 });
	latch_wait(&done);
	for (int i = 0; i < 6; i++)
		assert_int_equal(a[i].rc, -LE_TIMEDOUT);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 100);
}

static uint32_t n_refused;

static void caller_refused(void *arg)
{
	struct suite_caller *a = arg;

	a->rc = suite_nap(a->c, a->nap_ms, a->deadline_ms);
	n_refused += a->rc == -LE_OVERLOAD;
	latch_done(a->done);
}

static void test_overload(struct bed *b)
{
	static struct suite_caller a[10];
	struct rpc_server_options o = suite_server_options(b);
	struct latch done;
	uint32_t ok = 0;

	o.requests_max = 4;
	suite_server_start(b, &o);
	struct rpc_client *c = suite_client(b);
	suite_gate_shut();
	n_refused = 0;
	suite_spawn(a, 10, caller_refused, &done,
		      &(struct suite_caller){
		      	.c = c, .nap_ms = NAP_AT_GATE, .deadline_ms = SHORT_MS });
	suite_until(&n_refused, 6);
	suite_gate_open(b);
	latch_wait(&done);
	for (int i = 0; i < 10; i++)
		ok += a[i].rc == 0;
	assert_int_equal(ok, 4);
	assert_int_equal(n_refused, 6);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* The server has slots for few: the other callers wait, and none waits without end. */
static void caller_write(void *arg)
{
	struct suite_caller *a = arg;
	struct slot_vec vec[8];
	uint32_t n = suite_slots(a->bed->client_pool, 2 * SLOT_SIZE + 5, vec);

	suite_fill(vec, n, a->i);
	a->rc = suite_write(a->c, 2 * SLOT_SIZE + 5, a->i, vec, n, SHORT_MS);
	suite_slots_put(vec, n);
	latch_done(a->done);
}

static struct slot_pool *small_pool;
static void make_small_pool(void *arg)
{
	(void)arg;
	assert_int_equal(slot_pool_create(SLOT_SIZE, 4, &small_pool), 0);
}

static void drop_small_pool(void *arg)
{
	(void)arg;
	slot_pool_destroy(small_pool);
}

static void test_few_slots(struct bed *b)
{
	static struct suite_caller a[12];
	struct rpc_server_options o = suite_server_options(b);
	struct rpc_client *c[3];
	struct latch done;

	b->at_server(b, make_small_pool, NULL);
	o.bulk_pool = small_pool;
	suite_server_start(b, &o);
	latch_init(&done, 12);
	for (uint32_t i = 0; i < 12; i++) {
		if (i % 4 == 0)
			c[i / 4] = suite_client(b);
		a[i] = (struct suite_caller){ .bed = b, .c = c[i / 4], .done = &done, .i = i };
		assert_int_equal(fiber_spawn("caller", caller_write, &a[i]), 0);
	}
	latch_wait(&done);
	for (int i = 0; i < 12; i++)
		assert_int_equal(a[i].rc, 0);
	for (int i = 0; i < 3; i++)
		rpc_client_destroy(c[i]);
	suite_server_stop(b, 100);
	assert_int_equal(slot_pool_free(small_pool), 4);
	b->at_server(b, drop_small_pool, NULL);
}

static int hook_callback(void *arg, struct rpc_client *c, uint16_t op, const void *req, void *rep)
{
	const struct cb_map_changed_req *q = req;

	(void)arg, (void)rep;
	assert_int_equal(op, OP_cb_map_changed);
	suite_seen.callbacks++;
	/* a callback may itself call */
	TRY(suite_ping(c, q->epoch, SHORT_MS));
	return q->epoch % 2 == 0 ? 0 : -LE_BUSY;
}

static int map_get(struct rpc_client *c, uint32_t epoch)
{
	struct mds_map_get_req q = { .have_epoch = epoch };
	struct mds_map_get_rep p;
	struct rpc_call call = { .op = OP_mds_map_get, .req = &q, .rep = &p,
				 .deadline_us = loop_deadline_ms(SHORT_MS) };
	int rc = rpc_call(c, &call);

	rpc_call_fini(&call);
	return rc;
}

static void caller_map(void *arg)
{
	struct suite_caller *a = arg;

	for (uint32_t k = 0; k < 5; k++)
		assert_int_equal(map_get(a->c, a->i + k), (a->i + k) % 2 == 0 ? 0 : -LE_BUSY);
	latch_done(a->done);
}

static void test_callbacks(struct bed *b)
{
	static struct suite_caller a[100];
	struct rpc_client_options o;
	struct latch done;

	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	o.callback = hook_callback;
	struct rpc_client *c = suite_client_of(&o);
	/* More concurrent calls than the window of callbacks holds. */
	suite_spawn(a, 100, caller_map, &done, &(struct suite_caller){ .c = c });
	latch_wait(&done);
	assert_int_equal(suite_seen.callbacks, 500);
	rpc_client_destroy(c);
	o.callback = NULL;
	c = suite_client_of(&o);
	assert_int_equal(map_get(c, 2), -LE_UNKNOWN_OP);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static void test_wrong_key_and_cluster(struct bed *b)
{
	struct rpc_client_options o;

	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	o.key.b[31] ^= 1;
	struct rpc_client *c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), -LE_AUTH);
	assert_false(rpc_client_connected(c));
	rpc_client_destroy(c);
	assert_int_equal(suite_seen.opened, 0);

	suite_client_options(b, &o);
	o.cluster.b[0] = 99;
	c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), -LE_WRONG_CLUSTER);
	rpc_client_destroy(c);
	o.cluster = b->cluster;
	c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);

	/* The program refuses the session: the client gets the reason. */
	suite_seen.refuse_open = -LE_FENCED;
	c = suite_client_of(&o);
	struct rpc_client_stats st = { 0 };
	for (uint64_t ms = SLOWLY(20); strstr(st.peer, status_text(-LE_FENCED)) == NULL; ms *= 2) {
		assert_true(ms < 2 * VAIN_MS);
		assert_int_equal(suite_ping(c, 1, ms), -LE_TIMEDOUT);
		rpc_client_stats(c, &st);
	}
	suite_seen.refuse_open = 0;
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* Makes a link without a client. */
static struct link *raw_connect(struct bed *b)
{
	struct link *k;

	assert_int_equal(
		b->transport->ops->connect(b->transport, b->addrs, loop_deadline_ms(SHORT_MS), &k),
		0);
	return k;
}

static void test_wrong_version(struct bed *b)
{
	uint8_t body[200] = { 0 };
	struct link_rx rx;
	struct wire_w w;
	struct wire_r r;
	int32_t status;
	uint32_t min, max;

	suite_server_start(b, NULL);
	struct link *k = raw_connect(b);
	wire_w_init(&w, body + 32, sizeof(body) - 32);
	wire_put_u32(&w, &(uint32_t){ PROTO_VERSION_MAX + 1 });
	wire_put_u32(&w, &(uint32_t){ PROTO_VERSION_MAX + 5 });
	struct link_tx tx = { .hdr = { .type = FRAME_HELLO, .id = 1 }, .body = body,
			      .body_len = 32 + (uint32_t)w.len };
	assert_int_equal(k->ops->send(k, &tx, NO_DEADLINE), 0);
	assert_int_equal(k->ops->recv(k, &rx), 0);
	assert_true(rx.hdr.type == FRAME_HELLO && rx.hdr.id == 2);
	wire_r_init(&r, rx.body + 32, rx.hdr.body_len - 32);
	wire_get_i32(&r, &status);
	wire_get_u32(&r, &min);
	wire_get_u32(&r, &max);
	assert_int_equal(status, -LE_VERSION);
	assert_true(min == PROTO_VERSION_MIN && max == PROTO_VERSION_MAX);
	assert_int_equal(k->ops->recv(k, &rx), -LE_DISCONNECTED);
	k->ops->close(k);
	suite_server_stop(b, 0);
}

/* Invalid frames: each ends its own connection and no other. */
static void test_bad_frames(struct bed *b)
{
	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	static const uint8_t zeros[100];

	for (uint8_t type = FRAME_HELLO; type <= FRAME_ACCEPTED; type++) {
		struct link *k = raw_connect(b);
		struct link_tx tx = { .hdr = { .type = type, .id = 3 },
				      .body = zeros,
				      .body_len = 100 };
		struct link_rx rx;
		assert_int_equal(k->ops->send(k, &tx, NO_DEADLINE), 0);
		int rc = k->ops->recv(k, &rx);
		assert_int_equal(rc, -LE_DISCONNECTED);
		k->ops->close(k);
		assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

struct nap {
	struct bed *bed;
	struct rpc_client *c;
	uint64_t ms, deadline_ms;
	uint32_t n_accepted, *n_all;
	int rc;
	bool ret_accepted;
};

static void nap_accepted(void *arg)
{
	struct nap *n = arg;

	n->n_accepted++;
	++*n->n_all;
}

static void nap_once(void *arg)
{
	struct nap *n = arg;
	struct mds_getattr_req q = { .ino = { n->ms } };
	struct mds_getattr_rep p;
	struct rpc_call call = { .op = OP_mds_getattr, .req = &q, .rep = &p,
				 .deadline_us = loop_deadline_ms(n->deadline_ms),
				 .accepted = nap_accepted, .accepted_arg = n };

	n->rc = rpc_call(n->c, &call);
	n->ret_accepted = call.ret_accepted;
	rpc_call_fini(&call);
}

static void open_gate_when_accepted(void *arg)
{
	struct nap *naps = arg;

	suite_until(naps[0].n_all, 8);
	suite_gate_open(naps[0].bed);
}

/* The notice of acceptance is delivered once, before the reply, and not after a timeout. */
static void test_accepted(struct bed *b)
{
	struct nap naps[8];
	uint32_t n_all = 0;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	for (uint32_t i = 0; i < 8; i++)
		naps[i] = (struct nap){ .bed = b, .c = c, .ms = NAP_AT_GATE,
					.deadline_ms = SHORT_MS, .n_all = &n_all };
	suite_gate_shut();
	assert_int_equal(fiber_spawn("gate", open_gate_when_accepted, naps), 0);
	fiber_parallel("nap", nap_once, naps, sizeof(naps[0]), 8, 8);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(naps[i].rc, 0);
		assert_int_equal(naps[i].n_accepted, 1);
		assert_true(naps[i].ret_accepted);
	}
	/* without an accepted hook */
	assert_int_equal(suite_nap(c, 3, SHORT_MS), 0);
	/* Accepted, but not answered in time. */
	suite_gate_shut();
	struct nap n = { .n_accepted = 0 };
	for (uint64_t ms = SLOWLY(20); n.n_accepted == 0; ms *= 2) {
		assert_true(ms < 2 * VAIN_MS);
		n = (struct nap){ .c = c, .ms = NAP_AT_GATE, .deadline_ms = ms, .n_all = &n_all };
		nap_once(&n);
		assert_int_equal(n.rc, -LE_TIMEDOUT);
	}
	suite_gate_open(b);
	assert_true(n.n_accepted == 1 && n.ret_accepted);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* The server disconnects an authenticated peer that ignores its credits. */
static void test_flood(struct bed *b)
{
	struct rpc_server_options o = suite_server_options(b);
	struct mds_getattr_req q = { .ino = { NAP_AT_GATE } };
	struct auth_peer peer;
	struct link_rx rx;
	uint8_t body[200];
	struct wire_w w;
	int rc = 0;

	o.in_flight_max = 4;
	suite_server_start(b, &o);
	struct link *k = raw_connect(b);
	struct auth_self self = { .role = ROLE_TOOL, .name = "tester", .key = &b->key };
	assert_int_equal(auth_client(k, &self, &peer), 0);
	assert_int_equal(peer.credits, 4);
	wire_w_init(&w, body, sizeof(body));
	wire_put_mds_getattr_req(&w, &q);
	suite_gate_shut();
	for (uint64_t i = 1; i <= 9 && rc == 0; i++) {
		struct link_tx tx = {
			.hdr = { .type = FRAME_REQUEST, .id = i, .op = OP_mds_getattr },
			.body = body,
			.body_len = (uint32_t)w.len
		};
		rc = k->ops->send(k, &tx, NO_DEADLINE);
	}
	suite_until(&suite_seen.running, 8);
	do {
		rc = k->ops->recv(k, &rx);
	} while (rc == 0 && rx.hdr.type == FRAME_ACCEPTED);
	assert_int_equal(rc, -LE_DISCONNECTED);
	k->ops->close(k);
	suite_gate_open(b);
	suite_server_stop(b, SHORT_MS);
}

static void test_no_server(struct bed *b)
{
	struct rpc_client_options o;
	struct mds_ping_req q = { 0 };
	struct mds_ping_rep p;
	struct rpc_call call = {
		.op = OP_mds_ping, .flags = RPC_CALL_NO_WAIT, .req = &q, .rep = &p
	};

	suite_server_start(b, NULL);
	suite_server_stop(b, 0);
	suite_client_options(b, &o);
	struct rpc_client *c = suite_client_of(&o);
	assert_int_equal(rpc_call(c, &call), -LE_DISCONNECTED);
	assert_int_equal(suite_ping_in_vain(c, -LE_CONNREFUSED), -LE_CONNREFUSED);
	/* The server returns while a call waits. */
	static struct suite_caller a[1];
	struct latch done;
	suite_spawn(a, 1, caller_nap, &done,
		      &(struct suite_caller){ .c = c, .nap_ms = 1, .deadline_ms = SHORT_MS });
	(void)fiber_sleep_us(20000);
	suite_server_start(b, NULL);
	latch_wait(&done);
	assert_int_equal(a[0].rc, 0);
	rpc_client_destroy(c);
	/* The second address works. */
	char two[2 * sizeof(b->addrs) + 4];
	snprintf(two, sizeof(two), "%s1, %s", b->addrs, b->addrs);
	two[strlen(b->addrs)] = ' ';
	char *last = two + strlen(b->addrs) - 1;
	*last = *last == '9' ? '0' : (char)(*last + 1);
	o.addrs = two;
	c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static void test_shutdown(struct bed *b)
{
	static struct suite_caller a[5];
	struct latch done;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	/* Running requests may finish. */
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	suite_gate_shut();
	suite_spawn(a, 5, caller_nap, &done,
		      &(struct suite_caller){
		      	.c = c, .nap_ms = NAP_AT_GATE, .deadline_ms = SHORT_MS });
	suite_until(&suite_seen.running, 5);
	suite_gate_open_soon(b);
	suite_server_stop(b, SHORT_MS);
	latch_wait(&done);
	for (int i = 0; i < 5; i++)
		assert_int_equal(a[i].rc, 0);
	assert_int_equal(suite_ping_in_vain(c, -LE_CONNREFUSED), -LE_CONNREFUSED);
	/* With drain_ms 0 they are interrupted. */
	suite_server_start(b, NULL);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	suite_spawn(a, 5, caller_nap, &done,
		      &(struct suite_caller){
		      	.c = c, .nap_ms = SHORT_MS, .deadline_ms = SHORT_MS });
	suite_until(&suite_seen.running, 5);
	suite_server_stop(b, 0);
	latch_wait(&done);
	for (int i = 0; i < 5; i++)
		assert_int_equal(a[i].rc, -LE_DISCONNECTED);
	/* A client that is destroyed ends its calls. */
	suite_server_start(b, NULL);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	suite_spawn(a, 5, caller_nap, &done,
		      &(struct suite_caller){
		      	.c = c, .nap_ms = SHORT_MS, .deadline_ms = SHORT_MS });
	suite_until(&suite_seen.running, 5);
	rpc_client_destroy(c);
	for (int i = 0; i < 5; i++)
		assert_int_equal(a[i].rc, -LE_SHUTDOWN);
	suite_server_stop(b, 100);
}

static void test_crash(struct bed *b)
{
	static struct suite_caller a[5];
	struct latch done;

	if (b->crash_server == NULL)
		return;
	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	suite_spawn(a, 5, caller_nap, &done,
		      &(struct suite_caller){
		      	.c = c, .nap_ms = SLOWLY(30), .deadline_ms = SHORT_MS });
	suite_until(&suite_seen.running, 5);
	b->crash_server(b);
	suite_seen.running = 0;
	latch_wait(&done);
	for (int i = 0; i < 5; i++)
		assert_int_equal(a[i].rc, -LE_DISCONNECTED);
	assert_int_equal(suite_ping_in_vain(c, -LE_CONNREFUSED), -LE_CONNREFUSED);
	suite_server_start(b, NULL);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	if (b->partition != NULL) {
		b->partition(b, true);
		assert_int_equal(suite_ping(c, 1, 20), -LE_TIMEDOUT);
		b->partition(b, false);
		assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
		/* The client gives up a server that is silent for long. */
		b->partition(b, true);
		assert_int_equal(suite_ping(c, 1, 11000), -LE_TIMEDOUT);
		assert_false(rpc_client_connected(c));
		b->partition(b, false);
		assert_int_equal(suite_ping(c, 1, 5000), 0);
		/* A server without requests to answer is not silent. */
		struct slot_vec vec[1];
		uint32_t n = suite_slots(b->client_pool, 100, vec);
		(void)fiber_sleep_us(11000000);
		suite_gate_shut();
		assert_int_equal(suite_read(c, 100, SUITE_GATE, vec, n, 50), -LE_TIMEDOUT);
		assert_true(rpc_client_connected(c));
		/* Unanswered calls in a row make it count as silent. */
		uint32_t n_unanswered = 1;
		for (; rpc_client_connected(c); n_unanswered++)
			assert_int_equal(suite_read(c, 100, SUITE_GATE, vec, n, 500), -LE_TIMEDOUT);
		assert_in_range(n_unanswered, 20, 22);
		suite_gate_open(b);
		suite_slots_put(vec, n);
		assert_int_equal(suite_ping(c, 1, 5000), 0);
	}
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* ---- running ---- */

static suite_run *runner;

const struct suite_test suite_basic_tests[] = {
	{ "all_messages", test_all_messages },
	{ "statuses", test_statuses },
	{ "bulk", test_bulk },
	{ "many_callers", test_many_callers },
	{ "timeout", test_timeout },
	{ "late_data", test_late_data },
	{ "interrupt", test_interrupt },
	{ "broken_connection", test_broken_connection },
	{ "credits", test_credits },
	{ "overload", test_overload },
	{ "few_slots", test_few_slots },
	{ "callbacks", test_callbacks },
	{ "wrong_key_and_cluster", test_wrong_key_and_cluster },
	{ "wrong_version", test_wrong_version },
	{ "bad_frames", test_bad_frames },
	{ "accepted", test_accepted },
	{ "flood", test_flood },
	{ "no_server", test_no_server },
	{ "shutdown", test_shutdown },
	{ "crash", test_crash },
	{ NULL, NULL },
};

static void run_one(void **state)
{
	const struct suite_test *t = *state;

	uint64_t begun = loop_now_us();

	memset(&suite_seen, 0, sizeof(suite_seen));
	rng = 88172645463325252ull;
	runner(t->fn);
	/* In an emulated guest: prints what a run consists of. */
	if (suite_slowness > 1)
		printf("           %s: %.1f s\n", t->name, (double)(loop_now_us() - begun) / 1e6);
}

/* SUITE_ONLY: part of the names of the tests to run. */
int suite_main(const char *name, suite_run *run)
{
	static const struct suite_test *const parts[] = { suite_basic_tests, suite_bulk_tests,
							  suite_flow_tests,  suite_late_tests,
							  suite_load_tests,  suite_kill_tests };
	static struct CMUnitTest tests[64];
	const char *only = getenv("SUITE_ONLY");
	size_t n = 0;

	for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
		for (const struct suite_test *t = parts[p]; t->name != NULL; t++) {
			assert_true(n < sizeof(tests) / sizeof(tests[0]));
			if (only == NULL || strstr(t->name, only) != NULL)
				tests[n++] = (struct CMUnitTest){ .name = t->name,
								  .test_func = run_one,
								  .initial_state = (void *)t };
		}
	}
	runner = run;
	log_init("test", LOG_ERROR);
	return _cmocka_run_group_tests(name, tests, n, NULL, NULL);
}
