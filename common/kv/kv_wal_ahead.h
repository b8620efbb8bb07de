/*
 * Writes zeros into the newest write-ahead log in a folder, ahead of what RocksDB appends to it. A
 * sync of a file that grows, or whose blocks are written for the first time, waits for the file
 * system's journal; one of a file that was written before only for the data: two to three times as
 * fast. RocksDB's reader takes zeros for the end of the log, and a log that is closed in order is
 * cut to its length.
 *
 * Owned by the thread that writes to the store, which nobody else may do: zeros go only behind the
 * present end of the file.
 */
#ifndef LEAT_KV_KV_WAL_AHEAD_H
#define LEAT_KV_KV_WAL_AHEAD_H

#include <stdint.h>

struct kv_wal_ahead {
	const char *path; /* of the folder; borrowed */
	int fd;           /* of the newest log; -1: none yet */
	uint64_t number;
	uint64_t at, end; /* no write of RocksDB's is behind at; zeros up to end */
	uint32_t n_until_look;
};

void kv_wal_ahead_init(struct kv_wal_ahead *w, const char *path);
void kv_wal_ahead_fini(struct kv_wal_ahead *w);
/* Before a batch of that many bytes is written. What fails is left: it is only slower then. */
void kv_wal_ahead_write(struct kv_wal_ahead *w, uint64_t bytes);

#endif
