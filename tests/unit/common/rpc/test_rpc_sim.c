/* SPDX-License-Identifier: Apache-2.0 */
/* The suite over the simulated network, then with faults, and that a seed gives the same run again.
 * tsan: no
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/rpc/client_impl.h"
#include "common/rpc/transport/transport_sim.h"
#include "common/rt/sim/sim.h"
#include "tests/unit/common/rpc/suite.h"

/* Memory of crashed processes stays allocated: see sim.h. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

struct run {
	struct bed bed;
	struct sim *sim;
	struct sim_proc *client, *server;
	void (*test)(struct bed *b);
	void (*job)(void *arg); /* to run in the server's fiber */
	void *job_arg;
	bool ended;
};

static void server_main(struct loop *l, void *arg)
{
	struct run *r = arg;

	(void)l;
	for (;;) {
		if (r->job != NULL) {
			r->job(r->job_arg);
			r->job = NULL;
		}
		(void)fiber_sleep_us(200);
	}
}

static void at_server(struct bed *b, void (*fn)(void *arg), void *arg)
{
	struct run *r = (struct run *)b;

	r->job_arg = arg;
	r->job = fn;
	if (!sim_proc_alive(r->server))
		assert_int_equal(sim_proc_start(r->server, server_main, r), 0);
	while (r->job != NULL)
		(void)fiber_sleep_us(100);
}

static void crash_server(struct bed *b)
{
	struct run *r = (struct run *)b;

	sim_proc_crash(r->server);
}

static void partition(struct bed *b, bool cut)
{
	transport_sim_partition(b->transport, "client", "server", cut);
}

static void client_main(struct loop *l, void *arg)
{
	struct run *r = arg;
	struct bed *b = &r->bed;

	(void)l;
	b->client_pool = suite_pool(b, b->n_slots, POOL_REMOTE);
	r->test(b);
	slot_pool_destroy(b->client_pool);
	r->ended = true;
}

static bool has_ended(void *arg)
{
	return ((struct run *)arg)->ended;
}

static uint64_t run_seed(uint64_t seed, void (*test)(struct bed *b))
{
	static struct run r;

	r = (struct run){ .bed = { .listen = "server:0",
				   .at_server = at_server,
				   .crash_server = crash_server,
				   .partition = partition,
				   .unbounded = true,
				   .slot_size = SLOT_SIZE,
				   .n_slots = 80,
				   .scale = 1,
				   .key = { { 1, 2, 3 } },
				   .cluster = { { 7, 7 } } },
			  .test = test };
	memset(&suite_seen, 0, sizeof(suite_seen));
	assert_int_equal(sim_create(seed, NULL, &r.sim), 0);
	assert_int_equal(transport_sim_create(r.sim, NULL, &r.bed.transport), 0);
	r.client = sim_proc_create(r.sim, "client");
	r.server = sim_proc_create(r.sim, "server");
	assert_int_equal(sim_proc_start(r.client, client_main, &r), 0);
	assert_int_equal(sim_run(r.sim, has_ended, &r, sim_now_us(r.sim) + 600000000), 0);
	uint64_t hash = sim_trace_hash(r.sim);
	sim_destroy(r.sim);
	transport_destroy(r.bed.transport);
	return hash;
}

static void run(void (*test)(struct bed *b))
{
	run_seed(1, test);
}

/* ---- with faults ---- */

struct caller {
	struct bed *bed;
	struct rpc_client *c;
	struct latch *done;
	uint32_t i, failures;
};

static bool worth_retrying(int rc)
{
	return rc == -LE_TIMEDOUT || rc == -LE_DISCONNECTED || rc == -LE_CONNREFUSED ||
	       rc == -LE_CORRUPT_WIRE || rc == -LE_OVERLOAD;
}

static void caller_main(void *arg)
{
	struct caller *a = arg;
	struct slot_vec vec[8];

	for (uint32_t k = 0; k < 10; k++) {
		uint32_t len = 1 + (a->i * 7919 + k * 104729) % 600000;
		uint32_t n = suite_slots(a->bed->client_pool, len, vec);
		int rc;
		for (int what = 0; what < 3; what++) {
			do {
				if (what == 0) {
					rc = suite_ping(a->c, a->i + k, 50);
				} else if (what == 1) {
					suite_fill(vec, n, k);
					rc = suite_write(a->c, len, k, vec, n, 50);
				} else {
					rc = suite_read(a->c, len, k + 1, vec, n, 50);
				}
				a->failures += rc < 0;
			} while (worth_retrying(rc));
			assert_int_equal(rc, 0);
		}
		suite_slots_put(vec, n);
	}
	latch_done(a->done);
}

static uint32_t n_failures;

/* Whatever the network does, every call ends, and every successful one has the right data. */
static void storm(struct bed *b)
{
	static struct caller a[8];
	struct transport_sim_options bad = { .delay_us_max = 500,
					     .lose_ppm = 20000,
					     .double_ppm = 50000,
					     .reorder_ppm = 50000,
					     .break_ppm = 5000,
					     .corrupt_ppm = 5000 };
	struct transport_sim_options good = { 0 };
	struct latch done;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	transport_sim_set_options(b->transport, &bad);
	latch_init(&done, 8);
	for (uint32_t i = 0; i < 8; i++) {
		a[i] = (struct caller){ .bed = b, .c = c, .done = &done, .i = i };
		assert_int_equal(fiber_spawn("caller", caller_main, &a[i]), 0);
	}
	(void)fiber_sleep_us(30000);
	b->crash_server(b);
	suite_server_start(b, NULL);
	latch_wait(&done);
	for (uint32_t i = 0; i < 8; i++)
		n_failures += a[i].failures;
	transport_sim_set_options(b->transport, &good);
	rpc_client_destroy(c);
	assert_int_equal(slot_pool_free(b->client_pool), slot_pool_total(b->client_pool));
	/* Goodbyes may be lost with their connections; wait until the server has noticed. */
	suite_server_stop(b, 100);
}

static void test_storms(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++)
		run_seed(seed, storm);
	assert_true(n_failures > 0);
}

static void test_same_seed_same_run(void **state)
{
	(void)state;
	uint64_t one = run_seed(77, storm), two = run_seed(77, storm), other = run_seed(78, storm);
	assert_true(one == two);
	assert_true(one != other);
}

static uint32_t n_probes;
static void count_probe(struct link *k)
{
	(void)k;
	n_probes++;
}

static void nap(void *arg)
{
	struct suite_caller *a = arg;

	a->rc = suite_nap(a->c, a->nap_ms, a->deadline_ms);
	latch_done(a->done);
}

/* While two callers wait for more than three seconds, the link is probed three times for both. A
 * call that is answered within a second, or an idle client, causes no probe. */
static void silence(struct bed *b)
{
	static struct suite_caller a[2];
	struct transport_ops ops;
	struct latch done;

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(suite_ping(c, 1, 1000), 0);
	struct link *k = c->paths[0].conn->conn.k;
	const struct transport_ops *before = k->ops;
	ops = *before;
	ops.probe = count_probe;
	k->ops = &ops;
	n_probes = 0;
	assert_int_equal(suite_nap(c, 900, 5000), 0);
	(void)fiber_sleep_us(5000000);
	assert_int_equal(n_probes, 0);
	suite_spawn(a, 2, nap, &done,
		    &(struct suite_caller){ .c = c, .nap_ms = 3500, .deadline_ms = 9000 });
	latch_wait(&done);
	assert_true(a[0].rc == 0 && a[1].rc == 0);
	assert_int_equal(n_probes, 3);
	/* No probe in the last second before the deadline. */
	assert_int_equal(suite_nap(c, 60000, 1500), -LE_TIMEDOUT);
	assert_int_equal(n_probes, 4);
	k->ops = before;
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static void test_silence_is_probed(void **state)
{
	(void)state;
	run_seed(1, silence);
}

/* Lost replies occupy the window only for a limited time, also if no call may wait as long for a
 * place. */
static void lost_answers(struct bed *b)
{
	struct transport_sim_options bad = { .delay_us_max = 500, .lose_ppm = 500000 };
	struct transport_sim_options good = { 0 };

	suite_server_start(b, NULL);
	struct rpc_client *c = suite_client(b);
	assert_int_equal(suite_ping(c, 1, 1000), 0);
	const struct conn *conn = &c->paths[0].conn->conn;
	transport_sim_set_options(b->transport, &bad);
	while (conn->n_free > 0)
		(void)suite_ping(c, 1, 50);
	transport_sim_set_options(b->transport, &good);
	assert_int_equal(suite_ping(c, 1, 50), -LE_TIMEDOUT);
	(void)fiber_sleep_us(31000000);
	assert_int_equal(suite_ping(c, 1, 50), 0);
	assert_ptr_equal(conn, &c->paths[0].conn->conn);
	assert_int_equal(suite_seen.opened, 1);
	rpc_client_destroy(c);
	suite_server_stop(b, 100);
}

static void test_lost_answers_are_forgotten(void **state)
{
	(void)state;
	run_seed(1, lost_answers);
}

/* log_take reads the new lines of the log; log_count counts the text in them. */
static int log_pipe[2];
static char log_text[8192];

static void log_take(void)
{
	ssize_t n = read(log_pipe[0], log_text, sizeof(log_text) - 1);

	log_text[n > 0 ? n : 0] = '\0';
}

static int log_count(const char *text)
{
	int n = 0;

	for (const char *at = log_text; (at = strstr(at, text)) != NULL; at++)
		n++;
	return n;
}

/* The log reports an unreachable server immediately, every 30 s, and once when it is reached again.
 * Short outages are not logged. */
static void server_away(struct bed *b)
{
	suite_server_start(b, NULL);
	suite_server_stop(b, 100);
	struct rpc_client *c = suite_client(b);
	rpc_client_report_unreachable(c, "the server of this test");
	assert_int_equal(rpc_client_unreachable(c), 0);
	(void)fiber_sleep_us(1500000);
	log_take();
	assert_int_equal(rpc_client_unreachable(c), -LE_CONNREFUSED);
	assert_int_equal(log_count(" W "), 1);
	assert_int_equal(log_count("the server of this test at "), 1);
	assert_int_equal(log_count(" cannot be reached: connection refused\n"), 1);
	(void)fiber_sleep_us(64000000);
	log_take();
	assert_int_equal(log_count(" W "), 2);
	assert_int_equal(log_count(" cannot be reached, for 30 s now: connection refused\n"), 1);
	suite_server_start(b, NULL);
	assert_int_equal(suite_ping(c, 1, 1000), 0);
	(void)fiber_sleep_us(1500000);
	log_take();
	assert_int_equal(rpc_client_unreachable(c), 0);
	assert_int_equal(log_count("the server of this test at "), 1);
	assert_int_equal(log_count(" is reached again, after 6"), 1);
	for (int i = 0; i < 3; i++) {
		suite_server_stop(b, 100);
		(void)fiber_sleep_us(900000);
		suite_server_start(b, NULL);
		assert_int_equal(suite_ping(c, 1, 1000), 0);
		(void)fiber_sleep_us(5000000);
	}
	log_take();
	assert_int_equal(log_count("the server of this test"), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 100);
}

static void test_server_away(void **state)
{
	int stderr_fd = dup(2);

	(void)state;
	assert_int_equal(pipe2(log_pipe, O_CLOEXEC | O_NONBLOCK), 0);
	assert_true(stderr_fd >= 0 && dup2(log_pipe[1], 2) == 2);
	log_init("test", LOG_INFO);
	run_seed(1, server_away);
	log_set_level(LOG_ERROR);
	dup2(stderr_fd, 2);
	close(stderr_fd);
	close(log_pipe[0]);
	close(log_pipe[1]);
}

static const struct transport_ops *plain_ops;
static struct conn *reading;

/* Receives the data of a late reply only when another call is in flight. */
static int recv_bulk_slowly(struct link *k, const struct link_rx *rx, const struct slot_vec *vec,
			    uint32_t n)
{
	uint64_t limit_us = loop_deadline_ms(1000);

	while (reading->window[0].id == rx->hdr.id && loop_now_us() < limit_us)
		(void)fiber_sleep_us(100);
	assert_true(reading->window[0].id != rx->hdr.id);
	return plain_ops->recv_bulk(k, rx, vec, n);
}

/* The window has one place. It is freed and used by the next call while the late data of the first
 * call is being discarded: afterwards it still belongs to the next call. */
static void late_data_of_forgotten(struct bed *b)
{
	struct rpc_client_options o;
	struct transport_ops ops;
	struct slot_vec vec[8];

	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	o.in_flight_max = 1;
	struct rpc_client *c = suite_client_of(&o);
	uint32_t n = suite_slots(b->client_pool, 100000, vec);
	assert_int_equal(suite_ping(c, 1, 1000), 0);
	reading = &c->paths[0].conn->conn;
	suite_gate_shut();
	assert_int_equal(suite_read(c, 100000, 3 | SUITE_GATE, vec, n, 50), -LE_TIMEDOUT);
	(void)fiber_sleep_us(31000000);
	plain_ops = reading->k->ops;
	ops = *plain_ops;
	ops.recv_bulk = recv_bulk_slowly;
	reading->k->ops = &ops;
	uint64_t replies = reading->n_replies;
	suite_gate_open(b);
	while (reading->n_replies == replies)
		(void)fiber_sleep_us(100);
	assert_int_equal(suite_ping(c, 1, 1000), 0);
	assert_int_equal(reading->n_free, 1);
	reading->k->ops = plain_ops;
	suite_slots_put(vec, n);
	rpc_client_destroy(c);
	suite_server_stop(b, 100);
}

static void test_late_data_of_a_forgotten_call(void **state)
{
	(void)state;
	run_seed(1, late_data_of_forgotten);
}

static bool leaving;
static int recalled;

/* Delays the goodbye until the server has its reply. */
static int send_goodbye_slowly(struct link *k, const struct link_tx *tx, uint64_t deadline_us)
{
	uint64_t limit_us = loop_deadline_ms(1000);

	leaving |= tx->hdr.type == FRAME_GOODBYE;
	while (tx->hdr.type == FRAME_GOODBYE && recalled > 0 && loop_now_us() < limit_us)
		(void)fiber_sleep_us(100);
	return plain_ops->send(k, tx, deadline_us);
}

/* Sends the client a callback as soon as it is about to leave. */
static int recall(struct rpc_req *r, const void *in, void *out)
{
	struct cb_recall_req q = { .ino = { 1 } };
	struct cb_recall_rep p;
	struct rpc_call call = { .op = OP_cb_recall, .req = &q, .rep = &p,
				 .deadline_us = loop_deadline_ms(1000) };

	(void)in, (void)out;
	while (!leaving)
		(void)fiber_sleep_us(100);
	recalled = rpc_callback(r->peer, &call);
	rpc_call_fini(&call);
	return recalled;
}

static int never_called(void *arg, struct rpc_client *c, uint16_t op, const void *req, void *rep)
{
	(void)arg, (void)c, (void)op, (void)req, (void)rep;
	fail();
	return 0;
}

static void ping(void *arg)
{
	struct suite_caller *a = arg;

	a->rc = suite_ping(a->c, 1, a->deadline_ms);
	latch_done(a->done);
}

/* A callback that arrives while the client leaves is not executed, and not answered as executed. */
static void asked_while_leaving(struct bed *b)
{
	static const struct rpc_handler recalls = { OP_mds_ping, recall };
	struct rpc_server_options so = suite_server_options(b);
	struct rpc_client_options o;
	static struct suite_caller a[1];
	struct transport_ops ops;
	struct latch done;

	leaving = false;
	recalled = 1;
	so.handlers = &recalls;
	so.n_handlers = 1;
	suite_server_start(b, &so);
	suite_client_options(b, &o);
	o.callback = never_called;
	struct rpc_client *c = suite_client_of(&o);
	suite_spawn(a, 1, ping, &done, &(struct suite_caller){ .c = c, .deadline_ms = 9000 });
	while (c->paths[0].conn == NULL || c->paths[0].conn->conn.n_calls == 0)
		(void)fiber_sleep_us(100);
	struct link *k = c->paths[0].conn->conn.k;
	plain_ops = k->ops;
	ops = *plain_ops;
	ops.send = send_goodbye_slowly;
	k->ops = &ops;
	rpc_client_destroy(c);
	latch_wait(&done);
	assert_int_equal(a[0].rc, -LE_SHUTDOWN);
	assert_int_equal(recalled, -LE_SHUTDOWN);
	suite_server_stop(b, 100);
}

static void test_asked_while_leaving(void **state)
{
	(void)state;
	run_seed(1, asked_while_leaving);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_storms),
		cmocka_unit_test(test_same_seed_same_run),
		cmocka_unit_test(test_silence_is_probed),
		cmocka_unit_test(test_lost_answers_are_forgotten),
		cmocka_unit_test(test_server_away),
		cmocka_unit_test(test_late_data_of_a_forgotten_call),
		cmocka_unit_test(test_asked_while_leaving),
	};
	int failed = suite_main("rpc over the simulated network", run);
	return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
