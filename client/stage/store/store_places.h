/* SPDX-License-Identifier: Apache-2.0 */
/* Which files a copy has, and in which of its directories each lies. */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_PLACES_H
#define LEAT_CLIENT_STAGE_STORE_STORE_PLACES_H

#include "client/stage/store/local_store.h"

/* Adds a directory for files of the copy; before store_make_dirs. -LE_TOO_BIG: there are
 * STORE_DIRS_MAX already. Does not yield. */
int store_add_dir(struct local_store *s, const char *to) CHECK_RESULT;
/* Loads the directories and places that a previous run has chosen, if there was one; they replace
 * those of store_add_dir. n_files: of the manifest, or STORE_FILES_ANY. -LE_CORRUPT. Yields. */
#define STORE_FILES_ANY UINT32_MAX
int store_load_places(struct local_store *s, uint32_t n_files) CHECK_RESULT;
/* Stores s->places; durable. Yields. */
int store_save_places(struct local_store *s) CHECK_RESULT;
/* Loads the share that a previous run has chosen, if it has. With a damaged share all files
 * count as missing. Yields. */
int store_load_share(struct local_store *s, uint32_t n_files) CHECK_RESULT;
/* Stores s->share; NULL removes the file. READY and SHARE have to be cleared before. Yields. */
int store_save_share(struct local_store *s) CHECK_RESULT;
/* Makes the link in the first directory to a finished file that lies in another one. Yields. */
int store_link_data(struct local_store *s, uint32_t file, const char *path) CHECK_RESULT;

#endif
