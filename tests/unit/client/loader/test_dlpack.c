/* SPDX-License-Identifier: Apache-2.0 */
/* Samples as arrays and as DLPack tensors. */
#include "client/include/leat/leat_loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/status.h"

#define ROWS 20u

/* As in dlpack.h: written here independently, from its text. */
struct DLManagedTensor {
	void *data;
	int32_t device_type, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensor *self);
};

struct world {
	char root[64], path[96];
	struct leat_dataset *ds;
	struct leat_loader *ld;
	struct leat_batch *b;
};

/* Row i is int16 [2, 3]: 100 i + 0..5. */
static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	const char *tmp = getenv("TMPDIR");
	char head[128];
	snprintf(w->root, sizeof(w->root), "%.40s/dlpack.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(w->root));
	snprintf(w->path, sizeof(w->path), "%s/rows.npy", w->root);
	FILE *f = fopen(w->path, "w");
	assert_non_null(f);
	memset(head, ' ', sizeof(head));
	memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
	int n = snprintf(head + 10, 100,
			 "{'descr': '<i2', 'fortran_order': False, 'shape': (%u, 2, 3), }", ROWS);
	head[10 + n] = ' ';
	head[127] = '\n';
	fwrite(head, 1, sizeof(head), f);
	for (uint32_t i = 0; i < ROWS; i++) {
		for (int16_t k = 0; k < 6; k++) {
			int16_t v = (int16_t)(100 * i + k);
			fwrite(&v, 2, 1, f);
		}
	}
	assert_int_equal(fclose(f), 0);
	struct leat_dataset_options o = {.size = sizeof(o), .format = "npy"};
	struct leat_loader_options lo = {.size = sizeof(lo), .batch = 4, .depth = 2};
	assert_int_equal(leat_dataset_open(w->root, &o, &w->ds), 0);
	assert_int_equal(leat_loader_open(w->ds, &lo, &w->ld), 0);
	assert_int_equal(leat_next(w->ld, &w->b), 1);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	leat_batch_unref(w->b);
	leat_loader_close(w->ld);
	leat_dataset_close(w->ds);
	unlink(w->path);
	rmdir(w->root);
	free(w);
	return 0;
}

static uint32_t held(struct leat_loader *ld)
{
	struct leat_loader_metrics m = {.size = sizeof(m)};
	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	return m.held;
}

static void test_a_tensor_is_the_sample_and_keeps_its_batch(void **state)
{
	struct world *w = *state;
	const char *field = leat_dataset_field(w->ds, 0);
	struct leat_array a = {.size = sizeof(a)};
	struct DLManagedTensor *t;
	uint64_t id = leat_batch_ids(w->b)[2];
	assert_int_equal(leat_batch_array(w->b, field, 2, &a), 0);
	assert_string_equal(a.type, "<i2");
	assert_int_equal(a.n_dims, 2);
	assert_int_equal(a.len, 12);
	assert_int_equal(leat_batch_dlpack(w->b, &a, -1, &t), 0);
	leat_batch_unref(w->b);
	w->b = NULL;
	assert_int_equal(held(w->ld), 1);
	assert_int_equal(t->device_type, 1);
	assert_int_equal(t->device_id, 0);
	assert_int_equal(t->ndim, 2);
	assert_int_equal(t->code, 0);
	assert_int_equal(t->bits, 16);
	assert_int_equal(t->lanes, 1);
	assert_int_equal(t->byte_offset, 0);
	assert_int_equal(t->shape[0], 2);
	assert_int_equal(t->shape[1], 3);
	assert_int_equal(t->strides[0], 3);
	assert_int_equal(t->strides[1], 1);
	for (int k = 0; k < 6; k++)
		assert_int_equal(((int16_t *)t->data)[k], 100 * id + (uint64_t)k);
	t->deleter(t);
	assert_int_equal(held(w->ld), 0);
	leat_dlpack_delete(NULL);
}

static void test_what_is_no_tensor_is_refused(void **state)
{
	struct world *w = *state;
	const char *field = leat_dataset_field(w->ds, 0);
	struct leat_array good = {.size = sizeof(good)}, a;
	struct DLManagedTensor *t = NULL;
	assert_int_equal(leat_batch_array(w->b, "none", 0, &good), -LE_NOENT);
	assert_int_equal(leat_batch_array(w->b, field, 4, &good), -LE_RANGE);
	assert_int_equal(leat_batch_array(w->b, field, 0, &good), 0);
	static const char *const types[] = {">i2", "|O8", "<i", "", "<U4", "<f99"};
	static const int want[] = {-LE_NOTSUP, -LE_INVAL, -LE_INVAL,
				   -LE_INVAL,  -LE_INVAL, -LE_INVAL};
	for (int i = 0; i < 6; i++) {
		a = good;
		memset(a.type, 0, sizeof(a.type));
		memcpy(a.type, types[i], strlen(types[i]));
		assert_int_equal(leat_batch_dlpack(w->b, &a, -1, &t), want[i]);
	}
	a = good;
	a.shape[0] = UINT64_MAX / 2;
	assert_int_equal(leat_batch_dlpack(w->b, &a, -1, &t), -LE_INVAL);
	a.shape[0] = 1u << 30;
	assert_int_equal(leat_batch_dlpack(w->b, &a, -1, &t), -LE_RANGE);
	a = good;
	a.n_dims = LEAT_DIMS_MAX + 1;
	assert_int_equal(leat_batch_dlpack(w->b, &a, -1, &t), -LE_INVAL);
	a = good;
	a.data = &a;
	assert_int_equal(leat_batch_dlpack(w->b, &a, -1, &t), -LE_RANGE);
	assert_null(t);
	assert_int_equal(held(w->ld), 1);
}

static void test_fortran_order_and_devices(void **state)
{
	struct world *w = *state;
	struct leat_array a = {.size = sizeof(a)};
	struct DLManagedTensor *t;
	assert_int_equal(leat_batch_array(w->b, leat_dataset_field(w->ds, 0), 0, &a), 0);
	a.fortran = 1;
	a.data = (const void *)0x7000000; /* an address of the device */
	assert_int_equal(leat_batch_dlpack(w->b, &a, 3, &t), 0);
	assert_int_equal(t->device_type, 2);
	assert_int_equal(t->device_id, 3);
	assert_ptr_equal(t->data, a.data);
	assert_int_equal(t->strides[0], 1);
	assert_int_equal(t->strides[1], 2);
	leat_dlpack_delete(t);
	/* Without elements it has no address. */
	a.shape[1] = 0;
	assert_int_equal(leat_batch_dlpack(w->b, &a, -1, &t), 0);
	assert_null(t->data);
	leat_dlpack_delete(t);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_tensor_is_the_sample_and_keeps_its_batch),
		T(test_what_is_no_tensor_is_refused),
		T(test_fortran_order_and_devices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
