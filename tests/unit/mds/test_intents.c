/* SPDX-License-Identifier: Apache-2.0 */
/* Truncations and holes that a crash or a stop of the server interrupts: the next server finishes
 * them, and a repeated request gets its reply. */
#include <fcntl.h>
#include <linux/falloc.h>

#include "common/kv/kv.h"
#include "common/kv/kv_sim.h"
#include "common/rt/loop_impl.h"
#include "mds/dispatch.h"
#include "tests/unit/mds/fixture.h"

static struct ino cut;

/* The session reports that it has nothing open. */
static void return_empty(struct fx *f)
{
	struct mds_session_open_req so = {.client = {{1, 1}}, .session = f->session};
	struct mds_session_open_rep sp;
	struct ino none = {12345};
	uint32_t lost;

	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_session_open, &so, &sp), 0);
	assert_int_equal(fx_reclaim(f, none, O_RDONLY, true, &lost), 0);
}

static void over_crash(void (*before)(struct fx *f), void (*after)(struct fx *f))
{
	struct fx *f = fx_create_to_crash(1);

	fx_run(f, before);
	fx_crash(f);
	fx_run(f, after);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* The test is linked with --wrap=calloc. */
static uint32_t n_refused; /* arrays with one element for each chain */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	if (n != FX_TARGETS || n_refused == 0)
		return __real_calloc(n, size);
	n_refused--;
	return NULL;
}

/* Memory is short for a short time: the file is truncated afterwards, and the next start does not
 * truncate it again. */
static void short_of_memory_before(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	cut = a.ino;
	n_refused = 3;
	assert_int_equal(fx_truncate(f, cut, 10), 0);
	assert_int_equal(n_refused, 0);
	assert_int_equal(fx_attr(f, cut).size, 10);
	assert_int_equal(f->n_trims, FX_TARGETS);
}

static void short_of_memory_after(struct fx *f)
{
	fx_sleep_ms(1000);
	assert_int_equal(f->m->recovery.n_intents, 0);
	assert_int_equal(f->n_trims, FX_TARGETS);
}

static void test_short_of_memory(void **state)
{
	(void)state;
	over_crash(short_of_memory_before, short_of_memory_after);
}

static void intent_fiber(void *arg)
{
	struct fx *f = arg;

	(void)fx_truncate(f, cut, 10);
}

static void intent_before(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	cut = a.ino;
	f->oss_fail = true;
	assert_int_equal(fiber_spawn("truncate", intent_fiber, f), 0);
	fx_sleep_ms(300);
	/* Part of the data may be removed already, so the size of the chains does not count. */
	assert_int_equal(fx_attr(f, cut).size, 100000);
	assert_true(fx_attr(f, cut).flags & ATTR_TRUNCATING);
}

/* The next server finishes a truncation that a crash interrupted, and a repeated request gets its
 * reply. */
static void intent_after(struct fx *f)
{
	struct mds_setattr_req q = {.ino = cut, .mask = SET_SIZE, .attr = {.size = 10}};
	struct mds_setattr_rep p;
	uint64_t trims;

	assert_int_equal(f->m->recovery.n_intents, 1);
	assert_true(fx_attr(f, cut).flags & ATTR_TRUNCATING);
	f->oss_fail = false;
	assert_int_equal(
		fx_call_as(f, f->session, f->slot, f->seq[f->slot], OP_mds_setattr, &q, &p), 0);
	assert_int_equal(p.attr.size, 10);
	trims = f->n_trims;
	assert_int_equal(f->m->recovery.n_intents, 0);
	assert_int_equal(fx_attr(f, cut).size, 10);
	assert_false(fx_attr(f, cut).flags & ATTR_TRUNCATING);
	assert_int_equal(
		fx_call_as(f, f->session, f->slot, f->seq[f->slot], OP_mds_setattr, &q, &p), 0);
	assert_int_equal(f->n_trims, trims);
}

static void test_intent(void **state)
{
	(void)state;
	over_crash(intent_before, intent_after);
}

static uint32_t slots_taken(const struct mds *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < INTENTS_MAX; i++)
		n += m->intent_slots[i];
	return n;
}

/* The server cannot start a fiber for an intent: it keeps nothing of the intent in memory. */
static void no_fiber(struct fx *f)
{
	struct loop *l = loop_self();
	uint32_t fibers_max = l->fibers_max, n_refs;
	struct open_file *file;

	intent_before(f);
	file = open_file_find(&f->m->opens, cut);
	n_refs = file->refs;
	l->fibers_max = l->n_fibers;
	assert_int_equal(recovery_start(f->m), -LE_OVERLOAD);
	l->fibers_max = fibers_max;
	assert_int_equal(f->m->recovery.n_intents, 0);
	assert_int_equal(f->m->recovery.n_starting, 0);
	assert_int_equal(file->refs, n_refs);
	assert_int_equal(slots_taken(f->m), 1);
	f->oss_fail = false;
	while (slots_taken(f->m) > 0)
		fx_sleep_ms(100);
	assert_int_equal(fx_attr(f, cut).size, 10);
}
TEST(test_no_fiber, no_fiber)

/* A truncation that waits for its turn at the file becomes durable too, while the server stops. */
static void truncation_fiber(void *arg)
{
	struct fx *f = arg;
	struct mds_setattr_req q = {
		.ino = cut, .mask = SET_SIZE, .attr.size = ++f->seq[f->slot] % 2 == 0 ? 10 : 20};
	struct mds_setattr_rep p = {0};
	struct frame_hdr hdr = {.op = OP_mds_setattr,
				.session = f->session,
				.slot = 1 + (uint32_t)f->seq[f->slot] % 2,
				.seq = 1};
	struct op op;

	/* A stopping server waits for running requests. */
	latch_add(&f->m->fibers, 1);
	op_init(&op, f->m);
	assert_int_not_equal(op_run(&op, &hdr, &q, &p), 0);
	op_fini(&op);
	latch_done(&op.m->fibers);
}

static void two_intents_before(struct fx *f)
{
	struct attr a;

	f->slot = 5;
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	cut = a.ino;
	f->oss_fail = true;
	assert_int_equal(fiber_spawn("first", truncation_fiber, f), 0);
	fx_sleep_ms(100);
	assert_int_equal(fiber_spawn("second", truncation_fiber, f), 0);
	fx_sleep_ms(100);
	mds_stop(f->m);
	f->m = NULL;
}

static void two_intents_after(struct fx *f)
{
	uint64_t size;

	assert_int_equal(f->m->recovery.n_intents, 2);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "others", NULL), 0);
	f->oss_fail = false;
	fx_sleep_ms(20000);
	assert_int_equal(f->m->recovery.n_intents, 0);
	size = fx_attr(f, cut).size;
	assert_true(size == 10 || size == 20);
}

static void test_two_intents(void **state)
{
	(void)state;
	over_crash(two_intents_before, two_intents_after);
}

/* A crash interrupts an open with O_TRUNC of an open file, between truncation and open. The
 * repeated request opens the file, and data that was written meanwhile stays. */
static uint64_t open_seq;

static int open_again(struct fx *f)
{
	struct mds_open_req q = {.ino = cut, .flags = O_WRONLY | O_TRUNC};
	struct mds_open_rep p;

	return fx_call_as(f, f->session, f->slot, open_seq, OP_mds_open, &q, &p);
}

static void open_fiber(void *arg)
{
	(void)open_again(arg);
}

static void trunc_open_before(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_WRONLY, &a), 0);
	cut = a.ino;
	open_seq = ++f->seq[f->slot];
	f->oss_fail = true;
	assert_int_equal(fiber_spawn("open", open_fiber, f), 0);
	fx_sleep_ms(300);
}

static void trunc_open_between(struct fx *f)
{
	uint64_t trims = f->n_trims;

	assert_int_equal(f->m->recovery.n_intents, 1);
	f->oss_fail = false;
	/* Before its report the session may still write at an append reservation. */
	fx_sleep_ms(1000);
	assert_int_equal(f->n_trims, trims);
	return_empty(f);
	for (int i = 0; i < 300 && f->m->recovery.n_intents > 0; i++)
		fx_sleep_ms(100);
	assert_int_equal(f->m->recovery.n_intents, 0);
	assert_true(f->n_trims > 0);
}

static void trunc_open_after(struct fx *f)
{
	uint64_t trims = f->n_trims;
	uint32_t gen = fx_attr(f, cut).layout.gen;

	assert_int_equal(open_again(f), 0);
	assert_int_equal(f->n_trims, trims);
	assert_int_equal(fx_attr(f, cut).layout.gen, gen);
	/* The next open with O_TRUNC truncates again. */
	open_seq = ++f->seq[f->slot];
	assert_int_equal(open_again(f), 0);
	assert_true(f->n_trims > trims);
}

static void test_trunc_open(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, trunc_open_before);
	fx_crash(f);
	fx_run(f, trunc_open_between);
	fx_crash(f);
	fx_run(f, trunc_open_after);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* The start takes longer than any client may cache unreported state after a crash. */
static int open_slowly(struct env *env, const char *path, const struct kv_options *opts,
		       struct kv **ret_kv)
{
	TRY(fiber_sleep_us(10000000));
	return kv_sim_open(env, path, opts, ret_kv);
}

/* A start may take any time: clients cannot return before the server serves. */
static void test_trunc_open_and_slow_start(void **state)
{
	struct fx *f = fx_create_to_crash(1);
	static struct env_ops slow;
	struct env *env;

	(void)state;
	fx_run(f, trunc_open_before);
	fx_crash(f);
	env = sim_proc_env(f->mds_proc);
	slow = *env->ops;
	slow.kv_open = open_slowly;
	env->ops = &slow;
	fx_run(f, trunc_open_between);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* The next server punches an interrupted hole under its old number, by which object servers find
 * what they have done. Under a new number it would remove what other clients have written since. */
static struct ino holes[2];
static uint64_t first_seq;

static void punch_fiber(void *arg)
{
	struct fx *f = arg;
	struct mds_fallocate_req q = {.ino = holes[f->slot - 1],
				      .mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				      .len = 4096};
	struct mds_fallocate_rep p;
	struct frame_hdr hdr = {.op = OP_mds_fallocate,
				.session = f->session,
				.slot = f->slot,
				.seq = ++f->seq[f->slot]};
	struct op op;

	op_init(&op, f->m);
	assert_int_equal(op_run(&op, &hdr, &q, &p), 0);
	op_fini(&op);
	holes[hdr.slot - 1] = (struct ino){0};
}

static void punch_start(struct fx *f, uint32_t i)
{
	f->slot = 1 + i;
	assert_int_equal(fiber_spawn("punch", punch_fiber, f), 0);
	fx_sleep_ms(300);
	f->slot = 0;
}

static void holes_before(struct fx *f)
{
	static const char *const names[] = {"a", "b"};

	for (uint32_t i = 0; i < 2; i++) {
		struct attr a;

		assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, names[i], O_WRONLY, &a), 0);
		assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
		holes[i] = a.ino;
	}
	f->oss_fail = true;
	punch_start(f, 0);
	first_seq = f->intent_seq[0][0];
	assert_int_not_equal(first_seq, 0);
}

static void holes_after(struct fx *f)
{
	const struct ino b = holes[1];
	uint64_t punches = f->n_punches, second_seq;

	return_empty(f);
	fx_sleep_ms(6000);
	assert_int_equal(f->m->recovery.n_intents, 1);
	assert_true(f->n_punches > punches);
	assert_int_equal(f->intent_seq[0][0], first_seq);
	/* A concurrent hole gets another slot. */
	punch_start(f, 1);
	second_seq = f->intent_seq[0][1];
	assert_true(second_seq > first_seq);
	assert_int_equal(f->intent_seq[0][0], first_seq);
	f->oss_fail = false;
	for (int i = 0; i < 300 && (f->m->recovery.n_intents > 0 || holes[1].v != 0); i++)
		fx_sleep_ms(100);
	assert_int_equal(f->m->recovery.n_intents, 0);
	assert_int_equal(holes[1].v, 0);
	/* Afterwards the first slot is free again. */
	holes[1] = b;
	punch_start(f, 1);
	assert_int_equal(holes[1].v, 0);
	assert_true(f->intent_seq[0][0] > second_seq);
}

/* The store is a backup. Its intent was executed after the backup, and later requests have used the
 * slot. */
static void restored_after(struct fx *f)
{
	for (uint32_t i = 0; i < FX_TARGETS; i++)
		f->intent_seq[i][0] = UINT64_MAX;
	f->oss_fail = false;
	return_empty(f);
	for (int i = 0; i < 300 && f->m->recovery.n_intents > 0; i++)
		fx_sleep_ms(100);
	assert_int_equal(f->m->recovery.n_intents, 0);
}

static void test_restored(void **state)
{
	(void)state;
	over_crash(holes_before, restored_after);
}

static void test_holes(void **state)
{
	(void)state;
	over_crash(holes_before, holes_after);
}

/* A truncation waits for other clients that may show the file's pages, only where it has changed
 * something. */
static void shown(struct fx *f)
{
	uint64_t first = f->session;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_RDWR, &a), 0);
	f->session = fx_session(f, 2);
	assert_int_equal(fx_open(f, a.ino, O_RDWR), 0);
	f->session = first;
	f->shown = true;
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	assert_int_equal(f->n_trims, FX_TARGETS);
	assert_int_equal(f->n_syncs, 0);
	f->cut = 1;
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	assert_int_equal(f->n_syncs, FX_TARGETS);
	/* The first attempt executes it, and its reply is lost. */
	f->n_lost = 1;
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	assert_int_equal(f->cut, 0);
	assert_int_equal(f->n_syncs, 2 * FX_TARGETS);
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	assert_int_equal(f->n_syncs, 2 * FX_TARGETS);
}

static void shown_before(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 100000), 0);
	cut = a.ino;
	f->oss_fail = true;
	assert_int_equal(fiber_spawn("truncate", intent_fiber, f), 0);
	fx_sleep_ms(300);
}

/* The crashed server has executed part of it: the repetition finds nothing to change there, and
 * waits nevertheless. */
static void shown_after(struct fx *f)
{
	return_empty(f);
	f->session = fx_session(f, 2);
	assert_int_equal(fx_open(f, cut, O_RDONLY), 0);
	f->shown = true;
	f->oss_fail = false;
	for (int i = 0; i < 300 && f->m->recovery.n_intents > 0; i++)
		fx_sleep_ms(100);
	assert_int_equal(f->m->recovery.n_intents, 0);
	assert_int_equal(f->n_syncs, FX_TARGETS);
}

/* Two sessions append to a log when the server restarts. */
static uint64_t missing;

static void append_there(struct fx *f)
{
	struct mds_append_req q = {.ino = cut, .len = 10};
	struct mds_append_rep p;

	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
}

static void placed_before(struct fx *f)
{
	uint64_t first = f->session;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "log", O_WRONLY | O_APPEND, &a), 0);
	cut = a.ino;
	append_there(f);
	f->session = missing = fx_session(f, 2);
	f->slot = 1;
	assert_int_equal(fx_open(f, cut, O_WRONLY | O_APPEND), 0);
	append_there(f);
	f->session = first;
	f->slot = 0;
}

/* With an operation of its own: other requests are sent meanwhile. */
static void cut_fiber(void *arg)
{
	struct fx *f = arg;
	struct mds_setattr_req q = {.ino = cut, .mask = SET_SIZE};
	struct mds_setattr_rep p;
	struct frame_hdr hdr = {.op = OP_mds_setattr, .session = f->session, .slot = 1, .seq = 1};
	struct op op;

	op_init(&op, f->m);
	assert_int_equal(op_run(&op, &hdr, &q, &p), 0);
	assert_int_equal(p.attr.size, 0);
	op_fini(&op);
	f->cut = 0;
}

/* The session that has not returned may still write at its reservation, after the new end: the
 * truncation waits. */
static void cut_waits(struct fx *f)
{
	while (f->n_trims == 0 && session_find(&f->m->sessions, missing) != NULL)
		fx_sleep_ms(1);
	assert_null(session_find(&f->m->sessions, missing));
	assert_int_equal(f->n_trims, 0);
	while (f->n_trims < FX_TARGETS)
		fx_sleep_ms(1);
}

static void come_back(struct fx *f, bool done)
{
	struct mds_session_open_req so = {.client = {{1, 1}}, .session = f->session};
	struct mds_session_open_rep sp;
	uint32_t lost;

	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_session_open, &so, &sp), 0);
	assert_int_equal(fx_reclaim(f, cut, O_RDWR | O_APPEND, done, &lost), 0);
	fx_sleep_ms(f->m->params.client_lease_ms / 2);
	assert_non_null(session_find(&f->m->sessions, missing));
}

static void placed_after(struct fx *f)
{
	come_back(f, true);
	assert_int_equal(fiber_spawn("truncate", cut_fiber, f), 0);
	cut_waits(f);
}

/* The session that truncates has not reported everything yet, and the other one has not
 * returned. */
static void placed_after_half(struct fx *f)
{
	struct mds_reclaim_req q = {.done = 1};
	struct mds_reclaim_rep p;

	come_back(f, false);
	fx_sleep_ms(f->m->params.client_lease_ms);
	assert_non_null(session_find(&f->m->sessions, missing));
	f->m->serving_us = loop_now_us(); /* as after a slow start: both sessions still have time */
	assert_int_equal(fiber_spawn("truncate", cut_fiber, f), 0);
	fx_sleep_ms(100);
	assert_int_equal(f->n_trims, 0);
	assert_int_equal(fx_call_as(f, f->session, 0, 0, OP_mds_reclaim, &q, &p), 0);
	cut_waits(f);
}

static void test_placed(void **state)
{
	(void)state;
	over_crash(placed_before, placed_after);
}

static void test_placed_half(void **state)
{
	(void)state;
	over_crash(placed_before, placed_after_half);
}

TEST(test_shown, shown)

static void test_shown_after_crash(void **state)
{
	(void)state;
	over_crash(shown_before, shown_after);
}

/* One chain is truncated when a client writes there and closes: the size in the close is not
 * final. */
static void closed_meanwhile(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "cut", O_RDWR, &a), 0);
	cut = a.ino;
	f->oss_fail = true;
	f->cut = 1;
	assert_int_equal(fiber_spawn("cut", cut_fiber, f), 0);
	fx_sleep_ms(300);
	assert_true(fx_attr(f, cut).flags & ATTR_TRUNCATING);
	assert_int_equal(fx_close(f, cut, O_RDWR, 28672), 0);
	assert_true(fx_attr(f, cut).flags & ATTR_UNSETTLED);
	f->stat.size = 28672;
	f->oss_fail = false;
	while (f->cut > 0 || (fx_attr(f, cut).flags & ATTR_UNSETTLED) != 0)
		fx_sleep_ms(10);
	assert_int_equal(fx_attr(f, cut).size, 28672);
}

TEST(test_closed_meanwhile, closed_meanwhile)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_intent),
		cmocka_unit_test(test_no_fiber),
		cmocka_unit_test(test_two_intents),
		cmocka_unit_test(test_trunc_open),
		cmocka_unit_test(test_trunc_open_and_slow_start),
		cmocka_unit_test(test_holes),
		cmocka_unit_test(test_restored),
		cmocka_unit_test(test_short_of_memory),
		cmocka_unit_test(test_placed),
		cmocka_unit_test(test_placed_half),
		cmocka_unit_test(test_shown),
		cmocka_unit_test(test_shown_after_crash),
		cmocka_unit_test(test_closed_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
