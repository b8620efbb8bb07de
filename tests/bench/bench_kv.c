/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key-value store: durable commits per second by operations per batch and by concurrent fibers,
 * and lookups per second from memory and from disk.
 *
 *   bench_kv [seconds per row, default 1] [entries, default 300000] [folder, default /tmp]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/kv/kv.h"
#include "common/kv/kv_rocksdb.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"
#include "common/rt/loop.h"

#define FIBERS_MAX  256
#define SAMPLES_MAX 200000

static struct {
	double seconds;
	uint64_t entries;
	const char *folder;
} opt = {1.0, 300000, "/tmp"};

static struct kv *kv;
static struct env *env;
static uint64_t next_key, until_us;
static uint32_t samples[SAMPLES_MAX], n_samples;
static uint64_t n_done;

struct worker {
	uint32_t ops;
	uint64_t rng;
	struct latch *left;
};

static uint64_t now_us(void)
{
	return env_now_us(env);
}

static void sample(uint64_t us)
{
	n_done++;
	if (n_samples < SAMPLES_MAX)
		samples[n_samples++] = (uint32_t)us;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static void report(const char *what, uint64_t ops_each, double seconds, const char *more)
{
	qsort(samples, n_samples, sizeof(samples[0]), by_value);
	uint32_t p50 = n_samples > 0 ? samples[n_samples / 2] : 0;
	uint32_t p99 = n_samples > 0 ? samples[n_samples - 1 - n_samples / 100] : 0;
	printf("%-34s %10.0f ops/s  median %6u us  p99 %6u us%s\n", what,
	       (double)(n_done * ops_each) / seconds, p50, p99, more);
}

/* Makes keys like those of directory entries: 8 bytes of parent, then a name; values of 100
 * bytes. */
static size_t make_key(char key[32], uint64_t i)
{
	return (size_t)snprintf(key, 32, "%08" PRIx64 "/file%09" PRIu64,
				hash_u64(i / 1000) & 0xffffffff, i);
}

static void committer(void *arg)
{
	struct worker *w = arg;
	struct kv_batch *b = kv_batch_create();
	char key[32], value[100];
	memset(value, 'v', sizeof(value));
	while (now_us() < until_us) {
		kv_batch_clear(b);
		for (uint32_t i = 0; i < w->ops; i++)
			kv_batch_put(b, key, make_key(key, next_key++), value, sizeof(value));
		uint64_t start = now_us();
		ASSERT(kv_commit(kv, b, true) == 0);
		sample(now_us() - start);
	}
	kv_batch_destroy(b);
	latch_done(w->left);
}

static void getter(void *arg)
{
	struct worker *w = arg;
	char key[32];
	while (now_us() < until_us) {
		struct kv_value v;
		w->rng = hash_u64(w->rng + 1);
		size_t len = make_key(key, w->rng % opt.entries);
		uint64_t start = now_us();
		ASSERT(kv_get(kv, key, len, &v) == 0);
		kv_value_fini(&v);
		sample(now_us() - start);
	}
	latch_done(w->left);
}

static double run(void (*fn)(void *arg), uint32_t n_fibers, uint32_t ops)
{
	static struct worker w[FIBERS_MAX];
	struct latch left;
	uint64_t start = now_us();
	latch_init(&left, n_fibers);
	n_samples = 0;
	n_done = 0;
	until_us = start + (uint64_t)(opt.seconds * 1e6);
	for (uint32_t i = 0; i < n_fibers; i++) {
		w[i] = (struct worker){ops, i * 7919, &left};
		ASSERT(fiber_spawn("bench", fn, &w[i]) == 0);
	}
	latch_wait(&left);
	return (double)(now_us() - start) / 1e6;
}

static void bench_commits(void)
{
	static const uint32_t ops[] = {1, 16, 64, 256}, fibers[] = {1, 16, 64, 256};
	char what[64], more[64];
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		double s = run(committer, 1, ops[i]);
		snprintf(what, sizeof(what), "commit %u per sync, 1 fiber", ops[i]);
		report(what, ops[i], s, "");
	}
	for (size_t i = 1; i < ARRAY_SIZE(fibers); i++) {
		struct kv_stats before, after;
		kv_stats(kv, &before);
		double s = run(committer, fibers[i], 1);
		kv_stats(kv, &after);
		snprintf(what, sizeof(what), "commit 1 by %u fibers", fibers[i]);
		snprintf(more, sizeof(more), "  %.1f commits per sync",
			 (double)(after.commits - before.commits) /
				 (double)(after.syncs - before.syncs + 1));
		report(what, 1, s, more);
	}
}

static void fill(void)
{
	struct kv_batch *b = kv_batch_create();
	char key[32], value[100];
	for (uint64_t i = 0; i < opt.entries; i++) {
		memset(value, (int)('a' + i % 20), sizeof(value));
		kv_batch_put(b, key, make_key(key, i), value, sizeof(value));
		if (kv_batch_count(b) == 1000 || i + 1 == opt.entries) {
			ASSERT(kv_commit(kv, b, false) == 0);
			kv_batch_clear(b);
		}
	}
	kv_batch_destroy(b);
	next_key = opt.entries;
}

static void open_store(const char *path, uint64_t cache)
{
	struct kv_options kopts = {.create = true, .cache_size = cache};
	ASSERT(kv_open(env, path, &kopts, &kv) == 0);
}

static void bench_gets(const char *path)
{
	static const uint32_t fibers[] = {1, 16};
	char what[64], more[64];
	for (int cold = 0; cold < 2; cold++) {
		/* Cold: a cache far too small, so that blocks come from the file (page cache). */
		open_store(path, cold ? 512 << 10 : 512 << 20);
		if (!cold)
			run(getter, 16, 1);
		for (size_t i = 0; i < ARRAY_SIZE(fibers); i++) {
			struct kv_stats before, after;
			kv_stats(kv, &before);
			double s = run(getter, fibers[i], 1);
			kv_stats(kv, &after);
			snprintf(what, sizeof(what), "get %s by %u fibers", cold ? "cold" : "hot",
				 fibers[i]);
			snprintf(more, sizeof(more), "  %.1f %% through workers",
				 100.0 * (double)(after.get_misses - before.get_misses) /
					 (double)(after.gets - before.gets));
			report(what, 1, s, more);
		}
		kv_close(kv);
	}
}

static void bench(void *arg)
{
	(void)arg;
	char dir[256], path[300], cmd[300];
	snprintf(dir, sizeof(dir), "%s/leat-bench-kv-XXXXXX", opt.folder);
	ASSERT(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/kv", dir);
	open_store(path, 0);
	fill();
	bench_commits();
	kv_close(kv);
	bench_gets(path);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	if (system(cmd) != 0)
		fprintf(stderr, "left behind: %s\n", dir);
	loop_stop(loop_self());
}

int main(int argc, char **argv)
{
	struct utsname u;
	struct loop *l;
	struct env_real_options eopts = {.kv_open = kv_rocksdb_open};
	struct loop_options lopts = {.name = "bench", .spin_us = 50};
	if (argc > 1)
		opt.seconds = atof(argv[1]);
	if (argc > 2)
		opt.entries = strtoull(argv[2], NULL, 10);
	if (argc > 3)
		opt.folder = argv[3];
	ASSERT(opt.seconds > 0 && opt.entries > 0);
	uname(&u);
	printf("bench_kv: Linux %s %s, %ld CPUs, version %s, %" PRIu64 " entries\n", u.release,
	       u.machine, sysconf(_SC_NPROCESSORS_ONLN), LEAT_VERSION, opt.entries);
	ASSERT(env_real_create(&eopts, &env) == 0);
	ASSERT(loop_create(env, &lopts, &l) == 0);
	ASSERT(fiber_spawn_on(l, "bench", bench, NULL) == 0);
	loop_run(l);
	loop_destroy(l);
	env_real_destroy(env);
	return 0;
}
