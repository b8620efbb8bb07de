/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FFRecord (github.com/HFAiLab/ffrecord): u32 CRC, u64 n, n × u32 CRC-32, n × u64 offset, samples.
 * Field "record". The index stores the samples' CRCs.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_FFRECORD_H
#define LEAT_CLIENT_DATASET_FORMATS_FFRECORD_H

#include "client/dataset/formats/format.h"

/* Adds the samples of a file to b; the file was added before. -LE_CORRUPT or -LE_NOTSUP with
 * *ret_fault. */
int ffrecord_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;

#endif
