/*
 * What `leat fsck` reads: pages of records out of one snapshot of the store, so that what belongs
 * together fits together while everything goes on. One snapshot at a time, dropped when nobody has
 * read it for a minute: a tool that died holds nothing for long. Owned by the loop.
 */
#ifndef LEAT_MDS_FSCK_H
#define LEAT_MDS_FSCK_H

#include <stdbool.h>
#include <stdint.h>

struct kv_snapshot;
struct mds;

struct fsck {
	struct kv_snapshot *snap; /* NULL: none */
	uint64_t id, used_us;
	uint64_t next_ino, n_inodes; /* as the snapshot has them */
	bool counted;                /* n_inodes was found wrong, and mended */
	uint32_t n_readers;
};

/* From time to time. */
void fsck_expire(struct mds *m);
/* Nobody reads any more. Before the store is closed. */
void fsck_fini(struct mds *m);

#endif
