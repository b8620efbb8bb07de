/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples as arrays, and arrays of a batch as DLPack tensors for PyTorch, JAX, CuPy, TensorFlow,
 * ONNX Runtime and others. The structs are those of dlpack.h (unversioned, unchanged since DLPack
 * 0.2), declared here so that the build does not need it.
 */
#include <stdlib.h>
#include <string.h>

#include "client/loader/batch/batch.h"
#include "client/loader/source/last_error.h"
#include "common/base/assert.h"

#define TENSOR_MAGIC 0x4c54534eu /* LTSN */

enum {
	DL_CPU = 1,
	DL_CUDA = 2
};
enum {
	DL_INT = 0,
	DL_UINT = 1,
	DL_FLOAT = 2,
	DL_COMPLEX = 5,
	DL_BOOL = 6
};

struct dl_device {
	int32_t type, id;
};
struct dl_type {
	uint8_t code, bits;
	uint16_t paths;
};
struct dl_tensor {
	void *data;
	struct dl_device device;
	int32_t n_dims;
	struct dl_type type;
	int64_t *shape, *strides; /* in elements; strides NULL: C order */
	uint64_t byte_offset;
};
struct DLManagedTensor {
	struct dl_tensor tensor;
	void *ctx;
	void (*deleter)(struct DLManagedTensor *self);
};

/* ---- types of fields ---- */

/* Parses "<f4": byte order, kind, bytes. ret_size: of an element. */
static int parse_type(const char *type, struct dl_type *ret_type, uint64_t *ret_size)
{
	static const char kinds[] = "iufcb";
	static const uint8_t codes[] = {DL_INT, DL_UINT, DL_FLOAT, DL_COMPLEX, DL_BOOL};
	const char *kind = type[0] ? strchr(kinds, type[1]) : NULL;
	char *end;
	if (!kind || !*kind || type[2] < '1' || type[2] > '9')
		return -LE_INVAL;
	unsigned long size = strtoul(type + 2, &end, 10);
	if (size > 16 || (*end && *end != '['))
		return -LE_INVAL;
	/* DLPack has only the machine's byte order. */
	if (type[0] == '>' && size > 1)
		return -LE_NOTSUP;
	*ret_type = (struct dl_type){codes[kind - kinds], (uint8_t)(size * 8), 1};
	*ret_size = size;
	return 0;
}

/* Computes the bytes of an array of this shape; -LE_INVAL beyond 64 bits. */
static int bytes_of_shape(const struct leat_array *a, uint64_t size, uint64_t *ret_len)
{
	uint64_t len = size;
	if (a->n_dims > LEAT_DIMS_MAX)
		return -LE_INVAL;
	for (uint32_t i = 0; i < a->n_dims; i++) {
		if (a->shape[i] > INT64_MAX || __builtin_mul_overflow(len, a->shape[i], &len))
			return -LE_INVAL;
	}
	*ret_len = len;
	return 0;
}

/* Describes bytes of type "<f4[3,224]" or "<f4" as an array. */
static int take_type(const char *type, const uint8_t *data, uint64_t len, struct leat_array *ret_a)
{
	struct leat_array a = {.data = data, .len = len};
	struct dl_type t;
	uint64_t size, want;
	const char *at = strchr(type, '[');
	size_t n = at ? (size_t)(at - type) : strlen(type);
	TRY(parse_type(type, &t, &size));
	if (n >= sizeof(a.type))
		return -LE_INVAL;
	memcpy(a.type, type, n);
	while (at && *at != ']' && a.n_dims < LEAT_DIMS_MAX) {
		char *end;
		if (at[1] == ']')
			break;
		a.shape[a.n_dims++] = strtoull(at + 1, &end, 10);
		if (end == at + 1 || (*end != ',' && *end != ']'))
			return -LE_INVAL;
		at = end;
	}
	TRY(bytes_of_shape(&a, size, &want));
	if (want != len)
		return -LE_INVAL;
	*ret_a = a;
	return 0;
}

int leat_batch_array(const struct leat_batch *b, const char *field, uint32_t i,
		     struct leat_array *ret_array)
{
	int f = index_field(b->ds->x, field);
	int32_t place = f < 0 ? -1 : field_place(b->set, (uint32_t)f);
	if (place < 0)
		return error_say(-LE_NOENT, "the batch has no field %s", field);
	if (b->direct)
		return error_say(-LE_NODATA, "the batch was read into device memory only");
	if (i >= b->n)
		return error_say(-LE_RANGE, "the batch has %u samples", b->n);
	uint32_t row = b->row_of[place];
	uint64_t off = b->off[batch_at(b, row, i)], len = b->len[batch_at(b, row, i)];
	if (off == UINT64_MAX)
		return error_say(-LE_NOENT, "sample %llu has no field %s",
				 (unsigned long long)b->ids[i], field);
	struct leat_array a = {.size = sizeof(a), .data = b->base + off, .len = len, .n_dims = 1};
	const char *type = index_string(b->ds->x, b->ds->x->types[f]);
	/* The field's type does not apply to the output of a decoder. */
	bool decoded = b->decoded[row];
	int rc = -LE_INVAL;
	if (!decoded && strcmp(type, "npy") == 0)
		rc = leat_array_parse(b->base + off, len, &a);
	else if (!decoded && type[0])
		rc = take_type(type, b->base + off, len, &a);
	if (rc < 0) {
		memcpy(a.type, "|u1", 4);
		a.shape[0] = len;
	}
	a.size = ret_array->size;
	memcpy(ret_array, &a, a.size < sizeof(a) ? a.size : sizeof(a));
	return 0;
}

/* ---- tensors ---- */

struct tensor {
	struct DLManagedTensor managed; /* first */
	uint32_t magic;
	struct leat_batch *b;           /* a reference */
	int64_t shape[LEAT_DIMS_MAX], strides[LEAT_DIMS_MAX];
};

static void give_back(struct DLManagedTensor *self)
{
	struct tensor *t = CAST_OBJ(self, struct tensor, TENSOR_MAGIC);
	leat_batch_unref(t->b);
	t->magic = 0;
	free(t);
}

static bool is_in_slot(const struct leat_batch *b, const void *data, uint64_t len)
{
	uintptr_t at = (uintptr_t)data, base = (uintptr_t)b->base;
	return len == 0 || (at >= base && at - base <= b->mapped && len <= b->mapped - (at - base));
}

static void set_dims(struct tensor *t, const struct leat_array *a)
{
	struct dl_tensor *d = &t->managed.tensor;
	uint64_t step = 1; /* may overflow where a dimension is 0, and is not used then */
	d->n_dims = (int32_t)a->n_dims;
	d->shape = t->shape;
	d->strides = t->strides;
	for (uint32_t i = 0; i < a->n_dims; i++)
		t->shape[i] = (int64_t)a->shape[i];
	for (uint32_t i = 0; i < a->n_dims; i++) {
		uint32_t k = a->fortran ? i : a->n_dims - 1 - i;
		t->strides[k] = (int64_t)step;
		step *= a->shape[k];
	}
}

int leat_batch_dlpack(struct leat_batch *b, const struct leat_array *array, int device,
		      struct DLManagedTensor **ret_tensor)
{
	struct leat_array a = {0};
	struct dl_type type;
	uint64_t size, len = 0;
	memcpy(&a, array, array->size < sizeof(a) ? array->size : sizeof(a));
	a.type[sizeof(a.type) - 1] = 0;
	int rc = parse_type(a.type, &type, &size);
	if (rc == 0)
		rc = bytes_of_shape(&a, size, &len);
	if (rc < 0)
		return error_say(rc, "%.15s of %u dimensions is none of DLPack's types", a.type,
				 a.n_dims);
	if (device < 0 && !is_in_slot(b, a.data, len))
		return error_say(-LE_RANGE, "the array is not in the batch");
	struct tensor *t = calloc(1, sizeof(*t));
	if (!t)
		return error_say(-LE_NOMEM, "out of memory");
	t->magic = TENSOR_MAGIC;
	t->managed.tensor.data = len ? (void *)a.data : NULL;
	t->managed.tensor.device =
		(struct dl_device){device < 0 ? DL_CPU : DL_CUDA, device < 0 ? 0 : device};
	t->managed.tensor.type = type;
	set_dims(t, &a);
	t->managed.deleter = give_back;
	t->b = b;
	leat_batch_ref(b);
	*ret_tensor = &t->managed;
	return 0;
}

void leat_dlpack_delete(struct DLManagedTensor *t)
{
	if (t && t->deleter)
		t->deleter(t);
}
