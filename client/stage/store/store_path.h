/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of a copy. Nothing here touches the disk. */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_PATH_H
#define LEAT_CLIENT_STAGE_STORE_STORE_PATH_H

#include "client/stage/store/local_store.h"

/* Sets ret_path to dir/name. -LE_NAMETOOLONG */
int store_join(char ret_path[STORE_PATH_SIZE], const char *dir, const char *name) CHECK_RESULT;
/* Returns the path of a file while it is incomplete. */
void store_part_path(const struct local_store *s, uint32_t file, char ret_path[STORE_PATH_SIZE]);
/* Returns the path of a finished file, by its number and its path in the manifest.
 * -LE_NAMETOOLONG */
int store_data_path(const struct local_store *s, uint32_t file, const char *path,
		    char ret_path[STORE_PATH_SIZE]) CHECK_RESULT;

#endif
