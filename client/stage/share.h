/*
 * Which of several nodes holds which files of a data set, where not each holds all of it: a pure
 * function of the manifest and of how many nodes there are, so that all of them come to the same
 * without asking. By bytes, each node gets as much as any other, but for the size of a file.
 *
 *   partition  the files in the order of their paths, cut into as many runs as there are nodes
 *   spread:K   in an order that looks random, each on K nodes
 *
 * Immutable once made.
 */
#ifndef LEAT_STAGE_SHARE_H
#define LEAT_STAGE_SHARE_H

#include "client/stage/manifest.h"

enum placement { /* on the wire: never renumbered */
	PLACE_ALL = 0,
	PLACE_SPREAD = 1,
	PLACE_PARTITION = 2,
	PLACE_AUTO = 3 /* all where that is within the capacity, else as widely as that allows */
};

struct share {
	uint32_t *first; /* of each file: the first node that has it; the others come behind it */
	uint32_t n_nodes, copies;
};

/* capacity: of each node, for PLACE_AUTO; 0: no limit. *ret_share NULL: each has all. -LE_NOSPC:
 * all of them together have too little. -LE_NOMEM */
int share_make(const struct manifest *m, enum placement how, uint32_t copies, uint32_t n_nodes,
	       uint64_t capacity, struct share **ret_share) CHECK_RESULT;
void share_destroy(struct share *s); /* NULL is fine */
/* share NULL: every node has every file. */
bool share_has(const struct share *s, uint32_t file, uint32_t node);

#endif
