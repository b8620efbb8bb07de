/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_path.h"

#include <stdio.h>

int store_join(char ret_path[STORE_PATH_SIZE], const char *dir, const char *name)
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/%s", dir, name);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

void store_part_path(const struct local_store *s, uint32_t file, char ret_path[STORE_PATH_SIZE])
{
	snprintf(ret_path, STORE_PATH_SIZE, "%.4000s/part/%u",
		 store_dir_of(s, store_place(s, file)), file);
}

int store_data_path(const struct local_store *s, uint32_t file, const char *path,
		    char ret_path[STORE_PATH_SIZE])
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/data/%s",
			 store_dir_of(s, store_place(s, file)), path);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}
