/* SPDX-License-Identifier: Apache-2.0 */
/* Records of equal size; field "record". */
#ifndef LEAT_CLIENT_DATASET_FORMATS_FIXED_H
#define LEAT_CLIENT_DATASET_FORMATS_FIXED_H

#include "client/dataset/formats/format.h"

/* Adds the samples of a file to b; the file was added before. -LE_CORRUPT with *ret_fault: its
 * size does not fit o. */
int fixed_index(struct index_builder *b, const struct format_input *in,
		const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;

#endif
