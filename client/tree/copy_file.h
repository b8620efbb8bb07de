/* SPDX-License-Identifier: Apache-2.0 */
/* Copying one file of a tree, and naming copies. */
#ifndef LEAT_CLIENT_TREE_COPY_FILE_H
#define LEAT_CLIENT_TREE_COPY_FILE_H

#include "client/tree/copy.h"
#include "common/base/hmap.h"

struct copying {
	const struct tree_copy *c;
	char to_name[LEAT_NAME_MAX + 1]; /* name of the root's copy */
	bool same;                       /* both sides are local, or both in Leat, so equal
					  * device and inode mean one inode */
	uint64_t to_ino, to_dev;         /* of the root's copy, if it is a directory */
	struct tdir *top;                /* contains the root's copy */
	struct hmap links;
};

#define TEMP_NAME_MAX (LEAT_NAME_MAX + 1)
/* Makes the temporary name, in the same directory, of a copy that is not complete. */
void copy_temp_name(const char *name, char buf[TEMP_NAME_MAX]);
/* Checks whether the copy of a may get this name. 0: the name is free, or its file is to be
 * replaced; 1: the existing file is to stay; negative: it may not. Yields. */
int copy_may_replace(const struct copying *cp, struct tdir *d, const char *name,
		     const struct tattr *a) CHECK_RESULT;
/* Renames temp to the final name. 1: a file that is to stay has been made there meanwhile.
 * Yields. */
int copy_rename(const struct copying *cp, struct tdir *d, const char *temp,
		const char *name) CHECK_RESULT;

/* Copies a regular file. Sets ino and dev of *ret_link to the copy's. 1: an existing file stays.
 * Yields. */
int copy_file(struct wfiber *f, struct wnode *dir, const struct tent *e, const char *name,
	      struct tlink *ret_link) CHECK_RESULT;

#endif
