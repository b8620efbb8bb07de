/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshot of the store that `leat fsck` reads page by page (ops/fsck.c), so that all pages
 * have one state while the server executes requests. There is one snapshot at a time. It is
 * dropped when it has not been read for a minute, so that a tool that died does not hold it.
 * Owned by the loop.
 */
#ifndef LEAT_MDS_FSCK_SNAPSHOT_H
#define LEAT_MDS_FSCK_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct kv_snapshot;
struct mds;

struct fsck {
	struct kv_snapshot *snap; /* NULL: none */
	uint64_t id, used_us;
	uint64_t next_ino, n_inodes; /* as the snapshot has them */
	bool counted;                /* n_inodes was found wrong, and repaired */
	uint32_t n_readers;          /* requests that read a page */
};

/* Replaces the snapshot, if there is one, by a new one. Returns 0, -LE_BUSY while a request
 * reads the old one, or the error of the store. Yields. */
int fsck_take(struct mds *m) CHECK_RESULT;
/* Drops the snapshot if it has not been read for a minute. Called each second. */
void fsck_expire(struct mds *m);
/* Drops the snapshot. Called before the store is closed, when no request reads it. */
void fsck_fini(struct mds *m);

#endif
