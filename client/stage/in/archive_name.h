/* SPDX-License-Identifier: Apache-2.0 */
/* Recognizes archives by their file names. Pure functions. */
#ifndef LEAT_CLIENT_STAGE_IN_ARCHIVE_NAME_H
#define LEAT_CLIENT_STAGE_IN_ARCHIVE_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the compression that the suffix of the name stands for (".tar.gz"): enum
 * decompress_kind, or -1. *ret_suffix: the length of the suffix. */
int plain_kind(const char *path, size_t *ret_suffix);
/* Returns the length of the suffix that makes it an archive: ".tar", ".tar.gz" and so on; 0: no
 * archive. */
size_t archive_suffix(const char *path);
/* Returns whether it is an archive of a kind that Leat does not unpack: zip, 7z, bzip2, xz. */
bool archive_is_foreign(const char *path);

#endif
