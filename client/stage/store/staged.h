/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The READY copies of this node, by inode number: for a mount, which serves their files instead of
 * the servers. Everything is owned by one loop.
 *
 *   an open with (inode, version) → has DIR/.leat/inodes changed (one stat)? list the copies,
 *   on a worker → the first index that has the inode at that version → its file
 *
 * A copy is served only if no user but this process's could change it: each folder from DIR/.leat
 * to the file, and the file, belong to that user, and no other user may write to them. Links are
 * not followed, except those between the directories of one copy. While a file of a copy is in
 * use, the copy's lease is held, so that it is not evicted: its space would not be free before the
 * last close.
 */
#ifndef LEAT_CLIENT_STAGE_STORE_STAGED_H
#define LEAT_CLIENT_STAGE_STORE_STAGED_H

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
/* All copies must have been put back. NULL is fine. */
void staged_destroy(struct staged *s);

struct staged_want {
	uint64_t ino, ver, size;
	uint32_t uid; /* its owner */
};
/* Opens the file of a copy for reading. Returns a descriptor, which the caller closes; the caller
 * ends with staged_put(*ret_copy). -LE_NOENT: no copy has that inode at that version. Yields. */
int staged_open(struct staged *s, const struct staged_want *want,
		struct staged_copy **ret_copy) CHECK_RESULT;
void staged_put(struct staged_copy *c);

/* Returns a number that changes whenever staged_open may find a file that it did not find
 * before. Does not yield. */
uint64_t staged_generation(struct staged *s);

struct staged_stats {
	uint32_t copies;  /* copies that can be served */
	uint32_t refused; /* copies that cannot: another user's, of another cluster, damaged, too
			   * many */
};
void staged_stats(const struct staged *s, struct staged_stats *ret_stats);

#endif
