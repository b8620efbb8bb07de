/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes zeros into the newest write-ahead log in a folder, ahead of what RocksDB appends to it. A
 * sync of a file that grows, or has blocks that are written for the first time, waits for the file
 * system's journal; a sync of a file that was written before waits only for the data, and is two to
 * three times as fast. RocksDB's reader takes zeros for the end of the log, and RocksDB truncates a
 * log to its length when it closes it in order.
 *
 * Owned by the thread that writes to the store. No other thread may write: zeros are written only
 * after the present end of the file.
 */
#ifndef LEAT_COMMON_KV_KV_WAL_AHEAD_H
#define LEAT_COMMON_KV_KV_WAL_AHEAD_H

#include <stdint.h>

struct kv_wal_ahead {
	const char *path; /* of the folder; borrowed */
	int fd;           /* of the newest log; -1: none yet */
	uint64_t number;
	uint64_t at, end; /* RocksDB has written nothing after `at`; zeros up to end */
	uint32_t n_until_poll;
};

void kv_wal_ahead_init(struct kv_wal_ahead *w, const char *path);
void kv_wal_ahead_fini(struct kv_wal_ahead *w);
/* Called before a batch of that many bytes is written. Ignores failures: the sync is only slower
 * then. */
void kv_wal_ahead_write(struct kv_wal_ahead *w, uint64_t bytes);

#endif
