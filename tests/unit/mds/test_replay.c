/* SPDX-License-Identifier: Apache-2.0 */
/* Exactly once: repeated requests, also over a crash, and what remains of a batch that was never
 * synced; closes of opens that have ended. */
#include <fcntl.h>

#include "mds/dispatch.h"
#include "tests/unit/mds/fixture.h"

static struct mds_create_req create_req(const char *name, uint32_t flags)
{
	return (struct mds_create_req){
		.parent = LEAT_ROOT_INO, .name = bytes_str(name), .mode = 0600, .flags = flags};
}

/* A repeated request gets an equal reply, whether that is stored or computed again. */
static void repeat_body(struct fx *f)
{
	struct mds_create_req q = create_req("a", O_EXCL | O_RDWR);
	struct mds_create_rep p, again;

	assert_int_equal(fx_call_as(f, f->session, 0, 1, OP_mds_create, &q, &p), 0);
	assert_int_equal(fx_call_as(f, f->session, 0, 1, OP_mds_create, &q, &again), 0);
	assert_int_equal(p.attr.ino.v, again.attr.ino.v);
	assert_int_equal(p.cap.mac_lo, again.cap.mac_lo);
	assert_int_equal(f->m->opens.n_opens, 1);
	assert_int_equal(fx_call_as(f, f->session, 0, 2, OP_mds_create, &q, &again), -LE_EXIST);
	assert_int_equal(fx_call_as(f, f->session, 0, 2, OP_mds_create, &q, &again), -LE_EXIST);
	assert_int_equal(fx_call_as(f, f->session, 0, 1, OP_mds_create, &q, &again), -LE_STALE_SEQ);
	assert_int_equal(fx_call_as(f, f->session, FX_SLOTS, 1, OP_mds_create, &q, &again),
			 -LE_INVAL);
	assert_int_equal(fx_call_as(f, 999, 0, 1, OP_mds_create, &q, &again), -LE_SESSION_GONE);
	q.parent = p.attr.ino;
	assert_int_equal(fx_call_as(f, f->session, 0, 7, OP_mds_create, &q, &again), -LE_NOTDIR);
}

static uint64_t remembered;

static void before_crash(struct fx *f)
{
	struct mds_create_req q = create_req("b", O_EXCL | O_RDWR);
	struct mds_create_rep p;

	assert_int_equal(fx_call_as(f, f->session, 3, 41, OP_mds_create, &q, &p), 0);
	remembered = p.attr.ino.v;
}

static void after_crash(struct fx *f)
{
	struct mds_create_req q = create_req("b", O_EXCL | O_RDWR);
	struct mds_create_rep p;
	struct attr a;

	assert_int_equal(fx_call_as(f, f->session, 3, 41, OP_mds_create, &q, &p), 0);
	assert_int_equal(p.attr.ino.v, remembered);
	assert_int_equal(f->m->opens.n_opens, 1); /* counted again after the restart */
	assert_int_equal(fx_call_as(f, f->session, 3, 42, OP_mds_create, &q, &p), -LE_EXIST);
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "b", &a), 0);
	assert_int_equal(a.ino.v, remembered);
}

static struct ino cut;

static void cut_before_crash(struct fx *f)
{
	struct mds_setattr_req q = {.mask = SET_SIZE, .attr.size = 50000};
	struct mds_open_req open = {.flags = O_WRONLY | O_TRUNC};
	struct mds_setattr_rep p;
	struct mds_open_rep o;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), 0);
	open.ino = q.ino = cut = a.ino;
	assert_int_equal(fx_call_as(f, f->session, 3, 41, OP_mds_setattr, &q, &p), 0);
	assert_int_equal(fx_call_as(f, f->session, 4, 41, OP_mds_open, &open, &o), 0);
	assert_int_equal(f->n_trims, 6);
	assert_int_equal(f->n_syncs, 0); /* no client had chunk leases */
}

static void cut_after_crash(struct fx *f)
{
	struct mds_setattr_req q = {.ino = cut, .mask = SET_SIZE, .attr.size = 50000};
	struct mds_open_req open = {.ino = cut, .flags = O_WRONLY | O_TRUNC};
	struct mds_setattr_rep p;
	struct mds_open_rep o;

	/* The crashed server may not have waited for clients with chunk leases. */
	assert_int_equal(fx_call_as(f, f->session, 3, 41, OP_mds_setattr, &q, &p), 0);
	assert_int_equal(f->n_syncs, 3);
	assert_int_equal(fx_call_as(f, f->session, 4, 41, OP_mds_open, &open, &o), 0);
	assert_int_equal(f->n_syncs, 6);
	assert_int_equal(fx_call_as(f, f->session, 3, 41, OP_mds_setattr, &q, &p), 0);
	assert_int_equal(f->n_syncs, 6);
	assert_int_equal(f->n_trims, 6);
}

struct parallel {
	struct fx *f;
	uint64_t seq;
	bool cancelled;
	uint32_t timeout_ms; /* 0: none */
	struct mds_mkdir_rep rep;
	int rc;
};

static void mkdir_fiber(void *arg)
{
	struct parallel *p = arg;
	struct mds_mkdir_req q = {.parent = LEAT_ROOT_INO, .name = bytes_str("m"), .mode = 0755};
	struct frame_hdr hdr = {
		.op = OP_mds_mkdir,
		.session = p->f->session,
		.slot = 1,
		.seq = p->seq,
		.flags = p->cancelled ? FRAME_CANCEL_IF_NOT_STARTED : 0,
	};
	struct op op;

	if (p->timeout_ms > 0)
		fiber_set_deadline(loop_deadline_ms(p->timeout_ms));
	op_init(&op, p->f->m);
	p->rc = op_run(&op, &hdr, &q, &p->rep);
	op_fini(&op);
}

/* A repetition that arrives while the first request runs waits for it. */
static void while_running_body(struct fx *f)
{
	struct parallel p[3] = {0};

	for (int i = 0; i < 3; i++) {
		p[i].f = f;
		p[i].seq = 9;
	}
	fiber_parallel("same", mkdir_fiber, p, sizeof(p[0]), 3, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(p[i].rc, 0);
		assert_int_equal(p[i].rep.attr.ino.v, p[0].rep.attr.ino.v);
	}
	p[0].seq = 10;
	mkdir_fiber(&p[0]);
	assert_int_equal(p[0].rc, -LE_EXIST);
}

static int mkdir_of(struct fx *f, uint64_t seq, bool cancelled)
{
	struct parallel p = {.f = f, .seq = seq, .cancelled = cancelled};

	mkdir_fiber(&p);
	return p.rc;
}

/* A request, and its cancellation while it runs. */
static void both(struct fx *f, uint64_t seq, struct parallel p[2])
{
	p[0] = (struct parallel){.f = f, .seq = seq};
	p[1] = (struct parallel){.f = f, .seq = seq, .cancelled = true};
	fiber_parallel("both", mkdir_fiber, p, sizeof(p[0]), 2, 2);
}

static void nothing_body(struct fx *f)
{
	(void)f;
}

/* After a restart: the name must be looked up in the store first. */
static void withdrawn_body(struct fx *f)
{
	struct parallel p[2];

	both(f, 9, p);
	assert_int_equal(p[0].rc, -LE_CANCELED);
	assert_int_equal(p[1].rc, -LE_CANCELED);
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "m", NULL), -LE_NOENT);
	/* A late duplicate. */
	assert_int_equal(mkdir_of(f, 9, false), -LE_CANCELED);
	assert_int_equal(mkdir_of(f, 10, true), -LE_CANCELED);
	assert_int_equal(mkdir_of(f, 10, false), -LE_CANCELED);
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "m", NULL), -LE_NOENT);
	/* This request has been executed and waits only for the disk; it does not wait for leases
	 * from before the restart. */
	fx_sleep_ms(2 * f->params.client_lease_ms);
	both(f, 11, p);
	assert_int_equal(p[0].rc, 0);
	assert_int_equal(p[1].rc, 0);
	assert_int_equal(p[0].rep.attr.ino.v, p[1].rep.attr.ino.v);
	assert_int_equal(mkdir_of(f, 11, true), 0);
	assert_int_equal(mkdir_of(f, 12, false), -LE_EXIST);
}

static void test_withdrawn(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, nothing_body);
	fx_crash(f);
	fx_run(f, withdrawn_body);
	fx_destroy(f);
}

/* A truncation that gets no answer from its chains holds its slot, and the file. */
struct truncation {
	struct fx *f;
	struct ino ino;
	uint32_t slot, timeout_ms;
	uint64_t size;
	int rc;
};

static void truncate_fiber(void *arg)
{
	struct truncation *t = arg;
	struct mds_setattr_req q = {.ino = t->ino, .mask = SET_SIZE, .attr.size = t->size};
	struct mds_setattr_rep p = {0};
	struct frame_hdr hdr = {
		.op = OP_mds_setattr, .session = t->f->session, .slot = t->slot, .seq = 1};
	struct op op;

	if (t->timeout_ms > 0)
		fiber_set_deadline(loop_deadline_ms(t->timeout_ms));
	op_init(&op, t->f->m);
	t->rc = op_run(&op, &hdr, &q, &p);
	op_fini(&op);
}

/* A waiting request is not executed when its wait ends, if its deadline has passed or it was
 * cancelled. */
static void too_late_body(struct fx *f)
{
	struct truncation first = {.f = f, .slot = 1, .size = 10}, second = first;
	struct parallel waiting = {.f = f, .seq = 2, .timeout_ms = 60000, .rc = 1};
	struct parallel late = {.f = f, .seq = 2, .timeout_ms = 100}, withdrawal = late;
	struct attr a;

	f->slot = 5;
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	first.ino = second.ino = a.ino;
	second.slot = 2;
	second.timeout_ms = 100;
	second.size = 5;
	second.rc = 1;
	f->oss_fail = true;
	assert_int_equal(fiber_spawn("first", truncate_fiber, &first), 0);
	assert_int_equal(fiber_sleep_us(10000), 0);
	assert_int_equal(fiber_spawn("second", truncate_fiber, &second), 0);
	mkdir_fiber(&late);
	assert_int_equal(late.rc, -LE_TIMEDOUT);

	assert_int_equal(fiber_spawn("waiting", mkdir_fiber, &waiting), 0);
	withdrawal.cancelled = true;
	mkdir_fiber(&withdrawal);
	assert_int_equal(withdrawal.rc, -LE_TIMEDOUT);
	assert_int_equal(waiting.rc, 1);
	f->oss_fail = false;
	assert_int_equal(fiber_sleep_us(10000000), 0);
	assert_int_equal(first.rc, 0);
	assert_int_equal(second.rc, -LE_TIMEDOUT);
	assert_int_equal(waiting.rc, -LE_CANCELED);
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "m", NULL), -LE_NOENT);
	assert_int_equal(fx_getattr(f, a.ino, &a), 0);
	assert_int_equal(a.size, 10);
}

struct storm {
	struct fx *f;
	uint32_t slot, n, done;
	uint64_t session;
};

static void storm_fiber(void *arg)
{
	struct storm *s = arg;

	for (uint32_t i = 0; i < s->n; i++) {
		char name[32];
		struct mds_mkdir_req q = {.parent = LEAT_ROOT_INO, .mode = 0755};
		struct frame_hdr hdr = {
			.op = OP_mds_mkdir, .session = s->session, .slot = s->slot, .seq = 100 + i};
		struct mds_mkdir_rep p = {0};
		struct op op;

		snprintf(name, sizeof(name), "s%u-%u", s->slot, i);
		q.name = bytes_str(name);
		op_init(&op, s->f->m);
		if (op_run(&op, &hdr, &q, &p) == 0)
			s->done = i + 1;
		op_fini(&op);
	}
}

static struct storm storms[FX_SLOTS];

static void storm_start(struct fx *f)
{
	for (uint32_t i = 0; i < FX_SLOTS; i++) {
		storms[i] = (struct storm){f, i, 200, 0, f->session};
		assert_int_equal(fiber_spawn("storm", storm_fiber, &storms[i]), 0);
	}
}

static void storm_verify(struct fx *f)
{
	for (uint32_t i = 0; i < FX_SLOTS; i++) {
		for (uint32_t k = 0; k < storms[i].done; k++) {
			char name[32];

			snprintf(name, sizeof(name), "s%u-%u", i, k);
			assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, name, NULL), 0);
		}
		/* Requests from after the last answered one execute again, or get the reply of
		 * their row. */
		storms[i].f = f;
		storms[i].n = storms[i].done + 1;
	}
}

/* Everything that was answered is there after a crash at any time. */
static void test_crash_storm(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct fx *f = fx_create_to_crash(seed);
		uint32_t done = 0;

		fx_run(f, storm_start);
		assert_int_not_equal(sim_run(f->sim, NULL, NULL, sim_now_us(f->sim) + 1000 * seed),
				     0);
		fx_crash(f);
		fx_run(f, storm_verify);
		for (uint32_t i = 0; i < FX_SLOTS; i++)
			done += storms[i].done;
		assert_true(done > 0);
		assert_int_equal(fx_check(f, false), 0);
		fx_destroy(f);
	}
}

static void test_over_crash(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, before_crash);
	fx_crash(f);
	fx_run(f, after_crash);
	fx_destroy(f);
}

static void test_cut_over_crash(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, cut_before_crash);
	fx_crash(f);
	fx_run(f, cut_after_crash);
	fx_destroy(f);
}

/* A client closes, in a new session, what it had open for writing in one that has ended. In the new
 * one it has the file open for reading. */
static void lost_open_body(struct fx *f)
{
	uint64_t writer = f->session, reader = fx_session(f, 2);
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "lost", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 700), 0);
	for (uint64_t size = 700; size < 900; size += 100) {
		f->session = reader;
		f->slot = 1;
		assert_int_equal(fx_open(f, a.ino, O_RDONLY), 0);
		assert_int_equal(fx_close(f, a.ino, O_WRONLY | CLOSE_TRUNCATED, 5000), 0);
		f->session = writer;
		f->slot = 0;
		assert_int_equal(fx_open(f, a.ino, O_WRONLY), 0);
		f->session = reader;
		f->slot = 1;
		assert_int_equal(fx_close(f, a.ino, O_WRONLY, 5000), 0);
		f->session = writer;
		f->slot = 0;
		assert_int_equal(fx_close(f, a.ino, O_WRONLY, size + 100), 0);
		a = fx_attr(f, a.ino);
		assert_int_equal(a.flags & ~(uint32_t)ATTR_PLAIN, 0);
		assert_int_equal(a.size, size + 100);
	}
}

TEST(test_repeat, repeat_body)
TEST(test_while_running, while_running_body)
TEST(test_too_late, too_late_body)
/* A hostile client reports writes when it closes a file that it has open for reading. */
static void no_writer_body(struct fx *f)
{
	const uint32_t flags = O_RDONLY | CLOSE_TRUNCATED | CLOSE_MUST_QUERY;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "reader", O_RDONLY, &a), 0);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), 0);
	assert_int_equal(fx_close(f, a.ino, flags, 5000), 0);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 70), 0);
	a = fx_attr(f, a.ino);
	assert_int_equal(a.flags & ~(uint32_t)ATTR_PLAIN, 0);
	assert_int_equal(a.size, 70);
}

TEST(test_lost_open, lost_open_body)
TEST(test_no_writer, no_writer_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_repeat),
		cmocka_unit_test(test_while_running),
		cmocka_unit_test(test_too_late),
		cmocka_unit_test(test_withdrawn),
		cmocka_unit_test(test_over_crash),
		cmocka_unit_test(test_cut_over_crash),
		cmocka_unit_test(test_crash_storm),
		cmocka_unit_test(test_lost_open),
		cmocka_unit_test(test_no_writer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
