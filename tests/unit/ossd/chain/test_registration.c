/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object server and the chains that the metadata server sends it, at its registration and with
 * heartbeats. A target that no chain names is in no chain, whatever it was before. Otherwise a
 * target that was replaced while it was down would serve its old chain, report that it had been
 * SYNC there, and be filled from a log that lacks what it has missed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/kv/kv.h"
#include "common/kv/kv_sim.h"
#include "common/rpc/transport/transport_sim.h"
#include "common/rt/sim/sim.h"
#include "ossd/format.h"
#include "ossd/ops/op.h"
#include "ossd/server.h"

#define CHAIN 1u

static struct {
	struct sim *sim;
	struct transport *transport;
	struct rpc_key key;
	struct sim_proc *mds, *mds2, *ossd, *other, *client;
	bool formatted, running;
	bool stop, stopped; /* request to stop the server in order, and done */
	bool garbage; /* the index gets an invalid row before the server starts */
	struct ossd *server;
	struct rpc_client *asks;
	/* what the metadata server sends */
	bool named; /* the chain, with this target and another one SYNC */
	uint32_t epoch, chains_epoch, lease_ms, read_ms;
	uint32_t n_heartbeats, n_registers;
	bool hold, held; /* withhold the reply to a heartbeat; withheld */
	/* what the metadata server has received */
	uint64_t incarnation;
	uint32_t n_bad, said_read_ms;
	void (*test)(void);
	bool done;
} bed;

static void say_chains(struct rpc_req *r, struct bytes *ret_chains)
{
	const struct chain_member m[] = {{1, MEMBER_SYNC}, {2, MEMBER_SYNC}};
	struct chain_info info = {.id = CHAIN, .epoch = bed.epoch, .replicas = 2};
	uint8_t *buf = rpc_req_alloc(r, 256), *members = rpc_req_alloc(r, CHAIN_MEMBERS_BUF);
	struct wire_w w;

	if (!bed.named)
		return;
	chain_members_put(m, 2, members, &info);
	wire_w_init(&w, buf, 256);
	wire_put_chain_info(&w, &info);
	*ret_chains = bytes_of(buf, (uint32_t)w.len);
}

static int on_register(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_target_register_req *q = in;
	struct mds_target_register_rep *p = out;

	bed.incarnation = q->incarnation;
	bed.n_registers++;
	*p = (struct mds_target_register_rep){.target = 1,
					      .chain = CHAIN,
					      .epoch = bed.epoch,
					      .heartbeat_ms = 100,
					      .lease_ms = bed.lease_ms,
					      .chains_epoch = bed.chains_epoch};
	say_chains(r, &p->chains);
	return 0;
}

static int on_heartbeat(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_target_heartbeat_req *q = in;
	struct mds_target_heartbeat_rep *p = out;

	*p = (struct mds_target_heartbeat_rep){.epoch = bed.epoch,
					       .lease_ms = bed.lease_ms,
					       .chains_epoch = bed.chains_epoch,
					       .read_ms = bed.read_ms};
	bed.said_read_ms = q->read_ms;
	if (q->chains_epoch != bed.chains_epoch)
		say_chains(r, &p->chains);
	while (bed.hold) {
		bed.held = true;
		(void)!fiber_sleep_us(10000);
	}
	bed.n_heartbeats++;
	return 0;
}

/* A report about another incarnation is refused. */
static int on_bad(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_target_bad_req *q = in;

	(void)r, (void)out;
	if (q->target != 1 || q->incarnation != bed.incarnation)
		return -LE_NO_TARGET;
	bed.n_bad++;
	return 0;
}

static int on_sessions(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in, (void)out;
	return 0;
}

static void mds_main(struct loop *loop, void *arg)
{
	static const struct rpc_handler handlers[] = {{OP_mds_target_register, on_register},
						      {OP_mds_target_heartbeat, on_heartbeat},
						      {OP_mds_target_bad, on_bad},
						      {OP_mds_session_list, on_sessions}};
	struct rpc_server_options o = {.transport = bed.transport,
				       .addrs = arg,
				       .name = "mds",
				       .role = ROLE_MDS,
				       .cluster = {{7, 7}},
				       .key = bed.key,
				       .handlers = handlers,
				       .n_handlers = ARRAY_SIZE(handlers)};
	struct rpc_server *s;

	(void)loop;
	assert_int_equal(rpc_server_create(&o, &s), 0);
}

/* Another target, with a damaged index. */
static int on_sums(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in, (void)out;
	return -LE_CORRUPT_STORE;
}

static void other_main(struct loop *loop, void *arg)
{
	static const struct rpc_handler handlers[] = {{OP_oss_sums, on_sums}};
	struct rpc_server_options o = {.transport = bed.transport,
				       .addrs = "other:1",
				       .name = "other",
				       .role = ROLE_OSSD,
				       .cluster = {{7, 7}},
				       .key = bed.key,
				       .handlers = handlers,
				       .n_handlers = ARRAY_SIZE(handlers)};
	struct rpc_server *s;

	(void)loop, (void)arg;
	assert_int_equal(rpc_server_create(&o, &s), 0);
}

static void put_garbage(struct env *env)
{
	static const uint8_t row[] = {ROW_CHUNK, 0, 0, 0, CHAIN, 255, 255};
	struct kv_options ko = {0};
	struct kv_batch *b = kv_batch_create();
	struct kv *kv;

	assert_non_null(b);
	assert_int_equal(kv_open(env, "/store/index", &ko, &kv), 0);
	kv_batch_put(b, row, sizeof(row), "x", 1);
	assert_int_equal(kv_commit(kv, b, true), 0);
	kv_batch_destroy(b);
	kv_close(kv);
}

static void ossd_main(struct loop *loop, void *arg)
{
	static struct ossd_options o;
	struct config_section s = {"ossd", ossd_param_table, n_ossd_params, &o.params};

	(void)arg;
	o = (struct ossd_options){.transport = bed.transport, .key = bed.key,
				  .mds_addrs = "mds:1 mds2:1"};
	config_defaults(&s, 1);
	snprintf(o.params.data_dir, sizeof(o.params.data_dir), "/store");
	snprintf(o.params.listen, sizeof(o.params.listen), "ossd:1");
	o.params.data_size = 32 << 20;
	o.params.zero_ahead = 0;
	o.params.slots = o.params.read_slots = 8;
	if (!bed.formatted)
		assert_int_equal(ossd_format(loop_env(loop), &o.params, false), 0);
	bed.formatted = true;
	if (bed.garbage)
		put_garbage(loop_env(loop));
	assert_int_equal(ossd_start(&o, &bed.server), 0);
	bed.running = true;
	while (!bed.stop)
		(void)!fiber_sleep_us(1000);
	ossd_stop(bed.server);
	bed.stopped = true;
}

static void start_ossd(void)
{
	assert_int_equal(sim_proc_start(bed.ossd, ossd_main, NULL), 0);
	while (!bed.running || (!ossd_ready(bed.server) && !bed.n_bad))
		(void)!fiber_sleep_us(10000);
}

static void restart_ossd(void)
{
	bed.running = false;
	sim_proc_crash(bed.ossd);
	start_ossd();
}

/* Sends a request of the chain, in its present epoch. */
static int ask_target(uint16_t op, const void *req, void *rep)
{
	struct rpc_call call = {.op = op,
				.req = req,
				.rep = rep,
				.target = 1,
				.chain = CHAIN,
				.epoch = bed.epoch,
				.deadline_us = loop_deadline_ms(20000)};
	int rc = rpc_call(bed.asks, &call);

	rpc_call_fini(&call);
	return rc;
}

/* Returns the target's status for a read of the chain in this epoch. */
static int read_chain(void)
{
	struct oss_read_req req = {.chunk = {{5}, 1, 0}, .len = 100};
	struct oss_read_rep rep = {0};

	return ask_target(OP_oss_read, &req, &rep);
}

/* A call that needs all rows of the chain's chunks. */
static int list_chunks(void)
{
	struct oss_list_req req = {.max = 100};
	struct oss_list_rep rep = {0};

	return ask_target(OP_oss_list, &req, &rep);
}

/* The copy fails: the other target answers that its index is damaged. */
static int copy_to_other(void)
{
	struct target_info other = {.id = 2, .addrs = bytes_str("other:1")};
	struct oss_copy_req req = {
		.ino = {5}, .gen = 1, .to_gen = 2, .to_chain = 2, .to_epoch = 1, .to_target = 2};
	struct oss_copy_rep rep = {0};
	uint8_t buf[256];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_target_info(&w, &other);
	req.targets = bytes_of(buf, (uint32_t)w.len);
	return ask_target(OP_oss_copy, &req, &rep);
}

static void scrub_main(void *arg)
{
	struct oss_scrub_req req = {SCRUB_START};
	struct oss_scrub_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_scrub,
				.req = &req,
				.rep = &rep,
				.target = 1,
				.deadline_us = loop_deadline_ms(20000)};

	*(int *)arg = rpc_call(bed.asks, &call);
	rpc_call_fini(&call);
}

static void await_heartbeats(void)
{
	uint32_t n = bed.n_heartbeats;

	while (bed.n_heartbeats < n + 3)
		(void)!fiber_sleep_us(10000);
}

static void client_main(struct loop *loop, void *arg)
{
	struct rpc_client_options o = {.transport = bed.transport,
				       .addrs = "ossd:1",
				       .name = "test",
				       .role = ROLE_MDS,
				       .cluster = {{7, 7}},
				       .key = bed.key};

	(void)loop, (void)arg;
	assert_int_equal(rpc_client_create(&o, &bed.asks), 0);
	bed.test();
	bed.done = true;
}

static bool is_done(void *arg)
{
	return *(bool *)arg;
}

/* The second address of the metadata server ranks better. */
static int rank(struct transport *t, const char *addr)
{
	(void)t;
	return strcmp(addr, "full:mds2:1") == 0 ? 0 : 1;
}

/* Configured addresses are incomplete and have to be expanded, as with several transports. */
static int expand(struct transport *t, const char *addr, enum addr_use use, char *buf, size_t size)
{
	(void)t;
	snprintf(buf, size, "%s%s", use == ADDR_CONNECT ? "full:" : "", addr);
	return 0;
}

static int (*real_connect)(struct transport *t, const char *addr, uint64_t deadline_us,
			   struct link **ret_link);

static int connect_full(struct transport *t, const char *addr, uint64_t deadline_us,
			struct link **ret_link)
{
	const char *rest = addr + strlen("full:");

	return strncmp(addr, "full:", strlen("full:")) == 0
		       ? real_connect(t, rest, deadline_us, ret_link)
		       : -LE_CONFIG;
}

static void run(void (*test)(void), uint64_t disk_us)
{
	static struct transport_ops ops;
	struct sim_options so = {.kv_open = kv_sim_open, .disk_us_max = disk_us};

	memset(&bed, 0, sizeof(bed));
	memset(&bed.key, 7, sizeof(bed.key));
	bed.test = test;
	bed.epoch = 3;
	bed.chains_epoch = 4;
	bed.lease_ms = 60000;
	bed.named = true;
	assert_int_equal(sim_create(1, &so, &bed.sim), 0);
	assert_int_equal(transport_sim_create(bed.sim, NULL, &bed.transport), 0);
	ops = *bed.transport->ops;
	real_connect = ops.connect;
	ops.rank = rank;
	ops.expand = expand;
	ops.connect = connect_full;
	bed.transport->ops = &ops;
	bed.mds = sim_proc_create(bed.sim, "mds");
	bed.mds2 = sim_proc_create(bed.sim, "mds2");
	bed.ossd = sim_proc_create(bed.sim, "ossd");
	bed.other = sim_proc_create(bed.sim, "other");
	bed.client = sim_proc_create(bed.sim, "client");
	assert_int_equal(sim_proc_start(bed.mds, mds_main, "mds:1"), 0);
	assert_int_equal(sim_proc_start(bed.other, other_main, NULL), 0);
	assert_int_equal(sim_proc_start(bed.client, client_main, NULL), 0);
	assert_int_equal(sim_run(bed.sim, is_done, &bed.done, 100000000), 0);
	sim_destroy(bed.sim);
	transport_destroy(bed.transport);
}

/* ---- tests ---- */

static void named(void)
{
	start_ossd();
	assert_int_equal(read_chain(), 0);
	restart_ossd();
	assert_int_equal(read_chain(), 0);
}

/* The target reports read_ms, the time that reads continue without contact, as soon as it applies
 * it. */
static void reads_end(void)
{
	start_ossd();
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t began = loop_now_us();

		bed.read_ms = i == 1 ? 0 : 700 + i;
		while (bed.said_read_ms != bed.read_ms)
			(void)!fiber_sleep_us(1000);
		/* The next heartbeat sets the value, and another one follows immediately. */
		assert_in_range(loop_now_us() - began, 0, 150000);
	}
}

static void replaced_while_down(void)
{
	start_ossd();
	assert_int_equal(read_chain(), 0);
	bed.named = false;
	bed.epoch = 5;
	bed.chains_epoch = 9;
	restart_ossd();
	assert_int_equal(read_chain(), -LE_NO_TARGET);
	await_heartbeats();
	assert_int_equal(read_chain(), -LE_NO_TARGET);
}

static void replaced_while_up(void)
{
	start_ossd();
	bed.named = false;
	bed.epoch = 5;
	bed.chains_epoch = 9;
	await_heartbeats();
	assert_int_equal(read_chain(), -LE_NO_TARGET);
	bed.named = true;
	bed.epoch = 6;
	bed.chains_epoch = 10;
	await_heartbeats();
	assert_int_equal(read_chain(), 0);
}

static void not_told_of_chains(void)
{
	bed.named = false;
	bed.chains_epoch = 0;
	start_ossd();
	assert_int_equal(read_chain(), 0);
	bed.epoch = 4;
	await_heartbeats();
	assert_int_equal(read_chain(), 0);
}

/* A heartbeat is in flight when the connection moves to a better address, where the server sends
 * other epochs: its reply is stale. */
static void late_answer(void)
{
	start_ossd();
	bed.hold = true;
	while (!bed.held)
		(void)!fiber_sleep_us(10000);
	bed.chains_epoch = 9;
	assert_int_equal(sim_proc_start(bed.mds2, mds_main, "mds2:1"), 0);
	while (bed.n_registers < 2)
		(void)!fiber_sleep_us(10000);
	bed.hold = false;
	await_heartbeats();
	assert_int_equal(read_chain(), 0);
}

/* Without a metadata server no other target can get the lease that this target loses. */
static void no_metadata_server(void)
{
	bed.lease_ms = 1000;
	start_ossd();
	await_heartbeats();
	sim_proc_crash(bed.mds);
	(void)!fiber_sleep_us(5000000);
	assert_int_equal(read_chain(), 0);
}

/* A request that is executed while the server stops is answered before the server destroys what the
 * request needs. Disks are slow, so that the request waits for a commit. */
static void stop_while_asked(void)
{
	int rc = 1;

	start_ossd();
	assert_int_equal(read_chain(), 0);
	assert_int_equal(fiber_spawn("scrub", scrub_main, &rc), 0);
	(void)!fiber_sleep_us(5000);
	assert_int_equal(rc, 1);
	bed.stop = true;
	while (!bed.stopped)
		(void)!fiber_sleep_us(10000);
	assert_int_equal(rc, 0);
}

static void await_bad(void)
{
	while (!bed.n_bad || !ossd_failed(bed.server))
		(void)!fiber_sleep_us(10000);
	assert_int_equal(ossd_failed(bed.server), -LE_CORRUPT_STORE);
	assert_int_equal(read_chain(), -LE_NOT_READY);
}

static void damaged_index(void)
{
	bed.garbage = true;
	start_ossd();
	assert_true(list_chunks() < 0);
	await_bad();
}

/* No client reads the damaged part: the scrub that begins after such a start finds it. */
static void damage_nobody_meets(void)
{
	bed.garbage = true;
	start_ossd();
	await_bad();
}

static void damage_elsewhere(void)
{
	start_ossd();
	assert_int_equal(copy_to_other(), -LE_BUSY);
	await_heartbeats();
	assert_int_equal(bed.n_bad, 0);
	assert_int_equal(ossd_failed(bed.server), 0);
	assert_int_equal(read_chain(), 0);
}

#define TEST(name, fn, disk_us)                                                                    \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		run(fn, disk_us);                                                                  \
	}
TEST(a_chain_that_names_it_is_served, named, 0)
TEST(how_long_it_reads_on_is_said_at_once, reads_end, 0)
TEST(replaced_while_it_was_down_it_serves_none, replaced_while_down, 0)
TEST(replaced_while_it_was_up_it_serves_none, replaced_while_up, 0)
TEST(where_no_chains_are_named_it_serves_its_own, not_told_of_chains, 0)
TEST(an_answer_that_comes_late_takes_no_chain_away, late_answer, 0)
TEST(a_request_outlasts_the_scrub_when_the_server_stops, stop_while_asked, 100000)
TEST(without_a_metadata_server_it_keeps_its_lease, no_metadata_server, 0)
TEST(that_its_index_is_damaged_is_told, damaged_index, 0)
TEST(a_scrub_that_meets_damage_of_the_index_tells, damage_nobody_meets, 0)
TEST(another_targets_damaged_index_is_not_its_own, damage_elsewhere, 0)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chain_that_names_it_is_served),
		cmocka_unit_test(how_long_it_reads_on_is_said_at_once),
		cmocka_unit_test(replaced_while_it_was_down_it_serves_none),
		cmocka_unit_test(replaced_while_it_was_up_it_serves_none),
		cmocka_unit_test(where_no_chains_are_named_it_serves_its_own),
		cmocka_unit_test(an_answer_that_comes_late_takes_no_chain_away),
		cmocka_unit_test(a_request_outlasts_the_scrub_when_the_server_stops),
		cmocka_unit_test(without_a_metadata_server_it_keeps_its_lease),
		cmocka_unit_test(that_its_index_is_damaged_is_told),
		cmocka_unit_test(a_scrub_that_meets_damage_of_the_index_tells),
		cmocka_unit_test(another_targets_damaged_index_is_not_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
