/* SPDX-License-Identifier: Apache-2.0 */
/* Adding up the space of a tree. */
#ifndef LEAT_CLIENT_TREE_USAGE_H
#define LEAT_CLIENT_TREE_USAGE_H

#include "client/tree/walk.h"

struct tree_usage {
	uint32_t max_depth;
	leat_tree_each *each;
	void *arg;
};
/* Calls u->each for the directories of the tree, down to max_depth, with the sum of each. The
 * walk reports entries that fail; the returned status is that of the walk as a whole. Yields. */
int tree_usage(struct walk *w, struct side *s, const char *path,
	       const struct tree_usage *u) CHECK_RESULT;

#endif
