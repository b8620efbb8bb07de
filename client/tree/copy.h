/* SPDX-License-Identifier: Apache-2.0 */
/* Copying a tree. */
#ifndef LEAT_CLIENT_TREE_COPY_H
#define LEAT_CLIENT_TREE_COPY_H

#include "client/tree/walk.h"

struct tree_copy {
	struct side *from, *to;
	const char *path, *to_path;
	unsigned keep;
};
/* Copies the tree, in fibers of the loop that both sides belong to. The walk reports entries
 * that fail; the returned status is that of the walk as a whole. Yields. */
int tree_copy(struct walk *w, const struct tree_copy *c) CHECK_RESULT;

#endif
