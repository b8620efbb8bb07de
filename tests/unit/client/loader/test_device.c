/* SPDX-License-Identifier: Apache-2.0 */
/* Batches on a device, by a simulated driver (tests/cuda). */
#include "client/include/leat/leat_loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/leat/leat.h"
#include "common/base/status.h"
#include "tests/cuda/fake_driver.h"

#define SAMPLE  100000u
#define SAMPLES 60u
#define BATCH   8u
#define STEPS   (SAMPLES / BATCH)
#define LATE_US 3000u

static struct {
	typeof(fake_cuda_delay) *delay;
	typeof(fake_cuda_fail) *let_fail;
	typeof(fake_cuda_calls) *calls;
	typeof(fake_cuda_violations) *violations;
	typeof(fake_cuda_left) *left;
	typeof(fake_cuda_allocated) *allocated;
	typeof(fake_cuda_registered) *registered;
	typeof(fake_cuda_read) *read;
	int (*init)(unsigned int flags);
	int (*retain)(void **ret_ctx, int device);
	int (*give_back)(int device);
	int (*push)(void *ctx);
	int (*pop)(void **ret_ctx);
	int (*stream_create)(void **ret_stream, unsigned int flags);
	int (*stream_destroy)(void *stream);
	int (*synchronize)(void);
	int (*alloc)(uint64_t *ret_ptr, size_t len);
	int (*free)(uint64_t ptr);
} gpu;

struct world {
	char dir[64], file[96];
	struct leat_dataset *ds;
	void *ctx, *stream; /* the user's */
};

static void find(void *lib, const char *name, void *ret_function)
{
	*(void **)ret_function = dlsym(lib, name);
	if (!*(void **)ret_function)
		fail_msg("no %s", name);
}

/* Loads the driver by its path, before the loader loads it by name: then the loader gets this
 * library. */
static void load_driver(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	assert_true(n > 0);
	path[n] = 0;
	snprintf(strrchr(path, '/'), 32, "/libcuda.so.1");
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib)
		fail_msg("%s", dlerror());
	find(lib, "fake_cuda_delay", &gpu.delay);
	find(lib, "fake_cuda_fail", &gpu.let_fail);
	find(lib, "fake_cuda_calls", &gpu.calls);
	find(lib, "fake_cuda_violations", &gpu.violations);
	find(lib, "fake_cuda_left", &gpu.left);
	find(lib, "fake_cuda_allocated", &gpu.allocated);
	find(lib, "fake_cuda_registered", &gpu.registered);
	find(lib, "fake_cuda_read", &gpu.read);
	find(lib, "cuInit", &gpu.init);
	find(lib, "cuDevicePrimaryCtxRetain", &gpu.retain);
	find(lib, "cuDevicePrimaryCtxRelease_v2", &gpu.give_back);
	find(lib, "cuCtxPushCurrent_v2", &gpu.push);
	find(lib, "cuCtxPopCurrent_v2", &gpu.pop);
	find(lib, "cuStreamCreate", &gpu.stream_create);
	find(lib, "cuStreamDestroy_v2", &gpu.stream_destroy);
	find(lib, "cuCtxSynchronize", &gpu.synchronize);
	find(lib, "cuMemAlloc_v2", &gpu.alloc);
	find(lib, "cuMemFree_v2", &gpu.free);
}

static uint8_t byte_at(uint64_t sample, uint32_t i)
{
	return (uint8_t)(sample * 31 + i * 7 + i / 251);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct leat_dataset_options o = {.size = sizeof(o), .format = "fixed:100000"};

	if (!gpu.init)
		load_driver();
	snprintf(w->dir, sizeof(w->dir), "/tmp/leat-device.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->file, sizeof(w->file), "%s/a.bin", w->dir);
	FILE *f = fopen(w->file, "w");
	assert_non_null(f);
	for (uint64_t s = 0; s < SAMPLES; s++) {
		static uint8_t bytes[SAMPLE];
		for (uint32_t i = 0; i < SAMPLE; i++)
			bytes[i] = byte_at(s, i);
		assert_int_equal(fwrite(bytes, 1, SAMPLE, f), SAMPLE);
	}
	fclose(f);
	assert_int_equal(leat_dataset_open(w->dir, &o, &w->ds), 0);
	/* The user's context and stream, current in this thread as torch's would be. */
	assert_int_equal(gpu.init(0), 0);
	assert_int_equal(gpu.retain(&w->ctx, 1), 0);
	assert_int_equal(gpu.push(w->ctx), 0);
	assert_int_equal(gpu.stream_create(&w->stream, 0), 0);
	gpu.delay(LATE_US);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	void *ctx;

	leat_dataset_close(w->ds);
	assert_int_equal(gpu.stream_destroy(w->stream), 0);
	assert_int_equal(gpu.pop(&ctx), 0);
	assert_int_equal(gpu.give_back(1), 0);
	/* Everything was released, in order. */
	assert_int_equal(gpu.left(), 0);
	assert_int_equal(gpu.violations(), 0);
	unlink(w->file);
	rmdir(w->dir);
	free(w);
	return 0;
}

static struct leat_loader *open_loader(struct world *w, const char *device, int pinned)
{
	struct leat_loader_options o = {.size = sizeof(o),
					.seed = 5,
					.batch = BATCH,
					.depth = 2,
					.pinned = pinned,
					.device = device};
	struct leat_loader *ld = NULL;

	if (leat_loader_open(w->ds, &o, &ld) < 0)
		fail_msg("%s", leat_last_error()->message);
	return ld;
}

static struct leat_batch *next(struct leat_loader *ld)
{
	struct leat_batch *b = NULL;
	int rc = leat_next(ld, &b);

	if (rc == 0)
		rc = leat_next(ld, &b);
	if (rc != 1)
		fail_msg("%d: %s", rc, leat_last_error()->message);
	return b;
}

static struct leat_device_view on_device(struct leat_batch *b, void *stream)
{
	struct leat_device_view v = {.size = sizeof(v)};

	if (leat_batch_device(b, stream, &v) < 0)
		fail_msg("%s", leat_last_error()->message);
	return v;
}

static void check(const uint8_t *bytes, const uint64_t *ids, const uint64_t *offsets)
{
	for (uint32_t k = 0; k < BATCH; k++) {
		for (uint32_t i = 0; i < SAMPLE; i += 997)
			assert_int_equal(bytes[offsets[k] + i], byte_at(ids[k], i));
	}
}

/* The most important order: batches are released before anything has been copied or read, and two
 * slots serve all steps. Every read still finds its own batch. */
static void test_late_readers_see_their_batch(void **state)
{
	struct world *w = *state;
	struct leat_loader *ld = open_loader(w, "cuda:1", LEAT_PINNED_AUTO);
	struct leat_loader_metrics m = {.size = sizeof(m)};
	uint8_t *got[2 * STEPS] = {NULL};
	uint64_t ids[2 * STEPS][BATCH], offsets[2 * STEPS][BATCH];

	for (uint32_t s = 0; s < 2 * STEPS; s++) {
		struct leat_batch *b = next(ld);
		struct leat_view v = {.size = sizeof(v)};
		struct leat_device_view d = on_device(b, w->stream);
		assert_int_equal(d.device, 1);
		assert_int_equal(leat_batch_field(b, leat_dataset_field(w->ds, 0), &v), 0);
		memcpy(ids[s], leat_batch_ids(b), sizeof(ids[s]));
		memcpy(offsets[s], v.offsets, sizeof(offsets[s]));
		got[s] = malloc(d.len);
		assert_int_equal(gpu.read(got[s], d.base, d.len, w->stream), 0);
		leat_batch_unref(b);
	}
	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	assert_true(m.bytes_device >= 2 * STEPS * BATCH * SAMPLE);
	assert_int_equal(m.memory_pinned, m.memory);
	assert_int_equal(gpu.allocated(), m.memory);
	leat_loader_close(ld);
	assert_int_equal(gpu.synchronize(), 0);
	for (uint32_t s = 0; s < 2 * STEPS; s++) {
		check(got[s], ids[s], offsets[s]);
		free(got[s]);
	}
}

static void test_several_streams(void **state)
{
	struct world *w = *state;
	struct leat_loader *ld = open_loader(w, "cuda:1", LEAT_PINNED_AUTO);
	struct leat_device_view v = {.size = sizeof(v)};
	struct leat_batch *b = next(ld);
	void *streams[9];

	for (int i = 0; i < 9; i++)
		assert_int_equal(gpu.stream_create(&streams[i], 0), 0);
	for (int i = 0; i < 8; i++)
		on_device(b, streams[i]);
	on_device(b, streams[3]); /* again */
	assert_int_equal(leat_errno(leat_batch_device(b, streams[8], &v)), E2BIG);
	assert_non_null(strstr(leat_last_error()->message, "at most 8 streams"));
	/* A stream that is destroyed while it is used: the loader waits for the whole device
	 * instead. */
	assert_int_equal(gpu.stream_destroy(streams[0]), 0);
	unsigned int before = gpu.calls("cuCtxSynchronize");
	leat_batch_unref(b);
	assert_int_equal(gpu.calls("cuCtxSynchronize"), before + 1);
	for (int i = 1; i < 9; i++)
		assert_int_equal(gpu.stream_destroy(streams[i]), 0);
	leat_batch_unref(next(ld));
	leat_loader_close(ld);
}

static void test_wrong_stream(void **state)
{
	struct world *w = *state;
	struct leat_loader *ld = open_loader(w, "cuda:0", LEAT_PINNED_AUTO);
	struct leat_device_view v = {.size = sizeof(v)};
	struct leat_batch *b = next(ld);

	assert_int_equal(leat_errno(leat_batch_device(b, w->stream, &v)), EIO);
	assert_non_null(strstr(leat_last_error()->message, "none of this device"));
	assert_int_equal(on_device(b, NULL).device, 0);
	leat_batch_unref(b);
	leat_loader_close(ld);
}

/* Copies to memory of the caller's, with pinned memory only; the slot is used again immediately. */
static void test_copies_to_a_pointer(void **state)
{
	struct world *w = *state;
	struct leat_loader *ld = open_loader(w, NULL, LEAT_PINNED_REQUIRE);
	struct leat_device_view v = {.size = sizeof(v)};
	uint64_t to[STEPS], ids[STEPS][BATCH], offsets[STEPS][BATCH];
	const uint64_t space = 2 * BATCH * SAMPLE;

	for (uint32_t s = 0; s < STEPS; s++) {
		struct leat_batch *b = next(ld);
		struct leat_view f = {.size = sizeof(f)};
		assert_int_equal(gpu.alloc(&to[s], space), 0);
		assert_int_equal(leat_errno(leat_batch_device(b, w->stream, &v)), ENODEV);
		assert_int_equal(leat_errno(leat_batch_copy(b, to[s], BATCH * SAMPLE / 2, NULL)),
				 ERANGE);
		assert_int_equal(leat_batch_copy(b, to[s], space, w->stream), 0);
		assert_int_equal(leat_batch_field(b, leat_dataset_field(w->ds, 0), &f), 0);
		memcpy(ids[s], leat_batch_ids(b), sizeof(ids[s]));
		memcpy(offsets[s], f.offsets, sizeof(offsets[s]));
		leat_batch_unref(b);
	}
	leat_loader_close(ld);
	uint8_t *got = malloc(space);
	for (uint32_t s = 0; s < STEPS; s++) {
		assert_int_equal(gpu.read(got, to[s], space, w->stream), 0);
		assert_int_equal(gpu.synchronize(), 0);
		check(got, ids[s], offsets[s]);
		assert_int_equal(gpu.free(to[s]), 0);
	}
	free(got);
}

static void test_auto_pins_where_cuda_is_in_use(void **state)
{
	struct world *w = *state;
	struct leat_loader_metrics m = {.size = sizeof(m)};
	struct leat_loader *ld = open_loader(w, NULL, LEAT_PINNED_AUTO);
	struct leat_batch *b = next(ld);
	void *ctx;

	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	assert_true(m.memory_pinned > 0);
	leat_batch_unref(b);
	leat_loader_close(ld);
	/* No context in this thread: the loader does not call the driver. */
	assert_int_equal(gpu.pop(&ctx), 0);
	unsigned int before = gpu.calls("cuMemHostRegister_v2");
	ld = open_loader(w, NULL, LEAT_PINNED_AUTO);
	leat_batch_unref(next(ld));
	leat_loader_close(ld);
	assert_int_equal(gpu.calls("cuMemHostRegister_v2"), before);
	ld = open_loader(w, NULL, LEAT_PINNED_TRY);
	leat_batch_unref(next(ld));
	leat_loader_close(ld);
	assert_true(gpu.calls("cuMemHostRegister_v2") > before);
	assert_int_equal(gpu.push(ctx), 0);
}

static void test_memory_that_cannot_be_pinned(void **state)
{
	struct world *w = *state;
	struct leat_loader_metrics m = {.size = sizeof(m)};
	struct leat_batch *b = NULL;

	gpu.let_fail("cuMemHostRegister_v2", 1, 1);
	struct leat_loader *ld = open_loader(w, NULL, LEAT_PINNED_REQUIRE);
	/* The allocation of the first or the second slot fails. */
	int rc = leat_next(ld, &b);
	if (rc == 1) {
		leat_batch_unref(b);
		rc = leat_next(ld, &b);
	}
	assert_int_equal(leat_errno(rc), EIO);
	assert_non_null(strstr(leat_last_error()->message, "cannot be pinned"));
	leat_batch_unref(next(ld)); /* the failed batch, tried again */
	leat_loader_close(ld);
	/* Without the requirement it is slower, and right, and the metrics report it. */
	for (unsigned int i = 0; i < 2; i++) {
		gpu.let_fail("cuMemHostRegister_v2", 1, 1);
		ld = open_loader(w, "cuda:1", LEAT_PINNED_TRY);
		b = next(ld);
		struct leat_device_view d = on_device(b, w->stream);
		uint8_t *got = malloc(d.len);
		struct leat_view v = {.size = sizeof(v)};
		assert_int_equal(leat_batch_field(b, leat_dataset_field(w->ds, 0), &v), 0);
		assert_int_equal(gpu.read(got, d.base, d.len, w->stream), 0);
		assert_int_equal(gpu.synchronize(), 0);
		check(got, leat_batch_ids(b), v.offsets);
		free(got);
		assert_int_equal(leat_loader_metrics(ld, &m), 0);
		assert_true(m.memory_pinned < m.memory);
		leat_batch_unref(b);
		leat_loader_close(ld);
	}
}

/* Each function of the driver fails once, at each of its first calls. The result is an error that
 * names the function, or a right batch; and nothing leaks. */
static void run_through(struct world *w)
{
	struct leat_loader_options o = {.size = sizeof(o),
					.batch = BATCH,
					.depth = 2,
					.epochs = 1,
					.device = "cuda:1",
					.pinned = LEAT_PINNED_REQUIRE};
	struct leat_loader *ld;
	struct leat_device_view d = {.size = sizeof(d)};
	struct leat_batch *b;
	int failures = 0;

	if (leat_loader_open(w->ds, &o, &ld) < 0) {
		assert_non_null(strstr(leat_last_error()->message, "CUDA"));
		return;
	}
	for (uint32_t step = 0; step < STEPS;) {
		int rc = leat_next(ld, &b);
		struct leat_view v = {.size = sizeof(v)};
		if (rc < 0) {
			assert_non_null(strstr(leat_last_error()->message, "CUDA"));
			assert_true(++failures < 4);
			continue;
		}
		assert_int_equal(rc, 1);
		step++;
		if (leat_batch_device(b, w->stream, &d) == 0) {
			uint8_t *got = malloc(d.len);
			assert_int_equal(leat_batch_field(b, leat_dataset_field(w->ds, 0), &v), 0);
			assert_int_equal(gpu.read(got, d.base, d.len, w->stream), 0);
			assert_int_equal(gpu.synchronize(), 0);
			check(got, leat_batch_ids(b), v.offsets);
			free(got);
		} else {
			assert_non_null(strstr(leat_last_error()->message, "CUDA"));
		}
		leat_batch_unref(b);
	}
	leat_loader_close(ld);
}

static void test_the_driver_fails(void **state)
{
	static const char *const symbols[] = {
		"cuInit",
		"cuDeviceGetCount",
		"cuDeviceGet",
		"cuDevicePrimaryCtxRetain",
		"cuStreamCreate",
		"cuMemAlloc_v2",
		"cuMemHostRegister_v2",
		"cuEventCreate",
		"cuEventRecord",
		"cuEventQuery",
		"cuStreamWaitEvent",
		"cuMemcpyHtoDAsync_v2",
	};
	struct world *w = *state;
	unsigned int left = gpu.left();

	gpu.delay(0);
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		for (unsigned int nth = 1; nth <= 3; nth++) {
			gpu.let_fail(symbols[i], nth, 2);
			run_through(w);
			gpu.let_fail(symbols[i], 0, 0);
			if (gpu.left() != left)
				fail_msg("%s, call %u: %u left, not %u", symbols[i], nth,
					 gpu.left(), left);
		}
	}
}

static void test_options_are_checked(void **state)
{
	struct world *w = *state;
	static const char *const wrong[] = {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x"};
	struct leat_loader_options o = {.size = sizeof(o), .batch = BATCH};
	struct leat_loader *ld;

	for (size_t i = 0; i < 5; i++) {
		o.device = wrong[i];
		assert_int_equal(leat_errno(leat_loader_open(w->ds, &o, &ld)), EINVAL);
		assert_non_null(strstr(leat_last_error()->message, "cuda:N"));
	}
	o.device = "cuda:7";
	assert_int_equal(leat_errno(leat_loader_open(w->ds, &o, &ld)), ENODEV);
	assert_non_null(strstr(leat_last_error()->message, "no cuda:7 among 2"));
	o.device = NULL;
	o.pinned = 9;
	assert_int_equal(leat_errno(leat_loader_open(w->ds, &o, &ld)), EINVAL);
	/* "cuda" is the device in use. */
	ld = open_loader(w, "cuda", LEAT_PINNED_AUTO);
	struct leat_batch *b = next(ld);
	assert_int_equal(on_device(b, w->stream).device, 1);
	/* Closed first: the batch stays valid, on the device too. */
	leat_loader_close(ld);
	assert_int_equal(on_device(b, w->stream).device, 1);
	leat_batch_unref(b);
	/* Without a device there is no view. */
	struct leat_device_view d = {.size = sizeof(d)};
	ld = open_loader(w, NULL, LEAT_PINNED_NEVER);
	b = next(ld);
	assert_int_equal(leat_errno(leat_batch_device(b, NULL, &d)), ENODEV);
	assert_int_equal(leat_errno(leat_batch_copy(b, 0, 1 << 30, NULL)), ENODEV);
	leat_batch_unref(b);
	leat_loader_close(ld);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_late_readers_see_their_batch),
		T(test_several_streams),
		T(test_wrong_stream),
		T(test_copies_to_a_pointer),
		T(test_auto_pins_where_cuda_is_in_use),
		T(test_memory_that_cannot_be_pinned),
		T(test_the_driver_fails),
		T(test_options_are_checked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
