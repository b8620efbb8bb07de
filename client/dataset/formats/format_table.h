/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all formats. A new format is an entry here. */
#ifndef LEAT_CLIENT_DATASET_FORMATS_FORMAT_TABLE_H
#define LEAT_CLIENT_DATASET_FORMATS_FORMAT_TABLE_H

#include "client/dataset/formats/format.h"

/* In the order in which names are matched; ends with a NULL name. */
extern const struct format format_table[];
/* Returns the format of that name; "fixed:N" and "fixed:N+SKIP" set *ret_options. NULL: no such
 * format. */
const struct format *format_find(const char *text, struct format_options *ret_options);
const struct format *format_of(enum index_format id);
/* True if a file's name suggests the format. */
bool format_matches(const struct format *f, const char *path);

#endif
