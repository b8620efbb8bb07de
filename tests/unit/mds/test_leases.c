/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: which sessions may have one, which conflict, and how long they are refused after repeated
 * recalls. Sessions that end. Sessions that do not return a lease. Notices of a new owner. */
#include <fcntl.h>

#include "mds/dispatch.h"
#include "mds/lease/owner_notify.h"
#include "tests/unit/mds/fixture.h"

static const struct ino one = {1}, two = {2};

struct ls_test {
	struct leases ls;
	struct session a, b;
	void (*body)(struct ls_test *t);
	bool done;
};

static void session_make(struct session *se, uint64_t id)
{
	*se = (struct session){.id = id};
	list_init(&se->opens);
	list_init(&se->leases);
}

static void test_main(struct loop *l, void *arg)
{
	struct ls_test *t = arg;

	(void)l;
	fiber_sleep_us(1000);
	leases_init(&t->ls, 3);
	session_make(&t->a, 1);
	session_make(&t->b, 2);
	t->body(t);
	leases_fini(&t->ls);
	t->done = true;
}

static bool is_done(void *arg)
{
	return ((struct ls_test *)arg)->done;
}

static void run(void (*body)(struct ls_test *t))
{
	static struct ls_test t;
	struct sim_options so = {0};
	struct sim *sim;

	t = (struct ls_test){.body = body};
	assert_int_equal(sim_create(1, &so, &sim), 0);
	assert_int_equal(sim_proc_start(sim_proc_create(sim, "leases"), test_main, &t), 0);
	assert_int_equal(sim_run(sim, is_done, &t, 1000000000), 0);
	sim_destroy(sim);
}

static void readers_body(struct ls_test *t)
{
	assert_true(lease_give(&t->ls, &t->a, one, LEASE_READ));
	assert_true(lease_give(&t->ls, &t->a, one, LEASE_READ));
	assert_int_equal(t->ls.n, 1);
	assert_false(lease_foreign(&t->ls, one, &t->a, LEASE_CACHING));
	assert_true(lease_give(&t->ls, &t->b, one, LEASE_READ));
	assert_true(lease_foreign(&t->ls, one, &t->a, LEASE_CACHING));
	assert_false(lease_foreign(&t->ls, one, &t->a, LEASE_WRITE));
	assert_false(lease_foreign(&t->ls, two, NULL, LEASE_CACHING));
	assert_true(lease_foreign(&t->ls, one, NULL, LEASE_CACHING));
	lease_end(&t->ls, lease_find(&t->ls, one, &t->b), LEASE_CACHING);
	assert_false(lease_foreign(&t->ls, one, &t->a, LEASE_CACHING));
	assert_null(lease_find(&t->ls, one, &t->b));
}

static void readers_share_and_are_in_the_way_of_a_change(void **state)
{
	(void)state;
	run(readers_body);
}

static void writer_body(struct ls_test *t)
{
	assert_true(lease_give(&t->ls, &t->a, one, LEASE_READ));
	assert_true(lease_give(&t->ls, &t->a, one, LEASE_WRITE));
	assert_true(lease_foreign(&t->ls, one, &t->b, LEASE_WRITE));
	assert_false(lease_foreign(&t->ls, one, &t->a, LEASE_WRITE));
	assert_true(lease_give(&t->ls, &t->a, one, LEASE_READ));
	assert_false(lease_foreign(&t->ls, one, &t->b, LEASE_WRITE));
	assert_true(lease_foreign(&t->ls, one, &t->b, LEASE_CACHING));
}

static void a_read_lease_becomes_a_write_lease_and_back(void **state)
{
	(void)state;
	run(writer_body);
}

static void blocked_body(struct ls_test *t)
{
	struct lease_file *f, *g;

	assert_true(lease_give(&t->ls, &t->a, one, LEASE_READ));
	f = leases_block(&t->ls, one);
	g = leases_block(&t->ls, one);
	assert_ptr_equal(f, g);
	assert_false(lease_give(&t->ls, &t->b, one, LEASE_READ));
	assert_false(lease_give(&t->ls, &t->a, one, LEASE_READ));
	leases_drop_inode(&t->ls, one);
	assert_int_equal(t->ls.n, 0);
	leases_unblock(&t->ls, f);
	assert_false(lease_give(&t->ls, &t->b, one, LEASE_READ));
	leases_unblock(&t->ls, f);
	assert_true(lease_give(&t->ls, &t->b, one, LEASE_READ));
}

static void none_is_given_while_a_change_is_under_way(void **state)
{
	(void)state;
	run(blocked_body);
}

static void bounds_body(struct ls_test *t)
{
	for (uint64_t i = 1; i <= 3; i++)
		assert_true(lease_give(&t->ls, &t->a, (struct ino){i}, LEASE_READ));
	assert_false(lease_give(&t->ls, &t->a, (struct ino){4}, LEASE_READ));
	assert_false(lease_give(&t->ls, &t->b, one, LEASE_READ));
	assert_true(lease_give(&t->ls, &t->a, one, LEASE_READ));
	assert_true(leases_drop_some(&t->ls, &t->a, 2));
	assert_int_equal(t->ls.n, 1);
	assert_false(leases_drop_some(&t->ls, &t->a, 2));
	assert_int_equal(t->ls.n, 0);
	assert_int_equal(t->ls.map.n, 0);
	t->a.ended = true;
	assert_false(lease_give(&t->ls, &t->a, one, LEASE_READ));
}

static void there_are_no_more_than_may_be(void **state)
{
	(void)state;
	run(bounds_body);
}

/* Reservations are recorded whatever prevents caching, and end apart from it. */
static void append_body(struct ls_test *t)
{
	const struct ino four = {4};
	struct lease_file *f;

	assert_true(lease_give(&t->ls, &t->a, one, LEASE_SHARED));
	assert_true(lease_give(&t->ls, &t->a, two, LEASE_READ));
	assert_true(lease_give(&t->ls, &t->a, (struct ino){3}, LEASE_READ));
	f = leases_block(&t->ls, one);
	assert_int_equal(lease_give_append(&t->ls, &t->a, one), 0);
	assert_int_equal(lease_give_append(&t->ls, &t->b, one), 0);
	assert_int_equal(lease_give_append(&t->ls, &t->b, four), 0);
	leases_unblock(&t->ls, f);
	assert_int_equal(lease_modes(&t->ls, one, &t->a), LEASE_SHARED | LEASE_APPEND);
	assert_true(lease_foreign(&t->ls, one, &t->a, LEASE_APPEND));
	assert_false(lease_foreign(&t->ls, one, &t->a, LEASE_CACHING));
	/* A caching mode replaces a caching mode only. */
	assert_true(lease_give(&t->ls, &t->a, one, LEASE_READ));
	assert_int_equal(lease_modes(&t->ls, one, &t->a), LEASE_READ | LEASE_APPEND);
	lease_end(&t->ls, lease_find(&t->ls, one, &t->a), LEASE_CACHING);
	assert_int_equal(lease_modes(&t->ls, one, &t->a), LEASE_APPEND);
	/* One that only appends may cache when the inode is not contended. */
	lease_mark_contended(&t->ls, one);
	assert_false(lease_give(&t->ls, &t->a, one, LEASE_READ));
	fiber_sleep_us(60000);
	assert_true(lease_give(&t->ls, &t->a, one, LEASE_READ));
	lease_end(&t->ls, lease_find(&t->ls, one, &t->a), LEASE_CACHING | LEASE_APPEND);
	assert_null(lease_find(&t->ls, one, &t->a));
	assert_false(leases_drop_some(&t->ls, &t->b, 3));
	assert_int_equal(lease_modes(&t->ls, four, &t->b), 0);
	t->b.ended = true;
	assert_int_equal(lease_give_append(&t->ls, &t->b, four), -LE_SESSION_GONE);
}

static void a_reservation_is_always_recorded(void **state)
{
	(void)state;
	run(append_body);
}

static uint64_t refused_us(struct ls_test *t)
{
	uint64_t begin = loop_now_us();

	lease_mark_contended(&t->ls, one);
	while (!lease_give(&t->ls, &t->a, one, LEASE_READ))
		fiber_sleep_us(1000);
	leases_drop_inode(&t->ls, one);
	return loop_now_us() - begin;
}

static void quarrel_body(struct ls_test *t)
{
	uint64_t first = refused_us(t), last = first;

	assert_in_range(first, 40000, 60000);
	assert_true(lease_give(&t->ls, &t->a, two, LEASE_READ));
	for (int i = 0; i < 10; i++) {
		uint64_t us = refused_us(t);

		assert_true(us >= last || us > 3000000);
		last = us;
	}
	assert_in_range(last, 3000000, 3300000);
	/* Without recalls for long enough the wait is short again. */
	fiber_sleep_us(20000000);
	assert_in_range(refused_us(t), 40000, 60000);
	assert_false(leases_drop_some(&t->ls, &t->a, UINT32_MAX));
}

static void what_is_recalled_again_and_again_is_refused_for_longer(void **state)
{
	(void)state;
	run(quarrel_body);
}

static bool pinging;

/* The session is in contact, and answers no recall: it has no connection for callbacks. */
static void ping_fiber(void *arg)
{
	struct fx *f = arg;
	struct frame_hdr hdr = {.op = OP_mds_ping, .session = f->session};
	struct mds_ping_req q = {0};
	struct mds_ping_rep p;
	struct op op;

	for (pinging = true; pinging; fx_sleep_ms(500)) {
		op_init(&op, f->m);
		(void)!op_run(&op, &hdr, &q, &p);
		op_fini(&op);
	}
}

#define STUBBORN_WAIT_MS 3000u

static struct ino held_from(struct fx *f)
{
	struct session *stubborn = session_find(&f->m->sessions, f->session);
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "held", O_RDONLY, &a), 0);
	assert_true(lease_give(&f->m->leases, stubborn, a.ino, LEASE_READ));
	assert_int_equal(fiber_spawn("ping", ping_fiber, f), 0);
	fx_sleep_ms(1);
	f->session = fx_session(f, 2);
	f->slot = 1;
	return a.ino;
}

static int change_mode(struct fx *f, struct ino ino)
{
	struct mds_setattr_req q = {.ino = ino, .mask = SET_MODE, .attr = {.mode = 0600}};

	return fx_call(f, OP_mds_setattr, &q, NULL);
}

static int change_held(struct fx *f, struct ino ino)
{
	int rc;

	fiber_set_deadline(loop_deadline_ms(STUBBORN_WAIT_MS));
	rc = change_mode(f, ino);
	fiber_set_deadline(NO_DEADLINE);
	fx_sleep_ms(20000);
	return rc;
}

/* Each request waits for less time than the session has: the waits of successive requests add
 * up. */
static void stubborn_body(struct fx *f)
{
	const uint32_t n_waits = f->params.session_ttl_ms / STUBBORN_WAIT_MS;
	struct ino held = held_from(f);
	uint32_t n = 0;
	int rc;

	do {
		rc = change_held(f, held);
	} while (rc == -LE_TIMEDOUT && n++ < n_waits);
	assert_int_equal(rc, 0);
	assert_in_range(n, n_waits - 1, n_waits);
	assert_int_equal(f->m->sessions.n, 1);
	pinging = false;
	fx_sleep_ms(1000);
}

TEST(a_session_that_is_heard_and_gives_nothing_back_is_ended, stubborn_body)

static void troubles_body(struct fx *f)
{
	const uint32_t n_waits = f->params.session_ttl_ms / STUBBORN_WAIT_MS;
	struct ino held = held_from(f);

	struct mds_ping_req q = {0};
	struct mds_ping_rep p;

	for (uint32_t i = 0; i < 4 * n_waits; i++) {
		assert_int_equal(change_held(f, held), -LE_TIMEDOUT);
		for (uint32_t k = 0; i % (n_waits / 2) == 0 && k < 6; k++) {
			assert_int_equal(fx_call(f, OP_mds_ping, &q, &p), 0);
			fx_sleep_ms(f->params.session_ttl_ms / 5);
		}
	}
	assert_int_equal(f->m->sessions.n, 2);
	pinging = false;
	fx_sleep_ms(1000);
}

TEST(one_that_had_its_trouble_long_ago_is_not, troubles_body)

/* ---- notices of a new owner ---- */

#define N_GIVEN 150u

static struct owners {
	struct ino ino;
	bool answer;
	uint32_t n, n_most, n_given;
} owners;

static int owner_callback(void *arg, struct rpc_client *c, uint16_t op, const void *q, void *p)
{
	(void)arg, (void)c, (void)q, (void)p;
	if (op != OP_cb_owner)
		return 0;
	if (++owners.n > owners.n_most)
		owners.n_most = owners.n;
	while (!owners.answer)
		fiber_sleep_us(1000);
	owners.n--;
	return 0;
}

static int open_session(void *arg, struct rpc_client *c)
{
	struct fx *f = arg;
	struct mds_session_open_req q = {
		.client = {{9, 1}}, .name = bytes_str("owner"), .slots = FX_SLOTS};
	struct mds_session_open_rep p;
	struct rpc_call call = {.op = OP_mds_session_open,
				.flags = RPC_CALL_SETUP,
				.req = &q,
				.rep = &p,
				.deadline_us = loop_deadline_ms(1000)};
	int rc = rpc_call(c, &call);

	f->session = p.session;
	rpc_call_fini(&call);
	return rc;
}

static void give_fiber(void *arg)
{
	struct fx *f = arg;
	struct op op;

	op_init(&op, f->m);
	op_given(&op, owners.ino);
	op_fini(&op);
	owners.n_given++;
}

/* Notices of many chowns to a client that takes long to apply them: they leave slots for recalls,
 * which would otherwise count as unanswered. */
static void owners_body(struct fx *f)
{
	struct rpc_client_options o = {.transport = f->net,
				       .addrs = "mds:7440",
				       .name = "owner",
				       .role = ROLE_CLIENT,
				       .key = f->key,
				       .arg = f,
				       .connected = open_session,
				       .callback = owner_callback};
	struct rpc_client *c;
	struct attr given, other;
	uint64_t begin;

	owners = (struct owners){0};
	f->session = 0;
	assert_int_equal(rpc_client_create(&o, &c), 0);
	while (f->session == 0)
		fx_sleep_ms(1);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "given", O_RDONLY, &given), 0);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "other", O_RDONLY, &other), 0);
	owners.ino = given.ino;
	for (uint32_t i = 0; i < N_GIVEN; i++)
		assert_int_equal(fiber_spawn("give", give_fiber, f), 0);
	fx_sleep_ms(100);
	assert_true(lease_give(&f->m->leases, session_find(&f->m->sessions, f->session), other.ino,
			       LEASE_READ));
	f->session = fx_session(f, 2);
	begin = loop_now_us();
	assert_int_equal(change_mode(f, other.ino), 0);
	assert_in_range(loop_now_us() - begin, 0, 20000);
	assert_in_range(owners.n_most, 1, 32);
	owners.answer = true;
	while (owners.n_given < N_GIVEN)
		fx_sleep_ms(1);
	rpc_client_destroy(c);
}

TEST(who_is_told_of_owners_answers_recalls, owners_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readers_share_and_are_in_the_way_of_a_change),
		cmocka_unit_test(a_read_lease_becomes_a_write_lease_and_back),
		cmocka_unit_test(none_is_given_while_a_change_is_under_way),
		cmocka_unit_test(there_are_no_more_than_may_be),
		cmocka_unit_test(a_reservation_is_always_recorded),
		cmocka_unit_test(what_is_recalled_again_and_again_is_refused_for_longer),
		cmocka_unit_test(a_session_that_is_heard_and_gives_nothing_back_is_ended),
		cmocka_unit_test(one_that_had_its_trouble_long_ago_is_not),
		cmocka_unit_test(who_is_told_of_owners_answers_recalls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
