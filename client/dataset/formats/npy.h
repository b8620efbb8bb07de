/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a NumPy array (numpy.org/neps/nep-0001-npy-format): magic, version, length, and a
 * Python dict of three entries as text. The parser accepts only what NumPy writes.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_NPY_H
#define LEAT_CLIENT_DATASET_FORMATS_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/dataset/formats/format.h"
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

/* Parses an array from the start of a file that contains at least the header. -LE_CORRUPT;
 * -LE_NOTSUP: objects and records. -LE_NODATA: the header is longer; ret_npy->data is its size. */
int npy_parse(const void *bytes, size_t len, struct npy *ret_npy) CHECK_RESULT;

/* Adds NumPy arrays (numpy.org, NEP 1): each row of the first axis is a sample, with the field
 * "data" and the type of a row: "<f4[3,224,224]". C order only. */
int npy_rows_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;

#endif
