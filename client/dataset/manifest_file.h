/* SPDX-License-Identifier: Apache-2.0 */
/* The two files of a manifest, manifest and sums: see manifest.h. */
#ifndef LEAT_CLIENT_DATASET_MANIFEST_FILE_H
#define LEAT_CLIENT_DATASET_MANIFEST_FILE_H

#include "client/dataset/manifest.h"

/* Encode the file `manifest` and the file `sums`: malloc'd. -LE_NOMEM */
int manifest_encode(const struct manifest *m, char **ret_text, size_t *ret_len) CHECK_RESULT;
int manifest_encode_sums(const struct manifest *m, void **ret_data, size_t *ret_len) CHECK_RESULT;
/* Decodes both files and checks every byte. -LE_CORRUPT, with the line in d; -LE_NOTSUP: of
 * another version. Does not yield. */
int manifest_decode(const char *text, size_t len, const void *sums, size_t sums_len,
		    struct manifest **ret_manifest, struct detail *d) CHECK_RESULT;
/* Reads and decodes both files in dir. Yields. */
int manifest_load(struct vol *v, const char *dir, struct manifest **ret_manifest,
		  struct detail *d) CHECK_RESULT;
/* Writes both files to dir. Yields. */
int manifest_store(struct vol *v, const char *dir, const struct manifest *m) CHECK_RESULT;

#endif
