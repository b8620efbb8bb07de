/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a tree. */
#ifndef LEAT_CLIENT_TREE_REMOVE_H
#define LEAT_CLIENT_TREE_REMOVE_H

#include "client/tree/walk.h"

/* Which entries stay. `stays` is called with paths below the root ("" for the root) and the type
 * in mode. The entries of a directory that stays are removed unless they stay too. */
struct tree_keep {
	bool (*stays)(void *arg, const char *path, uint32_t mode);
	void *arg;
	bool open_up; /* give the owner access to directories with a mode that denies it */
};
/* Removes the tree at path; keep NULL: nothing stays. The walk reports entries that fail; the
 * returned status is that of the walk as a whole. Yields. */
int tree_remove(struct walk *w, struct side *s, const char *path,
		const struct tree_keep *keep) CHECK_RESULT;
/* Opens the directory of the path as top->src and returns the last component and its attributes.
 * The walk has reported a failure. Yields. */
int tree_find_root(struct walk *w, struct side *s, const char *path, struct wnode *top,
		   char *ret_name, struct tattr *ret_attr) CHECK_RESULT;

#endif
