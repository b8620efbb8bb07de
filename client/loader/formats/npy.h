/*
 * The header of a NumPy array (numpy.org/neps/nep-0001-npy-format): magic, version, length, and a
 * Python dict of three entries as text. Parsed here by hand: only what NumPy itself writes.
 */
#ifndef LEAT_LOADER_NPY_H
#define LEAT_LOADER_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define NPY_DIMS_MAX 32u
#define NPY_HEAD_MAX 65536u

struct npy {
	char type[16];      /* "<f4" */
	uint32_t item_size; /* bytes of an element */
	bool fortran;
	uint32_t n_dims;
	uint64_t shape[NPY_DIMS_MAX];
	uint64_t data; /* offset of the first element */
	uint64_t len;  /* bytes of all elements */
};

/* From the beginning of a file, at least its header. -LE_CORRUPT; -LE_NOTSUP: objects and records.
 * -LE_NODATA: the header is longer; data says how many bytes it takes. */
int npy_parse(const void *bytes, size_t len, struct npy *ret_npy) CHECK_RESULT;

#endif
