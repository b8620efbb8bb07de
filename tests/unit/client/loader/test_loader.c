/* SPDX-License-Identifier: Apache-2.0 */
/* The loader over local directories and staged copies. */
#include "client/include/leat/leat_loader.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/leat/leat_stage.h"
#include "common/base/status.h"
#include "tests/lib/folder.h"

#define SHARDS    7u
#define PER_SHARD 31u
#define SAMPLES   (SHARDS * PER_SHARD)

struct world {
	char root[FOLDER_MAX], src[96], to[96];
};

/* Computes the bytes of sample s: its length and content follow from its number. */
static size_t sample_len(uint32_t s)
{
	return s % 50 == 7 ? 100000 + s : s * 37 % 5000;
}

static void sample_bytes(uint32_t s, uint8_t *buf)
{
	uint32_t x = s * 2654435761u + 1;
	for (size_t i = 0; i < sample_len(s); i++) {
		x = x * 1664525 + 1013904223;
		buf[i] = (uint8_t)(x >> 24);
	}
}

static void put_member(FILE *f, const char *name, const void *data, size_t len)
{
	uint8_t h[512] = {0}, zeros[512] = {0};
	uint32_t sum = 0;
	snprintf((char *)h, 100, "%s", name);
	snprintf((char *)h + 124, 12, "%011zo", len);
	h[156] = '0';
	memcpy(h + 257,
	       "ustar\0"
	       "00",
	       8);
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
	fwrite(h, 1, 512, f);
	fwrite(data, 1, len, f);
	fwrite(zeros, 1, (512 - len % 512) % 512, f);
}

static void put_shards(const char *dir)
{
	static uint8_t buf[200000];
	for (uint32_t i = 0, s = 0; i < SHARDS; i++) {
		char path[200], name[64], text[16];
		snprintf(path, sizeof(path), "%s/train-%03u.tar", dir, i);
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		for (uint32_t k = 0; k < PER_SHARD; k++, s++) {
			snprintf(name, sizeof(name), "s%05u.bin", s);
			sample_bytes(s, buf);
			put_member(f, name, buf, sample_len(s));
			snprintf(name, sizeof(name), "s%05u.cls", s);
			snprintf(text, sizeof(text), "%u", s % 10);
			put_member(f, name, text, 1);
		}
		memset(buf, 0, 1024);
		fwrite(buf, 1, 1024, f);
		assert_int_equal(fclose(f), 0);
	}
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	make_folder(NULL, "loader", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	assert_int_equal(mkdir(w->src, 0755), 0);
	assert_int_equal(mkdir(w->to, 0755), 0);
	put_shards(w->src);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	remove_folder(w->root);
	free(w);
	return 0;
}

static struct leat_dataset *open_dir(const struct world *w)
{
	struct leat_dataset_options o = {.size = sizeof(o)};
	struct leat_dataset *ds;
	assert_int_equal(leat_dataset_open(w->src, &o, &ds), 0);
	return ds;
}

static void stage(const struct world *w, char *ret_path)
{
	struct leat_stage_options o = {.size = sizeof(o), .source = w->src, .to = w->to};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	r->size = sizeof(*r);
	assert_int_equal(leat_stage_in(&o, r), 0);
	memcpy(ret_path, r->path, sizeof(r->path));
	free(r);
}

static void check_batch(const struct leat_batch *b, uint32_t *seen)
{
	static uint8_t want[200000];
	struct leat_view bin = {.size = sizeof(bin)}, cls = {.size = sizeof(cls)};
	assert_int_equal(leat_batch_field(b, "bin", &bin), 0);
	assert_int_equal(leat_batch_field(b, "cls", &cls), 0);
	assert_int_equal(leat_batch_field(b, "jpg", &cls), -LE_NOENT);
	for (uint32_t i = 0; i < leat_batch_len(b); i++) {
		uint32_t s = (uint32_t)leat_batch_ids(b)[i];
		assert_true(s < SAMPLES);
		sample_bytes(s, want);
		assert_int_equal(bin.lengths[i], sample_len(s));
		assert_memory_equal(bin.base + bin.offsets[i], want, bin.lengths[i]);
		assert_int_equal(cls.lengths[i], 1);
		assert_int_equal(cls.base[cls.offsets[i]], '0' + s % 10);
		if (seen)
			seen[s]++;
	}
}

static void run_epoch(struct leat_loader *ld, uint32_t *seen, uint32_t *ret_batches)
{
	struct leat_batch *b;
	int rc;
	while ((rc = leat_next(ld, &b)) == 1) {
		check_batch(b, seen);
		leat_batch_unref(b);
		++*ret_batches;
	}
	assert_int_equal(rc, 0);
}

static struct leat_loader *open_loader(struct leat_dataset *ds, const char *order, const char *tail,
				       uint32_t batch, uint32_t rank, uint32_t world)
{
	struct leat_loader_options o = {.size = sizeof(o),
					.order = order,
					.tail = tail,
					.batch = batch,
					.rank = rank,
					.world = world,
					.seed = 5};
	struct leat_loader *ld;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	return ld;
}

static void test_each_sample_exactly_once_per_epoch(void **state)
{
	static const char *const orders[] = {"global", "window:2", "sequential", "file"};
	struct leat_dataset *ds = open_dir(*state);
	for (int i = 0; i < 4; i++) {
		struct leat_loader *ld = open_loader(ds, orders[i], "shorter", 16, 0, 1);
		assert_int_equal(leat_loader_steps(ld), (SAMPLES + 15) / 16);
		for (int epoch = 0; epoch < 2; epoch++) {
			uint32_t seen[SAMPLES] = {0}, batches = 0;
			run_epoch(ld, seen, &batches);
			assert_int_equal(batches, (SAMPLES + 15) / 16);
			for (uint32_t s = 0; s < SAMPLES; s++)
				assert_int_equal(seen[s], 1);
		}
		leat_loader_close(ld);
	}
	leat_dataset_close(ds);
}

static void test_the_order_is_the_specified_one(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader *ld = open_loader(ds, "global", "drop", 20, 1, 4);
	struct leat_order *order;
	struct leat_batch *b;
	assert_int_equal(leat_order_open(ds, "global", 5, 0, 20, &order), 0);
	for (uint64_t step = 0; leat_next(ld, &b) == 1; step++) {
		assert_int_equal(leat_batch_step(b), step);
		assert_int_equal(leat_batch_len(b), 5);
		for (uint32_t i = 0; i < 5; i++)
			assert_int_equal(leat_batch_ids(b)[i],
					 leat_order_at(order, step * 20 + 5 + i));
		leat_batch_unref(b);
	}
	assert_int_equal(leat_order_at(order, SAMPLES), -1);
	leat_order_close(order);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void test_resume_with_another_world(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	uint32_t seen[SAMPLES] = {0}, batches = 0;
	char json[256];
	struct leat_batch *b;
	struct leat_loader *ld = open_loader(ds, "window:3", "shorter", 12, 0, 1);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(leat_next(ld, &b), 1);
		check_batch(b, seen);
		leat_batch_unref(b);
	}
	int n = leat_loader_state(ld, json, sizeof(json));
	assert_true(n > 0 && n < 256);
	leat_loader_close(ld);
	for (uint32_t rank = 0; rank < 3; rank++) {
		ld = open_loader(ds, "window:3", "shorter", 12, rank, 3);
		assert_int_equal(leat_loader_set_state(ld, json), 0);
		run_epoch(ld, seen, &batches);
		leat_loader_close(ld);
	}
	for (uint32_t s = 0; s < SAMPLES; s++)
		assert_int_equal(seen[s], 1);
	ld = open_loader(ds, "global", "shorter", 12, 0, 1);
	assert_int_equal(leat_loader_set_state(ld, json), -LE_INVAL);
	assert_int_equal(leat_loader_set_state(ld, "{}"), -LE_INVAL);
	assert_int_equal(leat_loader_set_state(ld, "nonsense"), -LE_INVAL);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void test_set_epoch(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader *ld = open_loader(ds, "global", "drop", 16, 0, 1);
	struct leat_batch *b;
	uint32_t batches = 0;
	uint64_t first[3];
	for (int i = 0; i < 3; i++) {
		assert_int_equal(leat_loader_set_epoch(ld, i == 2 ? 0 : (uint64_t)i), 0);
		assert_int_equal(leat_next(ld, &b), 1);
		assert_int_equal(leat_batch_epoch(b), i == 2 ? 0 : i);
		assert_int_equal(leat_batch_step(b), 0);
		first[i] = leat_batch_ids(b)[0];
		leat_batch_unref(b);
	}
	assert_int_equal(first[0], first[2]);
	assert_int_not_equal(first[0], first[1]);
	run_epoch(ld, NULL, &batches);
	/* The loader has returned the end: it is in epoch 1, and nothing is dropped. */
	assert_int_equal(leat_loader_set_epoch(ld, 1), 0);
	assert_int_equal(leat_next(ld, &b), 1);
	assert_int_equal(leat_batch_ids(b)[0], first[1]);
	leat_batch_unref(b);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* Like three worker processes. */
static void test_strides_share_the_steps_out(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader *whole = open_loader(ds, "global", "shorter", 16, 0, 1), *ld[3], *none;
	struct leat_loader_options o = {
		.size = sizeof(o), .tail = "shorter", .batch = 16, .seed = 5, .stride = 3};
	struct leat_batch *a, *b;
	for (o.phase = 0; o.phase < 3; o.phase++)
		assert_int_equal(leat_loader_open(ds, &o, &ld[o.phase]), 0);
	assert_int_equal(leat_loader_open(ds, &o, &none), -LE_INVAL);
	for (int epoch = 0; epoch < 2; epoch++) {
		uint64_t steps = leat_loader_steps(whole);
		for (uint64_t s = 0; s < steps; s++) {
			assert_int_equal(leat_next(whole, &a), 1);
			assert_int_equal(leat_next(ld[s % 3], &b), 1);
			assert_int_equal(leat_batch_step(b), s);
			assert_int_equal(leat_batch_len(a), leat_batch_len(b));
			assert_memory_equal(leat_batch_ids(a), leat_batch_ids(b),
					    leat_batch_len(a) * sizeof(uint64_t));
			leat_batch_unref(a);
			leat_batch_unref(b);
		}
		assert_int_equal(leat_next(whole, &a), 0);
		for (int w = 0; w < 3; w++)
			assert_int_equal(leat_next(ld[w], &b), 0);
	}
	for (int w = 0; w < 3; w++)
		leat_loader_close(ld[w]);
	leat_loader_close(whole);
	leat_dataset_close(ds);
}

/* One of more worker processes than steps, with a state at which it has no step of its own. */
static void test_a_state_for_one_without_steps(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader *whole = open_loader(ds, "global", "shorter", 16, 0, 1), *ld;
	struct leat_loader_options o = {.size = sizeof(o),
					.tail = "shorter",
					.batch = 16,
					.seed = 5,
					.stride = 40,
					.phase = 30};
	struct leat_batch *b;
	char json[256];
	assert_int_equal(leat_next(whole, &b), 1);
	leat_batch_unref(b);
	assert_true(leat_loader_state(whole, json, sizeof(json)) > 0);
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(leat_next(ld, &b), 0);
	assert_int_equal(leat_loader_set_state(ld, json), 0);
	assert_int_equal(leat_next_within(ld, 10000, &b), 1);
	assert_int_equal(leat_batch_step(b), 1);
	check_batch(b, NULL);
	leat_batch_unref(b);
	for (int i = 0; i < 3; i++)
		assert_int_equal(leat_next(ld, &b), 0);
	leat_loader_close(ld);
	leat_loader_close(whole);
	leat_dataset_close(ds);
}

static void test_holding_everything_is_told(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader_options o = {.size = sizeof(o), .batch = 8, .depth = 3};
	struct leat_loader *ld;
	struct leat_batch *b[4];
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(leat_next(ld, &b[i]), 1);
	assert_int_equal(leat_next(ld, &b[3]), -LE_BUSY);
	assert_non_null(strstr(leat_last_error()->message, "holds"));
	leat_batch_unref(b[0]);
	assert_int_equal(leat_next(ld, &b[0]), 1);
	/* Batches outlive the loader and the data set. */
	leat_loader_close(ld);
	leat_dataset_close(ds);
	for (int i = 0; i < 3; i++) {
		check_batch(b[i], NULL);
		leat_batch_unref(b[i]);
	}
}

static void test_memory_is_capped(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader_options o = {.size = sizeof(o),
					.batch = 60,
					.depth = 8,
					.memory_limit = 8u << 20,
					.tail = "pad"};
	struct leat_loader_metrics m = {.size = sizeof(m)};
	struct leat_loader *ld;
	struct leat_batch *b, *held[8];
	int rc, n = 0;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	for (int i = 0; i < 10; i++) {
		rc = leat_next(ld, &b);
		assert_true(rc >= 0);
		assert_int_equal(leat_loader_metrics(ld, &m), 0);
		assert_true(m.memory <= o.memory_limit);
		if (rc == 1)
			leat_batch_unref(b);
	}
	while (n < 8 && (rc = leat_next(ld, &held[n])) >= 0)
		n += rc;
	assert_int_equal(rc, -LE_BUSY);
	assert_true(n >= 2 && n < 8);
	while (n)
		leat_batch_unref(held[--n]);
	assert_int_equal(leat_next(ld, &b), 1);
	leat_batch_unref(b);
	leat_loader_close(ld);
	o.memory_limit = 1u << 20;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(leat_next(ld, &b), -LE_2BIG);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* Limits the address space to its present size and this much more. */
static void limit_addresses(uint64_t more)
{
	struct rlimit limit;
	unsigned long pages;
	FILE *f = fopen("/proc/self/statm", "r");
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = more == RLIM_INFINITY ? limit.rlim_max
					       : pages * (uint64_t)sysconf(_SC_PAGESIZE) + more;
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

/* A slot that cannot grow returns an error each time, and works again when it can grow. */
static void test_a_system_without_memory(void **state)
{
	struct world *w = *state;
	static const off_t sizes[] = {1 << 20, 1 << 20, 256 << 20};
	struct leat_loader_options o = {.size = sizeof(o),
					.order = "sequential",
					.batch = 1,
					.depth = 2,
					.memory_limit = (uint64_t)300 << 20};
	struct leat_loader_metrics m = {.size = sizeof(m)};
	struct leat_dataset *ds;
	struct leat_loader *ld;
	struct leat_batch *b;
	char dir[128], path[200];
	snprintf(dir, sizeof(dir), "%s/large", w->root);
	assert_int_equal(mkdir(dir, 0755), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%d", dir, i);
		int fd = open(path, O_WRONLY | O_CREAT, 0600);
		assert_int_equal(ftruncate(fd, sizes[i]), 0);
		close(fd);
	}
	assert_int_equal(leat_dataset_open(dir, NULL, &ds), 0);
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(leat_next(ld, &b), 1);
	limit_addresses(64 << 20);
	leat_batch_unref(b);
	assert_int_equal(leat_next(ld, &b), 1);
	leat_batch_unref(b);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(leat_next_within(ld, 60000, &b), -LE_NOMEM);
		assert_int_equal(leat_loader_metrics(ld, &m), 0);
		assert_true(m.memory <= o.memory_limit);
	}
	limit_addresses(RLIM_INFINITY);
	/* The batch that failed before. */
	int rc = leat_next_within(ld, 60000, &b);
	if (rc == -LE_NOMEM)
		rc = leat_next_within(ld, 60000, &b);
	assert_int_equal(rc, 1);
	leat_batch_unref(b);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void test_event_fd_and_try_next(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader_options o = {.size = sizeof(o), .batch = 32, .epochs = 2};
	struct leat_loader *ld;
	struct leat_batch *b;
	int batches = 0, ends = 0;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	struct pollfd p = {.fd = leat_loader_event_fd(ld), .events = POLLIN};
	while (ends < 2) {
		assert_int_equal(poll(&p, 1, 10000), 1);
		int rc = leat_try_next(ld, &b);
		assert_true(rc >= 0);
		ends += rc == 0;
		batches += rc;
		if (rc)
			leat_batch_unref(b);
	}
	assert_int_equal(batches, 2 * (SAMPLES / 32));
	assert_int_equal(leat_next(ld, &b), 0);
	assert_int_equal(leat_next(ld, &b), 0);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* A caller that waits by the descriptor alone is woken, and gets the error that it holds every
 * slot. */
static void test_event_fd_says_that_all_is_held(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	/* The caller holds all slots; all memory. */
	const struct leat_loader_options all[] = {
		{.size = sizeof(all[0]), .batch = 8, .depth = 3},
		{.size = sizeof(all[0]), .batch = 60, .depth = 8, .memory_limit = 8u << 20}};
	for (int i = 0; i < 2; i++) {
		struct leat_loader *ld;
		struct leat_batch *held[8];
		int rc, n = 0;
		assert_int_equal(leat_loader_open(ds, &all[i], &ld), 0);
		struct pollfd p = {.fd = leat_loader_event_fd(ld), .events = POLLIN};
		do {
			assert_int_equal(poll(&p, 1, 60000), 1);
			rc = leat_try_next(ld, &held[n]);
			n += rc == 1;
		} while (rc >= 0);
		assert_int_equal(rc, -LE_BUSY);
		assert_true(n >= 2 && n < 8);
		while (n)
			leat_batch_unref(held[--n]);
		assert_int_equal(poll(&p, 1, 60000), 1);
		assert_int_equal(leat_try_next(ld, &held[0]), 1);
		leat_batch_unref(held[0]);
		leat_loader_close(ld);
	}
	leat_dataset_close(ds);
}

static void test_staged_copies_are_verified(void **state)
{
	struct world *w = *state;
	char path[4096], shard[4200], away[4200];
	struct leat_dataset *ds;
	struct leat_dataset_options o = {.size = sizeof(o), .stage_dir = w->to};
	struct leat_dataset_stat st = {.size = sizeof(st)};
	struct leat_loader_metrics m = {.size = sizeof(m)};
	uint32_t seen[SAMPLES] = {0}, batches = 0;
	struct leat_batch *b;
	stage(w, path);
	/* By the source's name, and by the copy's own path. */
	assert_int_equal(leat_dataset_open(w->src, &o, &ds), 0);
	leat_dataset_stat(ds, &st);
	assert_string_equal(st.source, "copy");
	assert_string_equal(st.path, path);
	assert_int_equal(leat_stage_evict(w->to, st.id), -LE_BUSY);
	struct leat_loader *ld = open_loader(ds, "global", "shorter", 10, 0, 1);
	run_epoch(ld, seen, &batches);
	leat_loader_metrics(ld, &m);
	assert_true(m.bytes_verified > 0);
	uint64_t once = m.bytes_verified;
	run_epoch(ld, seen, &batches);
	leat_loader_metrics(ld, &m);
	assert_int_equal(m.bytes_verified, once);
	leat_loader_close(ld);
	leat_dataset_close(ds);
	/* One flipped bit. */
	snprintf(shard, sizeof(shard), "%s/train-003.tar", path);
	chmod(shard, 0644);
	int fd = open(shard, O_RDWR);
	uint8_t c;
	assert_int_equal(pread(fd, &c, 1, 51200), 1);
	c ^= 4;
	assert_int_equal(pwrite(fd, &c, 1, 51200), 1);
	close(fd);
	/* Without the source. */
	snprintf(away, sizeof(away), "%s-away", w->src);
	assert_int_equal(rename(w->src, away), 0);
	o.stage_dir = NULL;
	assert_int_equal(leat_dataset_open(path, &o, &ds), 0);
	ld = open_loader(ds, "sequential", "shorter", PER_SHARD, 0, 1);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(leat_next(ld, &b), 1);
		leat_batch_unref(b);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(leat_next(ld, &b), -LE_CORRUPT);
		assert_string_equal(leat_last_error()->path, "train-003.tar");
		assert_int_equal(leat_last_error()->offset, 51200 / 16384 * 16384);
		assert_string_equal(leat_last_error()->origin, "local");
	}
	leat_loader_close(ld);
	struct leat_loader_options lo = {.size = sizeof(lo),
					 .order = "sequential",
					 .batch = PER_SHARD,
					 .on_error = LEAT_ON_ERROR_SKIP,
					 .epochs = 1};
	assert_int_equal(leat_loader_open(ds, &lo, &ld), 0);
	memset(seen, 0, sizeof(seen));
	batches = 0;
	run_epoch(ld, seen, &batches);
	assert_int_equal(batches, SHARDS);
	leat_loader_metrics(ld, &m);
	assert_true(m.skipped >= 1 && m.skipped < 25);
	assert_int_equal(m.samples + m.skipped, SAMPLES);
	leat_loader_close(ld);
	leat_dataset_close(ds);
	assert_int_equal(rename(away, w->src), 0);
}

/* A file that replaced a link is healed where it was found, wherever the link points now. */
static void test_what_a_link_named_is_healed(void **state)
{
	struct world *w = *state;
	char path[4096], shard[4200], away[4200];
	struct leat_dataset *ds;
	struct leat_dataset_options o = {.size = sizeof(o)};
	uint32_t seen[SAMPLES] = {0}, batches = 0;
	snprintf(shard, sizeof(shard), "%s/train-003.tar", w->src);
	snprintf(away, sizeof(away), "%s/elsewhere", w->root);
	assert_int_equal(rename(shard, away), 0);
	assert_int_equal(symlink(away, shard), 0);
	stage(w, path);
	assert_int_equal(unlink(shard), 0);
	assert_int_equal(symlink("train-002.tar", shard), 0);
	snprintf(shard, sizeof(shard), "%s/train-003.tar", path);
	chmod(shard, 0644);
	int fd = open(shard, O_RDWR);
	assert_int_equal(pwrite(fd, "damaged", 7, 51200), 7);
	close(fd);
	assert_int_equal(leat_dataset_open(path, &o, &ds), 0);
	struct leat_loader *ld = open_loader(ds, "sequential", "shorter", PER_SHARD, 0, 1);
	run_epoch(ld, seen, &batches);
	assert_int_equal(batches, SHARDS);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* A stale copy of a source that has changed: its source's name opens the source. Its own path still
 * opens the copy. */
static void test_a_stale_copy_does_not_stand_for_its_source(void **state)
{
	struct world *w = *state;
	char path[4096], mark[4200];
	struct leat_dataset *ds;
	struct leat_dataset_options o = {.size = sizeof(o), .stage_dir = w->to};
	struct leat_dataset_stat st = {.size = sizeof(st)};
	stage(w, path);
	*strrchr(path, '/') = 0;
	snprintf(mark, sizeof(mark), "%s/stale", path);
	int fd = open(mark, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(leat_dataset_open(w->src, &o, &ds), 0);
	leat_dataset_stat(ds, &st);
	assert_string_equal(st.source, "local");
	assert_string_equal(st.path, w->src);
	leat_dataset_close(ds);
	o.stage_dir = NULL;
	assert_int_equal(leat_dataset_open(path, &o, &ds), 0);
	leat_dataset_stat(ds, &st);
	assert_string_equal(st.source, "copy");
	/* A data set that does not use the copy holds no lease of it. */
	leat_dataset_close(ds);
	assert_int_equal(leat_stage_evict(w->to, st.id), 0);
}

/* Three files of three records each. */
static void put_records(const char *dir)
{
	char path[200];
	assert_int_equal(mkdir(dir, 0755), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%d.bin", dir, i);
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		fprintf(f, "%-30d", i);
		assert_int_equal(fclose(f), 0);
	}
}

struct opening {
	struct leat_dataset_options o;
	const char *what;
};

/* Returns the number of samples of a data set, which must be found as a copy; negative: an
 * error. */
static int64_t samples_of(const struct opening *a, const char *format)
{
	struct leat_dataset_stat st = {.size = sizeof(st)};
	struct leat_dataset_options o = a->o;
	struct leat_dataset *ds;
	o.format = format;
	int rc = leat_dataset_open(a->what, &o, &ds);
	if (rc < 0)
		return rc;
	leat_dataset_stat(ds, &st);
	leat_dataset_close(ds);
	assert_string_equal(st.source, "copy");
	return (int64_t)st.samples;
}

static void in_shell(const char *format, const char *dir)
{
	char cmd[512];
	assert_true(snprintf(cmd, sizeof(cmd), format, dir) < (int)sizeof(cmd));
	assert_int_equal(system(cmd), 0);
}

/* A data set has equal samples with a copy and without one. */
static void test_a_copy_has_the_samples_of_its_data_set(void **state)
{
	struct world *w = *state;
	char dir[128], catalog[128], path[4200];
	struct leat_stage_options o = {
		.size = sizeof(o), .source = dir, .to = w->to, .catalog = catalog};
	struct leat_dataset_info info = {.size = sizeof(info)};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	struct opening by_path = {
		{.size = sizeof(by_path.o), .stage_dir = w->to, .catalog = catalog}, dir};
	struct opening by_name = by_path, by_id = by_path;
	snprintf(dir, sizeof(dir), "%s/records", w->root);
	snprintf(catalog, sizeof(catalog), "%s/catalog", w->root);
	put_records(dir);
	r->size = sizeof(*r);
	by_name.what = "records@v1";
	/* The copy is first made of the folder, whose format is not recorded. */
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(samples_of(&by_path, NULL), 3);
	assert_int_equal(samples_of(&by_path, "fixed:10"), 9);
	o.format = "fixed:10";
	assert_int_equal(leat_dataset_create(&o, by_name.what, &info, r), 0);
	assert_int_equal(info.samples, 9);
	o.format = NULL;
	o.source = by_name.what;
	assert_int_equal(leat_stage_in(&o, r), 0);
	by_id.what = info.id;
	assert_int_equal(samples_of(&by_name, NULL), 9);
	assert_int_equal(samples_of(&by_name, "fixed:5"), 18);
	assert_int_equal(samples_of(&by_id, NULL), 9);
	assert_int_equal(samples_of(&by_path, NULL), 3);
	assert_int_equal(samples_of(&by_path, "nonsense"), -LE_INVAL);
	/* The catalogue is not needed. If the copy does not record whose samples it has, they count
	 * as those of the name as long as the catalogue's cannot be read. */
	in_shell("cd %s/by-id/*/* && mv samples kept && mkdir samples", catalog);
	assert_int_equal(samples_of(&by_name, NULL), 9);
	in_shell("rm -r %s/.leat/*/named", w->to);
	assert_int_equal(samples_of(&by_name, NULL), 9);
	in_shell("cd %s/by-id/*/* && rmdir samples && mv kept samples", catalog);
	assert_int_equal(samples_of(&by_name, NULL), 9);
	assert_int_equal(leat_stage_in(&o, r), 0);
	/* Samples that cannot be read are not guessed again, and staging repairs them. */
	snprintf(path, sizeof(path), "%s/.leat/%s/samples", w->to, info.id);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(samples_of(&by_name, NULL), -LE_CORRUPT);
	assert_int_equal(samples_of(&by_name, "fixed:10"), 9);
	assert_int_equal(samples_of(&by_path, NULL), 3);
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(samples_of(&by_name, NULL), 9);
	/* Another name of equal content, and of the same copy. */
	o.format = "fixed:5";
	o.source = dir;
	assert_int_equal(leat_dataset_create(&o, "records@v2", &info, r), 0);
	o.format = NULL;
	o.source = "records@v2";
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(samples_of(&by_name, NULL), 9);
	/* While they cannot be read, the samples of one name are not used for the other. */
	in_shell("cd %s && for v in v1 v2; do rm records@$v && mkdir records@$v; done", catalog);
	assert_int_equal(samples_of(&by_name, NULL), -LE_ISDIR);
	in_shell("cd %s && rmdir records@v1", catalog);
	assert_int_equal(samples_of(&by_name, NULL), -LE_NOENT);
	assert_int_equal(samples_of(&by_name, "fixed:10"), 9);
	by_name.what = o.source;
	assert_int_equal(samples_of(&by_name, NULL), 18);
	free(r);
}

static void test_random_access(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	static const uint64_t ids[] = {100, 3, 3, SAMPLES - 1, 7};
	uint64_t beyond = SAMPLES;
	struct leat_batch *b;
	assert_int_equal(leat_dataset_read(ds, ids, 5, &b), 0);
	assert_int_equal(leat_batch_len(b), 5);
	check_batch(b, NULL);
	assert_memory_equal(leat_batch_ids(b), ids, sizeof(ids));
	leat_batch_unref(b);
	assert_int_equal(leat_dataset_read(ds, &beyond, 1, &b), -LE_RANGE);
	assert_string_equal(leat_dataset_key(ds, 3), "s00003");
	assert_string_equal(leat_dataset_file(ds, 3), "train-003.tar");
	assert_null(leat_dataset_file(ds, SHARDS));
	leat_dataset_close(ds);
}

static void test_fields_patterns_and_threads(void **state)
{
	struct world *w = *state;
	static const char *const fields[] = {"cls", NULL}, *const none[] = {"jpg", NULL};
	struct leat_dataset_options o = {.size = sizeof(o), .threads = 3};
	struct leat_loader_options lo = {.size = sizeof(lo), .batch = 1, .fields = none};
	struct leat_view v = {.size = sizeof(v)};
	struct leat_dataset_stat st = {.size = sizeof(st)};
	struct leat_dataset *ds;
	struct leat_loader *ld;
	struct leat_batch *b;
	char pattern[200];
	snprintf(pattern, sizeof(pattern), "%s/train-00[1-3].tar", w->src);
	assert_int_equal(leat_dataset_open(pattern, &o, &ds), 0);
	leat_dataset_stat(ds, &st);
	assert_int_equal(st.samples, 3 * PER_SHARD);
	assert_int_equal(leat_loader_open(ds, &lo, &ld), -LE_NOENT);
	lo.fields = fields;
	assert_int_equal(leat_loader_open(ds, &lo, &ld), 0);
	for (uint32_t i = 0; i < 3 * PER_SHARD; i++) {
		assert_int_equal(leat_next(ld, &b), 1);
		assert_int_equal(leat_batch_field(b, "bin", &v), -LE_NOENT);
		assert_int_equal(leat_batch_field(b, "cls", &v), 0);
		leat_batch_unref(b);
	}
	leat_loader_close(ld);
	leat_dataset_close(ds);
	assert_int_equal(leat_dataset_open("/no/such/dir", &o, &ds), -LE_NOENT);
	assert_string_equal(leat_last_error()->path, "/no/such/dir");
	assert_int_equal(leat_dataset_open("no-such-name@v1", &o, &ds), -LE_NOENT);
}

static void *unref_thread(void *arg)
{
	leat_batch_unref(arg);
	return NULL;
}

static void test_batches_may_be_given_back_by_any_thread(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader *ld = open_loader(ds, "global", "drop", 8, 0, 1);
	struct leat_batch *b;
	for (int i = 0; i < 60; i++) {
		pthread_t t;
		int rc = leat_next(ld, &b);
		assert_true(rc >= 0);
		if (rc == 0)
			continue;
		leat_batch_ref(b);
		assert_int_equal(pthread_create(&t, NULL, unref_thread, b), 0);
		check_batch(b, NULL);
		leat_batch_unref(b);
		pthread_join(t, NULL);
	}
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void test_a_forked_child_gets_a_clear_error(void **state)
{
	struct leat_dataset *ds = open_dir(*state);
	struct leat_loader *ld = open_loader(ds, "global", "drop", 8, 0, 1);
	struct leat_batch *b;
	uint64_t id = 0;
	assert_int_equal(leat_next(ld, &b), 1);
	pid_t pid = fork();
	if (pid == 0) {
		struct leat_batch *c;
		int bad = leat_next(ld, &c) != -LE_NOTSUP ||
			  !strstr(leat_last_error()->message, "forked");
		bad |= leat_dataset_read(ds, &id, 1, &c) != -LE_NOTSUP;
		struct leat_loader_metrics m = {.size = sizeof(m)};
		char text[256];
		bad |= leat_batch_len(b) != 8;
		bad |= leat_loader_metrics(ld, &m) != -LE_NOTSUP;
		bad |= leat_loader_state(ld, text, sizeof(text)) != -LE_NOTSUP;
		leat_batch_unref(b);
		leat_loader_close(ld);
		leat_dataset_close(ds);
		_exit(bad);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	check_batch(b, NULL);
	leat_batch_unref(b);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

struct asking {
	const struct leat_order *order;
	uint64_t n;
	_Atomic bool stop;
};

static void *ask(void *arg)
{
	struct asking *a = arg;
	for (uint64_t i = 0; !a->stop; i++)
		assert_true(leat_order_at(a->order, i % a->n) >= 0);
	return NULL;
}

/* A forked child may query the order of a mixture whatever other threads were doing with it. */
static void test_the_order_of_a_mixture_after_fork(void **state)
{
	struct leat_dataset *ds = open_dir(*state), *mix;
	struct leat_mix_part parts[2] = {{ds, 2}, {ds, 1}};
	struct leat_dataset_stat st = {.size = sizeof(st)};
	struct leat_order *order;
	int64_t want[20];
	pthread_t t;
	assert_int_equal(leat_dataset_mix(parts, 2, NULL, &mix), 0);
	assert_int_equal(leat_dataset_stat(mix, &st), 0);
	assert_int_equal(leat_order_open(mix, "global", 5, 1, 8, &order), 0);
	for (uint64_t i = 0; i < 20; i++)
		want[i] = leat_order_at(order, i);
	struct asking a = {.order = order, .n = st.positions};
	assert_int_equal(pthread_create(&t, NULL, ask, &a), 0);
	for (int k = 0; k < 100; k++) {
		int status;
		pid_t pid = fork();
		if (pid == 0) {
			alarm(60);
			for (uint64_t i = 0; i < 20; i++) {
				if (leat_order_at(order, i) != want[i])
					_exit(1);
			}
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	a.stop = true;
	pthread_join(t, NULL);
	leat_order_close(order);
	leat_dataset_close(mix);
	leat_dataset_close(ds);
}

static void test_plain_files_with_classes(void **state)
{
	struct world *w = *state;
	char dir[128], path[200];
	snprintf(dir, sizeof(dir), "%s/pictures", w->root);
	mkdir(dir, 0755);
	for (int i = 0; i < 12; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, i % 3 ? "cat" : "dog");
		mkdir(path, 0755);
		snprintf(path, sizeof(path), "%s/%s/%02d.png", dir, i % 3 ? "cat" : "dog", i);
		FILE *f = fopen(path, "w");
		fprintf(f, "picture %d", i);
		fclose(f);
	}
	struct leat_dataset_options o = {.size = sizeof(o)};
	struct leat_view v = {.size = sizeof(v)};
	struct leat_dataset *ds;
	struct leat_batch *b;
	assert_int_equal(leat_dataset_open(dir, &o, &ds), 0);
	assert_string_equal(leat_dataset_class(ds, 0), "cat");
	assert_string_equal(leat_dataset_class(ds, 1), "dog");
	assert_null(leat_dataset_class(ds, 2));
	struct leat_loader *ld = open_loader(ds, "global", "drop", 12, 0, 1);
	assert_int_equal(leat_next(ld, &b), 1);
	assert_int_equal(leat_batch_field(b, "data", &v), 0);
	for (uint32_t i = 0; i < 12; i++) {
		int k = -1;
		char text[32] = "";
		memcpy(text, v.base + v.offsets[i], v.lengths[i]);
		assert_int_equal(sscanf(text, "picture %d", &k), 1);
		assert_int_equal(leat_batch_labels(b)[i], k % 3 == 0);
	}
	leat_batch_unref(b);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_each_sample_exactly_once_per_epoch),
		T(test_the_order_is_the_specified_one),
		T(test_resume_with_another_world),
		T(test_set_epoch),
		T(test_strides_share_the_steps_out),
		T(test_a_state_for_one_without_steps),
		T(test_holding_everything_is_told),
		T(test_memory_is_capped),
		T(test_a_system_without_memory),
		T(test_event_fd_and_try_next),
		T(test_event_fd_says_that_all_is_held),
		T(test_staged_copies_are_verified),
		T(test_what_a_link_named_is_healed),
		T(test_a_stale_copy_does_not_stand_for_its_source),
		T(test_a_copy_has_the_samples_of_its_data_set),
		T(test_random_access),
		T(test_fields_patterns_and_threads),
		T(test_batches_may_be_given_back_by_any_thread),
		T(test_a_forked_child_gets_a_clear_error),
		T(test_the_order_of_a_mixture_after_fork),
		T(test_plain_files_with_classes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
