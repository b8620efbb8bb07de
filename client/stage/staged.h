/*
 * The READY copies of this node, by inode number: for a mount, which serves them in the place of
 * the servers. Everything is owned by one loop.
 *
 *   an open asks for (inode, version) → has DIR/.leat/inodes changed (one stat)? look which copies
 *   there are, on a worker → the first index that has the inode at that version → its file
 *
 * A copy counts only if whoever could change it is the one that serves it: each folder on the way
 * from DIR/.leat to the file, and the file, belong to this process's user and nobody else may write
 * to them. Links are not followed, but for those between the
 * directories of one copy. While a file of a copy is in use, its lease is held, so that it
 * is not evicted for nothing: its space would not be free before the last close.
 */
#ifndef LEAT_STAGE_STAGED_H
#define LEAT_STAGE_STAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/uuid.h"
#include "common/rt/env.h"

#define STAGED_DIRS_MAX   16u
#define STAGED_COPIES_MAX 4096u /* of all directories */

struct staged;
struct staged_copy;

/* dirs: absolute paths, separated by spaces, commas or colons; they need not exist yet. */
int staged_create(struct env *env, const char *dirs, const struct uuid *cluster,
		  struct staged **ret_staged) CHECK_RESULT;
/* Nothing is in use any more. */
void staged_destroy(struct staged *s); /* NULL is fine */

struct staged_want {
	uint64_t ino, ver, size;
	uint32_t uid; /* who owns it */
};
/* A descriptor for reading, which the caller closes, and the copy that it belongs to, to be put:
 * -LE_NOENT when there is none. Yields. */
int staged_open(struct staged *s, const struct staged_want *want,
		struct staged_copy **ret_copy) CHECK_RESULT;
void staged_put(struct staged_copy *c);

/* Moves whenever staged_open may find what it did not find before. Yields not. */
uint64_t staged_generation(struct staged *s);

struct staged_stats {
	uint32_t copies;  /* that can be served */
	uint32_t refused; /* that cannot: somebody else's, of another cluster, damaged, too many */
};
void staged_stats(const struct staged *s, struct staged_stats *ret_stats);

#endif
