/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MosaicML Streaming, MDS version 2 (github.com/mosaicml/streaming, base/format/mds): u32 n,
 * (n + 1) × u32 offset, a JSON text that names the columns, samples. A field for each column, with
 * its encoding as type. Compressed shards: -LE_NOTSUP.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_MDS_H
#define LEAT_CLIENT_DATASET_FORMATS_MDS_H

#include "client/dataset/formats/format.h"

/* Adds the samples of a file to b; the file was added before. -LE_CORRUPT or -LE_NOTSUP with
 * *ret_fault. */
int mds_index(struct index_builder *b, const struct format_input *in,
	      const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;

#endif
