/* SPDX-License-Identifier: Apache-2.0 */
/* The log names every chunk that must be compared when a member returns, also after a crash, and
 * few others. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "ossd/chain/chain_log.h"
#include "ossd/chunk/chunk_files.h"
#include "tests/unit/ossd/chunk/store_rig.h"

#define CS    65536u
#define CHAIN 7u

struct world {
	struct rig rig;
	struct chain_log *log;
	uint32_t changed_max;
};

static struct chunk_key key_of(uint64_t i)
{
	return (struct chunk_key){CHAIN, {100 + i}, 1, 0};
}

static void write_chunk(struct world *w, uint64_t i, bool commit)
{
	struct chunk_key k = key_of(i);
	uint8_t data[100] = {(uint8_t)i};

	assert_int_equal(rig_write(&w->rig, &k, CS, 0, data, sizeof(data), 0), 0);
	if (commit)
		chain_log_committed(w->log, &k);
}

static uint32_t count(struct world *w, enum row_kind kind)
{
	struct chunk_key keys[128], from = {.chain = CHAIN};
	struct chunk_keys ks = {.k = keys};

	assert_int_equal(chain_log_list(w->log, kind, &from, 128, &ks), 0);
	assert_false(ks.more);
	return ks.n;
}

static void adopt(struct world *w, uint32_t epoch, bool sync, bool all_sync)
{
	struct group_commit *g = &w->rig.store->gc;
	struct log_adopt a = {CHAIN, epoch, true, sync, all_sync};

	chain_log_adopt(w->log, &a, group_commit_batch(g));
	assert_int_equal(group_commit_wait(g, group_commit_join(g, NULL, false)), 0);
}

static void run(struct world *w, void (*fn)(struct rig *r, void *arg))
{
	rig_run(&w->rig, fn, w);
	assert_int_equal(rig_check(&w->rig, true), 0);
}

static void joined(void *arg, const struct chunk_key *k)
{
	struct world *w = arg;

	chain_log_joined(w->log, k, group_commit_batch(&w->rig.store->gc));
}

static void start(struct world *w)
{
	w->rig.joined = joined;
	w->rig.joined_arg = w;
	assert_int_equal(chain_log_open(w->rig.store, w->changed_max, &w->log), 0);
}

/* ---- pending ---- */

static void pending_rows(struct rig *r, void *arg)
{
	struct world *w = arg;

	(void)r;
	start(w);
	write_chunk(w, 0, true); /* a chain without other members: no rows */
	assert_int_equal(count(w, ROW_PENDING), 0);
	adopt(w, 5, true, true);
	write_chunk(w, 1, false);
	write_chunk(w, 1, false);
	write_chunk(w, 2, true);
	assert_int_equal(count(w, ROW_PENDING), 2);
	chain_log_tick(w->log);
	assert_int_equal(count(w, ROW_PENDING), 2); /* not immediately */
	assert_int_equal(fiber_sleep_us(10000000), 0);
	chain_log_tick(w->log);
	assert_int_equal(count(w, ROW_PENDING), 1); /* the one that is still pending */
	write_chunk(w, 2, false);                   /* pending again */
	assert_int_equal(count(w, ROW_PENDING), 2);
	for (uint64_t i = 10; i < 200; i++)
		write_chunk(w, i, true); /* idle rows are deleted with other changes */
	chain_log_close(w->log);
}

static void pending_after_start(struct rig *r, void *arg)
{
	struct world *w = arg;
	struct chunk_key keys[128], from = {.chain = CHAIN};
	struct chunk_keys ks = {.k = keys};

	(void)r;
	start(w);
	assert_int_equal(chain_log_list(w->log, ROW_PENDING, &from, 128, &ks), 0);
	assert_true(ks.n >= 2 && ks.n <= 70);
	assert_true(keys[0].ino.v == 101 && keys[1].ino.v == 102);
	/* in parts */
	assert_int_equal(chain_log_list(w->log, ROW_PENDING, &from, 1, &ks), 0);
	assert_true(ks.n == 1 && ks.more && keys[0].ino.v == 101);
	assert_int_equal(chain_log_synced_epoch(w->log, CHAIN), 5);
	/* chunks pending at the start stay listed until all members are SYNC */
	chain_log_committed(w->log, &keys[0]);
	assert_int_equal(fiber_sleep_us(10000000), 0);
	chain_log_tick(w->log);
	assert_true(count(w, ROW_PENDING) >= 1);
	adopt(w, 6, true, false);
	assert_int_equal(count(w, ROW_CHANGED), 0); /* those have not changed since */
	assert_true(count(w, ROW_PENDING) >= 1);
	assert_int_equal(chain_log_epoch(w->log, CHAIN), 6);
	adopt(w, 7, true, true);
	assert_int_equal(count(w, ROW_PENDING), 0);
	assert_int_equal(count(w, ROW_CHANGED), 0);
	assert_int_equal(chain_log_epoch(w->log, CHAIN), 0);
	chain_log_close(w->log);
}

static void test_pending_rows(void **state)
{
	struct world w = {.changed_max = 100};

	(void)state;
	rig_init(&w.rig, 1);
	run(&w, pending_rows);
	run(&w, pending_after_start);
	rig_fini(&w.rig);
}

/* ---- a chunk that was pending at the start, and is again ---- */

static int one_more(void *arg, const struct chunk_key *k)
{
	(void)k;
	++*(int *)arg;
	return 0;
}

static int n_under_way(struct world *w)
{
	int n = 0;

	assert_int_equal(chain_log_each_pending(w->log, CHAIN, one_more, &n), 0);
	return n;
}

static void under_way_at_the_end(struct rig *r, void *arg)
{
	struct world *w = arg;

	(void)r;
	start(w);
	adopt(w, 3, true, true);
	write_chunk(w, 1, false);
	write_chunk(w, 2, false);
	chain_log_close(w->log);
}

static void under_way_again(struct rig *r, void *arg)
{
	struct world *w = arg;
	struct chunk_key k = key_of(1);

	(void)r;
	start(w);
	assert_int_equal(n_under_way(w), 2);
	write_chunk(w, 1, false);
	adopt(w, 4, true, true); /* settles the earlier one, not the present one */
	assert_int_equal(count(w, ROW_PENDING), 1);
	assert_int_equal(n_under_way(w), 1);
	adopt(w, 5, true, false);
	assert_int_equal(count(w, ROW_CHANGED), 1);
	chain_log_committed(w->log, &k);
	assert_int_equal(n_under_way(w), 0);
	assert_int_equal(fiber_sleep_us(10000000), 0);
	chain_log_tick(w->log);
	assert_int_equal(count(w, ROW_PENDING), 0);
	/* A chunk that is here and was never committed stays listed until all members are SYNC
	 * again. */
	write_chunk(w, 1, false);
	chain_log_kept(w->log, &k);
	write_chunk(w, 1, true);
	assert_int_equal(n_under_way(w), 1);
	adopt(w, 6, true, true);
	assert_int_equal(n_under_way(w), 0);
	assert_int_equal(count(w, ROW_PENDING), 0);
	chain_log_close(w->log);
}

static void test_under_way_again(void **state)
{
	struct world w = {.changed_max = 100};

	(void)state;
	rig_init(&w.rig, 3);
	run(&w, under_way_at_the_end);
	run(&w, under_way_again);
	rig_fini(&w.rig);
}

/* ---- changes while a member is away ---- */

static void log_of_changes(struct rig *r, void *arg)
{
	struct world *w = arg;

	(void)r;
	start(w);
	adopt(w, 3, true, true);
	write_chunk(w, 1, true);
	write_chunk(w, 2, false); /* is pending when the member leaves */
	adopt(w, 4, true, false);
	assert_int_equal(count(w, ROW_CHANGED), 1);
	for (int i = 0; i < 3; i++)
		write_chunk(w, 3, true);
	assert_int_equal(count(w, ROW_CHANGED), 2);
	adopt(w, 5, true, false); /* the log continues */
	assert_int_equal(chain_log_epoch(w->log, CHAIN), 4);
	assert_int_equal(chain_log_synced_epoch(w->log, CHAIN), 5);
	chain_log_close(w->log);
}

static void log_overflows(struct rig *r, void *arg)
{
	struct world *w = arg;

	(void)r;
	start(w);
	assert_int_equal(chain_log_epoch(w->log, CHAIN), 4);
	assert_int_equal(count(w, ROW_CHANGED), 2);
	for (uint64_t i = 20; i < 30; i++)
		write_chunk(w, i, true);
	assert_int_equal(chain_log_epoch(w->log, CHAIN), 0);
	assert_int_equal(count(w, ROW_CHANGED), 0);
	chain_log_close(w->log);
}

static void stays_given_up(struct rig *r, void *arg)
{
	struct world *w = arg;

	(void)r;
	start(w);
	adopt(w, 5, true, false); /* no new log: it would lack changes */
	write_chunk(w, 40, true);
	assert_int_equal(chain_log_epoch(w->log, CHAIN), 0);
	assert_int_equal(count(w, ROW_CHANGED), 0);
	adopt(w, 6, true, true);
	adopt(w, 7, true, false);
	write_chunk(w, 41, true);
	assert_int_equal(chain_log_epoch(w->log, CHAIN), 7);
	adopt(w, 8, false, false); /* not SYNC itself: its log is void */
	assert_int_equal(chain_log_epoch(w->log, CHAIN), 0);
	assert_int_equal(chain_log_synced_epoch(w->log, CHAIN), 7);
	group_commit_expedite(&w->rig.store->gc);
	chain_log_forget(w->log, CHAIN, group_commit_batch(&w->rig.store->gc));
	assert_int_equal(group_commit_barrier(&w->rig.store->gc), 0);
	(void)group_commit_join(&w->rig.store->gc, NULL, false);
	assert_int_equal(count(w, ROW_PENDING), 0);
	assert_int_equal(chain_log_synced_epoch(w->log, CHAIN), 0);
	chain_log_close(w->log);
}

static void test_log(void **state)
{
	struct world w = {.changed_max = 8};

	(void)state;
	rig_init(&w.rig, 2);
	run(&w, log_of_changes);
	run(&w, log_overflows);
	run(&w, stays_given_up);
	rig_fini(&w.rig);
}

/* ---- a crash at any time: every durable change is logged ---- */

static void write_many(struct rig *r, void *arg)
{
	struct world *w = arg;

	(void)r;
	start(w);
	adopt(w, 4, true, false);
	for (uint64_t i = 0; i < 40; i++)
		write_chunk(w, i, i % 3 == 0);
	chain_log_close(w->log);
}

static int look(void *arg, const struct chunk_summary *c)
{
	struct chunk_keys *want = arg;

	want->k[want->n++] = chunk_key_of(CHAIN, &c->chunk);
	return 0;
}

static void all_are_logged(struct rig *r, void *arg)
{
	struct world *w = arg;
	struct chunk_key there[64], logged[64], from = {.chain = CHAIN};
	struct chunk_keys t = {.k = there}, l = {.k = logged};
	bool more;

	start(w);
	assert_int_equal(chunk_list(r->store, &from, 64, look, &t, &more), 0);
	assert_int_equal(chain_log_list(w->log, ROW_CHANGED, &from, 64, &l), 0);
	assert_int_equal(t.n, l.n);
	for (uint32_t i = 0; i < t.n; i++)
		assert_true(chunk_key_equal(&there[i], &logged[i]));
	assert_true(t.n == 0 || chain_log_epoch(w->log, CHAIN) == 4);
	chain_log_close(w->log);
}

static void test_crash(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct world w = {.changed_max = 100};

		rig_init(&w.rig, seed);
		(void)rig_run_crash(&w.rig, write_many, &w, seed * 37);
		run(&w, all_are_logged);
		rig_fini(&w.rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pending_rows),
		cmocka_unit_test(test_under_way_again),
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
