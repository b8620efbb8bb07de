/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recognizes the format of a file by its bytes: a record, a header or a table that only one format
 * has; in a packed file, by its first unpacked bytes. The name counts only if the bytes match no
 * format, so that a damaged shard is reported as damaged and not taken for another format. Reads
 * one or two KiB; of a packed file what one unpacked KiB needs, at most SNIFF_MAX. The bytes are
 * not trusted.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_SNIFF_H
#define LEAT_CLIENT_DATASET_FORMATS_SNIFF_H

#include "client/dataset/formats/format.h"

#define SNIFF_MAX ((4u << 20) + (64u << 10))

struct sniffed {
	enum index_format format; /* INDEX_FILES: no other format */
	enum packing packing;     /* PACKED_NOT for INDEX_FILES */
};

/* Recognizes a file. -LE_NOMEM, or the status of a failed in->read. in->path may be NULL. Yields
 * if in->read does. */
int sniff(const struct format_input *in, struct sniffed *ret_sniffed) CHECK_RESULT;
/* Recognizes a file by its name alone. */
struct sniffed sniff_name(const char *path);
/* Returns a name for messages, "gzip". */
const char *packing_name(enum packing p);

#endif
