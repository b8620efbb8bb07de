/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders: results in the slot, failures with their origin, slow ones. */
#include "client/include/leat/leat_loader.h"

#include "client/include/leat/leat.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/status.h"

#define SAMPLES 300u
#define RECORD  500u
#define OUT     (2 * RECORD)

struct world {
	char root[64], path[96];
};

static uint8_t byte_of(uint64_t sample, uint32_t i)
{
	return (uint8_t)(sample * 17 + i * 3 + sample / 256);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	const char *tmp = getenv("TMPDIR");
	snprintf(w->root, sizeof(w->root), "%.40s/decode.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(w->root));
	snprintf(w->path, sizeof(w->path), "%s/records.bin", w->root);
	FILE *f = fopen(w->path, "w");
	assert_non_null(f);
	for (uint32_t s = 0; s < SAMPLES; s++) {
		for (uint32_t i = 0; i < RECORD; i++)
			fputc(byte_of(s, i), f);
	}
	assert_int_equal(fclose(f), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	unlink(w->path);
	rmdir(w->root);
	free(w);
	return 0;
}

/* The behaviour of the decoder of these tests, and its input. */
struct script {
	uint64_t fails_at, too_much_at, hangs_at, slow_us;
	_Atomic uint32_t calls, threads;
	_Atomic bool hanging, go;
};

static _Thread_local const struct script *seen_by_thread;

/* Each byte twice; the first 8 are the sample's number. */
static int64_t decode(void *arg, const struct leat_decode_call *c)
{
	struct script *s = arg;
	const uint8_t *in = c->in;
	uint8_t *out = c->out;
	s->calls++;
	if (seen_by_thread != s)
		s->threads++;
	seen_by_thread = s;
	if ((uintptr_t)out % 64 || c->in_len != RECORD || c->out_max != OUT ||
	    strcmp(c->field, "record") != 0)
		return -EPROTO;
	if (c->sample == s->fails_at) {
		snprintf(c->error, c->error_size, "no picture\n in it");
		return -EILSEQ;
	}
	if (c->sample == s->too_much_at)
		return OUT + 1;
	if (s->slow_us)
		usleep((useconds_t)s->slow_us);
	while (c->sample == s->hangs_at && !s->go) {
		s->hanging = true;
		usleep(1000);
	}
	for (uint32_t i = 0; i < RECORD; i++)
		out[2 * i] = out[2 * i + 1] = in[i];
	memcpy(out, &c->sample, sizeof(c->sample));
	return (int64_t)OUT - (int64_t)(c->sample % 3);
}

static struct leat_dataset *open_records(const struct world *w)
{
	struct leat_dataset_options o = {.size = sizeof(o), .format = "fixed:500"};
	struct leat_dataset *ds;
	assert_int_equal(leat_dataset_open(w->root, &o, &ds), 0);
	return ds;
}

static struct script new_script(void)
{
	return (struct script){
		.fails_at = UINT64_MAX, .too_much_at = UINT64_MAX, .hangs_at = UINT64_MAX};
}

static struct leat_loader_options options(struct leat_decoder *d, struct script *s)
{
	*d = (struct leat_decoder){"record", decode, s, OUT};
	return (struct leat_loader_options){.size = sizeof(struct leat_loader_options),
					    .order = "sequential",
					    .tail = "shorter",
					    .batch = 32,
					    .epochs = 1,
					    .decoders = d,
					    .n_decoders = 1};
}

static void check(const struct leat_batch *b)
{
	struct leat_view v = {.size = sizeof(v)};
	assert_int_equal(leat_batch_field(b, "record", &v), 0);
	for (uint32_t i = 0; i < leat_batch_len(b); i++) {
		uint64_t id = leat_batch_ids(b)[i], n;
		const uint8_t *out = v.base + v.offsets[i];
		assert_int_equal(v.lengths[i], OUT - id % 3);
		memcpy(&n, out, sizeof(n));
		assert_int_equal(n, id);
		for (uint32_t k = 8; k < v.lengths[i]; k++)
			assert_int_equal(out[k], byte_of(id, k / 2));
	}
}

static uint32_t run(struct leat_loader *ld)
{
	struct leat_batch *b;
	uint32_t n = 0;
	int rc;
	while ((rc = leat_next(ld, &b)) == 1) {
		check(b);
		n += leat_batch_len(b);
		leat_batch_unref(b);
	}
	assert_int_equal(rc, 0);
	return n;
}

static void test_results_lie_in_the_slot(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct script s = new_script();
	struct leat_decoder d;
	struct leat_loader_options o = options(&d, &s);
	struct leat_loader_metrics m = {.size = sizeof(m)};
	struct leat_loader *ld;
	s.slow_us = 100;
	o.decode_threads = 4;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(run(ld), SAMPLES);
	assert_int_equal(s.calls, SAMPLES);
	assert_int_equal(s.threads, 4);
	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	assert_true(m.stall_us[LEAT_STALL_DECODE] > 0);
	assert_string_equal(leat_stall_name(LEAT_STALL_DECODE), "decode");
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void test_a_failure_names_file_and_offset(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct script s = new_script();
	struct leat_decoder d;
	struct leat_loader_options o = options(&d, &s);
	struct leat_loader *ld;
	struct leat_batch *b;
	s.fails_at = 70;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(leat_next(ld, &b), 1);
		check(b);
		leat_batch_unref(b);
	}
	for (int i = 0; i < 3; i++) {
		assert_int_equal(leat_errno(leat_next(ld, &b)), EIO);
		const struct leat_error *e = leat_last_error();
		assert_string_equal(e->origin, "decoder");
		assert_string_equal(e->path, "records.bin");
		assert_int_equal(e->offset, 70 * RECORD);
		assert_non_null(strstr(e->message, "the decoder of record failed: no picture  in"));
	}
	/* Once the decoder succeeds, the failed batch comes. */
	s.fails_at = UINT64_MAX;
	s.too_much_at = 71;
	assert_true(leat_next(ld, &b) < 0 || strstr(leat_last_error()->message, "1001"));
	s.too_much_at = UINT64_MAX;
	int rc;
	while ((rc = leat_next(ld, &b)) < 0)
		;
	assert_int_equal(rc, 1);
	assert_int_equal(leat_batch_step(b), 2);
	check(b);
	leat_batch_unref(b);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void test_failures_are_skipped_if_asked(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct script s = new_script();
	struct leat_decoder d;
	struct leat_loader_options o = options(&d, &s);
	struct leat_loader_metrics m = {.size = sizeof(m)};
	struct leat_loader *ld;
	s.fails_at = 70;
	s.too_much_at = 299;
	o.on_error = LEAT_ON_ERROR_SKIP;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(run(ld), SAMPLES - 2);
	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	assert_int_equal(m.skipped, 2);
	leat_loader_close(ld);
	/* A sample that cannot be read is not decoded. */
	s = new_script();
	assert_int_equal(truncate(((struct world *)*state)->path, 200 * RECORD), 0);
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	uint32_t n = run(ld);
	assert_true(n <= 200 && n >= 192);
	assert_int_equal(s.calls, n);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static uint32_t n_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	uint32_t n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int64_t take_all(void *arg, const struct leat_decode_call *c)
{
	(void)arg;
	memcpy(c->out, c->in, c->in_len);
	return (int64_t)c->in_len;
}

/* A file without bytes has no place in the slot, so bad bytes of a neighbour are not its own. */
static void test_an_empty_sample_is_not_its_bad_neighbour(void **state)
{
	const struct world *w = *state;
	static const char *const names[] = {"a-gone", "b-empty", "c-there"};
	struct leat_decoder d = {.field = "data", .decode = take_all, .out_max = 16};
	struct leat_loader_options o = {.size = sizeof(o),
					.order = "sequential",
					.batch = 3,
					.on_error = LEAT_ON_ERROR_SKIP,
					.decoders = &d,
					.n_decoders = 1};
	struct leat_view v = {.size = sizeof(v)};
	char dir[128], path[200];
	struct leat_dataset *ds;
	struct leat_loader *ld;
	struct leat_batch *b;
	snprintf(dir, sizeof(dir), "%s/files", w->root);
	assert_int_equal(mkdir(dir, 0755), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		fputs(i == 1 ? "" : "12345", f);
		assert_int_equal(fclose(f), 0);
	}
	assert_int_equal(leat_dataset_open(dir, NULL, &ds), 0);
	snprintf(path, sizeof(path), "%s/%s", dir, names[0]);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(leat_next(ld, &b), 1);
	assert_int_equal(leat_batch_len(b), 2);
	assert_int_equal(leat_batch_ids(b)[0], 1);
	assert_int_equal(leat_batch_field(b, "data", &v), 0);
	assert_int_equal(v.lengths[0], 0);
	assert_int_equal(v.lengths[1], 5);
	assert_memory_equal(v.base + v.offsets[1], "12345", 5);
	leat_batch_unref(b);
	leat_loader_close(ld);
	leat_dataset_close(ds);
	for (int i = 1; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

static struct leat_loader_metrics metrics(struct leat_loader *ld)
{
	struct leat_loader_metrics m = {.size = sizeof(m)};
	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	return m;
}

/* A slow sample is started earlier, as far ahead as its waits are long. */
static void test_slow_ones_are_begun_earlier(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct script s = new_script();
	struct leat_decoder d;
	struct leat_loader_options o = options(&d, &s);
	struct leat_loader *ld;
	struct leat_batch *b;
	o.depth = 0;
	o.epochs = 0;
	s.slow_us = 2000;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(metrics(ld).depth, 8);
	assert_int_equal(metrics(ld).ahead, 2);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(leat_next(ld, &b), 1);
		leat_batch_unref(b);
	}
	assert_true(metrics(ld).ahead > 2);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void test_one_that_never_returns_hangs_nobody(void **state)
{
	uint32_t before = n_threads();
	struct leat_dataset *ds = open_records(*state);
	struct script s = new_script(), fine = new_script();
	struct leat_decoder d, other;
	struct leat_loader_options o = options(&d, &s), ok = options(&other, &fine);
	struct leat_loader *ld, *beside;
	struct leat_batch *b;
	s.hangs_at = 40;
	o.decode_ms = 200;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(leat_loader_open(ds, &ok, &beside), 0);
	assert_int_equal(leat_next(ld, &b), 1);
	leat_batch_unref(b);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(leat_next(ld, &b), -LE_BUSY);
		assert_non_null(strstr(leat_last_error()->message, "at work on sample 40 for"));
	}
	/* Other loaders of the data set continue. */
	assert_int_equal(run(beside), SAMPLES);
	leat_loader_close(beside);
	assert_true(s.hanging);
	double from = seconds();
	leat_loader_close(ld);
	leat_dataset_close(ds);
	assert_true(seconds() - from < 5);
	assert_true(n_threads() > before);
	/* When the decoder returns after all, everything is freed. */
	s.go = true;
	for (int i = 0; i < 2000 && n_threads() > before; i++)
		usleep(5000);
	assert_int_equal(n_threads(), before);
}

/* A thread that was joined stays in /proc for an instant. */
static void expect_threads(uint32_t n)
{
	for (uint32_t i = 0; i < 5000 && n_threads() != n; i++)
		usleep(1000);
	assert_int_equal(n_threads(), n);
}

static void test_closing_while_they_work(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	uint32_t before = n_threads();
	for (uint32_t i = 0; i < 40; i++) {
		struct script s = new_script();
		struct leat_decoder d;
		struct leat_loader_options o = options(&d, &s);
		struct leat_loader *ld;
		struct leat_batch *b;
		s.slow_us = i % 4 * 300;
		s.fails_at = i % 5 == 0 ? i : UINT64_MAX;
		o.epochs = 0;
		assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
		for (uint32_t k = 0; k < i % 7; k++) {
			if (leat_next(ld, &b) == 1)
				leat_batch_unref(b);
		}
		if (i % 3 == 0)
			usleep(i * 50);
		leat_loader_close(ld);
		expect_threads(before);
	}
	leat_dataset_close(ds);
}

static void test_options(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct script s = new_script();
	struct leat_decoder d[2];
	struct leat_loader_options o = options(&d[0], &s);
	struct leat_loader *ld;
	struct leat_batch *b;
	d[1] = d[0];
	o.n_decoders = 2;
	assert_int_equal(leat_loader_open(ds, &o, &ld), -LE_INVAL);
	o.n_decoders = 1;
	d[0].field = "jpg";
	assert_int_equal(leat_loader_open(ds, &o, &ld), -LE_NOENT);
	d[0] = d[1];
	d[0].out_max = 0;
	assert_int_equal(leat_loader_open(ds, &o, &ld), -LE_INVAL);
	/* Space for results counts as memory. */
	d[0].out_max = 100u << 20;
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	assert_int_equal(leat_next(ld, &b), -LE_2BIG);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_results_lie_in_the_slot),
		T(test_a_failure_names_file_and_offset),
		T(test_failures_are_skipped_if_asked),
		T(test_one_that_never_returns_hangs_nobody),
		T(test_closing_while_they_work),
		T(test_options),
		T(test_slow_ones_are_begun_earlier),
		T(test_an_empty_sample_is_not_its_bad_neighbour),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
