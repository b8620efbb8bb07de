/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy archives: each file is one sample, each member "x.npy" the field "x" of type "npy" (header
 * and data, see leat_array_parse). Stored and deflated members; zip64; no encryption.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_NPZ_H
#define LEAT_CLIENT_DATASET_FORMATS_NPZ_H

#include "client/dataset/formats/format.h"

/* Adds the samples of a file to b; the file was added before. -LE_CORRUPT or -LE_NOTSUP with
 * *ret_fault. */
int npz_index(struct index_builder *b, const struct format_input *in,
	      const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;

#endif
