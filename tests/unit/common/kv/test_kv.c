/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of tests for both engines: RocksDB on a real loop, and the simulated one. The bodies run
 * in a fiber, where cmocka cannot unwind: they use ASSERT.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <rocksdb/c.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/kv/kv.h"
#include "common/kv/kv_rocksdb.h"
#include "common/kv/kv_sim.h"
#include "common/rt/env_real.h"
#include "common/rt/fiber_impl.h"
#include "common/rt/loop.h"
#include "common/rt/loop_impl.h"
#include "common/rt/sim/sim.h"

struct run {
	struct env *env;
	const char *dir;
	void (*body)(struct env *env, const char *dir);
	bool real, done;
};

static struct kv_options make = {
	.create = true, .cache_size = 4 << 20, .write_buffer_size = 1 << 20};

/* ---- small helpers ---- */

static char *path_in(const char *dir, const char *name)
{
	static char buf[512];
	snprintf(buf, sizeof(buf), "%s/%s", dir, name);
	return buf;
}

static struct kv *open_kv(struct env *env, const char *dir, const char *name)
{
	struct kv *kv = NULL;
	ASSERT(kv_open(env, path_in(dir, name), &make, &kv) == 0);
	return kv;
}

static void put(struct kv *kv, const char *key, const char *value, bool sync)
{
	struct kv_batch *b = kv_batch_create();
	kv_batch_put(b, key, strlen(key), value, strlen(value));
	ASSERT(kv_commit(kv, b, sync) == 0);
	kv_batch_destroy(b);
}

/* value NULL: absent */
static bool holds(struct kv *kv, const char *key, const char *value)
{
	struct kv_value v;
	int rc = kv_get(kv, key, strlen(key), &v);
	if (value == NULL || rc < 0)
		return value == NULL && rc == -LE_NOENT;
	bool same = v.len == strlen(value) && memcmp(v.data, value, v.len) == 0;
	kv_value_fini(&v);
	return same;
}

struct seen {
	uint32_t n, stop_after;
	int status; /* stops the scan with this status; 0: with 1 */
	char last[64], all[256];
};

static int see(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct seen *s = arg;
	char text[64];
	(void)value;
	(void)len;
	snprintf(text, sizeof(text), "%.*s", (int)key_len, (const char *)key);
	ASSERT(s->n == 0 || strcmp(s->last, text) < 0);
	memcpy(s->last, text, sizeof(text));
	if (strlen(s->all) + strlen(text) + 2 < sizeof(s->all))
		strncat(strncat(s->all, text, sizeof(s->all) - strlen(s->all) - 1), " ",
			sizeof(s->all) - strlen(s->all) - 1);
	s->n++;
	if (s->stop_after == 0 || s->n != s->stop_after)
		return 0;
	return s->status != 0 ? s->status : 1;
}

static bool scan(struct kv *kv, struct kv_snapshot *snap, const char *begin, const char *end,
		 uint32_t max, struct seen *s)
{
	bool more = false;
	struct kv_range range = {.begin = begin,
				 .begin_len = strlen(begin),
				 .end = end,
				 .end_len = end != NULL ? strlen(end) : 0,
				 .max_items = max};
	ASSERT(kv_scan(kv, snap, &range, see, s, &more) == 0);
	return more;
}

/* ---- bodies ---- */

static void basics(struct env *env, const char *dir)
{
	struct kv_options must = make;
	struct kv *kv, *other;
	struct kv_value v;
	must.create = false;
	ASSERT(kv_open(env, path_in(dir, "a"), &must, &kv) == -LE_NOENT);
	kv = open_kv(env, dir, "a");
	ASSERT(kv_open(env, path_in(dir, "a"), &must, &other) == -LE_STORE_IN_USE);
	put(kv, "one", "1", true);
	put(kv, "two", "", false);
	ASSERT(holds(kv, "one", "1") && holds(kv, "two", "") && holds(kv, "three", NULL));
	int rc = kv_try_get(kv, "one", 3, &v);
	ASSERT(rc == 0 || rc == -LE_MISS);
	if (rc == 0)
		kv_value_fini(&v);
	put(kv, "one", "11", true);
	ASSERT(holds(kv, "one", "11"));
	kv_close(kv);
	ASSERT(kv_open(env, path_in(dir, "a"), &must, &kv) == 0);
	ASSERT(holds(kv, "one", "11") && holds(kv, "two", ""));
	kv_close(kv);
}

static void batches(struct env *env, const char *dir)
{
	struct kv *kv = open_kv(env, dir, "a");
	struct kv_batch *b = kv_batch_create();
	for (char c = 'a'; c <= 'j'; c++)
		kv_batch_put(b, &c, 1, "x", 1);
	ASSERT(kv_batch_count(b) == 10 && kv_batch_bytes(b) > 30);
	ASSERT(kv_commit(kv, b, true) == 0);
	kv_batch_clear(b);
	ASSERT(kv_batch_count(b) == 0);
	/* Applied in order within the batch. */
	kv_batch_delete_range(b, "c", 1, "f", 1);
	kv_batch_put(b, "d", 1, "new", 3);
	kv_batch_put(b, "k", 1, "gone", 4);
	kv_batch_delete(b, "k", 1);
	kv_batch_delete(b, "nothing", 7);
	kv_batch_delete(b, "a", 1);
	ASSERT(kv_commit(kv, b, true) == 0);
	struct seen s = {0};
	ASSERT(!scan(kv, NULL, "", NULL, 100, &s));
	ASSERT(strcmp(s.all, "b d f g h i j ") == 0);
	ASSERT(holds(kv, "d", "new") && holds(kv, "k", NULL) && holds(kv, "e", NULL));
	/* Too long keys and values fail the batch; the store stays usable. */
	char *big = calloc(1, KV_VALUE_MAX + 1);
	kv_batch_clear(b);
	kv_batch_put(b, "d", 1, "never", 5);
	kv_batch_put(b, big, KV_KEY_MAX + 1, "", 0);
	ASSERT(kv_commit(kv, b, true) == -LE_INVAL);
	kv_batch_clear(b);
	kv_batch_put(b, "big", 3, big, KV_VALUE_MAX + 1);
	ASSERT(kv_commit(kv, b, true) == -LE_INVAL);
	kv_batch_clear(b);
	memset(big, 7, KV_VALUE_MAX);
	kv_batch_put(b, "big", 3, big, KV_VALUE_MAX);
	kv_batch_put(b, big, KV_KEY_MAX, "", 0);
	ASSERT(kv_commit(kv, b, true) == 0);
	struct kv_value v;
	ASSERT(kv_get(kv, "big", 3, &v) == 0 && v.len == KV_VALUE_MAX &&
	       memcmp(v.data, big, v.len) == 0);
	kv_value_fini(&v);
	ASSERT(holds(kv, "d", "new"));
	free(big);
	kv_batch_destroy(b);
	kv_close(kv);
}

static void scans(struct env *env, const char *dir)
{
	struct kv *kv = open_kv(env, dir, "a");
	struct kv_batch *b = kv_batch_create();
	char key[16];
	for (int i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "%05d", i);
		kv_batch_put(b, key, 5, key, 5);
	}
	ASSERT(kv_commit(kv, b, true) == 0);
	struct kv_snapshot *snap;
	ASSERT(kv_snapshot_take(kv, &snap) == 0);
	kv_batch_clear(b);
	kv_batch_delete_range(b, "00100", 5, "01900", 5);
	kv_batch_put(b, "00500x", 6, "", 0);
	ASSERT(kv_commit(kv, b, true) == 0);
	kv_batch_destroy(b);

	struct seen all = {0}, now = {0}, some = {0}, part = {0}, none = {0}, stop = {0};
	ASSERT(!scan(kv, snap, "", NULL, 5000, &all) && all.n == 2000);
	ASSERT(!scan(kv, NULL, "", NULL, 5000, &now) && now.n == 201);
	ASSERT(scan(kv, snap, "", NULL, 700, &some) && some.n == 700);
	ASSERT(strcmp(some.last, "00699") == 0);
	ASSERT(!scan(kv, snap, "00010", "00013", 3, &part) && part.n == 3);
	ASSERT(!scan(kv, snap, "00010", "00010", 3, &none) && none.n == 0);
	stop.stop_after = 5;
	ASSERT(scan(kv, snap, "00100", "01900", 5000, &stop) && stop.n == 5);
	/* An error during the scan is not taken for the end of the range. */
	struct seen wrong = {.stop_after = 5, .status = -LE_CORRUPT};
	struct kv_range range = {.begin = "", .max_items = 5000};
	bool more;
	ASSERT(kv_scan(kv, snap, &range, see, &wrong, &more) == -LE_CORRUPT && wrong.n == 5);
	kv_snapshot_drop(kv, snap);
	kv_close(kv);
}

#define N_FIBERS 32
struct committing {
	struct kv *kv;
	struct latch *left;
	int i;
};

static void commit_some(void *arg)
{
	struct committing *c = arg;
	char key[32], value[32];
	for (int round = 0; round < 5; round++) {
		snprintf(key, sizeof(key), "%d-%d", c->i, round);
		snprintf(value, sizeof(value), "%d", c->i);
		struct kv_batch *b = kv_batch_create();
		kv_batch_put(b, key, strlen(key), "v", 1);
		if (round == 0)
			kv_batch_put(b, "last", 4, value, strlen(value));
		ASSERT(kv_commit(c->kv, b, round % 2 == 0) == 0);
		ASSERT(holds(c->kv, key, "v"));
		kv_batch_destroy(b);
	}
	latch_done(c->left);
}

static void groups(struct env *env, const char *dir)
{
	struct kv *kv = open_kv(env, dir, "a");
	struct latch left;
	struct committing c[N_FIBERS];
	latch_init(&left, N_FIBERS);
	for (int i = 0; i < N_FIBERS; i++) {
		c[i] = (struct committing){kv, &left, i};
		ASSERT(fiber_spawn("commit", commit_some, &c[i]) == 0);
	}
	latch_wait(&left);
	struct seen s = {0};
	ASSERT(!scan(kv, NULL, "", NULL, 1000, &s) && s.n == N_FIBERS * 5 + 1);
	struct kv_stats st;
	kv_stats(kv, &st);
	ASSERT(st.commits == N_FIBERS * 5 && st.syncs < N_FIBERS * 3 && st.syncs > 0);
	kv_close(kv);
}

static void checkpoints(struct env *env, const char *dir)
{
	struct kv *kv = open_kv(env, dir, "a");
	put(kv, "k", "old", false);
	char *copy = strdup(path_in(dir, "copy"));
	ASSERT(kv_checkpoint(kv, copy) == 0);
	put(kv, "k", "new", true);
	ASSERT(kv_checkpoint(kv, copy) == -LE_EXIST);
	struct kv *other;
	struct kv_options must = {.create = false};
	ASSERT(kv_open(env, copy, &must, &other) == 0);
	ASSERT(holds(other, "k", "old") && holds(kv, "k", "new"));
	kv_close(other);
	kv_close(kv);
	free(copy);
}

/* Random changes, compared with an array after reopening. */
static void model(struct env *env, const char *dir)
{
	enum {
		KEYS = 200
	};
	static int values[KEYS];
	memset(values, 0, sizeof(values));
	struct kv *kv = open_kv(env, dir, "a");
	uint64_t rng = 42;
	struct kv_batch *b = kv_batch_create();
	for (int i = 1; i < 600; i++) {
		char key[8], end[8], value[16];
		rng = hash_u64(rng + 1);
		int k = (int)(rng % KEYS), len = (int)(rng >> 20 & 15) - 3;
		snprintf(key, sizeof(key), "%04d", k);
		snprintf(end, sizeof(end), "%04d", k + len > 0 ? k + len : 0);
		snprintf(value, sizeof(value), "%d", i);
		if (rng >> 40 & 1) {
			kv_batch_put(b, key, 4, value, strlen(value));
			values[k] = i;
		} else if (rng >> 41 & 1) {
			kv_batch_delete(b, key, 4);
			values[k] = 0;
		} else {
			kv_batch_delete_range(b, key, 4, end, 4);
			for (int j = k; j < k + len && j < KEYS; j++)
				values[j] = 0;
		}
		if (i % 7 == 0) {
			ASSERT(kv_commit(kv, b, i % 70 == 0) == 0);
			kv_batch_clear(b);
		}
	}
	ASSERT(kv_commit(kv, b, true) == 0);
	kv_batch_destroy(b);
	kv_close(kv);
	kv = open_kv(env, dir, "a");
	for (int k = 0; k < KEYS; k++) {
		char key[8], value[16];
		snprintf(key, sizeof(key), "%04d", k);
		snprintf(value, sizeof(value), "%d", values[k]);
		ASSERT(holds(kv, key, values[k] != 0 ? value : NULL));
	}
	kv_close(kv);
}

/* ---- the two ways to run a body ---- */

static void fiber_body(void *arg)
{
	struct run *r = arg;
	r->body(r->env, r->dir);
	r->done = true;
	if (r->real)
		loop_stop(loop_self());
}

static void run_real_in(void (*body)(struct env *env, const char *dir), const char *dir)
{
	struct env_real_options opts = {.n_workers = 2, .kv_open = kv_rocksdb_open};
	struct loop_options lopts = {.name = "test"};
	struct loop *l;
	struct run r = {.dir = dir, .body = body, .real = true};
	assert_int_equal(env_real_create(&opts, &r.env), 0);
	assert_int_equal(loop_create(r.env, &lopts, &l), 0);
	assert_int_equal(fiber_spawn_on(l, "test", fiber_body, &r), 0);
	loop_run(l);
	assert_true(r.done);
	/* RocksDB runs on the fiber: it may use half of the stack, which is twice what it needs. */
	assert_in_range(fiber_deepest(l), 0, l->stack_size / 2);
	loop_destroy(l);
	env_real_destroy(r.env);
}

static void remove_tree(const char *dir)
{
	char cmd[128];
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	assert_int_equal(system(cmd), 0);
}

static void run_real(void (*body)(struct env *env, const char *dir))
{
	char dir[] = "/tmp/leat-test-kv-XXXXXX";
	assert_non_null(mkdtemp(dir));
	run_real_in(body, dir);
	remove_tree(dir);
}

static void start_body(struct loop *l, void *arg)
{
	(void)l;
	fiber_body(arg);
}

static bool is_done(void *arg)
{
	return ((struct run *)arg)->done;
}

static void run_sim(void (*body)(struct env *env, const char *dir))
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct sim_options opts = {.kv_open = kv_sim_open};
		struct sim *s;
		struct run r = {.dir = "/d", .body = body};
		assert_int_equal(sim_create(seed, &opts, &s), 0);
		struct sim_proc *p = sim_proc_create(s, "p");
		r.env = sim_proc_env(p);
		assert_int_equal(sim_proc_start(p, start_body, &r), 0);
		assert_int_equal(sim_run(s, is_done, &r, UINT64_MAX - 1), 0);
		sim_destroy(s);
	}
}

#define BOTH(name)                                                                                 \
	static void rocksdb_##name(void **state)                                                   \
	{                                                                                          \
		(void)state;                                                                       \
		run_real(name);                                                                    \
	}                                                                                          \
	static void sim_##name(void **state)                                                       \
	{                                                                                          \
		(void)state;                                                                       \
		run_sim(name);                                                                     \
	}
BOTH(basics)
BOTH(batches)
BOTH(scans)
BOTH(groups)
BOTH(checkpoints)
BOTH(model)

/* ---- RocksDB's log after a crash ---- */

#define N_RECORDS 20

static void write_records(struct env *env, const char *dir)
{
	struct kv *kv = open_kv(env, dir, "a");
	static char value[3000];
	memset(value, 'v', sizeof(value));
	for (int i = 0; i < N_RECORDS; i++) {
		struct kv_batch *b = kv_batch_create();
		char key = (char)('a' + i);
		kv_batch_put(b, &key, 1, value, sizeof(value));
		ASSERT(kv_commit(kv, b, true) == 0);
		kv_batch_destroy(b);
	}
	kv_close(kv);
}

static uint32_t expect_records;
static void read_records(struct env *env, const char *dir)
{
	struct kv *kv = open_kv(env, dir, "a");
	struct seen s = {0};
	ASSERT(!scan(kv, NULL, "", NULL, 100, &s));
	ASSERT(s.n == expect_records);
	kv_close(kv);
}

static void refused(struct env *env, const char *dir)
{
	struct kv *kv;
	ASSERT(kv_open(env, path_in(dir, "a"), &make, &kv) == -LE_CORRUPT_STORE);
}

/* A shell command damages the log: %s is the command, $f the file, $n its length. */
static void damaged_log(const char *damage, uint32_t n_left,
			void (*then)(struct env *env, const char *dir))
{
	char dir[] = "/tmp/leat-test-kv-XXXXXX", cmd[512];
	assert_non_null(mkdtemp(dir));
	run_real_in(write_records, dir);
	snprintf(cmd, sizeof(cmd),
		 "f=$(ls -S %s/a/*.log | head -n1); n=$(stat -c %%s $f); "
		 "z() { dd if=/dev/$1 of=$f bs=1 seek=$2 count=$3 conv=notrunc status=none; }; %s",
		 dir, damage);
	assert_int_equal(system(cmd), 0);
	expect_records = n_left;
	run_real_in(then, dir);
	remove_tree(dir);
}

static void log_torn_in_record(void **state)
{
	(void)state;
	damaged_log("truncate -s $((n-100)) $f", N_RECORDS - 1, read_records);
}

static void log_tail_with_hole(void **state)
{
	(void)state;
	damaged_log("z zero $((n-1500)) 512", N_RECORDS - 1, read_records);
}

static void log_tail_of_zeros(void **state)
{
	(void)state;
	damaged_log("truncate -s $((n+9000)) $f", N_RECORDS, read_records);
}

static void log_tail_of_garbage(void **state)
{
	(void)state;
	damaged_log("z urandom $((n-2500)) 2500", N_RECORDS - 1, read_records);
}

static void log_damaged_inside(void **state)
{
	(void)state;
	damaged_log("z zero $((n/2)) 512", 0, refused);
}

static void log_head_damaged_inside(void **state)
{
	(void)state;
	damaged_log("z urandom 5000 20000", 0, refused);
}

/* ---- crashes of the simulated store ---- */

struct crashing {
	uint32_t begun, synced; /* batches 1..synced must survive */
	uint32_t found;
	bool done;
	struct kv_batch *batch; /* here, because the writing fiber is lost in the crash */
};

static void write_until_crash(struct loop *l, void *arg)
{
	struct crashing *c = arg;
	struct kv *kv = open_kv(loop_env(l), "/d", "a");
	struct kv_batch *b = c->batch;
	for (;;) {
		uint32_t i = ++c->begun;
		bool sync = i % 3 == 0;
		kv_batch_clear(b);
		for (uint32_t k = 0; k < 4; k++) {
			char key[16];
			snprintf(key, sizeof(key), "k%u", k);
			kv_batch_put(b, key, 2, &i, sizeof(i));
		}
		ASSERT(kv_commit(kv, b, sync) == 0);
		if (sync)
			c->synced = i;
	}
}

static void read_after_crash(struct loop *l, void *arg)
{
	struct crashing *c = arg;
	struct kv *kv = open_kv(loop_env(l), "/d", "a");
	c->found = 0;
	for (uint32_t k = 0; k < 4; k++) {
		struct kv_value v = {0};
		uint32_t i = 0;
		char key[16];
		snprintf(key, sizeof(key), "k%u", k);
		int rc = kv_get(kv, key, 2, &v);
		ASSERT(rc == 0 || rc == -LE_NOENT);
		if (rc == 0) {
			memcpy(&i, v.data, sizeof(i));
			kv_value_fini(&v);
		}
		ASSERT(k == 0 || i == c->found);
		c->found = i;
	}
	kv_close(kv);
	c->done = true;
}

static bool crash_read(void *arg)
{
	return ((struct crashing *)arg)->done;
}

static void sim_crash_keeps_synced(void **state)
{
	(void)state;
	bool lost = false, kept_unsynced = false;
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct sim_options opts = {.kv_open = kv_sim_open};
		struct sim *s;
		struct crashing c = {.batch = kv_batch_create()};
		assert_int_equal(sim_create(seed, &opts, &s), 0);
		struct sim_proc *p = sim_proc_create(s, "p");
		for (int round = 0; round < 3; round++) {
			assert_int_equal(sim_proc_start(p, write_until_crash, &c), 0);
			uint64_t steps = 1 + sim_random_below(s, 60);
			while (steps-- > 0)
				sim_step(s);
			sim_proc_crash(p);
			c.done = false;
			assert_int_equal(sim_proc_start(p, read_after_crash, &c), 0);
			assert_int_equal(sim_run(s, crash_read, &c, UINT64_MAX - 1), 0);
			assert_true(c.found >= c.synced && c.found <= c.begun);
			lost = lost || c.found < c.begun;
			kept_unsynced = kept_unsynced || c.found > c.synced;
			c.begun = c.synced = c.found;
			sim_proc_crash(p);
		}
		kv_batch_destroy(c.batch);
		sim_destroy(s);
	}
	assert_true(lost && kept_unsynced);
}

static void fail_body(struct env *env, const char *dir)
{
	struct kv *kv;
	int rc;
	do
		rc = kv_open(env, path_in(dir, "a"), &make, &kv);
	while (rc == -LE_IO);
	struct kv_batch *b = kv_batch_create();
	kv_batch_put(b, "k", 1, "v", 1);
	do
		rc = kv_commit(kv, b, true);
	while (rc == 0);
	ASSERT(rc == -LE_IO);
	for (int i = 0; i < 10; i++)
		ASSERT(kv_commit(kv, b, true) == -LE_IO);
	kv_batch_destroy(b);
	kv_close(kv);
}

static void sim_failure_is_final(void **state)
{
	(void)state;
	struct sim_options opts = {.kv_open = kv_sim_open, .disk_error_ppm = 200000};
	struct sim *s;
	struct run r = {.dir = "/d", .body = fail_body};
	assert_int_equal(sim_create(7, &opts, &s), 0);
	struct sim_proc *p = sim_proc_create(s, "p");
	r.env = sim_proc_env(p);
	assert_int_equal(sim_proc_start(p, start_body, &r), 0);
	assert_int_equal(sim_run(s, is_done, &r, UINT64_MAX - 1), 0);
	sim_destroy(s);
}

/* ---- more tables than are opened at the start ---- */

#define N_TABLES 64

/* Each table has one page; all are in one level, so that there is nothing to compact. */
static void write_tables(const char *path)
{
	rocksdb_options_t *o = rocksdb_options_create();
	rocksdb_writeoptions_t *w = rocksdb_writeoptions_create();
	char *err = NULL, key[32], value[4096];
	rocksdb_t *db;

	rocksdb_options_set_create_if_missing(o, 1);
	rocksdb_options_set_target_file_size_base(o, sizeof(value));
	rocksdb_options_set_compression(o, rocksdb_no_compression);
	db = rocksdb_open(o, path, &err);
	assert_null(err);
	memset(value, 'v', sizeof(value));
	for (int i = 0; i < N_TABLES; i++) {
		snprintf(key, sizeof(key), "key-%d", i);
		rocksdb_put(db, w, key, strlen(key), value, sizeof(value), &err);
		assert_null(err);
	}
	rocksdb_compact_range(db, NULL, 0, NULL, 0);
	rocksdb_close(db);
	rocksdb_writeoptions_destroy(w);
	rocksdb_options_destroy(o);
}

/* For a table that it has to open first, RocksDB may return that the key exists with an empty
 * value. */
static void get_of_each_table(struct env *env, const char *dir)
{
	struct kv *kv = open_kv(env, dir, "tables");
	struct kv_value v;
	char key[32];

	for (int i = 0; i < N_TABLES; i++) {
		snprintf(key, sizeof(key), "key-%d", i);
		ASSERT(kv_get(kv, key, strlen(key), &v) == 0);
		ASSERT(v.len == 4096 && *(const char *)v.data == 'v');
		kv_value_fini(&v);
	}
	put(kv, "empty", "", true);
	ASSERT(holds(kv, "empty", ""));
	kv_close(kv);
}

static void tables_not_open(void **state)
{
	char dir[] = "/tmp/leat-kv-XXXXXX";
	(void)state;
	assert_non_null(mkdtemp(dir));
	write_tables(path_in(dir, "tables"));
	run_real_in(get_of_each_table, dir);
	remove_tree(dir);
}

static uint64_t memory(struct kv *kv)
{
	struct kv_stats stats;
	kv_stats(kv, &stats);
	return stats.mem_bytes;
}

/* RocksDB flushes its write buffers some time after the last write; every key remains. */
static void flush_at_rest(struct env *env, const char *dir)
{
	struct kv_options o = {.create = true, .rest_us = 50000};
	struct kv *kv = NULL;
	char value[4097], key[16];
	ASSERT(kv_open(env, path_in(dir, "rest"), &o, &kv) == 0);
	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	for (int i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		put(kv, key, value, false);
	}
	ASSERT(memory(kv) > 7 << 20);
	while (memory(kv) > 2 << 20)
		ASSERT(fiber_sleep_us(10000) == 0);
	ASSERT(holds(kv, "k0", value) && holds(kv, "k1999", value));
	put(kv, "after", "rest", true);
	ASSERT(holds(kv, "after", "rest"));
	kv_close(kv);
}

static void rest_empties_buffers(void **state)
{
	char dir[] = "/tmp/leat-kv-XXXXXX";
	(void)state;
	assert_non_null(mkdtemp(dir));
	run_real_in(flush_at_rest, dir);
	remove_tree(dir);
}

#define TESTS_OF(name) cmocka_unit_test(rocksdb_##name), cmocka_unit_test(sim_##name)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_OF(basics),
		TESTS_OF(batches),
		TESTS_OF(scans),
		TESTS_OF(groups),
		TESTS_OF(checkpoints),
		TESTS_OF(model),
		cmocka_unit_test(log_torn_in_record),
		cmocka_unit_test(log_tail_with_hole),
		cmocka_unit_test(log_tail_of_zeros),
		cmocka_unit_test(log_tail_of_garbage),
		cmocka_unit_test(log_damaged_inside),
		cmocka_unit_test(log_head_damaged_inside),
		cmocka_unit_test(tables_not_open),
		cmocka_unit_test(rest_empties_buffers),
		cmocka_unit_test(sim_crash_keeps_synced),
		cmocka_unit_test(sim_failure_is_final),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
