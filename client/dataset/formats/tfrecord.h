/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TFRecord (tensorflow.org/tutorials/load_data/tfrecord): u64 length, masked CRC-32C of it, data,
 * masked CRC-32C of the data. One sample per record, field "record". The CRC of a length is checked
 * here. The index stores the CRC of the data, which is checked whenever the record is read.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_TFRECORD_H
#define LEAT_CLIENT_DATASET_FORMATS_TFRECORD_H

#include "client/dataset/formats/format.h"

/* Adds the samples of a file to b; the file was added before. -LE_CORRUPT or -LE_NOTSUP with
 * *ret_fault. */
int tfrecord_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;

#endif
