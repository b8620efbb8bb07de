/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/folder.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"

#define N_OPEN 16 /* folders that are open at once while a tree is removed */

void make_folder(const char *below, const char *name, char ret_path[FOLDER_MAX])
{
	const char *tmp = below ? below : getenv("TMPDIR");
	int n = snprintf(ret_path, FOLDER_MAX, "%s/%s.XXXXXX", tmp ? tmp : "/tmp", name);

	ASSERT(n > 0 && n < FOLDER_MAX);
	ASSERT(mkdtemp(ret_path));
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

void remove_folder(const char *path)
{
	ASSERT(nftw(path, remove_one, N_OPEN, FTW_DEPTH | FTW_PHYS) == 0);
}
