/* SPDX-License-Identifier: Apache-2.0 */
/* Batches read directly to a device, by a simulated cuFile and driver (tests/cuda), and the choice
 * of that way.
 * timeout: 120 */
#include "client/include/leat/leat_loader.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/leat/leat.h"
#include "client/include/leat/leat_stage.h"
#include "client/loader/gpu/gds.h"
#include "common/base/status.h"
#include "tests/cuda/fake_cufile.h"
#include "tests/cuda/fake_driver.h"

#define FILES   5u
#define SAMPLE  70001u
#define SAMPLES 150u /* 30 in each file */
#define BATCH   6u

static struct {
	typeof(fake_cuda_delay) *delay, *delay_up;
	typeof(fake_cuda_violations) *violations;
	typeof(fake_cuda_left) *left;
	typeof(fake_cuda_read) *read;
	typeof(fake_cufile_violations) *file_violations;
	typeof(fake_cufile_left) *file_left;
	typeof(fake_cufile_reads) *reads;
	typeof(fake_cufile_bytes) *bytes;
	typeof(fake_cufile_fail) *let_fail;
	typeof(fake_cufile_refuse) *refuse;
	typeof(fake_cufile_delay) *file_delay;
	int (*init)(unsigned int flags);
	int (*retain)(void **ret_ctx, int device);
	int (*give_back)(int device);
	int (*push)(void *ctx);
	int (*pop)(void **ret_ctx);
	int (*stream_create)(void **ret_stream, unsigned int flags);
	int (*stream_destroy)(void *stream);
	int (*synchronize)(void);
} gpu;

struct world {
	char dir[4096], src[4200], to[4200], copy[4096];
	struct leat_dataset *ds;
	void *ctx, *stream; /* the user's */
};

static void find(void *lib, const char *name, void *ret_function)
{
	*(void **)ret_function = dlsym(lib, name);
	if (!*(void **)ret_function)
		fail_msg("no %s", name);
}

static void beside_me(const char *name, char ret_path[4096])
{
	ssize_t n = readlink("/proc/self/exe", ret_path, 4000);

	assert_true(n > 0);
	ret_path[n] = 0;
	snprintf(strrchr(ret_path, '/'), 64, "/%s", name);
}

/* Loads a library by its path, before the loader loads it by name. */
static void *load(const char *name)
{
	char path[4096];

	beside_me(name, path);
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib)
		fail_msg("%s", dlerror());
	return lib;
}

static void load_driver(void)
{
	void *cuda = load("libcuda.so.1"), *cufile = load("libcufile.so.0");

	find(cuda, "fake_cuda_delay", &gpu.delay);
	find(cuda, "fake_cuda_delay_up", &gpu.delay_up);
	find(cuda, "fake_cuda_violations", &gpu.violations);
	find(cuda, "fake_cuda_left", &gpu.left);
	find(cuda, "fake_cuda_read", &gpu.read);
	find(cufile, "fake_cufile_violations", &gpu.file_violations);
	find(cufile, "fake_cufile_left", &gpu.file_left);
	find(cufile, "fake_cufile_reads", &gpu.reads);
	find(cufile, "fake_cufile_bytes", &gpu.bytes);
	find(cufile, "fake_cufile_fail", &gpu.let_fail);
	find(cufile, "fake_cufile_refuse", &gpu.refuse);
	find(cufile, "fake_cufile_delay", &gpu.file_delay);
	find(cuda, "cuInit", &gpu.init);
	find(cuda, "cuDevicePrimaryCtxRetain", &gpu.retain);
	find(cuda, "cuDevicePrimaryCtxRelease_v2", &gpu.give_back);
	find(cuda, "cuCtxPushCurrent_v2", &gpu.push);
	find(cuda, "cuCtxPopCurrent_v2", &gpu.pop);
	find(cuda, "cuStreamCreate", &gpu.stream_create);
	find(cuda, "cuStreamDestroy_v2", &gpu.stream_destroy);
	find(cuda, "cuCtxSynchronize", &gpu.synchronize);
}

static uint8_t byte_at(uint64_t sample, uint32_t i)
{
	return (uint8_t)(sample * 31 + i * 7 + i / 251);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!gpu.init)
		load_driver();
	/* A file system with O_DIRECT: that of the build. */
	beside_me("direct.XXXXXX", w->dir);
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->src, sizeof(w->src), "%s/src", w->dir);
	snprintf(w->to, sizeof(w->to), "%s/to", w->dir);
	assert_int_equal(mkdir(w->src, 0755), 0);
	assert_int_equal(mkdir(w->to, 0755), 0);
	for (uint64_t s = 0; s < SAMPLES; s += SAMPLES / FILES) {
		char path[4300];
		static uint8_t bytes[SAMPLE];
		snprintf(path, sizeof(path), "%s/%llu.bin", w->src,
			 (unsigned long long)(s / (SAMPLES / FILES)));
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		for (uint64_t k = s; k < s + SAMPLES / FILES; k++) {
			for (uint32_t i = 0; i < SAMPLE; i++)
				bytes[i] = byte_at(k, i);
			assert_int_equal(fwrite(bytes, 1, SAMPLE, f), SAMPLE);
		}
		fclose(f);
	}
	assert_int_equal(gpu.init(0), 0);
	assert_int_equal(gpu.retain(&w->ctx, 0), 0);
	assert_int_equal(gpu.push(w->ctx), 0);
	assert_int_equal(gpu.stream_create(&w->stream, 0), 0);
	gpu.delay(100);
	gpu.delay_up(0);
	gpu.file_delay(0);
	gpu.refuse(0);
	gpu.let_fail(0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[4200];
	void *ctx;

	leat_dataset_close(w->ds);
	assert_int_equal(gpu.stream_destroy(w->stream), 0);
	assert_int_equal(gpu.pop(&ctx), 0);
	assert_int_equal(gpu.give_back(0), 0);
	assert_int_equal(gpu.left(), 0);
	assert_int_equal(gpu.violations(), 0);
	assert_int_equal(gpu.file_left(), 0);
	assert_int_equal(gpu.file_violations(), 0);
	snprintf(command, sizeof(command), "rm -rf %s", w->dir);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

/* NULL: a staged copy of the data. */
static void open_data(struct world *w, const char *what)
{
	struct leat_dataset_options o = {.size = sizeof(o), .format = "fixed:70001"};

	if (!what) {
		struct leat_stage_options so = {
			.size = sizeof(so), .source = w->src, .to = w->to, .format = "fixed:70001"};
		struct leat_stage_result *r = calloc(1, sizeof(*r));
		r->size = sizeof(*r);
		assert_int_equal(leat_stage_in(&so, r), 0);
		memcpy(w->copy, r->path, sizeof(w->copy));
		free(r);
		what = w->copy;
	}
	if (leat_dataset_open(what, &o, &w->ds) < 0)
		fail_msg("%s", leat_last_error()->message);
}

static struct leat_loader *open_loader(struct world *w, int direct)
{
	struct leat_loader_options o = {.size = sizeof(o),
					.seed = 5,
					.batch = BATCH,
					.depth = 3,
					.tail = "shorter",
					.device = "cuda:0",
					.direct = direct};
	struct leat_loader *ld = NULL;

	if (leat_loader_open(w->ds, &o, &ld) < 0)
		fail_msg("%s", leat_last_error()->message);
	return ld;
}

/* Reads one epoch, and every sample on the device as a kernel would. Returns how many batches had
 * no bytes in host memory. */
static uint32_t read_epoch(struct world *w, struct leat_loader *ld)
{
	static uint8_t got[BATCH][SAMPLE];
	uint8_t seen[SAMPLES] = {0};
	struct leat_batch *b;
	uint32_t direct = 0;
	int rc;

	while ((rc = leat_next(ld, &b)) == 1) {
		struct leat_device_view dv = {.size = sizeof(dv)};
		struct leat_view v = {.size = sizeof(v)};
		struct leat_batch_info info = {.size = sizeof(info)};
		assert_int_equal(leat_batch_device(b, w->stream, &dv), 0);
		assert_int_equal(leat_batch_field(b, "record", &v), 0);
		leat_batch_info(b, &info);
		assert_true((v.base == NULL) == (info.base == NULL));
		assert_true((v.base == NULL) == (info.len == 0));
		direct += v.base == NULL;
		if (!v.base) {
			struct leat_array a = {.size = sizeof(a)};
			assert_true(leat_batch_array(b, "record", 0, &a) < 0);
			assert_true(leat_batch_copy(b, dv.base, dv.len, w->stream) < 0);
		}
		for (uint32_t i = 0; i < v.n; i++) {
			assert_int_equal(v.lengths[i], SAMPLE);
			assert_int_equal(
				gpu.read(got[i], dv.base + v.offsets[i], SAMPLE, w->stream), 0);
		}
		uint64_t ids[BATCH], n = v.n;
		memcpy(ids, info.ids, n * sizeof(ids[0]));
		/* Read after it was released. */
		leat_batch_unref(b);
		assert_int_equal(gpu.synchronize(), 0);
		for (uint32_t i = 0; i < n; i++) {
			seen[ids[i]]++;
			for (uint32_t k = 0; k < SAMPLE; k += k < 64 ? 1 : 97)
				assert_int_equal(got[i][k], byte_at(ids[i], k));
			assert_int_equal(got[i][SAMPLE - 1], byte_at(ids[i], SAMPLE - 1));
		}
	}
	assert_int_equal(rc, 0);
	for (uint32_t s = 0; s < SAMPLES; s++)
		assert_int_equal(seen[s], 1);
	return direct;
}

static struct leat_loader_metrics metrics(struct leat_loader *ld)
{
	struct leat_loader_metrics m = {.size = sizeof(m)};
	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	return m;
}

/*
 * Reads four epochs, 100 batches, of which the first eight and two of 64 are measured: until
 * `least` to `most` of them were read directly. A machine that stops while one way is measured
 * makes it the slower one, but not five times. Returns the loader, with its metrics.
 */
static struct leat_loader *chosen(struct world *w, int way, uint32_t least, uint32_t most,
				  struct leat_loader_metrics *ret)
{
	struct leat_loader *ld = NULL;
	uint32_t direct = 0;
	uint64_t before = 0;

	for (uint32_t go = 0; go < 5 && (go == 0 || direct < least || direct > most); go++) {
		if (ld)
			leat_loader_close(ld);
		before = gpu.bytes();
		ld = open_loader(w, way);
		direct = 0;
		for (uint32_t e = 0; e < 4; e++)
			direct += read_epoch(w, ld);
	}
	*ret = metrics(ld);
	assert_in_range(direct, least, most);
	/* The loader already reads the next epoch. */
	assert_in_range(gpu.bytes() - before - ret->bytes_direct, 0, 3 * BATCH * SAMPLE);
	return ld;
}

static void test_the_quicker_way_is_taken(void **state)
{
	struct world *w = *state;
	struct leat_loader_metrics m;

	open_data(w, w->src);
	/* Copies to the device are slow here. */
	gpu.delay_up(150000);
	struct leat_loader *ld = chosen(w, LEAT_DIRECT_REQUIRE, 80, 96, &m);
	assert_true(m.direct_mib_s > m.bounce_mib_s && m.bounce_mib_s > 0);
	assert_int_equal(m.direct_failed, 0);
	leat_loader_close(ld);
	leat_dataset_close(w->ds);
	w->ds = NULL;
}

static void test_the_slower_way_is_not(void **state)
{
	struct world *w = *state;
	struct leat_loader_metrics m;

	open_data(w, w->src);
	gpu.file_delay(60000);
	struct leat_loader *ld = chosen(w, LEAT_DIRECT_AUTO, 4, 8, &m);
	/* Both are rounded to integers; the choice shows which was slower. */
	assert_true(m.direct_mib_s <= m.bounce_mib_s && m.direct_mib_s > 0);
	leat_loader_close(ld);
}

/* A staged copy: not before its blocks were verified. */
static void test_verified_first(void **state)
{
	struct world *w = *state;
	uint32_t direct;

	open_data(w, NULL);
	gpu.delay_up(150000);
	struct leat_loader *ld = open_loader(w, LEAT_DIRECT_AUTO);
	direct = read_epoch(w, ld);
	struct leat_loader_metrics m = metrics(ld);
	assert_true(m.bytes_verified >= (uint64_t)SAMPLES * SAMPLE);
	assert_true(direct < SAMPLES / BATCH);
	direct = read_epoch(w, ld) + read_epoch(w, ld);
	assert_true(direct > SAMPLES / BATCH);
	assert_int_equal(metrics(ld).bytes_verified, m.bytes_verified);
	leat_loader_close(ld);
}

static void test_failures_go_the_other_way(void **state)
{
	struct world *w = *state;

	open_data(w, w->src);
	gpu.delay_up(150000);
	struct leat_loader *ld = open_loader(w, LEAT_DIRECT_AUTO);
	gpu.let_fail(20);
	for (uint32_t e = 0; e < 2; e++)
		(void)read_epoch(w, ld);
	assert_int_equal(metrics(ld).direct_failed, 1);
	assert_int_equal(metrics(ld).errors, 0);
	leat_loader_close(ld);
	/* cuFile refuses every file: the loader soon stops trying. */
	gpu.refuse(1);
	ld = open_loader(w, LEAT_DIRECT_AUTO);
	assert_int_equal(read_epoch(w, ld), 0);
	assert_int_equal(read_epoch(w, ld), 0);
	assert_int_equal(metrics(ld).direct_failed, 3);
	assert_int_equal(metrics(ld).bytes_direct, 0);
	leat_loader_close(ld);
}

static void test_what_is_refused(void **state)
{
	struct world *w = *state;
	struct leat_loader_options o = {
		.size = sizeof(o), .batch = BATCH, .direct = LEAT_DIRECT_AUTO};
	struct leat_loader *ld;

	open_data(w, w->src);
	assert_int_equal(leat_loader_open(w->ds, &o, &ld), -LE_INVAL);
	o.device = "cuda:0";
	o.direct = 7;
	assert_int_equal(leat_loader_open(w->ds, &o, &ld), -LE_INVAL);
}

/* ---- the automatic choice ---- */

static void test_choice(void **state)
{
	struct gds *g;
	struct detail d = {.off = UINT64_MAX};
	struct gds_stats st;
	uint32_t direct = 0, timed_ways[2] = {0, 0};

	(void)state;
	assert_int_equal(gds_open(LEAT_DIRECT_NEVER, &g, &d), 0);
	assert_null(g);
	assert_int_equal(gds_open(LEAT_DIRECT_REQUIRE, &g, &d), 0);
	for (uint32_t i = 0; i < 2000; i++) {
		bool timed;
		enum gds_way way = gds_choose(g, &timed);
		/* Direct reads are faster at first, later slower. */
		uint64_t us = way == GDS_DIRECT ? (i < 1000 ? 500 : 3000) : 1000;
		timed_ways[way] += timed;
		direct += way == GDS_DIRECT;
		if (timed)
			gds_took(g, way, us, 1 << 20);
		if (i == 999) {
			assert_in_range(direct, 950, 990);
			direct = 0;
		}
	}
	/* The loader changes the way after some measurements. */
	assert_in_range(direct, 16, 400);
	assert_int_equal(timed_ways[0], timed_ways[1]);
	assert_in_range(timed_ways[0], 30, 40);
	gds_stats(g, &st);
	assert_true(st.direct_mib_s < st.bounce_mib_s);
	gds_close(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_quicker_way_is_taken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_slower_way_is_not, setup, teardown),
		cmocka_unit_test_setup_teardown(test_verified_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failures_go_the_other_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_refused, setup, teardown),
		cmocka_unit_test(test_choice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
