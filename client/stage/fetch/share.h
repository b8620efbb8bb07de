/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of several nodes holds which files of a data set, if not each holds all. A pure function
 * of the manifest and the number of nodes, so all nodes compute the same result without messages.
 * Each node gets as many bytes as any other, up to the size of one file.
 *
 *   partition  the files in the order of their paths, in as many runs as there are nodes
 *   spread:K   the files in a pseudo-random order, each on K nodes
 *
 * Immutable after share_make.
 */
#ifndef LEAT_CLIENT_STAGE_FETCH_SHARE_H
#define LEAT_CLIENT_STAGE_FETCH_SHARE_H

#include "client/dataset/manifest.h"

enum placement { /* on the wire: never renumbered */
	PLACE_ALL = 0,
	PLACE_SPREAD = 1,
	PLACE_PARTITION = 2,
	PLACE_AUTO = 3 /* all where that is within the capacity, else as widely as that allows */
};

struct share {
	uint32_t *first; /* of each file: the first node that has it; the others follow it */
	uint32_t n_nodes, copies;
};

/* capacity: of each node, for PLACE_AUTO; 0: no limit. *ret_share NULL: each node has all files.
 * -LE_NOSPC: all nodes together have too little; -LE_NOMEM. Nothing here yields. */
int share_make(const struct manifest *m, enum placement how, uint32_t copies, uint32_t n_nodes,
	       uint64_t capacity, struct share **ret_share) CHECK_RESULT;
void share_destroy(struct share *s); /* NULL is fine */
/* Does the node have the file? share NULL: every node has every file. */
bool share_has(const struct share *s, uint32_t file, uint32_t node);

#endif
